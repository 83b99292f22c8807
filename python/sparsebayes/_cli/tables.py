"""Tables for the command line: columns of text or numbers, from and to CSV files.

A column of numbers is an input of a model; a column of text has an input for each of its levels, one of
dates an input for each of their parts. The names of the inputs define them: ``age`` is the column of that
name, ``city=Paris`` is 1 where the column ``city`` contains ``Paris`` and 0 elsewhere, and ``weekday(when)``
is the day of the week of the date in column ``when``. ``log_exposure(hours)`` is the logarithm of the column
``hours`` that ``--exposure`` named. A model file stores only these names.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks import counted, listed
from .._types import FloatArray

#: Texts that mean a missing value in any column, and in a column of numbers.
_MISSING: Final = {"", "na", "n/a", "#n/a", "<na>", "nan", "null", "nat", "?"}
_MISSING_NUMBERS: Final = _MISSING | {"none", "-", "--", ".", "missing"}

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA_NUMBER: Final = re.compile(r"[+-]?(\d+,?\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
#: Labels and codes: leading zeros, or more digits than a float64 holds.
_CODE: Final = re.compile(r"[+-]?(0\d|\d{16})")
_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2}([.,'\s]\d{3})+([.,]\d+)?")
_LOG_EXPOSURE: Final = re.compile(r"log_exposure\((.+)\)", re.DOTALL)
#: Most levels of a text column that is used without ``--keep``.
_MAX_LEVELS: Final = 50
#: Numbers that often stand for a missing value.
_GAP_CODES: Final = (-9.0, *(sign * (10.0**k - 1.0) for k in range(2, 6) for sign in (-1, 1)))
#: A column that counts one by one may measure something up to so many rows, or up to such a first value.
_MIN_NUMBERED, _LAST_YEAR = 100, 2100.0


class TableError(Exception):
    """An error in a table or an argument, which the user can correct."""


@dataclass(frozen=True)
class Column:
    """The cells of a column as text, and as numbers if they are."""

    path: str
    name: str
    #: Without white space around them.
    cells: list[str]
    #: Whether commas separate the values of the file, so that a comma in a number may group thousands.
    splits_at_comma: bool = False

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.array([cell.lower() in _MISSING for cell in self.cells])

    @cached_property
    def numbers(self) -> FloatArray | None:
        """The values, NaN where they are missing; None for a column of text."""
        cells = [None if cell.lower() in _MISSING_NUMBERS else cell for cell in self.cells]
        if all(cell is None or cell.endswith("%") for cell in cells):
            cells = [None if cell is None else cell[:-1].rstrip() for cell in cells]
        present = [cell for cell in cells if cell is not None]
        if any(_CODE.match(cell) for cell in present):
            return None
        if not all(_NUMBER.fullmatch(cell) for cell in present):
            # In a comma-separated file "1,234" more likely means 1234.
            grouped = all(_THOUSANDS.fullmatch(cell) for cell in present if "," in cell)
            if not all(map(_COMMA_NUMBER.fullmatch, present)) or (self.splits_at_comma and grouped):
                return None
            cells = [None if cell is None else cell.replace(",", ".") for cell in cells]
        return np.array([np.nan if cell is None else float(cell) for cell in cells])

    def days(self, order: str | None = None) -> FloatArray | None:
        """Return days from 1970-01-01 of a column of dates, NaN where they are missing; None for others."""
        if self.numbers is not None or self.missing.all():
            return None
        try:
            return days_since_1970(self._known, self.order if order is None else order)
        except AmbiguousDateError:
            row = int(np.flatnonzero(~self.missing)[0])
            raise TableError(
                f"{self.at(row)}, a date that may begin with the day or with the month: write dates as "
                "2024-01-31"
            ) from None

    @cached_property
    def _known(self) -> list[str | None]:
        return [None if gap else cell for cell, gap in zip(self.cells, self.missing.tolist(), strict=True)]

    @cached_property
    def order(self) -> str:
        """What dates such as 13/4/2024 begin with; "": there are none."""
        return order_of(self._known)

    def part(self, name: str, order: str | None) -> FloatArray:
        """Return a part of the dates, NaN where they are missing; TableError if a value is no date."""
        if self.missing.all():
            return np.full(len(self.cells), np.nan)
        first = self.at(int(np.flatnonzero(~self.missing)[0]))
        days = self.days(order)
        if days is None:
            self.refuse_damaged_dates("")
            raise TableError(f"{first}, which is not a date or time")
        if name != "hour" and parts_of(days) == ["hour"]:
            raise TableError(f"{first}, a time without a date, which the model needs")
        return PARTS[name](days)

    def mostly_dates(self) -> bool:
        present = np.flatnonzero(~self.missing)
        return self.numbers is None and 2 * sum(looks_like_moment(self.cells[i]) for i in present) > len(
            present
        )

    def refuse_damaged_dates(self, alternative: str) -> None:
        """Raise TableError if most values of a column of text are dates, and others are not."""
        if self.mostly_dates():
            present = np.flatnonzero(~self.missing)
            row = next((int(i) for i in present if not is_moment(self.cells[i])), int(present[0]))
            raise TableError(
                f"{self.at(row)}, where most rows hold dates or times of one kind: write all of them as "
                f"2024-01-31 or 2024-01-31 12:30, or empty the cell{alternative}"
            )

    def refuse_damaged_numbers(self, instead: str) -> None:
        """Raise TableError if most values of a column of text are numbers; ``instead``: the remedy if not."""
        cells = {int(i): self.cells[i] for i in np.flatnonzero(~self.missing)}
        if self.numbers is not None or any(map(_CODE.match, cells.values())):
            return
        forms = (_NUMBER, _COMMA_NUMBER, _THOUSANDS)
        others = [i for i, cell in cells.items() if not any(form.fullmatch(cell) for form in forms)]
        if 2 * len(others) > len(cells):
            return
        row = others[0] if others else next(i for i, cell in cells.items() if not _NUMBER.fullmatch(cell))
        raise TableError(
            f"{self.at(row)}, where most rows hold numbers: correct it, or empty the cell, and write numbers "
            f"with a decimal point and nothing between thousands; {instead}"
        )

    def at(self, row: int) -> str:
        return f"column {self.name!r} of {self.path} holds {self.cells[row]!r} in row {row + 1}"

    def finite(self) -> FloatArray:
        """Return the numbers, NaN where they are missing; TableError if there is text or an infinity."""
        if self.numbers is None:
            cells = [(int(i), self.cells[i]) for i in np.flatnonzero(~self.missing)]
            odd = [i for i, cell in cells if not _NUMBER.fullmatch(cell) or _CODE.match(cell)]
            raise TableError(f"{self.at(odd[0])}, which is not a number")
        bad = np.flatnonzero(np.isinf(self.numbers)).tolist()
        if bad:
            raise TableError(
                f"{self.at(bad[0])}, which is not a finite number: write the value, or leave the cell empty"
            )
        return self.numbers

    def about_gaps(self, rows: NDArray[np.bool_]) -> str:
        """Return the texts of these rows that mean a missing value, in parentheses; "" without any."""
        written = {self.cells[i] for i in np.flatnonzero(rows & self.missing)} - {""}
        return f" ({listed(sorted(written), 6)} means a missing value)" if written else ""

    def about_codes(self, rows: NDArray[np.bool_]) -> str:
        """Return a note about numbers of these rows that seem to stand for missing values, "" without any.

        Each is the smallest or largest, and farther from the others than these are from each other.
        """
        assert self.numbers is not None
        values = self.numbers[rows & ~self.missing]
        found: list[str] = []
        while len(values) > 0:
            for code in (values.min(), values.max()):
                others = values[values != code]
                if code in _GAP_CODES and len(others) > 0 and np.abs(others - code).min() > np.ptp(others):
                    found.append(f"{code:g} in {counted(len(values) - len(others), 'row')}")
                    values = others
                    break
            else:
                break
        if not found:
            return ""
        rest = ", which are all the same" if np.ptp(values) == 0.0 else ""
        return (
            f"{self.name!r} is {' and '.join(found)}, far from its other values{rest}: if that means a "
            "missing value, empty these cells"
        )

    def positive(self) -> FloatArray:
        """Return exposures, NaN where they are missing; TableError if one is not positive."""
        values = self.finite()
        bad = np.flatnonzero(values <= 0.0).tolist()
        if bad:
            raise TableError(
                f"{self.at(bad[0])}, which is not positive, as exposures must be: correct it, or empty "
                "the cell to leave the row out"
            )
        return values

    def numbers_rows(self) -> bool:
        """Return whether the column numbers the rows: from about 0, perhaps with gaps, or one by one.

        Few values, and those that may be years, are taken for measurements.
        """
        values = self.numbers
        if values is None or len(values) < 3 or not np.isfinite(values).all():
            return False
        steps, n = np.diff(values), len(values)
        if not ((steps >= 1.0).all() and (values == np.round(values)).all()):
            return False
        is_near_0 = 0.0 <= values[0] <= max(1.0, 0.1 * n) and values[-1] < 3 * n
        return bool(is_near_0 or (n >= _MIN_NUMBERED and values[0] > _LAST_YEAR and (steps == 1.0).all()))

    def levels(self, rows: NDArray[np.bool_], options: argparse.Namespace) -> list[str]:
        """Return the different texts of these rows; TableError if they are dates, damaged or too many."""
        name = _quoted(self.name)
        if self.name not in options.text:
            self.refuse_damaged_dates(
                f"; --text {name} uses each value as a level, --drop {name} leaves it out"
            )
            self.refuse_damaged_numbers(
                f"--text {name} uses each value as a level, --drop {name} leaves it out"
            )
        if "=" in self.name:
            raise TableError(
                f"column {self.name!r} of {self.path} holds text; rename it without the sign '='"
            )
        used = np.flatnonzero(rows & ~self.missing)
        levels = sorted({self.cells[i] for i in used})
        if self.name not in options.keep and (len(levels) > _MAX_LEVELS or 2 * len(levels) > len(used)):
            raise TableError(
                f"{self.at(int(used[0]))}, one of {len(levels)} different texts in {len(used)} rows, too "
                f"many to learn from: leave the column out with --drop {name}, or make an input of each with "
                f"--keep {name}"
            )
        return levels


class Table(dict[str, Column]):
    """The columns of a file by name, and notes about how they were read, some of them about rows left out."""

    def __init__(self, path: str, columns: Mapping[str, Column], notes: list[str]) -> None:
        super().__init__(columns)
        self.path, self.notes, self.rows_left_out = path, notes, list[str]()

    def __missing__(self, name: str) -> Column:
        raise TableError(f"{self.path} has no column {name!r}; it has {listed(self)}")

    def leave_out(self, rows: NDArray[np.bool_], why: str) -> None:
        """Append the note that the rows of this mask are left out."""
        note = f"left out {counted(int(rows.sum()), 'row')} {why}"
        self.notes.append(note)
        self.rows_left_out.append(note)

    def refuse_two_decimal_signs(self, names: Iterable[str]) -> str | None:
        """Return the first of these columns with decimal commas; TableError if others have points."""
        numeric = [self[name] for name in names if self[name].numbers is not None]
        commas = [column.name for column in numeric if any("," in cell for cell in column.cells)]
        points = [(c, i) for c in numeric for i, cell in enumerate(c.cells) if "." in cell.strip(".")]
        if commas and points:
            column, row = points[0]
            raise TableError(
                f"{column.at(row)}, and column {commas[0]!r} has decimal commas: use the same decimal "
                "sign in all columns, and none between thousands"
            )
        return commas[0] if commas else None

    def inputs(self, names: Sequence[str], rows: NDArray[np.bool_], options: argparse.Namespace) -> list[str]:
        """Return the names of the inputs of a model; append notes about columns left out, and texts.

        ``names``: the columns to make them of; ``rows``: mask of the rows with a target.
        """
        asked = {*options.keep, *options.text}
        row_numbers = [name for name in names if name not in asked and self[name].numbers_rows()]
        # A row number that is the only input is intended, for instance times.
        row_numbers = [] if len(row_numbers) == len(names) else row_numbers
        features: list[str] = []
        for name in names:
            column = self[name]
            if name in row_numbers:
                self.notes.append(
                    f"left out {name!r}, which numbers the rows; --keep {_quoted(name)} uses it"
                )
            elif column.missing[rows].all():
                self.notes.append(f"left out {name!r}, which holds no values")
            elif len({column.cells[i] for i in np.flatnonzero(rows)}) == 1:
                self.notes.append(f"left out {name!r}, which is the same in all rows")
            elif column.numbers is not None and name not in options.text:
                column.finite()
                features.append(name)
                if note := column.about_codes(rows):
                    self.notes.append(note)
            elif name not in options.text and (days := column.days()) is not None:
                order = f", {column.order}" if column.order else ""
                parts = [f"{part}({name}{order})" for part in parts_of(days[rows])]
                features += parts
                self.notes.append(f"{name!r} is a date or time: the inputs {listed(parts)}")
            else:
                levels = column.levels(rows, options)
                features += [f"{name}={level}" for level in levels]
                n_missing = int(np.sum(rows & column.missing))
                rest = f"; all 0 in {counted(n_missing, 'row')} without a value" if n_missing else ""
                rest += column.about_gaps(rows)
                self.notes.append(f"{name!r} is text: an input for each of {listed(levels, 6)}{rest}")
        if not features:
            found = "".join(f"; {note}" for note in self.notes)
            raise TableError(f"{self.path} has no column to predict from{found}")
        if twice := {name for name in features if features.count(name) > 1}:
            raise TableError(
                f"{self.path} has a column {min(twice)!r}, which is also the name of a level of another "
                "column; rename one of them"
            )
        return features

    def source(self, feature: str) -> str:
        """Return the name of the column of an input; TableError if the table does not have it."""
        part, exposure = _PART.fullmatch(feature), _LOG_EXPOSURE.fullmatch(feature)
        names = [feature, *(feature[:end] for end, sign in enumerate(feature) if sign == "=")]
        names += [] if part is None else [part[2]]
        names += [] if exposure is None else [exposure[1]]
        for name in names:
            if name in self:
                return name
        return self[names[min(1, len(names) - 1)]].name  # raises the error

    def matrix(
        self, features: Iterable[str], known: Sequence[str] | None = None
    ) -> tuple[FloatArray, list[str]]:
        """Return the inputs of all rows, NaN where a number is missing, and notes about unknown texts.

        ``known``: all inputs of the fit, if there are more.
        """
        features = list(features)
        inputs, texts, notes = [], dict[str, None](), []
        for feature in features:
            name, part = self.source(feature), _PART.fullmatch(feature)
            if name == feature:
                inputs.append(self[name].finite())
            elif part is not None and part[2] == name:
                inputs.append(self[name].part(part[1], part[3]))
            elif feature == log_exposure(name):
                inputs.append(np.log(self[name].positive()))
            else:
                level, texts[name] = feature[len(name) + 1 :], None
                inputs.append(np.array([cell == level for cell in self[name].cells], dtype=np.float64))
        for name in texts:
            cells, start = self[name].cells, f"{name}="
            levels = {one.removeprefix(start) for one in known or features if one.startswith(start)}
            new = [i for i, cell in enumerate(cells) if cell not in levels]
            if new:
                notes.append(
                    f"column {name!r}: {len(new)} of {len(cells)} rows hold none of the texts of the fit "
                    f"(the first: {cells[new[0]]!r} in row {new[0] + 1}); all its indicators are 0 there"
                )
        return np.column_stack(inputs), notes


# --- files --------------------------------------------------------------------------------------------


def read(path: str) -> Table:
    """Read a CSV file; ``-`` reads standard input."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    path = "standard input" if path == "-" else path
    text, notes = _decoded(path, content)
    # The separator of values: the most frequent of four in the first line, outside quotes.
    first = re.sub(r'"[^"]*"', "", text.lstrip("\r\n").split("\n", 1)[0])
    delimiter = max(",;\t|", key=first.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if line]
    except csv.Error as error:
        raise TableError(f"{path} is not a CSV file: {error}") from None
    return _table(path, lines, notes, splits_at_comma=delimiter == ",")


def write(columns: Mapping[str, Sequence[Any]], path: str) -> None:
    """Write columns to a file, or to standard output if it is ``-``; None is a missing value."""
    with nullcontext(sys.stdout) if path == "-" else open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        # csv writes floats with repr, so that they are read back exactly, and None as an empty cell.
        writer.writerows(zip(*columns.values(), strict=True))


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str]) -> None:
    """Raise TableError if a file cannot be written, or is also an input or another output.

    Both are paths by name; None is no file, and ``-`` a standard stream.
    """
    others = {what: path for what, path in inputs.items() if path != "-"}
    for what, path in outputs.items():
        if path is None or path == "-":
            continue
        folder, start = os.path.dirname(path) or ".", f"cannot write {what} to {path}"
        if os.path.isdir(path) or not os.path.isdir(folder):
            why = "it is a folder" if os.path.isdir(path) else f"there is no folder {folder}"
            raise TableError(f"{start}: {why}")
        for other, its_path in others.items():
            if _is_one_file(path, its_path):
                raise TableError(f"{start}: {other} is the same file; give another name")
        others[what] = path


def _is_one_file(path: str, other: str) -> bool:
    """Tell whether both are one file; terminals and other devices are none."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.isfile(path) and os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _decoded(path: str, content: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, and a note if it is not in UTF-8."""
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error):
            raise TableError(f"{path} is a compressed file that is damaged; make it again") from None
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"PAR1")):
        raise TableError(f"{path} is a workbook, an archive or a Parquet file: save the table as CSV")
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return content.decode("utf-16"), []
        if b"\x00" not in content:
            return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        if b"\x00" not in content:
            return content.decode("cp1252", errors="replace"), ["not UTF-8: text read as Windows-1252"]
    raise TableError(f"{path} is not a CSV file: it holds zero bytes; save it as CSV in UTF-8")


def _table(path: str, lines: Sequence[Sequence[str]], notes: list[str], *, splits_at_comma: bool) -> Table:
    if not lines:
        raise TableError(f"{path} is empty; the first line has to name the columns")
    # pandas gives such names to unnamed columns.
    names = [re.sub(r"Unnamed: \d+", "", name.strip()) for name in lines[0]]
    if all(_NUMBER.fullmatch(name) or _COMMA_NUMBER.fullmatch(name) for name in names):
        raise TableError(f"the first line of {path} holds numbers; it has to name the columns")
    if len(lines) < 2:
        raise TableError(f"{path} holds no rows, only the names of its columns")
    if all(len(line) == len(names) + 1 for line in lines[1:]):
        names = ["", *names]  # R writes row names without a header
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(names):
            raise TableError(
                f"row {number} of {path} has {counted(len(line), 'value')} where the first line has "
                f"{counted(len(names), 'name')}; quote values that contain the separator, and remove lines "
                "above the names of the columns"
            )
    if n_unnamed := names.count(""):
        notes.append(f"left out {counted(n_unnamed, 'column')} without a name")
    if twice := {name for name in names if name and names.count(name) > 1}:
        raise TableError(f"{path} has more than one column {min(twice)!r}; each needs a name of its own")
    columns = {
        name: Column(path, name, [line[j].strip() for line in lines[1:]], splits_at_comma)
        for j, name in enumerate(names)
        if name
    }
    if not columns:
        raise TableError(f"no column of {path} has a name; the first line has to name the columns")
    return Table(path, columns, notes)


def log_exposure(name: str) -> str:
    """Return the name of the input that is the logarithm of the exposures in this column."""
    return f"log_exposure({name})"


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


# --- dates and times: what they are as numbers, and the inputs that a column of them gives ----------

_CLOCK: Final = re.compile(
    r"(?P<h>\d{1,2}):(?P<m>\d{2})(:(?P<s>\d{2}(\.\d+)?))?( ?(?P<half>[ap])m)?(?P<zone>z|[+-]\d{2}:?\d{2})?",
    re.IGNORECASE,
)
#: Between a date and a time.
_BEFORE_CLOCK: Final = re.compile(r"(?<=\d)[t ](?=\d{1,2}:)", re.IGNORECASE)
_NAMED_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
#: Year first; two numbers and the year; a month by its name, after the day or before it.
_DAYS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
        # After points with two digits of the year, those of day and month as well: 3.10.12 is a version.
        r"(?P<first>\d{1,2})(?P<sign>[-/.])(?P<second>\d{1,2})[-/.](?P<y>\d{4}|(?<=/)\d{2}|(?<=\b\d\d.\d\d.)\d{2})",
        r"(?P<d>\d{1,2})[ -](?P<name>[a-z]{3,9})\.?[ -](?P<y>\d{2}|\d{4})",
        r"(?P<name>[a-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})",
    )
)
_START: Final = datetime(1970, 1, 1)
#: Texts that look like moments; days that do not exist and version numbers are among them.
_LIKE_CLOCK: Final = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?(z|[+-]\d{2}:?\d{2})?"
_LIKE_DAY: Final = (
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}[ -][a-z]{3,9}\.?[ -]\d{2,4}"
    r"|[a-z]{3,9}\.? \d{1,2},? \d{4})"
)
_LIKE_MOMENT: Final = re.compile(rf"{_LIKE_DAY}([t ]{_LIKE_CLOCK})?|{_LIKE_CLOCK}", re.IGNORECASE)
#: Orders of day and month.
DAY_FIRST, MONTH_FIRST = "day/month", "month/day"
#: Days of a year, and of a week.
_YEAR, _WEEK = 366.0, 7.0


class AmbiguousDateError(ValueError):
    """Dates that may begin with the day or with the month."""


def days_since_1970(cells: Sequence[str | None], order: str | None = None) -> FloatArray | None:
    """Return the days from 1970-01-01 to each moment, NaN for None; None if some cell is not a moment.

    Times without a day count from 0. ``order``: what dates such as 3/4/2024 begin with, `MONTH_FIRST` or
    `DAY_FIRST`; None: as `order_of` finds, which may raise AmbiguousDateError.
    """
    swaps = (order_of(cells) if order is None else order) == MONTH_FIRST
    found, has_day = np.full(len(cells), np.nan), set[bool]()
    for i, cell in enumerate(cells):
        if cell is None:
            continue
        parts = _BEFORE_CLOCK.split(cell)
        has_day.add(":" not in parts[0])
        try:
            found[i] = _days_of_clock(parts[-1]) if ":" in parts[-1] else 0.0
            if ":" not in parts[0]:
                found[i] += _days_of_date(parts[0], month_is_first=swaps)
        except ValueError:
            return None
    return found if len(has_day) == 1 else None


def looks_like_moment(cell: str) -> bool:
    """Return whether a text may be meant as a date or a time, such as 2023-02-29."""
    return _LIKE_MOMENT.fullmatch(cell) is not None


def is_moment(cell: str) -> bool:
    """Return whether a text is a date or a time, whichever of day and month comes first."""
    return any(days_since_1970([cell], order) is not None for order in (DAY_FIRST, MONTH_FIRST))


def _match_day(cell: str) -> re.Match[str] | None:
    return next((found for form in _DAYS if (found := form.fullmatch(cell))), None)


def order_of(cells: Sequence[str | None]) -> str:
    """Return what dates of two numbers and a year begin with, "" without such dates; with dots, the day.

    AmbiguousDateError: both numbers of all of them are at most 12.
    """
    days = [_match_day(_BEFORE_CLOCK.split(cell)[0]) for cell in cells if cell is not None]
    pairs = [
        (int(day["first"]), int(day["second"]))
        for day in days
        if day is not None and "sign" in day.groupdict() and day["sign"] != "."
    ]
    if not pairs:
        return ""
    if any(first > 12 for first, _ in pairs):
        return DAY_FIRST
    if any(second > 12 for _, second in pairs):
        return MONTH_FIRST
    raise AmbiguousDateError


def _days_of_date(text: str, *, month_is_first: bool) -> float:
    """Return the days from 1970-01-01; ValueError if there is no such day."""
    if (day := _match_day(text)) is None:
        raise ValueError("not a date")
    parts = day.groupdict()
    if "first" in parts:
        swaps = month_is_first and parts["sign"] != "."
        number, month = (int(parts[key]) for key in (("second", "first") if swaps else ("first", "second")))
    elif "name" in parts:
        name = parts["name"].lower()
        months = [k for k, whole in enumerate(_NAMED_MONTHS, 1) if name in (whole, whole[:3], whole[:4])]
        if not months:
            raise ValueError("not a month")
        number, month = int(parts["d"]), months[0]
    else:
        number, month = int(parts["d"]), int(parts["m"])
    year = int(parts["y"])
    if len(parts["y"]) == 2:  # as POSIX has it
        year += 2000 if year < 69 else 1900
    return float((datetime(year, month, number) - _START).days)


def _days_of_clock(clock: str) -> float:
    """Return the time of day in days, in UTC if the zone is given; ValueError if it is not a time."""
    found = _CLOCK.fullmatch(clock)
    if found is None:
        raise ValueError("not a time")
    hours, minutes, seconds = int(found["h"]), int(found["m"]), float(found["s"] or 0.0)
    if found["half"] and hours > 12:
        raise ValueError("not a time")
    if found["half"]:
        hours = hours % 12 + (12 if found["half"].lower() == "p" else 0)
    if hours > 24 or (hours == 24 and (minutes or seconds)) or minutes > 59 or seconds >= 61.0:
        raise ValueError("not a time")
    zone = found["zone"]
    if zone and zone.lower() != "z":
        offset = 60 * int(zone[1:3]) + int(zone[-2:])
        minutes -= offset if zone[0] == "+" else -offset
    return hours / 24.0 + minutes / 1440.0 + seconds / 86400.0


def _yearday(days: FloatArray) -> FloatArray:
    known = ~np.isnan(days)
    dates = np.floor(np.where(known, days, 0.0)).astype(np.int64).astype("M8[D]")
    return np.where(known, (dates - dates.astype("M8[Y]").astype("M8[D]")).astype(np.float64) + 1.0, np.nan)


#: Inputs that dates give: days since 1970-01-01, the day of the year, the day of the week from Monday, 0, to
#: Sunday, 6, and the hour of the day.
PARTS: Final[dict[str, Callable[[FloatArray], FloatArray]]] = {
    "days": lambda days: days,
    "yearday": _yearday,
    "weekday": lambda days: np.mod(np.floor(days) + 3.0, _WEEK),
    "hour": lambda days: 24.0 * np.mod(days, 1.0),
}
#: ``weekday(when)``, or ``weekday(when, month/day)`` if dates have that order.
_PART: Final = re.compile(rf"({'|'.join(PARTS)})\((.+?)(?:, ({DAY_FIRST}|{MONTH_FIRST}))?\)", re.DOTALL)


def parts_of(days: FloatArray) -> list[str]:
    """Return the names of the parts that say different things about these days."""
    days = days[~np.isnan(days)]
    length, hours = float(np.ptp(days)), np.unique(np.round(np.mod(days, 1.0), 6))
    if length < 1.0 and days.min() >= 0.0 and days.max() <= 1.0:
        return ["hour"]  # times without a day
    found = ["days"]
    if length > _YEAR:
        found.append("yearday")
    if length > 2.0 * _WEEK and len(np.unique(PARTS["weekday"](days))) > 1:
        found.append("weekday")
    return [*found, "hour"] if len(hours) > 1 else found
