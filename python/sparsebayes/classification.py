"""Classification: `RVC` on kernels centred at the training rows, `SparseBayesClassifier` on any basis."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ._checks import any_array, check_flag
from ._data.basis import check_without_rows
from ._estimators.base import Estimator, atomic
from ._estimators.class_rows import add_labels, check_scheme
from ._estimators.docs import documented
from ._estimators.fit import build, classes_of_providers, of_providers, validate
from ._estimators.leave_one_out import attribute
from ._estimators.likelihoods import Classes
from ._estimators.posterior import (
    check_multi_class,
    moderated_logits,
    moments,
    normalised,
    problems,
    softmax_probabilities,
    with_prior,
)
from ._estimators.run import publish, run
from ._types import (
    Callback,
    Candidates,
    Data,
    ExtraBasis,
    FloatArray,
    KernelSpec,
    PerRow,
    Scheme,
    Search,
    Target,
    Unpenalized,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RVC", "SparseBayesClassifier"]


def _can_continue(estimator: Classification) -> bool:
    check_without_rows(estimator, "partial_fit")
    check_scheme(estimator.scheme)
    if check_multi_class(estimator.multi_class):
        raise ValueError("partial_fit needs multi_class='ovr'; of two classes it is the same model")
    return True


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class Classification(ClassifierMixin, Estimator):  # type: ignore[misc] # scikit-learn carries no types
    """Classification: Bernoulli for two classes, a softmax or a fit per class for more."""

    _labels = True

    multi_class: str = "ovr"
    class_weight: Mapping[Any, float] | str | None = None
    penalize_intercept: bool = False
    complexity: float | str = "auto"
    scheme: Scheme = "sequential"
    alpha_prior: tuple[float, float] = (0.0, 0.0)
    memory_limit: int | str | None = None
    search: Search = "greedy"
    tol: float = 1e-6
    max_iter: int = 100_000
    callback: Callback | None = None

    # After a fit.
    class_prior_: FloatArray = field(init=False)
    loo_ = attribute("loo_")

    def fit(self, X: Data, y: Target = None, sample_weight: Target = None) -> Self:
        """Fit the model by maximising the Laplace approximation of its marginal likelihood.

        With columns, or kernels centred at ``candidates``, the rows may be read in chunks, as for `RVR`: once
        for each step of the fit, so repeatedly. With more classes this needs ``multi_class="ovr"``.

        {labels_fit_sections}
        """
        with atomic(self, X, y, sample_weight=sample_weight):
            rows = validate(self, X, y, sample_weight)
            publish(self, *run(self, build(self, rows)))
        return self

    def fit_provider(self, provider: Any, *, classes: ArrayLike, n_samples: int | None = None) -> Self:
        """Fit the model to statistics of rows that may be on other computers or devices, or in files.

        Parameters
        ----------
        provider : PyStatistics, or list of these
            For two classes one, with targets 1 for rows of the second class and 0 for others; for more one
            for each class, with targets 1 for its rows. Functions as for `RVR.fit_provider`.
        classes : array-like of shape (n_classes,)
            The labels, sorted.
        {provider_sections}
        """
        providers = list(provider) if isinstance(provider, (list, tuple)) else [provider]
        with atomic(self):
            likelihood = classes_of_providers(self, any_array("classes", classes), len(providers))
            task, posteriors = run(self, of_providers(self, providers, n_samples, likelihood))
            # Numbers, as the fit has checked.
            sums = np.array([provider.target_moments(0.0) for provider in providers], np.float64)
            shares = sums[:, 1] / sums[:, 0]
            shares = np.append(1.0 - shares, shares) if len(shares) == 1 else shares
            publish(self, replace(task, likelihood=replace(likelihood, shares=shares)), posteriors)
        return self

    @available_if(_can_continue)  # type: ignore[untyped-decorator] # scikit-learn carries no types
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: PerRow = None, sample_weight: PerRow = None
    ) -> Self:
        """Add rows and fit the model to all rows so far.

        The first call, and one after ``fit``, starts with no rows. Up to 2000 rows are kept, and the model is
        that of ``fit`` with ``landmarks=None`` or ``allow_dense=False``. Then their log likelihood is
        replaced by its second-order expansion at the mode, 8 K^2 bytes of each class for K functions, and
        rows are collected anew. So time and memory do not depend on the number of rows, and the model is an
        approximation (online Laplace): it depends on the order of the rows, and differs from that of ``fit``
        where later rows move the mode far, as for columns with a few values of many standard deviations:
        logarithms help. With kernels only with ``candidates``; a number of them, and the kernel, come from
        the rows of the first call, which should cover all of the input space. The arguments that the
        functions depend on, such as ``fit_intercept`` and ``kernel``, must stay as they are between calls.
        Not with ``multi_class="softmax"``, ``class_weight="balanced"`` or ``scheme="variational"``.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs, or values of the basis functions, the same functions in each call.
        y : array-like of shape (n,)
            Class labels. A call need not have rows of every class.
        classes : array-like of shape (n_classes,), optional
            All labels, for the first call; None: those of its rows.
        sample_weight : array-like of shape (n,), optional
            As for ``fit``.

        {fit_sections}
        """
        with atomic(self):
            task, after = add_labels(self, X, y, classes, sample_weight)
            _, posteriors = publish(self, *run(self, [task]))
            self._statistics = after(posteriors)
        return self

    def _likelihood_of(self, y: NDArray[Any], weights: FloatArray | None) -> Classes:
        """Return the likelihood of these labels, of rows with these weights."""
        return Classes.of(y, self.multi_class, weights)

    _problems = problems

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the linear predictor at the posterior mode, :math:`\mu^T \phi(x)`.

        Parameters
        ----------
        {X}

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, its log odds against the
            rest; or, with ``landmarks`` or a softmax, its logit.

        {predict_raises}
        """
        means, _ = moments(self, X, variance=False)
        return means[:, 0] if means.shape[1] == 1 else means

    def predict_proba(self, X: ArrayLike, *, moderate: bool = True, prior: PerRow = None) -> FloatArray:
        r"""Return class probabilities.

        Uncertain weights move probabilities towards one half: with m and v the posterior mean and variance of
        the linear predictor, :math:`\sigma(\kappa m)`, :math:`\kappa = (1 + \pi v / 8)^{-1/2}` (MacKay 1992).
        Of several classes, each fitted against the rest, exactly one holds: :math:`P(c) \propto e^{\kappa_c
        m_c}`, their odds. A softmax has :math:`P(c) \propto 1 / \sum_d \exp(-\kappa_{cd} (m_c - m_d))`, with
        v of the difference of two logits (Daunizeau 2017). With ``landmarks`` probabilities are
        those at the mode, :math:`P(c) \propto e^{m_c}`, of two classes :math:`\sigma(m)`.

        Parameters
        ----------
        {X}
        moderate : bool, default=True
            False: the plain sigmoid of the mode, :math:`\sigma(m)`, or its softmax, as always with
            ``landmarks``.
        {prior}

        Returns
        -------
        {probabilities}

        {predict_raises}
        """
        moderate = check_flag("moderate", moderate)
        check_is_fitted(self)
        if self._likelihood.name == "multinomial":
            p = softmax_probabilities(self, X, moderate)
        else:
            means, variances = moments(self, X, variance=moderate and not self._likelihood.at_mode)
            p = normalised(means if variances is None else moderated_logits(means, variances))
        return with_prior(self, p, prior)

    def predict(self, X: ArrayLike, prior: PerRow = None) -> NDArray[Any]:
        """Predict the class with the largest probability according to `predict_proba`.

        {predict_prior_sections}
        """
        check_is_fitted(self)
        if len(self.classes_) == 2 and prior is None:
            winners = (self.decision_function(X) > 0.0).astype(np.intp)
        else:
            winners = np.argmax(self.predict_proba(X, prior=prior), axis=1)
        return self.classes_[winners]


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class RVC(Classification):
    r"""Relevance vector classification: sparse Bayesian logistic regression on kernels at the training rows.

    .. math:: P(y = 1) = \sigma\Big(w_0 + \sum_n w_n k(x, x_n)\Big), \quad w_j \sim N(0, \alpha_j^{-1})

    The precisions :math:`\alpha` maximise the Laplace approximation of the marginal likelihood (Tipping &
    Faul 2003, section 2.2). At the maximum most of them are infinite, which deletes their functions. More
    than two classes are fitted one against the rest; or, with ``multi_class="softmax"``, jointly: :math:`P(y
    = c) \propto e^{\eta_c(x)}`, with a weight vector and precisions for each class.

    Where the kernel is learned, as by default, these sparse fits only choose functions. Their weights are
    then estimated anew with a Gaussian process as the prior, jointly for all classes, together with kernels
    at further rows: see ``landmarks``.

    Parameters
    ----------
    {kernel_parameters}
    {multi_class}
    {class_weight}
    {centre_parameters}
    {landmarks}
    {fit_parameters}

    Attributes
    ----------
    {classes_}
    {class_prior_}
    {kernel_functions}
    alpha_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Prior precisions of the weights; 0 of those with a flat prior. With more than two classes a column for
        each; inf if a class does not use a function. With ``landmarks`` the intercept may have 1: its prior
        mean is the logit of the share of the class.
    mu_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Posterior mode of the weights; 0 if a class does not use a function.
    sigma_ : ndarray of shape (n_active, n_active) or (n_classes, n_active, n_active)
        Posterior covariance of the weights at the mode; 0 if a class does not use a function. Of a softmax
        the (n_weights, n_weights) matrix of the weights ``mu_.T[np.isfinite(alpha_.T)]``.
    process_variance_ : float
        With ``landmarks``: variance v of the Gaussian process that is the prior of the logits. That of the
        weights is :math:`v K^{-1}`, with one block of K for each kernel, and ``alpha_`` holds the diagonal of
        :math:`K / v`. ``sigma_`` is then the covariance of the weights of a class with those of the others
        held. The log evidence and ``n_iter_`` are those of the sparse fits; ``status_`` is about both.
    {class_loo_}
    {fit_attributes}

    Notes
    -----
    A fit ends at a fixed point of updates that treat the weights B of the Laplace approximation as constants
    in :math:`\alpha`, close to a stationary point of the approximation.

    {learning_notes}

    {block_notes}

    {variational_notes}
    The likelihood of each row is replaced by a quadratic lower bound (Jaakkola & Jordan
    2000). More than two classes are fitted one against the rest.

    {tipping}

    D. J. C. MacKay (1992). The evidence framework applied to classification networks. Neural Computation 4,
    720-736.

    J. Daunizeau (2017). Semi-analytical approximations to statistical moments of sigmoid and softmax mappings
    of normal variables. arXiv:1703.00091.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=100) > 0, "same", "different")
    >>> model = RVC(landmarks=None).fit(X, y)
    >>> model.status_, len(model.relevance_) < 10
    ('converged', True)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array(['same', 'different'], dtype='<U9')
    """

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "ard"
    degree: int = 3
    coef0: float = 0.0
    optimize_kernel: bool = False
    extra_basis: ExtraBasis = None
    unpenalized: Unpenalized = None
    candidates: Candidates = "auto"
    landmarks: int | str | None = "auto"
    random_state: int | np.random.RandomState | None = None
    checkpoint: str | os.PathLike[str] | None = None


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class SparseBayesClassifier(Classification):
    r"""Sparse Bayesian logistic regression on any basis: the columns of X are the basis functions.

    The model of `RVC` with the columns of X as basis functions, as in Tipping (2001), section 3: automatic
    relevance determination over the columns.

    Parameters
    ----------
    {column_intercept}
    {allow_dense}
    {multi_class}
    {class_weight}
    {fit_parameters}

    Attributes
    ----------
    {classes_}
    {class_prior_}
    active_ : ndarray of shape (n_active,), int
        Functions in the model (of any class), ascending: the column of X, and -1 for the bias.
    alpha_, mu_, sigma_, log_marginal_likelihood_, log_marginal_likelihood_path_, n_iter_, status_
        As for `RVC`.
    {process_variance}
    {class_loo_}
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Posterior mode of the weights of all columns, 0 for those not in the model.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, ``X @ coef_.T + intercept_``.
    {X_offset_}

    {tipping}

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesClassifier
    >>> x = np.linspace(-1, 1, 80)
    >>> basis = np.c_[x, x**2, np.cos(37 * np.arange(80))]
    >>> model = SparseBayesClassifier().fit(basis, x**2 + 0.1 * np.sin(29 * np.arange(80)) > 0.3)
    >>> model.active_
    array([-1,  1])
    """

    allow_dense: bool = True

    # After a fit.
    X_offset_: FloatArray = field(init=False)
