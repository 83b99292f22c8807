"""The search for kernel parameters, by the rows that fits and processes predict without having seen them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import isqrt
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from .. import _core
from .._arrays import equal_rows, first_of_equal
from .._cancellable import begin, blas_workers, in_background
from .._data.design import Design, evaluate
from .._estimators.posterior import log_normalised, moderated_logits
from .._estimators.process import (
    LANDMARKS,
    Choice,
    Process,
    ProcessRows,
    are_observations,
    beside,
    class_numbers,
    exceed,
    have_several_targets,
)
from .._estimators.process_regression import max_variance
from .._types import FloatArray, IntArray, ProcessRole, Settings
from ..kernels import Kernel, Matern32, Matern52
from ..kernels._base import all_log_parameters, column_stds, with_all_log_parameters
from ..kernels._standard import Radial
from .evidence import CovarianceEvidence, LearningData, draw

# The constants are measured in docs/notebook/kernel-learning.md.
#: Rows and L-BFGS iterations of the Gaussian process, and those that go on from there; with linear terms, and
#: for classes.
_PROCESS: Final = ((300, 40), (450, 10))
_LINEAR_PROCESS: Final = ((300, 25),)
_PROCESS_OF_CLASSES: Final = ((200, 30),)
#: Of more than `_FOLD_ROWS` rows first one in five, then all but one in five, but between these numbers.
_PROCESS_ROWS: Final = (450, 1000)
#: Bytes for each pair of rows: twenty numbers, for two processes at a time.
_PROCESS_BYTES: Final = 160
_LAST_ITERATIONS: Final = 8
#: Kernels that are less smooth than the Gaussian, the smoothest first, and L-BFGS iterations of each.
_ROUGHER: Final = (Matern52, Matern32)
_ROUGHER_ITERATIONS: Final = 10
#: Up to so many rows are divided into folds; most centres of the trial fits.
_FOLD_ROWS: Final = 600
_FOLDS: Final = 5
_TRIAL_CENTRES: Final = 200
#: Of more rows one in five, but between these numbers, one fold of which is predicted; and most centres.
_ROWS_PER_DRAWN_ROW: Final = 5
_TRIAL_ROWS: Final = (2000, 10_000)
_CENTRES_OF_MANY: Final = 500
#: Most rows of the Gaussian process that predicts rows left out, and the standard errors by which it has to
#: be better to be the prior of the final weights: of two models that predict alike the sparse one is wanted;
#: of few rows, where lengths are uncertain, more. With fewer rows than these error bars are too small.
_MAX_PROCESS_ROWS: Final = 1600
_PROCESS_ERRORS: Final = 3.0
_PROCESS_ERRORS_OF_FEW: Final = 4.0
_LEAST_PROCESS_ROWS: Final = 16
#: Greatest step of ln v towards the largest that is allowed, and L-BFGS iterations of each step.
_VARIANCE_STEP: Final = 2.0
_STEP_ITERATIONS: Final = 6
#: Standard errors by which the process may be worse before further folds are predicted.
_FUTILE_ERRORS: Final = 1.5
#: Distinct rows for each unit of weight, from which on the other rows are too few to matter as copies.
_MIN_UNIT: Final = 0.9
#: Rows up to which lengths of a regression have to pay their cost, compared with equal ones.
_FEW_ROWS: Final = 60
#: Factors of the lengths that are tried: shorter ones, then longer ones if none of those is best.
_SHORTER: Final = (0.7, 0.5)
_SHORTER_OF_CLASSES: Final = (0.6,)
_LONGER: Final = (1.4,)
#: Most candidates of a walk; it continues while the last candidate is the best.
_MAX_WALK: Final = 10
#: Standard errors by which predictions have to get worse to end the search in one direction.
_STANDARD_ERRORS: Final = 2.0
#: Standard errors by which predictions have to be better with linear terms.
_LINEAR_ERRORS: Final = 0.5
#: Standard errors by which a kernel has to predict rows left out better than none, and the largest gain or
#: loss of a row that counts, in nats.
_KERNEL_ERRORS, _MAX_GAIN = 1.0, 3.0
#: Kernels within this log density per row of the best replace it if its fit does not converge, or has so much
#: less log evidence per row than its trial fits.
_MAX_DENSITY_LOSS: Final = 0.2
#: Most that an input adds to the squared distance of two rows in widths, on average, for its width to become
#: infinite. That may cost a nat of the density of all rows left out, what one parameter gains (Akaike 1974).
_MAX_IRRELEVANT: Final = 1e-5
#: A trial fit is abandoned with more active functions than this fraction of the rows, and ends after so many
#: steps.
_MAX_ACTIVE_FRACTION: Final = 0.5
_MAX_STEPS: Final = 2000


def _check_learnable(kernels: list[Kernel]) -> None:
    """Raise ValueError if no kernel has a continuous parameter, or one is infinite."""
    if not all(np.isfinite(kernel._log_parameters()).all() for kernel in kernels):
        raise ValueError("optimize_kernel=True needs finite widths to start from; got an infinite one")
    if not any(len(kernel._log_parameters()) > 0 for kernel in kernels):
        raise ValueError(
            "optimize_kernel=True needs a kernel with continuous parameters, which 'precomputed', callables, "
            f"Linear and LinearSpline do not have; got {', '.join(map(repr, kernels)) or 'precomputed'}. Set "
            "optimize_kernel=False, or choose or add a kernel such as kernels.Gaussian"
        )


@dataclass(frozen=True)
class Learned:
    """Kernels with learned parameters, and a log evidence that a fit to all rows exceeds unless it fails."""

    kernels: list[Kernel]
    least_evidence: float = -np.inf
    has_linear_terms: bool = False
    #: Those of a Gaussian process that may be the prior of the final weights of a regression, and when it is.
    of_process: list[Kernel] | None = None
    role: ProcessRole = "reserve"
    #: Of kernels of classes, ln v of the process that chose them.
    log_variance: float | None = None


def learn(
    kernels: list[Kernel],
    data: LearningData,
    settings: Settings,
    linear: LearningData | None = None,
) -> list[Learned]:
    """Return the kernels with learned parameters, and the next best ones; as given if nothing can be learned.

    ``linear``: the same data with linear terms beside the kernels, which the result has if rows left out are
    predicted better. The work is bounded by numbers of rows, iterations and functions; the result is
    deterministic.
    """
    _check_learnable(kernels)
    data = _without_copies(data)
    linear = None if linear is None else _without_copies(linear)
    with np.errstate(over="ignore", invalid="ignore"):
        _, stds = data.centred()
    varies = len(stds) > 0 and all(0.0 < std < np.inf for std in stds)
    few = len(first_of_equal(data.X)) < 2 * _FOLDS
    if not varies or few or len(data.centres) == 0:
        return [Learned(kernels)]

    def work(pulse: Callable[[], None]) -> list[Learned]:
        # The matrices are too small for several threads of BLAS.
        with blas_workers(settings.n_threads) as pool:
            learner = _Learner(kernels, data, settings, pool, pulse)
            if data.likelihood != "gaussian":
                return learner.of_classes()
            learners = [learner]
            if linear is not None:
                learners.append(replace(learner, data=linear, has_linear_terms=True))
            if linear is None or settings.n_threads == 1:  # another thread would keep memory of its own
                compared = [one.propose_and_compare() for one in learners]
            else:
                # On threads of their own, as one that waits for fits would hold a thread of the pool.
                with blas_workers(settings.n_threads) as threads:
                    calls = [begin(threads, one.propose_and_compare) for one in learners]
                    compared = [call.result() for call in calls]
            (plain, *_), (other, *_) = compared[0][0], compared[-1][0]
            best = -1 if _exceeds(other, plain, _LINEAR_ERRORS) else 0
            learned = learners[best].finish(*compared[best])
            if learned[0].role == "reserve" and not settings.is_papers_model:
                return learners[best].without_kernel(compared[best][0][0], learner) or learned
            return learned

    return in_background(work)


def _without_copies(data: LearningData) -> LearningData:
    """Return each set of equal rows as one, and the weights divided by their mean, if that is well above 1.

    The evidence of a process with a free noise variance has no limit where rows occur several times: the
    differences of equal rows are zero, as if there were no noise. Equal rows of which many differ from others
    in the target alone are observations.
    """
    few = data.few_counts
    of_counts = () if few is None else (few.y, few.offset)
    first, number = equal_rows(np.column_stack([data.X, *data.targets, *of_counts]))
    counts = data.weights if data.counts is None else data.counts
    weights = np.bincount(number, counts).astype(np.float64)
    is_gaussian, X = data.likelihood == "gaussian", data.X[first]
    if (have_several_targets if is_gaussian else are_observations)(X, weights):
        return data
    unit = len(first) / float(weights.sum())
    if unit >= _MIN_UNIT:
        return data
    # v of a process of classes is chosen with the weights of the model.
    return replace(data.of_equal_rows(first, number, unit if is_gaussian else 1.0), unit=unit)


def natural(kernels: list[Kernel], X: FloatArray, weights: FloatArray | None) -> list[Kernel] | None:
    """Return the kernels with parameters that suit the spread of X; None if they have no finite ones."""
    theta = all_log_parameters(kernels)
    if len(theta) == 0 or not np.isfinite(theta).all():
        return None
    return with_all_log_parameters(kernels, _natural_parameters(_learned_leaves(kernels), X, weights))


def _learned_leaves(kernels: list[Kernel]) -> list[Kernel]:
    leaves = (leaf for kernel in kernels for leaf in kernel._leaves())
    return [leaf for leaf in leaves if len(leaf._log_parameters()) > 0]


def _natural_parameters(
    leaves: list[Kernel], X: FloatArray, weights: FloatArray | None, *, robust: bool = True
) -> FloatArray:
    """Return natural log parameters for the data, with the given proportions of kernels of the same kind."""
    means = [float(leaf._log_parameters().mean()) for leaf in leaves]
    suggested = []
    for leaf, mean in zip(leaves, means, strict=True):
        # Kernels with equal starts would stay equal.
        alike = [other for part, other in zip(leaves, means, strict=True) if part._kind() == leaf._kind()]
        suggested.append(leaf._natural(X, weights, robust=robust) + mean - np.mean(alike))
    return np.concatenate(suggested)


#: Kernels, and a vector that maximises the evidence of a Gaussian process with them.
_Proposal: TypeAlias = tuple[list[Kernel], FloatArray]

#: Rows to fit and rows to predict.
_Split: TypeAlias = tuple[LearningData, LearningData]


@dataclass
class _Candidate:
    """Kernels, and the log densities of the rows held out, -inf if a fit was abandoned.

    ``log_evidence``: of the fits to the other rows, on average, by the sum of their weights.
    """

    kernels: list[Kernel]
    densities: FloatArray
    log_evidence: float
    #: Of a process of classes, if it does not fail.
    choice: Choice | None = None

    @property
    def score(self) -> float:
        return float(self.densities.mean())

    @property
    def log_variance(self) -> float | None:
        return None if self.choice is None else self.choice.best.log_variance

    def joined(self, other: _Candidate) -> _Candidate:
        """Return the same with the densities of other rows too."""
        return replace(self, densities=np.concatenate([self.densities, other.densities]))


@dataclass(frozen=True)
class _Learner:
    kernels: list[Kernel]
    data: LearningData
    settings: Settings
    pool: ThreadPoolExecutor
    #: To be called often: it raises if the result is no longer needed.
    pulse: Callable[[], None]
    has_linear_terms: bool = False

    def of_classes(self) -> list[Learned]:
        """Return the kernels that predict classes of rows left out, the best first.

        Starts are equal lengths, in standard deviations or in the units of inputs that may have the same
        unit, the given ones, and the proposal. Values far from the others may be wrong or a class of their
        own, so lengths in standard deviations of all rows and of most of them are tried. If final weights are
        smooth the best gets the best factor of all lengths. Each length of the proposal has to pay its cost,
        as labels say little about lengths.
        """
        starts = [self._natural]
        plain = _natural_parameters(self._leaves, self.data.X, self.data.weights, robust=False)
        for theta in (self._of_one_unit(), all_log_parameters(self.kernels), plain):
            if not any(np.allclose(theta, other) for other in starts):
                starts.append(theta)
        found = [self._of_process(with_all_log_parameters(self.kernels, theta)) for theta in starts]
        gains = [one.score for one in found]
        cost = self._cost_of_lengths(self._process_rows.n_observations)
        # A log probability is at most 0, so a proposal cannot gain more than the best start lacks.
        if -cost > max(gains):
            proposal = self._theta(self.proposals()[0])
            found.append(self._of_process(with_all_log_parameters(self.kernels, proposal)))
            gains.append(found[-1].score - cost)
        ranked = [found[i] for i in np.argsort(gains)[::-1]]
        best = ranked[0]
        if not self.data.is_smooth:
            return self.finish(self._walk(self._predict(best.kernels), _SHORTER_OF_CLASSES))
        if best.choice is not None:
            ranked[0] = self._chosen(best.kernels, best.choice.with_best_lengths)
        ranked[:0] = self._without_irrelevant(ranked[0], self._of_process)
        return [Learned(one.kernels, log_variance=one.log_variance) for one in ranked]

    def propose_and_compare(self) -> tuple[list[_Candidate], FloatArray]:
        """Return the kernels that predict rows left out, the best first, and the maximum of the evidence.

        These are variants of the maxima, and where they fail or overfit, of kernels with equal lengths.
        """
        proposals, given = self.proposals(), all_log_parameters(self.kernels)
        start = [] if np.allclose(given, self._natural) else [self._candidate(given)]
        proposal, *others = (self._candidate(self._theta(x)) for x in proposals)
        ranked = self._walk(proposal, _SHORTER)
        for other in others:
            if _exceeds(other, ranked[0], _STANDARD_ERRORS):
                ranked = self._walk(other, _SHORTER)
        ranked = _ranked([*ranked, *start])
        n_rows, fails = len(self.data.X), not np.isfinite(ranked[0].score)
        few_rows, few_counts = n_rows <= _FEW_ROWS and self._has_lengths, self.data.few_counts is not None
        if not (few_rows or few_counts or fails):
            return ranked, proposals[0]
        equal = self._walk(self._candidate(self._natural), _SHORTER)
        costs = few_rows and not ranked[0].score - self._cost_of_lengths(n_rows) > equal[0].score
        # Narrow kernels predict few counts nearly as well as any, and overfit all rows.
        overfits = few_counts and not _exceeds(ranked[0], equal[0], 1.0)
        return equal if fails or costs or overfits else ranked, proposals[0]

    def finish(self, ranked: list[_Candidate], proposal: FloatArray | None = None) -> list[Learned]:
        """Return the kernels of these candidates, the best first, without inputs that hardly matter.

        ``proposal``: the maximum of the evidence of the process, if there is one.
        """
        ranked[:0] = self._without_irrelevant(ranked[0], self._predict)
        least = ranked[0].score - _MAX_DENSITY_LOSS
        is_scaled = self.data.likelihood == "gaussian"
        weight = self.data.weights.sum() / (self.data.unit if is_scaled else 1.0)
        learned = [
            Learned(one.kernels, weight * (one.log_evidence - _MAX_DENSITY_LOSS), self.has_linear_terms)
            for one in ranked
            if one.score >= least
        ]
        if proposal is None or not self.data.is_smooth:
            return learned
        processes = [(self.kernels, proposal), *self._rougher(proposal)]
        prefers, (kernels, x) = self._prefers_process(processes, ranked[0]), processes[-1]
        # Counted as evidence, copies may let the noise of its final weights vanish.
        role: ProcessRole = "reserve" if not prefers else "prior" if self.data.unit == 1.0 else "rival"
        if prefers and self._variances(x, kernels).max() > np.log(max_variance(kernels)):
            role, x = "rival", self._with_moderate_variance(kernels, x)

        def proposed(one: Learned) -> list[Kernel]:
            # Without the inputs that these kernels do not have.
            theta = all_log_parameters(one.kernels)
            return with_all_log_parameters(kernels, np.where(np.isfinite(theta), self._theta(x), theta))

        return [replace(one, of_process=proposed(one), role=role) for one in learned]

    def without_kernel(self, best: _Candidate, plain: _Learner) -> list[Learned]:
        """Return a kernel in which no input counts, if rows left out are predicted no better by the best one.

        ``plain``: without linear terms. Gains are bounded, as few rows far from the others may lose thousands
        of nats by a kernel that predicts all others well.
        """
        (kernel, *others) = self.kernels
        if others or not isinstance(kernel, Radial):
            return []
        constant = [_with_widths(kernel, np.full(self.data.X.shape[1], np.inf))]

        def exceeds(n_errors: float) -> bool:
            gains = np.clip(best.densities - none.densities, -_MAX_GAIN, _MAX_GAIN)
            return exceed(gains, np.zeros(len(gains)), n_errors)

        none = plain._predict(constant)
        if self._other_folds and not exceeds(_STANDARD_ERRORS):
            best = best.joined(self._predict(best.kernels, self._other_folds))
            none = none.joined(plain._predict(constant, plain._other_folds))
        return [] if exceeds(_KERNEL_ERRORS) else [Learned(constant)]

    def _with_moderate_variance(self, kernels: list[Kernel], x: FloatArray) -> FloatArray:
        """Return where the evidence is largest with v at its bound, from a maximum with a larger one.

        v falls in steps: far from a maximum L-BFGS may lose an input. Lengths above the natural ones follow
        it like those of a product of two inputs, which has the variance v / length^4.
        """
        evidence, n = self._evidence(kernels, self._stages[0][0]), len(self._natural)
        end = np.log(max_variance(kernels))
        while (excess := float(self._variances(x, kernels).max() - end)) > 0.0:
            most = end + max(excess - _VARIANCE_STEP, 0.0)
            theta = x[:n] - 0.25 * (end + excess - most) * self._powers
            theta = np.maximum(theta, np.minimum(x[:n], self._natural))
            x = np.concatenate([np.where(self._powers > 0.0, theta, x[:n]), x[n:]])
            (x,) = evidence.maximise(self.data.X, x, _STEP_ITERATIONS, np.exp(most))
            if most == end:
                break
        return x

    def _variances(self, x: FloatArray, kernels: list[Kernel]) -> FloatArray:
        """Return ln v of each kernel."""
        n = len(self._natural)
        return x[n : n + len(kernels)]

    def _rougher(self, proposal: FloatArray) -> list[_Proposal]:
        """Return the rougher process that has most evidence; none if the proposal has more."""
        found: list[_Proposal] = []
        if not self.data.learns_smoothness:
            return found
        n_rows, x = self._stages[0][0], proposal
        most = self._evidence(self.kernels, n_rows)(x, slope=False)
        for family in _ROUGHER:
            kernels: list[Kernel] = [
                family(**kernel.get_params(deep=False)) for kernel in self._natural_kernels
            ]
            evidence = self._evidence(kernels, n_rows)
            (x,) = evidence.maximise(self.data.X, x, _ROUGHER_ITERATIONS)
            value = evidence(x, slope=False)
            is_moderate = self._variances(x, kernels)[0] <= np.log(max_variance(kernels))
            if value is None or most is None or not (value[0] > most[0] and is_moderate):
                break
            found, most = [(kernels, x)], value
        return found

    def _of_proposal(self, kernels: list[Kernel], proposal: FloatArray, folds: list[_Split]) -> _Candidate:
        """Return how well the Gaussian process predicts each fold, from the other rows.

        Each of its lengths has to pay its cost, as they were learned from these rows too.
        """
        (target,), (std,) = self.data.centred()
        mean = self.data.targets[0][0] - target[0]

        def density(kept: LearningData, out: LearningData) -> FloatArray:
            kept = kept.at(draw(len(kept.X), _MAX_PROCESS_ROWS), np.arange(0))
            noise = None if kept.noise_variance is None else kept.noise_variance / std**2
            Y = (kept.targets[0] - mean)[:, np.newaxis] / std
            process = CovarianceEvidence(kernels, kept.X, kept.fixed, Y, kept.weights, noise, self.pulse)
            found = process.predict(proposal, out.X, out.fixed)
            if found is None:
                return np.full(len(out.X), -np.inf)
            moments = mean + std * found[0], std**2 * found[1], std**2 * found[2]
            return out.log_density(out.targets[0], *moments)

        calls = [begin(self.pool, density, *fold) for fold in folds]
        densities = np.concatenate([call.result() for call in calls])
        return _Candidate([], densities - self._cost_of_lengths(len(self.data.X)), 0.0)

    def _prefers_process(self, processes: list[_Proposal], best: _Candidate) -> bool:
        """Tell whether one of these processes predicts rows left out better than the best trial fits.

        The other folds are predicted two at a time until the answer is clear.
        """
        pairs = [self._other_folds[i : i + 2] for i in range(0, len(self._other_folds), 2)]

        @cache
        def sparse(n_pairs: int) -> _Candidate:
            if n_pairs == 0:
                return best
            return sparse(n_pairs - 1).joined(self._predict(best.kernels, pairs[n_pairs - 1]))

        n_distinct = len(first_of_equal(np.column_stack([self.data.X, *self.data.targets])))
        least = _PROCESS_ERRORS_OF_FEW if n_distinct <= _FEW_ROWS else _PROCESS_ERRORS
        least *= np.sqrt(len(self.data.X) / n_distinct)  # copies are no evidence
        for one in processes if n_distinct >= _LEAST_PROCESS_ROWS else ():
            process = self._of_proposal(*one, self._folds)
            for n_pairs in range(len(pairs) + 1):
                if n_pairs > 0:
                    process = process.joined(self._of_proposal(*one, pairs[n_pairs - 1]))
                if _exceeds(process, sparse(n_pairs), least):
                    return True
                if _exceeds(sparse(n_pairs), process, _FUTILE_ERRORS):
                    break
        return False

    def _of_process(self, kernels: list[Kernel]) -> _Candidate:
        """Return how well a Gaussian process predicts."""
        basis = self.data.basis(kernels)
        process = Process(
            basis, beside(basis), self._process_rows, LANDMARKS, self.settings, self.pool, self.pulse
        )
        return self._chosen(kernels, process.choose)

    def _chosen(self, kernels: list[Kernel], choose: Callable[[], Choice]) -> _Candidate:
        """Return what a process chooses; one that fails predicts nothing."""
        try:
            with np.errstate(all="ignore"):
                found = choose()
        except LinAlgError:
            return _Candidate(kernels, np.full(len(self.data.X), -np.inf), -np.inf)
        return _Candidate(found.functions.basis.kernels, found.best.densities, -np.inf, found)

    def _walk(self, given: _Candidate, shorter: tuple[float, ...]) -> list[_Candidate]:
        """Return candidates with all lengths multiplied by factors, the best first.

        One direction ends when predictions get worse; longer ones follow if the given lengths are the best.
        """
        theta, ranked = all_log_parameters(given.kernels), [given]
        for factors in (shorter, _LONGER) if self._powers.any() else ():
            last = given
            for factor in factors:
                last = self._candidate(theta + np.log(factor) * self._powers)
                ranked = _ranked([*ranked, last])
                if _exceeds(ranked[0], last, _STANDARD_ERRORS):
                    break
            # Rough kernels with long lengths predict well as processes, and badly with few functions.
            while factors[-1] < 1.0 and ranked[0] is last and len(ranked) < _MAX_WALK:
                theta = theta + np.log(factors[-1]) * self._powers
                last = self._candidate(theta + np.log(factors[-1]) * self._powers)
                ranked = _ranked([*ranked, last])
            if ranked[0] is not given:
                break
        return ranked

    def _without_irrelevant(
        self, best: _Candidate, predict: Callable[[list[Kernel]], _Candidate]
    ) -> list[_Candidate]:
        """Return the kernel with infinite widths of inputs that hardly change it, if it predicts as well."""
        (kernel, *others), data = best.kernels, self.data
        if others or not isinstance(kernel, Radial) or not isinstance(kernel.width, tuple):
            return []
        widths = np.array(kernel.width)
        # The mean of (x_d - z_d)^2 / width_d^2 over two rows.
        irrelevant = 2.0 * (column_stds(data.X, data.weights) / widths) ** 2 <= _MAX_IRRELEVANT
        if not irrelevant.any() or irrelevant.all():
            return []
        widths[irrelevant] = np.inf
        found = predict([_with_widths(kernel, widths)])
        return [found] if found.score > best.score - irrelevant.sum() / len(found.densities) else []

    def _candidate(self, theta: FloatArray) -> _Candidate:
        return self._predict(with_all_log_parameters(self.kernels, theta))

    @cached_property
    def _folds(self) -> list[_Split]:
        # One fold of few rows has too few to compare kernels by.
        return self._splits(0, int(np.clip(_FOLD_ROWS // len(self.data.X), 1, _FOLDS)))

    @cached_property
    def _other_folds(self) -> list[_Split]:
        return self._splits(len(self._folds), _FOLDS)

    @cached_property
    def _process_rows(self) -> ProcessRows:
        data = self.data
        columns = data.fixed[:, data.n_before :]
        return ProcessRows.of(data.X, np.column_stack(data.targets), data.weights, columns)

    @cached_property
    def _powers(self) -> FloatArray:
        """The power of a factor of all lengths that each log parameter gets."""
        return np.concatenate([kernel._length_powers() for kernel in self.kernels])

    @cached_property
    def _leaves(self) -> list[Kernel]:
        return _learned_leaves(self.kernels)

    @property
    def _has_lengths(self) -> bool:
        return any(len(leaf._log_parameters()) > 1 for leaf in self._leaves)

    def _cost_of_lengths(self, n_rows: float) -> float:
        """Return the log density per row that lengths have to gain, (ln N) / 2 each (Schwarz 1978)."""
        return float(0.5 * (len(self._natural) - 1) * np.log(n_rows) / n_rows)

    def _theta(self, x: FloatArray) -> FloatArray:
        """Return the log parameters of the kernels in the vector that the evidence depends on."""
        return x[: len(self._natural)]

    @cached_property
    def _natural(self) -> FloatArray:
        return _natural_parameters(self._leaves, self.data.X, self.data.weights)

    @cached_property
    def _natural_kernels(self) -> list[Kernel]:
        return with_all_log_parameters(self.kernels, self._natural)

    def _of_one_unit(self) -> FloatArray:
        """Return the natural parameters with the root mean square of the lengths for each of a kernel."""
        theta, at = self._natural.copy(), 0
        for leaf in self._leaves:
            lengths = at + np.flatnonzero(leaf._length_powers() > 0.0)
            at += len(leaf._log_parameters())
            if len(lengths) > 0:
                theta[lengths] = 0.5 * np.log(np.mean(np.exp(2.0 * theta[lengths])))
        return theta

    def proposals(self) -> list[FloatArray]:
        """Return vectors that maximise the evidence of a Gaussian process.

        If short lengths were tried with success, those before the trials follow.
        """
        x: FloatArray | None = None
        others: list[FloatArray] = []
        for n_rows, iterations in self._stages:
            evidence = self._evidence(self._natural_kernels, n_rows)
            x, *more = evidence.maximise(self.data.X, x, iterations)
            others += more
            if n_rows >= len(self.data.X):
                break
        assert x is not None
        return [x, *others]

    def _evidence(self, kernels: list[Kernel], n_rows: int) -> CovarianceEvidence:
        """Return the evidence of a Gaussian process of so many rows."""
        data, rows = self.data, self._draw(n_rows)
        Y, std = data.standardised()
        # Several outputs share one noise level here, in units of their variances.
        given = data.noise_variance if Y.shape[1] == 1 else None
        noise = None if given is None else given / std**2
        X, fixed, weights = data.X[rows], data.fixed[rows], data.weights[rows]
        if data.likelihood != "gaussian":
            weights = data.unit * weights
        return CovarianceEvidence(kernels, X, fixed, Y[rows], weights, noise, self.pulse)

    @property
    def _stages(self) -> tuple[tuple[int, int], ...]:
        """Numbers of rows and of iterations of the Gaussian process."""
        if self.data.likelihood != "gaussian":
            return _PROCESS_OF_CLASSES
        stages = _LINEAR_PROCESS if self.has_linear_terms else _PROCESS
        n_rows = len(self.data.X)
        if n_rows <= _FOLD_ROWS:
            return stages
        one_in_five = n_rows // _ROWS_PER_DRAWN_ROW
        least, most = _PROCESS_ROWS
        most = max(least, min(most, isqrt(self.data.memory_limit // _PROCESS_BYTES)))
        first, last = np.clip([one_in_five, n_rows - one_in_five], least, most)
        return (int(first), stages[0][1]), (int(last), _LAST_ITERATIONS)

    @cached_property
    def _labels(self) -> NDArray[Any] | None:
        """Numbers of the classes; None for numeric targets."""
        if self.data.likelihood == "gaussian":
            return None
        labels: NDArray[Any] = np.column_stack(self.data.targets) @ np.arange(1, len(self.data.targets) + 1)
        return labels

    def _draw(self, most: int) -> IntArray:
        """Draw at most ``most`` rows; a class gets half of an equal share of them, if it has so many rows.

        More rows of a rare class change the log odds by a constant (Prentice & Pyke 1979), which does not
        matter to the kernel. Without them, a sample may have no row of the class.
        """
        if self._labels is None:
            return draw(len(self.data.X), most)
        order = np.random.default_rng(0).permutation(len(self.data.X))
        classes, labels = np.unique(self._labels), self._labels[order]
        least = most // (2 * len(classes))
        first = np.concatenate([np.flatnonzero(labels == label)[:least] for label in classes])
        others = np.setdiff1d(np.arange(len(order)), first)
        return np.sort(order[np.concatenate([first, others])[:most]])

    def _splits(self, begin: int, end: int) -> list[_Split]:
        """Return the rows without each of these folds and that fold, to be predicted."""
        most, most_centres = _FOLD_ROWS, _TRIAL_CENTRES
        if len(self.data.X) > _FOLD_ROWS:
            most = int(np.clip(len(self.data.X) // _ROWS_PER_DRAWN_ROW, *_TRIAL_ROWS))
            most_centres = _CENTRES_OF_MANY
        rows = self._draw(most)
        return [self._split(rows, fold, most_centres) for fold in self._divided(rows)[begin:end]]

    def _divided(self, rows: IntArray) -> list[IntArray]:
        """Divide rows into folds, each class evenly; rows with equal inputs stay together."""
        _, first, copies = np.unique(self.data.X[rows], axis=0, return_index=True, return_inverse=True)
        order = np.random.default_rng(0).permutation(len(first))
        if self._labels is not None:
            order = order[np.argsort(self._labels[rows[first]][order], kind="stable")]
        fold_of = np.empty(len(first), np.intp)
        fold_of[order] = np.arange(len(first)) % _FOLDS
        folds = [rows[fold_of[copies.reshape(-1)] == fold] for fold in range(_FOLDS)]
        return [fold for fold in folds if len(fold) > 0]

    def _split(self, rows: IntArray, held_out: IntArray, most_centres: int) -> _Split:
        data, kept = self.data, np.setdiff1d(rows, held_out)
        centres = np.arange(len(data.centres))
        if data.centre_rows is not None:
            centres = centres[~np.isin(data.centre_rows, held_out)]
        centres = centres[draw(len(centres), most_centres)]
        return data.at(kept, centres), data.at(held_out, centres)

    def _predict(self, kernels: list[Kernel], folds: list[_Split] | None = None) -> _Candidate:
        """Fit these kernels without each fold, of `_folds` or others, and predict it."""
        folds = self._folds if folds is None else folds
        fitted = self._fit(kernels, [data for data, _ in folds])
        if fitted is None:
            return _Candidate(kernels, np.full(sum(len(out.X) for _, out in folds), -np.inf), -np.inf)
        densities = [
            _log_density(kernels, out, posteriors) for (_, out), posteriors in zip(folds, fitted, strict=True)
        ]
        evidences = [
            sum(one.log_evidence for one in posteriors) / data.weights.sum()
            for (data, _), posteriors in zip(folds, fitted, strict=True)
        ]
        return _Candidate(kernels, np.concatenate(densities), float(np.mean(evidences)))

    def _fit(self, kernels: list[Kernel], parts: list[LearningData]) -> list[list[_core.Posterior]] | None:
        """Fit each output of some data sequentially, in parallel; None if a fit is abandoned or fails."""
        settings = replace(self.settings, scheme="sequential", search="greedy", max_iter=_MAX_STEPS)
        n_fits, abandoned = sum(len(data.targets) for data in parts), threading.Event()
        if n_fits > 1:
            settings = replace(settings, n_threads=1)

        def fit(design: Design, data: LearningData, target: FloatArray) -> _core.Posterior | None:
            def is_abandoned(*step: Any) -> bool:
                self.pulse()
                return bool(step[5] > _MAX_ACTIVE_FRACTION * len(data.X)) or abandoned.is_set()

            if data.few_counts is None:
                bound = design.bind(target, data.weights, data.likelihood, settings)
            else:
                bound = data.few_counts.bind(design, settings)
            try:
                posterior: _core.Posterior | None = bound(callback=is_abandoned)
            except _core.NumericalError:
                posterior = None
            if posterior is None or posterior.status == "stopped":
                abandoned.set()
                return None
            return posterior

        fits = []
        try:
            for data in parts:
                design = data.basis(kernels).design(data.X, settings.n_threads)
                fits.append([begin(self.pool, fit, design, data, target) for target in data.targets])
            found: Any = [[one.result() for one in outputs] for outputs in fits]
        except BaseException:
            abandoned.set()
            raise
        # The event decides alone: which fits it ended depends on the clock.
        return None if abandoned.is_set() else found


def _with_widths(kernel: Radial, widths: FloatArray) -> Kernel:
    return type(kernel)(**kernel.get_params(deep=False) | {"width": widths.tolist()})


def _ranked(found: list[_Candidate]) -> list[_Candidate]:
    return sorted(found, key=lambda one: one.score, reverse=True)


def _exceeds(one: _Candidate, other: _Candidate, n_errors: float) -> bool:
    """Tell whether a candidate predicts better than another by several standard errors."""
    if not np.isfinite([one.score, other.score]).all():
        return one.score > other.score
    return exceed(one.densities, other.densities, n_errors)


def _log_density(kernels: list[Kernel], data: LearningData, posteriors: list[_core.Posterior]) -> FloatArray:
    """Return the log predictive density of each row, times its weight."""
    moments = []
    for posterior in posteriors:
        Phi = _functions(kernels, data, posterior.active)
        variance = np.maximum(np.sum((Phi @ posterior.sigma) * Phi, axis=1), 0.0)
        moments.append((Phi @ posterior.mu, variance))
    if data.few_counts is not None:
        return data.few_counts.log_density(*moments[0])
    if data.likelihood == "gaussian":
        log_p = np.zeros(len(data.X))
        for (mean, variance), target, posterior in zip(moments, data.targets, posteriors, strict=True):
            log_p += data.log_density(target, mean, variance, 1.0 / posterior.beta)
        return log_p
    logits = np.column_stack([moderated_logits(mean, variance) for mean, variance in moments])
    # With two classes the one column is the logit of the second.
    classes = class_numbers(np.column_stack(data.targets))
    return np.asarray(data.weights * log_normalised(logits)[np.arange(len(classes)), classes])


def _functions(kernels: list[Kernel], data: LearningData, active: NDArray[np.int64]) -> FloatArray:
    """Return the values of these columns of the dictionary at the rows."""
    borders = data.n_before + len(data.centres) * np.arange(len(kernels) + 1)
    first, *inner, last = np.split(active, np.searchsorted(active, borders))
    own = [
        evaluate(kernel, data.X, data.centres[part - border], 1)
        for kernel, part, border in zip(kernels, inner, borders[:-1], strict=True)
    ]
    after = last - len(kernels) * len(data.centres)
    return np.hstack([data.fixed[:, first], *own, data.fixed[:, after]])
