"""Dates and times in tables: what they are as numbers, and the inputs that a column of them gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from .._types import FloatArray

_CLOCK: Final = re.compile(
    r"(?P<h>\d{1,2}):(?P<m>\d{2})(:(?P<s>\d{2}(\.\d+)?))?( ?(?P<half>[ap])m)?(?P<zone>z|[+-]\d{2}:?\d{2})?",
    re.IGNORECASE,
)
#: Between a date and a time.
_BEFORE_CLOCK: Final = re.compile(r"(?<=\d)[t ](?=\d{1,2}:)", re.IGNORECASE)
_NAMED_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: Year first; two numbers and the year; a month by its name, after the day or before it.
_DAYS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<sign>[-/.])(?P<second>\d{1,2})[-/.](?P<y>\d{2}|\d{4})",
        r"(?P<d>\d{1,2})[ -](?P<name>[a-z]{3,9})\.?[ -](?P<y>\d{4})",
        r"(?P<name>[a-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})",
    )
)
_START: Final = datetime(1970, 1, 1)
#: Days of a year, and of a week.
_YEAR, _WEEK = 366.0, 7.0


class AmbiguousDateError(ValueError):
    """Dates that may begin with the day or with the month."""


def days_since_1970(cells: Sequence[str | None]) -> FloatArray | None:
    """Return the days from 1970-01-01 to each moment, NaN for None; None if some cell is not a moment.

    Times without a day count from 0. AmbiguousDateError: all days of dates such as 3/4/2024 are at most 12.
    """
    split = [
        None if cell is None else re.split(r"(?<=\d)[t ](?=\d{1,2}:)", cell, flags=re.I) for cell in cells
    ]
    days = [None if parts is None or ":" in parts[0] else _match_day(parts[0]) for parts in split]
    swaps = _month_is_first([day for day in days if day is not None])
    found = np.full(len(cells), np.nan)
    for i, parts in enumerate(split):
        if parts is None:
            continue
        clock, day = (parts[-1] if ":" in parts[-1] else None), days[i]
        try:
            at = 0.0 if clock is None else _days_of_clock(clock)
            if ":" not in parts[0]:
                at += _days_of_date(day, month_is_first=swaps)
        except ValueError:
            return None
        found[i] = at
    return found if len({":" in parts[0] for parts in split if parts is not None}) == 1 else None


def _match_day(cell: str) -> re.Match[str] | None:
    return next((found for form in _DAYS if (found := form.fullmatch(cell))), None)


def _month_is_first(days: Sequence[re.Match[str]]) -> bool:
    """Return whether dates of two numbers and a year begin with the month; after dots they never do."""
    pairs = [
        (int(day["first"]), int(day["second"]))
        for day in days
        if "sign" in day.groupdict() and day["sign"] != "."
    ]
    if not pairs or any(first > 12 for first, _ in pairs):
        return False
    if any(second > 12 for _, second in pairs):
        return True
    raise AmbiguousDateError


def _days_of_date(day: re.Match[str] | None, *, month_is_first: bool) -> float:
    """Return the days from 1970-01-01; ValueError if there is no such day."""
    if day is None:
        raise ValueError("not a date")
    parts = day.groupdict()
    if "first" in parts:
        swaps = month_is_first and parts["sign"] != "."
        number, month = (int(parts[key]) for key in (("second", "first") if swaps else ("first", "second")))
    elif "name" in parts:
        number, month = int(parts["d"]), _NAMED_MONTHS.index(parts["name"][:3].lower()) + 1
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
    if found["half"]:
        hours = hours % 12 + (12 if found["half"].lower() == "p" else 0)
    if hours > 24 or minutes > 59 or seconds >= 61.0:
        raise ValueError("not a time")
    zone = found["zone"]
    if zone and zone.lower() != "z":
        offset = 60 * int(zone[1:3]) + int(zone[-2:])
        minutes -= offset if zone[0] == "+" else -offset
    return hours / 24.0 + minutes / 1440.0 + seconds / 86400.0


def _yearday(days: FloatArray) -> FloatArray:
    moments = [None if np.isnan(day) else _START + timedelta(days=float(np.floor(day))) for day in days]
    return np.array([np.nan if at is None else float(at.timetuple().tm_yday) for at in moments])


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
