"""Multinomial probit models of several kernels: `MRVM1` adds functions, `MRVM2` prunes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._cancellable import one_blas_thread
from ._checks.arguments import check_flag, check_integer, check_n_jobs, check_real, check_reporting
from ._checks.numbers import check_predictions
from ._checks.targets import (
    Training,
    check_square,
    check_training,
    check_weights,
    check_X,
    learn_classes,
)
from ._data import candidates as _candidates
from ._data.design import Layout, evaluate
from ._estimators.basis import KernelEstimator, linear_in_x
from ._estimators.status import FEW, Seen
from ._mrvm.kernel_weights import Composite
from ._mrvm.updates import Constructive, Outcome, Task, TopDown
from ._progress import Watch
from ._types import Callback, Candidates, FloatArray, IntArray, KernelSpec, OutputsProblem
from .inspection._probit import written_out
from .kernels import Linear
from .kernels._resolve import is_precomputed

if TYPE_CHECKING:
    from typing_extensions import Self


#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 8192


class ProbitModel(ClassifierMixin, KernelEstimator):  # type: ignore[misc] # scikit-learn carries no types
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
        check_reporting(self)
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


__all__ = ["MRVM1", "MRVM2"]


def _check_convergence(value: object, rules: tuple[str, str]) -> str:
    if isinstance(value, str) and value in rules:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"convergence must be {rules[0]!r} or {rules[1]!r}, got {value!r}")


class MRVM1(ProbitModel):
    r"""Multi-class relevance vector machine that builds its model up: mRVM1 of Psorakis et al. (2010).

    Each class has a score :math:`w_c^T \phi(x)`; each row has an auxiliary target for each class, its score
    plus standard normal noise, and belongs to the class whose target is largest. The weights of function i
    in all classes have one prior precision :math:`\alpha_i`. In turns the targets are replaced by their
    expectations given the class (equations 3 and 4), and the evidence of the targets is maximised over
    functions and precisions by the sequential scheme with :math:`\alpha_i = C s_i^2 / (\sum_c q_{ci}^2 - C
    s_i)` (equations 6 to 21). A handful of training rows remain, prototypes of the classes.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        As for `RVC`. A list makes one composite kernel, a convex combination whose weights are learned;
        `sparsebayes.kernels.OnColumns` gives each kernel columns of its own.
    gamma : {"scale", "auto"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias. Like any other function it may be pruned.
        The paper has none.
    convergence : {"conv2", "conv1"}, default="conv2"
        ``"conv1"``: once every function in the model contributes, none outside does, and no
        :math:`\ln \alpha` changes by ``tol``. ``"conv2"``: not before ``min_iter_factor * n_samples``
        iterations either.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"conv2"``.
    n_quadrature : int, optional
        Nodes for each integral over the likelihood. None: 16 for up to 14 classes and 24 beyond, which give
        probabilities to 1e-6.
    candidates : int or array-like of shape (n_candidates, n_features), optional
        Centres of the kernel functions in the dictionary, as for `RVC`. None: every training row. An int:
        that many training rows, or all where there are no more, spread over the inputs by k-means++. An
        array: its rows, which need not be training rows. With ``kernel="precomputed"`` an int chooses columns
        of X, and an array is an error.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice that an integer ``candidates`` asks for; an int makes it the same in every fit.
        Nothing else is random.
    tol : positive float, default=1e-6
        At convergence E-step and M-step together would change no :math:`\ln \alpha` by more.
    max_iter : int, default=100_000
        Largest number of iterations.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each iteration; returning True stops the fit with the
        model as it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the training row, and -1 for the bias.
    alpha_ : ndarray of shape (n_active,)
        Prior precision of each function's weights.
    mu_ : ndarray of shape (n_active, n_classes)
        Posterior mean of the weights; it sums to zero over the classes.
    sigma_ : ndarray of shape (n_active, n_active)
        Posterior covariance of the weights of each class.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_classes, n_relevance)
        Their weights.
    intercept_ : ndarray of shape (n_classes,)
        Constant of each score, as for `RVR`.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernels with all their parameters.
    kernel_weights_ : ndarray of shape (n_kernels,)
        Their convex combination: none negative, sum 1.
    candidates_ : ndarray of shape (n_candidates, n_features)
        The centres, chosen or given; only with ``candidates``, and not with ``kernel="precomputed"``. Where
        they were given, ``active_`` and ``relevance_`` count rows of this array in place of training rows.
    candidate_rows_ : ndarray of shape (n_candidates,), int
        The training rows chosen, ascending; only where ``candidates`` is an int.
    n_iter_ : int
        Updates of a precision.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias;
        ``"alpha_floor"``: likewise, but a precision is at its floor; ``"max_iter"``; ``"stopped"`` by the
        callback; ``"stalled"``: rounding stood in the way.
    log_marginal_likelihood_ : float
        Log evidence of the auxiliary targets at the end, equation (6).
    log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The same at the start and after each iteration. Within an M-step it does not fall; from one to the
        next the targets change, and with them what it is the evidence of.
    lower_bound_path_ : ndarray
        After each E-step, the variational bound on the log evidence of the labels that E- and M-steps raise.
    lower_bound_ : float
        Its last value.
    n_relevance_path_ : ndarray of shape (n_iter_ + 1,), int
        Functions in the model.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    The model may end without functions, every class being equally probable everywhere: by its evidence the
    kernel links no rows of a class. So it is with kernels so narrow that each row stands alone, where a wider
    one (a smaller ``gamma``) or other units of X are what helps, and with two rows in all.

    References
    ----------
    I. Psorakis, T. Damoulas and M. Girolami, "Multiclass relevance vector machines: sparsity and accuracy",
    IEEE Transactions on Neural Networks 21(10), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM1
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MRVM1(gamma=0.25).fit(X, y)
    >>> len(model.relevance_) < 10, model.score(X, y) > 0.95
    (True, True)
    """

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        convergence: str = "conv2",
        min_iter_factor: float = 1,
        n_quadrature: int | None = None,
        candidates: Candidates = None,
        random_state: int | np.random.RandomState | None = None,
        tol: float = 1e-6,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.convergence = convergence
        self.min_iter_factor = min_iter_factor
        self.n_quadrature = n_quadrature
        self.candidates = candidates
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _run(self, task: Task) -> Outcome:
        rule = _check_convergence(self.convergence, ("conv1", "conv2"))
        return Constructive(task, at_once=rule == "conv1").run()

    def _publish_paths(self, outcome: Outcome) -> None:
        self.sigma_ = outcome.sigma
        self.log_marginal_likelihood_path_ = np.array(outcome.path)
        self.log_marginal_likelihood_ = outcome.path[-1]
        self.lower_bound_path_ = np.array(outcome.bounds)
        self.lower_bound_ = outcome.bounds[-1]

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Iterator[OutputsProblem]:
        """Yield the fit with its targets written out, for its certificate."""
        yield written_out(self, X, y, sample_weight)


class MRVM2(ProbitModel):
    r"""Multi-class relevance vector machine that prunes its model down: mRVM2 of Psorakis et al. (2010).

    As `MRVM1`, with a precision :math:`\alpha_{ic}` for each function and class, a Gamma prior of each, and
    weights at the maximum of their posterior. It begins with all functions; in turns come the weights
    (equation 2), the expectations of the auxiliary targets (3, 4) and those of the precisions, :math:`(2
    \tau + 1) / (w_{ic}^2 + 2 \upsilon)` (5). Functions leave once all their precisions exceed 1e5, and do
    not come back. Precisions are in the units of the kernel's values, which should be of order 1.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        As for `RVC`. A list makes one composite kernel, a convex combination whose weights are learned;
        `sparsebayes.kernels.OnColumns` gives each kernel columns of its own.
    gamma : {"scale", "auto"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias. The paper has none.
    convergence : {"convA", "convN"}, default="convA"
        ``"convA"``: once no :math:`\ln \alpha` changes by ``tol``. ``"convN"``: after ``min_iter_factor *
        n_samples`` iterations.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"convN"``.
    tau, upsilon : positive float, default=1e-6
        Shape and rate of the Gamma prior of each precision. No precision exceeds :math:`(2 \tau + 1) / (2
        \upsilon)`, so with ``upsilon`` above 5e-6 nothing is pruned.
    prune : bool, default=True
        False: all functions stay, the paper's non-sparse E-M model.
    n_quadrature : int, optional
        Nodes for each integral over the likelihood. None: 16 for up to 14 classes and 24 beyond, which give
        probabilities to 1e-6.
    candidates : int or array-like of shape (n_candidates, n_features), optional
        Centres of the kernel functions in the dictionary, as for `RVC`. None: every training row. An int:
        that many training rows, or all where there are no more, spread over the inputs by k-means++. An
        array: its rows, which need not be training rows. With ``kernel="precomputed"`` an int chooses columns
        of X, and an array is an error.
    random_state : int, RandomState instance or None, default=None
        Of the choice that an integer ``candidates`` asks for; an int makes it the same in every fit. Nothing
        else is random.
    tol : positive float, default=1e-3
        Of ``"convA"``.
    max_iter : int, default=100_000
        Largest number of iterations.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each iteration (its evidence is the log joint
        likelihood); returning True stops the fit with the model as it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the training row, and -1 for the bias.
    alpha_ : ndarray of shape (n_active, n_classes)
        Expected precision of each weight.
    mu_ : ndarray of shape (n_active, n_classes)
        The weights.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_classes, n_relevance)
        Their weights.
    intercept_ : ndarray of shape (n_classes,)
        Constant of each score, as for `RVR`.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernels with all their parameters.
    kernel_weights_ : ndarray of shape (n_kernels,)
        Their convex combination: none negative, sum 1.
    candidates_ : ndarray of shape (n_candidates, n_features)
        The centres, chosen or given; only with ``candidates``, and not with ``kernel="precomputed"``. Where
        they were given, ``active_`` and ``relevance_`` count rows of this array in place of training rows.
    candidate_rows_ : ndarray of shape (n_candidates,), int
        The training rows chosen, ascending; only where ``candidates`` is an int.
    n_iter_ : int
        Iterations.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias;
        ``"max_iter"``; or ``"stopped"`` by the callback.
    log_joint_likelihood_ : float
        Log of the joint density of labels and weights at the end, up to a constant; precisions and auxiliary
        targets are integrated out.
    log_joint_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The same at the start and after each iteration. It does not fall, unless pruning takes functions that
        matter: those of a kernel whose values are so large that small weights do.
    n_relevance_path_ : ndarray of shape (n_iter_ + 1,), int
        Functions in the model.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    References
    ----------
    I. Psorakis, T. Damoulas and M. Girolami, "Multiclass relevance vector machines: sparsity and accuracy",
    IEEE Transactions on Neural Networks 21(10), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM2
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MRVM2(gamma=0.25).fit(X, y)
    >>> len(model.relevance_) < 15, model.score(X, y) > 0.95
    (True, True)
    """

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        convergence: str = "convA",
        min_iter_factor: float = 1,
        tau: float = 1e-6,
        upsilon: float = 1e-6,
        prune: bool = True,
        n_quadrature: int | None = None,
        candidates: Candidates = None,
        random_state: int | np.random.RandomState | None = None,
        tol: float = 1e-3,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.convergence = convergence
        self.min_iter_factor = min_iter_factor
        self.tau = tau
        self.upsilon = upsilon
        self.prune = prune
        self.n_quadrature = n_quadrature
        self.candidates = candidates
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _run(self, task: Task) -> Outcome:
        rule = _check_convergence(self.convergence, ("convA", "convN"))
        return TopDown(
            task,
            tau=check_real("tau", self.tau, positive=True),
            upsilon=check_real("upsilon", self.upsilon, positive=True),
            prune=check_flag("prune", self.prune),
            until_still=rule == "convA",
        ).run()

    def _publish_paths(self, outcome: Outcome) -> None:
        self.log_joint_likelihood_path_ = np.array(outcome.path)
        self.log_joint_likelihood_ = outcome.path[-1]

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Iterator[OutputsProblem]:
        """Say why there is no certificate."""
        raise TypeError(
            "est must be a machine that maximises an evidence; MRVM2 has none to certify, its weights are a "
            "maximum of their posterior. See log_joint_likelihood_path_, or use MRVM1"
        )
