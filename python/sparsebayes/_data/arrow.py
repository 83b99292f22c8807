"""Data sets of Arrow, read batch by batch: files of Parquet or Arrow, data sets, readers and tables."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks.arguments import check_file
from .._checks.targets import naming
from .._types import FloatArray
from .chunks import Chunks, Rows

#: Formats by the ends of names; other files are taken for Parquet.
_FORMATS: Final = {".arrow": "arrow", ".ipc": "arrow", ".feather": "feather"}


def open_arrow(X: Any, y: Any, sample_weight: Any, labels: bool) -> Chunks:
    """Return the rows of a path, data set, reader or table; ``y`` and ``sample_weight`` name columns."""
    dataset = _import_dataset()
    source = X
    if isinstance(X, (str, os.PathLike)):
        with naming("X"):  # a file of another kind, for instance
            source = _open_path(dataset, check_file("X", X))
    elif type(X).__name__ == "Table":
        source = dataset.dataset(X)
    if not (hasattr(source, "schema") and (hasattr(source, "scanner") or hasattr(source, "read_next_batch"))):
        raise TypeError(
            "X of pyarrow must be a pyarrow.dataset.Dataset, a RecordBatchReader or a Table, got "
            f"{type(X).__name__}"
        )
    return _Arrow(source, _named("y", y), _named("sample_weight", sample_weight), labels)


class _Arrow(Chunks):
    """The rows of a data set, or of a reader, whose batches can be read but once."""

    def __init__(self, source: Any, y: str | None, weights: str | None, labels: bool) -> None:
        self._source, self._labels = source, labels
        if y is None:
            raise TypeError(
                "y must be the name of the target column where X is a data set of Arrow, got None"
            )
        self._y, self._weights = y, weights
        columns = source.schema.names
        for name, column in (("y", y), ("sample_weight", weights)):
            if column is not None and columns.count(column) != 1:
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
        # Little is read ahead, in the order of the files.
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
                    X[:, j] = _numbers(part, "X", column, where)
                y = _labels(part, self._y, where) if self._labels else _numbers(part, "y", self._y, where)
                weights = self._weights and _numbers(part, "sample_weight", self._weights, where)
                yield self._checked(number, first, X, y, weights)
                first += len(part)


def _import_dataset() -> Any:
    try:
        from pyarrow import dataset
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "X is a path or a data set of Arrow, which takes pyarrow: pip install sparsebayes[arrow]"
        ) from error
    return dataset


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
    """Tell whether Arrow reads this file: names that begin with a dot or _ are for other ends."""
    return not any(part.startswith((".", "_")) for part in entry.relative_to(above).parts)


def _format(path: str, files: list[Path]) -> str:
    if not files:
        raise FileNotFoundError(
            f"X: there is no file {path!r}; give a file, a directory or a pattern of such"
        )
    formats = {_FORMATS.get(file.suffix.lower(), "parquet") for file in files}
    if len(formats) > 1:
        raise ValueError(
            f"X: {path!r} has files of {' and '.join(sorted(formats))}; give those of one format"
        )
    return formats.pop()


def _named(argument: str, column: Any) -> str | None:
    if column is not None and not isinstance(column, str):
        raise TypeError(
            f"{argument} must be the name of a column where X is a path or a data set of Arrow, got "
            f"{type(column).__name__}"
        )
    return column


def _check_numeric(column: str, kind: Any) -> None:
    from pyarrow import types

    if not any(
        is_kind(kind)
        for is_kind in (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_decimal,
            types.is_null,
        )
    ):
        raise TypeError(
            f"X: column {column!r} holds {kind}, and has to hold numbers; encode it, or give a data set "
            "without it"
        )


def _numbers(batch: Any, argument: str, column: str, where: str) -> FloatArray:
    import pyarrow as pa

    values = batch.column(column)
    if values.null_count > 0:
        raise ValueError(
            f"{where}: {argument} holds nulls in column {column!r}; leave such rows out, or fill them in"
        )
    numbers: FloatArray = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _labels(batch: Any, column: str, where: str) -> NDArray[Any]:
    values = batch.column(column)
    if values.null_count > 0:
        raise ValueError(f"{where}: y holds nulls in column {column!r}; leave such rows out")
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    labels: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return labels
