"""``laplace="exact"``: held to finite differences of the Laplace evidence, and to what it began from."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference
import softmax_reference
from problems import PROBLEMS, bumps, two_classes
from provider_reference import NumpyRows
from sparsebayes import RVC, SparseBayesClassifier, SparseBayesRegressor, _core
from sparsebayes._certify_exact import answers
from sparsebayes.inspection import _several_logits, certificate
from sparsebayes.kernels import Gaussian
from test_estimators import known_failures

CLASSIFICATIONS = [name for name, problem in PROBLEMS.items() if problem.kind == "classification"]
COUNTS = [name for name, problem in PROBLEMS.items() if problem.kind == "poisson"]


def settled(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


def assert_certified(model, *data):
    found = certificate(model, *data)
    assert model.status_ == "converged"
    assert found.max_log_alpha_gradient <= 1e-5
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    assert found.max_mean_error <= 1e-6
    assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)


def gradient(evidence, alpha, h=1e-4):
    """Central differences in ln alpha."""
    out = np.empty(len(alpha))
    for k in range(len(alpha)):
        up, down = alpha.copy(), alpha.copy()
        up[k], down[k] = alpha[k] * np.exp(h), alpha[k] * np.exp(-h)
        out[k] = (evidence(up) - evidence(down)) / (2.0 * h)
    return out


def rows(seed, n=120, width=0.9):
    """A dictionary of bumps with a bias, and a score."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    squares = np.sum((X[:, np.newaxis] - X[::2]) ** 2, axis=2)
    Phi = np.c_[np.ones(n), np.exp(-squares / width**2)]
    return np.asfortranarray(Phi), np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.4 * rng.normal(size=n)


def targets(likelihood, score):
    rng = np.random.default_rng(len(score))
    if likelihood == "bernoulli":
        return (score > 0.0).astype(float)
    if likelihood == "poisson":
        return rng.poisson(np.exp(score)).astype(float)
    return np.digitize(score, [-0.5, 0.5]).astype(float)


def evidence_of(likelihood, Phi, t, active, weights):
    if likelihood == "multinomial":
        inside = softmax_reference.expand(Phi, 3)[:, :, active]
        labels = t.astype(int)
        return lambda alpha: softmax_reference.log_evidence(inside, labels, alpha, weights)
    return lambda alpha: reference.laplace_log_evidence(Phi[:, active], t, alpha, likelihood, weights)


# --- the gradient ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "multinomial"])
def test_the_gradient_of_the_evidence_vanishes(likelihood, weighted):
    Phi, score = rows(1)
    t = targets(likelihood, score)
    weights = np.random.default_rng(2).uniform(0.3, 2.0, len(t)) if weighted else np.ones(len(t))
    classic, exact = (
        _core.fit_dense(Phi, t, weights, likelihood=likelihood, laplace=laplace)
        for laplace in ("classic", "exact")
    )
    assert exact.status == "converged"
    evidence = evidence_of(likelihood, Phi, t, exact.active, weights)
    assert exact.log_evidence == pytest.approx(evidence(exact.alpha), rel=1e-10)
    assert np.abs(gradient(evidence, exact.alpha)).max() < 1e-6
    # The classic fixed point is another place, and a lower one.
    evidence = evidence_of(likelihood, Phi, t, classic.active, weights)
    assert np.abs(gradient(evidence, classic.alpha)).max() > 1e-3
    assert exact.log_evidence > classic.log_evidence + 1e-4


def problem_of(likelihood, weights):
    """A classic fit as arrays, taken for one that went on."""
    Phi, score = rows(3, n=80)
    y = targets(likelihood, score).astype(int)
    kind = SparseBayesClassifier(fit_intercept=False, multi_class="softmax")
    model = (
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson") if likelihood == "poisson" else kind
    ).fit(Phi, y, weights)
    (problem,) = model._problems(Phi, y, weights)
    return replace(problem, exact=True)


def linearised(problem):
    """Mode, S and Q of the certificate."""
    if problem.likelihood == "multinomial":
        fit, S, Q = _several_logits(problem, problem.Phi, problem.target, problem.weights)
        return fit.mean, S, Q
    of = {"likelihood": problem.likelihood, "weights": problem.weights}
    mu, _ = reference.laplace_mode(problem.Phi[:, problem.active], problem.target, problem.alpha, **of)
    factors = reference.laplace_statistics(problem.Phi, problem.target, problem.active, problem.alpha, **of)
    return np.sqrt(problem.alpha) * mu, factors.S, factors.Q


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "multinomial"])
def test_the_certificate_has_the_whole_gradient(likelihood):
    weights = np.random.default_rng(4).uniform(0.3, 2.0, 80)
    problem = problem_of(likelihood, weights)
    active, alpha = problem.active, problem.alpha
    evidence = evidence_of(likelihood, problem.Phi, problem.target, active, weights)
    mode, S, Q = linearised(problem)
    U = answers(problem, problem.Phi, problem.target, weights, mode)
    here = 0.5 * (S - Q * (Q - U))[active] / alpha
    expected = gradient(evidence, alpha)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(here, expected, atol=1e-7)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "multinomial"])
def test_functions_outside_change_the_evidence_as_certified(likelihood):
    weights = np.random.default_rng(4).uniform(0.3, 2.0, 80)
    problem = problem_of(likelihood, weights)
    mode, S, Q = linearised(problem)
    U = answers(problem, problem.Phi, problem.target, weights, mode)
    without = evidence_of(likelihood, problem.Phi, problem.target, problem.active, weights)(problem.alpha)
    outside = np.setdiff1d(np.arange(len(S)), problem.active)[::7]
    for i in outside:
        evidence = evidence_of(likelihood, problem.Phi, problem.target, np.append(problem.active, i), weights)
        # To second order in the prior variance v, from two of them.
        v = 1e-4 / S[i]
        rises = [evidence(np.append(problem.alpha, 1.0 / u)) - without for u in (v, 2.0 * v)]
        slope = (4.0 * rises[0] - rises[1]) / (2.0 * v)
        assert 0.5 * (Q[i] * (Q[i] - U[i]) - S[i]) == pytest.approx(slope, rel=1e-4, abs=1e-4 * S[i])


# --- what it ends at ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CLASSIFICATIONS, *COUNTS])
def test_the_evidence_is_no_lower_and_certified(name):
    problem = PROBLEMS[name]
    data = (problem.X, problem.y, problem.sample_weight)
    classic, exact = settled(problem.make(), *data), settled(problem.make(laplace="exact"), *data)
    assert exact.log_marginal_likelihood_ >= classic.log_marginal_likelihood_ - 1e-9
    if exact.status_ == "converged":
        assert_certified(exact, *data)
    else:
        assert exact.status_ == "alpha_floor"


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_several_classes(load, multi_class):
    X, y = load(return_X_y=True)
    X = scale(X)
    # Wide: with narrower ones the classes of wine can be separated, and the ascent is long.
    classic, exact = (
        RVC(Gaussian(10.0), multi_class=multi_class, laplace=laplace).fit(X, y)
        for laplace in ("classic", "exact")
    )
    assert exact.log_marginal_likelihood_ > classic.log_marginal_likelihood_
    assert_certified(exact, X, y)


@pytest.mark.parametrize("prior", [(1e-6, 1e-6), (0.1, 1e-3), (0.0, 0.01)])
def test_priors(prior):
    X, y = two_classes(200, seed=1)
    classic, exact = (
        settled(RVC(gamma=1.0, alpha_prior=prior, laplace=laplace), X, y) for laplace in ("classic", "exact")
    )
    assert exact.log_marginal_likelihood_path_[-1] > classic.log_marginal_likelihood_path_[-1]
    assert_certified(exact, X, y)


@pytest.mark.parametrize("scheme", ["mackay", "em"])
def test_other_schemes_go_on_as_well(scheme):
    X, y = two_classes(100, seed=3)
    exact = RVC(gamma=1.0, scheme=scheme, laplace="exact").fit(X, y)
    assert exact.log_marginal_likelihood_ > RVC(gamma=1.0, scheme=scheme).fit(X, y).log_marginal_likelihood_
    assert_certified(exact, X, y)


def test_functions_leave_and_enter():
    left, entered = 0, 0
    for seed in range(12):
        Phi, score = rows(seed, width=0.6)
        y = score > 0.0
        classic, exact = (
            settled(SparseBayesClassifier(fit_intercept=False, laplace=laplace), Phi, y)
            for laplace in ("classic", "exact")
        )
        assert exact.log_marginal_likelihood_ >= classic.log_marginal_likelihood_
        left += len(np.setdiff1d(classic.active_, exact.active_))
        entered += len(np.setdiff1d(exact.active_, classic.active_))
    assert left > 0
    assert entered > 0


def test_the_path_never_falls_once_the_classic_end_is_reached():
    X, y = two_classes(200, seed=1)
    classic, exact = (RVC(Gaussian(0.5), laplace=laplace).fit(X, y) for laplace in ("classic", "exact"))
    np.testing.assert_array_equal(
        exact.log_marginal_likelihood_path_[: classic.n_iter_ + 1], classic.log_marginal_likelihood_path_
    )
    assert np.diff(exact.log_marginal_likelihood_path_[classic.n_iter_ :]).min() > -1e-9
    assert exact.n_iter_ > classic.n_iter_


# --- counts ---------------------------------------------------------------------------------------


@pytest.fixture
def counts():
    """Counts of one or two, so that the weights of the Laplace approximation are far from constant."""
    Phi, score = rows(7, n=150)
    return Phi, targets("poisson", score)


@pytest.mark.parametrize("scheme", ["sequential", "mackay", "em"])
def test_a_regression_of_counts_ends_where_the_dense_gradient_vanishes(counts, scheme):
    Phi, y = counts
    weights = np.random.default_rng(3).uniform(0.3, 2.0, len(y))
    classic, exact = (
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson", scheme=scheme, laplace=laplace).fit(
            Phi, y, weights
        )
        for laplace in ("classic", "exact")
    )
    for model, bounds in ((classic, (1e-3, np.inf)), (exact, (0.0, 1e-6))):
        evidence = evidence_of("poisson", Phi, y, model.active_, weights)
        assert model.log_marginal_likelihood_ == pytest.approx(evidence(model.alpha_), rel=1e-10)
        assert bounds[0] <= np.abs(gradient(evidence, model.alpha_)).max() < bounds[1]
    assert exact.log_marginal_likelihood_ > classic.log_marginal_likelihood_ + 1e-4
    assert_certified(exact, Phi, y, weights)


def test_whole_weights_repeat_counts(counts):
    Phi, y = counts
    n = np.random.default_rng(0).integers(0, 4, len(y))
    make = partial(SparseBayesRegressor, likelihood="poisson", laplace="exact")
    weighted, repeated = make().fit(Phi, y, n), make().fit(np.repeat(Phi, n, 0), np.repeat(y, n))
    np.testing.assert_array_equal(weighted.active_, repeated.active_)
    np.testing.assert_allclose(weighted.alpha_, repeated.alpha_, rtol=1e-7)


def test_a_provider_of_counts_gives_the_same_model(counts):
    Phi, y = counts
    make = partial(SparseBayesRegressor, fit_intercept=False, likelihood="poisson", laplace="exact")
    whole, asked = make().fit(Phi, y), make().fit_provider(NumpyRows(Phi, y, np.ones(len(y)), "poisson"))
    np.testing.assert_array_equal(asked.active_, whole.active_)
    np.testing.assert_allclose(asked.alpha_, whole.alpha_, rtol=1e-6)
    assert_certified(asked, Phi, y)


# --- sameness -------------------------------------------------------------------------------------


def test_threads_do_not_show():
    X, y = two_classes(400, seed=5)
    one, three = (RVC(Gaussian(0.5), laplace="exact", n_jobs=n).fit(X, y) for n in (1, 3))
    for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))


@pytest.mark.parametrize("height", [37, 150])
def test_rows_read_part_by_part_give_the_same_model(height):
    X, y = two_classes(300, seed=6)
    make = partial(RVC, Gaussian(0.5), candidates=X[::4], laplace="exact")
    whole = make().fit(X, y)
    chunks = [(X[i : i + height], y[i : i + height]) for i in range(0, len(y), height)]
    parts = make().fit(chunks)
    np.testing.assert_array_equal(parts.active_, whole.active_)
    np.testing.assert_allclose(parts.alpha_, whole.alpha_, rtol=1e-7)
    assert_certified(parts, X, y)


def test_weights_count_rows():
    X, y = two_classes(100, seed=8)
    weights = np.random.default_rng(0).integers(1, 4, 100)
    weighted = RVC(gamma=1.0, candidates=X, laplace="exact").fit(X, y, weights)
    repeated = RVC(gamma=1.0, candidates=X, laplace="exact").fit(
        np.repeat(X, weights, 0), np.repeat(y, weights)
    )
    np.testing.assert_array_equal(weighted.active_, repeated.active_)
    np.testing.assert_allclose(weighted.alpha_, repeated.alpha_, rtol=1e-7)


def test_classic_is_the_default_and_says_nothing_of_the_gradient():
    X, y = two_classes(100, seed=2)
    model = RVC(gamma=1.0).fit(X, y)
    again = RVC(gamma=1.0, laplace="classic").fit(X, y)
    np.testing.assert_array_equal(model.alpha_, again.alpha_)
    assert certificate(model, X, y).max_log_alpha_gradient is None


# --- bounds and refusals --------------------------------------------------------------------------


def test_steps_are_bounded_and_a_fit_can_be_stopped():
    X, y = two_classes(100, seed=2)
    classic = RVC(gamma=1.0).fit(X, y)
    for max_iter in (classic.n_iter_, classic.n_iter_ + 1, classic.n_iter_ + 2):
        short = settled(RVC(gamma=1.0, laplace="exact", max_iter=max_iter), X, y)
        assert short.status_ == "max_iter"
        assert short.n_iter_ <= max_iter
        assert short.log_marginal_likelihood_ >= classic.log_marginal_likelihood_ - 1e-9
    steps = []

    def watch(step):
        steps.append(step)
        return step.iteration == classic.n_iter_ + 2

    stopped = RVC(gamma=1.0, laplace="exact", callback=watch).fit(X, y)
    assert stopped.status_ == "stopped"
    assert stopped.n_iter_ == classic.n_iter_ + 2 == len(steps)
    assert stopped.log_marginal_likelihood_ > classic.log_marginal_likelihood_


def test_no_evidence_is_above_that_of_certainty():
    # So narrow a kernel that the ascent leads to weights of 1e10, where no mode is found.
    X, y = load_iris(return_X_y=True)
    train, _ = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))[4]
    exact = settled(RVC(gamma=1.0, laplace="exact"), scale(X[train]), y[train])
    assert exact.log_marginal_likelihood_path_.max() <= 0.0
    problems = exact._problems(scale(X[train]), y[train], None)
    for problem, found in zip(problems, exact._log_evidences, strict=True):
        evidence = evidence_of("bernoulli", problem.Phi, problem.target, problem.active, np.ones(len(train)))
        assert found == pytest.approx(evidence(problem.alpha), rel=1e-3)


def test_a_kernel_far_too_narrow_comes_to_an_end():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=90) > 0.0
    classic, exact = (settled(RVC(Gaussian(0.7), laplace=laplace), X, y) for laplace in ("classic", "exact"))
    assert exact.log_marginal_likelihood_ >= classic.log_marginal_likelihood_
    assert np.isfinite(exact.alpha_).all()
    assert np.isfinite(exact.mu_).all()


def test_poisson_of_bumps():
    Phi = np.asfortranarray(bumps(np.linspace(-1, 1, 150), 30, 0.25))
    t = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(4 * np.linspace(-1, 1, 150)))).astype(float)
    fits = [_core.fit_dense(Phi, t, likelihood="poisson", laplace=name) for name in ("classic", "exact")]
    assert fits[1].log_evidence > fits[0].log_evidence


@pytest.mark.parametrize("value", ["Exact", "", None, True, 1])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError, match="laplace must be 'classic' or 'exact', got"):
        RVC(laplace=value).fit(*two_classes(20))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"scheme": "variational"}, "scheme 'sequential', 'mackay' or 'em'"),
        ({"multi_class": "softmax", "share_alpha": True}, "share_alpha=False"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, remedy):
    with pytest.raises(ValueError, match=f"laplace='exact' needs {remedy}; or set laplace='classic'"):
        RVC(laplace="exact", **settings).fit(*two_classes(20))


def test_what_does_not_go_together_is_refused_of_counts():
    X, y = np.eye(4), np.arange(4.0)
    model = SparseBayesRegressor(
        fit_intercept=False, laplace="exact", scheme="variational", likelihood="poisson"
    )
    with pytest.raises(ValueError, match="needs scheme 'sequential', 'mackay' or 'em'; or set"):
        model.fit(X, y)


def test_a_gaussian_likelihood_has_no_laplace_approximation():
    for take_in in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="laplace='exact' needs likelihood='poisson'; or set laplace"):
            getattr(SparseBayesRegressor(fit_intercept=False, laplace="exact"), take_in)(
                np.eye(4), np.ones(4)
            )
    with pytest.raises(ValueError, match="laplace='exact' is for likelihoods that are not Gaussian"):
        _core.fit_dense(np.eye(4, order="F"), np.ones(4), laplace="exact")


def test_it_is_a_parameter_like_others():
    model = clone(SparseBayesClassifier(fit_intercept=False, laplace="exact"))
    assert model.get_params()["laplace"] == "exact"


# Some of the checks fit data that can be explained without error.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        RVC(laplace="exact", tol=1e-8),
        SparseBayesClassifier(fit_intercept=False, laplace="exact"),
        SparseBayesRegressor(likelihood="poisson", laplace="exact", fit_intercept=True),
    ],
    expected_failed_checks=known_failures,
)
def test_estimators_are_those_of_scikit_learn(estimator, check):
    check(estimator)
