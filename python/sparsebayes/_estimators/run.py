"""The fits of one estimator by the core, and the attributes that they publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from .. import _core
from .._arrays import SMALLEST, Training, equal_rows
from .._data.basis import Basis
from .._data.candidates import choose
from .._data.chunks import Checkpoint
from .._progress import FitReporter
from .._types import FloatArray, IntArray, ProcessRole, Settings
from .leave_one_out import LeaveOneOut, leave_one_out
from .likelihoods import Likelihood
from .noise import DispersionFit, StudentFit
from .posterior import growths_of, has_process, variance_factor_of
from .process import beside, estimate_weights, exceed
from .process_regression import estimate_regression, has_large_variance
from .status import REMEDIES, RowSummary

#: Log density per row by which a sparse model may be worse than a process, or a fit than its trials, before
#: the process replaces it. Measured: docs/notebook/final-weights.md.
_MAX_LOSS: Final = 0.2
#: Products in the sums over rows, of numbers and of classes, up to which weights of all columns are always
#: tried; with more of them only if the squares of slopes along the columns are larger than those of noise by
#: this factor. Measured, like the standard errors: docs/notebook/columns.md.
_FEW_PRODUCTS, _FEW_PRODUCTS_OF_CLASSES, _MIN_SLOPES = 3 * 10**7, 3 * 10**6, 1.2
#: Standard errors by which weights of all columns have to predict rows left out better than few.
_DENSE_ERRORS: Final = 1.0


@dataclass(frozen=True)
class Task:
    """A dictionary, and the core's fits of it: one for each target, or for all outputs together."""

    basis: Basis
    likelihood: Likelihood
    settings: Settings
    #: Functions of the keyword ``callback``.
    fits: list[Callable[..., Any]]
    summary: RowSummary
    #: Rows in memory, as given.
    training: Training | None = None
    #: What was subtracted from y, of each output.
    offset: FloatArray | float = 0.0
    #: Without rows: what was subtracted from the columns before the fit, which subtracts their means too.
    shift: FloatArray | float | None = None
    #: Of a learned kernel, the log evidence below which its fit has failed.
    least_evidence: float | None = None
    #: Of learned kernels of classes, ln v of the process that chose them.
    log_variance: float | None = None
    #: Whether the callback has stopped the passes over the rows, and the file of their sums.
    stopped: bool = False
    checkpoint: Checkpoint | None = None
    #: Number of landmarks of the final weights; None: the weights of the selection.
    n_landmarks: int | None = None
    #: The kernels of the Gaussian process that is the prior of these weights, and all their centres, of which
    #: the basis has a part; None: those of the basis.
    of_process: Basis | None = None
    role: ProcessRole = "prior"
    #: Return the task with all centres, for where the process turns out unfit to be the prior.
    sparse: Callable[[], Task] | None = None
    #: Whether all columns may have weights, with one prior variance.
    allows_dense: bool = False
    #: The fit, if it estimates parameters of the likelihood.
    parameters: DispersionFit | StudentFit | None = None

    def succeeded(self, posteriors: list[Any]) -> bool:
        """Tell whether no other task need be tried."""
        if np.any(self.offset) and 0 not in posteriors[0].active:
            return False  # the bias was pruned, so the offset cannot be added to it
        # With ln v known the process of the kernels predicts, however the selection ends.
        is_final = self.least_evidence is None or self.log_variance is not None
        if is_final or any(one.status == "stopped" for one in posteriors):
            return True
        log_evidence = sum(one.log_evidence for one in posteriors)
        return log_evidence >= self.least_evidence and all(one.status == "converged" for one in posteriors)

    def takes_process(self, posteriors: list[Any]) -> bool:
        """Tell whether a process may be the prior of the final weights."""
        if self.role != "reserve" or self.least_evidence is None or self.training is None:
            return self.role != "reserve"
        log_evidence = float(sum(one.log_evidence for one in posteriors))
        return log_evidence < self.least_evidence - _MAX_LOSS * len(self.training.y)


def run(est: Any, tasks: Iterable[Task]) -> tuple[Task, list[Any]]:
    """Fit the tasks, the best first, until one succeeds; return it, or the best, and its posteriors."""
    found = []
    for task in tasks:
        watch = FitReporter(
            est,
            task.basis.layout,
            task.basis.n_basis,
            has_noise=task.likelihood.has_noise,
            n_fits=len(task.fits),
            noise=None if task.training is None else task.training.noise,
            stopped=task.stopped,
        )
        posteriors = []
        for fit in task.fits:
            with watch.fit() as step:
                posterior = fit(callback=step)
                watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
            posteriors.append(posterior)
        if task.parameters is not None and task.training is not None:
            likelihood, training = task.parameters.found(task.training)
            task = replace(task, likelihood=likelihood, training=training)
        if task.succeeded(posteriors):
            return task, posteriors
        if task.settings.flat_intercept or not np.any(task.offset):
            found.append((task, posteriors))
    return found[0]


def publish(est: Any, task: Task, posteriors: list[Any]) -> tuple[Task, list[Any]]:
    """Publish all attributes of a fit, and return it, or another one where no process can be the prior."""
    basis, likelihood = task.basis, task.likelihood
    if task.shift is not None:
        means = posteriors[0].means  # subtracted from the columns by the fits, the same for all targets
        n = basis.n_columns
        basis = replace(basis, offset=task.shift + (means if len(means) == n else np.zeros(n)))
    est._variational = task.settings.scheme == "variational"
    est._n_samples = task.summary.n_rows if task.training is None else task.training.n_samples
    est._n_basis, est._likelihood, est._offset = basis.n_basis, likelihood, task.offset
    est._y_variance, est._has_exposure = None, getattr(task.training, "exposure", None) is not None
    est._log_evidences = [posterior.log_evidence for posterior in posteriors]
    est.log_marginal_likelihood_path_ = _joint_path([posterior.trace for posterior in posteriors])
    # With priors the path holds the log posterior; the variational path ends at the bound.
    priors = sum(posterior.trace[-1] - posterior.log_evidence for posterior in posteriors)
    est.log_marginal_likelihood_ = float(est.log_marginal_likelihood_path_[-1] - priors)
    est.n_iter_ = sum(posterior.n_iter for posterior in posteriors)
    est.status_ = max((posterior.status for posterior in posteriors), key=list(REMEDIES).index)
    likelihood.publish(est, posteriors, basis.layout)
    est.mu_[est.active_ == -1] += task.offset
    est._selection = None
    _choose_centres(est, task, basis.kept)
    if (training := task.training) is not None and (noise := training.noise) is not None:
        est._y_variance = noise.variance
        est.beta_ *= noise.variance
        est.noise_variance_ = 1.0 / est.beta_
        # The evidence of these standard deviations.
        est._log_evidences = [evidence + noise.log_evidence for evidence in est._log_evidences]
        est.log_marginal_likelihood_path_ = est.log_marginal_likelihood_path_ + noise.log_evidence
        est.log_marginal_likelihood_ += noise.log_evidence
    if task.parameters is not None and training is not None:
        task.parameters.publish(est, training)
    at_rows: tuple[FloatArray, FloatArray] | None = None
    est.__dict__.pop("process_variance_", None)  # left by an earlier fit
    may_have_process = est.status_ != "stopped" and task.takes_process(posteriors)
    if task.n_landmarks is not None and training is not None and may_have_process:
        n_landmarks, settings = task.n_landmarks, task.settings
        if est._labels:
            log_variance, active = task.log_variance, est.active_
            if log_variance is not None:  # it is that with all columns
                active = np.union1d(active, beside(basis))
            of_rows = basis, active, training, n_landmarks, settings, log_variance
            basis, at_rows = estimate_weights(est, *of_rows)
        else:
            start = task.parameters.start if isinstance(task.parameters, StudentFit) else None
            process = task.of_process or basis
            of_process = process, est.active_, training, n_landmarks, settings, start
            basis, training, at_rows = estimate_regression(est, basis, *of_process)
            fails = est._selection is None
            is_doubtful = fails or task.role != "prior" or has_large_variance(est, process, training)
            if task.sparse is not None and is_doubtful:
                density = -np.inf
                if not fails:
                    left_out = leave_one_out(est, basis, training, settings.n_threads, at_rows)
                    density = _log_density(left_out, training)
                return _publish_better(est, task, posteriors, density)
    elif task.allows_dense and training is not None and est.status_ in ("converged", "empty"):
        with np.errstate(all="ignore"):  # numbers near their limits have the sparse model
            at_rows = _weights_of_all_columns(est, task, basis, training)
    n_effective = _effective_parameters(posteriors, likelihood, task.basis.n_basis)
    est._row_summary = replace(task.summary, n_effective=None if has_process(est) else n_effective)
    est._loo = None
    if training is not None:
        est._loo = leave_one_out(est, basis, training, task.settings.n_threads, at_rows)
    basis.publish(est, training)
    est._growths = growths_of(est, training)
    rows = task.summary
    est._variance_factor = variance_factor_of(est, rows.n_rows if rows.weight is None else rows.weight)
    est.__dict__.pop("_statistics", None)  # sums of `partial_fit`
    if task.checkpoint is not None and est.status_ != "stopped":
        task.checkpoint.remove()
    return task, posteriors


def _weights_of_all_columns(
    est: Any, task: Task, basis: Basis, training: Training
) -> tuple[FloatArray, FloatArray] | None:
    """Give all columns weights with one prior variance if these predict rows left out better.

    Return the moments of the linear predictors at the rows if they do.
    """
    before, settings, columns = dict(est.__dict__), task.settings, beside(basis)
    few = leave_one_out(est, basis, training, settings.n_threads)
    most = _FEW_PRODUCTS_OF_CLASSES if est._labels else _FEW_PRODUCTS
    if len(training.X) * basis.n_columns**2 > most and not _columns_explain_rest(basis, few):
        return None
    if est._labels:
        _, at_rows = estimate_weights(est, basis, columns, training, 0, settings)
    else:
        start = task.parameters.start if isinstance(task.parameters, StudentFit) else None
        _, _, at_rows = estimate_regression(est, basis, basis, columns, training, 0, settings, start)
    if at_rows is not None:
        every = leave_one_out(est, basis, training, settings.n_threads, at_rows)
        if exceed(_densities(every, training), _densities(few, training), _DENSE_ERRORS):
            return at_rows
    est.__dict__.clear()
    est.__dict__.update(before)
    return None


def _columns_explain_rest(basis: Basis, few: LeaveOneOut) -> bool:
    """Tell whether columns of equal scale explain more of the residuals than they do of noise, on average.

    For noise the squares of the slopes along the columns have the mean of the curvatures.
    """
    assert basis.columns is not None
    F = basis.columns - basis.offset
    w = np.ones(len(F)) if few.counts is None else few.counts
    (e, b), F2 = few.slopes(), F**2
    scale = np.maximum(w @ F2, SMALLEST)
    squares, of_noise = np.sum((e.T @ F) ** 2 / scale), np.sum(b.T @ F2 / scale)
    return bool(squares > _MIN_SLOPES * of_noise)


def _publish_better(est: Any, task: Task, posteriors: list[Any], density: float) -> tuple[Task, list[Any]]:
    """Publish the sparse model, or the process if it predicts rows left out far better, and return its fit.

    ``density``: the mean log density of these rows by the process.
    """
    assert task.sparse is not None
    assert task.training is not None
    sparse = task.sparse()
    _choose_centres(est, task, sparse.basis.kept)
    found = publish(est, *run(est, [sparse]))
    is_better = density > _log_density(est._loo, task.training) + _MAX_LOSS
    return publish(est, replace(task, sparse=None), posteriors) if is_better else found


def _log_density(left_out: LeaveOneOut, training: Training) -> float:
    """Return the mean log density of the rows from those that do not repeat them."""
    return float(_densities(left_out, training).mean())


def _densities(left_out: LeaveOneOut, training: Training) -> FloatArray:
    """Return the log density of each distinct row from the others, times its weight over the mean."""
    first, number = equal_rows(np.column_stack([training.X, left_out.t]))
    given = np.ones(len(number)) if left_out.counts is None else left_out.counts
    counts = np.bincount(number, given).astype(np.float64)[number]
    log_p = replace(left_out, counts=counts, rows=slice(None), n_samples=len(counts)).scores.loo
    return np.asarray(log_p[first] * counts[first] / counts[first].mean())


def _choose_centres(est: Any, task: Task, kept: IntArray) -> None:
    """Publish these centres if the process has others than the selection."""
    process, training = task.of_process, task.training
    if process is not None and process.kept is not task.basis.kept and training is not None:
        choose(est, training, kept)


def _effective_parameters(posteriors: list[Any], likelihood: Likelihood, n_basis: int) -> float:
    """Return sum_j gamma_j = sum_j (1 - alpha_j Sigma_jj), the maximum over the outputs."""
    sums = [0.0]
    for posterior in posteriors:
        if isinstance(posterior, _core.OutputPosterior):
            sums += [float((1.0 - posterior.alpha * sigma.diagonal()).sum()) for sigma in posterior.sigma]
        elif likelihood.name == "multinomial" and len(posterior.active) > 0:
            sums += np.bincount(posterior.active // n_basis, weights=posterior.gamma).tolist()
        else:
            sums.append(float(posterior.gamma.sum()))
    return max(sums)


def _joint_path(traces: list[FloatArray]) -> FloatArray:
    """Return the summed log evidence of consecutive fits; fits yet to begin count with their start value."""
    if len(traces) == 1:
        return traces[0]
    starts, ends = [trace[:1] for trace in traces], [trace[-1:] for trace in traces]
    parts = [np.sum(starts, axis=0)]
    for k, trace in enumerate(traces):
        parts.append(trace[1:] + np.sum([*ends[:k], *starts[k + 1 :]], axis=0))
    return np.concatenate(parts)
