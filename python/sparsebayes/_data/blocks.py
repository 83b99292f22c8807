"""Fits whose dictionary is too large for one look: when they go in blocks, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import _core
from .._types import FloatArray, Likelihood, Settings
from .checkpoint import Checkpoint, digest, open_checkpoint

if TYPE_CHECKING:
    from .design import CoreCallback, KernelDesign

#: Dictionaries of more functions go in blocks. Measured: docs/notebook/large-data.md.
_MOST_WHOLE: Final = 30_000
#: Functions of the first working set, of later ones, let in after a sweep, looked at together, and rounds
#: that search; None: those of the core.
_SIZES: Final[tuple[int, int, int, int, int] | None] = None


def are_due(n_basis: int, likelihood: Likelihood, settings: Settings) -> bool:
    """Tell whether a fit is to go in blocks."""
    plain = settings.scheme == "sequential" and settings.search == "greedy"
    possible = plain and likelihood in ("gaussian", "bernoulli")
    return possible and n_basis > _MOST_WHOLE


def fit(
    design: KernelDesign,
    target: FloatArray,
    weights: FloatArray | None,
    likelihood: Likelihood,
    settings: Settings,
    callback: CoreCallback | None,
) -> _core.Posterior:
    """Fit the model of these functions to ``target``, in blocks; go on from a checkpoint if there is one."""
    checkpoint = _checkpoint(design, target, weights)
    posterior = _core.fit_kernel_in_blocks(
        design.X,
        design.centres,
        design.kernels,
        target,
        weights,
        bias=design.layout.bias,
        extra=design.columns_beside(),
        likelihood=likelihood,
        sizes=_SIZES,
        resume=None if checkpoint is None else checkpoint.load(),
        keep=None if checkpoint is None else lambda arrays: checkpoint.save(**arrays),
        callback=callback,
        **settings.of_one_target(),
    )
    if checkpoint is not None:
        checkpoint.remove()
    return posterior


def _checkpoint(design: KernelDesign, target: FloatArray, weights: FloatArray | None) -> Checkpoint | None:
    """Return the checkpoint that the dictionary's owner asks for; one against the rest, each has a file."""
    owner = design.owner
    if owner is None or getattr(owner, "checkpoint", None) is None:
        return None
    suffix = f".{digest(target)[:8]}" if len(getattr(owner, "classes_", ())) > 2 else ""
    return open_checkpoint(owner, design.X, design.centres, design.extra, target, weights, suffix=suffix)
