"""Estimators that read their rows in chunks, and regressions fitted to sums over rows."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from .._checks.arguments import check_settings
from .._checks.targets import Training, check_chunk_targets, check_X
from .._data.checkpoint import check_path
from .._data.chunks import Chunks, Rows, are_chunks, open_chunks
from .._data.design import Layout
from .._data.out_of_core import Facts, Gathering, first_pass
from .._data.statistics import (
    Columns,
    SufficientStatistics,
    Summed,
    check_memory_limit,
    check_room,
    in_words,
)
from .._progress import FitReporter
from . import outputs as _outputs
from .base import SparseBayesEstimator
from .basis import ColumnBasis
from .provider_fit import offset_of
from .status import RowSummary
from .variational import check_variational

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._checks.targets import Training
    from .._data.design import Layout
    from .._data.out_of_core import Facts
    from .._types import Settings


#: Name of this kind of fit in error messages.
CHUNKED_FIT = "a fit that reads its rows in chunks"


class ChunkedEstimator(SparseBayesEstimator):
    """An estimator that can read its rows in chunks."""

    #: Whether the targets are labels of classes.
    _takes_labels: ClassVar[bool] = False

    if TYPE_CHECKING:
        memory_limit: int | str | None
        n_features_in_: int
        feature_names_in_: NDArray[Any]

    @abstractmethod
    def _check_parts(self, y: Any = None) -> None:
        """Raise ValueError, naming the remedy, if this estimator cannot read its rows in chunks.

        ``y``: the targets of rows in memory.
        """

    @abstractmethod
    def _fit_parts(self, chunks: Chunks) -> None:
        """Fit rows that are read in chunks."""

    @abstractmethod
    def _usual_bytes(self, X: NDArray[Any]) -> float:
        """Estimate the memory of a fit of rows in memory, besides X."""

    def _first_pass_needs(self, n_features: int) -> tuple[int | None, bool]:
        """Return the size of the first pass's sample (None: no sample), and whether it sums moments."""
        return None, False

    def _sampling_seed(self) -> int:
        """Return the seed of the sample."""
        raise NotImplementedError

    def _choose_centres(self, sample: Training) -> Facts:
        """Return the centres chosen from a sample."""
        raise NotImplementedError

    @abstractmethod
    def _publish_functions(self, facts: Facts, n_features: int) -> None:
        """Publish kernels and centres, given the results of the first pass."""

    @abstractmethod
    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        """Return the layout of the dictionary after `_publish_functions`."""

    @abstractmethod
    def _publish_sums(self, n_samples: int) -> None:
        """Publish attributes that depend on the kind of basis; the posterior is already published."""

    def _fit_and_publish(self, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> None:
        chunks = self._parts(X, y, sample_weight)
        if chunks is None:
            super()._fit_and_publish(X, y, sample_weight, y_std)
        elif y_std is not None:
            raise ValueError(
                "y_std needs the rows in memory; for rows that are read in chunks give weights proportional "
                "to 1 / y_std**2 with a mean of 1 as sample_weight, or raise memory_limit"
            )
        else:
            self._fit_parts(chunks)

    def _parts(self, X: Any, y: Any, sample_weight: Any) -> Chunks | None:
        """Return the rows as a data set to read in chunks; None if they are for a fit in memory."""
        limit = check_memory_limit(self.memory_limit)
        if (path := getattr(self, "checkpoint", None)) is not None:
            check_path(path)
        if are_chunks(X, y):
            if isinstance(X, (str, os.PathLike)) and os.fspath(X).endswith((".csv", ".tsv", ".txt")):
                raise ValueError(
                    f"X: {X!r} is a text file; read it with pandas.read_csv, or use the command "
                    "`sparsebayes fit`"
                )
            self._check_parts()
            return open_chunks(X, y, sample_weight, labels=self._takes_labels)
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or X.size == 0:
            return None
        needed = self._usual_bytes(X)
        if needed <= limit:
            return None
        try:
            self._check_parts(y)
        except ValueError as error:
            if self.memory_limit is None and not isinstance(X, np.memmap):
                return None  # fit in memory; the limit was not set by the user
            raise ValueError(
                f"memory_limit is {in_words(limit)}, and a fit in memory needs about {in_words(needed)}. "
                f"Reading the rows in chunks is not possible: {error}; or raise memory_limit"
            ) from None
        return open_chunks(X, y, sample_weight, labels=self._takes_labels)

    def _publish_features(self, chunks: Chunks) -> None:
        """Publish number and names of the columns."""
        self.n_features_in_ = chunks.n_features
        self.__dict__.pop("feature_names_in_", None)
        if chunks.names is not None:
            self.feature_names_in_ = chunks.names


def _can_continue(estimator: SumsRegression) -> bool:
    estimator._check_sums("partial_fit")
    return True


class SumsRegression(ChunkedEstimator):
    """A regression that can be fitted to sums over rows."""

    if TYPE_CHECKING:
        #: Sums over the rows seen so far; only between calls of `partial_fit`.
        _statistics: SufficientStatistics

    @abstractmethod
    def _check_sums(self, doing: str) -> None:
        """Raise ValueError, naming the remedy, if sums do not suffice for ``doing`` this."""

    def _check_parts(self, y: Any = None) -> None:
        self._check_sums(CHUNKED_FIT)
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(f"y must have one column for {CHUNKED_FIT}, got an array of shape {np.shape(y)}")

    def _check_memory(self, chunks: Chunks) -> None:
        """Raise ValueError before the first pass if the sums are known to exceed the memory."""

    @abstractmethod
    def _summed(self, n_features: int) -> Summed:
        """Return the functions to be summed, after `_publish_functions`."""

    @available_if(_can_continue)  # type: ignore[untyped-decorator] # scikit-learn carries no types
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows and fit the model to all rows so far.

        The first call starts with no rows, and so does a call after ``fit`` or ``fit_statistics``, which keep
        no sums. Rows are kept as sums (`SufficientStatistics`), and each call fits again, in a time that does
        not depend on the number of earlier rows. Chunks in any order give the model of one ``fit`` to 1e-8.
        To add many small chunks and fit once, use `SufficientStatistics` and ``fit_statistics``, or give
        ``fit`` the chunks.

        `SparseBayesRegressor`: not with a Poisson likelihood, which needs all rows at each step. `RVR`: only
        with ``candidates``; the sums include all pairs of them. An integer number of candidates is chosen
        from the rows of the first call, which should cover all of the input space; ``gamma="scale"`` is
        measured on them too. So the first call fixes centres and kernels, and later calls ignore changes of
        these arguments.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs, or values of the basis functions, the same functions in each call.
        y : array-like of shape (n,)
            Targets; one column.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: a row of weight 2 counts like two equal rows, one of weight 0 like none. Some
            row so far needs a positive weight.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            As for ``fit``, and if X has other columns than before. Rows of a call that raises are not added.

        Warns
        -----
        ConvergenceWarning, OverfitWarning, UserWarning
            As for ``fit``; early fits to few rows often warn.
        """
        self._train_on_sums(partial(self._continue_fit, X, y, sample_weight))
        return self

    def _train_on_sums(self, train: Callable[[], None]) -> None:
        # A method of its own because warnings of `_run_atomically` name the line two calls up from here.
        self._run_atomically(train)

    def _fit_and_publish(self, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> None:
        super()._fit_and_publish(X, y, sample_weight, y_std)
        self.__dict__.pop("_statistics", None)

    def _fit_parts(self, chunks: Chunks) -> None:
        settings = check_settings(self)
        self._publish_features(chunks)
        gathering = Gathering(self, chunks)
        gathering.run()
        self._fit_sums(gathering.stats, settings, stopped=gathering.reading.stopped)
        if self.status_ != "stopped":
            gathering.remove_checkpoint()

    def _continue_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        settings = check_settings(self)
        before: SufficientStatistics | None = getattr(self, "_statistics", None)
        values = check_X(self, X, reset=before is None)
        target, weights = check_chunk_targets("y", y, sample_weight, len(values))
        if before is None:
            rows = Rows(values, target, weights, 0, 0)
            self._publish_functions(first_pass(self, [rows], values.shape[1]), values.shape[1])
        functions = self._summed(values.shape[1])
        if before is None:
            check_room(functions, values.shape[1], check_memory_limit(self.memory_limit))
        stats = SufficientStatistics(functions.n_basis, n_jobs=self.n_jobs)
        functions.add(stats, values, target, weights)
        if before is not None:
            stats.merge(before)
        self._fit_sums(stats, settings)
        self._statistics = stats

    def _fit_sums(self, stats: SufficientStatistics, settings: Settings, *, stopped: bool = False) -> None:
        """Fit the model of these sums and publish it."""
        # A copy, as another thread may add rows.
        sums = stats._core.snapshot()
        layout = self._layout_of(sums.n_rows, self.n_features_in_)
        _outputs.check_single(self, settings)
        check_variational(settings, "gaussian", learning=False)
        n_basis = int(layout.bias) + stats.n_basis
        watch = FitReporter(self, layout, n_basis, has_noise=True, stopped=stopped)
        with watch.fit() as step:
            n_centred = self._n_columns() if layout.bias else 0
            posterior = sums.fit(
                bias=layout.bias, n_centred=n_centred, callback=step, **settings.of_one_target()
            )
            watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
        self._publish_offset(offset_of([posterior], self._n_columns()))
        summary = RowSummary(sums.n_rows, sums.weight)
        self._publish_fit(settings, "gaussian", sums.n_rows, n_basis, layout, [posterior], summary)
        self._publish_sums(sums.n_rows)


class ChunkedColumnRegression(ColumnBasis, SumsRegression):
    """A regression on the columns of X that can be fitted to sums over rows."""

    def fit_statistics(self, stats: SufficientStatistics) -> Self:
        """Fit the model to sums over rows.

        Parameters
        ----------
        stats : SufficientStatistics
            Sums over rows of the columns of X; not changed. They include the sums for the bias of
            ``fit_intercept=True``.

        Returns
        -------
        self
            With the attributes that ``fit`` publishes, except ``feature_names_in_``.

        Raises
        ------
        TypeError, ValueError
            If ``stats`` has another type or holds no row of positive weight, or if the likelihood is not
            Gaussian: others need the rows at each step.

        Warns
        -----
        ConvergenceWarning, OverfitWarning
            As for ``fit``.

        See Also
        --------
        SufficientStatistics : The sums, and how to merge them.

        Notes
        -----
        Each call starts from an empty model and takes a time that does not depend on the number of rows. The
        model is the one that ``fit`` makes of the rows, to about 1e-8. `sparsebayes.inspection.certificate`
        takes it with all the rows, in any order.
        """
        self._check_gaussian("fit_statistics")
        if not isinstance(stats, SufficientStatistics):
            raise TypeError(f"stats must be SufficientStatistics, got {type(stats).__name__}")
        self._train_on_sums(partial(self._fit_from_statistics, stats))
        return self

    def _fit_from_statistics(self, stats: SufficientStatistics) -> None:
        settings = check_settings(self)
        self.n_features_in_ = stats.n_basis
        for name in ("feature_names_in_", "_statistics"):
            self.__dict__.pop(name, None)
        self._fit_sums(stats, settings)

    def _check_sums(self, doing: str) -> None:
        self._check_gaussian(doing)

    def _summed(self, n_features: int) -> Summed:
        return Columns(n_features)

    def _check_gaussian(self, method: str) -> None:
        if self._check_likelihood() != "gaussian":
            raise ValueError(
                f"{method} needs likelihood='gaussian': with another the sums over rows change with the "
                "weights; use fit"
            )
