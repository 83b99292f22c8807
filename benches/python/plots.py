"""Plots in the manner of figures 2 to 5 of Tipping & Faul (2003), with libsvm and fastrvm for company.

The numbers are kept beside the plots, from which ``--redraw`` draws them again to the byte.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import peers
import report
from matplotlib.figure import Figure
from peers import Method
from runs import progress, seconds, warm_up

SIZES = (250, 500, 1000, 2000, 4000)
QUICK_SIZES = (250, 500, 1000)
NUMBERS = "plots.json"
#: Test rows come from seeds that no training rows have.
TEST_SEED = 10_000
LOOKS = {"sparsebayes": ("C0", "o"), "libsvm": ("C1", "s"), "fastrvm": ("C2", "^")}


def rms_error(model, seed):
    """Against the true function, on 1000 fresh points."""
    X = peers.surface(1000, TEST_SEED + seed).X
    return float(np.sqrt(np.mean((model.predict(X) - peers.sinc(X)) ** 2)))


def error_rate(model, seed):
    """On 4000 fresh points, in percent."""
    X, y = peers.mixture(4000, TEST_SEED + seed)
    return float(100 * np.mean(model.predict(X) != y))


@dataclass(frozen=True)
class Task:
    name: str
    problem: Callable
    methods: dict[str, Method]
    error: Callable
    error_label: str


TASKS = (
    Task(
        "regression",
        peers.surface,
        {"sparsebayes": peers.OUR_RVR, "libsvm": peers.LIBSVM_SVR, "fastrvm": peers.FASTRVM_RVR},
        rms_error,
        "RMS error",
    ),
    Task(
        "classification",
        peers.mixture,
        {"sparsebayes": peers.OUR_RVC, "libsvm": peers.LIBSVM_SVC, "fastrvm": peers.FASTRVM_RVC},
        error_rate,
        "test error, %",
    ),
)


def make(options):
    """Measure unless told to redraw, save the numbers, draw; return the paths written."""
    options.plots.mkdir(parents=True, exist_ok=True)
    numbers = options.plots / NUMBERS
    if not options.redraw:
        sizes = [n // options.scale for n in (QUICK_SIZES if options.quick else SIZES)]
        content = {"environment": report.environment(), "fits": measure(sizes, options.repeats)}
        numbers.write_text(json.dumps(content, indent=1) + "\n")
    fits = json.loads(numbers.read_text())["fits"]
    pictures = {"fit-time.svg": draw_times(fits), "accuracy.svg": draw_accuracy(fits)}
    for name, figure in pictures.items():
        save(figure, options.plots / name)
    return [numbers, *(options.plots / name for name in pictures)]


def measure(sizes, seeds):
    """Fit every method to every data set, the methods in turns: as many data sets of a size as seeds."""
    return [
        fit for task in TASKS for n in sizes for seed in range(seeds) for fit in measure_one(task, n, seed)
    ]


def measure_one(task, n, seed):
    progress(task.name, "N =", n, "seed", seed)
    data = task.problem(n, seed)
    for name, method in task.methods.items():
        if not peers.is_installed(method):
            continue
        if seed == 0:
            warm_up(method, data)
        took, model = seconds(method, data)
        yield {
            "task": task.name,
            "method": name,
            "n": n,
            "seed": seed,
            "seconds": took,
            "error": task.error(model, seed),
            "functions": peers.n_functions(model),
        }


def draw_times(fits):
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for task, axes in zip(TASKS, figure.subplots(1, 2), strict=True):
        draw_curves(axes, fits, task, "seconds", "time of fit, s")
        axes.set(title=task.name, yscale="log")
    axes.legend(frameon=False)
    return figure


def draw_accuracy(fits):
    figure = Figure(figsize=(9, 6.6), layout="constrained")
    for task, (above, below) in zip(TASKS, figure.subplots(2, 2).T, strict=True):
        draw_curves(above, fits, task, "error", task.error_label)
        draw_curves(below, fits, task, "functions", "relevance or support vectors")
        above.set(title=task.name, ylim=(0, None))
        below.set(yscale="log")
    below.legend(frameon=False)
    return figure


def draw_curves(axes, fits, task, what, label):
    """One curve a method: the median over the data sets, in a band from the least to the largest."""
    for name, (colour, marker) in LOOKS.items():
        chosen = [fit for fit in fits if fit["task"] == task.name and fit["method"] == name]
        sizes = sorted({fit["n"] for fit in chosen})
        if not sizes:
            continue
        values = [[fit[what] for fit in chosen if fit["n"] == n] for n in sizes]
        lowest, middle, highest = ([f(v) for v in values] for f in (min, np.median, max))
        axes.plot(sizes, middle, color=colour, marker=marker, label=name)
        axes.fill_between(sizes, lowest, highest, color=colour, alpha=0.2, linewidth=0)
    axes.set(xscale="log", xlabel="rows N", ylabel=label)
    ticks = sorted({fit["n"] for fit in fits})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)


def save(figure, path):
    """As SVG, the same bytes for the same numbers: names of its parts by a fixed salt, no date."""
    with mpl.rc_context({"svg.hashsalt": "sparsebayes"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})
