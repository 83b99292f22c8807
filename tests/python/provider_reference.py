"""Sums over rows in plain NumPy, from the formulae of the documentation, without code of the package."""

import math

import numpy as np


class NumpyRows:
    """All that a fit may ask of rows; only ``PyStatistics`` is left out, so that nothing is inherited."""

    def __init__(self, Phi, t, weights=None, likelihood="gaussian"):
        self.Phi, self.t = np.asarray(Phi, float), np.asarray(t, float)
        self.v = np.ones(len(self.t)) if weights is None else np.asarray(weights, float)
        self.n_basis, self.likelihood = self.Phi.shape[1], likelihood
        self.asked = []

    def _rows(self, active, mu):
        """Deviance, working residuals, working weights and their derivatives."""
        eta, t = self.Phi[:, active] @ mu, self.t
        if self.likelihood == "gaussian":
            deviance, r, w, skew = (t - eta) ** 2, t - eta, np.ones_like(t), np.zeros_like(t)
        elif self.likelihood == "bernoulli":
            s = 1.0 / (1.0 + np.exp(-eta))
            deviance = -2.0 * (t * eta - np.logaddexp(0.0, eta))
            r, w, skew = t - s, s * (1.0 - s), s * (1.0 - s) * (1.0 - 2.0 * s)
        else:
            mean, factorials = np.exp(eta), np.array([math.lgamma(k + 1.0) for k in t])
            deviance = -2.0 * (t * eta - mean - factorials)
            r, w, skew = t - mean, mean, mean
        return self.v @ deviance, self.v * r, self.v * w, self.v * skew

    def target_moments(self, centre):
        self.asked.append("target_moments")
        difference = self.t - centre
        return [self.v.sum(), self.v @ difference, self.v @ difference**2]

    def deviance(self, active, mu):
        self.asked.append("deviance")
        return self._rows(active, mu)[0]

    def gradient(self, active, mu):
        self.asked.append("gradient")
        deviance, r, _, _ = self._rows(active, mu)
        return deviance, self.Phi[:, active].T @ r

    def among(self, active, mu, js):
        self.asked.append("among")
        deviance, r, w, _ = self._rows(active, mu)
        columns = self.Phi[:, js]
        return deviance, columns.T @ r, columns.T @ (w[:, None] * columns)

    def sweep(self, active, mu, wanted):
        self.asked.append("sweep")
        deviance, r, w, _ = self._rows(active, mu)
        gram = self.Phi.T @ (w[:, None] * self.Phi[:, wanted])
        return deviance, self.Phi.T @ r, (w[:, None] * self.Phi**2).sum(axis=0), gram

    def variance_drift(self, active, mu, sigma):
        self.asked.append("variance_drift")
        T = self.Phi[:, active] @ sigma
        return (T**2).T @ (self._rows(active, mu)[3][:, None] * T)
