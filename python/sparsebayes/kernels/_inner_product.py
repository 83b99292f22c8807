"""Kernels of the inner product, and the linear spline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._checks import any_array, check_integer, check_real
from .._types import FloatArray
from ._base import Kernel, Pull


class Affine(Kernel):
    """A function k(u) of u = gamma x.z + coef0."""

    __slots__ = ()

    _learned: ClassVar = {"gamma": 0, "coef0": 0}
    gamma: float
    coef0: float

    def _profile(self, u: Any) -> Any:
        """Return k(u), of an array or a number of `Traced` code."""
        raise NotImplementedError

    def _slope(self, u: FloatArray, K: FloatArray) -> FloatArray:
        """Return dk/du."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))
        object.__setattr__(self, "coef0", check_real("coef0", self.coef0))

    def _total(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return x @ z.T

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        return x * z

    def _of_total(self, total: Any) -> Any:
        return self._profile(self.gamma * total + self.coef0)

    def _natural(self, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        square = float(np.sum(np.average(X**2, axis=0, weights=weights)))
        return np.append(-np.log(square) if square > 0.0 else 0.0, self._log_parameters()[1:])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        product = self.gamma * (X @ Z.T)
        u = product + self.coef0
        K = self._profile(u)
        slope = self._slope(u, K)

        def pull(D: FloatArray) -> FloatArray:
            of_coef0 = [self.coef0 * np.sum(D * slope)] if self.coef0 != 0.0 else []
            return np.array([np.sum(D * slope * product), *of_coef0])

        return K, pull


@dataclass(frozen=True, slots=True)
class Polynomial(Affine):
    """The polynomial kernel, (gamma x.z + coef0)^degree.

    Parameters
    ----------
    degree : int, from 1 to 2**32 - 1
    gamma : positive float
    coef0 : float
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 0.0

    _core_name = "polynomial"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", check_integer("degree", self.degree, least=1, most=2**32 - 1))
        Affine.__post_init__(self)

    def _profile(self, u: Any) -> Any:
        return u**self.degree

    def _slope(self, u: FloatArray, K: FloatArray) -> FloatArray:
        return self.degree * u ** (self.degree - 1)


@dataclass(frozen=True, slots=True)
class Sigmoid(Affine):
    """The sigmoid kernel, tanh(gamma x.z + coef0).

    Parameters
    ----------
    gamma : positive float
    coef0 : float
    """

    gamma: float = 1.0
    coef0: float = 0.0

    _core_name = "sigmoid"

    def _profile(self, u: Any) -> Any:
        return np.tanh(u)

    def _slope(self, u: FloatArray, K: FloatArray) -> FloatArray:
        return 1.0 - K**2


@dataclass(frozen=True, slots=True)
class Linear(Kernel):
    """The linear kernel, (x - offset).(z - offset).

    Parameters
    ----------
    offset : sequence of float, one per input, optional
        None: 0; but estimators with ``fit_intercept=True`` replace None by the mean of their centres (the
        distinct training rows, unless ``candidates`` are given), so that a constant added to a column of X
        does not change the model.

    Examples
    --------
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    >>> Linear([1.0, 2.0])([[2.0, 2.0]], [[3.0, 4.0]])
    array([[2.]])
    """

    offset: tuple[float, ...] | None = None

    _input_parameter = "offset"

    def __post_init__(self) -> None:
        if self.offset is not None:
            if any_array("offset", self.offset).ndim != 1:
                raise ValueError(f"offset must be a sequence of one number per input, got {self.offset!r}")
            object.__setattr__(self, "offset", tuple(check_real("offset", value) for value in self.offset))

    def centred(self, x: Any) -> Any:
        """Return x minus the offset."""
        return x if self.offset is None else x - np.asarray(self.offset)

    def _total(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return np.asarray(self.centred(x) @ self.centred(z).T)

    def _per_input(self) -> Any:
        return self.offset

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        return x * z if constant is None else (x - constant) * (z - constant)

    def _header(self) -> Any:
        return "linear" if self.offset is None else {"centred_linear": {"offset": list(self.offset)}}

    def __repr__(self) -> str:
        return "Linear()" if self.offset is None else f"Linear(offset={self.offset})"


@dataclass(frozen=True, slots=True)
class LinearSpline(Kernel):
    """The linear spline kernel of Tipping (2001), a product over inputs.

    Each factor is 1 + x z + x z m - (x + z) m^2 / 2 + m^3 / 3 with m = min(x, z).
    """

    _core_name, _operation = "linear_spline", np.multiply

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        # With M = max(x, z): x z m - (x + z) m^2 / 2 + m^3 / 3 = m^2 (M / 2 - m / 6).
        m, M = np.minimum(x, z), np.maximum(x, z)
        return 1.0 + m * M + m * m * (0.5 * M - (1.0 / 6.0) * m)

    def _has_one_scale(self) -> bool:
        return False
