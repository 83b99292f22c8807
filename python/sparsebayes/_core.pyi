"""Types of the compiled core; checked against the binary by ``mypy.stubtest``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, Unpack

__all__ = [
    "PROBIT_NODES",
    "Cancelled",
    "Kernel",
    "NumericalError",
    "OutputPosterior",
    "Posterior",
    "Predictor",
    "RetargetedFit",
    "RowPart",
    "SufficientStatistics",
    "TopDownFit",
    "__version__",
    "fit_dense",
    "fit_dense_outputs",
    "fit_kernel",
    "fit_kernel_in_blocks",
    "fit_kernel_outputs",
    "fit_provider",
    "probit_expectations",
    "probit_log_probabilities",
    "probit_probabilities",
]

PROBIT_NODES: int
__version__: str

class NumericalError(ArithmeticError):
    """The computation broke down although the input was valid."""

@final
class Kernel:
    """A kernel of the closed set the core evaluates itself."""

    def __new__(cls, json: str) -> Kernel: ...
    def matrix(
        self, X: NDArray[np.float64], Z: NDArray[np.float64], *, n_threads: int | None = None
    ) -> NDArray[np.float64]: ...

@final
class Predictor:
    """A fitted model without its estimator."""

    @staticmethod
    def from_parts(header: str, tables: Mapping[str, NDArray[np.float64]]) -> Predictor: ...
    @staticmethod
    def load(path: str) -> Predictor: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Predictor: ...
    def to_bytes(self) -> bytes: ...
    def save(self, path: str) -> None: ...
    @property
    def header(self) -> str: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_functions(self) -> int: ...
    def predict(self, X: NDArray[np.float64], *, n_threads: int | None = None) -> NDArray[np.float64]: ...
    def predict_std(
        self, X: NDArray[np.float64], *, n_threads: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def decision(self, X: NDArray[np.float64], *, n_threads: int | None = None) -> NDArray[np.float64]: ...
    def classify(self, X: NDArray[np.float64], *, n_threads: int | None = None) -> NDArray[np.uintp]: ...
    def predict_into(
        self, X: NDArray[np.float64], out: NDArray[np.float64], *, n_threads: int | None = None
    ) -> None: ...
    def predict_one(self, x: NDArray[np.float64], return_std: bool = False) -> Any: ...

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
    def means(self) -> NDArray[np.float64]: ...
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

@type_check_only
class _Settings(TypedDict, total=False):
    """Keyword arguments of every fit of one output; the core has the defaults."""

    noise_variance: float | None
    tol: float
    max_iter: int
    scheme: str
    alpha_prior: Sequence[float]
    noise_prior: Sequence[float]
    search: str
    flat_intercept: bool

# iteration, action, column index (-1: none), gain, log evidence, number of active functions, beta
_Callback = Callable[[int, str, int, float, float, int, float], object]

def fit_dense(
    Phi: NDArray[np.float64],
    target: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    likelihood: str = "gaussian",
    n_threads: int | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
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
    n_threads: int | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...
def fit_kernel_in_blocks(
    X: NDArray[np.float64],
    centres: NDArray[np.float64],
    kernels: Sequence[Kernel],
    target: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    bias: bool = True,
    extra: NDArray[np.float64] | None = None,
    likelihood: str = "gaussian",
    n_threads: int | None = None,
    sizes: Sequence[int] | None = None,
    resume: dict[str, NDArray[Any]] | None = None,
    keep: Callable[[dict[str, NDArray[Any]]], object] | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...
def fit_dense_outputs(
    Phi: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    *,
    noise_variance: Sequence[float] | None = None,
    shared_noise: bool = False,
    flat_intercept: bool = False,
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
    flat_intercept: bool = False,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> OutputPosterior: ...

@final
class Cancelled:
    """Tells whether a fit was given up, as by Ctrl-C."""

    def __call__(self, *args: object, **kwargs: object) -> bool: ...

def fit_provider(
    provider: object,
    *,
    n_centred: int = 0,
    n_threads: int | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...

@final
class RowPart:
    """Some rows out of more, safe to ask from many threads, one after another."""

    @staticmethod
    def dense(
        Phi: Sequence[NDArray[np.float64]],
        target: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        bias: bool = False,
        likelihood: str = "gaussian",
        n_threads: int | None = None,
    ) -> RowPart: ...
    @staticmethod
    def kernel(
        X: NDArray[np.float64],
        centres: NDArray[np.float64],
        kernels: Sequence[Kernel],
        target: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        bias: bool = True,
        likelihood: str = "gaussian",
        n_threads: int | None = None,
    ) -> RowPart: ...
    @property
    def n_basis(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def likelihood(self) -> str: ...
    def listen(self, cancelled: Cancelled) -> None: ...
    def target_moments(self, centre: float) -> NDArray[np.float64]: ...
    def deviance(self, active: NDArray[np.int64], mu: NDArray[np.float64]) -> float: ...
    def gradient(
        self, active: NDArray[np.int64], mu: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]: ...
    def among(
        self, active: NDArray[np.int64], mu: NDArray[np.float64], js: NDArray[np.int64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]: ...
    def sweep(
        self, active: NDArray[np.int64], mu: NDArray[np.float64], wanted: NDArray[np.int64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
    def variance_drift(
        self, active: NDArray[np.int64], mu: NDArray[np.float64], sigma: NDArray[np.float64]
    ) -> NDArray[np.float64]: ...

@final
class RetargetedFit:
    def __new__(
        cls,
        Phi: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        active: NDArray[np.int64],
        alpha: NDArray[np.float64],
        n_threads: int | None = None,
    ) -> Self: ...
    def maximise(
        self,
        targets: NDArray[np.float64],
        *,
        gain: float,
        tol: float,
        max_iter: int,
        callback: _Callback | None = None,
    ) -> tuple[str, NDArray[np.float64], NDArray[np.int64]]: ...
    def maximise_bound(
        self,
        labels: NDArray[np.int64],
        *,
        gain: float,
        radius: float,
        n_nodes: int | None = None,
    ) -> NDArray[np.float64]: ...
    def predictions(self) -> NDArray[np.float64]: ...
    def log_occam_factor(self) -> float: ...
    def posterior(self) -> OutputPosterior: ...

@final
class TopDownFit:
    def __new__(
        cls,
        Phi: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        n_threads: int | None = None,
    ) -> Self: ...
    def solve(
        self, targets: NDArray[np.float64], alpha: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def keep(self, places: NDArray[np.int64]) -> None: ...

@final
class SufficientStatistics:
    """Sums over rows, safe to use from many threads."""

    def __new__(cls, n_basis: int) -> Self: ...
    def update(
        self,
        Phi: NDArray[np.float64],
        target: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        n_threads: int | None = None,
    ) -> None: ...
    def update_kernel(
        self,
        X: NDArray[np.float64],
        centres: NDArray[np.float64],
        kernels: Sequence[Kernel],
        target: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        extra: NDArray[np.float64] | None = None,
        n_threads: int | None = None,
    ) -> None: ...
    def snapshot(self) -> SufficientStatistics: ...
    def merge(self, other: SufficientStatistics, *, n_threads: int | None = None) -> None: ...
    @property
    def n_basis(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def weight(self) -> float: ...
    def gram(self) -> NDArray[np.float64]: ...
    def projections(self) -> NDArray[np.float64]: ...
    def target_square(self) -> float: ...
    def parts(self) -> tuple[int, NDArray[np.float64]]: ...
    @staticmethod
    def from_parts(n_basis: int, n_rows: int, parts: NDArray[np.float64]) -> SufficientStatistics: ...
    def fit(
        self,
        *,
        bias: bool = False,
        n_centred: int = 0,
        n_threads: int | None = None,
        callback: _Callback | None = None,
        **settings: Unpack[_Settings],
    ) -> Posterior: ...

def probit_probabilities(
    scores: NDArray[np.float64], *, n_nodes: int | None = None, n_threads: int | None = None
) -> NDArray[np.float64]: ...
def probit_log_probabilities(
    scores: NDArray[np.float64], *, n_nodes: int | None = None, n_threads: int | None = None
) -> NDArray[np.float64]: ...
def probit_expectations(
    scores: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    n_nodes: int | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
