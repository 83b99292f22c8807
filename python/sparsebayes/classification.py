"""Classification: `RVC` on kernels about the training rows, `SparseBayesClassifier` on any basis."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ._checks.arguments import check_flag
from ._checks.targets import learn_classes
from ._estimators.chunked_classes import ChunkedColumnClassification, ChunkedKernelClassification
from ._estimators.probabilities import check_multi_class, normalised, predict_proba, publish, weights_in_order
from ._estimators.provider_fit import ProviderClassification
from ._types import (
    Callback,
    Candidates,
    Data,
    ExtraBasis,
    FloatArray,
    IntArray,
    KernelSpec,
    Likelihood,
    Scheme,
    Search,
    Target,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import _core
    from ._data.design import Layout

__all__ = ["RVC", "SparseBayesClassifier"]


class _Classification(ClassifierMixin, ProviderClassification):  # type: ignore[misc] # scikit-learn carries no types
    """Targets that are class labels: Bernoulli for two classes, a softmax or a fit per class for more."""

    if TYPE_CHECKING:
        multi_class: str

    _labels = True

    def fit(self, X: Data, y: Target = None, sample_weight: Target = None) -> Self:
        """Fit the model by maximising the Laplace approximation of its marginal likelihood.

        Rows need not be in memory, where functions are columns, or stand about ``candidates`` that are an
        integer or an array: an iterable of chunks (X, y) or (X, y, sample_weight) that can be gone through
        again and again, a path or a data set of Arrow (y and sample_weight being names of its columns), or a
        mapped array too large for ``memory_limit`` are read part by part at each step of the fit, some tens
        of times in all. With more than two classes that is for ``multi_class="ovr"``.

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
            If the data determine more parameters than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _check_likelihood(self) -> Likelihood:
        # Two classes are the same model either way: the difference of their logits is the one logit.
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
        if self._likelihood == "multinomial":
            publish(self, posteriors[0], layout, self._n_basis, len(self.classes_))
            return
        if len(posteriors) == 1:
            super()._publish_posteriors(posteriors, layout)
            return
        columns = np.unique(np.concatenate([posterior.active for posterior in posteriors]))
        m, c = len(columns), len(posteriors)
        self.active_ = layout.names(columns.astype(np.intp))
        self.alpha_, self.mu_, self.sigma_ = np.full((m, c), np.inf), np.zeros((m, c)), np.zeros((c, m, m))
        for output, posterior in enumerate(posteriors):
            at = np.searchsorted(columns, posterior.active)
            self.alpha_[at, output] = posterior.alpha
            self.mu_[at, output] = posterior.mu
            self.sigma_[output][np.ix_(at, at)] = posterior.sigma

    def _of_output(self, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        if self._likelihood != "multinomial":
            return super()._of_output(output, columns)
        classes, rows = weights_in_order(self.alpha_)
        return classes * self._n_basis + columns[rows], self.alpha_[rows, classes], self.mu_[rows, classes]

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the linear predictor at the posterior mode, :math:`\mu^T \phi(x)`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest; or the logits of the softmax.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        means, _ = self._moments(X, variance=False)
        return means[:, 0] if means.shape[1] == 1 else means

    def predict_proba(self, X: ArrayLike, *, moderate: bool = True) -> FloatArray:
        r"""Return class probabilities.

        Uncertainty about the weights draws probabilities towards one half: with m and v the posterior mean
        and variance of the linear predictor, :math:`\sigma(\kappa m)` with :math:`\kappa = (1 + \pi v /
        8)^{-1/2}` (MacKay 1992). With more than two classes these are divided by their sum. A softmax
        has :math:`P(c) \propto 1 / \sum_d \exp(-\kappa_{cd} (m_c - m_d))`, where :math:`\kappa_{cd}` belongs
        to the posterior variance of the difference of two logits (Daunizeau 2017).

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        moderate : bool, default=True
            False: the plain sigmoid of the mode, :math:`\sigma(m)`, or its softmax.

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
        moderate = check_flag("moderate", moderate)
        if getattr(self, "_likelihood", None) == "multinomial":
            return predict_proba(self, X, moderate)
        means, variances = self._moments(X, variance=moderate)
        return normalised(means if variances is None else means / np.sqrt(1.0 + np.pi / 8.0 * variances))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class, as `predict_proba` sees it.

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
        check_is_fitted(self)
        if len(self.classes_) == 2:
            winners = (self.decision_function(X) > 0.0).astype(np.intp)
        else:
            winners = np.argmax(self.predict_proba(X), axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels


class RVC(ChunkedKernelClassification, _Classification):
    r"""Relevance vector classification: a sparse Bayesian logistic model on kernels about the training rows.

    .. math:: P(y = 1) = \sigma\Big(w_0 + \sum_n w_n k(x, x_n)\Big), \quad w_j \sim N(0, \alpha_j^{-1})

    The precisions :math:`\alpha` maximise the marginal likelihood in its Laplace approximation (Tipping &
    Faul 2003, section 2.2); most of them go to infinity there, and take their functions out of the model.
    More than two classes are fitted one against the rest, and their probabilities divided by their sum; or
    together, with ``multi_class="softmax"``: :math:`P(y = c) \propto e^{\eta_c(x)}`, a weight vector and
    precisions for each class.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        ``"rbf"``, ``"laplacian"``, ``"poly"``, ``"linear"``, ``"sigmoid"``, ``"linear_spline"``; an object of
        `sparsebayes.kernels`; a callable ``k(X, Z) -> (n, m)``; or ``"precomputed"``: X holds kernel values.
        A list makes a dictionary of every kernel about every training row.
    gamma : {"scale", "auto", "learn", "ard"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features. ``"ard"`` learns one width of ``"rbf"``
        for each input, and so finds out which inputs matter (``inputs_``). ``"learn"`` learns one width for
        all inputs, of ``"rbf"`` or ``"laplacian"``. Learning starts at 2 sqrt(n_features) times the spread of
        each input, and continues as with ``optimize_kernel=True``.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias. Like any other function it may be pruned.
    optimize_kernel : bool, default=False
        Whether to learn all continuous parameters of the kernels, those given among the candidates: widths,
        gammas, and coef0 where it is not 0. See Notes.
    multi_class : {"ovr", "softmax"}, default="ovr"
        More than two classes: ``"ovr"`` fits each against the rest; ``"softmax"`` fits one multinomial model,
        with the full Hessian over the weights of all classes, and needs about half as many functions. Two
        classes are the same model either way.
    extra_basis : {"linear"}, transformer or callable, optional
        Functions beside the kernels, each a column with its own prior precision: the inputs themselves; a
        scikit-learn transformer, cloned and fitted to X; or a callable ``f(X) -> (n, p)``.
    scheme : {"sequential", "mackay", "em", "variational"}, default="sequential"
        How the precisions are found: function by function (Tipping & Faul 2003), or from the full basis by
        MacKay's or by EM updates with pruning (Tipping 2001, appendix A; for comparison: slow, N^3). All
        three end at an optimum of the same kind, where all conditions for convergence hold. Or by variational
        inference (Bishop & Tipping 2000; N^3 too), which gives
        alpha a posterior in place of a value. See Notes.
    alpha_prior : (shape, rate), default=(0.0, 0.0)
        Gamma prior of each :math:`\alpha_j`; (0, 0) is uniform in :math:`\ln \alpha_j`. With a prior the log
        posterior is maximised, in which the log density of each :math:`\ln \alpha_j` in the model is counted
        from its peak.
    candidates : int or array-like of shape (n_candidates, n_features), optional
        Centres of the kernel functions in the dictionary. None: every training row. An int: that many
        training rows, or all where there are no more, spread over the inputs by k-means++ (distinct rows of
        positive weight alike; inputs should be of comparable scale), so that time and memory grow with N and
        not with N^2. An array: its rows, which need not be training rows. With ``kernel="precomputed"`` an
        int chooses columns of X, and an array is an error.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice that an integer ``candidates`` asks for; an int makes it the same in every fit.
        Nothing else is random.
    memory_limit : int or str, optional
        Bytes that a fit may take beside the data given, as for `RVR`.
    checkpoint : str or path-like, optional
        File to which a fit in blocks (see Notes) writes its state before each sweep, and from which it goes
        on after a crash, to the same model bit for bit. Removed at the end. One against the rest, each fit
        has a file of its own, with a suffix. Must be None where rows are read part by part.
    search : {"greedy", "exchange"}, default="greedy"
        What is tried once the sequential scheme has come to an optimum. ``"exchange"``: functions of the
        model change places with others, one or two for one and one for two, until no exchange gains a
        thousandth of a nat; never ends lower, and takes about three times as long. The evidence is the
        Laplace approximation. Models of at most 20 functions try a few exchanges anyway.
    tol : positive float, default=1e-6
        At convergence no :math:`\ln \alpha_j` would change by more (Tipping & Faul 2003, section 4.4), and no
        function outside has anything to gain.
    max_iter : int, default=100_000
        Largest number of steps of each fit.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each step; returning True stops the fit with the model as
        it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model (of any class), ascending: the training row, and -1 for the bias. With several
        kernels row n of kernel p is ``p * n_samples + n``; after all P kernels extra column j is
        ``P * n_samples + j``.
    alpha_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Prior precisions of the weights. With more than two classes a column for each; inf where a class does
        not use a function. (A softmax of two classes with precisions :math:`\alpha` for both is a Bernoulli
        model with :math:`\alpha / 2`, and that is what is published.)
    mu_ : ndarray of shape (n_active,) or (n_active, n_classes)
        Posterior mode of the weights; likewise, 0.
    sigma_ : ndarray of shape (n_active, n_active) or (n_classes, n_active, n_active)
        Posterior covariance of the weights at the mode; likewise, 0. Of a softmax, where weights of different
        classes covary, that of the weights in the model alone, class after class: (n_weights, n_weights), in
        the order of ``mu_.T[np.isfinite(alpha_.T)]``.
    log_marginal_likelihood_ : float
        Laplace approximation of the log evidence in nats (Tipping 2001); the sum over the fits.
    log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The same at the start and after each step of each fit in turn. It need not rise at every step: finding
        the mode anew can lower it.
    n_iter_ : int
        Steps taken, in all fits.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias, for no
        class, and predictions are the same everywhere; ``"alpha_floor"``: likewise, but the prior precision
        of a weight is at its floor, as can happen on separable classes; ``"max_iter"``; ``"stopped"`` by the
        callback; ``"stalled"``: close to an optimum, but not to ``tol``. Of several fits the worst.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1 or n_classes, n_relevance)
        Their weights; not with a list of kernels.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, as for `RVR`.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    extra_coef_ : ndarray of shape (1 or n_classes, p)
        Weights of the extra columns, 0 where pruned; only with ``extra_basis``.
    extra_basis_ : transformer, callable, "linear" or None
        What makes the extra columns: the transformer as fitted, or ``extra_basis`` itself.
    candidates_ : ndarray of shape (n_candidates, n_features)
        The centres, chosen or given; only with ``candidates``, and not with ``kernel="precomputed"``. Where
        they were given, ``active_`` and ``relevance_`` count rows of this array in place of training rows,
        and n_candidates takes the place of n_samples in ``active_``.
    candidate_rows_ : ndarray of shape (n_candidates,), int
        The training rows chosen, ascending; only where ``candidates`` is an int.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernel with all its parameters, given or learned.
    inputs_ : dict of {str or int: float}
        Relevance of each input, by its name or else its number, the most important first: the root mean
        square slope of the kernel functions times the input's spread, by the largest. Only where the kernel
        is Gaussian with one width per input, as with ``gamma="ard"``, and the rows were in memory.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    A fit ends at a fixed point of the updates (Tipping & Faul 2003, section 2.2), which treat the weights B
    of the Laplace approximation as constants in :math:`\alpha`. The fixed point is close to a stationary
    point of the approximation, but not equal to one.

    With ``gamma="ard"``, ``gamma="learn"`` or ``optimize_kernel=True`` the kernel is learned. A Gaussian
    process on at most 300 rows proposes its parameters. Fits with these, with lengths closer to one
    another, and with all lengths longer or shorter, are made on at most 600 rows without one fold after
    another, and that kernel is taken which predicts the rows left out best, by the log density. A fit
    that has more functions than half of its rows is dropped. The evidence may be lower than that of the
    kernel given: it overfits narrow kernels. One width per input finds out which inputs matter: the
    widths of others become large. The sign of a coef0 stays, and 0 stays 0. With more than two classes
    all share one kernel. All this depends on no clock and no thread; it takes about a second, or up to
    ten times as long as the fit with the kernel chosen, whose steps ``callback`` sees and whose
    attributes are kept.

    A dictionary of more than 30,000 kernel functions is looked at in blocks: the scheme runs on a working
    set of a few thousand, sweeps over the rest bring in what gains, and the last sweep, over all candidates,
    finds none that does. Kernels that are smooth at the scale of the data are swept through rigorous bounds,
    in L^2 operations a candidate (L: a few hundred landmarks) in place of N n_active. ``callback`` hears of
    sweeps by records with the action ``"sweep"``, and ``checkpoint`` names a file from which a fit that was
    killed goes on.

    Names elsewhere: the dual coefficients of libsvm are our ``mu_``, whose sign is free here: a relevance
    vector may vote against its own class.

    With ``scheme="variational"`` precisions have a posterior too, factorised, :math:`q(w) q(\alpha)`, and
    the likelihood of each row gives way to a quadratic lower bound (Jaakkola & Jordan 2000), each touching
    where that is tightest. ``alpha_`` are expectations, ``mu_`` and ``sigma_`` mean and covariance of q(w),
    and ``log_marginal_likelihood_`` and its path the lower bound on :math:`\ln p(y)` of the functions in the
    model, hyperpriors and all, which never falls. Functions are pruned as :math:`\langle\alpha_j\rangle`
    goes to infinity. The paper's vague prior is (1e-6, 1e-6). With (0, 0), its limit, the constants of the
    improper prior are left out, and what is bounded is the likelihood of :math:`\langle\alpha\rangle`. More
    than two classes are fitted one against the rest.

    References
    ----------
    C. M. Bishop and M. E. Tipping (2000). Variational relevance vector machines. UAI, 46-53.

    M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1, 211-244.

    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

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

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        optimize_kernel: bool = False,
        multi_class: str = "ovr",
        extra_basis: ExtraBasis = None,
        scheme: Scheme = "sequential",
        alpha_prior: tuple[float, float] = (0.0, 0.0),
        candidates: Candidates = None,
        random_state: int | np.random.RandomState | None = None,
        memory_limit: int | str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        search: Search = "greedy",
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
        self.optimize_kernel = optimize_kernel
        self.multi_class = multi_class
        self.extra_basis = extra_basis
        self.scheme = scheme
        self.alpha_prior = alpha_prior
        self.candidates = candidates
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.search = search
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback


class SparseBayesClassifier(ChunkedColumnClassification, _Classification):
    """Sparse Bayesian logistic regression on any basis: the columns of X are the basis functions.

    The model of `RVC` with the columns of X in place of the kernel functions, as in Tipping (2001), section
    3: automatic relevance determination over the columns.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model has a constant function, the intercept. The columns are then centred by their
        weighted mean, so that a constant added to a column changes nothing but ``intercept_``. False: the
        columns are exactly those given.
    multi_class, scheme, alpha_prior, memory_limit, search, tol, max_iter, n_jobs, verbose, callback
        As for `RVC`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model (of any class), ascending: the column of X, and -1 for the bias.
    alpha_, mu_, sigma_, log_marginal_likelihood_, log_marginal_likelihood_path_, n_iter_, status_
        As for `RVC`.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Posterior mode of the weights of all columns, 0 for those not in the model.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constant of the linear predictor, ``X @ coef_.T + intercept_``.
    X_offset_ : ndarray of shape (n_features,)
        Weighted mean of each column, which is subtracted from it; 0 with ``fit_intercept=False``. ``mu_`` and
        ``sigma_`` belong to the columns less these.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Names elsewhere: scikit-learn's linear models call the posterior mode ``coef_``, and so do we.

    References
    ----------
    M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1, 211-244.

    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

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

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        scheme: Scheme = "sequential",
        alpha_prior: tuple[float, float] = (0.0, 0.0),
        memory_limit: int | str | None = None,
        search: Search = "greedy",
        tol: float = 1e-6,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.scheme = scheme
        self.alpha_prior = alpha_prior
        self.memory_limit = memory_limit
        self.search = search
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback
