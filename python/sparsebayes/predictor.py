"""Prediction with fitted models, loaded in milliseconds without scikit-learn or SciPy."""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core
from ._checks import PLAIN, check_file, check_flag, check_n_jobs, column_names, naming_column, real_array
from ._types import FloatArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._core import Predictor as CorePredictor


class Predictor:
    """A fitted model that only predicts.

    An estimator's ``to_predictor()`` or `sparsebayes.load` returns it. It is immutable: any number of threads
    may use it. The prediction of a row has the same bits alone and in a batch, for any ``n_jobs``.

    Attributes
    ----------
    n_features_in_, n_functions_ : int
        Number of columns of X, and of basis functions.
    feature_names_in_, classes_ : ndarray, or None
        Names of the columns of X in the fit; labels of the classes, in their original type (long doubles as
        float64).
    estimator : str
        Name of the estimator's class.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR
    >>> X = np.linspace(-5, 5, 60)[:, None]
    >>> served = RVR(gamma=0.5, noise_variance=1e-4).fit(X, np.sin(X[:, 0])).to_predictor()
    >>> round(served.predict_one([0.5]), 2)
    0.48
    """

    _core: CorePredictor
    _flat: bool
    classes_: NDArray[Any] | None
    estimator: str
    feature_names_in_: NDArray[Any] | None
    n_features_in_: int
    n_functions_: int

    def __init__(self, core: CorePredictor | bytes) -> None:
        if isinstance(core, bytes):
            with _file_errors():
                core = _core.Predictor.from_bytes(core)
        header = json.loads(core.header)
        names = header["feature_names"]
        vars(self).update(
            _core=core,
            _flat=header["flat"],
            classes_=_labels(header["classes"]),
            estimator=header["estimator"],
            feature_names_in_=None if names is None else _frozen(np.array(names, dtype=object)),
            n_features_in_=core.n_features,
            n_functions_=core.n_functions,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Predictor is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[type[Predictor], tuple[bytes]]:
        # skops stores an object if its type is the first element.
        return type(self), (self.to_bytes(),)

    def __repr__(self) -> str:
        sizes = f"{self.n_features_in_} features, {self.n_functions_} functions"
        sizes += "" if self.classes_ is None else f", {len(self.classes_)} classes"
        return f"<Predictor of {self.estimator}: {sizes}>"

    def predict(self, X: ArrayLike, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Predict targets: means of regression, or the labels of the most probable classes.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            An array, or a data frame or Arrow table whose columns have the names of the training data.
        n_jobs : int, optional
            Threads for large batches; None or -1: one per core.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)

        Raises
        ------
        TypeError, ValueError
            If X is not a finite numeric matrix with the columns of the training data.
        """
        if self.classes_ is None:
            return self._shaped(self._evaluate(self._core.predict, X, n_jobs))
        labels: NDArray[Any] = self.classes_[self._evaluate(self._core.classify, X, n_jobs)]
        return labels

    def predict_std(self, X: ArrayLike, *, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Predict means and standard deviations of regression targets, each as `predict` returns means."""
        mean, std = self._evaluate(self._core.predict_std, X, n_jobs)
        return self._shaped(mean), self._shaped(std)

    def predict_gradient(self, X: ArrayLike, *, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Return gradients of means and standard deviations in the features, for Bayesian optimisation.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            As for `predict`.
        n_jobs : int, optional
            As for `predict`.

        Returns
        -------
        mean, std : ndarray of shape (n, n_features) or (n, n_outputs, n_features)
            Where a gradient jumps, as at the centre of a Laplacian kernel, it is that of one side.

        Raises
        ------
        TypeError, ValueError
            As for `predict`, and for classes.
        """
        if self.classes_ is not None:
            raise ValueError(f"predict_gradient is for regression; this {self.estimator} predicts classes")
        found = self._evaluate(self._core.predict_gradient, X, n_jobs)
        shape = (-1, self.n_features_in_) if self._flat else (len(found[0]), -1, self.n_features_in_)
        mean, std = (part.reshape(shape) for part in found)
        return mean, std

    def predict_proba(self, X: ArrayLike, *, n_jobs: int | None = None) -> FloatArray:
        """Return class probabilities of shape (n, n_classes), with columns as in ``classes_``."""
        if self.classes_ is None:
            raise ValueError(f"predict_proba is for classes; this {self.estimator} predicts numbers")
        probabilities: FloatArray = self._evaluate(self._core.predict, X, n_jobs)
        return probabilities

    def decision_function(self, X: ArrayLike, *, n_jobs: int | None = None) -> FloatArray:
        """Return linear predictors of shape (n,) or (n, n_outputs), as the estimator does."""
        values: FloatArray = self._evaluate(self._core.decision, X, n_jobs)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_one(self, x: ArrayLike, return_std: bool = False) -> Any:
        """Predict one row, in a microsecond or two.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            A contiguous array of float64 is fastest.
        return_std : bool, default=False
            Whether to return the standard deviation too; regression only.

        Returns
        -------
        float, or ndarray of shape (n_outputs,) or (n_classes,)
            The mean, or the probabilities of classes; with ``return_std`` a tuple of mean and std.
        """
        if type(x) is not np.ndarray or x.dtype != np.float64 or not x.flags.carray:
            x = np.require(real_array("x", x), np.float64, PLAIN)
        if x.ndim != 1:
            raise ValueError(f"x must be one row, of shape ({self.n_features_in_},); got shape {x.shape}")
        if not isinstance(return_std, bool):
            return_std = check_flag("return_std", return_std)
        return self._core.predict_one(x, return_std)

    def predict_into(self, X: ArrayLike, out: FloatArray, *, n_jobs: int | None = None) -> None:
        """Write means, or the probabilities of classes, into an array of float64 in C order.

        If X has NaN or infinities, this raises ValueError, and part of ``out`` may have been written.
        """
        if not isinstance(out, np.ndarray) or out.dtype != np.float64:
            got = f"dtype {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
            raise TypeError(f"out must be an ndarray of float64, got {got}")
        if not out.flags.carray:  # aligned, writeable, in C order
            raise ValueError("out must be aligned, writeable and in C order; pass np.empty(shape)")
        rows = self._rows(X)
        if np.may_share_memory(rows, out):
            rows = rows.copy()
        shape = (len(rows),) if self._flat and self.classes_ is None else None
        if shape is not None and out.shape != shape:
            raise ValueError(f"out must have shape {shape}, got {out.shape}")
        table = out[:, np.newaxis] if out.ndim == 1 else out
        if table.ndim != 2:
            raise ValueError(f"out must have one or two dimensions, got shape {out.shape}")
        with naming_column("X", X):
            self._core.predict_into(rows, table, n_threads=check_n_jobs(n_jobs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file in the format safetensors; an existing file is replaced once it is complete."""
        path = check_file("path", path)
        with _file_errors(path):
            self._core.save(path)

    def to_bytes(self) -> bytes:
        """Return the content of a model file, for `from_bytes`."""
        return self._core.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes | bytearray | memoryview) -> Predictor:
        """Return the predictor in the result of `to_bytes` or the content of a model file.

        The content is checked like a file: see `sparsebayes.load`.
        """
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"content must be bytes, as to_bytes returns them, got {type(content).__name__}")
        return cls(bytes(content))

    def _evaluate(self, method: Callable[..., Any], X: ArrayLike, n_jobs: int | None) -> Any:
        rows, n_threads = self._rows(X), check_n_jobs(n_jobs)
        with naming_column("X", X):
            return method(rows, n_threads=n_threads)

    def _rows(self, X: ArrayLike) -> FloatArray:
        got = column_names(X)
        if got is not None and self.feature_names_in_ is not None:
            expected = self.feature_names_in_.tolist()
            if got != expected:
                raise ValueError(f"X must have the columns {expected}, in this order; got {got}")
        rows = real_array("X", X)
        if rows.ndim != 2:
            raise ValueError(
                f"X must be a matrix of shape (n, {self.n_features_in_}), got shape {rows.shape}; for a "
                "single row use predict_one"
            )
        return np.require(rows, np.float64, PLAIN)

    def _shaped(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self._flat else values


def load(path: str | os.PathLike[str]) -> Predictor:
    """Load a model file, written by ``save`` of an estimator or a `Predictor` of this or an earlier version.

    Nothing in the file is executed and everything is checked, so that untrusted files are safe to load.
    `Predictor.from_bytes` reads the content of a file.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read, or is not a valid model file of this version or an earlier one.
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        raise TypeError("path must be a path, got bytes; Predictor.from_bytes takes the content of a file")
    path = check_file("path", path)
    with _file_errors(path):
        return Predictor(_core.Predictor.load(path))


#: Patterns that remove quotations from the file in the core's messages.
_QUOTATIONS: Final = (
    (re.compile(r"(safetensors file: \w+).*", re.DOTALL), r"\1"),
    (re.compile(r"(invalid type|invalid value|unknown variant|unknown field).*(?=, )", re.DOTALL), r"\1"),
    (re.compile(r"table .* must be of type", re.DOTALL), "tables must be of type"),
)


@contextmanager
def _file_errors(path: str | None = None) -> Iterator[None]:
    """Name the file in errors, as Python does, and remove quotations of its content."""
    try:
        yield
    except OSError as error:
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno
        if number is None or path is None:
            raise
        raise OSError(number, os.strerror(number), path) from None
    except ValueError as error:
        message = str(error)
        for pattern, rest in _QUOTATIONS:
            message = pattern.sub(rest, message)
        raise ValueError(message) from None


def _labels(classes: dict[str, Any] | None) -> NDArray[Any] | None:
    """Return labels in their original type."""
    if classes is None:
        return None
    values = classes["values"]
    try:
        dtype = np.dtype(classes["dtype"])
        if dtype.kind not in "MmObiufU":
            raise ValueError
        if dtype.kind in "Mm":
            labels = np.array(values, dtype=np.int64).view(dtype)
        elif dtype.kind == "O":
            labels = np.empty(len(values), dtype=object)
            labels[:] = values
        else:
            # NumPy by default converts integers to floats if some are above 2**63.
            widest = {"u": np.uint64, "i": np.int64}.get(dtype.kind)
            labels = np.array(values, dtype=widest).astype(dtype)
            if labels.tolist() != values:  # older NumPy converts numbers that do not fit into the dtype
                raise ValueError
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise ValueError("the labels of the classes are not of their type") from None
    return _frozen(labels)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
