"""Small problems for exported headers."""

import numpy as np

from sparsebayes import MRVM1, RVC, RVR, GREVMRegressor, SparseBayesRegressor
from sparsebayes.kernels import Gaussian, Laplacian, LinearSpline, OnColumns, Polynomial, Sigmoid


def rows(n=40, seed=7):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32).astype(np.float64)


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
    yield RVR(mixed, extra_basis="linear", noise_variance=0.02).fit(X, target(X))
    yield RVR(gamma=0.3).fit(X, numbers(X))
    yield SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, np.round(np.exp(X[:, 0])))
    yield RVC(gamma=0.3).fit(X, labels(X, 2))
    yield RVC(gamma=0.3).fit(X, labels(X, 3))
    yield RVC(gamma=0.3, multi_class="softmax").fit(X, labels(X, 3))
    yield GREVMRegressor(Laplacian(0.3)).fit(X, target(X))
    yield MRVM1(Sigmoid(0.1)).fit(X, labels(X, 2))
    yield MRVM1(gamma=0.3).fit(X, labels(X, 3))
