"""Kernels by formulas: of the differences between rows, of their inner product, and the linear spline.

Kernels of differences do not change if all rows are moved. The widths of all of them are comparable: with a
high order, a large ``alpha`` or a long ``period`` they approach ``Gaussian(width)``. The length scale of
Rasmussen & Williams (2006) is width / sqrt(2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from .._checks import any_array, check_integer, check_real
from .._types import FloatArray
from ._base import Kernel, Pull, column_stds, robust_stds

#: exp(-r) is 0 here and above; polynomials times it stop growing, so that the product is a number.
_MAX_RADIUS: Final = 1e3


@dataclass(frozen=True, slots=True)
class Radial(Kernel):
    """A kernel k(v) with v = sum_d (x_d - z_d)^2 / width_d^2, one width for all inputs or one for each."""

    width: float | tuple[float, ...]

    _learned: ClassVar = {"width": 1}
    _input_parameter = "width"

    def _profile(self, v: Any) -> Any:
        """Return k(v), of an array or a number of `Traced` code."""
        raise NotImplementedError

    def _slope(self, v: FloatArray, K: FloatArray) -> FloatArray:
        """Return -dk/dv."""
        raise NotImplementedError

    def _other_slopes(self, v: FloatArray, K: FloatArray) -> list[FloatArray]:
        """Return dk / d(log parameter) for parameters other than the widths."""
        return []

    def __post_init__(self) -> None:
        width = self.width
        shape = any_array("width", width).shape
        if shape == ():
            value: float | tuple[float, ...] = _length("width", width)
        elif len(shape) == 1 and shape[0] > 0:
            value = tuple(_width_of_input(w) for w in width)  # type: ignore[union-attr] # a sequence, by its shape
        else:
            raise ValueError(f"width must be a number or a sequence of one per input, got {width!r}")
        object.__setattr__(self, "width", value)

    def _inverse_squares(self) -> list[float]:
        widths = self.width if isinstance(self.width, tuple) else (self.width,)
        return [1.0 / width**2 for width in widths]

    def _header(self) -> Any:
        parameters = self.get_params(deep=False)
        del parameters["width"]
        return {self._core_name: {"inverse_square_widths": self._inverse_squares(), **parameters}}

    def _has_one_scale(self) -> bool:
        return np.size(self.width) == 1

    def _per_input(self) -> Any:
        return 1.0 / np.array(self.width) if np.size(self.width) > 1 else None

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        # By differences, because the expanded square cancels for points far from the origin.
        t = x - z if constant is None else (x - z) * constant
        return t * t

    def _of_total(self, total: Any) -> Any:
        return self._profile(self._squares(total))

    def _squares(self, total: Any) -> Any:
        """Return v."""
        return total if np.size(self.width) > 1 else total * self._inverse_squares()[0]

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        stds = (robust_stds if robust else column_stds)(X, weights)
        if not isinstance(self.width, tuple):
            widths = np.log([2.0 * (np.sqrt(np.sum(stds**2)) or 1.0)])
        else:
            stds[stds == 0.0] = 1.0  # a constant input has any width
            widths = np.log(2.0 * np.sqrt(X.shape[1]) * stds)
            widths = widths if len(self.width) == X.shape[1] else np.atleast_1d(widths.mean())
        return np.concatenate([widths, self._log_parameters()[len(widths) :]])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        # dk / d ln w_d = 2 (-dk/dv) (x_d - z_d)^2 / w_d^2.
        width = np.asarray(self.width, dtype=np.float64)
        centre = X.mean(axis=0)  # the expanded squares would cancel for numbers far from 0
        x, z = (X - centre) / width, (Z - centre) / width
        v = x @ (-2.0 * z.T)
        v += np.sum(x**2, axis=1)[:, np.newaxis]
        v += np.sum(z**2, axis=1)
        np.maximum(v, 0.0, out=v)
        K = self._profile(v)

        def pull(D: FloatArray) -> FloatArray:
            M = D * self._slope(v, K)
            squares = M.sum(axis=1) @ x**2 + M.sum(axis=0) @ z**2 - 2.0 * np.sum(x * (M @ z), axis=0)
            widths = 2.0 * (squares if width.size == X.shape[1] > 1 else np.atleast_1d(squares.sum()))
            return np.append(widths, [np.sum(D * other) for other in self._other_slopes(v, K)])

        return K, pull


@dataclass(frozen=True, slots=True)
class Gaussian(Radial):
    """The Gaussian (radial basis function) kernel, ``exp(-|x - z|^2 / width^2)``.

    With one width per input, ``exp(-sum_d (x_d - z_d)^2 / width_d^2)``; an input of infinite width does not
    count. In scikit-learn's terms gamma = 1 / width^2.

    Parameters
    ----------
    width : positive float, or one per input

    Examples
    --------
    >>> Gaussian(2.0)([[0.0], [2.0]], [[0.0]]).round(3)
    array([[1.   ],
           [0.368]])
    """

    _core_name = "gaussian"

    def _profile(self, v: Any) -> Any:
        return np.exp(-v)

    def _slope(self, v: FloatArray, K: FloatArray) -> FloatArray:
        return K


class _Matern(Radial):
    """(1 + r + b r^2) exp(-r) with r = sqrt(a v)."""

    __slots__ = ()

    _a: ClassVar[float]
    _b: ClassVar[float]

    def _profile(self, v: Any) -> Any:
        r = np.minimum(np.sqrt(self._a * v), _MAX_RADIUS)
        return (1.0 + r * (1.0 + self._b * r)) * np.exp(-r)

    def _slope(self, v: FloatArray, K: FloatArray) -> FloatArray:
        r = np.minimum(np.sqrt(self._a * v), _MAX_RADIUS)
        return 0.5 * self._a * (1.0 - 2.0 * self._b + self._b * r) * np.exp(-r)


@dataclass(frozen=True, slots=True)
class Matern32(_Matern):
    """The Matern kernel of order 3/2, ``(1 + r) exp(-r)`` with ``r = sqrt(6) |x - z| / width``.

    For rough functions, which can be differentiated only once. With one width per input, ``r^2 = 6 sum_d (x_d
    - z_d)^2 / width_d^2``. Rasmussen & Williams (2006), equation 4.17, with l = width / sqrt(2).

    Parameters
    ----------
    width : positive float, or one per input
    """

    _core_name, _a, _b = "matern32", 6.0, 0.0


@dataclass(frozen=True, slots=True)
class Matern52(_Matern):
    """The Matern kernel of order 5/2, ``(1 + r + r^2 / 3) exp(-r)`` with ``r = sqrt(10) |x - z| / width``.

    Between `Matern32` and `Gaussian` in smoothness. With one width per input, ``r^2 = 10 sum_d (x_d - z_d)^2
    / width_d^2``. Rasmussen & Williams (2006), equation 4.17, with l = width / sqrt(2).

    Parameters
    ----------
    width : positive float, or one per input
    """

    _core_name, _a, _b = "matern52", 10.0, 1.0 / 3.0


@dataclass(frozen=True, slots=True)
class RationalQuadratic(Radial):
    """The rational quadratic kernel, ``(1 + |x - z|^2 / (alpha width^2))^-alpha``.

    An average of Gaussian kernels of many widths; they differ more for a smaller alpha. With one width per
    input the square is ``sum_d (x_d - z_d)^2 / width_d^2``. Rasmussen & Williams (2006), equation 4.19, with
    l = width / sqrt(2).

    Parameters
    ----------
    width : positive float, or one per input
    alpha : positive float, default=1.0
    """

    alpha: float = 1.0

    _core_name = "rational_quadratic"
    _learned: ClassVar = {"width": 1, "alpha": 0}

    def __post_init__(self) -> None:
        Radial.__post_init__(self)
        object.__setattr__(self, "alpha", check_real("alpha", self.alpha, positive=True))

    def _profile(self, v: Any) -> Any:
        return np.exp(-self.alpha * np.log1p(v / self.alpha))

    def _slope(self, v: FloatArray, K: FloatArray) -> FloatArray:
        return K / (1.0 + v / self.alpha)

    def _other_slopes(self, v: FloatArray, K: FloatArray) -> list[FloatArray]:
        share = v / self.alpha
        return [self.alpha * K * (share / (1.0 + share) - np.log1p(share))]


@dataclass(frozen=True, slots=True)
class Periodic(Kernel):
    """The periodic kernel, ``exp(-(period / (pi width))^2 sum_d sin^2(pi (x_d - z_d) / period))``.

    It is the `Gaussian` kernel on a circle with the period as circumference, for functions that repeat. Use
    `OnColumns` to apply it to the column of time, and multiply it by a wide `Gaussian` if the cycles change
    slowly. MacKay (1998); Rasmussen & Williams (2006), equation 4.31, with l = sqrt(2) pi width / period.

    Parameters
    ----------
    period, width : positive float
        In the units of the inputs.

    References
    ----------
    D. J. C. MacKay (1998). Introduction to Gaussian processes. In: Neural Networks and Machine Learning.

    Examples
    --------
    >>> Periodic(period=7.0, width=2.0)([[0.0], [3.5], [14.0]], [[0.0]]).round(3)
    array([[1.   ],
           [0.289],
           [1.   ]])
    """

    period: float
    width: float

    _core_name = "periodic"
    _learned: ClassVar = {"period": 0, "width": 1}
    _max_log_changes: ClassVar = {"period": 0.2}

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", _length("period", self.period))
        object.__setattr__(self, "width", _length("width", self.width))

    def _factor(self) -> float:
        return (self.period / (np.pi * self.width)) ** 2

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        turns = (x - z) * (1.0 / self.period)
        t = np.sin(np.pi * (turns - np.rint(turns)))
        return t * t

    def _of_total(self, total: Any) -> Any:
        return np.exp(-self._factor() * total)

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        # The given period, and a standard deviation of each input no larger than the circle.
        stds = (robust_stds if robust else column_stds)(X, weights)
        stds = np.minimum(stds, self.period / (2.0 * np.pi))
        return np.log([self.period, 2.0 * (np.sqrt(np.sum(stds**2)) or 1.0)])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        # With angles a_d = pi (x_d - z_d) / period, S = sum_d sin^2 a_d and dS / d ln period = -T.
        S, T = np.zeros((len(X), len(Z))), np.zeros((len(X), len(Z)))
        for column_x, column_z in zip(X.T, Z.T, strict=True):
            angle = np.pi / self.period * np.subtract.outer(column_x, column_z)
            S += np.sin(angle) ** 2
            T += angle * np.sin(2.0 * angle)
        factor = self._factor()
        K = np.exp(-factor * S)

        def pull(D: FloatArray) -> FloatArray:
            slope = factor * D * K
            return np.array([np.sum(slope * (T - 2.0 * S)), 2.0 * np.sum(slope * S)])

        return K, pull


@dataclass(frozen=True, slots=True)
class Laplacian(Kernel):
    """The Laplacian kernel, ``exp(-gamma sum_d |x_d - z_d|)``.

    Parameters
    ----------
    gamma : positive float
    """

    gamma: float

    _core_name = "laplacian"
    _learned: ClassVar = {"gamma": -1}

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        return np.abs(x - z)

    def _of_total(self, total: Any) -> Any:
        return np.exp(-self.gamma * total)

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        # The mean distance of two normal numbers is 2 / sqrt(pi) of their standard deviation.
        total = float((robust_stds if robust else column_stds)(X, weights).sum()) or 1.0
        return -np.log([total * 4.0 / np.sqrt(np.pi)])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        from scipy.spatial.distance import cdist

        exponent = -self.gamma * cdist(X, Z, "cityblock")
        K: FloatArray = np.exp(exponent)
        return K, lambda D: np.atleast_1d(np.sum(D * K * exponent))


def _length(name: str, value: object) -> float:
    length = check_real(name, value, positive=True)
    if not 1e-150 <= length <= 1e150:  # so that its square and the inverse of the square are finite
        raise ValueError(f"{name} must be between 1e-150 and 1e150, got {length}; rescale X")
    return length


def _width_of_input(value: object) -> float:
    """Return a length, or infinity: the input then does not count."""
    return np.inf if isinstance(value, float) and value == np.inf else _length("width", value)


# --- kernels of the inner product, and the linear spline --------------------------------------------


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

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
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
