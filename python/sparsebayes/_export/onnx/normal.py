"""The normal distribution function, and with it a multinomial probit, as ONNX operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from ..._types import FloatArray
from .graph import Value

#: Where the polynomial of the tail has its middle.
_MIDDLE = 3.75
#: Its degree: relative errors of the tail are 1e-14, and 1e-7 or, with rounding, 3e-7.
_DEGREE = {"float64": 20, "float32": 10}
#: Nodes of the trapezoidal rule about the highest score. Errors of probabilities are below 1e-12 for up to 30
#: classes, 3e-10 for 100.
_NODES = np.arange(-7.0, 7.6, 0.25)
_SPACING = 0.25
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def log_cdf(x: Value) -> Value:
    """Return ln Phi(x), with relative precision in the left tail.

    ``Erf`` has neither that, nor in onnxruntime an implementation in double precision. Phi(-|x|) is
    exp(-x^2 / 2) times a smooth function of (|x| - k) / (|x| + k), here a Chebyshev interpolant.
    """
    size = x.map("Abs")
    s = (size - _MIDDLE) / (size + _MIDDLE)
    first, *rest = _tail_coefficients(_DEGREE[x.graph.dtype.name])[::-1]
    scaled = s * first + rest[0]
    for coefficient in rest[1:]:
        scaled = scaled * s + coefficient
    log_tail = scaled.map("Log") - x.squared() * 0.5
    log_rest = (-log_tail.map("Exp") + 1.0).map("Log")
    negative = x.graph.apply("Less", x, x.graph.real(0.0))
    return x.graph.apply("Where", negative, log_tail, log_rest)


def _tail_coefficients(degree: int) -> FloatArray:
    """Return the coefficients in s, lowest first, of exp(x^2 / 2) Phi(-x) for x >= 0."""

    def tail(s: Any) -> Any:
        return 0.5 * erfcx(_MIDDLE * (1.0 + s) / (1.0 - s) / np.sqrt(2.0))

    coefficients: FloatArray = chebyshev.cheb2poly(chebyshev.chebinterpolate(tail, degree))
    return coefficients


def probit(scores: Value, winner: Value, n_classes: int) -> Value:
    """Return P(c) = E_u prod_{d != c} Phi(u + f_c - f_d) of scores f, (n, n_classes).

    ``winner``: index of the highest score, (n, 1). With y = u + f_c the integrands of all classes are one,
    prod_d Phi(y - f_d), times their hazards phi / Phi at y - f_c: the density that the noisy copy of f_c is y
    and the largest of all. It is entire and falls like a Gaussian, so that the trapezoidal rule converges
    geometrically; all of it but 1e-12 lies about the highest score.
    """
    graph = scores.graph
    if n_classes == 2:  # u + f_1 - f_0 less another standard normal is above 0.
        difference = scores.take([1], 1) - scores.take([0], 1)
        both = graph.join([-difference, difference], 1)
        return log_cdf(both * np.sqrt(0.5)).map("Exp")
    top = graph.apply("GatherElements", scores, winner, axis=1)
    behind = (top - scores).expand_dims(1)  # (n, 1, n_classes)
    x = behind + _NODES[np.newaxis, :, np.newaxis]
    log_phi = log_cdf(x)
    log_density = log_phi.sum(2, keep=True) - log_phi - x.squared() * 0.5
    mass: Value = (log_density + (np.log(_SPACING) - _LOG_ROOT_TWO_PI)).map("Exp").sum(1)
    return mass / mass.sum(1, keep=True)
