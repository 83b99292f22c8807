"""From the argument ``kernel=`` to kernel objects with values for all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from .._checks import check_integer, check_real
from .._types import FloatArray, IntArray, KernelLike, KernelSpec
from ._base import Combination, Custom, Kernel, OnColumns, positions
from ._standard import (
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    Matern32,
    Matern52,
    Polynomial,
    Radial,
    RationalQuadratic,
    Sigmoid,
)

#: Values of gamma for which widths are learned.
_LEARNED: Final = ("learn", "ard")
#: Smallest gamma; its inverse is the largest.
_MIN_GAMMA: Final = 1e-300

#: Kernels by name, from (gamma, degree, coef0); "linear" is another name, without parameters.
NAMED: Final[dict[str, Callable[[float, int, float], Kernel]]] = {
    "rbf": lambda gamma, *_: Gaussian(gamma**-0.5),
    "matern32": lambda gamma, *_: Matern32(gamma**-0.5),
    "matern52": lambda gamma, *_: Matern52(gamma**-0.5),
    "rational_quadratic": lambda gamma, *_: RationalQuadratic(gamma**-0.5),
    "laplacian": lambda gamma, *_: Laplacian(gamma),
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "sigmoid": lambda gamma, _, coef0: Sigmoid(gamma, coef0),
    "linear_spline": lambda *_: LinearSpline(),
}
#: Each of them, to ask for its parameters.
_EXAMPLES: Final = {name: make(1.0, 3, 1.0) for name, make in NAMED.items()}


def is_precomputed(kernel: object) -> bool:
    """Tell whether X holds kernel values."""
    return isinstance(kernel, str) and kernel == "precomputed"


def measures_inputs(kernel: KernelSpec, gamma: object) -> bool:
    """Tell whether ``resolve`` needs the variance of the training rows."""
    return isinstance(gamma, str) and gamma != "auto" and bool(_names_with_gamma(kernel))


def learns_widths(kernel: KernelSpec, gamma: object) -> bool:
    """Tell whether ``gamma`` has the widths of a kernel learned.

    Those of kernels given by name, unless one has a gamma that is no width, or an object beside them has
    parameters of its own.
    """
    if not isinstance(gamma, str) or gamma not in _LEARNED:
        return False
    objects = [leaf for leaf in _leaves(kernel) if isinstance(leaf, Kernel)]
    if any(len(leaf._log_parameters()) > 0 for leaf in objects):
        return False
    names = _names_with_gamma(kernel)
    return bool(names) and all(_EXAMPLES[name]._length_powers().any() for name in names)


def learns_smoothness(kernel: KernelSpec, gamma: object) -> bool:
    """Tell whether a Matern kernel may take the place of the Gaussian one; not of a given object."""
    return isinstance(kernel, str) and kernel == "rbf" and gamma == "ard"


def resolve(
    kernel: KernelSpec,
    *,
    X: FloatArray,
    gamma: float | str = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    sample_weight: FloatArray | None = None,
    feature_names: Sequence[str] | None = None,
    middle: Callable[[], FloatArray] | None = None,
    learns: bool = False,
) -> list[Kernel]:
    """Return the kernels specified by ``kernel`` and its parameters for the training rows ``X``.

    ``gamma``, ``degree`` and ``coef0`` are the parameters of kernels given by name; all are checked, used or
    not. ``feature_names``: of the columns of X, if any. ``learns``: whether gamma may be "learn" or "ard";
    kernels whose widths are learned have initial ones. ``middle`` returns the offset of linear kernels
    without one.
    """
    if isinstance(gamma, str) and gamma in _LEARNED:
        if not learns:
            raise ValueError(
                f"gamma={gamma!r} is for RVR and RVC; give a positive number, 'scale' or 'auto', or learn "
                "the kernel with one of these and give its kernel_"
            )
        gamma = gamma if learns_widths(kernel, gamma) else "scale"
    inputs = _Inputs(X, sample_weight, feature_names, gamma, middle)
    _ = inputs.gamma
    degree_coef0 = (check_integer("degree", degree, least=1), check_real("coef0", coef0))
    entries: Sequence[Any] = kernel if isinstance(kernel, (list, tuple)) else [kernel]
    if not entries:
        raise ValueError("kernel is an empty list; give at least one kernel")
    kernels = [_resolve_one(entry, inputs, degree_coef0) for entry in entries]
    for entry in kernels:
        entry.check_features(X.shape[1])
    return kernels


@dataclass(frozen=True)
class _Inputs:
    """The columns of the training rows that one kernel uses."""

    X: FloatArray
    weights: FloatArray | None
    names: Sequence[str] | None
    given_gamma: float | str
    middle: Callable[[], FloatArray] | None

    @cached_property
    def gamma(self) -> float:
        if isinstance(self.given_gamma, str) and self.given_gamma in _LEARNED:
            return 1.0  # not used by any kernel
        return _gamma(self.given_gamma, self.X, self.weights)

    def at(self, columns: IntArray) -> _Inputs:
        names = None if self.names is None else [self.names[column] for column in columns]
        whole = self.middle
        middle = None if whole is None else lambda: whole()[columns]
        return replace(self, X=self.X[:, columns], names=names, middle=middle)


def _resolve_one(kernel: KernelLike, inputs: _Inputs, degree_coef0: tuple[int, float]) -> Kernel:
    if isinstance(kernel, OnColumns):
        columns = positions(kernel.columns, inputs.X.shape[1], inputs.names)
        inner = _resolve_one(kernel.kernel, inputs.at(columns), degree_coef0)
        return OnColumns(inner, tuple(columns.tolist()))
    if isinstance(kernel, Combination):
        return kernel._of_members(_resolve_one(part, inputs, degree_coef0) for part in kernel._members)
    if isinstance(kernel, str) and kernel == "linear":
        kernel = Linear()
    if isinstance(kernel, Linear) and kernel.offset is None and inputs.middle is not None:
        return Linear(tuple(inputs.middle().tolist()))
    if isinstance(kernel, Kernel):
        return copy(kernel)  # so that `set_params` of the given kernel does not change a fitted model
    if isinstance(kernel, str) and kernel in NAMED:
        if inputs.given_gamma in _LEARNED and _EXAMPLES[kernel]._learned:
            return _start(kernel, inputs)
        return NAMED[kernel](inputs.gamma, *degree_coef0)
    if is_precomputed(kernel):
        raise ValueError(
            "kernel='precomputed' cannot be combined; put the columns of several kernels side by side"
        )
    if callable(kernel) and not isinstance(kernel, type):
        return Custom(kernel)
    names = ", ".join(map(repr, [*NAMED, "linear", "precomputed"]))
    kind = ValueError if isinstance(kernel, str) else TypeError
    raise kind(
        f"kernel must be one of {names}, a kernel object, a callable k(X, Z), or a list of these; "
        f"got {kernel!r}"
    )


def _start(kernel: str, inputs: _Inputs) -> Kernel:
    """Return the initial kernel of learning, with its natural lengths."""
    n_features, gamma = inputs.X.shape[1], inputs.given_gamma
    start = _EXAMPLES[kernel]
    if gamma == "ard" and isinstance(start, Radial):
        start = replace(start, width=(1.0,) * n_features)
    with np.errstate(over="ignore", invalid="ignore"):
        log_lengths = start._natural(inputs.X, inputs.weights)
    if not (np.abs(log_lengths) < -0.5 * np.log(_MIN_GAMMA)).all():
        raise ValueError(f"gamma={gamma!r} needs the standard deviations of X, which overflow; rescale X")
    return start._with_log_parameters(log_lengths)


def _leaves(kernel: Any) -> Iterator[Any]:
    """Yield the elementary kernels in ``kernel``, as given: names, objects and functions."""
    if isinstance(kernel, OnColumns):
        yield from _leaves(kernel.kernel)
    elif isinstance(kernel, (Combination, list, tuple)):
        for part in kernel._members if isinstance(kernel, Combination) else kernel:
            yield from _leaves(part)
    else:
        yield kernel


def _names_with_gamma(kernel: Any) -> list[str]:
    """Return the names in ``kernel`` and its parts that have a gamma."""
    names = (leaf for leaf in _leaves(kernel) if isinstance(leaf, str) and leaf in NAMED)
    return [name for name in names if _EXAMPLES[name]._learned]


def _gamma(gamma: float | str, X: FloatArray, sample_weight: FloatArray | None) -> float:
    """Return gamma as in scikit-learn's SVMs; a row of weight w counts w times."""
    if not isinstance(gamma, str):
        remedy = "; 'scale' and 'auto' adapt it to X, 'learn' and 'ard' learn it"
        given = check_real("gamma", gamma, positive=True, remedy=remedy)
        if not _MIN_GAMMA <= given <= 1.0 / _MIN_GAMMA:  # widths and their squares have to be numbers
            raise ValueError(
                f"gamma must be between {_MIN_GAMMA:g} and {1.0 / _MIN_GAMMA:g}, got {given:g}; rescale X"
            )
        return given
    if gamma == "auto":
        return 1.0 / float(X.shape[1])
    if gamma != "scale":
        raise ValueError(f"gamma must be 'scale', 'auto', 'learn', 'ard' or a positive number, got {gamma!r}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(X.mean(axis=1), weights=sample_weight)
        variance = float(np.average(((X - mean) ** 2).mean(axis=1), weights=sample_weight))
    scale = X.shape[1] * variance
    if not np.isfinite(scale) or 0.0 < scale < _MIN_GAMMA:
        problem = f"is {variance:g}" if np.isfinite(scale) else "overflows"
        raise ValueError(f"gamma='scale' needs the variance of X, which {problem}; rescale X")
    return 1.0 / scale if scale > 0.0 else 1.0
