"""Error bars of a relevance vector machine far from its data, ``std="plain"`` and ``std="full"``.

The plain predictive variance falls to the noise where no relevance vector is near (Tipping 2001, appendix
D). With ``std="full"``, the default of `RVR`, it grows there, as that of a Gaussian process does. The program
prints the mean of -ln p of a test row, in nats, over 20 draws of noisy sinc data with a gap, and draws
docs/error-bars.svg. Run it with ``make examples``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian

Array = NDArray[np.float64]
PICTURE = Path(__file__).parents[1] / "docs" / "error-bars.svg"
NOISE = 0.1
#: No training row lies in the gap, and none outside the range.
GAP, RANGE = (0.5, 5.5), (-8.0, 8.0)
REGIONS = {"among the data": (-8.0, 0.0), "in the gap": GAP, "beyond the data": (8.0, 11.0)}
N_TEST = 300


def sinc(X: Array) -> Array:
    """Return sin(x) / x, row by row."""
    values: Array = np.sinc(X[:, 0] / np.pi)
    return values


def draw_rows(n: int, seed: int) -> tuple[Array, Array]:
    """Return ``n`` noisy rows, none of them in the gap."""
    rng = np.random.default_rng(seed)
    # Draw from the range without the gap, then shift the rows beyond the gap.
    x = rng.uniform(RANGE[0], RANGE[1] - (GAP[1] - GAP[0]), n)
    X = np.sort(np.where(x > GAP[0], x + (GAP[1] - GAP[0]), x))[:, np.newaxis]
    return X, sinc(X) + NOISE * rng.normal(size=n)


def surprise(model: Any, region: tuple[float, float]) -> float:
    """Return the mean of -ln p(y) over new rows in a region, in nats."""
    X = np.linspace(*region, N_TEST)[:, np.newaxis]
    mean, std = model.predict(X, return_std=True)
    # The expectation over the noise of y, in closed form.
    square = (sinc(X) - mean) ** 2 + NOISE**2
    return float(np.mean(0.5 * np.log(2.0 * np.pi * std**2) + 0.5 * square / std**2))


def print_table(models: dict[str, list[Any]]) -> None:
    """Print the median of -ln p over the models of each kind for each region."""
    print(f"{'-ln p(y), median':<18}" + "".join(f"  {std:>8}" for std in models))
    for name, region in REGIONS.items():
        losses = [np.median([surprise(model, region) for model in of_kind]) for of_kind in models.values()]
        print(f"{name:<18}" + "".join(f"  {loss:8.2f}" for loss in losses))


def picture(models: dict[str, Any], X: Array, y: Array, path: Path) -> None:
    """Draw mean and error bars of both kinds."""
    grid = np.linspace(-14, 14, 281)[:, np.newaxis]
    x = grid[:, 0]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (kind, model) in zip(figure.subplots(1, 2, sharey=True), models.items(), strict=True):
        mean, std = model.predict(grid, return_std=True)
        axes.fill_between(x, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, lw=0, label="mean ± 2 sd")
        axes.plot(x, mean, color="C0", label="mean")
        axes.plot(x, sinc(grid), color="0.4", ls="--", lw=1, label="truth")
        axes.plot(X[:, 0], y, ".", color="0.3", ms=3, label="training data")
        at = model.relevance_
        axes.plot(X[at, 0], y[at], "o", ms=8, mfc="none", mec="C3", label="relevance vectors")
        axes.set(xlabel="x", title=f'std="{kind}"', xlim=(x[0], x[-1]))
    axes.legend(loc="upper left", fontsize="small", frameon=False)
    with mpl.rc_context({"svg.hashsalt": "sparsebayes"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description="Error bars far from the data, plain and full.")
    parser.add_argument("--draws", type=int, default=20, help="data sets the table is made of")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw")
    options = parser.parse_args()
    data = [draw_rows(100, seed) for seed in range(options.draws)]
    kinds: tuple[Literal["plain", "full"], ...] = ("plain", "full")
    models: dict[str, list[RVR]] = {
        std: [RVR(Gaussian(1.5), std=std).fit(X, y) for X, y in data] for std in kinds
    }
    print_table(models)
    picture({std: of_kind[0] for std, of_kind in models.items()}, *data[0], options.picture)
    print(f"\nPicture: {options.picture}")


if __name__ == "__main__":
    main()
