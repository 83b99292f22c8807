"""Times of `bench_serving.py` in Python: contenders in turns; one row at a time, in batches; fresh starts."""

import gc
import pickle
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: A round of one contender is as many calls as take about this long, in seconds.
ROUND = 0.05


@dataclass(frozen=True)
class Times:
    """Seconds of each contender, round by round; the contenders of a round followed one another."""

    seconds: dict[str, list[float]]

    def median(self, name):
        return statistics.median(self.seconds[name])

    def ratio(self, slow, fast):
        """How many times the seconds of the one are those of the other."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return statistics.median(a / b for a, b in pairs)


def one_row(contest, onnx, runs):
    """Seconds for one call with one row."""
    served, formula = contest.served, contest.formula
    rows, tables = list(contest.X[:256]), list(contest.X[:256, None])
    calls = {
        "predict_one": (served.predict_one, rows),
        "predict_one, with std": (lambda x, f=served.predict_one: f(x, True), rows),
        "NumPy": (formula.one, rows),
        "SVR": (contest.svr.predict, tables),
        "full SVR": (contest.full_svr.predict, tables),
    }
    if onnx is not None:
        ready = [onnx.ready(table) for table in tables]
        calls["onnxruntime"] = (onnx.run, ready)
        calls["onnxruntime, with std"] = (onnx.run_all, ready)
    return in_turns(calls, runs)


def in_turns(calls, runs):
    counts = {name: enough(call, rows) for name, (call, rows) in calls.items()}
    seconds = {name: [] for name in calls}
    for _ in range(runs):
        for name, (call, rows) in calls.items():
            seconds[name].append(took(call, rows, counts[name]))
    return Times(seconds)


def enough(call, rows):
    """Passes over the rows that take about a round."""
    took(call, rows, 1)
    return max(1, round(ROUND / (took(call, rows, 1) * len(rows))))


def took(call, rows, passes):
    """Seconds for one call."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(passes):
            for x in rows:
                call(x)
        return (time.perf_counter() - start) / (passes * len(rows))
    finally:
        gc.enable()


def batches(contest, onnx, runs):
    """Seconds for all rows at once, ours on one thread and on two."""
    served, formula, X = contest.served, contest.formula, contest.X
    calls = {
        "predict": lambda: served.predict(X, n_jobs=1),
        "predict, two threads": lambda: served.predict(X, n_jobs=2),
        "predict_std": lambda: served.predict_std(X, n_jobs=1),
        "NumPy": lambda: formula.rows(X),
        "NumPy in blocks": lambda: formula.rows_in_blocks(X),
        "SVR": lambda: contest.svr.predict(X),
    }
    if onnx is not None:
        ready = onnx.ready(X)
        calls["onnxruntime"] = lambda: onnx.run(ready)
    seconds = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if run > 0:  # the first is to warm up
                seconds[name].append(time.perf_counter() - start)
    return Times(seconds)


def histograms(contest, onnx, calls):
    """Nanoseconds of single calls, each clocked by itself."""
    rows, tables = list(contest.X[:1024]), list(contest.X[:1024, None])
    yield "Python, predict_one", clocked(contest.served.predict_one, rows, calls)
    yield "Python, NumPy formula", clocked(contest.formula.one, rows, calls)
    if onnx is not None:
        yield "Python, onnxruntime", clocked(onnx.run, [onnx.ready(table) for table in tables], calls)
    yield "Python, SVR.predict", clocked(contest.svr.predict, tables, calls // 5)


def clocked(call, rows, calls):
    found, clock = np.empty(calls), time.perf_counter_ns
    for i in range(calls):
        x = rows[i % len(rows)]
        start = clock()
        call(x)
        found[i] = clock() - start
    return found


#: What each prints: milliseconds from the first line to the last.
PROGRAMS = {
    "import numpy": "import numpy",
    "serve": (
        "import numpy, sparsebayes; model = sparsebayes.load({model!r}); model.predict_one(numpy.zeros({n}))"
    ),
    "unpickle SVR": (
        "import numpy, pickle; model = pickle.load(open({pickle!r}, 'rb')); "
        "model.predict(numpy.zeros((1, {n})))"
    ),
}


def starts(contest, folder: Path, runs):
    """Seconds that a fresh interpreter takes, from its first own line to its first prediction."""
    names = {"model": str(folder / "model.safetensors"), "pickle": str(folder / "svr.pickle")}
    contest.served.save(names["model"])
    Path(names["pickle"]).write_bytes(pickle.dumps(contest.svr))
    names["n"] = contest.served.n_features_in_
    seconds = {name: [] for name in PROGRAMS}
    for run in range(runs + 1):
        for name, program in PROGRAMS.items():
            passed = fresh(program.format(**names))
            if run > 0:  # the first reads files from the disk
                seconds[name].append(passed)
    return Times(seconds)


def fresh(program):
    code = f"import time; start = time.perf_counter(); {program}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
