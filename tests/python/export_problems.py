"""Small problems for exports to C and ONNX."""

import numpy as np

from sparsebayes import (
    GREVM,
    LREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    VGREVM,
    GREVMRegressor,
    LREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
)
from sparsebayes.kernels import (
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    Matern32,
    Matern52,
    OnColumns,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)


def rows(n=40, seed=7):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32).astype(np.float64)


KERNELS = {
    "gaussian": Gaussian(1.5),
    "widths": Gaussian([2.0, 1.0, 5.0]),
    "unused": Gaussian([2.0, np.inf, 5.0]),
    "matern32": Matern32(1.5),
    "matern52": Matern52([2.0, 1.0, 5.0]),
    "rational-quadratic": RationalQuadratic([2.0, 1.0, 5.0], 0.7),
    "nearly-gaussian": RationalQuadratic(1.5, 1e4),
    "periodic": Periodic(period=3.0, width=1.0),
    "laplacian": Laplacian(0.4),
    "polynomial": Polynomial(3, 0.2, 1.0),
    "polynomial-odd": Polynomial(5, gamma=0.3, coef0=-0.5),
    "polynomial-one": Polynomial(1, gamma=0.3),
    "linear": Linear(),
    "sigmoid": Sigmoid(0.2, -0.3),
    "spline": LinearSpline(),
    "sum": Gaussian(2.0) + Linear(),
    "product": (Gaussian(3.0) + Polynomial(2, 0.1, 0.5)) * Laplacian(0.1) + Sigmoid(0.1),
    "columns": OnColumns(Gaussian([1.0, 2.0]), [2, 0]),
    "linear-columns": OnColumns(Linear(), [1]),
    "column": OnColumns(Gaussian(1.5), [2]) * OnColumns(Laplacian(0.1), [0, 0]),
    "inside": OnColumns(Gaussian([1.0, 2.0]) + OnColumns(Linear(), [1]), [2, 1]),
    "cycles": OnColumns(Periodic(2.0, 0.5), [1]) * Matern52(3.0) + OnColumns(Matern32([1.0, 2.0]), [2, 0]),
    "in-sum": OnColumns(Laplacian(0.5), [-1]) + Gaussian(1.0) * OnColumns(Linear(), range(2)),
    "list": [Gaussian(2.0), OnColumns(Polynomial(2), [0, 2]), Gaussian(0.7), Linear()],
}
REGRESSORS = [
    RVR(gamma=0.3, extra_basis="linear", noise_variance=0.02),
    RVR(gamma=0.3, scheme="variational"),
    RVR(gamma=0.3, fit_intercept=False),
    RVR(gamma=0.3, extra_basis="linear", std="full"),
    RVR([Gaussian(2.0), Laplacian(0.5)], extra_basis="linear", landmarks=20),
    SparseBayesRegressor(fit_intercept=False),
    GREVMRegressor(gamma=0.3),
    GREVMRegressor(Linear(), fit_intercept=False),
    LREVMRegressor("laplacian"),
    LREVMRegressor([Gaussian(2.0), OnColumns(Linear(), 1)], fit_intercept=False),
]
OF_SEVERAL_OUTPUTS = [
    RVR(gamma=0.3),
    RVR("linear"),
    RVR([Gaussian(2.0), Laplacian(0.5)], std="full"),
    RVR(gamma=0.3, shared_noise=True, std="full"),
    RVR(gamma=0.3, fit_intercept=False),
    RVR(gamma=0.3, shared_noise=True),
    RVR(gamma=0.3, penalize_intercept=True, complexity="none"),
    SparseBayesRegressor(fit_intercept=True, complexity="none"),
]
CLASSIFIERS = [
    RVC(gamma=0.3),
    RVC("laplacian", gamma="scale"),
    RVC("poly", coef0=1.0),
    RVC("linear"),
    RVC(gamma=0.3, fit_intercept=False),
    RVC([Gaussian(2.0), OnColumns(Linear(), 1)], extra_basis="linear"),
    RVC(gamma=0.3, multi_class="softmax"),
    RVC("linear", multi_class="softmax"),
    RVC(gamma=0.3, scheme="variational"),
    SparseBayesClassifier(fit_intercept=False, complexity="none"),
    SparseBayesClassifier(fit_intercept=True, multi_class="softmax", complexity="none"),
    GREVM(gamma=0.3),
    LREVM(gamma=0.3, fit_intercept=False),
    VGREVM([Gaussian(2.0), Linear()]),
]
PROBIT_MODELS = {
    "MRVM1": MRVM1(gamma=0.3),
    "candidates": MRVM1(gamma=0.3, candidates=rows(30, seed=9)),
    "MRVM2": MRVM2(gamma=0.3),
    "list": MRVM2([Gaussian(2.0), OnColumns(Linear(), 1)], fit_intercept=True),
}


def target(X, seed=3):
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(X))
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + noise


def labels(X, n_classes, seed=3):
    levels = target(X, seed) + 0.3 * np.random.default_rng(seed + 1).normal(size=len(X))
    cuts = np.quantile(levels, np.arange(1, n_classes) / n_classes)
    return np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[np.digitize(levels, cuts)]


def numbers(X, *, n_outputs=2):
    return np.stack([target(X, seed) * 10.0 ** (seed - 3) for seed in range(3, 3 + n_outputs)], axis=1)


def every_link(X):
    mixed = [Gaussian(2.0), OnColumns(Polynomial(2), [0, 2]) * LinearSpline()]
    mixed += [Matern32(2.0), Matern52([1.0, 2.0, 3.0]), RationalQuadratic(2.0, 0.7), Periodic(3.0, 2.0)]
    yield RVR(mixed, extra_basis="linear", noise_variance=0.02).fit(X, target(X))
    yield RVR(gamma=0.3).fit(X, numbers(X))
    yield SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, np.round(np.exp(X[:, 0])))
    counts = np.round(np.exp(1.0 + target(X, 4)))
    yield RVR(gamma=0.3, likelihood="poisson").fit(X, counts)
    yield RVR(gamma=0.3, likelihood="negative_binomial", dispersion=0.4).fit(X, counts)
    yield RVR(gamma=0.3, likelihood="gamma").fit(X, np.exp(target(X)))
    yield SparseBayesRegressor(likelihood="gamma").fit(X, np.exp(X[:, 0] + target(X)))
    yield RVR(gamma=0.3, likelihood="student_t").fit(X, target(X))
    yield RVC(gamma=0.3).fit(X, labels(X, 2))
    yield RVC(gamma=0.3).fit(X, labels(X, 3))
    yield RVC(gamma=0.3, multi_class="softmax").fit(X, labels(X, 3))
    yield GREVMRegressor(Laplacian(0.3)).fit(X, target(X))
    yield MRVM1(Sigmoid(0.1)).fit(X, labels(X, 2))
    yield MRVM1(gamma=0.3).fit(X, labels(X, 3))
