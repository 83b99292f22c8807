"""polars frames and series are inputs, targets and weights."""

import datetime
from decimal import Decimal

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVC, RVR, SparseBayesRegressor

client = pytest.importorskip("polars")

_RNG = np.random.default_rng(0)
X = _RNG.integers(-8, 8, (60, 3))
Y = (np.sin(X[:, 0]) + X[:, 1] / 4.0 + 0.1 * _RNG.normal(size=60)).round(2)
FRAME = client.DataFrame(X, schema=["a", "b", "c"], orient="row")


@pytest.mark.parametrize("kind", ["Int64", "Int8", "Float32", "Decimal"])
def test_columns_of_every_type_give_the_same_bits(kind):
    frame = FRAME.cast(getattr(client, kind) if kind != "Decimal" else client.Decimal(10, 2))
    model = RVR().fit(frame, client.Series(Y))
    np.testing.assert_array_equal(model.predict(frame), RVR().fit(X.astype(float), Y).predict(X))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.inputs_["c"] < 0.01 < min(model.inputs_["a"], model.inputs_["b"])


def test_logical_columns_are_zeros_and_ones():
    frame = client.DataFrame({"a": X[:, 0] > 0, "b": X[:, 1]})
    expected = SparseBayesRegressor().fit(np.column_stack([X[:, 0] > 0, X[:, 1]]).astype(float), Y)
    np.testing.assert_array_equal(SparseBayesRegressor().fit(frame, Y).coef_, expected.coef_)


def test_targets_and_weights_are_series():
    weights, decimals = client.Series(np.full(60, 2.0)), client.Series([Decimal(str(y)) for y in Y])
    expected = RVR(gamma="scale").fit(X.astype(float), Y, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(
        RVR(gamma="scale").fit(FRAME, decimals, sample_weight=weights).predict(FRAME), expected.predict(X)
    )
    assert np.isclose(
        expected.score(X, Y),
        RVR(gamma="scale").fit(FRAME, client.Series(Y), weights).score(FRAME, client.Series(Y)),
    )


@pytest.mark.parametrize("kind", ["String", "Categorical", "Enum", "Boolean"])
def test_labels_are_series(kind):
    types = {"String": client.String, "Categorical": client.Categorical, "Enum": client.Enum(["n", "p"])}
    positive = Y > 0.0
    labels = client.Series(positive if kind == "Boolean" else np.where(positive, "p", "n"))
    model = RVC().fit(FRAME, labels if kind == "Boolean" else labels.cast(types[kind]))
    assert model.classes_.tolist() == ([False, True] if kind == "Boolean" else ["n", "p"])
    expected = RVC().fit(X.astype(float), positive).predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(FRAME), expected)


def test_a_pipeline_of_frames_knows_the_names():
    model = make_pipeline(StandardScaler(), RVR()).set_output(transform="polars").fit(FRAME, Y)
    assert model[-1].feature_names_in_.tolist() == ["a", "b", "c"]


def test_columns_in_another_order_are_refused():
    with pytest.raises(ValueError, match="same order"):
        RVR().fit(FRAME, Y).predict(FRAME.select("c", "b", "a"))


def test_missing_values_are_named():
    with pytest.raises(ValueError, match="NaN in column 'b', row 0"):
        RVR().fit(FRAME.with_columns(b=client.Series([None, *X[1:, 1].tolist()])), Y)


DAYS = client.Series("b", [datetime.date(2020, 1, 1) + datetime.timedelta(days=n) for n in range(60)])


def test_a_frame_of_dates_is_refused():
    with pytest.raises(TypeError, match="'b' holds dates"):
        RVR().fit(DAYS.to_frame(), Y)


@pytest.mark.parametrize("kind", ["Date", "Datetime", "Duration", "Time"])
def test_dates_beside_numbers_are_refused(kind):
    values = {
        "Date": DAYS,
        "Datetime": DAYS.cast(client.Datetime),
        "Duration": DAYS - DAYS[0],
        "Time": DAYS.cast(client.Datetime).dt.time(),
    }
    with pytest.raises(TypeError, match="'b' holds dates"):
        RVR().fit(FRAME.with_columns(b=values[kind]), Y)
