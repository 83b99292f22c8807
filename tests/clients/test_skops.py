"""skops saves and loads models without pickle."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor

client = pytest.importorskip("skops.io")
exceptions = pytest.importorskip("skops.io.exceptions")

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(80, 3))
Y = np.sin(X[:, 0]) + 0.1 * _RNG.normal(size=80)

MODELS = [
    RVR(),
    RVR(noise_basis="linear"),
    SparseBayesRegressor(groups=[0, 0, 1]),
    make_pipeline(StandardScaler(), RVR(kernel="laplacian")),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_loaded_model_predicts_the_same_bits(model, tmp_path):
    client.dump(model.fit(X, Y), tmp_path / "model.skops")
    own = client.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(name.startswith("sparsebayes.") for name in own)
    loaded = client.load(tmp_path / "model.skops", trusted=own)
    for before, after in zip(
        model.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("model", [RVC(), SparseBayesClassifier()], ids=repr)
def test_a_loaded_classifier_predicts_the_same_bits(model):
    data = client.dumps(model.fit(X, np.where(Y > 0.0, "high", "low")))
    loaded = client.loads(data, trusted=client.get_untrusted_types(data=data))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.classes_.tolist() == ["high", "low"]


@pytest.mark.parametrize("kind", ["partial_fit", "Predictor"])
def test_sums_of_rows_and_predictors_are_loaded(kind):
    model = RVR(candidates=X[:20]).partial_fit(X, Y)
    data = client.dumps(model if kind == "partial_fit" else model.to_predictor())
    loaded = client.loads(data, trusted=client.get_untrusted_types(data=data))
    np.testing.assert_allclose(loaded.predict(X), model.predict(X), rtol=1e-9)


def test_types_that_are_not_trusted_are_named():
    data = client.dumps(RVR().fit(X, Y))
    with pytest.raises(exceptions.UntrustedTypesFoundException, match=r"sparsebayes\.regression\.RVR"):
        client.loads(data)
