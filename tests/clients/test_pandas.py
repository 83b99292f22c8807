"""Nullable, Arrow and decimal columns of pandas are inputs and targets."""

from decimal import Decimal

import numpy as np
import pytest

from sparsebayes import RVC, RVR, SparseBayesRegressor

client = pytest.importorskip("pandas")

_RNG = np.random.default_rng(0)
X = _RNG.integers(-8, 8, (60, 3))
Y = (np.sin(X[:, 0]) + X[:, 1] / 4.0 + 0.1 * _RNG.normal(size=60)).round(2)
FRAME = client.DataFrame(X, columns=["a", "b", "c"])
DECIMALS = FRAME.map(lambda value: Decimal(int(value)))


def arrow():
    return client.ArrowDtype(pytest.importorskip("pyarrow").decimal128(10, 2))


def converted(values, form):
    if "pyarrow" in form:
        pytest.importorskip("pyarrow")
    return client.Series(values).astype(form)


FORMS = {
    "Int64": lambda: FRAME.astype("Int64"),
    "Float64": lambda: FRAME.astype("Float64"),
    "decimals": lambda: DECIMALS,
    "Arrow decimals": lambda: DECIMALS.astype(arrow()),
    "mixed": lambda: FRAME.astype({"a": "Int8", "b": "Float32"}).assign(c=DECIMALS["c"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_every_type_give_the_same_bits(form):
    frame = FORMS[form]()
    model = RVR().fit(frame, Y)
    np.testing.assert_array_equal(model.predict(frame), RVR().fit(X.astype(float), Y).predict(X))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_boolean_columns_are_zeros_and_ones():
    positive = client.Series(X[:, 0] > 0).astype("boolean")
    frame = client.DataFrame({"a": positive, "b": FRAME["b"].astype("Int64")})
    expected = SparseBayesRegressor().fit(frame.to_numpy(float), Y)
    np.testing.assert_array_equal(SparseBayesRegressor().fit(frame, Y).coef_, expected.coef_)


@pytest.mark.parametrize("form", ["Float64", "double[pyarrow]", "decimals"])
def test_targets_of_every_type_give_the_same_bits(form):
    y = client.Series([Decimal(str(v)) for v in Y]) if form == "decimals" else converted(Y, form)
    exact = np.array([float(v) for v in y])
    np.testing.assert_array_equal(
        RVR().fit(FRAME, y).predict(FRAME), RVR().fit(X.astype(float), exact).predict(X)
    )


@pytest.mark.parametrize("form", ["boolean", "Int64", "string", "category", "bool[pyarrow]"])
def test_labels_of_every_type_give_the_same_probabilities(form):
    positive = Y > 0.0
    words = form in ("string", "category")
    labels = converted(np.where(positive, "p", "n") if words else positive, form)
    model = RVC().fit(FRAME, labels)
    assert model.classes_.tolist() == (["n", "p"] if words else [0, 1])
    np.testing.assert_array_equal(
        model.predict_proba(FRAME), RVC().fit(X.astype(float), positive).predict_proba(X)
    )
    assert model.score(FRAME, labels) > 0.9


def test_missing_values_are_named():
    frame = FRAME.astype("Int64")
    frame.loc[7, "b"] = client.NA
    with pytest.raises(ValueError, match="NaN in column 'b', row 7"):
        RVR().fit(frame, Y)
