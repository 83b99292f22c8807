"""Converters for skl2onnx, so that pipelines that end in an estimator of this package convert."""

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
#: What skl2onnx may be asked of a classifier: how it gives probabilities, and with or without the labels.
_CLASSIFIER_OPTIONS = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


def register_onnx_converters() -> None:
    """Let skl2onnx convert the estimators of this package, in pipelines and on their own.

    Call it once before ``skl2onnx.to_onnx`` or ``skl2onnx.convert_sklearn``. The outputs are those of
    `to_onnx`; the precision is that of the types or rows that skl2onnx is given, single for integers. Give it
    ``options={"zipmap": False}`` to have class probabilities as an array; the alternative, a dictionary for
    each row, exists in single precision only.

    Raises
    ------
    ImportError
        If skl2onnx is not installed: ``pip install skl2onnx``.

    Notes
    -----
    Inside an ensemble of scikit-learn a regressor gives its mean alone.

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
    """Declare mean and standard deviation; what they look like is told later, by `_set_types`."""
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
    for output, wanted in zip(operator.outputs, outputs_of(model, dtype), strict=False):
        width = 1 if _is_nested(operator) and wanted.n_columns is None else wanted.n_columns
        output.set_type(_tensor_type(wanted.dtype)([n_rows] if width is None else [n_rows, width]))


def _convert(scope: Any, operator: Any, container: Any) -> None:
    if container.target_opset_onnx < OLDEST_OPSET:
        raise ValueError(
            f"target_opset must be at least {OLDEST_OPSET}, got {container.target_opset_onnx}: the operators "
            "in use had other forms before"
        )
    model = describe(operator.raw_operator)
    graph = Graph(_precision(operator.inputs[0]), model.n_features)
    results = build(graph, model)
    squeeze = model.classes is None and model.flat and not _is_nested(operator)
    names = {graph.x.name: _rows(scope, operator, container, graph.dtype)}
    for (name, value), output in zip(results.items(), operator.outputs, strict=False):
        graph.publish(value.squeeze(1) if squeeze else value, name)
        names[name] = output.full_name
    _copy(graph, names, scope, container)


def _copy(graph: Graph, names: dict[str, str], scope: Any, container: Any) -> None:
    """Copy the graph; ``names`` are those that input and outputs have there."""
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
    """Return the name of the input, as floating-point numbers."""
    rows = operator.inputs[0]
    if isinstance(rows.type, _tensor_type(dtype)):
        name: str = rows.full_name
        return name
    cast: str = scope.get_unique_variable_name("sparsebayes_rows")
    container.add_node(
        "Cast",
        [rows.full_name],
        [cast],
        name=scope.get_unique_operator_name("sparsebayes_Cast"),
        to=element_type(dtype),
    )
    return cast


def _is_nested(operator: Any) -> bool:
    """Tell whether this is a regressor of an ensemble, whose converter takes one output, a column."""
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
