"""Dates and times in tables: what they are as numbers, and the inputs that a column of them gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import numpy as np

from .._types import FloatArray

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
