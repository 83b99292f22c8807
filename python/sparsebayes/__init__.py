"""Sparse Bayesian learning: the relevance vector machine family, trained fast.

>>> from sparsebayes import RVR
>>> RVR(gamma=0.5)
RVR(gamma=0.5)

Estimators are loaded when first touched, so that importing the package loads neither scikit-learn nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._core import NumericalError, __version__
from ._types import Progress, StepRecord
from .predictor import Predictor, load

if TYPE_CHECKING:
    from . import model_selection, plot, providers
    from ._data.statistics import SufficientStatistics
    from ._estimators.status import OverfitWarning
    from ._export.c.header import to_c
    from ._export.onnx.converters import register_onnx_converters
    from ._export.onnx.model import to_onnx
    from .classification import RVC, SparseBayesClassifier
    from .inspection import _certificate as inspection
    from .kernels import _standard as kernels
    from .multiclass import MRVM1, MRVM2
    from .providers import PyStatistics
    from .regression import RVR, SparseBayesRegressor
    from .revm import GREVM, LREVM, VGREVM, GREVMRegressor, LREVMRegressor

#: Where each name that is loaded on first touch lives; modules stand for themselves.
_LAZY = {
    "GREVM": "revm",
    "GREVMRegressor": "revm",
    "LREVM": "revm",
    "LREVMRegressor": "revm",
    "MRVM1": "multiclass",
    "MRVM2": "multiclass",
    "OverfitWarning": "_estimators.status",
    "PyStatistics": "providers",
    "RVC": "classification",
    "RVR": "regression",
    "SparseBayesClassifier": "classification",
    "SparseBayesRegressor": "regression",
    "SufficientStatistics": "_data.statistics",
    "VGREVM": "revm",
    "dask": "",
    "inspection": "",
    "kernels": "",
    "model_selection": "",
    "plot": "",
    "providers": "",
    "register_onnx_converters": "_export.onnx.converters",
    "to_onnx": "_export.onnx.model",
    "to_c": "_export.c.header",
}

__all__ = [
    "GREVM",
    "LREVM",
    "MRVM1",
    "MRVM2",
    "RVC",
    "RVR",
    "VGREVM",
    "GREVMRegressor",
    "LREVMRegressor",
    "NumericalError",
    "OverfitWarning",
    "Predictor",
    "Progress",
    "PyStatistics",
    "SparseBayesClassifier",
    "SparseBayesRegressor",
    "StepRecord",
    "SufficientStatistics",
    "__version__",
    "inspection",
    "kernels",
    "load",
    "model_selection",
    "plot",
    "providers",
    "register_onnx_converters",
    "to_c",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_LAZY[name] or name}", __name__)
    value = getattr(module, name) if _LAZY[name] else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "dask", *(name for name in globals() if name.startswith("__"))})
