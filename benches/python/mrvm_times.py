"""Time of `fit` of the multinomial probit machines beside scikit-learn's probabilistic classifiers."""

import numpy as np
import sets2010
from peers import Data, Method, n_functions
from report import Table, number
from rows import Target
from runs import duel, progress
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from sparsebayes import MRVM1, MRVM2

HEADINGS = (
    "data",
    " N",
    "ours / peer",
    " ratio",
    " min..max",
    " ours, s",
    " peer, s",
    " functions",
    " target",
    "met",
)


def first_fold(X, y):
    """The training rows of the first of ten folds."""
    train, _ = next(KFold(10, shuffle=True, random_state=0).split(X))
    return X[train], y[train]


def vehicle(runs):
    """With the polynomial kernel of table I, as scikit-learn's Gaussian process writes it."""
    data = next(one for one in sets2010.SETS if one.name == "Vehicle")
    if data.missing:
        return
    X, y = first_fold(*data.load())
    rows, d = Data(StandardScaler().fit_transform(X), y), X.shape[1]
    arguments = {**data.kernel_arguments(d), "fit_intercept": False}
    # (x.z / D + 1)^k = (x.z + D)^k / D^k
    kernel = ConstantKernel(float(d) ** -sets2010.DEGREE) * DotProduct(d**0.5) ** sets2010.DEGREE
    peer = Method("Gaussian process", lambda: GaussianProcessClassifier(kernel, optimizer=None))
    yield duel_row("vehicle", rows, machine(MRVM1, "conv2", arguments), peer, runs, Target("<=", 0.5))
    for rule in ("convA", "convN"):
        yield duel_row("vehicle", rows, machine(MRVM2, rule, arguments), peer, runs, Target("<=", 1.0))


def digits(runs):
    """With a Gaussian kernel, gamma="scale" for both."""
    rows = Data(*first_fold(*load_digits(return_X_y=True)))
    peer = Method("calibrated SVC", lambda: CalibratedClassifierCV(SVC(), ensemble=False))
    for rule, limit in (("conv1", 2.0), ("conv2", 10.0)):
        ours = machine(MRVM1, rule, {"kernel": "rbf", "fit_intercept": False})
        yield duel_row("digits", rows, ours, peer, runs, Target("<=", limit))


def machine(kind, rule, arguments):
    return Method(f"{kind.__name__} {rule}", lambda: kind(**arguments, convergence=rule))


def duel_row(name, data, ours, peer, runs, target):
    progress(name, ours.name, "/", peer.name)
    result = duel(ours, peer, data, runs)
    ratio = float(np.median(result.ratios))
    status = result.our_model.status_
    label = ours.name if status == "converged" else f"{ours.name} ({status})"
    return (
        name,
        str(len(data.y)),
        f"{label} / {peer.name}",
        number(ratio),
        f"{number(min(result.ratios))}..{number(max(result.ratios))}",
        number(float(np.median(result.ours))),
        number(float(np.median(result.peer))),
        str(n_functions(result.our_model)),
        str(target),
        "yes" if target.met(ratio) else "NO",
    )


def times_table(runs):
    title = f"Time of fit: median of {runs} ratios, runs in turns"
    return Table(title, HEADINGS, [*vehicle(runs), *digits(runs)])
