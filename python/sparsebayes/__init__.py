"""Sparse Bayesian learning: the relevance vector machine family, trained fast.

>>> from sparsebayes import RVR
>>> RVR(gamma=0.5)
RVR(gamma=0.5)

Estimators are loaded on first access, so that importing the package loads neither scikit-learn nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._core import NumericalError, __version__
from ._types import Progress, StepRecord
from .predictor import Predictor, load

if TYPE_CHECKING:
    from . import inspection, kernels, model_selection, plot, providers
    from ._data.statistics import SufficientStatistics
    from ._estimators.status import OverfitWarning
    from ._export.c_header import to_c
    from ._export.onnx import register_onnx_converters, to_onnx
    from .classification import RVC, SparseBayesClassifier
    from .multiclass import MRVM1, MRVM2
    from .providers import PyStatistics
    from .regression import RVR, SparseBayesRegressor
    from .revm import GREVM, LREVM, VGREVM, GREVMRegressor, LREVMRegressor

#: The modules that are loaded on first access, and the names that the package takes from them.
_LAZY_MODULES = {
    "_data.statistics": ["SufficientStatistics"],
    "_estimators.status": ["OverfitWarning"],
    "_export.c_header": ["to_c"],
    "_export.onnx": ["register_onnx_converters", "to_onnx"],
    "classification": ["RVC", "SparseBayesClassifier"],
    "multiclass": ["MRVM1", "MRVM2"],
    "providers": ["PyStatistics"],
    "regression": ["RVR", "SparseBayesRegressor"],
    "revm": ["GREVM", "LREVM", "VGREVM", "GREVMRegressor", "LREVMRegressor"],
}
_LAZY = {name: module for module, names in _LAZY_MODULES.items() for name in names}
_PUBLIC_MODULES = ("dask", "inspection", "kernels", "model_selection", "plot", "providers")

__all__ = ["RVC", "RVR", "SparseBayesClassifier", "SparseBayesRegressor"]
__all__ += ["GREVM", "LREVM", "MRVM1", "MRVM2", "VGREVM", "GREVMRegressor", "LREVMRegressor"]
__all__ += ["NumericalError", "OverfitWarning", "Progress", "StepRecord"]
__all__ += ["PyStatistics", "SufficientStatistics"]
__all__ += ["Predictor", "load", "register_onnx_converters", "to_c", "to_onnx"]
__all__ += ["__version__", "inspection", "kernels", "model_selection", "plot", "providers"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        value = import_module(f".{name}", __name__)
    elif name in _LAZY:
        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "dask", *(name for name in globals() if name.startswith("__"))})
