"""Samplers of imbalanced-learn before RVC find more of a rare class."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from sparsebayes import RVC

client = pytest.importorskip("imblearn.pipeline")
sampling = pytest.importorskip("imblearn.over_sampling")
ensemble = pytest.importorskip("imblearn.ensemble")

_RNG = np.random.default_rng(1)
X = _RNG.normal(size=(4000, 2))
LABELS = np.where(X.sum(axis=1) + _RNG.normal(size=4000) > 3.0, "rare", "common")
TRAIN, NEW = slice(0, 1000), slice(1000, None)


def balanced_accuracy(model):
    return balanced_accuracy_score(LABELS[NEW], model.fit(X[TRAIN], LABELS[TRAIN]).predict(X[NEW]))


BALANCED = [
    client.make_pipeline(sampling.RandomOverSampler(random_state=0), RVC()),
    client.make_pipeline(sampling.SMOTE(random_state=0), RVC()),
    ensemble.BalancedBaggingClassifier(RVC(), n_estimators=5, random_state=0),
]


@pytest.mark.parametrize("model", BALANCED, ids=["random", "SMOTE", "bagging"])
def test_balanced_samples_find_more_of_the_rare_class(model):
    assert balanced_accuracy(model) > max(0.8, balanced_accuracy(RVC()) + 0.1)
