"""Fitted models as ONNX graphs. Only this module imports onnx, inside functions."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import DTypeLike, NDArray
from scipy.special import erfcx

from .._checks.arguments import check_integer
from .._core import __version__
from .description import ServedModel, describe, factor
from .onnx_graph import Basis, Graph, Node, Value

if TYPE_CHECKING:
    import onnx

#: Name, value, type and shape of an output; the shape is that of a row.
Output: TypeAlias = tuple[str, Value, "np.dtype[Any]", list[int]]
#: First operator set in which every operator used has its present form; onnxruntime 1.6 supports it.
OLDEST_OPSET = 13
#: The polynomial of the tail is in s = (|x| - k) / (|x| + k); this is k.
_TAIL_CENTRE = 3.75
#: Degree of that polynomial; relative errors of the tail are 1e-14 and, with rounding, 3e-7.
_TAIL_DEGREE = {"float64": 20, "float32": 10}
#: Nodes of the trapezoidal rule about the highest score. Errors of probabilities are below 1e-12 for up to 30
#: classes, 3e-10 for 100.
_NODES = np.arange(-7.0, 7.6, 0.25)
_SPACING = 0.25
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def to_onnx(est: Any, *, dtype: DTypeLike = "float64", opset: int = OLDEST_OPSET) -> onnx.ModelProto:
    """Return a fitted estimator as an ONNX model, for prediction without Python.

    The graph has one input, ``X`` of shape (n, n_features) for any n, and as outputs what the estimator
    predicts:

    * regression: ``mean`` and ``std``, as ``predict(X, return_std=True)`` returns them;
    * classification: ``label``, (n,), and ``probabilities``, (n, n_classes). Integer and boolean labels are
      int64; all others are strings, ``str(label)``.

    Rows are not checked: a row with NaN has NaN results.

    Parameters
    ----------
    est : fitted estimator of this package
        Callable kernels, and ``extra_basis`` other than "linear", cannot be exported. With
        ``kernel="precomputed"`` X is the kernel between rows and the training rows.
    dtype : {"float64", "float32"}, default="float64"
        Precision of X, of the arithmetic and of the results. Results in single precision are within about
        1e-4 of the estimator's, relative to their scale, unless large weights cancel.
    opset : int, default=13
        Version of the operator set that the model requires, 13 (2020) or later.

    Returns
    -------
    onnx.ModelProto
        ``metadata_props`` holds the name of the estimator and, if known, the names of its features.

    Raises
    ------
    ImportError
        If onnx is not installed: ``pip install sparsebayes[onnx]``.
    TypeError, ValueError, NotFittedError
        If est is not a fitted estimator of this package, or its functions or numbers cannot be exported.

    Notes
    -----
    Pass rows in batches of a few thousand. Temporary memory for each row: m * d numbers for m kernels on d
    inputs, 2 ** 14 at most; 59 for each class of a probit; for a softmax the number of weights for each pair
    of classes. Probabilities of `MRVM1` and `MRVM2` are integrated to 1e-10.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, to_onnx
    >>> X = np.linspace(-5, 5, 50)[:, np.newaxis]
    >>> model = to_onnx(RVR(gamma=0.5, noise_variance=0.01).fit(X, np.sinc(X[:, 0])))
    >>> [output.name for output in model.graph.output]
    ['mean', 'std']

    ``onnx.save(model, "model.onnx")`` writes it to a file; onnxruntime runs it:
    ``InferenceSession("model.onnx").run(None, {"X": X})``.
    """
    if find_spec("onnx") is None:
        raise ImportError("sparsebayes.to_onnx needs onnx: run `pip install sparsebayes[onnx]`")
    from onnx.defs import onnx_opset_version

    try:
        precision = np.dtype(dtype)
    except (TypeError, UnicodeError):
        raise TypeError(f"dtype must be 'float64' or 'float32', got {dtype!r}") from None
    if dtype is None or precision not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    precision = precision.newbyteorder("=")
    version = check_integer("opset", opset, least=OLDEST_OPSET)
    if version > (newest := onnx_opset_version()):
        raise ValueError(f"opset must be at most {newest}, the newest that onnx knows here, got {version}")
    model = describe(est)
    graph = Graph(precision, model.n_features)
    if model.classes is None:
        mean, std = (value.squeeze(1) if model.flat else value for value in _regression(graph, model))
        outputs: list[Output] = [
            (name, value, graph.dtype, [] if model.flat else [len(model.outputs)])
            for name, value in (("mean", mean), ("std", std))
        ]
    else:
        index, probabilities = _classification(graph, model)
        labels = _stored(model.classes)
        label = graph.apply("Gather", graph.constant(labels), index, axis=0)
        outputs = [
            ("label", label, labels.dtype, []),
            ("probabilities", probabilities, graph.dtype, [len(labels)]),
        ]
    return _model_proto(graph, model, outputs, version)


def _regression(graph: Graph, model: ServedModel) -> tuple[Value, Value]:
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


def _classification(graph: Graph, model: ServedModel) -> tuple[Value, Value]:
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


def _stored(classes: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return labels as ONNX types: integers and booleans as int64, all others as strings."""
    whole = classes.dtype.kind == "f" and np.all(np.abs(classes) < 2.0**53) and np.all(classes % 1 == 0)
    if whole or (classes.dtype.kind in "iub" and np.array_equal(classes.astype(np.int64), classes)):
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
    root = np.sqrt(np.pi / 8.0) * factor(model.covariances[0]).T
    functions = [output.functions for output in model.outputs]
    roots = np.split(root, np.cumsum([len(at) for at in functions])[:-1])
    along = [basis.linear(basis.placed(at, rows)) for at, rows in zip(functions, roots, strict=True)]
    G = graph.join([value.expand_dims(1) for value in along], 1)  # (n, n_classes, n_weights)
    c, d = np.divmod(np.arange(n_classes**2), n_classes)
    v = (G.take(c, 1) - G.take(d, 1)).squared().sum(2)
    t = (eta.take(d, 1) - eta.take(c, 1)) / (v + 1.0).map("Sqrt")
    # kappa_cd (eta_d - eta_c) is 0 at d = c, so that the log softmax of row c there is ln p_c.
    table = graph.apply("Reshape", t, graph.integers([0, n_classes, n_classes])).map("LogSoftmax", axis=2)
    flat = graph.apply("Reshape", table, graph.integers([0, n_classes**2]))
    return flat.take(np.flatnonzero(c == d), 1)


def log_cdf(x: Value) -> Value:
    """Return ln Phi(x), with relative precision in the left tail.

    ``Erf`` has no such precision, and in onnxruntime no implementation in double precision. Phi(-|x|) is
    exp(-x^2 / 2) times a smooth function of (|x| - k) / (|x| + k), here a Chebyshev interpolant.
    """

    def tail(s: Any) -> Any:  # exp(x^2 / 2) Phi(-x) for x >= 0
        return 0.5 * erfcx(_TAIL_CENTRE * (1.0 + s) / (1.0 - s) / np.sqrt(2.0))

    degree = _TAIL_DEGREE[x.graph.dtype.name]
    first, *rest = chebyshev.cheb2poly(chebyshev.chebinterpolate(tail, degree))[::-1]
    size = x.map("Abs")
    s = (size - _TAIL_CENTRE) / (size + _TAIL_CENTRE)
    scaled = s * first + rest[0]
    for coefficient in rest[1:]:
        scaled = scaled * s + coefficient
    log_tail = scaled.map("Log") - x.squared() * 0.5
    log_body = (-log_tail.map("Exp") + 1.0).map("Log")
    negative = x.graph.apply("Less", x, x.graph.real(0.0))
    return x.graph.apply("Where", negative, log_tail, log_body)


def probit(scores: Value, winner: Value, n_classes: int) -> Value:
    """Return P(c) = E_u prod_{d != c} Phi(u + f_c - f_d) of scores f, (n, n_classes).

    ``winner``: index of the highest score, (n, 1). With y = u + f_c the integrand of class c is
    prod_d Phi(y - f_d) times the hazard phi / Phi at y - f_c. It is entire and decays like a Gaussian, so
    that the trapezoidal rule converges geometrically; all mass but 1e-12 is near the highest score.
    """
    if n_classes == 2:  # Phi((f_1 - f_0) / sqrt(2)), right far into the tail
        difference = scores.take([1], 1) - scores.take([0], 1)
        return log_cdf(scores.graph.join([-difference, difference], 1) * np.sqrt(0.5)).map("Exp")
    top = scores.graph.apply("GatherElements", scores, winner, axis=1)
    behind = (top - scores).expand_dims(1)  # (n, 1, n_classes)
    x = behind + _NODES[np.newaxis, :, np.newaxis]
    log_phi = log_cdf(x)
    log_density = log_phi.sum(2, keep=True) - log_phi - x.squared() * 0.5
    mass: Value = (log_density + (np.log(_SPACING) - _LOG_ROOT_TWO_PI)).map("Exp").sum(1)
    return mass / mass.sum(1, keep=True)


def _model_proto(graph: Graph, model: ServedModel, outputs: list[Output], opset: int) -> onnx.ModelProto:
    from onnx import helper, numpy_helper

    def info(name: str, dtype: np.dtype[Any], shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), ["n", *shape])

    for name, value, _, _ in outputs:
        graph.nodes.append(Node("Identity", (value.name,), name, {}))
    nodes = [
        helper.make_node(node.op, node.inputs, [node.output], name=node.output, **node.attributes)
        for node in graph.nodes
    ]
    proto = helper.make_graph(
        nodes,
        model.estimator,
        [info(graph.x.name, graph.dtype, [graph.n_features])],
        [info(name, dtype, shape) for name, _, dtype, shape in outputs],
        [numpy_helper.from_array(values, name) for name, values in graph.constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    result = helper.make_model(
        proto,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="sparsebayes",
        producer_version=__version__,
    )
    about = {"estimator": model.estimator}
    if model.feature_names is not None:
        about["feature_names"] = json.dumps(model.feature_names)
    helper.set_model_props(result, about)
    return result
