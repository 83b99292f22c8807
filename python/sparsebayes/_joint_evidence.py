"""The evidence as a function of kernel parameters and all precisions together, for functions once chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ._evidence import Evidence, gaussian, laplace
from ._kernel_parameters import Pull, forward, with_all_log_parameters
from ._types import FloatArray, IntArray, Likelihood

if TYPE_CHECKING:
    from .kernels import Kernel


@dataclass(frozen=True)
class LearningData:
    """What kernels are learned from: the training data and the dictionary around them."""

    #: Rows, N x d.
    X: FloatArray
    #: Where kernel functions are centred, M x d.
    centres: FloatArray
    #: Functions without parameters, N x F: the bias, and columns beside the kernels.
    fixed: FloatArray
    #: One target for each output, all of length N.
    targets: list[FloatArray]
    #: Sample weights, length N.
    weights: FloatArray
    likelihood: Likelihood
    #: Given noise variance, or None.
    noise_variance: float | None
    #: How many of ``fixed`` the dictionary has before the kernels; the others come after.
    n_before: int

    def scale(self) -> float:
        """Return the spread of the first target; 1 where its values are no quantity."""
        if self.likelihood != "gaussian":
            return 1.0
        mean = np.average(self.targets[0], weights=self.weights)
        return float(np.sqrt(np.average((self.targets[0] - mean) ** 2, weights=self.weights)))

    def in_units_of(self, scale: float) -> LearningData:
        """Return the same with the targets divided by this."""
        noise = self.noise_variance
        return replace(
            self,
            targets=[target / scale for target in self.targets],
            noise_variance=None if noise is None else noise / scale**2,
        )


@dataclass(frozen=True)
class Functions:
    """The functions of one output, and which of them share a precision."""

    #: Columns of the fixed functions.
    fixed: IntArray
    #: Centres of each kernel.
    centres: list[IntArray]
    #: For each function, fixed ones first, the number of its precision.
    groups: IntArray


class JointEvidence:
    """Log evidence, the sum over the outputs, as a function of a vector.

    The vector holds the log kernel parameters, then for each output ln alpha of its groups, and ln beta where
    the noise is estimated.
    """

    def __init__(self, kernels: list[Kernel], data: LearningData, outputs: list[Functions]) -> None:
        self._kernels = kernels
        self._data = data
        self._outputs = outputs
        #: Of each kernel the centres that some output uses, and where each output's are among them.
        self._used = [
            np.unique(np.concatenate([output.centres[k] for output in outputs])) for k in range(len(kernels))
        ]
        self._places = [
            [np.searchsorted(used, own) for used, own in zip(self._used, output.centres, strict=True)]
            for output in outputs
        ]
        self._means: list[FloatArray | None] = [None] * len(outputs)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray] | None:
        """Return value and gradient, or None where the arithmetic breaks down."""
        data, estimated = self._data, _noise_is_estimated(self._data)
        sizes = [int(output.groups.max(initial=-1)) + 1 + estimated for output in self._outputs]
        theta, *hypers = np.split(x, np.cumsum([len(x) - sum(sizes), *sizes[:-1]]))
        values, pulls, slopes = self._functions(theta)
        total, gradient = 0.0, [theta]
        for number, (output, hyper) in enumerate(zip(self._outputs, hypers, strict=True)):
            places = self._places[number]
            Phi = np.hstack(
                [data.fixed[:, output.fixed], *(K[:, at] for K, at in zip(values, places, strict=True))]
            )
            found = self._evidence(number, Phi, hyper)
            if found is None:
                return None
            total += found.value
            slopes_of_hyper = np.zeros_like(hyper)
            np.add.at(slopes_of_hyper, output.groups, found.log_alpha)
            if estimated:
                slopes_of_hyper[-1] = found.log_beta
            gradient.append(slopes_of_hyper)
            start = len(output.fixed)
            for slope, at in zip(slopes, places, strict=True):
                slope[:, at] += found.functions[:, start : start + len(at)]
                start += len(at)
        gradient[0] = np.concatenate([pull(slope) for pull, slope in zip(pulls, slopes, strict=True)])
        return total, np.concatenate(gradient)

    def _functions(self, theta: FloatArray) -> tuple[list[FloatArray], list[Pull], list[FloatArray]]:
        """Values of the functions in use, how to pull gradients back, and room for the gradients in them."""
        kernels = with_all_log_parameters(self._kernels, theta)
        X, centres = self._data.X, self._data.centres
        pairs = [forward(kernel, X, centres[used]) for kernel, used in zip(kernels, self._used, strict=True)]
        values = [value for value, _ in pairs]
        return values, [pull for _, pull in pairs], [np.zeros_like(value) for value in values]

    def _evidence(self, number: int, Phi: FloatArray, hyper: FloatArray) -> Evidence | None:
        data, groups = self._data, self._outputs[number].groups
        target = data.targets[number]
        if data.likelihood == "gaussian":
            log_beta = hyper[-1] if data.noise_variance is None else -np.log(data.noise_variance)
            return gaussian(Phi, target, data.weights, hyper[groups], float(log_beta))
        found = laplace(Phi, target, data.weights, hyper[groups], self._means[number])
        if found is not None:
            self._means[number] = found.mean
        return found


def _noise_is_estimated(data: LearningData) -> bool:
    return data.likelihood == "gaussian" and data.noise_variance is None
