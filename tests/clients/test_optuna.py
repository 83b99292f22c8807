"""A study of optuna finds a good width of the kernel."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from sparsebayes import RVR

client = pytest.importorskip("optuna")

_RNG = np.random.default_rng(0)
X = _RNG.uniform(-3.0, 3.0, (150, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * _RNG.normal(size=150)


def score(trial):
    return cross_val_score(RVR(gamma=trial.suggest_float("gamma", 1e-3, 1e3, log=True)), X, Y, cv=3).mean()


@pytest.mark.filterwarnings("ignore::sparsebayes.OverfitWarning")  # kernels that are too narrow are tried
def test_a_study_finds_a_width_as_good_as_those_of_a_grid():
    study = client.create_study(direction="maximize", sampler=client.samplers.TPESampler(seed=0))
    study.optimize(score, n_trials=25)
    grid = [score(client.trial.FixedTrial({"gamma": gamma})) for gamma in np.logspace(-3.0, 3.0, 13)]
    assert study.best_value > max(grid) - 0.01
    assert 0.01 < study.best_params["gamma"] < 2.0
