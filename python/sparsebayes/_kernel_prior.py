"""What is believed of the parameters of kernels beside what the evidence says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ._kernel_parameters import length_powers, natural
from ._types import FloatArray
from .kernels import Kernel

#: How finely the data tell places apart at the natural length.
_PLACES: Final = 50.0


@dataclass(frozen=True)
class KernelPrior:
    """Log prior of the kernel parameters; see DESIGN.md, "How are kernel parameters learned?".

    Lengths have a flat prior up to their bounds. And the place of each function has been chosen, the more
    finely the narrower the kernel: an Occam factor for each, of which the evidence knows nothing.
    """

    powers: FloatArray
    natural: FloatArray

    @classmethod
    def of(cls, kernels: list[Kernel], X: FloatArray) -> KernelPrior:
        return cls(
            np.concatenate([length_powers(kernel) for kernel in kernels]),
            np.concatenate([natural(kernel, X) for kernel in kernels]),
        )

    def __call__(self, theta: FloatArray, n_chosen: float) -> tuple[float, FloatArray]:
        """Return the log prior and its gradient if ``n_chosen`` functions were chosen."""
        ratio = _PLACES * np.exp(-2.0 * self.powers * (theta - self.natural))
        value = self.powers @ theta - 0.5 * n_chosen * np.abs(self.powers) @ np.log1p(ratio)
        return float(value), self.powers * (1.0 + n_chosen * ratio / (1.0 + ratio))
