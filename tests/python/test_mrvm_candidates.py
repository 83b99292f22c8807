"""mRVM1 and mRVM2 about some rows or about given centres: against explicit matrices and the reference."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import mrvm_reference as reference
from reference import gaussian, kernel_matrix
from sparsebayes import MRVM1, MRVM2, inspection, load
from sparsebayes.kernels import Custom, Gaussian, Laplacian, Linear, OnColumns, Polynomial

MACHINES = [MRVM1, MRVM2]
WIDE = Gaussian(1.0)
GRID = np.stack(np.meshgrid(np.linspace(-2.5, 2.5, 5), np.linspace(-2.5, 2.5, 6)), axis=-1).reshape(-1, 2)
KERNELS = {
    "core": WIDE,
    "list": [WIDE, Polynomial(2)],
    "callable": Custom(WIDE),
    "columns": OnColumns(WIDE, [1, 0]),
}
BITS = ("alpha_", "mu_", "kernel_weights_", "relevance_vectors_", "dual_coef_", "intercept_")


def assert_certified(model, X, y, sample_weight=None):
    found = inspection.certificate(model, X, y, sample_weight)
    assert model.status_ == "converged"
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    np.testing.assert_allclose(found.log_marginal_likelihood, model.log_marginal_likelihood_, rtol=1e-6)
    return found


def some_weights(n):
    return np.random.default_rng(3).integers(0, 4, n).astype(float)


# --- given centres --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", MACHINES)
def test_a_machine_is_that_of_the_explicit_matrix(kind, intercept, weighted, three):
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
def test_the_reference_finds_nothing_to_gain_about_given_centres(seed, weighted):
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
    for i in range(21):
        s, q = reference.factors(Phi, Y, alpha, i, w)
        best = reference.best_alpha(s, q)
        if inside[i]:
            assert np.log(best / alpha[i]) == pytest.approx(0.0, abs=1e-5)
        else:
            assert reference.share(best, s, q) < 1e-6
    assert assert_certified(model, X, labels, w).n_basis == 21


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_fits_about_any_centres_are_certified(kernel, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(70, 2))
    y = np.argmax(np.c_[X, 0.5 - X[:, 0] * X[:, 1]] + 0.4 * rng.normal(size=(70, 3)), axis=1)
    w = some_weights(70) if seed % 2 else None
    given = MRVM1(kernel, candidates=rng.normal(size=(25, 2)), convergence="conv1").fit(X, y, w)
    assert assert_certified(given, X, y, w).n_basis == 26
    chosen = MRVM1(kernel, candidates=25, random_state=seed, convergence="conv1").fit(X, y, w)
    assert assert_certified(chosen, X, y, w).n_basis == 26


@pytest.mark.parametrize("kind", MACHINES)
def test_equal_centres_share_a_function_and_count_as_given(kind, three):
    X, y = three
    once = kind(WIDE, candidates=GRID).fit(X, y)
    twice = kind(WIDE, candidates=np.repeat(GRID, 2, axis=0)).fit(X, y)
    np.testing.assert_array_equal(twice.relevance_, 2 * once.relevance_)
    for name in BITS:
        np.testing.assert_array_equal(getattr(twice, name), getattr(once, name))


def test_there_may_be_more_centres_than_rows_and_but_one(three):
    X, y = three
    centres = np.random.default_rng(0).normal(size=(200, 2))
    many = MRVM1(WIDE, candidates=centres).fit(X, y)
    assert assert_certified(many, X, y).n_basis == 201
    assert many.active_.max() >= len(X)
    one = MRVM1(WIDE, candidates=[[2.0, 0.0]]).fit(X, y)
    assert assert_certified(one, X, y).n_basis == 2
    np.testing.assert_array_equal(one.relevance_, [0])


def test_a_model_keeps_centres_of_its_own(three):
    X, y = three
    centres = GRID.copy()
    model = MRVM1(WIDE, candidates=centres).fit(X, y)
    before = model.predict_proba(X)
    centres[:] = 1e6
    np.testing.assert_array_equal(model.candidates_, GRID)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert_certified(model, X, y)


# Of 120 rows noise may tell something: mRVM1 keeps some of it on the draws 0, 1 and 5.
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("kind", MACHINES)
def test_a_kernel_of_noise_is_found_out_about_points_that_are_no_rows(kind, seed):
    rng = np.random.default_rng(seed)
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 16))
    X[y == 0, 0] += 4.0
    X[y == 1, 2] += 4.0
    X, y, centres = X[:120], y[:120], X[120:]
    kernels = [OnColumns(Gaussian(2.0), columns) for columns in ([0, 1], [2, 3], range(4, 16))]
    model = kind(kernels, candidates=centres).fit(X, y)
    assert model.status_ == "converged"
    assert model.kernel_weights_[2] < 0.05
    assert model.kernel_weights_[:2].min() > 0.2
    if kind is MRVM1:
        assert_certified(model, X, y)


# --- a number of rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [WIDE, Custom(WIDE), OnColumns(WIDE, [1, 0])], ids=repr)
@pytest.mark.parametrize("kind", MACHINES)
def test_chosen_rows_are_as_if_given(kind, kernel, three):
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


def test_chosen_rows_are_nearly_as_if_given_with_several_kernels(three):
    """Weights of kernels begin elsewhere: rows have targets of their own, centres are credited with some."""
    X, y = three
    kernel = [WIDE, OnColumns(Laplacian(0.5), [0])]
    model = MRVM1(kernel, candidates=25, random_state=0).fit(X, y)
    given = MRVM1(kernel, candidates=model.candidates_).fit(X, y)
    assert given.lower_bound_ == pytest.approx(model.lower_bound_, abs=1.0)
    np.testing.assert_allclose(given.predict_proba(X), model.predict_proba(X), atol=0.1)
    assert_certified(model, X, y)
    assert_certified(given, X, y)


@pytest.mark.parametrize("kernel", [WIDE, [WIDE, Laplacian(0.5)]])
@pytest.mark.parametrize("kind", MACHINES)
def test_as_many_as_there_are_rows_is_every_row(kind, kernel, three):
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


def test_the_choice_is_that_of_its_seed_and_of_its_neighbours(three):
    X, y = three

    def rows(random_state, **settings):
        return MRVM1(candidates=20, random_state=random_state, **settings).fit(X, y).candidate_rows_

    np.testing.assert_array_equal(rows(3), rows(3, n_jobs=1))
    assert not np.array_equal(rows(3), rows(4))
    np.testing.assert_array_equal(
        rows(3), MRVM2(candidates=20, random_state=3, max_iter=500).fit(X, y).candidate_rows_
    )


@pytest.mark.parametrize("kind", MACHINES)
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


# --- together with all the rest -------------------------------------------------------------------

CANDIDATES = {"rows": 25, "centres": GRID}


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
@pytest.mark.parametrize("kernel", [WIDE, [WIDE, Linear()], OnColumns(WIDE, [0])], ids=repr)
@pytest.mark.parametrize("kind", MACHINES)
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


def test_frames_need_the_columns_of_x(three):
    X, y = three
    frame = pd.DataFrame(X, columns=["a", "b"])
    centres = pd.DataFrame(GRID, columns=["a", "b"])
    model = MRVM1(WIDE, candidates=centres).fit(frame, y)
    np.testing.assert_array_equal(model.alpha_, MRVM1(WIDE, candidates=GRID).fit(X, y).alpha_)
    with pytest.raises(ValueError, match=r"candidates must have the columns of X .*candidates\[X.columns\]"):
        MRVM1(WIDE, candidates=centres[["b", "a"]]).fit(frame, y)


@pytest.mark.parametrize("kind", MACHINES)
def test_a_linear_kernel_has_its_weights(kind, three):
    X, y = three
    model = kind("linear", candidates=GRID).fit(X, y)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-10)


@pytest.mark.parametrize("kind", MACHINES)
def test_parameters_are_kept_as_given_and_refits_start_afresh(kind, three):
    X, y = three
    model = kind(WIDE, candidates=GRID, random_state=0)
    assert model.get_params()["candidates"] is GRID
    np.testing.assert_array_equal(clone(model).candidates, GRID)
    model.fit(X, y).set_params(candidates=20).fit(X, y)
    np.testing.assert_array_equal(model.candidates_, X[model.candidate_rows_])
    rows = model.candidate_rows_
    with pytest.raises(ValueError, match="candidates"):
        model.set_params(candidates=0).fit(X, y)
    np.testing.assert_array_equal(model.candidate_rows_, rows)
    model.predict(X)
    model.set_params(candidates=None).fit(X, y)
    assert not hasattr(model, "candidates_")
    assert not hasattr(model, "candidate_rows_")
    np.testing.assert_array_equal(model.alpha_, kind(WIDE).fit(X, y).alpha_)


def test_a_certificate_is_of_the_rows_once_chosen_and_refuses_other_data(three):
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


def test_callbacks_name_functions_as_active_does(three):
    X, y = three
    seen = []
    model = MRVM1(WIDE, candidates=20, random_state=0, callback=seen.append).fit(X, y)
    named = {record.index for record in seen if record.index is not None}
    assert len(named) > 0
    assert named <= {-1, *model.candidate_rows_}


def test_searches_split_rows_and_may_choose_their_number(three):
    X, y = three
    machine = MRVM1(WIDE, random_state=0, convergence="conv1")
    search = GridSearchCV(machine, {"candidates": [5, 40, 10**6]}, cv=3).fit(X, y)
    assert search.best_params_["candidates"] in (5, 40, 10**6)


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"candidates": 0}, ValueError, "candidates must be None .* at least 1 .* got 0"),
        ({"candidates": True}, TypeError, "candidates must be None .* got True"),
        ({"candidates": 10.0}, TypeError, "candidates must be None .* got 10.0"),
        ({"candidates": "all"}, TypeError, "candidates must be None .* got 'all'"),
        ({"candidates": [3, 5]}, ValueError, r"candidates must have the shape .* X\[rows\]"),
        ({"candidates": np.ones((4, 3))}, ValueError, "candidates must have the 2 columns of X, got 3"),
        ({"candidates": [[0.0, np.nan]]}, ValueError, "candidates contains NaN"),
        ({"candidates": 5, "random_state": "seed"}, ValueError, "random_state"),
        ({"random_state": -1}, ValueError, "random_state"),
    ],
)
def test_what_is_no_candidates_says_so(kind, settings, error, message, three):
    with pytest.raises(error, match=message):
        kind(**settings).fit(*three)


@pytest.mark.parametrize("kind", MACHINES)
def test_given_centres_have_no_precomputed_values(kind, three):
    X, y = three
    with pytest.raises(ValueError, match=r"candidates must be None or an integer .*SparseBayes"):
        kind("precomputed", candidates=GRID).fit(WIDE(X, X), y)
    with pytest.raises(ValueError, match="X must be square"):
        kind("precomputed", candidates=5).fit(WIDE(X, X[:50]), y)
