"""Types of the compiled core; checked against the binary by ``mypy.stubtest``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypedDict, final, type_check_only

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
    "covariance_evidence",
    "fit_dense",
    "fit_dense_outputs",
    "fit_groups",
    "fit_kernel",
    "fit_kernel_in_blocks",
    "fit_kernel_outputs",
    "fit_provider",
    "probit_expectations",
    "probit_log_probabilities",
    "probit_probabilities",
    "radial_evidence",
]

_Reals: TypeAlias = NDArray[np.float64]
_Integers: TypeAlias = NDArray[np.int64]

PROBIT_NODES: int
__version__: str

class NumericalError(ArithmeticError):
    """The computation broke down although the input was valid."""

@final
class Kernel:
    """A kernel of the closed set the core evaluates itself."""

    def __new__(cls, json: str) -> Kernel: ...
    def matrix(self, X: _Reals, Z: _Reals, *, n_threads: int | None = None) -> _Reals: ...

@final
class Predictor:
    """A fitted model without its estimator."""

    @staticmethod
    def from_parts(header: str, tables: Mapping[str, _Reals]) -> Predictor: ...
    @staticmethod
    def load(path: str) -> Predictor: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Predictor: ...
    def to_bytes(self) -> bytes: ...
    def save(self, path: str) -> None: ...
    header: Final[str]
    n_features: Final[int]
    n_functions: Final[int]
    def predict(self, X: _Reals, *, n_threads: int | None = None) -> _Reals: ...
    def predict_std(self, X: _Reals, *, n_threads: int | None = None) -> tuple[_Reals, _Reals]: ...
    def predict_gradient(self, X: _Reals, *, n_threads: int | None = None) -> tuple[_Reals, _Reals]: ...
    def decision(self, X: _Reals, *, n_threads: int | None = None) -> _Reals: ...
    def classify(self, X: _Reals, *, n_threads: int | None = None) -> NDArray[np.uintp]: ...
    def predict_into(self, X: _Reals, out: _Reals, *, n_threads: int | None = None) -> None: ...
    def predict_one(self, x: _Reals, return_std: bool = False) -> Any: ...

@final
class Posterior:
    """What a fit returns, in the units of the columns and targets given."""

    active: Final[_Integers]
    alpha: Final[_Reals]
    mu: Final[_Reals]
    sigma: Final[_Reals]
    means: Final[_Reals]
    gamma: Final[_Reals]
    beta: Final[float]
    log_evidence: Final[float]
    trace: Final[_Reals]
    n_iter: Final[int]
    status: Final[str]

@final
class OutputPosterior:
    """What a fit of several outputs returns, in the units of the columns and targets given."""

    active: Final[_Integers]
    alpha: Final[_Reals]
    mu: Final[_Reals]
    sigma: Final[list[_Reals]]
    beta: Final[_Reals]
    at_floor: Final[NDArray[np.bool_]]
    log_evidence: Final[float]
    trace: Final[_Reals]
    n_iter: Final[int]
    status: Final[str]

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
    unpenalized: Sequence[int]
    complexity: float | str
    # Of fits with all rows and functions.
    dispersion: float
    offset: _Reals | None
    first: tuple[Sequence[int], Sequence[float], float] | None

# iteration, action, column index (-1: none), gain, log evidence, number of active functions, beta
_Callback = Callable[[int, str, int, float, float, int, float], object]

def fit_dense(
    Phi: _Reals,
    target: _Reals,
    weights: _Reals | None = None,
    *,
    likelihood: str = "gaussian",
    n_threads: int | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...
def fit_kernel(
    X: _Reals,
    centres: _Reals,
    kernels: Sequence[Kernel],
    target: _Reals,
    weights: _Reals | None = None,
    *,
    bias: bool = True,
    extra: _Reals | None = None,
    lazy: bool | None = None,
    likelihood: str = "gaussian",
    n_threads: int | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...
def fit_kernel_in_blocks(
    X: _Reals,
    centres: _Reals,
    kernels: Sequence[Kernel],
    target: _Reals,
    weights: _Reals | None = None,
    *,
    bias: bool = True,
    extra: _Reals | None = None,
    likelihood: str = "gaussian",
    n_threads: int | None = None,
    sizes: Sequence[int] | None = None,
    resume: dict[str, NDArray[Any]] | None = None,
    keep: Callable[[dict[str, NDArray[Any]]], object] | None = None,
    callback: _Callback | None = None,
    **settings: Unpack[_Settings],
) -> Posterior: ...
def fit_dense_outputs(
    Phi: _Reals,
    targets: _Reals,
    weights: _Reals | None = None,
    *,
    noise_variance: Sequence[float] | None = None,
    shared_noise: bool = False,
    unpenalized: Sequence[int] = ...,
    complexity: float | str | None = None,
    tol: float = 1e-6,
    max_iter: int = 100_000,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> OutputPosterior: ...
def fit_groups(
    Phi: _Reals,
    targets: _Reals,
    groups: Sequence[Sequence[int]],
    shares: _Reals,
    *,
    n_contrasts: float,
    n_flat: int,
    beta: float | None,
    complexity: float,
    unit: float,
    offset: float,
    tol: float,
    max_iter: int,
    n_threads: int | None = None,
    callback: _Callback | None = None,
) -> dict[str, Any]: ...
def fit_kernel_outputs(
    X: _Reals,
    centres: _Reals,
    kernels: Sequence[Kernel],
    targets: _Reals,
    weights: _Reals | None = None,
    *,
    bias: bool = True,
    extra: _Reals | None = None,
    noise_variance: Sequence[float] | None = None,
    shared_noise: bool = False,
    unpenalized: Sequence[int] = ...,
    complexity: float | str | None = None,
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
        Phi: Sequence[_Reals],
        target: _Reals,
        weights: _Reals | None = None,
        *,
        bias: bool = False,
        likelihood: str = "gaussian",
        n_threads: int | None = None,
    ) -> RowPart: ...
    @staticmethod
    def kernel(
        X: _Reals,
        centres: _Reals,
        kernels: Sequence[Kernel],
        target: _Reals,
        weights: _Reals | None = None,
        *,
        bias: bool = True,
        likelihood: str = "gaussian",
        n_threads: int | None = None,
    ) -> RowPart: ...
    n_basis: Final[int]
    n_rows: Final[int]
    likelihood: Final[str]
    def listen(self, cancelled: Cancelled) -> None: ...
    def target_moments(self, centre: float) -> _Reals: ...
    def deviance(self, active: _Integers, mu: _Reals) -> float: ...
    def gradient(self, active: _Integers, mu: _Reals) -> tuple[float, _Reals]: ...
    def among(self, active: _Integers, mu: _Reals, js: _Integers) -> tuple[float, _Reals, _Reals]: ...
    def sweep(
        self, active: _Integers, mu: _Reals, wanted: _Integers
    ) -> tuple[float, _Reals, _Reals, _Reals]: ...
    def variance_drift(self, active: _Integers, mu: _Reals, sigma: _Reals) -> _Reals: ...

@final
class RetargetedFit:
    def __new__(
        cls,
        Phi: _Reals,
        targets: _Reals,
        weights: _Reals | None = None,
        *,
        active: _Integers,
        alpha: _Reals,
        n_threads: int | None = None,
    ) -> Self: ...
    def maximise(
        self, targets: _Reals, *, gain: float, tol: float, max_iter: int, callback: _Callback | None = None
    ) -> tuple[str, _Reals, _Integers]: ...
    def maximise_bound(
        self, labels: _Integers, *, gain: float, radius: float, n_nodes: int | None = None
    ) -> _Reals: ...
    def predictions(self) -> _Reals: ...
    def log_occam_factor(self) -> float: ...
    def posterior(self) -> OutputPosterior: ...

@final
class TopDownFit:
    def __new__(cls, Phi: _Reals, weights: _Reals | None = None, *, n_threads: int | None = None) -> Self: ...
    def solve(self, targets: _Reals, alpha: _Reals) -> tuple[_Reals, _Reals]: ...
    def keep(self, places: _Integers) -> None: ...

@final
class SufficientStatistics:
    """Sums over rows, safe to use from many threads."""

    def __new__(cls, n_basis: int) -> Self: ...
    def update(
        self, Phi: _Reals, target: _Reals, weights: _Reals | None = None, *, n_threads: int | None = None
    ) -> None: ...
    def update_kernel(
        self,
        X: _Reals,
        centres: _Reals,
        kernels: Sequence[Kernel],
        target: _Reals,
        weights: _Reals | None = None,
        *,
        extra: _Reals | None = None,
        n_threads: int | None = None,
    ) -> None: ...
    def snapshot(self) -> SufficientStatistics: ...
    def merge(self, other: SufficientStatistics, *, n_threads: int | None = None) -> None: ...
    n_basis: Final[int]
    n_rows: Final[int]
    weight: Final[float]
    def gram(self) -> _Reals: ...
    def projections(self) -> _Reals: ...
    def target_square(self) -> float: ...
    def parts(self) -> tuple[int, _Reals]: ...
    @staticmethod
    def from_parts(n_basis: int, n_rows: int, parts: _Reals) -> SufficientStatistics: ...
    def fit(
        self,
        *,
        bias: bool = False,
        n_centred: int = 0,
        n_threads: int | None = None,
        callback: _Callback | None = None,
        **settings: Unpack[_Settings],
    ) -> Posterior: ...

def covariance_evidence(C: _Reals, Y: _Reals, slope: bool) -> tuple[float, float, _Reals | None] | None: ...
def radial_evidence(
    kernel: Kernel,
    Z: _Reals,
    scale: float,
    F: _Reals,
    variances: _Reals,
    noise: _Reals,
    Y: _Reals,
    slope: bool,
) -> tuple[float, float, _Reals | None] | None: ...
def probit_probabilities(
    scores: _Reals, *, n_nodes: int | None = None, n_threads: int | None = None
) -> _Reals: ...
def probit_log_probabilities(
    scores: _Reals, *, n_nodes: int | None = None, n_threads: int | None = None
) -> _Reals: ...
def probit_expectations(
    scores: _Reals, labels: _Integers, *, n_nodes: int | None = None, n_threads: int | None = None
) -> tuple[_Reals, _Reals]: ...
