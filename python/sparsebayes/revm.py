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

from ._arrays import Training, check_training, learn_classes
from ._cancellable import in_background
from ._checks import check_flag, check_integer, check_n_jobs, check_real, check_verbose
from ._core import NumericalError
from ._data.basis import as_given, at_relevance, fit_kernels, publish_linear, publish_relevance
from ._data.candidates import in_use
from ._data.design import matrix
from ._estimators.base import Estimator, atomic
from ._estimators.docs import documented
from ._estimators.posterior import by_blocks, normalised
from ._estimators.status import REMEDIES, RowSummary
from ._progress import LOG, progress_bar, title
from ._revm import Approximation, Axes, Prior, Solution, classify, regress
from ._types import FloatArray, KernelSpec, PerRow

if TYPE_CHECKING:
    from typing_extensions import Self

_Result = TypeVar("_Result")

#: Bound on the values of dictionary and targets, so that their squares do not overflow.
_MAX_VALUE = 1e150

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 2048

_REMEDY = "scale X and y, give less unequal sample weights, or change the kernel, ridge or noise_variance"


def _decomposed(est: Estimator, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> tuple[Training, Axes]:
    """Return the rows and the axes of their dictionary; publishes the kernels."""
    check_n_jobs(est.n_jobs)
    check_verbose(est.verbose)
    training = check_training(est, X, y, sample_weight)
    weights = np.ones(len(training.X)) if training.weights is None else training.weights
    # The dictionary: the bias, then the functions of each kernel.
    est.kernel_ = as_given(est, fit_kernels(est, training))
    publish_relevance(est, training, in_use(est, training))
    Phi = matrix(_blocks(est, training.X), bias=check_flag("fit_intercept", est.fit_intercept))
    if not np.abs(Phi).max() < _MAX_VALUE:
        raise ValueError(
            f"kernel values must be below {_MAX_VALUE:g} in size, or squares overflow; scale X or change "
            "the kernel"
        )
    return training, _computed(partial(Axes.of, Phi, weights))


def _blocks(est: Any, X: FloatArray) -> list[FloatArray]:
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


def _linear_predictor(est: Any, X: FloatArray) -> FloatArray:
    """Return the linear predictors at checked rows of X, (n, n_outputs)."""
    predictors: FloatArray = np.hstack(_blocks(est, X)) @ est.dual_coef_.T + est._bias
    return predictors


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
        with atomic(self, X, y, sample_weight=sample_weight):
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
        return self

    _linear_predictor = _linear_predictor

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the log odds at the maximum of the posterior, :math:`w_{MP}^T \phi(x)`.

        With more than two classes, the log odds of each class against the rest.

        {decision_sections}
        """
        (eta,) = by_blocks(self, X, lambda rows: (self._linear_predictor(rows),), _PREDICT_ROWS)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities, the sigmoid of the decision function.

        As in the paper (section 2.2) they use the most probable weights. With more than two classes, the
        softmax of the log odds of each class against the rest.

        {predict_proba_sections}
        """
        scores = self.decision_function(X)
        return normalised(scores.reshape(len(scores), -1))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        {predict_sections}
        """
        scores = self.decision_function(X)
        winners = np.argmax(scores, axis=1) if scores.ndim == 2 else (scores > 0.0).astype(np.intp)
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
        with atomic(self, X, y, sample_weight=sample_weight):
            if (noise := self.noise_variance) is not None:
                remedy = "; leave it None to have it estimated"
                noise = check_real("noise_variance", noise, positive=True, remedy=remedy)
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
        return self

    _linear_predictor = _linear_predictor

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
        wanted = check_flag("return_std", return_std)

        def predict(rows: FloatArray) -> tuple[FloatArray, ...]:
            phi = np.hstack(_blocks(self, rows))
            mean = (phi @ self.dual_coef_.T + self._bias)[:, 0]
            if not wanted:
                return (mean,)
            n_bias = len(self._directions) - phi.shape[1]
            along = phi @ self._directions[n_bias:] + self._directions[:n_bias].sum(axis=0)
            return mean, np.sqrt(self.noise_variance_ + along**2 @ self._variances)

        mean, *std = by_blocks(self, X, predict, _PREDICT_ROWS)
        return (mean, std[0]) if wanted else mean


def _check_size(y: FloatArray) -> None:
    """Raise ValueError if squares of the targets overflow or underflow."""
    size = float(np.abs(y).max())
    if size and not 1e-2 / _MAX_VALUE <= size <= 1e2 * _MAX_VALUE:
        raise ValueError(
            f"y holds values up to {size:g}, whose square is out of range; rescale y to values between "
            f"{1 / _MAX_VALUE:g} and {_MAX_VALUE:g}"
        )


__all__ = ["GREVM", "LREVM", "VGREVM", "GREVMRegressor", "LREVMRegressor"]


@documented
class GREVM(EigenClassifier):
    r"""Gaussian relevance eigenvector machine: classification with a prior along each eigenvector.

    A logistic model on kernel functions centred at all training rows, :math:`P(y = 1) = \sigma(w^T \phi(x))`,
    with prior precisions of the coordinates :math:`u = Q w` along the eigenvectors of the negative Hessian of
    the log likelihood at its maximum. The evidence is a product over the eigenvectors, and each precision is
    found in one step (algorithm 1 of Kropotov & Vetrov 2007): with eigenvalue :math:`h_i`

    .. math:: \alpha_i = h_i / (h_i u_i^2 - 1) \text{ if } h_i u_i^2 > 1, \text{ else } \infty.

    An infinite precision deletes the eigenvector. The model is sparse in its degrees of freedom, and not in
    the training rows.

    Parameters
    ----------
    {revm_classifier_parameters}

    Attributes
    ----------
    {revm_gaussian_attributes}

    Notes
    -----
    Kernel functions centred at every row separate the classes unless they are wide. The likelihood then has
    no maximum, and the ridge limits the weights; otherwise a small ridge has no visible effect. If nothing is
    relevant, the ridge is raised tenfold until something is, or it exceeds 10; ``ridge_`` is the value used.
    A fit takes N^3 operations and the memory of a few N x N matrices.

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

    {kropotov}
    """

    _prior = "laplace"


@documented
class VGREVM(EigenClassifier):
    r"""`GREVM` with the Gaussian closest to the likelihood instead of the Laplace approximation.

    That Gaussian minimises :math:`KL(N(\mu, -H^{-1}) \,\|\, P(T | X, w))` (Kropotov & Vetrov 2007, section
    4). Its mean :math:`\mu` replaces the maximum of the likelihood, and the eigenvectors are those of H,
    which the ridge is no part of. A fit takes several times as long as that of `GREVM`.

    Parameters
    ----------
    {revm_classifier_parameters}

    Attributes
    ----------
    {revm_gaussian_attributes}

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
    With as many functions as rows the evidence maximised over all precisions increases until the noise
    vanishes. So the noise maximises the evidence of the model with one precision for all weights. That common
    prior, whose precision is ``ridge_``, also replaces the ridge of `GREVM`: relevant eigenvectors are those
    with :math:`h_i u_i^2 > 1` at the maximum of likelihood times common prior. With ``fit_intercept`` the
    mean of y is subtracted first.

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

    {kropotov}
    """

    _prior = "laplace"
