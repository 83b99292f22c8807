"""Fits whose dictionary is too large for one look: when they go in blocks, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import _core
from ._types import FloatArray, Likelihood, Settings

if TYPE_CHECKING:
    from ._design import CoreCallback, KernelDesign

#: Dictionaries of more functions go in blocks. Measured: see DESIGN.md.
_MOST_WHOLE: Final = 30_000
#: Functions of the first working set, of later ones, let in after a sweep, looked at together; None: those of the core.
_SIZES: Final[tuple[int, int, int, int] | None] = None


def are_due(n_basis: int, likelihood: Likelihood, settings: Settings) -> bool:
    """Tell whether a fit is to go in blocks."""
    possible = settings.scheme == "sequential" and likelihood in ("gaussian", "bernoulli")
    return possible and n_basis > _MOST_WHOLE


def fit(
    design: KernelDesign,
    target: FloatArray,
    weights: FloatArray | None,
    likelihood: Likelihood,
    settings: Settings,
    callback: CoreCallback | None,
) -> _core.Posterior:
    """Fit the model of these functions to ``target``, in blocks."""
    keywords: dict[str, Any] = settings.of_one_target()
    return _core.fit_kernel_in_blocks(
        design.X,
        design.centres,
        design.kernels,
        target,
        weights,
        bias=design.layout.bias,
        extra=design.columns_beside(),
        likelihood=likelihood,
        sizes=_SIZES,
        callback=callback,
        **keywords,
    )
