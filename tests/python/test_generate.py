"""Centres that need not be rows: higher evidence, fewer functions, certified like any other fit."""

import pickle
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ctrl_c import pressed_after
from problems import named, sinc_1d, sinc_2d, two_classes
from reference import laplace_log_evidence, log_evidence, statistics
from sparsebayes import RVC, RVR, load
from sparsebayes._kernel_centres import about, is_smooth
from sparsebayes._learning import LearningData
from sparsebayes._moves import Found, Mover, _leaving
from sparsebayes._placed import Place, Placed
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Laplacian, Linear, LinearSpline, OnColumns, Polynomial, Sigmoid

SMOOTH = [
    Gaussian(1.3),
    Gaussian((0.7, 2.0)),
    Linear(),
    Polynomial(3, gamma=0.4, coef0=0.7),
    Sigmoid(0.6, coef0=-0.2),
    LinearSpline(),
    Gaussian(1.0) * Linear() + Sigmoid(0.3) * Polynomial(2),
]


def weighted(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 3, (n, 2))
    y = X[:, 0] * np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=n)
    return X, y, rng.integers(0, 3, n).astype(float)


def place(likelihood):
    X, y, weights = weighted()
    # The dense formulas take the inverses of the weights.
    weights = weights + 1.0
    target = y if likelihood == "gaussian" else (y > 0).astype(float)
    fixed = np.hstack([np.ones((len(X), 1)), X])
    data = LearningData(X, X, fixed, [target], weights, likelihood, None, 1)
    return Place([Gaussian(1.0), Gaussian(0.4)], data, target)


def model(seed=0):
    rng = np.random.default_rng(seed)
    return Placed(
        np.array([0, 2]),
        np.array([0, 0, 1, 0, 1]),
        rng.uniform(-1, 3, (5, 2)),
        rng.normal(size=7),
        1.5,
    )


# --- the mathematics ------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", SMOOTH, ids=named)
def test_kernels_have_these_gradients_in_their_centres(kernel):
    rng = np.random.default_rng(1)
    X, Z, D = rng.uniform(0.1, 2, (7, 2)), rng.uniform(0.1, 2, (3, 2)), rng.normal(size=(7, 3))
    K, pull = about(kernel, X, Z)
    np.testing.assert_allclose(K, kernel(X, Z), rtol=1e-12)
    numeric = approx_fprime(Z.ravel(), lambda z: float(np.sum(D * kernel(X, z.reshape(3, 2)))), 1e-7)
    np.testing.assert_allclose(pull(D).ravel(), numeric, rtol=1e-5, atol=1e-5)


def test_kernels_without_such_a_gradient_are_told():
    assert all(map(is_smooth, SMOOTH))
    assert not is_smooth(Gaussian(1.0) + Laplacian(1.0))
    assert not is_smooth(OnColumns(Gaussian(1.0), [0]))
    with pytest.raises(TypeError, match="Laplacian"):
        about(Laplacian(1.0), np.ones((2, 1)), np.ones((1, 1)))


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_the_evidence_and_its_gradient_are_those_of_dense_formulas(likelihood):
    here, there = place(likelihood), model()
    found, slopes = here.evidence(there)
    Phi, _ = here.values(there)
    alpha = np.exp(there.log_alpha)
    if likelihood == "gaussian":
        expected = log_evidence(Phi, here.target, alpha, np.exp(there.log_beta), here.data.weights)
    else:
        expected = laplace_log_evidence(Phi, here.target, alpha, "bernoulli", here.data.weights)
    assert found.value == pytest.approx(expected, rel=1e-9)

    def moved(z):
        return here.evidence(replace(there, centres=z.reshape(5, 2)))[0].value

    numeric = approx_fprime(there.centres.ravel(), moved, 1e-6)
    np.testing.assert_allclose(slopes.ravel(), numeric, rtol=1e-4, atol=1e-4)


def test_factors_anywhere_are_those_of_dense_formulas():
    here, there = place("gaussian"), model()
    Phi, _ = here.values(there)
    z = np.array([[0.3, 0.7], [2.0, -0.5]])
    phi = Gaussian(1.0)(here.data.X, z)
    S, Q, left = here.quadratic(there).factors(phi)
    whole = np.hstack([Phi, phi])
    active, beta = np.arange(7), np.exp(there.log_beta)
    expected = statistics(whole, here.target, active, np.exp(there.log_alpha), beta, here.data.weights)
    np.testing.assert_allclose(S, expected.S[7:], rtol=1e-9)
    np.testing.assert_allclose(Q, expected.Q[7:], rtol=1e-9, atol=1e-9)
    assert left.shape == phi.shape


@pytest.mark.parametrize("places", [[0], [3], [2, 4], [0, 2, 6]])
def test_what_functions_gain_by_leaving_is_what_the_evidence_gains(places):
    here, there = place("gaussian"), model()
    quadratic = here.quadratic(there)
    gain = here.evidence(there.without(places))[0].value - here.evidence(there)[0].value
    assert _leaving(quadratic, there, places) == pytest.approx(gain, rel=1e-8, abs=1e-8)
    rest = quadratic.without(places, there.log_alpha)
    fresh = here.quadratic(there.without(places))
    for name in ("sigma", "mu", "slope"):
        np.testing.assert_allclose(getattr(rest, name), getattr(fresh, name), rtol=1e-8, atol=1e-9)


def test_places_gain_what_they_promise_and_are_maxima():
    here, there = place("gaussian"), model()
    mover, quadratic = Mover.about(here, 4), here.quadratic(there)
    before = here.evidence(there)[0].value
    places = mover._places(quadratic, 1, mover._starts(quadratic, 1, here.data.X))
    assert places
    for gain, z, log_alpha in places:
        achieved = here.evidence(there.plus(1, z, log_alpha))[0].value - before
        assert achieved == pytest.approx(gain, rel=1e-7, abs=1e-9)
        for step in 1e-3 * np.vstack([np.eye(2), -np.eye(2)]):
            near = np.clip(z + step, *mover.box)
            S, Q, _ = quadratic.factors(about(here.kernels[1], here.data.X, near[np.newaxis])[0])
            theta = float(Q[0] ** 2 / S[0])
            assert 0.5 * (theta - 1.0 - np.log(theta)) <= gain + 1e-4
    gains = [gain for gain, _, _ in places]
    assert gains == sorted(gains, reverse=True)


def test_moves_lead_only_upwards_and_do_what_they_say():
    here = place("gaussian")
    mover = Mover.about(here, 6)
    found = mover.ascend(model())
    assert found.value > here.evidence(model())[0].value
    assert found.value == pytest.approx(here.evidence(found.model)[0].value, rel=1e-12)
    more = mover.add(found, here.data.X)
    assert more is not None
    assert more.value > found.value
    # One function twice, side by side, and one too many: merging takes them away.
    double = found.model
    centre = double.centres[0]
    apart = double.plus(int(double.kernel[0]), centre + 0.05, float(double.log_alpha[len(double.fixed)]))
    value = here.evidence(apart)[0].value
    merged = mover.merge(Found(apart, value))
    assert merged is not None
    assert merged.value > value
    assert len(merged.model) < len(apart)


def test_functions_at_one_place_become_one():
    here = place("gaussian")
    mover = Mover.about(here, 4)
    single = model()
    double = single.plus(0, single.centres[0], float(single.log_alpha[2]))
    united = mover._united(Found(double, here.evidence(double)[0].value))
    assert len(united.model) == len(single)
    assert united.value == pytest.approx(here.evidence(double)[0].value, rel=1e-10)


# --- fits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["greedy", "exchange"])
@pytest.mark.parametrize("seed", range(4))
def test_fits_end_higher_with_no_more_functions(search, seed):
    X, y = sinc_2d(200, seed=seed)
    rows = RVR(Gaussian(2.5), search=search).fit(X, y)
    anywhere = RVR(Gaussian(2.5), search=search, generate=True).fit(X, y)
    assert anywhere.log_marginal_likelihood_ > rows.log_marginal_likelihood_ + 1.0
    assert len(anywhere.relevance_) <= len(rows.relevance_)
    assert anywhere.n_generated_ > 0
    found = certificate(anywhere, X, y)
    assert anywhere.status_ == "converged"
    assert found.n_basis == 201 + anywhere.n_generated_
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    assert found.log_beta_residual <= 1e-5
    assert found.log_marginal_likelihood == pytest.approx(anywhere.log_marginal_likelihood_, rel=1e-6)


def test_centres_end_where_the_evidence_is_flat_in_them():
    X, y = sinc_2d(200, seed=1)
    fitted = RVR(Gaussian(2.5), generate=True).fit(X, y)
    centres = fitted.relevance_vectors_
    Phi = lambda z: np.hstack(  # noqa: E731
        [np.ones((len(X), int(-1 in fitted.active_))), Gaussian(2.5)(X, z.reshape(centres.shape))]
    )
    alpha = np.append(fitted.alpha_[fitted.active_ == -1], fitted.alpha_[fitted.active_ >= 0])
    slope = approx_fprime(
        centres.ravel(), lambda z: log_evidence(Phi(z), y, alpha, fitted.beta_), 1e-5
    ).reshape(centres.shape)
    inside = (centres > X.min(axis=0) + 1e-6) & (centres < X.max(axis=0) - 1e-6)
    # Nats for a step of a hundredth of the width.
    assert np.abs(slope[inside]).max() * 0.025 < 0.05


@pytest.mark.parametrize("settings", [{}, {"search": "exchange"}], ids=named)
def test_classes(settings):
    X, y = two_classes(80, seed=3)
    rows = RVC(Gaussian(0.5), **settings).fit(X, y)
    anywhere = RVC(Gaussian(0.5), generate=True, **settings).fit(X, y)
    assert anywhere.log_marginal_likelihood_ >= rows.log_marginal_likelihood_ - 1e-9
    assert anywhere.status_ in ("converged", "alpha_floor")
    if anywhere.status_ == "converged":
        found = certificate(anywhere, X, y)
        assert found.max_gain_outside <= 1e-6
        assert found.max_log_alpha_change <= 1e-5


def test_three_classes_share_a_dictionary():
    rng = np.random.default_rng(5)
    X = np.vstack([rng.normal(centre, 0.5, (40, 2)) for centre in ([0, 0], [1, 0], [0, 1])])
    y = np.repeat(["a", "b", "c"], 40)
    rows, anywhere = (RVC(Gaussian(0.8), generate=flag).fit(X, y) for flag in (False, True))
    assert anywhere.log_marginal_likelihood_ > rows.log_marginal_likelihood_
    assert anywhere.alpha_.shape == (len(anywhere.active_), 3)
    assert anywhere.predict_proba(X).shape == (120, 3)
    np.testing.assert_array_equal(anywhere.to_predictor().predict(X), anywhere.predict(X))


@pytest.mark.parametrize(
    "kernel", [*SMOOTH, [Gaussian(1.0), Gaussian(0.3)], [Gaussian(1.0), Linear()]], ids=named
)
def test_all_smooth_kernels_with_weights_and_columns_beside(kernel):
    X, y, weights = weighted()
    arguments = {"extra_basis": "linear", "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rows, anywhere = (
            RVR(kernel, generate=flag, **arguments).fit(X, y, weights) for flag in (False, True)
        )
    assert anywhere.log_marginal_likelihood_ >= rows.log_marginal_likelihood_ - 1e-9
    found = certificate(anywhere, X, y, weights)
    assert found.max_gain_outside <= 1e-6
    np.testing.assert_allclose(anywhere.to_predictor().predict(X), anywhere.predict(X), rtol=1e-9, atol=1e-9)


def test_a_weight_of_two_is_the_row_twice():
    X, y, weights = weighted()
    weighted_fit = RVR(Gaussian(1.0), generate=True).fit(X, y, weights)
    times = weights.astype(int)
    repeated = RVR(Gaussian(1.0), generate=True).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted_fit.log_marginal_likelihood_ == pytest.approx(repeated.log_marginal_likelihood_, abs=1e-3)
    # Ascents in the centres end where they gain next to nothing; the noise is 0.1.
    np.testing.assert_allclose(weighted_fit.predict(X), repeated.predict(X), atol=1e-2)


def test_bits_do_not_depend_on_threads():
    X, y = sinc_2d(150, seed=2)
    one, two = (RVR(Gaussian(2.5), generate=True, n_jobs=n).fit(X, y) for n in (1, 2))
    for name in ("candidates_", "active_", "alpha_", "mu_", "sigma_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("candidates", [12, "given"])
def test_candidates_stand_before_the_centres_found(candidates):
    X, y = sinc_1d(80)
    given = np.linspace(-12, 12, 9)[:, np.newaxis]
    fitted = RVR(
        Gaussian(2.0),
        candidates=given if candidates == "given" else candidates,
        generate=True,
        random_state=0,
    ).fit(X, y)
    first = len(fitted.candidates_) - fitted.n_generated_
    assert first == (9 if candidates == "given" else 12)
    if candidates == "given":
        np.testing.assert_array_equal(fitted.candidates_[:first], given)
    else:
        assert {*fitted.candidates_[:first, 0]} <= {*X[:, 0]}
    assert not hasattr(fitted, "candidate_rows_")
    np.testing.assert_array_equal(fitted.relevance_vectors_, fitted.candidates_[fitted.relevance_])
    # A fit without has nothing left of it.
    fitted.set_params(generate=False, candidates=None).fit(X, y)
    assert not hasattr(fitted, "n_generated_")
    assert not hasattr(fitted, "candidates_")


def test_models_are_saved_pickled_and_cloned(tmp_path):
    X, y = sinc_1d(80)
    fitted = RVR(Gaussian(2.0), generate=True).fit(X, y)
    fitted.save(tmp_path / "model")
    for other in (pickle.loads(pickle.dumps(fitted)), load(tmp_path / "model")):
        np.testing.assert_allclose(other.predict(X), fitted.predict(X), rtol=1e-12, atol=1e-12)
    assert clone(fitted).generate is True


def test_the_callback_stops_at_any_step():
    X, y = sinc_1d(80)
    steps = []
    whole = RVR(Gaussian(2.0), generate=True, callback=steps.append).fit(X, y)
    assert whole.status_ == "converged"
    for last in range(1, len(steps), max(1, len(steps) // 6)):
        seen = []

        def stop(record, seen=seen, last=last):
            seen.append(record)
            return len(seen) >= last

        stopped = RVR(Gaussian(2.0), generate=True, callback=stop).fit(X, y)
        assert stopped.status_ == "stopped"
        assert len(seen) == last
        assert np.isfinite(stopped.predict(X)).all()


def test_ctrl_c_ends_the_moves():
    X, y = sinc_2d(2000)
    began = time.process_time()
    RVR(Gaussian(1.5)).fit(X, y)
    # The fit about the rows is over then, and what follows takes far longer.
    model = RVR(Gaussian(1.5), generate=True, search="exchange")
    with pressed_after(1.5 * (time.process_time() - began) + 0.3):
        model.fit(X, y)
    assert not hasattr(model, "candidates_")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"generate": "yes"}, "generate"),
        ({"generate": None}, "generate"),
        ({"kernel": "precomputed"}, "precomputed"),
        ({"kernel": "laplacian"}, "Laplacian"),
        ({"kernel": lambda X, Z: X @ Z.T}, "gradient"),
        ({"scheme": "em"}, "scheme='sequential'"),
        ({"optimize_kernel": True}, "given kernel parameters"),
        ({"alpha_prior": (1.0, 1.0)}, "alpha_prior"),
        ({"noise_prior": (1.0, 1.0)}, "noise_prior"),
    ],
    ids=named,
)
def test_what_cannot_be_is_refused(arguments, problem):
    X = np.eye(10)
    with pytest.raises((ValueError, TypeError), match=problem):
        RVR(**{"generate": True, **arguments}).fit(X, np.arange(10.0))


def test_several_columns_softmax_and_chunks_are_refused():
    X, y = sinc_1d(40)
    with pytest.raises(ValueError, match="several columns"):
        RVR(generate=True).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        RVC(generate=True, multi_class="softmax").fit(X, np.arange(40) % 3)
    with pytest.raises(ValueError, match="generate=True needs the rows in memory"):
        RVR(generate=True, candidates=10).fit([(X[:20], y[:20]), (X[20:], y[20:])])


@pytest.mark.parametrize(
    "X",
    [
        np.ones((6, 2)),
        np.array([[0.0]]),
        np.array([[0.0], [0.0], [1.0]]),
        1e150 * np.arange(8.0)[:, np.newaxis],
        1e-150 * np.arange(8.0)[:, np.newaxis],
        1e6 * np.arange(12.0)[:, np.newaxis],
    ],
    ids=lambda X: f"{X.shape}, to {X.max():g}",
)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e-150, 1e150])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_odd_rows_and_targets_end_as_a_model_or_an_error(X, scale):
    y = scale * np.cos(np.arange(len(X)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            fitted = RVR(generate=True, search="exchange").fit(X, y)
        except (ValueError, ArithmeticError):
            return
    assert np.isfinite(fitted.predict(X)).all()
