"""Weights of classifiers under a Gaussian process prior: mode, left-out rows, certificate, and arguments."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import softmax_reference
from reference import gaussian, kernel_matrix, laplace_mode
from sparsebayes import RVC, inspection, kernels
from sparsebayes._checks import check_settings
from sparsebayes._data.basis import Basis
from sparsebayes._estimators import process
from sparsebayes._hyper import learner


def rings(seed=0, n=150, n_classes=3):
    """Classes by the distance from the origin, with noise, in two of three inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    radius = np.hypot(X[:, 0], X[:, 1]) + 0.2 * rng.normal(size=n)
    return X, np.searchsorted(np.quantile(radius, np.arange(1, n_classes) / n_classes), radius)


def functions_of(model, X):
    """The intercept, and functions of unit prior precision, at X, of a model with one Gaussian kernel."""
    Z = model.relevance_vectors_
    width = np.broadcast_to(model.kernel_.width, X.shape[1])

    def kernel(x, z):
        return gaussian(x / width, z / width, 1.0)

    variances, axes = np.linalg.eigh(kernel_matrix(kernel, Z, Z) / model.process_variance_)
    F = kernel_matrix(kernel, X, Z) @ axes / np.sqrt(variances)
    return np.hstack([np.ones((len(X), 1)), F])


def modes(model, X, y, weights):
    """Logits at the rows, by Newton's method with the full Hessian."""
    F, n_classes = functions_of(model, X), len(model.classes_)
    # The intercepts are about the logits of the shares of the classes, or have a flat prior.
    of_intercept = max(model.alpha_.flat[0], 1e-8)  # they have a common constant
    precision = np.where(np.arange(F.shape[1]) == 0, of_intercept, 1.0)
    shares = np.bincount(y, weights) / weights.sum()
    mean = np.zeros((n_classes, F.shape[1]))
    mean[:, 0] = np.log(shares) - np.log(shares[0] if n_classes == 2 else shares).mean()
    if n_classes == 2:
        w, _ = laplace_mode(F, y.astype(float), precision, weights=weights, prior_mean=mean[1])
        return (F @ w)[:, np.newaxis]
    inside = softmax_reference.expand(F, n_classes)
    w, _ = softmax_reference.mode(inside, y, np.tile(precision, n_classes), weights, mean.ravel())
    return inside @ w


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_the_joint_mode(n_classes, weighted):
    X, y = rings(n_classes=n_classes)
    weights = np.random.default_rng(1).integers(1, 4, size=len(y)) if weighted else np.ones(len(y))
    model = RVC(landmarks=20).fit(X, y, sample_weight=weights if weighted else None)
    logits = modes(model, X, y, weights.astype(float))
    found = model.decision_function(X).reshape(logits.shape)
    centred = found - found.mean(axis=1, keepdims=True) if n_classes > 2 else found
    logits = logits - logits.mean(axis=1, keepdims=True) if n_classes > 2 else logits
    assert_allclose(centred, logits, atol=2e-3 * np.abs(logits).max())
    expected = softmax(logits, axis=1) if n_classes > 2 else expit(logits)
    assert_allclose(model.predict_proba(X)[:, -logits.shape[1] :], expected, atol=1e-3)
    assert_array_equal(model.predict_proba(X, moderate=False), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_left_out_rows(n_classes):
    """The closed form is close to fits without each row, with functions, kernel and v as they are."""
    X, y = rings(n=120, n_classes=n_classes)
    model = RVC(landmarks=15).fit(X, y)
    left_out = []
    for n in range(len(y)):
        weights = np.where(np.arange(len(y)) == n, 1e-12, 1.0)
        logits = modes(model, X, y, weights)[n]
        logits = np.append(0.0, logits) if n_classes == 2 else logits
        left_out.append(np.log(softmax(logits))[y[n]])
    assert abs(model.loo_.mean() - np.mean(left_out)) < 0.15 * abs(np.mean(left_out))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_certificate(n_classes):
    X, y = rings(n_classes=n_classes)
    model = RVC().fit(X, y)
    found = inspection.certificate(model, X, y)
    assert found.max_mean_error < 1e-3
    assert found.max_log_alpha_change < 1e-4
    assert found.max_gain_outside < 1e-4
    assert found.n_active == len(model.active_)
    model.mu_ = model.mu_.copy()
    model.mu_[3] += 0.05 * np.sqrt(model.sigma_[..., 3, 3].max())
    assert inspection.certificate(model, X, y).max_mean_error > 1e-2


def test_better_than_the_sparse_fits():
    X, y = load_digits(return_X_y=True)
    models = {landmarks: RVC(landmarks=landmarks).fit(X[:600], y[:600]) for landmarks in ("auto", None)}
    loss, of_sparse = (log_loss(y[600:], model.predict_proba(X[600:])) for model in models.values())
    assert loss < 0.7 * of_sparse
    error, of_sparse = (1.0 - model.score(X[600:], y[600:]) for model in models.values())
    assert error < 0.8 * of_sparse


def truth_table(n, combine=np.multiply, noise=0.15, seed=0):
    """Classes of three inputs with two levels, and the probability of the second; two inputs matter."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 3)).astype(float)
    p = noise + (1.0 - 2.0 * noise) * combine(X[:, 0], X[:, 1])
    return X, (rng.random(n) < p).astype(int), p


@pytest.mark.parametrize("combine", [np.multiply, np.not_equal])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_inputs_of_few_levels(combine, noise):
    """Rows with equal inputs are no copies: the other classes of the same inputs are not left out too."""
    X, y, p = truth_table(1000, combine, noise)
    model = RVC().fit(X[:600], y[:600])
    best = log_loss(y[600:], np.clip(p[600:], 1e-9, 1.0 - 1e-9))
    assert log_loss(y[600:], model.predict_proba(X[600:])) < best + 0.02
    assert abs(model.loo_.mean() + best) < 0.05


def test_copies_of_rows_with_few_levels_are_weights():
    X, y, _ = truth_table(200)
    copies = np.random.default_rng(1).integers(0, 3, len(y))
    weighted = RVC().fit(X, y, sample_weight=copies)
    repeated = RVC().fit(np.repeat(X, copies, axis=0), np.repeat(y, copies))
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("landmarks", ["auto", None])
def test_kernels_of_classes_are_learned_with_weights_as_well_as_without(landmarks):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-3.0, 3.0, (200, 4)), rng.uniform(-3.0, 3.0, (500, 4))
    y = rng.random(200) < expit(4.0 * np.sin(1.5 * X[:, 0]) + X[:, -1])
    model = RVC(landmarks=landmarks).fit(X, y, sample_weight=np.full(200, 3.0))
    assert np.mean(model.predict(new) != (4.0 * np.sin(1.5 * new[:, 0]) + new[:, -1] > 0.0)) < 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_that_inputs_do_not_explain(n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, n_classes, 300)
    with pytest.warns(ConvergenceWarning, match=r"empty.*inputs may not explain y"):
        model = RVC().fit(X, y)
    assert len(model.relevance_) == 0
    shares = np.bincount(y) / len(y)
    assert_allclose(model.predict_proba(X[:5]), np.tile(shares, (5, 1)), atol=1e-4)
    found = pickle.loads(pickle.dumps(model)).predict_proba(100.0 * X)
    assert_allclose(found, np.tile(shares, (300, 1)), atol=1e-4)


def products(n, seed=300):
    """Classes by the sign of the product of three of four inputs, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, (rng.random(n) < expit(30.0 * X[:, :3].prod(axis=1))).astype(int)


def test_functions_where_the_sparse_fit_has_none():
    X, y = products(2300, seed=304)
    with pytest.warns(ConvergenceWarning, match="empty"):
        RVC(kernels.Gaussian(4.0), landmarks=None).fit(X[:300], y[:300])
    model = RVC(kernels.Gaussian(4.0), landmarks=100).fit(X[:300], y[:300])
    assert model.status_ == "converged"
    assert model.score(X[300:], y[300:]) > 0.7
    assert RVC().fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.78


def test_nearly_separated_classes_have_moderate_probabilities():
    """Four labels of 200 are wrong: a test row beyond them must not be certain of the wrong class."""
    rng = np.random.default_rng(203)
    X = rng.uniform(-1, 1, (2200, 3))
    p = expit(np.where(X[:, 0] > 0.3, 4.0, -4.0) + X[:, 1])
    y = (rng.random(len(X)) < p).astype(int)
    model = RVC().fit(X[:200], y[:200])
    assert log_loss(y[200:], model.predict_proba(X[200:])) < log_loss(y[200:], p[200:]) + 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_far_from_the_data_probabilities_are_close_to_the_shares(n_classes):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 8))
    scores = np.column_stack([3.0 * np.sin(X[:, 0]) + X[:, c] for c in range(n_classes)])
    scores[:, 0] += 1.5
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    model = RVC().fit(X, y)
    assert_array_equal(model.alpha_.reshape(-1, n_classes if n_classes > 2 else 1)[0], 1.0)
    assert_allclose(model.predict_proba(X[:3] + 1e3), np.tile(np.bincount(y) / 600, (3, 1)), atol=0.2)


def test_a_class_that_surrounds_the_other_extends_beyond_the_data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 6)) * np.where(y == 1, 4.0, 0.7)[:, np.newaxis]
    model = RVC().fit(X, y)
    assert model.alpha_[0] == 0.0  # the prior of the intercept is flat
    assert model.predict_proba(np.full((1, 6), 50.0))[0, 1] > 0.9


def test_number_of_functions():
    X, y = rings()
    sparse, none, some, auto = (RVC(landmarks=k).fit(X, y) for k in (None, 0, 5, "auto"))
    assert not hasattr(sparse, "process_variance_")
    assert sparse.mu_.shape == (len(sparse.active_), 3)
    assert len(none.relevance_) < len(some.relevance_) <= len(none.relevance_) + 5
    assert len(some.relevance_) < len(auto.relevance_) <= len(none.relevance_) + 150
    chosen, given = (RVC(landmarks=k, gamma=0.5).fit(X, y) for k in (None, 30))
    assert len(given.relevance_) == len(chosen.relevance_) + 30
    assert set(chosen.relevance_) < set(given.relevance_)
    assert given.kernel_ == kernels.Gaussian(width=2.0**0.5)  # not learned, so it remains
    assert given.process_variance_ > 0.0
    for options in (
        {"gamma": 0.5},
        {"complexity": "none"},
        {"penalize_intercept": True},
        {"scheme": "mackay"},
        {"multi_class": "softmax"},
    ):
        assert not hasattr(RVC(**options).fit(X, y), "process_variance_")
    assert not hasattr(given.set_params(landmarks=None).fit(X, y), "process_variance_")


def test_columns_beside_the_kernel():
    X, y = rings()
    model = RVC(landmarks=20, extra_basis="linear", unpenalized=[2]).fit(X, y)
    flat = model.alpha_[:, 0] == 0.0
    assert_array_equal(model.active_[flat], [len(X) + 2])
    assert inspection.certificate(model, X, y).max_mean_error < 1e-3
    several = RVC(kernel=[kernels.Gaussian(1.0), kernels.Matern52(2.0)], landmarks=20).fit(X, y)
    assert inspection.certificate(several, X, y).max_mean_error < 1e-3


def test_learned_kernels_keep_the_columns_that_chose_them():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 20))
    p = 1.0 / (1.0 + np.exp(-X @ np.resize([0.7, -0.7], 20)))
    y = (rng.random(len(p)) < p).astype(int)
    model = RVC(extra_basis="linear").fit(X[:200], y[:200])
    assert np.all(model.extra_coef_ != 0.0)
    logistic = LogisticRegression().fit(X[:200], y[:200])
    losses = [log_loss(y[200:], one.predict_proba(X[200:])) for one in (model, logistic)]
    assert losses[0] < losses[1] + 0.03
    assert inspection.certificate(model, X[:200], y[:200]).max_mean_error < 1e-3


def test_same_bits_for_any_number_of_threads():
    X, y = rings(n=400)
    one, four = (RVC(n_jobs=n).fit(X, y) for n in (1, 4))
    assert_array_equal(one.mu_, four.mu_)
    assert_array_equal(one.sigma_, four.sigma_)
    assert_array_equal(one.predict_proba(X), pickle.loads(pickle.dumps(one)).predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_served(n_classes):
    X, y = rings(n_classes=n_classes)
    model = RVC(landmarks=20).fit(X, y)
    assert_allclose(model.to_predictor().predict_proba(X), model.predict_proba(X), atol=1e-12)


def test_one_rare_class():
    rng = np.random.default_rng(0)
    y = np.zeros(3000, dtype=int)
    y[:6] = 1
    X = rng.normal(size=(3000, 2)) + 3.0 * y[:, np.newaxis]
    p = RVC(landmarks=20).fit(X, y).predict_proba(X)[:, 1]
    assert abs(p.sum() - 6.0) < 0.5
    assert log_loss(y, p) < 0.01


def test_more_classes_than_rows_of_some():
    X, y = rings(n=40)
    y = y.astype(object)
    y[[0, 5]] = 7
    p = RVC(landmarks=10).fit(X, y.astype(int)).predict_proba(X)
    assert p.shape == (40, 4)
    assert_allclose(p.sum(axis=1), 1.0)


@pytest.mark.parametrize("weight", [1e6, 1e12])
def test_huge_weights_leave_a_model_and_a_reason(weight):
    X, y = rings(n=60)
    with pytest.warns(ConvergenceWarning):
        model = RVC(gamma=0.3, landmarks=30).fit(X, y, sample_weight=np.full(len(y), weight))
    assert model.status_ != "converged"
    assert model.score(X, y) > 0.7


def test_a_mode_that_is_not_reached_leaves_the_sparse_model(monkeypatch):
    X, y = rings()
    monkeypatch.setattr(process, "_FINE_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="stalled"):
        model = RVC(landmarks=30, gamma=0.5).fit(X, y)
    assert not hasattr(model, "process_variance_")
    assert_array_equal(model.active_, RVC(landmarks=None, gamma=0.5).fit(X, y).active_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": "all"}, "landmarks must be 'auto', None or an integer"),
        ({"landmarks": -1}, "landmarks must be an integer of at least 0"),
        ({"landmarks": 5, "multi_class": "softmax"}, "landmarks must be None with multi_class='softmax'"),
        ({"landmarks": 5, "kernel": "precomputed"}, "landmarks must be None with kernel='precomputed'"),
    ],
)
def test_invalid(options, message):
    X, y = rings()
    X = X @ X.T if options.get("kernel") == "precomputed" else X
    with pytest.raises(ValueError, match=message):
        RVC(**options).fit(X, y)


def test_rows_that_are_not_kept():
    X, y = rings()
    assert not hasattr(RVC(landmarks=5, candidates=20), "partial_fit")
    with pytest.raises(ValueError, match="landmarks must be 'auto' or None for"):
        RVC(landmarks=5, candidates=20).fit([(X, y)])
    assert not hasattr(RVC(candidates=20, random_state=0).partial_fit(X, y), "process_variance_")
    with pytest.raises(TypeError, match="landmarks must be an integer"):
        RVC(landmarks=2.5).fit(X, y)


def test_lengths_that_cannot_pay_their_cost_are_not_proposed(monkeypatch):
    """No gain pays for 29 lengths where 60 rows are separated: log probabilities are at most 0."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 30)) + 2.0 * y[:, np.newaxis]
    called = []
    proposals = learner._Learner.proposals
    monkeypatch.setattr(learner._Learner, "proposals", lambda self: called.append(1) or proposals(self))
    found = RVC().fit(X, y)
    assert len(set(found.kernel_.width)) == 1
    assert not called
    RVC().fit(X[:, :2], y)
    assert called


def begun(X, y, kernel, landmarks, pool, active=()):
    """A process of classes with these relevance vectors."""
    n, n_classes = len(y), y.max() + 1
    t = np.eye(n_classes)[y] if n_classes > 2 else (y == 1).astype(float)[:, np.newaxis]
    rows = process.ProcessRows.of(X, t, np.ones(n), None)
    basis = Basis(
        bias=True, kernels=[kernel], size=n, kept=np.arange(n), centres=X, extra=None, offset=np.zeros(0)
    )
    names, settings = np.array(active, dtype=np.intp), check_settings(RVC())
    return process.Process(basis, names, rows, landmarks, settings, pool, lambda: None)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_best_factor_of_lengths_is_found(n_classes):
    """Lengths times one more factor, with the best v for these, do not predict rows left out better."""
    X, y = rings(n_classes=n_classes)
    with ThreadPoolExecutor(2) as pool:

        def choose(width):
            return begun(X, y, kernels.Gaussian(width), 150, pool).choose()

        first = choose(0.25)
        best = first.with_best_lengths()
        (kernel,) = best.functions.basis.kernels
        assert kernel.width > 0.5
        assert best.best.score > first.best.score + 0.05
        for factor in (1.4, 1.0 / 1.4):
            assert choose(kernel.width * factor).best.score < best.best.score + 0.005


@pytest.mark.parametrize(("seed", "width"), [(5, 0.7), (7, 2.0)])
def test_lengths_that_gain_next_to_nothing_are_not_taken(seed, width):
    """Labels without relation to the inputs: the less the process varies the better, at any length."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(600, 3)), rng.integers(0, 6, 600)
    with ThreadPoolExecutor(2) as pool:
        found = begun(X, y, kernels.Gaussian(width), 150, pool).choose().with_best_lengths()
    assert found.best.log_variance < -3.0
    assert found.functions.basis.kernels[0].width > 0.5


@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_relevance_vectors_choose_the_lengths_again(n_classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 2))
    y = ((np.sin(6.0 * X).prod(axis=1) > 0.0) + (n_classes - 2) * (X[:, 0] > 0.5)).astype(int)
    found = {}
    with ThreadPoolExecutor(2) as pool:
        for n in (100, 200):
            one = begun(X, y, kernels.Gaussian(2.0), 50, pool, np.arange(0, 2 * n, 2))
            functions, point = one._of_learned(6.0)
            found[n] = functions.basis.kernels[0].width, point.densities.mean()
    assert found[100][0] == 2.0
    assert found[200][0] < 1.5
    assert found[200][1] > found[100][1] + 0.05


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_classes_that_alternate_along_one_input(n_classes, seed):
    X = np.random.default_rng(seed).uniform(0.0, 168.0, (800, 1))
    y = np.floor((X[:, 0] % 24.0) * n_classes / 24.0)
    assert RVC().fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.95


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("log_variance", [7.0, 12.0])
def test_the_mode_is_found_where_logits_are_large(n_classes, log_variance):
    X, y = rings(n_classes=n_classes)
    X, y = X[:, :2], np.searchsorted(np.arange(1, n_classes), np.hypot(*X[:, :2].T))
    with ThreadPoolExecutor(2) as pool:
        one = begun(X, y, kernels.Gaussian(2.0), 60, pool)
        functions = one._functions(one.basis, 60)
        rows, precision = one._rows(functions, one.given.some), functions.precisions(log_variance)
        found = one._at(rows, functions, log_variance)
        W, roots = found.W, found.roots
        for _ in range(5):
            W, _ = process._mode(rows, precision, W, roots, 1e-4, 300, lambda: None)
            roots = process._roots(rows, precision, W, pool, lambda: None)
        variance = process._variances(rows, roots, pool)
    assert_allclose(found.densities.mean(), process._left_out(rows, W, variance).mean(), atol=0.02)
