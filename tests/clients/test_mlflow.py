"""mlflow logs and loads models."""

import os

import numpy as np
import pandas as pd
import pytest

from sparsebayes import RVC, RVR

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
client = pytest.importorskip("mlflow")
exceptions = pytest.importorskip("mlflow.exceptions")
skops = pytest.importorskip("skops.io")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader"),  # of its data base
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),  # of types of its own
]

_RNG = np.random.default_rng(0)
X = pd.DataFrame(_RNG.normal(size=(80, 3)), columns=["a", "b", "c"])
Y = np.sin(X["a"]) + 0.1 * _RNG.normal(size=80)


@pytest.fixture(autouse=True)
def _own_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")


@pytest.fixture
def model():
    return RVR().fit(X, Y)


def log(model, **options):
    # The packages of the environment are listed by a process of its own if not given.
    return client.sklearn.log_model(
        model, name="model", pip_requirements=["sparsebayes"], **options
    ).model_uri


def test_types_that_are_not_trusted_are_named(model):
    with pytest.raises(
        exceptions.MlflowException, match=r"skops_trusted_types.*sparsebayes\.regression\.RVR"
    ):
        log(model)


def test_a_loaded_model_predicts_the_same_bits(model):
    uri = log(model, skops_trusted_types=skops.get_untrusted_types(data=skops.dumps(model)))
    loaded = client.sklearn.load_model(uri)
    for before, after in zip(
        model.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(client.pyfunc.load_model(uri).predict(X), model.predict(X))


def test_probabilities_are_served():
    labels = np.where(Y > 0.0, "high", "low")
    classifier = RVC().fit(X, labels)
    types = skops.get_untrusted_types(data=skops.dumps(classifier))
    uri = log(classifier, skops_trusted_types=types, pyfunc_predict_fn="predict_proba")
    np.testing.assert_array_equal(client.pyfunc.load_model(uri).predict(X), classifier.predict_proba(X))
