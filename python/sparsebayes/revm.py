"""Relevance eigenvector models (Kropotov & Vetrov 2007): priors along the eigenvectors of the Hessian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ._cancellable import in_background
from ._checks.arguments import check_flag, check_integer, check_n_jobs, check_real
from ._checks.numbers import check_predictions
from ._checks.targets import Training, check_square, check_training, check_X, distinct_rows, learn_classes
from ._core import NumericalError
from ._data.design import DenseDesign, Layout, evaluate
from ._estimators.basis import KernelEstimator, linear_in_x
from ._estimators.probabilities import normalised
from ._estimators.status import FEW, REMEDIES, Seen
from ._progress import LOG, progress_bar, title
from ._revm.eigen import Approximation, Axes, Prior, Rules, Solution, axes, classify, regress
from ._revm.modes import Pulse
from ._types import FloatArray, IntArray, KernelSpec
from .kernels import Linear
from .kernels._resolve import is_precomputed

if TYPE_CHECKING:
    from typing_extensions import Self


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


class EigenModel(KernelEstimator):
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


_Result = TypeVar("_Result")

_REMEDY = "scale X and y, give less unequal sample weights, or change the kernel, ridge or noise_variance"


def in_range(work: Callable[[Pulse], _Result]) -> Callable[[Pulse], _Result]:
    """Return ``work`` that raises NumericalError where it cannot go on, and is silent on the way.

    What it returns may have infinities: see `check_solution`.
    """

    def guarded(pulse: Pulse) -> _Result:
        # Here, as before NumPy 2 each thread has an error state of its own.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                return work(pulse)
            except (LinAlgError, OverflowError) as error:
                raise NumericalError(f"the arithmetic of the fit broke down ({error}); {_REMEDY}") from None

    return guarded


def check_axes(found: Axes) -> Axes:
    """Return the axes of a dictionary; NumericalError if they are not finite."""
    if not np.isfinite(found.squares).all():
        raise NumericalError(f"the squares of the functions left the range of numbers; {_REMEDY}")
    return found


def check_solution(found: Solution) -> Solution:
    """Return what a fit found; NumericalError if it is not finite."""
    parts = (found.eigenvalues, found.w, found.directions, found.variances, found.ridge, found.beta)
    finite = all(np.isfinite(part).all() for part in parts)
    if not finite or not found.beta > 0.0 or np.isnan(found.alpha).any():
        raise NumericalError(f"the arithmetic of the fit left the range of numbers; {_REMEDY}")
    return found


class EigenClassifier(ClassifierMixin, EigenModel):  # type: ignore[misc] # scikit-learn carries no types
    """Two classes in one fit; more as one against the rest."""

    if TYPE_CHECKING:
        classes_: NDArray[Any]

    _labels = True
    _approximation: ClassVar[Approximation] = "laplace"

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        ridge: float = 3e-3,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose

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
        KeyboardInterrupt
            On Ctrl-C, within a second; what LAPACK has begun it ends in the background.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"``.
        OverfitWarning
            If effective eigenvectors are more than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _rules(self) -> Rules:
        return Rules(
            prior=self._prior,
            approximation=self._approximation,
            ridge=check_real("ridge", self.ridge, positive=True),
            tol=check_real("tol", self.tol, positive=True),
            max_iter=check_integer("max_iter", self.max_iter, least=1),
        )

    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        self.classes_ = learn_classes(training.y)
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        solutions = []
        for k, label in enumerate(positive):
            sign = np.where(training.y == label, 1.0, -1.0)
            solutions.append(self._fit_one(partial(classify, axes, sign, rules), k + 1, len(positive)))
        return solutions

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the linear predictor at the maximum of the posterior, :math:`w_{MP}^T \phi(x)`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        eta, _ = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities: the sigmoid of the decision function.

        As in the paper (section 2.2) they are those of the most probable weights. With more than two classes
        they are divided by their sum.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            As for ``decision_function``.

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
        logits, _ = self._predictor(X)
        return normalised(logits)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            As for ``decision_function``.

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
        eta, _ = self._predictor(X)
        winners = (eta[:, 0] > 0.0).astype(np.intp) if eta.shape[1] == 1 else np.argmax(eta, axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels


class EigenRegressor(RegressorMixin, EigenModel):  # type: ignore[misc] # scikit-learn carries no types
    """One target; its noise is estimated unless it is given."""

    _labels = False

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        noise_variance: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or outside its domain; the message names it and the remedy.
        KeyboardInterrupt
            On Ctrl-C, within a second; what LAPACK has begun it ends in the background.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"``.
        OverfitWarning
            If effective eigenvectors are more than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _rules(self) -> Rules:
        given = self.noise_variance
        try:
            noise = None if given is None else check_real("noise_variance", given, positive=True)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; leave it None to have it estimated") from None
        return Rules(prior=self._prior, noise_variance=noise)

    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        _check_size(training.y)
        weights = None if training.weights is None else training.weights / training.weights.max()
        mean = float(np.average(training.y, weights=weights))
        square = float(np.average(training.y**2, weights=weights))
        # With a bias the mean is no part of the model, or large ones would widen the prior of all weights.
        self._mean = mean if self.fit_intercept else 0.0
        targets = training.y - self._mean
        variance = float(np.average((training.y - mean) ** 2, weights=weights)) or square or 1.0
        found = self._fit_one(lambda pulse: regress(axes, targets, variance, rules))
        self.beta_, self.noise_variance_ = found.beta, 1.0 / found.beta
        self._directions, self._variances = found.directions, found.variances
        return [found]

    def _publish(self, solutions: list[Solution], training: Training) -> None:
        super()._publish(solutions, training)
        self._bias = self._bias + self._mean
        self.intercept_ = self.intercept_ + self._mean

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> FloatArray: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[FloatArray, FloatArray]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        return_std : bool, default=False
            Whether to return the predictive standard deviation too: noise, and the posterior variances along
            the relevant eigenvectors.

        Returns
        -------
        mean : ndarray of shape (n,)
            At the maximum of the posterior.
        std : ndarray of shape (n,)
            Only if ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        if not check_flag("return_std", return_std):
            return self._predictor(X)[0][:, 0]
        mean, along = self._predictor(X, uncertain=True)
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self.noise_variance_ + along**2 @ self._variances)
        check_predictions("X", std)
        return mean[:, 0], std


def _check_size(y: FloatArray) -> None:
    """Refuse targets whose squares leave the range of numbers."""
    largest = 1e150
    size = float(np.abs(y).max())
    if size and not 1.0 / largest / 1e2 <= size <= largest * 1e2:
        raise ValueError(
            f"y holds values up to {size:g}, whose square is out of range; rescale y to values between "
            f"{1 / largest:g} and {largest:g}"
        )


__all__ = ["GREVM", "LREVM", "VGREVM", "GREVMRegressor", "LREVMRegressor"]


class GREVM(EigenClassifier):
    r"""Gaussian relevance eigen-vector machine: classification with a prior along each eigenvector.

    A logistic model on kernel functions about all training rows, :math:`P(y = 1) = \sigma(w^T \phi(x))`, as
    in `RVC`; but it is not each weight that has a prior precision of its own: the coordinates
    :math:`u = Q w` along the eigenvectors of the negative Hessian of the log likelihood at its maximum have.
    Then the evidence is a product over the eigenvectors, and each precision is known in one step (algorithm 1
    of Kropotov & Vetrov 2007): with eigenvalue :math:`h_i`

    .. math:: \alpha_i = h_i / (h_i u_i^2 - 1) \text{ if } h_i u_i^2 > 1, \text{ else } \infty.

    Infinity takes the eigenvector out of the model. What is sparse is the number of degrees of freedom: the
    weights of all training rows differ from zero.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        ``"rbf"``, ``"laplacian"``, ``"poly"``, ``"linear"``, ``"sigmoid"``, ``"linear_spline"``; an object of
        `sparsebayes.kernels`; a callable ``k(X, Z) -> (n, m)``; or ``"precomputed"``: X holds kernel values.
        A list makes a dictionary of every kernel about every training row.
    gamma : {"scale", "auto"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias.
    ridge : positive float, default=3e-3
        Precision of the weak common prior under which the maximum of the likelihood is taken, in units of the
        mean curvature at w = 0, trace(Phi^T Phi) / (4 M). See Notes.
    tol : positive float, default=1e-8
        Maxima are found to within this many standard deviations of the posterior; those under a Laplace prior
        satisfy the Kuhn-Tucker conditions to this share of the prior's slope.
    max_iter : int, default=1000
        Largest number of steps of each search.
    n_jobs : int, optional
        Threads that evaluate kernels; None or -1: one per core. The rest uses one thread. The result does not
        depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    eigenvalues_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
        Eigenvalues h of the negative Hessian of the log likelihood, descending; with more than two classes a
        column for each. ``n_basis`` is the number of functions: of distinct training rows and the bias.
    alpha_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
        Prior precision along each eigenvector; inf where that is irrelevant.
    n_effective_ : int or ndarray of shape (n_classes,)
        Number of coordinates u that are not zero.
    ridge_ : float or ndarray of shape (n_classes,)
        Precision of the weak prior, in the units of the weights.
    dual_coef_ : ndarray of shape (1 or n_classes, n_relevance)
        Weights of the kernel functions; of several kernels one after the other.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, as for `RVR`.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows that functions stand about: all that differ.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernel with all its parameters.
    n_iter_ : int
        Steps taken, in all searches.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no eigenvector is relevant at any ridge; ``"max_iter"``.
        Of several fits the worst.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    A kernel function for each row separates the classes unless it is wide, and the likelihood then has no
    maximum: it rises for ever while its Hessian vanishes, h u^2 with it, and without a ridge nothing would be
    relevant. Where the maximum exists the ridge does not show as long as it is small. Where it does not, the
    ridge decides how far the weights go. If at the ridge given the likelihood is so flat that nothing is
    relevant, it is raised tenfold until something is, at most beyond 10; ``ridge_`` is what was used.

    A fit takes N^3 operations and the memory of a few N x N matrices.

    References
    ----------
    D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
    learning. ICML, 457-464.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GREVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=100) > 0, "same", "different")
    >>> model = GREVM().fit(X, y)
    >>> model.status_, model.n_effective_ < 20, len(model.alpha_)
    ('converged', True, 101)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array(['same', 'different'], dtype='<U9')
    """

    _prior = "gaussian"


class LREVM(EigenClassifier):
    r"""Laplacian relevance eigen-vector machine: `GREVM` with a prior that sets coordinates to zero.

    The prior along each eigenvector is :math:`(\alpha_i / 4) e^{-\alpha_i |u_i| / 2}` (algorithm 2 of
    Kropotov & Vetrov 2007). Its parameter maximises the evidence of that eigenvector (their equation 13),
    which has a finite maximum under the same condition, :math:`h_i u_i^2 > 1`. The posterior is then
    maximised within the octant of the likelihood's maximum, where many coordinates end at exactly zero.

    Parameters
    ----------
    kernel, gamma, degree, coef0, fit_intercept, ridge, tol, max_iter, n_jobs, verbose
        As for `GREVM`.

    Attributes
    ----------
    alpha_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
        Parameter of the prior along each eigenvector; inf where that is irrelevant. A coordinate may be zero
        where it is finite.
    n_effective_ : int or ndarray of shape (n_classes,)
        Number of coordinates u that are not zero.
    classes_, eigenvalues_, ridge_, dual_coef_, intercept_, coef_, relevance_, relevance_vectors_, kernel_
        As for `GREVM`.
    n_iter_, status_, n_features_in_, feature_names_in_
        As for `GREVM`.

    References
    ----------
    D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
    learning. ICML, 457-464.

    D. P. Bertsekas (1982). Projected Newton methods for optimization problems with simple constraints. SIAM
    Journal on Control and Optimization 20, 221-246.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GREVM, LREVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=100) > 0
    >>> model = LREVM().fit(X, y)
    >>> model.n_effective_ < GREVM().fit(X, y).n_effective_
    True
    """

    _prior = "laplace"


class VGREVM(EigenClassifier):
    r"""`GREVM` about the Gaussian closest to the likelihood, in place of the Laplace approximation.

    That Gaussian minimises the divergence :math:`KL(N(\mu, -H^{-1}) \,\|\, P(T | X, w))` of Kropotov & Vetrov
    (2007), section 4. From there on :math:`\mu` takes the place of the maximum of the likelihood, and the
    eigenvectors are those of H. It takes several times as long as `GREVM`.

    Parameters
    ----------
    kernel, gamma, degree, coef0, fit_intercept, ridge, tol, max_iter, n_jobs, verbose
        As for `GREVM`. A likelihood of separable classes has no closest Gaussian either; with the ridge,
        which H does not hold, it has.

    Attributes
    ----------
    classes_, eigenvalues_, alpha_, n_effective_, ridge_, dual_coef_, intercept_, coef_, relevance_
        As for `GREVM`.
    relevance_vectors_, kernel_, n_iter_, status_, n_features_in_, feature_names_in_
        As for `GREVM`.

    References
    ----------
    D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
    learning. ICML, 457-464.

    M. Opper and C. Archambeau (2009). The variational Gaussian approximation revisited. Neural Computation
    21, 786-792.

    M. E. Khan and W. Lin (2017). Conjugate-computation variational inference. AISTATS.

    J. F. Monahan and L. A. Stefanski (1992). Normal scale mixture approximations to F*(z) and computation of
    the logistic-normal integral. Handbook of the Logistic Distribution, 529-540.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import VGREVM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=60) > 0
    >>> VGREVM().fit(X, y).predict([[1.0, 1.0], [1.0, -1.0]])
    array([ True, False])
    """

    _prior = "gaussian"
    _approximation = "variational"


class GREVMRegressor(EigenRegressor):
    r"""Regression with a Gaussian prior along each eigenvector of the likelihood's Hessian.

    The model of `GREVM` with Gaussian noise, beyond the paper: the likelihood then is what the paper
    approximates it with, and given the noise every prior precision is known exactly in one step. In terms of
    the singular value decomposition of the dictionary, :math:`\Phi = U D V^T`, it keeps those of the
    :math:`y_i = (U^T t)_i` that stand out of the noise, shrunk.

    Parameters
    ----------
    kernel, gamma, degree, coef0, fit_intercept, n_jobs, verbose
        As for `GREVM`.
    noise_variance : positive float, optional
        Variance of the noise; None: estimated.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_basis,)
        Eigenvalues h of the negative Hessian of the log likelihood, descending.
    alpha_ : ndarray of shape (n_basis,)
        Prior precision along each eigenvector; inf where that is irrelevant.
    n_effective_ : int
        Number of coordinates u that are not zero.
    noise_variance_, beta_ : float
        Variance of the noise, and its inverse.
    ridge_ : float
        Precision of the common prior that the noise is estimated under. See Notes.
    dual_coef_, intercept_, coef_, relevance_, relevance_vectors_, kernel_
        As for `GREVM`.
    n_iter_ : int
        1.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no eigenvector is relevant; or ``"noise_floor"``: the
        noise is at its lower bound, var(y) / 1e6.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    The evidence with all precisions at their best tells nothing about the noise: with as many functions as
    rows it grows until there is none. So the noise comes from the evidence of the same model with one
    precision for all weights, which is a function of one variable once the noise is eliminated. That prior
    also decides in place of the ridge of `GREVM` which eigenvectors are seen at all: relevant are those with
    :math:`h_i u_i^2 > 1` at the maximum of likelihood times common prior. With ``fit_intercept`` the mean of
    y is taken off first.

    References
    ----------
    D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
    learning. ICML, 457-464.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GREVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, (100, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)
    >>> model = GREVMRegressor(gamma=0.1).fit(X, y)
    >>> model.n_effective_ < 15, round(model.noise_variance_**0.5, 1)
    (True, 0.1)
    >>> mean, std = model.predict([[0.0]], return_std=True)
    """

    _prior = "gaussian"


class LREVMRegressor(EigenRegressor):
    r"""`GREVMRegressor` with the Laplace prior of `LREVM`, which sets coordinates to exactly zero.

    Each coordinate of the maximum of the likelihood moves towards zero by :math:`\alpha_i / (2 h_i)`, and
    stops there. Error bars are those of the exact posterior, two halves of normal densities along each
    eigenvector.

    Parameters
    ----------
    kernel, gamma, degree, coef0, fit_intercept, noise_variance, n_jobs, verbose
        As for `GREVMRegressor`.

    Attributes
    ----------
    alpha_ : ndarray of shape (n_basis,)
        Parameter of the prior along each eigenvector; inf where that is irrelevant. A coordinate may be zero
        where it is finite.
    eigenvalues_, n_effective_, noise_variance_, beta_, ridge_, n_iter_, status_
        As for `GREVMRegressor`.
    dual_coef_, intercept_, coef_, relevance_, relevance_vectors_, kernel_
        As for `GREVM`.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    References
    ----------
    D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
    learning. ICML, 457-464.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import LREVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, (100, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)
    >>> LREVMRegressor(gamma=0.1).fit(X, y).n_effective_ < 15
    True
    """

    _prior = "laplace"
