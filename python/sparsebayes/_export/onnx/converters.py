"""Converters for skl2onnx, for pipelines that end in an estimator of this package."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...classification import RVC, SparseBayesClassifier
from ...multiclass import MRVM1, MRVM2
from ...regression import RVR, SparseBayesRegressor
from ...revm import GREVM, LREVM, VGREVM, GREVMRegressor, LREVMRegressor
from ..description import describe
from .graph import Graph
from .model import OLDEST_OPSET, build, element_type, outputs_of, require

_REGRESSORS = (RVR, SparseBayesRegressor, GREVMRegressor, LREVMRegressor)
_CLASSIFIERS = (RVC, SparseBayesClassifier, MRVM1, MRVM2, GREVM, LREVM, VGREVM)
#: The options of skl2onnx for a classifier: the form of the probabilities, and whether to return labels.
_CLASSIFIER_OPTIONS = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


def register_onnx_converters() -> None:
    """Let skl2onnx convert the estimators of this package, in pipelines and on their own.

    Call this function once before ``skl2onnx.to_onnx`` or ``skl2onnx.convert_sklearn``. The graph has the
    outputs of `to_onnx`, in the precision of the types or rows that are passed to skl2onnx, single for
    integers. Pass ``options={"zipmap": False}`` to skl2onnx to get class probabilities as an array; by
    default it returns a dictionary for each row, in single precision only.

    Raises
    ------
    ImportError
        If skl2onnx is not installed: ``pip install skl2onnx``.

    Notes
    -----
    Inside an ensemble of scikit-learn a regressor has one output, its mean.

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

    for estimator in (*_REGRESSORS, *_CLASSIFIERS):
        labels = estimator in _CLASSIFIERS
        update_registered_converter(
            estimator,
            f"SparseBayes{estimator.__name__}",
            _set_types,
            _convert,
            parser=None if labels else _parse_regressor,
            options=_CLASSIFIER_OPTIONS if labels else None,
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
    model = describe(operator.raw_operator)
    graph = Graph(_precision(operator.inputs[0]), model.n_features)
    results = build(graph, model, flat=model.flat and not _is_nested(operator))
    names = {graph.x.name: _rows(scope, operator, container, graph.dtype)}
    for (name, value), output in zip(results.items(), operator.outputs, strict=False):
        graph.publish(value, name)
        names[name] = output.full_name
    _copy(graph, names, scope, container)


def _copy(graph: Graph, names: dict[str, str], scope: Any, container: Any) -> None:
    """Copy the graph to ``container``; ``names`` maps its input and outputs to their names there."""
    for name, values in graph.constants.items():
        names[name] = scope.get_unique_variable_name(f"sparsebayes_{name}")
        container.add_initializer(
            names[name], element_type(values.dtype), list(values.shape), values.ravel().tolist()
        )
    for node in graph.nodes:
        if node.output not in names:
            names[node.output] = scope.get_unique_variable_name(f"sparsebayes_{node.output}")
        container.add_node(
            node.op,
            [names[name] for name in node.inputs],
            [names[node.output]],
            name=scope.get_unique_operator_name(f"sparsebayes_{node.op}"),
            **node.attributes,
        )


def _rows(scope: Any, operator: Any, container: Any, dtype: np.dtype[Any]) -> str:
    """Return the name of the input, after a cast if it does not hold floating-point numbers."""
    rows = operator.inputs[0]
    if isinstance(rows.type, _tensor_type(dtype)):
        return str(rows.full_name)
    cast = scope.get_unique_variable_name("sparsebayes_rows")
    name = scope.get_unique_operator_name("sparsebayes_Cast")
    container.add_node("Cast", [rows.full_name], [cast], name=name, to=element_type(dtype))
    return str(cast)


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
