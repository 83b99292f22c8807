"""Estimators that read their rows in chunks, and regressions fitted to sums over rows."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from .._checks.arguments import check_flag, check_n_jobs, check_settings, learning_argument
from .._checks.targets import Training, check_chunk_targets, check_X, naming
from .._data import candidates as _candidates
from .._data.candidates import seed_of
from .._data.checkpoint import check_path
from .._data.chunks import Chunks, Rows, are_chunks, open_chunks
from .._data.design import Layout, check_extra_basis, columns_at, fitted_extra, is_transformer
from .._data.out_of_core import Facts, Gathering, first_pass
from .._data.statistics import (
    Columns,
    Kernels,
    SufficientStatistics,
    Summed,
    check_memory_limit,
    check_room,
    in_words,
)
from .._progress import Watch
from .._types import FloatArray
from ..kernels import Linear
from ..kernels._resolve import is_precomputed, measures_inputs
from . import outputs as _outputs
from .base import SparseBayesEstimator
from .basis import ColumnBasis, KernelBasis
from .healing import KernelRegression
from .provider_fit import offset_of
from .status import Seen
from .variational import check_variational

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._checks.targets import Training
    from .._data.design import Layout
    from .._data.out_of_core import Facts
    from .._types import Settings


#: What has to be possible with the estimator as it is.
READING = "a fit that reads its rows part by part"


class ChunkedEstimator(SparseBayesEstimator):
    """An estimator that can read its rows part by part."""

    #: Whether the targets are labels of classes.
    _takes_labels: ClassVar[bool] = False

    if TYPE_CHECKING:
        memory_limit: int | str | None
        n_features_in_: int
        feature_names_in_: NDArray[Any]

    @abstractmethod
    def _check_parts(self, y: Any = None) -> None:
        """Raise ValueError, naming the remedy, if rows read part by part will not do.

        ``y``: the targets of rows in memory.
        """

    @abstractmethod
    def _fit_parts(self, chunks: Chunks) -> None:
        """Fit rows read part by part."""

    @abstractmethod
    def _usual_bytes(self, X: NDArray[Any]) -> float:
        """Return about how much memory a fit of rows in memory takes beside X."""

    def _wanted(self, n_features: int) -> tuple[int | None, bool]:
        """Return what to learn from a first pass: a sample of so many rows or none; moments or not."""
        return None, False

    def _sampling_seed(self) -> int:
        """Return the seed of the sample."""
        raise NotImplementedError

    def _chosen(self, sample: Training) -> Facts:
        """Return the centres chosen from a sample."""
        raise NotImplementedError

    @abstractmethod
    def _settle(self, facts: Facts, n_features: int) -> None:
        """Publish what the functions are made of."""

    @abstractmethod
    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        """Return which function is which; they are settled."""

    @abstractmethod
    def _publish_sums(self, n_samples: int) -> None:
        """Publish what depends on the kind of basis; the attributes of the posterior are there."""

    def _train_anew(self, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> None:
        chunks = self._parts(X, y, sample_weight)
        if chunks is None:
            super()._train_anew(X, y, sample_weight, y_std)
        elif y_std is not None:
            raise ValueError(
                "y_std needs the rows in memory; where they are read part by part give weights in proportion "
                "to 1 / y_std**2 with a mean of 1 as sample_weight, or raise memory_limit"
            )
        else:
            self._fit_parts(chunks)

    def _parts(self, X: Any, y: Any, sample_weight: Any) -> Chunks | None:
        """Return the rows as a data set to be read part by part; None if they are for memory."""
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
                return None  # as ever
            raise ValueError(
                f"memory_limit of {in_words(limit)} is less than the {in_words(needed)} or so of a fit in "
                f"memory. {error}; or raise memory_limit"
            ) from None
        return open_chunks(X, y, sample_weight, labels=self._takes_labels)

    def _take_columns(self, chunks: Chunks) -> None:
        """Publish what the data set says of its columns."""
        self.n_features_in_ = chunks.n_features
        self.__dict__.pop("feature_names_in_", None)
        if chunks.names is not None:
            self.feature_names_in_ = chunks.names


def _goes_on(estimator: SumsRegression) -> bool:
    estimator._check_sums("partial_fit")
    return True


class SumsRegression(ChunkedEstimator):
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
            gathering.remove_checkpoint()

    def _go_on(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        settings = check_settings(self)
        before: SufficientStatistics | None = getattr(self, "_statistics", None)
        values = check_X(self, X, reset=before is None)
        target, weights = check_chunk_targets("y", y, sample_weight, len(values))
        if before is None:
            rows = Rows(values, target, weights, 0, 0)
            self._settle(first_pass(self, [rows], values.shape[1]), values.shape[1])
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


#: As the core does it: kernels of so many inputs are not stored, nor are designs of more values.
_CHEAP: Final = 8
_STORED: Final = 1 << 26
#: Bytes that a row takes for each function in a model, and how many functions a model may well have.
_ACTIVE_BYTES: Final = 24
_ACTIVE: Final = 100
#: Bytes that a number of the sample takes that centres are chosen from: copies, and copies being made.
_SAMPLE_BYTES: Final = 64


class FixedCentresBasis(KernelBasis):
    """Kernels about centres that are settled before the rows are read, or after a first look at them."""

    def _check_fixed(self, doing: str) -> None:
        """Raise ValueError, naming the remedy, if functions need all rows, which ``doing`` this has not."""
        if is_precomputed(self.kernel):
            raise ValueError(f"kernel='precomputed' has a column for each row and will not do for {doing}")
        if self.candidates is None:
            raise ValueError(
                f"candidates must be an integer or an array for {doing}: with None each row brings a "
                "function of its own; an integer has that many rows chosen"
            )
        if argument := learning_argument(self):
            raise ValueError(
                f"{argument} needs the rows in memory and will not do for {doing}; learn on a "
                "sample, and give its kernel_ as kernel"
            )
        check_extra_basis(self.extra_basis, self.kernel)
        if is_transformer(self.extra_basis):
            raise ValueError(
                f"extra_basis must be None, 'linear' or a callable for {doing}: a transformer is fitted to "
                "all rows; fit it beforehand and give extra_basis=transformer.transform"
            )

    def _usual_bytes(self, X: NDArray[Any]) -> float:
        n, d = X.shape
        n_kernels = len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1
        k = n_kernels * _candidates.number(self.candidates, n)
        copied = 0 if X.dtype == np.float64 and X.flags.c_contiguous else n * d
        stored = n * k if (d > _CHEAP and n * k <= _STORED) else 0
        return float(8 * (copied + n * d + stored) + _ACTIVE_BYTES * n * min(k, _ACTIVE))

    def _wanted(self, n_features: int) -> tuple[int | None, bool]:
        asked = self.candidates
        scale = measures_inputs(self.kernel, self.gamma)
        if not _candidates.is_number(asked):
            return None, scale
        room = check_memory_limit(self.memory_limit) // (_SAMPLE_BYTES * n_features)
        size = _candidates.sample_size(asked)
        return max(_candidates.number(asked, size) + 1, min(size, room)), scale

    def _foresee(self, chunks: Chunks) -> None:
        if chunks.n_rows is not None and _candidates.is_number(self.candidates):
            n, d = _candidates.number(self.candidates, chunks.n_rows), chunks.n_features
            n_kernels = len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1
            # At least as much as their own kernels and centres will take.
            least = Kernels([Linear()] * n_kernels, np.broadcast_to(0.0, (n, d)))
            check_room(least, d, check_memory_limit(self.memory_limit))

    def _sampling_seed(self) -> int:
        with naming("random_state"):
            return seed_of(check_random_state(self.random_state))

    def _chosen(self, sample: Training) -> Facts:
        if len(sample.rows) == 0:
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        _candidates.place(self, sample)
        return {"candidate_rows": self.candidate_rows_, "candidates": self.candidates_}

    def _settle(self, facts: Facts, n_features: int) -> None:
        empty = _stand_in(np.empty((0, n_features)), 0)
        if "candidates" in facts:
            self.candidate_rows_, self.candidates_ = facts["candidate_rows"], facts["candidates"]
        else:
            _candidates.place(self, empty)
        inputs = facts.get("inputs", np.zeros((2, n_features)))
        self.kernel_ = self._as_given(self._resolve(_stand_in(inputs, 2)))
        self.extra_basis_ = fitted_extra(self.extra_basis, self.kernel, empty.X)
        self._n_extra = columns_at(self.extra_basis_, self.candidates_[:1]).shape[1]

    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        return self._layout(_stand_in(np.empty((0, n_features)), n_samples))

    def _publish_sums(self, n_samples: int) -> None:
        self._publish_basis(_stand_in(np.empty((0, self.n_features_in_)), n_samples))


class ChunkedKernelRegression(FixedCentresBasis, SumsRegression, KernelRegression):
    """A regression on kernels that can do with sums over rows, if its centres are few and fixed."""

    def _check_sums(self, doing: str) -> None:
        self._check_fixed(doing)
        if check_flag("keep_rows", self.keep_rows):
            raise ValueError(f"keep_rows must be False for {doing}, which keeps no rows")

    def _summed(self, n_features: int) -> Summed:
        layout = self._layout_of(0, n_features)
        centres = _candidates.points(self, _stand_in(np.empty((0, n_features)), 0), layout.kept)
        n_threads = check_n_jobs(self.n_jobs)
        return Kernels(self._kernels(), centres, self.extra_basis_, self._n_extra, n_threads)


def _stand_in(X: FloatArray, n_samples: int) -> Training:
    """Return training data where no more is asked than the number of rows and columns, or what X says."""
    return Training(X, np.zeros(len(X)), None, np.arange(len(X)), n_samples)


#: Bytes that a row takes for each function in a model, and how many functions a model may well have.
_ACTIVE_BYTES: Final = 24
_ACTIVE: Final = 100


class ChunkedColumnBasis(ColumnBasis):
    """The columns of rows that are read part by part."""

    def _usual_bytes(self, X: NDArray[Any]) -> float:
        n, k = X.shape
        copied = 0 if X.dtype == np.float64 and X.flags.c_contiguous else n * k
        return float(8 * (copied + n * k) + _ACTIVE_BYTES * n * min(k, _ACTIVE))

    def _settle(self, facts: Facts, n_features: int) -> None:
        pass  # the columns are there

    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        return self._column_layout(n_features)

    def _publish_sums(self, n_samples: int) -> None:
        self._publish_columns()


class ChunkedColumnRegression(ChunkedColumnBasis, SumsRegression):
    """A regression on the columns of X that can do with sums over rows."""

    def fit_statistics(self, stats: SufficientStatistics) -> Self:
        """Fit the model to all rows that sums have taken in.

        Parameters
        ----------
        stats : SufficientStatistics
            Sums over rows of the columns of X; they are left as they are. With ``fit_intercept=True`` the
            bias is one function more, whose sums the statistics have without being told.

        Returns
        -------
        self
            With the attributes that ``fit`` publishes, but for ``feature_names_in_``: sums know no names.

        Raises
        ------
        TypeError, ValueError
            If ``stats`` is something else or holds no row of positive weight, or if the likelihood is not
            Gaussian: others need the rows at each step.

        Warns
        -----
        ConvergenceWarning, OverfitWarning
            As for ``fit``.

        See Also
        --------
        SufficientStatistics : The sums, and how they are merged.

        Notes
        -----
        Each call fits from nothing, in a time that does not depend on the number of rows. The model is the
        one that ``fit`` makes of the rows, to about 1e-8. `sparsebayes.inspection.certificate` takes it with
        all the rows, in any order.
        """
        self._check_gaussian("fit_statistics")
        if not isinstance(stats, SufficientStatistics):
            raise TypeError(f"stats must be SufficientStatistics, got {type(stats).__name__}")
        self._train_on_sums(partial(self._fit_given, stats))
        return self

    def _fit_given(self, stats: SufficientStatistics) -> None:
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
