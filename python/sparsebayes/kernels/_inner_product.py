"""Kernels of the inner product, and the linear spline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .._checks.arguments import check_integer, check_real
from .._checks.numbers import any_array
from .._types import FloatArray
from ._base import Kernel, Pull

if TYPE_CHECKING:
    from .._export.c_header import Source
    from .._export.onnx_graph import Value

_C_PRODUCT: Final = "s += x[$d] * z[$d];"


class _Affine(Kernel):
    """A function k(u) of u = gamma x.z + coef0."""

    __slots__ = ()

    _learned: ClassVar = {"gamma": 0, "coef0": 0}
    gamma: float
    coef0: float

    def _profile(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return k(u) and dk/du."""
        raise NotImplementedError

    def _c_profile(self, source: Source, u: str) -> str:
        """Return a C expression for k, given one for u."""
        raise NotImplementedError

    def _onnx_profile(self, u: Value) -> Value:
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))
        object.__setattr__(self, "coef0", check_real("coef0", self.coef0))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return self._profile(self.gamma * (x @ z.T) + self.coef0)[0]

    def _natural(self, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        square = float(np.sum(np.average(X**2, axis=0, weights=weights)))
        return np.append(-np.log(square) if square > 0.0 else 0.0, self._log_parameters()[1:])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        product = self.gamma * (X @ Z.T)
        K, slope = self._profile(product + self.coef0)

        def pull(D: FloatArray) -> FloatArray:
            of_coef0 = [self.coef0 * np.sum(D * slope)] if self.coef0 != 0.0 else []
            return np.array([np.sum(D * slope * product), *of_coef0])

        return K, pull

    def _c(self, source: Source) -> tuple[str, str, str]:
        gamma = source.number("kernel parameter gamma", self.gamma)
        coef0 = source.number("kernel parameter coef0", self.coef0)
        return "0.0$f", _C_PRODUCT, f"return {self._c_profile(source, f'{gamma} * s + {coef0}')};"

    def _onnx(self, x: Value, points: FloatArray) -> Value:
        product = x @ (self.gamma * points.T)
        return self._onnx_profile(product + self.coef0 if self.coef0 != 0.0 else product)


@dataclass(frozen=True, slots=True)
class Polynomial(_Affine):
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
        _Affine.__post_init__(self)

    def _profile(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        return u**self.degree, self.degree * u ** (self.degree - 1)

    def _c_profile(self, source: Source, u: str) -> str:
        return f"{source.power()}({u}, {self.degree}UL)"

    def _onnx_profile(self, u: Value) -> Value:
        return u.power(self.degree)


@dataclass(frozen=True, slots=True)
class Sigmoid(_Affine):
    """The sigmoid kernel, tanh(gamma x.z + coef0).

    Parameters
    ----------
    gamma : positive float
    coef0 : float
    """

    gamma: float = 1.0
    coef0: float = 0.0

    _core_name = "sigmoid"

    def _profile(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        K = np.tanh(u)
        return K, 1.0 - K**2

    def _c_profile(self, source: Source, u: str) -> str:
        return f"$tanh({u})"

    def _onnx_profile(self, u: Value) -> Value:
        return u.map("Tanh")


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

    def __post_init__(self) -> None:
        if self.offset is not None:
            if any_array("offset", self.offset).ndim != 1:
                raise ValueError(f"offset must be a sequence of one number per input, got {self.offset!r}")
            object.__setattr__(self, "offset", tuple(check_real("offset", value) for value in self.offset))

    def centred(self, x: Any) -> Any:
        """Return x minus the offset."""
        return x if self.offset is None else x - np.asarray(self.offset)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        values: FloatArray = self.centred(x) @ self.centred(z).T
        return values

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if there is an offset and not one for each of ``n_features`` inputs."""
        n_features = check_integer("n_features", n_features, least=0)
        if self.offset is not None and len(self.offset) != n_features:
            raise ValueError(
                f"offset has {len(self.offset)} values but X has {n_features} features; give one per feature"
            )

    def _header(self) -> Any:
        return "linear" if self.offset is None else {"centred_linear": {"offset": list(self.offset)}}

    def _c(self, source: Source) -> tuple[str, str, str]:
        if self.offset is None:
            return "0.0$f", _C_PRODUCT, "return s;"
        offset = source.table("offset", self.offset).name
        return "0.0$f", f"s += (x[$d] - {offset}[d]) * (z[$d] - {offset}[d]);", "return s;"

    def _onnx(self, x: Value, points: FloatArray) -> Value:
        values, factors = self._onnx_factors(x, points)
        return values @ factors

    def _onnx_factors(self, x: Value, points: FloatArray) -> tuple[Value, FloatArray]:
        return self.centred(x), self.centred(points).T

    def __repr__(self) -> str:
        return "Linear()" if self.offset is None else f"Linear(offset={self.offset})"


@dataclass(frozen=True, slots=True)
class LinearSpline(Kernel):
    """The linear spline kernel of Tipping (2001), a product over inputs.

    Each factor is 1 + x z + x z m - (x + z) m^2 / 2 + m^3 / 3 with m = min(x, z).
    """

    _core_name = "linear_spline"

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        product = np.ones((len(x), len(z)))
        for column_x, column_z in zip(x.T, z.T, strict=True):
            xz = np.multiply.outer(column_x, column_z)
            smaller = np.minimum.outer(column_x, column_z)
            total = np.add.outer(column_x, column_z)
            product *= 1.0 + xz + xz * smaller - 0.5 * total * smaller**2 + smaller**3 / 3.0
        return product

    def _has_one_scale(self) -> bool:
        return False

    def _c(self, source: Source) -> tuple[str, str, str]:
        factor = "1.0$f + a * b + a * b * m - 0.5$f * (a + b) * m * m + m * m * m / 3.0$f"
        return "1.0$f", f"const $REAL a = x[$d], b = z[$d], m = a < b ? a : b; s *= {factor};", "return s;"

    def _onnx(self, x: Value, points: FloatArray) -> Value:
        def factor(x: Value, z: FloatArray, at: slice) -> Value:
            # With m = min(x, z), M = max(x, z): x z m - (x + z) m^2 / 2 + m^3 / 3 = m^2 (M / 2 - m / 6).
            m, M = x.minimum(z), x.maximum(z)
            factors = m * M + m.squared() * (M * 0.5 - m * (1.0 / 6.0)) + 1.0
            return factors.product_of_last(z.shape[-1])

        return x.over_inputs(points, factor, mul)


#: Kernels by name, from (gamma, degree, coef0).
NAMED: Final[dict[str, Callable[[float, int, float], Kernel]]] = {
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "sigmoid": lambda gamma, degree, coef0: Sigmoid(gamma, coef0),
    "linear_spline": lambda *_: LinearSpline(),
}
