"""Regression: `RVR` on kernels about the training rows, `SparseBayesRegressor` on any basis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from typing_extensions import Self

from ._base import SparseBayesEstimator
