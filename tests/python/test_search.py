"""Searches beyond the greedy optimum: never lower, certified by exchanges too, close to the best of all."""

import itertools

import numpy as np
import pytest

from problems import PAPERS, PROBLEMS, assert_certified, bumps, columns, sinc_2d, spikes, two_classes
from reference import best_alpha, contribution, laplace_log_evidence, log_evidence, statistics
from sparsebayes import RVC, RVR, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

#: An exchange that gains less counts as gaining nothing.
LEAST = 1e-3
SMALL = [
    name
    for name, problem in PROBLEMS.items()
    if len(problem.y) <= 150 and problem.status == "converged" and np.ndim(problem.y) == 1
]


@pytest.mark.parametrize("name", SMALL)
def test_no_search_ends_below_greedy(name):
    problem = PROBLEMS[name]
    greedy = problem.fitted()
    better = problem.fitted(search="exchange")
    assert better.status_ in ("converged", "noise_floor", "alpha_floor")
    assert better.log_marginal_likelihood_ >= greedy.log_marginal_likelihood_ - 1e-9 * abs(
        greedy.log_marginal_likelihood_
    )
    found = assert_certified(better, problem.X, problem.y, problem.sample_weight, status=better.status_)
    if problem.kind == "regression":
        assert found.max_gain_exchange <= 1.1 * LEAST


def test_better_optima_are_found():
    gains = []
    for seed in range(3):
        X, y = sinc_2d(300, seed=seed)
        greedy, better = (
            RVR(Gaussian(2.5), search=s).fit(X, y).log_marginal_likelihood_ for s in ("greedy", "exchange")
        )
        gains.append(better - greedy)
    assert min(gains) >= -1e-9
    assert max(gains) > 0.01


def test_a_sparse_model_replaces_a_crowded_one():
    # 30 spikes from 100 projections: the greedy model has a function for most of the rows.
    Phi, y = spikes(n_spikes=32, seed=0)
    greedy, better = (
        SparseBayesRegressor(noise_variance=0.005**2, search=s).fit(Phi, y) for s in ("greedy", "exchange")
    )
    assert better.log_marginal_likelihood_ > greedy.log_marginal_likelihood_ + 50.0
    assert len(better.active_) < len(greedy.active_)


# --- the best of all models ---------------------------------------------------------------------------


def best_of_subset(Phi, t, beta):
    """Log evidence with the precisions of all these columns at their maxima, from 1, one at a time."""
    alpha = np.ones(Phi.shape[1])
    value = -np.inf
    for _ in range(200):
        for k in range(len(alpha)):
            active = np.flatnonzero(np.isfinite(alpha))
            factors = statistics(Phi, t, active, alpha[active], beta)
            alpha[k] = best_alpha(factors.s[[k]], factors.q[[k]])[0]
        active = np.isfinite(alpha)
        before, value = value, log_evidence(Phi[:, active], t, alpha[active], beta)
        if value - before < 1e-9:
            break
    return value


def few_bumps(seed, n_basis=6):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1, 1, 16))
    Phi = bumps(x, n_basis, 0.5)[:, 1:]
    return Phi, np.sin(5 * x) * np.exp(x) + 0.3 * rng.normal(size=16)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_subsets_is_found(seed):
    Phi, t = few_bumps(seed)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(6), k) for k in range(1, 7))
    best = max(best_of_subset(Phi[:, list(subset)], t, 1 / 0.09) for subset in subsets)
    model = SparseBayesRegressor(fit_intercept=False, noise_variance=0.09, search="exchange", **PAPERS)
    model.fit(Phi, t)
    np.testing.assert_allclose(model.log_marginal_likelihood_, best, atol=1e-5)


# --- the certificate ----------------------------------------------------------------------------------


def used_rows(problem):
    """Return the dictionary, the targets and the weights of the rows of positive weight."""
    if problem.weights is None:
        return problem.Phi, problem.target, None
    used = problem.weights > 0
    return problem.Phi[used], problem.target[used], problem.weights[used]


def evidence_with(problem, i, *, instead_of):
    """Log evidence of a Gaussian problem with function i, at its best alpha, instead of an active one."""
    Phi, t, w = used_rows(problem)
    keep = problem.active != instead_of
    active, alpha = problem.active[keep], problem.alpha[keep]
    value = log_evidence(Phi[:, active], t, alpha, problem.beta, w)
    factors = statistics(Phi, t, active, alpha, problem.beta, w)
    s, q = factors.s[[i]], factors.q[[i]]
    return value + contribution(best_alpha(s, q), s, q)[0]


@pytest.mark.parametrize("name", ["sinc-1d-100-width-3.0", "columns-weights", "bumps"])
def test_the_gain_of_exchanges_is_that_of_the_reference(name):
    problem = PROBLEMS[name]
    model = problem.fitted()
    # Moved off its optimum, so that there is something to gain.
    model.alpha_ = model.alpha_ * np.linspace(0.2, 5.0, len(model.alpha_))
    (written,) = model._problems(problem.X, problem.y, problem.sample_weight)
    outside = np.setdiff1d(np.arange(written.Phi.shape[1]), written.active)
    Phi, t, w = used_rows(written)
    here = log_evidence(Phi[:, written.active], t, written.alpha, written.beta, w)
    best = max(evidence_with(written, i, instead_of=j) for j in written.active for i in outside) - here
    found = certificate(model, problem.X, problem.y, problem.sample_weight, exchanges=True)
    np.testing.assert_allclose(found.max_gain_exchange, max(best, 0.0), rtol=1e-6, atol=1e-8)


def swap(model, j, i):
    """Put function i in the place of j."""
    model.active_ = np.where(model.active_ == j, i, model.active_)
    order = np.argsort(model.active_)
    model.active_, model.alpha_, model.mu_ = model.active_[order], model.alpha_[order], model.mu_[order]


def test_an_exchange_that_would_gain_is_noticed():
    X, y = columns(80, 15, seed=4)
    model = SparseBayesRegressor(fit_intercept=False, search="exchange").fit(X, y)
    assert certificate(model, X, y).max_gain_exchange <= LEAST
    outside = np.setdiff1d(np.arange(15), model.active_)[0]
    swap(model, model.active_[0], outside)
    assert certificate(model, X, y).max_gain_exchange > 1.0


def test_exchanges_are_certified_on_request():
    X, y = columns(60, 10)
    greedy, searched = (
        SparseBayesRegressor(fit_intercept=False, search=s).fit(X, y) for s in ("greedy", "exchange")
    )
    assert certificate(greedy, X, y).max_gain_exchange is None
    assert certificate(greedy, X, y, exchanges=True).max_gain_exchange is not None
    assert certificate(searched, X, y).max_gain_exchange is not None
    assert certificate(searched, X, y, exchanges=False).max_gain_exchange is None


def test_exchanges_of_a_softmax_are_certified():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=90), [-0.5, 0.5])
    model = RVC(multi_class="softmax", search="exchange", gamma="scale").fit(X, y)
    greedy = RVC(multi_class="softmax", gamma="scale").fit(X, y)
    assert model.log_marginal_likelihood_ >= greedy.log_marginal_likelihood_ - 1e-9
    assert certificate(model, X, y).max_gain_exchange >= 0.0


# --- classes ----------------------------------------------------------------------------------------


def test_a_move_of_a_classifier_raises_the_laplace_evidence():
    gains = []
    for seed in range(252, 258):
        X, y = two_classes(250, seed=seed)
        models = [RVC(gamma=150.0, search=s, **PAPERS).fit(X, y) for s in ("greedy", "exchange")]
        evidences = []
        for model in models:
            (problem,) = model._problems(X, y)
            inside = problem.Phi[:, problem.active]
            evidences.append(laplace_log_evidence(inside, problem.target, problem.alpha))
            assert_certified(model, X, y)
        gains.append(evidences[1] - evidences[0])
    assert min(gains) >= -1e-8
    assert max(gains) > 0.01


def test_a_classifier_of_few_functions_exchanges_them_unasked():
    for seed in range(4):
        X, y = two_classes(250, seed=250 + seed)
        greedy, better = (RVC(gamma=1.0, search=s).fit(X, y) for s in ("greedy", "exchange"))
        assert len(greedy.active_) <= 20
        assert 0.0 <= better.log_marginal_likelihood_ - greedy.log_marginal_likelihood_ < 0.01


def test_a_dictionary_too_large_for_one_pool_is_searched_too():
    X, y = sinc_2d(700, seed=5)
    greedy, better = (RVR(Gaussian(2.5), search=s).fit(X, y) for s in ("greedy", "exchange"))
    assert better.log_marginal_likelihood_ >= greedy.log_marginal_likelihood_ - 1e-9
    assert certificate(better, X, y).max_gain_exchange <= 1.1 * LEAST


@pytest.mark.parametrize("settings", [{"scheme": "em"}, {"scheme": "variational"}])
def test_a_search_is_refused_where_there_is_none(settings):
    X, y = columns(30, 5)
    with pytest.raises(ValueError, match="search='exchange' needs scheme='sequential'"):
        SparseBayesRegressor(search="exchange", **settings).fit(X, y)


def test_a_search_is_refused_for_several_outputs():
    X, y = columns(30, 5)
    with pytest.raises(ValueError, match=r"search must be 'greedy' if .* fit the columns one by one"):
        SparseBayesRegressor(fit_intercept=False, search="exchange").fit(X, np.column_stack([y, -y]))
