"""The benchmark tables of Tipping (2001): his SVM and RVM, our two models, and a tuned SVM of scikit-learn.

Error and number of functions, means over draws with the standard error of the mean. "Papers' model" has no
prior on complexity and a penalized intercept, and one width per set by 5-fold cross-validation of its first
five draws; "ours" is the default, with a width for each input learned from each draw (not on the digits).
Sets whose files are not there are named and left out; see ``sets2001``.

Run ``make bench-tipping2001``, or this file with ``--help``.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import report
from report import Table, number
from sets2001 import BENCHMARKS, FOLDER
from sklearn.exceptions import ConvergenceWarning
from tuning import tuned

HEADINGS = (
    "set",
    " draws",
    " SVM, paper",
    " RVM, paper",
    " papers' model",
    " s.e.",
    " ours",
    " s.e.",
    " SVM, tuned",
    " s.e.",
    " vectors: SVM, paper",
    " RVM, paper",
    " papers' model",
    " ours",
    " SVM, tuned",
    "within the paper's",
)


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    results = []
    for benchmark in BENCHMARKS:
        if options.only and not any(word in benchmark.name.lower() for word in options.only):
            continue
        if missing := benchmark.missing():
            print(f"{benchmark.name}: left out, {', '.join(missing)} not in {FOLDER}", file=sys.stderr)
            continue
        results.append(measure(benchmark, options.draws))
        print(benchmark.name, f"{results[-1]['seconds']:.0f} s", file=sys.stderr, flush=True)
    print()
    for line in Table("Tipping (2001), tables 1 and 2", HEADINGS, [cells(r) for r in results]).lines(
        options.markdown
    ):
        print(line)
    print()
    print(summary(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def measure(benchmark, most_draws):
    """Errors and numbers of functions of ours and of the SVM, for every draw."""
    started = time.perf_counter()
    n_draws = min(benchmark.n_draws, most_draws or benchmark.n_draws)
    # A set of one draw is folded five times instead.
    models = tuned(benchmark, [benchmark.draw(k % benchmark.n_draws) for k in range(benchmark.rounds)])
    if "usps_train.npz" in benchmark.files:
        del models["ours"]  # hours
    errors = {name: [] for name in models}
    functions = {name: [] for name in models}
    for seed in range(n_draws):
        draw = benchmark.draw(seed)
        for name, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(draw.X, draw.y)
            errors[name].append(benchmark.scale * error(benchmark, model.predict(draw.X_test), draw.y_test))
            functions[name].append(n_functions(model))
    return {
        "name": benchmark.name,
        "paper": benchmark.paper,
        "draws": n_draws,
        "errors": errors,
        "functions": functions,
        "parameters": {name: repr(model) for name, model in models.items()},
        "seconds": time.perf_counter() - started,
    }


def error(benchmark, predicted, truth):
    if benchmark.task == "classification":
        return 100.0 * float(np.mean(predicted != truth))
    square = float(np.mean((predicted - truth) ** 2))
    return square**0.5 if benchmark.root else square


def n_functions(model):
    """Vectors, the bias not counted; for several classes those that any of them uses."""
    return len(model.support_) if hasattr(model, "support_") else len(model.relevance_)


def standard_error(values):
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def cells(result):
    errors, functions, paper = result["errors"], result["functions"], result["paper"]
    # Where there is one split the paper's own error is all there is to go by.
    papers, spread = float(np.mean(errors["papers"])), standard_error(errors["papers"])
    met = "" if np.isnan(paper[2]) else "yes" if papers <= paper[2] + (spread or 0.0) else "NO"
    shown = [None if np.isnan(value) else value for value in paper]
    mean = {name: float(np.mean(values)) for name, values in errors.items()}
    count = {name: float(np.mean(values)) for name, values in functions.items()}
    return (
        result["name"],
        str(result["draws"]),
        number(shown[0]),
        number(shown[2]),
        number(papers),
        number(spread),
        number(mean.get("ours")),
        number(standard_error(errors.get("ours", []))),
        number(mean["SVM"]),
        number(standard_error(errors["SVM"])),
        number(shown[1]),
        number(shown[3]),
        number(count["papers"]),
        number(count.get("ours")),
        number(count["SVM"]),
        met,
    )


def summary(results):
    """The paper's normalised means: geometric, over the SVM's, without the digits."""
    results = [r for r in results if "ours" in r["errors"]]
    parts = []
    for name in ("papers", "ours"):
        for what in ("errors", "functions"):
            logs = [np.log(np.mean(r[what][name]) / np.mean(r[what]["SVM"])) for r in results]
            parts.append(f"{name} {what} {np.exp(np.mean(logs)):.3f}")
    return "Geometric means over the tuned SVM: " + ", ".join(parts)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.lower().split(","), help="parts of names of sets")
    parser.add_argument("--draws", type=int, help="draws of each set at most")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
