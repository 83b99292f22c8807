"""The model of `bench_serving.py` and its peers: twenty Gaussian functions of ten inputs and an intercept."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import PAPERS
from sklearn.svm import SVR

from sparsebayes import RVR, Predictor

GAMMA = 0.05
N_FEATURES = 10
N_FUNCTIONS = 20
#: A fit keeps as many functions as the data are worth: data are drawn until it is twenty and the intercept.
MOST_DRAWS = 1000
#: Far below the accuracy of any model, far above rounding.
SAME = 1e-9


@dataclass(frozen=True)
class Contest:
    """Models that predict the same kind of thing at the same cost in kernel values, and some rows."""

    est: RVR
    served: Predictor
    #: With as many support vectors as ours has functions.
    svr: SVR
    #: On the same training rows as ours, at scikit-learn's defaults but for the kernel's gamma.
    full_svr: SVR
    X: np.ndarray

    @property
    def formula(self):
        return Formula.of(self.est)


@dataclass(frozen=True)
class Formula:
    """The mean written in NumPy, as one would to get rid of an estimator."""

    points: np.ndarray
    weights: np.ndarray
    intercept: float
    squares: np.ndarray

    @classmethod
    def of(cls, est):
        points = est.relevance_vectors_
        return cls(points, est.dual_coef_[0], float(est.intercept_[0]), (points**2).sum(axis=1))

    def one(self, x):
        return np.exp(-GAMMA * ((self.points - x) ** 2).sum(axis=1)) @ self.weights + self.intercept

    def rows(self, X):
        squares = (X**2).sum(axis=1)[:, None] + self.squares - 2.0 * X @ self.points.T
        return np.exp(-GAMMA * squares) @ self.weights + self.intercept

    def rows_in_blocks(self, X, size=4096):
        """The same on rows that fit into a cache."""
        return np.concatenate([self.rows(X[start : start + size]) for start in range(0, len(X), size)])


def make(n_rows):
    """Fit ours and the peers; ``n_rows`` rows to predict."""
    est, X, y = fitted()
    svr = SVR(gamma=GAMMA, epsilon=0.0).fit(X[:N_FUNCTIONS], y[:N_FUNCTIONS])
    if len(svr.support_) != N_FUNCTIONS:
        raise SystemExit(f"SVR kept {len(svr.support_)} of {N_FUNCTIONS} rows")
    rng = np.random.default_rng(0)
    contest = Contest(
        est=est,
        served=est.to_predictor(),
        svr=svr,
        full_svr=SVR(gamma=GAMMA).fit(X, y),
        X=rng.normal(size=(n_rows, N_FEATURES)),
    )
    check(contest)
    return contest


def fitted():
    for seed in range(MOST_DRAWS):
        X, y = draw(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            est = RVR(gamma=GAMMA, **PAPERS).fit(X, y)
        if len(est.relevance_) == N_FUNCTIONS and -1 in est.active_:
            return est, X, y
    raise SystemExit(f"no fit of {MOST_DRAWS} keeps {N_FUNCTIONS} functions and the intercept")


def draw(seed, n=200):
    """Noisy values of a sum of Gaussian functions."""
    rng = np.random.default_rng(seed)
    X, centres = rng.normal(size=(n, N_FEATURES)), rng.normal(size=(N_FUNCTIONS, N_FEATURES))
    squares = ((X[:, None] - centres) ** 2).sum(axis=2)
    y = 3.0 + np.exp(-GAMMA * squares) @ rng.normal(scale=3.0, size=N_FUNCTIONS)
    return X, y + 0.5 * rng.normal(size=n)


def check(contest):
    """No time counts for a wrong answer: every form of the model predicts the same."""
    X, formula = contest.X[:100], contest.formula
    expected, std = contest.est.predict(X, return_std=True)
    pairs = [contest.served.predict_one(x, return_std=True) for x in X]
    for got in (formula.rows(X), [formula.one(x) for x in X], contest.served.predict(X)):
        np.testing.assert_allclose(got, expected, rtol=SAME)
    np.testing.assert_allclose(pairs, np.column_stack([expected, std]), rtol=SAME)


class OnnxSession:
    """The model exported to ONNX, run by onnxruntime on one thread; None of it where either is missing."""

    def __init__(self, session):
        self.session = session
        self.input = session.get_inputs()[0]
        self.dtype = np.float64 if "double" in self.input.type else np.float32
        self.mean = [session.get_outputs()[0].name]

    @classmethod
    def of(cls, contest):
        """Return the session, or what is missing for one."""
        try:
            import onnxruntime

            from sparsebayes import to_onnx
        except ImportError as error:
            return str(error)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        content = to_onnx(contest.est).SerializeToString()
        found = cls(onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))
        X = contest.X[:100]
        np.testing.assert_allclose(np.ravel(found.run(found.ready(X))), contest.est.predict(X), rtol=1e-4)
        return found

    def ready(self, X: Any):
        return np.ascontiguousarray(X, dtype=self.dtype)

    def run(self, X):
        return self.session.run(self.mean, {self.input.name: X})[0]

    def run_all(self, X):
        return self.session.run(None, {self.input.name: X})
