"""Named test problems with fixed seeds, and the check that a fit ended at an optimum."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning

import sparsebayes
from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Laplacian, Linear, LinearSpline, Polynomial, Sigmoid

#: All estimators by name.
ESTIMATORS = {
    name: value
    for name in sparsebayes.__all__
    if inspect.isclass(value := getattr(sparsebayes, name)) and issubclass(value, BaseEstimator)
}
#: The estimators with kernels.
ON_KERNELS = [kind for kind in ESTIMATORS.values() if "kernel" in kind().get_params()]
#: For columns without an intercept beside them.
BARE = {"fit_intercept": False}
#: The model of the papers, which has no other priors than those of the precisions.
PAPERS = {"penalize_intercept": True, "complexity": "none"}
#: A check of scikit-learn 1.6 for all estimators, also those whose tag says that they take no sparse matrix.
IGNORES_THE_TAG = (
    {"check_sample_weight_equivalence_on_sparse_data": "it ignores the tag"}
    if version("scikit-learn") < "1.7"
    else {}
)


class Problem(NamedTuple):
    name: str
    #: Makes the estimator, unfitted.
    make: Callable[[], Any]
    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    #: "regression", "classification" or "poisson".
    kind: str
    #: How the fit is to end.
    status: str = "converged"

    def fitted(self, **settings):
        """The estimator, fitted; a warning that goes with ``status`` is expected."""
        model = self.make().set_params(**settings)
        with warnings.catch_warnings():
            if self.status != "converged":
                warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(self.X, self.y, sample_weight=self.sample_weight)


def named(value):
    """Return the name of a test: the repr without addresses, the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def each_value(table):
    """Return the pairs of a name and one of its values, for tests of bad arguments."""
    return [(name, value) for name, values in table.items() for value in values]


def active_functions(model, X, kernels, n_candidates, extra):
    """Return the active functions at ``X`` one by one, and the number of the kernel of each (-1: none).

    ``extra`` holds the columns beside the kernels at ``X``.
    """
    columns, owners = [], []
    for name in model.active_:
        block, row = divmod(name, n_candidates)
        if name < 0:
            columns.append(np.ones(len(X)))
        elif block < len(kernels):
            centre = model.relevance_vectors_[np.searchsorted(model.relevance_, row)]
            columns.append(kernels[block](X, centre[np.newaxis])[:, 0])
        else:
            columns.append(extra[:, name - len(kernels) * n_candidates])
        owners.append(block if 0 <= block < len(kernels) else -1)
    return np.array(columns).T.reshape(len(X), -1), np.array(owners, dtype=int)


def assert_certified(model, X, y, sample_weight=None, status="converged", **known):
    """Check that a fit ended at an optimum by its certificate, and return the certificate."""
    found = certificate(model, X, y, sample_weight, **known)
    assert model.status_ == status
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    assert found.log_beta_residual <= 1e-5
    np.testing.assert_allclose(
        found.log_marginal_likelihood, model.log_marginal_likelihood_, rtol=1e-6, atol=1e-6
    )
    return found


def assert_same_model(a, b, rtol=1e-8):
    """Check that two fits have the same basis functions, and the same numbers but for round-off."""
    np.testing.assert_array_equal(a.active_, b.active_)
    assert a.status_ == b.status_
    for name in ("alpha_", "mu_", "beta_", "log_marginal_likelihood_", "dual_coef_", "intercept_"):
        if hasattr(b, name):
            value = getattr(b, name)
            atol = rtol * np.max(np.abs(value), initial=0.0)
            np.testing.assert_allclose(getattr(a, name), value, rtol=rtol, atol=atol)
    atol = rtol * np.max(np.abs(b.sigma_), initial=0.0)
    np.testing.assert_allclose(a.sigma_, b.sigma_, rtol=1e2 * rtol, atol=atol)


def assert_same_bits(a, b):
    """Check that two models have the same bits."""
    for name, value in vars(b).items():
        if isinstance(value, np.ndarray | float):
            np.testing.assert_array_equal(getattr(a, name), value, err_msg=name)


def predictions(model, X):
    """Return the probabilities of a classifier, or means and standard deviations."""
    if is_classifier(model):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


# --- data -----------------------------------------------------------------------------------------


def squares(X):
    """Return extra columns: the squares of all inputs, and the first input."""
    return np.c_[X**2, X[:, :1]]


def sinc_1d(n, *, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-10, 10, (n, 1)), axis=0)
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.normal(size=n)


def sinc_2d(n, *, noise=0.1, seed=0):
    """The regression problem of Tipping & Faul (2003), section 5.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    radius = np.linalg.norm(X, axis=1)
    return X, np.sinc(radius / np.pi) + noise * rng.normal(size=n)


#: The centres of the two components of each class in Ripley's problem.
RIPLEY_CENTRES = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])


def two_classes(n, *, std=0.03**0.5, seed=0):
    """Two classes, each a mixture of two Gaussians in the plane, after Ripley."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(n) % 2)
    return RIPLEY_CENTRES[label, rng.integers(0, 2, n)] + std * rng.normal(size=(n, 2)), label


def mixture(n, *, seed=0):
    """The two classes of the benchmarks, drawn with equal probabilities, after Ripley."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    noise = 0.03**0.5 * rng.normal(size=(n, 2))
    return RIPLEY_CENTRES[label, rng.integers(0, 2, n)] + noise, label


def spikes(n_rows=100, n_columns=256, n_spikes=20, *, noise=0.005, seed=0):
    """Compressed sensing: random projections of a signal of a few spikes of either sign."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n_rows, n_columns)) / np.sqrt(n_rows)
    signal = np.zeros(n_columns)
    signal[rng.choice(n_columns, n_spikes, replace=False)] = rng.choice([-1.0, 1.0], n_spikes)
    return Phi, Phi @ signal + noise * rng.normal(size=n_rows)


def columns(n_rows, n_columns, *, n_relevant=3, noise=0.2, seed=0):
    """Random columns of which the first few matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, X[:, :n_relevant] @ np.linspace(2.0, -1.0, n_relevant) + noise * rng.normal(size=n_rows)


def bumps(x, n_centres, width):
    """Gaussian functions on a grid over [-1, 1], and a constant."""
    centres = np.linspace(-1, 1, n_centres)
    return np.hstack([np.ones((len(x), 1)), np.exp(-(((x[:, np.newaxis] - centres) / width) ** 2))])


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


# --- regression on kernels ------------------------------------------------------------------------


def kernel_regression() -> Iterator[Problem]:
    def problem(name, data, kernel, *, weights=None, **settings):
        return Problem(name, partial(RVR, kernel, **PAPERS | settings), *data, weights, "regression")

    for n, width in [(50, 3.0), (100, 3.0), (200, 1.6), (500, 3.0), (1000, 3.0), (1000, 6.0)]:
        yield problem(f"sinc-1d-{n}-width-{width}", sinc_1d(n, seed=n), Gaussian(width))
    for n, width in [(50, 2.5), (100, 2.5), (250, 2.5), (250, 5.0), (500, 2.5), (1000, 2.5)]:
        yield problem(f"sinc-2d-{n}-width-{width}", sinc_2d(n, seed=n), Gaussian(width))
    yield problem("sinc-2d-two-widths", sinc_2d(200, seed=1), Gaussian([2.0, 4.0]))
    yield problem("sinc-1d-fixed-noise", sinc_1d(100, seed=2), Gaussian(3.0), noise_variance=0.01)
    yield problem("sinc-1d-noise-free", sinc_1d(100, noise=0.0), Gaussian(3.0), noise_variance=1e-4)
    yield problem("sinc-1d-no-bias", sinc_1d(100, seed=3), Gaussian(3.0), fit_intercept=False)
    yield problem("sinc-1d-ten-rows", sinc_1d(10, seed=4), Gaussian(3.0))

    spline = LinearSpline()
    X, y = sinc_1d(100, noise=0.0, seed=5)
    yield problem("spline-noise-free", (X, y), spline, noise_variance=1e-4)
    yield problem("spline-gaussian-noise", (X, y + 0.1 * np.random.default_rng(6).normal(size=100)), spline)
    yield problem("spline-uniform-noise", (X, y + np.random.default_rng(7).uniform(-0.2, 0.2, 100)), spline)

    yield problem("laplacian", sinc_1d(120, seed=8), Laplacian(0.3))
    yield problem("polynomial", sinc_1d(100, seed=9), Polynomial(5, gamma=0.02, coef0=1.0))
    yield problem("sigmoid", sinc_1d(100, seed=10), Sigmoid(0.1, 0.5))
    rng = np.random.default_rng(11)
    X = rng.normal(size=(80, 4))
    yield problem("linear", (X, X @ [1.0, 0.0, -2.0, 0.5] + 0.3 * rng.normal(size=80)), Linear())
    X, y = sinc_1d(150, seed=12)
    yield problem("several-kernels", (X, y + 0.1 * X[:, 0]), [Gaussian(1.5), Gaussian(4.0), Linear()])
    yield problem("product-of-kernels", (X, y * X[:, 0]), Gaussian(4.0) * Polynomial(1, coef0=1.0))
    gram = np.exp(-np.abs(X - X.T) / 4.0)
    yield problem("precomputed", (gram, y), "precomputed")

    X, y = sinc_1d(120, seed=13)
    weights = np.random.default_rng(14).uniform(0.1, 3.0, 120)
    yield problem("weights", (X, y), Gaussian(3.0), weights=weights)
    whole = np.random.default_rng(15).integers(0, 4, 120).astype(float)
    yield problem("whole-weights-and-zeros", (X, y), Gaussian(3.0), weights=whole)
    yield problem("large-targets", (X, 1e8 * y), Gaussian(3.0))
    yield problem("small-targets", (X, 1e-8 * y), Gaussian(3.0))
    yield problem("repeated-rows", (np.tile(X, (2, 1)), np.r_[y, np.roll(y, 1)]), Gaussian(3.0))

    X, y = load_diabetes(return_X_y=True)
    yield problem("diabetes", (standardised(X), y), Gaussian(6.0))


# --- regression on columns ------------------------------------------------------------------------


def column_regression() -> Iterator[Problem]:
    def problem(name, X, y, *, weights=None, status="converged", **settings):
        make = partial(SparseBayesRegressor, **PAPERS | BARE | settings)
        return Problem(name, make, X, y, weights, "regression", status)

    yield problem("spikes-fixed-noise", *spikes(seed=0), noise_variance=0.005**2)
    # With columns enough to explain the noise as well, the evidence prefers that, down to the floor.
    yield problem("spikes-estimated-noise", *spikes(seed=1), status="noise_floor")
    yield problem("spikes-much-noise", *spikes(noise=0.1, seed=2), status="noise_floor")
    # An exact combination of some columns.
    yield problem("exact-fit", *columns(30, 60, noise=0.0, seed=3), status="noise_floor")

    X, y = columns(80, 15, seed=4)
    yield problem("columns", X, y)
    yield problem("columns-and-bias", X, y + 5.0, fit_intercept=True)
    yield problem("columns-fixed-noise", X, y, noise_variance=0.04)
    yield problem("columns-weights", X, y, weights=np.random.default_rng(5).uniform(0.2, 2.0, 80))
    yield problem("duplicates", np.hstack([X, X]), y)
    yield problem("scaled-copies", np.hstack([X, 3.0 * X, 1e-3 * X]), y)
    yield problem("negated-copies", np.hstack([X, -X]), y)
    noisy_copies = X + 1e-4 * np.random.default_rng(6).normal(size=X.shape)
    yield problem("near-copies", np.hstack([X, noisy_copies]), y)
    mixing = np.random.default_rng(7).normal(size=(15, 20))
    yield problem("dependent", np.hstack([X, X @ mixing]), y)
    still = np.hstack([np.zeros((80, 2)), X, np.ones((80, 2)), np.full((80, 1), 7.0)])
    yield problem("zero-and-constant", still, y + 1.0)
    yield problem("badly-scaled", X * np.logspace(-6, 6, 15), y)
    yield problem("wide", *columns(50, 200, seed=8), status="noise_floor")
    yield problem("square", *columns(60, 60, n_relevant=10, noise=0.5, seed=9))
    yield problem("noise-only", X, np.random.default_rng(10).normal(size=80))

    x = np.linspace(-1, 1, 120)
    y = np.cos(7 * x) * np.exp(-x) + 0.2 * np.random.default_rng(11).normal(size=120)
    yield problem("bumps", bumps(x, 40, 0.2), y)
    yield problem("legendre", np.polynomial.legendre.legvander(x, 25), y)
    X, y = load_diabetes(return_X_y=True)
    yield problem("diabetes-columns", standardised(X), y, fit_intercept=True)


# --- classification -------------------------------------------------------------------------------


def classification() -> Iterator[Problem]:
    def kernels(name, data, weights=None, *, kernel="rbf", **settings):
        return Problem(name, partial(RVC, kernel, **PAPERS | settings), *data, weights, "classification")

    def basis(name, data, weights=None, **settings):
        make = partial(SparseBayesClassifier, **PAPERS | BARE | settings)
        return Problem(name, make, *data, weights, "classification")

    for n in [100, 250, 500]:
        yield kernels(f"two-classes-{n}", two_classes(n, seed=n), gamma=1.0)
    yield kernels("two-classes-narrow", two_classes(200, seed=1), kernel=Gaussian(0.5))
    yield kernels("two-classes-no-bias", two_classes(200, seed=2), gamma=1.0, fit_intercept=False)
    yield kernels("two-classes-hopeless", two_classes(150, std=1.0, seed=3), gamma=1.0)
    yield kernels("nearly-separable", two_classes(200, std=0.09, seed=4), kernel=Gaussian(0.5))
    yield kernels("separable", two_classes(200, std=0.04, seed=5), kernel=Gaussian(0.5))
    weights = np.random.default_rng(6).uniform(0.0, 2.0, 200)
    weights[::10] = 0.0
    yield kernels("two-classes-weights", two_classes(200, seed=7), weights, gamma=1.0)
    yield kernels("two-classes-several-kernels", two_classes(150, seed=8), kernel=[Gaussian(0.4), Linear()])
    rare = two_classes(200, seed=9)[0]
    yield kernels("rare-class", (rare, (rare[:, 0] > np.sort(rare[:, 0])[-12]) * 1), gamma=1.0)

    X, y = load_iris(return_X_y=True)
    for a, b in [(0, 1), (1, 2)]:
        pair = (y == a) | (y == b)
        yield kernels(f"iris-{a}-{b}", (X[pair], y[pair]), kernel=Gaussian(2.0))
    yield kernels("iris", (X, y), kernel=Gaussian(2.0))
    X, y = load_breast_cancer(return_X_y=True)
    yield kernels("breast-cancer", (standardised(X), y), kernel=Gaussian(10.0))
    yield basis("breast-cancer-columns", (standardised(X), y), fit_intercept=True)

    X, score = columns(200, 12, noise=1.0, seed=10)
    yield basis("logistic-columns", (X, score > 0))
    yield basis("logistic-copies", (np.hstack([X, -X, np.zeros((200, 1)), np.ones((200, 1))]), score > 0))
    yield basis("logistic-scales", (X * np.logspace(-3, 3, 12), score > 0), fit_intercept=True)
    X, score = columns(60, 150, noise=0.5, seed=11)
    yield basis("logistic-wide", (X, score > 0))


# --- counts ---------------------------------------------------------------------------------------


def counts() -> Iterator[Problem]:
    def problem(name, X, mean, seed, weights=None, **settings):
        make = partial(SparseBayesRegressor, **PAPERS | BARE | {"likelihood": "poisson"} | settings)
        y = np.random.default_rng(seed).poisson(mean).astype(float)
        return Problem(name, make, X, y, weights, "poisson")

    x = np.linspace(-1, 1, 150)
    rate = np.exp(1.0 + np.sin(4 * x))
    yield problem("counts-bumps", bumps(x, 30, 0.25), rate, 0)
    yield problem("counts-large", bumps(x, 30, 0.25), 300 * rate, 1)
    yield problem("counts-rare", bumps(x, 30, 0.25), 0.05 * rate, 2)
    X = np.random.default_rng(3).normal(size=(200, 10))
    rate = np.exp(0.5 + X[:, :3] @ [0.6, -0.4, 0.2])
    yield problem("counts-columns", X, rate, 4, fit_intercept=True)
    yield problem("counts-copies", np.hstack([X, X, -2 * X, np.ones((200, 2))]), rate, 5)
    weights = np.random.default_rng(6).uniform(0.0, 2.0, 200)
    yield problem("counts-weights", X, rate, 7, weights, fit_intercept=True)


PROBLEMS = {
    problem.name: problem
    for family in (kernel_regression, column_regression, classification, counts)
    for problem in family()
}
