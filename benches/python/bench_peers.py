"""Time of `fit` beside libsvm, fastrvm and `ARDRegression`: the table and plots of docs/notebook/peers.md.

Every time is compared within a run: ours, the peer, ours, the peer, in one process on the same data. What is
reported is the median of the ratios of fits that followed one another, for absolute times of a shared machine
mean nothing. All estimators are at their defaults but for what the rows name; ours use all cores.

Run ``make bench-peers``, or this file with ``--help``.
"""

import argparse
import json
import sys
from pathlib import Path

import plots
import report
import tables
from rows import EVIDENCE_ROWS, LARGE_ROW, NUMBERS, TIME_ROWS


def main():
    options = parse()
    if options.plots:
        for path in plots.make(options):
            print(path)
        return
    for line in report.environment_lines(options.markdown):
        print(line)
    raw = {"environment": report.environment()}
    for table, numbers in measured_tables(options):
        print()
        for line in table.lines(options.markdown):
            print(line, flush=True)
        raw[table.title] = numbers
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


def measured_tables(options):
    """Yield each table that has rows to show, with the numbers it was made from."""
    timed = [row for row in TIME_ROWS if row.number in options.only]
    if timed:
        yield tables.times(timed, options)
    if 6 in options.only:
        yield tables.large(LARGE_ROW, options)
    if 8 in options.only:
        yield tables.evidences(EVIDENCE_ROWS, options)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, repeats and seeds")
    parser.add_argument("--full", action="store_true", help="row 8 at 4000 rows too")
    parser.add_argument("--only", type=row_numbers, default=NUMBERS, help="rows of the table, such as 1,2,5")
    parser.add_argument("--repeats", type=positive, help="runs of each (default 9, with --quick 3)")
    parser.add_argument("--scale", type=positive, default=1, help="divide all sizes, to try the script out")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the plots instead of the table")
    parser.add_argument("--redraw", action="store_true", help="with --plots: from the numbers saved there")
    options = parser.parse_args()
    if options.redraw and not options.plots:
        parser.error("--redraw goes with --plots")
    options.repeats = options.repeats or (3 if options.quick else 9)
    return options


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def row_numbers(text):
    numbers = tuple(int(part) for part in text.split(","))
    if not set(numbers) <= set(NUMBERS):
        raise argparse.ArgumentTypeError(f"rows are {NUMBERS[0]} to {NUMBERS[-1]}")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
