"""NumPy formulas that write code, when they are applied to numbers of a C function or an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class Traced(NDArrayOperatorsMixin):
    """A number of code under construction; arithmetic and functions of NumPy append to the code."""

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        if function is np.power:
            return _power(*inputs)
        return self._apply(function.__name__, inputs)

    def _apply(self, function: str, inputs: tuple[Any, ...]) -> Any:
        """Append a function of NumPy, by its name there, and return its result."""
        raise NotImplementedError


def _power(base: Traced, exponent: int) -> Traced:
    """Return a positive integer power by squaring: on some devices pow() of a negative base is NaN."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    square: Traced = half * half
    return square * base if exponent % 2 else square
