"""The error, the memory measurement and the report of the scripts in this folder."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from pathlib import Path


class Wrong(Exception):
    """Raised if a check fails."""


def resident(pid: int | str = "self") -> float:
    """Return the resident memory of a process in MiB, or this process's peak where there is no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


def report(lines: Iterable[str]) -> int:
    """Print the line of each check; return the exit status, 1 if a check fails."""
    try:
        for line in lines:
            print(line, flush=True)
    except Wrong as what:
        print(f"wrong: {what}")
        return 1
    return 0
