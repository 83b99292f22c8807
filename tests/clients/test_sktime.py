"""sktime forecasts with our regressors, with conformal intervals."""

import numpy as np
import pandas as pd
import pytest

from sparsebayes import RVR, SparseBayesRegressor

client = pytest.importorskip("sktime.forecasting.compose")
conformal = pytest.importorskip("sktime.forecasting.conformal")

# sktime's own fit gives this warning, and changes the filters, so that some are shown at the end of a run.
pytestmark = pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")

TIMES = pd.period_range("2000-01", periods=240, freq="M")
TRUE = pd.Series(10.0 + 3.0 * np.sin(2.0 * np.pi * np.arange(240) / 12.0), TIMES)
HORIZON = np.arange(1, 61)


def measured(seed):
    return TRUE + 0.2 * np.random.default_rng(seed).normal(size=240)


@pytest.mark.parametrize("strategy", ["recursive", "direct", "multioutput"])
@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
def test_two_years_are_forecast(kind, strategy):
    model = client.make_reduction(kind(), window_length=24, strategy=strategy)
    forecast = model.fit(measured(0)[:156], fh=HORIZON[:24]).predict()
    assert np.abs(forecast - TRUE[156:180]).mean() < 0.2  # the noise of one month


def test_conformal_intervals_of_three_series_have_nearly_their_coverage():
    # Errors of one forecast depend on each other, so one series tells little. Ridge has 0.87.
    inside = []
    for seed in range(3):
        model = client.make_reduction(SparseBayesRegressor(), window_length=24)
        intervals = conformal.ConformalIntervals(model, initial_window=100)
        limits = intervals.fit(measured(seed)[:180], fh=HORIZON).predict_interval(coverage=0.9)
        low, high = limits.to_numpy(float).T
        assert np.mean(high - low) < 1.0  # 0.66 if the function were known
        inside.append((low <= measured(seed)[180:]) & (measured(seed)[180:] <= high))
    assert 0.8 < np.mean(inside) < 0.95
