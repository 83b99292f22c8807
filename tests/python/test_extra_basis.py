"""Extra basis functions beside the kernels: linear terms, transformers, callables."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

from problems import PAPERS, active_functions, assert_certified, squares
from reference import log_evidence, posterior, predict
from sparsebayes import RVC, RVR, _core
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Custom, Gaussian, Linear, OnColumns, Polynomial

WIDE = Gaussian(2.0)


def toy(seed, n=100):
    """Draw from Tipping (2001), section 5: the sinc of one input, a line in the other, noise 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("seed", range(5))
def test_linear_terms_of_the_papers_toy_are_found(seed):
    X, y = toy(seed)
    model = RVR(Gaussian((3.0, 100.0)), extra_basis="linear", **PAPERS).fit(X, y)
    assert model.status_ == "converged"
    np.testing.assert_allclose(model.extra_coef_, [[0.0, 0.1]], atol=0.02)
    assert 201 > model.active_[-1] >= 100
    without = RVR(Gaussian((3.0, 100.0)), **PAPERS).fit(X, y)
    assert model.log_marginal_likelihood_ > without.log_marginal_likelihood_ + 10.0
    assert len(model.relevance_) < len(without.relevance_)
    if seed < 2:
        learned = RVR(Gaussian((2.0, 2.0)), extra_basis="linear", optimize_kernel=True).fit(X, y)
        assert learned.status_ == "converged"
        np.testing.assert_allclose(learned.extra_coef_, [[0.0, 0.1]], atol=0.02)
        # The kernel needs only the first input.
        assert learned.kernel_.width[1] > 20.0 * learned.kernel_.width[0]


@pytest.mark.parametrize("kernels", [[WIDE], [WIDE, Polynomial(2)], [Custom(WIDE), Linear()]])
def test_models_agree_with_the_dense_formulas(kernels, surface):
    X, y = surface
    w = np.random.default_rng(3).integers(0, 4, len(X)).astype(float)
    model = RVR(kernels, extra_basis=squares, std="plain", **PAPERS).fit(X, y, w)
    extra = squares(X) - np.average(squares(X), axis=0, weights=w)
    Phi, _ = active_functions(model, X, model.kernel_, len(X), extra)
    used = w > 0
    at = (Phi[used], y[used], model.alpha_, model.beta_, w[used])
    np.testing.assert_allclose(model.log_marginal_likelihood_, log_evidence(*at), rtol=1e-6)
    mu, Sigma = posterior(*at)
    np.testing.assert_allclose(model.mu_, mu, rtol=1e-4, atol=1e-8)
    mean, variance = predict(Phi, mu, Sigma, model.beta_)
    found, deviation = model.predict(X, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(deviation, np.sqrt(variance), rtol=1e-5)
    if kernels == [WIDE]:
        # y contains a tenth of the square of the second input, which the other kernels can represent too.
        np.testing.assert_allclose(model.extra_coef_[0, 1], 0.1, atol=0.03)


CASES = {
    "linear": (RVR(WIDE, extra_basis="linear"), "surface"),
    "two kernels": (RVR([WIDE, Gaussian(0.7)], extra_basis="linear"), "surface"),
    "callable kernel": (RVR(lambda X, Z: WIDE(X, Z), extra_basis="linear"), "surface"),
    "no intercept": (RVR(WIDE, fit_intercept=False, extra_basis=squares), "surface"),
    "polynomials": (RVR(WIDE, extra_basis=PolynomialFeatures(3)), "surface"),
    "classes": (RVC(WIDE, extra_basis=PolynomialFeatures(2, include_bias=False)), "classes"),
    "three classes": (RVC(WIDE, extra_basis="linear"), "three"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_fits_are_certified_optima(case, weighted, request):
    model, data = CASES[case]
    X, y = request.getfixturevalue(data)
    w = np.random.default_rng(5).uniform(0, 2, len(y)).round(1) if weighted else None
    model = clone(model).fit(X, y, w)
    found = assert_certified(model, X, y, w)
    assert found.max_mean_error <= 1e-6
    n_kernels = 2 if case == "two kernels" else 1
    n_rows = len(X) if w is None else np.count_nonzero(w)
    n_extra = {"polynomials": 10, "classes": 5, "no intercept": 3}.get(case, 2)
    assert found.n_basis == model.fit_intercept + n_kernels * n_rows + n_extra


def test_callables_and_transformers_give_the_same_model(surface):
    X, y = surface

    def hinge(X):
        return np.maximum(X, 0.0)

    model = RVR(WIDE, extra_basis=hinge).fit(X, y)
    other = RVR(WIDE, extra_basis=FunctionTransformer(hinge)).fit(X, y)
    np.testing.assert_array_equal(other.active_, model.active_)
    np.testing.assert_array_equal(other.extra_coef_, model.extra_coef_)
    np.testing.assert_array_equal(other.predict(X + 0.3), model.predict(X + 0.3))
    assert model.extra_basis_ is hinge
    assert certificate(other, X, y) == certificate(model, X, y)


def test_columns_appended_to_X_serve_instead_of_an_array(surface):
    X, y = surface
    column = np.sin(np.arange(len(X)))[:, np.newaxis]
    target = y + 2.0 * column[:, 0]
    model = RVR(OnColumns(WIDE, [0, 1]), extra_basis=lambda Z: Z[:, 2:]).fit(np.hstack([X, column]), target)
    np.testing.assert_allclose(model.extra_coef_, [[2.0]], atol=0.1)
    for extra in (column, column.tolist(), scipy.sparse.csr_array(column)):
        with pytest.raises(TypeError, match=r"extra_basis must be.*append them to X.*OnColumns"):
            RVR(WIDE, extra_basis=extra).fit(X, target)


def test_core_kernels_callables_and_any_number_of_threads_agree(surface):
    X, y = surface
    lazy, three = (RVR(WIDE, extra_basis="linear", n_jobs=n).fit(X, y) for n in (1, 3))
    np.testing.assert_array_equal(lazy.mu_, three.mu_)
    dense = RVR(Custom(WIDE), extra_basis="linear").fit(X, y)
    np.testing.assert_array_equal(lazy.active_, dense.active_)
    np.testing.assert_allclose(lazy.predict(X), dense.predict(X), atol=1e-5)
    assert lazy.extra_coef_.shape == dense.extra_coef_.shape == (1, 2)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_stored_and_lazy_fits_have_the_same_bits(likelihood, surface, classes):
    X, t = surface if likelihood == "gaussian" else classes
    extra = np.asfortranarray(np.c_[X, X**2, np.sin(X)])
    kernels = [WIDE.to_core()]
    a, b = (
        _core.fit_kernel(X, X, kernels, t, extra=extra, lazy=lazy, likelihood=likelihood)
        for lazy in (True, False)
    )
    whole = np.asfortranarray(np.c_[np.ones(len(X)), kernels[0].matrix(X, X), extra])
    c = _core.fit_dense(whole, t, likelihood=likelihood)
    for other in (b, c):
        for name in ("active", "alpha", "mu", "sigma", "trace"):
            np.testing.assert_array_equal(getattr(a, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_constant_equal_and_zero_columns_do_no_harm(surface, fit_intercept):
    X, y = surface

    def awkward(X):
        line = X[:, 1]
        return np.c_[np.ones(len(X)), line, line, -2 * line, np.zeros(len(X)), WIDE(X, X0)[:, 0]]

    X0 = X[:1]
    model = RVR(WIDE, extra_basis=awkward, fit_intercept=fit_intercept).fit(X, y + 3.0 + X[:, 1])
    assert model.status_ == "converged"
    assert model.extra_coef_.shape == (1, 6)
    # Of each set of equal functions at most one is in the model.
    assert np.count_nonzero(model.extra_coef_[0, 1:4]) <= 1
    assert (model.extra_coef_[0, 0] != 0.0) + (model.intercept_[0] != 0.0) <= 1
    assert model.extra_coef_[0, 4] == 0.0
    assert certificate(model, X, y + 3.0 + X[:, 1]).max_gain_outside <= 1e-6
    assert model.score(X, y + 3.0 + X[:, 1]) > 0.97


def test_rows_of_zero_weight_are_left_out(surface):
    X, y = surface
    w = np.tile([1.0, 0.0, 2.0], len(X) // 3)
    used = w > 0
    model = RVR(WIDE, extra_basis=squares).fit(np.where(used[:, np.newaxis], X, 1e6), y, w)
    short = RVR(WIDE, extra_basis=squares).fit(X[used], y[used], w[used])
    np.testing.assert_array_equal(model.extra_coef_, short.extra_coef_)
    np.testing.assert_array_equal(model.relevance_vectors_, short.relevance_vectors_)


def test_transformers_are_cloned_and_fitted(surface):
    X, y = surface
    given = StandardScaler()
    model = RVR(WIDE, extra_basis=given).fit(X, y)
    assert not hasattr(given, "mean_")
    np.testing.assert_allclose(model.extra_basis_.mean_, X.mean(axis=0))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X + 1.0), model.predict(X + 1.0))
    assert clone(model).extra_basis is not given


def test_callbacks_name_extra_columns():
    X, y = toy(0)
    seen = []
    RVR([WIDE, Gaussian(9.0)], extra_basis="linear", callback=lambda r: seen.append(r.index)).fit(X, y)
    named = {index for index in seen if index is not None}
    assert named <= set(range(-1, 202))
    assert 201 in named


def test_cross_validation_works(surface):
    X, y = surface
    for extra in ("linear", PolynomialFeatures(2, include_bias=False), squares):
        assert cross_val_score(RVR(WIDE, extra_basis=extra), X, y, cv=3).mean() > 0.6
    search = GridSearchCV(
        RVR(extra_basis=PolynomialFeatures(), gamma="scale"), {"extra_basis__degree": [1, 2]}, cv=3
    )
    assert search.fit(X, y).best_params_ == {"extra_basis__degree": 2}


BAD = {
    "unknown name": ("quadratic", "must be 'auto', 'linear'"),
    "a kernel": (WIDE, "put kernels into a list"),
    "a class": (PolynomialFeatures, "not an instance"),
    "words": (lambda X: [["a"]] * 90, r"."),
    "one-dimensional": (lambda X: X[:, 0], "2D array"),
    "without columns": (lambda X: X[:, :0], r"0 feature"),
    "infinite": (lambda X: np.full((len(X), 1), np.inf), "infinity"),
    "complex": (lambda X: np.full((len(X), 1), 1j), "omplex"),
    "sparse": (lambda X: scipy.sparse.csr_array(X), "toarray|dense"),
    "one row": (lambda X: X[:1], "row for each row of X, 90; got 1"),
    "nothing": (lambda X: None, r"."),
    "sparse transformer": (OneHotEncoder(), "toarray|dense"),
}


@pytest.mark.parametrize("kind", [RVR, RVC])
@pytest.mark.parametrize("case", BAD)
def test_bad_columns_are_refused_by_name(kind, case, surface):
    X, y = surface
    given, words = BAD[case]
    with pytest.raises((ValueError, TypeError), match=rf"(?s)\bextra_basis\b.*({words})"):
        kind(WIDE, extra_basis=given).fit(X, (y > 0.5).astype(float))


@pytest.mark.parametrize("name", ["extra_basis", "noise_basis"])
@pytest.mark.parametrize(
    "given",
    [
        make_column_transformer((PolynomialFeatures(), ["a"])),
        lambda X: X[["a"]],
        lambda X: X["a"],
        lambda X: X.loc[:, ["a"]],
    ],
)
def test_columns_are_named_by_position(name, given, surface):
    X, y = surface
    with pytest.raises(ValueError, match=f"{name} gets X as an array of numbers.*positions of columns"):
        RVR(WIDE, **{name: given}).fit(pd.DataFrame(X, columns=["a", "b"]), y)


def test_other_numbers_of_columns_and_precomputed_kernels_are_refused(surface):
    X, y = surface
    growing = RVR(WIDE, extra_basis=lambda X: np.ones((len(X), len(X)))).fit(X, y)
    with pytest.raises(ValueError, match="extra_basis must have 90 columns"):
        growing.predict(X[:4])
    with pytest.raises(ValueError, match=r"extra_basis='linear'.*precomputed"):
        RVR("precomputed", extra_basis="linear").fit(WIDE(X, X), y)


class Squares(BaseEstimator):
    """A transformer that overwrites its arguments."""

    def fit(self, X, y=None):
        X[:] = np.nan
        return self

    def transform(self, X):
        X *= X
        return X


@pytest.mark.parametrize(
    ("extra", "in_parts"), [(Squares(), False), (Squares().transform, False), (Squares().transform, True)]
)
def test_functions_may_overwrite_their_arguments(extra, in_parts, surface):
    X, y = surface
    data, centres = X.copy(), X[:20].copy()
    chunks = [(data, y)] if in_parts else data
    model = RVR(WIDE, candidates=centres, extra_basis=extra).fit(chunks, None if in_parts else y)
    expected = RVR(WIDE, candidates=centres, extra_basis=lambda X: X**2).fit(X, y)
    np.testing.assert_allclose(model.predict(data), expected.predict(X), rtol=1e-7)
    np.testing.assert_array_equal(data, X)


def test_the_core_checks_extra_columns_again(surface):
    X, y = surface
    for extra, words in (
        (np.ones((90, 2)), "extra must be in Fortran order"),
        (np.ones((89, 2), order="F"), "rows of the extra columns"),
        (np.full((90, 2), np.nan, order="F"), "not finite"),
    ):
        with pytest.raises(ValueError, match=words):
            _core.fit_kernel(X, X, [WIDE.to_core()], y, extra=extra)
