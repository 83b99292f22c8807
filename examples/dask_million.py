"""Fit a regression and a classification on a Dask cluster, with a million rows or fewer.

The workers generate the rows and keep them. By default there are few rows, and the cluster is two processes
on this computer; ``--scheduler tcp://...`` names another cluster. The program prints the number of rows,
the seconds, the number of functions in the model, and its accuracy on new rows.
"""

import argparse
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from sparsebayes.dask import DaskRVC, DaskRVR


def main():
    """Fit, and print a line for each model."""
    options = parse()
    with cluster(options.scheduler) as address, Client(address) as client:
        X, _, y, label = rows(options.rows, seed=0)
        unseen, truth, _, its_label = rows(options.rows // 10, seed=1)

        regression = DaskRVR(gamma=0.16, candidates=options.centres, random_state=0, client=client)
        seconds = timed(regression.fit, X, y)
        # Predictions are collections too: each chunk sends one number, and the client adds them.
        error = float(da.sqrt(((regression.predict(unseen) - truth) ** 2).mean()).compute())
        report("DaskRVR", len(X), seconds, regression, f"root mean square error {error:.3f}")

        classes = DaskRVC(gamma=0.16, candidates=options.centres, random_state=0, client=client)
        seconds = timed(classes.fit, X, label)
        right = classes.score(unseen, its_label)
        report("DaskRVC", len(X), seconds, classes, f"{100 * right:.1f} % right")

        # The model itself is small and needs no cluster.
        print(f"at the origin {regression.to_local().predict([[0.0, 0.0]])[0]:.2f}, in truth 1")


def parse():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--centres", type=int, default=150)
    parser.add_argument(
        "--scheduler", help="address of a scheduler; without one two workers are started here"
    )
    return parser.parse_args()


def cluster(address):
    """Return a cluster to connect to."""
    if address is not None:
        return Given(address)
    return LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None
    )


class Given:
    """The address of a running cluster, which this program must not close."""

    def __init__(self, address):
        self.address = address

    def __enter__(self):
        return self.address

    def __exit__(self, *error):
        pass


def rows(n, seed):
    """Return inputs, the sinc of their distance from the origin, the same with noise 0.1, and labels."""
    random = da.random.default_rng(seed)
    chunk = max(1, n // 8)
    X = random.uniform(-10, 10, (n, 2), chunks=(chunk, 2))
    f = da.map_blocks(sinc, X, dtype=float, drop_axis=1, meta=np.empty(0))
    y = f + 0.1 * random.normal(size=n, chunks=chunk)
    likely = random.uniform(size=n, chunks=chunk) < 1 / (1 + da.exp(2 - 8 * f))
    return X, f, y, da.where(likely, "near", "far")


def sinc(X):
    """Return the sinc of the distance from the origin."""
    return np.sinc(np.linalg.norm(X, axis=1) / np.pi)


def timed(fit, *data):
    """Return the seconds of a fit."""
    start = time.perf_counter()
    fit(*data)
    return time.perf_counter() - start


def report(name, n, seconds, model, quality):
    """Print a line."""
    print(
        f"{name}: {n} rows in {seconds:.1f} s, {len(model.relevance_)} functions, {model.status_}; {quality}"
    )


if __name__ == "__main__":
    main()
