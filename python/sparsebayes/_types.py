"""Names for the types that cross module borders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .kernels import Kernel

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
Likelihood: TypeAlias = Literal["gaussian", "bernoulli", "poisson", "multinomial"]
Scheme: TypeAlias = Literal["sequential", "mackay", "em", "variational"]
Search: TypeAlias = Literal["greedy", "exchange"]
KernelFunction: TypeAlias = Callable[[FloatArray, FloatArray], ArrayLike]
#: One kernel as a user may name it.
KernelLike: TypeAlias = "str | Kernel | KernelFunction"
#: What ``kernel=`` takes: one kernel, or several for a multi-kernel dictionary.
KernelSpec: TypeAlias = "KernelLike | Sequence[KernelLike]"
#: What ``extra_basis=`` takes: "linear", a transformer, or a callable; None: nothing.
ExtraBasis: TypeAlias = "str | Any | Callable[[FloatArray], ArrayLike] | None"

#: What ``fit`` takes: arrays; chunks of rows; a path, or a data set of Arrow, with the names of two columns.
Data: TypeAlias = "ArrayLike | Iterable[Any] | Callable[[], Iterable[Any]] | os.PathLike[str] | Any"
Target: TypeAlias = "ArrayLike | str | None"

#: What ``candidates=`` takes: a number of training rows, or centres; None: every row.
Candidates: TypeAlias = "int | ArrayLike | None"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass over rows has come that are read part by part.

    Attributes
    ----------
    what : str
        ``"looking for centres"`` or ``"summing"``.
    rows, n_rows : int, int or None
        Rows read in this pass, and how many there are, if that is known.
    chunk : int
        Number of the chunk they end in, from 1.
    seconds_left : float or None
        Estimate of the time until the pass ends, if n_rows is known.
    """

    what: str
    rows: int
    n_rows: int | None
    chunk: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far a look at the candidates outside a working set has come, in a fit of a large dictionary.

    Attributes
    ----------
    candidates, n_candidates : int
        Candidates looked at in this sweep, and how many there are to look at.
    n_rows : int
        Rows that each is held against.
    seconds_left : float or None
        Estimate of the time until the sweep ends; None at its beginning.
    """

    candidates: int
    n_candidates: int
    n_rows: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a fit, as ``callback`` sees it.

    Attributes
    ----------
    iteration : int
        1 for the first step of a fit (classification with more than two classes: of each class's fit); 0
        before it.
    action : str
        ``"add"``, ``"reestimate"``, ``"delete"`` (a change of one basis function: Tipping & Faul 2003,
        section 4, steps 6 to 8), ``"noise"`` (step 9), ``"joint"`` (all hyperparameters together, for a
        variational fit with all that q and its bound have),
        ``"search"`` (part of the model replaced by something better) or ``"mode"`` (the posterior mode found
        anew, for likelihoods other than the Gaussian). Or no step of the fit, of which ``progress`` says how
        far it has come: ``"read"``, before the first step, for each block of rows that are read part by part;
        ``"sweep"``, for dictionaries so large that they are looked at in blocks.
    index : int or None
        The function concerned, counted as in ``active_``: -1 is the bias. None if no single one is.
    gain : float
        Gain in log marginal likelihood, in nats.
    log_marginal_likelihood : float
        Its value after the step.
    n_active : int
        Functions in the model after the step.
    noise_variance : float or None
        Noise variance after the step, with several outputs the mean of theirs; None for likelihoods without
        one.
    progress : Progress, Sweep or None
        How far a pass over the rows, or over the candidates, has come; None for steps of the fit itself.
    """

    iteration: int
    action: str
    index: int | None
    gain: float
    log_marginal_likelihood: float
    n_active: int
    noise_variance: float | None
    progress: Progress | Sweep | None = None


Callback: TypeAlias = Callable[[StepRecord], Any]


@dataclass(frozen=True)
class Settings:
    """Checked settings of a fit, as the core takes them."""

    noise_variance: float | None
    tol: float
    max_iter: int
    scheme: Scheme
    #: Shape and rate of the Gamma prior of each alpha, and of beta.
    alpha_prior: tuple[float, float]
    noise_prior: tuple[float, float]
    #: What is tried after the sequential scheme.
    search: Search
    n_threads: int | None
    #: One for each output, if they were given as an array.
    noise_variances: tuple[float, ...] | None = None

    def with_noise_of(self, variance: float) -> Settings:
        """Return the settings where noise is measured in units of this variance: beta times it, too."""
        given, (shape, rate) = self.noise_variance, self.noise_prior
        return replace(
            self,
            noise_variance=None if given is None else given * variance,
            noise_prior=(shape, rate * variance),
        )

    def of_one_target(self) -> dict[str, Any]:
        """Return the keywords of a fit of one target."""
        keywords = dict(vars(self))
        del keywords["noise_variances"]
        return keywords


@dataclass(frozen=True)
class Problem:
    """One fit written out with dense arrays: what a certificate is computed from."""

    #: Design matrix, N x K, in the column order of the dictionary.
    Phi: FloatArray
    #: Targets, length N; 0 and 1 for classification, class numbers for a softmax.
    target: FloatArray
    #: Sample weights, length N, or None.
    weights: FloatArray | None
    #: Indices of the columns in the model, ascending; for a softmax c K + j where class c uses column j.
    active: IntArray
    #: Prior precision of each active weight.
    alpha: FloatArray
    #: Posterior mean of each active weight, as the fit published it.
    mu: FloatArray
    #: Noise precision; 1 for likelihoods without one.
    beta: float
    noise: Literal["estimated", "fixed", "floor", "none"]
    likelihood: Likelihood
    #: Shape and rate of the Gamma priors.
    alpha_prior: tuple[float, float]
    noise_prior: tuple[float, float]
    #: Log marginal likelihood as the fit reported it.
    log_evidence: float
    #: Whether alpha and beta are expectations and the log evidence a lower bound (``scheme="variational"``).
    variational: bool = False
    #: Whether the certificate looks at exchanges too.
    exchanges: bool = False
    #: What the log evidence has beside that of the weights, where these are known precisions.
    log_evidence_of_weights: float = 0.0


@dataclass(frozen=True)
class OutputsProblem:
    """One fit of several outputs written out with dense arrays."""

    #: Design matrix, N x K, in the column order of the dictionary.
    Phi: FloatArray
    #: Targets, N x C.
    targets: FloatArray
    #: Sample weights, length N, or None.
    weights: FloatArray | None
    #: Indices of the columns in the model, ascending.
    active: IntArray
    #: Prior precision of each active function's weights.
    alpha: FloatArray
    #: Posterior means, n_active x C, as the fit published them.
    mu: FloatArray
    #: Noise precision of each output.
    beta: FloatArray
    #: Whether all outputs have the same noise.
    shared_noise: bool
    #: Whether the noise was given.
    fixed: bool
    #: Whether each noise level sits at its floor.
    at_floor: NDArray[np.bool_]
    #: Log marginal likelihood as the fit reported it.
    log_evidence: float
