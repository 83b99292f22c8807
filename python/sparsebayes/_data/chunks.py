"""Data sets that are read in parts: memory-mapped files, iterables of chunks, and data sets of Arrow.

`Chunks.blocks` yields checked rows in blocks of one size, whatever the sizes of the chunks: results that are
computed block by block do not depend on how the data are divided.
"""

from __future__ import annotations

import glob
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.validation import _get_feature_names

from .._checks.arguments import check_file
from .._checks.numbers import called
from .._checks.targets import check_chunk, check_chunk_targets, check_weights, naming
from .._types import FloatArray

__all__ = ["Chunks", "Rows", "are_chunks", "located", "open_chunks"]


@dataclass(frozen=True)
class Rows:
    """Some checked rows of a data set."""

    #: n x d, float64, C or Fortran order; may view a mapped file and is then valid until the next read.
    X: FloatArray
    #: Length n: floats, or class labels as given.
    y: NDArray[Any]
    #: Length n, >= 0; None if every row counts once.
    weights: FloatArray | None
    #: Number of the first row in the data set.
    first: int
    #: Number of the chunk with the last row, from 0.
    chunk: int

    def __len__(self) -> int:
        """Return n."""
        return len(self.X)

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays, for Dask's scheduler."""
        return sum(a.nbytes for a in (self.X, self.y, self.weights) if a is not None)

    def part(self, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of these."""
        at, w = slice(start, stop), self.weights
        return Rows(
            self.X[at],
            self.y[at],
            None if w is None else w[at],
            self.first + min(start, len(self)),
            self.chunk,
        )

    def copy(self) -> Rows:
        """Return a copy."""
        w = self.weights
        return replace(self, X=self.X.copy(), y=self.y.copy(), weights=None if w is None else w.copy())


class Chunks(ABC):
    """A data set that is read in parts, from the start at each pass.

    Attributes
    ----------
    n_features : int
        Columns of X.
    names : ndarray of str, or None
        Their names, if all are strings.
    n_rows : int or None
        Number of rows, if known before they are read.
    """

    n_features: int
    names: NDArray[Any] | None = None
    n_rows: int | None = None
    #: Whether y holds class labels.
    _labels: bool
    _begun: bool = False

    @abstractmethod
    def _read(self, size: int) -> Iterator[Rows]:
        """Yield checked rows from the first on, at most ``size`` at a time."""

    def can_repeat(self) -> bool:
        """Tell whether there can be a second pass."""
        return True

    def check_passes(self, why: str) -> None:
        """Raise ValueError if there can be only one pass and ``why`` needs more."""
        if not self.can_repeat():
            raise ValueError(
                f"X can be read only once, and {why} takes more than one pass over it; give a list of "
                "chunks, an object whose __iter__ begins anew each time, or a function without arguments "
                "that returns an iterator"
            )

    def blocks(self, size: int) -> Iterator[Rows]:
        """Yield all rows, ``size`` at a time except for the last block, across the borders of chunks.

        Raises
        ------
        TypeError, ValueError
            For rows that are not finite numbers of one shape, naming the argument and the chunk; if there are
            no rows; and for a second pass over data that can be read only once.
        """
        if self._begun:
            self.check_passes("this fit")
        self._begun = True
        held: list[Rows] = []
        n_held = n_seen = 0
        for rows in self._read(size):
            n_seen += len(rows)
            start = 0
            while start < len(rows):
                part = rows.part(start, start + size - n_held)
                start += len(part)
                held.append(part)
                n_held += len(part)
                if n_held == size:
                    yield _joined(held)
                    held, n_held = [], 0
            if held and start:
                held[-1] = held[-1].copy()  # the next chunk may be written into the same arrays
        if n_seen == 0:
            raise ValueError("X holds no rows; a fit needs at least one")
        if held:
            yield _joined(held)

    def _checked(self, number: int, first: int, X: Any, y: Any, weights: Any) -> Rows:
        """Return rows of chunk ``number`` as numbers; errors name the rows."""
        with located(number, first, _length(X)):
            return check_rows(X, y, weights, self.n_features, self._labels, first, number)


def check_rows(
    X: Any, y: Any, weights: Any, n_features: int, labels: bool, first: int = 0, chunk: int = 0
) -> Rows:
    """Return rows of a chunk as numbers; ``labels``: y holds class labels, which are not converted."""
    values = check_chunk("X", X, n_features)
    if not labels:
        target, weights = check_chunk_targets("y", y, weights, len(values))
        return Rows(values, target, weights, first, chunk)
    with naming("y"):
        target = column_or_1d(y, warn=True)
        assert_all_finite(target, input_name="y")
        if len(target) != len(values):
            raise ValueError(f"y must hold a label for each of {len(values)} rows, got {len(target)}")
    return Rows(values, target, check_weights(weights, len(values), may_vanish=True), first, chunk)


class _Iterable(Chunks):
    """Chunks (X, y) or (X, y, sample_weight) of an iterable, or one chunk of ``n_rows`` rows.

    The blocks of a single chunk count as chunks.
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[], Iterable[Any]],
        labels: bool,
        n_rows: int | None = None,
    ) -> None:
        self._source, self._labels, self.n_rows = source, labels, n_rows
        first = self._begin()
        chunk = next(first, None)
        if chunk is None:
            raise ValueError("X holds no chunks; a fit needs at least one row")
        X, *_ = _unpacked(0, chunk)
        self.n_features, self.names = X.shape[1], _get_feature_names(X)
        self._pending = None if self.can_repeat() else chain([chunk], first)

    def can_repeat(self) -> bool:
        return callable(self._source) or not isinstance(self._source, Iterator)

    def _begin(self) -> Iterator[Any]:
        source = called("X", self._source) if callable(self._source) else self._source
        with naming("X"):
            return iter(source)

    def _read(self, size: int) -> Iterator[Rows]:
        chunks, self._pending = self._begin() if self._pending is None else self._pending, None
        first = 0
        for number, chunk in enumerate(chunks):
            X, y, weights = _unpacked(number, chunk)
            names = _get_feature_names(X)
            if names is not None and self.names is not None and list(names) != list(self.names):
                raise ValueError(
                    f"X, chunk {number}: columns must have the names and order of the first chunk's"
                )
            n = _length(X)
            for name, column in (("y", y), ("sample_weight", weights)):
                m = _length(column)
                if column is not None and not isinstance(column, Number) and m != n:
                    where = f"chunk {number}: " if self.n_rows is None else ""
                    raise ValueError(
                        f"{where}X and {name} must have the same number of rows, got {n} and {m}"
                    )
            for start in range(0, n, size):
                parts = (_sliced(values, start, start + size) for values in (X, y, weights))
                at = number if self.n_rows is None else start // size
                yield self._checked(at, first + start, *parts)
                for array in (X, y, weights):
                    release(array)
            first += n


def are_chunks(X: Any, y: Any) -> bool:
    """Tell whether X is of a type that is read in parts: chunks, a path, or a data set of Arrow."""
    if _is_path_or_arrow(X, y):
        return True
    if isinstance(X, (list, tuple)):
        # A list of tuples may also be a matrix, whose entries are numbers.
        return y is None and len(X) > 0 and all(_is_chunk(chunk) for chunk in X)
    if any(hasattr(X, name) for name in ("__array__", "shape", "__dataframe__", "__array_namespace__")):
        return False
    return (isinstance(X, Iterable) or callable(X)) and not isinstance(X, (dict, set, bytes))


def _is_path_or_arrow(X: Any, y: Any) -> bool:
    """Tell whether X is a path, or a data set, reader or (if y names a column) table of Arrow."""
    if isinstance(X, (str, os.PathLike)):
        return True
    kind = type(X)
    if kind.__module__.split(".")[0] != "pyarrow":
        return False
    return kind.__name__ != "Table" or isinstance(y, str)


def open_chunks(X: Any, y: Any, sample_weight: Any, *, labels: bool = False) -> Chunks:
    """Return a data set to be read in parts.

    ``X`` is an array (mapped or not), with arrays ``y`` and ``sample_weight``; an iterable of chunks (X, y)
    or (X, y, sample_weight), or a function that returns one, without the two; or a path or Arrow data set,
    with the names of two columns. ``labels``: y holds class labels, which are not converted.

    Raises
    ------
    TypeError, ValueError
        If X is of another type, or the other arguments do not fit it.
    ModuleNotFoundError
        For data of Arrow without pyarrow.
    """
    if _is_path_or_arrow(X, y):
        return _open_arrow(X, y, sample_weight, labels)
    if isinstance(X, np.ndarray):
        if y is None:
            raise ValueError("y must hold the targets, as X is an array; got None")
        with naming("y"):
            y = y if isinstance(y, np.ndarray) and y.ndim == 1 else column_or_1d(y, warn=True)
        return _Iterable([(X, y, sample_weight)], labels, len(X))
    for name, column in (("y", y), ("sample_weight", sample_weight)):
        if column is not None:
            raise ValueError(f"{name} must be None where X is an iterable of chunks, which contain it")
    return _Iterable(X, labels)


def release(array: Any) -> None:
    """Release the memory of a mapped file, whose pages remain in the system's file cache.

    Not in copy-on-write mode, where changed pages exist in memory only.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(array, np.memmap) and mapped is not None and array.mode != "c":
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is not None:
            mapped.madvise(advice)


@contextmanager
def located(chunk: int, first: int, n_rows: int) -> Iterator[None]:
    """Name chunk and rows, from ``first`` on, in errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"chunk {chunk} (rows {first} to {first + n_rows - 1}): {error}") from error


def _is_chunk(chunk: Any) -> bool:
    return isinstance(chunk, (tuple, list)) and len(chunk) in (2, 3) and len(np.shape(chunk[0])) == 2


def _unpacked(number: int, chunk: Any) -> tuple[Any, Any, Any]:
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise TypeError(
            f"chunk {number} of X must be (X, y) or (X, y, sample_weight), got {type(chunk).__name__}"
        )
    X, y, weights = (*chunk, None)[:3]
    if not hasattr(X, "shape"):
        with naming("X"):
            X = np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(f"chunk {number}: X must have the shape (n, n_features), got {tuple(X.shape)}")
    if y is None:
        raise ValueError(f"chunk {number}: y must hold a target for each row, got None")
    return X, y, weights


def _sliced(values: Any, start: int, stop: int) -> Any:
    if values is None or isinstance(values, Number):
        return values
    if start == 0 and stop >= _length(values):
        return values
    return values.iloc[start:stop] if hasattr(values, "iloc") else values[start:stop]


def _length(values: Any) -> int:
    # A class may have a `shape` that is not a tuple.
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(shape) > 0:
        return int(shape[0])
    return len(values) if isinstance(values, Sized) else 0


def _joined(parts: list[Rows]) -> Rows:
    """Return successive rows as one."""
    if len(parts) == 1:
        return parts[0]
    weights = None
    if any(part.weights is not None for part in parts):
        each = (np.ones(len(part)) if part.weights is None else part.weights for part in parts)
        weights = np.concatenate(list(each))
    X = np.concatenate([part.X for part in parts])
    y = np.concatenate([part.y for part in parts])
    return replace(parts[-1], X=X, y=y, weights=weights, first=parts[0].first)


#: Formats by suffix; all other files are read as Parquet.
_FORMATS: Final = {".arrow": "arrow", ".ipc": "arrow", ".feather": "feather"}


def _open_arrow(X: Any, y: Any, sample_weight: Any, labels: bool) -> Chunks:
    """Return the rows of a path, data set, reader or table; ``y`` and ``sample_weight`` name columns."""
    try:
        from pyarrow import dataset
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "X is a path or a data set of Arrow, which needs pyarrow: pip install sparsebayes[arrow]"
        ) from error
    source = X
    if isinstance(X, (str, os.PathLike)):
        with naming("X"):
            source = _open_path(dataset, check_file("X", X))
    elif type(X).__name__ == "Table":
        source = dataset.dataset(X)
    if not (hasattr(source, "schema") and (hasattr(source, "scanner") or hasattr(source, "read_next_batch"))):
        raise TypeError(
            "X of pyarrow must be a pyarrow.dataset.Dataset, a RecordBatchReader or a Table, got "
            f"{type(X).__name__}"
        )
    return _Arrow(source, y, sample_weight, labels)


class _Arrow(Chunks):
    """The rows of an Arrow data set, or of a reader, which can be read only once."""

    def __init__(self, source: Any, y: Any, weights: Any, labels: bool) -> None:
        self._source, self._y, self._weights, self._labels = source, y, weights, labels
        columns = source.schema.names
        for name, column in (("y", y), ("sample_weight", weights)):
            if name == "sample_weight" and column is None:
                continue
            if not isinstance(column, str):
                raise TypeError(
                    f"{name} must be the name of a column where X is a path or a data set of Arrow, got "
                    f"{type(column).__name__}"
                )
            if columns.count(column) != 1:
                raise ValueError(f"{name} must name one column of X, {', '.join(columns)}; got {column!r}")
        self._features = [column for column in columns if column not in (y, weights)]
        if not self._features:
            raise ValueError("X has no columns beside those of y and sample_weight")
        for column in [*self._features, *([] if labels else [y]), *([] if weights is None else [weights])]:
            _check_numeric(column, source.schema.field(column).type)
        self.n_features = len(self._features)
        self.names = np.array(self._features, dtype=object)
        self.n_rows = source.count_rows() if self.can_repeat() else None

    def can_repeat(self) -> bool:
        """Tell whether there can be a second pass."""
        return hasattr(self._source, "scanner")

    def _batches(self, size: int) -> Iterator[Any]:
        if not self.can_repeat():
            yield from self._source
            return
        columns = [*self._features, self._y, *([] if self._weights is None else [self._weights])]
        # Read ahead little, in the order of the files.
        scanner = self._source.scanner(
            columns=columns, batch_size=size, batch_readahead=1, fragment_readahead=1, use_threads=False
        )
        yield from scanner.to_batches()

    def _read(self, size: int) -> Iterator[Rows]:
        first = 0
        for number, batch in enumerate(self._batches(size)):
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                where = f"chunk {number} (rows {first} to {first + len(part) - 1})"
                X = np.empty((len(part), self.n_features))
                for j, column in enumerate(self._features):
                    X[:, j] = _values(part, "X", column, where)
                y = _values(part, "y", self._y, where, labels=self._labels)
                weights = self._weights and _values(part, "sample_weight", self._weights, where)
                yield self._checked(number, first, X, y, weights)
                first += len(part)


def _open_path(dataset: Any, path: str) -> Any:
    if os.path.isdir(path):
        files = sorted(
            entry for entry in Path(path).rglob("*.*") if entry.is_file() and _is_data(entry, path)
        )
        return dataset.dataset(path, format=_format(path, files), partitioning="hive")
    files = [Path(path)] if os.path.exists(path) else sorted(map(Path, glob.glob(path, recursive=True)))
    format_ = _format(path, files)
    return dataset.dataset([os.fspath(file) for file in files], format=format_)


def _is_data(entry: Path, above: str) -> bool:
    """Tell whether Arrow reads this file: it skips names that begin with a dot or an underscore."""
    return not any(part.startswith((".", "_")) for part in entry.relative_to(above).parts)


def _format(path: str, files: list[Path]) -> str:
    if not files:
        raise FileNotFoundError(f"X: there is no file {path!r}; give a file, a directory or a pattern")
    formats = {_FORMATS.get(file.suffix.lower(), "parquet") for file in files}
    if len(formats) > 1:
        raise ValueError(
            f"X: {path!r} has files of {' and '.join(sorted(formats))}; give files of one format"
        )
    return formats.pop()


def _check_numeric(column: str, kind: Any) -> None:
    from pyarrow import types

    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not any(is_kind(kind) for is_kind in numeric):
        raise TypeError(
            f"X: column {column!r} holds {kind}, not numbers; encode it, or give a data set without it"
        )


def _values(batch: Any, argument: str, column: str, where: str, *, labels: bool = False) -> NDArray[Any]:
    """Return the values of a column as float64, or as they are if they are labels."""
    import pyarrow as pa

    values = batch.column(column)
    if values.null_count > 0:
        raise ValueError(
            f"{where}: {argument} holds nulls in column {column!r}; leave such rows out, or fill them in"
        )
    if not labels:
        values = values.cast(pa.float64(), safe=False)
    elif hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found
