"""The problems and the methods of `bench_peers.py`: everything is synthesised from a seed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import ARDRegression
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR, SparseBayesRegressor

try:
    import fastrvm
except ImportError:  # it has wheels for Linux only
    fastrvm = None

#: exp(-gamma r^2): the widths of Tipping & Faul (2003), section 5, are 2.5 and 1.
SURFACE_GAMMA = 1 / 2.5**2
MIXTURE_GAMMA = 1.0

#: Ripley's synthetic problem: centres of the two components of each of the two classes.
CENTRES = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
COMPONENT_VARIANCE = 0.03

#: The model of the papers, which the peers have too: no priors but those of the precisions.
PAPERS = {"penalize_intercept": True, "complexity": "none"}
#: Tipping & Faul (2003): every row is a candidate.
EVERY_ROW: dict[str, Any] = PAPERS | {"candidates": None}

NOISE = 0.1
INFORMATIVE = 20


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray


def sinc(X):
    """The true surface, sin(r) / r."""
    return np.sinc(np.linalg.norm(X, axis=1) / np.pi)


def surface(n, seed=0):
    """The 2-D sinc of Tipping & Faul (2003), section 5.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return Data(X, sinc(X) + NOISE * rng.normal(size=n))


def mixture(n, seed=0):
    """Two classes, equally likely, each a mixture of two Gaussians (Ripley; section 5.2)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    spread = np.sqrt(COMPONENT_VARIANCE) * rng.normal(size=(n, 2))
    return Data(CENTRES[y, rng.integers(0, 2, n)] + spread, y)


def columns(n, seed=0):
    """A dense design of n / 4 columns, of which 20 matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n // 4))
    weights = rng.normal(size=INFORMATIVE)
    inside = rng.choice(n // 4, INFORMATIVE, replace=False)
    return Data(X, X[:, inside] @ weights + NOISE * rng.normal(size=n))


@dataclass(frozen=True)
class Method:
    """A way to make an unfitted estimator."""

    name: str
    make: Callable[[], Any]

    def fit(self, data):
        return self.make().fit(data.X, data.y)


def fastrvm_method(name, gamma):
    # Its solver does not always end within fewer steps. All else is at its defaults.
    return Method(f"fastrvm {name}", lambda: getattr(fastrvm, name)(gamma=gamma, max_iter=10_000))


OUR_RVR = Method("RVR", lambda: RVR(gamma=SURFACE_GAMMA, **EVERY_ROW))
OUR_RVC = Method("RVC", lambda: RVC(gamma=MIXTURE_GAMMA, **EVERY_ROW))
OUR_COLUMNS = Method("SparseBayesRegressor", lambda: SparseBayesRegressor(**PAPERS))
ONE_THREAD = Method("RVR, n_jobs=1", lambda: RVR(gamma=SURFACE_GAMMA, n_jobs=1, **EVERY_ROW))
TWO_THREADS = Method("RVR, n_jobs=2", lambda: RVR(gamma=SURFACE_GAMMA, n_jobs=2, **EVERY_ROW))
LIBSVM_SVR = Method("SVR", lambda: SVR(gamma=SURFACE_GAMMA, C=1.0, epsilon=0.1))
LIBSVM_SVC = Method("SVC", lambda: SVC(gamma=MIXTURE_GAMMA, C=1.0))
CALIBRATED_SVC = Method(
    "calibrated SVC",
    lambda: CalibratedClassifierCV(SVC(gamma=MIXTURE_GAMMA, C=1.0), ensemble=False),
)
ARD = Method("ARDRegression", lambda: ARDRegression(fit_intercept=False))
FASTRVM_RVR = fastrvm_method("RVR", SURFACE_GAMMA)
FASTRVM_RVC = fastrvm_method("RVC", MIXTURE_GAMMA)


def is_installed(method):
    return fastrvm is not None or method not in (FASTRVM_RVR, FASTRVM_RVC)


def n_functions(model):
    """Number of basis functions, relevance or support vectors in a fitted model."""
    if isinstance(model, CalibratedClassifierCV):
        model = model.calibrated_classifiers_[0].estimator
    if isinstance(model, ARDRegression):
        return int(np.count_nonzero(kept_by_ard(model)))
    for name in ("active_", "support_", "relevance_"):
        if hasattr(model, name):
            return len(getattr(model, name))
    raise TypeError(type(model).__name__)


def kept_by_ard(model):
    """Which columns `ARDRegression` has not pruned."""
    return model.lambda_ < model.threshold_lambda
