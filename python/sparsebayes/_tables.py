"""Tables for the command line: columns by name, from and to CSV and Parquet files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from ._types import FloatArray

_PARQUET: Final = {".parquet", ".pq"}
#: What a file of comma-separated values writes where there is no value.
_MISSING: Final = {"", "na", "n/a", "nan", "null", "none", "?"}


class TableError(Exception):
    """Something that the user of the command line can put right."""


def read(path: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a file by name: numbers as float64, all else as text.

    Raises
    ------
    TableError
        If there is no such file, or no table in it.
    """
    if Path(path).suffix.lower() in _PARQUET:
        return _read_parquet(path)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _columns(path, list(csv.reader(file, dialect=_dialect(file))))
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TableError(f"{path} is not text in UTF-8; save it as CSV UTF-8") from None
    except csv.Error as error:
        raise TableError(f"{path} is not a CSV file: {error}") from None


def features(path: str, table: Mapping[str, NDArray[Any]], names: Iterable[str]) -> FloatArray:
    """Return columns side by side.

    Raises
    ------
    TableError
        If one is missing, holds text, or lacks values.
    """
    columns = []
    for name in names:
        if name not in table:
            raise TableError(f"{path} has no column {name!r}; it has {_listed(table)}")
        columns.append(numbers(path, name, table[name]))
    return np.column_stack(columns)


def numbers(path: str, name: str, column: NDArray[Any]) -> FloatArray:
    """Return a column as numbers."""
    if column.dtype.kind not in "fiub":
        row, text = next((i, v) for i, v in enumerate(column) if not _is_number(v))
        raise TableError(
            f"column {name!r} of {path} holds {str(text)!r} in row {row + 1}, no number; leave it out with "
            "--drop, or write it as numbers (0 and 1 for two kinds, a column for each of several)"
        )
    values = column.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise TableError(
            f"column {name!r} of {path} has no value in row {bad[0] + 1} ({len(bad)} rows in all); fill in "
            "or remove such rows"
        )
    return values


def write(columns: Mapping[str, NDArray[Any]], path: str | None) -> None:
    """Write columns to a file, or to standard output."""
    if path is None:
        _write_csv(columns, sys.stdout)
        return
    try:
        if Path(path).suffix.lower() in _PARQUET:
            table, parquet = _arrow()
            parquet.write_table(table({name: np.asarray(v) for name, v in columns.items()}), path)
            return
        with open(path, "w", newline="", encoding="utf-8") as file:
            _write_csv(columns, file)
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror or error}") from None


def _dialect(file: TextIO) -> type[csv.Dialect]:
    """Return what stands between values: the most frequent of three in the first line."""
    line = file.readline()
    file.seek(0)

    class Found(csv.excel):
        delimiter = max(",;\t", key=line.count)

    return Found


def _columns(path: str, lines: Sequence[Sequence[str]]) -> dict[str, NDArray[Any]]:
    lines = [line for line in lines if line]
    if len(lines) < 2:
        raise TableError(f"{path} holds no rows; the first line has to name the columns")
    names = [name.strip() for name in lines[0]]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TableError(
            f"{path} has more than one column {sorted(twice)[0]!r}; each needs a name of its own"
        )
    if all(_is_number(name) for name in names):
        raise TableError(f"the first line of {path} holds numbers; it has to name the columns")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(names):
            raise TableError(f"row {number} of {path} has {len(line)} values, not {len(names)}")
    return {name: _typed([line[j].strip() for line in lines[1:]]) for j, name in enumerate(names)}


def _typed(values: list[str]) -> NDArray[Any]:
    """Return numbers if all values are, NaN where there is none; else text."""
    try:
        return np.array([np.nan if v.lower() in _MISSING else float(v) for v in values])
    except ValueError:
        return np.array(values, dtype=object)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return str(value).lower() in _MISSING
    return True


def _arrow() -> tuple[Any, Any]:
    """Return what makes tables, and what reads and writes files."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise TableError('Parquet files need pyarrow: pip install "sparsebayes[arrow]"') from None
    return pyarrow.table, parquet


def _read_parquet(path: str) -> dict[str, NDArray[Any]]:
    _, parquet = _arrow()
    try:
        table = parquet.read_table(path)
    except OSError as error:
        raise TableError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise TableError(f"{path} is not a Parquet file: {error}") from None
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _write_csv(columns: Mapping[str, NDArray[Any]], file: TextIO) -> None:
    writer = csv.writer(file)
    writer.writerow(columns)
    # repr gives the digits that bring a float back.
    texts = [[repr(float(v)) if c.dtype.kind == "f" else str(v) for v in c] for c in columns.values()]
    writer.writerows(zip(*texts, strict=True))


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
