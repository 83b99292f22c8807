"""Relevance eigen-vector machines (Kropotov & Vetrov 2007): priors along the eigenvectors of the Hessian."""

from __future__ import annotations

from ._revm.classifier import EigenClassifier
from ._revm.regressor import EigenRegressor

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
