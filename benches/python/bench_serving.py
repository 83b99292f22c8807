"""What a prediction costs: one row and a million, in Python and Rust, beside SVR, NumPy and onnxruntime.

The model has 20 Gaussian functions of 10 inputs and an intercept. All is measured in one run: contenders take
turns, each on one thread unless it says otherwise, and the table has medians. The Rust part needs cargo; it
and what else is missing is named and left out. ``--write docs/notebook/serving.md`` puts the tables there,
``--picture docs/latency.svg`` draws how long single calls took.

Run ``make bench-serving``, or this file with ``--help``.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import report
import serving_latency
import serving_model
import serving_tables
import serving_times
from runs import progress
from serving_model import OnnxSession
from threadpoolctl import threadpool_limits

ROWS, QUICK_ROWS = 1_000_000, 100_000


def main():
    options = parse()
    markdown = options.markdown or options.write is not None
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        tables, notes, histograms = measure(options, Path(folder))
    lines = [*report.environment_lines(markdown), f"{'- ' * markdown}onnxruntime: {onnx_version()}"]
    for table in tables:
        lines += ["", *table.lines(markdown)]
    if notes:
        lines += ["", *(f"- left out: {note}" for note in notes)]
    print("\n".join(lines))
    if options.write:
        report.rewrite(options.write, "make bench-serving", lines)
    if options.picture:
        serving_latency.draw(histograms, options.picture)


def measure(options, folder):
    """The tables, what they leave out, and the nanoseconds of single calls by name."""
    progress("fitting")
    contest = serving_model.make(QUICK_ROWS if options.quick else ROWS)
    onnx, notes = OnnxSession.of(contest), []
    if isinstance(onnx, str):
        notes.append(f"onnxruntime ({onnx})")
        onnx = None
    progress("one row")
    tables = [serving_tables.one_row(serving_times.one_row(contest, onnx, options.runs), n_vectors(contest))]
    histograms = dict(serving_times.histograms(contest, onnx, 10_000 if options.quick else 100_000))
    if not options.no_rust:
        progress("Rust")
        found = serving_latency.of_core(contest, folder)
        if isinstance(found, str):
            notes.append(f"the core by itself ({found})")
        else:
            tables.append(serving_tables.core(found))
            histograms = {"Rust, predict_one": found["predict_one"]["histogram"], **histograms}
    progress(f"{len(contest.X)} rows")
    batches = serving_times.batches(contest, onnx, options.batch_runs)
    tables.append(serving_tables.batches(batches, len(contest.X)))
    progress("fresh interpreters")
    tables.append(serving_tables.starts(serving_times.starts(contest, folder, options.starts)))
    return tables, notes, histograms


def n_vectors(contest):
    return len(contest.full_svr.support_)


def onnx_version():
    return report.installed_version("onnxruntime")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows in a batch, fewer calls")
    parser.add_argument("--runs", type=positive, default=15, help="rounds of calls with one row")
    parser.add_argument("--batch-runs", type=positive, default=5, help="rounds of batches")
    parser.add_argument("--starts", type=positive, default=15, help="fresh interpreters of each kind")
    parser.add_argument("--no-rust", action="store_true", help="leave out what needs cargo")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--write", type=Path, metavar="PATH", help="put the tables into this document")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the latencies there")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


if __name__ == "__main__":
    sys.exit(main())
