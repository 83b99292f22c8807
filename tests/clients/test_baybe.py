"""BayBE plans experiments with our models."""

import numpy as np
import pytest

from sparsebayes import RVR

client = pytest.importorskip("baybe")
parameters = pytest.importorskip("baybe.parameters")
recommenders = pytest.importorskip("baybe.recommenders")
surrogates = pytest.importorskip("baybe.surrogates")
searchspace = pytest.importorskip("baybe.searchspace")
targets = pytest.importorskip("baybe.targets")
pd = pytest.importorskip("pandas")

AXIS = np.linspace(-3.0, 3.0, 13)

# Few rows without noise, as always in such a search.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning:torch"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore::sparsebayes.OverfitWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


class Relevance(surrogates.BayesianLinearSurrogate):
    """The surrogate that calls ``predict(X, return_std=True)``, with our model."""

    def _fit(self, train_x, train_y):
        self._model = RVR().fit(train_x, train_y.ravel())


def bowl(rows):
    return (rows["a"] - 1.0) ** 2 + 0.1 * rows["b"] ** 2


def campaign(surrogate):
    space = searchspace.SearchSpace.from_product(
        [parameters.NumericalDiscreteParameter(name, AXIS) for name in ("a", "b")]
    )
    target = targets.NumericalTarget("y", minimize=True)
    recommender = recommenders.BotorchRecommender(surrogate_model=surrogate)
    return client.Campaign(space, target.to_objective(), recommender)


def test_experiments_find_the_minimum():
    found = campaign(Relevance())
    first = np.random.default_rng(0).choice(AXIS, (8, 2))
    rows = pd.DataFrame(first, columns=["a", "b"])
    for _ in range(10):
        rows["y"] = bowl(rows)
        found.add_measurements(rows)
        rows = found.recommend(batch_size=1)[["a", "b"]]
    assert bowl(found.measurements).min() < 0.01
