"""mRVM1 and mRVM2 compared with the dense reference, step by step and at convergence."""

import numpy as np
import pytest

import mrvm_reference as reference
from problems import PAPERS
from sparsebayes import MRVM1, MRVM2, SparseBayesRegressor, _core
from sparsebayes.inspection import certificate

NOTHING = {"active": np.empty(0, np.int64), "alpha": np.empty(0)}
TAU = UPSILON = 1e-6


@pytest.fixture(scope="module")
def three():
    """Three classes in a row, a bump about each of 45 rows; K = 45."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(45, 2))
    labels = np.digitize(X[:, 0] + 0.4 * rng.normal(size=45), [-0.5, 0.5])
    return np.exp(-0.5 * ((X[:, np.newaxis] - X) ** 2).sum(axis=-1)), labels


def first_targets(labels, n_classes):
    return 4.0 * (np.arange(n_classes) == np.asarray(labels)[:, np.newaxis]) - 4.0 / n_classes


def precisions(model, n_basis):
    """Values for all functions in the order of the dictionary, the bias first if there is one."""
    alpha = np.full(n_basis + model.fit_intercept, np.inf)
    alpha[model.active_ + model.fit_intercept] = model.alpha_
    return alpha


def dictionary(model, K):
    return np.hstack([np.ones((len(K), int(model.fit_intercept))), K])


# --- the M-step of mRVM1 ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [15, 40, 60])
@pytest.mark.parametrize("seed", [0, 1])
def test_with_one_target_the_m_step_is_the_sequential_scheme(n_columns, seed):
    rng = np.random.default_rng(seed)
    Phi = np.asfortranarray(rng.normal(size=(60, n_columns)))
    t = Phi[:, :4] @ [3.0, -2.0, 1.5, -1.0] + rng.normal(size=60)
    targets = t[:, np.newaxis]
    fit = _core.RetargetedFit(Phi, targets, **NOTHING)
    status, trace, _ = fit.maximise(targets, gain=1e-7, tol=1e-7, max_iter=10_000)
    alone = SparseBayesRegressor(noise_variance=1.0, fit_intercept=False, tol=1e-7, **PAPERS).fit(Phi, t)
    found = fit.posterior()
    assert status == "converged"
    np.testing.assert_array_equal(found.active, alone.active_)
    np.testing.assert_allclose(found.alpha, alone.alpha_, rtol=1e-6)
    np.testing.assert_allclose(found.mu[:, 0], alone.mu_, rtol=1e-6)
    np.testing.assert_allclose(found.sigma[0], alone.sigma_, rtol=1e-6, atol=1e-12)
    assert trace[-1] == pytest.approx(alone.log_marginal_likelihood_, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_m_step_ends_at_a_stationary_point(three, weighted):
    K, labels = three
    w = np.random.default_rng(0).uniform(0.3, 3.0, 45) if weighted else None
    Y = first_targets(labels, 3) + np.random.default_rng(1).normal(size=(45, 3))
    fit = _core.RetargetedFit(np.asfortranarray(K), np.asfortranarray(Y), w, **NOTHING)
    status, trace, n_active = fit.maximise(np.asfortranarray(Y), gain=1e-7, tol=1e-7, max_iter=10_000)
    found = fit.posterior()
    alpha = np.full(45, np.inf)
    alpha[found.active] = found.alpha
    assert status == "converged"
    assert len(found.active) == n_active[-1] > 2
    assert trace[-1] == pytest.approx(reference.log_evidence(K, Y, alpha, w), rel=1e-9)
    assert trace[0] == pytest.approx(reference.log_evidence(K, Y, np.full(45, np.inf), w), rel=1e-9)
    assert max(reference.stationarity(K, Y, alpha, w)) < 1e-6
    mu, Sigma = reference.posterior(K, Y, alpha, w)
    np.testing.assert_allclose(found.mu, mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.sigma[0], Sigma, rtol=1e-7, atol=1e-12)


def test_every_update_of_an_m_step_achieves_its_predicted_gain(three):
    K, labels = three
    Y = np.asfortranarray(first_targets(labels, 3) + np.random.default_rng(1).normal(size=(45, 3)))
    fit, steps = _core.RetargetedFit(np.asfortranarray(K), Y, **NOTHING), []

    def watch(*step):
        steps.append(step)
        return False

    _, trace, n_active = fit.maximise(Y, gain=1e-7, tol=1e-7, max_iter=10_000, callback=watch)
    assert len(steps) == len(trace) - 1 == len(n_active) - 1
    np.testing.assert_allclose([step[3] for step in steps], np.diff(trace), atol=1e-8)
    np.testing.assert_array_equal([step[4] for step in steps], trace[1:])
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[-1])).all()
    # The first precision is that of equation (15), the function the one of largest projection (16).
    norm, power = (K**2).sum(axis=0), ((K.T @ Y) ** 2).sum(axis=1)
    theta = power / norm - 3.0
    added = [step for step in steps if step[1] == "add"]
    gains = [reference.share(reference.best_alpha(n, q), n, q) for n, q in zip(norm, K.T @ Y, strict=True)]
    assert added[0][2] == np.argmax(gains) == np.argmax(theta)
    assert added[0][3] == pytest.approx(max(gains), rel=1e-9)
    alpha = np.full(45, np.inf)
    alpha[added[0][2]] = 3.0 * norm[added[0][2]] / theta[added[0][2]]
    assert trace[1] == pytest.approx(reference.log_evidence(K, Y, alpha), rel=1e-9)


def test_an_m_step_starts_from_the_given_functions(three):
    K, labels = three
    Y = np.asfortranarray(first_targets(labels, 3))
    start, alpha = np.array([7, 30]), np.array([0.3, 2.0])
    fit = _core.RetargetedFit(np.asfortranarray(K), Y, active=start, alpha=alpha)
    mu, Sigma = reference.posterior(K[:, start], Y, alpha)
    np.testing.assert_allclose(fit.predictions(), K[:, start] @ mu, rtol=1e-9)
    np.testing.assert_allclose(fit.posterior().alpha, alpha, rtol=1e-12)
    occam = 1.5 * (np.log(alpha).sum() + np.linalg.slogdet(Sigma)[1]) - 0.5 * np.sum(alpha[:, None] * mu**2)
    assert fit.log_occam_factor() == pytest.approx(occam, rel=1e-9)


# --- weights and precisions together ---------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_joint_ascent_ends_at_the_maximum_of_the_bound(three, weighted):
    K, labels = three
    w = np.random.default_rng(2).uniform(0.3, 3.0, 45) if weighted else None
    model = MRVM1("precomputed", fit_intercept=False, n_quadrature=48).fit(K, labels, w)
    start, Y = model.active_, np.asfortranarray(first_targets(labels, 3))
    alpha = model.alpha_ * np.exp(np.linspace(-1.5, 1.5, len(start)))
    fit = _core.RetargetedFit(np.asfortranarray(K), Y, w, active=start, alpha=alpha)
    # Enough nodes that the quadrature's own error does not show.
    targets = fit.maximise_bound(labels, gain=1e-12, radius=3.0, n_nodes=48)
    np.testing.assert_allclose(fit.posterior().alpha, model.alpha_, rtol=1e-5)
    expected, _ = reference.expectations(K[:, start] @ model.mu_, labels)
    np.testing.assert_allclose(targets, expected, atol=1e-5)
    # A maximum of the reference's bound in every weight and precision.
    top = reference.lower_bound(K[:, start], labels, model.mu_, model.alpha_, w)
    for k in range(len(start)):
        for c in range(3):
            step = np.zeros_like(model.mu_)
            step[k, c] = 1e-2
            for W in (model.mu_ + step, model.mu_ - step):
                assert reference.lower_bound(K[:, start], labels, W, model.alpha_, w) < top
        step = np.exp(0.1 * (np.arange(len(start)) == k))
        for a in (model.alpha_ * step, model.alpha_ / step):
            assert reference.lower_bound(K[:, start], labels, model.mu_, a, w) < top


def test_joint_ascent_stops_at_its_limits(three):
    K, labels = three
    Y = np.asfortranarray(first_targets(labels, 3))
    start, alpha = np.arange(12), np.full(12, 0.5)
    fit = _core.RetargetedFit(np.asfortranarray(K), Y, active=start, alpha=alpha)
    coarse = _core.RetargetedFit(np.asfortranarray(K), Y, active=start, alpha=alpha)
    fit.maximise_bound(labels, gain=1e-10, radius=10.0)
    coarse.maximise_bound(labels, gain=1e6, radius=1.0)
    moves = np.log(fit.posterior().alpha / alpha)
    assert np.abs(moves).max() <= 4.0 + 1e-12
    assert 0.0 < np.abs(np.log(coarse.posterior().alpha / alpha)).max() < np.abs(moves).max()


# --- mRVM1 as a whole ------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_converged_mrvm1_is_a_fixed_point(three, intercept, weighted):
    K, labels = three
    w = np.random.default_rng(0).integers(1, 4, 45).astype(float) if weighted else None
    model = MRVM1("precomputed", fit_intercept=intercept).fit(K, labels, w)
    assert model.status_ == "converged"
    Phi, alpha = dictionary(model, K), precisions(model, 45)
    inside = np.isfinite(alpha)
    Y, _ = reference.expectations(Phi[:, inside] @ model.mu_, labels)
    mu, Sigma = reference.posterior(Phi, Y, alpha, w)
    np.testing.assert_allclose(model.mu_, mu, atol=1e-5)
    np.testing.assert_allclose(model.sigma_, Sigma, rtol=1e-6, atol=1e-12)
    evidence = reference.log_evidence(Phi, Y, alpha, w)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-6)
    change, gain = reference.stationarity(Phi, Y, alpha, w)
    assert change < 1e-5
    assert gain < 1e-6
    found = certificate(model, K, labels, w)
    assert found.max_log_alpha_change == pytest.approx(change, abs=1e-7)
    assert found.max_gain_outside == pytest.approx(gain, abs=1e-9)
    assert found.log_marginal_likelihood == pytest.approx(evidence, rel=1e-9)
    assert (found.log_beta_residual, found.n_active) == (0.0, inside.sum())
    assert found.max_mean_error < 1e-5


@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_never_falls_and_agrees_with_the_reference(three, weighted):
    K, labels = three
    w = np.random.default_rng(0).integers(1, 4, 45).astype(float) if weighted else None
    model = MRVM1("precomputed").fit(K, labels, w)
    path = model.lower_bound_path_
    assert len(path) > 3
    assert (np.diff(path) >= -1e-9 * abs(path[-1])).all()
    assert model.lower_bound_ == path[-1]
    expected = reference.lower_bound(dictionary(model, K), labels, model.mu_, precisions(model, 45), w)
    assert model.lower_bound_ == pytest.approx(expected, abs=1e-5)
    assert model.mu_.sum(axis=1) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    ("K", "n_classes", "intercept"),
    [(np.eye(4), 2, False), (np.eye(6), 3, False), (np.array([[1.0, 0.6], [0.6, 1.0]]), 2, True)],
)
@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_mrvm1_is_empty_if_rows_have_nothing_in_common(K, n_classes, intercept):
    """Functions of one row each, or two rows of two classes: the empty model has the highest bound."""
    labels = np.arange(len(K)) % n_classes
    model = MRVM1("precomputed", fit_intercept=intercept).fit(K, labels)
    assert (model.status_, len(model.active_)) == ("empty", 0)
    empty = -len(K) * np.log(n_classes)
    assert model.lower_bound_ == pytest.approx(empty, abs=1e-6)
    found = certificate(model, K, labels)
    assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)
    rng, Phi = np.random.default_rng(0), dictionary(model, K)
    for _ in range(8):
        alpha = np.exp(rng.uniform(-3.0, 4.0, Phi.shape[1]))
        Y = first_targets(labels, n_classes)
        # E- and M-step at these precisions lead to the weights at which the bound is highest.
        for _ in range(25):
            W, _ = reference.posterior(Phi, Y, alpha)
            Y, _ = reference.expectations(Phi @ W, labels)
        assert reference.lower_bound(Phi, labels, W, alpha) < empty


# --- mRVM2 -----------------------------------------------------------------------------------------


def mrvm2_by_hand(K, labels, n_iter, n_classes=3):
    """Algorithm 2 without pruning, from the start of the package; the weights and the joint density."""
    Y, alpha, path = first_targets(labels, n_classes), np.ones((K.shape[1], n_classes)), []
    for _ in range(n_iter + 1):
        W = reference.weights_of_classes(K, Y, alpha)
        Y, _ = reference.expectations(K @ W, labels)
        path.append(reference.log_joint(K, labels, W, TAU, UPSILON))
        alpha = reference.expected_precisions(W, TAU, UPSILON)
    return W, alpha, np.array(path)


def test_iterations_of_mrvm2_are_those_of_the_reference(three):
    K, labels = three
    # Three iterations: a factor of the 45 rows.
    model = MRVM2(
        "precomputed", fit_intercept=False, prune=False, convergence="convN", min_iter_factor=3 / 45
    ).fit(K, labels)
    W, alpha, path = mrvm2_by_hand(K, labels, 3)
    assert model.n_iter_ == 3
    np.testing.assert_allclose(model.mu_, W, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.alpha_, alpha, rtol=1e-3)
    np.testing.assert_allclose(model.log_joint_likelihood_path_, path, atol=1e-3)


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("convergence", ["convA", "convN"])
def test_the_joint_likelihood_of_mrvm2_never_falls(three, prune, convergence):
    K, labels = three
    model = MRVM2("precomputed", prune=prune, convergence=convergence, min_iter_factor=6).fit(K, labels)
    path = model.log_joint_likelihood_path_
    assert len(path) == model.n_iter_ + 1 > 50
    assert (np.diff(path) >= -1e-9 * np.abs(path[-1])).all()
    W = np.zeros((46, 3))
    W[model.active_ + 1] = model.mu_
    Phi = dictionary(model, K)
    expected = reference.log_joint(Phi, labels, W, TAU, UPSILON)
    assert model.log_joint_likelihood_ == pytest.approx(expected, abs=1e-4)
    if prune:
        assert len(model.active_) < 15
        assert (np.diff(model.n_relevance_path_) <= 0).all()
    else:
        assert len(model.active_) == 46


def test_a_converged_mrvm2_is_a_fixed_point(three):
    K, labels = three
    model = MRVM2("precomputed", fit_intercept=False, tol=1e-6).fit(K, labels)
    assert model.status_ == "converged"
    inside = K[:, model.active_]
    Y, _ = reference.expectations(inside @ model.mu_, labels)
    alpha = reference.expected_precisions(model.mu_, TAU, UPSILON)
    np.testing.assert_allclose(np.log(model.alpha_ / alpha), 0.0, atol=1e-5)
    W = reference.weights_of_classes(inside, Y, alpha)
    np.testing.assert_allclose(model.mu_, W, atol=1e-5)


def test_functions_leave_mrvm2_once_no_class_needs_them(three):
    K, labels = three
    full = MRVM2("precomputed", prune=False).fit(K, labels)
    sparse = MRVM2("precomputed").fit(K, labels)
    served = (full.alpha_ <= 1e5).any(axis=1)
    np.testing.assert_array_equal(full.active_[served], sparse.active_)
    np.testing.assert_allclose(full.predict_proba(K), sparse.predict_proba(K), atol=1e-2)


@pytest.mark.parametrize(("tau", "upsilon"), [(1e-6, 1e-4), (0.5, 1e-3)])
def test_priors_of_mrvm2_bound_its_precisions(three, tau, upsilon):
    K, labels = three
    model = MRVM2("precomputed", tau=tau, upsilon=upsilon, fit_intercept=False, tol=1e-5).fit(K, labels)
    assert len(model.active_) == 45
    expected = reference.expected_precisions(model.mu_, tau, upsilon)
    np.testing.assert_allclose(np.log(model.alpha_ / expected), 0.0, atol=1e-4)
    assert (np.diff(model.log_joint_likelihood_path_) > -1e-9).all()
    joint = reference.log_joint(K, labels, model.mu_, tau, upsilon)
    assert model.log_joint_likelihood_ == pytest.approx(joint, abs=1e-4)
