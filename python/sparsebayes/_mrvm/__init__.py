"""mRVM1 and mRVM2 of Psorakis et al. (2010) as algorithms on arrays.

mRVM1 starts from an empty model and adds functions, mRVM2 starts from all functions and prunes them. Both are
coordinate ascent with auxiliary targets Y, one for each row and class. The E-step computes their expectations
given the class and the scores (equations 3 and 4); the M-step fits the weights to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .._data.design import CoreCallback
from .._types import FloatArray, IntArray
from .kernel_weights import Composite, JointAscent, learn_kernel_weights

#: Distance between the first targets of the true class and of the others, in units of the noise; for two
#: classes two on either side. They sum to zero over the classes: the likelihood does not depend on a common
#: shift, so E- and M-steps remove an initial one only slowly.
_TARGET_SEPARATION = 4.0

#: A function is pruned once the precisions of all its weights exceed this: section IV.
_PRUNE_ALPHA = 1e5

#: Until the active set stays the same, an M-step ends at gains below this, in nats for each class (a function
#: has a weight for each), and at changes of ln alpha below this; then at the fine gain.
_COARSE_GAIN, _COARSE_TOL = 1.0 / 3.0, 0.1
_FINE_GAIN = 1e-7

#: A joint ascent ends when a step gains less than this, in nats: after an M-step that changed the active set;
#: after one that moved a ln alpha by more than `_NEAR_LN_ALPHA`. M-steps delete functions that would make an
#: ascent long.
_CHANGED_SET_GAIN, _COARSE_ASCENT_GAIN, _NEAR_LN_ALPHA = 20.0, 1.0, 0.3
#: Otherwise it converges: it ends when a step gains less than this fraction of the bound.
_ASCENT_RTOL = 1e-13
#: Initial trust-region radii of converging and of coarse ascents.
_FINE_RADIUS, _COARSE_RADIUS = 30.0, 3.0
#: Largest number of steps of a joint ascent with several kernels: of the first, and of one that follows
#: another.
_FIRST_ASCENT_STEPS, _NEXT_ASCENT_STEPS = 50, 1000

#: Kernel weights have converged when they change by less; the remaining error moves no ln alpha by 1e-5.
_KERNEL_WEIGHT_TOL = 5e-6


@dataclass(frozen=True)
class Task:
    """The input of both algorithms."""

    composite: Composite
    #: Class numbers, length N.
    labels: IntArray
    n_classes: int
    row_weights: FloatArray | None
    n_quadrature: int | None
    n_threads: int | None
    tol: float
    #: Number of iterations of the rules that count them, and the largest allowed.
    min_iter: int
    max_iter: int
    callback: CoreCallback | None

    def first_targets(self) -> FloatArray:
        """Return the initial targets, given by the labels."""
        targets = np.full((len(self.labels), self.n_classes), -_TARGET_SEPARATION / self.n_classes, order="F")
        targets[np.arange(len(self.labels)), self.labels] += _TARGET_SEPARATION
        return targets

    def expectations(self, scores: FloatArray) -> tuple[FloatArray, float]:
        """Return the targets of the E-step, and the log-likelihood of the labels."""
        targets, log_p = _core.probit_expectations(
            scores, self.labels, n_nodes=self.n_quadrature, n_threads=self.n_threads
        )
        return targets, float(log_p.sum() if self.row_weights is None else self.row_weights @ log_p)


@dataclass
class Outcome:
    """The fitted model. Functions are columns of the composite dictionary."""

    columns: IntArray
    #: (m,) for mRVM1, (m, C) for mRVM2.
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray | None
    kernel_weights: FloatArray
    status: str = "max_iter"
    #: The objective, and the number of functions, at the start and after each iteration.
    path: list[float] = field(default_factory=list)
    n_active: list[int] = field(default_factory=list)
    #: The variational bound after each E-step of mRVM1.
    bounds: list[float] = field(default_factory=list)


class _Scheme(ABC):
    """State of both algorithms: targets, a model, and the step on the kernel weights."""

    def __init__(self, task: Task, columns: IntArray, alpha: FloatArray, sigma: FloatArray | None) -> None:
        self.task, self.targets = task, task.first_targets()
        weights = task.composite.aligned_weights(self.targets, task.row_weights)
        mu = np.zeros((len(columns), task.n_classes))
        self.out = Outcome(columns, alpha, mu, sigma, weights)
        self.restart()

    @abstractmethod
    def restart(self) -> None:
        """Rebuild the core fit for the current functions and kernel weights."""

    def _learn_kernel_weights(self) -> float:
        """Update the kernel weights, if there are several; return the largest change."""
        composite, out = self.task.composite, self.out
        if len(composite.blocks) == 1 or len(out.columns) == 0:
            return 0.0
        learned = learn_kernel_weights(
            composite, out.columns, out.mu, out.sigma, self.targets, self.task.row_weights
        )
        change = float(np.abs(learned - out.kernel_weights).max())
        if change > 0.0:
            out.kernel_weights = learned
            self.restart()
        return change


class Constructive(_Scheme):
    """mRVM1: Algorithm 1. M-steps by the sequential scheme with C targets and shared alphas.

    An M-step maximises the evidence of the targets, equation (6), over functions and alphas until no change
    has a gain, instead of making one update: this raises the same bound, and E-steps are the expensive part.
    A joint ascent maximises the bound over weights and alphas together, for which alternating steps would
    need thousands. With one kernel it follows each M-step after which the fit has not converged. With several
    kernels it includes their weights, and follows only such M-steps that leave the active set unchanged.
    ``at_once``: no minimum number of iterations.
    """

    def __init__(self, task: Task, *, at_once: bool) -> None:
        super().__init__(task, np.empty(0, dtype=np.intp), np.empty(0), np.empty((0, 0)))
        self.min_iter = 0 if at_once else task.min_iter
        #: Whether M-steps use the fine tolerances: an M-step has left the active set unchanged.
        self.fine = False
        #: Whether a joint ascent preceded the last M-step.
        self.ascended = False

    def restart(self) -> None:
        self.fit = _core.RetargetedFit(
            self.task.composite.Phi(self.out.kernel_weights),
            self.targets,
            self.task.row_weights,
            active=self.out.columns.astype(np.int64),
            alpha=self.out.alpha,
            n_threads=self.task.n_threads,
        )

    def run(self) -> Outcome:
        """Run to convergence, and at least for the minimum number of iterations."""
        while True:
            change, n_updates = self._maximise()
            self.targets, log_likelihood = self.task.expectations(self.fit.predictions())
            self.out.bounds.append(log_likelihood + self.fit.log_occam_factor())
            if self.out.status not in ("converged", "alpha_floor"):
                return self.out
            kernels_stayed = self._learn_kernel_weights() < _KERNEL_WEIGHT_TOL
            converged = kernels_stayed and change < self.task.tol and self.fine
            if converged and (len(self.out.path) > self.min_iter or n_updates == 0):
                return self.out
            # With several kernels a joint ascent takes too long while the active set still changes.
            ascends = not converged and (np.isfinite(change) or len(self.task.composite.blocks) == 1)
            if ascends:
                self._ascend_jointly(change)
                self.fine |= bool(np.isfinite(change))
            self.ascended = ascends

    def _maximise(self) -> tuple[float, int]:
        """Make an M-step; return the largest change of a ln alpha (inf if functions did) and the updates."""
        out, n_iter = self.out, max(len(self.out.path) - 1, 0)
        before = self.fit.posterior()
        out.status, trace, n_active = self.fit.maximise(
            self.targets,
            gain=_FINE_GAIN if self.fine else _COARSE_GAIN * self.task.n_classes,
            tol=0.1 * self.task.tol if self.fine else _COARSE_TOL,
            max_iter=max(self.task.max_iter - n_iter, 1),
            callback=self._offset_callback(n_iter),
        )
        first = int(len(out.path) > 0)
        out.path.extend(trace[first:].tolist())
        out.n_active.extend(n_active[first:].tolist())
        after = self.fit.posterior()
        out.columns, out.alpha, out.mu = after.active.astype(np.intp), after.alpha, after.mu
        (out.sigma,) = after.sigma
        if len(out.columns) == 0:
            # The targets have changed since the step that emptied the model.
            out.path[-1] = float(trace[-1])
        if not np.array_equal(before.active, after.active):
            return np.inf, len(trace) - 1
        return float(np.abs(np.log(after.alpha / before.alpha)).max(initial=0.0)), len(trace) - 1

    def _offset_callback(self, n_iter: int) -> CoreCallback | None:
        """Return the callback for an M-step that begins after ``n_iter`` iterations."""
        callback = self.task.callback
        if callback is None:
            return None

        def counted(iteration: int, *step: Any) -> bool:
            return callback(n_iter + iteration, *step)

        return counted

    def _ascend_jointly(self, change: float) -> None:
        """Maximise the bound over weights, alphas and kernel weights together; sets targets and alphas.

        ``change``: the result of the M-step.
        """
        task, out = self.task, self.out
        if len(out.alpha) == 0:
            return
        if len(task.composite.blocks) > 1:
            ascent = JointAscent(task.composite, out.columns, task.row_weights, task.expectations)
            n_steps = _NEXT_ASCENT_STEPS if self.ascended else _FIRST_ASCENT_STEPS
            top = ascent.maximise(out.mu, out.alpha, out.kernel_weights, n_steps=n_steps, ftol=_ASCENT_RTOL)
            if top is not None:
                scores, out.alpha, out.kernel_weights = top
                self.targets, _ = task.expectations(np.asfortranarray(scores))
                self.restart()
            return
        if change < _NEAR_LN_ALPHA:
            gain, radius = _ASCENT_RTOL * (1.0 + abs(out.bounds[-1])), _FINE_RADIUS
        else:
            gain, radius = _COARSE_ASCENT_GAIN if np.isfinite(change) else _CHANGED_SET_GAIN, _COARSE_RADIUS
        try:
            self.targets = self.fit.maximise_bound(
                task.labels, gain=gain, radius=radius, n_nodes=task.n_quadrature
            )
        except _core.NumericalError:
            return  # rounding prevents long joint steps; E- and M-steps continue


class TopDown(_Scheme):
    r"""mRVM2: Algorithm 2. A precision for each weight, by EM from all functions.

    EM integrates out auxiliary targets and precisions, so each iteration raises the log of the joint density
    of labels and weights, :math:`\sum_n \ln P(t_n | w) - (\tau + 1/2) \sum_{ic} \ln(\upsilon +
    w_{ic}^2 / 2)` and a constant. Pruned functions count with weights of zero.
    """

    def __init__(self, task: Task, *, tau: float, upsilon: float, prune: bool, until_converged: bool) -> None:
        n_basis = task.composite.n_basis
        super().__init__(task, np.arange(n_basis), np.ones((n_basis, task.n_classes), order="F"), None)
        self.tau, self.upsilon, self.prune = tau, upsilon, prune
        self.until_converged = until_converged

    def restart(self) -> None:
        Phi = self.task.composite.Phi(self.out.kernel_weights, self.out.columns)
        self.fit = _core.TopDownFit(Phi, self.task.row_weights, n_threads=self.task.n_threads)

    def run(self) -> Outcome:
        """Run until the rule for convergence is met."""
        while len(self.out.path) <= self.task.max_iter:
            change = self._iterate()
            out, n_iter = self.out, len(self.out.path) - 1
            if n_iter > 0 and self.task.callback is not None:
                gain, n_active = out.path[-1] - out.path[-2], len(out.columns)
                if self.task.callback(n_iter, "joint", -1, gain, out.path[-1], n_active, 1.0):
                    out.status = "stopped"
                    break
            if change < self.task.tol if self.until_converged else n_iter >= self.task.min_iter:
                out.status = "converged"
                break
            kept = np.flatnonzero((out.alpha <= _PRUNE_ALPHA).any(axis=1))
            if self.prune and len(kept) < len(out.columns):
                out.columns, out.mu = out.columns[kept], out.mu[kept]
                out.alpha = np.asfortranarray(out.alpha[kept])
                self.fit.keep(kept)
            self._learn_kernel_weights()
        return self.out

    def _iterate(self) -> float:
        """Update weights, targets and precisions; return the largest change of a ln alpha."""
        out = self.out
        try:
            out.mu, scores = self.fit.solve(self.targets, out.alpha)
        except _core.NumericalError as error:
            largest = max(float(np.abs(block).max()) for block in self.task.composite.blocks)
            raise _core.NumericalError(
                f"the weights of MRVM2 cannot be computed: {error}. Precisions are in the units of the "
                f"kernel's values, which should be of order 1 and reach {largest:.1e}; scale X, change the "
                "kernel, or use MRVM1, which does not depend on units"
            ) from error
        self.targets, log_likelihood = self.task.expectations(scores)
        shape, n_gone = self.tau + 0.5, self.task.composite.n_basis - len(out.columns)
        penalty = np.log(self.upsilon + 0.5 * out.mu**2).sum()
        penalty += n_gone * self.task.n_classes * np.log(self.upsilon)
        out.path.append(log_likelihood - shape * float(penalty))
        out.n_active.append(len(out.columns))
        updated = np.asfortranarray((2.0 * self.tau + 1.0) / (out.mu**2 + 2.0 * self.upsilon))
        change = float(np.abs(np.log(updated / out.alpha)).max(initial=0.0))
        out.alpha = updated
        return change
