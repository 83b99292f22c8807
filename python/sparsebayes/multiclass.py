"""Multinomial probit models of several kernels: `MRVM1` adds functions, `MRVM2` prunes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from . import _core
from ._arrays import Training, are_known, check_training, check_weights, learn_classes
from ._cancellable import one_blas_thread
from ._checks import (
    any_array,
    check_choice,
    check_flag,
    check_integer,
    check_n_jobs,
    check_real,
    check_reporting,
)
from ._data import candidates as _candidates
from ._data.basis import as_given, at_relevance, fit_kernels, publish_linear, publish_relevance
from ._data.design import Layout, evaluate
from ._estimators.base import Estimator, atomic
from ._estimators.docs import documented
from ._estimators.posterior import by_blocks, with_prior
from ._estimators.status import RowSummary
from ._mrvm import Composite, Constructive, Outcome, Task, TopDown
from ._progress import FitReporter
from ._types import Callback, Candidates, FloatArray, KernelSpec, OutputsProblem, PerRow
from .inspection._certificate import written_out

if TYPE_CHECKING:
    from typing_extensions import Self


__all__ = ["MRVM1", "MRVM2"]


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class ProbitModel(ClassifierMixin, Estimator):  # type: ignore[misc] # scikit-learn carries no types
    """A multinomial probit model over kernel functions centred at the candidates."""

    _labels = True

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    min_iter_factor: float = 1
    n_quadrature: int | None = None
    candidates: Candidates = "auto"
    random_state: int | np.random.RandomState | None = None
    tol: float = 1e-6
    max_iter: int = 100_000
    callback: Callback | None = None

    @abstractmethod
    def _run(self, task: Task) -> Outcome:
        """Fit the model to arrays."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Fit the model.

        {labels_fit_sections}
        """
        with atomic(self, X, y, sample_weight=sample_weight):
            check_reporting(self)
            factor = check_real("min_iter_factor", self.min_iter_factor, positive=True)
            if self.n_quadrature is not None:
                check_integer("n_quadrature", self.n_quadrature, least=1)
            tol = check_real("tol", self.tol, positive=True)
            max_iter = check_integer("max_iter", self.max_iter, least=1)
            n_threads = check_n_jobs(self.n_jobs)
            training = check_training(self, X, y, sample_weight)
            self.classes_ = learn_classes(training.y)
            labels = np.searchsorted(self.classes_, training.y).astype(np.int64)
            sums = np.bincount(labels, training.weights)
            self.class_prior_: FloatArray = sums / sums.sum()
            composite, layout = self._composite(training, n_threads)
            watch = FitReporter(self, layout, composite.n_basis, has_noise=False)
            with watch.fit() as step, one_blas_thread():
                task = Task(
                    composite=composite,
                    labels=labels,
                    n_classes=len(self.classes_),
                    row_weights=training.weights,
                    n_quadrature=self.n_quadrature,
                    n_threads=n_threads,
                    tol=tol,
                    min_iter=int(np.ceil(factor * len(training.X))),
                    max_iter=max_iter,
                    callback=step,
                )
                outcome = self._run(task)
                watch.end(outcome.status, len(outcome.path) - 1, len(outcome.columns), outcome.path[-1])
            self._publish(outcome, layout, training)
        return self

    def _composite(self, training: Training, n_threads: int | None) -> tuple[Composite, Layout]:
        """Return the dictionary and the names of its columns; publish the kernels."""
        _candidates.place(self, training)
        layout = self._layout(training)
        kernels = fit_kernels(self, training)
        self.kernel_ = as_given(self, kernels)
        if kernels:
            centres = _candidates.points(self, training, layout.kept)
            blocks = [evaluate(kernel, training.X, centres, n_threads) for kernel in kernels]
            if not all(np.isfinite(block).all() for block in blocks):
                raise ValueError("the kernel overflows on these rows; rescale X or the kernel")
        else:
            blocks = [training.X[:, layout.kept]]
        rows = None if _candidates.are_given(self) else np.searchsorted(training.rows, layout.kept)
        return Composite(blocks, layout.bias, rows), layout

    def _layout(self, training: Training) -> Layout:
        """Return the layout of the dictionary: the function that each column is."""
        size, kept = _candidates.block_size(self, training), _candidates.in_use(self, training)
        return Layout(check_flag("fit_intercept", self.fit_intercept), size, kept)

    def _publish(self, outcome: Outcome, layout: Layout, training: Training) -> None:
        self._n_samples = training.n_samples
        effective = None
        if outcome.sigma is not None:  # mRVM1, whose classes share alpha
            effective = float((1.0 - outcome.alpha * outcome.sigma.diagonal()).sum())
        self._row_summary = replace(RowSummary.of(training), n_effective=effective)
        self.active_, self.kernel_weights_ = layout.names(outcome.columns), outcome.kernel_weights
        self.alpha_, self.mu_ = outcome.alpha, outcome.mu
        self.n_iter_, self.status_ = len(outcome.path) - 1, outcome.status
        self.n_relevance_path_ = np.array(outcome.n_active)
        functions = self.active_ >= 0
        publish_relevance(self, training, self.active_[functions])
        self.dual_coef_ = self.mu_[functions].T
        #: Weights of the constant function.
        self._bias: FloatArray = self.mu_[~functions].sum(axis=0)
        publish_linear(self, self._bias)

    def _scores(self, X: ArrayLike) -> FloatArray:
        """Return the score of each class, w_c^T phi(x), (n, n_classes) in Fortran order."""
        (scores,) = by_blocks(self, X, lambda rows: (self._linear_predictor(rows),))
        return np.asfortranarray(scores)

    def _linear_predictor(self, X: FloatArray) -> FloatArray:
        weighted = zip(self.kernel_weights_, self._kernels(), strict=True)
        blocks = [b * at_relevance(self, kernel, X) for b, kernel in weighted if b > 0.0]
        return np.asarray(reduce(np.add, blocks) @ self.dual_coef_.T + self._bias)

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the scores :math:`w_c^T \phi(x)` of the classes.

        Of two classes the score of the second minus that of the first.

        {decision_sections}
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: ArrayLike, *, prior: PerRow = None) -> FloatArray:
        r"""Return class probabilities, :math:`P(i) = E_u \prod_{j \ne i} \Phi(u + f_i - f_j)`.

        Equation (1) of Psorakis et al. (2010), with u standard normal and f the scores, computed with
        ``n_quadrature`` nodes.

        Parameters
        ----------
        {X}
        {prior}

        Returns
        -------
        {probabilities}

        {predict_raises}
        """
        scores = self._scores(X)
        n_threads = check_n_jobs(self.n_jobs)
        p = _core.probit_probabilities(scores, n_nodes=self.n_quadrature, n_threads=n_threads)
        return with_prior(self, p, prior)

    def predict(self, X: ArrayLike, prior: PerRow = None) -> NDArray[Any]:
        """Predict the most probable class, without ``prior`` the one with the highest score.

        {predict_prior_sections}
        """
        scores = self._scores(X) if prior is None else self.predict_proba(X, prior=prior)
        winners = np.argmax(scores, axis=1)  # NotFittedError before there are classes
        labels: NDArray[Any] = self.classes_[winners]
        return labels

    def log_predictive_likelihood(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> float:
        r"""Return the mean log probability of the true classes: equation (23) of Psorakis et al. (2010).

        Parameters
        ----------
        {X}
        y : array-like of shape (n,)
            Labels out of ``classes_``.
        sample_weight : array-like of shape (n,), optional
            Weight of each row in the mean.

        Returns
        -------
        float
            In nats; 0 if every row is certain, :math:`-\ln C` for uniform probabilities.

        {predict_raises}
        """
        scores = self._scores(X)
        labels = any_array("y", y)
        if labels.shape != (len(scores),):
            raise ValueError(
                f"y must hold one label for each of {len(scores)} rows, got shape {labels.shape}"
            )
        known = are_known(labels, self.classes_)
        if not known.all():
            raise ValueError(
                f"y holds the label {labels[~known].tolist()[0]!r}, which fit did not see; labels must be "
                "among classes_"
            )
        numbers = np.searchsorted(self.classes_, labels).astype(np.int64)
        n_threads = check_n_jobs(self.n_jobs)
        _, log_p = _core.probit_expectations(scores, numbers, n_nodes=self.n_quadrature, n_threads=n_threads)
        weights = check_weights(sample_weight, len(scores))
        return float(np.average(log_p, weights=weights))


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class MRVM1(ProbitModel):
    r"""Multi-class relevance vector machine that adds functions: mRVM1 of Psorakis et al. (2010).

    Each class has a score :math:`w_c^T \phi(x)`; each row has an auxiliary target for each class, its score
    plus standard normal noise, and belongs to the class with the largest target. The weights of function i in
    all classes share one prior precision :math:`\alpha_i`. The fit alternates between replacing the targets
    by their expectations given the class (equations 3 and 4) and maximising the evidence of the targets over
    functions and precisions by the sequential scheme with :math:`\alpha_i = C s_i^2 / (\sum_c q_{ci}^2 - C
    s_i)` (equations 6 to 21). The few training rows that remain are prototypes of the classes.

    Parameters
    ----------
    {mrvm_kernel_parameters}
    convergence : {"conv2", "conv1"}, default="conv2"
        ``"conv1"``: stop once no function can be added or deleted and no :math:`\ln \alpha` changes by
        ``tol``. ``"conv2"``: moreover, not before ``min_iter_factor * n_samples`` iterations.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"conv2"``.
    {mrvm_candidates}
    tol : positive float, default=1e-6
        At convergence E-step and M-step together would change no :math:`\ln \alpha` by more.
    {run_parameters}

    Attributes
    ----------
    {mrvm_functions}
    alpha_ : ndarray of shape (n_active,)
        Prior precision of each function's weights.
    mu_ : ndarray of shape (n_active, n_classes)
        Posterior mean of the weights; it sums to zero over the classes.
    sigma_ : ndarray of shape (n_active, n_active)
        Posterior covariance of the weights of each class.
    {mrvm_attributes}
    n_iter_ : int
        Number of updates of a precision.
    status_ : str
        ``"converged"``; ``"empty"``: only the bias is left; ``"alpha_floor"``: a precision is at its lower
        bound; ``"max_iter"``; ``"stopped"`` by the callback; ``"stalled"``: rounding prevented convergence.
    log_marginal_likelihood_ : float
        Log evidence of the auxiliary targets at the end, equation (6).
    log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The log evidence at the start and after each iteration. Between M-steps it may fall, as the targets
        change.
    lower_bound_, lower_bound_path_ : float, ndarray
        Variational bound on the log evidence of the labels at the end, and after each E-step; it rises.

    Notes
    -----
    If the kernel is so narrow that all rows are independent, the model may end without functions: take a
    wider kernel (a smaller ``gamma``) or other units of X.

    {psorakis}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM1
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MRVM1(gamma=0.25).fit(X, y)
    >>> len(model.relevance_) < 10, model.score(X, y) > 0.95
    (True, True)
    """

    convergence: str = "conv2"

    def _run(self, task: Task) -> Outcome:
        rule = check_choice("convergence", self.convergence, ("conv1", "conv2"))
        return Constructive(task, at_once=rule == "conv1").run()

    def _publish(self, outcome: Outcome, layout: Layout, training: Training) -> None:
        super()._publish(outcome, layout, training)
        self.sigma_ = outcome.sigma
        self.log_marginal_likelihood_path_ = np.array(outcome.path)
        self.log_marginal_likelihood_ = outcome.path[-1]
        self.lower_bound_path_ = np.array(outcome.bounds)
        self.lower_bound_ = outcome.bounds[-1]

    def _problems(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Iterator[OutputsProblem]:
        """Yield the fit with its targets as arrays, for the certificate."""
        yield written_out(self, X, y, sample_weight)


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class MRVM2(ProbitModel):
    r"""Multi-class relevance vector machine that prunes functions: mRVM2 of Psorakis et al. (2010).

    As `MRVM1`, with a precision :math:`\alpha_{ic}` for each function and class, a Gamma prior of each, and
    weights at the maximum of their posterior. It begins with all functions, and alternately updates the
    weights (equation 2), the expectations of the auxiliary targets (3, 4) and those of the precisions,
    :math:`(2 \tau + 1) / (w_{ic}^2 + 2 \upsilon)` (5). A function is deleted for good once all its precisions
    exceed 1e5. Precisions are in the units of the kernel's values, which should be of order 1.

    Parameters
    ----------
    {mrvm_kernel_parameters}
    convergence : {"convA", "convN"}, default="convA"
        ``"convA"``: stop once no :math:`\ln \alpha` changes by ``tol``. ``"convN"``: stop after
        ``min_iter_factor * n_samples`` iterations.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"convN"``.
    tau, upsilon : positive float, default=1e-6
        Shape and rate of the Gamma prior of each precision. No precision exceeds :math:`(2 \tau + 1) / (2
        \upsilon)`, so with ``upsilon`` above 5e-6 nothing is pruned.
    prune : bool, default=True
        False: keep all functions, the paper's non-sparse E-M model.
    {mrvm_candidates}
    tol : positive float, default=1e-3
        Tolerance of ``"convA"``.
    {run_parameters}
        The evidence in a record is the log joint likelihood.

    Attributes
    ----------
    {mrvm_functions}
    alpha_ : ndarray of shape (n_active, n_classes)
        Expected precision of each weight.
    mu_ : ndarray of shape (n_active, n_classes)
        The weights.
    {mrvm_attributes}
    n_iter_ : int
        Number of iterations.
    status_ : str
        ``"converged"``; ``"empty"``: only the bias is left; ``"max_iter"``; ``"stopped"`` by the callback.
    log_joint_likelihood_, log_joint_likelihood_path_ : float, ndarray of shape (n_iter_ + 1,)
        Log of the joint density of labels and weights, up to a constant, at the end, and at the start and
        after each iteration. It rises, unless pruning deletes functions that matter.

    {psorakis}
    """

    convergence: str = "convA"
    tau: float = 1e-6
    upsilon: float = 1e-6
    prune: bool = True
    tol: float = 1e-3

    def _run(self, task: Task) -> Outcome:
        rule = check_choice("convergence", self.convergence, ("convA", "convN"))
        return TopDown(
            task,
            tau=check_real("tau", self.tau, positive=True),
            upsilon=check_real("upsilon", self.upsilon, positive=True),
            prune=check_flag("prune", self.prune),
            until_converged=rule == "convA",
        ).run()

    def _publish(self, outcome: Outcome, layout: Layout, training: Training) -> None:
        super()._publish(outcome, layout, training)
        self.log_joint_likelihood_path_ = np.array(outcome.path)
        self.log_joint_likelihood_ = outcome.path[-1]

    def _problems(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Iterator[OutputsProblem]:
        """Raise the TypeError that explains why there is no certificate."""
        raise TypeError(
            "est must be a model that maximises an evidence; MRVM2 has none to certify, as its weights "
            "maximise their posterior. See log_joint_likelihood_path_, or use MRVM1"
        )
