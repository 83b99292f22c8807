"""Centres that are not rows: ``generate=True``.

A fit about the rows comes first. From its model centres, precisions and noise climb the evidence together,
functions come in where they gain most, and with a search pairs are merged and single ones split (`_moves`).
Then the sequential scheme goes on from there over the rows and the new centres, and ends where any fit ends;
and so on while that gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ._arguments import check_flag, learning_argument
from ._background import one_blas_thread
from ._core import NumericalError
from ._design import Start
from ._kernel_centres import is_smooth
from ._learning import LearningData
from ._moves import WORTH, Found, Mover, combined
from ._placed import Place, Placed
from ._resolve import is_precomputed
from ._sorted import sort
from ._types import FloatArray, IntArray, Search, Settings
from .kernels import Kernel

if TYPE_CHECKING:
    from . import _core

#: Fits the model of these centres to one of the targets, from a model to set out from if there is one.
Fit = Callable[[FloatArray, int, "Start | None"], "_core.Posterior"]

#: Rounds of moves and a fit, and moves of one round.
_ROUNDS: Final = 6
_MOST_MOVES: Final = 40
#: Moves that are tried before a pass is over.
_TRIALS: Final[dict[Search, int]] = {"greedy": 2, "exchange": 8}


def check_generate(estimator: Any) -> bool:
    """Return ``generate``; ValueError if the other arguments leave no centres to move."""
    if not check_flag("generate", estimator.generate):
        return False
    remedies = {
        "scheme='sequential'": str(estimator.scheme) == "sequential",
        "given kernel parameters (optimize_kernel=False, gamma a number, 'scale' or 'auto'; learn the kernel "
        "first, and give its kernel_)": not learning_argument(estimator),
        "multi_class='ovr'": str(getattr(estimator, "multi_class", "ovr")) != "softmax",
        "a kernel that is not precomputed": not is_precomputed(estimator.kernel),
    }
    missing = [remedy for remedy, given in remedies.items() if not given]
    if missing:
        raise ValueError(f"generate=True needs {' and '.join(missing)}; or set generate=False")
    return True


def check_model(targets: list[FloatArray], settings: Settings) -> None:
    """Raise ValueError for a model whose evidence has no gradient here."""
    if any(target.ndim == 2 for target in targets):
        raise ValueError(
            "generate must be False where y has several columns; give each of them an estimator of its own"
        )
    if (settings.alpha_prior, settings.noise_prior) != ((0.0, 0.0), (0.0, 0.0)):
        raise ValueError("generate=True needs alpha_prior and noise_prior to be (0, 0)")


def check_kernels(kernels: list[Kernel]) -> None:
    """Raise ValueError if a kernel has no gradient in its centres."""
    rough = [kernel for kernel in kernels if not is_smooth(kernel)]
    if rough:
        raise ValueError(
            "generate=True needs kernels with a gradient in their centres: Gaussian, Polynomial, Sigmoid, "
            f"LinearSpline, Linear, their sums and products; got {', '.join(map(repr, rough))}. Set "
            "generate=False, or choose one of these"
        )


def generate(
    kernels: list[Kernel], data: LearningData, search: Search, fit: Fit
) -> tuple[FloatArray, list[_core.Posterior]]:
    """Return centres, those of ``data`` first and then others, and the posteriors over these.

    With a Gaussian likelihood no evidence is below that of the fit about the centres given. If the user stops
    a fit, that fit's model is the last.
    """
    with one_blas_thread():
        ends = [_Generator(kernels, data, number, search, fit).run() for number in range(len(data.targets))]
    if len(ends) == 1:
        return ends[0].centres, [ends[0].posterior]
    # Each target has its own centres, and all have one dictionary in the end.
    units = _Units(kernels, data)
    models = [units.model(end) for end in ends]
    centres, places = _gathered(data.centres, np.vstack([model.centres for model in models]))
    places_of = np.split(places, np.cumsum([len(model.centres) for model in models])[:-1])
    posteriors = [
        fit(centres, number, units.start(model, at, len(centres)))
        for number, (model, at) in enumerate(zip(models, places_of, strict=True))
    ]
    return centres, posteriors


@dataclass(frozen=True)
class _End:
    """Where a fit has ended: over which centres, and with which posterior."""

    centres: FloatArray
    posterior: _core.Posterior


@dataclass(frozen=True)
class _Units:
    """How the core counts functions, and its units; models are in those of the spread of the targets."""

    kernels: list[Kernel]
    data: LearningData

    @cached_property
    def log_scale(self) -> float:
        """Of the spread of the targets; not finite where there is none."""
        with np.errstate(divide="ignore"):
            return float(np.log(self.data.scale()))

    def model(self, end: _End) -> Placed:
        """Return a fit's model, its functions where they stand."""
        n_fixed, n_centres = self.data.fixed.shape[1], len(end.centres)
        found = sort(end.posterior, self.data.n_before, len(self.kernels) * n_centres, n_fixed)
        inside = found.active >= n_fixed
        block, centre = np.divmod(found.active[inside] - n_fixed, n_centres)
        return Placed(
            found.active[~inside],
            block,
            end.centres[centre],
            np.log(found.alpha) + 2.0 * self.log_scale,
            float(np.log(found.beta) + 2.0 * self.log_scale) if self.data.likelihood == "gaussian" else 0.0,
        )

    def evidence(self, end: _End) -> float:
        """Return the log evidence of a fit: the density of t / c is c^N times that of t."""
        return float(end.posterior.log_evidence + self.data.weights.sum() * self.log_scale)

    def start(self, model: Placed, places: IntArray, n_centres: int) -> Start:
        """Return a model as the core takes it, its centres being at these places of the dictionary."""
        after = model.fixed >= self.data.n_before
        fixed = model.fixed + np.where(after, len(self.kernels) * n_centres, 0)
        functions = self.data.n_before + model.kernel * n_centres + places
        log_alpha = model.log_alpha - 2.0 * self.log_scale
        names, alpha = combined(np.append(fixed, functions), np.exp(log_alpha))
        return names.tolist(), alpha.tolist(), float(np.exp(model.log_beta - 2.0 * self.log_scale))


@dataclass(frozen=True)
class _Generator:
    """One target's centres."""

    kernels: list[Kernel]
    data: LearningData
    number: int
    search: Search
    fit: Fit

    def run(self) -> _End:
        """Alternate moves and fits until these gain no more."""
        data, units = self.data, _Units(self.kernels, self.data)
        best = _End(data.centres, self.fit(data.centres, self.number, None))
        if not np.ptp(data.targets[self.number]) > 0.0 or not np.isfinite(units.log_scale):
            return best
        scaled = data.in_units_of(float(np.exp(units.log_scale)))
        mover = Mover.about(Place(self.kernels, scaled, scaled.targets[self.number]), _TRIALS[self.search])
        for _ in range(_ROUNDS):
            if best.posterior.status == "stopped":
                break
            found = self.moved(mover, units.model(best), units.evidence(best))
            if found is None:
                break
            following = self.settled(found.model, units)
            if following is None:
                break
            if following.posterior.status == "stopped":
                return following
            if units.evidence(following) <= units.evidence(best) + WORTH:
                break
            best = following
        return best

    def moved(self, mover: Mover, model: Placed, evidence: float) -> Found | None:
        """Return where ascents and moves lead from a model; None where that is no higher."""
        found = mover.ascend(model)
        if found is None:
            return None
        for _ in range(_MOST_MOVES):
            better = mover.add(found, self.data.centres)
            if better is None and self.search != "greedy":
                better = mover.merge(found) or mover.split(found)
            if better is None:
                break
            found = better
        found = mover.ascend(found.model) or found
        return found if found.value > evidence + WORTH else None

    def settled(self, model: Placed, units: _Units) -> _End | None:
        """Return the fit that goes on from a model; None where rounding does not let it."""
        centres, places = _gathered(self.data.centres, model.centres)
        try:
            return _End(centres, self.fit(centres, self.number, units.start(model, places, len(centres))))
        except NumericalError:
            return None


def _gathered(base: FloatArray, others: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return all centres once, those of ``base`` first, and where each of the others is among them."""
    # Minus zero is zero.
    stack = np.vstack([base, others]) + 0.0
    _, first, inverse = np.unique(stack, axis=0, return_index=True, return_inverse=True)
    first_of = first[inverse.ravel()]
    kept = np.unique(np.append(np.arange(len(base)), first_of))
    return stack[kept], np.searchsorted(kept, first_of[len(base) :])
