r"""Error bars that hold: they grow away from the data, and count the parameters that a fit has chosen.

The posterior of the plain model has almost no variance far from its functions. A Gaussian process of
covariance v k, given its values at centres Z, has at x the variance

    v (k(x, x) - k(x, Z) K_ZZ^-1 k(Z, x)),

0 at Z and v k(x, x) far away. 1e-6 of k(x, x) is subtracted, as it may be rounding, and 1e-9 for a Matern
kernel, whose matrices are far from singular. Z are the relevance vectors and the training rows, at most 100,
that this variance is largest at, one after another: a pivoted Cholesky factorisation of K. v makes the mean
of v k(x, x) over the training rows the variance of what the kernel contributes to the fit. Several kernels
add up. Weights with a Gaussian process as their prior have that of the process, without further landmarks: v
is known. The cost is independent of the number of rows.

The variance is multiplied by (N - M) / (N - M - P) for N rows, M weights, and P other parameters that were
fitted to the same rows: the precisions of the weights and the parameters of learned kernels. The noise
variance of a fit, its residual sum of squares over N - sum_j gamma_j (Tipping & Faul 2003), counts weights
only. Under a Gaussian process M are the weights of flat prior, and v is one parameter: all other rows
determine the scale of the targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.linalg import solve_triangular

from .._arrays import Training
from .._checks import check_choice, check_n_jobs
from .._data.basis import learns_kernel, output_weights
from .._data.design import evaluate
from .._types import FloatArray
from ..kernels import Kernel, Matern32, Matern52, OnColumns
from ..kernels._base import all_log_parameters

#: Most landmarks besides the relevance vectors, and most rows that they are chosen from. Of six tables of
#: 2000 rows the mean nlpd is 0.730 with 500, 0.731 with 250 and 0.732 with 2000, which take 20 ms more.
_MAX_LANDMARKS: Final = 100
_MAX_POOL: Final = 500
#: Variances relative to k(x, x): a vector with less than the first is no landmark; others end at the second.
MIN_VARIANCE, MIN_LANDMARK = 1e-6, 1e-3
#: Rows at a time for computing k(x, x) from k(X, X).
_DIAGONAL_ROWS: Final = 64
#: Pivots of a block of the factorisation.
_BLOCK: Final = 128
#: Largest factor of the variance.
_MAX_FACTOR: Final = 4.0


@dataclass(frozen=True, eq=False)
class Growth:
    """The prior of one kernel given its values at the centres Z."""

    kernel: Kernel
    centres: FloatArray
    #: The Cholesky factor of K_ZZ.
    factor: FloatArray
    #: v of each output.
    scale: FloatArray

    def variance(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the variance at these rows, (n, n_outputs)."""
        rest = self._rest(X, self._projection(X, n_threads))
        return np.asarray(rest[:, np.newaxis] * self.scale)

    def covariance(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the covariance of these rows, (n, n, n_outputs)."""
        projection = self._projection(X, n_threads)
        rest = evaluate(self.kernel, X, X, n_threads) - projection.T @ projection
        rest = 0.5 * (rest + rest.T)
        np.fill_diagonal(rest, self._rest(X, projection))
        return np.asarray(rest[:, :, np.newaxis] * self.scale)

    def _rest(self, X: FloatArray, projection: FloatArray) -> FloatArray:
        """Return the variances for v = 1."""
        share = 1.0 - rounding(self.kernel)
        rest = share * diagonal(self.kernel, X) - np.sum(projection**2, axis=0)
        return np.asarray(np.maximum(rest, 0.0))

    def _projection(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        values = evaluate(self.kernel, self.centres, X, n_threads)
        return np.asarray(solve_triangular(self.factor, values, lower=True, check_finite=False))


def rounding(kernel: Kernel, precision: str = "float64") -> float:
    """Return the share of k(x, x) that may be rounding in what landmarks leave of it."""
    if isinstance(kernel, OnColumns):
        return rounding(kernel.inner(), precision)
    return 1e-9 if isinstance(kernel, (Matern32, Matern52)) and precision == "float64" else 1e-6


def check_std(est: Any) -> bool:
    """Return whether error bars grow; raise TypeError or ValueError for an unknown ``std``."""
    return bool(check_choice("std", getattr(est, "std", "plain"), ("full", "plain")) == "full")


def growths(est: Any) -> list[Growth]:
    """Return what the error bars of a fitted model grow by; ValueError if its fit did not prepare it."""
    if not check_std(est):
        return []
    if est._growths is None:
        raise ValueError("std='full' needs landmarks, which a fit with std='full' chooses: fit again")
    return list(est._growths)


def variance_factor(est: Any) -> FloatArray:
    """Return the factor of the variance for fitted parameters, of each output or of all, (C or 1,)."""
    return est._variance_factor if check_std(est) else np.ones(1)


def variance_factor_of(est: Any, n_rows: float | None) -> FloatArray:
    """Return that factor of a fit to so many rows."""
    if n_rows is None or est._likelihood.name != "gaussian" or est.noise_variance is not None:
        return np.ones(1)
    alpha = np.atleast_2d(est.alpha_.T)
    n_weights = np.isfinite(alpha).sum(axis=1)
    n_others = (np.isfinite(alpha) & (alpha > 0.0)).sum(axis=1)
    if has_process(est):  # all rows determine the scale of the process and the noise
        n_weights, n_others = (alpha == 0.0).sum(axis=1), np.ones(1)
    if np.ndim(est.noise_variance_) == 0:  # the outputs share it
        n_weights, n_others = n_weights.mean(keepdims=True), n_others.mean(keepdims=True)
    if learns_kernel(est):
        theta = all_log_parameters(est._basis.kernels)
        n_others = n_others + np.isfinite(theta).sum() / len(alpha)
    share = n_others / np.maximum(n_rows - n_weights, 1.0)
    return np.asarray(1.0 / np.maximum(1.0 - share, 1.0 / _MAX_FACTOR))


def growths_of(est: Any, training: Training | None) -> list[Growth] | None:
    """Choose landmarks among the training rows, or else the candidates; None with plain error bars."""
    if not check_std(est):
        return None
    found: list[Growth] = []
    pool = est.__dict__.get("candidates_") if training is None else training.X
    if pool is None or not est._basis.kernels:
        return found
    counts = None if training is None else training.counts
    if len(pool) > _MAX_POOL:
        chosen = np.linspace(0, len(pool) - 1, _MAX_POOL).astype(np.intp)
        pool, counts = pool[chosen], None if counts is None else counts[chosen]
    if has_process(est):
        pool, counts = pool[:0], None
    block, row = np.divmod(est.active_, est._basis.size)
    weights, n_threads = output_weights(est), check_n_jobs(est.n_jobs)
    for p, kernel in enumerate(est._basis.kernels):
        if not (inside := block == p).any():
            continue
        centres = est.relevance_vectors_[np.searchsorted(est.relevance_, row[inside])]
        if has_process(est):
            scale = np.array([est.process_variance_])
        else:
            own = diagonal(kernel, pool)
            contribution = evaluate(kernel, pool, centres, n_threads) @ weights[:, inside].T
            if est._basis.bias:  # the intercept holds the mean
                contribution = contribution - np.average(contribution, axis=0, weights=counts)
            square = np.average(contribution**2, axis=0, weights=counts)
            height = np.average(own, weights=counts)
            if not height > 0.0:
                continue
            scale = square / height
        at, factor = pivoted(kernel, centres, pool, n_threads, _MAX_LANDMARKS)
        found.append(Growth(kernel, np.vstack([centres, pool])[at], factor, scale))
    return found


def has_process(est: Any) -> bool:
    """Tell whether the weights of a regression have a Gaussian process as their prior."""
    return hasattr(est, "process_variance_") and est._likelihood.has_noise


def pivoted(
    kernel: Kernel,
    centres: FloatArray,
    pool: FloatArray,
    n_threads: int | None,
    most: int,
    least: float = MIN_LANDMARK,
) -> tuple[list[int], FloatArray]:
    """Return centres and at most so many landmarks, numbered as stacked, and the Cholesky factor of K.

    Landmarks end where the variance of all others given them is at most ``least`` times k(x, x).
    """
    points, n = np.vstack([centres, pool]), len(centres)
    K = evaluate(kernel, points, points, n_threads)
    own = np.diag(K).copy()
    if len(pool) == 0 and (factor := _factor(K)) is not None:
        return list(range(n)), factor
    rest = np.maximum(own, 0.0)  # an indefinite kernel may be negative
    pivots: list[int] = []
    rows = np.empty((n + min(most, len(pool)), len(points)))

    def add(j: int) -> None:
        nonlocal K
        k = len(pivots)
        if (begin := k - k % _BLOCK) == k > 0:  # what the last pivots explain, by one product of matrices
            K -= rows[k - _BLOCK : k].T @ rows[k - _BLOCK : k]
        rows[k] = (K[j] - rows[begin:k, j] @ rows[begin:k]) / np.sqrt(rest[j])
        np.maximum(rest - rows[k] ** 2, 0.0, out=rest)
        pivots.append(j)

    for j in range(n):
        if rest[j] > MIN_VARIANCE * abs(own[j]):
            add(j)
    for _ in range(min(most, len(pool))):
        j = n + int(np.argmax(rest[n:]))
        if not rest[j] > least * abs(own[j]):
            break
        add(j)
    return pivots, np.ascontiguousarray(rows[: len(pivots), pivots].T)


def _factor(K: FloatArray) -> FloatArray | None:
    """Return the Cholesky factor of K; None if a variance given those before it may be rounding."""
    try:
        factor = np.linalg.cholesky(K)
    except np.linalg.LinAlgError:
        return None
    is_large = np.diag(factor) ** 2 > MIN_VARIANCE * np.abs(np.diag(K))
    return np.ascontiguousarray(factor) if is_large.all() else None


def diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return k(x, x) of each row."""
    blocks = (X[start : start + _DIAGONAL_ROWS] for start in range(0, len(X), _DIAGONAL_ROWS))
    return np.concatenate([np.diagonal(kernel(block, block)) for block in blocks])
