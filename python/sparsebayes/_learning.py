"""Learning the parameters of kernels by the marginal likelihood, jointly with all precisions.

First with one precision for all functions of a kernel (`_Learner.screen`), which chooses between starts; then
with the functions and precisions of a sequential fit (`_Learner.refine`), again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ._background import one_blas_thread
from ._joint_evidence import Functions, JointEvidence, LearningData
from ._kernel_parameters import (
    bounds,
    kind,
    leaves,
    length_powers,
    log_parameters,
    natural,
    with_all_log_parameters,
)
from ._kernel_prior import KernelPrior
from ._leave_one_out import leave_one_out
from ._resolve import is_precomputed
from ._sorted import Sorted, sort
from ._types import FloatArray, Likelihood, Settings
from .kernels import Kernel

if TYPE_CHECKING:
    from . import _core

#: Fits the model with these kernels: one posterior for each output.
Fit = Callable[[list[Kernel]], "list[_core.Posterior]"]

#: Rows and centres that the screening looks at.
_SCREEN_ROWS: Final = 1000
_SCREEN_CENTRES: Final = 120
#: Its starts beside the kernel given: the natural one, with all lengths times these.
_SCREEN_LENGTHS: Final = (0.7, 1.0, 1.4)
#: L-BFGS iterations of each start, and of the best of them afterwards.
_SCREEN_STEPS: Final = (25, 100)
#: How many of the ends of its starts are kept beside where the best of them leads.
_SCREEN_KEPT: Final = 2
#: What the lengths found by the screening are multiplied with; and how many of the results are refined.
_REFINE_LENGTHS: Final = (1.4, 1.2, 1.0, 0.85, 0.7, 0.6, 0.5)
_REFINED: Final = 4
#: Rounds of refinement, L-BFGS iterations of each, and the nats for which another is worth its time.
_ROUNDS: Final = 6
_ROUND_STEPS: Final = 100
_WORTH: Final = 0.01
#: What of the log prior counts beside the predictions of rows left out; measured: see DESIGN.md.
_PRIOR_WEIGHT: Final = 0.5
#: How far ln alpha and ln beta may go from where a stage starts.
_HYPER_RANGE: Final = 25.0


@dataclass(frozen=True)
class _Candidate:
    kernels: list[Kernel]
    posteriors: list[_core.Posterior]
    #: The same with the fixed functions first.
    sorted: list[Sorted]
    n_fixed: int

    @classmethod
    def of(cls, kernels: list[Kernel], data: LearningData, fit: Fit) -> _Candidate:
        posteriors = fit(kernels)
        n_kernel_functions = len(kernels) * len(data.centres)
        n_fixed = data.fixed.shape[1]
        ordered = [sort(one, data.n_before, n_kernel_functions, n_fixed) for one in posteriors]
        return cls(kernels, posteriors, ordered, n_fixed)

    @property
    def evidence(self) -> float:
        return float(sum(posterior.log_evidence for posterior in self.posteriors))

    @property
    def n_chosen(self) -> float:
        """Kernel functions in the model."""
        return float(sum(np.sum(posterior.active >= self.n_fixed) for posterior in self.sorted))

    @property
    def converged(self) -> bool:
        return all(posterior.status == "converged" for posterior in self.posteriors)

    @property
    def stopped(self) -> bool:
        return any(posterior.status == "stopped" for posterior in self.posteriors)


def check_model(
    argument: str, kernel: object, y: NDArray[Any], likelihood: Likelihood, settings: Settings
) -> None:
    """Raise ValueError for a model whose kernel cannot be learned; ``argument`` is what asks for it."""
    if is_precomputed(kernel):
        raise ValueError(
            f"kernel='precomputed' needs kernel parameters to be given, but there is {argument}: its values "
            "are what they are; give a kernel with parameters to have them learned"
        )
    if y.ndim == 2:
        raise ValueError(
            f"{argument} needs a y of one column, got {y.shape[1]}: learn the kernel from one of them, and "
            "give its kernel_ as kernel"
        )
    if likelihood == "multinomial":
        raise ValueError(f"{argument} needs multi_class='ovr', got 'softmax'")
    if (settings.alpha_prior, settings.noise_prior) != ((0.0, 0.0), (0.0, 0.0)):
        raise ValueError(f"{argument} needs alpha_prior and noise_prior to be (0, 0)")


def check_learnable(kernels: list[Kernel]) -> None:
    """Raise ValueError if no kernel has a continuous parameter."""
    if len(_parameters(kernels)) == 0:
        raise ValueError(
            "optimize_kernel=True needs a kernel with continuous parameters, which callables, Linear and "
            f"LinearSpline do not have; got {', '.join(map(repr, kernels))}. Set optimize_kernel=False, or "
            "choose or add a kernel such as kernels.Gaussian"
        )


def learn(kernels: list[Kernel], data: LearningData, fit: Fit) -> tuple[list[Kernel], list[_core.Posterior]]:
    """Return kernels with learned parameters, and what ``fit`` returned for them.

    The evidence is not below that of the kernels given. If the user stops a fit, the learning ends with that
    fit's model.
    """
    given = _Candidate.of(kernels, data, fit)
    if given.stopped or not any(np.ptp(target) > 0.0 for target in data.targets):
        return given.kernels, given.posteriors
    scale = data.scale()
    # The matrices are small: several threads for each would wait for one another most of the time.
    with one_blas_thread():
        best = _Learner(data.in_units_of(scale), scale, fit, KernelPrior.of(kernels, data.X)).run(given)
    return best.kernels, best.posteriors


@dataclass(frozen=True)
class _Learner:
    """Both stages on the same data."""

    data: LearningData
    #: What the targets of ``data`` were divided by.
    scale: float
    fit: Fit
    prior: KernelPrior

    def run(self, given: _Candidate) -> _Candidate:
        """Refine the best of what the screening found, with various lengths; return the best of all.

        Many functions together do what few can only do if they are narrower, and which optimum a choice of
        functions ends in depends on where it starts. Their evidences profit from that choice, the more the
        more there is to choose from; so of all fits that is taken which predicts rows left out best.
        """
        lengths = _REFINE_LENGTHS if self.prior.powers.any() else (1.0,)
        starts = []
        for theta in self.screen(given.kernels):
            for length in lengths:
                start = self.candidate(given.kernels, theta + self.prior.powers * np.log(length))
                if start.stopped:
                    return start
                starts.append(start)
        starts.sort(key=self.score, reverse=True)
        found = [*starts, given]
        # That of the kernel given without Occam factors: more evidence than it had may be had only there.
        for start, occam in [*((start, 1.0) for start in starts[:_REFINED]), (given, 0.0)]:
            found += self.refine(start, occam)
            if found[-1].stopped:
                return found[-1]
        better = [one for one in found if one.evidence >= given.evidence]
        return max([one for one in better if one.converged] or better, key=self.merit)

    def score(self, candidate: _Candidate, occam: float = 1.0) -> float:
        """Log evidence and log prior."""
        return candidate.evidence + self.log_prior(candidate, occam)

    def merit(self, candidate: _Candidate) -> float:
        """Log predictive density of the rows, each left out in turn, and a part of the log prior."""
        density = 0.0
        for posterior, target in zip(candidate.sorted, self.data.targets, strict=True):
            chosen = _functions_of(posterior, candidate.kernels, self.data)
            pairs = zip(candidate.kernels, chosen.centres, strict=True)
            values = [kernel(self.data.X, self.data.centres[at]) for kernel, at in pairs]
            Phi = np.hstack([self.data.fixed[:, chosen.fixed], *values])
            density += leave_one_out(
                Phi, posterior, target * self.scale, self.data.weights, self.data.likelihood
            )
        return density + _PRIOR_WEIGHT * self.log_prior(candidate)

    def log_prior(self, candidate: _Candidate, occam: float = 1.0) -> float:
        """Log prior of the kernel parameters; ``occam``: weight of the factors for each function chosen."""
        return self.prior(_parameters(candidate.kernels), occam * candidate.n_chosen)[0]

    def candidate(self, kernels: list[Kernel], theta: FloatArray) -> _Candidate:
        """Fit the model with these log parameters."""
        kernels = with_all_log_parameters(kernels, theta)
        return _Candidate.of(kernels, self.data, self.fit)

    def screen(self, kernels: list[Kernel]) -> list[FloatArray]:
        """Return log parameters learned with one and the same precision for all functions of a kernel.

        That is a Gaussian process with covariance K K^T / alpha: no choice of functions, so the evidence is
        smooth in all its parameters, of which there are few, and at zero width it is that of noise alone.
        """
        data = _sample(self.data)
        every, n_fixed = np.arange(len(data.centres)), data.fixed.shape[1]
        groups = np.append(np.arange(n_fixed), n_fixed + np.repeat(np.arange(len(kernels)), len(every)))
        functions = Functions(np.arange(n_fixed), [every] * len(kernels), groups)
        evidence = JointEvidence(kernels, data, [functions] * len(data.targets))
        limits = _bounds(kernels, data.X)
        ends = []
        for theta in _starts(kernels, data.X):
            hyper = _tied_start(with_all_log_parameters(kernels, theta), data)
            ends.append(_maximise(evidence, self.prior, 0.0, theta, hyper, limits, _SCREEN_STEPS[0]))
        ends.sort(key=lambda end: -end[2])
        theta, hyper, _ = ends[0]
        far = _maximise(evidence, self.prior, 0.0, theta, hyper, limits, _SCREEN_STEPS[1])
        return [end[0] for end in [far, *ends[:_SCREEN_KEPT]]]

    def refine(self, best: _Candidate, occam: float) -> list[_Candidate]:
        """Alternate joint steps on all that is continuous and sequential fits, which choose functions."""
        limits = _bounds(best.kernels, self.data.X)
        found: list[_Candidate] = []
        for _ in range(_ROUNDS):
            outputs = [_functions_of(posterior, best.kernels, self.data) for posterior in best.sorted]
            hyper = [_precisions_of(posterior, self.data, self.scale) for posterior in best.sorted]
            theta, _, _ = _maximise(
                JointEvidence(best.kernels, self.data, outputs),
                self.prior,
                occam * best.n_chosen,
                _parameters(best.kernels),
                np.concatenate(hyper),
                limits,
                _ROUND_STEPS,
            )
            found.append(self.candidate(best.kernels, theta))
            if found[-1].stopped or self.score(found[-1], occam) < self.score(best, occam) + _WORTH:
                break
            best = found[-1]
        return found


# --- starts -----------------------------------------------------------------------------------------


def _sample(data: LearningData) -> LearningData:
    """Draw rows and centres where there are many; always the same, as there is no harm in that."""
    order = np.random.default_rng(0)
    rows = np.sort(order.permutation(len(data.X))[:_SCREEN_ROWS])
    centres = np.sort(order.permutation(len(data.centres))[:_SCREEN_CENTRES])
    return replace(
        data,
        X=data.X[rows],
        centres=data.centres[centres],
        fixed=data.fixed[rows],
        targets=[target[rows] for target in data.targets],
        weights=data.weights[rows],
    )


def _starts(kernels: list[Kernel], X: FloatArray) -> list[FloatArray]:
    """Return log parameters to start from: those given, and natural ones with various lengths."""
    parts = [leaf for kernel in kernels for leaf in leaves(kernel) if len(log_parameters(leaf)) > 0]
    means = [float(log_parameters(leaf).mean()) for leaf in parts]
    natural_parts = []
    for leaf, mean in zip(parts, means, strict=True):
        # Several kernels of a kind keep their proportions; the same start would keep them the same.
        alike = [other for part, other in zip(parts, means, strict=True) if kind(part) == kind(leaf)]
        natural_parts.append(natural(leaf, X) + mean - np.mean(alike))
    centre = np.concatenate(natural_parts)
    powers = np.concatenate([length_powers(kernel) for kernel in kernels])
    return [_parameters(kernels), *(centre + powers * np.log(length) for length in _SCREEN_LENGTHS)]


def _tied_start(kernels: list[Kernel], data: LearningData) -> FloatArray:
    """Precisions such that the functions of each kernel explain the targets' mean square a priori."""
    squares = [np.mean(data.fixed**2, axis=0)]
    squares += [np.atleast_1d(np.mean(np.sum(k(data.X, data.centres) ** 2, axis=1))) for k in kernels]
    log_squares = np.log(np.maximum(np.concatenate(squares), 1e-300))
    parts = []
    for target in data.targets:
        if data.likelihood == "gaussian":
            parts.append(log_squares - np.log(np.mean(target**2)))
            if data.noise_variance is None:
                parts.append(np.log([10.0]))  # a tenth of the variance is noise (Tipping & Faul 2003, 4)
        else:
            parts.append(log_squares)
    return np.concatenate(parts)


def _functions_of(posterior: Sorted, kernels: list[Kernel], data: LearningData) -> Functions:
    """Return the active functions: the fixed ones, then every kernel about every centre."""
    active, n_fixed = posterior.active, data.fixed.shape[1]
    block, centre = np.divmod(active - n_fixed, len(data.centres))
    inside = active >= n_fixed
    return Functions(
        active[~inside],
        [centre[inside & (block == k)] for k in range(len(kernels))],
        np.arange(len(active)),
    )


def _precisions_of(posterior: Sorted, data: LearningData, scale: float) -> FloatArray:
    # For likelihoods other than the Gaussian the scale is 1.
    log_alpha: FloatArray = np.log(posterior.alpha) + 2.0 * np.log(scale)
    if data.likelihood != "gaussian" or data.noise_variance is not None:
        return log_alpha
    return np.append(log_alpha, np.log(posterior.beta) + 2.0 * np.log(scale))


# --- steps ------------------------------------------------------------------------------------------


def _maximise(
    evidence: JointEvidence,
    prior: KernelPrior,
    n_chosen: float,
    theta: FloatArray,
    hyper: FloatArray,
    limits: FloatArray,
    steps: int,
) -> tuple[FloatArray, FloatArray, float]:
    """Climb from (theta, hyper) by L-BFGS; return where that ended and the objective there."""
    n = len(theta)

    def descend(x: FloatArray) -> tuple[float, FloatArray]:
        found = evidence(x)
        if found is None:
            return np.inf, np.zeros_like(x)
        value, gradient = found
        log_prior, slope = prior(x[:n], n_chosen)
        gradient[:n] += slope
        return -(value + log_prior), -gradient

    box = np.vstack([limits, np.column_stack([hyper - _HYPER_RANGE, hyper + _HYPER_RANGE])])
    # Where the kernel given lies outside, the bounds make room for it.
    box[:n, 0], box[:n, 1] = np.minimum(box[:n, 0], theta), np.maximum(box[:n, 1], theta)
    x0 = np.concatenate([theta, hyper])
    options: dict[str, Any] = {"maxiter": steps, "maxcor": 20}
    result = minimize(descend, x0, jac=True, method="L-BFGS-B", bounds=box, options=options)
    x, least = (result.x, float(result.fun)) if np.isfinite(result.fun) else (x0, descend(x0)[0])
    # A gentle slope may keep an input that is not worth it: see what the longest length would give.
    for i in np.flatnonzero(prior.powers):
        trial = x.copy()
        trial[i] = box[i, 1] if prior.powers[i] > 0.0 else box[i, 0]
        value = descend(trial)[0]
        if value < least:
            x, least = trial, value
    return x[:n], x[n:], -least


def _parameters(kernels: list[Kernel]) -> FloatArray:
    return np.concatenate([log_parameters(kernel) for kernel in kernels])


def _bounds(kernels: list[Kernel], X: FloatArray) -> FloatArray:
    return np.vstack([bounds(kernel, X) for kernel in kernels])
