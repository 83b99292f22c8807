"""Kernel objects: values, algebra, parameters, names for ``kernel=``."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.gaussian_process import kernels as process
from sklearn.metrics import pairwise
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reference import kernel_matrix, linear_spline
from sparsebayes import GREVM, MRVM1, RVC, RVR
from sparsebayes._checks import column_means
from sparsebayes.inspection import certificate
from sparsebayes.kernels import (
    Custom,
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    Matern32,
    Matern52,
    OnColumns,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sigmoid,
    Sum,
)
from sparsebayes.kernels._base import column_stds
from sparsebayes.kernels._resolve import resolve

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))

STANDARD = [
    Gaussian(1.5),
    Gaussian([0.5, 1.0, 2.0]),
    Matern32(1.5),
    Matern52([0.5, 1.0, 2.0]),
    RationalQuadratic([0.5, 1.0, 2.0], 0.7),
    Periodic(3.0, 1.5),
    Laplacian(0.3),
    Polynomial(3, 0.5, 1.0),
    Linear(),
    Sigmoid(0.2, -0.1),
    LinearSpline(),
]
COMBINED = [
    Gaussian(1.0) + Linear(),
    Gaussian(1.0) * Linear(),
    (Linear() + Sigmoid(0.1)) * Laplacian(0.2) + LinearSpline() * Gaussian([1.0, 2.0, 3.0]),
]
ON_COLUMNS = OnColumns(Gaussian(2.0), ["age", "dose"]) + OnColumns("rbf", range(2)) + OnColumns("rbf", "age")
points = arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=st.floats(-20, 20))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Gaussian(2.0), pairwise.rbf_kernel(X, Z, gamma=0.25)),
        (Gaussian([0.5, 1.0, 2.0]), pairwise.rbf_kernel(X / [0.5, 1.0, 2.0], Z / [0.5, 1.0, 2.0], gamma=1.0)),
        (Matern32(1.5), process.Matern(1.5 / 2**0.5, nu=1.5)(X, Z)),
        (Matern52([0.5, 1.0, 2.0]), process.Matern(np.array([0.5, 1.0, 2.0]) / 2**0.5, nu=2.5)(X, Z)),
        (RationalQuadratic(1.5, 0.7), process.RationalQuadratic(1.5 / 2**0.5, 0.7)(X, Z)),
        (
            OnColumns(Periodic(3.0, 1.5), 0),
            process.ExpSineSquared(2**0.5 * np.pi * 1.5 / 3.0, 3.0)(X[:, :1], Z[:, :1]),
        ),
        (Laplacian(0.3), pairwise.laplacian_kernel(X, Z, gamma=0.3)),
        (Polynomial(3, 0.5, 1.0), pairwise.polynomial_kernel(X, Z, degree=3, gamma=0.5, coef0=1.0)),
        (Linear(), X @ Z.T),
        (Sigmoid(0.2, -0.1), pairwise.sigmoid_kernel(X, Z, gamma=0.2, coef0=-0.1)),
        (LinearSpline(), kernel_matrix(linear_spline, X, Z)),
    ],
)
def test_kernels_have_the_values_of_their_formulas(kernel, expected):
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", [*STANDARD, *COMBINED])
@given(x=points, z=points)
def test_the_core_and_numpy_agree(kernel, x, z):
    ours, core = kernel(x, z), kernel.to_core().matrix(x, z)
    assert core.shape == ours.shape
    np.testing.assert_allclose(core, ours, rtol=1e-11, atol=1e-11 * max(1.0, abs(ours).max()))


@pytest.mark.parametrize("kernel", [*STANDARD, *COMBINED, Custom(np.dot), ON_COLUMNS])
def test_kernels_are_values_and_give_the_same_bits_on_any_number_of_threads(kernel):
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert twin == kernel
        assert hash(twin) == hash(kernel)
    with pytest.raises((AttributeError, TypeError)):
        kernel.width = 3.0
    if kernel not in (Custom(np.dot), ON_COLUMNS):
        core = kernel.to_core()
        np.testing.assert_array_equal(core.matrix(X, Z, n_threads=1), core.matrix(X, Z, n_threads=2))


def test_sums_and_products_combine_values_and_are_flattened():
    a, b, c = Gaussian(1.0), Linear(), Sigmoid(0.1)
    np.testing.assert_allclose((a + b + c)(X, Z), a(X, Z) + b(X, Z) + c(X, Z), rtol=1e-14)
    np.testing.assert_allclose((a * b * c)(X, Z), a(X, Z) * b(X, Z) * c(X, Z), rtol=1e-14)
    np.testing.assert_allclose((a * (b + c))(X, Z), a(X, Z) * (b(X, Z) + c(X, Z)), rtol=1e-14)
    assert a + (b + c) == (a + b) + c == Sum([a, b, c])
    assert a * (b * c) == (a * b) * c == Product([a, b, c])
    assert repr(a * (b + c)) == "Gaussian(width=1.0) * (Linear() + Sigmoid(gamma=0.1, coef0=0.0))"


def test_kernels_are_equal_if_their_parameters_are():
    assert len({*STANDARD, *COMBINED, *STANDARD}) == len(STANDARD) + len(COMBINED)
    assert Gaussian(1.0) != Gaussian([1.0])
    assert Gaussian(np.float32(2)) == Gaussian(np.int64(2)) == Gaussian(2) == Gaussian(2.0)
    assert Gaussian(np.array([1, 2])) == Gaussian((1.0, 2.0))
    assert Polynomial(np.int8(2), 1) == Polynomial(2, 1.0)


def test_distances_far_from_the_origin_are_exact():
    shift = 1e8
    np.testing.assert_array_equal(Gaussian(1.0)([[shift]], [[shift + 1.0]]), np.exp([[-1.0]]))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *(((lambda w=w: Gaussian(w)), "width") for w in (0, -1.0, np.nan)),
        *(((lambda w=w: Gaussian(w)), "width") for w in ("wide", [1.0, -1.0], [], [[1.0]], 1e-200, True)),
        (lambda: Laplacian(0.0), "gamma"),
        (lambda: Polynomial(0), "degree"),
        (lambda: Polynomial(1.5), "degree"),
        (lambda: Polynomial(2**32), "degree must be at most"),
        (lambda: Polynomial(2, gamma=-1), "gamma"),
        (lambda: Polynomial(2, coef0=np.inf), "coef0"),
        (lambda: Sigmoid(-1.0), "gamma"),
        (lambda: Sigmoid(1.0, "x"), "coef0"),
        (lambda: Matern32([1.0, 2.0])(X, Z), "width"),
        (lambda: Matern52(-1.0), "width"),
        (lambda: RationalQuadratic(1.0, 0.0), "alpha"),
        (lambda: Periodic(0.0, 1.0), "period"),
        (lambda: Periodic(1.0, "x"), "width"),
        (lambda: Custom("rbf"), "function"),
        (lambda: Sum([]), "terms"),
        (lambda: Product(["rbf"]), "factors"),
        (lambda: Gaussian(1.0) + "rbf", "kernel"),
        (lambda: Gaussian(1.0) * np.dot, "kernels.Custom"),
        (lambda: Gaussian([1.0, 2.0])(X, Z), "width"),
        (lambda: Linear()(X, Z[:, :2]), "X and Z"),
        (lambda: Linear()(X[0], Z), "X and Z"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, name):
    with pytest.raises((ValueError, TypeError), match=name):
        make()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rbf", Gaussian(2.0)),
        ("matern32", Matern32(2.0)),
        ("matern52", Matern52(2.0)),
        ("rational_quadratic", RationalQuadratic(2.0, 1.0)),
        ("laplacian", Laplacian(0.25)),
        ("poly", Polynomial(2, 0.25, 1.0)),
        ("linear", Linear()),
        ("sigmoid", Sigmoid(0.25, 1.0)),
        ("linear_spline", LinearSpline()),
    ],
)
def test_names_and_lists_resolve_to_kernels(name, expected):
    assert resolve(name, X=X, gamma=0.25, degree=2, coef0=1) == [expected]
    mixed = resolve([name, Linear(), np.dot], X=X, gamma=0.25, degree=2, coef0=1)
    assert mixed == [expected, Linear(), Custom(np.dot)]


def test_gamma_is_that_of_scikit_learn():
    assert resolve("laplacian", X=X, gamma="auto") == [Laplacian(1 / 3)]
    (scaled,) = resolve("laplacian", X=X)
    np.testing.assert_allclose(scaled.gamma, 1 / (3 * X.var()), rtol=1e-14)
    assert resolve("laplacian", X=np.full((4, 3), 2.0)) == [Laplacian(1.0)]


def test_gamma_counts_weighted_rows_as_often_as_their_weight():
    weights = np.arange(1, 8)
    (weighted,) = resolve("laplacian", X=X, sample_weight=weights.astype(float))
    (repeated,) = resolve("laplacian", X=np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.gamma, repeated.gamma, rtol=1e-13)


def test_the_fitted_kernel_is_published(surface):
    data, target = surface
    assert RVR(gamma=0.25).fit(data, target).kernel_ == Gaussian(2.0)
    both = [Linear(column_means(data, None)), Gaussian(1.0)]
    assert RVR(["linear", Gaussian(1.0)]).fit(data, target).kernel_ == both
    assert RVR("linear", fit_intercept=False).fit(data, target).kernel_ == Linear()
    assert RVR("precomputed").fit(data @ data.T, target).kernel_ == "precomputed"


@pytest.mark.parametrize("kernel", STANDARD[2:6], ids=repr)
def test_fits_are_certified_with_the_values_of_numpy(kernel):
    data = np.random.default_rng(1).normal(size=(60, 3))
    target = np.sin(2.0 * data[:, 0]) + 0.1 * np.random.default_rng(2).normal(size=60)
    found = certificate(RVR(kernel).fit(data, target), data, target)
    assert found.max_log_alpha_change < 1e-5
    assert found.max_gain_outside < 1e-6


NESTED = Gaussian([1.0, 2.0]) + Linear() * OnColumns(Laplacian(0.5), [0])


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (Gaussian(2.0), {"width"}),
        (Laplacian(0.5), {"gamma"}),
        (Polynomial(2, 0.5, 1.0), {"degree", "gamma", "coef0"}),
        (Sigmoid(0.5, 1.0), {"gamma", "coef0"}),
        (Linear(), {"offset"}),
        (LinearSpline(), set()),
        (Custom(np.inner), {"function"}),
        (OnColumns("rbf", [0]), {"kernel", "columns"}),
        (OnColumns(Gaussian(2.0), [0]), {"kernel", "columns", "kernel__width"}),
        (
            NESTED,
            {"terms", "k1", "k1__width", "k2", "k2__factors", "k2__k1", "k2__k1__offset", "k2__k2"}
            | {f"k2__k2__{name}" for name in ("kernel", "columns", "kernel__gamma")},
        ),
    ],
)
def test_parameters_can_be_read_and_set_by_name(kernel, names):
    params = kernel.get_params()
    assert set(params) == names
    twin = clone(kernel)
    assert twin == kernel
    assert twin is not kernel
    for name, value in params.items():  # set each to its value
        assert twin.set_params(**{name: value}) is twin
        assert twin == kernel
    assert hash(twin) == hash(kernel)
    with pytest.raises(ValueError, match="'nothing' is not a parameter"):
        twin.set_params(nothing=1.0)
    with pytest.raises(ValueError, match="'k9__width' is not a parameter"):
        twin.set_params(k9__width=1.0)
    assert twin == kernel


def test_set_params_changes_only_its_kernel():
    inner = Gaussian(1.0)
    kernel = inner + inner
    twin = clone(kernel)
    assert twin.set_params(k1__width=3.0) == Gaussian(3.0) + Gaussian(1.0)
    assert hash(twin) == hash(Gaussian(3.0) + Gaussian(1.0))
    assert kernel == Gaussian(1.0) + Gaussian(1.0)
    kernel.set_params(k2__width=[1, 2])
    assert kernel == Gaussian(1.0) + Gaussian((1.0, 2.0))
    assert inner == Gaussian(1.0)
    changed = clone(NESTED).set_params(k2__k2__kernel__gamma=2, k2__k2__columns=[1], k1=Linear())
    assert changed == Linear() + Linear() * OnColumns(Laplacian(2.0), [1])
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert NESTED.terms[0] == Gaussian([1.0, 2.0])


def test_a_parameter_that_is_refused_changes_nothing():
    kernel = Gaussian(1.0) + Polynomial(2)
    before = clone(kernel)
    for bad in ({"k1__width": -1.0}, {"k1__width": 2.0, "k2__degree": 0}, {"k1__width": 2.0, "k2": 3}):
        with pytest.raises((TypeError, ValueError)):
            kernel.set_params(**bad)
        assert kernel == before


@pytest.mark.parametrize("kind", [RVR, RVC, MRVM1, GREVM])
def test_estimators_take_the_parameters_of_their_kernel(kind):
    kernel = Gaussian(1.0) + Linear()
    est = kind(kernel)
    assert est.get_params()["kernel__k1__width"] == 1.0
    twin = clone(est).set_params(kernel__k1__width=2.5)
    assert twin.kernel == Gaussian(2.5) + Linear()
    assert est.kernel is kernel
    assert kernel == Gaussian(1.0) + Linear()


@pytest.mark.parametrize("kernel", ["rbf", np.inner, [Gaussian(1.0)]])
@pytest.mark.parametrize("kind", [RVR, RVC, MRVM1, GREVM])
def test_parameters_of_names_lists_and_callables_are_refused(kind, kernel):
    with pytest.raises(ValueError, match=r"'kernel__width' is a parameter of a kernel object.*or set gamma"):
        kind(kernel).set_params(kernel__width=1.0)
    assert kind(kernel).set_params(kernel=Gaussian(1.0), kernel__width=2.0).kernel == Gaussian(2.0)
    with pytest.raises(ValueError, match="Invalid parameter 'nothing'"):
        kind(kernel).set_params(nothing=1.0)


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Gaussian(1.0) + Linear(), [Gaussian(1.0)]])
def test_a_fitted_model_keeps_its_kernel(kernel, surface):
    X, y = surface
    model = RVR(kernel).fit(X, y)
    expected = model.predict(X)
    for one in kernel if isinstance(kernel, list) else [kernel]:
        one.set_params(**{"k1__width" if isinstance(kernel, Sum) else "width": 5.0})
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.fit(X, y).predict(X)[0] != expected[0]


def test_a_grid_search_finds_a_width(surface):
    X, y = surface
    kernel = Gaussian(100.0)
    pipeline = make_pipeline(StandardScaler(), RVR(kernel, noise_variance=0.01))
    search = GridSearchCV(pipeline, {"rvr__kernel__width": [0.02, 2.0, 1000.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"rvr__kernel__width": 2.0}
    assert search.best_estimator_[-1].kernel_ == Gaussian(2.0)
    assert kernel == Gaussian(100.0)
    score = cross_val_score(pipeline.set_params(rvr__kernel=Gaussian(2.0)), X, y, cv=3).mean()
    assert search.best_score_ == score


def test_a_column_that_is_constant_up_to_rounding_has_no_standard_deviation():
    rng = np.random.default_rng(0)
    equal, jitter = np.full(50, 0.1), 7.0 * (1.0 + np.spacing(1.0) * rng.integers(-1, 2, 50))
    far = 1e6 + 1e-3 * rng.normal(size=50)
    stds = column_stds(np.column_stack([equal, jitter, far]), rng.uniform(0.5, 1.0, 50))
    assert stds[:2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(stds[2], 1e-3, rtol=0.5)
