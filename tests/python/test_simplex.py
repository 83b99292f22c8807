"""Quadratic forms over the simplex: conditions of a minimum, brute force, symmetry."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsebayes._mrvm import minimise_on_simplex

# Small integers: matrices are singular exactly or not at all.
small = st.integers(-3, 3).map(float)


@st.composite
def forms(draw, largest=7, in_range=True):
    """A^T A of any rank, and an f in its range, or perhaps out of it."""
    size, rank = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    A = draw(arrays(np.float64, (rank, size), elements=small))
    if in_range or draw(st.booleans()):
        return A.T @ A, A.T @ draw(arrays(np.float64, rank, elements=small))
    return A.T @ A, draw(arrays(np.float64, size, elements=small))


def value(Omega, f, b):
    return 0.5 * b @ Omega @ b - f @ b


def violation(Omega, f, b):
    """How far b is from the conditions of Karush, Kuhn and Tucker, in proportion to the terms in them."""
    g, terms = Omega @ b - f, np.abs(Omega) @ b + np.abs(f)
    excess, size = g - b @ g, terms + b @ terms
    size[size == 0.0] = 1.0
    return np.max(np.where(b > 0.0, np.abs(excess), np.maximum(-excess, 0.0)) / size)


def supports(size):
    return map(list, chain.from_iterable(combinations(range(size), n) for n in range(1, size + 1)))


def minimum_by_enumeration(Omega, f):
    """The least value on any face: at least one minimum is on a face with a single one."""
    least = np.inf
    for support in supports(len(f)):
        n = len(support)
        bordered = np.block([[Omega[np.ix_(support, support)], np.ones((n, 1))], [np.ones(n), 0.0]])
        if np.linalg.matrix_rank(bordered) <= n:
            continue
        b = np.linalg.solve(bordered, np.append(f[support], 1.0))[:n]
        if b.min() >= -1e-12:
            least = min(least, value(Omega[np.ix_(support, support)], f[support], b))
    return least


def shortest_by_enumeration(Omega, f, minimum):
    """Least sum of Omega_ii b_i^2 over all b with the same Omega b and f^T b; no Omega_ii is 0."""
    size, best = len(f), np.inf
    units = np.sqrt(np.diagonal(Omega))
    conditions = np.vstack([Omega, f, np.ones(size)])
    wanted = conditions @ minimum
    for support in supports(size):
        # The shortest solution of these equations in b_i sqrt(Omega_ii).
        c = np.linalg.pinv(conditions[:, support] / units[support], rcond=1e-10) @ wanted
        misfit = (conditions[:, support] / units[support]) @ c - wanted
        if c.min() >= -1e-9 and np.abs(misfit).max() <= 1e-9:
            best = min(best, c @ c)
    return best


#: Of the solutions of its equations the shortest has a negative number.
ONE_DIRECTION = np.array([1.0, 0.0, -1.0, 1.0, 1.0, 1.0, -2.0, 1.0, -1.0, 2.0])
SHORTEST_IS_NEGATIVE = (
    np.outer(ONE_DIRECTION, ONE_DIRECTION),
    np.array([-2.0, 0.0, -2.0, 0.0, 1.0, 0.0, -2.0, 1.0, -1.0, 2.0]),
)


@example(SHORTEST_IS_NEGATIVE)
@given(forms(12, in_range=False))
def test_the_conditions_of_a_minimum_hold(form):
    b = minimise_on_simplex(*form)
    assert b.min() >= 0.0
    assert b.sum() == pytest.approx(1.0, abs=1e-15 * len(b))
    assert violation(*form, b) <= 1e-10


@given(forms(4, in_range=False))
def test_no_face_has_a_lower_minimum(form):
    Omega, f = form
    found = value(Omega, f, minimise_on_simplex(Omega, f))
    size = np.abs(Omega).max() + np.abs(f).max()
    assert found == pytest.approx(minimum_by_enumeration(Omega, f), abs=1e-13 * size)


@given(forms(4))
def test_of_several_minima_the_shortest_is_taken(form):
    Omega, f = form
    Omega = Omega + np.diag(np.where(np.diagonal(Omega) == 0.0, 1.0, 0.0))
    b = minimise_on_simplex(Omega, f)
    shortest = shortest_by_enumeration(Omega, f, b)
    assert np.diagonal(Omega) @ b**2 == pytest.approx(shortest, rel=1e-8)


@given(forms(9), st.randoms(use_true_random=False))
def test_permuting_the_variables_permutes_the_weights(form, random):
    Omega, f = form
    order = random.sample(range(len(f)), len(f))
    permuted = minimise_on_simplex(Omega[np.ix_(order, order)], f[order])
    np.testing.assert_allclose(permuted, minimise_on_simplex(Omega, f)[order], atol=1e-9)


@given(forms(5), st.integers(2, 4))
def test_equal_variables_share_what_one_of_them_would_have(form, copies):
    Omega, f = form
    which = np.repeat(np.arange(len(f)), copies)
    b = minimise_on_simplex(Omega[np.ix_(which, which)], f[which]).reshape(len(f), copies)
    np.testing.assert_allclose(b, np.repeat(b[:, :1], copies, axis=1), atol=1e-10)
    assert value(Omega, f, b.sum(axis=1)) == pytest.approx(
        value(Omega, f, minimise_on_simplex(Omega, f)), abs=1e-12 * (1.0 + np.abs(Omega).max())
    )


@given(forms(6), st.floats(1e-200, 1e200))
def test_a_common_factor_changes_nothing(form, factor):
    Omega, f = form
    scaled = minimise_on_simplex(factor * Omega, factor * f)
    np.testing.assert_allclose(scaled, minimise_on_simplex(Omega, f), atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_bad_scales_and_lost_ranks_do_no_harm(seed):
    rng = np.random.default_rng(seed)
    size, rank = rng.integers(2, 40), rng.integers(1, 50)
    A = rng.normal(size=(rank, size)) * 10.0 ** rng.uniform(-3, 3, size)
    if size > 3:
        A[:, 1] = A[:, 0] * (1.0 + 1e-9 * rng.normal(size=rank))  # nearly the same
    Omega = A.T @ A
    f = A.T @ rng.normal(size=rank) if seed % 2 else np.sqrt(np.diagonal(Omega)) * rng.normal(size=size)
    assert violation(Omega, f, minimise_on_simplex(Omega, f)) <= 1e-9


@pytest.mark.parametrize(
    ("Omega", "f", "expected"),
    [
        ([[3.0]], [-1.0], [1.0]),
        (np.zeros((3, 3)), np.zeros(3), np.full(3, 1 / 3)),
        (np.diag([1.0, 0.0]), [0.0, 0.0], [0.0, 1.0]),
        (np.diag([1.0, 2.0, 4.0]), np.zeros(3), np.array([4.0, 2.0, 1.0]) / 7.0),
        (np.eye(2), [10.0, 0.0], [1.0, 0.0]),
    ],
)
def test_cases_known_by_hand(Omega, f, expected):
    np.testing.assert_allclose(minimise_on_simplex(Omega, f), expected, atol=1e-14)
