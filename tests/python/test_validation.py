"""Bad input: each kind raises ValueError or TypeError, and the message names the argument."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import is_classifier
from sklearn.metrics.pairwise import chi2_kernel

import problems
from problems import ON_KERNELS, PAPERS, each_value
from sparsebayes import MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, SufficientStatistics
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian
from sparsebayes.model_selection import density_score
from sparsebayes.plot import ProbabilityDisplay

ESTIMATORS = [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier]
ALL = list(problems.ESTIMATORS.values())
BAD = (ValueError, TypeError)

X = np.random.default_rng(0).normal(size=(12, 2))
# Classes that overlap, so that no fit ends in a warning.
Y = np.tile([0.0, 1.0], 6)


def spoiled(array, value):
    copy = np.array(array)
    copy[(1,) * copy.ndim] = value
    return copy


BAD_X = {
    "NaN": spoiled(X, np.nan),
    "infinite": spoiled(X, np.inf),
    "without rows": X[:0],
    "without columns": X[:, :0],
    "one-dimensional": X[:, 0],
    "three-dimensional": X[:, :, np.newaxis],
    "a scalar": 3.0,
    "strings": X.astype(str),
    "words": [["a", "b"]] * 12,
    "complex": X + 1j,
    "sparse": scipy.sparse.csr_array(spoiled(X, np.nan)),
    "None": None,
    "dates": np.zeros((12, 2), dtype="datetime64[s]"),
    "dictionaries": [[{}, {}]] * 12,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("case", BAD_X)
def test_bad_X_is_refused_by_name(kind, case):
    with pytest.raises(BAD, match=r"\bX\b"):
        kind().fit(BAD_X[case], Y)
    if case != "without rows":
        with pytest.raises(BAD, match=r"\bX\b"):
            kind().fit(X, Y).predict(BAD_X[case])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"fit_intercept": True}])
@pytest.mark.parametrize("kind", [SparseBayesRegressor, SparseBayesClassifier])
def test_errors_for_values_that_are_not_finite_have_one_text(kind, settings, value):
    bad = spoiled(X, value)
    with pytest.raises(ValueError, match="X contains") as elsewhere:
        kind(**settings).fit(bad.tolist(), Y)
    model = kind(**PAPERS, **settings).fit(X, Y)
    coef = model.coef_.copy()
    for weights in (None, np.ones(12), np.arange(12) != 1):
        with pytest.raises(ValueError, match="X contains") as here:
            model.fit(bad, Y, sample_weight=weights)
        assert str(here.value) == str(elsewhere.value)
        assert here.value.__context__ is None or here.value.__suppress_context__
        np.testing.assert_array_equal(model.coef_, coef)


COLUMNS = {
    "text": (["x", "y"] * 6, r"column 'age' holds 'x' in row 0, which is not a real number"),
    "text among numbers": ([1.5] * 5 + ["n/a"] + [2.0] * 6, r"column 'age' holds 'n/a' in row 5"),
    "NaN": (spoiled(Y, np.nan), r"contains NaN in column 'age', row 1 \(1 of 12 rows\)"),
    "None": ([None, 1.0] * 6, r"contains NaN in column 'age', row 0 \(6 of 12 rows\)"),
    "pandas.NA": (pd.array([1, None] * 6, dtype="Int64"), r"contains NaN in column 'age', row 1"),
    "infinity": (spoiled(Y, -np.inf), r"contains infinity in column 'age', row 1"),
    "dates": (pd.date_range("2020-01-01", periods=12), r"column 'age' holds dates"),
    "categories": (pd.Categorical(["x", "y"] * 6), r"column 'age' holds 'x' in row 0"),
    "decimals": ([Decimal("1.5")] * 11 + [Decimal("NaN")], r"contains NaN in column 'age', row 11"),
    "lists": ([[1.0]] * 12, r"column 'age' holds \[1.0\] in row 0"),
}
FRAME = pd.DataFrame(X, columns=["height", "weight"]).assign(age=X.sum(axis=1))


@pytest.mark.parametrize("case", COLUMNS)
def test_every_call_names_the_bad_column_of_a_table(case):
    column, words = COLUMNS[case]
    bad = FRAME.assign(age=column)
    model = RVR(**PAPERS).fit(FRAME, Y)
    served = model.to_predictor()
    calls = [
        *(lambda kind=kind: kind().fit(bad, Y) for kind in ALL),
        lambda: model.predict(bad),
        lambda: served.predict(bad),
        lambda: served.predict_std(bad),
        lambda: served.decision_function(bad),
        lambda: served.predict_into(bad, np.empty(12)),
        lambda: RVR(extra_basis=lambda _: bad, gamma="scale").fit(X, Y),
        lambda: RVR(candidates=bad, gamma="scale").fit(FRAME, Y),
        lambda: RVR(gamma="scale").fit(X, bad),
        lambda: SufficientStatistics(3).update(bad, Y),
        lambda: RVR(candidates=FRAME.to_numpy()[:2], gamma=1.0).fit([(bad, Y)]),
    ]
    for call in calls:
        with pytest.raises(BAD, match=words):
            call()


@pytest.mark.parametrize("case", ["text", "NaN", "None", "infinity", "dates", "categories"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_bad_columns_of_arrow_tables_and_arrays_are_named(kind, case):
    column, words = COLUMNS[case]
    bad = FRAME.assign(age=column)
    with pytest.raises(BAD, match=words):
        kind().fit(pa.Table.from_pandas(bad), Y)
    if case not in ("dates", "categories"):
        with pytest.raises(BAD, match=words.replace("'age'", "2")):
            kind().fit(bad.to_numpy(), Y)


@pytest.mark.parametrize("kind", [kind for kind in ALL if hasattr(kind(), "kernel")])
def test_the_error_for_sparse_X_names_the_remedy(kind):
    with pytest.raises(TypeError, match=r"X.*toarray"):
        kind().fit(scipy.sparse.csr_array(X), Y)


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.linalg.aslinearoperator])
def test_errors_for_sparse_arrays_and_operators_elsewhere_name_the_remedy(form):
    served, values = RVR(**PAPERS).fit(X, Y).to_predictor(), form(X)
    for call in (
        lambda: served.predict(values),
        lambda: served.predict_std(values),
        lambda: served.predict_gradient(values),
        lambda: served.predict_one(values),
        lambda: served.predict_into(values, np.empty(12)),
        lambda: SufficientStatistics(2).update(values, Y),
        lambda: RVR(gamma="scale").fit(X, values),
        lambda: RVR(gamma="scale").fit(X, Y, values),
    ):
        with pytest.raises(TypeError, match=r"^(X|x|Phi|y|sample_weight) is a .* must be a table here: give"):
            call()


BAD_Y = {
    "NaN": spoiled(Y, np.nan),
    "infinite": spoiled(Y, np.inf),
    "short": Y[:-1],
    "long": np.append(Y, 1.0),
    "empty": Y[:0],
    "three dimensions": np.stack([np.c_[Y, Y], np.c_[Y, Y]], axis=2),
    "None": None,
    "a scalar": 1.0,
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("case", BAD_Y)
def test_bad_y_is_refused_by_name(kind, case):
    with pytest.raises(BAD, match=r"\by\b"):
        kind().fit(X, BAD_Y[case])


@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
def test_classifiers_take_one_column(kind):
    with pytest.raises(BAD, match=r"\by\b"):
        kind().fit(X, np.c_[Y, Y])


@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
@pytest.mark.parametrize("y", [["a"] * 12, Y.astype(str), Y + 1j])
def test_targets_that_are_no_numbers_are_refused(kind, y):
    with pytest.raises(BAD, match=r"\by\b"):
        kind().fit(X, y)


@pytest.mark.parametrize("kind", [kind for kind in ALL if is_classifier(kind())])
@pytest.mark.parametrize("label", [1, "yes", True])
def test_one_class_alone_is_refused(kind, label):
    with pytest.raises(ValueError, match=r"^y holds one class only"):
        kind().fit(X, [label] * 12)
    # Rows of zero weight do not count.
    with pytest.raises(ValueError, match=r"^y holds one class only"):
        kind().fit(X, Y, sample_weight=Y)


@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
@pytest.mark.parametrize("y", [X[:, 0], ["a", None] * 6, ["a", 1] * 6])
def test_labels_that_cannot_be_classes_are_refused(kind, y):
    with pytest.raises(BAD, match=r"\by\b|continuous"):
        kind().fit(X, np.array(y, dtype=object) if isinstance(y, list) else y)


@pytest.mark.parametrize("kind", [kind for kind in ALL if is_classifier(kind())])
@pytest.mark.parametrize(
    "y",
    [
        np.array(["2020-01-01", "NaT", "2021-01-01"] * 4, dtype="M8[D]"),
        np.array([1, "NaT", 2] * 4, dtype="m8[D]"),
        ["a", None, "b"] * 4,
        pd.Series(["a", None, "b"] * 4),
        pd.Categorical(["a", None, "b"] * 4),
        pd.Series(["a", None, "b"] * 4, dtype="string"),
        np.array(["a", pd.NaT, "b"] * 4, dtype=object),
    ],
)
def test_missing_labels_are_named(kind, y):
    fits = [lambda: kind().fit(X, y)]
    if kind is SparseBayesClassifier:
        fits += [lambda: kind().fit([(X, y)]), lambda: kind().partial_fit(X, y)]
    for fit in fits:
        with pytest.raises(ValueError, match=r"y must have a label .* in row 1 \(4 of 12 rows\); leave such"):
            fit()


@pytest.mark.parametrize("kind", [kind for kind in ALL if is_classifier(kind())])
@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (pd.Series(Y > 0), object),
        pytest.param(
            Y.astype(str), "T", marks=pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 lacks it")
        ),
    ],
)
def test_labels_of_types_that_are_not_classified_name_the_remedy(kind, labels, dtype):
    with pytest.raises(ValueError, match=r"y is an array of dtype .*; give y\.astype\(bool\)"):
        kind().fit(X, labels.astype(dtype))


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match=r"\by\b.*negative"):
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, Y - 0.5)


BAD_WEIGHTS = {
    "NaN": spoiled(Y, np.nan),
    "infinite": spoiled(Y, np.inf),
    "negative": spoiled(Y, -1.0),
    "all zero": 0 * Y,
    "short": np.ones(11),
    "two-dimensional": np.ones((12, 1)),
    "words": ["heavy"] * 12,
    "negative scalar": -1.0,
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights_are_refused_by_name(kind, case):
    with pytest.raises(BAD, match="sample_weight"):
        kind().fit(X, Y, sample_weight=BAD_WEIGHTS[case])


BAD_SETTINGS = {
    "scheme": ["fast", None],
    "search": ["best", ["exchange"]],
    "tol": [0, -1e-3, np.nan, "small"],
    "max_iter": [0, 10.0, None],
    "n_jobs": [0, -2, 1.5],
    "verbose": [-1, "yes"],
    "callback": [3],
    "fit_intercept": ["no"],
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("name", "value"), each_value(BAD_SETTINGS))
def test_bad_settings_are_refused_by_name(kind, name, value):
    if name not in kind().get_params():
        pytest.skip("not an argument of this estimator")
    with pytest.raises(BAD, match=rf"^{name} must be"):
        kind(**{name: value}).fit(X, Y)


@pytest.mark.parametrize("kind", [kind for kind in ALL if "noise_variance" in kind().get_params()])
@pytest.mark.parametrize("value", [0, -0.1, np.inf, "low", True])
def test_bad_noise_is_refused_by_name(kind, value):
    with pytest.raises(BAD, match=r"^noise_variance must be.*None"):
        kind(noise_variance=value).fit(X, Y)


def test_likelihood_and_noise_have_to_agree():
    with pytest.raises(ValueError, match=r"^likelihood must be"):
        SparseBayesRegressor(fit_intercept=False, likelihood="cauchy").fit(X, Y)
    with pytest.raises(ValueError, match=r"^noise_variance must be None"):
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson", noise_variance=0.1).fit(X, Y)


@pytest.mark.parametrize("kind", ON_KERNELS)
@pytest.mark.parametrize("kernel", ["rbf", "linear", Gaussian(1.0)])
@pytest.mark.parametrize(
    ("name", "value"),
    each_value(
        {
            "gamma": [-1.0, 0, "wide", np.nan, None, np.array([0.1, 0.2])],
            "degree": [0, -2, 2.5],
            "coef0": [np.inf, "one"],
        }
    ),
)
def test_bad_kernel_parameters_are_refused_used_or_not(kind, kernel, name, value):
    with pytest.raises(BAD, match=rf"^{name} must be"):
        kind(kernel, **{name: value}).fit(X, Y)


@pytest.mark.parametrize("kind", ON_KERNELS)
@pytest.mark.parametrize(
    "kernel", ["gaussian", 3.0, None, [], ["rbf", "nonsense"], ["rbf", "precomputed"], Gaussian]
)
def test_bad_kernels_are_refused_by_name(kind, kernel):
    with pytest.raises(BAD, match=r"^kernel"):
        kind(kernel).fit(X, Y)


def test_widths_have_to_fit_the_inputs():
    with pytest.raises(ValueError, match=r"width has 3 values but X has 2 features"):
        RVR(Gaussian([1.0, 2.0, 3.0])).fit(X, Y)


@pytest.mark.parametrize("kind", ON_KERNELS)
@pytest.mark.parametrize(
    "values",
    [
        lambda A, B: np.ones((len(A), len(B) + 1)),
        lambda A, B: np.ones(len(A)),
        lambda A, B: 1.0,
        lambda A, B: A @ B.T + 1j,
        lambda A, B: np.full((len(A), len(B)), np.nan),
        lambda A, B: np.full((len(A), len(B)), np.inf),
        lambda A, B: np.full((len(A), len(B)), "one"),
        lambda A, B: None,
    ],
)
def test_kernel_functions_have_to_return_a_real_finite_matrix(kind, values):
    with pytest.raises(BAD, match="kernel function must return"):
        kind(values).fit(X, Y)


def test_kernel_functions_are_checked_when_predicting_too():
    fitted = []

    def kernel(A, B):
        return (A @ B.T) * (np.nan if fitted else 1.0)

    model = RVR(kernel).fit(X, X[:, 0] + 0.1 * Y)
    fitted.append(True)
    with pytest.raises(ValueError, match="kernel function must return finite"):
        model.predict(X)


def reading(A, B):
    """A Gaussian kernel."""
    return np.exp(-0.5 * ((A[:, np.newaxis] - B) ** 2).sum(axis=2))


def writing(A, B):
    """Fit with a function that writes to all of its arguments."""
    values = reading(A, B)
    A[:], B[:] = np.nan, np.nan
    return values


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ON_KERNELS)
def test_a_kernel_function_may_write_to_its_arguments(kind):
    data, target = X.copy(), X[:, 0] > np.median(X[:, 0]) if is_classifier(kind()) else X[:, 0] + 0.1 * Y
    data.flags.writeable = False
    model = kind(writing).fit(data, target)
    expected = kind(reading).fit(data, target)
    np.testing.assert_array_equal(model.predict(data), expected.predict(data))
    np.testing.assert_array_equal(data, X)


def test_a_kernel_function_of_compiled_code_takes_our_arrays():
    positive = np.abs(X)
    model = RVR(chi2_kernel, **PAPERS).fit(positive, Y)
    values = RVR("precomputed", **PAPERS).fit(chi2_kernel(positive), Y)
    np.testing.assert_array_equal(model.predict(positive), values.predict(chi2_kernel(positive)))


@pytest.mark.parametrize("kind", ON_KERNELS)
def test_precomputed_kernels_have_to_be_square(kind):
    with pytest.raises(ValueError, match=r"X must be square.*\(12, 2\)"):
        kind("precomputed").fit(X, Y)


@pytest.mark.filterwarnings("ignore:RVC ended with status 'empty'")
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_another_number_of_features_is_refused(kind):
    model = kind(**PAPERS).fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 3 features.*expecting 2"):
        model.predict(np.ones((4, 3)))


@pytest.mark.parametrize(("fitted", "given"), [(1, 2), (2, 1), (2, 3)])
def test_certificates_refuse_other_outputs(fitted, given):
    targets = np.column_stack([Y, Y + 0.1 * X[:, 1], X[:, 0]])
    model = RVR(gamma="scale").fit(X, np.squeeze(targets[:, :fitted]))
    with pytest.raises(ValueError, match=f"y must be the training data, with {fitted} outputs; got {given}"):
        certificate(model, X, np.squeeze(targets[:, :given]))


@pytest.mark.parametrize("settings", [{"kernel": "linear"}, {"kernel": "poly", "degree": 5}])
def test_kernels_that_overflow_are_named(settings):
    X = 1e160 * np.linspace(1, 2, 20)[:, np.newaxis]
    with pytest.raises(ValueError, match="rescale X or the kernel"):
        RVR(gamma=1.0, **settings).fit(X, np.arange(20.0))


@pytest.mark.parametrize("row", [0, 5, 19])
def test_columns_too_small_to_square_are_named_and_others_fit(row):
    X = np.zeros((20, 3))
    X[:, 0] = np.linspace(-1.0, 1.0, 20)
    y = 2.0 * X[:, 0] + 0.1 * np.cos(100.0 * np.arange(20))
    X[row, 1] = -1e-150
    with pytest.raises(
        ValueError, match=r"no larger value than 1e-150 in column 1, too small to square; rescale"
    ):
        SparseBayesRegressor(fit_intercept=False).fit(X, y)
    X[row, 1] = -1e-130
    assert 0 in SparseBayesRegressor(fit_intercept=False).fit(X, y).active_


def test_a_variance_that_overflows_is_refused():
    with pytest.raises(ValueError, match=r"gamma=.scale. .* rescale X"):
        RVR(gamma="scale").fit(1e160 * np.linspace(1, 2, 20)[:, np.newaxis], np.arange(20.0))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.skipif(np.__version__ < "1.25", reason="scikit-learn cannot check pandas.NA with NumPy 1.24")
def test_labels_that_cannot_be_compared_are_named():
    X = np.random.default_rng(0).normal(size=(12, 2))
    known = np.arange(12) % 2
    kernel, probit = RVC(gamma=1.0).fit(X, known), MRVM1(max_iter=1).fit(X, known)
    stream = SparseBayesClassifier().partial_fit(X, known)
    y = np.array([pd.NA, *known[1:]], dtype=object)
    for call in (
        lambda: density_score(kernel, X, y),
        lambda: probit.log_predictive_likelihood(X, y),
        lambda: stream.partial_fit(X, y),
        lambda: ProbabilityDisplay.from_estimator(kernel, X, y),
    ):
        with pytest.raises((TypeError, ValueError), match=r"\by\b"):
            call()
