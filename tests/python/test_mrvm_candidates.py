"""mRVM1 and mRVM2 with chosen rows or given centres, compared with explicit matrices and the reference."""

import copy
import pickle

import numpy as np
import pytest

import mrvm_reference as reference
from problems import assert_certified
from reference import gaussian, kernel_matrix
from sparsebayes import MRVM1, MRVM2, inspection, load
from sparsebayes.kernels import Custom, Gaussian, Laplacian, Linear, OnColumns, Polynomial

MRVMS = [MRVM1, MRVM2]
WIDE = Gaussian(1.0)
GRID = np.stack(np.meshgrid(np.linspace(-2.5, 2.5, 5), np.linspace(-2.5, 2.5, 6)), axis=-1).reshape(-1, 2)
KERNELS = {
    "core": WIDE,
    "list": [WIDE, Polynomial(2)],
    "callable": Custom(WIDE),
    "columns": OnColumns(WIDE, [1, 0]),
}
BITS = ("alpha_", "mu_", "kernel_weights_", "relevance_vectors_", "dual_coef_", "intercept_")


def some_weights(n):
    return np.random.default_rng(3).integers(0, 4, n).astype(float)


# --- given centres --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", MRVMS)
def test_a_model_with_centres_agrees_with_the_explicit_matrix(kind, intercept, weighted, three):
    """Inner products with unit vectors are the columns of X."""
    X, y = three
    w = some_weights(len(X)) if weighted else None
    Phi = kernel_matrix(lambda x, z: gaussian(x, z, 1.0), X, GRID)
    model = kind(WIDE, candidates=GRID, fit_intercept=intercept).fit(X, y, w)
    inner = Linear(np.zeros(len(GRID)))
    columns = kind(inner, candidates=np.eye(len(GRID)), fit_intercept=intercept).fit(Phi, y, w)
    np.testing.assert_array_equal(model.active_, columns.active_)
    np.testing.assert_allclose(model.alpha_, columns.alpha_, rtol=1e-6)
    np.testing.assert_allclose(model.mu_, columns.mu_, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(model.relevance_vectors_, GRID[model.relevance_])
    np.testing.assert_array_equal(model.candidates_, GRID)
    assert not hasattr(model, "candidate_rows_")
    new = X[::3] + 0.1
    expected = columns.predict_proba(kernel_matrix(lambda x, z: gaussian(x, z, 1.0), new, GRID))
    np.testing.assert_allclose(model.predict_proba(new), expected, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_fits_with_given_centres_are_optimal_by_the_reference(seed, weighted):
    rng = np.random.default_rng(seed)
    X, centres = rng.normal(size=(60, 2)), rng.normal(scale=1.5, size=(20, 2))
    labels = np.digitize(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=60), [-0.6, 0.6])
    w = rng.integers(1, 4, 60).astype(float) if weighted else None
    model = MRVM1(WIDE, candidates=centres).fit(X, labels, w)
    Phi = np.hstack([np.ones((60, 1)), kernel_matrix(lambda x, z: gaussian(x, z, 1.0), X, centres)])
    alpha = np.full(21, np.inf)
    alpha[model.active_ + 1] = model.alpha_
    inside = np.isfinite(alpha)
    Y, _ = reference.expectations(Phi[:, inside] @ model.mu_, labels)
    mu, _ = reference.posterior(Phi, Y, alpha, w)
    np.testing.assert_allclose(model.mu_, mu, atol=1e-5)
    change, gain = reference.stationarity(Phi, Y, alpha, w)
    assert change < 1e-5
    assert gain < 1e-6
    assert assert_certified(model, X, labels, w).n_basis == 21


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_fits_with_any_centres_are_certified(kernel, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(70, 2))
    y = np.argmax(np.c_[X, 0.5 - X[:, 0] * X[:, 1]] + 0.4 * rng.normal(size=(70, 3)), axis=1)
    w = some_weights(70) if seed % 2 else None
    given = MRVM1(kernel, candidates=rng.normal(size=(25, 2)), convergence="conv1").fit(X, y, w)
    assert assert_certified(given, X, y, w).n_basis == 26
    chosen = MRVM1(kernel, candidates=25, random_state=seed, convergence="conv1").fit(X, y, w)
    assert assert_certified(chosen, X, y, w).n_basis == 26


def test_there_may_be_more_centres_than_rows_or_a_single_one(three):
    X, y = three
    centres = np.random.default_rng(0).normal(size=(200, 2))
    many = MRVM1(WIDE, candidates=centres).fit(X, y)
    assert assert_certified(many, X, y).n_basis == 201
    assert many.active_.max() >= len(X)
    one = MRVM1(WIDE, candidates=[[2.0, 0.0]]).fit(X, y)
    assert assert_certified(one, X, y).n_basis == 2
    np.testing.assert_array_equal(one.relevance_, [0])


# --- a number of rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [WIDE, Custom(WIDE), OnColumns(WIDE, [1, 0])], ids=repr)
@pytest.mark.parametrize("kind", MRVMS)
def test_chosen_rows_give_the_model_of_given_centres(kind, kernel, three):
    X, y = three
    model = kind(kernel, candidates=25, random_state=0).fit(X, y)
    rows = model.candidate_rows_
    assert len(np.unique(rows)) == 25
    np.testing.assert_array_equal(rows, np.sort(rows))
    np.testing.assert_array_equal(model.candidates_, X[rows])
    given = kind(kernel, candidates=X[rows]).fit(X, y)
    np.testing.assert_array_equal(model.relevance_, rows[given.relevance_])
    np.testing.assert_array_equal(X[model.relevance_], model.relevance_vectors_)
    for name in (*BITS, "n_relevance_path_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(given, name))
    np.testing.assert_array_equal(model.predict_proba(X), given.predict_proba(X))


@pytest.mark.parametrize("kernel", [WIDE, [WIDE, Laplacian(0.5)]])
@pytest.mark.parametrize("kind", MRVMS)
def test_as_many_candidates_as_rows_are_all_rows(kind, kernel, three):
    X, y = three
    X, y = np.r_[X, X[:9]], np.r_[y, y[:9]]
    w = some_weights(len(X))
    every = kind(kernel).fit(X, y, w)
    for n in (len(X), 10**9, np.int64(10**6)):
        model = kind(kernel, candidates=n).fit(X, y, w)
        for name in (*BITS, "active_", "n_relevance_path_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(every, name))
    assert (w[model.candidate_rows_] > 0).all()
    assert not hasattr(every, "candidates_")
    assert not hasattr(every, "candidate_rows_")


@pytest.mark.parametrize("kind", MRVMS)
def test_precomputed_columns_are_chosen(kind, three):
    X, y = three
    K, w = WIDE(X, X), some_weights(len(X))
    model = kind("precomputed", candidates=25, random_state=0).fit(K, y, w)
    rows = model.candidate_rows_
    assert len(rows) == 25
    assert (w[rows] > 0).all()
    assert not hasattr(model, "candidates_")
    assert not hasattr(model, "relevance_vectors_")
    same = kind(WIDE, candidates=X[rows]).fit(X, y, w)
    np.testing.assert_array_equal(model.relevance_, rows[same.relevance_])
    np.testing.assert_allclose(model.alpha_, same.alpha_, rtol=1e-4)
    new = X[:7] + 0.3
    np.testing.assert_allclose(model.predict_proba(WIDE(new, X)), same.predict_proba(new), atol=1e-5)
    served = model.to_predictor().predict_proba(WIDE(new, X))
    np.testing.assert_allclose(served, model.predict_proba(WIDE(new, X)), atol=1e-12)
    if kind is MRVM1:
        assert assert_certified(model, K, y, w).n_basis == 26


# --- copies, files, certificates -------------------------------------------------------------------

CANDIDATES = {"rows": 25, "centres": GRID}


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
@pytest.mark.parametrize("kernel", [WIDE, [WIDE, Linear()], OnColumns(WIDE, [0])], ids=repr)
@pytest.mark.parametrize("kind", MRVMS)
def test_models_are_copied_pickled_and_served(kind, kernel, candidates, three, tmp_path):
    X, y = three
    model = kind(kernel, candidates=candidates, random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict_proba(X), expected)
        np.testing.assert_array_equal(other.candidates_, model.candidates_)
        if kind is MRVM1:
            assert_certified(other, X, y)
    model.save(tmp_path / "model.safetensors")
    for served in (model.to_predictor(), load(tmp_path / "model.safetensors")):
        np.testing.assert_allclose(served.predict_proba(X), expected, atol=1e-12)
        np.testing.assert_array_equal(served.predict(X), model.predict(X))


def test_certificates_use_the_chosen_rows_and_refuse_other_data(three):
    X, y = three
    model = MRVM1(WIDE, candidates=20, random_state=np.random.RandomState(0)).fit(X, y)
    model.set_params(candidates=None)
    assert assert_certified(model, X, y).n_basis == 21
    given = MRVM1(WIDE, candidates=GRID).fit(X, y)
    for other in ((X[:50], y[:50]), (X, np.where(y == "a", "b", y))):
        for fitted in (model, given):
            with pytest.raises(ValueError, match="must be the training data"):
                inspection.certificate(fitted, *other)
    with pytest.raises(ValueError, match="must be the training data"):
        inspection.certificate(model, X[::-1], y[::-1])
    # A weight that a step would change shows in the certificate of given centres too.
    given.alpha_ = given.alpha_ * 1.3
    assert inspection.certificate(given, X, y).max_log_alpha_change > 0.05


@pytest.mark.parametrize("kind", MRVMS)
def test_given_centres_have_no_precomputed_values(kind, three):
    X, y = three
    with pytest.raises(ValueError, match=r"candidates must be None or an integer .*SparseBayes"):
        kind("precomputed", candidates=GRID).fit(WIDE(X, X), y)
    with pytest.raises(ValueError, match="X must be square"):
        kind("precomputed", candidates=5).fit(WIDE(X, X[:50]), y)
