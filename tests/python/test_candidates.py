"""Kernels centred at chosen rows or given centres, against explicit matrices and with other options."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sparsebayes
from problems import PAPERS, assert_certified, sinc_2d, two_classes
from reference import gaussian, kernel_matrix
from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, inspection
from sparsebayes.kernels import Custom, Gaussian, Laplacian, Linear, OnColumns, Polynomial

WIDE = Gaussian(2.0)
GRID = np.stack(np.meshgrid(np.linspace(-2.5, 2.5, 5), np.linspace(-8.0, 8.0, 6)), axis=-1).reshape(-1, 2)
KERNELS = {
    "core": WIDE,
    "list": [WIDE, Polynomial(2)],
    "callable": Custom(WIDE),
    "list of both": [Custom(WIDE), Linear()],
    "columns": OnColumns(WIDE, [1, 0]),
}


def steps(X):
    return np.c_[X[:, :1] > 0.0, X[:, 1:] > 2.0].astype(float)


def dictionary(kernels, X, centres):
    """Return the bias and every kernel at every centre, Gaussians by the reference."""

    def block(k):
        if isinstance(k, Gaussian):
            return kernel_matrix(lambda x, z: gaussian(x, z, k.width), X, centres)
        return k(X, centres)

    return np.hstack([np.ones((len(X), 1)), *map(block, kernels)])


def assert_same(model, columns, names, rtol=1e-8):
    """Check that two fits agree; ``names`` maps the columns of the second to functions of the first."""
    np.testing.assert_array_equal(model.active_, names[columns.active_])
    np.testing.assert_allclose(model.alpha_, columns.alpha_, rtol=rtol)
    np.testing.assert_allclose(model.mu_, columns.mu_, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(model.log_marginal_likelihood_, columns.log_marginal_likelihood_, rtol=1e-10)


# --- given centres --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernels", [[WIDE], [Gaussian(1.0), Laplacian(0.5)]])
def test_a_regression_equals_that_on_the_explicit_matrix(kernels, weighted, surface):
    X, y = surface
    w = np.random.default_rng(3).integers(0, 4, len(X)).astype(float) if weighted else None
    model = RVR(kernels, candidates=GRID, tol=1e-9, std="plain", **PAPERS).fit(X, y, w)
    columns = SparseBayesRegressor(fit_intercept=False, tol=1e-9, **PAPERS).fit(
        dictionary(kernels, X, GRID), y, w
    )
    assert_same(model, columns, np.arange(-1, len(kernels) * len(GRID)))
    np.testing.assert_array_equal(model.relevance_vectors_, GRID[model.relevance_])
    new = X[::3] + 0.1
    expected = columns.predict(dictionary(kernels, new, GRID), return_std=True)
    np.testing.assert_allclose(model.predict(new, return_std=True), expected, rtol=1e-7, atol=1e-9)
    assert assert_certified(model, X, y, w).n_basis == 1 + len(kernels) * len(GRID)


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_a_classifier_equals_that_on_the_explicit_matrix(multi_class, three):
    X, y = three
    model = RVC(WIDE, candidates=GRID[::2], multi_class=multi_class, tol=1e-9, **PAPERS).fit(X, y)
    columns = SparseBayesClassifier(fit_intercept=False, multi_class=multi_class, tol=1e-9, **PAPERS)
    columns.fit(dictionary([WIDE], X, GRID[::2]), y)
    # The evidence hardly depends on some of the precisions.
    assert_same(model, columns, np.arange(-1, len(GRID[::2])), rtol=1e-7)
    expected = columns.predict_proba(dictionary([WIDE], X, GRID[::2]))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-8)
    assert_certified(model, X, y)


@pytest.mark.parametrize("scheme", ["mackay", "em", "variational"])
def test_every_scheme_takes_given_centres(scheme, sinc):
    X, y = sinc
    centres = np.linspace(-9, 9, 12)[:, np.newaxis]
    model = RVR(WIDE, candidates=centres, scheme=scheme, **PAPERS).fit(X, y)
    columns = SparseBayesRegressor(fit_intercept=False, scheme=scheme).fit(dictionary([WIDE], X, centres), y)
    np.testing.assert_array_equal(model.active_, columns.active_ - 1)
    np.testing.assert_allclose(model.alpha_, columns.alpha_, rtol=1e-5)
    assert_certified(model, X, y)


def test_equal_centres_share_one_basis_function(surface):
    X, y = surface
    doubled = np.repeat(GRID, 2, axis=0)
    once, twice = RVR(WIDE, candidates=GRID).fit(X, y), RVR(WIDE, candidates=doubled).fit(X, y)
    np.testing.assert_array_equal(twice.relevance_, 2 * once.relevance_)
    np.testing.assert_array_equal(twice.alpha_, once.alpha_)
    np.testing.assert_array_equal(twice.candidates_, doubled)
    np.testing.assert_array_equal(twice.predict(X), once.predict(X))
    assert assert_certified(twice, X, y).n_basis == 1 + len(GRID)


def test_one_centre_or_more_centres_than_rows_can_be_given(sinc):
    X, y = sinc
    centres = np.linspace(-10, 10, 200)[:, np.newaxis]
    model = RVR(WIDE, candidates=centres).fit(X, y)
    assert_certified(model, X, y)
    assert model.active_.max() >= len(X)
    one = RVR(WIDE, candidates=[[0.0]]).fit(X, y)
    assert_certified(one, X, y)
    np.testing.assert_array_equal(one.relevance_, [0])


def test_a_model_copies_its_centres(surface):
    X, y = surface
    centres = GRID.copy()
    model = RVR(WIDE, candidates=centres).fit(X, y)
    before = model.predict(X)
    centres[:] = 1e6
    np.testing.assert_array_equal(model.candidates_, GRID)
    np.testing.assert_array_equal(model.predict(X), before)
    assert_certified(model, X, y)


def test_frames_of_centres_need_the_columns_of_x(surface):
    X, y = surface
    frame = pd.DataFrame(X, columns=["a", "b"])
    centres = pd.DataFrame(GRID, columns=["a", "b"])
    model = RVR(WIDE, candidates=centres).fit(frame, y)
    np.testing.assert_array_equal(model.alpha_, RVR(WIDE, candidates=GRID).fit(X, y).alpha_)
    RVR(WIDE, candidates=GRID).fit(frame, y)
    RVR(WIDE, candidates=centres).fit(X, y)
    with pytest.raises(ValueError, match=r"candidates must have the columns of X .*candidates\[X.columns\]"):
        RVR(WIDE, candidates=centres[["b", "a"]]).fit(frame, y)


# --- a number of rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_chosen_rows_give_the_fit_of_the_same_centres(kernel, surface):
    X, y = surface
    model = RVR(kernel, candidates=25, random_state=0).fit(X, y)
    rows = model.candidate_rows_
    assert len(np.unique(rows)) == 25
    np.testing.assert_array_equal(rows, np.sort(rows))
    np.testing.assert_array_equal(model.candidates_, X[rows])
    given = RVR(kernel, candidates=X[rows]).fit(X, y)
    assert not hasattr(given, "candidate_rows_")
    block, function = np.divmod(given.active_, 25)
    np.testing.assert_array_equal(
        model.active_, np.where(given.active_ < 0, -1, block * len(X) + rows[function])
    )
    np.testing.assert_array_equal(model.relevance_, rows[given.relevance_])
    for name in ("alpha_", "mu_", "sigma_", "relevance_vectors_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(given, name))
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])
    np.testing.assert_array_equal(model.predict(X), given.predict(X))
    assert assert_certified(model, X, y).n_basis == assert_certified(given, X, y).n_basis


@pytest.mark.parametrize("n", [90, 91, 10**9, np.int64(90)])
def test_as_many_candidates_as_rows_use_every_row(n, surface):
    X, y = surface
    model, every = RVR(candidates=n, gamma="scale").fit(X, y), RVR(gamma="scale").fit(X, y)
    np.testing.assert_array_equal(model.candidate_rows_, np.arange(90))
    for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(every, name))
    assert not hasattr(every, "candidates_")
    assert not hasattr(every, "candidate_rows_")


def test_the_seed_determines_the_chosen_rows(surface):
    X, y = surface

    def rows(random_state, **settings):
        return RVR(candidates=20, random_state=random_state, **settings).fit(X, y).candidate_rows_

    np.testing.assert_array_equal(rows(3), rows(3, n_jobs=1))
    np.testing.assert_array_equal(rows(3), rows(np.random.RandomState(3)))
    assert not np.array_equal(rows(3), rows(4))
    np.random.seed(3)  # noqa: NPY002 # what None means everywhere in scikit-learn
    np.testing.assert_array_equal(rows(None), rows(3))
    # Every fit of a learned kernel uses these rows, whatever the unit of X.
    np.testing.assert_array_equal(rows(3, kernel=WIDE, optimize_kernel=True), rows(3))
    unit = RVR(candidates=20, random_state=3, gamma="scale").fit(1e-9 * X, y)
    np.testing.assert_array_equal(unit.candidate_rows_, rows(3))


@pytest.mark.parametrize("scale", [1e-140, 1.0, 1e140])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_chosen_rows_cover_the_inputs(offset, scale):
    # Nine tight clumps of very different size: each has a candidate.
    rng = np.random.default_rng(0)
    sizes = [1, 2, 5, 10, 50, 100, 200, 400, 800]
    places = np.stack(np.meshgrid([-10, 0, 10], [-10, 0, 10]), axis=-1).reshape(-1, 2)
    clump = np.repeat(np.arange(9), sizes)
    X = scale * (offset + places[clump] + 0.1 * rng.normal(size=(len(clump), 2)))
    model = RVR(
        Gaussian(10.0 * scale), gamma="auto", candidates=18, random_state=0, noise_variance=1.0, **PAPERS
    )
    model.fit(X, rng.normal(size=len(X)))
    assert set(clump[model.candidate_rows_]) == set(range(9))


def test_equal_rows_are_chosen_once_and_rows_without_weight_never(surface):
    X, y = surface
    w = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    weighted = RVR(WIDE, candidates=20, random_state=0).fit(X, y, w)
    assert (w[weighted.candidate_rows_] > 0).all()
    assert_certified(weighted, X, y, w)
    # A weight of 2 is the row twice, of the choice too.
    again = np.r_[np.flatnonzero(w), np.flatnonzero(w == 2)]
    repeated = RVR(WIDE, candidates=20, random_state=0).fit(X[again], y[again])
    np.testing.assert_array_equal(again[repeated.candidate_rows_], weighted.candidate_rows_)
    np.testing.assert_allclose(repeated.alpha_, weighted.alpha_, rtol=1e-4)
    most = RVR(WIDE, candidates=len(X), random_state=0).fit(X[again], y[again])
    assert len(most.candidate_rows_) == np.count_nonzero(w)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_rows_that_rounding_cannot_tell_apart_are_still_as_many_as_asked_for():
    X = np.r_[np.zeros(1), 1.0, 1.0 + 2.2e-16 * np.arange(1, 60)][:, np.newaxis]
    y = np.random.default_rng(0).normal(size=len(X))
    model = RVR(Gaussian(0.3), candidates=30, random_state=0, noise_variance=1.0).fit(X, y)
    assert len(np.unique(model.candidates_)) == 30


def test_precomputed_columns_are_chosen(surface):
    X, y = surface
    K = WIDE(X, X)
    w = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    model = RVR("precomputed", candidates=25, random_state=0).fit(K, y, w)
    rows = model.candidate_rows_
    assert len(rows) == 25
    assert (w[rows] > 0).all()
    assert not hasattr(model, "candidates_")
    assert not hasattr(model, "relevance_vectors_")
    same = RVR(WIDE, candidates=X[rows]).fit(X, y, w)
    np.testing.assert_array_equal(model.relevance_, rows[same.relevance_])
    np.testing.assert_allclose(model.alpha_, same.alpha_, rtol=1e-5)
    new = X[:7] + 0.3
    np.testing.assert_allclose(model.predict(WIDE(new, X)), same.predict(new), atol=1e-6)
    np.testing.assert_allclose(model.to_predictor().predict(WIDE(new, X)), same.predict(new), atol=1e-6)
    assert assert_certified(model, K, y, w).n_basis == 26
    # Rows and columns of no weight are as good as not there.
    used = np.flatnonzero(w)
    less = RVR("precomputed", candidates=25, random_state=0).fit(K[np.ix_(used, used)], y[used], w[used])
    np.testing.assert_array_equal(used[less.candidate_rows_], rows)


def test_many_rows_are_sampled_first_and_the_fit_stays_certified():
    X, y = sinc_2d(40_000)
    model = RVR(gamma=0.2, candidates=120, random_state=0).fit(X, y)
    assert len(np.unique(model.candidate_rows_)) == 120
    np.testing.assert_array_equal(model.candidates_, X[model.candidate_rows_])
    assert model.candidate_rows_.max() > 36_000
    assert_certified(model, X, y)
    again = RVR(gamma=0.2, candidates=120, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.alpha_, model.alpha_)


FIT_AND_TELL_MEMORY = """
import resource, sys
import numpy as np
from problems import sinc_2d
from sparsebayes import RVC, RVR
X, y = sinc_2d(20_000)
model = {"RVR": RVR, "RVC": RVC}[sys.argv[1]](gamma=0.2, candidates=800, random_state=0, n_jobs=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.fit(X, y if sys.argv[1] == "RVR" else y > 0.1)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(used * (1 if sys.platform == "darwin" else 1024), len(model.active_), model.status_)
"""


@pytest.mark.parametrize("name", ["RVR", "RVC"])
def test_memory_is_bounded_by_the_active_set(name):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", FIT_AND_TELL_MEMORY, name]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    used, n_active, status = out.stdout.split()
    assert status == "converged"
    assert int(n_active) < 120
    assert int(used) < 20_000 * 800 * 8 / 2


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_many_rows_give_the_model_of_the_rows(weighted, monkeypatch):
    X, y = sinc_2d(2000, noise=0.1, seed=3)
    w = np.random.default_rng(0).integers(0, 4, len(X)).astype(float) if weighted else None
    model = RVR(gamma=0.2, candidates=60, random_state=0, extra_basis="linear", unpenalized="all")
    of_rows = clone(model).fit(X, y, w)
    monkeypatch.setattr("sparsebayes._data.design._MIN_SUMMED_ROWS", 1)
    of_sums = clone(model).fit(X, y, w)
    np.testing.assert_array_equal(of_sums.active_, of_rows.active_)
    for name in ("alpha_", "mu_", "beta_", "intercept_", "loo_", "log_marginal_likelihood_"):
        np.testing.assert_allclose(getattr(of_sums, name), getattr(of_rows, name), rtol=1e-5, atol=1e-9)
    assert_certified(of_sums, X, y, w)


def test_chosen_rows_do_nearly_as_well_as_all():
    X, label = two_classes(600)
    X_test, truth = two_classes(4000, seed=1)
    every = RVC(Gaussian(0.5)).fit(X, label)
    some = RVC(Gaussian(0.5), candidates=60, random_state=0).fit(X, label)
    assert some.score(X_test, truth) > every.score(X_test, truth) - 0.01
    assert_certified(some, X, label)


# --- together with all the rest -------------------------------------------------------------------

CANDIDATES = {"rows": 25, "centres": GRID}


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_extra_columns_follow_the_candidates(kernel, candidates, surface):
    X, y = surface
    y = y + 2.0 * (X[:, 0] > 0.0)
    model = RVR(kernel, candidates=candidates, extra_basis=steps, random_state=0, **PAPERS).fit(X, y)
    size = len(X) if isinstance(candidates, int) else len(GRID)
    n_kernels = len(kernel) if isinstance(kernel, list) else 1
    extra = model.active_ - n_kernels * size
    np.testing.assert_array_equal(np.unique(extra[extra >= 0]), np.flatnonzero(model.extra_coef_))
    assert len(extra[extra >= 0]) > 0
    kernels = model.kernel_ if isinstance(kernel, list) else [kernel]
    centres = model.candidates_
    extra = steps(X) - steps(X).mean(axis=0)
    matrix = np.hstack([np.ones((len(X), 1)), *[k(X, centres) for k in kernels], extra])
    columns = SparseBayesRegressor(fit_intercept=False, **PAPERS).fit(matrix, y)
    np.testing.assert_allclose(model.log_marginal_likelihood_, columns.log_marginal_likelihood_, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), columns.predict(matrix), atol=1e-6)
    assert_certified(model, X, y)


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
def test_kernels_are_learned_with_candidates(candidates, surface):
    X, y = surface
    start = RVR(Gaussian((2.0, 2.0)), candidates=candidates, random_state=0).fit(X, y)
    model = clone(start).set_params(optimize_kernel=True).fit(X, y)
    assert model.kernel_ != start.kernel_
    given = RVR(model.kernel_, candidates=model.candidates_, extra_basis=model.extra_basis_).fit(X, y)
    np.testing.assert_allclose(model.log_marginal_likelihood_, given.log_marginal_likelihood_, rtol=1e-8)
    assert_certified(model, X, y)


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
@pytest.mark.parametrize("kernel", [WIDE, [WIDE, Polynomial(2)], OnColumns(WIDE, [1])])
def test_models_are_copied_pickled_and_served(kernel, candidates, surface, tmp_path):
    X, y = surface
    model = RVR(kernel, candidates=candidates, extra_basis="linear", random_state=0).fit(X, y)
    expected = model.predict(X, return_std=True)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(X), expected[0])
        np.testing.assert_array_equal(other.candidates_, model.candidates_)
        assert_certified(other, X, y)
    model.save(tmp_path / "model.safetensors")
    for served in (model.to_predictor(), sparsebayes.load(tmp_path / "model.safetensors")):
        np.testing.assert_allclose(served.predict(X), expected[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(served.predict_std(X)[1], expected[1], rtol=1e-8)


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_classifiers_with_candidates_are_certified_and_served(multi_class, candidates, three):
    X, y = three
    model = RVC(WIDE, candidates=candidates, multi_class=multi_class, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.to_predictor().predict_proba(X), model.predict_proba(X), atol=1e-12)
    assert np.isin(model.relevance_, getattr(model, "candidate_rows_", np.arange(len(GRID)))).all()
    assert_certified(model, X, y)


def test_parameters_are_kept_as_given_and_refits_start_afresh(surface):
    X, y = surface
    model = RVR(WIDE, candidates=GRID, random_state=0)
    assert model.get_params()["candidates"] is GRID
    np.testing.assert_array_equal(clone(model).candidates, GRID)
    assert "candidates" in repr(model)
    model.fit(X, y)
    model.set_params(candidates=20).fit(X, y)
    np.testing.assert_array_equal(model.candidates_, X[model.candidate_rows_])
    model.set_params(kernel="precomputed").fit(WIDE(X, X), y)
    assert not hasattr(model, "candidates_")
    model.set_params(kernel=WIDE, candidates=None).fit(X, y)
    assert not hasattr(model, "candidate_rows_")
    np.testing.assert_array_equal(model.alpha_, RVR(WIDE).fit(X, y).alpha_)
    # A fit that fails leaves the model that was there.
    model.set_params(candidates=20).fit(X, y)
    rows = model.candidate_rows_
    with pytest.raises(ValueError, match="candidates"):
        model.set_params(candidates=0).fit(X, y)
    np.testing.assert_array_equal(model.candidate_rows_, rows)
    model.predict(X)


def test_a_certificate_uses_the_rows_chosen_by_the_fit(surface):
    X, y = surface
    model = RVR(WIDE, candidates=20, random_state=np.random.RandomState(0)).fit(X, y)
    assert_certified(model, X, y)
    model.set_params(candidates=None)
    assert assert_certified(model, X, y).n_basis == 21
    with pytest.raises(NotFittedError):
        inspection.certificate(clone(model), X, y)


def test_callbacks_number_functions_like_active_(surface):
    X, y = surface
    seen = []
    model = RVR(WIDE, candidates=20, random_state=0, callback=seen.append).fit(X, y)
    named = {record.index for record in seen if record.index is not None}
    assert len(named) > 0
    assert named <= {-1, *model.candidate_rows_}


# --- as many as suit ------------------------------------------------------------------------------


def test_up_to_2000_rows_are_all_candidates(surface):
    X, y = surface
    model = RVR(WIDE).fit(X, y)
    assert not hasattr(model, "candidate_rows_")
    np.testing.assert_array_equal(model.predict(X), RVR(WIDE, candidates=None).fit(X, y).predict(X))


@pytest.mark.parametrize(("n", "expected"), [(2001, 2000), (4000, 2000), (8000, 1250), (12_000, 1000)])
def test_of_many_rows_some_are_candidates(n, expected):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=n)
    model = RVR(WIDE).fit(X, y)
    assert len(np.unique(model.candidate_rows_)) == expected
    np.testing.assert_array_equal(model.candidates_, X[model.candidate_rows_])
    assert_certified(model, X, y)
    # Neither the order of the rows nor copies of them change the draw.
    order = rng.permutation(n)
    again = RVR(WIDE, random_state=7).fit(X[order], y[order])
    np.testing.assert_array_equal(np.sort(order[again.candidate_rows_]), model.candidate_rows_)


def test_all_columns_of_a_precomputed_kernel_are_candidates():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (2100, 1))
    model = RVR("precomputed").fit(WIDE(X, X), np.sin(X[:, 0]) + 0.1 * rng.normal(size=2100))
    assert not hasattr(model, "candidate_rows_")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("Estimator", [RVR, RVC])
@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        (0, ValueError, "candidates must be 'auto', None .* at least 1 .* got 0"),
        (True, TypeError, "candidates must be 'auto', None .* got True"),
        (10.0, TypeError, "candidates must be 'auto', None .* got 10.0"),
        ("all", TypeError, "candidates must be 'auto', None .* got 'all'"),
        ([], ValueError, r"candidates must have the shape \(n_candidates, n_features\)"),
        ([3, 5, 7], ValueError, r"candidates must have the shape .* X\[rows\]"),
        (np.ones((2, 2, 2)), ValueError, "candidates must have the shape .* got 3 dimensions"),
        (np.empty((0, 2)), ValueError, "candidates: .*0 sample"),
        (np.ones((4, 3)), ValueError, "candidates must have the 2 columns of X, got 3"),
        ([[0.0, np.nan]], ValueError, "candidates contains NaN"),
        ([[0.0, np.inf]], ValueError, "candidates contains infinity"),
        ([[1.0, 2.0], [3.0]], ValueError, "candidates"),
        (scipy.sparse.csr_array(GRID), TypeError, "candidates"),
    ],
)
def test_bad_candidates_are_refused(Estimator, candidates, error, message, classes):
    with pytest.raises(error, match=message):
        Estimator(candidates=candidates).fit(*classes)


def test_given_centres_are_refused_for_precomputed_kernels(surface):
    X, y = surface
    with pytest.raises(ValueError, match=r"candidates must be None or an integer .*SparseBayesRegressor"):
        RVR("precomputed", candidates=GRID).fit(WIDE(X, X), y)
    with pytest.raises(ValueError, match="X must be square"):
        RVR("precomputed", candidates=5).fit(WIDE(X, X[:50]), y)


@pytest.mark.parametrize("random_state", ["seed", -1, 1.5])
@pytest.mark.parametrize("candidates", [None, 10])
def test_bad_seeds_are_refused(candidates, random_state, surface):
    with pytest.raises((TypeError, ValueError), match="random_state"):
        RVR(candidates=candidates, random_state=random_state, gamma="scale").fit(*surface)
