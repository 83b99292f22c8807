"""Optima of the certificate's problems are proved in ball arithmetic, and those of changed models are not."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from flint import arb, arb_mat, ctx

import proved_laplace as laplace
import proved_optimum as proved
import reference
from problems import PROBLEMS
from test_golden import golden_module

GOLDEN = golden_module("proofs")
prove = GOLDEN.prove
#: Problems of at most so many functions are proved in each run. `make proofs` proves all.
MAX_FUNCTIONS = 200


@pytest.fixture(autouse=True)
def precision():
    """Compute with balls as precise as those of a proof."""
    bits, ctx.prec = ctx.prec, proved.PRECISION
    yield
    ctx.prec = bits


def dense(name, objective="papers"):
    """Return a fit of one of the certificate's problems as dense arrays."""
    problem = PROBLEMS[name]
    model = problem.fitted(**GOLDEN.OBJECTIVES[objective])
    (fit,) = model._problems(problem.X, problem.y, problem.sample_weight)
    return fit


def numbers(balls):
    """Return the midpoints of a list of balls."""
    return np.array([float(ball.mid()) for ball in balls])


@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
def test_optima_of_the_golden_problems_are_proved(objective):
    proofs = {
        f"{name} {n}": prove(fit) for n, (name, fit) in enumerate(GOLDEN.fits(objective, MAX_FUNCTIONS))
    }
    assert len(proofs) >= 65
    failed = [name for name, proof in proofs.items() if not proof.holds]
    assert len(failed) <= (1.0 - GOLDEN.SHARE) * len(proofs), failed


# --- models off their optimum ---------------------------------------------------------------------


CHANGED = [
    "sinc-1d-100-width-3.0",
    "columns-fixed-noise",
    "columns-weights",
    "logistic-columns",
    "counts-bumps",
]


@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
@pytest.mark.parametrize("name", CHANGED)
def test_changed_models_are_not_proved(name, objective):
    fit = dense(name, objective)
    assert prove(fit).holds
    for j in np.flatnonzero(fit.alpha > 0.0):
        alpha = fit.alpha.copy()
        alpha[j] *= 1.01
        found = prove(replace(fit, alpha=alpha))
        assert found.radius == np.inf
        assert not found.holds
    if fit.noise == "estimated":
        assert not prove(replace(fit, beta=1.01 * fit.beta)).holds


@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
@pytest.mark.parametrize("name", CHANGED)
def test_models_without_one_of_their_functions_are_not_proved(name, objective):
    fit = dense(name, objective)
    for j in np.flatnonzero(fit.alpha > 0.0):
        active, alpha, mu = (np.delete(part, j) for part in (fit.active, fit.alpha, fit.mu))
        found = prove(replace(fit, active=active, alpha=alpha, mu=mu))
        assert found.gain_outside > 1e-3
        assert not found.holds


@pytest.mark.parametrize("name", ["columns-fixed-noise", "logistic-columns"])
def test_models_with_a_useless_function_are_not_proved(name):
    fit = dense(name)
    # At a large precision the rest of the model stays where it was.
    useless = np.setdiff1d(np.arange(fit.Phi.shape[1]), fit.active)[:1]
    active, mu = np.append(fit.active, useless), np.append(fit.mu, 0.0)
    found = prove(replace(fit, active=active, alpha=np.append(fit.alpha, 1e4), mu=mu))
    assert found.gain_inside == found.radius == np.inf
    assert not found.holds


def test_noise_at_its_bound_holds_only_if_the_optimum_is_beyond():
    fit = dense("columns-fixed-noise")
    assert prove(replace(fit, noise="floor", beta=0.5 * fit.beta)).noise_holds
    assert not prove(replace(fit, noise="floor", beta=2.0 * fit.beta)).noise_holds


@pytest.mark.parametrize("name", ["columns-fixed-noise", "logistic-columns"])
def test_multiples_of_a_column_count_as_one_function(name):
    fit = dense(name)
    shared = replace(
        fit,
        Phi=np.hstack([fit.Phi, -4.0 * fit.Phi]),
        active=np.concatenate([fit.active, fit.active + fit.Phi.shape[1]]),
        alpha=np.concatenate([2.0 * fit.alpha, 32.0 * fit.alpha]),
        mu=np.concatenate([fit.mu / 2.0, -fit.mu / 8.0]),
    )
    found, expected = prove(shared), prove(fit)
    assert found.holds
    np.testing.assert_allclose(found[:5], expected[:5], rtol=1e-6)


@pytest.mark.parametrize("name", ["columns-weights", "logistic-columns"])
def test_newton_steps_lead_to_the_centres_of_small_balls(name, monkeypatch):
    monkeypatch.setattr(proved, "RADII", (1e-9,))
    fit = dense(name)
    found = prove(replace(fit, alpha=fit.alpha * np.exp(3e-6), beta=fit.beta * np.exp(-3e-6)))
    assert found.holds
    assert found.shift == pytest.approx(3e-6, rel=0.1)
    assert not prove(replace(fit, alpha=fit.alpha * np.exp(3e-5))).holds


# --- the formulas ---------------------------------------------------------------------------------


def evidence(fit, logs):
    """Return log evidence - c tr S by the reference, of the contrasts orthogonal to the flat columns."""
    alpha, beta, flat = np.exp(logs[:-1]), np.exp(logs[-1]), fit.active[fit.alpha == 0.0]
    contrasts = np.linalg.qr(fit.Phi[:, flat], mode="complete")[0][:, len(flat) :]
    Phi, t = contrasts.T @ fit.Phi[:, fit.active[fit.alpha > 0.0]], contrasts.T @ fit.target
    _, sigma = reference.posterior(Phi, t, alpha, beta)
    trace = np.sum(1.0 - alpha * np.diag(sigma))
    return reference.log_evidence(Phi, t, alpha, beta) - fit.complexity * trace


def moved(fit, change):
    """Return the fit with changes of ln alpha, and of ln beta."""
    alpha = fit.alpha.copy()
    alpha[fit.alpha > 0.0] *= np.exp(change[:-1])
    return replace(fit, alpha=alpha, beta=fit.beta * np.exp(change[-1]))


def slopes(fit):
    """Return the gradient of a regression, or of a fit with a mode."""
    if fit.likelihood == "gaussian":
        balls = proved.fit_of(fit)
        return numbers(proved.gradient(balls, proved.enclosure(balls, arb(0), True), True))
    balls = laplace.fit_of(fit)
    return numbers(proved.gradient(balls, laplace.around_mode(balls, arb(0)), False))


def differences(function, n):
    """Return the derivatives of a function of n changes of logarithms."""
    steps = 1e-4 * np.eye(n)
    return np.array([(function(step) - function(-step)) / 2e-4 for step in steps])


@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
def test_gradient_and_hessian_are_those_of_the_evidence(objective):
    fit = dense("columns-and-bias", objective)
    at = np.log(np.append(fit.alpha[fit.alpha > 0.0], fit.beta))
    fit, at = moved(fit, np.linspace(-1.0, 1.0, len(at))), at + np.linspace(-1.0, 1.0, len(at))
    expected = differences(lambda step: evidence(fit, at + step), len(at))
    np.testing.assert_allclose(slopes(fit), expected, rtol=1e-6, atol=1e-5)
    balls = proved.fit_of(fit)
    K = proved.middle(proved.hessian(balls, proved.enclosure(balls, arb(0), True), True))
    expected = differences(lambda step: slopes(moved(fit, step)), len(at))
    np.testing.assert_allclose(K, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
@pytest.mark.parametrize("name", ["two-classes-weights", "counts-columns"])
def test_the_jacobian_at_a_mode_is_that_of_the_gradient(name, objective):
    fit = dense(name, objective)
    n = int(np.sum(fit.alpha > 0.0))
    fit = moved(fit, np.linspace(-1.0, 1.0, n + 1))
    balls = laplace.fit_of(fit)
    found = proved.middle(laplace.jacobian(balls, laplace.around_mode(balls, arb(0))))
    expected = differences(lambda step: slopes(moved(fit, np.append(step, 0.0))), n)
    np.testing.assert_allclose(found, expected.T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["columns-weights", "two-classes-weights", "counts-weights"])
def test_sparsity_and_quality_are_those_of_the_reference(name):
    fit, weights = dense(name), PROBLEMS[name].sample_weight
    weights = weights[weights > 0.0]
    given = (fit.Phi, fit.target, fit.active, fit.alpha)
    if fit.likelihood == "gaussian":
        found, B = proved.fit_of(fit), fit.beta * weights
        *_, S, Q = reference.statistics(*given, fit.beta, weights)
    else:
        found = laplace.fit_of(fit)
        B = numbers(found.b)
        *_, S, Q = reference.laplace_statistics(*given, fit.likelihood, weights)
    np.testing.assert_allclose(numbers(found.S), S, rtol=1e-8)
    np.testing.assert_allclose(numbers(found.Q), Q, atol=1e-8 * np.abs(Q).max())
    inside = fit.Phi[:, fit.active]
    R = np.sum(
        np.linalg.solve(np.diag(1.0 / B) + inside / fit.alpha @ inside.T, fit.Phi) ** 2 / B[:, np.newaxis],
        axis=0,
    )
    np.testing.assert_allclose(numbers(found.R), R, rtol=1e-6)


class Around(NamedTuple):
    """What is computed in a ball around a model."""

    balls: Any
    inside: Any
    gradient: list
    jacobian: arb_mat
    #: Bounds of the logarithms of the covariance of the targets, and of Q, and the gain.
    spread: arb
    changes: list
    gain: float


def around(fit, r):
    """Return the enclosures in a ball, and the gradient at the model."""
    if fit.likelihood == "gaussian":
        free, balls = fit.noise == "estimated", proved.fit_of(fit)
        at, model = (proved.enclosure(balls, radius, free) for radius in (r, arb(0)))
        gradient, jacobian = proved.gradient(balls, model, free), proved.hessian(balls, at, free)
        spread, changes = r, proved.changes_of_quality(balls, r)
    else:
        balls = laplace.fit_of(fit)
        at, model = (laplace.around_mode(balls, radius) for radius in (r, arb(0)))
        gradient, jacobian = proved.gradient(balls, model, False), laplace.jacobian(balls, at)
        spread, changes = at.spread, at.changes
    gain = proved.gain_outside(balls, spread, changes)
    return Around(balls, at, gradient, jacobian, spread, changes, gain)


def points(fit, radius):
    """Yield models in the corners of a ball and in it."""
    rng, n, free = np.random.default_rng(0), int(np.sum(fit.alpha > 0.0)), fit.noise == "estimated"
    # Corners where all functions, or the noise, weigh most.
    corners = [np.append(sign * np.ones(n), -sign) for sign in (1.0, -1.0)]
    corners += [rng.choice([-1.0, 1.0], n + 1) for _ in range(3)]
    for change in [*corners, *rng.uniform(-1.0, 1.0, (2, n + 1))]:
        yield moved(fit, (1.0 - 1e-9) * radius * np.append(change[:-1], free * change[-1]))


IN_BALLS = [
    "sinc-2d-50-width-2.5",
    "columns-weights",
    "duplicates",
    "legendre",
    "two-classes-weights",
    "iris-0-1",
    "counts-copies",
]


@pytest.mark.parametrize("radius", [1e-5, 3e-3])
@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
@pytest.mark.parametrize("name", IN_BALLS)
def test_all_points_of_a_ball_are_in_the_enclosures(name, objective, radius):
    fit = dense(name, objective)
    free, ball = fit.noise == "estimated", around(fit, arb(radius))
    variances = proved.prior_variances(fit)
    for other in points(fit, radius):
        point = around(other, arb(0))
        fields = ["Z", "V", "t"] if fit.likelihood != "gaussian" else ["Z", "V"]
        pairs = [
            (getattr(ball.inside, name).entries(), getattr(point.inside, name).entries()) for name in fields
        ]
        pairs.append((ball.inside.nu, point.inside.nu))
        if fit.likelihood == "gaussian":
            pairs.append(([ball.inside.chi], [point.inside.chi]))
        else:
            pairs.append((ball.inside.slopes, point.inside.slopes))
        assert all(number.contains(value) for part in pairs for number, value in zip(*part, strict=True))
        # The mean value theorem, with the logarithms of the rounded precisions.
        logs = [-(after / variances[j]).log() for j, after in proved.prior_variances(other).items()]
        logs += [(arb(other.beta) / arb(fit.beta)).log()] * free
        expected = (ball.jacobian * proved.column(logs)).entries()
        achieved = zip(point.gradient, ball.gradient, strict=True)
        assert all(number.overlaps(a - b) for number, (a, b) in zip(expected, achieved, strict=True))


@pytest.mark.parametrize("radius", [1e-5, 3e-3])
@pytest.mark.parametrize("objective", GOLDEN.OBJECTIVES)
@pytest.mark.parametrize("name", IN_BALLS)
def test_factors_and_gains_of_all_points_of_a_ball_are_within_their_bounds(name, objective, radius):
    fit = dense(name, objective)
    ball = around(fit, arb(radius))
    S, spread, changes = numbers(ball.balls.S), float(ball.spread.mid()), numbers(ball.changes)
    # Not columns of zeros, and none with a flat prior.
    used = S > 1e-12 * S.max()
    S, Q, R, changes = S[used], numbers(ball.balls.Q)[used], numbers(ball.balls.R)[used], changes[used]
    for other in points(fit, radius):
        point = around(other, arb(0))
        assert point.gain <= ball.gain
        there = point.balls
        assert np.abs(np.log(numbers(there.S)[used] / S)).max() <= spread * (1.0 + 1e-9)
        assert (np.abs(numbers(there.Q)[used] - Q) <= changes * np.sqrt(S)).all()
        assert (np.abs(numbers(there.R)[used] - R) <= 3.0 * spread * np.exp(spread) * S).all()
