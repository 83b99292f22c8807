"""Fits of columns in groups that share a precision: docs/theory/groups.md.

Rows are multiplied by the roots of their weights, and columns with a flat prior are projected out of the
others and of the targets (restricted maximum likelihood). The core fits what is left.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from scipy.linalg import block_diag, qr, svd

from .. import _core
from .._arrays import Training
from .._checks import check_flag
from .._data.basis import Basis, groups_of
from .._data.design import matrix
from .._types import FloatArray, IntArray, Settings
from .likelihoods import NEEDED

#: Power of the number of columns that the weight of the prior on complexity is divided by. Derivation:
#: docs/theory/groups.md.
_GROUP_POWER: Final = 0.75


def fit_of_groups(est: Any, basis: Basis, rows: Training, settings: Settings) -> GroupFit:
    """Return the fit of columns in groups, as a function of ``callback``."""
    groups = groups_of(est, basis)
    assert groups is not None
    assert basis.columns is not None
    for name, needed in NEEDED.items():
        if (value := getattr(settings, name)) != needed:
            raise ValueError(f"{name} must be {needed!r} with groups, got {value!r}; or set groups=None")
    if rows.y.ndim == 2 and not check_flag("shared_noise", est.shared_noise):
        raise ValueError(
            "shared_noise must be True with groups where y has several columns; or fit its columns one by one"
        )
    if settings.noise_variances is not None:
        raise ValueError("noise_variance must be one number with groups, got an array")
    Phi = matrix([basis.columns], bias=basis.bias, offset=basis.offset if basis.bias else None)
    flat = list(settings.unpenalized)
    penalized = [group for group in groups if group[0] not in flat]
    complexity = settings.complexity_for(rows.weight, len(groups), rows.y[0].size)
    return GroupFit(Phi, rows.y, rows.weights, penalized, flat, settings, complexity)


class GroupPosterior(NamedTuple):
    """The result of a fit, with the attributes of those of the core."""

    active: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    gamma: FloatArray
    beta: float
    log_evidence: float
    trace: FloatArray
    n_iter: int
    status: str


class GroupFit:
    """The fit of targets, (n, n_outputs), to columns in groups; outputs share precisions and noise."""

    def __init__(
        self,
        Phi: FloatArray,
        t: FloatArray,
        weights: FloatArray | None,
        groups: list[IntArray],
        flat: list[int],
        settings: Settings,
        complexity: float,
    ) -> None:
        root = np.ones(len(Phi)) if weights is None else np.sqrt(weights)
        t = t.reshape(len(t), -1)
        self.groups, self.flat, self.n_outputs = groups, flat, t.shape[1]
        rows = float(np.sum(root**2))
        # Logarithms of determinants need no scale; that of the targets keeps beta near 1.
        deviations = t - np.average(t, axis=0, weights=root**2)
        given, size = settings.noise_variance, float(np.abs(deviations).max()) or 1.0
        variance = float(np.average(np.mean((deviations / size) ** 2, axis=1), weights=root**2))
        self.unit = size * np.sqrt(variance) or 1.0
        largest = float(np.abs(t).max())
        if not (1e-150 < self.unit and largest < 1e150):
            raise ValueError(
                f"y has the standard deviation {self.unit:.4g} and values up to {largest:.4g}, whose squares "
                "are out of range; rescale y to between 1e-150 and 1e150"
            )
        if given is not None and not 1e-100 <= self.unit / given * self.unit <= 1e24:
            raise ValueError(
                f"noise_variance is {given:.4g} and the variance of y is {self.unit**2:.4g}: double "
                "precision cannot resolve both; choose another, or leave it out to estimate it"
            )
        # In units of the largest value of each group products and precisions stay in range.
        self.scales = np.maximum(Phi.max(axis=0, initial=0.0), -Phi.min(axis=0, initial=0.0))
        with np.errstate(over="ignore"):
            if not np.isfinite(len(Phi) * self.scales**2).all():
                raise ValueError("a column of X is not finite or too large to square; rescale X")
        members, sizes = np.concatenate([np.zeros(0, np.intp), *groups]), [len(group) for group in groups]
        if groups:
            of_groups = np.maximum.reduceat(self.scales[members], np.cumsum([0, *sizes[:-1]]))
            self.scales[members] = np.repeat(of_groups, sizes)
        self.scales[self.scales == 0.0] = 1.0
        Phi = np.divide(Phi, self.scales, order="F")
        if weights is not None:
            Phi, t = root[:, np.newaxis] * Phi, root[:, np.newaxis] * t
        self.F = Phi[:, flat]
        self.norms = np.sqrt(np.sum(self.F**2, axis=0))
        self.raw, self.raw_t, t = Phi, t, t / self.unit
        if flat:
            Q, R = qr(self.F / self.norms, mode="economic")
            ln_volume = float(np.log(np.abs(np.diag(R))).sum())
            Phi, t = Phi - Q @ (Q.T @ Phi), t - Q @ (Q.T @ t)
        else:
            ln_volume = 0.0
        n_contrasts = max(rows - len(flat), 0.0)
        # As many columns as rows give the same model as more columns: docs/theory/groups.md.
        self.rotations: dict[int, FloatArray] = {}
        kept, Phi = list(groups), np.asfortranarray(Phi)
        for g, group in enumerate(groups):
            if len(group) > len(Phi):
                Phi = Phi.copy(order="F") if Phi is self.raw else Phi
                U, s, self.rotations[g] = svd(Phi[:, group], full_matrices=False)
                kept[g] = group[: len(s)]
                Phi[:, kept[g]] = U * s
        self.problem: dict[str, Any] = {
            "Phi": Phi,
            "targets": np.asfortranarray(t),
            "groups": [group.tolist() for group in kept],
            "shares": np.array(sizes, dtype=float) ** -_GROUP_POWER,
            "n_contrasts": n_contrasts,
            "n_flat": len(flat),
            "beta": None if given is None else self.unit**2 / given,
            "complexity": complexity,
            "unit": self.unit,
            # The evidence is that of the targets in their own units, as the core has it.
            "offset": self.n_outputs * (n_contrasts * np.log(self.unit) + ln_volume),
            "tol": settings.tol,
            "max_iter": settings.max_iter,
            "n_threads": settings.n_threads,
        }

    def __call__(self, callback: Any = None) -> GroupPosterior:
        """Return the posterior at a maximum of the evidence, in the units of the targets."""
        found = _core.fit_groups(**self.problem, callback=callback)
        columns = np.concatenate([np.zeros(0, np.intp), *(self.groups[g] for g in found["active"])])
        sizes = [len(self.groups[g]) for g in found["active"]]
        alpha, f = np.repeat(found["alpha"], sizes) / self.unit**2, len(self.flat)
        mu, sigma = self._of_all_columns(found)
        sigma, mu, beta = self.unit**2 * sigma, self.unit * mu, found["beta"] / self.unit**2
        gamma = 1.0 - alpha * np.diag(sigma)
        if f > 0:
            inverse = np.linalg.inv((self.F / self.norms).T @ (self.F / self.norms))
            inverse /= np.outer(self.norms, self.norms)
            B = inverse @ (self.F.T @ self.raw[:, columns])
            of_flat = inverse @ (self.F.T @ (self.raw_t - self.raw[:, columns] @ mu))
            sigma = np.block([[inverse / beta + B @ sigma @ B.T, -B @ sigma], [-sigma @ B.T, sigma]])
            mu, alpha = np.vstack([of_flat, mu]), np.append(np.zeros(f), alpha)
            gamma = np.append(np.ones(f), gamma)
            columns = np.append(np.array(self.flat, dtype=np.intp), columns)
        scales = self.scales[columns]
        sigma, mu = sigma / scales / scales[:, np.newaxis], mu / scales[:, np.newaxis]
        alpha = alpha * scales * scales
        order = np.argsort(columns, kind="stable")
        return GroupPosterior(
            active=columns[order],
            alpha=alpha[order],
            mu=mu[order] if self.n_outputs > 1 else mu[order, 0],
            sigma=sigma[np.ix_(order, order)],
            gamma=gamma[order],
            beta=beta,
            log_evidence=float(found["trace"][-1]),
            trace=found["trace"],
            n_iter=len(found["trace"]) - 1,
            status=found["status"],
        )

    def _of_all_columns(self, found: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the weights of all columns of the groups in the model.

        With V the rows of a rotation, w = V^T z + v: z is what the fit found, and v keeps its prior.
        """
        active, mu, sigma = found["active"], found["mu"], found["sigma"]
        if self.rotations.keys().isdisjoint(active):
            return mu, sigma
        rotations = [self.rotations.get(g, np.eye(len(self.groups[g]))) for g in active]
        rest = [
            (np.eye(V.shape[1]) - V.T @ V) / alpha for V, alpha in zip(rotations, found["alpha"], strict=True)
        ]
        V = block_diag(*rotations)
        return V.T @ mu, V.T @ sigma @ V + block_diag(*rest)
