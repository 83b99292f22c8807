"""How much memory a fit may take, and what fits in it."""

from __future__ import annotations

import math
import numbers
import os
import re
from functools import cache
from pathlib import Path
from typing import Final

#: The share of the machine's memory that a fit takes unless it is told otherwise.
_SHARE: Final = 0.5
_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
#: Where Linux says what a container may take.
_GROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Where a machine does not say how much memory it has.
_MODEST: Final = 4 << 30


def check_memory_limit(value: object) -> int:
    """Return the number of bytes that ``memory_limit`` stands for; None is half of what the machine has.

    Raises
    ------
    TypeError, ValueError
        If it is no positive number of bytes, nor a text of one: ``"500MB"``, ``"1.5GiB"``.
    """
    if value is None:
        return int(_SHARE * _installed())
    remedy = f"memory_limit must be None, a number of bytes, or a text such as '2GiB'; got {value!r}"
    if isinstance(value, str):
        return _parsed(value, remedy)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(remedy)
    if value < 1:
        raise ValueError(remedy)
    return int(value)


def in_words(n_bytes: float) -> str:
    """Return a number of bytes as people read it."""
    power = 0 if n_bytes < 1 else min(4, int(math.log(n_bytes, 1024)))
    unit = "B" if power == 0 else f"{' KMGT'[power]}iB"
    return f"{n_bytes / 1024**power:.3g} {unit}"


def _parsed(text: str, remedy: str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(remedy)
    number, unit, binary = found.groups()
    n_bytes = float(number) * (1024 if binary else 1000) ** _UNITS[unit.upper()]
    if not 1.0 <= n_bytes < math.inf:
        raise ValueError(remedy)
    return int(n_bytes)


@cache
def _installed() -> int:
    """Return the bytes of memory of the machine, or of the container that this runs in, as first found."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        found = _MODEST
    for path in _GROUPS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return found
