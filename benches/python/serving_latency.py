"""Single calls of `bench_serving.py`: the core by itself, run by cargo, and a picture of all."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import plots
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).parents[2]
#: Of the picture's bins, in powers of ten of a nanosecond; 30 bins each.
LOWEST, HIGHEST = 1.8, 7.0
BINS_A_DECADE = 30


def of_core(contest, folder):
    """What benches/core/latency.rs says of the model, or why it cannot."""
    if shutil.which("cargo") is None:
        return "there is no cargo"
    path = folder / "core.safetensors"
    contest.served.save(path)
    command = ["cargo", "bench", "--locked", "--quiet", "--bench", "latency", "--", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"cargo bench: {done.stderr.strip().splitlines()[-1]}"
    return json.loads(done.stdout)


def draw(histograms, path):
    """One outline for each contender: the share of its calls in each bin of a logarithmic axis."""
    edges = np.logspace(LOWEST, HIGHEST, round((HIGHEST - LOWEST) * BINS_A_DECADE) + 1)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots()
    for k, (name, found) in enumerate(histograms.items()):
        values, counts = pairs(found)
        shares, _ = np.histogram(values, edges, weights=counts / counts.sum())
        axes.stairs(shares, edges, fill=True, alpha=0.35, color=f"C{k}")
        axes.stairs(shares, edges, color=f"C{k}", label=f"{name}: median {duration(median(values, counts))}")
    axes.set(xscale="log", xlabel="time of one call with one row", ylabel="share of calls", ylim=(0, None))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    plots.save(figure, path)


def pairs(found):
    """Nanoseconds and how often, from a list of such pairs or of all calls."""
    if isinstance(found, list):
        return np.array(found, dtype=float).T
    return np.unique_counts(found) if hasattr(np, "unique_counts") else np.unique(found, return_counts=True)


def median(values, counts):
    return values[np.searchsorted(np.cumsum(counts), 0.5 * counts.sum())]


def duration(nanoseconds):
    if nanoseconds < 1e3:
        return f"{nanoseconds:.3g} ns"
    return f"{nanoseconds / 1e3:.3g} µs" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:.3g} ms"
