r"""Weights of a regression under the prior of a Gaussian process.

Where noise is small, many functions are needed, and one smooth prior of all of them predicts better than few
with a precision each. About Z, the relevance vectors and landmarks among the candidates, the mean of y is

    b + h(x)^T c + k(x, Z) w,    w ~ N(0, v K_ZZ^-1),    c_j ~ N(0, v),

with a flat prior of b and columns h of mean square 1. v and the noise variance s^2 maximise the evidence. In
the basis F = k(x, Z) L^-T, K_ZZ = L L^T, beside the columns, and without what the functions of flat prior
explain, F^T F = Q T Q^T with a tridiagonal T, and with g = v / s^2 and q = Q^T F^T y

    -2 ln p(y) = n ln s^2 + ln |I + g T| + (y^T y - q^T (T + I / g)^-1 q) / s^2 + const,

whose maximum over s^2 is known: one number is left to be found. A row of weight w counts like w equal rows.
Landmarks end where further ones raise the variational bound of the evidence by little: where the sum over the
rows of v (k(x, x) - k(x, Z) K_ZZ^-1 k(Z, x)) / (2 s^2) is at most 1 (Titsias 2009, equation 9).

The process also finds the first weights of the rows under Student's t. Outliers show beside a good fit only.
Functions with a precision of their own each can follow single rows; a process, which has one scale for all
functions, hardly can. With q(f) q(lambda) as in `noise`, the bound of the evidence is maximised in
turn by the process of weighted rows, with v and the noise at their best, by the row weights, and by the
lengths of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dormqr, dpttrf, dpttrs, dsytrd
from scipy.optimize import minimize_scalar

from .._arrays import Training
from .._cancellable import begin, blas_workers, in_background
from .._data.basis import Basis, as_given
from .._data.candidates import CHOSEN, choose
from .._hyper.evidence import CovarianceEvidence, draw
from .._types import FloatArray, IntArray, Settings
from ..kernels import Kernel, Matern32, Matern52
from ..kernels._base import all_log_parameters, column_stds, with_all_log_parameters
from .noise import OF_ROWS, RowWeights
from .posterior import MIN_LANDMARK, MIN_VARIANCE
from .process import Functions, beside, functions_about

#: Rows at a time.
_ROWS: Final = 1024
#: Columns of a block of LAPACK's reduction to tridiagonal form.
_TRIDIAGONAL_BLOCK: Final = 64
#: Accuracy of ln g.
_TOL: Final = 1e-8
#: Share of the functions that another fit has to do without.
_MIN_FEWER: Final = 0.1
#: Values of ln g that are tried first, up to that of the variance which may be rounding; the best is sought
#: between the neighbours of the best of them.
_LOG_RATIOS: Final = np.arange(-12.0, -np.log(MIN_VARIANCE), 0.5)
#: Largest v of ``landmarks="auto"`` relative to the variance of y: large ones, with long lengths, imitate
#: polynomials, and beyond the rows few functions and linear terms predict better. The rougher a kernel, the
#: lower the degree of these.
_MAX_VARIANCE: Final = 10.0
_MAX_ROUGH_VARIANCE: Final[dict[type[Kernel], float]] = {Matern52: 30.0, Matern32: 100.0}
#: Change of the log of a row weight of Student's t that ends an alternation, and the most steps of one; first
#: with so many landmarks, then a few steps with all.
_SMALL_CHANGE: Final = 0.1
_MAX_REWEIGHTINGS: Final = 30
_FIRST_LANDMARKS: Final = 300
_LAST_REWEIGHTINGS: Final = 2
#: Most rows whose weights the process alternates with; those of others follow.
_MAX_WEIGHED_ROWS: Final = 5000
#: Landmarks of the process. Measured: docs/notebook/robust.md.
_WEIGHING_LANDMARKS: Final = 100
#: Most rows whose evidence lengths maximise, L-BFGS iterations, and how often.
_LENGTH_ROWS: Final = 400
_ITERATIONS: Final = 12
_ROUNDS: Final = 3
#: Size of a residual above which a row is an outlier, in units of the scale of Student's t. Measured:
#: docs/notebook/robust.md.
_OUTLIER: Final = 4.0


class _Fit(NamedTuple):
    """Weights in the basis of some functions, their covariance, v, and the noise variance."""

    functions: Functions
    mean: FloatArray
    #: R and A: without what the functions of flat prior explain, F_w - F_f A, the weights have the
    #: covariance s^2 (R^T R)^-1.
    root: FloatArray
    explained: FloatArray
    #: Covariance of the weights of flat prior if the others are known.
    of_flat: FloatArray
    variance: float
    noise: float
    #: What was subtracted from y, to keep its digits; the intercept holds it.
    shift: float

    def scaled(self, F: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return B and D for values F of the functions, whose covariance is B B^T + D of_flat D^T."""
        flat = _have_flat_prior(self.functions)
        D = F[:, flat]
        rest = F[:, ~flat] - D @ self.explained
        B = solve_triangular(self.root, rest.T, trans="T", check_finite=False).T
        return np.sqrt(self.noise) * B, D


def estimate_regression(
    est: Any,
    basis: Basis,
    process: Basis,
    active: IntArray,
    training: Training,
    n_landmarks: int,
    settings: Settings,
    row_weights: RowWeights | None,
) -> tuple[Basis, Training, tuple[FloatArray, FloatArray] | None]:
    """Replace the published posterior of a selection by that under the prior of a Gaussian process.

    ``process``: its kernels, and its dictionary, which may have more centres than ``basis``. ``row_weights``:
    those of Student's t to begin with; others suit the process. Return the basis, the weighted rows and the
    moments of the mean at the rows; None if the selection remains, as numbers near their limits leave no
    Cholesky factor.
    """

    def work(pulse: Callable[[], None]) -> tuple[_Fit, FloatArray, FloatArray]:
        with blas_workers(settings.n_threads) as pool, np.errstate(all="ignore"):
            rows = ProcessOfRows(process, training, settings, pool, pulse)
            if row_weights is not None:
                rows.weigh(row_weights)
                with rows.stored(rows.functions(active, _FIRST_LANDMARKS, MIN_VARIANCE)) as few:
                    rows.alternate(row_weights, rows.fit(few), _MAX_REWEIGHTINGS)
            fit = rows.fit(rows.functions(active, n_landmarks, MIN_VARIANCE))
            least = min(2.0 * fit.noise / (rows.weights.sum() * fit.variance), MIN_LANDMARK)
            if np.sum(fit.functions.rests <= least) > _MIN_FEWER * len(fit.functions.names):
                fit = rows.fit(rows.functions(active, n_landmarks, least))
            if row_weights is not None:
                fit = rows.alternate(row_weights, fit, _LAST_REWEIGHTINGS)
            return fit, *rows.moments(fit)

    try:
        fit, *at_rows = in_background(work)
    except np.linalg.LinAlgError:
        return basis, training, None
    names, whitening = fit.functions.names, fit.functions.whitening
    of_rows = () if row_weights is None else OF_ROWS
    kept = ("active_", "alpha_", "mu_", "sigma_", "beta_", "noise_variance_", *of_rows)
    est._selection = {name: getattr(est, name) for name in kept}
    if basis.kernels:
        est._selection["kernel_"] = as_given(est, basis.kernels)
    if process.kept is not basis.kept:
        est._selection |= {name: est.__dict__[name] for name in CHOSEN}
        choose(est, training, process.kept)
        est._n_basis = process.n_basis
    est.active_, est.process_variance_ = names, fit.variance
    B, D = fit.scaled(whitening)
    est.mu_, est.sigma_ = whitening @ fit.mean, B @ B.T + D @ fit.of_flat @ D.T
    est.mu_[names == -1] += fit.shift
    precisions = fit.functions.precision / fit.variance
    est.alpha_ = np.where(_have_flat_prior(fit.functions), 0.0, precisions)
    if row_weights is not None:
        row_weights.publish(est, training)
        training = row_weights.weighted(training)
    noise = fit.noise / (1.0 if training.noise is None else training.noise.variance)
    est.noise_variance_, est.beta_ = noise, 1.0 / noise
    return fit.functions.basis, training, (at_rows[0][:, np.newaxis], at_rows[1][:, np.newaxis])


def has_large_variance(est: Any, process: Basis, training: Training) -> bool:
    """Tell whether v of the process that was published is larger than new rows allow."""
    (std,) = column_stds(training.y[:, np.newaxis], training.weights)
    return bool(est.process_variance_ > max_variance(process.kernels) * std**2)


def max_variance(kernels: list[Kernel]) -> float:
    """Return the largest v relative to the variance of y that new rows allow."""
    return min(_MAX_ROUGH_VARIANCE.get(type(kernel), _MAX_VARIANCE) for kernel in kernels)


def _have_flat_prior(functions: Functions) -> NDArray[np.bool_]:
    flat: NDArray[np.bool_] = functions.is_flat | (functions.names == -1)
    return flat


class ProcessOfRows:
    """The rows of a fit under the prior of a process, by blocks."""

    def __init__(
        self,
        basis: Basis,
        training: Training,
        settings: Settings,
        pool: ThreadPoolExecutor,
        pulse: Callable[[], None],
    ) -> None:
        self.basis, self._settings, self._pool, self._pulse = basis, settings, pool, pulse
        self._X, self._y = training.X, training.y
        self._counts = training.row_counts
        self.weights = self._counts if training.weights is None else training.weights
        self._noise_variance, self._stored = settings.noise_variance, dict[int, FloatArray]()

    def functions(self, active: IntArray, n_landmarks: int, least: float) -> Functions:
        """Return these functions and those about landmarks."""
        rows = self._X, self.basis.columns, self._counts
        return functions_about(self.basis, active, *rows, n_landmarks, self._settings, least)

    @contextmanager
    def stored(self, functions: Functions) -> Iterator[Functions]:
        """Keep the values of these functions, for several fits with other weights."""
        blocks = range(0, len(self._y), _ROWS)
        values = self._of_blocks(self._values, functions)
        self._stored = dict(zip(blocks, values, strict=True))
        yield functions
        self._stored = {}

    def fit(self, functions: Functions) -> _Fit:
        """Return the posterior at the v and the noise of largest evidence."""
        m, flat = len(functions.names), _have_flat_prior(functions)
        shift = float(np.average(self._y, weights=self.weights)) if self.basis.bias else 0.0
        sums = np.zeros((m + 1, m + 1))
        for part in self._of_blocks(self._products, functions, shift):
            sums += part
        (G, b), square, weight = (sums[:m, :m], sums[:m, m]), sums[m, m], float(self.weights.sum())
        # Without what the functions of flat prior explain.
        A, C, d, inverse = G[np.ix_(flat, ~flat)], G[np.ix_(~flat, ~flat)], b[~flat], np.zeros((0, 0))
        if flat.any():
            inverse = cho_solve(cho_factor(G[np.ix_(flat, flat)], lower=True), np.eye(int(flat.sum())))
            A = inverse @ A
            C = C - G[np.ix_(~flat, flat)] @ A
            d, square = d - A.T @ b[flat], square - b[flat] @ inverse @ b[flat]
        self._pulse()
        noise_and_cost = _evidence(C, d, square, weight - flat.sum(), self._noise_variance)
        first = [noise_and_cost(x)[1] for x in _LOG_RATIOS]
        x = _LOG_RATIOS[int(np.argmin(np.where(np.isfinite(first), first, np.inf)))]
        step = _LOG_RATIOS[1] - _LOG_RATIOS[0]
        options: Any = {"bounds": (x - step, x + step), "method": "bounded", "options": {"xatol": _TOL}}
        x = minimize_scalar(lambda at: noise_and_cost(at)[1], **options).x
        noise = noise_and_cost(x)[0]
        if not 0.0 < noise < np.inf:
            raise np.linalg.LinAlgError
        C[np.diag_indices(len(C))] += np.exp(-x)
        root, mean = cholesky(C), np.empty(m)
        mean[~flat] = cho_solve((root, False), d)
        mean[flat] = inverse @ b[flat] - A @ mean[~flat]
        return _Fit(functions, mean, root, A, noise * inverse, float(noise * np.exp(x)), float(noise), shift)

    def moments(self, fit: _Fit) -> tuple[FloatArray, FloatArray]:
        """Return the mean of y at the rows, and its variance."""
        means, variances = zip(*self._of_blocks(self._moments, fit), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def weigh(self, weights: RowWeights) -> None:
        """Take the weights of Student's t for the next fits."""
        self.weights = weights.of_fit
        self._noise_variance = weights.settings(self._settings).noise_variance

    def alternate(self, weights: RowWeights, fit: _Fit, most: int) -> _Fit:
        """Alternate between the weights of Student's t and fits, from one with these; return the last."""
        for _ in range(most):
            change = weights.update(self.squares(fit), fit.noise)
            if not np.isfinite(change) or fit.noise * weights.unit <= weights.least_noise:
                raise np.linalg.LinAlgError
            self.weigh(weights)
            fit = self.fit(fit.functions)
            if change <= _SMALL_CHANGE:
                break
        return fit

    def squares(self, fit: _Fit) -> FloatArray:
        """Return the expectation of the squared residual of each row."""
        mean, variance = self.moments(fit)
        return np.asarray((self._y - mean) ** 2 + variance)

    def _of_blocks(self, work: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Return the results of blocks of rows, in their order."""
        blocks = [slice(at, at + _ROWS) for at in range(0, len(self._y), _ROWS)]
        return (call.result() for call in [begin(self._pool, work, block, *arguments) for block in blocks])

    def _values(self, block: slice, functions: Functions) -> FloatArray:
        self._pulse()
        if (stored := self._stored.get(block.start)) is not None:
            return stored
        columns, n_threads = self.basis.columns, self._settings.n_threads
        own = None if columns is None else columns[block]
        phi = functions.basis.functions(functions.names, self._X[block], n_threads, own)
        return phi @ functions.whitening

    def _products(self, block: slice, functions: Functions, shift: float) -> FloatArray:
        both = np.column_stack([self._values(block, functions), self._y[block] - shift])
        both *= np.sqrt(self.weights[block, np.newaxis])
        return both.T @ both

    def _moments(self, block: slice, fit: _Fit) -> tuple[FloatArray, FloatArray]:
        F = self._values(block, fit.functions)
        B, D = fit.scaled(F)
        return F @ fit.mean + fit.shift, np.sum(B**2, axis=1) + np.sum((D @ fit.of_flat) * D, axis=1)


def _evidence(
    C: FloatArray, d: FloatArray, square: float, n: float, given: float | None
) -> Callable[[float], tuple[float, float]]:
    """Return a function of ln g with the values s^2, which may be given, and -2 ln p(y) but for constants.

    C = F^T F, d = F^T y and y^T y, without what n fewer functions of flat prior than rows explain.
    """
    m = len(d)
    reflectors, diagonal, beside, tau, _ = dsytrd(C, lower=1, lwork=_TRIDIAGONAL_BLOCK * m)
    q = d[:, np.newaxis].copy()
    if m > 1:
        q[1:], *_ = dormqr("L", "T", reflectors[1:, :-1], tau, q[1:], _TRIDIAGONAL_BLOCK)
    else:
        beside = np.zeros(1)  # LAPACK's interface wants one number

    def noise_and_cost(log_ratio: float) -> tuple[float, float]:
        pivots, factors, info = dpttrf(diagonal + np.exp(-log_ratio), beside)
        if info != 0:
            return np.nan, np.inf
        solved, _ = dpttrs(pivots, factors, q)
        rest = square - float(np.vdot(q, solved))
        noise = rest / n if given is None else given
        return noise, n * np.log(noise) + np.sum(np.log(pivots)) + m * log_ratio + rest / noise

    return noise_and_cost


# --- the first weights of the rows under Student's t --------------------------------------------------


def row_weights(
    basis: Basis,
    kernels: list[Kernel],
    training: Training,
    settings: Settings,
    freedom: float,
    *,
    learns: bool,
) -> tuple[FloatArray, NDArray[np.bool_]] | None:
    """Return E[lambda] of each row and whether it is an outlier; None if rounding leaves no process.

    ``kernels``: with the lengths to begin with; ``learns``: whether others may be better.
    """
    whole = replace(basis, kernels=kernels)

    def work(pulse: Callable[[], None]) -> tuple[FloatArray, NDArray[np.bool_]]:
        with blas_workers(settings.n_threads) as pool, np.errstate(all="ignore"):
            own = settings, pool, pulse
            basis, part = _part(whole, training, draw(len(training.y), _MAX_WEIGHED_ROWS))
            weights = RowWeights.of(freedom, part, settings)
            fit, x = _weigh(ProcessOfRows(basis, part, *own), weights), None
            for _ in range(_ROUNDS if learns else 0):
                if (x := _best_lengths(basis, part, weights, settings, x, pulse)) is None:
                    break
                theta = x[: len(all_log_parameters(basis.kernels))]
                basis = replace(basis, kernels=with_all_log_parameters(basis.kernels, theta))
                fit = _weigh(ProcessOfRows(basis, part, *own), weights)
            squares = ProcessOfRows(whole, training, *own).squares(fit)
            scaled = squares / (fit.noise * weights.unit)
            found = weights.best(scaled)
            if not np.isfinite(found).all():
                raise np.linalg.LinAlgError
            return found, scaled > _OUTLIER**2

    try:
        return in_background(work)
    except np.linalg.LinAlgError:
        return None


def _part(basis: Basis, training: Training, at: IntArray) -> tuple[Basis, Training]:
    """Return the basis with the columns of these rows, and the rows."""
    weights = None if training.weights is None else training.weights[at]
    columns = None if basis.columns is None else basis.columns[at]
    part = replace(training, X=training.X[at], y=training.y[at], weights=weights, rows=training.rows[at])
    return replace(basis, columns=columns), part


def _weigh(rows: ProcessOfRows, weights: RowWeights) -> _Fit:
    """Alternate between the process of weighted rows and their weights; return the last process."""
    rows.weigh(weights)
    with rows.stored(rows.functions(beside(rows.basis), _WEIGHING_LANDMARKS, MIN_VARIANCE)) as functions:
        return rows.alternate(weights, rows.fit(functions), _MAX_REWEIGHTINGS)


def _best_lengths(
    basis: Basis,
    training: Training,
    weights: RowWeights,
    settings: Settings,
    start: FloatArray | None,
    pulse: Callable[[], None],
) -> FloatArray | None:
    """Return where the evidence of weighted rows is largest, from ``start`` on; None if y has one value."""
    X = training.X
    some = draw(len(X), _LENGTH_ROWS)
    w, y = weights.of_fit[some], training.y[some]
    w = w * (len(w) / w.sum())
    y = y - np.average(y, weights=w)
    if not 0.0 < (std := float(np.sqrt(np.average(y**2, weights=w)))) < np.inf:
        return None
    columns = np.zeros((len(some), 0)) if basis.columns is None else basis.columns[some] - basis.offset
    fixed = np.hstack([np.ones((len(some), int(basis.bias))), columns])
    given = weights.settings(settings).noise_variance
    noise = None if given is None else given / std**2
    Y = (y / std)[:, np.newaxis]
    evidence = CovarianceEvidence(basis.kernels, X[some], fixed, Y, w, noise, pulse)
    return evidence.maximise(X, start, _ITERATIONS)[0]
