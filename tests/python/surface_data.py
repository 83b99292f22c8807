"""Strategies for data: arrays of any shape, type, layout and value, and objects that are not arrays."""

import pickle
import warnings
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from scipy import sparse

try:
    import pyarrow as pa
except ImportError:  # pragma: no cover
    pa = None


@dataclass
class Given:
    """Data for a call, and its content before the call."""

    value: Any
    #: Whether a fit has to accept these numbers or labels, if all other arguments are sound.
    sound: bool
    note: str
    before: bytes | None = None

    def __post_init__(self):
        self.before = content(self.value)

    def __repr__(self):
        return f"<{self.note}: {self.value!r}>"

    def assert_unchanged(self):
        assert content(self.value) == self.before, f"changed by the call: {self!r}"


def content(value):
    """Return the content of data as bytes; None for iterators, which reading consumes."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.array(value, subok=False).tobytes() + str((value.dtype, value.shape)).encode()
    if hasattr(value, "__next__"):
        return None
    if isinstance(value, (pd.DataFrame, pd.Series)):  # pickles contain their caches
        return repr((value.astype(object).to_numpy().tolist(), value.axes)).encode()
    try:
        return pickle.dumps(value)
    except Exception:
        return None


# --- values -----------------------------------------------------------------------------------------


def _plain(rng, shape):
    return rng.normal(size=shape)


#: Functions of a generator and a shape that return finite float64.
VALUES = {
    "normal": _plain,
    "small integers": lambda rng, shape: rng.integers(-4, 5, shape).astype(float),
    "counts": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, 3.5),
    "zero": lambda rng, shape: np.zeros(shape),
    "negative zero": lambda rng, shape: -np.zeros(shape),
    "repeated rows": lambda rng, shape: np.repeat(_plain(rng, shape), 2, axis=0)[: shape[0]],
    "ranks": lambda rng, shape: np.arange(np.prod(shape), dtype=float).reshape(shape),
    "decades": lambda rng, shape: 10.0 ** rng.uniform(-12, 12, shape),
    "all decades": lambda rng, shape: 10.0 ** rng.uniform(-320, 308, shape),
    "denormal": lambda rng, shape: rng.integers(-9, 10, shape) * 5e-324,
    "1e-300": lambda rng, shape: 1e-300 * _plain(rng, shape),
    "1e-150": lambda rng, shape: 1e-150 * _plain(rng, shape),
    "1e150": lambda rng, shape: 1e150 * _plain(rng, shape),
    "1e300": lambda rng, shape: 1e300 * _plain(rng, shape),
    "largest": lambda rng, shape: np.sign(_plain(rng, shape)) * np.finfo(float).max,
    "one outlier": lambda rng, shape: np.where(
        rng.permuted(np.arange(np.prod(shape)).reshape(shape)) == 0, 1e12, 1.0
    ),
    "far away": lambda rng, shape: 1e9 + _plain(rng, shape),
}
#: These are drawn as often as all others together.
USUAL = ["normal", "small integers", "counts"]
#: Values that replace one value.
PLANTED = [np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0]


@st.composite
def floats(draw, shape, planting=True):
    """Draw an array of float64, mostly finite; return it and whether it is finite."""
    kind = draw(st.one_of(st.sampled_from(USUAL), st.sampled_from(sorted(VALUES))))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    with np.errstate(all="ignore"):
        values = np.array(VALUES[kind](rng, shape), dtype=float).reshape(shape)
    if planting and values.size and draw(st.integers(0, 9)) == 0:
        values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(PLANTED))
    return values


# --- forms that hold the same values ----------------------------------------------------------------


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array):
    wide = np.full(tuple(3 * n for n in array.shape), np.nan)
    view = wide[tuple(slice(1, None, 3) for _ in array.shape)]
    view[...] = array
    return view


def reversed_view(array):
    backwards = tuple(slice(None, None, -1) for _ in array.shape)
    return array[backwards].copy()[backwards]


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
    view = raw[1:].view(np.float64).reshape(array.shape)
    view[...] = array
    return view


def broadcast(array):
    """Return equal rows as one row that is broadcast; a copy if rows differ."""
    if len(array) and (array == array[:1]).all():
        return np.broadcast_to(array[:1].copy(), array.shape)
    return array.copy()


class Subclass(np.ndarray):
    """A subclass of arrays."""


class Convertible:
    """An object with a method that converts it to an array."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype=dtype)


#: Layouts that keep every bit of a float64.
LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "transposed copy": lambda a: a.T.copy().T,
    "read-only": read_only,
    "strided": strided,
    "reversed": reversed_view,
    "unaligned": unaligned,
    "broadcast": broadcast,
    "big-endian": lambda a: a.astype(">f8"),
    "long double": lambda a: a.astype(np.longdouble),
    "subclass": lambda a: a.copy().view(Subclass),
    "masked array": lambda a: np.ma.masked_array(a.copy()),
}


def _pandas(a):
    return pd.DataFrame(a) if a.ndim == 2 else pd.Series(a)


def _named(a):
    if a.ndim == 2:
        return pd.DataFrame(a, columns=[f"x{i}" for i in range(a.shape[1])])
    return pd.Series(a, name="y")


def _objects(convert):
    """Convert each finite number, and give an array of objects."""

    def converted(a):
        values = [convert(x) if np.isfinite(x) else x for x in a.ravel().tolist()]
        return np.array([*values, None], dtype=object)[:-1].reshape(a.shape)

    return converted


def _integers(dtype):
    def convert(a):
        info = np.iinfo(dtype)
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.clip(a, float(info.min) / 2, float(info.max) / 2)).astype(dtype)

    return convert


def _narrow(dtype):
    def convert(a):
        with np.errstate(all="ignore"):
            return a.astype(dtype)

    return convert


#: Conversions that keep the numbers, perhaps rounded.
CONVERSIONS = {
    "float32": _narrow(np.float32),
    "float16": _narrow(np.float16),
    "int8": _integers(np.int8),
    "int64": _integers(np.int64),
    "uint16": _integers(np.uint16),
    "uint64": _integers(np.uint64),
    "bool": lambda a: a > 0,
    "objects": lambda a: a.astype(object),
    "lists": lambda a: a.tolist(),
    "tuples": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist()),
    "lists of NumPy numbers": lambda a: [list(row) for row in a] if a.ndim == 2 else list(a),
    "fractions": _objects(Fraction),
    "huge Python integers": lambda a: _objects(int)(np.nan_to_num(a)),
    "data frame": _named,
    "data frame without names": _pandas,
    "nullable data frame": lambda a: _pandas(a).astype("Float64"),
    "convertible": Convertible,
    "memoryview": lambda a: memoryview(np.ascontiguousarray(a)),
}

# --- objects that are not arrays of numbers ---------------------------------------------------------


def _ragged(a):
    rows = a.tolist()
    return [*rows[:-1], [*rows[-1], 0.0]] if a.ndim == 2 and rows else [[0.0], *rows]


def _arrow(a):
    if pa is None:
        return None
    return pa.table({f"x{i}": column for i, column in enumerate(a.T)}) if a.ndim == 2 else pa.array(a)


def _structured(a):
    return np.zeros(len(a), dtype=[("x", float), ("y", int)])


def _first_is(value):
    def convert(a):
        found = a.astype(object)
        if found.size:
            found.flat[0] = value
        return found

    return convert


def _matrix(a):
    with warnings.catch_warnings():  # NumPy discourages the class
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(a)


#: From a float array to an object that is refused, or read as other data.
ODDITIES = {
    "complex": lambda a: a + 1j,
    "numbers as text": lambda a: a.astype(str),
    "text": lambda a: np.full(a.shape, "abc"),
    "lone surrogates": _first_is("\ud800"),
    "dates": lambda a: np.full(a.shape, np.datetime64("2020-01-01")),
    "spans of time": lambda a: np.full(a.shape, np.timedelta64(3, "s")),
    "None among them": _first_is(None),
    "pandas.NA among them": _first_is(pd.NA),
    "text among them": _first_is("abc"),
    "a list among them": _first_is([1.0]),
    "Decimal among them": _first_is(Decimal("1.5")),
    "an integer of 400 digits among them": _first_is(10**400),
    "complex among them": _first_is(1j),
    "structured": _structured,
    "void": lambda a: np.zeros(a.shape, dtype="V8"),
    "categories": lambda a: _pandas(a).astype("category"),
    "ragged": _ragged,
    "sparse rows": lambda a: sparse.csr_matrix(np.nan_to_num(np.atleast_2d(a))),
    "sparse array": lambda a: sparse.coo_array(np.nan_to_num(np.atleast_2d(a))),
    "matrix": _matrix,
    "masked": lambda a: np.ma.masked_array(a.copy(), mask=np.ones(a.shape, bool)),
    "Arrow": _arrow,
    "no dimension": lambda a: np.float64(a.flat[0]) if a.size else np.array(1.0),
    "one dimension": lambda a: a.ravel(),
    "a column": lambda a: a.reshape(-1, 1),
    "three dimensions": lambda a: a[..., np.newaxis, np.newaxis][..., 0] if a.ndim == 2 else a[:, None, None],
    "no columns": lambda a: np.empty((len(a), 0)),
    "no rows": lambda a: a[:0],
    "one row more": lambda a: np.concatenate([a, a[:1]]),
    "a generator": lambda a: (row for row in a.tolist()),
    "a set": lambda a: set(a.ravel().tolist()),
    "a dict": lambda a: {"x": a.tolist()},
    "a number": lambda a: 3,
    "None": lambda a: None,
    "a word": lambda a: "abc",
    "bytes": lambda a: b"abc",
    "an object": lambda a: object(),
    "a function": lambda a: len,
    "a class": lambda a: np.ndarray,
    "columns of one name": lambda a: pd.DataFrame(a, columns=["x"] * a.shape[1]) if a.ndim == 2 else a,
    "columns of mixed names": lambda a: (
        pd.DataFrame(a, columns=["x", *range(1, a.shape[1])]) if a.ndim == 2 and a.shape[1] else a
    ),
}


@st.composite
def arrays(draw, shape, oddities=1 / 8):
    """Draw data of this shape in any form; the share ``oddities`` of them are not arrays of numbers."""
    base = draw(floats(shape))
    odd = draw(st.integers(0, 999)) < 1000 * oddities
    if odd:
        form = draw(st.sampled_from(sorted(ODDITIES)))
        return Given(ODDITIES[form](base), False, form)
    forms = LAYOUTS | CONVERSIONS
    form = draw(
        st.one_of(st.just("C order"), st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(forms)))
    )
    return Given(forms[form](base), bool(np.isfinite(base).all()), form)


# --- labels -----------------------------------------------------------------------------------------

#: From class numbers to labels that a classifier takes.
LABELS = {
    "int64": lambda c: c.astype(np.int64),
    "uint8": lambda c: c.astype(np.uint8),
    "floats": lambda c: c.astype(float),
    "large floats": lambda c: c * 1e300,
    "negative": lambda c: -c,
    "bool": lambda c: c > 0,
    "text": lambda c: np.array(["a", "bc", "d"])[c],
    "text as objects": lambda c: np.array(["a", "bc", "d"], dtype=object)[c],
    "lone surrogates": lambda c: np.array(["a", "\ud800", "d"])[c],
    "a list of text": lambda c: np.array(["a", "bc", "d"])[c].tolist(),
    "a list of integers": lambda c: c.tolist(),
    "a column": lambda c: c.reshape(-1, 1),
    "series": lambda c: pd.Series(c),
    "series of text": lambda c: pd.Series(np.array(["a", "bc", "d"])[c]),
    "categories": lambda c: pd.Series(np.array(["a", "bc", "d"])[c]).astype("category"),
    "nullable": lambda c: pd.Series(c).astype("Int64"),
    "big-endian": lambda c: c.astype(">i4"),
    "strided": lambda c: np.repeat(c, 2)[::2],
    "float16": lambda c: c.astype(np.float16),
}
#: Labels that a classifier refuses, or may refuse.
UNSOUND_LABELS = {
    "bytes": lambda c: c.astype("S"),
    "dates": lambda c: np.datetime64("2020-01-01") + c,
    "spans of time": lambda c: c.astype("m8[s]"),
    "complex": lambda c: c + 1j,
    "halves": lambda c: c + 0.5,
    "integers as objects": lambda c: c.astype(object),
    "fractions": lambda c: np.array([Fraction(int(x), 2) for x in c] + [None], dtype=object)[:-1],
    "mixed": lambda c: np.array([["a", 1, 2.5][x] for x in c], dtype=object),
    "None among them": lambda c: np.array([[None, "b", "c"][x] for x in c], dtype=object),
    "NaN among them": lambda c: np.array([[np.nan, 1, 2][x] for x in c]),
    "pandas.NA among them": lambda c: pd.Series([[pd.NA, 1, 2][x] for x in c], dtype="Int64"),
    "tuples": lambda c: [(x, x) for x in c.tolist()],
    "one-hot": lambda c: np.eye(3)[c],
    "sets": lambda c: [{x} for x in c.tolist()],
    "huge integers": lambda c: np.array([10**30 * int(x) for x in c] + [None], dtype=object)[:-1],
    "one class": lambda c: np.zeros_like(c),
}


@st.composite
def labels(draw, n, oddities=1 / 8):
    """Draw labels of n rows."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n_classes = draw(st.integers(2, 3))
    classes = rng.permutation(np.arange(n) % n_classes)
    kind = draw(st.integers(0, 999))
    if kind < 500 * oddities:
        form = draw(st.sampled_from(sorted(UNSOUND_LABELS)))
        return Given(UNSOUND_LABELS[form](classes), False, form)
    if kind < 1000 * oddities:
        return draw(arrays((n,), oddities=1.0))
    form = draw(st.sampled_from(sorted(LABELS)))
    return Given(LABELS[form](classes), n >= 2, form)


@st.composite
def weights(draw, n, oddities=1 / 8):
    """Draw sample weights of n rows; half of the time there are none."""
    if draw(st.booleans()):
        return Given(None, True, "None")
    if draw(st.integers(0, 5)) == 0:
        numbers = [1, 2.5, np.float32(0.5), 0, -1, np.nan, np.inf, True, 1j, 10**400, 1e300]
        value = draw(st.sampled_from(numbers))
        return Given(value, value is not True and value in (1, 2.5, 0.5), "a number")
    found = draw(arrays((n,), oddities))
    if isinstance(found.value, np.ndarray) and found.value.dtype.kind in "fi" and draw(st.integers(0, 4)):
        with np.errstate(all="ignore"):
            positive = np.abs(found.value)
        return Given(positive, found.sound and bool((positive > 0).any()), f"{found.note}, positive")
    return Given(found.value, False, found.note)


@dataclass
class Table:
    """Rows, targets and weights for one call."""

    X: Given
    y: Given
    sample_weight: Given
    n_features: int

    @property
    def sound(self):
        return self.X.sound and self.y.sound and self.sample_weight.sound

    def assert_unchanged(self):
        for part in (self.X, self.y, self.sample_weight):
            part.assert_unchanged()


@st.composite
def tables(draw, classes, n_features=None, oddities=1 / 16):
    """Draw data for a fit, with labels if ``classes``."""
    n, d = draw(st.integers(0, 12)), draw(st.integers(0, 5)) if n_features is None else n_features
    if n_features is None and draw(st.integers(0, 3)):
        n, d = max(n, 4), max(d, 1)
    X = draw(arrays((n, d), oddities))
    m = n if draw(st.integers(0, 15)) else draw(st.integers(0, 12))
    if classes:
        y = draw(labels(m, oddities))
    else:
        n_outputs = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
        y = draw(arrays((m, n_outputs) if n_outputs else (m,), oddities))
    w = draw(weights(n, oddities))
    return Table(X, y, w, d)
