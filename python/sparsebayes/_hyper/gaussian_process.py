"""The log evidence of a Gaussian process and its gradient in the kernel parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.optimize import minimize

from .._types import FloatArray
from ..kernels._parameters import bounds, forward, log_parameters, with_all_log_parameters

if TYPE_CHECKING:
    from ..kernels import Kernel

#: L-BFGS iterations. Measured: docs/notebook/kernel-learning.md.
_ITERATIONS: Final = 40
#: How far the logs of variances may go from where they start.
_VARIANCE_RANGE: Final = 12.0
#: Relative size of the diagonal that makes up for round-off in a test for positive definiteness.
_JITTER: Final = 1e-8


class CovarianceEvidence:
    r"""Log evidence of targets with the covariance C, the sum over the outputs.

    C = sum_k a_k K_k(X, X) + sum_j v_j f_j f_j^T + W^-1 / beta, with f_j the fixed functions. With A = C^-1 Y
    of C outputs (Rasmussen & Williams 2006, equations 5.8 and 5.9)

    L = -(tr Y^T A + C ln|C| + C N ln 2 pi) / 2,    dL/dC = (A A^T - C C^-1) / 2.

    A row of weight w counts like w equal rows: beside that of their mean, whose noise variance is 1 / (w
    beta), the evidence of w equal targets has the factor beta^((w - 1) / 2), and a constant.

    Of a kernel that is not positive definite K K^T / N takes the place of K. The vector that L depends on
    holds the log kernel parameters, then ln a, ln v and, unless the noise is given, -ln beta.
    """

    def __init__(
        self,
        kernels: list[Kernel],
        X: FloatArray,
        fixed: FloatArray,
        Y: FloatArray,
        weights: FloatArray,
        noise_variance: float | None,
    ) -> None:
        self._kernels, self._X, self._fixed, self._Y = kernels, X, fixed, Y
        self._noise = 1.0 / weights
        #: Rows that weights count beyond those there are.
        self._n_more = float(weights.sum()) - len(weights)
        self._log_noise = None if noise_variance is None else float(np.log(noise_variance))
        self._squared = [not _is_positive_definite(kernel(X, X)) for kernel in kernels]

    def start(self) -> FloatArray:
        """Return a vector with the kernels' own parameters and variances that explain unit targets."""
        theta = [log_parameters(kernel) for kernel in self._kernels]
        sizes = [float(np.mean(np.diag(K))) for K, _ in self._covariances(self._kernels)]
        sizes += list(np.mean(self._fixed**2, axis=0))
        log_variances = -np.log(np.maximum(sizes, 1e-300))
        noise = [np.log(0.1)] if self._log_noise is None else []
        return np.concatenate([*theta, log_variances, noise])

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray] | None:
        """Return L and its gradient, or None where C is not positive definite."""
        estimated = self._log_noise is None
        n_kernels, n_fixed = len(self._kernels), self._fixed.shape[1]
        n_theta = len(x) - n_kernels - n_fixed - estimated
        theta, log_a, log_v, rest = np.split(x, np.cumsum([n_theta, n_kernels, n_fixed]))
        log_noise = float(rest[0]) if self._log_noise is None else self._log_noise
        noise = np.exp(log_noise) * self._noise
        parts = self._covariances(with_all_log_parameters(self._kernels, theta))
        C = np.diag(noise) + (self._fixed * np.exp(log_v)) @ self._fixed.T
        for a, (K, _) in zip(np.exp(log_a), parts, strict=True):
            C += a * K
        try:
            factor = cholesky(C, lower=True)
        except (LinAlgError, ValueError):  # ValueError: not finite
            return None
        n, n_outputs = self._Y.shape
        A, inverse = cho_solve((factor, True), self._Y), cho_solve((factor, True), np.eye(n))
        log_det = 2.0 * float(np.log(np.diag(factor)).sum())
        log_det += self._n_more * log_noise
        value = -0.5 * (float(np.sum(self._Y * A)) + n_outputs * (log_det + n * np.log(2.0 * np.pi)))
        G = 0.5 * (A @ A.T - n_outputs * inverse)
        slopes = [pull(a * G) for a, (_, pull) in zip(np.exp(log_a), parts, strict=True)]
        slopes.append([a * np.sum(G * K) for a, (K, _) in zip(np.exp(log_a), parts, strict=True)])
        slopes.append(np.exp(log_v) * np.sum((G @ self._fixed) * self._fixed, axis=0))
        if estimated:
            slopes.append([noise @ np.diag(G) - 0.5 * n_outputs * self._n_more])
        return value, np.concatenate(slopes)

    def _covariances(self, kernels: list[Kernel]) -> list[tuple[FloatArray, Any]]:
        """Return the covariance of each kernel and the function that pulls a gradient in it back."""
        parts = []
        for kernel, squared in zip(kernels, self._squared, strict=True):
            K, pull = forward(kernel, self._X, self._X)
            parts.append(_square(K, pull) if squared else (K, pull))
        return parts

    def maximise(self, X: FloatArray) -> FloatArray:
        """Climb from the start by L-BFGS; return the log kernel parameters. ``X``: rows for their bounds."""
        x0 = self.start()
        limits = np.vstack([bounds(kernel, X) for kernel in self._kernels])
        n = len(limits)
        box = np.column_stack([x0 - _VARIANCE_RANGE, x0 + _VARIANCE_RANGE])
        box[:n, 0], box[:n, 1] = np.minimum(limits[:, 0], x0[:n]), np.maximum(limits[:, 1], x0[:n])

        if not np.isfinite(box).all():
            return x0[:n]

        def descend(x: FloatArray) -> tuple[float, FloatArray]:
            with np.errstate(over="ignore", invalid="ignore"):
                found = self(x)
            if found is None or not np.isfinite(found[1]).all():
                return np.inf, np.zeros_like(x)
            return -found[0], -found[1]

        options: dict[str, Any] = {"maxiter": _ITERATIONS, "maxcor": 20}
        result = minimize(descend, x0, jac=True, method="L-BFGS-B", bounds=box, options=options)
        finite = np.isfinite(result.fun) and np.isfinite(result.x).all()
        theta: FloatArray = (result.x if finite else x0)[:n]
        return theta


def _is_positive_definite(K: FloatArray) -> bool:
    try:
        cholesky(K + _JITTER * np.abs(np.diag(K)).max() * np.eye(len(K)))
    except (LinAlgError, ValueError):
        return False
    return bool(np.allclose(K, K.T))


def _square(K: FloatArray, pull: Any) -> tuple[FloatArray, Any]:
    """Return K K^T / N: of its slope D, symmetric, K has the slope 2 D K / N."""
    return K @ K.T / len(K), lambda D: pull(2.0 / len(K) * (D @ K))
