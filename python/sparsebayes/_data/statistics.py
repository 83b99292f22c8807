"""`SufficientStatistics`: rows as sums that can be added to, merged and sent elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from .. import _core
from .._checks.arguments import check_integer, check_n_jobs
from .._checks.numbers import PLAIN
from .._checks.targets import check_chunk, check_chunk_targets, naming
from .._types import FloatArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from ..kernels import Kernel

__all__ = ["SufficientStatistics"]


class SufficientStatistics:
    r"""All that sparse Bayesian regression needs of its rows, as sums over them.

    With a Gaussian likelihood the evidence sees N rows through :math:`\Phi^T W \Phi`, :math:`\Phi^T W t`,
    :math:`t^T W t` and the sum of the weights alone (Tipping & Faul 2003, equations 6, 22 and 23, written out
    with :math:`C^{-1}` by the Woodbury identity). Sums over chunks add up to sums over all rows: chunks can
    come one after another, from other processes and in any order, and
    `SparseBayesRegressor.fit_statistics` makes the model that ``fit`` makes of all rows together, to 1e-8.

    Sums are kept to about 75 bits, since what a model leaves of its targets is a small difference of large
    ones. Column sums are kept too: the same statistics serve models with and without intercept.

    Parameters
    ----------
    n_basis : int
        Number of columns of Phi. Each pair of them takes 16 bytes of memory, and 8 of a pickle.
    n_jobs : int, optional
        Threads for long updates; None or -1: all cores. They do not show in the result.

    Attributes
    ----------
    n_basis : int
    n_samples : int
        Rows taken in, those of zero weight too.
    sum_of_weights : float
        What n_samples would be if weights were counts.
    gram : ndarray of shape (n_basis, n_basis)
        :math:`\Phi^T W \Phi`, rounded.
    projections : ndarray of shape (n_basis,)
        :math:`\Phi^T W t`, rounded.
    target_square : float
        :math:`t^T W t`, rounded.

    See Also
    --------
    SparseBayesRegressor.fit_statistics : Fit a model to them.
    SparseBayesRegressor.partial_fit : Take rows in and fit at once.

    Notes
    -----
    All chunks must have the same basis functions in the same order. Do not centre or scale chunk by chunk:
    each would be moved by something else.

    Safe to share between threads; pickles and copies carry all digits. An update that fails or is interrupted
    leaves the sums as they were.

    References
    ----------
    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor, SufficientStatistics
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(1000, 5))
    >>> t = 2 * Phi[:, 1] + 0.1 * rng.normal(size=1000)
    >>> first = SufficientStatistics(5).update(Phi[:300], t[:300])
    >>> second = SufficientStatistics(5).update(Phi[300:], t[300:])
    >>> second.merge(first)
    SufficientStatistics(n_basis=5, n_samples=1000)
    >>> model = SparseBayesRegressor().fit_statistics(second)
    >>> bool(np.allclose(model.mu_, SparseBayesRegressor().fit(Phi, t).mu_, rtol=1e-8))
    True
    """

    __slots__ = ("_core", "_n_jobs")

    def __init__(self, n_basis: int, *, n_jobs: int | None = None) -> None:
        self._core = _core.SufficientStatistics(check_integer("n_basis", n_basis, least=1))
        self._n_jobs = check_n_jobs(n_jobs)

    def update(self, Phi: ArrayLike, t: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take in rows: all of them or, after an error, none.

        Parameters
        ----------
        Phi : array-like of shape (n, n_basis)
            Values of the basis functions; read in place where it is float64 in C or Fortran order. There may
            be no rows.
        t : array-like of shape (n,)
            Targets.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument is not finite numbers of its shape, naming it.
        """
        values = check_chunk("Phi", Phi, self.n_basis)
        return self._take(values, *check_chunk_targets("t", t, sample_weight, len(values)))

    def update_kernel(
        self,
        X: ArrayLike,
        t: ArrayLike,
        centres: ArrayLike,
        kernel: Kernel | Sequence[Kernel],
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take in rows by the values of kernel functions there, which are never stored.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs. There may be no rows.
        t : array-like of shape (n,)
            Targets.
        centres : array-like of shape (n_centres, n_features)
            Where the functions stand, the same centres in each call.
        kernel : kernel object or list of these
            Of `sparsebayes.kernels`, with all parameters. With several the functions of the first about all
            centres come before those of the second: n_basis is the product of the two numbers.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument is not finite numbers of its shape, or ``kernel`` no kernel object, naming it.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsebayes import SufficientStatistics
        >>> from sparsebayes.kernels import Gaussian
        >>> X, t, centres = [[0.0], [1.0]], [1.0, 2.0], [[0.0], [3.0]]
        >>> stats = SufficientStatistics(2).update_kernel(X, t, centres, Gaussian(1.0))
        >>> stats.projections.round(3)
        array([1.736, 0.037])
        """
        from .accumulate import Kernels  # imports this module

        with naming("centres"):
            points = np.ascontiguousarray(check_array(centres, dtype=np.float64, input_name="centres"))
        kernels: list[Any] = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
        for one in kernels:
            if not hasattr(one, "to_core"):
                raise TypeError(f"kernel must be a kernel object of sparsebayes.kernels, got {one!r}")
            one.check_features(points.shape[1])
        functions = Kernels(kernels, points, n_threads=self._n_jobs)
        if functions.n_basis != self.n_basis:
            raise ValueError(
                f"centres must make n_basis={self.n_basis} functions, {len(kernels)} for each; got "
                f"{len(points)} centres"
            )
        values = check_chunk("X", X, points.shape[1])
        functions.add(self, values, *check_chunk_targets("t", t, sample_weight, len(values)))
        return self

    def merge(self, other: SufficientStatistics) -> Self:
        """Take in all rows of ``other``, which stays as it is.

        Parameters
        ----------
        other : SufficientStatistics
            Of the same basis functions.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If ``other`` is something else, or has another number of basis functions.
        """
        if not isinstance(other, SufficientStatistics):
            raise TypeError(f"other must be SufficientStatistics, got {type(other).__name__}")
        if other.n_basis != self.n_basis:
            raise ValueError(
                f"other must have n_basis={self.n_basis}, the same functions; got n_basis={other.n_basis}"
            )
        self._core.merge(other._core, n_threads=self._n_jobs)
        return self

    def _take(self, Phi: FloatArray, t: FloatArray, weights: FloatArray | None) -> Self:
        """Take in rows that have been checked."""
        self._core.update(Phi, t, weights, n_threads=self._n_jobs)
        return self

    @property
    def n_basis(self) -> int:
        """Number of basis functions."""
        return self._core.n_basis

    @property
    def n_samples(self) -> int:
        """Rows taken in, those of zero weight too."""
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a copy: a number of rows, and an array of sums."""
        return _restored, (self.n_basis, self._n_jobs, *self._core.parts())

    def __sizeof__(self) -> int:
        """Return the bytes of the sums, which schedulers ask for before they move them."""
        return 16 * self.n_basis**2

    def __repr__(self) -> str:
        """Return what it is and how much it holds."""
        return f"SufficientStatistics(n_basis={self.n_basis}, n_samples={self.n_samples})"


def _restored(n_basis: int, n_jobs: int | None, n_rows: int, parts: FloatArray) -> SufficientStatistics:
    """Return the statistics of a pickle."""
    statistics = SufficientStatistics.__new__(SufficientStatistics)
    # What came from another process may lie anywhere in its message.
    plain = np.require(parts, np.float64, PLAIN)
    statistics._core = _core.SufficientStatistics.from_parts(n_basis, n_rows, plain)
    statistics._n_jobs = n_jobs
    return statistics
