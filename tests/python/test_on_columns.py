"""Kernels on some of the columns: values, what names columns, fits, learning, and errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from problems import assert_certified, named
from sparsebayes import RVC, RVR
from sparsebayes._data.design import evaluate
from sparsebayes.kernels import (
    Custom,
    Gaussian,
    Laplacian,
    Linear,
    OnColumns,
    Polynomial,
    Sigmoid,
)
from sparsebayes.kernels._base import bounds
from sparsebayes.kernels._resolve import resolve

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(8, 4)) * [1.0, 2.0, 0.5, 1.0], RNG.normal(size=(5, 4))
NAMES = ["height", "width", "age", "dose"]

#: Columns as given, and as NumPy takes them.
COLUMNS = [
    (2, [2]),
    (np.int64(-1), [-1]),
    ([0, 2], [0, 2]),
    ((3, 1), [3, 1]),
    ([-1, 0], [-1, 0]),
    ([1, 1], [1, 1]),
    (range(2), [0, 1]),
    (np.array([2, 0]), [2, 0]),
    (pd.Series([0, 3]), [0, 3]),
]
INNER = [
    Gaussian(1.5),
    Laplacian(0.3),
    Polynomial(2, 0.5, 1.0),
    Sigmoid(0.2, -0.1),
    Gaussian(1.0) * Linear() + Laplacian(0.1),
    Custom(lambda X, Z: np.cos(X @ Z.T)),
]


def local(X, Z):
    return np.exp(-np.abs(X - Z.T))


def data(seed, n=90):
    """A function of the first two columns and one of the fourth; the third is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 3] + 0.1 * rng.normal(size=n)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "selected"), COLUMNS, ids=named)
@pytest.mark.parametrize("inner", INNER, ids=named)
def test_values_are_those_on_the_columns(inner, columns, selected):
    expected = inner(X[:, selected], Z[:, selected])
    kernel = OnColumns(inner, columns)
    # Views that run backwards are added up in another order by older versions of NumPy.
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-14, atol=1e-15)
    for n_threads in (1, 2):
        np.testing.assert_allclose(evaluate(kernel, X, Z, n_threads), expected, rtol=1e-12, atol=1e-14)


def test_one_width_per_input_is_one_per_column_selected():
    kernel = OnColumns(Gaussian([1.0, 2.0]), [3, 0])
    np.testing.assert_array_equal(kernel(X, Z), Gaussian([1.0, 2.0])(X[:, [3, 0]], Z[:, [3, 0]]))


def test_sums_and_products_combine_kernels_on_different_columns():
    a, b, c = OnColumns(Gaussian(1.0), [0, 1]), Linear(), OnColumns(Laplacian(0.5), -1)
    expected = a(X, Z) + b(X, Z) * c(X, Z)
    np.testing.assert_array_equal((a + b * c)(X, Z), expected)
    np.testing.assert_allclose(evaluate(a + b * c, X, Z, None), expected, rtol=1e-13)
    inside = OnColumns(Gaussian(1.0) + Linear(), [0, 1])
    np.testing.assert_allclose(inside(X, Z), a(X, Z) + X[:, :2] @ Z[:, :2].T, rtol=1e-14)


def test_columns_of_columns_are_counted_among_those_selected():
    nested = OnColumns(OnColumns(Gaussian([1.0, 2.0]), [2, 0]), [3, 1, 0])
    np.testing.assert_array_equal(nested(X, Z), OnColumns(Gaussian([1.0, 2.0]), [0, 3])(X, Z))


@given(st.lists(st.integers(-4, 3), min_size=1, max_size=6))
def test_positions_follow_numpy(columns):
    expected = Linear()(X[:, columns], Z[:, columns])
    np.testing.assert_array_equal(OnColumns(Linear(), columns)(X, Z), expected)


def test_kernels_that_differ_are_unequal():
    kernels = [OnColumns(Linear(), c) for c in (0, 1, [0, 1], "0", [2, 0], ["0", "1"])]
    kernels += [OnColumns(Gaussian(1.0), 0), OnColumns("rbf", 0), Linear()]
    assert len(set(kernels)) == len(kernels)
    assert OnColumns(Linear(), np.array([1, 0])) == OnColumns(Linear(), (1, 0))
    assert OnColumns(Linear(), "a") == OnColumns(Linear(), ["a"])
    assert repr(OnColumns(Linear(), [0, 2])) == "OnColumns(kernel=Linear(), columns=(0, 2))"


# --- fits -----------------------------------------------------------------------------------------


def test_names_select_the_columns_of_a_data_frame():
    data, y = data_frame()
    # Without an intercept the linear kernel stands about 0.
    named = [OnColumns(Gaussian(1.0), ["width", "height"]), OnColumns("linear", "dose")]
    by_name = RVR(named, fit_intercept=False).fit(data, y)
    numbered = [OnColumns(Gaussian(1.0), [1, 0]), OnColumns(Linear(), 3)]
    by_position = RVR(numbered, fit_intercept=False).fit(data.to_numpy(), y)
    assert by_name.kernel_ == by_position.kernel_ == numbered
    np.testing.assert_array_equal(by_name.predict(data), by_position.predict(data.to_numpy()))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(by_name.predict(data.to_numpy()), by_name.predict(data))
    # The kernel given is as it was, and finds its columns in another order too.
    assert by_name.kernel[0].columns == ("width", "height")
    swapped = clone(by_name).fit(data[NAMES[::-1]], y)
    assert swapped.kernel_[0].columns == (2, 3)
    np.testing.assert_allclose(swapped.predict(data[NAMES[::-1]]), by_name.predict(data), rtol=1e-6)
    with pytest.raises(ValueError, match="feature names should match"):
        by_name.predict(data[NAMES[::-1]])


def data_frame():
    X, y = data(0)
    return pd.DataFrame(X, columns=NAMES), y


def test_names_inside_others_are_found_among_the_columns_selected():
    frame, y = data_frame()
    kernel = OnColumns(OnColumns(Gaussian(1.0), "dose") * OnColumns("rbf", "age"), ["dose", "width", "age"])
    (found,) = resolve(kernel, X=frame.to_numpy(), gamma=0.25, feature_names=frame.columns)
    assert found == OnColumns(OnColumns(Gaussian(1.0), 0) * OnColumns(Gaussian(2.0), 2), [3, 1, 2])
    with pytest.raises(ValueError, match="'height' are not in X, whose columns are 'dose', 'width'"):
        RVR(OnColumns(OnColumns(Gaussian(1.0), "height"), ["dose", "width"])).fit(frame, y)


def test_gamma_of_named_kernels_is_that_of_the_columns():
    weights = np.arange(1.0, 9.0)
    for gamma in ("scale", "auto", 0.7):
        at = {"gamma": gamma, "degree": 2, "coef0": 0.5, "sample_weight": weights}
        for name in ("rbf", "laplacian", "poly", "sigmoid"):
            found = resolve(OnColumns(name, [2, 1]) + Linear(), X=X, **at)
            assert found == [OnColumns(resolve(name, X=X[:, [2, 1]], **at)[0], [2, 1]) + Linear()]


KERNELS = {
    "two": [OnColumns(Gaussian(1.0), [0, 1]), OnColumns(Linear(), 3)],
    "sum": OnColumns(Gaussian([1.0, 2.0]), range(2)) + OnColumns(Linear(), 3),
    "by name": [OnColumns("rbf", [0, 1]), "linear"],
    "callable": [OnColumns(local, 0), Gaussian(2.0)],
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [RVR, RVC])
def test_fits_are_certified_and_those_of_the_columns_by_hand(kernel, kind):
    X, y = data(1)
    y = y if kind is RVR else y > 0.0
    model = kind(KERNELS[kernel]).fit(X, y)
    assert_certified(model, X, y)
    fitted = model.kernel_ if isinstance(model.kernel_, list) else [model.kernel_]
    by_hand = kind([Custom(k) for k in fitted], extra_basis=model.extra_basis_).fit(X, y)
    np.testing.assert_array_equal(by_hand.active_, model.active_)
    score = "predict" if kind is RVR else "decision_function"
    new = X[:20] + 0.1
    np.testing.assert_allclose(getattr(model, score)(new), getattr(by_hand, score)(new), rtol=1e-6, atol=1e-8)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(getattr(twin, score)(new), getattr(model, score)(new))


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inner", [Gaussian((1.0, 2.0)), Laplacian(0.3), Gaussian(1.0) * Polynomial(2, 1.0, 1.0)]
)
def test_defaults_and_bounds_are_those_of_the_selected_columns(inner):
    kernel = OnColumns(inner, [1, 2])
    np.testing.assert_allclose(kernel._natural(X), inner._natural(X[:, [1, 2]]), rtol=1e-13)
    np.testing.assert_array_equal(kernel._length_powers(), inner._length_powers())
    np.testing.assert_allclose(bounds(kernel, X), bounds(inner, X[:, [1, 2]]), rtol=1e-13)


def test_learning_on_columns_is_learning_from_these_columns():
    X, y = data(8, 60)
    y = y - 0.5 * X[:, 3]
    # Rows are dealt out to folds in the order of their inputs, here that of the first column.
    model = RVR(OnColumns(Gaussian((1.0, 1.0)), [0, 1]), optimize_kernel=True).fit(X, y)
    alone = RVR(Gaussian((1.0, 1.0)), optimize_kernel=True).fit(X[:, [0, 1]], y)
    assert isinstance(model.kernel_, OnColumns)
    assert model.kernel_.columns == (0, 1)
    np.testing.assert_allclose(model.kernel_.kernel.width, alone.kernel_.width, rtol=1e-3)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "columns", "error", "words"),
    [
        (Linear(), [], ValueError, "at least one column"),
        (Linear(), np.array([]), ValueError, "at least one column"),
        (Linear(), [False, True], TypeError, "numpy.flatnonzero"),
        (Linear(), None, TypeError, "columns must be positions"),
        (Linear(), True, TypeError, "columns must be positions"),
        (Linear(), 1.0, TypeError, "columns must be positions"),
        (Linear(), [0.0, 1.0], TypeError, "one kind"),
        (Linear(), [0, "a"], TypeError, "one kind"),
        (Linear(), [0, True], TypeError, "one kind"),
        (Linear(), [[0, 1]], TypeError, "one kind"),
        (Linear(), np.eye(2, dtype=int), TypeError, "columns must be positions"),
        (Linear(), np.array(2), TypeError, "columns must be positions"),
        (Linear(), np.timedelta64(3, "s"), TypeError, "columns must be positions"),
        (Linear(), {0, 1}, TypeError, "columns must be positions"),
        (Linear(), {"a": 1}, TypeError, "columns must be positions"),
        (Linear(), b"a", TypeError, "columns must be positions"),
        (Linear(), slice(0, 4), TypeError, "columns must be positions"),
        (3.0, [0], TypeError, "kernel must be"),
        (Gaussian, [0], TypeError, "kernel must be"),
        ("precomputed", [0], ValueError, "precomputed"),
    ],
)
def test_bad_arguments_are_refused(kernel, columns, error, words):
    with pytest.raises(error, match=words):
        OnColumns(kernel, columns)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (OnColumns(Linear(), [0, 4]), r"among the 4 columns of X; got 4"),
        (OnColumns(Linear(), [-5, 7]), r"among the 4 columns of X; got -5, 7"),
        (OnColumns(Linear(), "age"), r"by name, 'age'"),
        (OnColumns(Gaussian([1.0, 2.0]), [0, 1, 2]), r"width has 2 values.*3 columns that OnColumns\("),
        (OnColumns(Gaussian([1.0] * 4), 1), r"width has 4 values.*1 columns that OnColumns\("),
        (Linear() + OnColumns(OnColumns(Linear(), 2), [0, 1]), r"among the 2 columns of X; got 2"),
    ],
)
def test_missing_columns_are_refused_by_kernels_and_fits(kernel, words):
    with pytest.raises(ValueError, match=words):
        kernel(X, Z)
    with pytest.raises(ValueError, match=words):
        RVR(kernel).fit(*data(0))


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_missing_and_ambiguous_names_are_refused():
    frame, y = data_frame()
    with pytest.raises(ValueError, match="columns 'weight', 'Age' are not in X, whose columns are 'height'"):
        RVR([OnColumns("rbf", ["weight", "dose", "Age"]), "rbf"], gamma="scale").fit(frame, y)
    with pytest.raises(ValueError, match="columns 'a' are in X more than once"):
        resolve(OnColumns("rbf", "a"), X=X, feature_names=["a", "b", "c", "a"])
    numbered = frame.set_axis(range(4), axis=1)
    with pytest.raises(ValueError, match="X has no names of columns"):
        RVR(OnColumns("rbf", ["a"]), gamma="scale").fit(numbered, y)
    # Names of an earlier fit are forgotten.
    model = RVR(OnColumns("rbf", ["age"]), gamma="scale").fit(frame, y)
    with pytest.raises(ValueError, match="X has no names of columns"):
        model.fit(frame.to_numpy(), y)


def test_kernels_given_by_name_have_no_values_before_a_fit():
    with pytest.raises(ValueError, match="'rbf' of OnColumns has no parameters until"):
        OnColumns("rbf", 0)(X, Z)
    with pytest.raises(ValueError, match=r"kernel must be one of 'rbf'.*got 'gauss'"):
        RVR(OnColumns("gauss", 0)).fit(*data(0))
