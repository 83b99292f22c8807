"""Fitted models as ONNX graphs, and converters for skl2onnx. onnx is imported inside functions only.

Every operator used means the same since version 13 of the operator set, and onnxruntime implements it in
single and in double precision. (Erf, Sinh and Softplus lack double precision.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union, cast

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.special import erfcx

from .._checks import check_integer
from .._core import __version__
from .._estimators.posterior import rounding
from .._types import FloatArray, IntArray
from ..kernels import Kernel, Linear, OnColumns
from ..kernels._base import Combination
from ..kernels._standard import Affine
from .description import Block, Columns, Constant, Growth, ServedModel, Traced, describe, roots

if TYPE_CHECKING:
    import onnx

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
#: The options of skl2onnx for a classifier: the form of the probabilities, whether to return labels, and
#: whether to return the decision function instead of probabilities, which calibration asks for.
_CLASSIFIER_OPTIONS = {
    "raw_scores": [False, True],
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


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
        If est is not a fitted estimator (for a pipeline see `register_onnx_converters`), or its
        functions or numbers cannot be exported.

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
    require("onnx", "sparsebayes.to_onnx")
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
    graph = Graph(precision)
    for name, value in build(graph, model, flat=model.flat).items():
        graph.apply("Identity", value, output=name)
    return _model_proto(graph, model, version)


def require(package: str, caller: str) -> None:
    """Raise ImportError with the remedy if a package is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        remedy = "sparsebayes[onnx]" if package == "onnx" else package
        raise ImportError(f"{caller} needs {package}, which is not installed: run `pip install {remedy}`")


def build(graph: Graph, model: ServedModel, *, flat: bool, raw_scores: bool = False) -> dict[str, Value]:
    """Add a model to the graph and return its outputs by name.

    Those of a regression are (n, n_outputs), or (n,) if ``flat``. ``raw_scores``: the decision function
    instead of probabilities, of two classes with both signs.
    """
    if model.classes is not None:
        index, probabilities = _classification(graph, model)
        if raw_scores:
            probabilities = _scores(graph, model)
        label = graph.apply("Gather", graph.constant(_stored(model.classes)), index, axis=0)
        return {"label": label, "probabilities": probabilities}
    mean, std = _regression(graph, model)
    return {"mean": mean.squeeze(1), "std": std.squeeze(1)} if flat else {"mean": mean, "std": std}


def _regression(graph: Graph, model: ServedModel) -> tuple[Value, Value]:
    """Return mean and standard deviation, each (n, n_outputs)."""
    basis = Basis(graph, model.blocks)
    eta, v = _predictors(basis, model), _variances(basis, model)
    for growth in model.growths:
        added = _growth(graph, growth, model.n_features)
        v = added if v is None else v + added
    if model.link in ("log", "log_continuous"):
        dispersion = 0.0 if model.noise_variance is None else float(model.noise_variance[0])
        return np.exp(eta), _std_of_log(eta, v, dispersion, counts=model.link == "log")
    assert model.noise_variance is not None
    noise = np.broadcast_to(model.noise_variance, len(model.outputs))
    return eta, graph.repeat_rows(np.sqrt(noise)) if v is None else np.sqrt(v + noise)


def _growth(graph: Graph, growth: Growth, n_features: int) -> Value:
    """Return what a growth adds to the variances, (n, n_outputs)."""
    kernel, points = growth.centres.kernel, growth.centres.points
    inverse = solve_triangular(growth.factor, np.eye(len(points)), lower=True)
    projection = evaluate(kernel, graph.x, points) @ inverse.T
    own = diagonal(kernel, graph.x, n_features)
    rest = (own - rounding(kernel, graph.dtype.name) * own) - (projection * projection).sum(1, keep=True)
    return cast(Value, np.maximum(rest, 0.0) * growth.scale[np.newaxis])


def _std_of_log(eta: Value, v: Value | None, dispersion: float, *, counts: bool) -> Value:
    """Return sqrt(exp(eta + v/2) + (e^v - 1 + d e^v) exp(2 eta + v)), with the factor exp(eta / 2) taken out.

    Without the first term unless the targets are counts.
    """
    root: Value = np.exp(0.5 * eta)
    if v is None:
        if not counts:
            return cast(Value, float(np.sqrt(dispersion)) * np.exp(eta))
        return root if dispersion == 0.0 else cast(Value, root * np.sqrt(dispersion * np.exp(eta) + 1.0))
    factor = np.tanh(0.5 * v) * (np.exp(v) + 1.0)  # e^v - 1 without cancellation
    if dispersion > 0.0:
        factor = factor + dispersion * np.exp(v)
    # In logarithms, as 0 times infinity is not 0.
    own = np.exp(np.log(factor) + eta + v)
    return cast(Value, root * np.sqrt(np.exp(0.5 * v) + own if counts else own))


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
    v = _variances(basis, model, unit=np.pi / 8.0)
    z: Any = eta if v is None else eta / np.sqrt(v + 1.0)
    if len(model.classes) == 2:
        both = graph.join([-z, z], 1)
        return _winner(both), both.map("Sigmoid")
    p = z.map("Softmax", axis=1)
    # Like the estimators: compare scores without covariances, probabilities with them.
    return _winner(z if v is None else p), p


def _scores(graph: Graph, model: ServedModel) -> Value:
    """Return the decision function, (n, n_classes)."""
    assert model.classes is not None
    eta = _predictors(Basis(graph, model.blocks), model)
    if len(model.classes) > 2:
        return eta
    z = eta if len(model.outputs) == 1 else eta.take([1], 1) - eta.take([0], 1)
    return graph.join([-z, z], 1)


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


def _variances(basis: Basis, model: ServedModel, *, unit: float = 1.0) -> Value | None:
    """Return the variances of the linear predictors, (n, n_outputs) or (n, 1) for all; None: they are 0.

    They are multiplied by ``unit``. It scales the weights, because onnxruntime fuses a scalar factor into the
    preceding matrix product and keeps the scalar in single precision.
    """
    pairs = zip(model.outputs, roots(model), strict=False)  # one root may be for all outputs
    factors = [basis.placed(output.functions, R.T) for output, R in pairs]
    sizes = [factor.shape[1] for factor in factors]
    if sum(sizes) == 0:
        return None
    root = basis.linear(np.sqrt(unit) * np.hstack(factors))
    squares: Value = root * root
    if len(sizes) == 1:
        return squares.sum(1, keep=True)
    return cast(Value, squares @ np.repeat(np.eye(len(sizes)), sizes, axis=0))


def _moderated_softmax(graph: Graph, basis: Basis, model: ServedModel, eta: Value) -> Value:
    """Return ln p_c up to a constant: 1 / p_c = sum_d exp(kappa_cd (eta_d - eta_c))."""
    if model.uncertainty == "none" or model.covariances[0].size == 0:
        return eta
    root = np.sqrt(np.pi / 8.0) * roots(model)[0].T
    functions = [output.functions for output in model.outputs]
    of_classes = np.split(root, np.cumsum([len(at) for at in functions])[:-1])
    along = [basis.linear(basis.placed(at, rows)) for at, rows in zip(functions, of_classes, strict=True)]
    G = graph.join([value.expand_dims(1) for value in along], 1)  # (n, n_classes, n_weights)
    differences = G.expand_dims(1) - G.expand_dims(2)
    v = (differences * differences).sum(3)
    t = (eta.expand_dims(1) - eta.expand_dims(2)) / np.sqrt(v + 1.0)
    # kappa_cd (eta_d - eta_c) is 0 at d = c, so that the log softmax of row c there is ln p_c.
    table: Value = t.map("LogSoftmax", axis=2) * np.eye(len(model.outputs))
    return table.sum(2)


def log_cdf(x: Value) -> Value:
    """Return ln Phi(x), with relative precision in the left tail.

    ``Erf`` has no such precision, and in onnxruntime no implementation in double precision. Phi(-|x|) is
    exp(-x^2 / 2) times a smooth function of (|x| - k) / (|x| + k), here a Chebyshev interpolant.
    """

    def tail(s: Any) -> Any:  # exp(x^2 / 2) Phi(-x) for x >= 0
        return 0.5 * erfcx(_TAIL_CENTRE * (1.0 + s) / (1.0 - s) / np.sqrt(2.0))

    degree = _TAIL_DEGREE[x.graph.dtype.name]
    first, *rest = chebyshev.cheb2poly(chebyshev.chebinterpolate(tail, degree))[::-1]
    size = np.abs(x)
    s = (size - _TAIL_CENTRE) / (size + _TAIL_CENTRE)
    scaled = reduce(lambda value, coefficient: value * s + coefficient, rest, first)
    log_tail = np.log(scaled) - 0.5 * (x * x)
    log_body = np.log(1.0 - np.exp(log_tail))
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
        return cast(Value, np.exp(log_cdf(np.sqrt(0.5) * scores.graph.join([-difference, difference], 1))))
    top = scores.graph.apply("GatherElements", scores, winner, axis=1)
    behind = (top - scores).expand_dims(1)  # (n, 1, n_classes)
    x = behind + _NODES[np.newaxis, :, np.newaxis]
    log_phi = log_cdf(x)
    log_density = log_phi.sum(2, keep=True) - log_phi - 0.5 * (x * x)
    mass: Value = np.exp(log_density + (np.log(_SPACING) - _LOG_ROOT_TWO_PI)).sum(1)
    return cast(Value, mass / mass.sum(1, keep=True))


def outputs_of(model: ServedModel, dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any], list[int]]]:
    """Return name, type and shape of the outputs of the graph of a model; the shape is that of a row."""
    if model.classes is not None:
        label = ("label", _stored(model.classes).dtype, list[int]())
        return [label, ("probabilities", dtype, [len(model.classes)])]
    shape = [] if model.flat else [len(model.outputs)]
    return [("mean", dtype, shape), ("std", dtype, shape)]


def _model_proto(graph: Graph, model: ServedModel, opset: int) -> onnx.ModelProto:
    from onnx import helper, numpy_helper

    x = helper.make_tensor_value_info(graph.x.name, element_type(graph.dtype), ["n", model.n_features])
    proto = helper.make_graph(
        [
            helper.make_node(node.op, node.inputs, [node.output], name=node.output, **node.attributes)
            for node in graph.nodes
        ],
        model.estimator,
        [x],
        [
            helper.make_tensor_value_info(name, element_type(dtype), ["n", *shape])
            for name, dtype, shape in outputs_of(model, graph.dtype)
        ],
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


def element_type(dtype: np.dtype[Any]) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


# --- converters for skl2onnx -------------------------------------------------------------------------


def register_onnx_converters() -> None:
    """Let skl2onnx convert the estimators of this package, in pipelines and on their own.

    Call this function once before ``skl2onnx.to_onnx`` or ``skl2onnx.convert_sklearn``. The graph has the
    outputs of `to_onnx` in the precision of the types or rows that are passed to skl2onnx, single for
    integers; a regressor inside an ensemble has only its mean. Pass ``options={"zipmap": False}`` to get
    class probabilities as an array; by default they are dictionaries in single precision. With the option
    ``raw_scores`` they are the decision function, which calibration asks for: put
    `~sklearn.calibration.CalibratedClassifierCV` around the classifier, into the pipeline, and not around the
    pipeline, whose options skl2onnx drops; its ``method="isotonic"`` is approximate in skl2onnx.

    Raises
    ------
    ImportError
        If skl2onnx is not installed: ``pip install skl2onnx``.

    Examples
    --------
    >>> import numpy as np, skl2onnx
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sparsebayes import RVC, register_onnx_converters
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> pipeline = make_pipeline(StandardScaler(), RVC(gamma=0.5)).fit(X, X[:, 0] * X[:, 1] > 0)
    >>> register_onnx_converters()
    >>> model = skl2onnx.to_onnx(pipeline, X[:1], options={"zipmap": False})
    >>> [output.name for output in model.graph.output]
    ['label', 'probabilities']
    """
    require("skl2onnx", "sparsebayes.register_onnx_converters")
    from skl2onnx import update_registered_converter

    from .. import classification, multiclass, regression, revm

    for module in (classification, multiclass, regression, revm):
        for estimator in (getattr(module, name) for name in module.__all__):
            update_registered_converter(
                estimator,
                f"SparseBayes{estimator.__name__}",
                _set_types,
                _convert,
                parser=None if estimator._labels else _parse_regressor,
                options=_CLASSIFIER_OPTIONS if estimator._labels else None,
            )


def _parse_regressor(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> Any:
    """Declare the outputs mean and standard deviation; `_set_types` sets their shapes later."""
    operator = scope.declare_local_operator(f"SparseBayes{type(model).__name__}", model)
    operator.inputs = inputs
    kind = _tensor_type(_precision(inputs[0]))
    for name in ("mean", "std"):
        operator.outputs.append(scope.declare_local_variable(name, kind()))
    return operator.outputs


def _set_types(operator: Any) -> None:
    if len(operator.inputs) != 1:
        raise ValueError(
            f"{type(operator.raw_operator).__name__} takes one input in a graph, of all features, and not "
            f"{len(operator.inputs)}; join columns first, for instance by a ColumnTransformer"
        )
    model, dtype = describe(operator.raw_operator), _precision(operator.inputs[0])
    n_rows, n_columns = operator.inputs[0].type.shape
    if n_columns not in (None, model.n_features):
        raise ValueError(
            f"{model.estimator} was fitted to {model.n_features} features, but its input in the graph has "
            f"{n_columns}; give the shape [None, {model.n_features}]"
        )
    for output, (_, kind, shape) in zip(operator.outputs, outputs_of(model, dtype), strict=False):
        columns = [1] if _is_nested(operator) and not shape else shape
        output.set_type(_tensor_type(kind)([n_rows, *columns]))


def _convert(scope: Any, operator: Any, container: Any) -> None:
    if container.target_opset_onnx < OLDEST_OPSET:
        raise ValueError(
            f"target_opset must be at least {OLDEST_OPSET}, got {container.target_opset_onnx}: the operators "
            "used had other forms before"
        )
    model, dtype = describe(operator.raw_operator), _precision(operator.inputs[0])
    graph = Graph(dtype, operator.inputs[0].full_name, scope.get_unique_variable_name)
    if not isinstance(operator.inputs[0].type, _tensor_type(dtype)):  # integers
        graph.x = graph.apply("Cast", graph.x, to=element_type(dtype))
    asked = {} if model.classes is None else container.get_options(operator.raw_operator, {})
    flat, raw_scores = model.flat and not _is_nested(operator), bool(asked.get("raw_scores", False))
    results = build(graph, model, flat=flat, raw_scores=raw_scores)
    for value, output in zip(results.values(), operator.outputs, strict=False):
        graph.apply("Identity", value, output=output.full_name)
    for name, values in graph.constants.items():
        content = values.ravel().tolist()
        container.add_initializer(name, element_type(values.dtype), list(values.shape), content)
    for node in graph.nodes:
        name = scope.get_unique_operator_name(f"sparsebayes_{node.op}")
        container.add_node(node.op, node.inputs, [node.output], name=name, **node.attributes)


def _is_nested(operator: Any) -> bool:
    """Return whether this is a regressor in an ensemble, whose converter expects one output, a column."""
    return len(operator.outputs) == 1


def _precision(variable: Any) -> np.dtype[Any]:
    from skl2onnx.common.data_types import DoubleTensorType

    return np.dtype(np.float64 if isinstance(variable.type, DoubleTensorType) else np.float32)


def _tensor_type(dtype: np.dtype[Any]) -> Any:
    from skl2onnx.common import data_types

    kinds = {
        "float32": data_types.FloatTensorType,
        "float64": data_types.DoubleTensorType,
        "int64": data_types.Int64TensorType,
        "object": data_types.StringTensorType,
    }
    return kinds[dtype.name]


# --- a graph of operators under construction, as plain data: onnx itself is not needed for it -------

#: A value of the graph, or numbers that become a constant of it.
Operand: TypeAlias = Union["Value", ArrayLike]
#: Functions of NumPy in ONNX; all others have the same name in both, in lower case there.
_OPERATORS = {"subtract": "Sub", "multiply": "Mul", "divide": "Div", "matmul": "MatMul", "negative": "Neg"}
_OPERATORS |= {"absolute": "Abs", "minimum": "Min", "maximum": "Max", "rint": "Round"}
#: Most differences between a row and the centres in memory at a time: 128 KiB in double precision.
_MAX_DIFFERENCES = 2**14


class Node(NamedTuple):
    op: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Value(Traced):
    """The output of an operator; arithmetic with it adds operators to its graph."""

    graph: Graph
    name: str

    def _apply(self, function: str, inputs: tuple[Any, ...]) -> Value:
        if function == "log1p":
            return self._log1p()
        operands = map(self.graph.real, inputs)
        return self.graph.apply(_OPERATORS.get(function, function.title()), *operands)

    def map(self, op: str, **attributes: Any) -> Value:
        return self.graph.apply(op, self, **attributes)

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        return self.graph.apply("ReduceSum", self, self.graph.integers([axis]), keepdims=int(keep))

    def take(self, indices: ArrayLike, axis: int) -> Value:
        return self.graph.apply("Gather", self, self.graph.integers(indices), axis=axis)

    def part(self, start: int, stop: int, axis: int) -> Value:
        bounds = [self.graph.integers([at]) for at in (start, stop, axis)]
        return self.graph.apply("Slice", self, *bounds)

    def expand_dims(self, axis: int) -> Value:
        return self.graph.apply("Unsqueeze", self, self.graph.integers([axis]))

    def squeeze(self, axis: int) -> Value:
        return self.graph.apply("Squeeze", self, self.graph.integers([axis]))

    def _log1p(self) -> Value:
        """Return ln(1 + t) for t >= 0, with the error of u = 1 + t corrected to first order."""
        t: Any = self._apply("minimum", (self, np.finfo(self.graph.dtype).max / 4.0))
        u = t + 1.0
        value: Value = np.log(u) + (t - (u - 1.0)) / u
        return value


def evaluate(kernel: Kernel, x: Value, points: FloatArray) -> Value:
    """Return k of rows x, (n, d), and points, (m, d): (n, m)."""
    operation, (n_points, n_inputs) = kernel._operation, points.shape
    if isinstance(kernel, Combination):
        return reduce(operation, (evaluate(part, x, points) for part in kernel._members))
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(n_inputs)
        return evaluate(kernel.inner(), x.take(columns, 1), points[:, columns])
    if isinstance(kernel, Linear):
        return cast(Value, kernel.centred(x) @ kernel.centred(points).T)
    if isinstance(kernel, Affine):
        return cast(Value, kernel._profile(x @ (kernel.gamma * points.T) + kernel.coef0))
    constants, parts = kernel._per_input(), []
    # The reductions but ReduceSum changed in version 18 of the operator set.
    step = max(1, _MAX_DIFFERENCES // max(1, n_points)) if operation is np.add else 1
    for start in range(0, n_inputs, step):
        at = slice(start, min(start + step, n_inputs))
        block = x if step >= n_inputs else x.part(at.start, at.stop, 1)
        terms = kernel._term(
            block.expand_dims(1), points[np.newaxis, :, at], None if constants is None else constants[at]
        )
        parts.append(terms.sum(2))
    return cast(Value, kernel._of_total(reduce(operation, parts)))


def diagonal(kernel: Kernel, x: Value, n_inputs: int) -> Value:
    """Return k(x, x) of each row of x, (n, n_inputs): (n, 1)."""
    operation = kernel._operation
    if isinstance(kernel, Combination):
        return reduce(operation, (diagonal(part, x, n_inputs) for part in kernel._members))
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(n_inputs)
        return diagonal(kernel.inner(), x.take(columns, 1), len(columns))
    constants = kernel._per_input()
    if operation is np.add:
        return cast(Value, kernel._of_total(kernel._term(x, x, constants).sum(1, keep=True)))
    inputs = (x.part(d, d + 1, 1) for d in range(n_inputs))
    each = [None] * n_inputs if constants is None else constants
    terms = (kernel._term(value, value, constant) for value, constant in zip(inputs, each, strict=True))
    return cast(Value, kernel._of_total(reduce(operation, terms)))


class Graph:
    """Operators in the order of evaluation, and their constants.

    Every name denotes one value: a constant, the output of an earlier operator, or the input ``x``, the rows
    to predict at, (n, n_features). ``unique`` makes names that no other part of the model has.
    """

    def __init__(self, dtype: np.dtype[Any], x: str = "X", unique: Callable[[str], str] = str) -> None:
        self.dtype, self.x, self._unique = dtype, Value(self, x), unique
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def apply(self, op: str, *inputs: Value, output: str | None = None, **attributes: int) -> Value:
        """Add an operator; ``output`` is the name of its result."""
        output = output or self._unique(f"{op.lower()}_{len(self.nodes)}")
        self.nodes.append(Node(op, [value.name for value in inputs], output, attributes))
        return Value(self, output)

    def real(self, values: Operand) -> Value:
        """Return real numbers in the precision of the graph; ValueError if one is too large for it."""
        if isinstance(values, Value):
            return values
        exact = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore"):
            stored = exact.astype(self.dtype)
        if not np.array_equal(np.isfinite(exact), np.isfinite(stored)):
            raise ValueError(
                f"the model holds numbers up to {np.abs(exact).max():.3g}, too large for "
                f"dtype={self.dtype.name!r}; use dtype='float64', or scale X and y and fit again"
            )
        return self.constant(stored)

    def integers(self, values: ArrayLike) -> Value:
        return self.constant(np.asarray(values, dtype=np.int64))

    def join(self, parts: list[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.apply("Concat", *parts, axis=axis)

    def repeat_rows(self, row: NDArray[Any]) -> Value:
        n_rows = self.x.map("Shape").part(0, 1, 0)
        return self.apply("Expand", self.real(row), self.join([n_rows, self.integers([len(row)])], 0))

    def constant(self, values: NDArray[Any]) -> Value:
        """Return a constant of this type; equal constants are stored once."""
        content = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        key = (values.dtype.str, values.shape, content)
        if key not in self._known:
            self._known[key] = Value(self, self._unique(f"constant_{len(self.constants)}"))
            self.constants[self._known[key].name] = values
        return self._known[key]


def _factors(kernel: Kernel, x: Value, points: FloatArray) -> tuple[Value, FloatArray]:
    """Return values (n, q) and numbers (q, m) whose product is k."""
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(points.shape[1])
        return _factors(kernel.inner(), x.take(columns, 1), points[:, columns])
    if isinstance(kernel, Linear):
        return kernel.centred(x), kernel.centred(points).T
    return evaluate(kernel, x, points), np.eye(len(points))


class Basis:
    """The basis functions at the rows of the input, and linear combinations of them.

    Linear kernels are not evaluated: sum_j w_j x.z_j is computed as x.(sum_j w_j z_j), so that large terms
    cancel in double precision before they reach the graph.
    """

    def __init__(self, graph: Graph, blocks: list[Block]) -> None:
        self._graph = graph
        self.size = sum(block.size for block in blocks)
        constant = [isinstance(block, Constant) for block in blocks for _ in range(block.size)]
        self._at_zero = np.array(constant, dtype=np.float64)
        parts: list[Value] = []
        slopes = [np.empty((0, 0))]
        for block in blocks:
            if isinstance(block, Constant):
                slopes.append(np.empty((0, 1)))
                continue
            if isinstance(block, Columns):
                part, slope = graph.x.take(block.columns, 1), np.eye(block.size)
                part = part - block.offsets if block.offsets.any() else part
            else:
                part, slope = _factors(block.kernel, graph.x, block.points)
            parts.append(part)
            slopes.append(slope)
        self._values = graph.join(parts, 1) if parts else None
        #: (values, functions): the functions are `_values` @ `_slopes` + `_at_zero`.
        self._slopes = block_diag(*slopes)

    def placed(self, functions: IntArray, rows: FloatArray) -> FloatArray:
        """Return rows for all functions: ``rows`` at ``functions``, 0 elsewhere."""
        placed = np.zeros((self.size, *rows.shape[1:]))
        placed[functions] = rows
        return placed

    def linear(self, weights: FloatArray) -> Value:
        """Return the functions times these weights, (n, k); a row of weights for each function."""
        at_zero = self._at_zero @ weights
        slopes = self._slopes @ weights
        if self._values is None or not slopes.any():
            return self._graph.repeat_rows(at_zero)
        product: Value = self._values @ slopes
        return product + at_zero if at_zero.any() else product
