"""The inputs of a model from the columns of a table: numbers, and indicators of the levels of texts.

The names of the inputs define them: ``age`` is the column of that name, and ``city=Paris`` is 1 where the
column ``city`` holds ``Paris`` and 0 elsewhere. A model file stores only these names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .._types import FloatArray
from .tables import Column, Table, TableError, counted, listed

#: Most levels of a text column that is encoded without ``--keep``.
_MAX_LEVELS: Final = 50


def choose(
    table: Table,
    excluded: Collection[str],
    text: Collection[str],
    keep: Collection[str],
    rows: NDArray[np.bool_],
) -> tuple[list[str], list[str]]:
    """Return the names of the inputs of a model, and notes about columns that are left out or encoded.

    ``excluded``: columns that are not inputs; ``text``: columns of numbers to use as text; ``keep``: columns
    to use even if they number the rows or hold many texts; ``rows``: mask of the rows with a target.
    """
    features: list[str] = []
    notes: list[str] = []
    names = [name for name in table if name not in excluded]
    row_numbers = [name for name in names if name not in {*keep, *text} and _numbers_rows(table[name])]
    # A row number that is the only input is intended, for instance times.
    row_numbers = [] if len(row_numbers) == len(names) else row_numbers
    for name in names:
        column = table[name]
        if name in row_numbers:
            notes.append(f"left out {name!r}, which numbers the rows; --keep {_quoted(name)} uses it")
        elif column.missing[rows].all():
            notes.append(f"left out {name!r}, which holds no values")
        elif len({cell for cell, used in zip(column.cells, rows, strict=True) if used}) == 1:
            notes.append(f"left out {name!r}, which is the same in all rows")
        elif column.numbers is not None and name not in text:
            column.finite()
            features.append(name)
        else:
            levels = _levels(column, rows, is_text=name in text, keep=name in keep)
            features += [f"{name}={level}" for level in levels]
            n_missing = int(np.sum(rows & column.missing))
            rest = f"; all 0 in {counted(n_missing, 'row')} without a value" if n_missing else ""
            notes.append(f"{name!r} is text: an input for each of {listed(levels, 6)}{rest}")
    if not features:
        raise TableError(
            f"{table.path} has no column to predict from" + "".join(f"; {note}" for note in notes)
        )
    twice = {name for name in features if features.count(name) > 1}
    if twice:
        raise TableError(
            f"{table.path} has a column {sorted(twice)[0]!r}, which is also the name of a level of another "
            "column; rename one of them"
        )
    return features, notes


def matrix(table: Table, features: Iterable[str]) -> tuple[FloatArray, list[str]]:
    """Return the inputs of all rows, NaN where a number is missing, and notes about unknown texts."""
    inputs, levels, notes = [], dict[str, list[str]](), []
    for feature in features:
        name = source(table, feature)
        if name == feature:
            inputs.append(table[name].finite())
            continue
        level = feature[len(name) + 1 :]
        levels.setdefault(name, []).append(level)
        inputs.append(np.array([cell == level for cell in table[name].cells], dtype=np.float64))
    for name, known in levels.items():
        cells = table[name].cells
        new = [i for i, cell in enumerate(cells) if cell not in known]
        if new:
            notes.append(
                f"column {name!r}: {len(new)} of {len(cells)} rows hold none of the texts of the fit (the "
                f"first: {cells[new[0]]!r} in row {new[0] + 1}); all its indicators are 0 there"
            )
    return np.column_stack(inputs), notes


def source(table: Table, feature: str) -> str:
    """Return the name of the column of an input; TableError if the table does not have it."""
    if feature in table:
        return feature
    ends = [i for i, sign in enumerate(feature) if sign == "="]
    for end in ends:
        if feature[:end] in table:
            return feature[:end]
    name = feature[: ends[0]] if ends else feature
    raise TableError(f"{table.path} has no column {name!r}; it has {listed(table)}")


def grouped(table: Table, features: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the inputs made from each column."""
    groups: dict[str, list[int]] = {}
    for j, feature in enumerate(features):
        groups.setdefault(source(table, feature), []).append(j)
    return groups


def _numbers_rows(column: Column) -> bool:
    values = column.numbers
    if values is None or len(values) < 3:
        return False
    # The rows of a part of a table have gaps in their numbers.
    counts = (np.diff(values) >= 1.0).all() and (values == np.round(values)).all()
    return bool(counts and 0.0 <= values[0] <= max(1.0, 0.1 * len(values)) and values[-1] < 3 * len(values))


def _levels(column: Column, rows: NDArray[np.bool_], *, is_text: bool, keep: bool) -> list[str]:
    name = _quoted(column.name)
    column.refuse_dates(f", or leave it out with --drop {name}")
    if not is_text:
        column.refuse_damaged_numbers(
            f"--text {name} uses each value as a level, --drop {name} leaves it out"
        )
    if "=" in column.name:
        raise TableError(
            f"column {column.name!r} of {column.path} holds text; rename it without the sign '='"
        )
    used = rows & ~column.missing
    levels = sorted({cell for cell, is_used in zip(column.cells, used, strict=True) if is_used})
    if not keep and (len(levels) > _MAX_LEVELS or 2 * len(levels) > used.sum()):
        first = int(np.flatnonzero(used)[0])
        raise TableError(
            f"{column.at(first)}, one of {len(levels)} different texts in {used.sum()} rows, too many to "
            f"learn from: leave the column out with --drop {name}, or make an input of each with "
            f"--keep {name}"
        )
    return levels


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name
