"""Estimators that can read their rows part by part: which rows those are, and what such a fit asks."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._data.checkpoint import check_path
from .._data.chunks import Chunks, are_chunks, open_chunks
from .._data.memory import check_memory_limit, in_words
from .base import SparseBayesEstimator

if TYPE_CHECKING:
    from .._checks.targets import Training
    from .._data.design import Layout
    from .._data.out_of_core import Facts

#: What has to be possible with the estimator as it is.
READING = "a fit that reads its rows part by part"


class InParts(SparseBayesEstimator):
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
