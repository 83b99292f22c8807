"""Classification: `RVC` on kernels centred at the training rows, `SparseBayesClassifier` on any basis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ._checks.arguments import check_flag
from ._checks.numbers import any_array
from ._checks.targets import learn_classes
from ._estimators.base import SparseBayesEstimator
from ._estimators.chunked_classes import ChunkedColumnClassification, ChunkedKernelClassification
from ._estimators.docs import documented
from ._estimators.probabilities import check_multi_class, normalised, predict_proba, weights_in_order
from ._estimators.provider_fit import train_on_providers
from ._types import (
    Data,
    FloatArray,
    IntArray,
    Likelihood,
    Target,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import _core
    from ._data.design import Layout

__all__ = ["RVC", "SparseBayesClassifier"]


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class _Classification(ClassifierMixin, SparseBayesEstimator):  # type: ignore[misc] # scikit-learn carries no types
    """Classification: Bernoulli for two classes, a softmax or a fit per class for more."""

    multi_class: str = "ovr"

    _labels = True

    def fit(self, X: Data, y: Target = None, sample_weight: Target = None) -> Self:
        """Fit the model by maximising the Laplace approximation of its marginal likelihood.

        If the functions are columns, or kernels centred at ``candidates`` that are an integer or an array,
        rows need not be in memory: an iterable of chunks (X, y) or (X, y, sample_weight) that can be iterated
        repeatedly, a path or an Arrow data set (with y and sample_weight the names of columns), or a
        memory-mapped array too large for ``memory_limit`` are read in chunks at each step of the fit, some
        tens of times in all. With more than two classes this needs ``multi_class="ovr"``.

        {labels_fit_sections}
        """
        self._train(X, y, sample_weight)
        return self

    def fit_provider(self, provider: Any, *, classes: ArrayLike, n_samples: int | None = None) -> Self:
        """Fit the model to statistics of rows that may be on other computers or devices, or in files.

        Parameters
        ----------
        provider : PyStatistics, or list of these
            For two classes one provider, whose targets are 1 for rows of the second class and 0 for the
            others. For more a list, one for each class in turn, with targets 1 for its rows: the classes are
            fitted one against the rest. Functions are those of this estimator in order: the constant one if
            ``fit_intercept``, then the columns of X or, for a kernel estimator, each kernel centred at each
            of ``candidates``, which must be an array of distinct centres.
        classes : array-like of shape (n_classes,)
            The labels, sorted.
        {provider_sections}
        """
        providers = list(provider) if isinstance(provider, (list, tuple)) else [provider]
        train_on_providers(self, providers, n_samples, any_array("classes", classes))
        return self

    def _check_likelihood(self) -> Likelihood:
        # For two classes both are the same model: the difference of the two logits is the Bernoulli logit.
        softmax = check_multi_class(self.multi_class)
        return "multinomial" if softmax and len(self.classes_) > 2 else "bernoulli"

    def _targets(self, labels_or_values: NDArray[Any], *, reset: bool) -> list[FloatArray]:
        if reset:
            self.classes_ = learn_classes(labels_or_values)
        if (self._check_likelihood() if reset else self._likelihood) == "multinomial":
            return [np.searchsorted(self.classes_, labels_or_values).astype(np.float64)]
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [(labels_or_values == label).astype(np.float64) for label in positive]

    def _publish_posteriors(self, posteriors: list[_core.Posterior], layout: Layout) -> None:
        joint = self._likelihood == "multinomial"
        if len(posteriors) == 1 and not joint:
            super()._publish_posteriors(posteriors, layout)
            return
        functions = np.concatenate([posterior.active for posterior in posteriors]).astype(np.intp)
        classes = np.repeat(np.arange(len(posteriors)), [len(posterior.active) for posterior in posteriors])
        if joint:
            classes, functions = np.divmod(functions, self._n_basis)
        columns, at = np.unique(functions, return_inverse=True)
        shape = m, c = len(columns), len(self.classes_)
        self.active_ = layout.names(columns)
        self.alpha_, self.mu_ = np.full(shape, np.inf), np.zeros(shape)
        self.alpha_[at, classes] = np.concatenate([posterior.alpha for posterior in posteriors])
        self.mu_[at, classes] = np.concatenate([posterior.mu for posterior in posteriors])
        if joint:
            # For the weights in the model only, class by class: most functions belong to one class, so the
            # matrix of all n_active * n_classes weights would be almost all zeros.
            self.sigma_ = posteriors[0].sigma
            return
        self.sigma_ = np.zeros((c, m, m))
        for output, posterior in enumerate(posteriors):
            own = at[classes == output]
            self.sigma_[output][np.ix_(own, own)] = posterior.sigma

    def _model_of_output(self, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        if self._likelihood != "multinomial":
            return super()._model_of_output(output, columns)
        classes, rows = weights_in_order(self.alpha_)
        return classes * self._n_basis + columns[rows], self.alpha_[rows, classes], self.mu_[rows, classes]

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the linear predictor at the posterior mode, :math:`\mu^T \phi(x)`.

        Parameters
        ----------
        {X}

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest; or the logits of the softmax.

        {predict_raises}
        """
        means, _ = self._moments(X, variance=False)
        return means[:, 0] if means.shape[1] == 1 else means

    def predict_proba(self, X: ArrayLike, *, moderate: bool = True) -> FloatArray:
        r"""Return class probabilities.

        Uncertainty about the weights moves probabilities towards one half: with m and v the posterior mean
        and variance of the linear predictor, :math:`\sigma(\kappa m)` with :math:`\kappa = (1 + \pi v /
        8)^{-1/2}` (MacKay 1992). With more than two classes these are divided by their sum. A softmax has
        :math:`P(c) \propto 1 / \sum_d \exp(-\kappa_{cd} (m_c - m_d))`, where :math:`\kappa_{cd}` is computed
        from the posterior variance of the difference of two logits (Daunizeau 2017).

        Parameters
        ----------
        {X}
        moderate : bool, default=True
            False: the plain sigmoid of the mode, :math:`\sigma(m)`, or its softmax.

        Returns
        -------
        {probabilities}

        {predict_raises}
        """
        moderate = check_flag("moderate", moderate)
        if getattr(self, "_likelihood", None) == "multinomial":
            return predict_proba(self, X, moderate)
        means, variances = self._moments(X, variance=moderate)
        return normalised(means if variances is None else means / np.sqrt(1.0 + np.pi / 8.0 * variances))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class with the largest probability according to `predict_proba`.

        {predict_sections}
        """
        check_is_fitted(self)
        if len(self.classes_) == 2:
            winners = (self.decision_function(X) > 0.0).astype(np.intp)
        else:
            winners = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[winners]


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class RVC(ChunkedKernelClassification, _Classification):
    r"""Relevance vector classification: sparse Bayesian logistic regression on kernels at the training rows.

    .. math:: P(y = 1) = \sigma\Big(w_0 + \sum_n w_n k(x, x_n)\Big), \quad w_j \sim N(0, \alpha_j^{-1})

    The precisions :math:`\alpha` maximise the Laplace approximation of the marginal likelihood (Tipping &
    Faul 2003, section 2.2). At the maximum most of them are infinite, which deletes their functions from the
    model. More than two classes are fitted one against the rest, and their probabilities divided by their
    sum; or jointly, with ``multi_class="softmax"``: :math:`P(y = c) \propto e^{\eta_c(x)}`, with a weight
    vector and precisions for each class.

    Parameters
    ----------
    {kernel_parameters}
    {multi_class}
    {extra_basis}
    {scheme}
    {alpha_prior}
    {candidates}
    {random_state}
    {memory_limit}
    {checkpoint}
        Must be None if rows are read in chunks. One against the rest, each fit has a file of its own, with a
        suffix.
    {search}
        The evidence is the Laplace approximation. Models of at most 20 functions try a few exchanges in any
        case.
    tol : positive float, default=1e-6
        At convergence no :math:`\ln \alpha_j` would change by more (Tipping & Faul 2003, section 4.4), and no
        inactive candidate has a gain.
    {run_parameters}

    Attributes
    ----------
    {classes_}
    active_ : ndarray of shape (n_active,), int
        Functions in the model (of any class), ascending: the training row, and -1 for the bias. With several
        kernels row n of kernel p is ``p * n_samples + n``; after all P kernels extra column j is
        ``P * n_samples + j``.
    alpha_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Prior precisions of the weights. With more than two classes a column for each; inf if a class does not
        use a function. (A softmax of two classes with precisions :math:`\alpha` for both is the Bernoulli
        model with :math:`\alpha / 2`, which is what is published.)
    mu_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Posterior mode of the weights; 0 if a class does not use a function.
    sigma_ : ndarray of shape (n_active, n_active) or (n_classes, n_active, n_active)
        Posterior covariance of the weights at the mode; 0 if a class does not use a function. In a softmax
        weights of different classes covary: then the matrix of the weights in the model alone, class after
        class, (n_weights, n_weights), in the order of ``mu_.T[np.isfinite(alpha_.T)]``.
    {log_marginal_likelihood_}
    status_ : str
        ``"converged"``; ``"empty"``: converged, but the model has no function except the bias, for no class,
        and predicts the same everywhere; ``"alpha_floor"``: converged, but the prior precision of a weight is
        at its lower bound, as can happen for separable classes; ``"max_iter"``; ``"stopped"`` by the
        callback; ``"stalled"``: close to an optimum, but not to within ``tol``. Of several fits the worst.
    {relevance_}
    dual_coef_ : ndarray of shape (1 or n_classes, n_relevance)
        Weights of these functions; not with a list of kernels.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, as for `RVR`.
    {kernel_coef_}
    {kernel_attributes}

    Notes
    -----
    A fit ends at a fixed point of the updates (Tipping & Faul 2003, section 2.2), which treat the weights B
    of the Laplace approximation as constants in :math:`\alpha`. The fixed point is close to a stationary
    point of the approximation, but not equal to one.

    {learning_notes}

    {block_notes}

    Names elsewhere: the dual coefficients of libsvm are ``mu_`` here, with unconstrained signs: a relevance
    vector may vote against its own class.

    {variational_notes}
    The likelihood of each row is replaced by a quadratic lower bound (Jaakkola & Jordan
    2000). More than two classes are fitted one against the rest.

    References
    ----------
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
    >>> model = RVC().fit(X, y)
    >>> model.status_, len(model.relevance_) < 10
    ('converged', True)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array(['same', 'different'], dtype='<U9')
    >>> y = np.array(["left", "middle", "right"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    >>> softmax = RVC(multi_class="softmax").fit(X, y)
    >>> softmax.status_, softmax.alpha_.shape == (len(softmax.active_), 3)
    ('converged', True)
    """

    checkpoint: str | os.PathLike[str] | None = None


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class SparseBayesClassifier(ChunkedColumnClassification, _Classification):
    r"""Sparse Bayesian logistic regression on any basis: the columns of X are the basis functions.

    The model of `RVC` with the columns of X as basis functions, as in Tipping (2001), section 3: automatic
    relevance determination over the columns.

    Parameters
    ----------
    {column_intercept}
    {multi_class}
    {scheme}
    {alpha_prior}
    {memory_limit}
    {search}
        The evidence is the Laplace approximation. Models of at most 20 functions try a few exchanges in any
        case.
    tol : positive float, default=1e-6
        At convergence no :math:`\ln \alpha_j` would change by more, and no inactive column has a gain.
    {run_parameters}

    Attributes
    ----------
    {classes_}
    active_ : ndarray of shape (n_active,), int
        Functions in the model (of any class), ascending: the column of X, and -1 for the bias.
    alpha_, mu_, sigma_, log_marginal_likelihood_, log_marginal_likelihood_path_, n_iter_, status_
        As for `RVC`.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Posterior mode of the weights of all columns, 0 for those not in the model.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, ``X @ coef_.T + intercept_``.
    {X_offset_}
    {n_features_in_}

    Notes
    -----
    Like scikit-learn's linear models, this one calls the posterior mode ``coef_``. `RVR` describes
    ``memory_limit``, and `RVC` the variational scheme.

    References
    ----------
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
