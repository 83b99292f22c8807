"""Searches of MRVM1 beyond the model that E- and M-steps come to: exact proposals, never a lower bound."""

import itertools
import warnings
from contextlib import ExitStack

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import mrvm_reference as reference
from ctrl_c import pressed_after
from sparsebayes import MRVM1, MRVM2, _core
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

SEARCHES = ["exchange", "thorough"]
#: An exchange that gains less counts as gaining nothing.
LEAST = 1e-3


def classes(n_rows, n_classes, seed):
    """Rows whose class winds through the plane, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n_rows, 2))
    score = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.4 * rng.normal(size=n_rows)
    edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return X, np.digitize(score, edges)


def targets_of(labels, n_classes, seed=1):
    noise = np.random.default_rng(seed).normal(size=(len(labels), n_classes))
    return np.asfortranarray(4.0 * (np.arange(n_classes) == labels[:, np.newaxis]) - 4.0 / n_classes + noise)


def changed(Phi, Y, alpha, leaving, entering, w=None):
    """Precisions once these have left and these have come in, one by one, at their best."""
    alpha = alpha.copy()
    alpha[leaving] = np.inf
    for i in entering:
        alpha[i] = reference.best_alpha(*reference.factors(Phi, Y, alpha, i, w))
    return alpha


# --- what a move gains -----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_moves_gain_what_they_say_with_the_targets_held(n_classes, weighted):
    X, labels = classes(40, n_classes, seed=n_classes)
    K = np.asfortranarray(np.exp(-0.5 * ((X[:, np.newaxis] - X) ** 2).sum(axis=-1)))
    w = np.random.default_rng(0).uniform(0.3, 3.0, 40) if weighted else None
    Y = targets_of(labels, n_classes)
    alpha = np.full(40, np.inf)
    alpha[[3, 11, 20, 33]] = [0.4, 2.0, 0.1, 1.0]
    active = np.flatnonzero(np.isfinite(alpha))
    fit = _core.RetargetedFit(K, Y, w, active=active, alpha=alpha[active])
    moves = fit.exchanges(Y)
    before = reference.log_evidence(K, Y, alpha, w)
    sizes = {(len(leaving), len(entering)) for leaving, entering, _ in moves}
    assert sizes == {(1, 1), (2, 1)}
    gains = [gain for _, _, gain in moves]
    assert gains == sorted(gains, reverse=True)
    for leaving, entering, gain in moves:
        after = reference.log_evidence(K, Y, changed(K, Y, alpha, leaving, entering, w), w)
        assert gain == pytest.approx(after - before, rel=1e-8, abs=1e-8)
    # The best exchange is the best of all.
    pairs = itertools.product(active, np.setdiff1d(np.arange(40), active))
    best = max(reference.log_evidence(K, Y, changed(K, Y, alpha, [j], [i], w), w) for j, i in pairs) - before
    assert max(g for j, i, g in moves if len(j) == len(i) == 1) == pytest.approx(best, rel=1e-8)


def test_a_move_gains_more_in_the_bound_than_with_the_targets_held():
    X, labels = classes(40, 3, seed=3)
    K = np.asfortranarray(np.exp(-0.5 * ((X[:, np.newaxis] - X) ** 2).sum(axis=-1)))
    active, alpha = np.array([3, 11, 20, 33]), np.array([0.4, 2.0, 0.1, 1.0])

    def at_targets(Y):
        return _core.RetargetedFit(K, Y, active=active, alpha=alpha)

    Y = targets_of(labels, 3)
    for _ in range(300):  # E-steps to where the means stay
        Y, _log_p = _core.probit_expectations(at_targets(Y).predictions(), labels)
    precisions = np.full(40, np.inf)
    precisions[active] = alpha
    bound = reference.lower_bound(K, labels, reference.posterior(K, Y, precisions)[0], precisions)
    moves = [move for move in at_targets(Y).exchanges(Y) if move[2] > 0.0]
    assert len(moves) > 3
    for leaving, entering, gain in moves:
        there = changed(K, Y, precisions, leaving, entering)
        after = reference.lower_bound(K, labels, reference.posterior(K, Y, there)[0], there)
        assert after - bound >= gain - 1e-6


# --- never lower -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_no_search_ends_below_greedy(n_classes):
    gains = []
    for seed in range(6):
        X, y = classes(60 + 10 * seed, n_classes, seed)
        greedy, better = (
            MRVM1(gamma=1.0, convergence="conv1", search=s).fit(X, y) for s in ("greedy", "exchange")
        )
        assert better.status_ in ("converged", "alpha_floor")
        gains.append(better.lower_bound_ - greedy.lower_bound_)
        found = certificate(better, X, y)
        assert found.max_log_alpha_change <= 1e-5
        assert found.max_gain_outside <= 1e-6
        assert found.max_gain_exchange <= 1.1 * LEAST
        if gains[-1] < LEAST:
            assert better.mu_.tobytes() == greedy.mu_.tobytes()
    assert min(gains) >= -1e-9
    assert max(gains) > 0.01


@pytest.mark.parametrize("search", SEARCHES)
def test_the_bound_is_that_of_the_model(search):
    X, y = classes(50, 3, seed=2)
    model = MRVM1(gamma=1.0, convergence="conv1", search=search, random_state=0, fit_intercept=False).fit(
        X, y
    )
    K = Gaussian(1.0)(X, X)
    alpha = np.full(50, np.inf)
    alpha[model.active_] = model.alpha_
    assert model.lower_bound_ == pytest.approx(reference.lower_bound(K, y, model.mu_, alpha), rel=1e-6)
    assert model.lower_bound_ == model.lower_bound_path_[-1]
    assert (np.diff(model.lower_bound_path_) >= -1e-7).all()
    assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_
    found = certificate(model, X, y)
    assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_all_subsets_is_found(seed):
    X, y = classes(40, 3, seed)
    centres = X[np.random.default_rng(seed).choice(40, 7, replace=False)]
    settings = {"kernel": Gaussian(1.5), "convergence": "conv1", "fit_intercept": False}
    subsets = itertools.chain.from_iterable(itertools.combinations(range(7), k) for k in range(1, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = max(MRVM1(candidates=centres[list(s)], **settings).fit(X, y).lower_bound_ for s in subsets)
    model = MRVM1(candidates=centres, search="thorough", random_state=0, **settings).fit(X, y)
    assert model.lower_bound_ >= best - 1e-5


def test_several_kernels_and_weights_of_rows_are_searched_too():
    X, y = classes(60, 3, seed=8)
    w = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    kernels = [Gaussian(0.8), Gaussian(2.5)]
    greedy, better = (
        MRVM1(kernels, convergence="conv1", search=s).fit(X, y, sample_weight=w)
        for s in ("greedy", "exchange")
    )
    assert better.lower_bound_ >= greedy.lower_bound_ - 1e-9
    assert better.kernel_weights_.sum() == pytest.approx(1.0)
    repeated = MRVM1(kernels, convergence="conv1", search="exchange").fit(
        np.repeat(X, w.astype(int), axis=0), np.repeat(y, w.astype(int))
    )
    assert repeated.lower_bound_ == pytest.approx(better.lower_bound_, abs=1e-3)


# --- the certificate -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gain_of_exchanges_is_that_of_the_reference(n_classes):
    X, y = classes(40, n_classes, seed=1)
    model = MRVM1(gamma=1.0, convergence="conv1", fit_intercept=False).fit(X, y)
    # Moved off its optimum, so that there is something to gain.
    model.alpha_ = model.alpha_ * np.linspace(0.2, 5.0, len(model.alpha_))
    (written,) = model._problems(X, y)
    alpha = np.full(40, np.inf)
    alpha[written.active] = written.alpha
    pairs = itertools.product(written.active, np.setdiff1d(np.arange(40), written.active))
    Phi, Y = written.Phi, written.targets
    here = reference.log_evidence(Phi, Y, alpha)
    best = max(reference.log_evidence(Phi, Y, changed(Phi, Y, alpha, [j], [i])) for j, i in pairs)
    found = certificate(model, X, y, exchanges=True)
    np.testing.assert_allclose(found.max_gain_exchange, max(best - here, 0.0), rtol=1e-6, atol=1e-8)


def test_exchanges_are_looked_at_where_that_is_wanted():
    X, y = classes(50, 3, seed=0)
    greedy, searched = (MRVM1(convergence="conv1", search=s).fit(X, y) for s in ("greedy", "exchange"))
    assert certificate(greedy, X, y).max_gain_exchange is None
    assert certificate(greedy, X, y, exchanges=True).max_gain_exchange is not None
    assert certificate(searched, X, y).max_gain_exchange <= 1.1 * LEAST
    assert certificate(searched, X, y, exchanges=False).max_gain_exchange is None


# --- how it is asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["best", None, 3, ["exchange"]])
def test_an_unknown_search_is_refused(search):
    X, y = classes(30, 3, seed=0)
    with pytest.raises(ValueError, match=r"search must be 'greedy', 'exchange' or 'thorough', got "):
        MRVM1(search=search).fit(X, y)


def test_the_machine_that_prunes_has_none():
    with pytest.raises(TypeError, match="search"):
        MRVM2(search="exchange")


@pytest.mark.parametrize("search", SEARCHES)
def test_threads_do_not_show(search):
    X, y = classes(80, 3, seed=5)
    make = MRVM1(gamma=1.0, convergence="conv1", search=search, random_state=3)
    one, several = (make.set_params(n_jobs=n).fit(X, y).mu_.tobytes() for n in (1, 3))
    assert one == several


def test_restarts_are_those_of_the_random_state():
    X, y = classes(60, 3, seed=3)
    make = MRVM1(gamma=1.0, convergence="conv1", search="thorough", random_state=7)
    first, again = (make.fit(X, y).mu_.tobytes() for _ in range(2))
    assert first == again
    with pytest.raises(ValueError, match="random_state"):
        MRVM1(search="thorough", random_state="seven").fit(X, y)


@pytest.mark.parametrize("search", SEARCHES)
def test_steps_are_recorded_and_may_end_the_fit(search):
    settings = {"gamma": 1.0, "convergence": "conv1", "search": search, "random_state": 0}
    for seed in range(10):
        X, y = classes(60, 3, seed)
        steps = []
        model = MRVM1(callback=steps.append, **settings).fit(X, y)
        if any(step.action == "search" for step in steps):
            break
    assert [step.iteration for step in steps] == list(range(1, model.n_iter_ + 1))
    np.testing.assert_array_equal(
        [step.log_marginal_likelihood for step in steps], model.log_marginal_likelihood_path_[1:]
    )
    assert [step.n_active for step in steps] == model.n_relevance_path_[1:].tolist()
    at = [step.iteration for step in steps if step.action == "search"]
    assert at
    greedy = MRVM1(**{**settings, "search": "greedy"}).fit(X, y)
    assert at[0] == greedy.n_iter_ + 1
    for last in (at[0], at[0] + 1, model.n_iter_ - 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            stopped = MRVM1(callback=lambda step, last=last: step.iteration == last, **settings).fit(X, y)
            bounded = MRVM1(max_iter=last, **settings).fit(X, y)
        assert (stopped.status_, stopped.n_iter_) == ("stopped", last)
        assert (bounded.status_, bounded.n_iter_) == ("max_iter", last)
        for early in (stopped, bounded):
            assert early.lower_bound_ >= greedy.lower_bound_ - 1e-9
            assert early.n_relevance_path_[-1] == len(early.active_)


def test_ctrl_c_ends_a_search():
    X, y = classes(1500, 4, seed=0)
    make = MRVM1(gamma=2.0, convergence="conv1")
    n_greedy = make.fit(X, y).n_iter_

    def begin(step):
        # The search has nothing to tell until a move stands.
        if step.iteration == n_greedy:
            pressed.enter_context(pressed_after(0.2))

    make.set_params(search="thorough", callback=begin)
    with ExitStack() as pressed:
        make.fit(X, y)
