"""Dictionaries of basis functions, evaluated at the training rows, and their fits by the core."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import numpy as np
from sklearn.base import clone

from .. import _core
from .._arrays import check_chunk
from .._checks import PLAIN, called, is_auto
from .._types import FloatArray, IntArray, Likelihood, Settings
from ..kernels import Kernel, OnColumns
from ..kernels._base import Combination
from ..kernels._resolve import is_precomputed
from .chunks import Checkpoint

#: Called with iteration, action, column (-1: none), gain, log evidence, number of active functions and noise
#: precision; in a pass over the candidates also with how many were evaluated, and of how many.
CoreCallback = Callable[..., bool]
#: Larger dictionaries are fitted in blocks. Measured: docs/notebook/large-data.md.
_MAX_UNBLOCKED: Final = 30_000
#: Sizes of the first working set, of later ones, of additions after a pass and of blocks of candidates, and
#: the number of rounds with a search; None: the defaults of the core.
_BLOCK_SIZES: Final[tuple[int, int, int, int, int] | None] = None
#: Most functions and least rows of regressions that are fitted to sums over the rows. Measured:
#: docs/notebook/cost.md.
_MAX_SUMMED: Final = 1024
_MIN_SUMMED_ROWS: Final = 1 << 17
#: Rows that are transposed at a time, so that a block stays in the caches.
_ROWS: Final = 128
#: Errors of NumPy and scikit-learn for columns of an array by their names.
_BY_NAME: Final = r"only integers, slices|used as indices|'numpy.ndarray' object has no|columns using strings"
_EXTRA_KINDS: Final = "'linear', a transformer of scikit-learn, or a callable f(X) -> (n, p)"


@dataclass(frozen=True)
class Layout:
    """The order of the functions in the dictionary: the column of each, and its name in ``active_``.

    Columns: the bias if there is one, then the functions ``kept`` of the first block, of the second and so on
    for ``blocks`` blocks, and then the extra columns. A block is a kernel, with training rows or centres as
    functions; or it is X, with columns as functions. Names count all ``size`` functions of a block,
    kept or not, and continue with the extra columns; the name of the bias is -1.
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
        """Return the names of these columns in ``active_``."""
        function = columns - int(self.bias)
        # The names of the bias and the extra columns are set below.
        names = self.kept.take(function, mode="wrap")
        if self.blocks > 1:
            names += function // len(self.kept) * self.size
        names[function < 0] = -1
        extra = columns >= self._border
        names[extra] = columns[extra] + (self.blocks * self.size - self._border)
        return names

    def name(self, column: int) -> int:
        """Return the name of one column in ``active_``."""
        return int(self.names(np.array([column]))[0])

    def columns(self, names: IntArray) -> IntArray:
        """Return the columns of functions with these names."""
        block, function = np.divmod(names, self.size)
        inside = int(self.bias) + block * len(self.kept) + np.searchsorted(self.kept, function)
        extra = names - self.blocks * self.size
        return np.where(names < 0, 0, np.where(extra < 0, inside, self._border + extra))


@dataclass(frozen=True)
class Design:
    """A dictionary of basis functions at the training rows, as the core's fits of it."""

    #: Number of functions.
    n_basis: int
    #: The core's fits of one target and of several.
    one: Callable[..., _core.Posterior]
    several: Callable[..., _core.OutputPosterior]
    #: The core's fit of one target in blocks, if it has one.
    in_blocks: Callable[..., _core.Posterior] | None = None
    #: The fit of one target to sums over all rows, if it has one, which needs the rows only once.
    by_sums: Callable[..., _core.Posterior] | None = None

    def bind(
        self,
        target: FloatArray,
        weights: FloatArray | None,
        likelihood: Likelihood,
        settings: Settings,
        checkpoint: Callable[[], Checkpoint | None] | None = None,
        **extra: Any,
    ) -> Callable[..., _core.Posterior]:
        """Return the fit of one target as a function of ``callback``.

        It is in blocks if there are many functions, and of sums over the rows if these are many.
        ``checkpoint`` opens the checkpoint of a fit in blocks. ``extra``: ``dispersion`` of the likelihood,
        ``offset`` of each linear predictor, ``first`` model; such a fit needs all rows and functions.
        """
        options: dict[str, Any] = {**settings.of_one_target(), **extra}
        one = partial(self.one, target, weights, likelihood=likelihood, **options)
        if extra or settings.scheme != "sequential" or settings.search != "greedy":
            return one
        suits_sums = self.n_basis <= _MAX_SUMMED and len(target) >= _MIN_SUMMED_ROWS
        if self.by_sums is not None and suits_sums and likelihood == "gaussian":
            return partial(self.by_sums, target, weights, **options)
        suits_blocks = self.n_basis > _MAX_UNBLOCKED and likelihood in ("gaussian", "bernoulli")
        if self.in_blocks is None or not suits_blocks:
            return one
        fit = partial(self.in_blocks, target, weights, likelihood=likelihood, sizes=_BLOCK_SIZES, **options)

        def with_checkpoint(callback: CoreCallback | None) -> _core.Posterior:
            if checkpoint is None or (file := checkpoint()) is None:
                return fit(resume=None, keep=None, callback=callback)
            posterior = fit(resume=file.load(), keep=lambda arrays: file.save(**arrays), callback=callback)
            file.remove()
            return posterior

        return with_checkpoint


def matrix(blocks: list[FloatArray], *, bias: bool, offset: FloatArray | None = None) -> FloatArray:
    """Return a constant column if there is a bias, then these blocks of columns, side by side.

    ``offset`` is subtracted from the last block. The result is in Fortran order: the core makes no copy.
    """
    n_rows, n_columns = len(blocks[0]), int(bias) + sum(int(block.shape[1]) for block in blocks)
    Phi = np.empty((n_rows, n_columns), order="F")
    Phi[:, :1] = 1.0  # the bias, or overwritten below
    for rows in (slice(start, start + _ROWS) for start in range(0, n_rows, _ROWS)):
        np.concatenate([block[rows] for block in blocks], axis=1, out=Phi[rows, int(bias) :])
    if offset is not None:
        centre(Phi[:, n_columns - len(offset) :], offset)
    return Phi


def fit_sums(
    X: FloatArray,
    centres: FloatArray,
    kernels: list[_core.Kernel],
    target: FloatArray,
    weights: FloatArray | None,
    *,
    bias: bool,
    extra: FloatArray | None,
    n_threads: int | None,
    **options: Any,
) -> _core.Posterior:
    """Fit one target of a regression to the sums over the rows of pairs of functions."""
    n_columns = 0 if extra is None else extra.shape[1]
    sums = _core.SufficientStatistics(len(kernels) * len(centres) + n_columns)
    sums.update_kernel(X, centres, kernels, target, weights, extra=extra, n_threads=n_threads)
    return sums.fit(bias=bias, n_threads=n_threads, **options)


def check_kernels(name: str, kernels: Any) -> list[Kernel]:
    """Return one kernel object or several as a list; TypeError if there is anything else."""
    several = list(kernels) if isinstance(kernels, (list, tuple)) else [kernels]
    if not several or not all(isinstance(kernel, Kernel) for kernel in several):
        raise TypeError(
            f"{name} must be a kernel object of sparsebayes.kernels or a list of these, got {kernels!r}"
        )
    return several


def core_kernels(kernels: list[Kernel]) -> list[_core.Kernel] | None:
    """Return the kernels as kernels of the core, None if it lacks one."""
    cores = [core for kernel in kernels if (core := kernel.to_core()) is not None]
    return cores if len(cores) == len(kernels) else None


def centre(columns: FloatArray, offset: FloatArray) -> FloatArray:
    """Subtract the offset from columns in place; constant columns become exactly 0."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked where the columns are used
        columns -= offset
        # A few rows show that most columns are not constant.
        rounding, few = 1e-13 * np.abs(offset), np.abs(columns[:8]).max(axis=0, initial=0.0)
        suspects = np.flatnonzero(few <= rounding)
        constant = np.abs(columns[:, suspects]).max(axis=0, initial=0.0) <= rounding[suspects]
    columns[:, suspects[constant]] = 0.0
    return columns


def evaluate(kernel: Kernel, X: FloatArray, Z: FloatArray, n_threads: int | None) -> FloatArray:
    """Return k(X, Z), computed by the core where it has the kernel."""
    if len(X) == 0 or len(Z) == 0:
        return np.empty((len(X), len(Z)))  # a model without kernel functions
    core = kernel.to_core()
    if core is not None:
        # An array unpickled from a message may be misaligned.
        X, Z = np.require(X, np.float64, PLAIN), np.require(Z, np.float64, PLAIN)
        return core.matrix(X, Z, n_threads=n_threads)
    if isinstance(kernel, OnColumns):
        return evaluate(kernel.inner(), kernel.select(X), kernel.select(Z), n_threads)
    if isinstance(kernel, Combination):
        return reduce(kernel._operation, (evaluate(part, X, Z, n_threads) for part in kernel._members))
    return kernel(X, Z)


def check_extra_basis(extra_basis: Any, kernel: object, name: str = "extra_basis") -> None:
    """Raise TypeError or ValueError if ``extra_basis``, an argument ``name``, cannot give columns."""
    may_choose = name == "extra_basis"
    if extra_basis is None or (may_choose and is_auto(extra_basis)) or is_transformer(extra_basis):
        return
    kinds = f"'auto', {_EXTRA_KINDS}" if may_choose else _EXTRA_KINDS
    problem = f"{name} must be {kinds}; got {extra_basis!r}"
    if isinstance(extra_basis, str):
        if extra_basis != "linear":
            raise ValueError(problem)
        if is_precomputed(kernel):
            raise ValueError(
                f"{name}='linear' takes the columns of X, which with kernel='precomputed' are kernel "
                "values; give the kernel as an object or a callable k(X, Z)"
            )
    elif isinstance(extra_basis, Kernel):
        raise TypeError(f"{problem}; put kernels into a list, kernel=[...]")
    elif isinstance(extra_basis, type) or not callable(extra_basis):
        of_class = isinstance(extra_basis, type)
        got = f"{extra_basis.__name__}, not an instance" if of_class else type(extra_basis).__name__
        raise TypeError(
            f"{name} must be {kinds}; got {got}. If no function of X gives the columns, append "
            "them to X, and put the kernels on the other columns with kernels.OnColumns"
        )


def is_given(extra_basis: Any) -> bool:
    """Tell whether ``extra_basis`` has columns whatever the data are."""
    return extra_basis is not None and not is_auto(extra_basis)


def is_transformer(extra_basis: Any) -> bool:
    """Tell whether ``extra_basis`` is a transformer to be fitted to rows."""
    # Data frames also have a method transform, but no fit.
    fits = hasattr(extra_basis, "transform") and hasattr(extra_basis, "fit")
    return fits and not isinstance(extra_basis, type)


def fitted_extra(extra_basis: Any, kernel: object, X: FloatArray, name: str = "extra_basis") -> Any:
    """Return ``extra_basis_``: a transformer fitted to the training rows ``X``, or ``extra_basis`` itself."""
    check_extra_basis(extra_basis, kernel, name)
    if is_auto(extra_basis):
        return None
    if not is_transformer(extra_basis):
        return extra_basis
    with _without_names(name):
        return clone(extra_basis).fit(X.copy())  # a copy, because a transformer may write to its argument


@contextmanager
def _without_names(name: str) -> Iterator[None]:
    """Explain errors of a function that asks the array X for columns by their names."""
    try:
        yield
    except (AttributeError, IndexError, ValueError) as error:
        if not re.search(_BY_NAME, str(error)):
            raise
        raise ValueError(
            f"{name} gets X as an array of numbers, without names; give the positions of columns, such as 0 "
            f"for the first ({error})"
        ) from error


def columns_at(
    fitted: Any, X: FloatArray, n_columns: int | None = None, name: str = "extra_basis"
) -> FloatArray:
    """Return the extra columns at the rows ``X``, (n, p); ``n_columns`` is the required p."""
    if fitted is None:
        return np.empty((len(X), 0))
    if isinstance(fitted, str):  # "linear"
        return X
    own = X.copy()  # the function may need a writable buffer, and write to it
    with _without_names(name):
        values = fitted.transform(own) if hasattr(fitted, "transform") else called(name, fitted, own)
    columns = check_chunk(name, values, n_columns)
    if len(columns) != len(X):
        raise ValueError(f"{name} must have a row for each row of X, {len(X)}; got {len(columns)}")
    return columns
