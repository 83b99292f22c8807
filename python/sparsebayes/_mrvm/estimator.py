"""What mRVM1 and mRVM2 share: a composite kernel about the candidates, class scores, probabilities."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .. import _core
from .._cancellable import one_blas_thread
from .._checks.arguments import check_flag, check_integer, check_n_jobs, check_real, check_watchers
from .._checks.numbers import check_predictions
from .._checks.targets import (
    Training,
    check_square,
    check_training,
    check_weights,
    check_X,
    learn_classes,
)
from .._data import candidates as _candidates
from .._data.design import Layout, evaluate
from .._estimators.kernel_basis import OnKernels, linear_in_x
from .._estimators.status import FEW, Seen
from .._progress import Watch
from .._types import Callback, Candidates, FloatArray, IntArray
from ..kernels import Linear
from ..kernels._resolve import is_precomputed
from .composite_kernel import Composite
from .updates import Outcome, Task

if TYPE_CHECKING:
    from typing_extensions import Self

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 8192


class ProbitMachine(ClassifierMixin, OnKernels):  # type: ignore[misc] # scikit-learn carries no types
    """A multinomial probit model over kernel functions about the candidates."""

    if TYPE_CHECKING:
        min_iter_factor: float
        n_quadrature: int | None
        candidates: Candidates
        random_state: Any
        tol: float
        n_jobs: int | None
        verbose: int
        callback: Callback | None

    @abstractmethod
    def _run(self, task: Task) -> Outcome:
        """Fit the machine."""

    @abstractmethod
    def _publish_paths(self, outcome: Outcome) -> None:
        """Publish what only this machine has."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Class labels of any type, at least two different ones.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or outside its domain; the message names it and the remedy.
        NumericalError
            If the arithmetic broke down on valid input.
        KeyboardInterrupt
            On Ctrl-C, within a second.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"`` or ``"stopped"``.
        OverfitWarning
            If the data determine more parameters of `MRVM1` than half of the rows; it is a
            ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _train_anew(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        check_watchers(self)
        factor = check_real("min_iter_factor", self.min_iter_factor, positive=True)
        if self.n_quadrature is not None:
            check_integer("n_quadrature", self.n_quadrature, least=1)
        tol = check_real("tol", self.tol, positive=True)
        max_iter = check_integer("max_iter", self.max_iter, least=1)
        n_threads = check_n_jobs(self.n_jobs)
        training = check_training(self, X, y, sample_weight, labels=True)
        self.classes_ = learn_classes(training.y)
        composite, layout = self._composite(training, n_threads)
        watch = Watch(self, layout, composite.n_basis, has_noise=False)
        with watch.fit() as step, one_blas_thread():
            task = Task(
                composite=composite,
                labels=np.searchsorted(self.classes_, training.y).astype(np.int64),
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

    def _composite(self, training: Training, n_threads: int | None) -> tuple[Composite, Layout]:
        """Return the dictionary and what its columns are called, and publish the kernels."""
        _candidates.place(self, training)
        layout = self._layout(training)
        if is_precomputed(self.kernel):
            check_square(training)
            self.kernel_ = "precomputed"
            blocks = [training.X[:, layout.kept]]
        else:
            kernels = self._resolve(training)
            self.kernel_ = self._as_given(kernels)
            centres = _candidates.points(self, training, layout.kept)
            blocks = [evaluate(kernel, training.X, centres, n_threads) for kernel in kernels]
            if not all(np.isfinite(block).all() for block in blocks):
                raise ValueError("the kernel overflows on these rows; rescale X or the kernel")
        rows = None if _candidates.are_given(self) else np.searchsorted(training.rows, layout.kept)
        return Composite(blocks, layout.bias, rows), layout

    def _layout(self, training: Training) -> Layout:
        """Return which column of the dictionary is which function."""
        size, kept = _candidates.block_size(self, training), _candidates.in_use(self, training)
        return Layout(check_flag("fit_intercept", self.fit_intercept), size, kept)

    def _is_empty(self) -> bool:
        return len(self.relevance_) == 0

    def _changes(self, X: FloatArray) -> FloatArray | None:
        if len(self.relevance_) > FEW:
            return None
        changes: FloatArray = self._relevance_functions(X) @ self.dual_coef_.T
        return changes

    def _publish(self, outcome: Outcome, layout: Layout, training: Training) -> None:
        self._n_samples = training.n_samples
        effective = None
        if outcome.sigma is not None:  # of mRVM1, whose classes share alpha
            effective = float((1.0 - outcome.alpha * outcome.sigma.diagonal()).sum())
        self._seen = replace(Seen.of(training), n_effective=effective)
        self.active_: IntArray = layout.names(outcome.columns)
        self.alpha_, self.mu_ = outcome.alpha, outcome.mu
        self.kernel_weights_ = outcome.kernel_weights
        self.n_iter_, self.status_ = len(outcome.path) - 1, outcome.status
        self.n_relevance_path_ = np.array(outcome.n_active)
        functions = self.active_ >= 0
        self.relevance_ = self.active_[functions]
        self.dual_coef_ = self.mu_[functions].T
        #: Weights of the constant function.
        self._bias: FloatArray = self.mu_[~functions].sum(axis=0)
        self.intercept_: FloatArray = self._bias
        for name in ("relevance_vectors_", "coef_"):
            self.__dict__.pop(name, None)  # of an earlier fit with another kernel
        if not is_precomputed(self.kernel_):
            self.relevance_vectors_ = _candidates.points(self, training, self.relevance_)
            if isinstance(self.kernel_, Linear):
                self.coef_, self.intercept_ = linear_in_x(
                    self.kernel_, self.dual_coef_, self.relevance_vectors_, self._bias
                )
        self._publish_paths(outcome)

    def _scores(self, X: ArrayLike) -> FloatArray:
        """Return the score of each class, w_c^T phi(x), (n, n_classes) in Fortran order."""
        check_is_fitted(self)
        values = check_X(self, X, reset=False)
        scores = np.empty((len(values), len(self.classes_)), order="F")
        for start in range(0, len(values), _PREDICT_ROWS):
            part = slice(start, start + _PREDICT_ROWS)
            with np.errstate(over="ignore", invalid="ignore"):  # said below
                scores[part] = self._relevance_functions(values[part]) @ self.dual_coef_.T + self._bias
        check_predictions("X", scores)
        return scores

    def _relevance_functions(self, X: FloatArray) -> FloatArray:
        """Return the composite kernel between these rows and the relevance vectors."""
        if is_precomputed(self.kernel_):
            values: FloatArray = X[:, self.relevance_]
            return values
        n_threads = check_n_jobs(self.n_jobs)
        weighted = (
            b * evaluate(kernel, X, self.relevance_vectors_, n_threads)
            for b, kernel in zip(self.kernel_weights_, self._kernels(), strict=True)
            if b > 0.0
        )
        return reduce(np.add, weighted)

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the scores :math:`w_c^T \phi(x)` of the classes.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the score of the second less that of the first. More: a column for each class.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        r"""Return class probabilities, :math:`P(i) = E_u \prod_{j \ne i} \Phi(u + f_i - f_j)`.

        Equation (1) of Psorakis et al. (2010): u is standard normal and f the scores. By ``n_quadrature``
        nodes.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns as in ``classes_``; rows sum to 1.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        scores = self._scores(X)
        n_threads = check_n_jobs(self.n_jobs)
        return _core.probit_probabilities(scores, n_nodes=self.n_quadrature, n_threads=n_threads)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class: the one with the highest score.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n,)
            Labels out of ``classes_``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        numbers = np.argmax(self._scores(X), axis=1)
        labels: NDArray[Any] = self.classes_[numbers]
        return labels

    def log_predictive_likelihood(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        r"""Return the mean log probability of the true classes: equation (23) of Psorakis et al. (2010).

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        y : array-like of shape (n,)
            Labels out of ``classes_``.
        sample_weight : array-like of shape (n,), optional
            Weight of each row in the mean.

        Returns
        -------
        float
            In nats; 0 where every row is certain, :math:`-\ln C` for a uniform guess.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X or sample_weight is not what it should be, or y holds labels that ``fit`` did not see.
        """
        scores = self._scores(X)
        labels = np.asarray(y)
        if labels.shape != (len(scores),):
            raise ValueError(
                f"y must hold one label for each of {len(scores)} rows, got shape {labels.shape}"
            )
        known = np.isin(labels, self.classes_)
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
