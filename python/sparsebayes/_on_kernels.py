"""What all estimators on kernels about the training rows share: the arguments that name the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ._base import Trainable
from ._resolve import is_precomputed, resolve
from ._types import KernelSpec
from ._validation import Training
from .kernels import Kernel


class OnKernels(Trainable):
    """An estimator with the arguments ``kernel``, ``gamma``, ``degree`` and ``coef0``."""

    #: Whether gamma may be "learn" or "ard".
    _learns_kernels: ClassVar[bool] = False

    if TYPE_CHECKING:
        kernel: KernelSpec
        gamma: float | str
        degree: int
        coef0: float
        fit_intercept: bool
        # After a fit.
        kernel_: Kernel | list[Kernel] | str

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn is to know about this estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        return tags

    def _resolve(self, training: Training) -> list[Kernel]:
        """Return the kernels asked for, with every parameter known."""
        return resolve(
            self.kernel,
            X=training.X,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            sample_weight=training.weights,
            feature_names=getattr(self, "feature_names_in_", None),
            learns=self._learns_kernels,
        )

    def _as_given(self, kernels: list[Kernel]) -> Kernel | list[Kernel]:
        """Return the kernels as ``kernel_`` has them: a list if ``kernel`` is one."""
        return kernels if isinstance(self.kernel, (list, tuple)) else kernels[0]

    def _kernels(self) -> list[Kernel]:
        return self.kernel_ if isinstance(self.kernel_, list) else [self.kernel_]  # type: ignore[list-item] # no string here
