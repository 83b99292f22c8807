"""Posteriors with the functions that have no kernel first, wherever the dictionary has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._types import FloatArray, IntArray

if TYPE_CHECKING:
    from . import _core


@dataclass(frozen=True)
class Sorted:
    """A posterior whose functions are numbered with the fixed ones first, and stand in that order."""

    active: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    beta: float


def sort(posterior: _core.Posterior, n_before: int, n_kernel_functions: int, n_fixed: int) -> Sorted:
    """Renumber functions: the first ``n_before``, those after the kernel functions, then these."""
    active = posterior.active.astype(np.intp)
    after = active >= n_before + n_kernel_functions
    kernel = (active >= n_before) & ~after
    active = np.where(after, active - n_kernel_functions, active + np.where(kernel, n_fixed - n_before, 0))
    order = np.argsort(active)
    return Sorted(
        active[order],
        posterior.alpha[order],
        posterior.mu[order],
        posterior.sigma[np.ix_(order, order)],
        posterior.beta,
    )
