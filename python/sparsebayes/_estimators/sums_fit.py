"""Regressions that can do with sums over rows: `partial_fit`, and rows that are read part by part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from .._checks.arguments import check_settings
from .._checks.targets import check_chunk_targets, check_X
from .._data.accumulate import Summed, check_room
from .._data.chunks import Chunks, Rows
from .._data.memory import check_memory_limit
from .._data.out_of_core import Gathering, look
from .._data.statistics import SufficientStatistics
from .._progress import Watch
from . import outputs as _outputs
from .partial_fit import READING, InParts
from .provider_fit import offset_of
from .status import Seen
from .variational import check_variational

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._types import Settings


def _goes_on(estimator: OnSums) -> bool:
    estimator._check_sums("partial_fit")
    return True


class OnSums(InParts):
    """A regression that can do with sums over rows."""

    if TYPE_CHECKING:
        #: Sums over the rows seen so far; only between calls of `partial_fit`.
        _statistics: SufficientStatistics

    @abstractmethod
    def _check_sums(self, doing: str) -> None:
        """Raise ValueError, naming the remedy, if sums will not do, and so not for ``doing`` this."""

    def _check_parts(self, y: Any = None) -> None:
        self._check_sums(READING)
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(f"y must have one column for that, got an array of shape {np.shape(y)}")

    def _foresee(self, chunks: Chunks) -> None:
        """Raise ValueError before the first pass if it can be seen that there is no memory for the sums."""

    @abstractmethod
    def _summed(self, n_features: int) -> Summed:
        """Return the functions to be summed; they are settled."""

    @available_if(_goes_on)  # type: ignore[untyped-decorator] # scikit-learn carries no types
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take in more rows and fit the model to all rows so far.

        The first call begins, and so does one after ``fit`` or ``fit_statistics``, which keep no sums to go
        on from. Rows are kept as sums (`SufficientStatistics`), and each call fits anew at once, in a time
        that does not depend on the number of rows before. Chunks in any order give the model of one ``fit``
        to 1e-8. To take in many small chunks and fit once, use `SufficientStatistics` and ``fit_statistics``,
        or give ``fit`` the chunks.

        `SparseBayesRegressor`: not with a Poisson likelihood, which needs all rows at each step. `RVR`: only
        with ``candidates``, of which the sums have all pairs. Where they are an integer they are chosen from
        the rows of the first call, which should have rows from everywhere; ``gamma="scale"`` is measured on
        them too. So the first call fixes centres and kernels, and later ones take no notice of changed
        arguments about these.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs, or values of the basis functions, the same functions in each call.
        y : array-like of shape (n,)
            Targets; one column.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none. Some row so far has to count.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            As for ``fit``, and if X has other columns than before. Rows of a call that raises do not count.

        Warns
        -----
        ConvergenceWarning, OverfitWarning, UserWarning
            As for ``fit``; early fits to few rows often warn.
        """
        self._train_on_sums(partial(self._go_on, X, y, sample_weight))
        return self

    def _train_on_sums(self, train: Callable[[], None]) -> None:
        self._wholly(train)  # which counts this call: `_wholly` names the line two calls further out

    def _train_anew(self, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> None:
        super()._train_anew(X, y, sample_weight, y_std)
        self.__dict__.pop("_statistics", None)

    def _fit_parts(self, chunks: Chunks) -> None:
        settings = check_settings(self)
        self._take_columns(chunks)
        gathering = Gathering(self, chunks)
        gathering.run()
        self._fit_sums(gathering.stats, settings, stopped=gathering.reading.stopped)
        if self.status_ != "stopped":
            gathering.forget()

    def _go_on(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        settings = check_settings(self)
        before: SufficientStatistics | None = getattr(self, "_statistics", None)
        values = check_X(self, X, reset=before is None)
        target, weights = check_chunk_targets("y", y, sample_weight, len(values))
        if before is None:
            rows = Rows(values, target, weights, 0, 0)
            self._settle(look(self, [rows], values.shape[1]), values.shape[1])
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
        # Others may add rows meanwhile.
        sums = stats._core.snapshot()
        layout = self._layout_of(sums.n_rows, self.n_features_in_)
        _outputs.check_single(self, settings)
        check_variational(settings, "gaussian", learning=False)
        n_basis = int(layout.bias) + stats.n_basis
        watch = Watch(self, layout, n_basis, has_noise=True, stopped=stopped)
        with watch.fit() as step:
            n_centred = self._n_columns() if layout.bias else 0
            posterior = sums.fit(
                bias=layout.bias, n_centred=n_centred, callback=step, **settings.of_one_target()
            )
            watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
        self._publish_offset(offset_of([posterior], self._n_columns()))
        seen = Seen(sums.n_rows, sums.weight)
        self._publish_fit(settings, "gaussian", sums.n_rows, n_basis, layout, [posterior], seen)
        self._publish_sums(sums.n_rows)
