"""Fitted models as ONNX graphs. Only this module imports onnx, inside functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from ..._checks.arguments import check_integer
from ..._core import __version__
from ..description import ServedModel, describe
from .graph import Graph, Value
from .links import classification, labels, regression, stored_classes

if TYPE_CHECKING:
    import onnx

#: First operator set in which every operator used has its present form; onnxruntime 1.6 supports it.
OLDEST_OPSET = 13


def to_onnx(est: Any, *, dtype: DTypeLike = "float64", opset: int = OLDEST_OPSET) -> onnx.ModelProto:
    """Return a fitted estimator as an ONNX model, for prediction without Python.

    The graph has one input, ``X`` of shape (n, n_features) for any n, and as outputs what the estimator
    predicts:

    * regression: ``mean`` and ``std``, as ``predict(X, return_std=True)`` returns them, (n,) or
      (n, n_outputs);
    * classification: ``label``, (n,), and ``probabilities``, (n, n_classes), as ``predict`` and
      ``predict_proba`` return them. Integer and boolean labels are int64; all others are strings,
      ``str(label)``.

    The graph uses standard operators only. Rows are not checked: a row with NaN has NaN results.

    Parameters
    ----------
    est : fitted estimator of this package
        Callable kernels, and ``extra_basis`` other than "linear", cannot be exported. With
        ``kernel="precomputed"`` X is the kernel between rows and the training rows.
    dtype : {"float64", "float32"}, default="float64"
        Precision of X, of the arithmetic and of the results. Results in single precision are within about
        1e-4 of the estimator's, relative to their scale, unless large weights cancel. Many devices support
        single precision only.
    opset : int, default=13
        Version of the operator set that the model requires. The operators used are the same in all versions
        from 13 (2020) on.

    Returns
    -------
    onnx.ModelProto
        ``metadata_props`` holds the name of the estimator and, if known, the names of its features.

    Raises
    ------
    ImportError
        If onnx is not installed: ``pip install sparsebayes[onnx]``.
    TypeError
        If est is not an estimator of this package; for a pipeline see `register_onnx_converters`.
    NotFittedError
        If est is not fitted.
    ValueError
        If the model has functions that only Python can evaluate, or numbers too large for ``dtype``.

    Notes
    -----
    Probabilities of `MRVM1` and `MRVM2` are computed by a quadrature in the graph, exact to 1e-10, not with
    the estimator's ``n_quadrature``.

    Temporary memory for each row of a batch: m * d numbers for m kernels on d inputs, 2 ** 14 at most; 59 for
    each class of a probit; for a softmax the number of weights for each pair of classes. Pass rows in batches
    of a few thousand.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, to_onnx
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-5, 5, (50, 1))
    >>> model = to_onnx(RVR(gamma=0.5).fit(X, np.sinc(X[:, 0]) + 0.1 * rng.normal(size=50)))
    >>> [output.name for output in model.graph.output]
    ['mean', 'std']

    ``onnx.save(model, "model.onnx")`` writes it to a file; onnxruntime runs it:
    ``InferenceSession("model.onnx").run(None, {"X": X})``.
    """
    require("onnx", "sparsebayes.to_onnx")
    precision, version = _check_dtype(dtype), _check_opset(opset)
    model = describe(est)
    graph = Graph(precision, model.n_features)
    for name, value in build(graph, model, flat=model.flat).items():
        graph.publish(value, name)
    return _model_proto(graph, model, version)


def require(package: str, caller: str) -> None:
    """Raise ImportError with the remedy if a package is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        remedy = "sparsebayes[onnx]" if package == "onnx" else package
        raise ImportError(f"{caller} needs {package}, which is not installed: run `pip install {remedy}`")


def build(graph: Graph, model: ServedModel, *, flat: bool) -> dict[str, Value]:
    """Add a model to the graph and return its outputs by name.

    Those of a regression are (n, n_outputs), or (n,) if ``flat``.
    """
    if model.classes is not None:
        index, probabilities = classification(graph, model)
        return {"label": labels(graph, index, model.classes), "probabilities": probabilities}
    mean, std = regression(graph, model)
    return {"mean": mean.squeeze(1), "std": std.squeeze(1)} if flat else {"mean": mean, "std": std}


def outputs_of(model: ServedModel, dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any], list[int]]]:
    """Return name, type and shape of the outputs of the graph of a model; the shape is that of a row."""
    if model.classes is not None:
        label = ("label", stored_classes(model.classes).dtype, list[int]())
        return [label, ("probabilities", dtype, [len(model.classes)])]
    shape = [] if model.flat else [len(model.outputs)]
    return [("mean", dtype, shape), ("std", dtype, shape)]


def _model_proto(graph: Graph, model: ServedModel, opset: int) -> onnx.ModelProto:
    from onnx import helper, numpy_helper

    x = helper.make_tensor_value_info(graph.x.name, element_type(graph.dtype), ["n", graph.n_features])
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
    """Return ONNX's number for a type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        checked = np.dtype(dtype)
    except (TypeError, UnicodeError):
        raise TypeError(f"dtype must be 'float64' or 'float32', got {dtype!r}") from None
    if dtype is None or checked not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    return checked.newbyteorder("=")


def _check_opset(opset: object) -> int:
    from onnx.defs import onnx_opset_version

    checked = check_integer("opset", opset, least=OLDEST_OPSET)
    if checked > onnx_opset_version():
        newest = onnx_opset_version()
        raise ValueError(f"opset must be at most {newest}, the newest that onnx knows here, got {checked}")
    return checked
