"""Strategies for arguments other than data: sound, unsound and arbitrary values for each name."""

import enum
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sparsebayes.kernels import (
    Custom,
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    OnColumns,
    Polynomial,
    Sigmoid,
)


class Ours(Exception):
    """Raised by callables of the tests; must reach the caller unchanged."""


class Text(str):
    """A subclass of str."""


class Real(float):
    """A subclass of float."""


class Level(enum.IntEnum):
    """A subclass of int."""

    TWO = 2


class Awkward:
    """An object whose conversions and comparisons fail."""

    def __float__(self):
        raise Ours("float")

    def __eq__(self, other):
        raise Ours("eq")

    __hash__ = object.__hash__

    def __bool__(self):
        raise Ours("bool")


def _raises(*args, **kwargs):
    raise Ours("called")


#: Values that few arguments take, or none.
JUNK = [
    *(None, True, False, np.bool_(True), 0, 1, 2, 3, -1, -2, 10**6, 2**63, 2**64, -(2**70), 10**400),
    *(0.0, -0.0, 0.5, 1.0, 2.5, -1.0, 1e-300, 5e-324, 1e300, float("nan"), float("inf"), -float("inf")),
    *(np.float32(0.5), np.float16(2.0), np.longdouble(1.5), np.int8(3), np.uint64(2**63), np.float64("nan")),
    *(1j, np.complex128(1.0), Decimal("1.5"), Fraction(1, 3), Level.TWO, Real(0.5), Text("rbf"), Text("abc")),
    *("", "scale", "abc", "\ud800", "a\0b", "1", b"", b"abc", bytearray(b"x"), "x" * 5000),
    *([], [1], [0.5, 1.5], [None], ["a", "b"], [[]], [[1.0], [1.0, 2.0]], (), (1,), (0.0, 0.0), {}),
    *({"a": 1}, {1, 2}, object(), Awkward(), object, int, len, _raises, lambda: None, np.random, np.float64),
    *(np.array(0.5), np.array([]), np.array([1.0, 2.0]), np.eye(2), np.zeros((2, 2, 2)), np.array(["a"])),
    *(np.array([1.0, None], dtype=object), np.datetime64("2020-01-01"), np.timedelta64(3, "s")),
    *(pd.NA, pd.NaT, pd.Series([1.0]), pd.DataFrame({"a": [1.0]}), np.ma.masked, Ellipsis, NotImplemented),
    *(slice(None), range(3)),
    *(Path("no-such-directory/file"), np.random.default_rng(0), Gaussian(1.0), Linear, StandardScaler()),
]


def _silent(record):
    return None


def _stop(record):
    return True


def cosine(X, Z):
    return np.cos(X @ Z.T / (1.0 + np.abs(X).max(initial=0.0) ** 2))


def _squares(X):
    return X**2


NAMES = ["rbf", "laplacian", "poly", "linear", "sigmoid", "linear_spline"]
KERNELS = [
    *NAMES,
    *(Gaussian(1.0), Gaussian([0.5, 2.0]), Laplacian(0.5), Linear(), LinearSpline(), Polynomial(2)),
    *(Gaussian(1.0) + Linear(), Gaussian(2.0) * Linear(), OnColumns("rbf", 0), OnColumns(Linear(), [0, -1])),
    *(Sigmoid(0.1), OnColumns("rbf", "x0"), cosine, Custom(cosine), ["rbf", "linear"]),
    *((Gaussian(1.0), "poly"), "precomputed"),
]
UNSOUND_KERNELS = [
    *(lambda X, Z: np.zeros(3), lambda X, Z: np.full((len(X), len(Z)), np.nan), lambda X, Z: X @ Z.T + 1j),
    *(lambda X, Z: np.full((len(X), len(Z)), "a"), lambda X, Z: [[1.0], [1.0, 2.0]], lambda X: X, _raises),
    *(Gaussian(1e-150), Gaussian(1e150), Laplacian(1e300), Polynomial(50, 1e10), Polynomial(10**6)),
    *(Sigmoid(1e300), OnColumns("rbf", 7), OnColumns("rbf", "nowhere"), OnColumns("rbf", range(9, 12))),
    *([["rbf"]], [Gaussian], ["rbf", None], ["rbf", "precomputed"], Gaussian([1.0] * 7)),
    Gaussian(1.0) + OnColumns("abc", 0),
]

#: For each argument of a constructor the values that it accepts (at least in some calls), and the values that
#: it refuses. The tests fail if a constructor has an argument that is not here.
ARGUMENTS = {
    "kernel": (KERNELS, UNSOUND_KERNELS),
    "gamma": (
        ["scale", "auto", "learn", "ard", 0.1, 1.0, 10, np.float32(0.5), Fraction(1, 2)],
        [1e-300, 1e300, 5e-324, Real(0.1)],
    ),
    "degree": ([1, 2, 3, np.int8(2), Level.TWO], [0, 2.0, 60, 10**6, 2**40]),
    "coef0": ([0.0, 1.0, -1, 0.5], [1e300, -1e150]),
    "fit_intercept": ([True, False, 0, 1, np.bool_(True)], ["yes", 2]),
    "complexity": (["none", 0.0, 0.5, "aic", "bic", "ebic", np.float64(1)], ["much", -1.0, np.nan, None]),
    "penalize_intercept": ([True, True, False, np.bool_(False)], ["no", 2]),
    "optimize_kernel": ([False, False, False, False, True, np.bool_(False)], [1, "yes"]),
    "noise_variance": (
        [None, None, None, 0.1, 1, np.float32(1e-3), [0.1, 0.2], np.array([1.0, 2.0])],
        [1e-300, 1e300, 0, [0.1, np.nan], [0.1] * 3, [[0.1, 0.2]], np.array([1.0, -1.0])],
    ),
    "shared_noise": ([False, True], [1, "yes"]),
    "extra_basis": (
        [None, None, "linear", StandardScaler(), PolynomialFeatures(2), _squares],
        [lambda X: None, _raises, lambda X: X[:1], lambda X: X * np.nan, np.ones((4, 1)), "cubic"],
    ),
    "unpenalized": ([None, None, None, "all", 0, [0], [0, -1], "x0"], [[9], ["nowhere"], [], 1.5, {0}]),
    "noise_basis": ([None, None, None, "linear", _squares], [lambda X: X * np.nan, "cubic", np.ones((4, 1))]),
    "allow_dense": ([True, True, False, np.bool_(False)], ["no", 2]),
    "groups": ([None, None, None, 1, 2, [0, 0], ["a", "b"]], [0, [1], 1.5, "x", {}, [[0], [1, 2]], True]),
    "std": (["plain", "full"], [None, "grow", 1]),
    "scheme": (["sequential", "sequential", "mackay", "em", "variational"], ["Sequential", b"em"]),
    "alpha_prior": (
        [(0.0, 0.0), (0.0, 0.0), (1e-3, 1e-3), [1, 1.0], np.array([0.0, 1e-6]), (2.0, 5.0)],
        [(1.0, 0.0), (-1.0, 1.0), (np.nan, 0.0), (1e300, 1e300), (0.0, 1e300), (1e-300, 1e-300), ("a", "b")],
    ),
    "noise_prior": (
        [(0.0, 0.0), (0.0, 0.0), (1e-3, 1e-3), [1, 1.0], (2.0, 5.0), (1.0, 0.0)],
        [(-1.0, 1.0), (np.nan, 0.0), (1e300, 1e300), (0.0, 1e300), (1e300, 0.0), (None, 0.0)],
    ),
    "candidates": (
        ["auto", None, 1, 3, 50, np.int64(2), np.zeros((1, 2)), [[0.5, 1.0]], pd.DataFrame(np.eye(2))],
        [0, 2.0, "all", np.zeros((0, 2)), np.full((2, 2), np.nan), [1, 2], [["a", "b"]], 1e300 * np.eye(2)],
    ),
    "random_state": ([None, 0, 1, np.int64(7), np.random.RandomState(0), np.random], [-1, 2**33, "abc"]),
    "memory_limit": (
        [None, None, 10**9, "1GiB", "500 MB", 1, "1kB", 2000],
        [0, "a lot", "-1GB", 1.5, "9" * 400],
    ),
    "checkpoint": ([None], []),  # the tests add paths
    "search": (["greedy", "greedy", "exchange"], ["all"]),
    "landmarks": (["auto", "auto", None, 0, 1, np.int64(5), 200], ["all", -1, 2.0, 2**70, b"auto"]),
    "multi_class": (["ovr", "ovr", "softmax"], ["ovo"]),
    "class_weight": (
        [None, None, None, "balanced", {}, {0: 2.0, 1: 0.5}, {"a": 1}, {0: 3, 1.0: 2, "b": 1e-3}],
        ["even", 2.0, {7: 2.0}, {0: 0.0}, {0: -1.0, 1: 1.0}, {0: "a"}, {1: np.nan}, [1.0, 2.0]],
    ),
    "likelihood": (
        ["gaussian", "gaussian", "student_t", "poisson", "negative_binomial", "gamma"],
        ["bernoulli", "multinomial", None],
    ),
    "dispersion": ([None, None, 0.5, 1e-6, 1e4], [0.0, -1.0, 1e5, "one"]),
    "degrees_of_freedom": ([None, None, 3, 2.1, 1000.0], [2, 1e9, "many"]),
    "convergence": (["conv1", "conv2", "convA", "convN"], ["conv3"]),
    "min_iter_factor": ([1, 0.5, 2.0], [1e300, 1e-300, 1e9]),
    "tau": ([1e-6, 1e-3, 1.0], [1e300, 1e-300, 0]),
    "upsilon": ([1e-6, 1e-3, 1.0], [1e300, 1e-300, 0]),
    "prune": ([True, False], ["yes"]),
    "n_quadrature": ([None, None, 1, 5, 20], [0, 10**5, 2.0]),
    "ridge": ([3e-3, 1e-6, 1.0], [0, 1e300, 1e-300]),
    "tol": ([1e-6, 1e-3, 1e-9, 0.5], [1e-300, 1e300]),
    "max_iter": ([1, 2, 30, 300, np.int64(5), Level.TWO], [2**31, 2**63, 1.5]),
    "n_jobs": ([None, 1, 2, -1, np.int8(2)], [1000, 2**31, 2**64, 1.5]),
    "verbose": ([0, 0, 0, 1, False, True], [2**64, "loud"]),
    "callback": ([None, None, _silent, _stop], [lambda record: np.ones(2), _raises, lambda: None, "print"]),
}


@st.composite
def values(draw, name, extra=()):
    """Draw a value for a constructor's argument: mostly sound, sometimes not, sometimes anything."""
    sound, unsound = ARGUMENTS[name]
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.sampled_from(JUNK))
    if kind == 1 and unsound:
        return draw(st.sampled_from(unsound))
    return draw(st.sampled_from([*sound, *extra]))


@st.composite
def arguments(draw, names, most=4, extra=None):
    """Draw values for some of these arguments."""
    chosen = draw(st.lists(st.sampled_from(sorted(names)), max_size=most, unique=True))
    return {name: draw(values(name, (extra or {}).get(name, ()))) for name in chosen}
