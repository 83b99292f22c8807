"""What all estimators on kernels about the training rows share: the arguments that name the kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._checks.arguments import check_flag
from .._checks.numbers import column_means
from .._checks.targets import Training, distinct_rows
from .._types import FloatArray, KernelSpec
from ..kernels import Kernel, Linear
from ..kernels._resolve import is_precomputed, resolve
from .base import Trainable

if TYPE_CHECKING:
    from typing_extensions import Self


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

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a kernel object: ``kernel__width``.

        Parameters
        ----------
        **params
            New values by name.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        kernel = params.get("kernel", self.kernel)
        inner = [name for name in params if name.startswith("kernel__")]
        if inner and not isinstance(kernel, Kernel):
            raise ValueError(
                f"{inner[0]!r} is a parameter of a kernel object, such as kernels.Gaussian(1.0), and kernel "
                f"is {kernel!r}; give an object, or set gamma. Of a list set kernel as a whole"
            )
        super().set_params(**params)
        return self

    def _resolve(self, training: Training) -> list[Kernel]:
        """Return the kernels asked for, with every parameter known."""
        centred = check_flag("fit_intercept", self.fit_intercept)
        return resolve(
            self.kernel,
            X=training.X,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            sample_weight=training.counts,
            feature_names=getattr(self, "feature_names_in_", None),
            middle=partial(self._middle, training) if centred else None,
            learns=self._learns_kernels,
        )

    def _middle(self, training: Training) -> FloatArray:
        """Return the mean of the centres: what linear kernels subtract beside an intercept.

        So a constant added to a column of X, and of the centres, does not change the model.
        """
        centres: FloatArray | None = getattr(self, "candidates_", None)
        if centres is None:
            centres = training.at(distinct_rows(training))
        return column_means(centres, None)

    def _as_given(self, kernels: list[Kernel]) -> Kernel | list[Kernel]:
        """Return the kernels as ``kernel_`` has them: a list if ``kernel`` is one."""
        return kernels if isinstance(self.kernel, (list, tuple)) else kernels[0]

    def _kernels(self) -> list[Kernel]:
        return self.kernel_ if isinstance(self.kernel_, list) else [self.kernel_]  # type: ignore[list-item] # no string here


def linear_in_x(
    kernel: Linear, dual_coef: FloatArray, points: FloatArray, bias: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return weights of the columns of x and what is added to them, of sums of linear kernels and a bias."""
    coef = dual_coef @ kernel.centred(points)
    return coef, bias if kernel.offset is None else bias - coef @ np.asarray(kernel.offset)
