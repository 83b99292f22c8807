"""Compile exported headers, and run programs that predict with them."""

import re
import shutil
import subprocess

import numpy as np
import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc")

STRICT = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
#: Warnings of careful projects, which gcc and clang know.
PICKY = ["-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wdouble-promotion", "-Wcast-qual", "-Wundef"]

_MAIN = """
#include "model.h"
#include <stdio.h>
#define SHOW(numbers, count) for (int c = 0; c < (count); c++) printf("%.17g ", (double)(numbers)[c])

int main(void)
{
    model_real x[MODEL_N_FEATURES];
    double value;
    for (;;) {
        for (int d = 0; d < MODEL_N_FEATURES; d++) {
            if (scanf("%lf", &value) != 1)
                return 0;
            x[d] = (model_real)value;
        }
BODY
        printf("\\n");
    }
}
"""


def body(header):
    """Return code that prints the results for one row: means, deviations, class, probabilities."""
    if "model_predict_class(" in header:
        text = 'model_real p[MODEL_N_CLASSES];\nprintf("%d ", model_predict_class(x));\n'
        return text + "model_predict_proba(x, p);\nSHOW(p, MODEL_N_CLASSES);\n"
    text = "model_real mean[MODEL_N_OUTPUTS], sd[MODEL_N_OUTPUTS];\n(void)sd;\n"
    several = "void model_predict(" in header
    text += f"{'' if several else 'mean[0] = '}model_predict(x{', mean' if several else ''});\n"
    text += "SHOW(mean, MODEL_N_OUTPUTS);\n"
    if "model_predict_std(" in header:
        text += "model_predict_std(x, mean, sd);\nSHOW(mean, MODEL_N_OUTPUTS);\nSHOW(sd, MODEL_N_OUTPUTS);\n"
    return text


def build(directory, files, *, compiler="cc", flags=STRICT):
    """Compile and link these files (name to text), and return the program."""
    for name, text in files.items():
        (directory / name).write_text(text, encoding="ascii")
    sources = [name for name in files if not name.endswith(".h")]
    command = [shutil.which(compiler), *flags, "-o", "program", *sources, "-lm"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "program"


def ask(header, X, directory, *, compiler="cc", flags=STRICT):
    """Return what a header exported with the name "model" predicts.

    For regression means and standard deviations, (n, n_outputs), for classification class and probabilities.
    """
    source = "main.c" if compiler == "cc" else "main.cpp"
    files = {"model.h": header, source: _MAIN.replace("BODY", body(header))}
    program = build(directory, files, compiler=compiler, flags=flags)
    rows = "\n".join(" ".join(repr(float(v)) for v in row) for row in X)
    done = subprocess.run([program], input=rows, capture_output=True, text=True, check=True)
    numbers = np.array([[float(v) for v in line.split()] for line in done.stdout.splitlines()])
    assert len(numbers) == len(X)
    if "model_predict_class(" in header:
        return numbers[:, 0].astype(int), numbers[:, 1:]
    n_outputs = int(re.search(r"_N_OUTPUTS (\d+)", header)[1])
    means, *again = np.split(numbers, range(n_outputs, numbers.shape[1], n_outputs), axis=1)
    assert all(np.array_equal(one, means) for one in again[:1])
    return means, again[-1] if again else None
