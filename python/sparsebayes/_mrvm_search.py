"""What mRVM1 tries beyond the model that E- and M-steps come to: exchanges of functions, and restarts.

A move is proposed by what it gains in the evidence of the targets as they are, tried by a climb of the
variational bound, and stands if the bound, once everything has settled, is higher by more than rounding.
Otherwise the model goes back to where it was, so that no search ends lower than it began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from . import _core
from ._types import FloatArray, IntArray

if TYPE_CHECKING:
    from ._mrvm import Constructive

#: Nats by which a bound has to be higher to count.
_LEAST: Final = 1e-3
#: Moves tried in all, but for those that gain with the targets as they are, and from one model.
_TRIALS: Final = {"exchange": 150, "thorough": 1000}
_TRIALS_AT_ONE: Final = {"exchange": 20, "thorough": 100}
#: Restarts of a thorough search, moves tried after each, and the part of the functions that it goes without.
_RESTARTS: Final = 16
_TRIALS_AFTER: Final = 60
#: A restart that settles this many nats lower is not worth them.
_HOPELESS: Final = 5.0
_GONE: Final = 1.0 / 3.0
#: A climb from a start ends where a step gains less than this, and its first trust region has this radius.
_START_GAIN, _START_RADIUS = 1.0, 3.0


def go_on(machine: Constructive) -> None:
    """Look for a model with a higher bound; ``machine`` is then at it, or as it was."""
    task = machine.task
    machine.min_iter, machine.searching = 0, True
    _exchange(machine, _TRIALS[task.search])
    if task.search == "thorough":
        rng = np.random.default_rng(task.seed)
        for _ in range(_RESTARTS):
            if not _may_go_on(machine):
                return
            _restart_without_some(machine, rng)


@dataclass(frozen=True)
class _Place:
    """A model that has settled, to go back to."""

    columns: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray | None
    kernel_weights: FloatArray
    status: str
    targets: FloatArray
    evidence: float
    n_bounds: int
    bound: float

    @classmethod
    def of(cls, machine: Constructive) -> _Place:
        out = machine.out
        return cls(
            columns=out.columns,
            alpha=out.alpha,
            mu=out.mu,
            sigma=out.sigma,
            kernel_weights=out.kernel_weights,
            status=out.status,
            targets=machine.targets,
            evidence=out.path[-1],
            n_bounds=len(out.bounds),
            bound=out.bounds[-1],
        )


def _may_go_on(machine: Constructive) -> bool:
    return machine.out.is_settled and len(machine.out.columns) > 0


def _exchange(machine: Constructive, trials: int) -> None:
    """Make moves that raise the bound, one after the other."""
    task, at_one = machine.task, _TRIALS_AT_ONE[machine.task.search]
    while _may_go_on(machine):
        before = _Place.of(machine)
        try:
            targets, tried = machine.fit.improve(
                machine.targets, task.labels, trials=min(trials, at_one), n_nodes=task.n_quadrature
            )
        except _core.NumericalError:
            return  # rounding rules here: the model is as it was
        trials = max(trials - tried, 0)
        if targets is None:
            return
        machine.targets = targets
        _settle(machine)
        _keep_better(machine, before)


def _restart_without_some(machine: Constructive, rng: np.random.Generator) -> None:
    """Settle anew from the model without a part of its functions; keep what that comes to if it is better."""
    before, out, task = _Place.of(machine), machine.out, machine.task
    stays = rng.uniform(size=len(out.columns)) >= _GONE
    if stays.all() or not stays.any():
        return
    out.columns, out.alpha = out.columns[stays], out.alpha[stays]
    machine.restart()
    try:
        # The targets were made for the functions that are gone, and would have them back.
        machine.targets = machine.fit.climb(
            task.labels, gain=_START_GAIN, radius=_START_RADIUS, n_nodes=task.n_quadrature
        )
    except _core.NumericalError:
        _go_back(machine, before)
        return
    _settle(machine)
    if out.bounds[-1] > before.bound - _HOPELESS:
        _exchange(machine, _TRIALS_AFTER)
    _keep_better(machine, before)


def _settle(machine: Constructive) -> None:
    """Settle a model that has been changed."""
    machine.fine = machine.climbed = False
    if not _tell(machine, machine.fit.log_evidence()):
        machine.settle()


def _keep_better(machine: Constructive, before: _Place) -> None:
    """Go back to where a model was unless its bound is higher now."""
    out = machine.out
    higher = len(out.bounds) > before.n_bounds and out.bounds[-1] > before.bound + _LEAST
    # A model without functions is where a search has lost its way.
    if not higher or out.status == "stalled" or len(out.columns) == 0:
        _go_back(machine, before)
    else:
        since = out.bounds[before.n_bounds :]
        out.bounds[before.n_bounds :] = [bound for bound in since if bound > before.bound]


def _go_back(machine: Constructive, before: _Place) -> None:
    """Take up a model again."""
    out, status = machine.out, machine.out.status
    out.columns, out.alpha, out.mu, out.sigma = before.columns, before.alpha, before.mu, before.sigma
    out.kernel_weights, out.status = before.kernel_weights, before.status
    machine.targets = before.targets
    del out.bounds[before.n_bounds :]
    machine.restart()
    if status in ("stopped", "max_iter"):
        # Nobody is to be told of another step.
        out.status, out.path[-1], out.n_active[-1] = status, before.evidence, len(before.columns)
    else:
        _tell(machine, before.evidence)


def _tell(machine: Constructive, evidence: float) -> bool:
    """Record that the model is another one now; return whether that ends the fit."""
    out, task = machine.out, machine.task
    n_active = len(machine.fit.posterior().active)
    gain = evidence - out.path[-1]
    out.path.append(evidence)
    out.n_active.append(n_active)
    n_iter = machine.n_iter()
    stops = task.callback is not None and task.callback(n_iter, "search", -1, gain, evidence, n_active, 1.0)
    if stops:
        out.status = "stopped"
    elif n_iter >= task.max_iter:
        out.status = "max_iter"
    return not out.is_settled
