"""Measure the predictions per second of a local service, and the response times.

Each connection sends its next request when the last one is answered, until the number of requests or seconds
is reached. The program connects only to 127.0.0.1. Client and service share the processor, so the results
include both. It needs only the standard library.

    python load_test.py --port 8000 --connections 4 --requests 20000 --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Callable

HOST = "127.0.0.1"
#: Upper limits of the options.
MOST_REQUESTS, MOST_SECONDS, MOST_CONNECTIONS = 1_000_000, 120.0, 256


class Run:
    """State shared by all connections of a run: the remaining work and the results."""

    def __init__(self, requests: int, seconds: float) -> None:
        self.left = requests
        self.end = time.perf_counter() + seconds
        self.waits: list[float] = []
        self.failed = 0

    def next(self) -> bool:
        """Whether one more request may be sent."""
        self.left -= 1
        return self.left >= 0 and time.perf_counter() < self.end


class Connection(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, run: Run, request: bytes) -> None:
        self.run, self.request = run, request
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request, or end."""
        if not self.run.next():
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Continue once an answer is complete."""
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end or len(body) < content_length(head):
            return
        self.run.waits.append(time.perf_counter() - self.sent)
        self.run.failed += not head.startswith(b"HTTP/1.1 200 ")
        self.buffer = b""
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end to the waiting task."""
        if not self.done.done():
            self.done.set_result(None)


def content_length(head: bytes) -> int:
    """Return the length of a body."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise ValueError(f"an answer without Content-Length: {head!r}")


def request(port: int, n_rows: int, seed: int) -> bytes:
    """Return a request with rows similar to the training rows."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/info", timeout=5) as answer:
        info = json.load(answer)
    draw = random.Random(seed)
    rows = [[draw.gauss(0, 1) for _ in range(info["n_features"])] for _ in range(n_rows)]
    body = json.dumps({"rows": rows}).encode()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure(options: argparse.Namespace, content: bytes) -> tuple[Run, float]:
    """Return the results of a run and its seconds."""
    run, start = Run(options.requests, options.seconds), time.perf_counter()
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda: Connection(run, content), HOST, options.port)
        for _ in range(options.connections)
    ]
    # A service that does not answer at all ends the run too.
    await asyncio.wait([connection.done for _, connection in pairs], timeout=options.seconds + 5)
    for transport, _ in pairs:
        transport.abort()
    return run, time.perf_counter() - start


def bounded(kind: Callable[[str], float], most: float) -> Callable[[str], float]:
    """Return the type of a positive option with an upper limit."""

    def convert(text: str) -> float:
        value = kind(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {most:g}")
        return value

    return convert


def main() -> None:
    """Warm up, measure, print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=bounded(int, 65535), default=8000)
    parser.add_argument("--connections", type=bounded(int, MOST_CONNECTIONS), default=4)
    parser.add_argument("--requests", type=bounded(int, MOST_REQUESTS), default=20_000)
    parser.add_argument("--seconds", type=bounded(float, MOST_SECONDS), default=20.0)
    parser.add_argument("--rows", type=bounded(int, 10_000), default=1, help="rows in each request")
    options = parser.parse_args()
    content = request(options.port, options.rows, seed=0)
    asyncio.run(measure(argparse.Namespace(**{**vars(options), "requests": 200}), content))
    run, took = asyncio.run(measure(options, content))
    waits = sorted(run.waits)
    if not waits:
        raise SystemExit("no request was answered")
    p50, p99, p999 = (1e3 * waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99, 0.999))
    print(
        f"{len(waits)} requests of {options.rows} rows, {options.connections} connections: "
        f"{len(waits) / took:.0f} requests/s, p50 {p50:.3g} ms, p99 {p99:.3g} ms, p99.9 {p999:.3g} ms, "
        f"{run.failed} failed"
    )
    if run.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
