"""Noise whose variance depends on the inputs: two sparse models, of the mean and of ln of the variance.

With q(w) the posterior of the weights of the mean, E[ln p(t_n | w)] = -(u_n + e_n exp(-u_n)) / 2 up to a
constant, u_n the log variance and e_n = E[(t_n - eta_n)^2]. As a function of u_n this is the log likelihood
of a Gamma variable e_n of mean exp(u_n) and dispersion 2. So fits of the mean, with known standard
deviations, alternate with Gamma fits of e until u no longer changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from .._arrays import TO_TABLE, Training, check_training, is_unstored, known_noise
from .._data.design import columns_at, fitted_extra
from .._types import FloatArray, PerRow
from .in_memory import Start
from .noise_parameters import as_first, extrapolated
from .posterior import log_noise, moments

#: Largest change of u that ends a fit, and most alternations.
_TOL: Final = 3e-7
_MAX_ROUNDS: Final = 30
#: Change of u below which fits continue from the model before.
_LARGE_CHANGE: Final = 0.5
#: Change of u below which every third one extrapolates from the two before.
_SMALL_CHANGE: Final = 0.2
#: Smallest e in units of its mean.
_LEAST: Final = 1e-12


def check_noise_basis(est: Any, rows: Any, y_std: Any, exposure: Any) -> Training:
    """Return the rows; ValueError, naming the remedy, if their noise cannot be modelled."""
    if est.likelihood != "gaussian":
        raise ValueError(f"noise_basis needs likelihood='gaussian'; got {est.likelihood!r}")
    if y_std is not None or exposure is not None or est.noise_variance is not None:
        raise ValueError("noise_basis estimates the noise: noise_variance, y_std and exposure must be None")
    if not isinstance(rows, Training):
        raise ValueError("noise_basis needs the rows in memory; give arrays, and raise memory_limit")
    if rows.y.ndim == 2:
        raise ValueError("y must have one column with noise_basis; fit the columns one by one")
    if is_unstored(rows.X):
        raise ValueError(f"X must be a table with noise_basis; give {TO_TABLE}")
    return rows


def fit_noise(
    est: Any,
    rows: Training,
    model: Any,
    fit: Callable[[Training, Start | None], tuple[Any, Any]],
) -> None:
    """Alternate between ``fit``, which publishes the model of the mean, and fits of the noise ``model``.

    Once u changes little ``fit`` continues from the model before: a new one may be another.
    """
    basis = fitted_extra(est.noise_basis, None, rows.X, "noise_basis")
    columns = columns_at(basis, rows.X, name="noise_basis")
    u, change, counts = np.zeros(len(rows.y)), np.inf, rows.weights
    path: list[FloatArray] = []
    start: Start | None = None
    own: dict[str, Any] = {}
    for number in range(_MAX_ROUNDS + 1):
        noise, weights = known_noise(np.exp(0.5 * u), counts)
        status = est.status_ if own else ""
        found, posterior = fit(replace(rows, weights=weights, noise=noise), start)
        est.__dict__.update(own)
        if est.status_ in ("stopped", "max_iter") or number == _MAX_ROUNDS:
            break
        squares = _squares(rows.y, est._loo.m[:, 0], est._loo.v[:, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # noise may be the same in all rows
            model.fit(columns, squares, sample_weight=counts)
        own = {"noise_model_": model, "noise_basis_": basis, "_noise_centre": 0.0}
        est.__dict__.update(own)
        # The factor of all variances is in the noise variance of the model.
        own["_noise_centre"] = est._noise_centre = float(np.average(log_noise(est, columns), weights=counts))
        before, u = u, log_noise(est, columns)
        change = float(np.abs(u - before).max())
        path = [*path, u] if change < _SMALL_CHANGE else [u]
        if len(path) == 3 and change > _TOL:
            u = extrapolated(*path)
            path = [u]
        if not change > _TOL:
            # Where a fit begins at its optimum rounding may exceed all gains.
            est.status_ = (status or "stalled") if est.status_ == "stalled" else est.status_
            break
        # Groups have no fit that continues.
        can_continue = getattr(est, "groups", None) is None and est.scheme == "sequential"
        start = Start(found, as_first(posterior)) if can_continue and change < _LARGE_CHANGE else None
    if not own:
        est._y_variance = None  # the noise is the same in all rows
    elif est.status_ == "converged" and (change > _TOL or model.status_ not in ("converged", "empty")):
        est.status_ = "stalled"


def _squares(y: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Return e in units of its mean."""
    e = (y - m) ** 2 + v
    return np.asarray(np.maximum(e / (e.mean() or 1.0), _LEAST))


def noise_problem(
    est: Any, X: ArrayLike, y: ArrayLike, sample_weight: PerRow
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return columns, targets and weights of the noise model, given the training rows."""
    rows = check_training(est, X, y, sample_weight, reset=False)
    est = copy(est)
    vars(est).pop("feature_names_in_", None)  # the rows are arrays from here on
    m, v = moments(est, rows.X, variance=True, grows=False)
    assert v is not None
    return columns_at(est.noise_basis_, rows.X), _squares(rows.y, m[:, 0], v[:, 0]), rows.weights
