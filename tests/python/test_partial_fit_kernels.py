"""`RVR.partial_fit` and the sums of kernel functions behind it."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import sparsebayes
from problems import assert_certified, assert_same_model
from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, SufficientStatistics
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Linear, OnColumns


def noisy(seed, n=600):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, (n, 2))
    return X, np.sinc(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n), rng.uniform(0, 2, n)


CENTRES = np.random.default_rng(9).uniform(-5, 5, (30, 2))


def cosine(X, Z):
    return np.cos(X @ Z.T / 5)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"fit_intercept": False},
        {"kernel": [Gaussian(1.0), Gaussian([2.0, 4.0])]},
        {"kernel": ["rbf", cosine]},
        {"kernel": OnColumns(Gaussian(1.0), 0) + Linear()},
        {"extra_basis": "linear"},
        {"extra_basis": lambda X: X**2},
        {"scheme": "mackay"},
        {"noise_variance": 0.01, "alpha_prior": (1e-4, 1e-5)},
    ],
    ids=lambda arguments: "-".join(arguments) or "default",
)
@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_in_any_order_give_the_model_of_one_fit(arguments, weighted):
    X, y, w = noisy(len(str(arguments)))
    model = RVR(**{"gamma": 0.7, "candidates": CENTRES, "tol": 1e-9, **arguments})
    expected = clone(model).fit(X, y, w if weighted else None)
    assert len(expected.active_) > 2
    rng = np.random.default_rng(0)
    parts = np.split(rng.permutation(len(X)), [1, 7, 350])
    with np.errstate(all="ignore"):
        for rows in [parts[k] for k in (2, 0, 3, 1)]:
            # Models of a few rows may end anyhow.
            model.max_iter = 1 if rows is not parts[1] else 100_000
            take_in(model, X[rows], y[rows], w[rows] if weighted else None)
    assert_same_model(model, expected)
    if "scheme" not in arguments:
        assert_certified(model, X, y, w if weighted else None)
    np.testing.assert_allclose(model.predict(X[:9]), expected.predict(X[:9]), rtol=1e-7, atol=1e-9)


def take_in(model, *rows):
    if model.max_iter == 1:
        with pytest.warns(ConvergenceWarning):
            model.partial_fit(*rows)
    else:
        model.partial_fit(*rows)


def test_pickles_between_calls_continue_and_saved_models_predict(tmp_path):
    X, y, w = noisy(1)
    model = RVR(gamma=0.7, candidates=CENTRES).partial_fit(X[:300], y[:300], w[:300])
    other = pickle.loads(pickle.dumps(model)).partial_fit(X[300:], y[300:], w[300:])
    model.partial_fit(X[300:], y[300:], w[300:])
    np.testing.assert_array_equal(model.mu_, other.mu_)
    model.save(tmp_path / "model")
    served = sparsebayes.load(tmp_path / "model")
    np.testing.assert_allclose(served.predict(X), model.predict(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(model.candidates_, CENTRES)
    assert not hasattr(model, "candidate_rows_")
    np.testing.assert_array_equal(model.relevance_vectors_, CENTRES[model.relevance_])


def test_a_number_of_candidates_is_chosen_from_the_first_chunk():
    X, y, w = noisy(2)
    w[:20] = 0.0
    model = RVR(candidates=25, random_state=3, gamma="scale").partial_fit(X[:200], y[:200], w[:200])
    first = RVR(candidates=25, random_state=3, gamma="scale").fit(X[:200], y[:200], w[:200])
    np.testing.assert_array_equal(model.candidate_rows_, first.candidate_rows_)
    assert model.kernel_.width == pytest.approx(first.kernel_.width, rel=1e-13)
    assert_same_model(model, first)
    centres, kernel = model.candidates_, model.kernel_
    model.partial_fit(X[200:], y[200:], w[200:])
    np.testing.assert_array_equal(model.candidates_, centres)
    assert model.kernel_ == kernel
    expected = RVR(kernel, candidates=centres).fit(X, y, w)
    np.testing.assert_allclose(model.mu_, expected.mu_, rtol=1e-8)
    assert certificate(model, X, y, w).max_gain_outside < 1e-6


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({}, "candidates must be an integer or an array"),
        ({"candidates": 5, "kernel": "precomputed"}, "precomputed"),
        (
            {"candidates": 5, "extra_basis": StandardScaler()},
            "extra_basis must be None, 'linear' or a callable",
        ),
    ],
)
def test_settings_that_need_rows_are_refused(arguments, remedy):
    X, y, _ = noisy(5)
    assert not hasattr(RVR(**arguments), "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        RVR(**arguments).partial_fit(X, y)
    assert remedy in str(caught.value.__cause__)
    with pytest.raises(ValueError, match=remedy):
        RVR(**arguments).fit([(X, y)])


CHANGES = {
    "fit_intercept": False,
    "kernel": "matern52",
    "gamma": 0.8,
    "optimize_kernel": True,
    "candidates": CENTRES[:20],
    "extra_basis": "linear",
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("estimator", [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier])
def test_the_functions_of_the_first_call_cannot_change(estimator, name):
    if not hasattr(estimator(), name):
        pytest.skip("has no such argument")
    X, y, _ = noisy(6)
    y = y if estimator in (RVR, SparseBayesRegressor) else np.sign(y)
    kernels = {"gamma": 0.7, "candidates": CENTRES} if hasattr(estimator(), "kernel") else {}
    model = estimator(**kernels).partial_fit(X[:300], y[:300])
    copy = pickle.loads(pickle.dumps(model))
    before = copy.get_params()[name]
    with pytest.raises(ValueError, match=f"{name} must stay as at the first call of partial_fit"):
        copy.set_params(**{name: CHANGES[name]}).partial_fit(X[300:], y[300:])
    # An equal value, and what the functions do not depend on, may change.
    copy.set_params(**{name: deepcopy(before)}, max_iter=90_000).partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(copy.mu_, model.partial_fit(X[300:], y[300:]).mu_)


@pytest.mark.parametrize("kernel", [Gaussian(1.8), [Gaussian(1.8)]], ids=["object", "list"])
def test_a_kernel_of_the_first_call_cannot_change_in_place(kernel):
    X, y, _ = noisy(6)
    model = RVR(kernel, candidates=CENTRES).partial_fit(X[:300], y[:300])
    if isinstance(kernel, list):
        kernel[0] = Gaussian(3.0)
    else:
        model.set_params(kernel__width=3.0)
    with pytest.raises(ValueError, match="kernel must stay as at the first call of partial_fit"):
        model.partial_fit(X[300:], y[300:])


def test_too_many_candidates_for_the_memory_are_an_error_that_says_how_many_fit():
    X, y, _ = noisy(6)
    with pytest.raises(ValueError, match=r"at most candidates=\d+") as caught:
        RVR(candidates=500, memory_limit="10MB", gamma="scale").partial_fit(X, y)
    fits = int(str(caught.value).split("candidates=")[1].split(",")[0])
    assert 100 < fits < 500
    RVR(candidates=fits, memory_limit="10MB", random_state=0, gamma="scale").partial_fit(X, y)
    with pytest.raises(ValueError, match="memory_limit"):
        RVR(candidates=fits + 20, memory_limit="10MB", gamma="scale").partial_fit(X, y)


def test_too_many_candidates_are_refused_before_the_rows_are_read():
    X, y, _ = noisy(6, n=3000)
    records = []
    model = RVR(candidates=1000, memory_limit=2_000_000, callback=records.append, gamma="scale")
    with pytest.raises(ValueError, match=r"at most candidates=\d+"):
        model.fit(X, y)
    assert not records


@pytest.mark.parametrize("n", [0, 1, 40, 700, 5000])
def test_sums_of_kernels_are_those_of_their_values(n):
    rng = np.random.default_rng(n)
    X, t, w = rng.normal(size=(n, 2)), rng.normal(size=n), rng.uniform(0, 2, n)
    kernels = [Gaussian(1.5), Linear()]
    Phi = np.hstack(
        [np.exp(-((X[:, np.newaxis] - CENTRES) ** 2).sum(axis=2) / 1.5**2), X @ CENTRES.T]
    ).reshape(n, 60)
    stats = SufficientStatistics(60).update_kernel(X, t, CENTRES, kernels, w)
    expected = SufficientStatistics(60).update(Phi, t, w)
    assert stats.n_samples == n
    np.testing.assert_allclose(stats.gram, expected.gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(stats.projections, expected.projections, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(stats.target_square, expected.target_square, rtol=1e-14)
    in_python = SufficientStatistics(30).update_kernel(X, t, CENTRES, OnColumns(Gaussian(1.5), [0, 1]), w)
    np.testing.assert_allclose(in_python.gram, stats.gram[:30, :30], rtol=1e-12, atol=1e-12)


def test_sums_of_kernels_check_their_arguments():
    X, t, _ = noisy(0, n=10)
    stats = SufficientStatistics(30)
    for error, name, arguments in [
        (TypeError, "kernel", (X, t, CENTRES, "rbf")),
        (ValueError, "centres", (X, t, CENTRES[:5], Gaussian(1.0))),
        (ValueError, "centres", (X, t, CENTRES[0], Gaussian(1.0))),
        (ValueError, "X", (X[:, :1], t, CENTRES, Gaussian(1.0))),
        (ValueError, "t ", (X, t[:5], CENTRES, Gaussian(1.0))),
        (ValueError, "width", (X, t, CENTRES, Gaussian([1.0, 2.0, 3.0]))),
        (ValueError, "sample_weight", (X, t, CENTRES, Gaussian(1.0), -np.ones(10))),
    ]:
        with pytest.raises(error, match=name):
            stats.update_kernel(*arguments)
    assert stats.n_samples == 0


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_the_number_of_threads_does_not_change_the_sums(n_jobs):
    rng = np.random.default_rng(0)
    X, t, centres = rng.normal(size=(9000, 3)), rng.normal(size=9000), rng.normal(size=(120, 3))
    first = SufficientStatistics(120, n_jobs=1).update_kernel(X, t, centres, Gaussian(1.0))
    other = SufficientStatistics(120, n_jobs=n_jobs).update_kernel(X, t, centres, Gaussian(1.0))
    assert first.__getstate__()["parts"].tobytes() == other.__getstate__()["parts"].tobytes()
