"""Models whose kernel functions stand anywhere: their evidence, its gradient, and S and Q of others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky
from scipy.special import expit

from ._evidence import Evidence, gaussian, laplace, solved
from ._kernel_centres import Pull, about
from ._learning import LearningData
from ._types import FloatArray, IntArray
from .kernels import Kernel


@dataclass(frozen=True)
class Placed:
    """Functions and precisions of a model: f without a kernel, then m kernel functions about centres."""

    #: Columns of `LearningData.fixed`, length f.
    fixed: IntArray
    #: The kernel of each kernel function by its number, length m.
    kernel: IntArray
    #: Their centres, m x d.
    centres: FloatArray
    #: Of all functions, length f + m.
    log_alpha: FloatArray
    #: 0 for a likelihood without noise.
    log_beta: float

    def __len__(self) -> int:
        """Return the number of functions."""
        return len(self.log_alpha)

    def without(self, places: list[int]) -> Placed:
        """Return the model without the functions at these places of ``log_alpha``."""
        stays = np.ones(len(self), dtype=bool)
        stays[places] = False
        fixed, kernels = np.split(stays, [len(self.fixed)])
        return replace(
            self,
            fixed=self.fixed[fixed],
            kernel=self.kernel[kernels],
            centres=self.centres[kernels],
            log_alpha=self.log_alpha[stays],
        )

    def plus(self, kernel: int, centre: FloatArray, log_alpha: float) -> Placed:
        """Return the model with another kernel function."""
        return replace(
            self,
            kernel=np.append(self.kernel, kernel),
            centres=np.vstack([self.centres, centre]),
            log_alpha=np.append(self.log_alpha, log_alpha),
        )


@dataclass(frozen=True)
class Quadratic:
    """The log-likelihood about a posterior mean, and the posterior there: all that S and Q are made of.

    Exact for a Gaussian; otherwise the Laplace approximation (Tipping & Faul 2003, section 2.2).
    """

    #: N x (f + m).
    Phi: FloatArray
    #: Curvature and slope of each row in its linear predictor, length N.
    curvature: FloatArray
    slope: FloatArray
    sigma: FloatArray
    mu: FloatArray

    def factors(self, phi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return S and Q of functions outside, length c, and half of dS/dphi, N x c; dQ/dphi is ``slope``.

        ``phi``: their values, N x c. Tipping & Faul (2003), equations 24 and 25.
        """
        weighted = self.curvature[:, np.newaxis] * phi
        inner = self.sigma @ (self.Phi.T @ weighted)
        left = weighted - self.curvature[:, np.newaxis] * (self.Phi @ inner)
        return np.sum(phi * left, axis=0), phi.T @ self.slope, left

    def without(self, places: list[int], log_alpha: FloatArray) -> Quadratic:
        """Return the same with some functions out, the quadratic and all other precisions held."""
        stays = np.setdiff1d(np.arange(len(self.mu)), places)
        Phi = self.Phi[:, stays]
        weighted = self.curvature[:, np.newaxis] * Phi
        sigma = _posterior_covariance(Phi.T @ weighted, log_alpha[stays])
        eta = self.Phi @ self.mu
        # The working targets less the mean, times the curvature, without a division by what may be 0.
        right = Phi.T @ (self.slope + self.curvature * eta)
        mu = sigma @ right
        slope = self.slope + self.curvature * (eta - Phi @ mu)
        return Quadratic(Phi, self.curvature, slope, sigma, mu)


@dataclass(frozen=True)
class Place:
    """Kernels, rows and targets that models are about."""

    kernels: list[Kernel]
    data: LearningData
    target: FloatArray

    @property
    def estimated(self) -> bool:
        """Whether the noise is estimated."""
        return self.data.likelihood == "gaussian" and self.data.noise_variance is None

    def values(self, model: Placed) -> tuple[FloatArray, list[tuple[IntArray, Pull]]]:
        """Return Phi, and for each kernel its functions among those with a centre and how to pull back."""
        Phi = np.empty((len(self.data.X), len(model)))
        n_fixed = len(model.fixed)
        Phi[:, :n_fixed] = self.data.fixed[:, model.fixed]
        pulls = []
        for k, kernel in enumerate(self.kernels):
            at = np.flatnonzero(model.kernel == k)
            if len(at) > 0:
                Phi[:, n_fixed + at], pull = about(kernel, self.data.X, model.centres[at])
                pulls.append((at, pull))
        return Phi, pulls

    def evidence(self, model: Placed, start: FloatArray | None = None) -> tuple[Evidence, FloatArray] | None:
        """Return the evidence and its gradient in the centres, m x d; None where arithmetic breaks down."""
        Phi, pulls = self.values(model)
        found = self._evidence(Phi, model, start)
        if found is None:
            return None
        slopes, n_fixed = np.zeros_like(model.centres), len(model.fixed)
        for at, pull in pulls:
            slopes[at] = pull(found.functions[:, n_fixed + at])
        return found, slopes

    def _evidence(self, Phi: FloatArray, model: Placed, start: FloatArray | None) -> Evidence | None:
        data = self.data
        if data.likelihood == "gaussian":
            return gaussian(Phi, self.target, data.weights, model.log_alpha, model.log_beta)
        return laplace(Phi, self.target, data.weights, model.log_alpha, start)

    def quadratic(self, model: Placed) -> Quadratic | None:
        """Return the quadratic about the posterior mean; None where the arithmetic breaks down."""
        Phi, _ = self.values(model)
        found = self._evidence(Phi, model, None)
        if found is None:
            return None
        mu = found.mean * np.exp(-0.5 * model.log_alpha)
        eta, w = Phi @ mu, self.data.weights
        if self.data.likelihood == "gaussian":
            curvature = np.exp(model.log_beta) * w
            slope = curvature * (self.target - eta)
        else:
            p, q = expit(eta), expit(-eta)
            curvature, slope = w * p * q, w * (self.target * q - (1.0 - self.target) * p)
        sigma = _posterior_covariance(Phi.T @ (curvature[:, np.newaxis] * Phi), model.log_alpha)
        return Quadratic(Phi, curvature, slope, sigma, mu)


def _posterior_covariance(gram: FloatArray, log_alpha: FloatArray) -> FloatArray:
    """Return (A + gram)^-1, in units in which A is 1: positive definite whatever the precisions."""
    root = np.exp(-0.5 * log_alpha)
    H = np.eye(len(root)) + root[:, np.newaxis] * gram * root
    factor = cholesky(H, lower=True) if len(root) > 0 else H
    covariance: FloatArray = root[:, np.newaxis] * solved(factor, np.eye(len(root))) * root
    return covariance
