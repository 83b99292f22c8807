"""The example services at saturation, with models of three sizes: no error, flat memory, the same answers.

``python tests/faults/soak.py [--service both] [--seconds 600] [--connections 64] [--functions 1,50,500]``
starts one service after the other on a free port of 127.0.0.1, once for each number of functions, and loads
it with wrk. Every two seconds it measures memory; every ten seconds it replaces the model file by that of
another model and sends SIGHUP, so that the service reads the file again. Ends with status 1 on an error, an
answer that changed or memory that grew. One core is left to wrk; other work on the computer makes the waiting
times longer.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from common import Wrong, report, resident
from sklearn.datasets import load_diabetes

from sparsebayes import RVR, Predictor
from sparsebayes.kernels import Gaussian

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "service"
HOST = "127.0.0.1"
#: Seconds between two measurements of the memory of a service, and the number of them between two models.
PAUSE = 2.0
MEASUREMENTS = 5
#: The longest load in seconds.
MAX_SECONDS = 3600
ERRORS = ("connect", "read", "write", "status", "timeout")


@dataclass
class Watch:
    """Measurements of the memory and files of a process."""

    pid: int
    began: float = field(default_factory=time.monotonic)
    #: Seconds since it began, MiB resident, open files.
    seen: list[tuple[float, float, int]] = field(default_factory=list)

    def measure(self) -> None:
        """Measure memory and open files."""
        files = len(os.listdir(f"/proc/{self.pid}/fd"))
        self.seen.append((time.monotonic() - self.began, resident(self.pid), files))

    def processor(self) -> float:
        """Return the processor seconds it has used."""
        # After the name, which may have spaces: fields 14 and 15 of proc(5).
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def told(self, most: float) -> str:
        """Describe the memory; raise `Wrong` if it grew by over ``most`` MiB after the first fifth."""
        fifth = self.seen[-1][0] / 5
        _, begun, files = next(one for one in self.seen if one[0] >= fifth)
        _, ended, files_ended = self.seen[-1]
        if ended - begun > most:
            raise Wrong(f"memory grew from {begun:.1f} MiB after a fifth to {ended:.1f} MiB at the end")
        if files_ended > files:
            raise Wrong(f"{files} open files after a fifth, {files_ended} at the end")
        largest = max(memory for _, memory, _ in self.seen)
        return f"{begun:.1f} MiB after a fifth, {ended:.1f} MiB at the end, {largest:.1f} MiB at most"


def post(port: int, body: str) -> bytes:
    """Return the answer to a request."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{HOST}:{port}/predict", body.encode(), head)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def patients() -> pd.DataFrame:
    """Return the rows that models are fitted to, and asked for."""
    return load_diabetes(as_frame=True, scaled=False).data


def save_models(path: Path, n_functions: int) -> tuple[bytes, bytes]:
    """Return two model files of as many functions, of which ``path`` has the first."""
    X = patients()
    kernel = Gaussian(1.5 * X.std().to_numpy())
    rows = pd.concat([X, 0.9 * X[::-1] + 0.1 * X.mean()])
    table, rng = rows.to_numpy(), np.random.default_rng(0)
    centres = rng.permutation(table)[:n_functions]
    found = []
    for _ in range(2):
        y = kernel(table, centres) @ rng.normal(size=n_functions)
        # With next to no noise all functions are needed.
        model = RVR(
            kernel,
            candidates=centres,
            landmarks=None,
            extra_basis=None,
            complexity="none",
            noise_variance=1e-8,
        )
        model.fit(rows, y).save(path)
        found.append(path.read_bytes())
    replace(path, found[0])
    return found[0], found[1]


def replace(path: Path, content: bytes) -> None:
    """Replace a file, so that a service that reads it finds the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def bodies() -> list[str]:
    """Return requests of 1 to 50 patients, as lists and by name."""
    X, found = patients(), []
    for k, size in enumerate((1, 2, 1, 5, 1, 50, 1, 10, 1, 3)):
        rows = X.iloc[20 * k : 20 * k + size]
        found.append(json.dumps({"rows": rows.to_dict("records") if k % 2 else rows.to_numpy().tolist()}))
    return found


def free_port() -> int:
    """Return a free port of this computer."""
    with socket.socket() as trial:
        trial.bind((HOST, 0))
        return trial.getsockname()[1]


@contextmanager
def serving(command: list[str], port: int, model: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service; raise `Wrong` if it does not start to answer or does not end on Ctrl-C."""
    surroundings = {**os.environ, "SPARSEBAYES_MODEL": str(model), "ADDRESS": f"{HOST}:{port}"}
    surroundings["TOKIO_WORKER_THREADS"] = str(max((os.cpu_count() or 1) - 1, 1))
    with subprocess.Popen(command, cwd=FOLDER, env=surroundings) as process:
        try:
            await_health(process, port)
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(30)
        except subprocess.TimeoutExpired as error:
            raise Wrong("the service does not end within 30 s of being told to") from error
        finally:
            process.kill()


def await_health(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a service is healthy."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Wrong(f"the service ended with status {process.returncode} before it answered")
        try:
            urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise Wrong("the service does not answer within a minute")


def version(port: int) -> str:
    """Return which model file a service has."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=10) as answer:
        return json.load(answer)["model"]


def reload(process: subprocess.Popen[bytes], port: int, model: Path, content: bytes) -> None:
    """Give a service another model; raise `Wrong` if it does not read it within a minute."""
    replace(model, content)
    process.send_signal(signal.SIGHUP)
    wanted, end = hashlib.sha256(content).hexdigest()[:12], time.monotonic() + 60
    while version(port) != wanted:
        if time.monotonic() > end:
            raise Wrong("the service does not read the new model file")
        time.sleep(0.2)


def load(
    port: int, seconds: float, connections: int, requests: Path, every: Callable[[], None]
) -> dict[str, int]:
    """Load a service with wrk for this long, and call ``every`` now and then; return the counts of wrk."""
    script = Path(__file__).with_name("soak.lua")
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={seconds:g}s"]
    command += ["--timeout=10s", f"--script={script}", f"http://{HOST}:{port}", "--", str(requests)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None:
                every()
                time.sleep(PAUSE)
            output = process.stdout.read() if process.stdout else ""
        finally:
            process.kill()
    if process.returncode:
        raise Wrong(f"wrk ended with status {process.returncode}: {output}")
    return json.loads(output.splitlines()[-1])


def soak(name: str, command: list[str], n_functions: int, model: Path, given: argparse.Namespace) -> str:
    """Run one service under load; return a line about it."""
    contents = save_models(model, n_functions)
    n_found = Predictor.from_bytes(contents[0]).n_functions_
    port = free_port()
    command = [part.format(port=port) for part in command]
    asked = bodies()
    requests = model.with_name("requests")
    requests.write_text("\n".join(asked) + "\n")
    with serving(command, port, model) as process:
        answers = [post(port, body) for body in asked]
        watch = Watch(process.pid)
        before, n_reloads = watch.processor(), 0

        def every() -> None:
            nonlocal n_reloads
            watch.measure()
            if len(watch.seen) % MEASUREMENTS == 0:
                n_reloads += 1
                reload(process, port, model, contents[n_reloads % 2])

        found = load(port, given.seconds, given.connections, requests, every)
        seconds = found["microseconds"] / 1e6
        cores = (watch.processor() - before) / seconds
        reload(process, port, model, contents[0])
        if [post(port, body) for body in asked] != answers:
            raise Wrong(f"{name} gives other answers after the load")
        if any(found[kind] for kind in ERRORS):
            raise Wrong(f"{name}: " + ", ".join(f"{kind} {found[kind]}" for kind in ERRORS))
        memory = watch.told(given.growth)
    waits = ", ".join(f"{part} {found[part] / 1e3:.3g} ms" for part in ("p50", "p99", "p999", "longest"))
    return (
        f"{name}, {n_found} functions: {found['requests']} requests in {seconds:.0f} s by "
        f"{given.connections} connections ({found['requests'] / seconds:.0f}/s), {n_reloads} models read, no "
        f"error; {waits} ({found['p999'] / found['p50']:.1f} p50); {memory}; {cores:.2f} cores"
    )


def commands(given: argparse.Namespace) -> dict[str, list[str]]:
    """Return how to start the services that were asked for."""
    uvicorn = [sys.executable, "-m", "uvicorn", "app:create_app", "--factory", "--no-access-log"]
    uvicorn += ["--host", HOST, "--port", "{port}", "--log-level", "warning"]
    known = {"fastapi": uvicorn, "axum": [str(given.rust.resolve())]}
    return known if given.service == "both" else {given.service: known[given.service]}


def main() -> int:
    """Print a line about each service."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--service", choices=("fastapi", "axum", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--functions", default="1,50,500", help="numbers of functions of the models")
    parser.add_argument("--growth", type=float, default=4.0, help="MiB that memory may grow by after a fifth")
    parser.add_argument(
        "--rust", type=Path, default=ROOT / "target/service/release/sparsebayes-service", help="the program"
    )
    given = parser.parse_args()
    sizes = [int(part) for part in given.functions.split(",")]
    given.seconds = min(given.seconds, MAX_SECONDS) / len(sizes)  # of each service
    if shutil.which("wrk") is None:
        print("wrk, which makes the load, is not installed (Debian, Ubuntu: apt-get install wrk)")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        started = itertools.product(commands(given).items(), sizes)
        return report(soak(name, command, size, model, given) for (name, command), size in started)


if __name__ == "__main__":
    sys.exit(main())
