"""Relevance eigenvector models (Kropotov & Vetrov 2007): priors along the eigenvectors of the Hessian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ._arrays import Training, check_training, check_X, distinct_rows, learn_classes
from ._cancellable import in_background
from ._checks import check_flag, check_integer, check_n_jobs, check_predictions, check_real
from ._core import NumericalError
from ._data.basis import as_given, at_relevance, fit_kernels, publish_linear
from ._data.design import matrix
from ._estimators.base import Estimator, atomic
from ._estimators.docs import documented
from ._estimators.probabilities import normalised
from ._estimators.status import MAX_CONSTANT_FUNCTIONS, REMEDIES, RowSummary
from ._progress import LOG, progress_bar, title
from ._revm import Approximation, Axes, Prior, Solution, classify, regress
from ._types import FloatArray, KernelSpec, PerRow

if TYPE_CHECKING:
    from typing_extensions import Self

_Result = TypeVar("_Result")

#: Bound on the values of the dictionary, so that their squares do not overflow.
_MAX_VALUE = 1e150

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 2048

_REMEDY = "scale X and y, give less unequal sample weights, or change the kernel, ridge or noise_variance"


def _decomposed(est: Estimator, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> tuple[Training, Axes]:
    """Return the rows and the axes of their dictionary; publishes the kernels."""
    check_n_jobs(est.n_jobs)
    if not isinstance(est.verbose, bool):
        check_integer("verbose", est.verbose, least=0)
    training = check_training(est, X, y, sample_weight, labels=est._labels)
    weights = np.ones(len(training.X)) if training.weights is None else training.weights
    # The dictionary: the bias, then the functions of each kernel.
    kernels = fit_kernels(est, training)
    est.kernel_ = as_given(est, kernels)
    est.relevance_ = distinct_rows(training) if kernels else training.rows
    est.__dict__.pop("relevance_vectors_", None)  # left by an earlier fit with another kernel
    if kernels:
        est.relevance_vectors_ = training.at(est.relevance_)
    Phi = matrix(_blocks(est, training.X), bias=check_flag("fit_intercept", est.fit_intercept))
    if not np.abs(Phi).max() < _MAX_VALUE:
        raise ValueError(
            f"kernel values must be below {_MAX_VALUE:g} in size, or squares overflow; scale X or change "
            "the kernel"
        )
    return training, _computed(partial(Axes.of, Phi, weights))


def _blocks(est: Estimator, X: FloatArray) -> list[FloatArray]:
    """Return the functions of each kernel at these rows, each (n, n_relevance)."""
    return [at_relevance(est, kernel, X) for kernel in est._kernels()]


def _computed(
    work: Callable[[Callable[[], None]], _Result], show: Callable[..., None] | None = None
) -> _Result:
    """Return ``work(pulse)``, computed in the background; NumericalError if the arithmetic breaks down."""

    def quietly(pulse: Callable[[], None]) -> _Result:
        # Before NumPy 2 each thread has an error state of its own.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return work(pulse)

    try:
        return in_background(quietly, show)
    except (LinAlgError, OverflowError) as error:
        raise NumericalError(f"the arithmetic of the fit broke down ({error}); {_REMEDY}") from None


def _solved(est: Estimator, work: Callable[..., Solution], k: int = 1, n: int = 1) -> Solution:
    """Return the solution of the ``k``-th fit of ``n``, with progress bar and log messages."""
    name = title(est, k, n)
    LOG.debug("%s: fit begun", name)
    with progress_bar(est.verbose, name, "steps") as show:
        found = _computed(work, show)
        parts = (found.eigenvalues, found.w, found.directions, found.variances, found.ridge, found.beta)
        finite = all(np.isfinite(part).all() for part in parts)
        if not finite or not found.beta > 0.0 or np.isnan(found.alpha).any():
            raise NumericalError(f"the arithmetic of the fit left the range of numbers; {_REMEDY}")
        note = f"{found.n_effective} of {len(found.alpha)} eigenvectors"
        LOG.info("%s: %s after %d steps, %s", name, found.status, found.n_iter, note)
        if show is not None:
            show(found.n_iter, f"{note}, {found.status}")
    return found


def _publish(est: Any, solutions: list[Solution], training: Training, offset: float = 0.0) -> None:
    """Publish the solutions of all targets; ``offset`` was subtracted from the targets."""
    w = np.stack([solution.w for solution in solutions])
    n_bias = int(bool(est.fit_intercept))
    est._bias = w[:, :n_bias].sum(axis=1) + offset
    est.dual_coef_ = w[:, n_bias:]
    for name in ("eigenvalues", "alpha", "n_effective", "ridge"):
        values = [getattr(solution, name) for solution in solutions]
        setattr(est, f"{name}_", values[0] if len(values) == 1 else np.stack(values, axis=-1))
    est._row_summary = replace(RowSummary.of(training), n_effective=float(np.max(est.n_effective_)))
    est.n_iter_ = sum(solution.n_iter for solution in solutions)
    est.status_ = max((solution.status for solution in solutions), key=list(REMEDIES).index)
    publish_linear(est, est._bias)


def _kernel_contribution(est: Any, X: FloatArray) -> FloatArray | None:
    if np.max(est.n_effective_) > MAX_CONSTANT_FUNCTIONS:
        return None
    values: FloatArray = np.hstack(_blocks(est, X)) @ est.dual_coef_.T
    return values


def _predictors(
    est: Any, X: ArrayLike, directions: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the linear predictors, (n, n_outputs), and the functions along ``directions``, (n, p)."""
    check_is_fitted(est)
    values = check_X(est, X, reset=False)
    n_functions = est.dual_coef_.shape[1]
    directions = np.empty((n_functions, 0)) if directions is None else directions
    n_bias = len(directions) - n_functions
    eta = np.empty((len(values), len(est.dual_coef_)))
    along = np.empty((len(values), directions.shape[1]))
    for start in range(0, len(values), _PREDICT_ROWS):
        part = slice(start, start + _PREDICT_ROWS)
        phi = np.hstack(_blocks(est, values[part]))
        with np.errstate(over="ignore", invalid="ignore"):
            eta[part] = phi @ est.dual_coef_.T + est._bias
            along[part] = phi @ directions[n_bias:] + directions[:n_bias].sum(axis=0)
    check_predictions(eta, along)
    return eta, along


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class EigenClassifier(ClassifierMixin, Estimator):  # type: ignore[misc] # scikit-learn carries no types
    """Logistic likelihood: two classes in one fit; more are fitted one against the rest."""

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    ridge: float = 3e-3
    tol: float = 1e-8
    max_iter: int = 1000

    _labels = True
    _prior: ClassVar[Prior]
    _approximation: ClassVar[Approximation] = "laplace"

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Fit the model.

        {labels_fit_sections}
        """
        with atomic(self):
            self._fit_and_publish(X, y, sample_weight)
        return self

    def _fit_and_publish(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> None:
        rules: dict[str, Any] = {
            "prior": self._prior,
            "approximation": self._approximation,
            "ridge": check_real("ridge", self.ridge, positive=True),
            "tol": check_real("tol", self.tol, positive=True),
            "max_iter": check_integer("max_iter", self.max_iter, least=1),
        }
        training, axes = _decomposed(self, X, y, sample_weight)
        self.classes_ = learn_classes(training.y)
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        solutions = []
        for k, label in enumerate(positive, 1):
            sign = np.where(training.y == label, 1.0, -1.0)
            solutions.append(_solved(self, partial(classify, axes, sign, **rules), k, len(positive)))
        _publish(self, solutions, training)

    def _is_empty(self) -> bool:
        return not np.any(self.n_effective_)

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        return _kernel_contribution(self, X)

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the log odds at the maximum of the posterior, :math:`w_{MP}^T \phi(x)`.

        With more than two classes, the log odds of each class against the rest.

        {decision_sections}
        """
        eta, _ = _predictors(self, X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities, the sigmoid of the decision function.

        As in the paper (section 2.2) they use the most probable weights. With more than two classes they are
        divided by their sum.

        {predict_proba_sections}
        """
        return normalised(_predictors(self, X)[0])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        {predict_sections}
        """
        eta, _ = _predictors(self, X)
        winners = (eta[:, 0] > 0.0).astype(np.intp) if eta.shape[1] == 1 else np.argmax(eta, axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class EigenRegressor(RegressorMixin, Estimator):  # type: ignore[misc] # scikit-learn carries no types
    """Gaussian likelihood of one target, with noise that is estimated unless it is given."""

    _labels = False
    _prior: ClassVar[Prior]

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    noise_variance: float | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Fit the model.

        {targets_fit_sections}
        """
        with atomic(self):
            self._fit_and_publish(X, y, sample_weight)
        return self

    def _fit_and_publish(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> None:
        noise = self.noise_variance
        try:
            noise = None if noise is None else check_real("noise_variance", noise, positive=True)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; leave it None to have it estimated") from None
        training, axes = _decomposed(self, X, y, sample_weight)
        _check_size(training.y)
        weights = None if training.weights is None else training.weights / training.weights.max()
        mean = float(np.average(training.y, weights=weights))
        variance = float(np.average((training.y - mean) ** 2, weights=weights))
        variance = variance or float(np.average(training.y**2, weights=weights)) or 1.0
        # With a bias the mean is subtracted: a large one would widen the common prior of all weights.
        offset = mean if self.fit_intercept else 0.0
        found = _solved(self, lambda _: regress(axes, training.y - offset, self._prior, variance, noise))
        self.beta_, self.noise_variance_ = found.beta, 1.0 / found.beta
        self._directions, self._variances = found.directions, found.variances
        _publish(self, [found], training, offset)

    def _is_empty(self) -> bool:
        return not np.any(self.n_effective_)

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        return _kernel_contribution(self, X)

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
        mean, std : ndarray of shape (n,)
            The prediction at the maximum of the posterior; ``std`` only if ``return_std``.

        {predict_raises}
        """
        check_is_fitted(self)
        wanted = check_flag("return_std", return_std)
        mean, along = _predictors(self, X, self._directions if wanted else None)
        if not wanted:
            return mean[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self.noise_variance_ + along**2 @ self._variances)
        check_predictions(std)
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
    no maximum, and the ridge limits the weights. If the maximum exists, a small ridge has no visible effect.
    If at the ridge given the likelihood is so flat that nothing is relevant, the ridge is raised tenfold
    until something is, until it exceeds 10; ``ridge_`` is the value used. A fit takes N^3 operations and the
    memory of a few N x N matrices.

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
    {revm_regressor_attributes}

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
    {revm_regressor_attributes}

    References
    ----------
    {kropotov}
    """

    _prior = "laplace"
