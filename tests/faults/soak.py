"""The example services at saturation: no error, flat memory, the same answers afterwards.

``python tests/faults/soak.py [--service both] [--seconds 600] [--connections 16] [--rust PROGRAM]`` starts
one service after the other on a free port of 127.0.0.1, loads it with wrk, and measures its memory every two
seconds. Ends with status 1 on an error, an answer that changed or memory that grew. wrk and the service share
the processor, so that the waiting times are only an upper bound.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common import Wrong, report, resident

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "service"
HOST = "127.0.0.1"
#: Seconds between two measurements of the memory of a service.
PAUSE = 2.0
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
        """Describe the memory; raise `Wrong` if it grew by over ``most`` MiB after the first tenth."""
        tenth = self.seen[-1][0] / 10
        _, begun, files = next(one for one in self.seen if one[0] >= tenth)
        _, ended, files_ended = self.seen[-1]
        if ended - begun > most:
            raise Wrong(f"memory grew from {begun:.1f} MiB after a tenth to {ended:.1f} MiB at the end")
        if files_ended > files:
            raise Wrong(f"{files} open files after a tenth, {files_ended} at the end")
        largest = max(memory for _, memory, _ in self.seen)
        return f"{begun:.1f} MiB after a tenth, {ended:.1f} MiB at the end, {largest:.1f} MiB at most"


def post(port: int, body: str) -> bytes:
    """Return the answer to a request."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{HOST}:{port}/predict", body.encode(), head)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def bodies() -> list[str]:
    """Return requests of 1 to 50 patients, as lists and by name."""
    from sklearn.datasets import load_diabetes

    X = load_diabetes(as_frame=True, scaled=False).data
    found = []
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


def load(port: int, seconds: float, connections: int, requests: Path, watch: Watch) -> dict[str, int]:
    """Load a service with wrk for this long; return the counts of wrk."""
    script = Path(__file__).with_name("soak.lua")
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={seconds:g}s"]
    command += ["--timeout=10s", f"--script={script}", f"http://{HOST}:{port}", "--", str(requests)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None:
                watch.measure()
                time.sleep(PAUSE)
            output = process.stdout.read() if process.stdout else ""
        finally:
            process.kill()
    if process.returncode:
        raise Wrong(f"wrk ended with status {process.returncode}: {output}")
    return json.loads(output.splitlines()[-1])


def soak(name: str, command: list[str], model: Path, given: argparse.Namespace) -> str:
    """Run one service under load; return a line about it."""
    port = free_port()
    command = [part.format(port=port) for part in command]
    asked = bodies()
    requests = model.with_name("requests")
    requests.write_text("\n".join(asked) + "\n")
    with serving(command, port, model) as process:
        answers = [post(port, body) for body in asked]
        watch = Watch(process.pid)
        before = watch.processor()
        found = load(port, given.seconds, given.connections, requests, watch)
        seconds = found["microseconds"] / 1e6
        cores = (watch.processor() - before) / seconds
        if [post(port, body) for body in asked] != answers:
            raise Wrong(f"{name} gives other answers after the load")
        if any(found[kind] for kind in ERRORS):
            raise Wrong(f"{name}: " + ", ".join(f"{kind} {found[kind]}" for kind in ERRORS))
        memory = watch.told(given.growth)
    waits = ", ".join(f"{part} {found[part] / 1e3:.3g} ms" for part in ("p50", "p99", "p999", "longest"))
    return (
        f"{name}: {found['requests']} requests in {seconds:.0f} s by {given.connections} connections "
        f"({found['requests'] / seconds:.0f}/s), no error; {waits}; {memory}; {cores:.2f} cores"
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
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--growth", type=float, default=4.0, help="MiB that memory may grow by after a tenth")
    parser.add_argument(
        "--rust", type=Path, default=ROOT / "target/service/release/sparsebayes-service", help="the program"
    )
    given = parser.parse_args()
    given.seconds = min(given.seconds, MAX_SECONDS)
    if shutil.which("wrk") is None:
        print("wrk, which makes the load, is not installed (Debian, Ubuntu: apt-get install wrk)")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        subprocess.run([sys.executable, str(FOLDER / "train.py"), str(model)], check=True)
        return report(soak(name, command, model, given) for name, command in commands(given).items())


if __name__ == "__main__":
    sys.exit(main())
