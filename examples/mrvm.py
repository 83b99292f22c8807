"""Show which rows the models of Psorakis et al. (2010) keep, on artificial rows and on the wines.

The artificial rows follow section VII: 140 rows of three classes from five Gaussians. The program prints
the accuracy of each model on new rows, and how often a cross-validation of the wines keeps the same ones.
It draws docs/mrvm.svg, similar to figures 3 to 5 and 12. Run it with ``make examples``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.model_selection import RepeatedKFold
from sklearn.preprocessing import StandardScaler

from sparsebayes import MRVM1, MRVM2
from sparsebayes.plot import RelevanceVectorsDisplay

Array = NDArray[Any]
PICTURE = Path(__file__).parents[1] / "docs" / "mrvm.svg"
#: Centres of the Gaussians, the class of each, and their standard deviation.
CENTRES = np.array([[-2.0, 1.5], [1.0, 2.0], [2.5, -0.5], [-0.5, -0.5], [-2.0, -2.0]])
CLASSES = np.array([0, 1, 0, 2, 1])
SPREAD = 0.6
N_ROWS, N_TEST = 140, 5000
TOY_HEADINGS = ("140 rows of the toy", "vectors", "iterations", "test accuracy", "log likelihood")
WINE_HEADINGS = ("178 wines", "vectors a fit", "different ones", "in half of the fits")


@dataclass(frozen=True)
class Machine:
    """A model fitted to the artificial rows, and the number of fits that keep each wine."""

    name: str
    toy: Any
    counts: Array
    n_fits: int


def toy(n_rows: int, seed: int) -> tuple[Array, Array]:
    """Return rows of the five Gaussians, as many of each."""
    rng = np.random.default_rng(seed)
    component = np.arange(n_rows) % len(CENTRES)
    return CENTRES[component] + SPREAD * rng.normal(size=(n_rows, 2)), CLASSES[component]


def wines() -> tuple[Array, Array]:
    """Return the wines, inputs standardised."""
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def train(folds: RepeatedKFold) -> list[Machine]:
    """Fit both models to the artificial rows, and repeatedly to the wines, without a bias as in the paper."""
    machines = []
    for name, kind in (("mRVM1", MRVM1), ("mRVM2", MRVM2)):
        model = kind(gamma=0.5, fit_intercept=False).fit(*toy(N_ROWS, seed=0))
        wine, (X, y) = kind(kernel="linear", fit_intercept=False), wines()
        counts = np.zeros(len(X), dtype=int)
        for rows, _ in folds.split(X):
            counts[rows[wine.fit(X[rows], y[rows]).relevance_]] += 1
        machines.append(Machine(name, model, counts, folds.get_n_splits()))
    return machines


def toy_row(machine: Machine) -> tuple[str, ...]:
    """Return the accuracy of a model on new artificial rows."""
    model, test = machine.toy, toy(N_TEST, seed=1)
    return (
        machine.name,
        str(len(model.relevance_)),
        str(model.n_iter_),
        f"{100 * model.score(*test):.1f} %",
        f"{model.log_predictive_likelihood(*test):.3f}",
    )


def wine_row(machine: Machine) -> tuple[str, ...]:
    """Return a row of the table: wines kept per fit, by any fit, and by at least half of the fits."""
    counts, n_fits = machine.counts, machine.n_fits
    return (
        machine.name,
        f"{counts.sum() / n_fits:.1f}",
        str(np.count_nonzero(counts)),
        str(np.count_nonzero(2 * counts >= n_fits)),
    )


def print_table(*rows: tuple[str, ...]) -> None:
    """Print the rows in columns, numbers to the right."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(w) if c == 0 else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells))


def picture(machines: list[Machine], path: Path) -> None:
    """Draw borders, relevance vectors, paths, and the counts of the wines, in one column per model."""
    X, y = toy(N_ROWS, seed=0)
    _, wine_classes = wines()
    nodes = np.stack(np.meshgrid(np.linspace(-4, 4.5, 100), np.linspace(-4, 4, 100)), axis=-1)
    figure = Figure(figsize=(9, 11), layout="constrained")
    grid = figure.subplots(4, len(machines), height_ratios=(3.2, 1, 1, 1.4))
    for column, machine in zip(grid.T, machines, strict=True):
        RelevanceVectorsDisplay.from_estimator(machine.toy, X, y, ax=column[0])
        classes = machine.toy.predict(nodes.reshape(-1, 2)).reshape(nodes.shape[:2])
        column[0].contour(*np.moveaxis(nodes, 2, 0), classes, levels=[0.5, 1.5], colors="0.3", linewidths=1)
        column[0].set(title=f"{machine.name}: {len(machine.toy.relevance_)} of {N_ROWS} rows kept")
        column[1].plot(machine.toy.n_relevance_path_)
        column[1].set(ylabel="functions")
        name = "log_joint_likelihood" if isinstance(machine.toy, MRVM2) else "log_marginal_likelihood"
        column[2].plot(getattr(machine.toy, f"{name}_path_"))
        column[2].set(xlabel="step", ylabel=name.replace("_", " "))
        kept = np.flatnonzero(machine.counts)
        column[3].bar(kept, machine.counts[kept], width=1)
        for border in np.flatnonzero(np.diff(wine_classes)):
            column[3].axvline(border + 0.5, color="0.3", linestyle="--", linewidth=1)
        column[3].set(xlabel="wines by class", ylabel="fits with the wine")
    with mpl.rc_context({"svg.hashsalt": "sparsebayes"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description="What multinomial probit machines keep.")
    parser.add_argument("--folds", type=int, default=10, help="folds of the cross-validations of the wines")
    parser.add_argument("--repeats", type=int, default=3, help="number of these")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw")
    options = parser.parse_args()
    folds = RepeatedKFold(n_splits=options.folds, n_repeats=options.repeats, random_state=0)
    machines = train(folds)
    print_table(TOY_HEADINGS, *map(toy_row, machines))
    print()
    print_table(WINE_HEADINGS, *map(wine_row, machines))
    picture(machines, options.picture)
    print(f"\nPicture: {options.picture}")


if __name__ == "__main__":
    main()
