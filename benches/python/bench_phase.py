"""How many spikes can there be? Compressed sensing up to where nothing finds them.

Spikes among 256 places, seen by 100 random projections, without noise and with noise 30 dB below: of how
many signals the largest weights are where the spikes are, against the number of spikes, for greedy fits,
``search="exchange"``, MacKay's updates, scikit-learn's ARDRegression, orthogonal matching pursuit and the
Lasso, all in one run.

Run ``make bench-phase``, or this file with ``--help``. With ``--keep PATH`` signals that were done are kept
in that file, from which an interrupted run resumes; ``--write docs/notebook/phase-transition.md`` puts the
tables there.
"""

import argparse
import sys
from pathlib import Path

import kept
import numpy as np
import report
from phase_signals import AMPLITUDES, METHODS, NOISES, OURS, Task, measure
from report import Table, milliseconds, number

TITLES = {"equal": "spikes of ±1", "normal": "normal spikes", "none": "no noise", "30 dB": "30 dB"}
#: Relative error of a signal that counts as found, by the noise.
CLOSE = {"none": 0.01, "30 dB": 0.1}
#: Nats that are neither higher nor lower.
CLEAR = 0.01
#: Where small spikes drown in the noise and no method finds the support of many.
FAINT = ("normal", "30 dB")
PICTURE = "phase-transition.svg"


def main():
    options = parse()
    cases = [(a, noise) for a in AMPLITUDES for noise in NOISES]
    tasks = [
        Task(*case, n_spikes, seed)
        for seed in range(options.signals)
        for n_spikes in range(12, 61, options.step)
        for case in cases
    ]
    results = list(kept.measure_all(tasks, measure, options.keep, options.processes).values())
    markdown = options.markdown or options.write is not None
    lines = [*report.environment_lines(markdown)]
    for table in tables(results, cases):
        lines += ["", *table.lines(markdown)]
    print("\n".join(lines))
    if options.write:
        report.rewrite(options.write, "make bench-phase", lines)
    if options.plot:
        draw(results, cases, options.plot)


def of_case(results, case):
    return [one for one in results if (one["amplitudes"], one["noise"]) == case]


def by_spikes(results):
    """Results by number of spikes."""
    numbers = sorted({one["n_spikes"] for one in results})
    return {n: [one for one in results if one["n_spikes"] == n] for n in numbers}


def curve(results, criterion, method):
    """Numbers of spikes, and of how many signals each they are found, in per cent."""
    spikes = by_spikes(results)
    return list(spikes), [100 * np.mean([criterion(one, method) for one in some]) for some in spikes.values()]


# --- the tables -----------------------------------------------------------------------------------

COLUMNS = tuple(f" {method}" for method in METHODS)


def tables(results, cases):
    for case in cases:
        yield shares(of_case(results, case), f"Support found: {named(case)}", found)
    yield shares(of_case(results, FAINT), f"Signal found: {named(FAINT)}", close)
    yield limits(results, cases, "Limits: support found", found)
    yield limits(results, cases, "Limits: signal found", close)
    yield misses(results, cases)
    yield costs(results, cases)


def found(one, method):
    return one[method]["found"]


def close(one, method):
    return one[method]["error"] < CLOSE[one["noise"]]


def named(case):
    return ", ".join(TITLES[part] for part in case)


def shares(results, title, criterion):
    """The curves; one row a number of spikes."""
    curves = {method: curve(results, criterion, method)[1] for method in METHODS}
    numbers, _ = curve(results, criterion, METHODS[0])
    rows = [(str(n), *(f"{curves[method][k]:.0f}" for method in METHODS)) for k, n in enumerate(numbers)]
    return Table(f"{title}, % of {len(results) // len(rows)} signals", (" spikes", *COLUMNS), rows)


def limits(results, cases, title, criterion):
    """Where the curves lie, and on how many signals exchange and another method differ."""
    rows = []
    for case in cases:
        some = of_case(results, case)
        halves = [half(*curve(some, criterion, method)) for method in METHODS]
        totals = [sum(criterion(one, method) for one in some) for method in METHODS]
        versus = [against(some, criterion, method) for method in METHODS]
        rows.append((named(case), "spikes of which half are found", *map(number, halves)))
        rows.append((named(case), f"signals found of {len(some)}", *map(str, totals)))
        rows.append((named(case), "found by exchange alone : by this alone", *versus))
    return Table(title, ("signals", "", *COLUMNS), rows)


def half(numbers, share):
    """Where a curve falls below one half, between the points; None if it does not."""
    for k in range(len(share) - 1, 0, -1):
        if share[k] < 50.0 <= share[k - 1]:
            part = (share[k - 1] - 50.0) / (share[k - 1] - share[k])
            return numbers[k - 1] + part * (numbers[k] - numbers[k - 1])
    return None


def against(results, criterion, method):
    if method == "exchange":
        return ""
    pairs = [(criterion(one, "exchange"), criterion(one, method)) for one in results]
    return f"{sum(a and not b for a, b in pairs)} : {sum(b and not a for a, b in pairs)}"


def misses(results, cases):
    """Why supports are missed: the evidence prefers another model, or the search ended below."""
    rows = []
    for case in cases:
        for method in OURS:
            missed = [one for one in of_case(results, case) if not found(one, method)]
            ahead = np.array([one[method]["evidence"] - one["planted"] for one in missed])
            counts = (len(missed), np.sum(ahead > CLEAR), np.sum(ahead < -CLEAR))
            rows.append((named(case), method, *map(str, counts)))
    headings = ("signals", "method", " missed", " evidence higher than that of the spikes", " lower")
    return Table("Where the support is missed", headings, rows)


def costs(results, cases):
    rows = []
    for case in cases:
        some = of_case(results, case)
        means = [float(np.mean([one[method]["took"] for one in some])) for method in METHODS]
        rows.append((named(case), *map(milliseconds, means)))
    return Table("Time of a fit, ms, mean", ("signals", *COLUMNS), rows)


# --- the picture ----------------------------------------------------------------------------------


def draw(results, cases, folder):
    """One panel a case, one curve a method: support found, or the signal where the support cannot be."""
    # Only drawing needs matplotlib.
    from matplotlib.figure import Figure
    from plots import save

    figure = Figure(figsize=(9, 6.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax, case in zip(panels.flat, cases, strict=True):
        some = of_case(results, case)
        for k, method in enumerate(METHODS):
            points = curve(some, close if case == FAINT else found, method)
            ax.plot(*points, color=f"C{k}", marker="osv^D<>P"[k], ms=4, label=method)
        ax.set_title(f"{'signal' if case == FAINT else 'support'} found: {named(case)}")
        ax.grid(alpha=0.3)
    for ax in panels[1]:
        ax.set_xlabel("spikes")
    for ax in panels[:, 0]:
        ax.set_ylabel("% of signals")
    panels[0, 1].legend(fontsize="small", frameon=False)
    save(figure, folder / PICTURE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=positive, default=50, help="of each kind and number of spikes")
    parser.add_argument("--step", type=positive, default=4, help="between numbers of spikes, from 12 to 60")
    parser.add_argument("--processes", type=positive, help="default: one a core")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="file of signals that were done")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--write", type=Path, metavar="PATH", help="put the tables into this document")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help=f"draw FOLDER/{PICTURE}")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


if __name__ == "__main__":
    sys.exit(main())
