"""Relevance eigenvector models (Kropotov & Vetrov 2007): priors along the eigenvectors of the Hessian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ._cancellable import in_background
from ._checks.arguments import check_flag, check_integer, check_n_jobs, check_real
from ._checks.numbers import check_predictions
from ._checks.targets import Training, check_training, check_X, distinct_rows, learn_classes
from ._core import NumericalError
from ._data.basis import as_given, at_relevance, fit_kernels, publish_linear
from ._data.design import matrix
from ._estimators.base import Estimator, atomic
from ._estimators.docs import documented
from ._estimators.probabilities import normalised
from ._estimators.status import MAX_CONSTANT_FUNCTIONS, REMEDIES, RowSummary
from ._progress import LOG, progress_bar, title
from ._revm.eigen import Approximation, Axes, Prior, Rules, Solution, axes, classify, regress
from ._revm.modes import Pulse
from ._types import FloatArray, KernelSpec, PerRow

if TYPE_CHECKING:
    from typing_extensions import Self

#: Bound on the values of the dictionary, so that their squares do not overflow.
_MAX_VALUE = 1e150

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 2048


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class EigenModel(Estimator):
    """Template of the relevance eigenvector models."""

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    if TYPE_CHECKING:
        # After a fit.
        _bias: FloatArray
        _directions: FloatArray

    _prior: ClassVar[Prior]

    @abstractmethod
    def _rules(self) -> Rules:
        """Return the checked settings."""

    @abstractmethod
    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        """Fit each target; publishes the attributes of the likelihood."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        {X_fit}
        y : array-like of shape (n_samples,)
            Targets; of a classification labels of any type, at least two different ones.
        {sample_weight}

        {fit_sections}
        """
        with atomic(self):
            self._fit_and_publish(X, y, sample_weight)
        return self

    def _fit_and_publish(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> None:
        check_n_jobs(self.n_jobs)
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, least=0)
        rules = self._rules()
        training = check_training(self, X, y, sample_weight, labels=self._labels)
        n_rows = len(training.X)
        weights = np.ones(n_rows) if training.weights is None else training.weights
        Phi = self._dictionary(training)
        if not np.abs(Phi).max() < _MAX_VALUE:
            raise ValueError(
                f"kernel values must be below {_MAX_VALUE:g} in size, or squares overflow; scale X or change "
                "the kernel"
            )
        found = in_background(in_range()(lambda pulse: axes(Phi, weights, pulse)))
        if not np.isfinite(found.squares).all():
            raise NumericalError(f"the squares of the functions left the range of numbers; {_REMEDY}")
        self._publish(self._solve(found, training, rules), training)

    def _dictionary(self, training: Training) -> FloatArray:
        """Return the N x M dictionary: the bias, then the functions of each kernel. Publishes the kernels."""
        kernels = fit_kernels(self, training)
        self.kernel_ = as_given(self, kernels)
        self.relevance_ = distinct_rows(training) if kernels else training.rows
        self.__dict__.pop("relevance_vectors_", None)  # left by an earlier fit with another kernel
        if kernels:
            self.relevance_vectors_ = training.at(self.relevance_)
        return matrix(self._blocks(training.X), bias=check_flag("fit_intercept", self.fit_intercept))

    def _blocks(self, X: FloatArray) -> list[FloatArray]:
        """Return the functions of each kernel at these rows, each (n, n_relevance)."""
        return [at_relevance(self, kernel, X) for kernel in self._kernels()]

    def _fit_one(self, work: Callable[[Pulse], Solution], k: int = 1, n: int = 1) -> Solution:
        """Return the solution of the ``k``-th fit of ``n``, with progress bar and log messages."""
        name = title(self, k, n)
        LOG.debug("%s: fit begun", name)
        with progress_bar(self.verbose, name, "steps") as show:
            found = check_solution(in_background(in_range()(work), show))
            note = f"{found.n_effective} of {len(found.alpha)} eigenvectors"
            LOG.info("%s: %s after %d steps, %s", name, found.status, found.n_iter, note)
            if show is not None:
                show(found.n_iter, f"{note}, {found.status}")
        return found

    def _is_empty(self) -> bool:
        return not np.any(self.n_effective_)

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        if np.max(self.n_effective_) > MAX_CONSTANT_FUNCTIONS:
            return None
        return np.hstack(self._blocks(X)) @ self.dual_coef_.T

    def _publish(self, solutions: list[Solution], training: Training) -> None:
        w = np.stack([solution.w for solution in solutions])
        #: Weights of the constant function.
        self._bias = w[:, 0].copy() if self.fit_intercept else np.zeros(len(w))
        self.dual_coef_ = w[:, int(bool(self.fit_intercept)) :]

        def per_output(values: list[Any]) -> Any:
            return values[0] if len(values) == 1 else np.stack(values, axis=-1)

        self.eigenvalues_ = per_output([solution.eigenvalues for solution in solutions])
        self.alpha_ = per_output([solution.alpha for solution in solutions])
        self.n_effective_ = per_output([solution.n_effective for solution in solutions])
        self.ridge_ = per_output([solution.ridge for solution in solutions])
        self._row_summary = replace(RowSummary.of(training), n_effective=float(np.max(self.n_effective_)))
        self.n_iter_ = sum(solution.n_iter for solution in solutions)
        self.status_ = max((solution.status for solution in solutions), key=list(REMEDIES).index)
        publish_linear(self, self._bias)

    def _predictor(self, X: ArrayLike, *, uncertain: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the linear predictors, (n, n_outputs), and the uncertain directions at X, (n, p)."""
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


_REMEDY = "scale X and y, give less unequal sample weights, or change the kernel, ridge or noise_variance"


@contextmanager
def in_range() -> Iterator[None]:
    """Turn floating-point warnings off, and failed factorisations into NumericalError.

    Results may be infinite: see `check_solution`. A decorator, because before NumPy 2 each thread has an
    error state of its own.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            yield
        except (LinAlgError, OverflowError) as error:
            raise NumericalError(f"the arithmetic of the fit broke down ({error}); {_REMEDY}") from None


def check_solution(found: Solution) -> Solution:
    """Return the solution of a fit; NumericalError if it is not finite."""
    parts = (found.eigenvalues, found.w, found.directions, found.variances, found.ridge, found.beta)
    finite = all(np.isfinite(part).all() for part in parts)
    if not finite or not found.beta > 0.0 or np.isnan(found.alpha).any():
        raise NumericalError(f"the arithmetic of the fit left the range of numbers; {_REMEDY}")
    return found


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class EigenClassifier(ClassifierMixin, EigenModel):  # type: ignore[misc] # scikit-learn carries no types
    """Logistic likelihood: two classes in one fit; more are fitted one against the rest."""

    ridge: float = 3e-3
    tol: float = 1e-8
    max_iter: int = 1000

    _labels = True
    _approximation: ClassVar[Approximation] = "laplace"

    def _rules(self) -> Rules:
        return Rules(
            prior=self._prior,
            approximation=self._approximation,
            ridge=check_real("ridge", self.ridge, positive=True),
            search={
                "tol": check_real("tol", self.tol, positive=True),
                "max_iter": check_integer("max_iter", self.max_iter, least=1),
            },
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
        {X}

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest.

        {predict_raises}
        """
        eta, _ = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities, the sigmoid of the decision function.

        As in the paper (section 2.2) they use the most probable weights. With more than two classes they are
        divided by their sum.

        {predict_proba_sections}
        """
        logits, _ = self._predictor(X)
        return normalised(logits)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        {predict_sections}
        """
        eta, _ = self._predictor(X)
        winners = (eta[:, 0] > 0.0).astype(np.intp) if eta.shape[1] == 1 else np.argmax(eta, axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class EigenRegressor(RegressorMixin, EigenModel):  # type: ignore[misc] # scikit-learn carries no types
    """Gaussian likelihood of one target, with noise that is estimated unless it is given."""

    _labels = False

    noise_variance: float | None = None

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
        # With a bias the mean is subtracted: a large one would widen the common prior of all weights.
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
        """Predict targets, optionally with error bars.

        Parameters
        ----------
        {X}
        return_std : bool, default=False
            Whether to return the predictive standard deviation too: noise, and the posterior variances along
            the relevant eigenvectors.

        Returns
        -------
        mean : ndarray of shape (n,)
            Prediction at the maximum of the posterior.
        std : ndarray of shape (n,)
            Only if ``return_std``.

        {predict_raises}
        """
        if not check_flag("return_std", return_std):
            return self._predictor(X)[0][:, 0]
        mean, along = self._predictor(X, uncertain=True)
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self.noise_variance_ + along**2 @ self._variances)
        check_predictions("X", std)
        return mean[:, 0], std


def _check_size(y: FloatArray) -> None:
    """Raise ValueError if squares of the targets overflow or underflow."""
    largest = 1e150
    size = float(np.abs(y).max())
    if size and not 1.0 / largest / 1e2 <= size <= largest * 1e2:
        raise ValueError(
            f"y holds values up to {size:g}, whose square is out of range; rescale y to values between "
            f"{1 / largest:g} and {largest:g}"
        )


__all__ = ["GREVM", "LREVM", "VGREVM", "GREVMRegressor", "LREVMRegressor"]


@documented
class GREVM(EigenClassifier):
    r"""Gaussian relevance eigenvector machine: classification with a prior along each eigenvector.

    A logistic model on kernel functions centred at all training rows, :math:`P(y = 1) = \sigma(w^T \phi(x))`.
    Unlike in `RVC`, the prior precisions do not belong to the weights but to the coordinates :math:`u = Q w`
    along the eigenvectors of the negative Hessian of the log likelihood at its maximum. The evidence is then
    a product over the eigenvectors, and each precision is found in one step (algorithm 1 of Kropotov & Vetrov
    2007): with eigenvalue :math:`h_i`

    .. math:: \alpha_i = h_i / (h_i u_i^2 - 1) \text{ if } h_i u_i^2 > 1, \text{ else } \infty.

    An infinite precision deletes the eigenvector from the model. The model is sparse in its degrees of
    freedom: the weights of all training rows differ from zero.

    Parameters
    ----------
    {revm_classifier_parameters}

    Attributes
    ----------
    {revm_gaussian_attributes}

    Notes
    -----
    Kernel functions centred at every row separate the classes unless they are wide. The likelihood then has
    no maximum: it increases without bound while its Hessian, and with it h u^2, vanishes, and without a ridge
    nothing would be relevant. If the maximum exists, a small ridge has no visible effect. If not, the ridge
    limits the weights. If at the ridge given the likelihood is so flat that nothing is relevant, the ridge is
    raised tenfold until something is, until it exceeds 10; ``ridge_`` is the value used.

    A fit takes N^3 operations and the memory of a few N x N matrices.

    References
    ----------
    {kropotov}

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


@documented
class LREVM(EigenClassifier):
    r"""Laplacian relevance eigenvector machine: `GREVM` with a prior that sets coordinates to zero.

    The prior along each eigenvector is :math:`(\alpha_i / 4) e^{-\alpha_i |u_i| / 2}` (algorithm 2 of
    Kropotov & Vetrov 2007). Its parameter maximises the evidence of that eigenvector (their equation 13),
    which has a finite maximum under the same condition, :math:`h_i u_i^2 > 1`. The posterior is then
    maximised within the octant of the likelihood's maximum, where many coordinates become exactly zero.

    Parameters
    ----------
    {revm_classifier_parameters}

    Attributes
    ----------
    {classes_}
    {revm_alpha_laplace}
    {revm_attributes}
    {revm_status_}

    References
    ----------
    {kropotov}

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


@documented
class VGREVM(EigenClassifier):
    r"""`GREVM` with the Gaussian closest to the likelihood instead of the Laplace approximation.

    That Gaussian minimises the divergence :math:`KL(N(\mu, -H^{-1}) \,\|\, P(T | X, w))` of Kropotov & Vetrov
    (2007), section 4. Its mean :math:`\mu` replaces the maximum of the likelihood, and the eigenvectors are
    those of H. It takes several times as long as `GREVM`. For separable classes no closest Gaussian exists
    without the ridge, which is not part of H.

    Parameters
    ----------
    {revm_classifier_parameters}

    Attributes
    ----------
    {revm_gaussian_attributes}

    References
    ----------
    {kropotov}

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


@documented
class GREVMRegressor(EigenRegressor):
    r"""Regression with a Gaussian prior along each eigenvector of the likelihood's Hessian.

    The model of `GREVM` with Gaussian noise, an extension of the paper: the likelihood is then exactly
    Gaussian, and given the noise every prior precision is found in one step. In terms of the singular value
    decomposition of the dictionary, :math:`\Phi = U D V^T`, the model keeps, shrunk, those of the
    :math:`y_i = (U^T t)_i` that exceed the noise.

    Parameters
    ----------
    {revm_regressor_parameters}

    Attributes
    ----------
    alpha_ : ndarray of shape (n_basis,)
        Prior precision along each eigenvector; inf where that is irrelevant.
    noise_variance_, beta_ : float
        Variance of the noise, and its inverse.
    {revm_attributes}
    n_iter_ : int
        1.
    status_ : str
        ``"converged"``; ``"empty"``: converged, but no eigenvector is relevant; or ``"noise_floor"``: the
        noise variance is at its lower bound, var(y) / 1e6.

    Notes
    -----
    The evidence maximised over all precisions cannot determine the noise: with as many functions as rows it
    increases until the noise vanishes. So the noise maximises the evidence of the same model with one
    precision for all weights, which is a function of one variable once the noise is eliminated. That common
    prior, whose precision is ``ridge_``, also replaces the ridge of `GREVM`: relevant eigenvectors are those
    with :math:`h_i u_i^2 > 1` at the maximum of likelihood times common prior. With ``fit_intercept`` the
    mean of y is subtracted first.

    References
    ----------
    {kropotov}

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


@documented
class LREVMRegressor(EigenRegressor):
    r"""`GREVMRegressor` with the Laplace prior of `LREVM`, which sets coordinates to exactly zero.

    Each coordinate of the maximum of the likelihood moves towards zero by :math:`\alpha_i / (2 h_i)`, and
    stops at zero. Error bars are those of the exact posterior, two halves of normal densities along each
    eigenvector.

    Parameters
    ----------
    {revm_regressor_parameters}

    Attributes
    ----------
    {revm_alpha_laplace}
    noise_variance_, beta_ : float
        Variance of the noise, and its inverse.
    {revm_attributes}
    n_iter_, status_
        As for `GREVMRegressor`.

    References
    ----------
    {kropotov}

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
