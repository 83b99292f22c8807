"""The tables of `bench_serving.py`, and the targets they are held to."""

import operator

from report import Table, number

#: Of `predict_one` in microseconds, without and with the standard deviation.
ONE_ROW, ONE_ROW_STD = 2.0, 3.0
#: How many times the time of `predict_one` the peers take at least.
SLOWER_SVR, SLOWER_ONNX = 50.0, 5.0
#: Of `Predictor::predict_one` in nanoseconds, and its last percentile over the median.
CORE, CORE_TAIL = 250.0, 2.0
#: How many times the time of `predict` the peers take at least, and the gain from a second thread.
BATCH_NUMPY, BATCH_SVR, SECOND_CORE = 5.0, 10.0, 1.7
#: From `import sparsebayes` to the first prediction, beyond NumPy's own import; milliseconds.
START = 30.0


def judged(value, compare, target, unit=""):
    """The last two columns: the target and whether it is met; no target, neither."""
    if target is None:
        return "", ""
    sign = {operator.le: "<=", operator.ge: ">="}[compare]
    return f"{sign} {target:g}{unit}", "yes" if compare(value, target) else "NO"


def one_row(times, n_full):
    ours = "predict_one"
    names = {
        ours: (ours, None),
        "predict_one, with std": ("predict_one(x, return_std=True)", None),
        "NumPy": ("NumPy, the formula", None),
        "onnxruntime": ("onnxruntime, the exported model", SLOWER_ONNX),
        "onnxruntime, with std": ("onnxruntime, with std", None),
        "SVR": ("SVR.predict, 20 vectors", SLOWER_SVR),
        "full SVR": (f"SVR.predict, {n_full} vectors", None),
    }
    limits = {ours: ONE_ROW, "predict_one, with std": ONE_ROW_STD}
    rows = []
    for name, (label, slower) in names.items():
        if name not in times.seconds:
            continue
        microseconds, ratio = 1e6 * times.median(name), times.ratio(name, ours)
        if name in limits:
            verdict = judged(microseconds, operator.le, limits[name], " µs")
        else:
            verdict = judged(ratio, operator.ge, slower, " times")
        rows.append((label, number(microseconds), number(ratio), *verdict))
    return Table("One row, Python", ("call", " µs", " times predict_one", "target", "met"), rows)


def core(found):
    """The percentiles of the core, as benches/core/latency.rs prints them."""
    rows = []
    for name in ("predict_one", "predict_std_into"):
        of = found[name]
        numbers = [number(of[key]) for key in ("p50", "p99", "p99.9", "ns_without_clock")]
        is_judged = name == "predict_one"
        rows.append((f"`{name}`", *numbers, f"{of['allocations']}", *core_verdict(of, is_judged)))
    headings = ("call", " p50, ns", " p99", " p99.9", " mean, no clock", " allocations", "target", "met")
    title = (
        f"One row, Rust: {found['calls']} calls, each by the clock (whose {found['clock']} ns are taken off)"
    )
    return Table(title, headings, rows)


def core_verdict(of, is_judged):
    if not is_judged:
        return "", ""
    tail = of["p99.9"] / of["p50"]
    met = of["p50"] <= CORE and tail <= CORE_TAIL and of["allocations"] == 0
    text = f"p50 <= {CORE:g} ns, p99.9 <= {CORE_TAIL:g} p50, no allocations"
    return text, "yes" if met else f"NO (p99.9 is {tail:.2g} p50)" if of["p50"] <= CORE else "NO"


def batches(times, n_rows):
    ours = "predict"
    names = {
        ours: ("predict, one thread", None),
        "predict_std": ("predict_std, one thread", None),
        "NumPy": ("NumPy, the formula", BATCH_NUMPY),
        "NumPy in blocks": ("NumPy, in blocks of 4096 rows", None),
        "onnxruntime": ("onnxruntime, the exported model", None),
        "SVR": ("SVR.predict, 20 vectors", BATCH_SVR),
    }
    rows = []
    for name, (label, slower) in names.items():
        if name not in times.seconds:
            continue
        ratio = times.ratio(name, ours)
        verdict = judged(ratio, operator.ge, slower, " times")
        rows.append((label, *batch_numbers(times, name, n_rows), number(ratio), *verdict))
    two = "predict, two threads"
    speedup = times.ratio(ours, two)
    verdict = judged(speedup, operator.ge, SECOND_CORE, " times as fast")
    rows.insert(1, (two, *batch_numbers(times, two, n_rows), number(1 / speedup), *verdict))
    headings = ("call", " ms", " ns a row", " times predict", "target", "met")
    return Table(f"{n_rows} rows at once", headings, rows)


def batch_numbers(times, name, n_rows):
    seconds = times.median(name)
    return number(1e3 * seconds), number(1e9 * seconds / n_rows)


def starts(times):
    numpy = 1e3 * times.median("import numpy")
    ours = 1e3 * times.median("serve")
    verdict = judged(ours - numpy, operator.le, START, " ms more than NumPy")
    rows = [
        ("import numpy", number(numpy), "", "", ""),
        ("import sparsebayes, load, predict_one", number(ours), number(ours - numpy), *verdict),
    ]
    pickled = 1e3 * times.median("unpickle SVR")
    rows.append(("unpickle an SVR, predict", number(pickled), number(pickled - numpy), "", ""))
    return Table(
        "A fresh interpreter, to its first prediction",
        ("program", " ms", " more than NumPy", "target", "met"),
        rows,
    )
