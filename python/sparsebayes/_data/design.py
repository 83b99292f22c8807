"""Dictionaries of basis functions, evaluated at the training rows, and their fits by the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final, Literal, Protocol

import numpy as np
from sklearn.base import clone

from .. import _core
from .._checks.numbers import PLAIN, called, column_means
from .._checks.targets import check_columns
from .._types import FloatArray, IntArray, Likelihood, Settings
from ..kernels import Kernel, OnColumns, Product, Sum
from ..kernels._resolve import is_precomputed
from .checkpoint import Checkpoint, digest, open_checkpoint

#: Iteration, action, column (-1: none), gain, log evidence, number of active functions, noise precision; in a
#: sweep also how many candidates have been looked at, and of how many.
CoreCallback = Callable[..., bool]


@dataclass(frozen=True)
class Layout:
    """Where each function of the dictionary stands: its column, and its name in ``active_``.

    Columns: the bias if there is one, then the functions ``kept`` of the first block, of the second, and so
    on, and after ``blocks`` of these the extra columns. A block is a kernel and its functions are training
    rows or other centres, or the block is X and they are its columns. Names count all ``size`` functions of a
    block, kept or not, and go on with the extra columns; the bias is -1.
    """

    bias: bool
    size: int
    kept: IntArray
    blocks: int = 1

    @property
    def _border(self) -> int:
        """The first extra column."""
        return int(self.bias) + self.blocks * len(self.kept)

    def names(self, columns: IntArray) -> IntArray:
        """Return what ``active_`` calls these columns."""
        function = columns - int(self.bias)
        # The bias, and extra columns, get theirs below.
        names = self.kept.take(function, mode="wrap")
        if self.blocks > 1:
            names += function // len(self.kept) * self.size
        names[function < 0] = -1
        extra = columns >= self._border
        names[extra] = columns[extra] + (self.blocks * self.size - self._border)
        return names

    def name(self, column: int) -> int:
        """Return what ``active_`` calls one column."""
        return int(self.names(np.array([column]))[0])

    def columns(self, names: IntArray) -> IntArray:
        """Return the columns of functions named as in ``active_``."""
        block, function = np.divmod(names, self.size)
        inside = int(self.bias) + block * len(self.kept) + np.searchsorted(self.kept, function)
        extra = names - self.blocks * self.size
        return np.where(names < 0, 0, np.where(extra < 0, inside, self._border + extra))


class Design(Protocol):
    """A dictionary of basis functions, evaluated at the training rows."""

    @property
    def layout(self) -> Layout:
        """Which column is which function."""

    @property
    def n_basis(self) -> int:
        """Number of functions."""

    def fit(
        self,
        target: FloatArray,
        weights: FloatArray | None,
        likelihood: Likelihood,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.Posterior:
        """Fit the model of these functions to ``target``."""

    def fit_outputs(
        self,
        targets: FloatArray,
        weights: FloatArray | None,
        noise_variance: list[float] | None,
        shared_noise: bool,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.OutputPosterior:
        """Fit one model to all columns of ``targets``."""


@dataclass(frozen=True)
class DenseDesign:
    """Functions given by their values: blocks of columns side by side, after the bias."""

    blocks: list[FloatArray]
    layout: Layout
    #: What is subtracted from each column of the last block; None: nothing.
    offset: FloatArray | None = None

    @cached_property
    def Phi(self) -> FloatArray:
        """N x K matrix of all values, in C order if the columns of X are its heart, else in Fortran order.

        The core turns rows into columns itself, on several threads.
        """
        n_rows = len(self.blocks[0])
        blocks = [*([np.ones((n_rows, 1))] if self.layout.bias else []), *self.blocks]
        order: Literal["C", "F"] = "F" if self.offset is None else "C"
        Phi = np.concatenate(blocks, axis=1, out=np.empty((n_rows, self.n_basis), order=order))
        if self.offset is not None:
            centre(Phi[:, self.n_basis - len(self.offset) :], self.offset)
        return Phi

    @property
    def values(self) -> FloatArray:
        """The same for the core, which turns rows into columns itself, on several threads."""
        block = self.blocks[0]
        is_all = len(self.blocks) == 1 and not self.layout.bias and self.offset is None
        return block if is_all and block.dtype == np.float64 and block.flags.forc else self.Phi

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.layout.bias) + sum(int(block.shape[1]) for block in self.blocks)

    def fit(
        self,
        target: FloatArray,
        weights: FloatArray | None,
        likelihood: Likelihood,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.Posterior:
        """Fit the model of these functions to ``target``."""
        return _core.fit_dense(
            self.values,
            target,
            weights,
            likelihood=likelihood,
            callback=callback,
            **settings.of_one_target(),
        )

    def fit_outputs(
        self,
        targets: FloatArray,
        weights: FloatArray | None,
        noise_variance: list[float] | None,
        shared_noise: bool,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.OutputPosterior:
        """Fit one model to all columns of ``targets``."""
        return _core.fit_dense_outputs(
            self.values,
            targets,
            weights,
            noise_variance=noise_variance,
            shared_noise=shared_noise,
            tol=settings.tol,
            max_iter=settings.max_iter,
            n_threads=settings.n_threads,
            callback=callback,
        )


@dataclass(frozen=True)
class KernelDesign:
    """Kernel functions about some centres, all of them kernels of the core, before any extra columns."""

    X: FloatArray
    centres: FloatArray
    kernels: list[_core.Kernel]
    layout: Layout
    #: Columns beside the kernels, N x p.
    extra: FloatArray
    #: The estimator whose checkpoint a fit in blocks is to keep, if any.
    owner: Any = None

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        kernels = len(self.kernels) * len(self.centres)
        return int(self.layout.bias) + kernels + int(self.extra.shape[1])

    def columns_beside(self) -> FloatArray | None:
        """Return the extra columns as the core takes them, None if there are none."""
        return np.asfortranarray(self.extra) if self.extra.shape[1] > 0 else None

    def fit(
        self,
        target: FloatArray,
        weights: FloatArray | None,
        likelihood: Likelihood,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.Posterior:
        """Fit the model of these functions to ``target``."""
        if _is_large(self.n_basis, likelihood, settings):
            return _fit_in_blocks(self, target, weights, likelihood, settings, callback)
        return _core.fit_kernel(
            self.X,
            self.centres,
            self.kernels,
            target,
            weights,
            bias=self.layout.bias,
            extra=self.columns_beside(),
            likelihood=likelihood,
            callback=callback,
            **settings.of_one_target(),
        )

    def fit_outputs(
        self,
        targets: FloatArray,
        weights: FloatArray | None,
        noise_variance: list[float] | None,
        shared_noise: bool,
        settings: Settings,
        callback: CoreCallback | None,
    ) -> _core.OutputPosterior:
        """Fit one model to all columns of ``targets``."""
        return _core.fit_kernel_outputs(
            self.X,
            self.centres,
            self.kernels,
            targets,
            weights,
            bias=self.layout.bias,
            extra=self.columns_beside(),
            noise_variance=noise_variance,
            shared_noise=shared_noise,
            tol=settings.tol,
            max_iter=settings.max_iter,
            n_threads=settings.n_threads,
            callback=callback,
        )


def centring(columns: FloatArray, weights: FloatArray | None, *, bias: bool) -> FloatArray:
    """Return what to subtract from columns beside a constant function: their weighted means.

    A constant added to a column then changes nothing but the constant of the model. Without a constant
    function nothing is subtracted.
    """
    return column_means(columns, weights) if bias and len(columns) > 0 else np.zeros(columns.shape[1])


def centre(columns: FloatArray, offset: FloatArray) -> FloatArray:
    """Subtract the offset from columns in place; of constant columns no rounding is left."""
    with np.errstate(over="ignore", invalid="ignore"):  # said where the columns are used
        columns -= offset
        # As a rule a few rows tell that a column is not constant.
        rounding, few = 1e-13 * np.abs(offset), np.abs(columns[:8]).max(axis=0, initial=0.0)
        suspects = np.flatnonzero(few <= rounding)
        constant = np.abs(columns[:, suspects]).max(axis=0, initial=0.0) <= rounding[suspects]
    columns[:, suspects[constant]] = 0.0
    return columns


def evaluate(kernel: Kernel, X: FloatArray, Z: FloatArray, n_threads: int | None) -> FloatArray:
    """Return k(X, Z), from the core as far as it knows the kernel."""
    if len(X) == 0 or len(Z) == 0:
        return np.empty((len(X), len(Z)))  # a model without kernel functions
    core = kernel.to_core()
    if core is not None:
        # What came from another process may lie anywhere in its message.
        X, Z = np.require(X, np.float64, PLAIN), np.require(Z, np.float64, PLAIN)
        return core.matrix(X, Z, n_threads=n_threads)
    if isinstance(kernel, OnColumns):
        return evaluate(kernel.inner(), kernel.select(X), kernel.select(Z), n_threads)
    if isinstance(kernel, Sum):
        return reduce(np.add, (evaluate(term, X, Z, n_threads) for term in kernel.terms))
    if isinstance(kernel, Product):
        return reduce(np.multiply, (evaluate(factor, X, Z, n_threads) for factor in kernel.factors))
    return kernel(X, Z)


#: Dictionaries of more functions go in blocks. Measured: docs/notebook/large-data.md.
_MAX_UNBLOCKED: Final = 30_000
#: Functions of the first working set, of later ones, let in after a sweep, looked at together, and rounds
#: that search; None: those of the core.
_BLOCK_SIZES: Final[tuple[int, int, int, int, int] | None] = None


def _is_large(n_basis: int, likelihood: Likelihood, settings: Settings) -> bool:
    """Tell whether a fit is to go in blocks."""
    plain = settings.scheme == "sequential" and settings.search == "greedy"
    possible = plain and likelihood in ("gaussian", "bernoulli")
    return possible and n_basis > _MAX_UNBLOCKED


def _fit_in_blocks(
    design: KernelDesign,
    target: FloatArray,
    weights: FloatArray | None,
    likelihood: Likelihood,
    settings: Settings,
    callback: CoreCallback | None,
) -> _core.Posterior:
    """Fit the model of these functions to ``target``, in blocks; go on from a checkpoint if there is one."""
    checkpoint = _checkpoint(design, target, weights)
    posterior = _core.fit_kernel_in_blocks(
        design.X,
        design.centres,
        design.kernels,
        target,
        weights,
        bias=design.layout.bias,
        extra=design.columns_beside(),
        likelihood=likelihood,
        sizes=_BLOCK_SIZES,
        resume=None if checkpoint is None else checkpoint.load(),
        keep=None if checkpoint is None else lambda arrays: checkpoint.save(**arrays),
        callback=callback,
        **settings.of_one_target(),
    )
    if checkpoint is not None:
        checkpoint.remove()
    return posterior


def _checkpoint(design: KernelDesign, target: FloatArray, weights: FloatArray | None) -> Checkpoint | None:
    """Return the checkpoint that the dictionary's owner asks for; one against the rest, each has a file."""
    owner = design.owner
    if owner is None or getattr(owner, "checkpoint", None) is None:
        return None
    suffix = f".{digest(target)[:8]}" if len(getattr(owner, "classes_", ())) > 2 else ""
    return open_checkpoint(owner, design.X, design.centres, design.extra, target, weights, suffix=suffix)


_KINDS: Final = "'linear', a transformer of scikit-learn, or a callable f(X) -> (n, p)"


def check_extra_basis(extra_basis: Any, kernel: object) -> None:
    """Raise TypeError or ValueError unless ``extra_basis`` can compute columns from X."""
    if extra_basis is None or is_transformer(extra_basis):
        return
    if isinstance(extra_basis, str):
        if extra_basis != "linear":
            raise ValueError(f"extra_basis must be {_KINDS}; got {extra_basis!r}")
        if is_precomputed(kernel):
            raise ValueError(
                "extra_basis='linear' takes the columns of X, which with kernel='precomputed' are kernel "
                "values; give the kernel as an object or a callable k(X, Z)"
            )
    elif isinstance(extra_basis, Kernel):
        raise TypeError(
            f"extra_basis must be {_KINDS}; put kernels into a list, kernel=[..., {extra_basis!r}]"
        )
    elif isinstance(extra_basis, type):
        raise TypeError(
            f"extra_basis must be {_KINDS}; got the class {extra_basis.__name__}, not an instance"
        )
    elif not callable(extra_basis):
        raise TypeError(
            f"extra_basis must be {_KINDS}; got {type(extra_basis).__name__}. If no function of X gives the "
            "columns, append them to X, give a callable that returns them, and put the kernels on the other "
            "columns with kernels.OnColumns"
        )


def is_transformer(extra_basis: Any) -> bool:
    """Tell whether ``extra_basis`` is an instance that has to be fitted to rows."""
    # Data frames have a transform too.
    fits = hasattr(extra_basis, "transform") and hasattr(extra_basis, "fit")
    return fits and not isinstance(extra_basis, type)


def fitted_extra(extra_basis: Any, kernel: object, X: FloatArray) -> Any:
    """Return ``extra_basis_``: a transformer fitted to the training rows ``X``, or what needs no fitting."""
    check_extra_basis(extra_basis, kernel)
    # A copy: it may write to what it is given.
    return clone(extra_basis).fit(X.copy()) if is_transformer(extra_basis) else extra_basis


def columns_at(fitted: Any, X: FloatArray, n_columns: int | None = None) -> FloatArray:
    """Return the extra columns at the rows ``X``, (n, p); ``n_columns``: the p that there has to be."""
    if fitted is None:
        return np.empty((len(X), 0))
    if isinstance(fitted, str):  # "linear"
        return X
    own = X.copy()  # compiled code may want a buffer that can be written to, and write to it
    values = fitted.transform(own) if hasattr(fitted, "transform") else called("extra_basis", fitted, own)
    return check_columns("extra_basis", values, len(X), n_columns)


def middle_of_extra(fitted: Any, points: FloatArray, n_columns: int, *, bias: bool) -> FloatArray:
    """Return the mean of the extra columns over some points: where to sum them about, beside a bias."""
    if not bias or n_columns == 0:
        return np.zeros(n_columns)
    middle: FloatArray = columns_at(fitted, points, n_columns).mean(axis=0)
    return middle
