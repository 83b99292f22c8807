"""The example of a provider in torch: the same arithmetic on NumPy and, where there is torch, on that."""

import sys
from pathlib import Path

import numpy as np
import pytest

from problems import assert_same_model
from sparsebayes import SparseBayesClassifier

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import torch_provider


def fitted(xp, place):
    Phi, t = torch_provider.data(500, 20)
    rows = torch_provider.ArrayRows(xp, Phi, t, place)
    model = SparseBayesClassifier(fit_intercept=False).fit_provider(rows, classes=[0.0, 1.0])
    return model, SparseBayesClassifier(fit_intercept=False).fit(Phi, t)


@pytest.mark.parametrize("seed", range(3))
def test_each_answer_is_that_of_the_formulae(seed):
    from provider_reference import NumpyRows

    Phi, t = torch_provider.data(200, 10)
    rng = np.random.default_rng(seed)
    rows, reference = torch_provider.ArrayRows(np, Phi, t, np.asarray), NumpyRows(Phi, t, None, "bernoulli")
    active, js = np.array([1, 4, 7]), np.array([9, 1])
    mu, sigma = rng.normal(size=3), rng.normal(size=(3, 3))
    for method, *question in [
        ("deviance", active, mu),
        ("among", active, mu, js),
        ("sweep", active, mu, js),
        ("variance_drift", active, mu, sigma @ sigma.T),
    ]:
        found, expected = getattr(rows, method)(*question), getattr(reference, method)(*question)
        if not isinstance(expected, tuple):
            found, expected = [found], [expected]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(rows.target_moments(0.3), reference.target_moments(0.3), rtol=1e-12)


def test_the_example_on_numpy_gives_the_model_in_memory():
    assert_same_model(*fitted(np, np.asarray))


def test_the_example_on_torch_gives_the_model_in_memory(capsys):
    torch = pytest.importorskip("torch")
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        assert_same_model(*fitted(torch, lambda array, device=device: torch.as_tensor(array, device=device)))
    torch_provider.main()
    printed = capsys.readouterr().out.split()
    assert printed[0] == "on"
    assert float(printed[-1]) < 1e-8
