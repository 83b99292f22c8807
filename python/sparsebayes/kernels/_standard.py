"""The kernels of the papers and of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _core
from .._checks.arguments import check_integer, check_real
from .._checks.numbers import any_array
from .._types import FloatArray
from ._base import Kernel


@dataclass(frozen=True, slots=True)
class Gaussian(Kernel):
    """The Gaussian (radial basis function) kernel, ``exp(-|x - z|^2 / width^2)``.

    With one width per input, ``exp(-sum_d (x_d - z_d)^2 / width_d^2)``. In scikit-learn's terms gamma = 1 /
    width^2.

    Parameters
    ----------
    width : positive float, or one per input

    Raises
    ------
    TypeError, ValueError
        If a width is not a positive number.

    Examples
    --------
    >>> Gaussian(2.0)([[0.0], [2.0]], [[0.0]]).round(3)
    array([[1.   ],
           [0.368]])
    """

    width: float | tuple[float, ...]

    def __post_init__(self) -> None:
        width = self.width
        shape = any_array("width", width).shape
        if shape == ():
            value: float | tuple[float, ...] = _width(width)
        elif len(shape) == 1 and shape[0] > 0:
            value = tuple(_width(w) for w in width)  # type: ignore[union-attr] # a sequence, by its shape
        else:
            raise ValueError(f"width must be a number or a sequence of one per input, got {width!r}")
        object.__setattr__(self, "width", value)

    def _inverse_squares(self) -> list[float]:
        widths = self.width if isinstance(self.width, tuple) else (self.width,)
        return [1.0 / width**2 for width in widths]

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        weights = np.broadcast_to(self._inverse_squares(), x.shape[1])
        # Differences, because the expanded square would cancel for points far from the origin.
        exponent = np.zeros((len(x), len(z)))
        with np.errstate(over="ignore"):
            for column_x, column_z, weight in zip(x.T, z.T, weights, strict=True):
                exponent -= weight * np.subtract.outer(column_x, column_z) ** 2
        return np.exp(exponent)

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if there is one width per input and not ``n_features`` of them."""
        n_features = check_integer("n_features", n_features, least=0)
        if isinstance(self.width, tuple) and len(self.width) not in (1, n_features):
            raise ValueError(
                f"width has {len(self.width)} values but X has {n_features} features; "
                "give one width, or one per feature"
            )

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.gaussian(self._inverse_squares())


@dataclass(frozen=True, slots=True)
class Laplacian(Kernel):
    """The Laplacian kernel, ``exp(-gamma sum_d |x_d - z_d|)``.

    Parameters
    ----------
    gamma : positive float

    Raises
    ------
    TypeError, ValueError
        If gamma is not a positive number.

    Examples
    --------
    >>> Laplacian(0.5)([[0.0]], [[2.0]]).round(3)
    array([[0.368]])
    """

    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        distance = np.zeros((len(x), len(z)))
        for column_x, column_z in zip(x.T, z.T, strict=True):
            distance += np.abs(np.subtract.outer(column_x, column_z))
        return np.exp(-self.gamma * distance)

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.laplacian(self.gamma)


@dataclass(frozen=True, slots=True)
class Polynomial(Kernel):
    """The polynomial kernel, (gamma x.z + coef0)^degree.

    Parameters
    ----------
    degree : int, from 1 to 2**32 - 1
    gamma : positive float
    coef0 : float

    Raises
    ------
    TypeError, ValueError
        If degree is not an integer from 1 to 2**32 - 1, gamma not a positive number, or coef0 not a finite
        number.

    Examples
    --------
    >>> Polynomial(2, gamma=1.0, coef0=1.0)([[1.0, 2.0]], [[3.0, -1.0]])
    array([[4.]])
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", check_integer("degree", self.degree, least=1, most=2**32 - 1))
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))
        object.__setattr__(self, "coef0", check_real("coef0", self.coef0))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return (self.gamma * (x @ z.T) + self.coef0) ** self.degree

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.polynomial(self.degree, self.gamma, self.coef0)


@dataclass(frozen=True, slots=True)
class Linear(Kernel):
    """The linear kernel, (x - offset).(z - offset).

    Parameters
    ----------
    offset : sequence of float, one per input, optional
        None: 0; but estimators with ``fit_intercept=True`` replace None by the mean of their centres (the
        distinct training rows, unless ``candidates`` are given), so that a constant added to a column of X
        does not change the model.

    Raises
    ------
    TypeError, ValueError
        If the offset is not a sequence of finite numbers.

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

    def centred(self, x: FloatArray) -> FloatArray:
        """Return x minus the offset."""
        return x if self.offset is None else x - np.asarray(self.offset)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return self.centred(x) @ self.centred(z).T

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if there is an offset and not one for each of ``n_features`` inputs."""
        n_features = check_integer("n_features", n_features, least=0)
        if self.offset is not None and len(self.offset) != n_features:
            raise ValueError(
                f"offset has {len(self.offset)} values but X has {n_features} features; give one per feature"
            )

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.linear(None if self.offset is None else list(self.offset))

    def __repr__(self) -> str:
        return "Linear()" if self.offset is None else f"Linear(offset={self.offset})"


@dataclass(frozen=True, slots=True)
class Sigmoid(Kernel):
    """The sigmoid kernel, tanh(gamma x.z + coef0).

    Parameters
    ----------
    gamma : positive float
    coef0 : float

    Raises
    ------
    TypeError, ValueError
        If gamma is not a positive number or coef0 not a finite one.

    Examples
    --------
    >>> Sigmoid(0.5)([[1.0]], [[1.0]]).round(3)
    array([[0.462]])
    """

    gamma: float = 1.0
    coef0: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, positive=True))
        object.__setattr__(self, "coef0", check_real("coef0", self.coef0))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return np.tanh(self.gamma * (x @ z.T) + self.coef0)

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.sigmoid(self.gamma, self.coef0)


@dataclass(frozen=True, slots=True)
class LinearSpline(Kernel):
    """The linear spline kernel of Tipping (2001), a product over inputs.

    Each factor is 1 + x z + x z m - (x + z) m^2 / 2 + m^3 / 3 with m = min(x, z).

    Examples
    --------
    >>> LinearSpline()([[1.0]], [[2.0]]).round(3)
    array([[3.833]])
    """

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        product = np.ones((len(x), len(z)))
        for column_x, column_z in zip(x.T, z.T, strict=True):
            xz = np.multiply.outer(column_x, column_z)
            smaller = np.minimum.outer(column_x, column_z)
            total = np.add.outer(column_x, column_z)
            product *= 1.0 + xz + xz * smaller - 0.5 * total * smaller**2 + smaller**3 / 3.0
        return product

    def _to_core(self) -> _core.Kernel:
        return _core.Kernel.linear_spline()


def _width(value: object) -> float:
    width = check_real("width", value, positive=True)
    if not 1e-150 <= width <= 1e150:  # so that its square and the inverse of the square are finite
        raise ValueError(f"width must be between 1e-150 and 1e150, got {width}; rescale X")
    return width
