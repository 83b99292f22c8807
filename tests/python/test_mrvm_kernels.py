"""mRVM1 and mRVM2 with several kernels, and the step that learns their weights."""

import numpy as np
import pytest

import mrvm_reference as reference
from problems import assert_certified
from sparsebayes import MRVM1, MRVM2, _core
from sparsebayes._mrvm import Composite, JointAscent, learn_kernel_weights
from sparsebayes.kernels import Gaussian, Linear, OnColumns

MRVMS = [MRVM1, MRVM2]


def path(model):
    return model.lower_bound_path_ if isinstance(model, MRVM1) else model.log_joint_likelihood_path_


def pairs(n, *, shift, seed, n_noise=2):
    """Two pairs of inputs, each telling one of three classes from the others, and noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    first, second, noise = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)), rng.normal(size=(n, n_noise))
    first[y == 0, 0] += shift
    second[y == 1, 0] += shift
    return np.hstack([first, second, noise]), y


def composite(blocks, bias):
    return Composite(blocks, bias, np.arange(blocks[0].shape[1]))


def simplex(centre, reach, n):
    """A grid on the simplex of three weights about ``centre``."""
    steps = np.linspace(-reach, reach, n)
    a, b = (v.ravel() for v in np.meshgrid(centre[0] + steps, centre[1] + steps))
    points = np.column_stack([a, b, 1.0 - a - b])
    return points[(points >= -1e-12).all(axis=1)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_step_is_the_minimum_on_a_fine_grid(seed, bias, spread, weighted):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(25, 6)) for _ in range(3)]
    columns = np.array([0, 2, 3, 6]) if bias else np.array([0, 3, 5])
    m = len(columns)
    mu, targets = rng.normal(size=(m, 3)), rng.normal(size=(25, 3))
    root = 0.3 * rng.normal(size=(m, m))
    Sigma = root @ root.T if spread else None
    w = rng.uniform(0.3, 2.0, 25) if weighted else None
    at = columns[int(bias) :] - int(bias)
    # So that the minimum is a mixture, not a corner.
    inner = [block[:, at] for block in blocks]
    targets += inner[0] @ mu[int(bias) :] / 2.0 + inner[1] @ mu[int(bias) :] / 3.0
    found = learn_kernel_weights(composite(blocks, bias), columns, mu, Sigma, targets, w)

    def error(b):
        return reference.expected_error(inner, b, bias, mu, Sigma, targets, w)

    best = np.full(3, 1.0 / 3.0)
    for reach in (1.0, 0.05, 2e-3, 1e-4):
        grid = simplex(best, reach, 41)
        best = grid[np.argmin([error(b) for b in grid])]
    np.testing.assert_allclose(found, best, atol=2e-5)
    assert error(found) <= error(best) + 1e-9
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_the_joint_bound_and_its_gradient_agree_with_the_reference(bias):
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(30, 8)) for _ in range(3)]
    labels, w = np.arange(30) % 3, rng.uniform(0.5, 2, 30)
    columns = np.array([0, 2, 5, 6])

    def expectations(scores):
        targets, log_p = _core.probit_expectations(scores, labels, n_nodes=64)
        return targets, float(w @ log_p)

    climb = JointAscent(composite(blocks, bias), columns, w, expectations)
    W, alpha, b = rng.normal(size=(4, 3)), rng.uniform(0.5, 2.0, 4), np.array([0.2, 0.5, 0.3])
    bound, (in_W, in_alpha, in_b) = climb._bound(W, alpha, b)
    Phi = composite(blocks, bias).Phi(b, columns)
    assert bound == pytest.approx(reference.lower_bound(Phi, labels, W, alpha, w), abs=1e-8)
    dW, du, db = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3)

    def along(step):
        return climb._bound(W + step * dW, alpha * np.exp(step * du), b + step * db)[0]

    slope = (in_W * dW).sum() + in_alpha @ du + in_b @ db
    assert slope == pytest.approx((along(1e-5) - along(-1e-5)) / 2e-5, abs=1e-6)
    # The scale of the kernel weights is free: weights and precisions of kernel functions make up for it.
    kernels = columns >= int(bias)
    other = np.where(kernels[:, np.newaxis], W / 2.0, W), np.where(kernels, 4.0 * alpha, alpha), 2.0 * b
    assert climb._bound(*other)[0] == pytest.approx(bound, rel=1e-12)
    mu, _ = reference.posterior(Phi, expectations(np.asfortranarray(Phi @ W))[0], alpha, w)
    scores, alpha, b = climb.maximise(mu, alpha, b, n_steps=1000, ftol=1e-14)
    assert b.sum() == pytest.approx(1.0)
    Phi = composite(blocks, bias).Phi(b, columns)
    Y = expectations(np.asfortranarray(scores))[0]
    np.testing.assert_allclose(Phi @ reference.posterior(Phi, Y, alpha, w)[0], scores, atol=1e-4)


@pytest.fixture(scope="module")
def three_kernels():
    return [OnColumns(Gaussian(1.5), columns) for columns in ([0, 1], [2, 3], [4, 5])]


@pytest.mark.parametrize("kind", MRVMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_kernel_of_noise_gets_hardly_any_weight(kind, seed):
    kernels = [OnColumns(Gaussian(2.0), columns) for columns in ([0, 1], [2, 3], range(4, 16))]
    X, y = pairs(120, shift=4.0, seed=seed, n_noise=12)
    model = kind(kernels).fit(X, y)
    assert model.status_ == "converged"
    b = model.kernel_weights_
    assert b[2] < 0.05
    assert b[:2].min() > 0.2
    assert b.min() >= 0.0
    assert b.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(path(model)) >= -1e-8 * np.abs(path(model)[-1])).all()
    new, labels = pairs(300, shift=4.0, seed=99, n_noise=12)
    assert model.score(new, labels) > 0.85
    scores = sum(
        weight * kernel(new, model.relevance_vectors_)
        for weight, kernel in zip(b, model.kernel_, strict=True)
    )
    expected = scores @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(new), expected, atol=1e-10)


@pytest.mark.parametrize("kind", MRVMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_with_several_kernels_paths_do_not_fall(kind, seed, three_kernels):
    X, y = pairs(45, shift=2.5, seed=seed)
    w = np.random.default_rng(seed).integers(1, 3, 45).astype(float) if seed else None
    model = kind([*three_kernels, Linear()] if seed else three_kernels).fit(X, y, w)
    assert model.status_ == "converged"
    assert 3 < len(path(model)) < (60 if kind is MRVM1 else 5000)
    assert (np.diff(path(model)) >= -1e-8 * np.abs(path(model)[-1])).all()
    if kind is MRVM1:
        assert_certified(model, X, y, w)


def test_the_weights_are_at_the_minimum_when_mrvm1_ends(three_kernels):
    X, y = pairs(45, shift=2.5, seed=0)
    model = MRVM1(three_kernels, fit_intercept=False).fit(X, y)
    blocks = [kernel(X, X) for kernel in three_kernels]
    inner = [block[:, model.active_] for block in blocks]
    Phi = sum(b * block for b, block in zip(model.kernel_weights_, inner, strict=True))
    Y, _ = reference.expectations(Phi @ model.mu_, y)
    again = learn_kernel_weights(composite(blocks, False), model.active_, model.mu_, model.sigma_, Y, None)
    np.testing.assert_allclose(again, model.kernel_weights_, atol=1e-4)


@pytest.mark.parametrize("kind", MRVMS)
def test_equal_kernels_have_equal_weights(kind):
    X, y = pairs(45, shift=2.5, seed=0)
    short = {"convergence": "conv1" if kind is MRVM1 else "convN"}
    alone, twice, listed = (kind(kernel, **short).fit(X, y) for kernel in ("rbf", ["rbf", "rbf"], ["rbf"]))
    np.testing.assert_allclose(twice.kernel_weights_, 0.5, atol=1e-6)
    np.testing.assert_array_equal(twice.active_, alone.active_)
    np.testing.assert_allclose(twice.predict_proba(X), alone.predict_proba(X), atol=1e-3)
    np.testing.assert_array_equal(listed.kernel_weights_, [1.0])
    np.testing.assert_array_equal(listed.mu_, alone.mu_)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 33, 43])
def test_functions_that_vanish_with_the_weight_of_a_kernel_leave_the_model(seed, fit_intercept):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 1)).round()
    y = X[:, 0] + 0.7 * rng.normal(size=20) > 0.0
    model = MRVM1([Gaussian(1.0), "linear"], fit_intercept=fit_intercept).fit(X, y)
    assert_certified(model, X, y)
    Phi = sum(b * kernel(X, X) for b, kernel in zip(model.kernel_weights_, model.kernel_, strict=True))
    assert Phi[:, model.active_[model.active_ >= 0]].any(axis=0).all()
