"""What the relevance eigen-vector machines share: a kernel dictionary, fits of targets to it, predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._cancellable import in_background
from .._checks.arguments import check_flag, check_integer, check_n_jobs
from .._checks.numbers import check_predictions
from .._checks.targets import Training, check_square, check_training, check_X, distinct_rows
from .._data.design import DenseDesign, Layout, evaluate
from .._estimators.kernel_basis import OnKernels, linear_in_x
from .._estimators.status import FEW, REMEDIES, Seen
from .._progress import LOG, progress_bar, title
from .._types import FloatArray, IntArray
from ..kernels import Linear
from ..kernels._resolve import is_precomputed
from .eigen import Axes, Prior, Rules, Solution, axes
from .guard import check_axes, check_solution, in_range
from .modes import Pulse

#: How a fit may end, best first, and what to do about it.
_REMEDIES = {
    "converged": "",
    "empty": "",
    "noise_floor": REMEDIES["noise_floor"],
    "max_iter": "max_iter={max_iter} steps were not enough. Raise max_iter or tol",
}

#: Bound of the values of the dictionary.
_LARGEST = 1e150

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 2048


class EigenMachine(OnKernels):
    """Template of the relevance eigen-vector machines."""

    if TYPE_CHECKING:
        n_jobs: int | None
        verbose: int
        # After a fit.
        relevance_: IntArray
        relevance_vectors_: FloatArray
        dual_coef_: FloatArray
        intercept_: FloatArray
        _bias: FloatArray
        _directions: FloatArray

    _remedies = _REMEDIES
    #: Whether y holds class labels.
    _labels: ClassVar[bool]
    _prior: ClassVar[Prior]

    @abstractmethod
    def _rules(self) -> Rules:
        """Return the settings, checked."""

    @abstractmethod
    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        """Fit each target; publishes what belongs to the likelihood."""

    def _train_anew(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        check_n_jobs(self.n_jobs)
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, least=0)
        rules = self._rules()
        training = check_training(self, X, y, sample_weight, labels=self._labels)
        n_rows = len(training.X)
        weights = np.ones(n_rows) if training.weights is None else training.weights
        Phi = self._dictionary(training)
        if not np.abs(Phi).max() < _LARGEST:
            raise ValueError(
                f"kernel values must be below {_LARGEST:g} in size, or squares overflow; scale X or change "
                "the kernel"
            )
        found = check_axes(in_background(in_range(lambda pulse: axes(Phi, weights, pulse))))
        self._publish(self._solve(found, training, rules), training)

    def _dictionary(self, training: Training) -> FloatArray:
        """Return the N x M dictionary: the bias, then the functions of each kernel. Publishes the kernels."""
        rows = training.rows if is_precomputed(self.kernel) else distinct_rows(training)
        n_kernels = len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1
        layout = Layout(check_flag("fit_intercept", self.fit_intercept), training.n_samples, rows, n_kernels)
        self.relevance_ = layout.kept
        self.__dict__.pop("relevance_vectors_", None)  # of an earlier fit with another kernel
        if is_precomputed(self.kernel):
            check_square(training)
            self.kernel_ = "precomputed"
            return DenseDesign([training.X[:, layout.kept]], layout).Phi
        kernels = self._resolve(training)
        self.kernel_ = self._as_given(kernels)
        self.relevance_vectors_ = training.at(layout.kept)
        return DenseDesign(self._blocks(training.X), layout).Phi

    def _blocks(self, X: FloatArray) -> list[FloatArray]:
        """Return the functions of each kernel at these rows, each (n, n_relevance)."""
        if is_precomputed(self.kernel_):
            return [X[:, self.relevance_]]
        n_threads = check_n_jobs(self.n_jobs)
        return [evaluate(kernel, X, self.relevance_vectors_, n_threads) for kernel in self._kernels()]

    def _fit_one(self, work: Callable[[Pulse], Solution], k: int = 1, n: int = 1) -> Solution:
        """Return what the ``k``-th fit of ``n`` finds, and show and log it."""
        name = title(self, k, n)
        LOG.debug("%s: fit begun", name)
        with progress_bar(self.verbose, name, "steps") as show:
            found = check_solution(in_background(in_range(work), show))
            note = f"{found.n_effective} of {len(found.alpha)} eigenvectors"
            LOG.info("%s: %s after %d steps, %s", name, found.status, found.n_iter, note)
            if show is not None:
                show(found.n_iter, f"{note}, {found.status}")
        return found

    def _is_empty(self) -> bool:
        return not np.any(self.n_effective_)

    def _changes(self, X: FloatArray) -> FloatArray | None:
        if np.max(self.n_effective_) > FEW:
            return None
        changes: FloatArray = np.hstack(self._blocks(X)) @ self.dual_coef_.T
        return changes

    def _publish(self, solutions: list[Solution], training: Training) -> None:
        w = np.stack([solution.w for solution in solutions])
        #: Weights of the constant function.
        self._bias = w[:, 0].copy() if self.fit_intercept else np.zeros(len(w))
        self.intercept_ = self._bias
        self.dual_coef_ = w[:, int(bool(self.fit_intercept)) :]
        eigenvalues = np.stack([solution.eigenvalues for solution in solutions], axis=1)
        alpha = np.stack([solution.alpha for solution in solutions], axis=1)
        effective = np.array([solution.n_effective for solution in solutions])
        one = len(solutions) == 1
        self.eigenvalues_ = eigenvalues[:, 0] if one else eigenvalues
        self.alpha_ = alpha[:, 0] if one else alpha
        self.n_effective_ = int(effective[0]) if one else effective
        self.ridge_ = solutions[0].ridge if one else np.array([solution.ridge for solution in solutions])
        self._seen = replace(Seen.of(training), n_effective=float(effective.max()))
        self.n_iter_ = sum(solution.n_iter for solution in solutions)
        self.status_ = max((solution.status for solution in solutions), key=list(_REMEDIES).index)
        self.__dict__.pop("coef_", None)
        if isinstance(self.kernel_, Linear):
            self.coef_, self.intercept_ = linear_in_x(
                self.kernel_, self.dual_coef_, self.relevance_vectors_, self._bias
            )

    def _predictor(self, X: ArrayLike, *, uncertain: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the linear predictors, (n, n_outputs), and the uncertain directions there, (n, p)."""
        check_is_fitted(self)
        values = check_X(self, X, reset=False)
        directions = self._directions if uncertain else np.empty((self.dual_coef_.shape[1], 0))
        n_bias = len(directions) - self.dual_coef_.shape[1]
        eta = np.empty((len(values), len(self.dual_coef_)))
        along = np.empty((len(values), directions.shape[1]))
        for start in range(0, len(values), _PREDICT_ROWS):
            part = slice(start, start + _PREDICT_ROWS)
            phi = np.hstack(self._blocks(values[part]))
            with np.errstate(over="ignore", invalid="ignore"):
                eta[part] = phi @ self.dual_coef_.T + self._bias
                along[part] = phi @ directions[n_bias:] + directions[:n_bias].sum(axis=0)
        check_predictions("X", eta, along)
        return eta, along
