r"""Weights of a classifier under the prior of a Gaussian process.

The evidence selects few functions, with a precision for each weight. More functions and one smooth prior
predict better. About Z, the relevance vectors and landmarks among the candidates, the logits are

    f_c(x) = b_c + k(x, Z) w_c,    w_c ~ N(0, v K_ZZ^-1),

so that at Z they are a Gaussian process of covariance v k (Rasmussen & Williams 2006, section 8.3.1). The
weights of all classes together maximise the posterior density

    sum_n omega_n ln p(t_n | f(x_n)) - sum_c w_c^T K_ZZ w_c / (2 v) - sum_c (b_c - m_c)^2 / 2,

which is concave. m are the logits of the shares of the classes: far from the data, where k vanishes, b is all
that is left, and rows determine it poorly. The prior of b becomes flat if rows left out are then predicted
better by two standard errors, as where one class surrounds the other. v, and a factor of the lengths of
learned kernels, maximise the log probability of each row from the others, approximated as in `leave_one_out`,
plus the log prior density of ln v, -ln(1 + v / s^2): otherwise v grows without need where classes are nearly
separated, and rows left out are predicted better in that approximation than they are. In the basis k(x, Z)
L^-T, with K_ZZ = L L^T, the prior precision is 1 / v for all weights.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize

from .._arrays import Training, equal_rows
from .._cancellable import blas_workers, in_background
from .._checks import check_integer, check_memory_limit
from .._data.basis import Basis, as_given, learns_kernel
from .._types import FloatArray, IntArray, Settings
from ..kernels import Kernel, Laplacian, OnColumns
from ..kernels._base import all_log_parameters, with_all_log_parameters
from ..kernels._standard import Radial
from .leave_one_out import cavity
from .posterior import MIN_LANDMARK, logits_of_shares, pivoted

#: Landmarks of ``landmarks="auto"`` for two classes and of learning, and most rows that they are chosen from,
#: if not more landmarks are wanted.
LANDMARKS: Final = 150
_MAX_POOL: Final = 1000
#: Landmarks of ``landmarks="auto"`` for a regression, most rows with which it has them, and bytes for each
#: pair of landmarks.
_LANDMARKS_OF_NUMBERS: Final = 2000
_MAX_ROWS_OF_NUMBERS: Final = 30_000
_SQUARE_BYTES: Final = 64
#: Landmarks of ``landmarks="auto"`` for more than two classes, and those that choose lengths where the fit
#: has many relevance vectors.
_LANDMARKS_OF_SEVERAL, _MORE_LANDMARKS = 300, 300
#: Bytes of a row, four numbers, for each function; and the number of active functions to expect.
_ROW_BYTES: Final = 32
TYPICAL_ACTIVE: Final = 100
#: Most rows that v and lengths are chosen by.
_MAX_ROWS: Final = 1500
#: s of the prior of ln v, that of Gelman et al. (2008) for coefficients of logits.
_LOGIT_STD: Final = 2.5
#: Standard errors by which a flat prior of the intercept must predict rows left out better, and by which it
#: must do so with an approximate covariance before the right one is computed.
_FLAT_ERRORS, _FLAT_HINT = 2.0, 1.0
#: The first ln v tried, steps, and how far.
_FIRST, _STEP, _RANGE = 6.0, 2.0, 10.0
#: Change of ln v after which no other lengths are tried.
_SAME: Final = 0.5
#: ln v above which the approximation of rows left out is checked by folds, their number, and the accuracy of
#: their weights in posterior standard deviations.
_MAX_UNCHECKED: Final = 7.0
_FOLDS: Final = 5
_CHECKED: Final = 0.01
#: Factors of lengths that are tried, how far, and nats of all rows that each has to gain.
_FACTOR, _MAX_FACTOR, _MIN_GAIN = 1.4, 20.0, 0.1
#: Accuracy of the weights in posterior standard deviations: in those at W = 0, which are too small; while v
#: is chosen; and at the end.
_COARSE, _ROUGH, _FINE = 1.0, 0.1, 1e-4
#: Most steps of Newton's method while v is chosen, and at the end, where more mean that it has failed.
_ROUGH_STEPS, _FINE_STEPS = 60, 300
#: Most times that the mode is sought again, with the deviations where it seemed to be; and the largest ln v
#: for which it is sought from W = 0.
_RESTARTS: Final = 10
_MAX_COLD: Final = 8.0
#: Share of the rows whose inputs come with several classes that shows that equal inputs are no copies.
_MIN_SEVERAL: Final = 0.1
#: Smallest share of the prior variance that the other rows leave a row.
_MIN_REST: Final = 1e-3
_JITTER: Final = 1e-10


def number_of_landmarks(est: Any, basis: Basis, training: Training, settings: Settings) -> int | None:
    """Return how many landmarks the final weights may have, None if they are those of the selection."""
    given, n_rows = getattr(est, "landmarks", None), len(training.X)
    if given is None:
        return None
    if isinstance(given, str):
        if given != "auto":
            raise ValueError(f"landmarks must be 'auto', None or an integer of at least 0, got {given!r}")
        suits = not settings.is_papers_model and learns_kernel(est) and _is_bounded(basis.kernels)
        suits = suits and what_forbids(est, training, settings) is None
        limit = check_memory_limit(est.memory_limit)
        if not est._labels:
            suits = suits and n_rows <= _MAX_ROWS_OF_NUMBERS
            most = min(_LANDMARKS_OF_NUMBERS, n_rows)
            return most if suits and _SQUARE_BYTES * most**2 <= limit else None
        most = landmarks_of_classes(len(np.unique(training.y)))
        return most if suits and _ROW_BYTES * (most + TYPICAL_ACTIVE) * n_rows <= limit else None
    number = check_integer("landmarks", given, least=0, remedy="; or 'auto', or None")
    if basis.precomputed:
        raise ValueError("landmarks must be None with kernel='precomputed'; or give the kernel as an object")
    if (option := what_forbids(est, training, settings)) is not None:
        raise ValueError(f"landmarks must be None with {option}, got {given!r}")
    return number


def landmarks_of_classes(n_classes: int) -> int:
    """Return the number of landmarks of ``landmarks="auto"`` for so many classes."""
    return LANDMARKS if n_classes == 2 else _LANDMARKS_OF_SEVERAL


def what_forbids(est: Any, training: Training, settings: Settings) -> str | None:
    """Return the options without weights under the prior of a process, None if there are none."""
    if est._labels:
        is_softmax = est._likelihood_of(training.y, training.weights).name == "multinomial"
        return "multi_class='softmax'" if is_softmax else None
    forbidden = {
        f"likelihood={est.likelihood!r}": est.likelihood not in ("gaussian", "student_t"),
        "y of several columns": training.y.ndim == 2,
        "noise_prior": settings.noise_prior != (0.0, 0.0),
    }
    return next((option for option, is_given in forbidden.items() if is_given), None)


def are_of_kernels(basis: Basis, names: IntArray) -> NDArray[np.bool_]:
    """Tell which functions have a kernel; the others are the intercept and columns."""
    return (names >= 0) & (names < basis.n_blocks * basis.size)


def beside(basis: Basis) -> IntArray:
    """Return the names of the columns, which have no kernel."""
    return basis.n_blocks * basis.size + np.arange(basis.n_columns)


def _is_bounded(kernels: list[Kernel]) -> bool:
    """Return whether kernels fall with the distance; logits of others grow far from the data."""
    leaves = [leaf for kernel in kernels for leaf in kernel._leaves()]
    while any(isinstance(leaf, OnColumns) for leaf in leaves):
        leaves = [leaf.inner() if isinstance(leaf, OnColumns) else leaf for leaf in leaves]
    return all(isinstance(leaf, (Radial, Laplacian)) for leaf in leaves)


class _Rows(NamedTuple):
    """Functions in the basis where the prior is spherical, (n, m); targets, (n, C); weights, units, (n,)."""

    F: FloatArray
    t: FloatArray
    w: FloatArray
    unit: FloatArray
    #: The prior mean of the weights, (m, C).
    prior_mean: FloatArray

    def without(self, out: NDArray[np.bool_]) -> _Rows:
        """Return the other rows."""
        F, t, w, unit = (part[~out] for part in self[:4])
        return _Rows(F, t, w, unit, self.prior_mean)

    def log_likelihood(self, logits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return that of each row, and the probabilities of the classes, (n, C); one logit: two classes."""
        # Searches call this hundreds of times, for which scipy.special.logsumexp is slow.
        if logits.shape[1] == 1:
            log_sum = np.logaddexp(0.0, logits)
        else:
            largest = logits.max(axis=1, keepdims=True)
            log_sum = largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True))
        return (self.t * logits).sum(axis=1) - log_sum[:, 0], np.exp(logits - log_sum)


@dataclass(frozen=True)
class Functions:
    """Functions of the dictionary, by name, and the basis where their prior is spherical."""

    basis: Basis
    names: IntArray
    #: Values in that basis are ``values @ whitening``; functions beside have a flat prior.
    whitening: FloatArray
    is_flat: NDArray[np.bool_]
    #: The diagonal of the prior precision of the weights for v = 1, but for the intercept.
    precision: FloatArray
    #: The prior precision of the intercept.
    of_intercept: float = 1.0
    #: The shares of the variance of each landmark that those before it leave.
    rests: FloatArray = field(default_factory=lambda: np.empty(0))

    def precisions(self, log_variance: float) -> FloatArray:
        """Return the prior precision of each weight in that basis."""
        precision = np.where(self.is_flat, 0.0, np.exp(-log_variance))
        return np.where(self.names == -1, self.of_intercept, precision)


@dataclass(frozen=True)
class _Weights:
    """Weights of functions of the dictionary, (m, C), their covariance for each class, and ln v."""

    functions: Functions
    mean: FloatArray
    covariance: FloatArray
    log_variance: float
    #: Moments of the logits at the rows, (n, C).
    logits: FloatArray
    variance: FloatArray


def estimate_weights(
    est: Any,
    basis: Basis,
    active: IntArray,
    training: Training,
    n_landmarks: int,
    settings: Settings,
    log_variance: float | None = None,
) -> tuple[Basis, tuple[FloatArray, FloatArray] | None]:
    """Replace the published posterior of a selection by that under the prior of a Gaussian process.

    ``active``: functions that the process has besides those about landmarks. Return the basis, whose kernels
    may have other lengths, and the moments of the logits at the rows; None if the selection remains: neither
    it nor the process has functions, or numbers near their limits, such as huge weights of rows, make the
    mode unreachable; then the status is "stalled". ``log_variance``: ln v of the process that chose the
    kernels, None if they were given.
    """
    can_gain = n_landmarks > 0 and basis.bias and basis.kernels
    if basis.kernels and not can_gain and not are_of_kernels(basis, active).any():
        return basis, None
    t = np.column_stack(est._likelihood.targets(training.y))
    w = np.ones(len(t)) if training.weights is None else training.weights

    def work(pulse: Callable[[], None]) -> _Weights | None:
        with blas_workers(settings.n_threads) as pool:
            rows = ProcessRows.of(training.X, t, w, basis.columns)
            process = Process(basis, active, rows, n_landmarks, settings, pool, pulse)
            return process.weights(log_variance)

    try:
        with np.errstate(all="ignore"):
            found = in_background(work)
            if found is None:
                return basis, None
            functions, W, covariance = found.functions, found.mean, found.covariance
            v = np.exp(found.log_variance)
        if not np.isfinite(W).all() or not np.isfinite(covariance).all():
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        est.status_ = "stalled" if est.status_ == "converged" else est.status_
        return basis, None
    est._selection = {name: getattr(est, name) for name in ("active_", "alpha_", "mu_")}
    if basis.kernels:
        est._selection["kernel_"] = as_given(est, basis.kernels)
    est.active_, est.process_variance_ = functions.names, float(v)
    precisions = np.where(functions.is_flat, 0.0, functions.precision / v)
    precisions[functions.names == -1] = functions.of_intercept
    if W.shape[1] == 1:
        est.mu_, est.sigma_, est.alpha_ = W[:, 0], covariance[0], precisions
    else:
        est.mu_, est.sigma_ = W, covariance
        est.alpha_ = np.repeat(precisions[:, np.newaxis], W.shape[1], axis=1)
    est._likelihood = replace(est._likelihood, at_mode=True)
    return functions.basis, (found.logits, found.variance)


@dataclass(frozen=True)
class Point:
    """A choice of v, and of lengths, and where the next search may start."""

    #: Log probability of each row from the others, times its weight over the mean weight.
    densities: FloatArray
    #: Their mean, for large v at most that of folds, plus the log prior density of ln v over the number of
    #: observations.
    score: float
    log_variance: float
    W: FloatArray
    roots: FloatArray
    #: Variances of the logits, (n, C).
    variance: FloatArray


@dataclass(frozen=True)
class ProcessRows:
    """Distinct rows, and the weight that is left out of each at a time."""

    X: FloatArray
    #: Targets of each class, (n, C), or of the second of two, (n, 1); weights; columns besides the kernels.
    t: FloatArray
    w: FloatArray
    columns: FloatArray | None
    #: Weight of a row that is left out at a time: all, as equal rows may be copies of one; where they are
    #: observations of their own, at most 1.
    unit: FloatArray
    #: For each given row the number of the distinct one.
    number: IntArray
    #: Numbers of those that v and lengths are chosen by.
    some: IntArray

    @property
    def some_are_all(self) -> bool:
        """Whether v and lengths are chosen by all rows."""
        return len(self.some) == len(self.X)

    @property
    def n_observations(self) -> float:
        """The number of observations among the rows that lengths are chosen by."""
        w, unit = self.w[self.some], self.unit[self.some]
        return float(np.where(unit < w, w, 1.0).sum())

    @classmethod
    def of(cls, X: FloatArray, t: FloatArray, w: FloatArray, columns: FloatArray | None) -> ProcessRows:
        """Return the distinct rows of these."""
        first, number = equal_rows(np.hstack([X, t]))
        weights = np.bincount(number, w).astype(np.float64)
        columns = None if columns is None else columns[first]
        X, t = X[first], t[first]
        unit = np.minimum(weights, 1.0) if are_observations(X, weights) else weights
        return cls(X, t, weights, columns, unit, number, _some_of_each(t))


class Choice(NamedTuple):
    """Functions of a process with given lengths, and the best v for these."""

    process: Process
    functions: Functions
    best: Point

    def with_best_lengths(self) -> Choice:
        """Return the best factor of all lengths, and v for it."""
        return self.process.with_best_lengths(self.functions, self.best)


@dataclass(frozen=True)
class Process:
    """Logits whose prior is a Gaussian process, of functions about relevance vectors and landmarks."""

    basis: Basis
    #: Names of functions of the basis, besides the intercept.
    active: IntArray
    given: ProcessRows
    n_landmarks: int
    settings: Settings
    pool: ThreadPoolExecutor
    pulse: Callable[[], None]
    #: Number of landmarks that choose v and the lengths.
    n_choosing: int = LANDMARKS

    def weights(self, log_variance: float | None) -> _Weights | None:
        """Return the weights; of the intercept alone if rows left out are predicted no better than by it.

        None: the selection has no kernels and may remain so. ``log_variance``: ln v, None if it is not known.
        """
        if log_variance is None:
            functions, best = self._with_all_landmarks(self.choose())
        else:
            functions, best = self._of_learned(log_variance)
            if self.basis.bias and not self._explains(best):
                # Where landmarks alone have told nothing, relevance vectors may.
                functions, best = self._with_all_landmarks(self.choose().with_best_lengths())
        if self.basis.bias:
            functions, best = self._with_prior_of_intercept(functions, best)
        if self.basis.bias and not self._explains(best):
            if not are_of_kernels(self.basis, self.active).any():
                return None
            if not functions.is_flat.any():
                functions = self._intercept()
                best = self._at(self._rows(functions, self.given.some), functions, best.log_variance)
        rows, precision = self._rows(functions, slice(None)), functions.precisions(best.log_variance)
        given = self.given
        share = given.w[given.some].sum() / given.w.sum()
        # Roots of all rows, about: precisions of weights grow with the number of rows.
        near = best.roots * np.sqrt(share)
        W, is_there = _mode(rows, precision, best.W, near, _FINE, _FINE_STEPS, self.pulse)
        if not is_there:
            raise np.linalg.LinAlgError
        roots, variance = best.roots, best.variance
        if not (given.some_are_all and np.array_equal(W, best.W)):
            roots = _roots(rows, precision, W, self.pool, self.pulse)
            variance = _variances(rows, roots, self.pool)
        covariance = np.empty_like(roots)

        def of_class(c: int) -> None:
            B = dtrmm(1.0, roots[c].T, functions.whitening, side=1, lower=1, trans_a=1)
            covariance[c] = B @ B.T

        list(self.pool.map(of_class, range(len(roots))))
        mean, at = functions.whitening @ W, given.number
        return _Weights(functions, mean, covariance, best.log_variance, (rows.F @ W)[at], variance[at])

    def _of_learned(self, log_variance: float) -> tuple[Functions, Point]:
        """Return the functions, given v, which landmarks alone have told, as well as the lengths.

        With more relevance vectors than these the lengths are chosen again, by more landmarks.
        """
        basis, n = self.basis, _MORE_LANDMARKS
        if are_of_kernels(basis, self.active).sum() > LANDMARKS:
            alone = replace(self, active=beside(basis), n_landmarks=n, n_choosing=n)
            functions = alone._functions(basis, n)
            best = alone._at(alone._rows(functions, self.given.some), functions, log_variance)
            _, functions, best = alone.with_best_lengths(functions, best)
            basis, log_variance = functions.basis, best.log_variance
        functions = self._functions(basis, self.n_landmarks)
        return functions, self._last(functions, log_variance)

    def _with_all_landmarks(self, choice: Choice) -> tuple[Functions, Point]:
        _, functions, best = choice
        if self.n_landmarks > LANDMARKS:
            functions = self._functions(functions.basis, self.n_landmarks)
            best = self._last(functions, best.log_variance)
        return functions, best

    def _last(self, functions: Functions, log_variance: float) -> Point:
        """Return the point with all landmarks; if it has all rows, with the accuracy of the final weights."""
        rows, tol = self._rows(functions, self.given.some), _FINE if self.given.some_are_all else _ROUGH
        return self._at(rows, functions, log_variance, least=np.inf, tol=tol)

    def _of_folds(self, rows: _Rows, precision: FloatArray, start: FloatArray, roots: FloatArray) -> float:
        """Return the mean log probability of rows from fits without their fold."""
        order = np.random.default_rng(0).permutation(len(rows.t))
        order = order[np.argsort(class_numbers(rows.t)[order], kind="stable")]
        total = 0.0
        for fold in range(_FOLDS):
            out = np.zeros(len(order), dtype=bool)
            out[order[fold::_FOLDS]] = True
            W, _ = _mode(rows.without(out), precision, start, roots, _CHECKED, _FINE_STEPS, self.pulse)
            log_p, _ = rows.log_likelihood(rows.F @ W)
            total += float(rows.w[out] @ log_p[out])
        return total / float(rows.w.sum())

    def _with_prior_of_intercept(self, functions: Functions, best: Point) -> tuple[Functions, Point]:
        """Return these, with a flat prior of the intercept if rows left out tell that it is better."""
        flat, rows = replace(functions, of_intercept=0.0), self._rows(functions, self.given.some)
        precision = flat.precisions(best.log_variance)
        W, _ = _mode(rows, precision, best.W, best.roots, _ROUGH, _ROUGH_STEPS, self.pulse)
        # Without the precision a of the intercept, element e, the covariance H^-1 has u u^T a / (1 - a u_e)
        # more, with u its column e (Sherman & Morrison 1950), if the probabilities remain the same.
        (e,), a = np.flatnonzero(functions.names == -1), functions.of_intercept
        u = np.column_stack([root @ root[e] for root in best.roots])
        variance = best.variance + a / (1.0 - a * u[e]) * (rows.F @ u) ** 2
        if not exceed(_left_out(rows, W, variance), best.densities, _FLAT_HINT):
            return functions, best
        point = self._at(rows, flat, best.log_variance, replace(best, W=W), least=np.inf)
        is_better = exceed(point.densities, best.densities, _FLAT_ERRORS)
        return (flat, point) if is_better else (functions, best)

    def _explains(self, point: Point) -> bool:
        """Tell whether rows left out are more probable than by the shares of the classes among all rows."""
        t, w = self.given.t[self.given.some], self.given.w[self.given.some]
        both = np.hstack([1.0 - t, t]) if t.shape[1] == 1 else t
        shares = np.average(both, axis=0, weights=w)
        return bool(point.densities.mean() > np.average(np.log(both @ shares), weights=w))

    def choose(self) -> Choice:
        """Return the best v; few landmarks tell it."""
        functions = self._functions(self.basis, self.n_choosing)
        return Choice(self, functions, self._along_v(functions))

    def with_best_lengths(self, functions: Functions, best: Point) -> Choice:
        """Return the best factor of all lengths, and v for it, beginning with that for 1."""
        powers = np.concatenate([kernel._length_powers() for kernel in self.basis.kernels])
        theta, chosen = all_log_parameters(self.basis.kernels), 1.0
        for step in (_FACTOR, 1.0 / _FACTOR) if powers.any() else ():
            best_for = chosen  # the factor for which v is the best
            while True:
                factor = chosen * step
                kernels = with_all_log_parameters(self.basis.kernels, theta + np.log(factor) * powers)
                moved = self._functions(replace(self.basis, kernels=kernels), self.n_choosing)
                # Slopes of logits have the variance v / length^2.
                v = best.log_variance + 2.0 * np.log(step)
                least = best.score + _MIN_GAIN / self.given.n_observations
                point = self._at(self._rows(moved, self.given.some), moved, v, least=least)
                if point.score > least and 1.0 / _MAX_FACTOR < factor < _MAX_FACTOR:
                    best, chosen, functions = point, factor, moved
                elif chosen != best_for:
                    before = best.log_variance
                    best, best_for = self._along_v(functions, best), chosen
                    if abs(best.log_variance - before) < _SAME:
                        break
                else:
                    break
            if chosen != 1.0:
                break
        return Choice(self, functions, best)

    def _rows(self, functions: Functions, at: IntArray | slice) -> _Rows:
        given = self.given
        extra = None if given.columns is None else given.columns[at]
        phi = functions.basis.functions(functions.names, given.X[at], self.settings.n_threads, extra)
        t, w = given.t[at], given.w[at]
        prior_mean = np.zeros((len(functions.names), t.shape[1]))
        prior_mean[functions.names == -1] = logits_of_shares(t, w)
        return _Rows(phi @ functions.whitening, t, w, given.unit[at], prior_mean)

    def _functions(self, basis: Basis, most: int) -> Functions:
        given = self.given
        rows = given.X, given.columns, given.w
        return functions_about(basis, self.active, *rows, min(most, self.n_landmarks), self.settings)

    def _intercept(self) -> Functions:
        return Functions(self.basis, np.array([-1]), np.ones((1, 1)), np.array([False]), np.zeros(1))

    def _at(
        self,
        rows: _Rows,
        functions: Functions,
        log_variance: float,
        start: Point | None = None,
        least: float = -np.inf,
        tol: float = _ROUGH,
    ) -> Point:
        """Return the point for this v. A score of at most ``least`` may be too high."""
        W, roots = self._weights_at(rows, functions, log_variance, start, tol)
        variance = _variances(rows, roots, self.pool)
        densities = _left_out(rows, W, variance)
        log_prior = -float(np.logaddexp(0.0, log_variance - 2.0 * np.log(_LOGIT_STD)))
        mean, prior = float(densities.mean()), log_prior / self.given.n_observations
        if log_variance > _MAX_UNCHECKED and mean + prior > least:
            mean = min(mean, self._of_folds(rows, functions.precisions(log_variance), W, roots))
        return Point(densities, mean + prior, log_variance, W, roots, variance)

    def _weights_at(
        self,
        rows: _Rows,
        functions: Functions,
        log_variance: float,
        start: Point | None = None,
        tol: float = _ROUGH,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the weights of largest density for v, and their `_roots`, near those of ``start``.

        None: from W = 0, or for large v from the weights of a smaller one.
        """
        precision, accuracy = functions.precisions(log_variance), tol
        # Where logits are large, deviations at the start are too small to tell when the mode is reached.
        is_far = start is None and (log_variance > _FIRST or tol < _ROUGH)
        if start is not None:
            W, roots = start.W, start.roots
        elif log_variance > _MAX_COLD:
            W, roots = self._weights_at(rows, functions, log_variance - _STEP)
        else:
            m, n_classes = rows.F.shape[1], rows.t.shape[1]
            W = np.zeros((m, n_classes))
            # All classes have the same root. It is close to that of two classes, whose p (1 - p) is 1/4,
            # which suffices to precondition.
            one = _roots(rows, precision, W[:, :1], self.pool, self.pulse)
            share = 4.0 * (n_classes - 1) / n_classes**2 if n_classes > 1 else 1.0
            roots = np.broadcast_to(one / np.sqrt(share), (n_classes, m, m))
            if is_far:
                accuracy = _COARSE
        for attempt in range(1 + (_RESTARTS if is_far else 0)):
            before = W
            W, _ = _mode(rows, precision, before, roots, accuracy, _ROUGH_STEPS, self.pulse)
            if attempt > 0 and np.array_equal(W, before):
                break
            accuracy = tol
            roots = _roots(rows, precision, W, self.pool, self.pulse)
        return W, roots

    def _along_v(self, functions: Functions, start: Point | None = None) -> Point:
        """Return the best v, the vertex of a parabola through three points, with the score of the middle."""
        rows = self._rows(functions, self.given.some)
        last = self._at(rows, functions, _FIRST) if start is None else start
        first = last.log_variance
        points = {first: last}

        def score_at(x: float) -> float:
            nonlocal last
            if x not in points:
                least = max(point.score for point in points.values())
                last = points[x] = self._at(rows, functions, x, last, least)
            return points[x].score

        direction = -_STEP if score_at(first - _STEP) > score_at(first) else _STEP
        x = max(points, key=lambda at: points[at].score)
        while abs(x - first) < _RANGE and score_at(x + direction) > points[x].score:
            x += direction
        low, middle, high = (score_at(x + shift) for shift in (-_STEP, 0.0, _STEP))
        bend, vertex = 2.0 * middle - low - high, x
        if middle >= max(low, high) and bend > 0.0:
            vertex = x + 0.5 * _STEP * (high - low) / bend
        return replace(points[x], log_variance=vertex)


def functions_about(
    basis: Basis,
    active: IntArray,
    X: FloatArray,
    columns: FloatArray | None,
    w: FloatArray,
    n_landmarks: int,
    settings: Settings,
    least: float = MIN_LANDMARK,
) -> Functions:
    """Return these functions of the dictionary and kernels at landmarks, in the order of their names.

    Without relevance vectors all kernels get landmarks. ``X``, ``columns``, ``w``: rows, their columns
    besides the kernels, and their weights. ``least``: as in `pivoted`.
    """
    n_threads = settings.n_threads
    names, whitenings, precisions = [], [], []
    if basis.bias:
        names, whitenings, precisions = [np.array([-1])], [np.ones((1, 1))], [np.zeros(1)]
    block, row = np.divmod(active, max(basis.size, 1))
    some_have_rows = are_of_kernels(basis, active).any()
    n_pool = max(_MAX_POOL, n_landmarks)
    pool = np.unique(np.linspace(0, len(basis.kept) - 1, n_pool).astype(np.intp))
    rests = []
    for p, kernel in enumerate(basis.kernels):
        own = np.searchsorted(basis.kept, row[block == p])
        if len(own) == 0 and some_have_rows:
            continue
        centres, others = basis.centres[own], basis.centres[pool]
        at, factor_of_K = pivoted(kernel, centres, others, n_threads, n_landmarks, least)
        if len(at) == 0:
            raise np.linalg.LinAlgError
        own_of_K = np.sum(factor_of_K**2, axis=1)
        shares = factor_of_K.diagonal() ** 2 / own_of_K
        rests.append(shares[np.array(at) >= len(own)])
        chosen = np.concatenate([own, pool])[at]
        order = np.argsort(chosen)
        inverse, _ = dtrtri(factor_of_K, lower=1)
        names.append(p * basis.size + basis.kept[chosen[order]])
        whitenings.append(inverse.T[order])
        precisions.append(own_of_K[order])
    if len(beside := active[active >= basis.n_blocks * basis.size]) > 0:
        values = basis.functions(beside, X, n_threads, columns)
        squares = np.average(values**2, axis=0, weights=w)
        squares = np.where(squares > 0.0, squares, 1.0)
        names.append(beside)
        whitenings.append(np.diag(1.0 / np.sqrt(squares)))
        precisions.append(squares)
    every = np.concatenate(names)
    flat = [column for column in settings.unpenalized if column != 0 or not basis.bias]
    flat_names = basis.layout.names(np.array(flat, dtype=np.intp))
    is_flat = np.isin(every, flat_names)
    whitening, precision = block_diag(*whitenings), np.concatenate(precisions)
    return Functions(basis, every, whitening, is_flat, precision, rests=np.concatenate([*rests, np.empty(0)]))


def are_observations(X: FloatArray, w: FloatArray) -> bool:
    """Tell whether equal inputs belong to several observations; ``X`` are distinct rows of inputs and class.

    They do if the inputs have few levels, or if many of them come with several classes, which copies do not.
    """
    if have_several_targets(X, w):
        return True
    total, combinations = w.sum(), 1.0
    for x in X.T:
        combinations *= len(np.unique(x))
        if combinations > total:
            return False
    return True


def have_several_targets(X: FloatArray, w: FloatArray) -> bool:
    """Tell whether many inputs come with several targets; ``X`` are distinct rows of inputs and target."""
    _, number = equal_rows(X)
    several = np.bincount(number)[number] > 1
    return bool(w[several].sum() >= _MIN_SEVERAL * w.sum())


def class_numbers(t: FloatArray) -> IntArray:
    """Return the number of the class of each row."""
    return np.argmax(t, axis=1) if t.shape[1] > 1 else t[:, 0].astype(np.intp)


def _some_of_each(t: FloatArray) -> IntArray:
    """Return at most `_MAX_ROWS` rows, as many of each class as there are of it up to one number.

    Fewer rows of a frequent class change only the intercept of a logistic model (Prentice & Pyke 1979).
    """
    labels = class_numbers(t)
    each = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    counts, most = np.array([len(rows) for rows in each]), np.arange(1, _MAX_ROWS + 1)
    totals = np.minimum(counts[:, np.newaxis], most).sum(axis=0)
    n = max(int(np.searchsorted(totals, _MAX_ROWS, side="right")), 1)
    spread = [rows[np.linspace(0, len(rows) - 1, min(len(rows), n)).astype(np.intp)] for rows in each]
    return np.sort(np.concatenate(spread))


def _mode(
    rows: _Rows,
    precision: FloatArray,
    start: FloatArray,
    roots: FloatArray,
    tol: float,
    max_steps: int,
    pulse: Callable[[], None],
) -> tuple[FloatArray, bool]:
    """Return the weights of largest posterior density, and whether they are that to ``tol``.

    They are found by Newton's method with conjugate gradients.

    In z, W_c = start_c + R_c z_c, the Hessian without products of classes is close to the identity if R_c
    R_c^T is close to its inverse; so ``tol`` is in posterior standard deviations. Weights that all classes
    have in common change no probability: at the mode they are 0, and steps leave them so.
    """
    F, t, w, _, prior_mean = rows
    m, n_classes = start.shape
    known: dict[str, Any] = {}

    def centred(W: FloatArray) -> FloatArray:
        return W - W.mean(axis=1, keepdims=True) if n_classes > 1 else W

    def step(z: FloatArray) -> FloatArray:
        return centred((roots @ z.reshape(n_classes, m, 1))[:, :, 0].T)

    def back(gradient: FloatArray) -> FloatArray:
        gradient = centred(gradient).T[:, :, np.newaxis]
        return np.asarray((roots.transpose(0, 2, 1) @ gradient).ravel())

    def at(z: FloatArray) -> dict[str, Any]:
        if not known or not np.array_equal(known["z"], z):
            pulse()
            W = start + step(z)
            log_p, p = rows.log_likelihood(F @ W)
            penalty = 0.5 * float(precision @ ((W - prior_mean) ** 2).sum(axis=1))
            known.update(z=z.copy(), W=W, p=p, value=penalty - float(w @ log_p))
        return known

    def value(z: FloatArray) -> float:
        return float(at(z)["value"])

    def slope(z: FloatArray) -> FloatArray:
        here = at(z)
        return back(
            precision[:, np.newaxis] * (here["W"] - prior_mean) - F.T @ (w[:, np.newaxis] * (t - here["p"]))
        )

    def curvature(z: FloatArray, direction: FloatArray) -> FloatArray:
        p, D = at(z)["p"], step(direction)
        change = F @ D
        change = p * (change - (p * change).sum(axis=1, keepdims=True))
        return back(precision[:, np.newaxis] * D + F.T @ (w[:, np.newaxis] * change))

    options = {"gtol": tol, "initial_trust_radius": 10.0, "max_trust_radius": 1e4, "maxiter": max_steps}
    zero = np.zeros(m * n_classes)
    try:
        found = minimize(value, zero, jac=slope, hessp=curvature, method="trust-ncg", options=options)
    except ValueError:  # of SciPy, for numbers that are not finite
        raise np.linalg.LinAlgError from None
    return start + step(found.x), bool(found.success)


def _roots(
    rows: _Rows, precision: FloatArray, W: FloatArray, pool: ThreadPoolExecutor, pulse: Callable[[], None]
) -> FloatArray:
    """Return R_c of each class, upper triangular, with R_c R_c^T its posterior covariance, (C, m, m).

    The covariance is the inverse of the block of the class in the Hessian, F^T diag(omega p (1 - p)) F + A.
    """
    _, p = rows.log_likelihood(rows.F @ W)
    b, at = rows.w[:, np.newaxis] * p * (1.0 - p), np.arange(len(precision))
    roots = np.empty((W.shape[1], len(at), len(at)))

    def of_class(c: int) -> None:
        pulse()
        weighted = rows.F * np.sqrt(b[:, c, np.newaxis])
        H = weighted.T @ weighted
        H[at, at] = H.diagonal() * (1.0 + _JITTER) + precision + _JITTER
        if not np.isfinite(H).all():
            raise np.linalg.LinAlgError
        roots[c] = dtrtri(np.linalg.cholesky(H), lower=1)[0].T

    list(pool.map(of_class, range(len(roots))))
    return roots


def _variances(rows: _Rows, roots: FloatArray, pool: ThreadPoolExecutor) -> FloatArray:
    """Return the variance of each logit at each row, (n, C), with `_roots` of its covariance."""

    def of_class(R: FloatArray) -> FloatArray:
        return np.asarray(np.sum(dtrmm(1.0, R.T, rows.F.T, lower=1) ** 2, axis=0))

    return np.column_stack(list(pool.map(of_class, roots)))


def exceed(one: FloatArray, other: FloatArray, n_errors: float) -> bool:
    """Tell whether some densities exceed others by several standard errors."""
    gains = one - other
    return bool(gains.mean() > n_errors * gains.std() / np.sqrt(len(gains)))


def _left_out(rows: _Rows, W: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the log probability of each row from the rest, times its weight over the mean weight."""
    logits = rows.F @ W
    _, p = rows.log_likelihood(logits)
    unit = rows.unit[:, np.newaxis]
    mean, _ = cavity(logits, variance, unit * (rows.t - p), unit * p * (1.0 - p), _MIN_REST)
    log_p, _ = rows.log_likelihood(mean)
    return np.asarray(log_p * (rows.w / rows.w.mean()))
