"""The fits of rows in memory: the dictionary, with kernels that are given or learned, and its likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, qr, svd

from .. import _core
from .._arrays import Training, is_unstored
from .._checks import check_flag, is_auto
from .._data import candidates as _candidates
from .._data.basis import Basis, basis_of, groups_of, learns_kernel, with_linear_terms
from .._data.chunks import Checkpoint, digest, open_checkpoint
from .._data.design import matrix
from .._hyper.evidence import FewCounts, LearningData
from .._hyper.learner import learn, natural
from .._row_likelihoods import DISPERSED
from .._types import FloatArray, IntArray, ProcessRole, Settings
from ..kernels import Kernel
from ..kernels._base import all_log_parameters
from ..kernels._resolve import learns_smoothness
from .likelihoods import (
    NEEDED,
    Classes,
    Likelihood,
    Numbers,
    check_single,
    check_variational,
    fit_of_outputs,
    with_unpenalized,
)
from .noise import FIRST_FREEDOM, DispersionFit, Start, StudentFit
from .process import number_of_landmarks, what_forbids
from .process_regression import row_weights
from .run import Task
from .status import RowSummary

#: The mean of y is far from 0 if it exceeds so many standard errors.
_MAX_STANDARD_ERRORS: Final = 1e6
#: Learned kernels that are tried, best first, until a fit converges.
_MAX_KERNELS_TRIED: Final = 3
#: Kernels for counts of a smaller mean are compared by how well counts are predicted.
_FEW_COUNTS: Final = 1.0
#: Most centres to select from if a Gaussian process is the prior of the final weights: their functions are
#: then beside up to two thousand landmarks. Measured: docs/notebook/final-weights.md.
_SELECTION_CENTRES: Final = 500
#: Most columns that may all have weights, most products for the sums over rows, and fewest rows.
_MAX_COLUMNS, _MAX_PRODUCTS, _LEAST_ROWS = 1000, 10**9, 16
#: With so many rows only the best is tried: each fit takes minutes.
_MANY_ROWS: Final = 100_000
#: Fewest landmarks, or all rows, that follow a rough kernel as well as a smooth one.
_LANDMARKS_OF_ROUGH: Final = 100


def in_memory(est: Any, training: Training, settings: Settings, start: Start | None = None) -> Iterator[Task]:
    likelihood: Likelihood = est._likelihood_of(training.y, training.weights)
    likelihood.targets(training.y)  # raises an error for those that it cannot have
    if training.noise is not None:
        if likelihood.name != "gaussian":
            raise ValueError(
                f"y_std must be None with likelihood={likelihood.name!r}, which has its own noise"
            )
        settings = settings.with_noise_of(training.noise.variance)
    if training.exposure is not None and isinstance(likelihood, Numbers):
        likelihood.check_has_exposure()
    check_variational(settings, likelihood.name)
    if training.y.ndim == 1:
        check_single(est, settings)
    summary, offset = RowSummary.of(training), offset_of(est, training, likelihood, settings)
    shifts = [offset, 0.0] if np.any(offset) and not settings.flat_intercept else [offset]
    for shift in shifts:
        rows = training if isinstance(likelihood, Classes) else likelihood.shifted(training, shift)
        learning = _to_learn_from(est, rows, likelihood, settings)
        bases = _bases(est, learning, settings)
        if start is not None:
            task, same = start.task, basis_of(est, rows)
            if task.basis.n_columns > same.n_columns:
                same = with_linear_terms(same, rows)
            same = replace(same, kernels=task.basis.kernels, kept=task.basis.kept, centres=task.basis.centres)
            of_process = None if task.of_process is None else task.of_process.kernels
            # A process in reserve that was taken remains: no fit reaches this evidence.
            least = np.inf if task.role == "reserve" and task.sparse is None else None
            bases = iter([_Dictionary(same, least, of_process, task.role)])
        fits = _Fits(est, training, rows, likelihood, learning, settings, summary, shift)
        yield from (fits.of(dictionary, start) for dictionary in bases)


class _Fits(NamedTuple):
    """What the fits of all dictionaries of some rows have in common."""

    est: Any
    training: Training
    #: With shifted targets.
    rows: Training
    likelihood: Likelihood
    learning: _Learning
    settings: Settings
    summary: RowSummary
    shift: FloatArray | float

    def of(self, dictionary: _Dictionary, start: Start | None = None) -> Task:
        """Return the fits of a dictionary."""
        est, training, rows, likelihood, learning, settings, summary, shift = self
        basis, least_evidence, of_process, role, log_variance = dictionary
        if learning.likelihood is not likelihood and least_evidence is not None:
            # Student's t fits a Gaussian to rows whose weights have the mean 1; others have another evidence.
            is_student = likelihood.name == "student_t"
            least_evidence = learning.rows_per_row_inside * least_evidence if is_student else -np.inf
        n_landmarks = number_of_landmarks(est, basis, training, settings)
        process, sparse = None, None
        if of_process is not None:
            process = replace(basis, kernels=of_process)
            if is_auto(est.landmarks):
                sparse = partial(self.of, _Dictionary(basis))
            if role != "reserve" and sparse is not None and not _candidates.are_given(est):
                if (centres := _candidates.for_process(est, training)) is not None:
                    process = replace(process, kept=centres, centres=training.at(centres))
                basis = _evenly_spaced(basis, _SELECTION_CENTRES)
        elif not est._labels and is_auto(getattr(est, "landmarks", None)):
            n_landmarks = None
        design = basis.design(rows.X, settings.n_threads)
        own = with_unpenalized(est, basis, settings, likelihood)
        parameters: DispersionFit | StudentFit | None = None
        fits: list[Callable[..., Any]] = []
        if getattr(est, "groups", None) is not None:
            if likelihood.name != "gaussian":
                raise ValueError(f"likelihood must be 'gaussian' with groups; got {likelihood.name!r}")
            fits = [fit_of_groups(est, basis, rows, own)]
        elif training.y.ndim == 2:
            fits = [fit_of_outputs(est, design, rows, own)]
        elif start is not None:
            fits = [design.bind(rows.y, rows.weights, likelihood.name, own, first=start.first)]
        elif isinstance(likelihood, Numbers) and likelihood.name != "gaussian":
            if likelihood.name == "student_t":
                parameters = StudentFit(basis, design, rows, likelihood, own, learning.start)
            elif likelihood.name in DISPERSED:
                parameters = DispersionFit(basis, design, rows, likelihood, own)
            extra: Any = {} if rows.exposure is None else {"offset": np.log(rows.exposure)}
            fits = [parameters or design.bind(rows.y, rows.weights, likelihood.name, own, **extra)]
        else:
            targets = likelihood.targets(rows.y)
            for target in targets:
                checkpoint = partial(_checkpoint, est, rows, basis, target, len(targets))
                fits.append(design.bind(target, rows.weights, likelihood.name, own, checkpoint))
        options: Any = {"least_evidence": least_evidence, "n_landmarks": n_landmarks}
        options |= {"parameters": parameters, "of_process": process, "sparse": sparse}
        options |= {"role": role, "log_variance": log_variance}
        options["allows_dense"] = _allows_dense(est, basis, training, own)
        return Task(basis, likelihood, own, fits, summary, training, shift, **options)


def _allows_dense(est: Any, basis: Basis, training: Training, settings: Settings) -> bool:
    """Tell whether all columns may have weights, with one prior variance."""
    if not check_flag("allow_dense", getattr(est, "allow_dense", False)) or is_unstored(training.X):
        return False
    is_tried = settings.scheme == "sequential" and basis.bias and not settings.is_papers_model
    is_tried = is_tried and getattr(est, "groups", None) is None
    is_tried = is_tried and getattr(est, "likelihood", "gaussian") in ("gaussian", "student_t")
    n, p = training.X.shape
    suits = n >= _LEAST_ROWS and p <= _MAX_COLUMNS and n * p**2 <= _MAX_PRODUCTS
    return is_tried and suits and what_forbids(est, training, settings) is None


class _Dictionary(NamedTuple):
    """A dictionary; of learned kernels also the log evidence below which a fit has failed."""

    basis: Basis
    least_evidence: float | None = None
    #: Kernels of the Gaussian process that may be the prior of the final weights of a regression, and when.
    of_process: list[Kernel] | None = None
    role: ProcessRole = "prior"
    #: Of classes, ln v of the process that chose the kernels.
    log_variance: float | None = None


class _Learning(NamedTuple):
    """What kernels are learned from."""

    rows: Training
    likelihood: Likelihood
    #: Weights of the rows for the fit of Student's t to begin with.
    start: FloatArray | None = None
    #: Which rows kernels are learned from; None: all.
    inside: NDArray[np.bool_] | None = None
    few_counts: FewCounts | None = None

    @property
    def rows_per_row_inside(self) -> float:
        """The number of rows for each that kernels are learned from."""
        counts = self.rows.row_counts
        return 1.0 if self.inside is None else float(counts.sum() / counts[self.inside].sum())


def _to_learn_from(est: Any, rows: Training, likelihood: Likelihood, settings: Settings) -> _Learning:
    """Return what kernels are learned from.

    Those of counts and positive numbers are learned from transformed targets with Gaussian noise; those of
    Student's t from the rows that are no outliers.
    """
    if isinstance(likelihood, Classes) or likelihood.name == "gaussian":
        return _Learning(rows, likelihood)
    targets, learns = likelihood.row().targets, learns_kernel(est)
    if not learns and likelihood.name != "student_t":
        return _Learning(rows, likelihood)
    if targets is not None and targets.stabilised is not None:
        counts, exposures = rows.row_counts, rows.exposures
        if not rows.y.any():  # zeros tell nothing about the kernel
            return _Learning(replace(rows, exposure=None), Numbers())
        y, precisions = targets.stabilised(rows.y, rows.y @ counts / (counts @ exposures) * exposures)
        weights = counts * np.maximum(precisions, 1e-10 * precisions.max())
        weights *= counts.sum() / weights.sum()
        few = likelihood.link == "log" and rows.y @ counts < _FEW_COUNTS * counts.sum()
        return _Learning(
            replace(rows, y=y, weights=weights, exposure=None),
            Numbers(),
            few_counts=FewCounts(likelihood, rows.y, counts, np.log(exposures)) if few else None,
        )
    basis = basis_of(est, rows)
    if not basis.kernels or (kernels := natural(basis.kernels, rows.X, rows.weights)) is None:
        return _Learning(rows, likelihood)
    own = with_unpenalized(est, basis, settings, likelihood)
    found = row_weights(basis, kernels, rows, own, likelihood.shape or FIRST_FREEDOM, learns=learns)
    if found is None:
        return _Learning(rows, Numbers())
    weights, is_outlier = found
    # With a given scale that is too small most rows look like outliers.
    inside = ~is_outlier if 2 * is_outlier.sum() < len(is_outlier) else None
    return _Learning(rows, Numbers(), weights, inside)


def _evenly_spaced(basis: Basis, most: int) -> Basis:
    """Return the basis with at most so many of its centres."""
    if (n := len(basis.kept)) <= most:
        return basis
    some = np.linspace(0, n - 1, most).astype(np.intp)
    return replace(basis, kept=basis.kept[some], centres=basis.centres[some])


def _checkpoint(
    est: Any, rows: Training, basis: Basis, target: FloatArray, n_targets: int
) -> Checkpoint | None:
    """Return the checkpoint of a fit in blocks; each of several classes has a file of its own."""
    if est.checkpoint is None:
        return None
    suffix = f".{digest(target)[:8]}" if n_targets > 1 else ""
    data = (rows.X, basis.centres, basis.columns, target, rows.weights, all_log_parameters(basis.kernels))
    return open_checkpoint(est, *data, suffix=suffix)


def offset_of(est: Any, training: Training, likelihood: Likelihood, settings: Settings) -> FloatArray | float:
    """Return what to subtract from y before the fit and add to the intercept after it, mostly 0.

    The larger the mean of y, the smaller the precision of the intercept, 1 / mean(y)^2, which has a lower
    bound at 1e-15 sum(weights) / var(y). If it would come within three decades of that bound, y is
    shifted towards 0 to keep that distance. In the model this changes only the intercept.
    """
    if not likelihood.has_noise:
        is_far = training.exposure is not None or likelihood.name in DISPERSED
        if isinstance(likelihood, Classes) or not (settings.flat_intercept and is_far):
            return 0.0
        # Far from the mode the log density is nearly flat: begin at the mean.
        pair = (training.y, training.exposures)
        total, expected = (np.average(part, weights=training.weights) for part in pair)
        return float(np.log(total) - np.log(expected)) if 0.0 < total < np.inf else 0.0
    if settings.flat_intercept:
        # Exact, and keeps the digits of y. If numbers overflow the fit refuses y.
        if likelihood.name == "student_t":  # the mean may be that of an outlier
            return float(np.median(training.y))
        with np.errstate(all="ignore"):
            mean = np.average(training.y, axis=0, weights=training.weights)
            return mean if np.isfinite(training.y - mean).all() else 0.0
    if settings.alpha_prior != (0.0, 0.0):
        return 0.0
    if not check_flag("fit_intercept", est.fit_intercept):
        return 0.0
    y, weights = training.y, training.weights
    with np.errstate(all="ignore"):
        mean = np.average(y, axis=0, weights=weights)
        std = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weights))
        n = len(y) if weights is None else weights.sum()
        excess = np.abs(mean) - _MAX_STANDARD_ERRORS * std / np.sqrt(n)
    # By rounding the mean of equal numbers may differ from them.
    varies = std > 8.0 * np.finfo(float).eps * np.abs(mean)
    far = varies & (excess > 0.0) & np.isfinite(excess)
    return np.where(far, np.sign(mean) * excess, 0.0)


def _bases(est: Any, learning: _Learning, settings: Settings) -> Iterator[_Dictionary]:
    """Yield the dictionary, or those of learned kernels, the best first."""
    training, likelihood = learning.rows, learning.likelihood
    basis = basis_of(est, training)
    if not learns_kernel(est):
        yield _Dictionary(basis)
        return
    n_landmarks = number_of_landmarks(est, basis, training, settings)
    options: Any = {"is_smooth": n_landmarks is not None, "few_counts": learning.few_counts}
    if not _candidates.are_given(est):
        options["centre_rows"] = np.searchsorted(training.rows, basis.kept)
    if n_landmarks is not None and n_landmarks >= min(_LANDMARKS_OF_ROUGH, len(training.X)):
        options["learns_smoothness"] = learns_smoothness(est.kernel, est.gamma)
    data = replace(LearningData.of(est, basis, training, likelihood, settings), **options)
    if learning.inside is not None:
        data = data.without(~learning.inside)
    tries_linear = (
        is_auto(est.extra_basis)
        and getattr(est, "likelihood", "") in ("gaussian", "student_t")
        and not (settings.is_papers_model or len(training.X) >= _MANY_ROWS)
    )
    linear = data.with_linear_terms() if tries_linear else None
    # A checkpoint belongs to a single fit, and many rows have decided between the kernels.
    single = getattr(est, "checkpoint", None) is not None or len(training.X) >= _MANY_ROWS
    most = 1 if single else _MAX_KERNELS_TRIED
    for learned in learn(basis.kernels, data, settings, linear)[:most]:
        # Other schemes have other optima.
        least = learned.least_evidence if settings.scheme == "sequential" else -np.inf
        chosen = with_linear_terms(basis, training) if learned.has_linear_terms else basis
        chosen = replace(chosen, kernels=learned.kernels)
        of_process = learned.of_process
        role = learned.role if of_process is not None and is_auto(est.landmarks) else "prior"
        yield _Dictionary(chosen, least, of_process, role, learned.log_variance)


# --- fits of columns in groups that share a precision: docs/theory/groups.md ------------------------
#
# Rows are multiplied by the roots of their weights, and columns with a flat prior are projected out of the
# others and of the targets (restricted maximum likelihood). The core fits what is left.

#: Power of the number of columns that the weight of the prior on complexity is divided by. Derivation:
#: docs/theory/groups.md.
_GROUP_POWER: Final = 0.75


def fit_of_groups(est: Any, basis: Basis, rows: Training, settings: Settings) -> GroupFit:
    """Return the fit of columns in groups, as a function of ``callback``."""
    groups = groups_of(est, basis)
    assert groups is not None
    assert basis.columns is not None
    for name, needed in NEEDED.items():
        if (value := getattr(settings, name)) != needed:
            raise ValueError(f"{name} must be {needed!r} with groups, got {value!r}; or set groups=None")
    if rows.y.ndim == 2 and not check_flag("shared_noise", est.shared_noise):
        raise ValueError(
            "shared_noise must be True with groups where y has several columns; or fit its columns one by one"
        )
    if settings.noise_variances is not None:
        raise ValueError("noise_variance must be one number with groups, got an array")
    Phi = matrix([basis.columns], bias=basis.bias, offset=basis.offset if basis.bias else None)
    flat = list(settings.unpenalized)
    penalized = [group for group in groups if group[0] not in flat]
    complexity = settings.complexity_for(rows.weight, len(groups), rows.y[0].size)
    return GroupFit(Phi, rows.y, rows.weights, penalized, flat, settings, complexity)


class GroupPosterior(NamedTuple):
    """The result of a fit, with the attributes of those of the core."""

    active: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    gamma: FloatArray
    beta: float
    log_evidence: float
    trace: FloatArray
    n_iter: int
    status: str


class GroupFit:
    """The fit of targets, (n, n_outputs), to columns in groups; outputs share precisions and noise."""

    def __init__(
        self,
        Phi: FloatArray,
        t: FloatArray,
        weights: FloatArray | None,
        groups: list[IntArray],
        flat: list[int],
        settings: Settings,
        complexity: float,
    ) -> None:
        root = np.ones(len(Phi)) if weights is None else np.sqrt(weights)
        t = t.reshape(len(t), -1)
        self.groups, self.flat, self.n_outputs = groups, flat, t.shape[1]
        rows = float(np.sum(root**2))
        # Logarithms of determinants need no scale; that of the targets keeps beta near 1.
        deviations = t - np.average(t, axis=0, weights=root**2)
        given, size = settings.noise_variance, float(np.abs(deviations).max()) or 1.0
        variance = float(np.average(np.mean((deviations / size) ** 2, axis=1), weights=root**2))
        self.unit = size * np.sqrt(variance) or 1.0
        largest = float(np.abs(t).max())
        if not (1e-150 < self.unit and largest < 1e150):
            raise ValueError(
                f"y has the standard deviation {self.unit:.4g} and values up to {largest:.4g}, whose squares "
                "are out of range; rescale y to between 1e-150 and 1e150"
            )
        if given is not None and not 1e-100 <= self.unit / given * self.unit <= 1e24:
            raise ValueError(
                f"noise_variance is {given:.4g} and the variance of y is {self.unit**2:.4g}: double "
                "precision cannot resolve both; choose another, or leave it out to estimate it"
            )
        # In units of the largest value of each group products and precisions stay in range.
        self.scales = np.maximum(Phi.max(axis=0, initial=0.0), -Phi.min(axis=0, initial=0.0))
        with np.errstate(over="ignore"):
            if not np.isfinite(len(Phi) * self.scales**2).all():
                raise ValueError("a column of X is not finite or too large to square; rescale X")
        members, sizes = np.concatenate([np.zeros(0, np.intp), *groups]), [len(group) for group in groups]
        if groups:
            of_groups = np.maximum.reduceat(self.scales[members], np.cumsum([0, *sizes[:-1]]))
            self.scales[members] = np.repeat(of_groups, sizes)
        self.scales[self.scales == 0.0] = 1.0
        Phi = np.divide(Phi, self.scales, order="F")
        if weights is not None:
            Phi, t = root[:, np.newaxis] * Phi, root[:, np.newaxis] * t
        self.F = Phi[:, flat]
        self.norms = np.sqrt(np.sum(self.F**2, axis=0))
        self.raw, self.raw_t, t = Phi, t, t / self.unit
        if flat:
            Q, R = qr(self.F / self.norms, mode="economic")
            ln_volume = float(np.log(np.abs(np.diag(R))).sum())
            Phi, t = Phi - Q @ (Q.T @ Phi), t - Q @ (Q.T @ t)
        else:
            ln_volume = 0.0
        n_contrasts = max(rows - len(flat), 0.0)
        # As many columns as rows give the same model as more columns: docs/theory/groups.md.
        self.rotations: dict[int, FloatArray] = {}
        kept, Phi = list(groups), np.asfortranarray(Phi)
        for g, group in enumerate(groups):
            if len(group) > len(Phi):
                Phi = Phi.copy(order="F") if Phi is self.raw else Phi
                U, s, self.rotations[g] = svd(Phi[:, group], full_matrices=False)
                kept[g] = group[: len(s)]
                Phi[:, kept[g]] = U * s
        self.problem: dict[str, Any] = {
            "Phi": Phi,
            "targets": np.asfortranarray(t),
            "groups": [group.tolist() for group in kept],
            "shares": np.array(sizes, dtype=float) ** -_GROUP_POWER,
            "n_contrasts": n_contrasts,
            "n_flat": len(flat),
            "beta": None if given is None else self.unit**2 / given,
            "complexity": complexity,
            "unit": self.unit,
            # The evidence is that of the targets in their own units, as the core has it.
            "offset": self.n_outputs * (n_contrasts * np.log(self.unit) + ln_volume),
            "tol": settings.tol,
            "max_iter": settings.max_iter,
            "n_threads": settings.n_threads,
        }

    def __call__(self, callback: Any = None) -> GroupPosterior:
        """Return the posterior at a maximum of the evidence, in the units of the targets."""
        found = _core.fit_groups(**self.problem, callback=callback)
        columns = np.concatenate([np.zeros(0, np.intp), *(self.groups[g] for g in found["active"])])
        sizes = [len(self.groups[g]) for g in found["active"]]
        alpha, f = np.repeat(found["alpha"], sizes) / self.unit**2, len(self.flat)
        mu, sigma = self._of_all_columns(found)
        sigma, mu, beta = self.unit**2 * sigma, self.unit * mu, found["beta"] / self.unit**2
        gamma = 1.0 - alpha * np.diag(sigma)
        if f > 0:
            inverse = np.linalg.inv((self.F / self.norms).T @ (self.F / self.norms))
            inverse /= np.outer(self.norms, self.norms)
            B = inverse @ (self.F.T @ self.raw[:, columns])
            of_flat = inverse @ (self.F.T @ (self.raw_t - self.raw[:, columns] @ mu))
            sigma = np.block([[inverse / beta + B @ sigma @ B.T, -B @ sigma], [-sigma @ B.T, sigma]])
            mu, alpha = np.vstack([of_flat, mu]), np.append(np.zeros(f), alpha)
            gamma = np.append(np.ones(f), gamma)
            columns = np.append(np.array(self.flat, dtype=np.intp), columns)
        scales = self.scales[columns]
        sigma, mu = sigma / scales / scales[:, np.newaxis], mu / scales[:, np.newaxis]
        alpha = alpha * scales * scales
        order = np.argsort(columns, kind="stable")
        return GroupPosterior(
            active=columns[order],
            alpha=alpha[order],
            mu=mu[order] if self.n_outputs > 1 else mu[order, 0],
            sigma=sigma[np.ix_(order, order)],
            gamma=gamma[order],
            beta=beta,
            log_evidence=float(found["trace"][-1]),
            trace=found["trace"],
            n_iter=len(found["trace"]) - 1,
            status=found["status"],
        )

    def _of_all_columns(self, found: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the weights of all columns of the groups in the model.

        With V the rows of a rotation, w = V^T z + v: z is what the fit found, and v keeps its prior.
        """
        active, mu, sigma = found["active"], found["mu"], found["sigma"]
        if self.rotations.keys().isdisjoint(active):
            return mu, sigma
        rotations = [self.rotations.get(g, np.eye(len(self.groups[g]))) for g in active]
        rest = [
            (np.eye(V.shape[1]) - V.T @ V) / alpha for V, alpha in zip(rotations, found["alpha"], strict=True)
        ]
        V = block_diag(*rotations)
        return V.T @ mu, V.T @ sigma @ V + block_diag(*rest)
