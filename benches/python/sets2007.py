"""The data sets of Kropotov & Vetrov (2007), section 4, and the figures of their tables.

Files are gzipped CSV with a header and the target last, in the folder that the environment variable
SPARSEBAYES_DATA names. WPBC was not found.
"""

import csv
import gzip
from dataclasses import dataclass

import numpy as np
from sets2001 import FOLDER

METHODS = ("GREVM", "LREVM", "RVM", "VRVM", "VGREVM")


@dataclass(frozen=True)
class Set:
    """One line of tables 1 to 3; each figure and its standard deviation, in the order of METHODS."""

    name: str
    file: str
    #: Per cent.
    errors: tuple[tuple[float, float], ...]
    #: Seconds of 2007.
    times: tuple[tuple[float, float], ...]
    nonzero: tuple[tuple[float, float], ...]

    def missing(self):
        return not (FOLDER / f"{self.file}.csv.gz").exists()

    def load(self):
        """Standardised inputs, nominal ones as indicators, missing values at the mean; labels."""
        with gzip.open(FOLDER / f"{self.file}.csv.gz", "rt", newline="") as file:
            _, *rows = list(csv.reader(file))
        *columns, target = zip(*rows, strict=True)
        X = np.column_stack([part for column in columns for part in numbers(column)])
        spread = X.std(axis=0)
        return (X - X.mean(axis=0))[:, spread > 0.0] / spread[spread > 0.0], np.array(target)


def numbers(column):
    """A column of text as columns of numbers."""
    try:
        parts = [np.array([float(value) if value else np.nan for value in column])]
    except ValueError:
        levels = sorted({value for value in column if value})
        parts = [np.array([float(v == level) if v else np.nan for v in column]) for level in levels]
    return [np.where(np.isnan(part), np.nanmean(part), part) for part in parts]


SETS = (
    Set(
        "BUPA",
        "liver",
        ((33.33, 3.26), (30.67, 1.11), (32.41, 2.56), (30.78, 2.08), (31.88, 0.65)),
        ((138.72, 30.54), (19.82, 0.61), (64.14, 0.80), (62.92, 3.03), (310.30, 22.20)),
        ((23.10, 14.06), (8.20, 1.44), (5.80, 0.97), (172.50, 0.00), (17.20, 1.35)),
    ),
    Set(
        "HEART",
        "heart",
        ((18.15, 2.05), (17.41, 0.79), (17.26, 1.67), (17.56, 2.72), (23.11, 1.75)),
        ((39.93, 5.52), (11.64, 0.38), (46.07, 0.43), (21.47, 0.45), (115.56, 2.60)),
        ((12.10, 4.02), (9.00, 0.94), (6.00, 1.06), (135.00, 0.00), (86.60, 13.53)),
    ),
    Set(
        "HEPATITIS",
        "hepatitis",
        ((14.32, 0.71), (19.35, 0.79), (20.26, 1.34), (13.03, 1.06), (17.81, 1.49)),
        ((8.92, 0.35), (4.88, 0.14), (25.17, 0.37), (6.88, 0.33), (37.19, 1.03)),
        ((10.20, 2.68), (4.60, 1.92), (3.10, 1.08), (77.50, 0.00), (39.40, 17.26)),
    ),
    Set(
        "VOTES",
        "votes",
        ((5.56, 0.57), (5.93, 0.30), (6.44, 2.04), (5.61, 0.55), (4.92, 0.76)),
        ((123.76, 10.01), (31.46, 0.47), (87.38, 0.77), (82.09, 3.57), (433.28, 14.60)),
        ((14.60, 3.66), (6.60, 1.14), (4.70, 0.57), (217.50, 0.00), (58.70, 21.76)),
    ),
    Set(
        "CONTRACTIONS",
        "contractions",
        ((19.18, 2.21), (17.96, 1.37), (18.78, 1.85), (17.35, 2.04), (14.08, 3.18)),
        ((7.49, 0.65), (2.99, 0.05), (16.10, 0.06), (3.80, 0.27), (22.26, 0.57)),
        ((14.50, 12.34), (3.30, 1.35), (2.30, 0.76), (49.00, 0.00), (34.20, 3.35)),
    ),
    Set(
        "LARYNGEAL1",
        "laryngeal1",
        ((16.81, 0.61), (17.46, 1.12), (17.46, 0.61), (17.37, 0.57), (18.31, 2.78)),
        ((24.16, 4.04), (8.73, 0.37), (36.33, 0.54), (18.59, 0.85), (100.47, 4.30)),
        ((7.20, 1.79), (3.90, 1.39), (1.90, 0.55), (106.40, 0.22), (57.10, 22.58)),
    ),
    Set(
        "RESPIRATORY",
        "respiratory",
        ((7.06, 1.18), (7.53, 1.58), (9.41, 2.50), (8.24, 1.86), (5.88, 1.18)),
        ((4.51, 0.22), (2.44, 0.03), (13.75, 0.15), (2.45, 0.05), (14.93, 0.09)),
        ((5.70, 1.25), (2.50, 0.61), (1.60, 0.42), (42.50, 0.00), (22.40, 1.71)),
    ),
    Set(
        "WEANING",
        "weaning",
        ((15.70, 4.76), (14.83, 1.29), (16.36, 1.36), (13.64, 1.20), (13.31, 2.06)),
        ((53.16, 1.29), (14.14, 0.18), (53.17, 0.21), (32.48, 0.87), (177.16, 4.88)),
        ((12.90, 4.22), (10.10, 2.07), (6.80, 1.57), (151.00, 0.00), (120.20, 10.22)),
    ),
)
