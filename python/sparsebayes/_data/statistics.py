"""`SufficientStatistics`: sums over rows of basis functions, and the memory that these take."""

from __future__ import annotations

import math
import numbers
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.utils import check_array

from .. import _core
from .._arrays import check_chunk, check_chunk_targets, naming
from .._checks import PLAIN, check_integer, check_n_jobs
from .._types import FloatArray
from .basis import Basis, block_rows
from .design import check_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from ..kernels import Kernel

__all__ = ["SufficientStatistics"]


class SufficientStatistics:
    r"""The sums over rows that sparse Bayesian regression needs.

    With a Gaussian likelihood the evidence depends on the rows only through :math:`\Phi^T W \Phi`,
    :math:`\Phi^T W t`, :math:`t^T W t` and the sum of the weights (Tipping & Faul 2003, equations 6, 22 and
    23). Sums over chunks add up in any order and from several processes, and
    `SparseBayesRegressor.fit_statistics` returns the model of ``fit`` on all rows, to 1e-8.

    Sums have about 75 bits, because residuals are small differences of large sums. Column sums are included,
    for models with and without intercept.

    Parameters
    ----------
    n_basis : int
        Number of columns of Phi. Each pair of them takes 16 bytes of memory, and 8 of a pickle.
    n_jobs : int, optional
        Threads for long updates; None or -1: all cores. The result does not depend on it.

    Notes
    -----
    All chunks must have the same basis functions in the same order. Do not centre or scale each chunk with
    its own moments.

    Safe to share between threads; pickles and copies contain all digits. An update that fails or is
    interrupted does not change the sums. Invalid arguments are a TypeError or ValueError that names them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor, SufficientStatistics
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(1000, 5))
    >>> t = 2 * Phi[:, 1] + 0.1 * rng.normal(size=1000)
    >>> first, second = SufficientStatistics(5), SufficientStatistics(5)
    >>> first.update(Phi[:300], t[:300]).merge(second.update(Phi[300:], t[300:]))
    SufficientStatistics(n_basis=5, n_samples=1000)
    >>> model = SparseBayesRegressor().fit_statistics(first)
    >>> bool(np.allclose(model.mu_, SparseBayesRegressor().fit(Phi, t).mu_, rtol=1e-8))
    True
    """

    __slots__ = ("_core", "_n_jobs")

    def __init__(self, n_basis: int, *, n_jobs: int | None = None) -> None:
        self._core = _core.SufficientStatistics(check_integer("n_basis", n_basis, least=1))
        self._n_jobs = check_n_jobs(n_jobs)

    def update(self, Phi: ArrayLike, t: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows; after an error none has been added.

        Parameters
        ----------
        Phi : array-like of shape (n, n_basis)
            Values of the basis functions; not copied if float64 in C or Fortran order. n may be 0.
        t : array-like of shape (n,)
            Targets.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self
        """
        values = check_chunk("Phi", Phi, self.n_basis)
        target, weights = check_chunk_targets("t", t, sample_weight, len(values))
        self._core.update(values, target, weights, n_threads=self._n_jobs)
        return self

    def update_kernel(
        self,
        X: ArrayLike,
        t: ArrayLike,
        centres: ArrayLike,
        kernel: Kernel | Sequence[Kernel],
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows of inputs; the values of the kernel functions are not stored.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs. n may be 0.
        t, sample_weight
            As for ``update``.
        centres : array-like of shape (n_centres, n_features)
            Centres of the kernel functions, the same in each call.
        kernel : kernel object or list of these
            Of `sparsebayes.kernels`, with all parameters. With several, the functions of the first kernel
            precede those of the second; n_basis is the number of kernels times the number of centres.

        Returns
        -------
        self
        """
        with naming("centres"):
            points = np.ascontiguousarray(check_array(centres, dtype=np.float64, input_name="centres"))
        kernels = check_kernels("kernel", kernel)
        for one in kernels:
            one.check_features(points.shape[1])
        n = len(points)
        basis = Basis(False, kernels, n, np.arange(n), points, None, np.zeros(0))
        if basis.n_summed != self.n_basis:
            raise ValueError(
                f"centres must make n_basis={self.n_basis} functions, {len(kernels)} for each; got "
                f"{len(points)} centres"
            )
        values = check_chunk("X", X, points.shape[1])
        basis.add(self, values, *check_chunk_targets("t", t, sample_weight, len(values)))
        return self

    def merge(self, other: SufficientStatistics) -> Self:
        """Add all rows of ``other``, which does not change.

        Parameters
        ----------
        other : SufficientStatistics
            Sums for the same basis functions; TypeError or ValueError if they are not.

        Returns
        -------
        self
        """
        if not isinstance(other, SufficientStatistics):
            raise TypeError(f"other must be SufficientStatistics, got {type(other).__name__}")
        if other.n_basis != self.n_basis:
            raise ValueError(
                f"other must have n_basis={self.n_basis}, the same functions; got n_basis={other.n_basis}"
            )
        self._core.merge(other._core, n_threads=self._n_jobs)
        return self

    @property
    def n_basis(self) -> int:
        """Number of basis functions."""
        return self._core.n_basis

    @property
    def n_samples(self) -> int:
        """Number of rows, including those of zero weight."""
        return self._core.n_rows

    @property
    def sum_of_weights(self) -> float:
        """Sum of the sample weights."""
        return self._core.weight

    @property
    def gram(self) -> FloatArray:
        """Weighted Gram matrix of the basis functions."""
        return self._core.gram()

    @property
    def projections(self) -> FloatArray:
        """Weighted products of the basis functions with the targets."""
        return self._core.projections()

    @property
    def target_square(self) -> float:
        """Weighted sum of the squared targets."""
        return self._core.target_square()

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a pickle, which skops can store, too."""
        n_rows, parts = self._core.parts()
        return {"n_basis": self.n_basis, "n_jobs": self._n_jobs, "n_rows": n_rows, "parts": parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle."""
        # An array unpickled from a message may be misaligned.
        parts = np.require(state["parts"], np.float64, PLAIN)
        self._core = _core.SufficientStatistics.from_parts(state["n_basis"], state["n_rows"], parts)
        self._n_jobs = state["n_jobs"]

    def __sizeof__(self) -> int:
        """Return the bytes of the sums, for Dask's scheduler."""
        return 16 * self.n_basis**2

    def __repr__(self) -> str:
        """Return the class and its sizes."""
        return f"SufficientStatistics(n_basis={self.n_basis}, n_samples={self.n_samples})"


#: Bytes for each pair of functions: 16 for the sums, 16 for the sums of a block, later replaced by the
#: matrices of a fit with nearly all functions active.
_BYTES_PER_PAIR: Final = 100
#: Bytes for each function, a strip of rows and its two halves in double-double arithmetic, over twice those.
_STRIPS: Final = 64
#: Bytes for each value of a block: read, checked and passed to kernels.
_BYTES_PER_VALUE: Final = 32


def check_room(basis: Basis, n_features: int, limit: int) -> None:
    """Raise ValueError if the sums for a basis take more than ``limit`` bytes."""
    rows, size = _BYTES_PER_VALUE * block_rows(basis.width) * max(basis.width, n_features), basis.n_summed + 2
    needed = _BYTES_PER_PAIR * size * (size + 2 * _STRIPS) + rows
    if needed > limit:
        room = max(0.0, limit - rows) / _BYTES_PER_PAIR
        fits = max(0, int(math.sqrt(room + _STRIPS**2) - _STRIPS) - 2)
        most = fits // max(len(basis.kernels), 1)
        fewer = f"give at most {f'candidates={most}' if basis.kernels else f'{most} columns'}, or "
        raise ValueError(
            f"memory_limit of {in_words(limit)} is too small: sums over pairs of functions take "
            f"{in_words(needed)} here; {fewer if most > 0 else ''}raise memory_limit"
        )


#: Files with the memory limit of a container under Linux.
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Bytes assumed if the system does not report its memory.
_UNKNOWN_MEMORY: Final = 4 << 30


def check_memory_limit(value: object) -> int:
    """Return ``memory_limit`` in bytes; None is half of the memory of the computer."""
    if value is None:
        return _total_memory() // 2
    remedy = f"memory_limit must be None, a number of bytes, or a string such as '2GiB'; got {value!r}"
    n_bytes: Any = value
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(i?)B?\s*", value, re.IGNORECASE)
        if found is None:
            raise ValueError(remedy)
        number, unit, binary = found.groups()
        n_bytes = float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " ")
    elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(remedy)
    if not 1 <= n_bytes < math.inf:
        raise ValueError(remedy)
    return int(n_bytes)


def in_words(n_bytes: float) -> str:
    """Return a number of bytes with a unit."""
    power = 0 if n_bytes < 1 else min(4, int(math.log(n_bytes, 1024)))
    unit = "B" if power == 0 else f"{' KMGT'[power]}iB"
    return f"{n_bytes / 1024**power:.3g} {unit}"


@cache
def _total_memory() -> int:
    """Return the bytes of memory of the computer, or of its container."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        found = _UNKNOWN_MEMORY
    for path in _LIMIT_FILES:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return found
