r"""Weights of the rows under Student's t, with a Gaussian process as the prior of the function.

Outliers show beside a good fit only. Functions with a precision of their own each can follow single rows; a
process, which has one scale for all functions, hardly can. With q(f) q(lambda) as in `noise_parameters`, the
bound of the evidence is maximised in turn by the process of weighted rows, with v and the noise at their best
(see `process_regression`), by the row weights, and by the lengths of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from .._arrays import Training
from .._cancellable import blas_workers, in_background
from .._data.basis import Basis
from .._hyper.data import draw
from .._hyper.evidence import CovarianceEvidence
from .._types import FloatArray, IntArray, Settings
from ..kernels import Kernel
from ..kernels._base import all_log_parameters, with_all_log_parameters
from .growth import MIN_LANDMARK
from .noise_parameters import RowWeights
from .process_regression import MAX_REWEIGHTINGS, ProcessOfRows

#: Most rows whose weights the process alternates with; those of others follow.
_MAX_ROWS: Final = 5000
#: Landmarks of the process. Measured: docs/notebook/robust.md.
_LANDMARKS: Final = 100
#: Most rows whose evidence lengths maximise, L-BFGS iterations, and how often.
_LENGTH_ROWS: Final = 400
_ITERATIONS: Final = 12
_ROUNDS: Final = 3
#: Size of a residual above which a row is an outlier, in units of the scale of Student's t. Measured:
#: docs/notebook/robust.md.
_OUTLIER: Final = 4.0


def row_weights(
    basis: Basis,
    kernels: list[Kernel],
    training: Training,
    settings: Settings,
    freedom: float,
    *,
    learns: bool,
) -> tuple[FloatArray, NDArray[np.bool_]] | None:
    """Return E[lambda] of each row and whether it is an outlier; None if rounding leaves no process.

    ``kernels``: with the lengths to begin with; ``learns``: whether others may be better.
    """
    basis = replace(basis, kernels=kernels)

    def work(pulse: Callable[[], None]) -> tuple[FloatArray, NDArray[np.bool_]]:
        some = draw(len(training.y), _MAX_ROWS)
        with blas_workers(settings.n_threads) as pool, np.errstate(all="ignore"):
            process = _Process(*_part(basis, training, some), settings, freedom, pool, pulse)
            process.reweight()
            for _ in range(_ROUNDS if learns else 0):
                if not process.learn():
                    break
                process.reweight()
            found = process.weights_of(basis, training)
            if not np.isfinite(found[0]).all():
                raise LinAlgError
            return found

    try:
        return in_background(work)
    except LinAlgError:
        return None


def _part(basis: Basis, training: Training, at: IntArray) -> tuple[Basis, Training]:
    """Return these rows, and the basis with their columns."""
    weights = None if training.weights is None else training.weights[at]
    columns = None if basis.columns is None else basis.columns[at]
    part = replace(training, X=training.X[at], y=training.y[at], weights=weights, rows=training.rows[at])
    return replace(basis, columns=columns), part


class _Process:
    def __init__(
        self,
        basis: Basis,
        training: Training,
        settings: Settings,
        freedom: float,
        pool: ThreadPoolExecutor,
        pulse: Callable[[], None],
    ) -> None:
        self._basis, self._training, self._settings = basis, training, settings
        self._pool, self._pulse = pool, pulse
        self._weights = RowWeights.of(freedom, training, settings)
        #: Where the ascent of the lengths has ended.
        self._x: FloatArray | None = None

    def reweight(self) -> None:
        """Alternate between the process of weighted rows and their weights."""
        rows = self._rows(self._basis, self._training)
        beside = self._basis.n_blocks * self._basis.size + np.arange(self._basis.n_columns)
        functions = rows.functions(beside, _LANDMARKS, MIN_LANDMARK)
        rows.weigh(self._weights)
        with rows.stored(functions):
            self._fit = rows.alternate(self._weights, rows.fit(functions), MAX_REWEIGHTINGS)

    def weights_of(self, basis: Basis, training: Training) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return E[lambda] of these rows, and which are outliers."""
        scaled = self._rows(basis, training).squares(self._fit) / (self._fit.noise * self._weights.unit)
        return self._weights.best(scaled), scaled > _OUTLIER**2

    def learn(self) -> bool:
        """Take the lengths that maximise the evidence of weighted rows; return False if y has one value."""
        basis, X = self._basis, self._training.X
        some = draw(len(X), _LENGTH_ROWS)
        w, y = self._weights.of_fit[some], self._training.y[some]
        w = w * (len(w) / w.sum())
        y = y - np.average(y, weights=w)
        if not 0.0 < (std := float(np.sqrt(np.average(y**2, weights=w)))) < np.inf:
            return False
        columns = np.zeros((len(some), 0)) if basis.columns is None else basis.columns[some] - basis.offset
        fixed = np.hstack([np.ones((len(some), int(basis.bias))), columns])
        given = self._weights.settings(self._settings).noise_variance
        noise = None if given is None else given / std**2
        Y = (y / std)[:, np.newaxis]
        evidence = CovarianceEvidence(basis.kernels, X[some], fixed, Y, w, noise, self._pulse)
        self._x = evidence.maximise(X, self._x, _ITERATIONS)[0]
        theta = self._x[: len(all_log_parameters(basis.kernels))]
        self._basis = replace(basis, kernels=with_all_log_parameters(basis.kernels, theta))
        return True

    def _rows(self, basis: Basis, training: Training) -> ProcessOfRows:
        return ProcessOfRows(basis, training, self._settings, self._pool, self._pulse)
