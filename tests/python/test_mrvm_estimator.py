"""mRVM1 and mRVM2 as estimators: probabilities, labels, weights, rules of convergence, odd data."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from problems import assert_certified, each_value
from sparsebayes import MRVM1, MRVM2, NumericalError, StepRecord
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

MRVMS = [MRVM1, MRVM2]
CLOUD = np.random.default_rng(0).normal(size=(36, 2))
THIRDS = np.repeat([0, 1, 2], 12)


def assert_same_predictions(one, other, X):
    """Compare to the tolerance of the fits: mRVM2 ends while precisions still change."""
    atol = 1e-5 if isinstance(one, MRVM1) else 1e-4
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=atol)


@pytest.mark.parametrize("kind", MRVMS)
def test_attributes_have_the_shapes_promised(kind, three):
    X, y = three
    model = kind(gamma=0.5).fit(X, y)
    m, relevant = len(model.active_), len(model.relevance_)
    assert model.status_ == "converged"
    assert model.alpha_.shape == ((m,) if kind is MRVM1 else (m, 3))
    assert model.mu_.shape == (m, 3)
    assert model.dual_coef_.shape == (3, relevant)
    assert model.relevance_vectors_.shape == (relevant, 2)
    assert model.intercept_.shape == (3,)
    assert model.n_relevance_path_.shape == (model.n_iter_ + 1,)
    assert model.n_relevance_path_[-1] == m
    np.testing.assert_array_equal(model.kernel_weights_, [1.0])
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    assert (np.diff(model.active_) > 0).all()
    np.testing.assert_array_equal(X[model.relevance_], model.relevance_vectors_)
    if kind is MRVM1:
        assert model.sigma_.shape == (m, m)
        assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)
        assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_
    else:
        assert model.log_joint_likelihood_path_.shape == (model.n_iter_ + 1,)
        assert model.log_joint_likelihood_path_[-1] == model.log_joint_likelihood_
    linear = kind("linear").fit(X, y)
    scores = X @ linear.coef_.T + linear.intercept_
    np.testing.assert_allclose(linear.decision_function(X), scores, atol=1e-12)


@pytest.mark.parametrize("kind", MRVMS)
def test_probabilities_are_those_of_the_likelihood(kind):
    X, y = load_iris(return_X_y=True)
    model = kind(gamma=0.25).fit(X, y)
    P, scores = model.predict_proba(X), model.decision_function(X)
    assert P.shape == scores.shape == (150, 3)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    assert (P > 0.0).all()
    np.testing.assert_array_equal(model.predict(X), P.argmax(axis=1))
    rng = np.random.default_rng(0)
    least_certain = P.max(axis=1).argsort()[:3]
    for n in least_certain:
        copies = scores[n] + rng.normal(size=(1_000_000, 3))
        share = np.bincount(copies.argmax(axis=1), minlength=3) / 1e6
        assert (np.abs(P[n] - share) <= 4.5 * np.sqrt(P[n] / 1e6) + 1e-6).all()
    expected = np.log(P[np.arange(150), y])
    assert model.log_predictive_likelihood(X, y) == pytest.approx(expected.mean(), abs=1e-6)
    w = rng.uniform(size=150)
    weighted = np.average(expected, weights=w)
    assert model.log_predictive_likelihood(X, y, w) == pytest.approx(weighted, abs=1e-6)


@pytest.mark.parametrize("kind", MRVMS)
def test_two_classes_are_a_probit_of_the_difference(kind, classes):
    X, y = classes
    model = kind(gamma=0.5).fit(X, y)
    decision = model.decision_function(X)
    assert decision.shape == (150,)
    assert model.score(X, y) > 0.7
    P = model.predict_proba(X)
    np.testing.assert_allclose(P[:, 1], ndtr(decision / np.sqrt(2.0)), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), (decision > 0).astype(float))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["a", "b"]}, "y must hold one label for each of 120 rows"),
        ({"y": np.full(120, "d")}, "y holds the label .*'d'.*did not see"),
        ({"sample_weight": np.ones(3)}, "sample_weight must have the shape"),
        ({"X": np.ones((120, 5))}, "X has 5 features"),
    ],
)
def test_the_predictive_likelihood_names_bad_input(three, change, message):
    X, y = three
    model = MRVM1().fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.log_predictive_likelihood(**{"X": X, "y": y, **change})


@pytest.mark.parametrize("kind", MRVMS)
def test_permuting_the_classes_permutes_the_model(kind, three):
    X, y = three
    model = kind(gamma=0.5).fit(X, y)
    order = {"a": "q", "b": "p", "c": "r"}
    other = kind(gamma=0.5).fit(X, np.array([order[label] for label in y]))
    swapped = [1, 0, 2]
    np.testing.assert_array_equal(model.active_, other.active_)
    np.testing.assert_allclose(other.mu_[:, swapped], model.mu_, atol=1e-4)
    np.testing.assert_allclose(other.predict_proba(X)[:, swapped], model.predict_proba(X), atol=1e-5)


def test_conv2_continues_to_the_smallest_number_of_iterations(three):
    X, y = three
    early = MRVM1(gamma=0.5, convergence="conv1").fit(X, y)
    late = MRVM1(gamma=0.5, convergence="conv2", min_iter_factor=8).fit(X, y)
    assert early.status_ == late.status_ == "converged"
    assert early.n_iter_ < 8 * 120 <= late.n_iter_
    assert MRVM1(gamma=0.5, min_iter_factor=1e-3).fit(X, y).n_iter_ == early.n_iter_
    assert early.lower_bound_ <= late.lower_bound_ + 1e-9
    assert_same_predictions(early, late, X)


@pytest.mark.parametrize("factor", [1, 0.5, 0.013, 2])
def test_convn_counts_iterations(factor, three):
    X, y = three
    model = MRVM2(gamma=0.5, convergence="convN", min_iter_factor=factor).fit(X, y)
    assert model.n_iter_ == int(np.ceil(factor * 120))
    assert model.status_ == "converged"


def test_conva_ends_once_the_precisions_converged(three):
    X, y = three
    loose, tight = (MRVM2(gamma=0.5, tol=tol).fit(X, y) for tol in (1e-2, 1e-5))
    assert loose.n_iter_ < tight.n_iter_
    expected = (2 * 1e-6 + 1) / (tight.mu_**2 + 2e-6)
    assert np.abs(np.log(tight.alpha_ / expected)).max() < 1e-5
    longer = MRVM2(gamma=0.5, convergence="convN", min_iter_factor=tight.n_iter_ / 120).fit(X, y)
    for name in ("active_", "alpha_", "mu_", "n_relevance_path_", "log_joint_likelihood_path_"):
        np.testing.assert_array_equal(getattr(tight, name), getattr(longer, name))


def test_without_pruning_all_functions_stay(three):
    X, y = three
    full = MRVM2(gamma=0.5, prune=False).fit(X, y)
    np.testing.assert_array_equal(full.active_, np.arange(-1, 120))
    assert (full.n_relevance_path_ == 121).all()


@pytest.mark.parametrize("kind", MRVMS)
def test_the_callback_sees_each_step(kind, three):
    X, y = three
    records = []
    model = kind(gamma=0.5, callback=records.append).fit(X, y)
    assert all(isinstance(record, StepRecord) for record in records)
    assert [record.iteration for record in records] == list(range(1, model.n_iter_ + 1))
    assert [record.n_active for record in records] == model.n_relevance_path_[1:].tolist()
    path = model.log_marginal_likelihood_path_ if kind is MRVM1 else model.log_joint_likelihood_path_
    # A path ends with the evidence of the model as published, after the last recomputation.
    np.testing.assert_allclose([record.log_marginal_likelihood for record in records], path[1:], rtol=1e-13)
    assert {record.noise_variance for record in records} == {None}
    plain = kind(gamma=0.5).fit(X, y)
    for name in ("active_", "alpha_", "mu_", "n_relevance_path_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plain, name))


BAD_SETTINGS = {
    "convergence": ["conv3", 2, None],
    "min_iter_factor": [0, np.nan, "one"],
    "n_quadrature": [0, 2.0, "many"],
    "tau": [0.0, -1e-6, "flat"],
    "upsilon": [0, np.inf, None],
    "prune": ["no", None],
}


@pytest.mark.parametrize("kind", MRVMS)
@pytest.mark.parametrize(("name", "value"), each_value(BAD_SETTINGS))
def test_bad_settings_are_refused_by_name(kind, name, value):
    if name in kind().get_params():
        with pytest.raises((TypeError, ValueError), match=rf"^{name}\b"):
            kind(**{name: value}).fit(CLOUD, THIRDS)


@pytest.mark.parametrize("kind", MRVMS)
def test_weights_count_rows(kind, three):
    X, y = three[0][:60], three[1][:60]
    w = np.random.default_rng(0).integers(0, 3, 60)
    weighted = kind(gamma=0.5, convergence="conv1" if kind is MRVM1 else "convA").fit(X, y, w)
    repeated = clone(weighted).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert (w[weighted.relevance_] > 0).all()
    np.testing.assert_allclose(weighted.relevance_vectors_, repeated.relevance_vectors_)
    assert_same_predictions(weighted, repeated, X)
    zero, left_out = clone(weighted).fit(X, y, w > 0), clone(weighted).fit(X[w > 0], y[w > 0])
    np.testing.assert_array_equal(zero.mu_, left_out.mu_)
    np.testing.assert_array_equal(zero.relevance_vectors_, left_out.relevance_vectors_)


@pytest.mark.parametrize("kind", MRVMS)
def test_precomputed_and_named_kernels_agree(kind, three):
    X, y = three
    kernel = Gaussian(1.5)
    by_name, by_values = kind(kernel).fit(X, y), kind("precomputed").fit(kernel(X, X), y)
    np.testing.assert_array_equal(by_name.active_, by_values.active_)
    np.testing.assert_allclose(by_name.mu_, by_values.mu_, rtol=1e-5, atol=1e-7)
    new = X[::7] + 0.1
    P = by_values.predict_proba(kernel(new, X))
    np.testing.assert_allclose(P, by_name.predict_proba(new), atol=1e-6)


CORNERS = CLOUD / 4 + np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0]])[THIRDS]
ODD = {
    "a class with one row": (CLOUD, np.where(np.arange(36) == 7, 9, THIRDS)),
    "one row of each class": (CLOUD[:5], np.arange(5)),
    "two rows": ([[0.0], [1.0]], [0, 1]),
    "two equal rows": ([[1.0], [1.0]], [0, 1]),
    "equal rows": (np.tile(CLOUD[:12], (3, 1)), np.roll(THIRDS, 5)),
    "a constant feature": (np.c_[CLOUD, np.full(36, 7.0)], THIRDS),
    "constant features": (np.ones((36, 2)), THIRDS),
    "classes far apart": (CORNERS, THIRDS),
    "classes very far apart": (100 * CORNERS, THIRDS),
    "eighteen classes": (CLOUD, np.arange(36) % 18),
}


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("kind", MRVMS)
def test_odd_data_end_in_a_model(kind, kernel, case):
    X, y = ODD[case]
    model = kind(kernel).fit(X, y)
    assert model.status_ == ("converged" if len(model.relevance_) else "empty")
    P = model.predict_proba(X)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    if case == "classes far apart":
        assert model.score(X, y) == 1.0
    if kind is MRVM1:
        assert_certified(model, X, y, status=model.status_)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_pruning_costs_nothing_where_kernel_values_are_of_order_one():
    """For other values it lowers the likelihood: precisions have the units of the kernel."""
    model = MRVM2("linear").fit(100 * CORNERS, THIRDS)
    assert (len(model.active_), np.diff(model.log_joint_likelihood_path_).min() < -10.0) == (0, True)
    model = MRVM2("linear").fit(CORNERS / 5, THIRDS)
    assert len(model.active_) > 1
    assert np.diff(model.log_joint_likelihood_path_).min() > -1e-9


def test_values_too_large_for_the_precisions_of_mrvm2_are_refused_with_a_remedy(three):
    X, y = three
    with pytest.raises(NumericalError, match=r"units of the kernel's values, .* scale X, .* or use MRVM1"):
        MRVM2("linear").fit(1e8 * X, y)
    scaled, model = MRVM1("linear").fit(1e8 * X, y), MRVM1("linear").fit(X, y)
    np.testing.assert_allclose(scaled.predict_proba(1e8 * X), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("kind", [MRVM1, MRVM2])
@pytest.mark.parametrize(
    ("size", "remedy"), [(1e110, "X holds rows so large"), (1e10, r"rescale the inputs \(X\)")]
)
def test_rows_out_of_reach_are_refused_with_a_remedy(kind, size, remedy, three):
    X, y = three
    model = kind("poly", gamma=1.0).fit(X, y)
    with pytest.raises(ValueError, match=remedy):
        model.predict_proba(size * X)


def test_the_certificate_detects_changed_models(three):
    X, y = three
    model = MRVM1(gamma=0.5).fit(X, y)
    alpha, active, mu = model.alpha_, model.active_, model.mu_
    model.alpha_ = alpha * np.where(np.arange(len(alpha)) == 1, 1.2, 1.0)
    assert certificate(model, X, y).max_log_alpha_change == pytest.approx(np.log(1.2), rel=0.5)
    model.alpha_, model.mu_ = alpha, 1.1 * mu
    assert certificate(model, X, y).max_mean_error > 0.01
    model.active_, model.alpha_, model.mu_ = active[1:], alpha[1:], mu[1:]
    assert certificate(model, X, y).max_gain_outside > 1.0


def test_the_certificate_refuses_other_data_and_other_models(three):
    X, y = three
    model = MRVM1().fit(X, y)
    for other in ((X[::-1], y[::-1]), (X[:50], y[:50]), (X, np.where(y == "a", "b", y))):
        with pytest.raises(ValueError, match="must be the training data"):
            certificate(model, *other)
    with pytest.raises(TypeError, match="MRVM2 has none to certify"):
        certificate(MRVM2().fit(X, y), X, y)
    with pytest.raises(NotFittedError):
        certificate(MRVM1(), X, y)
    kernel = Gaussian(1.5)(X, X)
    found = certificate(MRVM1("precomputed").fit(kernel, y), kernel, y)
    assert found.max_log_alpha_change < 1e-5
