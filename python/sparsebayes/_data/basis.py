"""The two kinds of basis: kernels centred at the candidates, and the columns of X.

A basis is made from the arguments of an estimator and the training rows. It evaluates its functions, builds
the dictionary for the core, and publishes attributes. A fitted estimator keeps it, with the active functions
only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .._checks.arguments import check_flag, check_n_jobs, learning_argument
from .._checks.numbers import PLAIN, column_means
from .._checks.targets import Training, check_sizes, check_square, distinct_rows
from .._types import FloatArray, IntArray
from ..kernels import Gaussian, Kernel, Linear
from ..kernels._parameters import column_stds
from ..kernels._resolve import is_precomputed, measures_inputs, resolve
from . import candidates as _candidates
from .design import (
    Design,
    Layout,
    centre,
    centring,
    check_extra_basis,
    columns_at,
    core_kernels,
    dense_design,
    evaluate,
    fitted_extra,
    is_transformer,
    kernel_design,
    matrix,
)

if TYPE_CHECKING:
    from .statistics import SufficientStatistics

#: Most values of a block of rows, and least and most rows of a block, which take precedence.
_MAX_VALUES: Final = 1 << 22
_MIN_ROWS, _MAX_ROWS = 512, 8192


def block_rows(width: int, values: int = _MAX_VALUES) -> int:
    """Return the number of rows of a block if each has ``width`` values: a power of 2."""
    rows = 1 << max(0, (values // max(1, width)).bit_length() - 1)
    return min(max(rows, _MIN_ROWS), _MAX_ROWS)


def without_rows(n_features: int, n_samples: int = 0, inputs: FloatArray | None = None) -> Training:
    """Return the shape of training data as two rows: ``inputs``, which have the moments of X, or zeros."""
    X = np.zeros((2, n_features)) if inputs is None else inputs
    return Training(X, np.zeros(2), None, np.arange(2), n_samples)


@dataclass(frozen=True)
class ColumnBasis:
    """The columns of X, after a bias if there is one."""

    bias: bool
    #: Number of functions besides the bias, the columns of X.
    n_summed: int
    #: Subtracted from the columns.
    offset: FloatArray

    @classmethod
    def of(cls, est: Any, training: Training, *, stored: bool = True) -> ColumnBasis:
        """Return the basis of an estimator for these rows; ``stored``: False if they are not in memory."""
        bias = check_flag("fit_intercept", est.fit_intercept)
        return cls(bias, training.X.shape[1], centring(training.X, training.weights, bias=bias and stored))

    @classmethod
    def check_without_rows(cls, est: Any, doing: str) -> None:
        """Raise ValueError, naming the remedy, if the functions depend on all rows, for ``doing`` this."""

    @classmethod
    def first_pass(cls, est: Any, n_features: int, limit: int) -> tuple[int | None, bool]:
        """Return the size of the first pass's sample (None: no sample), and whether it sums moments."""
        return None, est._labels and check_flag("fit_intercept", est.fit_intercept)

    @classmethod
    def sized(cls, est: Any, n_rows: int, n_features: int) -> ColumnBasis:
        """Return a basis of the size that an estimator's will have, for estimates of memory."""
        return cls(False, n_features, np.zeros(0))

    @property
    def layout(self) -> Layout:
        """The order of the functions."""
        return Layout(self.bias, self.n_summed, np.arange(self.n_summed))

    @property
    def n_centred(self) -> int:
        """Number of functions, the last ones, that are columns centred by a bias."""
        return self.n_summed

    @property
    def width(self) -> int:
        """Values that are stored for a row while it is added to sums."""
        return self.n_summed

    def design(self, training: Training, n_threads: int | None) -> Design:
        """Return the dictionary for the core."""
        check_sizes(training.X)
        return dense_design([training.X], self.layout, self.offset if self.bias else None)

    def dense(self, est: Any, training: Training) -> FloatArray:
        """Return the dictionary of a fitted model, N x K, evaluated in NumPy alone."""
        return matrix([training.X], bias=self.bias, offset=self.offset if self.bias else None)

    def whole(self, est: Any, training: Training) -> ColumnBasis:
        """Return the basis with all functions of the dictionary."""
        return self

    def functions(self, active: IntArray, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the functions of these names at the rows X, (n, n_active)."""
        phi, columns = np.ones((len(X), len(active))), active[active >= 0]
        phi[:, active >= 0] = X[:, columns] - self.offset[columns]
        return phi

    def summed(self, X: FloatArray, shift: FloatArray, n_threads: int | None) -> FloatArray:
        """Return all functions but the bias; ``shift`` is subtracted from the columns."""
        return X - shift if shift.any() else X

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows to sums; after an error none has been added."""
        stats._core.update(X, t, w, n_threads=stats._n_jobs)

    def shift(self, inputs: FloatArray | None) -> FloatArray:
        """Return numbers close to the means of the columns; ``inputs``: rows with the moments of X."""
        shift = inputs.mean(axis=0) if self.bias and inputs is not None else np.zeros(self.n_summed)
        return np.where(np.isfinite(shift), shift, 0.0)  # others raise errors in the fit

    def remedy(self, n_basis: int) -> str:
        """Return what to give for this many functions."""
        return f"{n_basis} columns"

    def publish(self, est: Any, training: Training | None) -> None:
        """Publish the attributes of the basis; the posterior is already published."""
        est._basis, est.X_offset_ = self, self.offset
        functions, weights = est.active_ >= 0, output_weights(est)
        coef = np.zeros((len(weights), self.n_summed))
        coef[:, est.active_[functions]] = weights[:, functions]
        est.coef_ = coef if est._labels or est.mu_.ndim == 2 else coef[0]
        est.intercept_ = bias_weights(est) - coef @ self.offset


#: Bytes per number of the sample that centres are chosen from, with its copies.
_SAMPLE_BYTES: Final = 64


@dataclass(frozen=True)
class KernelBasis:
    """One function per kernel and centre, k(., z_m), after a bias and before any extra columns."""

    bias: bool
    #: None of them: X holds kernel values.
    kernels: list[Kernel]
    #: Names of each kernel's functions, out of ``size``, ascending; and their centres.
    size: int
    kept: IntArray
    centres: FloatArray
    #: The fitted ``extra_basis``, and what is subtracted from its columns.
    extra: Any
    offset: FloatArray
    #: The extra columns at the rows of the fit; not in a fitted model.
    columns: FloatArray | None = None

    @classmethod
    def of(cls, est: Any, training: Training, *, stored: bool = True) -> KernelBasis:
        """Return the basis of an estimator for these rows.

        ``stored``: False if the rows are not in memory; the centres are then already placed.
        """
        if stored:
            _candidates.place(est, training)
        bias, kernels = check_flag("fit_intercept", est.fit_intercept), fit_kernels(est, training)
        size, kept = _candidates.block_size(est, training), _candidates.in_use(est, training)
        # X may be passed without a copy: the core and callables copy it.
        centres = training.X
        if not kernels:
            centres = centres[:0]
        elif kept is not training.rows:
            centres = _candidates.points(est, training, kept)
        extra = fitted_extra(est.extra_basis, est.kernel, training.X)
        if not stored:
            offset = np.zeros(columns_at(extra, est.candidates_[:1]).shape[1])
            return cls(bias, kernels, size, kept, centres, extra, offset)
        columns = columns_at(extra, training.X)
        offset = centring(columns, training.weights, bias=bias)
        columns = centre(columns.copy(), offset)
        return cls(bias, kernels, size, kept, centres, extra, offset, columns)

    @classmethod
    def check_without_rows(cls, est: Any, doing: str) -> None:
        """Raise ValueError, naming the remedy, if the functions depend on all rows, for ``doing`` this."""
        if is_precomputed(est.kernel):
            raise ValueError(
                f"kernel='precomputed' has a column for each row and is not possible for {doing}"
            )
        if est.candidates is None:
            raise ValueError(
                f"candidates must be an integer or an array for {doing}: with None each row adds a function; "
                "an integer chooses that many rows"
            )
        if argument := learning_argument(est):
            raise ValueError(
                f"{argument} needs the rows in memory and is not possible for {doing}; learn on a "
                "sample, and give its kernel_ as kernel"
            )
        if check_flag("keep_rows", getattr(est, "keep_rows", False)):
            raise ValueError(f"keep_rows must be False for {doing}, which keeps no rows")
        check_extra_basis(est.extra_basis, est.kernel)
        if is_transformer(est.extra_basis):
            raise ValueError(
                f"extra_basis must be None, 'linear' or a callable for {doing}: a transformer is fitted to "
                "all rows; fit it beforehand and give extra_basis=transformer.transform"
            )

    @classmethod
    def first_pass(cls, est: Any, n_features: int, limit: int) -> tuple[int | None, bool]:
        """Return the size of the first pass's sample (None: no sample), and whether it sums moments."""
        scale = measures_inputs(est.kernel, est.gamma)
        if not _candidates.is_number(est.candidates):
            return None, scale
        size = _candidates.sample_size(est.candidates)
        room = limit // (_SAMPLE_BYTES * n_features)
        return max(_candidates.number(est.candidates, size) + 1, min(size, room)), scale

    @classmethod
    def sized(cls, est: Any, n_rows: int, n_features: int) -> KernelBasis:
        """Return a basis of the size that an estimator's will have, for estimates of memory."""
        n_kernels = len(est.kernel) if isinstance(est.kernel, (list, tuple)) else 1
        n = _candidates.number(est.candidates, n_rows)
        kernels: list[Kernel] = [Linear()] * n_kernels
        return cls(False, kernels, n, np.arange(n), np.broadcast_to(0.0, (n, n_features)), None, np.zeros(0))

    @property
    def layout(self) -> Layout:
        """The order of the functions."""
        return Layout(self.bias, self.size, self.kept, self._n_blocks)

    @property
    def _n_blocks(self) -> int:
        return max(1, len(self.kernels))

    @property
    def n_centred(self) -> int:
        """Number of functions, the last ones, that are columns centred by a bias."""
        return len(self.offset)

    @property
    def n_summed(self) -> int:
        """Number of functions besides the bias."""
        return self._n_blocks * len(self.kept) + len(self.offset)

    @property
    def in_core(self) -> bool:
        """Whether the core evaluates all functions but the bias."""
        return core_kernels(self.kernels) is not None and len(self.offset) == 0

    @property
    def width(self) -> int:
        """Values that are stored for a row while it is added to sums; of kernels only Python's own."""
        own = 0 if core_kernels(self.kernels) is not None else len(self.kernels) * len(self.centres)
        return int(self.centres.shape[1]) + len(self.offset) + own

    def design(self, training: Training, n_threads: int | None) -> Design:
        """Return the dictionary for the core."""
        X, extra = training.X, self.columns
        assert extra is not None
        if not self.kernels:
            return dense_design([X[:, self.kept], extra], self.layout)
        if cores := core_kernels(self.kernels):
            return kernel_design(X, self.centres, cores, self.layout, extra)
        blocks = [evaluate(kernel, X, self.centres, n_threads) for kernel in self.kernels]
        return dense_design([*blocks, extra], self.layout)

    def dense(self, est: Any, training: Training) -> FloatArray:
        """Return the dictionary of a fitted model, N x K, evaluated in NumPy alone."""
        blocks = dense_blocks(est, training, _candidates.in_use(est, training))
        return matrix([*blocks, self._extra_at(training.X)], bias=self.bias)

    def whole(self, est: Any, training: Training) -> KernelBasis:
        """Return the basis with all functions of the dictionary."""
        size, kept = _candidates.block_size(est, training), _candidates.in_use(est, training)
        centres = _candidates.points(est, training, kept) if self.kernels else self.centres
        return replace(self, size=size, kept=kept, centres=centres)

    def _extra_at(self, X: FloatArray) -> FloatArray:
        return centre(columns_at(self.extra, X, self.n_centred).copy(), self.offset)

    def extra_columns(self, active: IntArray) -> IntArray:
        """Return the extra column of each of these functions; negative for kernels and the bias."""
        return active - self._n_blocks * self.size

    def functions(self, active: IntArray, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the functions of these names at the rows X, (n, n_active)."""
        phi, columns = np.ones((len(X), len(active))), self.extra_columns(active)
        if self.n_centred > 0:
            extra = columns_at(self.extra, X, self.n_centred) - self.offset
            phi[:, columns >= 0] = extra[:, columns[columns >= 0]]
        block, row = np.divmod(active, self.size)
        if not self.kernels:
            inside = block == 0
            phi[:, inside] = X[:, active[inside]]
        for p, kernel in enumerate(self.kernels):
            inside = block == p
            if inside.any():
                centres = self.centres[np.searchsorted(self.kept, row[inside])]
                phi[:, inside] = evaluate(kernel, X, centres, n_threads)
        return phi

    def summed(self, X: FloatArray, shift: FloatArray, n_threads: int | None) -> FloatArray:
        """Return all functions but the bias; ``shift`` is subtracted from the extra columns."""
        blocks = [evaluate(kernel, X, self.centres, n_threads) for kernel in self.kernels]
        return np.hstack([*blocks, columns_at(self.extra, X, self.n_centred) - shift])

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows to sums; after an error none has been added."""
        n_threads = stats._n_jobs
        # Arrays unpickled from messages may be misaligned.
        X, centres, t = (np.require(part, np.float64, PLAIN) for part in (X, self.centres, t))
        w = None if w is None else np.require(w, np.float64, PLAIN)
        if cores := core_kernels(self.kernels):  # evaluated in strips
            extra = columns_at(self.extra, X, self.n_centred)
            beside = np.asfortranarray(extra) if self.n_centred else None
            stats._core.update_kernel(X, centres, cores, t, w, extra=beside, n_threads=n_threads)
            return
        rows, nothing = block_rows(self.width), np.zeros(self.n_centred)
        if len(X) <= rows:
            stats._core.update(self.summed(X, nothing, n_threads), t, w, n_threads=n_threads)
            return
        sums = type(stats)(self.n_summed, n_jobs=n_threads)
        for start in range(0, len(X), rows):
            at = slice(start, start + rows)
            self.add(sums, X[at], t[at], None if w is None else w[at])
        stats.merge(sums)

    def shift(self, inputs: FloatArray | None) -> FloatArray:
        """Return numbers close to the means of the extra columns."""
        if not self.bias or self.n_centred == 0:
            return np.zeros(self.n_centred)
        mean: FloatArray = columns_at(self.extra, self.centres, self.n_centred).mean(axis=0)
        return mean

    def remedy(self, n_basis: int) -> str:
        """Return what to give for this many functions."""
        return f"candidates={max(0, n_basis - self.n_centred) // len(self.kernels)}"

    def publish(self, est: Any, training: Training | None) -> None:
        """Publish the attributes of the basis; the posterior is already published."""
        columns, weights = self.extra_columns(est.active_), output_weights(est)
        kernels = (est.active_ >= 0) & (columns < 0)
        relevance = np.unique(est.active_[kernels] % self.size)
        for name in ("relevance_vectors_", "dual_coef_", "extra_coef_", "inputs_"):
            est.__dict__.pop(name, None)  # left by an earlier fit with another kernel
        est.relevance_, est.extra_basis_ = relevance, self.extra
        est.kernel_ = as_given(est, self.kernels)
        if self.kernels:
            est.relevance_vectors_ = self.centres[np.searchsorted(self.kept, relevance)]
        if not isinstance(est.kernel_, list):
            est.dual_coef_ = weights[:, kernels]
        centres = est.relevance_vectors_ if self.kernels else self.centres
        est._basis = replace(self, kept=relevance, centres=centres, columns=None)
        publish_linear(est, bias_weights(est))
        if (
            training is not None
            and isinstance(est.kernel_, Gaussian)
            and isinstance(est.kernel_.width, tuple)
        ):
            est.inputs_ = _input_relevances(est, training, est.kernel_)
        if self.extra is not None:
            est.extra_coef_ = np.zeros((len(weights), self.n_centred))
            est.extra_coef_[:, columns[columns >= 0]] = weights[:, columns >= 0]
            est.intercept_ = est.intercept_ - est.extra_coef_ @ self.offset


Basis: TypeAlias = ColumnBasis | KernelBasis


# --- weights of a fitted model -------------------------------------------------------------------------


def output_weights(est: Any) -> FloatArray:
    """Return the posterior means, (n_outputs, n_active)."""
    return np.atleast_2d(est.mu_.T)


def bias_weights(est: Any) -> FloatArray:
    """Return the posterior mean of the bias for each output, 0 if it is not in the model."""
    bias: FloatArray = output_weights(est)[:, est.active_ == -1].sum(axis=1)
    return bias


# --- kernels of an estimator ---------------------------------------------------------------------------


def fit_kernels(est: Any, training: Training) -> list[Kernel]:
    """Return the kernels of an estimator with every parameter known; none if X holds kernel values."""
    if is_precomputed(est.kernel):
        check_square(training)
        return []
    centred = check_flag("fit_intercept", est.fit_intercept)
    return resolve(
        est.kernel,
        X=training.X,
        gamma=est.gamma,
        degree=est.degree,
        coef0=est.coef0,
        sample_weight=training.counts,
        feature_names=getattr(est, "feature_names_in_", None),
        middle=partial(_middle, est, training) if centred else None,
        learns=hasattr(est, "optimize_kernel"),
    )


def _middle(est: Any, training: Training) -> FloatArray:
    """Return the mean of the centres, which linear kernels subtract if there is an intercept.

    So a constant added to a column of X, and of the centres, does not change the model.
    """
    centres: FloatArray | None = getattr(est, "candidates_", None)
    return column_means(training.at(distinct_rows(training)) if centres is None else centres, None)


def as_given(est: Any, kernels: list[Kernel]) -> Kernel | list[Kernel] | str:
    """Return the kernels in the form of ``kernel_``: a list if ``kernel`` is one."""
    if not kernels:
        return "precomputed"
    return kernels if isinstance(est.kernel, (list, tuple)) else kernels[0]


def at_relevance(est: Any, kernel: Any, X: FloatArray) -> FloatArray:
    """Return a kernel between these rows and the relevance vectors, (n, n_relevance)."""
    if is_precomputed(kernel):
        return X[:, est.relevance_]
    return evaluate(kernel, X, est.relevance_vectors_, check_n_jobs(est.n_jobs))


def dense_blocks(est: Any, training: Training, kept: IntArray) -> list[FloatArray]:
    """Return the functions of each fitted kernel at the training rows, evaluated in NumPy alone."""
    if is_precomputed(est.kernel_):
        return [training.X[:, kept]]
    centres = _candidates.points(est, training, kept)
    return [kernel(training.X, centres) for kernel in est._kernels()]


def publish_linear(est: Any, bias: FloatArray) -> None:
    """Publish ``intercept_`` and, for a linear kernel, ``coef_``."""
    est.intercept_ = bias
    est.__dict__.pop("coef_", None)  # left by an earlier fit with another kernel
    if isinstance(est.kernel_, Linear):
        est.coef_ = est.dual_coef_ @ est.kernel_.centred(est.relevance_vectors_)
        if est.kernel_.offset is not None:
            est.intercept_ = bias - est.coef_ @ np.asarray(est.kernel_.offset)


def _input_relevances(est: Any, training: Training, kernel: Gaussian) -> dict[str | int, float]:
    """Return how much the prediction changes with each input, the most important first.

    The root mean square over rows and outputs of the slope of the kernel functions,
    df/dx_d = -2 sum_m w_m k(x, c_m) (x_d - c_md) / width_d^2, times the standard deviation of the input,
    relative to the largest.
    """
    X, centres = training.X, est.relevance_vectors_
    K = evaluate(kernel, X, centres, check_n_jobs(est.n_jobs))
    square = np.zeros(X.shape[1])
    for weights in est.dual_coef_:
        values = K * weights
        slope = values.sum(axis=1, keepdims=True) * X - values @ centres
        square += np.average(slope**2, axis=0, weights=training.weights)
    size = np.sqrt(square) * column_stds(X, training.weights) / np.square(kernel.width)
    size /= size.max() or 1.0
    names = getattr(est, "feature_names_in_", range(X.shape[1]))
    order = np.argsort(-size, kind="stable")
    return {names[d] if isinstance(names[d], str) else int(names[d]): float(size[d]) for d in order}
