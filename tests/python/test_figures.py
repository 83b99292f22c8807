"""Figures quoted in README.md and docs/benchmarks.md are those of the stored results in docs/results.

The results are what commands print; the first lines of a file name the command. Seconds are not compared,
because they vary with the load of the computer.
"""

import json
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
README, BENCHMARKS = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
ERROR_BARS = ROOT / "docs" / "guide" / "error-bars.md"
RESULTS = ROOT / "docs" / "results"
#: Names of tables in the pages, where they are not those of the files.
FILES = {
    "yacht": "yacht_hydrodynamics",
    "red wine": "winequality_red",
    "wine, red": "winequality_red",
    "aquatic toxicity": "qsar_aquatic_toxicity",
    "real estate": "real_estate_valuation",
    "Friedman 1": "friedman1",
    "5 of 50 inputs matter": "five_of_fifty",
    "noise alone": "noise",
}
#: Headings of the pages by those of the results.
MEASURES = {
    "error": ["error"],
    "nlpd": ["nlpd", "log loss"],
    "cover": ["inside, %"],
    "funct.": ["functions"],
}
MODELS = {"svm": "SVM", "gp": "GP", "ard": "ours"}
SAME = {"RVR": "ours", "RVC": "ours", "SVR": "SVM", "SVC": "SVM"}


def compared():
    """Return what `sparsebayes compare` printed: {(table, measure, model): number}."""
    found = {}
    for part in (RESULTS / "compare.txt").read_text().split("$ sparsebayes compare ")[1:]:
        table = part.split(".csv")[0]
        rows, inputs = re.search(r"fitted to (\d+) rows of (\d+) inputs", part).groups()
        found[table, "size", ""] = f"{rows} x {inputs}"
        for name, model in (("RVR", "ours"), ("SVM", "SVM"), ("Gaussian", "GP"), ("LightGBM", "LightGBM")):
            line = re.search(rf"^{name}\b.*", part, re.MULTILINE)[0]
            numbers = re.findall(r"-?[\d.]+", line)
            columns = {
                "ours": ("R2", "95 % hold", "density", "functions"),
                "GP": ("R2", "95 % hold", "density", "functions"),
                "SVM": ("R2", "functions"),
                "LightGBM": ("R2",),
            }[model]
            for measure, number in zip(columns, numbers, strict=False):  # without the seconds
                found[table, measure, model] = float(number)
    return found


def splits():
    """Return what `bench_widths.py` printed: {(table, model): an array of splits x measures}."""
    header, *lines = [
        line.split() for line in (RESULTS / "widths.txt").read_text().splitlines() if line[0] != "#"
    ]
    found = {}
    for table, model, *numbers in lines:
        if model in MODELS:
            found.setdefault((table, MODELS[model]), []).append([float(number) for number in numbers])
    return header[2:7], {key: np.array(rows)[:, :5] for key, rows in found.items()}


def means():
    """Return the means over the splits: {(table, measure, model): number}."""
    header, fits = splits()
    found = {}
    for (table, model), rows in fits.items():
        for name, mean in zip(header, rows.mean(axis=0), strict=True):
            for measure in MEASURES.get(name, ()):
                found[table, measure, model] = 100.0 * mean if "%" in measure else mean
        found[table, "wrong, %", model] = 100.0 * rows[:, header.index("error")].mean()
    return found


def tables(page, heading):
    """Return the tables of a page that begin with this heading, each a list of rows of cells."""
    found = re.findall(rf"^\| {re.escape(heading)}(?:.*\n\|)*.*", page.read_text(), re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in t.splitlines()] for t in found]


def quoted(page, heading):
    """Yield (table, measure, model, text) of each cell of these tables."""
    for head, _, *rows in tables(page, heading):
        columns, measure = [], ""
        for title in head[1:]:
            measure, _, model = title.rpartition(": ") if ": " in title else (measure, "", title)
            columns.append(
                (title, "ours") if "%" in title and ": " not in title else (measure, model.split(",")[0])
            )
        for label, *cells in rows:
            for (measure, model), text in zip(columns, cells, strict=True):
                yield label.strip("*"), measure, SAME.get(model, model), text


def check(text, value):
    """Assert that a quoted figure is this value, to its digits."""
    number = re.search(r"-?\d+(?:\.(\d+))?", text)
    # Half a digit; the stored value is rounded, too.
    assert abs(float(number[0]) - value) <= 0.55 * 10.0 ** -len(number[1] or "")


def test_the_table_of_the_readme_is_what_compare_prints():
    stored, n = compared(), 0
    for label, measure, model, text in quoted(README, "table, rows to fit to x inputs"):
        name, size = re.fullmatch(r"(.+), (\d+ x \d+)", label).groups()
        table = FILES.get(name, name)
        assert stored[table, "size", ""] == size
        if measure != "seconds":
            check(text, stored[table, measure, model])
            n += 1
    assert n == 45


def test_the_tables_of_the_benchmarks_are_what_bench_widths_prints():
    stored, n = means(), 0
    for label, measure, model, text in quoted(BENCHMARKS, "table |"):
        if measure != "seconds":
            check(text, stored[FILES.get(label, label), measure, model])
            n += 1
    assert n == 16 * 8 + 9 * 8 + 9 * 6


def public():
    """Return the means that `bench_public.py` printed: of regressions, of classes, and of parts by rows."""
    text = (RESULTS / "public.txt").read_text()
    of_numbers = json.loads(re.search(r"mean of all: (\{.*\})", text)[1].replace("'", '"'))
    labels = re.findall(r"^(RVC|SVC|logistic|shares) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    by_rows = re.findall(r"^(\(\d+, \d+\]) +(.+)$", text, re.MULTILINE)
    of_labels = {name: (float(wrong), float(loss)) for name, wrong, loss in labels}
    return of_numbers, of_labels, [row.split() for _, row in by_rows]


def test_the_tables_of_public_problems_are_what_bench_public_prints():
    of_numbers, of_labels, by_rows = public()
    rows = re.search(r"\n\| RVR \|.*?\n\n", BENCHMARKS.read_text(), re.DOTALL)[0].strip().splitlines()
    for row, number, label in zip(rows, ("RVR", "SVR", "ridge", "mean"), of_labels, strict=True):
        _, _, error, _, _, wrong, loss, _ = (cell.strip() for cell in row.split("|"))
        check(error, of_numbers[number])
        check(wrong, 100.0 * of_labels[label][0])
        check(loss, of_labels[label][1])
    bars = re.findall(r"^\| \d+ to \d+ \| (.+) \|$", ERROR_BARS.read_text(), re.MULTILINE)
    for row, stored in zip(bars, by_rows, strict=True):
        n, *quoted_shares = row.split(" | ")
        assert n == stored[-1]
        full, plain, low_full, low_plain = (100.0 * float(x) for x in stored[4:8])
        for text, value in zip(quoted_shares, (plain, full, low_plain, low_full), strict=True):
            check(text, value)


def ratio(tables, models, measure="error"):
    """Return the geometric mean over fits of the ratio of a measure of two models."""
    header, fits = splits()
    ours, theirs = (
        np.concatenate([np.maximum(fits[table, model][:, header.index(measure)], 1e-3) for table in tables])
        for model in models
    )
    return np.exp(np.mean(np.log(ours / theirs)))


def files(heading):
    """Return the files of the tables, not of made data, of the benchmarks with this heading."""
    labels = [row[0] for found in tables(BENCHMARKS, heading) for row in found[2:]]
    return [FILES.get(label, label) for label in labels if not label.startswith("*")]


def sentences():
    """Yield a page, a sentence of it with a group for each figure, and the figures."""
    header, fits = splits()
    numbers = files("table | error")
    two, several = files("table | wrong, %: SVC | GP"), files("table | wrong, %: SVC | RVC")
    assert (len(numbers), len(two), len(several)) == (12, 9, 9)

    def all_of(tables, model, measure):
        return np.concatenate([fits[table, model][:, header.index(measure)] for table in tables])

    cover = all_of(numbers, "ours", "cover")
    good = np.sum((cover >= 0.9) & (cover <= 0.98))
    by_svm, losses = ratio(numbers, ("ours", "SVM")), {}
    for model in ("ours", "SVM", "GP"):
        losses[model] = [
            all_of(tables, model, "nlpd").mean() for tables in (two, several) if (tables[0], model) in fits
        ]
    yield README, r"twelve real tables its error is ([\d.]+) times", [by_svm]
    yield README, r"`RVC` makes ([\d.]+)\s+times as many errors", [ratio(two + several, ("ours", "SVM"))]
    yield BENCHMARKS, r"`RVR\(\)` has ([\d.]+) times the error", [by_svm]
    functions = [np.median(all_of(numbers, model, "funct.")) for model in ("ours", "SVM")]
    yield BENCHMARKS, r"with (\d+) functions \(median\) instead of (\d+)", functions
    yield BENCHMARKS, r"On (\d+) of (\d+) splits its 95 % intervals", [good, len(cover)]
    yield BENCHMARKS, r"`RVR` has ([\d.]+) times its error", [ratio(numbers, ("ours", "GP"))]
    yield BENCHMARKS, r"`RVC\(\)` makes ([\d.]+) times as many", [ratio(two, ("ours", "SVM"))]
    three = [losses[model][0] for model in ("ours", "SVM", "GP")]
    yield (
        BENCHMARKS,
        r"log loss is ([\d.]+), that of the support vector machine ([\d.]+), of a Gaussian process ([\d.]+)",
        three,
    )
    without = [table for table in several if table != "balance"]
    both = [ratio(tables, ("ours", "SVM")) for tables in (several, without)]
    yield BENCHMARKS, r"\*\*More classes:\*\* ([\d.]+) times as many .*?\(([\d.]+) without `balance`\)", both
    yield BENCHMARKS, r"log loss \(([\d.]+) and ([\d.]+)\)", [losses["ours"][1], losses["SVM"][1]]


def test_figures_of_sentences_are_those_of_the_results():
    for page, sentence, values in sentences():
        found = re.search(sentence.replace(" ", r"\s+"), page.read_text(), re.DOTALL)
        assert found, f"{page.name} has no sentence like {sentence!r}"
        for text, value in zip(found.groups(), values, strict=True):
            check(text, value)
