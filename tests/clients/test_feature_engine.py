"""Feature-engine prepares columns for our models, and selects columns with them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from sparsebayes import RVR, SparseBayesRegressor

client = pytest.importorskip("feature_engine.selection")
imputation = pytest.importorskip("feature_engine.imputation")
encoding = pytest.importorskip("feature_engine.encoding")

pytestmark = pytest.mark.filterwarnings("ignore:Could not infer format:UserWarning")  # it looks for dates

_RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({name: _RNG.uniform(-3.0, 3.0, 300) for name in ("a", "b", "junk")})
FRAME["g"] = np.array(["u", "v", "w"])[np.arange(300) % 3]
Y = np.sin(FRAME["a"]) + 0.3 * FRAME["b"] + 2.0 * (FRAME["g"] == "v") + 0.2 * _RNG.normal(size=300)


def test_a_pipeline_names_the_inputs_that_matter():
    frame = FRAME.copy()
    frame.loc[::17, "junk"] = np.nan
    model = make_pipeline(imputation.MeanMedianImputer(), encoding.OneHotEncoder(drop_last=True), RVR())
    assert model.fit(frame[:200], Y[:200]).score(frame[200:], Y[200:]) > 0.95
    inputs = model[-1].inputs_
    assert inputs.keys() == {"a", "b", "junk", "g_u", "g_v"}
    assert max(inputs["junk"], inputs["g_u"]) < 0.1 < min(inputs[name] for name in ("a", "b", "g_v"))


@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
def test_the_column_without_effect_is_eliminated(kind):
    selector = client.RecursiveFeatureElimination(kind(), scoring="r2", cv=3)
    assert selector.fit(FRAME[["a", "b", "junk"]], Y - 2.0 * (FRAME["g"] == "v")).features_to_drop_ == [
        "junk"
    ]
