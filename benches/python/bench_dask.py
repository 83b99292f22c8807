"""What further workers bring: fits on one and on more worker processes of Dask clusters on this machine.

The two-dimensional sinc with noise 0.1, its rows made on the workers and held there, and kernel functions
about fixed centres: `DaskRVR`. With ``--classes`` `DaskRVC` on two classes too, the sinc for log odds.
Workers have one thread each. All clusters run all the time and fit in turn; what is timed is the fit alone,
without the start of workers and without making the rows. The table has medians, and how many times faster
than the first each is.

Run ``make bench-dask``, or this file with ``--help``.
"""

import argparse
import statistics
import time
from contextlib import ExitStack

import dask.array as da
import numpy as np
import report
from distributed import Client, LocalCluster, wait
from peers import PAPERS
from runs import progress

from sparsebayes.dask import DaskRVC, DaskRVR

ROWS, CENTRES, CHUNKS, WORKERS = [1_000_000], 500, 16, [1, 2]
GAMMA = 0.16


def main():
    options = parse()
    rng = np.random.default_rng(0)
    centres = rng.uniform(-10, 10, (options.centres, 2))
    models = [DaskRVR(gamma=GAMMA, candidates=centres, n_jobs=1, **PAPERS)]
    if options.classes:
        models.append(DaskRVC(gamma=GAMMA, candidates=centres, n_jobs=1, **PAPERS))
    with ExitStack() as stack:
        clients = [started(stack, n) for n in options.workers]
        lines = [
            row
            for model in models
            for n_rows in options.rows
            for row in measure(model, clients, n_rows, options)
        ]
    names = [f"{n} worker{'s' * (n > 1)}" for n in options.workers]
    table = report.Table(
        f"{options.chunks} chunks, {options.centres} centres, median of {options.turns}",
        (
            "model",
            " rows",
            "status",
            " functions",
            *(f" {name}, s" for name in names),
            *(f" {name}, ratio" for name in names[1:]),
        ),
        lines,
    )
    print("\n".join([*report.environment_lines(False), "", *table.lines(False)]))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--centres", type=int, default=CENTRES)
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--classes", action="store_true", help="measure a classification too")
    return parser.parse_args()


def started(stack, n_workers):
    """A client of a cluster that is gone in the end, each of its workers warm."""
    cluster = LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        worker_dashboard_address=None,
    )
    stack.enter_context(cluster)
    client = stack.enter_context(Client(cluster, set_as_default=False))
    client.run(warm_up)
    return client


def warm_up():
    import sparsebayes.dask  # noqa: F401 # loads what tasks need


def measure(model, clients, n_rows, options):
    """Seconds of each fit: a row of the table. The models have to be equal to the last bit."""
    name = type(model).__name__
    rows = {
        client: held(client, n_rows, options.chunks, classes=isinstance(model, DaskRVC)) for client in clients
    }
    took, fitted = {client: [] for client in clients}, []
    for turn in range(options.turns):
        for client in clients:
            progress(f"{name}, {n_rows} rows, turn {turn + 1}, {len(client.ncores())} workers")
            model.set_params(client=client)
            start = time.perf_counter()
            model.fit(*rows[client])
            took[client].append(time.perf_counter() - start)
            fitted.append((model.active_, model.mu_, model.alpha_))
    for other in fitted[1:]:
        for ours, theirs in zip(fitted[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    first, *others = (statistics.median(took[client]) for client in clients)
    yield (
        name,
        f"{n_rows:,}",
        model.status_,
        str(len(model.active_)),
        *(f"{seconds:.2f}" for seconds in (first, *others)),
        *(f"{first / seconds:.2f}" for seconds in others),
    )


def held(client, n_rows, n_chunks, *, classes):
    """X and y on the workers."""
    size = -(-n_rows // n_chunks)
    sizes = tuple(min(size, n_rows - start) for start in range(0, n_rows, size))
    both = da.map_blocks(block, np.array(classes), chunks=(sizes, (3,)), dtype=float, meta=np.empty((0, 3)))
    X, y = client.persist([both[:, :2], both[:, 2]])
    with client.as_current():
        wait([X, y])
    return X, y


def block(classes, block_info=None):
    """Rows of one chunk: two inputs, and the target or the label."""
    number, (n, _) = block_info[None]["chunk-location"][0], block_info[None]["chunk-shape"]
    rng = np.random.default_rng([1, number])
    X = rng.uniform(-10, 10, (n, 2))
    f = np.sinc(np.linalg.norm(X, axis=1) / np.pi)
    y = rng.random(n) < 1 / (1 + np.exp(2 - 8 * f)) if classes else f + 0.1 * rng.normal(size=n)
    return np.column_stack([X, y])


if __name__ == "__main__":
    main()
