"""Types of the compiled core; checked against the binary by ``mypy.stubtest``."""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Kernel",
    "NumericalError",
    "OutputPosterior",
    "Posterior",
    "__version__",
    "fit_dense",
    "fit_dense_outputs",
    "fit_kernel",
    "fit_kernel_outputs",
]

__version__: str

class NumericalError(ArithmeticError):
    """The computation broke down although the input was valid."""

@final
class Kernel:
    """A kernel of the closed set the core evaluates itself."""

    @staticmethod
    def gaussian(inverse_square_widths: Sequence[float]) -> Kernel: ...
    @staticmethod
    def laplacian(gamma: float) -> Kernel: ...
    @staticmethod
    def polynomial(degree: int, gamma: float, coef0: float) -> Kernel: ...
    @staticmethod
    def linear() -> Kernel: ...
    @staticmethod
    def sigmoid(gamma: float, coef0: float) -> Kernel: ...
    @staticmethod
    def linear_spline() -> Kernel: ...
    @staticmethod
    def sum(terms: Sequence[Kernel]) -> Kernel: ...
    @staticmethod
    def product(factors: Sequence[Kernel]) -> Kernel: ...
    def matrix(
        self, X: NDArray[np.float64], Z: NDArray[np.float64], *, n_threads: int | None = None
    ) -> NDArray[np.float64]: ...

@final
class Posterior:
    """What a fit returns, in the units of the columns and targets given."""

    @property
    def active(self) -> NDArray[np.int64]: ...
    @property
    def alpha(self) -> NDArray[np.float64]: ...
    @property
    def mu(self) -> NDArray[np.float64]: ...
    @property
    def sigma(self) -> NDArray[np.float64]: ...
    @property
    def gamma(self) -> NDArray[np.float64]: ...
    @property
    def beta(self) -> float: ...
    @property
    def log_evidence(self) -> float: ...
    @property
    def trace(self) -> NDArray[np.float64]: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def status(self) -> str: ...

@final
class OutputPosterior:
    """What a fit of several outputs returns, in the units of the columns and targets given."""

    @property
    def active(self) -> NDArray[np.int64]: ...
    @property
    def alpha(self) -> NDArray[np.float64]: ...
    @property
    def mu(self) -> NDArray[np.float64]: ...
    @property
    def sigma(self) -> list[NDArray[np.float64]]: ...
    @property
    def beta(self) -> NDArray[np.float64]: ...
    @property
    def at_floor(self) -> NDArray[np.bool_]: ...
    @property
    def log_evidence(self) -> float: ...
    @property
    def trace(self) -> NDArray[np.float64]: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def status(self) -> str: ...

# iteration, action, column index (-1: none), gain, log evidence, number of active functions, beta
_Callback = Callable[[int, str, int, float, float, int, float], object]

def fit_dense(
    Phi: NDArray[np.float64],
    target: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    likelihood: str = "gaussian",
    noise_variance: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    scheme: str = "sequential",
    alpha_prior: Sequence[float] = ...,
    noise_prior: Sequence[float] = ...,
    share_alpha: bool = False,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> Posterior: ...
def fit_kernel(
    X: NDArray[np.float64],
    centres: NDArray[np.float64],
    kernels: Sequence[Kernel],
    target: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    bias: bool = True,
    extra: NDArray[np.float64] | None = None,
    lazy: bool | None = None,
    likelihood: str = "gaussian",
    noise_variance: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    scheme: str = "sequential",
    alpha_prior: Sequence[float] = ...,
    noise_prior: Sequence[float] = ...,
    share_alpha: bool = False,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> Posterior: ...
def fit_dense_outputs(
    Phi: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    noise_variance: Sequence[float] | None = None,
    shared_noise: bool = False,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> OutputPosterior: ...
def fit_kernel_outputs(
    X: NDArray[np.float64],
    centres: NDArray[np.float64],
    kernels: Sequence[Kernel],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    bias: bool = True,
    extra: NDArray[np.float64] | None = None,
    noise_variance: Sequence[float] | None = None,
    shared_noise: bool = False,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> OutputPosterior: ...
