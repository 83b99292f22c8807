"""Recognise handwritten digits on a microcontroller.

The program trains relevance vector machines on half of scikit-learn's digits, 8 x 8 pixels, and writes them
as C headers in single precision. It counts the bytes of all tables; a relevance vector of 64 pixels takes
64 bytes. With a C compiler it also compiles the headers, classifies the other half of the digits, and
measures the time. The bytes of the support vector machine are counted as if it were written in the same
way.

The program prints a table and writes digits.h, the smallest header. Run it with ``make examples``;
docs/embedding.md has the table.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from sparsebayes import MRVM2, RVC, to_c

OUTPUT = Path(__file__).parents[1] / "demo-output" / "digits.h"
HEADINGS = ("method", "functions", "error", "bytes", "microseconds", "with probabilities")
#: The gamma of scikit-learn's own example on these data, for all models.
GAMMA = 0.001

#: Reads rows of pixels; prints the class of each, then microseconds a row for classes and for probabilities.
PROGRAM = r"""
#include "digits.h"
#include <stdio.h>
#include <time.h>

#define ROWS 2000
#define REPEATS 20

static float x[ROWS][DIGITS_N_FEATURES];

int main(void)
{
    float p[DIGITS_N_CLASSES], sum = 0.0f;
    int n = 0, pixel;
    clock_t start, between;
    for (long k = 0; scanf("%d", &pixel) == 1 && n < ROWS; k++, n = (int)(k / DIGITS_N_FEATURES))
        x[n][k % DIGITS_N_FEATURES] = (float)pixel;
    for (int i = 0; i < n; i++)
        printf("%s ", digits_class_name(digits_predict_class(x[i])));
    start = clock();
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < n; i++)
            sum += (float)digits_predict_class(x[i]);
    between = clock();
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < n; i++) {
            digits_predict_proba(x[i], p);
            sum += p[0];
        }
    printf("%g %g %g\n", 1e6 * (double)(between - start) / CLOCKS_PER_SEC / n / REPEATS,
           1e6 * (double)(clock() - between) / CLOCKS_PER_SEC / n / REPEATS, sum);
    return 0;
}
"""

Array = NDArray[Any]


@dataclass
class Row:
    """A method in the table; figures of every split."""

    name: str
    functions: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    #: Microseconds for a class and for probabilities; empty where nothing was compiled.
    times: list[tuple[float, float]] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        """Return means as text."""
        times = [f"{t:.1f}" for t in np.mean(self.times, axis=0)] if self.times else ["", ""]
        figures = (f"{np.mean(self.functions):.0f}", f"{100 * np.mean(self.errors):.1f} %")
        return (self.name, *figures, f"{np.mean(self.sizes):.0f}", *times)


def run(header: str, X: Array, compiler: str) -> tuple[list[str], tuple[float, float]]:
    """Compile the header; return the classes of these rows, and microseconds a row."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "digits.h").write_text(header)
        (folder / "main.c").write_text(PROGRAM)
        command = [compiler, "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        subprocess.run([*command, "main.c", "-o", "digits", "-lm"], cwd=folder, check=True)
        pixels = " ".join(str(int(pixel)) for pixel in X.ravel())
        done = subprocess.run([folder / "digits"], input=pixels, capture_output=True, text=True, check=True)
    *classes, plain, probabilities, _ = done.stdout.split()
    return classes, (float(plain), float(probabilities))


def measure(row: Row, est: Any, halves: tuple[Array, ...], compiler: str | None) -> str:
    """Fit on one half, record the errors on the other half, and return the header."""
    X, X_test, y, y_test = halves
    est.fit(X, y)
    header = to_c(est, name="digits", dtype="float")
    found = re.search(r"Constant data: (\d+) bytes", header)
    assert found is not None
    row.functions.append(len(est.active_))
    row.sizes.append(int(found[1]))
    labels = est.predict(X_test)
    if compiler is not None:
        classes, times = run(header, X_test, compiler)
        labels = np.array(classes).astype(labels.dtype)
        row.times.append(times)
    row.errors.append(float(np.mean(labels != y_test)))
    return header


def measure_svm(row: Row, halves: tuple[Array, ...]) -> None:
    """Record the size of a support vector machine: 64 bytes and 9 weights for each vector, 45 offsets."""
    X, X_test, y, y_test = halves
    svm = SVC(gamma=GAMMA).fit(X, y)
    n = len(svm.support_)
    row.functions.append(n)
    row.sizes.append(64 * n + 4 * (svm.dual_coef_.size + svm.intercept_.size))
    row.errors.append(float(np.mean(svm.predict(X_test) != y_test)))


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print the rows in columns."""
    table = [HEADINGS, *rows]
    widths = [max(len(row[c]) for row in table) for c in range(len(HEADINGS))]
    for row in table:
        cells = (
            cell.ljust(w) if c == 0 else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def main() -> None:
    """Train, write, compile, print."""
    parser = argparse.ArgumentParser(description="Digits recognised in C.")
    parser.add_argument("--splits", type=int, default=5, help="random halves that are averaged over")
    parser.add_argument("--header", type=Path, default=OUTPUT, help="where to write the header")
    options = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    compiler = shutil.which("cc")
    rvc, mrvm, svm = Row("RVC"), Row("MRVM2"), Row("SVC")
    header = ""
    for seed in range(options.splits):
        halves = tuple(train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed))
        measure(rvc, RVC(gamma=GAMMA), halves, compiler)
        header = measure(mrvm, MRVM2(gamma=GAMMA), halves, compiler)
        measure_svm(svm, halves)
    print_table([row.cells() for row in (rvc, mrvm, svm)])
    options.header.parent.mkdir(parents=True, exist_ok=True)
    options.header.write_text(header)
    print(f"\nHeader: {options.header}" + ("" if compiler else " (not compiled: there is no cc)"))


if __name__ == "__main__":
    main()
