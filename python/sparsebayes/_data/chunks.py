"""Data sets that are read in parts: memory-mapped files, iterables of chunks, and data sets of Arrow.

`Chunks.blocks` yields checked rows in blocks of one size, whatever the sizes of the chunks: results that are
computed block by block do not depend on how the data are divided. A `Checkpoint` holds the state of a fit,
from which an interrupted fit resumes.
"""

from __future__ import annotations

import glob
import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from io import BytesIO
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _get_feature_names

from .. import _core
from .._arrays import check_chunk, check_chunk_targets, check_labels, check_weights, naming
from .._checks import as_numpy, called, check_file
from .._types import FloatArray


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
        first = self.first + min(start, len(self))
        return replace(self, X=self.X[at], y=self.y[at], weights=None if w is None else w[at], first=first)

    def copy(self) -> Rows:
        """Return a copy."""
        w = self.weights
        return replace(self, X=self.X.copy(), y=self.y.copy(), weights=None if w is None else w.copy())


class Chunks:
    """Rows that are read in parts, from the start at each pass.

    ``source`` holds chunks (X, y) or (X, y, sample_weight), or is a function that returns them. ``n_rows``:
    their number, if known before they are read. ``single``: there is one chunk, whose blocks count as chunks.
    ``names`` of the columns of X: None for those of the first chunk, if all are strings.
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[], Iterable[Any]],
        labels: bool,
        n_rows: int | None = None,
        *,
        single: bool = False,
        names: NDArray[Any] | None = None,
    ) -> None:
        self._source, self._labels, self.n_rows, self._single = source, labels, n_rows, single
        first = self._begin()
        chunk = next(first, None)
        if chunk is None:
            raise ValueError("X holds no chunks; a fit needs at least one row")
        X, *_ = _unpacked(0, chunk)
        self.n_features, self.names = X.shape[1], _get_feature_names(X) if names is None else names
        #: The chunks of the first pass; None once it has begun.
        self._pending: Iterator[Any] | None = chain([chunk], first)

    @property
    def _can_repeat(self) -> bool:
        return callable(self._source) or not isinstance(self._source, Iterator)

    def _begin(self) -> Iterator[Any]:
        source = called("X", self._source) if callable(self._source) else self._source
        with naming("X"):
            return iter(source)

    def check_passes(self, why: str) -> None:
        """Raise ValueError if there can be only one pass and ``why`` needs more."""
        if not self._can_repeat:
            raise ValueError(
                f"X can be read only once, and {why} takes more than one pass over it; give a list of "
                "chunks, an object whose __iter__ begins anew each time, or a function without arguments "
                "that returns an iterator"
            )

    def blocks(self, size: int) -> Iterator[Rows]:
        """Yield all rows, ``size`` at a time except for the last block, across the borders of chunks."""
        if self._pending is None:
            self.check_passes("this fit")
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

    def _read(self, size: int) -> Iterator[Rows]:
        """Yield checked rows from the first on, at most ``size`` at a time; errors name the rows."""
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
                    where = "" if self._single else f"chunk {number}: "
                    raise ValueError(
                        f"{where}X and {name} must have the same number of rows, got {n} and {m}"
                    )
            for start in range(0, n, size):
                some, target, w = (_sliced(values, start, start + size) for values in (X, y, weights))
                at = start // size if self._single else number
                with located(at, first + start, _length(some)):
                    rows = check_rows(some, target, w, self.n_features, self._labels)
                yield replace(rows, first=first + start, chunk=at)
                for array in (X, y, weights):
                    release(array)
            first += n


def check_rows(X: Any, y: Any, weights: Any, n_features: int, labels: bool) -> Rows:
    """Return rows as numbers; ``labels``: y holds class labels, which are not converted."""
    values = check_chunk("X", X, n_features)
    if not labels:
        return Rows(values, *check_chunk_targets("y", y, weights, len(values)), 0, 0)
    with naming("y"):
        target = check_labels(y)
        if len(target) != len(values):
            raise ValueError(f"y must hold a label for each of {len(values)} rows, got {len(target)}")
    return Rows(values, target, check_weights(weights, len(values), may_vanish=True), 0, 0)


def are_chunks(X: Any, y: Any) -> bool:
    """Tell whether X is of a type that is read in parts: chunks, a path, or a data set of Arrow."""
    if _is_path_or_arrow(X, y):
        return True
    if isinstance(X, (list, tuple)):
        # A list of tuples may also be a matrix, whose entries are numbers.
        may_be = (isinstance(chunk, (tuple, list)) and len(chunk) in (2, 3) for chunk in X)
        return y is None and len(X) > 0 and all(may_be) and all(len(np.shape(chunk[0])) == 2 for chunk in X)
    if any(hasattr(X, name) for name in ("__array__", "shape", "__dataframe__", "__dlpack__")):
        return False
    return (isinstance(X, Iterable) or callable(X)) and not isinstance(X, (dict, set, bytes))


def _is_path_or_arrow(X: Any, y: Any) -> bool:
    """Tell whether X is a path, or a data set, reader or (if y names a column) table of Arrow."""
    is_arrow = type(X).__module__.split(".")[0] == "pyarrow"
    is_arrow = is_arrow and (type(X).__name__ != "Table" or isinstance(y, str))
    return is_arrow or isinstance(X, (str, os.PathLike))


def open_chunks(X: Any, y: Any, sample_weight: Any, *, labels: bool = False) -> Chunks:
    """Return the rows of an array, an iterable of chunks, a path or an Arrow data set, to read in parts.

    ``labels``: y holds class labels, which are not converted.
    """
    if _is_path_or_arrow(X, y):
        return _open_arrow(X, y, sample_weight, labels)
    if isinstance(X, np.ndarray):
        if y is None:
            raise ValueError("y must hold the targets, as X is an array; got None")
        with naming("y"):
            y = y if isinstance(y, np.ndarray) and y.ndim == 1 else column_or_1d(y, warn=True)
        return Chunks([(X, y, sample_weight)], labels, len(X), single=True)
    for name, column in (("y", y), ("sample_weight", sample_weight)):
        if column is not None:
            raise ValueError(f"{name} must be None where X is an iterable of chunks, which contain it")
    return Chunks(X, labels)


def release(array: Any) -> None:
    """Release the memory of a mapped file, whose pages remain in the system's file cache."""
    mapped = getattr(array, "_mmap", None)
    # In copy-on-write mode changed pages exist in memory only.
    if isinstance(array, np.memmap) and mapped is not None and array.mode != "c":
        if (advice := getattr(mmap, "MADV_DONTNEED", None)) is not None:
            mapped.madvise(advice)


@contextmanager
def located(chunk: int, first: int, n_rows: int) -> Iterator[None]:
    """Name chunk and rows, from ``first`` on, in errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"chunk {chunk} (rows {first} to {first + n_rows - 1}): {error}") from error


def _unpacked(number: int, chunk: Any) -> tuple[Any, Any, Any]:
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise TypeError(
            f"chunk {number} of X must be (X, y) or (X, y, sample_weight), got {type(chunk).__name__}"
        )
    X, y, weights = map(as_numpy, ("X", "y", "sample_weight"), (*chunk, None)[:3])
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
    X, y = (np.concatenate(each) for each in ([part.X for part in parts], [part.y for part in parts]))
    return replace(parts[-1], X=X, y=y, weights=weights, first=parts[0].first)


def _open_arrow(X: Any, y: Any, sample_weight: Any, labels: bool) -> Chunks:
    """Return the rows of a path, data set, reader or table; ``y`` and ``sample_weight`` name columns."""
    try:
        from pyarrow import dataset, types
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
    columns = source.schema.names
    given = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    for name, column in given.items():
        if not isinstance(column, str):
            raise TypeError(
                f"{name} must be the name of a column where X is a path or a data set of Arrow, got "
                f"{type(column).__name__}"
            )
        if columns.count(column) != 1:
            raise ValueError(f"{name} must name one column of X, {', '.join(columns)}; got {column!r}")
    features = [column for column in columns if column not in given.values()]
    if not features:
        raise ValueError("X has no columns beside those of y and sample_weight")
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    for column in [*features, *list(given.values())[labels:]]:
        kind = source.schema.field(column).type
        if not any(is_kind(kind) for is_kind in numeric):
            raise TypeError(
                f"X: column {column!r} holds {kind}, not numbers; encode it, or give a data set without it"
            )
    names = np.array(features, dtype=object)
    if not hasattr(source, "scanner"):  # a reader, which can be read only once
        return Chunks(_parts(source, features, given, labels), labels, names=names)

    def read() -> Iterator[Any]:
        # Read ahead little, in the order of the files.
        few: Any = {"batch_size": _BATCH_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
        scanner = source.scanner(columns=[*features, *given.values()], use_threads=False, **few)
        return _parts(scanner.to_batches(), features, given, labels)

    return Chunks(read, labels, source.count_rows(), names=names)


#: Rows of Arrow that are converted at a time.
_BATCH_ROWS: Final = 4096


def _parts(batches: Any, features: list[str], given: dict[str, str], labels: bool) -> Iterator[Any]:
    """Yield (X, y) or (X, y, sample_weight), arrays, of a few rows of Arrow at a time."""
    import pyarrow as pa

    def values(batch: Any, name: str, column: str) -> NDArray[Any]:
        found = batch.column(column)
        if found.null_count > 0:
            raise ValueError(f"{name} holds nulls in column {column!r}; leave such rows out, or fill them in")
        if not (labels and name == "y"):
            found = found.cast(pa.float64(), safe=False)
        elif hasattr(found, "dictionary_decode"):
            found = found.dictionary_decode()
        array: NDArray[Any] = found.to_numpy(zero_copy_only=False)
        return array

    first = 0
    for number, batch in enumerate(batches):
        with located(number, first, len(batch)):
            X = np.column_stack([values(batch, "X", column) for column in features])
            rest = [values(batch, name, column) for name, column in given.items()]
        yield X, *rest
        first += len(batch)


#: Formats by suffix; all other files are read as Parquet.
_FORMATS: Final = {".arrow": "arrow", ".ipc": "arrow", ".feather": "feather"}


def files_of(path: str) -> list[str]:
    """Return the files of a file name, a folder or a pattern; raise FileNotFoundError if there is none."""
    folder = os.path.isdir(path)
    pattern = os.path.join(glob.escape(path), "**", "*.*") if folder else path
    found = [path] if os.path.isfile(path) else glob.glob(pattern, recursive=True)
    files = sorted(filter(os.path.isfile, found))
    if folder:  # Arrow, like glob, skips names that begin with a dot, and also those with an underscore
        files = [file for file in files if f"{os.sep}_" not in file[len(path) :]]
    if not files:
        raise FileNotFoundError(f"X: there is no file {path!r}; give a file, a directory or a pattern")
    return files


def _open_path(dataset: Any, path: str) -> Any:
    files, folder = files_of(path), os.path.isdir(path)
    formats = {_FORMATS.get(os.path.splitext(file)[1].lower(), "parquet") for file in files}
    if len(formats) > 1:
        raise ValueError(
            f"X: {path!r} has files of {' and '.join(sorted(formats))}; give files of one format"
        )
    partitioning = "hive" if folder else None
    return dataset.dataset(path if folder else files, format=formats.pop(), partitioning=partitioning)


# --- the state of a fit in a file: a BLAKE2b digest of the rest, an archive of arrays (`numpy.savez`)

#: Bytes of a digest.
DIGEST_BYTES: Final = 32
#: Least time between two saves: in seconds, and as a multiple of the time that a save takes.
_INTERVAL: Final = 3.0
_PATIENCE: Final = 20.0
#: Arguments of an estimator that its sums or working sets do not depend on.
_IRRELEVANT: Final = frozenset({"n_jobs", "verbose", "callback", "checkpoint", "memory_limit"})


class Checkpoint:
    """Named arrays in a file that is replaced atomically and belongs to one problem.

    While the file is written there is a second one, with ``.`` before and ``.part`` after the name.
    ``problem`` is the `digest` of all that the state depends on.
    """

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        self._path = check_path(path)
        self._part = self._path.with_name(f".{self._path.name}.part")
        self._problem = problem
        self._last_save, self._took = time.monotonic(), 0.0

    def load(self) -> dict[str, NDArray[Any]] | None:
        """Return the arrays last saved, None if there is no file.

        ValueError if the file is damaged or belongs to another problem.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        state = memoryview(content)[DIGEST_BYTES:]
        if content[:DIGEST_BYTES] != new_digest(state).digest():
            raise self._refusal("is damaged, or not a checkpoint of a fit")
        with np.load(BytesIO(state), allow_pickle=False) as saved:
            arrays = dict(saved)
        if arrays.pop("problem").item() != self._problem:
            raise self.mismatch()
        return arrays

    def save(self, **arrays: NDArray[Any]) -> None:
        """Replace the saved arrays by these; OSError, and the old file, if it cannot be written."""
        began, state = time.monotonic(), BytesIO()
        np.savez(state, **{**arrays, "problem": np.array(self._problem)})  # type: ignore[arg-type] # no flag
        try:
            with open(self._part, "wb") as file:
                file.write(new_digest(state.getbuffer()).digest())
                file.write(state.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._part, self._path)
        except BaseException:
            self._part.unlink(missing_ok=True)
            raise
        if os.name == "posix":  # where directories can be synced, write the new name to the disk
            handle = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self._last_save = time.monotonic()
        self._took = self._last_save - began

    def is_due(self) -> bool:
        """Tell whether enough time has passed since the last save."""
        return time.monotonic() - self._last_save > max(_INTERVAL, _PATIENCE * self._took)

    def remove(self) -> None:
        """Remove the file."""
        for path in (self._path, self._part):
            path.unlink(missing_ok=True)

    def mismatch(self) -> ValueError:
        """Return the error for a state of other data or another model."""
        return self._refusal("belongs to another fit: other data or arguments")

    def _refusal(self, what: str) -> ValueError:
        return ValueError(
            f"checkpoint: the file {os.fspath(self._path)!r} {what}. Remove it to begin anew, or give "
            "another path"
        )


def new_digest(data: Any = b"") -> hashlib.blake2b:
    """Return a digest of some bytes, to which others can be added."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)


def open_checkpoint(estimator: Any, *data: Any, suffix: str = "") -> Checkpoint | None:
    """Return the checkpoint that an estimator's argument names, if any.

    ``data``: what the state depends on beside the estimator's arguments (shapes, or arrays, which are read in
    full). ``suffix`` is appended to the file name.
    """
    path = estimator.checkpoint
    if path is None:
        return None
    given = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _IRRELEVANT}
    if suffix and isinstance(path, (str, os.PathLike)):
        path = os.fspath(path) + suffix
    return Checkpoint(path, digest(_core.__version__, type(estimator).__name__, given, *data))


def digest(*values: Any) -> str:
    """Return a digest of values: numbers, strings, arrays, kernels, and lists and dictionaries of these.

    Functions and other objects enter with their names, random number generators with their type.
    """
    state = new_digest()
    _feed(state, *values)
    return state.hexdigest()


def _feed(state: Any, *values: Any) -> None:
    for value in values:
        kind = np.ndarray if isinstance(value, np.ndarray) else type(value)  # memory-mapped or not
        state.update(f"{kind.__module__}.{kind.__qualname__}\0".encode())
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            state.update(f"{value.dtype.str}{value.shape}\0".encode())
            state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        elif isinstance(value, dict):
            entries = sorted(value.items(), key=lambda item: str(item[0]))
            _feed(state, len(entries), *entries)
        elif isinstance(value, (list, tuple, np.ndarray)):
            _feed(state, len(value), *value)
        elif is_dataclass(value) and not isinstance(value, type):
            _feed(state, *(getattr(value, field.name) for field in fields(value)))
        elif hasattr(value, "get_params") and not isinstance(value, type):
            _feed(state, value.get_params(deep=False))
        elif hasattr(value, "__array__") and not np.isscalar(value):
            _feed(state, np.asarray(value))
        elif isinstance(value, (str, bytes, int, float, complex, np.generic, type(None), slice)):
            state.update(repr(value).encode() + b"\0")
        else:
            # The ufuncs of NumPy 1 have no __qualname__.
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
            state.update(f"{getattr(value, '__module__', '')}.{name}\0".encode())


def check_path(path: object) -> Path:
    """Return the path of a checkpoint; TypeError if it is not a path, ValueError if it cannot be written."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be None or a path, got {path!r}")
    checked = Path(check_file("checkpoint", path))
    if checked.is_dir() or not os.access(checked.parent, os.W_OK):
        raise ValueError(
            f"checkpoint must name a file in a directory that can be written to, got {os.fspath(path)!r}"
        )
    return checked
