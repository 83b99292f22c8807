"""Types that several modules use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .kernels import Kernel

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
#: The name of a likelihood of rows, or "multinomial".
Likelihood: TypeAlias = str
#: How the mean of a target, or class probabilities, follow from the linear predictors.
Link: TypeAlias = Literal["identity", "log", "log_continuous", "logistic", "softmax", "probit"]
Scheme: TypeAlias = Literal["sequential", "mackay", "em", "variational"]
Search: TypeAlias = Literal["greedy", "exchange"]
#: When a Gaussian process is the prior of the final weights of a regression: "prior", unless its variance is
#: large; "rival", where it predicts rows left out far better than the sparse model; "reserve", where it does
#: so and the sparse model falls short of its trials.
ProcessRole: TypeAlias = Literal["prior", "rival", "reserve"]
KernelFunction: TypeAlias = Callable[[FloatArray, FloatArray], ArrayLike]
#: One kernel as a user may name it.
KernelLike: TypeAlias = "str | Kernel | KernelFunction"
#: ``kernel``: one kernel, or several for a multi-kernel dictionary.
KernelSpec: TypeAlias = "KernelLike | Sequence[KernelLike]"
#: ``extra_basis``: "auto", "linear", a transformer, a callable, or None.
ExtraBasis: TypeAlias = "str | Any | Callable[[FloatArray], ArrayLike] | None"
#: ``unpenalized``: columns of ``extra_basis`` without a prior, by position or name.
Unpenalized: TypeAlias = "str | int | Sequence[int] | Sequence[str] | None"
#: X and y in ``fit``: arrays; chunks of rows; a path or an Arrow data set, with the names of columns.
Data: TypeAlias = "ArrayLike | Iterable[Any] | Callable[[], Iterable[Any]] | os.PathLike[str] | Any"
Target: TypeAlias = "ArrayLike | str | None"
#: ``sample_weight``, ``y_std`` and ``exposure`` for rows in memory: a number for each, or one for all.
PerRow: TypeAlias = "ArrayLike | None"
#: ``candidates``: a number of training rows, "auto" for one that suits, or centres; None: every row.
Candidates: TypeAlias = "int | str | ArrayLike | None"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a pass over the rows, or over the candidates of a large dictionary.

    Attributes
    ----------
    what : str
        ``"looking for centres"``, ``"looking at classes"``, ``"measuring X"`` or ``"summing"`` for rows;
        ``"sweeping"`` for candidates.
    done, total : int, int or None
        Rows or candidates done in this pass, and their total number, if known.
    """

    what: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a fit, the argument of ``callback``.

    Attributes
    ----------
    iteration : int
        1 for the first step of a fit (classification with more than two classes: of each class's fit); 0
        before it.
    action : str
        ``"add"``, ``"reestimate"``, ``"delete"`` (a change of one basis function: Tipping & Faul 2003,
        section 4, steps 6 to 8), ``"noise"`` (step 9), ``"joint"`` (all hyperparameters together; in a
        variational fit also q and the parameters of its bound), ``"search"`` (an exchange of functions) or
        ``"mode"`` (an update of the posterior mode, for likelihoods other than the Gaussian). Two actions
        report the ``progress`` of a pass over the data instead of a step: ``"read"``, for each block of rows
        that are read in chunks; ``"sweep"``, for dictionaries processed in blocks.
    index : int or None
        The function that changed, counted as in ``active_``: -1 is the bias. None if it is not a single one.
    gain : float
        Gain in log marginal likelihood, in nats.
    log_marginal_likelihood : float
        Its value after the step.
    n_active : int
        Functions in the model after the step.
    noise_variance : float or None
        Noise variance after the step, averaged over several outputs; None for likelihoods without one.
    progress : Progress or None
        Progress of a pass over the data; None for steps of the fit itself.
    """

    iteration: int
    action: str
    index: int | None
    gain: float
    log_marginal_likelihood: float
    n_active: int
    noise_variance: float | None
    progress: Progress | None = None


Callback: TypeAlias = Callable[[StepRecord], Any]


#: Lower bound of an estimated noise variance in units of var(y), as in the core.
NOISE_FLOOR: Final = 1e-6


@dataclass(frozen=True)
class Settings:
    """Checked settings of a fit, in the form of the core."""

    noise_variance: float | None
    tol: float
    max_iter: int
    scheme: Scheme
    #: Shape and rate of the Gamma prior of each alpha, and of beta.
    alpha_prior: tuple[float, float]
    noise_prior: tuple[float, float]
    #: The search after the sequential scheme.
    search: Search
    n_threads: int | None
    #: Functions of the dictionary with a flat prior, ascending; 0 is the intercept.
    unpenalized: tuple[int, ...] = ()
    #: The weight of the prior on complexity, or the criterion that it is taken from.
    complexity: float | Literal["bic", "ebic"] = 0.0
    #: One for each output, if they were given as an array.
    noise_variances: tuple[float, ...] | None = None

    @property
    def flat_intercept(self) -> bool:
        """Whether the intercept has a flat prior."""
        return 0 in self.unpenalized

    def with_noise_of(self, variance: float) -> Settings:
        """Return the settings with noise in units of this variance."""
        given, (shape, rate) = self.noise_variance, self.noise_prior
        noise_variance = None if given is None else given * variance
        return replace(self, noise_variance=noise_variance, noise_prior=(shape, rate * variance))

    def of_one_target(self) -> dict[str, Any]:
        """Return the keywords of a fit of one target."""
        return {name: value for name, value in vars(self).items() if name != "noise_variances"}

    @property
    def is_papers_model(self) -> bool:
        """Whether scheme or priors are the papers', without a complexity prior or a flat intercept."""
        return self.scheme != "sequential" or self.complexity == 0.0 or not self.flat_intercept

    def complexity_for(self, weight: float, n_basis: int, n_outputs: int = 1) -> float:
        """Return the weight of the prior on complexity for rows of this total weight.

        Outputs share the choice of functions, which the second term prices.
        """
        if isinstance(self.complexity, float):
            return self.complexity
        n_functions = n_basis if self.complexity == "ebic" else 1
        return 0.5 * float(np.log(max(weight, 1.0)) + np.log(max(n_functions, 1)) / n_outputs)


@dataclass(frozen=True, kw_only=True)
class _DenseModel:
    """A fitted model as dense arrays, from which its certificate is computed."""

    #: Design matrix, N x K, in the column order of the dictionary, and the weights of its rows.
    Phi: FloatArray
    weights: FloatArray | None
    #: Columns in the model, ascending; for a softmax c K + j where class c uses column j.
    active: IntArray
    alpha: FloatArray
    #: Posterior means, length n_active or n_active x C, and the log evidence, as the fit published them.
    mu: FloatArray
    log_evidence: float
    #: Weight of the prior on complexity.
    complexity: float = 0.0
    #: Columns that share a precision; None: none do.
    groups: list[IntArray] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem(_DenseModel):
    """One fit of one target."""

    #: Targets, length N; 0 and 1 for classification, class numbers for a softmax.
    target: FloatArray
    #: Noise precision; 1 for likelihoods without one.
    beta: float
    noise: Literal["estimated", "fixed", "floor", "none"]
    likelihood: Likelihood
    #: Dispersion or degrees of freedom, and whether it was estimated.
    shape: float | None = None
    estimates_shape: bool = False
    #: Added to the linear predictors.
    offset: FloatArray | None = None
    #: Of Student's t the expected precision of each row in units of the noise precision, and sample weights.
    row_weights: FloatArray | None = None
    counts: FloatArray | None = None
    #: Shape and rate of the Gamma priors.
    alpha_prior: tuple[float, float]
    noise_prior: tuple[float, float]
    #: Whether alpha and beta are expectations and the log evidence a lower bound (``scheme="variational"``).
    variational: bool = False
    #: Whether the certificate covers exchanges.
    exchanges: bool = False
    #: Difference between the log evidence and that of the weighted fit, for known noise precisions.
    log_evidence_of_weights: float = 0.0

    @property
    def is_gaussian(self) -> bool:
        """Whether the fit is that of a Gaussian likelihood, of weighted rows for Student's t."""
        return self.likelihood in ("gaussian", "student_t")


@dataclass(frozen=True, kw_only=True)
class OutputsProblem(_DenseModel):
    """One fit of several outputs."""

    #: Targets, N x C, and the noise precision of each output.
    targets: FloatArray
    beta: FloatArray
    #: Whether all outputs have the same noise, and whether it was given.
    shared_noise: bool
    fixed: bool
    #: Whether each noise level is at its lower bound.
    at_floor: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class WeightsProblem:
    """Weights of all classes, or of a regression, with one prior, as dense arrays for their certificate."""

    #: Functions at the rows, N x M; targets, N x C, of two classes N x 1; weights of the rows.
    Phi: FloatArray
    targets: FloatArray
    weights: FloatArray
    #: Prior precision of the weights of each class, M x M, and which have a flat prior.
    precision: FloatArray
    is_flat: NDArray[np.bool_]
    #: Weights and their prior mean, M x C.
    mu: FloatArray
    prior_mean: FloatArray
    #: Of a regression.
    noise_variance: float | None = None
