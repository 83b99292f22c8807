"""Tables as plain text or Markdown, and what they were measured on."""

import datetime
import os
import platform
import re
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("sparsebayes", "scikit-learn", "numpy", "fastrvm")


@dataclass(frozen=True)
class Table:
    """Headings and cells, all of them text; numbers are in columns whose heading starts with a space."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def lines(self, markdown):
        return self.as_markdown() if markdown else self.as_text()

    def as_text(self):
        cells = [self.headings, *self.rows]
        widths = [max(len(row[c].strip()) for row in cells) for c in range(len(self.headings))]
        yield self.title
        for row in cells:
            yield "  ".join(self.aligned(c, row[c], widths[c]) for c in range(len(widths))).rstrip()

    def aligned(self, column, cell, width):
        right = self.headings[column].startswith(" ")
        return cell.strip().rjust(width) if right else cell.strip().ljust(width)

    def as_markdown(self):
        yield f"**{self.title}**"
        yield ""
        yield "| " + " | ".join(heading.strip() for heading in self.headings) + " |"
        yield "|" + "|".join("---:" if heading.startswith(" ") else "---" for heading in self.headings) + "|"
        for row in self.rows:
            yield "| " + " | ".join(cell.strip() for cell in row) + " |"


def rewrite(path, name, lines):
    """Put lines between the marks of that name in a document."""
    begin, end = (f"<!-- {name}: {where} -->\n" for where in ("begin", "end"))
    before, found_begin, rest = path.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise SystemExit(f"{path} has no lines {begin.strip()} and {end.strip()}")
    path.write_text("\n".join((before + begin, *lines, "", end + after)))


def number(value):
    """Three digits, and never an exponent for what a person reads."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def milliseconds(value):
    return number(1000 * value)


def environment():
    """What the numbers depend on, as text by name."""
    return {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", *sys.argv]),
        "CPU": cpu_model(),
        "cores": str(n_cores()),
        "Python": platform.python_version(),
        **{package: installed_version(package) for package in PACKAGES},
    }


def cpu_model():
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def n_cores():
    """Cores this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def installed_version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def environment_lines(markdown):
    pairs = environment().items()
    if markdown:
        yield from (f"- {name}: {f'`{text}`' if name == 'command' else text}" for name, text in pairs)
    else:
        yield from (f"{name}: {text}" for name, text in pairs)
