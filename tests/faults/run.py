"""Kill fits, saves and checkpoints at random moments, and check that no model or state is lost or damaged.

``python tests/faults/run.py [--times 200] [--seed 0]``: for each of fit, save and checkpoint, and each of
SIGINT, SIGTERM and SIGKILL, ``--times`` forked children are signalled while they work. Ends with status 1 if
a file was lost or damaged, or a child did not end within ``--patience`` seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from common import Wrong, report

import sparsebayes._data.chunks
from sparsebayes import RVR, load
from sparsebayes._data.chunks import Checkpoint

INTERRUPTED, BROKEN = 130, 1


def fork(work: Callable[[], object]) -> int:
    """Do the work in a child process, and return its number."""
    # A child interrupted before it is ready would continue as if it were its parent.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return pid
    code = BROKEN
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        work()
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        os._exit(code)


def strike(work: Callable[[], object], number: signal.Signals, delay: float, patience: float) -> str:
    """Signal a child after ``delay`` seconds, and return how it ended."""
    pid = fork(work)
    time.sleep(delay)
    try:
        os.kill(pid, number)
        deadline = time.monotonic() + patience
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                raise Wrong(f"{number.name} after {delay:.3f} s: the child has not ended after {patience} s")
            time.sleep(0.001)
    except BaseException:
        if not os.waitpid(pid, os.WNOHANG)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(ended[1])
    if code == BROKEN:
        raise Wrong(f"{number.name} after {delay:.3f} s: the child failed by itself")
    return {0: "finished", INTERRUPTED: "interrupted"}.get(code, "killed")


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a surface and its targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, (n, 2))
    return X, np.sinc(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=n)


def check_leftovers(folder: Path, keep: set[str], good: set[bytes]) -> None:
    """Check that no file a killed child left loads except a whole model, and remove these files."""
    for path in folder.iterdir():
        if path.name in keep:
            continue
        if not path.name.startswith("."):
            raise Wrong(f"a file {path.name} was left")
        try:
            loaded = load(path).to_bytes()
        except ValueError:
            loaded = None
        if loaded is not None and loaded not in good:
            raise Wrong(f"{path.name} loads, and is no model that was saved")
        path.unlink()


class Saves:
    """Two models that are saved to the same file in turn."""

    longest = 0.03

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "model"
        X, y = data(300)
        # Many functions, so that a file takes a while to write.
        self.models = [RVR(gamma=gamma, noise_variance=1e-2).fit(X, y).to_predictor() for gamma in (4.0, 6.0)]
        self.good = {model.to_bytes() for model in self.models}
        self.models[0].save(self.path)

    def work(self) -> None:
        while True:
            for model in self.models:
                model.save(self.path)

    def check(self) -> None:
        if load(self.path).to_bytes() not in self.good:
            raise Wrong("the file holds another model")
        check_leftovers(self.folder, {"model"}, self.good)


class Fits(Saves):
    """A long fit whose model is saved over the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "model"
        self.X, self.y = data(700)
        self.est = RVR(gamma=0.5, n_jobs=2)
        began = time.monotonic()
        self.est.fit(self.X, self.y).save(self.path)
        # Half of the children are signalled in their first fit, the others in a later one.
        self.longest = 2 * (time.monotonic() - began)
        self.good = {self.path.read_bytes()}

    def work(self) -> None:
        while True:
            self.est.fit(self.X, self.y).save(self.path)


class Checkpoints:
    """A fit from chunks that saves its state after each block, from which the next child resumes."""

    longest = 0.4

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.state = folder, folder / "model", folder / "state"
        sparsebayes._data.chunks._INTERVAL = sparsebayes._data.chunks._PATIENCE = 0.0
        X, y = data(40_000)
        self.chunks = [(X[:7], y[:7]), (X[7:], y[7:])]
        self.est = RVR(gamma=0.5, candidates=60, random_state=0, n_jobs=1)
        self.expected = self.est.fit(self.chunks).to_predictor().to_bytes()
        self.est.set_params(checkpoint=self.state)
        self.rows, self.fits = -1, 0

    def work(self) -> None:
        self.est.fit(self.chunks).save(self.path)

    def check(self) -> None:
        if self.path.exists():
            if load(self.path).to_bytes() != self.expected:
                raise Wrong("a resumed fit ended at another model")
            self.path.unlink()
            self.rows, self.fits = -1, self.fits + 1
        elif self.state.exists():
            rows = rows_in(self.state)
            if rows < self.rows:
                raise Wrong(f"the state went back from {self.rows} rows to {rows}")
            self.rows = rows
        elif self.rows > 0:
            # Removed when the fit was done, before its model was saved.
            self.rows = -1
        check_leftovers(self.folder, {"state"}, {self.expected})


def rows_in(path: Path) -> int:
    """Return how many rows a state has seen; an error if it is damaged."""
    with np.load(BytesIO(path.read_bytes()[sparsebayes._data.chunks.DIGEST_BYTES :])) as state:
        problem = state["problem"].item()
    found = Checkpoint(path, problem).load() or {}
    return int(found.get("rows", 0))


def runs(times: int, seed: int, patience: float) -> Iterator[str]:
    """Signal so many children in each way; yield a line about each."""
    rng = random.Random(seed)
    for kind in (Saves, Fits, Checkpoints):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder:
                job, endings = kind(Path(folder)), Counter()
                for _ in range(times):
                    endings[strike(job.work, number, rng.uniform(0.0, job.longest), patience)] += 1
                    job.check()
            told = ", ".join(f"{ending} {count}" for ending, count in sorted(endings.items()))
            done = f"; {job.fits} fits came to their end" if kind is Checkpoints else ""
            yield f"{kind.__name__.lower()} {number.name}: {told}{done}"


def main() -> int:
    """Print how the children ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=5.0)
    given = parser.parse_args()
    return report(runs(given.times, given.seed, given.patience))


if __name__ == "__main__":
    sys.exit(main())
