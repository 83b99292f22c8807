"""Fits of rows that answer for themselves: the same models, wherever the rows are."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from problems import assert_same_model
from provider_reference import NumpyRows
from sparsebayes import RVC, RVR, PyStatistics, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Laplacian, Linear
from sparsebayes.providers import RowPart, SummedStatistics

LIKELIHOODS = ("gaussian", "bernoulli", "poisson")


def columns(seed, likelihood="gaussian", n=120, k=15):
    """Return columns in units of all sizes, targets, and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, k))
    eta = Phi[:, 0] - 0.7 * Phi[:, 1] + 0.4 * Phi[:, 2]
    t = {
        "gaussian": lambda: 1e3 * eta + 200.0 * rng.normal(size=n) + 5e4,
        "bernoulli": lambda: (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[likelihood]()
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    return np.c_[np.ones(n), Phi * np.geomspace(1e-3, 1e3, k)], t, weights


def estimator(likelihood, **options):
    options = {"fit_intercept": False} | options
    if likelihood == "bernoulli":
        return SparseBayesClassifier(**options)
    return SparseBayesRegressor(likelihood=likelihood, **options)


def fit(model, provider, likelihood="gaussian", **options):
    if likelihood == "bernoulli":
        options["classes"] = [0.0, 1.0]
    return model.fit_provider(provider, **options)


def partition(rng, n, n_parts):
    """Return the rows of each part, some of which are empty, in a random order of rows."""
    order, cuts = rng.permutation(n), np.sort(rng.integers(0, n + 1, n_parts - 2))
    return [np.array([], int), *np.split(order, cuts)]


def same_bits(a, b):
    return all(
        np.asarray(getattr(a, name)).tobytes() == np.asarray(getattr(b, name)).tobytes()
        for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_")
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_parts_answer_as_the_formulae_say(likelihood):
    Phi, t, weights = columns(1, likelihood)
    reference = NumpyRows(Phi, t, weights, likelihood)
    part = RowPart(Phi, t, weights, likelihood=likelihood)
    rng = np.random.default_rng(5)
    active, js = np.array([1, 4, 9]), np.array([14, 2, 4])
    for mu in (np.zeros(3), rng.normal(size=3) / np.abs(Phi[:, active]).max(axis=0)):
        sigma = rng.normal(size=(3, 3))
        for method, *question in [
            ("deviance", active, mu),
            ("gradient", active, mu),
            ("among", active, mu, js),
            ("among", active, mu, active),
            ("sweep", active, mu, js),
            ("sweep", active, mu, js[:0]),
            ("variance_drift", active, mu, sigma @ sigma.T),
        ]:
            expected = getattr(reference, method)(*question)
            found = getattr(part, method)(*question)
            if method == "deviance":
                found, expected = [found], [expected]
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * np.abs(b).max(initial=0.0))
    for centre in (0.0, 5e4):
        np.testing.assert_allclose(part.target_moments(centre), reference.target_moments(centre), rtol=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(3))
def test_a_provider_in_numpy_gives_the_model_of_the_rows(likelihood, seed):
    Phi, t, weights = columns(seed, likelihood)
    reference = estimator(likelihood).fit(Phi, t, weights)
    model = fit(estimator(likelihood), NumpyRows(Phi, t, weights, likelihood), likelihood)
    assert model.status_ == reference.status_ == "converged"
    assert_same_model(model, reference)
    np.testing.assert_allclose(model.predict(Phi), reference.predict(Phi), rtol=1e-8)
    assert certificate(model, Phi, t, weights).max_log_alpha_change < 1e-5


def test_an_intercept_needs_a_constant_function():
    Phi, t, weights = columns(1)
    with pytest.raises(ValueError, match=r"constant 1 .* set fit_intercept=False"):
        SparseBayesRegressor().fit_provider(NumpyRows(Phi[:, 1:], t, weights, "gaussian"))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(4))
def test_partitions_do_not_show(likelihood, seed):
    Phi, t, weights = columns(seed, likelihood)
    rng = np.random.default_rng(seed)
    parts = [
        RowPart(Phi[rows], t[rows], weights[rows], likelihood=likelihood)
        for rows in partition(rng, len(t), 2 + 3 * seed)
    ]
    reference = estimator(likelihood).fit(Phi, t, weights)
    assert_same_model(fit(estimator(likelihood), SummedStatistics(parts), likelihood), reference)


def surface(seed, n=150, n_centres=25, likelihood="gaussian"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    f = np.sin(X[:, 0]) * np.cos(X[:, 1])
    y = f + 0.1 * rng.normal(size=n) if likelihood == "gaussian" else f + 0.3 * rng.normal(size=n) > 0.1
    return X, y, rng.choice([0.0, 1.0, 2.0], size=n), rng.uniform(-3, 3, size=(n_centres, 2))


@pytest.mark.parametrize(
    "kernels", [Gaussian(1.5), [Gaussian(1.5), Linear([0.3, -0.2])], [Laplacian(0.5), lambda X, Z: X @ Z.T]]
)
@pytest.mark.parametrize("kind", [RVR, RVC])
def test_kernels_about_given_centres(kind, kernels):
    likelihood = "gaussian" if kind is RVR else "bernoulli"
    X, y, weights, centres = surface(3, likelihood=likelihood)
    model = kind(kernels, candidates=centres)
    reference = kind(kernels, candidates=centres).fit(X, y, weights)
    parts = [
        RowPart(
            X[rows],
            y[rows],
            weights[rows],
            kernels=reference.kernel_,
            centres=centres,
            fit_intercept=True,
            likelihood=likelihood,
        )
        for rows in partition(np.random.default_rng(0), len(X), 5)
    ]
    fit(model, SummedStatistics(parts), likelihood, n_samples=len(X))
    assert_same_model(model, reference)
    for name in ("relevance_", "relevance_vectors_", "intercept_"):
        np.testing.assert_allclose(getattr(model, name), getattr(reference, name), rtol=1e-7)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), rtol=1e-7)
    assert certificate(model, X, y, weights).max_gain_outside < 1e-6


@pytest.mark.parametrize("seed", range(2))
def test_several_classes_one_against_the_rest(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150, 8))
    y = np.array(["x", "y", "z"])[
        np.digitize(X[:, 0] + 0.4 * X[:, 1] + 0.3 * rng.normal(size=150), [-0.6, 0.5])
    ]
    reference = SparseBayesClassifier(fit_intercept=True).fit(X, y)
    providers = [
        SummedStatistics(
            [
                RowPart(X[rows], y[rows] == label, fit_intercept=True, likelihood="bernoulli")
                for rows in partition(rng, 150, 4)
            ]
        )
        for label in "xyz"
    ]
    model = SparseBayesClassifier(fit_intercept=True).fit_provider(providers, classes=["x", "y", "z"])
    np.testing.assert_allclose(model.alpha_, reference.alpha_, rtol=1e-8)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), rtol=1e-8)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))


@pytest.mark.parametrize("scheme", ["mackay", "em"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_other_schemes_from_the_full_basis(likelihood, scheme):
    Phi, t, weights = columns(2, likelihood, n=80, k=5)
    options = {"scheme": scheme, "alpha_prior": (1e-4, 1e-3), "max_iter": 3000}
    reference = estimator(likelihood, **options).fit(Phi, t, weights)
    model = fit(estimator(likelihood, **options), NumpyRows(Phi, t, weights, likelihood), likelihood)
    assert model.status_ == reference.status_
    assert_same_model(model, reference, rtol=1e-6)


def test_a_variational_fit_takes_gaussian_rows_alone():
    Phi, t, weights = columns(2)
    model = SparseBayesRegressor(fit_intercept=False, scheme="variational").fit_provider(
        NumpyRows(Phi, t, weights)
    )
    assert_same_model(
        model, SparseBayesRegressor(fit_intercept=False, scheme="variational").fit(Phi, t, weights)
    )
    Phi, t, weights = columns(2, "bernoulli")
    rows = NumpyRows(Phi, t, weights, "bernoulli")
    with pytest.raises(ValueError, match="scheme must not be 'variational'"):
        SparseBayesClassifier(fit_intercept=False, scheme="variational").fit_provider(rows, classes=[0, 1])


def test_the_number_of_threads_does_not_show():
    Phi, t, weights = columns(4, "bernoulli", n=4000)
    models = []
    for n_jobs, map_ in [(1, None), (3, None), (1, ThreadPoolExecutor(4).map)]:
        parts = [
            RowPart(Phi[n::5], t[n::5], weights[n::5], likelihood="bernoulli", n_jobs=n_jobs)
            for n in range(5)
        ]
        provider = SummedStatistics(parts, map=map_)
        models.append(
            SparseBayesClassifier(fit_intercept=False, n_jobs=n_jobs).fit_provider(provider, classes=[0, 1])
        )
    assert same_bits(models[0], models[1])
    assert same_bits(models[0], models[2])


def test_parts_far_away_get_questions_and_send_answers():
    Phi, t, weights = columns(6)
    far = {
        key: pickle.dumps(RowPart(Phi[rows], t[rows], weights[rows]))
        for key, rows in zip("abc", partition(np.random.default_rng(0), len(t), 3), strict=True)
    }
    sizes = []

    def map_far(function, keys):
        for key in keys:
            question = pickle.dumps(function)
            answer = pickle.dumps(pickle.loads(question)(pickle.loads(far[key])))
            sizes.append((len(question), len(answer)))
            yield pickle.loads(answer)

    provider = SummedStatistics("abc", map=map_far, n_basis=16, likelihood="gaussian")
    assert_same_model(
        SparseBayesRegressor(fit_intercept=False).fit_provider(provider),
        SparseBayesRegressor(fit_intercept=False).fit(Phi, t, weights),
    )
    # Nothing of the length of the rows travels.
    assert max(question for question, _ in sizes) < 1000


class Minimal(PyStatistics):
    """What has to be there, and nothing else."""

    likelihood = "bernoulli"

    def __init__(self, rows):
        self.rows, self.n_basis = rows, rows.n_basis

    def target_moments(self, centre):
        return self.rows.target_moments(centre)

    def sweep(self, active, mu, wanted):
        return self.rows.sweep(active, mu, wanted)

    def variance_drift(self, active, mu, sigma):
        return self.rows.variance_drift(active, mu, sigma)


def test_defaults_answer_through_sweep():
    Phi, t, weights = columns(7, "bernoulli")
    provider = Minimal(NumpyRows(Phi, t, weights, "bernoulli"))
    model = SparseBayesClassifier(fit_intercept=False).fit_provider(provider, classes=[0, 1])
    assert set(provider.rows.asked) == {"target_moments", "sweep", "variance_drift"}
    assert_same_model(model, SparseBayesClassifier(fit_intercept=False).fit(Phi, t, weights))


class Broken(NumpyRows):
    """Answers one question wrongly."""

    def __init__(self, method, answer, after=0, **options):
        Phi, t, weights = columns(8, **options)
        super().__init__(Phi, t, weights, options.get("likelihood", "gaussian"))
        good, calls = getattr(self, method), []

        def wrong(*question):
            calls.append(question)
            return answer(good(*question)) if len(calls) > after else good(*question)

        setattr(self, method, wrong)


def changed(place, change):
    """Return what changes one part of an answer."""
    return lambda answer: tuple(change(np.array(a)) if k == place else a for k, a in enumerate(answer))


def spoilt(value):
    def spoil(array):
        if array.size > 0:
            array[(0,) * array.ndim] = value
        return array

    return spoil


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("target_moments", lambda a: a[:2], r"target_moments must have the shape \[3\], got \[2\]"),
        ("target_moments", lambda a: [0.0, 0.0, 0.0], "no row of positive weight"),
        ("target_moments", lambda a: [np.nan, 0.0, 0.0], "not finite"),
        ("sweep", lambda a: a[:3], r"sweep of the provider must return \(deviance, gradient, diag, gram\)"),
        ("sweep", lambda a: 3.0, "sweep of the provider must return"),
        ("sweep", lambda a: None, "sweep of the provider must return"),
        ("sweep", lambda a: "abcd", "of the provider's sweep must be numbers: could not convert"),
        (
            "sweep",
            changed(1, lambda g: np.full(g.shape, "x")),
            "gradient of the provider's sweep must be numbers",
        ),
        (
            "sweep",
            changed(1, lambda g: g[:-1]),
            r"gradient of the provider's sweep must have the shape \[16\]",
        ),
        ("sweep", changed(1, spoilt(np.nan)), "gradient of the provider's sweep is not finite"),
        ("sweep", changed(2, spoilt(np.inf)), "diag of the provider's sweep is not finite"),
        ("sweep", changed(2, spoilt(-1.0)), "diag of the provider's sweep must not be negative"),
        ("sweep", changed(0, lambda d: d + np.nan), "deviance of the provider is not finite"),
        ("sweep", changed(3, np.transpose), r"gram of the provider's sweep must have the shape \[16, "),
        ("among", changed(2, lambda g: g[:, :1]), "gram of the provider's among must have the shape"),
        ("among", changed(2, np.tril), "gram of the provider's among must be symmetric"),
        ("among", changed(2, spoilt(np.nan)), "gram of the provider's among is not finite"),
        ("gradient", changed(1, spoilt(np.inf)), "gradient of the provider is not finite"),
        ("gradient", lambda a: "nonsense", "gradient"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_wrong_answers_are_errors_that_name_them(method, answer, message, last):
    Phi, t, weights = columns(8)
    right = NumpyRows(Phi, t, weights)
    SparseBayesRegressor(fit_intercept=False).fit_provider(right)
    provider = Broken(method, answer, right.asked.count(method) - 1 if last else 0)
    if last and method == "target_moments":
        return  # the second moments about the mean, which may well be anything
    with pytest.raises(ValueError, match=message):
        SparseBayesRegressor(fit_intercept=False).fit_provider(provider)


@pytest.mark.parametrize("answer", [lambda a: np.nan, lambda a: [a, a], lambda a: "text"])
def test_wrong_deviances_and_drifts(answer):
    for method in ("deviance", "variance_drift"):
        provider = Broken(method, answer, 1 if method == "deviance" else 0, likelihood="bernoulli")
        with pytest.raises((ValueError, TypeError)):
            SparseBayesClassifier(fit_intercept=False).fit_provider(provider, classes=[0, 1])


class Lost(Exception):
    """An exception of somebody else."""


@pytest.mark.parametrize("method", ["target_moments", "sweep", "among", "deviance", "variance_drift"])
def test_exceptions_come_through_as_they_are(method):
    def lose(answer):
        raise Lost("the connection", 42)

    Phi, t, weights = columns(8, "bernoulli")
    model = SparseBayesClassifier(fit_intercept=False).fit(Phi, t, weights)
    before = model.mu_.copy()
    with pytest.raises(Lost) as caught:
        model.fit_provider(Broken(method, lose, likelihood="bernoulli"), classes=[0, 1])
    assert caught.value.args == ("the connection", 42)
    assert any(entry.name == "lose" for entry in caught.traceback)
    np.testing.assert_array_equal(model.mu_, before)


def test_questions_come_from_another_thread_and_one_at_a_time():
    Phi, t, weights = columns(9)
    provider, threads = NumpyRows(Phi, t, weights), set()
    sweep = provider.sweep
    provider.sweep = lambda *question: threads.add(threading.get_ident()) or sweep(*question)
    SparseBayesRegressor(fit_intercept=False).fit_provider(provider)
    assert threads
    assert threading.get_ident() not in threads


def test_what_fit_provider_refuses():
    Phi, t, weights = columns(9)
    rows = NumpyRows(Phi, t, weights)
    model = SparseBayesRegressor(fit_intercept=False)
    for provider in (None, Phi, object()):
        with pytest.raises(TypeError, match=r"provider must have what sparsebayes\.PyStatistics has"):
            model.fit_provider(provider)
    with pytest.raises(ValueError, match="likelihood of the estimator, 'gaussian'; got 'bernoulli'"):
        model.fit_provider(NumpyRows(Phi, t, weights, "bernoulli"))
    rows.n_basis = 0
    with pytest.raises(ValueError, match="n_basis of provider"):
        model.fit_provider(rows)
    rows.n_basis = 16
    with pytest.raises(ValueError, match="noise_variance"):
        SparseBayesRegressor(fit_intercept=False, noise_variance=[1.0, 2.0]).fit_provider(rows)
    for options, message in [
        ({}, "candidates must be an array"),
        ({"candidates": 5}, "candidates must be an array"),
        ({"candidates": np.ones((2, 3))}, "candidates must be distinct"),
        ({"candidates": np.eye(3)}, "gamma='ard' needs the rows"),
        ({"candidates": np.eye(3), "gamma": "scale"}, "gamma='scale' needs the rows"),
        ({"candidates": np.eye(3), "gamma": 1.0}, "provider must have the functions of the estimator, 4"),
        ({"candidates": np.eye(3), "extra_basis": "linear"}, "extra_basis needs the rows"),
        ({"kernel": "precomputed"}, "kernel='precomputed'"),
    ]:
        with pytest.raises(ValueError, match=message):
            RVR(**options).fit_provider(rows)
    rows.likelihood = "bernoulli"
    for classes, message in [
        ([1, 0], "classes must be sorted"),
        ([1, 1], "each label once"),
        ([0], "one class only"),
        ([0, 1, 2], "a list of 3, one for each class"),
    ]:
        with pytest.raises(ValueError, match=message):
            SparseBayesClassifier(fit_intercept=False).fit_provider(rows, classes=classes)
    with pytest.raises(ValueError, match="softmax"):
        SparseBayesClassifier(fit_intercept=False, multi_class="softmax").fit_provider(
            [rows] * 3, classes=[0, 1, 2]
        )


def test_what_parts_refuse():
    Phi, t, weights = columns(9)
    for arguments, options, message in [
        ((Phi, t[:-1]), {}, "y must hold a target"),
        ((Phi * np.nan, t), {}, "X"),
        ((Phi, t, -weights), {}, "sample_weight must not be negative"),
        ((Phi, t), {"likelihood": "cauchy"}, "likelihood must be"),
        ((Phi, t), {"kernels": Gaussian(1.0)}, "kernels and centres go together"),
        ((Phi, t), {"kernels": "rbf", "centres": Phi}, "kernels must be a kernel object"),
        ((Phi, t), {"kernels": Gaussian(1.0), "centres": Phi[:, :3]}, "X must have 3 columns"),
        ((Phi[:, 0], t), {}, "X: Expected 2D array"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            RowPart(*arguments, **options)
    part = RowPart(Phi, t + 7, likelihood="bernoulli")
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        part.target_moments(0.0)
    part = RowPart(Phi, t)
    for active, mu in [([16], [1.0]), ([0, 1], [1.0]), ([-1], [1.0])]:
        with pytest.raises(ValueError, match=r"functions|mu"):
            part.deviance(np.array(active), np.array(mu))
    for parts in ([], iter([part]), np.array(0.5), None):
        with pytest.raises((ValueError, TypeError), match="parts must"):
            SummedStatistics(parts)
    with pytest.raises(ValueError, match="parts must return results of one shape"):
        SparseBayesRegressor(fit_intercept=False).fit_provider(
            SummedStatistics([part, RowPart(Phi[:, :5], t)])
        )


@pytest.mark.parametrize("summed", [False, True])
def test_parts_answer_after_a_fit_that_was_given_up(summed):
    def give_up(event):
        raise ZeroDivisionError

    X = np.random.default_rng(0).normal(size=(200, 2))
    parts = [RowPart(X[rows], X[rows, 0]) for rows in (slice(80), slice(80, None))]
    provider = SummedStatistics(parts) if summed else parts[0]
    with pytest.raises(ZeroDivisionError):
        SparseBayesRegressor(fit_intercept=False, callback=give_up).fit_provider(provider)
    assert provider.deviance([], []) > 0.0
