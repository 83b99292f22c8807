"""The tables of Psorakis et al. (2010): the paper's mRVMs beside ours, other classifiers, times of fit.

Ten times ten-fold cross-validation of each set, inputs standardised on the training rows, kernels as in table
I; the other classifiers and the E-M model see the first of the ten only. Sets whose files are not there are
named and left out; see ``sets2001``. With ``--keep PATH`` finished cross-validations are kept in that file,
and an interrupted run resumes from it; ``--write docs/notebook/mrvm.md`` puts the tables there.

Run ``make bench-mrvm``, or this file with ``--help``.
"""

import argparse
import sys
from pathlib import Path

import mrvm_folds
import mrvm_tables
import mrvm_times
import report
from mrvm_folds import DENSE, MACHINES, PEERS, Task
from sets2001 import FOLDER
from sets2010 import SETS


def main():
    options = parse()
    markdown = options.markdown or options.write is not None
    lines = [*report.environment_lines(markdown)]
    if sets := chosen(options.sets):
        results = mrvm_folds.measure_all(tasks(sets, options), options.keep, options.processes)
        folds = mrvm_tables.Folds(results)
        for table in all_tables(folds, sets):
            lines += ["", *table.lines(markdown)]
        lines += ["", *notes(folds, sets, options)]
    if not options.no_times:
        lines += ["", *mrvm_times.times_table(options.runs).lines(markdown)]
    print("\n".join(lines))
    if options.write:
        report.rewrite(options.write, "make bench-mrvm", lines)


def chosen(words):
    """The sets of these names whose files are there."""
    sets = [data for data in SETS if not words or any(word in data.file for word in words)]
    for data in sets:
        if data.missing:
            print(f"{data.name}: left out, {data.file}.csv.gz is not in {FOLDER}", file=sys.stderr)
    return [data for data in sets if not data.missing]


def tasks(sets, options):
    """The large sets first, so that no process is left alone at the end."""
    found = []
    for data in sets:
        n_rows = len(data.load()[1])
        methods = [(method, options.repeats) for method in MACHINES]
        methods += [(method, min(options.peer_repeats, options.repeats)) for method in PEERS]
        if n_rows <= options.dense_rows:
            methods.append((DENSE, 1))
        found += [
            (-n_rows, Task(data.name, method, seed, options.folds))
            for method, repeats in methods
            for seed in range(repeats)
        ]
    return [task for _, task in sorted(found, key=lambda pair: pair[0])]


def all_tables(folds, sets):
    for machine in mrvm_tables.JUDGED:
        yield from mrvm_tables.machine_tables(folds, sets, machine)
    yield from mrvm_tables.peer_tables(folds, sets)
    if any(folds.seeds(data, DENSE) for data in sets):
        yield mrvm_tables.dense_table(folds, sets)


def notes(folds, sets, options):
    """What the tables are means of, what they leave out, and what they amount to."""
    n_folds, few = options.folds, min(options.peer_repeats, options.repeats)
    texts = [
        f"Means and standard deviations over {options.repeats} x {n_folds} folds; beside other classifiers "
        f"over {few} x {n_folds}, of table VI over 1 x {n_folds}."
    ]
    if left_out := [data.name for data in sets if not folds.seeds(data, DENSE)]:
        texts.append(f"Left out of table VI, for time: {', '.join(left_out)}.")
    for text in [*texts, *mrvm_tables.summary(folds, sets)]:
        yield f"- {text}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=lambda text: text.lower().split(","), help="parts of names of files")
    parser.add_argument("--folds", type=positive, default=10)
    parser.add_argument("--repeats", type=positive, default=10, help="cross-validations of each set")
    parser.add_argument("--peer-repeats", type=positive, default=1, help="of KNN, SVC and RVC")
    parser.add_argument("--dense-rows", type=int, default=600, help="rows of a set for the E-M model at most")
    parser.add_argument("--processes", type=positive, help="default: one a core")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="file of finished cross-validations")
    parser.add_argument("--no-times", action="store_true", help="leave out the times of fit")
    parser.add_argument("--runs", type=positive, default=3, help="timed fits of each")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--write", type=Path, metavar="PATH", help="put the tables into this document")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


if __name__ == "__main__":
    sys.exit(main())
