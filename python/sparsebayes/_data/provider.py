"""`PyStatistics`: what has to be answered for rows that are somewhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._types import FloatArray, Likelihood

#: Functions by number, as the core asks about them.
Functions: TypeAlias = NDArray[np.int64]


class PyStatistics(ABC):
    r"""Rows that answer for themselves: the seam for other places, devices and engines.

    A fit asks for sums over rows and for nothing else. With the rows :math:`\phi_n` of the design matrix, the
    sample weights :math:`v_n` and the targets :math:`t_n`, the question comes with weights ``mu`` of the
    functions ``active``, all others being zero, and the answer is made of

    .. math::

        \eta_n = \sum_{j \in active} \mu_j \phi_{nj}, \quad
        r_n = v_n \frac{\partial \ln p(t_n | \eta_n)}{\partial \eta_n}, \quad
        w_n = -v_n \frac{\partial^2 \ln p(t_n | \eta_n)}{\partial \eta_n^2}

    =============  ==================  ==================  ========================================
    likelihood     :math:`r_n / v_n`   :math:`w_n / v_n`   deviance of a row, over :math:`v_n`
    =============  ==================  ==================  ========================================
    ``gaussian``   :math:`t - \eta`    1                   :math:`(t - \eta)^2`
    ``bernoulli``  :math:`t - s`       :math:`s (1 - s)`   :math:`-2 (t \eta - \ln(1 + e^\eta))`
    ``poisson``    :math:`t - e^\eta`  :math:`e^\eta`      :math:`-2 (t \eta - e^\eta - \ln t!)`
    =============  ==================  ==================  ========================================

    with :math:`s = 1 / (1 + e^{-\eta})`. (Tipping & Faul 2003, equations 9 to 14; noise and priors are no
    business of a provider.) Columns and targets are in their own units: nothing is scaled or centred. A
    function that is 1 everywhere comes first for estimators with ``fit_intercept=True``; their fits make
    the sums of centred columns from those of the columns given, which loses twice as many digits as a mean
    has more than a standard deviation: subtract a number near the mean of columns that are far from 0.

    Answers are sums, so that the answers of parts of the rows add up to that of all (`SummedStatistics`), and
    no question refers to one before. The same question must have the same answer, to the bit if a fit is to
    be the same to the bit. Questions come one after another, from a thread that is not the caller's.

    A subclass gives ``n_basis``, ``likelihood``, ``target_moments`` and ``sweep``, for likelihoods other than
    the Gaussian ``variance_drift``, and as many of the other methods as are to be fast: each is a part of
    what another answers.

    Attributes
    ----------
    n_basis : int
        Number K of basis functions.
    likelihood : {"gaussian", "bernoulli", "poisson"}
        Distribution of a target. Bernoulli targets are 0 or 1, or between; Poisson targets counts.

    See Also
    --------
    RowPart : Rows in memory.
    SummedStatistics : Many of these as one.

    References
    ----------
    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import PyStatistics, SparseBayesRegressor
    >>> class Rows(PyStatistics):
    ...     likelihood = "gaussian"
    ...
    ...     def __init__(self, Phi, t):
    ...         self.Phi, self.t, self.n_basis = Phi, t, Phi.shape[1]
    ...
    ...     def target_moments(self, centre):
    ...         return [len(self.t), (self.t - centre).sum(), ((self.t - centre) ** 2).sum()]
    ...
    ...     def sweep(self, active, mu, wanted):
    ...         r = self.t - self.Phi[:, active] @ mu
    ...         return r @ r, self.Phi.T @ r, (self.Phi**2).sum(axis=0), self.Phi.T @ self.Phi[:, wanted]
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(100, 5))
    >>> model = SparseBayesRegressor(fit_intercept=False).fit_provider(
    ...     Rows(Phi, 2 * Phi[:, 3] + 0.1 * rng.normal(size=100))
    ... )
    >>> model.active_
    array([3])
    """

    n_basis: int
    likelihood: Likelihood

    @abstractmethod
    def target_moments(self, centre: float) -> FloatArray:
        r"""Return three sums: of :math:`v_n`, :math:`v_n (t_n - c)` and :math:`v_n (t_n - c)^2`.

        Asked once with ``centre`` 0, and again with the mean for a Gaussian likelihood, whose unit is the
        standard deviation of the targets.

        Parameters
        ----------
        centre : float

        Returns
        -------
        array-like of shape (3,)
        """

    @abstractmethod
    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        r"""Return products of all K functions: a pass of N K (len(wanted) + 2) operations.

        Parameters
        ----------
        active : ndarray of shape (m,), int
        mu : ndarray of shape (m,)
        wanted : ndarray of shape (p,), int
            Functions whose products with all others are asked for; mostly those new among the active ones.
            There may be none, as there may be no active ones.

        Returns
        -------
        deviance : float
            Minus twice the log likelihood; for a Gaussian the weighted sum of squared residuals.
        gradient : array-like of shape (K,)
            :math:`\sum_n r_n \phi_{ni}`.
        diag : array-like of shape (K,)
            :math:`\sum_n w_n \phi_{ni}^2`. At ``mu`` = 0 it tells the lengths of the columns.
        gram : array-like of shape (K, p)
            :math:`\sum_n w_n \phi_{ni} \phi_{nj}` for each j wanted.
        """

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        """Return the deviance, and gradient and Gram matrix of a few functions: N len(js)^2 operations.

        Asked at each Newton step with ``js`` the active functions, and now and then with up to some hundred
        others. By default a part of ``sweep``, which is slow.

        Parameters
        ----------
        active : ndarray of shape (m,), int
        mu : ndarray of shape (m,)
        js : ndarray of shape (p,), int

        Returns
        -------
        deviance : float
        gradient : array-like of shape (p,)
        gram : array-like of shape (p, p)
            As in ``sweep``, for the functions ``js`` alone.
        """
        deviance, gradient, _, gram = self.sweep(active, mu, js)
        return deviance, np.asarray(gradient)[js], np.asarray(gram)[js]

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return the deviance, and the gradient of the active functions; by default a part of ``among``.

        Parameters
        ----------
        active : ndarray of shape (m,), int
        mu : ndarray of shape (m,)

        Returns
        -------
        deviance : float
        gradient : array-like of shape (m,)
        """
        deviance, gradient, _ = self.among(active, mu, active)
        return deviance, gradient

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        """Return the deviance alone, as line searches ask for it; by default a part of ``gradient``.

        It may be infinite, where a step goes too far; no other answer may.

        Parameters
        ----------
        active : ndarray of shape (m,), int
        mu : ndarray of shape (m,)

        Returns
        -------
        float
        """
        return self.gradient(active, mu)[0]

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        r"""Return how posterior variances answer to moves of the mode through the weights :math:`w_n` alone.

        Newton's method for the precisions asks for it, with likelihoods other than the Gaussian only.

        Parameters
        ----------
        active : ndarray of shape (m,), int
        mu : ndarray of shape (m,)
        sigma : ndarray of shape (m, m)
            Covariance of the weights; where the fit centres columns another matrix, which is not symmetric.

        Returns
        -------
        array-like of shape (m, m)
            :math:`\sum_n (\partial w_n / \partial \eta_n) T_{nj}^2 T_{nk}` at (j, k), where :math:`T = \Phi_A
            \Sigma` has the rows :math:`\phi_n^T \Sigma`. For Bernoulli :math:`\partial w / \partial \eta = v
            s (1 - s)(1 - 2 s)`, for Poisson :math:`v e^\eta`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} needs a method variance_drift for the likelihood {self.likelihood!r}"
        )

    def listen(self, cancelled: Callable[[], bool]) -> None:  # noqa: B027 # for those who care
        """Take note of what tells whether a fit was given up, as by Ctrl-C; called before questions.

        A provider whose answers take seconds should look now and then, and raise something where that is
        true: what it raises then is dropped. By default nothing listens, and Ctrl-C is heard between
        questions.

        Parameters
        ----------
        cancelled : callable
            Returns a bool.
        """
