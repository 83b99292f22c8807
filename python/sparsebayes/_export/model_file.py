"""Model files: the header and the tables that hold a fitted model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _core, kernels
from ..predictor import Predictor
from .description import Centres, Columns, Constant, ServedModel, describe

if TYPE_CHECKING:
    from .._types import FloatArray
    from .description import Block

#: Version of the format of header and tables; the core reads this version and all earlier ones.
_FORMAT_VERSION = 1


def to_predictor(est: Any) -> Predictor:
    """Return a fitted estimator as a `Predictor`."""
    model = describe(est)
    return Predictor(_core.Predictor.from_parts(json.dumps(header(model)), tables(model)))


def header(model: ServedModel) -> dict[str, Any]:
    """Return everything but the numeric tables of a model, as JSON types."""
    return {
        "format_version": _FORMAT_VERSION,
        "library_version": _core.__version__,
        "estimator": model.estimator,
        "n_features": model.n_features,
        "feature_names": model.feature_names,
        "classes": None if model.classes is None else _labels(model.classes),
        "flat": model.flat,
        "blocks": [_block(block) for block in model.blocks],
        "outputs": [
            None if model.has_all_functions(output) else output.functions.tolist() for output in model.outputs
        ],
        "link": model.link,
        "uncertainty": model.uncertainty,
        "n_quadrature": model.n_quadrature,
    }


def tables(model: ServedModel) -> dict[str, FloatArray]:
    """Return the numeric tables of a model by name."""
    found = {
        f"points.{b}": block.points for b, block in enumerate(model.blocks) if isinstance(block, Centres)
    }
    found |= {f"weights.{c}": output.weights for c, output in enumerate(model.outputs)}
    found |= {f"covariance.{i}": matrix for i, matrix in enumerate(model.covariances)}
    if model.noise_variance is not None:
        found["noise_variance"] = model.noise_variance
    return {name: np.ascontiguousarray(table, dtype=np.float64) for name, table in found.items()}


def _block(block: Block) -> Any:
    if isinstance(block, Constant):
        return "constant"
    if isinstance(block, Columns):
        columns = block.columns.tolist()
        if not block.offsets.any():
            return {"columns": columns}
        return {"centred_columns": {"columns": columns, "offsets": block.offsets.tolist()}}
    return {"centres": kernel_header(block.kernel)}


def kernel_header(kernel: kernels.Kernel) -> Any:
    """Return a kernel that the core evaluates as JSON types, in the core's own form."""
    match kernel:
        case kernels.Gaussian():
            return {"gaussian": {"inverse_square_widths": kernel._inverse_squares()}}
        case kernels.Laplacian():
            return {"laplacian": {"gamma": kernel.gamma}}
        case kernels.Polynomial():
            return {"polynomial": {"degree": kernel.degree, "gamma": kernel.gamma, "coef0": kernel.coef0}}
        case kernels.Linear():
            return "linear" if kernel.offset is None else {"centred_linear": {"offset": list(kernel.offset)}}
        case kernels.Sigmoid():
            return {"sigmoid": {"gamma": kernel.gamma, "coef0": kernel.coef0}}
        case kernels.LinearSpline():
            return "linear_spline"
        case kernels.Sum():
            return {"sum": [kernel_header(term) for term in kernel.terms]}
        case kernels.Product():
            return {"product": [kernel_header(factor) for factor in kernel.factors]}
        case kernels.OnColumns():
            return {"on_columns": {"columns": list(kernel.columns), "kernel": kernel_header(kernel.inner())}}  # type: ignore[arg-type] # positions
    raise ValueError(f"kernel {kernel!r} cannot be saved: it is evaluated by Python")


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Return labels as JSON types, and the name of their dtype."""
    kind = classes.dtype.kind
    if kind in "Mm":
        values = classes.view(np.int64).tolist()
    elif kind in "biufU" or (kind == "O" and all(isinstance(v, (str, bool, int, float)) for v in classes)):
        values = classes.tolist()
    else:
        raise ValueError(
            f"y has labels of type {classes.dtype}, which a model file cannot hold; fit with strings "
            "or numbers"
        )
    return {"dtype": classes.dtype.str, "values": values}
