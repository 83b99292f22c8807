"""skforecast forecasts with our regressors, with intervals."""

import numpy as np
import pandas as pd
import pytest

from sparsebayes import RVR, SparseBayesRegressor

client = pytest.importorskip("skforecast.recursive")

TIMES = pd.date_range("2000-01-01", periods=360, freq="D")
TRUE = pd.Series(10.0 + 3.0 * np.sin(2.0 * np.pi * np.arange(360) / 12.0), TIMES)
SERIES = TRUE + 0.3 * np.random.default_rng(0).normal(size=360)


@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
@pytest.mark.parametrize("method", ["bootstrapping", "conformal"])
def test_intervals_of_sixty_days_hold_their_coverage(kind, method):
    forecaster = client.ForecasterRecursive(estimator=kind(), lags=24)
    forecaster.fit(SERIES[:300], store_in_sample_residuals=True)
    found = forecaster.predict_interval(60, method=method, interval=[0.05, 0.95], n_boot=100)
    assert np.abs(found["pred"] - TRUE[300:]).mean() < 0.2
    inside = (found["lower_bound"] <= SERIES[300:]) & (SERIES[300:] <= found["upper_bound"])
    assert 0.8 < inside.mean() < 1.0


def test_lags_that_matter_have_importances():
    forecaster = client.ForecasterRecursive(estimator=SparseBayesRegressor(), lags=24)
    forecaster.fit(SERIES[:300])
    importances = forecaster.get_feature_importances().set_index("feature")["importance"]
    np.testing.assert_array_equal(np.sort(importances), np.sort(forecaster.estimator.coef_))
    assert (importances != 0.0).sum() < 12
