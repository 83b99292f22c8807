"""The rows and the dictionary that kernel parameters are learned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._arrays import Training
from .._checks import column_means
from .._data.basis import Basis, flat_columns
from .._data.design import Design, columns_at
from .._data.statistics import check_memory_limit
from .._estimators.likelihoods import Numbers
from .._types import FloatArray, IntArray, Likelihood, Settings
from ..kernels import Kernel


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
