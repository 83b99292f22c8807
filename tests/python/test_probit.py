"""The multinomial probit likelihood against brute force: quadrature, a fine grid, and simulation."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import log_ndtr

import probit_reference as reference
from sparsebayes._core import (
    PROBIT_NODES,
    probit_expectations,
    probit_log_probabilities,
    probit_probabilities,
)

CLASSES = [2, 3, 4, 5, 7, 10]


def table(rows):
    return np.asfortranarray(np.atleast_2d(np.asarray(rows, dtype=float)))


def scores_of_all_kinds(n_classes, n_rows, seed):
    """Spread, tied, nearly tied, one far ahead, one far behind, in groups: sizes from 0.1 to 1000."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n_rows):
        size = 10.0 ** rng.uniform(-1.0, 3.0)
        row = rng.normal(size=n_classes) * (size if k % 6 == 0 else 1.0)
        if k % 6 == 1:
            row = np.zeros(n_classes)
            row[0] = rng.uniform(-6.0, 6.0)
        elif k % 6 == 2:
            row[rng.integers(n_classes)] += size
        elif k % 6 == 3:
            row[0] -= size
        elif k % 6 == 4:
            row = 0.3 * size * rng.integers(0, 3, n_classes) + 0.1 * row
        elif k % 6 == 5:
            row = np.where(rng.random(n_classes) < 0.5, 0.0, rng.uniform(0.0, 6.0))
        rows.append(np.clip(row, -1e3, 1e3))
    return table(rows)


def expected(scores, labels):
    """Log probabilities of the labels and means of the copies."""
    pairs = [reference.by_trapezoid(f, label) for f, label in zip(scores, labels, strict=True)]
    return np.array([p for p, _ in pairs]), np.array([y for _, y in pairs])


@pytest.mark.parametrize("n_classes", CLASSES)
def test_expectations_agree_with_adaptive_quadrature(n_classes):
    rng = np.random.default_rng(n_classes)
    for size in [0.3, 2.0, 8.0]:
        f = size * rng.normal(size=n_classes)
        label = int(rng.integers(n_classes))
        log_p, y = reference.by_quad(f, label)
        ours, ours_log_p = probit_expectations(table(f), np.array([label]))
        assert abs(ours_log_p[0] - log_p) < 1e-6
        np.testing.assert_allclose(ours[0], y, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [*CLASSES, 30])
def test_everything_is_exact_to_a_millionth_up_to_scores_of_a_thousand(n_classes):
    f = scores_of_all_kinds(n_classes, 180, seed=n_classes)
    labels = np.random.default_rng(0).integers(0, n_classes, len(f))
    labels[::2] = 0
    log_p, y = expected(f, labels)
    ours, ours_log_p = probit_expectations(f, labels)
    np.testing.assert_allclose(ours, y, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(ours_log_p, log_p, rtol=1e-12, atol=1e-6)
    own = np.arange(len(f)), labels
    np.testing.assert_allclose(probit_probabilities(f)[own], np.exp(log_p), rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(probit_log_probabilities(f)[own], log_p, rtol=1e-12, atol=1e-6)


def test_more_nodes_are_more_exact():
    f = scores_of_all_kinds(10, 120, seed=3)
    labels = np.zeros(len(f), dtype=np.int64)
    _, y = expected(f, labels)
    errors = [np.abs(probit_expectations(f, labels, n_nodes=n)[0] - y).max() for n in (4, 8, 12, 16, 24)]
    assert all(after < 0.2 * before for before, after in pairwise(errors)), errors
    assert PROBIT_NODES == 16
    assert errors[3] < 1e-6


def test_two_classes_have_the_closed_form():
    d = np.concatenate([np.linspace(-40.0, 40.0, 81), [-1e3, 1e3]])
    f = table(np.column_stack([np.zeros_like(d), d]))
    np.testing.assert_allclose(
        probit_log_probabilities(f)[:, 1], log_ndtr(d / np.sqrt(2.0)), rtol=1e-13, atol=1e-15
    )
    y, _ = probit_expectations(f, np.ones(len(d), dtype=np.int64))
    x = d / np.sqrt(2.0)
    hazard = np.exp(-0.5 * x**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(x))
    np.testing.assert_allclose(y[:, 1] - d, hazard / np.sqrt(2.0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 30])
def test_probabilities_sum_to_one_whatever_the_scores(n_classes):
    f = scores_of_all_kinds(n_classes, 300, seed=20 + n_classes)
    for p in (probit_probabilities(f), np.exp(probit_log_probabilities(f))):
        assert np.all(p >= 0.0)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(
        probit_probabilities(f), np.exp(probit_log_probabilities(f)), rtol=0.0, atol=1e-6
    )


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_nothing_underflows_far_out(n_classes):
    f = np.zeros((3, n_classes))
    f[0, 0], f[1, 0], f[2, 0] = -1e3, 1e3, -1e12
    log_p = probit_log_probabilities(table(f))
    # k rivals at distance D: the exponent of their least squared sum is D^2 / 2 times k / (k + 1).
    rivals = n_classes - 1
    assert log_p[0, 0] == pytest.approx(-0.5e6 * rivals / (rivals + 1), rel=1e-3)
    assert log_p[2, 0] == pytest.approx(-0.5e24 * rivals / (rivals + 1), rel=1e-9)
    np.testing.assert_allclose(log_p[1, 0], 0.0, atol=1e-12)
    y, own = probit_expectations(table(f), np.zeros(3, dtype=np.int64))
    assert np.all(np.isfinite(y))
    assert np.all(np.isfinite(own))
    np.testing.assert_allclose(y[1], f[1], atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 6, 10])
def test_a_permutation_of_the_classes_permutes_the_result(n_classes):
    rng = np.random.default_rng(n_classes)
    f = scores_of_all_kinds(n_classes, 60, seed=n_classes)
    labels = rng.integers(0, n_classes, len(f))
    order = rng.permutation(n_classes)
    y, log_p = probit_expectations(f, labels)
    permuted, permuted_log_p = probit_expectations(table(f[:, order]), np.argsort(order)[labels])
    np.testing.assert_allclose(permuted, y[:, order], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(permuted_log_p, log_p, rtol=1e-12, atol=1e-9)
    p = probit_probabilities(f)
    np.testing.assert_allclose(probit_probabilities(table(f[:, order])), p[:, order], atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_the_copies_lie_in_the_cone_of_their_class(n_classes):
    f = scores_of_all_kinds(n_classes, 200, seed=n_classes)
    labels = np.random.default_rng(1).integers(0, n_classes, len(f))
    y, _ = probit_expectations(f, labels)
    own = y[np.arange(len(f)), labels]
    assert np.all(own >= y.max(axis=1))
    # Equation (4): the copies' sum stays that of the scores.
    np.testing.assert_allclose(y.sum(axis=1), f.sum(axis=1), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 5, 10])
def test_what_the_copies_move_is_the_gradient_of_the_log_probability(n_classes):
    rng = np.random.default_rng(n_classes)
    f = 2.0 * rng.normal(size=(20, n_classes))
    labels = rng.integers(0, n_classes, len(f))
    y, _ = probit_expectations(table(f), labels)
    h = 1e-4
    for c in range(n_classes):
        step = h * np.eye(n_classes)[c]
        up, down = (probit_expectations(table(g), labels, n_nodes=40)[1] for g in (f + step, f - step))
        np.testing.assert_allclose((up - down) / (2.0 * h), y[:, c] - f[:, c], rtol=0.0, atol=2e-6)


def test_results_have_the_form_of_the_scores():
    f = table(np.zeros((4, 3)))
    y, log_p = probit_expectations(f, np.zeros(4, dtype=np.int64))
    assert (y.shape, log_p.shape) == ((4, 3), (4,))
    assert y.flags.f_contiguous
    np.testing.assert_allclose(probit_probabilities(f), 1.0 / 3.0, atol=1e-9)
    assert probit_probabilities(table(np.empty((0, 3)))).shape == (0, 3)


@pytest.mark.parametrize(
    ("scores", "labels", "options", "message"),
    [
        ([[0.0, np.nan]], [0], {}, "scores holds values that are not finite"),
        ([[0.0, np.inf]], [0], {}, "scores holds values that are not finite"),
        ([[0.0, 1e13]], [0], {}, "scores must not exceed"),
        ([[0.0]], [0], {}, "scores must have two columns at least"),
        ([[0.0, 1.0]], [2], {}, "labels must lie below the number of classes, 2; got 2"),
        ([[0.0, 1.0]], [-1], {}, "labels must not be negative"),
        ([[0.0, 1.0]], [0, 1], {}, "labels must hold one class number for each of 1 rows, got 2"),
        ([[0.0, 1.0]], [0], {"n_nodes": 0}, "n_quadrature must lie between 1 and 1000, got 0"),
    ],
)
def test_bad_input_is_named(scores, labels, options, message):
    with pytest.raises(ValueError, match=message):
        probit_expectations(table(scores), np.array(labels), **options)


def test_arrays_of_another_order_are_refused():
    with pytest.raises(ValueError, match="scores must be in Fortran order"):
        probit_probabilities(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="labels must be contiguous"):
        probit_expectations(table(np.zeros((3, 4))), np.zeros(6, dtype=np.int64)[::2])
    with pytest.raises(TypeError):
        probit_expectations(table(np.zeros((3, 4))), np.zeros(3))
