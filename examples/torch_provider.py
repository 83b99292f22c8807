"""Fit a model to rows that stay in torch, on a GPU if there is one, through a provider.

    python examples/torch_provider.py

The code uses only functions that torch and NumPy share, as `xp`, so the tests run it on NumPy.
"""

import numpy as np

from sparsebayes import PyStatistics, SparseBayesClassifier


class ArrayRows(PyStatistics):
    """Rows of a logistic model as arrays of `xp`; `place` moves an array to their device."""

    likelihood = "bernoulli"

    def __init__(self, xp, Phi, t, place):
        self.xp, self.place = xp, place
        self.Phi, self.t = place(Phi), place(t)
        self.n_samples, self.n_basis = Phi.shape

    def _rows(self, active, mu):
        """Return the columns `active` and, with weights mu, deviance, residuals and weights of rows."""
        xp, columns = self.xp, self.Phi[:, self.place(active)]
        eta = columns @ self.place(mu)
        s = 1.0 / (1.0 + xp.exp(-eta))
        # ln(1 + exp(eta)) in a form that does not overflow.
        softplus = xp.log1p(xp.exp(-xp.abs(eta))) + 0.5 * (eta + xp.abs(eta))
        return columns, -2.0 * (self.t * eta - softplus).sum(), self.t - s, s * (1.0 - s)

    def target_moments(self, centre):
        """Return sums of 1, t - centre and its square."""
        t = self.t - centre
        return np.array([self.n_samples, float(t.sum()), float((t * t).sum())])

    def deviance(self, active, mu):
        """Return minus twice the log likelihood."""
        return float(self._rows(active, mu)[1])

    def among(self, active, mu, js):
        """Return the products among a few functions."""
        _, deviance, r, w = self._rows(active, mu)
        columns = self.Phi[:, self.place(js)]
        return float(deviance), host(columns.T @ r), host(columns.T @ (w[:, None] * columns))

    def sweep(self, active, mu, wanted):
        """Return the products of all functions."""
        _, deviance, r, w = self._rows(active, mu)
        gram = self.Phi.T @ (w[:, None] * self.Phi[:, self.place(wanted)])
        return float(deviance), host(self.Phi.T @ r), host(w @ self.Phi**2), host(gram)

    def variance_drift(self, active, mu, sigma):
        """Return the change of the variances with the mode, through the weights of the rows."""
        columns, _, r, w = self._rows(active, mu)
        T, s = columns @ self.place(sigma), self.t - r
        return host((T * T).T @ ((w * (1.0 - 2.0 * s))[:, None] * T))


def host(array):
    """Return an array of any device as a NumPy array."""
    return array.cpu().numpy() if hasattr(array, "cpu") else array


def data(n=20_000, k=100):
    """Return columns, two of which matter, and classes."""
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(n, k))
    return Phi, (Phi[:, 3] - 0.5 * Phi[:, 7] + rng.logistic(size=n) > 0).astype(float)


def main():
    """Fit the rows in torch, and in memory."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    Phi, t = data()
    rows = ArrayRows(torch, Phi, t, lambda array: torch.as_tensor(array, device=device))
    model = SparseBayesClassifier(fit_intercept=False).fit_provider(rows, classes=[0.0, 1.0])
    in_memory = SparseBayesClassifier(fit_intercept=False).fit(Phi, t)
    difference = abs(model.coef_ - in_memory.coef_).max()
    print(f"on {device}: {len(model.active_)} functions, weights of the fit in memory to {difference:.1e}")


if __name__ == "__main__":
    main()
