"""Timing: two methods in turns in one process, and one fit in a process of its own."""

import gc
import json
import re
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peers import Data

WARM_UP_ROWS = 200
#: Seconds before each fit: OpenMP threads, which scikit-learn uses, go on turning on their cores for some
#: time when they are done, and who comes next would pay for it.
SETTLE = 0.05


@dataclass
class Duel:
    """Times of two methods on the same data in seconds, run by run, and the models of the last run."""

    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    our_model: Any = None
    peer_model: Any = None

    @property
    def ratios(self):
        """Ours over the peer's: the two fits of a ratio followed one another."""
        return np.array(self.ours) / np.array(self.peer)


def progress(*words):
    print("...", *words, file=sys.stderr, flush=True)


def seconds(method, data):
    gc.collect()  # no fit pays for what another has left behind
    time.sleep(SETTLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        model = method.fit(data)
        return time.perf_counter() - start, model


def warm_up(method, data):
    """One small fit, so that no timed one imports modules or starts threads for the first time."""
    seconds(method, Data(data.X[:WARM_UP_ROWS], data.y[:WARM_UP_ROWS]))


def turns(methods, data, repeats, *, most=np.inf):
    """Fit with each method, then again with each, and so on; return all times of each, and its last model.

    A method whose first fit takes more than ``most`` seconds fits once.
    """
    for method in methods:
        warm_up(method, data)
    times, models = [[] for _ in methods], [None for _ in methods]
    for _ in range(repeats):
        for k, method in enumerate(methods):
            if not times[k] or times[k][0] <= most:
                took, models[k] = seconds(method, data)
                times[k].append(took)
    return times, models


def duel(ours, peer, data, repeats):
    """Fit ours, the peer, ours, the peer, and so on."""
    return Duel(*(part for both in turns([ours, peer], data, repeats) for part in both))


def in_own_process(script, *arguments):
    """Run a script of this directory and return the JSON it prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_memory():
    """Largest resident set of this process so far, in bytes; None where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    # Not getrusage: a child starts with the peak of its parent there.
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1])
