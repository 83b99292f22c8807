"""What learns the parameters of kernels: the rows, and the evidence of a Gaussian process, smooth in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, Final

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.optimize import minimize

from .. import _core
from .._arrays import Training
from .._checks import check_memory_limit, column_means
from .._data.basis import Basis, flat_columns
from .._data.design import Design, columns_at, evaluate
from .._estimators.likelihoods import Numbers
from .._estimators.posterior import diagonal
from .._types import FloatArray, IntArray, Likelihood, Settings
from ..kernels import Gaussian, Kernel, Laplacian, Matern32, Matern52
from ..kernels._base import all_log_parameters, bounds, with_all_log_parameters
from ..kernels._standard import Radial

#: Bound of the change of log variances from their start, and of the increase of those of rough kernels: with
#: long lengths and large variances they are splines, which few functions cannot follow.
_VARIANCE_RANGE: Final = 12.0
_MAX_ROUGH_VARIANCE: Final = 8.0
_ROUGH: Final = (Laplacian, Matern32, Matern52)
#: Kernels whose evidence is all computed in the core, if there is no other.
_IN_CORE: Final = (Gaussian, Matern32, Matern52)
#: Relative size of the diagonal that compensates for round-off in the test for positive definiteness.
_JITTER: Final = 1e-8
# The other constants are measured in docs/notebook/kernel-learning.md.
#: The longest of the short lengths of single inputs that are tried, in standard deviations of the input, and
#: its ratio to the next; so many for all inputs together, but at least so many for each.
_SHORT, _SHORT_RATIO = 1.2, 2.4
_SINGLES: Final = 6
_MIN_SHORT: Final = 2
#: Most lengths of which short ones are tried: the time grows with the square of their number.
_MAX_TRIED: Final = 100
#: Short lengths of two inputs, in standard deviations; most lengths, of which pairs are tried with the first,
#: and with both; lengths relative to the initial ones that stay long then; nats of log evidence that a trial
#: has to gain; and most ascents, each from a trial.
_SHORT_PAIR: Final = (1.0, 0.4)
_MAX_TWICE: Final = 5
_MAX_PAIRED: Final = 10
_LONG: Final = 3.0
_MIN_GAIN: Final = 4.0
_MAX_ASCENTS: Final = 4


class CovarianceEvidence:
    r"""Log evidence of targets with the covariance C, the sum over the outputs.

    C = sum_k a_k K_k(X, X) + sum_j v_j f_j f_j^T + W^-1 / beta, with f_j the fixed functions. With A = C^-1 Y
    of C outputs (Rasmussen & Williams 2006, equations 5.8 and 5.9)

    L = -(tr Y^T A + C ln|C| + C N ln 2 pi) / 2,    dL/dC = (A A^T - C C^-1) / 2.

    A row of weight w counts like w equal rows: compared with one row of noise variance 1 / (w beta), the
    evidence of w equal targets has the factor beta^((w - 1) / 2), and a constant.

    K K^T / N replaces K if a kernel is not positive definite. The vector that L depends on holds the log
    kernel parameters, then ln a, ln v and, unless the noise is given, -ln beta.
    """

    def __init__(
        self,
        kernels: list[Kernel],
        X: FloatArray,
        fixed: FloatArray,
        Y: FloatArray,
        weights: FloatArray,
        noise_variance: float | None,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self._kernels, self._X = kernels, X
        self._fixed, self._Y = np.asfortranarray(fixed), np.asfortranarray(Y)
        self._pulse = pulse
        self._noise, self._excess_weight = 1.0 / weights, float(weights.sum()) - len(weights)
        self._log_noise = None if noise_variance is None else float(np.log(noise_variance))
        self._of_unit_width: _core.Kernel | None = None
        if len(kernels) == 1 and isinstance(kernel := kernels[0], _IN_CORE):
            self._of_unit_width = type(kernel)(1.0).to_core()
        # Kernels of the distance are positive definite.
        self._squared = [not (isinstance(k, Radial) or _is_positive_definite(k(X, X))) for k in kernels]

    def start(self) -> FloatArray:
        """Return a start: the given kernel parameters, and variances for targets of variance 1."""
        sizes = [float(np.mean(np.diag(K))) for K, _ in self._covariances(self._kernels)]
        log_variances = -np.log(np.maximum([*sizes, *np.mean(self._fixed**2, axis=0)], 1e-300))
        noise = [np.log(0.1)] if self._log_noise is None else []
        return np.concatenate([all_log_parameters(self._kernels), log_variances, noise])

    def __call__(self, x: FloatArray, *, slope: bool = True) -> tuple[float, FloatArray] | None:
        """Return L and, unless not asked for, its gradient; None where C is not positive definite."""
        self._pulse()
        theta, a, v, log_noise = self._parts(x)
        noise = np.exp(log_noise) * self._noise
        alone = self._of_unit_width
        terms = self._of_kernels if alone is None else partial(self._in_core, alone)
        found = terms(theta, a, v, noise, slope)
        if found is None:
            return None
        square, log_det, slopes = found
        n, n_outputs = self._Y.shape
        log_det += self._excess_weight * log_noise
        value = -0.5 * (square + n_outputs * (log_det + n * np.log(2.0 * np.pi)))
        if slopes is None:
            return value, np.empty(0)
        slopes[-1] -= 0.5 * n_outputs * self._excess_weight
        return value, slopes if self._log_noise is None else slopes[:-1]

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Return the log kernel parameters, a, v and -ln beta."""
        n_theta = len(all_log_parameters(self._kernels))
        borders = np.cumsum([n_theta, len(self._kernels), self._fixed.shape[1]])
        theta, log_a, log_v, rest = np.split(x, borders)
        log_noise = float(rest[0]) if self._log_noise is None else self._log_noise
        return theta, np.exp(log_a), np.exp(log_v), log_noise

    def _of_kernels(
        self, theta: FloatArray, a: FloatArray, v: FloatArray, noise: FloatArray, slope: bool
    ) -> tuple[float, float, FloatArray | None] | None:
        """Return tr Y^T A, ln |C| and, if asked for, dL/dx, with ln of a factor of the noise last."""
        parts = self._covariances(with_all_log_parameters(self._kernels, theta))
        C = (self._fixed * v) @ self._fixed.T
        for a_k, (K, _) in zip(a, parts, strict=True):
            C += a_k * K
        C[np.diag_indices(len(C))] += noise
        found = _core.covariance_evidence(C, self._Y, slope)
        if found is None:
            return None
        square, log_det, G = found
        if G is None:
            return square, log_det, None
        slopes = [a_k * pull(G) for a_k, (_, pull) in zip(a, parts, strict=True)]
        slopes.append([a_k * np.vdot(G, K) for a_k, (K, _) in zip(a, parts, strict=True)])
        slopes.append(v * np.sum((G @ self._fixed) * self._fixed, axis=0))
        return square, log_det, np.concatenate([*slopes, [noise @ np.diag(G)]])

    def _in_core(
        self,
        of_unit_width: _core.Kernel,
        theta: FloatArray,
        a: FloatArray,
        v: FloatArray,
        noise: FloatArray,
        slope: bool,
    ) -> tuple[float, float, FloatArray | None] | None:
        """Return the same for one Gaussian or Matern kernel, all of it in the core."""
        Z = (self._X - self._X.mean(axis=0)) / np.exp(theta)
        found = _core.radial_evidence(of_unit_width, Z, float(a[0]), self._fixed, v, noise, self._Y, slope)
        if found is None:
            return None
        square, log_det, slopes = found
        if slopes is not None and len(theta) < (d := Z.shape[1]):
            slopes = np.append(slopes[:d].sum(), slopes[d:])
        return square, log_det, slopes

    def predict(
        self, x: FloatArray, X: FloatArray, fixed: FloatArray
    ) -> tuple[FloatArray, FloatArray, float] | None:
        """Return mean and variance of the function of the first output at other rows, and the noise variance.

        None as above.
        """
        theta, a, v, log_noise = self._parts(x)
        kernels, noise = with_all_log_parameters(self._kernels, theta), float(np.exp(log_noise))

        def covariance(X: FloatArray, Z: FloatArray, F: FloatArray, G: FloatArray) -> FloatArray:
            found: FloatArray = (F * v) @ G.T
            for a_k, kernel in zip(a, kernels, strict=True):
                found += a_k * evaluate(kernel, X, Z, 1)
            return found

        C = covariance(self._X, self._X, self._fixed, self._fixed)
        C[np.diag_indices(len(C))] += noise * self._noise
        across = covariance(self._X, X, self._fixed, fixed)
        # NumPy's solver lets other folds be predicted meanwhile, SciPy's for triangular matrices does not.
        try:
            solved = np.linalg.solve(C, across)
        except LinAlgError:
            return None
        own = sum(a_k * diagonal(kernel, X) for a_k, kernel in zip(a, kernels, strict=True))
        variance = own + fixed**2 @ v - np.sum(across * solved, axis=0)
        return (solved.T @ self._Y[:, 0], variance, noise) if (variance + noise > 0.0).all() else None

    def _covariances(self, kernels: list[Kernel]) -> list[tuple[FloatArray, Any]]:
        """Return the covariance of each kernel, and the function from dL/dK to dL/d(log parameters)."""
        parts = []
        for kernel, squared in zip(kernels, self._squared, strict=True):
            K, pull = kernel._forward(self._X, self._X)
            parts.append(_square(K, pull) if squared else (K, pull))
        return parts

    def maximise(
        self, X: FloatArray, start: FloatArray | None, iterations: int, most_variance: float = np.inf
    ) -> list[FloatArray]:
        """Maximise L by L-BFGS, from ``start`` or the natural one; ``X`` are the rows for the bounds.

        ``most_variance``: an upper bound of a_k. Return the maximum, and if it has short lengths that were
        tried, that before the trials.
        """
        x0 = self.start()
        limits = np.vstack([bounds(kernel, X) for kernel in self._kernels])
        n = len(limits)
        box = np.column_stack([x0 - _VARIANCE_RANGE, x0 + _VARIANCE_RANGE])
        rough = n + np.flatnonzero([isinstance(kernel, _ROUGH) for kernel in self._kernels])
        box[rough, 1] = x0[rough] + _MAX_ROUGH_VARIANCE
        variances = slice(n, n + len(self._kernels))
        box[variances, 1] = np.minimum(box[variances, 1], np.log(most_variance))
        box[:n, 0], box[:n, 1] = np.minimum(limits[:, 0], x0[:n]), np.maximum(limits[:, 1], x0[:n])
        if not np.isfinite(box).all():
            return [x0]

        def negative(x: FloatArray) -> tuple[float, FloatArray]:
            with np.errstate(over="ignore", invalid="ignore"):
                found = self(x)
            if found is None or not np.isfinite(found[1]).all():
                return np.inf, np.zeros_like(x)
            return -found[0], -found[1]

        options: dict[str, Any] = {"maxiter": iterations, "maxcor": 20}
        x, log_evidence = x0 if start is None else np.clip(start, *box.T), -np.inf
        begin: FloatArray | None = x
        maxima: list[FloatArray] = []
        for _ in range(_MAX_ASCENTS):
            result = minimize(negative, begin, jac=True, method="L-BFGS-B", bounds=box, options=options)
            if not (-result.fun > log_evidence and np.isfinite(result.x).all()):
                break
            x, log_evidence = result.x, -result.fun
            maxima.append(x)
            tries = start is None and n <= _MAX_TRIED
            begin = self._with_short_lengths(x, x0, log_evidence) if tries else None
            if begin is None:
                break
        return [x] if len(maxima) < 2 else [x, maxima[0]]

    def _with_short_lengths(self, x: FloatArray, x0: FloatArray, log_evidence: float) -> FloatArray | None:
        """Return the best x of those with short lengths of one or two inputs; None: none gains enough.

        A function that changes several times along an input shows at short lengths only: at long ones the
        input seems not to matter, or a trend hides the rest.
        """
        best, log_evidence = None, log_evidence + _MIN_GAIN
        for trial in self._shortened(x, x0):
            with np.errstate(over="ignore", invalid="ignore"):
                found = self(trial, slope=False)
            if found is not None and found[0] > log_evidence:
                best, log_evidence = trial, found[0]
        return best

    def _shortened(self, x: FloatArray, x0: FloatArray) -> Iterator[FloatArray]:
        powers = np.concatenate([kernel._length_powers() for kernel in self._kernels])
        lengths, n = np.flatnonzero(powers > 0.0), len(powers)
        std = x0[:n] - 0.5 * np.log(max(n, 1)) - np.log(2.0)
        # The variance of a trend with long lengths is too large for functions with short ones, and that of an
        # empty process too small. Two inputs interact if neither length is long.
        capped, variances = x.copy(), slice(n, n + len(self._kernels))
        capped[lengths] = np.minimum(x, x0)[lengths]
        capped[variances] = x0[variances]
        n_short = max(_MIN_SHORT, _SINGLES // max(len(lengths), 1))
        shorts = np.log(_SHORT) - np.log(_SHORT_RATIO) * np.arange(n_short)
        for start, short, j in product((x, capped), shorts, lengths):
            if std[j] + short < x[j]:
                trial = start.copy()
                trial[j] = std[j] + short
                yield trial
        if len(lengths) <= _MAX_PAIRED:
            far = lengths[x[lengths] > x0[lengths] + np.log(_LONG)]
            n_short = 1 + (len(lengths) <= _MAX_TWICE)
            for pair, short in product(combinations(lengths, 2), np.log(_SHORT_PAIR[:n_short])):
                at = np.array(pair)
                if (std[at] + short < x[at]).all():
                    trial = capped.copy()
                    trial[far] = x[far]
                    trial[at] = std[at] + short
                    yield trial


def _is_positive_definite(K: FloatArray) -> bool:
    try:
        np.linalg.cholesky(K + _JITTER * np.abs(np.diag(K)).max() * np.eye(len(K)))
    except LinAlgError:
        return False
    return bool(np.allclose(K, K.T))


def _square(K: FloatArray, pull: Any) -> tuple[FloatArray, Any]:
    """Return K K^T / N, and its pull: for the slope D, K has the slope (D + D^T) K / N."""
    return K @ K.T / len(K), lambda D: pull((D + D.T) @ K / len(K))


# --- the rows and the dictionary --------------------------------------------------------------------


@dataclass(frozen=True)
class FewCounts:
    """Counts, most of them 0, whose transform is far from Gaussian: held-out rows are predicted as counts."""

    likelihood: Numbers
    y: FloatArray
    weights: FloatArray
    #: Logs of the exposures.
    offset: FloatArray

    def at(self, rows: IntArray) -> FewCounts:
        """Return these rows."""
        return replace(self, y=self.y[rows], weights=self.weights[rows], offset=self.offset[rows])

    def bind(self, design: Design, settings: Settings) -> Callable[..., _core.Posterior]:
        """Return the fit of the model of these functions, as a function of ``callback``."""
        name, dispersion = self.likelihood.name, self.likelihood.shape
        extra: Any = {"offset": self.offset, "dispersion": 1.0 if dispersion is None else dispersion}
        return design.bind(self.y, self.weights, name, settings, **extra)

    def log_density(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the log predictive density of each row, times its weight, from moments of the functions."""
        moments = (mean + self.offset)[:, np.newaxis], variance[:, np.newaxis]
        return self.weights * self.likelihood.log_density(None, moments, self.y)


@dataclass(frozen=True)
class LearningData:
    """The training data and the dictionary that kernels are learned from."""

    #: Rows, N x d, and centres of the kernel functions, M x d.
    X: FloatArray
    centres: FloatArray
    #: Functions without parameters, N x F: the bias, and the extra columns.
    fixed: FloatArray
    #: One target for each output, and the sample weights, all of length N.
    targets: list[FloatArray]
    weights: FloatArray
    likelihood: Likelihood
    noise_variance: float | None
    #: Number of ``fixed`` functions before the kernels in the dictionary; the others follow the kernels.
    n_before: int
    #: The row of each centre; None if centres are not rows.
    centre_rows: IntArray | None = None
    #: Whether the weights of the final model have a Gaussian process as their prior.
    is_smooth: bool = False
    few_counts: FewCounts | None = None
    #: Whether the kernel of this process may be less smooth than a Gaussian one.
    learns_smoothness: bool = False
    #: How often rows count, and the noise variance of each in units of that of a fit; None: all 1.
    counts: FloatArray | None = None
    noise_factors: FloatArray | None = None
    #: Independent evidence in a unit of the given weights, at most 1; weights of numbers have this factor.
    unit: float = 1.0
    #: Bytes that a fit may use.
    memory_limit: int = 1 << 40

    @classmethod
    def of(
        cls,
        est: Any,
        basis: Basis,
        training: Training,
        likelihood: Any,
        settings: Settings,
    ) -> LearningData:
        """Return training rows and the dictionary of a basis; classes are learned one against the rest."""
        flat = flat_columns(est, basis, settings.scheme)
        columns = basis.columns
        if columns is None:
            columns = columns_at(basis.extra, training.X, basis.n_columns)
        weights = np.ones(len(training.X)) if training.weights is None else training.weights
        if basis.bias:
            columns = columns - column_means(columns, weights)
        if likelihood.name == "multinomial":
            likelihood = replace(likelihood, name="bernoulli")
        targets = [column for target in likelihood.targets(training.y) for column in np.atleast_2d(target.T)]
        if likelihood.name == "gaussian":
            if flat:  # a trend along columns without a prior does not change the kernel
                root, F = np.sqrt(weights), columns[:, flat]
                G = root[:, np.newaxis] * F
                targets = [t - F @ np.linalg.lstsq(G, root * t, rcond=None)[0] for t in targets]
            targets = [target.copy() for target in targets if _varies(target)]
        counts = training.row_counts
        return cls(
            X=training.X,
            centres=basis.centres,
            fixed=np.hstack([np.ones((len(columns), int(basis.bias))), columns]),
            targets=targets,
            weights=weights,
            likelihood=likelihood.name,
            noise_variance=settings.noise_variance,
            n_before=int(basis.bias),
            counts=counts,
            noise_factors=None if training.noise is None else counts / weights,
            memory_limit=check_memory_limit(est.memory_limit),
        )

    def basis(self, kernels: list[Kernel]) -> Basis:
        """Return the dictionary with these kernels; its columns need no centring."""
        m, columns = len(self.centres), self.fixed[:, self.n_before :]
        offset = np.zeros(columns.shape[1])
        own: Any = {"extra": None, "offset": offset, "columns": columns}
        return Basis(self.n_before > 0, kernels, m, np.arange(m), self.centres, **own)

    def without(self, out: NDArray[np.bool_]) -> LearningData:
        """Return the same without these rows, with all centres."""
        found, number = self.at(np.flatnonzero(~out), np.arange(len(self.centres))), np.cumsum(~out) - 1
        if self.centre_rows is None:
            return found
        return replace(found, centre_rows=np.where(out[self.centre_rows], -1, number[self.centre_rows]))

    def of_equal_rows(self, first: IntArray, number: IntArray, factor: float) -> LearningData:
        """Return each set of equal rows as its first, with ``factor`` times the sum of their weights.

        ``number``: that of the set of each row.
        """

        def total(weights: FloatArray) -> FloatArray:
            return np.asarray(factor * np.bincount(number, weights))

        found, few = self.at(first, np.arange(len(self.centres))), self.few_counts
        weights, counts = total(self.weights), None if self.counts is None else total(self.counts)
        return replace(
            found,
            weights=weights,
            counts=counts,
            noise_factors=None if self.noise_factors is None or counts is None else counts / weights,
            centre_rows=None if self.centre_rows is None else number[self.centre_rows],
            few_counts=None if few is None else replace(few.at(first), weights=total(few.weights)),
        )

    def with_linear_terms(self) -> LearningData:
        """Return the same with the columns of X, centred if there is a bias, among the fixed functions."""
        columns = self.X - column_means(self.X, self.weights) if self.n_before else self.X
        return replace(self, fixed=np.hstack([self.fixed, columns]))

    def standardised(self) -> tuple[FloatArray, float]:
        """Return the targets with mean 0 and variance 1, N x C, and the std of the first."""
        centred, stds = self.centred()
        return np.column_stack([t / std for t, std in zip(centred, stds, strict=True)]), stds[0]

    def centred(self) -> tuple[list[FloatArray], list[float]]:
        """Return the targets with mean 0, and the standard deviation of each."""
        centred = [t - np.average(t, weights=self.weights) for t in self.targets]
        return centred, [float(np.sqrt(np.average(t**2, weights=self.weights))) for t in centred]

    def at(self, rows: IntArray, centres: IntArray) -> LearningData:
        """Return these rows, with functions about these centres."""
        return replace(
            self,
            X=self.X[rows],
            centres=self.centres[centres],
            fixed=self.fixed[rows],
            targets=[target[rows] for target in self.targets],
            weights=self.weights[rows],
            centre_rows=None,
            few_counts=None if self.few_counts is None else self.few_counts.at(rows),
            counts=None if self.counts is None else self.counts[rows],
            noise_factors=None if self.noise_factors is None else self.noise_factors[rows],
        )

    def log_density(
        self, target: FloatArray, mean: FloatArray, variance: FloatArray, noise: float
    ) -> FloatArray:
        """Return the log predictive density of each row, as often as it counts.

        ``variance``: of the function; ``noise``: the noise variance of the fit.
        """
        total = variance + noise * (1.0 if self.noise_factors is None else self.noise_factors)
        log_p = -0.5 * (np.log(2.0 * np.pi * total) + (target - mean) ** 2 / total)
        return np.asarray(log_p if self.counts is None else self.counts * log_p)


def _varies(target: FloatArray) -> bool:
    """Tell whether a target has a variance; squares may underflow or overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.0 < float(np.var(target)) < np.inf


def draw(n: int, most: int) -> IntArray:
    """Draw at most ``most`` of n numbers, ascending; the same for equal arguments."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])
