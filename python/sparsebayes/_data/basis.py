"""The basis of an estimator: kernels centred at the candidates, or the columns of X, or both.

A basis is made from the arguments of an estimator and the training rows. It evaluates its functions, builds
the dictionary for the core, and publishes attributes. A fitted estimator keeps it, with the active kernel
functions only. Sums over rows whose functions are the columns of a sparse matrix or of a linear operator are
`ColumnStatistics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from .. import _core
from .._arrays import (
    SMALLEST,
    Training,
    check_sizes,
    check_square,
    distinct_rows,
    is_operator,
    naming,
    refuse_faint,
)
from .._checks import PLAIN, any_array, check_flag, check_integer, check_n_jobs, column_means, is_auto
from .._row_likelihoods import ROW_LIKELIHOODS
from .._types import FloatArray, IntArray, Likelihood
from ..kernels import Kernel, Linear
from ..kernels._base import check_columns, positions
from ..kernels._resolve import is_precomputed, learns_widths, measures_inputs, resolve
from ..kernels._standard import Radial
from ..providers import Functions, PyStatistics
from . import candidates as _candidates
from .design import (
    Design,
    Layout,
    centre,
    check_extra_basis,
    columns_at,
    core_kernels,
    evaluate,
    fit_sums,
    fitted_extra,
    is_given,
    is_transformer,
    matrix,
)

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

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


#: Arguments of an estimator that its functions depend on, besides ``fit_intercept``.
_OF_KERNELS: Final = ("kernel", "gamma", "degree", "coef0", "optimize_kernel", "candidates", "extra_basis")
#: Rows of the sample that a kernel is learned from if the rows are not in memory.
LEARNING_ROWS: Final = 2000
#: Kernel values that `inputs_` averages over, and the least number of rows.
_RELEVANCE_VALUES: Final = 2_000_000
_RELEVANCE_ROWS: Final = 100
#: Bytes per number of the sample that centres are chosen from, with its copies.
_SAMPLE_BYTES: Final = 64


@dataclass(frozen=True)
class Basis:
    """A bias, then kernels about centres, k(., z_m), then columns computed from X.

    `SparseBayesRegressor` and `SparseBayesClassifier` have no kernels, and the columns of X.
    """

    bias: bool
    kernels: list[Kernel]
    #: Names of each kernel's functions, out of ``size``, ascending; and their centres.
    size: int
    kept: IntArray
    centres: FloatArray
    #: The fitted ``extra_basis``, which computes the columns, and what is subtracted from them.
    extra: Any
    offset: FloatArray
    #: Whether X holds the values of a kernel.
    precomputed: bool = False
    #: The columns at the rows of the fit, not centred; not in a fitted model.
    columns: FloatArray | None = None
    #: The arguments that it was made of, by name, if calls of ``partial_fit`` are to have the same.
    arguments: Mapping[str, Any] | None = None

    @property
    def n_blocks(self) -> int:
        """Number of kernels."""
        return 1 if self.precomputed else len(self.kernels)

    @property
    def n_columns(self) -> int:
        """Number of columns computed from X, which a bias centres."""
        return len(self.offset)

    @property
    def n_summed(self) -> int:
        """Number of functions besides the bias."""
        return self.n_blocks * len(self.kept) + self.n_columns

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.bias) + self.n_summed

    @property
    def n_centred(self) -> int:
        """Number of columns that a fit centres."""
        return self.n_columns if self.bias else 0

    @property
    def layout(self) -> Layout:
        """The order of the functions."""
        if self.n_blocks == 0:
            return Layout(self.bias, self.n_columns, np.arange(self.n_columns))
        return Layout(self.bias, self.size, self.kept, self.n_blocks)

    @property
    def width(self) -> int:
        """Values that are stored for a row while it is added to sums; of kernels only Python's own."""
        own = len(self.kernels) * len(self.centres) if core_kernels(self.kernels) is None else 0
        return int(self.centres.shape[1]) + self.n_columns + own

    def design(self, X: FloatArray, n_threads: int | None) -> Design:
        """Return the dictionary at the rows of the fit for the core."""
        columns, bias = self.columns, self.bias
        assert columns is not None
        offset = self.offset if bias and self.n_columns > 0 else None
        if cores := core_kernels(self.kernels):
            extra = columns if offset is None else centre(columns.copy(), offset)
            options: Any = {"bias": bias, "extra": np.asfortranarray(extra) if self.n_columns > 0 else None}
            fits: Any = _core.fit_kernel, _core.fit_kernel_outputs, _core.fit_kernel_in_blocks, fit_sums
            return Design(self.n_basis, *(partial(fit, X, self.centres, cores, **options) for fit in fits))
        blocks = [evaluate(kernel, X, self.centres, n_threads) for kernel in self.kernels]
        if self.precomputed:
            blocks = [X[:, self.kept]]
        elif not blocks:
            check_sizes(X)
        blocks = [*blocks, columns] if self.n_columns > 0 else blocks
        is_plain = len(blocks) == 1 and blocks[0].dtype == np.float64 and blocks[0].flags.forc
        is_plain = is_plain and not bias and offset is None
        Phi = blocks[0] if is_plain else matrix(blocks, bias=bias, offset=offset)
        return Design(self.n_basis, partial(_core.fit_dense, Phi), partial(_core.fit_dense_outputs, Phi))

    def dense(self, est: Any, training: Training) -> FloatArray:
        """Return the dictionary of a fitted model, N x K, evaluated in NumPy alone."""
        kept = _candidates.in_use(est, training) if self.n_blocks > 0 else self.kept
        blocks = dense_blocks(est, training, kept) if self.n_blocks > 0 else []
        if self.n_columns > 0:
            blocks.append(columns_at(self.extra, training.X, self.n_columns))
        return matrix(blocks, bias=self.bias, offset=self.offset if self.n_columns > 0 else None)

    def whole(self, est: Any, training: Training) -> Basis:
        """Return the basis of a fitted model with all functions of the dictionary."""
        if self.n_blocks == 0:
            return self
        size, kept = _candidates.block_size(est, training), _candidates.in_use(est, training)
        centres = self.centres if self.precomputed else _candidates.points(est, training, kept)
        return replace(self, size=size, kept=kept, centres=centres)

    def for_calls(self, est: Any) -> Basis:
        """Return the basis for ``partial_fit``; ValueError if an argument is not that of its first call."""
        names = [name for name in ("fit_intercept", *_OF_KERNELS) if hasattr(est, name)]
        # A copy of the kernel, whose parameters `set_params` changes in place.
        given = {
            name: deepcopy(getattr(est, name)) if name == "kernel" else getattr(est, name) for name in names
        }
        for name, first in (self.arguments or given).items():
            if not _is_same(first, given[name]):
                raise ValueError(
                    f"{name} must stay as at the first call of partial_fit, which chose the functions: set "
                    "it back, or start with a new estimator"
                )
        return self if self.arguments else replace(self, arguments=given)

    def column_of(self, active: IntArray) -> IntArray:
        """Return the column that each of these functions is; negative for kernels and the bias."""
        return active - self.n_blocks * self.size

    def functions(
        self, active: IntArray, X: FloatArray, n_threads: int | None, extra: FloatArray | None = None
    ) -> FloatArray:
        """Return the functions of these names at the rows X, (n, n_active); ``extra``: their columns."""
        phi, columns = np.ones((X.shape[0], len(active))), self.column_of(active)
        if self.n_columns > 0:
            used = columns[columns >= 0]
            extra = columns_at(self.extra, X, self.n_columns) if extra is None else extra
            phi[:, columns >= 0] = as_table(extra[:, used]) - self.offset[used]
        if self.n_blocks > 0:
            block, row = np.divmod(active, self.size)
        if self.precomputed:
            phi[:, block == 0] = X[:, active[block == 0]]
        for p, kernel in enumerate(self.kernels):
            if (inside := block == p).any():
                centres = self.centres[np.searchsorted(self.kept, row[inside])]
                phi[:, inside] = evaluate(kernel, X, centres, n_threads)
        return phi

    def rows(self, active: IntArray, X: Any) -> Any:
        """Return rows that can be sliced: of a linear operator the columns of these functions."""
        columns = self.column_of(active)
        return with_columns(X, columns[columns >= 0]) if is_operator(X) else X

    def summed(self, X: FloatArray, shift: FloatArray, n_threads: int | None) -> FloatArray:
        """Return all functions but the bias; ``shift`` is subtracted from the columns."""
        columns = columns_at(self.extra, X, self.n_columns)
        columns = columns - shift if shift.any() else columns
        blocks = [evaluate(kernel, X, self.centres, n_threads) for kernel in self.kernels]
        return np.hstack([*blocks, columns]) if blocks else columns

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows to sums; after an error none has been added."""
        n_threads = stats._n_jobs
        # Arrays unpickled from messages may be misaligned.
        t, w = np.require(t, np.float64, PLAIN), None if w is None else np.require(w, np.float64, PLAIN)
        if cores := core_kernels(self.kernels):  # evaluated in strips
            X, centres = (np.require(part, np.float64, PLAIN) for part in (X, self.centres))
            extra = np.asfortranarray(columns_at(self.extra, X, self.n_columns)) if self.n_columns else None
            stats._core.update_kernel(X, centres, cores, t, w, extra=extra, n_threads=n_threads)
            return
        rows, nothing = block_rows(self.width), np.zeros(self.n_columns)
        if len(X) <= rows or not self.kernels:
            stats._core.update(self.summed(X, nothing, n_threads), t, w, n_threads=n_threads)
            return
        sums = type(stats)(self.n_summed, n_jobs=n_threads)
        for start in range(0, len(X), rows):
            at = slice(start, start + rows)
            self.add(sums, X[at], t[at], None if w is None else w[at])
        stats.merge(sums)

    def shift(self, inputs: FloatArray | None) -> FloatArray:
        """Return numbers close to the means of the columns; ``inputs``: rows with the moments of X."""
        points = self.centres if self.kernels else inputs
        if not self.bias or self.n_columns == 0 or points is None:
            return np.zeros(self.n_columns)
        mean = columns_at(self.extra, points, self.n_columns).mean(axis=0)
        return np.where(np.isfinite(mean), mean, 0.0)  # others raise errors in the fit

    def publish(self, est: Any, training: Training | None) -> None:
        """Publish the attributes of the basis; the posterior is already published."""
        columns, weights = self.column_of(est.active_), output_weights(est)
        beside, kernels = columns >= 0, (est.active_ >= 0) & (columns < 0)
        bias = weights[:, est.active_ == -1].sum(axis=1)
        coef = np.zeros((len(weights), self.n_columns))
        coef[:, columns[beside]] = weights[:, beside]
        if self.n_blocks == 0:
            est._basis, est.X_offset_ = replace(self, columns=None), self.offset
            est.coef_ = coef if est._labels or est.mu_.ndim == 2 else coef[0]
            est.intercept_ = bias - coef @ self.offset
            return
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
        publish_linear(est, bias)
        if training is not None and isinstance(est.kernel_, Radial) and np.ndim(est.kernel_.width) > 0:
            with np.errstate(all="ignore"):  # inputs near the largest number
                linear = coef if self.extra == "linear" else np.zeros((len(coef), training.X.shape[1]))
                est.inputs_ = _input_relevances(est, training, est.kernel_, linear)
        if self.extra is not None:
            est.extra_coef_ = coef
            est.intercept_ = est.intercept_ - coef @ self.offset


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether two values of an argument are the same, also after pickling."""
    if hasattr(one, "__array__") or hasattr(other, "__array__"):
        return np.array_equal(one, other)
    return bool(one == other) or repr(one) == repr(other)


def basis_of(est: Any, training: Training, *, stored: bool = True) -> Basis:
    """Return the basis of an estimator for these rows.

    ``stored``: False if the rows are not in memory; the centres are then already placed.
    """
    bias = check_flag("fit_intercept", est.fit_intercept)
    X, kernels, size, kept = training.X, [], 0, np.arange(0)
    centres, extra, precomputed = np.empty((0, 0)), "linear", False
    if hasattr(est, "kernel"):
        if stored:
            _candidates.place(est, training)
        kernels, precomputed = fit_kernels(est, training), is_precomputed(est.kernel)
        size, kept = _candidates.block_size(est, training), _candidates.in_use(est, training)
        if kernels:
            # X may be passed without a copy: the core and callables copy it.
            centres = X if kept is training.rows else _candidates.points(est, training, kept)
        extra = fitted_extra(est.extra_basis, est.kernel, X)
    columns = columns_at(extra, X if stored or not kernels else est.candidates_[:1])
    # With centred columns a constant added to a column changes only the bias of the model.
    centred = bias and stored and len(columns) > 0
    offset = column_means(columns, training.weights) if centred else np.zeros(columns.shape[1])
    offset = np.where(np.isfinite(offset), offset, 0.0)  # others raise errors in the fit
    return Basis(bias, kernels, size, kept, centres, extra, offset, precomputed, columns if stored else None)


def with_linear_terms(basis: Basis, training: Training) -> Basis:
    """Return the basis with the columns of X besides the kernels."""
    offset = column_means(training.X, training.weights) if basis.bias else np.zeros(training.X.shape[1])
    return replace(basis, extra="linear", columns=training.X, offset=offset)


def sized(est: Any, n_rows: int, n_features: int) -> Basis:
    """Return a basis of the size that an estimator's will have, for estimates of memory."""
    nothing = np.arange(0), np.empty((0, 0))
    if not hasattr(est, "kernel"):
        return Basis(False, [], 0, *nothing, "linear", np.zeros(n_features))
    n_kernels = len(est.kernel) if isinstance(est.kernel, (list, tuple)) else 1
    n = _candidates.number(est.candidates, n_rows)
    kernels: list[Kernel] = [Linear()] * n_kernels
    return Basis(False, kernels, n, np.arange(n), np.empty((0, n_features)), None, np.zeros(0))


def first_pass(est: Any, n_features: int, limit: int) -> tuple[int | None, bool]:
    """Return the size of the first pass's sample (None: no sample), and whether it sums moments."""
    if not hasattr(est, "kernel"):
        return None, est._labels and check_flag("fit_intercept", est.fit_intercept)
    scale = measures_inputs(est.kernel, est.gamma)
    if not _candidates.is_number(est.candidates):
        return LEARNING_ROWS if learns_kernel(est) else None, scale
    size = _candidates.sample_size(est.candidates)
    room = limit // (_SAMPLE_BYTES * n_features)
    return max(_candidates.number(est.candidates, size) + 1, min(size, room)), scale


def learns_kernel(est: Any) -> bool:
    """Tell whether the fit of an estimator learns parameters of its kernel."""
    if not hasattr(est, "optimize_kernel"):
        return False
    return check_flag("optimize_kernel", est.optimize_kernel) or learns_widths(est.kernel, est.gamma)


def flat_columns(est: Any, basis: Basis, scheme: str) -> list[int]:
    """Return the positions of the columns that ``unpenalized`` names, ascending."""
    if (given := getattr(est, "unpenalized", None)) is None:
        return []
    if not is_given(est.extra_basis):
        raise ValueError("unpenalized needs columns besides the kernels; set extra_basis, such as 'linear'")
    if scheme == "variational":
        raise ValueError("unpenalized needs a scheme other than 'variational', such as 'sequential'")
    if isinstance(given, str) and given == "all":
        return list(range(basis.n_columns))
    names = getattr(est, "feature_names_in_", None) if isinstance(est.extra_basis, str) else None
    with naming("unpenalized"):
        return sorted(set(positions(check_columns(given), basis.n_columns, names, "extra_basis").tolist()))


def groups_of(est: Any, basis: Basis) -> list[IntArray] | None:
    """Return the columns of the dictionary that share a precision, the bias alone; None without groups."""
    if (given := getattr(est, "groups", None)) is None:
        return None
    n, bias = basis.n_columns, int(basis.bias)
    if isinstance(given, Integral) and not isinstance(given, bool):
        size = check_integer("groups", given, least=1)
        if n % size > 0:
            raise ValueError(f"groups={size} must divide the number of columns of X, {n}")
        labels = np.arange(n) // size
    else:
        names = any_array("groups", given)
        try:
            labels = np.unique(names, return_inverse=True)[1]
            if bool((names != names).any()):  # NaN
                raise TypeError
        except TypeError:
            raise ValueError(
                "groups must hold labels of one kind, numbers or strings, none missing"
            ) from None
        if names.shape != (n,):
            raise ValueError(
                f"groups must be the number of columns of each group, or a label for each of the {n} columns "
                f"of X; got {type(given).__name__} of shape {names.shape}"
            )
    order = np.argsort(labels, kind="stable")
    ends = [0, *(np.flatnonzero(np.diff(labels[order])) + 1).tolist(), n]
    order += bias
    return [np.zeros(1, np.intp)] * bias + [order[a:b] for a, b in pairwise(ends)]


def check_sums_suffice(est: Any, doing: str) -> None:
    """Raise ValueError if columns have groups, or the noise depends on the inputs, for ``doing`` this."""
    for name in ("groups", "noise_basis"):
        if getattr(est, name, None) is not None:
            raise ValueError(f"{name} must be None for {doing}")


def check_without_rows(est: Any, doing: str) -> None:
    """Raise ValueError, naming the remedy, if the functions depend on all rows, for ``doing`` this."""
    if not hasattr(est, "kernel"):
        return
    if is_precomputed(est.kernel):
        raise ValueError(f"kernel='precomputed' has a column for each row and is not possible for {doing}")
    if est.candidates is None or is_auto(est.candidates):
        raise ValueError(
            f"candidates must be an integer or an array for {doing}, got {est.candidates!r}: with None each "
            "row adds a function; an integer, such as 1000, chooses that many rows"
        )
    if not isinstance(landmarks := getattr(est, "landmarks", None), (str, type(None))):
        raise ValueError(f"landmarks must be 'auto' or None for {doing}, got {landmarks!r}")
    check_extra_basis(est.extra_basis, est.kernel)
    if is_transformer(est.extra_basis):
        raise ValueError(
            f"extra_basis must be None, 'linear' or a callable for {doing}: a transformer is fitted to "
            "all rows; fit it beforehand and give extra_basis=transformer.transform"
        )


# --- weights of a fitted model -------------------------------------------------------------------------


def output_weights(est: Any) -> FloatArray:
    """Return the posterior means, (n_outputs, n_active)."""
    return np.atleast_2d(est.mu_.T)


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


def publish_relevance(est: Any, training: Training, relevance: IntArray) -> None:
    """Publish the rows with a function in the model and, unless the kernel is precomputed, their inputs."""
    est.relevance_ = relevance
    est.__dict__.pop("relevance_vectors_", None)  # left by an earlier fit with another kernel
    if not is_precomputed(est.kernel_):
        est.relevance_vectors_ = _candidates.points(est, training, relevance)


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


def _input_relevances(
    est: Any, training: Training, kernel: Radial, linear: FloatArray
) -> dict[str | int, float]:
    """Return how much the prediction changes with each input, the most important first.

    The root mean square change of the sum of the kernel functions and of the linear terms, of weights
    ``linear``, over rows and outputs, if the values of the input are exchanged between rows at random;
    relative to the largest. Slopes would miss inputs of a few levels that a narrow kernel separates.
    """
    inverse = 1.0 / np.array(kernel.width)
    some = np.flatnonzero(((inverse > 0.0) | linear.any(axis=0)) & (np.ptp(training.X, axis=0) > 0.0))
    n_values = max(1, est.relevance_vectors_.shape[0] * len(some))
    n = min(len(training.X), max(_RELEVANCE_ROWS, _RELEVANCE_VALUES // n_values))
    at = np.linspace(0, len(training.X) - 1, n).astype(np.intp)
    counts = None if training.weights is None else training.weights[at]
    X, centres = training.X[at] * inverse, est.relevance_vectors_ * inverse
    v = kernel._squares(kernel._total(training.X[at], est.relevance_vectors_))
    sums, size = kernel._profile(v) @ est.dual_coef_.T, np.zeros(X.shape[1])
    order = np.random.default_rng(0).permutation(n)
    for d in some:
        # (x' - z)^2 - (x - z)^2 = (x' - x) (x' + x - 2 z)
        x, other = X[:, d, np.newaxis], X[order, d, np.newaxis]
        squares = x + other - 2.0 * centres[:, d]
        squares *= other - x
        squares += v
        change = kernel._profile(np.maximum(squares, 0.0, out=squares)) @ est.dual_coef_.T - sums
        change += (training.X[at[order], d] - training.X[at, d])[:, np.newaxis] * linear[:, d]
        size[d] = np.sqrt(np.average(np.sum(change**2, axis=1), weights=counts))
    size /= size.max() or 1.0
    names = getattr(est, "feature_names_in_", range(X.shape[1]))
    order = np.argsort(-size, kind="stable")
    return {names[d] if isinstance(names[d], str) else int(names[d]): float(size[d]) for d in order}


# --- columns of a sparse matrix or of a linear operator ---------------------------------------------
#
# Neither is stored as a table: columns are made a few at a time, as a fit asks for them.

#: Numbers in memory for some columns at a time, at most.
_BLOCK: Final = 1 << 22
#: Least size of the largest number of a column where products of squares must not underflow.
_SMALLEST: Final = 1e-80
#: Standard deviations between 0 and the mean of a column from which on sums over rows keep too few digits of
#: it, and from which on the column is constant.
_FAR, _CONSTANT = 3e5, 1e14


def columns_of(X: Any, js: IntArray) -> Any:
    """Return columns of a sparse matrix, sparse, or of an operator, as a table; finite numbers."""
    if not is_operator(X):
        return X[:, js]
    if len(js) == 0:  # SciPy's product, where an operator has none of its own, needs a column
        return np.zeros((X.shape[0], 0))
    units = np.zeros((X.shape[1], len(js)))
    units[js, np.arange(len(js))] = 1.0
    columns = np.asarray(X.matmat(units), dtype=np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("X must be an operator with finite columns; got nan or infinity")
    return columns


def with_columns(X: LinearOperator, js: IntArray) -> Any:
    """Return a sparse matrix of the shape of an operator that has these of its columns."""
    columns = columns_of(X, js)
    n, m = columns.shape
    rows, places = np.tile(np.arange(n), m), np.repeat(js, n)
    return sparse.csr_array((columns.T.ravel(), (rows, places)), shape=X.shape)


def _watched(X: LinearOperator, check: Callable[[], None]) -> LinearOperator:
    """Return an operator that calls ``check`` before each product that SciPy makes of a vector."""
    from scipy.sparse.linalg import LinearOperator  # slow, and loaded by who has an operator

    def own(name: str, *of_class: str) -> Any:
        """Return the product with several columns if the operator has its own."""
        given = getattr(X, f"_CustomLinearOperator__{name}_impl", X)
        if given is X:  # not made by the constructor
            pairs = (
                (getattr(kind, method, None) for kind in (type(X), LinearOperator)) for method in of_class
            )
            given = X if any(one is not other for one, other in pairs) else None
        return None if given is None else getattr(X, name)

    def matvec(v: FloatArray) -> Any:
        check()
        return X.matvec(v)

    def rmatvec(u: FloatArray) -> Any:
        check()
        return X.rmatvec(u)

    several, back = own("matmat", "_matmat"), own("rmatmat", "_rmatmat", "_adjoint")
    return LinearOperator(X.shape, matvec, rmatvec, several, X.dtype, back)


def as_table(values: Any) -> FloatArray:
    """Return a sparse matrix or a table as a table."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


class ColumnStatistics(PyStatistics):
    """The provider of these rows; the first function is constant with ``bias``.

    ``X``: a sparse matrix of compressed columns, or a linear operator.
    """

    def __init__(
        self, X: Any, target: FloatArray, weights: FloatArray | None, likelihood: Likelihood, *, bias: bool
    ) -> None:
        self.likelihood, self.n_basis = likelihood, X.shape[1] + bias
        self._row = ROW_LIKELIHOODS[likelihood]
        self._cancelled: Callable[[], bool] | None = None
        self._X = _watched(X, self._check) if is_operator(X) else X
        self._target = np.asarray(target, np.float64)
        self._weights = np.ones(len(target)) if weights is None else weights
        self._bias = int(bias)
        self._squares: FloatArray | None = None

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Check for cancellation before products."""
        self._cancelled = cancelled

    def _check(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise KeyboardInterrupt

    def first_far(self) -> tuple[int, float] | None:
        """Return the first column that is far from 0, and by how many of its standard deviations.

        None: there is none, or no intercept, which takes up the means. ValueError for columns too small to
        square.
        """
        smallest = SMALLEST if self.likelihood == "gaussian" else _SMALLEST
        v, own = self._weights, slice(self._bias, None)
        with np.errstate(over="ignore", invalid="ignore"):  # the fit reports it
            means, squares = (part[own] / v.sum() for part in (self._products(v), self._diagonal(v)))
            is_doubtful = squares - means**2 < (means / _FAR) ** 2
        faint = np.flatnonzero(squares < smallest**2) + self._bias
        for part, columns in self._blocks(faint):
            sizes = as_table(abs(columns).max(axis=0)).ravel()
            refuse_faint(sizes, faint[part] - self._bias, smallest)
        doubtful = np.flatnonzero(is_doubtful & (self._bias > 0)) + self._bias
        for part, columns in self._blocks(doubtful):
            js, stds = doubtful[part] - self._bias, as_table(columns).std(axis=0)
            is_far = np.abs(means[js]) > _FAR * stds
            if (far := np.flatnonzero(is_far & (_CONSTANT * stds > np.abs(means[js])))).size:
                return int(js[far[0]]), float(abs(means[js[far[0]]]) / stds[far[0]])
        return None

    def target_moments(self, centre: float) -> FloatArray:
        v, t = self._weights, self._target - centre
        return np.array([v.sum(), v @ t, v @ t**2])

    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        deviance, r, w = self._at(active, mu)
        gram = np.empty((self.n_basis, len(wanted)))
        for part, columns in self._blocks(wanted):
            gram[:, part] = self._products(self._weighted(columns, w))
        return deviance, self._products(r), self._diagonal(w), gram

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        deviance, r, w = self._at(active, mu)
        columns = self._columns(js)
        gram = as_table(columns.T @ self._weighted(columns, w))
        return deviance, np.asarray(columns.T @ r), gram

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        deviance, r, _ = self._at(active, mu)
        if is_operator(self._X):
            return deviance, self._products(r)[active]
        return deviance, np.asarray(self._columns(active).T @ r)

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        return self._deviance(self._eta(active, mu))

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        skew = self._weights * self._row.skew(self._eta(active, mu), self._target)
        T = np.asarray(self._columns(active) @ sigma)
        return np.asarray((T**2).T @ (skew[:, np.newaxis] * T))

    def _eta(self, active: Functions, mu: FloatArray) -> FloatArray:
        if len(active) == 0:
            return np.zeros(len(self._target))
        if is_operator(self._X):
            weights = np.zeros(self.n_basis)
            weights[active] = mu
            return np.asarray(self._X.matvec(weights[self._bias :]) + weights[: self._bias].sum())
        return np.asarray(self._columns(active) @ mu)

    def _at(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the deviance, and the derivatives r and w."""
        eta, t, v = self._eta(active, mu), self._target, self._weights
        return self._deviance(eta), v * self._row.slope(eta, t), v * self._row.curvature(eta, t)

    def _deviance(self, eta: FloatArray) -> float:
        if self.likelihood == "gaussian":
            return float(self._weights @ (self._target - eta) ** 2)
        return -2.0 * float(self._weights @ self._row.log_likelihood(eta, self._target))

    def _columns(self, js: Functions) -> Any:
        """Return these functions, (n, len(js)), sparse or as a table."""
        own = js >= self._bias
        columns = columns_of(self._X, js[own] - self._bias)
        if own.all():
            return columns
        # The constant function comes last, and may be asked for several times.
        place = np.where(own, np.cumsum(own) - 1, columns.shape[1])
        ones = np.ones((len(self._target), 1))
        if not sparse.issparse(columns):
            return np.hstack([columns, ones])[:, place]
        return sparse.hstack([columns, sparse.csc_array(ones)], format="csc")[:, place]

    def _blocks(self, js: Functions) -> Iterator[tuple[slice, Any]]:
        """Yield the functions js, a few at a time."""
        height = max(1, _BLOCK // max(self._X.shape))
        for start in range(0, len(js), height):
            part = slice(start, start + height)
            yield part, self._columns(js[part])

    @staticmethod
    def _weighted(columns: Any, w: FloatArray) -> Any:
        """Return rows multiplied by w."""
        if sparse.issparse(columns):
            return columns.multiply(w[:, np.newaxis]).tocsc()
        return w[:, np.newaxis] * columns

    def _products(self, values: Any) -> FloatArray:
        """Return the products of all functions with a vector or columns."""
        if not is_operator(self._X):
            products = as_table(self._X.T @ values)
        elif values.ndim == 1:
            products = np.asarray(self._X.rmatvec(values))
        else:
            products = np.asarray(self._X.rmatmat(as_table(values)))
        if self._bias == 0:
            return products
        sums = np.asarray(values.sum(axis=0))
        return np.concatenate([sums.reshape(1, *products.shape[1:]), products])

    def _diagonal(self, w: FloatArray) -> FloatArray:
        """Return the sums of squares of all functions with these weights."""
        if self.likelihood == "gaussian" and self._squares is not None:
            return self._squares
        n, k = self._X.shape
        if is_operator(self._X) and n < k:  # its rows take fewer products than its columns
            parts = np.array_split(np.arange(n), -(-n * k // _BLOCK))
            sums = np.sum([columns_of(self._X.T, rows) ** 2 @ w[rows] for rows in parts], axis=0)
            self._squares = np.concatenate([[w.sum()] * self._bias, sums])
            return self._squares
        squares = np.empty(self.n_basis)
        for part, columns in self._blocks(np.arange(self.n_basis)):
            squares[part] = (columns.multiply(columns) if sparse.issparse(columns) else columns**2).T @ w
        self._squares = squares
        return squares
