"""Healed error bars add one function at each predicted row: compared with the augmented model."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from problems import active_functions, squares
from reference import posterior
from sparsebayes import RVR
from sparsebayes.kernels import Custom, Gaussian, Laplacian, Linear, Polynomial

WIDE = Gaussian(2.0)
FAR = 1e3
GRID = np.stack(np.meshgrid(np.linspace(-2.5, 2.5, 5), np.linspace(-8.0, 8.0, 6)), axis=-1).reshape(-1, 2)


def healed_bars(model, X):
    return model.predict(X, return_std=True, healed=True)


def keeping(kernel, **options):
    """A regression that keeps its training rows."""
    return RVR(kernel, keep_rows=True, **options)


def functions(model, kernels, X, extra):
    """Return the active functions at ``X``, and the number of the kernel of each (-1: none)."""
    given = hasattr(model, "candidates_") and not hasattr(model, "candidate_rows_")
    size = len(model.candidates_) if given else model._n_samples
    centred = extra(X) - model._basis.offset if model.extra_basis else None
    return active_functions(model, X, kernels, size, centred)


def augmented(model, kernels, X, y, new, weights, extra=None):
    """Return mean and deviation at each row of ``new`` from a linear model with a function centred there too.

    The prior variance of the new weight is the mean square of what its kernel contributes at the training
    rows, divided by the mean square of the kernel's values k(x, x) there.
    """
    used = weights > 0
    X, y, w = X[used], y[used], weights[used]
    Phi, owner = functions(model, kernels, X, extra)
    at_new, _ = functions(model, kernels, new, extra)
    prior = []
    for p, kernel in enumerate(kernels):
        contribution = Phi[:, owner == p] @ model.mu_[owner == p]
        own = np.array([kernel(x[np.newaxis], x[np.newaxis])[0, 0] for x in X])
        prior.append(np.sum(w * contribution**2) / np.sum(w * own**2))
    there = np.flatnonzero(prior)
    means, deviations = [], []
    for x, phi in zip(new[:, np.newaxis], at_new, strict=True):
        more = [kernels[p](X, x)[:, 0] for p in there]
        whole = np.column_stack([Phi, *more])
        alpha = np.r_[model.alpha_, 1.0 / np.array(prior)[there]]
        mu, Sigma = posterior(whole, y, alpha, model.beta_, w)
        point = np.r_[phi, [kernels[p](x, x)[0, 0] for p in there]]
        means.append(point @ mu)
        deviations.append(np.sqrt(1.0 / model.beta_ + point @ Sigma @ point))
    return np.array(means), np.array(deviations)


CASES = {
    "one kernel": ([WIDE], {}),
    "no intercept": ([Laplacian(0.5)], {"fit_intercept": False, "noise_variance": 0.01}),
    "two kernels": ([WIDE, Gaussian(0.6)], {}),
    "callable": ([Custom(lambda X, Z: WIDE(X, Z) + 0.1 * X[:, :1] * Z[:, 1])], {}),
    "not stationary": ([Polynomial(3, 0.2, 1.0)], {}),
    "sum": ([WIDE + Linear()], {}),
    "extra columns": ([WIDE], {"extra_basis": squares}),
    "chosen rows": ([WIDE, Laplacian(0.5)], {"candidates": 25, "random_state": 0, "extra_basis": squares}),
    "given centres": ([WIDE], {"candidates": GRID, "extra_basis": squares}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_healed_predictions_are_those_of_the_augmented_model(case, weighted, surface):
    X, y = surface
    kernels, options = CASES[case]
    weights = np.random.default_rng(5).integers(0, 4, len(X)).astype(float) if weighted else None
    model = keeping(kernels if len(kernels) > 1 else kernels[0], tol=1e-9, **options).fit(X, y, weights)
    new = np.r_[X[:20], model.relevance_vectors_[:3], 1.5 * X[:20] + 0.3, [[50.0, -70.0]]]
    w = np.ones(len(X)) if weights is None else weights
    mean, deviation = augmented(model, model._kernels(), X, y, new, w, squares)
    found, found_deviation = model.predict(new, return_std=True, healed=True)
    np.testing.assert_allclose(found, mean, rtol=1e-6, atol=1e-7 * np.abs(mean).max())
    np.testing.assert_allclose(found_deviation, deviation, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(new, healed=True), found)
    plain, plain_deviation = model.predict(new, return_std=True)
    assert (found_deviation >= plain_deviation).all()
    assert np.abs(found - plain).max() > 1e-4
    np.testing.assert_array_equal(model.predict(new, return_std=True, healed=False)[1], plain_deviation)


def test_far_away_the_signal_is_as_uncertain_as_it_was_large(sinc):
    X, y = sinc
    model = keeping(WIDE, fit_intercept=False).fit(X, y)
    noise = np.sqrt(model.noise_variance_)
    signal = np.sqrt(np.mean(model.predict(X) ** 2))
    mean, healed = model.predict([[FAR], [-FAR]], return_std=True, healed=True)
    _, plain = model.predict([[FAR], [-FAR]], return_std=True)
    np.testing.assert_allclose(plain, noise, rtol=1e-12)
    np.testing.assert_allclose(healed, np.hypot(noise, signal), rtol=1e-12)
    np.testing.assert_array_equal(mean, 0.0)
    # At the training rows healing adds little.
    _, among = model.predict(X, return_std=True, healed=True)
    assert (among < 1.2 * model.predict(X, return_std=True)[1]).all()


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_models_without_kernel_functions_have_the_same_error_bars():
    empty = keeping(WIDE, noise_variance=0.1).fit(np.arange(5.0)[:, np.newaxis], np.zeros(5))
    np.testing.assert_array_equal(empty.active_, [-1])
    np.testing.assert_array_equal(empty.predict([[1.0]], healed=True), [0.0])
    X = np.linspace(-1, 1, 60)[:, np.newaxis]
    # Noise that changes sign from row to row: nothing smooth gains by it.
    model = keeping(WIDE, extra_basis="linear").fit(X, 3.0 + X[:, 0] + 0.1 * (-1.0) ** np.arange(60))
    assert len(model.relevance_) == 0
    np.testing.assert_array_equal(healed_bars(model, X), model.predict(X, return_std=True))


def test_rows_are_predicted_one_by_one_as_together(sinc, monkeypatch):
    X, y = sinc
    model = keeping([WIDE, Gaussian(0.5)]).fit(X, y)
    new = np.linspace(-20, 20, 150)[:, np.newaxis]
    together = healed_bars(model, new)
    one = [healed_bars(model, x[np.newaxis]) for x in new]
    np.testing.assert_allclose(np.array(one)[:, :, 0].T, together, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr("sparsebayes._estimators.healing._MAX_KERNEL_VALUES", 1000)
    np.testing.assert_allclose(healed_bars(model, new), together, rtol=1e-9, atol=1e-12)


def test_any_number_of_threads_gives_the_same_bits(surface):
    X, y = surface
    one, three = (healed_bars(keeping(WIDE, n_jobs=n).fit(X, y), X + 0.5) for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_models_without_noise_stay_finite():
    X = np.linspace(-5, 5, 40)[:, np.newaxis]
    with pytest.warns(ConvergenceWarning, match="noise_floor"):
        model = keeping(Gaussian(3.0)).fit(X, np.sin(X[:, 0]))
    new = np.linspace(-9, 9, 100)[:, np.newaxis]
    mean, healed = healed_bars(model, new)
    assert np.isfinite(mean).all()
    assert (healed >= model.predict(new, return_std=True)[1]).all()
    np.testing.assert_allclose(model.predict(X, healed=True), np.sin(X[:, 0]), atol=0.01)


def test_weights_count_rows(sinc):
    X, y = sinc
    w = np.random.default_rng(1).integers(1, 4, len(X))
    weighted = keeping(WIDE).fit(X, y, w)
    repeated = keeping(WIDE).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    new = np.linspace(-15, 15, 40)[:, np.newaxis]
    np.testing.assert_allclose(healed_bars(weighted, new), healed_bars(repeated, new), rtol=1e-3, atol=1e-4)


# --- where the training rows are --------------------------------------------------------------------


def test_pickles_are_sparse_unless_told_otherwise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 30))
    y = X[:, 0] + 0.1 * rng.normal(size=2000)
    for keep_rows in (False, True):
        model = RVR(Gaussian(10.0), keep_rows=keep_rows, max_iter=3, noise_variance=0.01)
        with pytest.warns(UserWarning, match="max_iter"):
            model.fit(X, y)
        size = len(pickle.dumps(model))
        assert (size > X.nbytes) == keep_rows
        assert size < X.nbytes / 10 or keep_rows


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_healed_like_the_model(duplicate, sinc):
    X, y = sinc
    model = keeping(WIDE).fit(X, y)
    np.testing.assert_array_equal(healed_bars(duplicate(model), X), healed_bars(model, X))


def test_healing_needs_rows_that_were_kept(sinc):
    X, y = sinc
    model = RVR(WIDE).fit(X, y)
    with pytest.raises(ValueError, match=r"healed=True needs the training rows.*keep_rows=True"):
        model.predict(X, healed=True)
    model.set_params(keep_rows=True).fit(X, y).predict(X, healed=True)
    with pytest.raises(ValueError, match=r"healed=True needs the training rows"):
        model.set_params(keep_rows=False).fit(X, y).predict(X, healed=True)


def test_the_model_copies_the_rows_it_keeps(sinc):
    X, y = (array.copy() for array in sinc)
    weights = np.ones(len(X))
    model = keeping(WIDE).fit(X, y, weights)
    expected = healed_bars(model, sinc[0])
    X[3] += 1.0
    y[:], weights[:] = 0.0, 2.0
    np.testing.assert_array_equal(healed_bars(model, sinc[0]), expected)


def test_precomputed_kernels_cannot_be_healed(sinc):
    X, y = sinc
    model = keeping("precomputed").fit(WIDE(X, X), y)
    with pytest.raises(ValueError, match=r"healed=True.*precomputed.*callable"):
        model.predict(WIDE(X, X), healed=True)


@pytest.mark.parametrize("flag", ["yes", None, 0.5, [True]])
def test_flags_are_checked(flag, sinc):
    X, y = sinc
    with pytest.raises(TypeError, match="healed must be True or False"):
        RVR(WIDE).fit(X, y).predict(X, healed=flag)
    with pytest.raises(TypeError, match="keep_rows must be True or False"):
        RVR(WIDE, keep_rows=flag).fit(X, y)
