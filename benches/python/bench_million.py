"""A million rows: time, memory and error beside scikit-learn and LightGBM, and what a row costs.

Every fit runs in a process of its own, one after the other, on the same rows. Where memory does not suffice a
method is given a tenth of the rows, and so on. Targets are shown at the sizes they were set for.

Run ``make bench-million``, or this file with ``--help``.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import report
from report import Table, number
from runs import in_own_process, progress

GIB = 2.0**30
MINUTE = 60.0


@dataclass(frozen=True)
class Line:
    """One method at a size, with the largest seconds, GiB and RMSE that it is allowed."""

    name: str
    method: str
    n_candidates: int | None
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    rows: int
    candidates: int
    class_candidates: int
    cost_rows: tuple[int, ...]
    cost_candidates: int
    targets: bool


FULL = Sizes(1_000_000, 2000, 1000, (10_000, 100_000, 1_000_000), 500, targets=True)
SMALL = Sizes(20_000, 200, 100, (2000, 6000, 20_000), 50, targets=False)
EXPONENT = 1.05

#: Seconds for a kernel, multiplications with addition per second, both of one core: docs/notebook/cost.md.
KAPPA, RHO = 1.45e-9, 14e9
#: Passes over the dictionary after that for the norms; functions that ever enter, for each that stays.
PASSES, ENTERING = 2, 1.5


def regression(sizes):
    k = sizes.candidates
    return [
        Line(f"RVR, {k} candidates", "rvr", k, {"seconds": 90, "GiB": 2, "RMSE": 0.005}),
        Line(f"Nystroem({k}) + RidgeCV", "nystroem-ridge", k),
        Line("LightGBM", "lightgbm-regressor", k),
    ]


def classification(sizes):
    k = sizes.class_candidates
    return [
        Line(f"RVC, {k} candidates", "rvc", k, {"seconds": 5 * MINUTE, "GiB": 4}),
        Line(f"Nystroem({k}) + SGDClassifier", "nystroem-sgd", k),
        Line("LightGBM", "lightgbm-classifier", k),
    ]


EVERY_ROW = Line("RVR, all rows candidates", "rvr", None, {"seconds": 60 * MINUTE, "GiB": 4})


def measured(line, rows):
    """Fit in a process of its own; a tenth of the rows where memory fails. Returns rows, numbers."""
    progress(line.name, "on", rows, "rows")
    candidates = "all" if line.n_candidates is None else line.n_candidates
    try:
        found = in_own_process("million_fit.py", line.method, rows, candidates)
    except subprocess.CalledProcessError as error:
        # Killed for memory all the same, or it did not fit into what the limit leaves to a library.
        if "MemoryError" not in error.stderr and error.returncode >= 0:
            raise
        found = {"missing": "memory"}
    if found.get("missing") == "memory" and rows > 10_000:
        return measured(line, rows // 10)
    return rows, found


def error_cells(found):
    names = ("rmse", "error", "log_loss")
    return tuple(number(found[name]) for name in names if name in found)


def comparison(title, errors, lines, sizes):
    """Yield the table of some methods on the same rows, and its numbers."""
    cells, raw = [], {}
    for line in lines:
        rows, found = measured(line, sizes.rows)
        raw[line.name] = {"rows": rows, **found}
        if "missing" in found:
            cells.append(
                (line.name, "", *("" for _ in range(4 + len(errors))), f"not run: no {found['missing']}")
            )
            continue
        numbers = (found["seconds"], found["cpu_seconds"], found["bytes"] / GIB)
        name = (
            line.name
            if found.get("status", "converged") == "converged"
            else f"{line.name} ({found['status']})"
        )
        functions = str(found.get("functions", ""))
        met = verdict(line, found) if sizes.targets else ""
        cells.append((name, str(rows), *map(number, numbers), functions, *error_cells(found), met))
    headings = ("method", " rows", " seconds", " CPU seconds", " GiB", " functions", *errors, "target")
    return Table(title, headings, cells), raw


def verdict(line, found):
    """Each limit with whether it is kept."""
    values = {"seconds": found["seconds"], "GiB": found["bytes"] / GIB, "RMSE": found.get("rmse")}
    parts = [
        f"{name} < {limit:g}: {'yes' if values[name] < limit else 'no'}"
        for name, limit in line.limits.items()
    ]
    return ", ".join(parts)


def cost(sizes):
    """Time against rows, candidates fixed: the exponent is the slope of a line through the logarithms."""
    k = sizes.cost_candidates
    found = [measured(Line(f"RVR, {k} candidates", "rvr", k), n)[1] for n in sizes.cost_rows]
    rows = [cost_row(n, k, one) for n, one in zip(sizes.cost_rows, found, strict=True)]
    exponents = [slope(sizes.cost_rows, [one[key] for one in found]) for key in ("seconds", "cpu_seconds")]
    met = f"<= {EXPONENT}: {'yes' if exponents[0] <= EXPONENT else 'no'}" if sizes.targets else ""
    rows.append(("exponent", *map(number, exponents), "", "", met))
    headings = ("rows", " seconds", " CPU seconds", " predicted", " GiB", " functions")
    raw = {"rows": sizes.cost_rows, "fits": found, "exponents": exponents}
    return Table(f"Cost against N, {k} candidates", headings, rows), raw


def cost_row(n, k, found):
    seconds, cpu, gib = found["seconds"], found["cpu_seconds"], found["bytes"] / GIB
    predicted = predicted_seconds(n, k, found["functions"])
    return (str(n), *map(number, (seconds, cpu, predicted, gib)), str(found["functions"]))


def predicted_seconds(n, k, m):
    """CPU seconds by docs/notebook/cost.md for a dictionary of one working set, without the constant part."""
    kernels = (1 + PASSES) * k + k
    products = k * ENTERING * m + k * k / 2
    return n * (KAPPA * kernels + products / RHO)


def slope(x, y):
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def every_row(sizes):
    """All rows as candidates, and how fast sweeps evaluate kernels beside one that stays in the caches."""
    table, raw = comparison("All rows as candidates", (" RMSE",), [EVERY_ROW], sizes)
    peak = in_own_process("million_fit.py", "kernel-rate", 0, 0)["kernels_per_second"] * report.n_cores()
    found = raw[EVERY_ROW.name]
    swept, seconds = found.get("swept", 0), found.get("sweeping", 0.0)
    rate = f"{swept / seconds / 1e9:.3g}" if seconds > 0.0 else "fits of this size are not swept in blocks"
    share = f"{swept / seconds / peak:.2f}" if seconds > 0.0 else ""
    rows = [
        ("sweeps", rate, share),
        ("one exp and what is in it, in the caches, all cores", f"{peak / 1e9:.3g}", "1"),
    ]
    headings = ("what", " 10^9 kernels per second", " share of the peak")
    return table, Table("Rate of sweeps", headings, rows), raw | {"peak": peak}


def main():
    options = parse()
    sizes = SMALL if options.small else FULL
    for line in report.environment_lines(options.markdown):
        print(line)
    raw, lines = {"environment": report.environment()}, list(report.environment_lines(markdown=True))
    makers = {
        "a": lambda: comparison("Regression: 2-D sinc", (" RMSE",), regression(sizes), sizes),
        "b": lambda: comparison("Two classes", (" error", " log loss"), classification(sizes), sizes),
        "c": lambda: cost(sizes),
        "d": lambda: every_row(sizes),
    }
    for name in options.only:
        *tables, numbers = makers[name]()
        raw[name] = numbers
        for table in tables:
            lines += ["", *table.lines(markdown=True)]
            print()
            for line in table.lines(options.markdown):
                print(line, flush=True)
    if options.write:
        report.rewrite(options.write, "million", lines)
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="20,000 rows, to try the script out")
    parser.add_argument(
        "--only", default="", help="tables, such as ac: a, b, c, or d (all rows as candidates)"
    )
    parser.add_argument("--all", action="store_true", help="with d, which may take an hour")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--write", type=Path, metavar="PATH", help="put the tables into this document")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    options = parser.parse_args()
    options.only = options.only or ("abcd" if options.all else "abc")
    if not set(options.only) <= set("abcd"):
        parser.error("--only takes letters of a, b, c, d")
    return options


if __name__ == "__main__":
    sys.exit(main())
