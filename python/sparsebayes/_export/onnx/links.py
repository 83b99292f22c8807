"""Means, error bars, labels and probabilities of a served model as ONNX operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erfcx

from ..._types import FloatArray
from ..description import ServedModel, factor
from .graph import Graph, Value
from .kernels import Basis

#: The polynomial of the tail is in s = (|x| - k) / (|x| + k); this is k.
_TAIL_CENTRE = 3.75
#: Degree of that polynomial; relative errors of the tail are 1e-14 and, with rounding, 3e-7.
_TAIL_DEGREE = {"float64": 20, "float32": 10}
#: Nodes of the trapezoidal rule about the highest score. Errors of probabilities are below 1e-12 for up to 30
#: classes, 3e-10 for 100.
_NODES = np.arange(-7.0, 7.6, 0.25)
_SPACING = 0.25
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def regression(graph: Graph, model: ServedModel) -> tuple[Value, Value]:
    """Return mean and standard deviation, each (n, n_outputs)."""
    basis = Basis(graph, model.blocks)
    eta, v = _predictors(basis, model), _variances(graph, basis, model)
    if model.link == "log":
        return eta.map("Exp"), _std_of_counts(eta, v)
    assert model.noise_variance is not None
    noise = np.broadcast_to(model.noise_variance, len(model.outputs))
    return eta, graph.repeat_rows(np.sqrt(noise)) if v is None else (v + noise).map("Sqrt")


def _std_of_counts(eta: Value, v: Value | None) -> Value:
    """Return sqrt(exp(eta + v/2) + (e^v - 1) exp(2 eta + v)), with the factor exp(eta / 2) taken out."""
    root = (eta * 0.5).map("Exp")
    if v is None:
        return root
    growth = v.map("Exp")
    expm1_v = (v * 0.5).map("Tanh") * (growth + 1.0)  # e^v - 1 without cancellation
    # In logarithms, as 0 times infinity is not 0.
    over_dispersion = (expm1_v.map("Log") + eta + v).map("Exp")
    return root * ((v * 0.5).map("Exp") + over_dispersion).map("Sqrt")


def classification(graph: Graph, model: ServedModel) -> tuple[Value, Value]:
    """Return the index of the most probable class, (n,), and the probabilities, (n, n_classes)."""
    assert model.classes is not None
    basis = Basis(graph, model.blocks)
    eta = _predictors(basis, model)
    if model.link == "probit":
        winner = eta.map("ArgMax", axis=1, keepdims=1)
        return winner.squeeze(1), probit(eta, winner, len(model.classes))
    if model.link == "softmax":
        p = _moderated_softmax(graph, basis, model, eta).map("Softmax", axis=1)
        return _winner(p), p
    v = _variances(graph, basis, model, unit=np.pi / 8.0)
    z = eta if v is None else eta / (v + 1.0).map("Sqrt")
    if len(model.classes) == 2:
        both = graph.join([-z, z], 1)
        return _winner(both), both.map("Sigmoid")
    # ln sigma(z): the ratios survive where every probability is too small for a float.
    p = (z.minimum(0.0) - ((-z.map("Abs")).map("Exp") + 1.0).map("Log")).map("Softmax", axis=1)
    # Like the estimators: compare scores without covariances, probabilities with them.
    return _winner(z if v is None else p), p


def labels(graph: Graph, index: Value, classes: NDArray[np.generic]) -> Value:
    """Return the labels at these indices: see `stored_classes`."""
    return graph.apply("Gather", graph.constant(stored_classes(classes)), index, axis=0)


def stored_classes(classes: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return labels as ONNX types: integers and booleans as int64, all others as strings."""
    if classes.dtype.kind in "iub" and np.array_equal(classes.astype(np.int64), classes):
        return classes.astype(np.int64)
    if classes.dtype.kind == "f" and np.all(np.abs(classes) < 2.0**53) and np.all(classes % 1 == 0):
        return classes.astype(np.int64)
    return np.array([str(label) for label in classes.tolist()], dtype=object)


def _winner(scores: Value) -> Value:
    return scores.map("ArgMax", axis=1, keepdims=0)


def _predictors(basis: Basis, model: ServedModel) -> Value:
    """Return the linear predictors, (n, n_outputs)."""
    return basis.linear(np.column_stack([basis.placed(at.functions, at.weights) for at in model.outputs]))


def _variances(graph: Graph, basis: Basis, model: ServedModel, *, unit: float = 1.0) -> Value | None:
    """Return the variances of the linear predictors, (n, n_outputs) or (n, 1) for all; None: they are 0.

    They are multiplied by ``unit``. It scales the weights, because onnxruntime fuses a scalar factor into the
    preceding matrix product and keeps the scalar in single precision.
    """
    if model.uncertainty == "directions":
        factors = model.covariances
    else:
        outputs = model.outputs[: len(model.covariances)]
        factors = [
            basis.placed(output.functions, factor(sigma).T)
            for output, sigma in zip(outputs, model.covariances, strict=True)
        ]
    sizes = [factor.shape[1] for factor in factors]
    if sum(sizes) == 0:
        return None
    squares = basis.linear(np.sqrt(unit) * np.hstack(factors)).squared()
    if len(sizes) == 1:
        return squares.sum(1, keep=True)
    return squares @ np.repeat(np.eye(len(sizes)), sizes, axis=0)


def _moderated_softmax(graph: Graph, basis: Basis, model: ServedModel, eta: Value) -> Value:
    """Return ln p_c up to a constant: 1 / p_c = sum_d exp(kappa_cd (eta_d - eta_c))."""
    n_classes = len(model.outputs)
    if model.uncertainty == "none" or model.covariances[0].size == 0:
        return eta
    # All pairs of classes, and the pair (0, 0).
    first, second = (np.append(at, 0) for at in np.triu_indices(n_classes, 1))
    n_pairs = len(first)
    root = np.sqrt(np.pi / 8.0) * factor(model.covariances[0]).T
    functions = [output.functions for output in model.outputs]
    roots = np.split(root, np.cumsum([len(at) for at in functions])[:-1])
    along = [basis.linear(basis.placed(at, rows)) for at, rows in zip(functions, roots, strict=True)]
    G = graph.join([value.expand_dims(1) for value in along], 1)  # (n, n_classes, n_weights)
    v = (G.take(first, 1) - G.take(second, 1)).squared().sum(2)
    t = (eta.take(first, 1) - eta.take(second, 1)) / (v + 1.0).map("Sqrt")
    # Row c of the table holds kappa_cd (eta_d - eta_c), 0 at d = c, so that its log softmax there is ln p_c.
    table = np.full((n_classes, n_classes), n_pairs - 1)
    table[second, first] = np.arange(n_pairs)
    table[first, second] = np.arange(n_pairs) + n_pairs
    np.fill_diagonal(table, n_pairs - 1)
    rows = graph.join([t, -t], 1).take(table, 1).map("LogSoftmax", axis=2)
    flat = graph.apply("Reshape", rows, graph.integers([0, n_classes**2]))
    return flat.take(np.arange(n_classes) * (n_classes + 1), 1)


def log_cdf(x: Value) -> Value:
    """Return ln Phi(x), with relative precision in the left tail.

    ``Erf`` has no such precision, and in onnxruntime no implementation in double precision. Phi(-|x|) is
    exp(-x^2 / 2) times a smooth function of (|x| - k) / (|x| + k), here a Chebyshev interpolant.
    """
    size = x.map("Abs")
    s = (size - _TAIL_CENTRE) / (size + _TAIL_CENTRE)
    first, *rest = _tail_coefficients(_TAIL_DEGREE[x.graph.dtype.name])[::-1]
    scaled = s * first + rest[0]
    for coefficient in rest[1:]:
        scaled = scaled * s + coefficient
    log_tail = scaled.map("Log") - x.squared() * 0.5
    log_body = (-log_tail.map("Exp") + 1.0).map("Log")
    negative = x.graph.apply("Less", x, x.graph.real(0.0))
    return x.graph.apply("Where", negative, log_tail, log_body)


def _tail_coefficients(degree: int) -> FloatArray:
    """Return the coefficients in s, lowest first, of exp(x^2 / 2) Phi(-x) for x >= 0."""

    def tail(s: Any) -> Any:
        return 0.5 * erfcx(_TAIL_CENTRE * (1.0 + s) / (1.0 - s) / np.sqrt(2.0))

    coefficients: FloatArray = chebyshev.cheb2poly(chebyshev.chebinterpolate(tail, degree))
    return coefficients


def probit(scores: Value, winner: Value, n_classes: int) -> Value:
    """Return P(c) = E_u prod_{d != c} Phi(u + f_c - f_d) of scores f, (n, n_classes).

    ``winner``: index of the highest score, (n, 1). With y = u + f_c the integrand of class c is
    prod_d Phi(y - f_d) times the hazard phi / Phi at y - f_c. It is entire and decays like a Gaussian, so
    that the trapezoidal rule converges geometrically; all mass but 1e-12 is near the highest score.
    """
    graph = scores.graph
    if n_classes == 2:  # Phi((f_1 - f_0) / sqrt(2))
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
