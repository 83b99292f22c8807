"""Arrays of any layout and type give the same model, and fits do not change them."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import is_regressor

from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from surface_data import read_only, reversed_view, strided, unaligned

ESTIMATORS = [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier]

# Small integers, which every type below holds exactly.
_RNG = np.random.default_rng(0)
X = _RNG.integers(-8, 8, (40, 3)).astype(float)
Y = (X[:, 0] + X[:, 1] * X[:, 2] / 4 + _RNG.integers(-4, 5, 40) > 0).astype(float)
WEIGHTS = _RNG.integers(1, 4, 40).astype(float)


FORMS = {
    "read-only": read_only,
    "Fortran-ordered": np.asfortranarray,
    "strided": strided,
    "reversed": reversed_view,
    "unaligned": unaligned,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "big-endian": lambda a: a.astype(">f8"),
    "objects": lambda a: a.astype(object),
    "lists": lambda a: a.tolist(),
    "pandas": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_the_same_bits(kind, form):
    expected = kind().fit(X, Y, WEIGHTS).predict(X)
    X_form, y_form, weights_form = (FORMS[form](a) for a in (X, Y, WEIGHTS))
    if kind in (RVC, SparseBayesClassifier) and form == "objects":
        y_form = Y  # scikit-learn refuses numbers as objects as class labels
    model = kind().fit(X_form, y_form, weights_form)
    np.testing.assert_array_equal(model.predict(X_form), expected)
    # scikit-learn computes scores in the precision of y.
    score = kind().fit(X, Y, WEIGHTS).score(X, Y, WEIGHTS)
    np.testing.assert_allclose(model.score(X_form, y_form, weights_form), score, rtol=1e-14)
    for given, original in ((X_form, X), (y_form, Y), (weights_form, WEIGHTS)):
        np.testing.assert_array_equal(np.array(given, dtype=float), original)


class OnDevice:
    """An array of another library, which NumPy reads by DLPack, or not at all."""

    def __init__(self, values, error=None):
        self.values, self.error, self.shape, self.ndim = values, error, values.shape, values.ndim

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return OnDevice(self.values[index], self.error)

    def __dlpack__(self, **options):
        if self.error is not None:
            raise self.error
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("kind", [*ESTIMATORS, MRVM1, GREVM])
def test_arrays_of_other_libraries_are_read_on_the_cpu(kind):
    y = Y.astype(np.int64)
    expected = kind().fit(X, y, WEIGHTS)
    model = kind().fit(*map(OnDevice, (X, y, WEIGHTS)))
    rows = OnDevice(X)
    np.testing.assert_array_equal(model.predict(rows), expected.predict(X))
    assert type(model.predict(rows)) is np.ndarray
    if is_regressor(model):  # the score of classes is scikit-learn's
        assert model.score(*map(OnDevice, (X, y, WEIGHTS))) == expected.score(X, y, WEIGHTS)
    np.testing.assert_array_equal(model.to_predictor().predict(rows), expected.to_predictor().predict(X))


def test_chunks_and_centres_of_other_libraries_are_read():
    model = RVR(gamma=0.01, candidates=OnDevice(X[:5]))
    model.fit(
        [(OnDevice(X[:20]), OnDevice(Y[:20])), (OnDevice(X[20:]), OnDevice(Y[20:]), OnDevice(WEIGHTS[20:]))]
    )
    weights = np.append(np.ones(20), WEIGHTS[20:])
    expected = RVR(gamma=0.01, candidates=X[:5]).fit(X, Y, weights)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "error", [TypeError("on cuda:0"), RuntimeError("on cuda:0"), BufferError("on cuda:0")]
)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_arrays_on_other_devices_are_refused(kind, error):
    fitted = kind().fit(X, Y)
    arrays = {"X": X, "y": Y, "sample_weight": WEIGHTS}
    for name, values in arrays.items():
        message = (
            rf"^{name} is of the type .*OnDevice, which NumPy cannot read; copy it to the CPU.*\(on cuda:0\)$"
        )
        with pytest.raises(TypeError, match=message):
            kind().fit(**arrays | {name: OnDevice(values, error)})
    for use in (fitted.predict, fitted.to_predictor().predict):
        with pytest.raises(TypeError, match=r"^X is of the type .*copy it to the CPU"):
            use(OnDevice(X, error))


#: Forms that have names of columns.
TABLES = {
    "data frame": lambda a: pd.DataFrame(a, columns=list("abc")),
    "nullable data frame": lambda a: pd.DataFrame(a, columns=list("abc")).convert_dtypes(),
    "Arrow table": lambda a: pa.table({name: a[:, j] for j, name in enumerate("abc")}),
    "Arrow table in chunks": lambda a: pa.concat_tables(map(TABLES["Arrow table"], (a[:9], a[9:]))),
    "Arrow batch": lambda a: TABLES["Arrow table"](a).to_batches()[0],
    "Arrow decimals": lambda a: pa.table(
        {name: pa.array([Decimal(int(v)) for v in a[:, j]]) for j, name in enumerate("abc")}
    ),
}


@pytest.mark.parametrize("form", [*FORMS, *TABLES])
def test_every_form_of_input_has_the_same_predictions(form):
    make = (FORMS | TABLES)[form]
    given = make(X)
    frame = TABLES["data frame"](X)
    for est in (RVR(gamma="scale").fit(frame, Y), RVC(gamma="scale").fit(frame, Y)):
        served = est.to_predictor()
        answers = ["predict", "decision_function"]
        answers.append("predict_proba" if isinstance(est, RVC) else "predict_std")
        for answer in answers:
            np.testing.assert_array_equal(getattr(served, answer)(given), getattr(served, answer)(X))
        expected = served.predict(X) if isinstance(est, RVR) else served.predict_proba(X)
        out = np.empty_like(expected)
        served.predict_into(given, out)
        np.testing.assert_array_equal(out, expected)
        row = make(X[:2])[0] if form in FORMS and form != "pandas" else X[0]
        np.testing.assert_array_equal(served.predict_one(row), expected[0])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            np.testing.assert_array_equal(est.predict(given), est.predict(frame))


@pytest.mark.parametrize("form", TABLES)
def test_names_of_columns_are_compared(form):
    served = RVR(gamma="scale").fit(TABLES["data frame"](X), Y).to_predictor()
    given = TABLES[form](X)
    other = given[["b", "a", "c"]] if "frame" in form else given.select(["b", "a", "c"])
    with pytest.raises(ValueError, match=r"must have the columns \['a', 'b', 'c'\].*got \['b', 'a', 'c'\]"):
        served.predict(other)


def test_predict_into_refuses_arrays_of_other_layouts():
    served = RVR(gamma="scale").fit(X, Y).to_predictor()
    for out in (unaligned(np.empty(40)), strided(np.empty((40, 1))), read_only(np.empty(40))):
        with pytest.raises(ValueError, match="out must be aligned, writeable and in C order"):
            served.predict_into(X, out)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_precomputed_kernel_gives_the_same_bits(form):
    kernel = X @ X.T
    # Too large for eight bits, and for float16 to hold exactly.
    if form in ("int8", "float16"):
        kernel = np.clip(kernel, -100, 100)
    expected = RVC("precomputed").fit(kernel, Y).predict_proba(kernel)
    given = FORMS[form](kernel)
    np.testing.assert_array_equal(RVC("precomputed").fit(given, Y).predict_proba(given), expected)
    np.testing.assert_array_equal(np.array(given, dtype=float), kernel)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_single_weight_applies_to_every_row(kind):
    one, each = (kind().fit(X, Y, sample_weight=w).predict(X) for w in (2, np.full(40, 2.0)))
    np.testing.assert_array_equal(one, each)


@pytest.mark.parametrize(
    "labels", [["no", "yes"], [3, 7], [-1.0, 1.0], [False, True], np.array(["x", "y"], object)]
)
@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
def test_labels_of_any_type_come_back(kind, labels):
    y = np.asarray(labels)[Y.astype(int)]
    model = kind().fit(X, y)
    assert model.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(model.classes_, labels)
    np.testing.assert_array_equal(model.predict_proba(X), kind().fit(X, Y).predict_proba(X))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_attributes_do_not_alias_the_data(kind):
    data, target, weights = X.copy(), Y.copy(), np.full(40, 2.0)
    model = kind().fit(data, target, sample_weight=weights)
    expected = model.predict(X)
    data[:], target[:], weights[:] = 0.0, 0.0, np.arange(40.0)
    np.testing.assert_array_equal(model.predict(X), expected)
    same = kind().fit(X, Y, sample_weight=2.0)
    np.testing.assert_array_equal(model.loo_, same.loo_)
    assert str(model.summary()) == str(same.summary())


ROWS = np.arange(60.0).reshape(30, 2)


def with_value(value):
    y = ROWS[:, 0].copy()
    y[3] = value
    return y


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (RVR(), {"y": with_value(np.nan)}, r"Input y contains NaN in row 3 \(1 of 30 rows\)"),
        (RVR(), {"y": pd.Series(with_value(np.inf))}, r"Input y contains infinity in row 3"),
        (RVR(), {"y": ["low", "high"] * 15}, "y holds 'low' in row 0, .* labels to a classifier such as RVC"),
        (RVR(likelihood="poisson"), {"y": with_value(-2.0)}, "got -2 in row 3"),
        (RVC(), {"y": with_value(np.nan)}, "Input y contains NaN in row 3"),
        (RVR(), {"sample_weight": with_value(np.nan)}, "Input sample_weight contains NaN in row 3"),
        (RVR(), {"y": "price"}, "got 'price': give the column, not its name"),
        (RVR(), {"y_std": "error"}, "got 'error': give the column, not its name"),
        (RVR(noise_basis="auto"), {}, "noise_basis must be 'linear', .*; got 'auto'"),
    ],
)
def test_errors_name_the_row_or_the_remedy(model, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(**{"X": ROWS, "y": ROWS[:, 0], **given})
