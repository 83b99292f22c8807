"""Regression: `RVR` on kernels about the training rows, `SparseBayesRegressor` on any basis."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._checks.arguments import check_flag, check_prior
from ._estimators import outputs as _outputs
from ._estimators.chunked import ChunkedColumnRegression, ChunkedKernelRegression
from ._estimators.provider_fit import ProviderRegression
from ._types import (
    Callback,
    Candidates,
    Data,
    ExtraBasis,
    FloatArray,
    KernelSpec,
    Likelihood,
    Scheme,
    Search,
    Target,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._data.design import Layout

__all__ = ["RVR", "SparseBayesRegressor"]


class _Regression(RegressorMixin, ProviderRegression):  # type: ignore[misc] # scikit-learn carries no types
    """Targets that are numbers: one fit, a Gaussian likelihood unless told otherwise."""

    _labels = False

    if TYPE_CHECKING:
        noise_variance: float | ArrayLike | None
        shared_noise: bool

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn is to know about this estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = _outputs.are_possible(self)
        return tags

    def fit(
        self, X: Data, y: Target = None, sample_weight: Target = None, y_std: ArrayLike | None = None
    ) -> Self:
        """Fit the model by maximising its marginal likelihood.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), iterable of chunks, path, or data set of Arrow
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples). These
            are read part by part, and need not fit in memory: arrays, `numpy.memmap` for instance, for which
            the usual fit would take more than ``memory_limit``; an iterable of chunks (X, y) or (X, y,
            sample_weight), or a function that returns one; the path of Parquet or Arrow files, a directory or
            a pattern (needs ``pip install sparsebayes[arrow]``), a ``pyarrow.dataset.Dataset``, a
            ``RecordBatchReader`` or a ``Table``. See Notes of the class.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or str
            Targets. Several outputs, with a Gaussian likelihood only, share functions and prior precisions; a
            single column counts as no second dimension. None with chunks; for data of Arrow the name of the
            target column, and all columns but those of y and sample_weight are inputs.
        sample_weight : array-like of shape (n_samples,), or str, optional
            Weight of each row: 2 counts like two equal rows, 0 like none, so that the sum of weights is the
            number of rows. For data of Arrow the name of a column. Where targets differ in how precise they
            are, give ``y_std`` instead of weights.
        y_std : array-like of shape (n_samples,), optional
            Known standard deviation of each target, up to a common factor: target n has noise of variance
            ``noise_variance_ * y_std[n]**2``. The factor is estimated; with ``noise_variance=1.0`` it is 1.
            The unit does not matter. With both, a row of ``sample_weight`` 2 counts like two equal rows of
            that standard deviation. Rows in memory, y of one column and a Gaussian likelihood only.

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
        self._train(X, y, sample_weight, y_std=y_std)
        return self

    def _targets(self, labels_or_values: NDArray[Any], *, reset: bool) -> list[FloatArray]:
        return [labels_or_values]

    def _check_likelihood(self) -> Likelihood:
        return "gaussian"

    def _takes_outputs(self) -> bool:
        return True

    def _publish_posteriors(self, posteriors: list[Any], layout: Layout) -> None:
        if isinstance(posteriors[0], _core.OutputPosterior):
            _outputs.publish(self, posteriors[0], layout)
            return
        super()._publish_posteriors(posteriors, layout)
        self.beta_ = posteriors[0].beta
        self.noise_variance_ = 1.0 / self.beta_

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, *, y_std: ArrayLike | None = None
    ) -> FloatArray: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], *, y_std: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self, X: ArrayLike, return_std: bool = False, *, y_std: ArrayLike | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        The predictive distribution is Gaussian with mean :math:`\mu^T \phi(x)` and variance
        :math:`\beta^{-1} + \phi(x)^T \Sigma \phi(x)` (Tipping 2001, equations 21 and 22).

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        y_std : positive float or array-like of shape (n,), optional
            Standard deviations of new targets, after a fit with ``y_std`` and in its unit: their part of the
            variance is ``noise_variance_ * y_std**2``. None: that of the typical training row, ``y_std**2``
            being the harmonic mean of its squares.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, n_outputs)
        std : ndarray of the same shape
            Only if ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        mean, variance = self._moments(X, variance=check_flag("return_std", return_std))
        if self.mu_.ndim == 1:
            mean, variance = mean[:, 0], None if variance is None else variance[:, 0]
        return mean if variance is None else (mean, np.sqrt(self._noise_of(y_std, len(mean)) + variance))


class RVR(ChunkedKernelRegression, _Regression):
    r"""Relevance vector regression: a sparse Bayesian linear model on kernels about the training rows.

    .. math:: y = w_0 + \sum_n w_n k(x, x_n) + \epsilon, \quad w_j \sim N(0, \alpha_j^{-1}), \quad
        \epsilon \sim N(0, \beta^{-1})

    The precisions :math:`\alpha` and :math:`\beta` maximise the marginal likelihood (Tipping & Faul 2003,
    equation 7); most :math:`\alpha_j` go to infinity there, and take their functions out of the model. The
    rows whose functions stay are the relevance vectors.

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
    noise_variance : positive float or array-like of shape (n_outputs,), optional
        Variance of the noise, of every output or of each; None: estimated, down to a floor of var(y) / 1e6.
    shared_noise : bool, default=False
        Whether all columns of a y of several have one noise level (the multiple-measurement-vector model;
        gamma-MAP in M/EEG source localisation) in place of one each.
    extra_basis : {"linear"}, transformer or callable, optional
        Functions beside the kernels, each a column with its own prior precision: the inputs themselves; a
        scikit-learn transformer, cloned and fitted to X; or a callable ``f(X) -> (n, p)``.
    keep_rows : bool, default=False
        Whether the model has a copy of the training rows, which its pickles then hold too. Predictions with
        ``healed=True`` need it.
    scheme : {"sequential", "mackay", "em", "variational"}, default="sequential"
        How the precisions are found: function by function (Tipping & Faul 2003), or from the full basis by
        MacKay's or by EM updates with pruning (Tipping 2001, appendix A; for comparison: slow, N^3). All
        three end at an optimum of the same kind, where all conditions for convergence hold. Or by variational
        inference (Bishop & Tipping 2000; N^3 too), which gives
        alpha and beta a posterior in place of a value. See Notes.
    alpha_prior : (shape, rate), default=(0.0, 0.0)
        Gamma prior of each :math:`\alpha_j`; (0, 0) is uniform in :math:`\ln \alpha_j`. With a prior the log
        posterior is maximised, in which the log density of each :math:`\ln \alpha_j` in the model is counted
        from its peak.
    noise_prior : (shape, rate), default=(0.0, 0.0)
        Gamma prior of :math:`\beta`; (0, 0) is uniform in :math:`\ln \beta`.
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
        Bytes that a fit may take beside the data given, as a number or a text such as ``"2GiB"``; None: half
        of the machine's memory, or of that of its container. What is read part by part is read in parts that
        fit, and dictionaries too large for it are an error that names the number of candidates that is not.
        See Notes.
    checkpoint : str or path-like, optional
        File to which a fit that reads its rows part by part, or its dictionary in blocks, writes what it has,
        every few seconds or before each sweep, and from which it goes on after a crash, to the same model bit
        for bit. Removed at the end. See Notes.
    search : {"greedy", "exchange"}, default="greedy"
        What is tried once the sequential scheme has come to an optimum. ``"exchange"``: functions of the
        model change places with others, one or two for one and one for two, until no exchange gains a
        thousandth of a nat; never ends lower, and takes about three times as long. y has one column then.
        Regressions of counts with at most 20 functions try a few exchanges anyway.
    tol : positive float, default=1e-6
        At convergence no :math:`\ln \alpha_j` nor :math:`\ln \beta` would change by more (Tipping & Faul
        2003, section 4.4), and no function outside has anything to gain.
    max_iter : int, default=100_000
        Largest number of steps; each changes a function, the noise level, or all hyperparameters together.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each step; returning True stops the fit with the model as
        it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the training row, and -1 for the bias. With several kernels row n
        of kernel p is ``p * n_samples + n``; after all P kernels extra column j is ``P * n_samples + j``.
    alpha_ : ndarray of shape (n_active,)
        Prior precisions of the weights.
    mu_ : ndarray of shape (n_active,)
        Posterior mean of the weights.
    sigma_ : ndarray of shape (n_active, n_active)
        Posterior covariance of the weights.
    beta_, noise_variance_ : float
        Noise precision and its inverse; after a fit with ``y_std`` in units of ``y_std**2``.
    log_marginal_likelihood_ : float
        Log evidence in nats, constants included.
    log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The log evidence at the start and after each step; with priors the log posterior.
    n_iter_ : int
        Steps taken.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias, and
        predictions are the same everywhere; ``"noise_floor"`` or ``"alpha_floor"``: likewise, but the noise
        estimate or the prior precision of a weight is at its floor; ``"max_iter"``; ``"stopped"`` by the
        callback; ``"stalled"``: close to an optimum, but not to ``tol``.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1, n_relevance)
        Their weights; not with a list of kernels.
    intercept_ : ndarray of shape (1,)
        Constant of the prediction, beside ``dual_coef_`` and ``extra_coef_``, with a linear kernel beside
        ``coef_``: the weight of the bias, 0 where it was pruned, less what centring took from columns.
    coef_ : ndarray of shape (1, n_features)
        Weights over the columns of X; with a linear kernel only.
    extra_coef_ : ndarray of shape (1, p)
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
    With ``gamma="ard"``, ``gamma="learn"`` or ``optimize_kernel=True`` the kernel is learned. A Gaussian
    process on at most 300 rows proposes its parameters. Fits with these, with lengths closer to one
    another, and with all lengths longer or shorter, are made on at most 600 rows without one fold after
    another, and that kernel is taken which predicts the rows left out best, by the log density. A fit
    that has more functions than half of its rows is dropped. The evidence may be lower than that of the
    kernel given: it overfits narrow kernels. One width per input finds out which inputs matter: the
    widths of others become large. The sign of a coef0 stays, and 0 stays 0. All this depends on no clock
    and no thread; it takes about a second, or up to ten times as long as the fit with the kernel chosen,
    whose steps ``callback`` sees and whose attributes are kept.

    With y of shape (n_samples, n_outputs) each output c has its own weights and noise, :math:`w_{jc} \sim
    N(0, \alpha_j^{-1})`, and all share the functions and their precisions, which maximise the sum of the log
    evidences. Then ``mu_`` is (n_active, n_outputs), ``sigma_`` (n_outputs, n_active, n_active), or
    (n_active, n_active) with shared noise, ``beta_`` and ``noise_variance_`` (n_outputs,), or floats with
    shared noise; ``dual_coef_``, ``coef_`` and ``intercept_`` have a row for each output. As precisions are
    shared, the unit of one output against another matters: outputs of different kind are best scaled alike.

    With ``scheme="variational"`` precisions and noise have a posterior too, factorised, :math:`q(w) q(\alpha)
    q(\beta)`: ``alpha_`` and ``beta_`` are expectations, ``mu_`` and ``sigma_`` belong to q(w),
    ``log_marginal_likelihood_`` and its path are the lower bound on :math:`\ln p(y)` of the functions in the
    model, hyperpriors and all, which never falls. Functions are pruned as :math:`\langle\alpha_j\rangle` goes
    to infinity. The paper's vague priors are (1e-6, 1e-6). With (0, 0), their limit, constants of the
    improper priors are left out; the bound then is the log evidence of :math:`\langle\alpha\rangle,
    \langle\beta\rangle`, and its maxima are those of the other schemes. Which one a fit finds may differ.

    Rows that are read part by part are summed (`SufficientStatistics`), in one pass, or two where
    ``candidates`` is an integer or ``gamma="scale"``. The sums have all pairs of functions, 100 bytes each
    with all that a fit takes: ``candidates`` has to be given. The model is that of a fit in memory to 1e-8,
    with the same centres, and to the bit the same wherever chunks begin and end. An integer ``candidates``
    looks at a sample of rows, and finds the same in memory and out of it (unless ``memory_limit`` makes the
    sample smaller). y has one column; learned kernels, ``keep_rows``, and an ``extra_basis``
    that is a transformer need rows in memory. A row group of Parquet has to fit
    beside ``memory_limit``, as have the chunks that an iterable makes. ``callback`` sees records with the
    action ``"read"``; returning True there ends with a model of the rows read so far.

    With ``checkpoint`` such a fit keeps its sums in a file, with a digest of the rows they hold. Called again
    after a crash or Ctrl-C, with the same data in the same order and the same arguments (``memory_limit``,
    ``n_jobs``, ``verbose`` and ``callback`` do not count), it reads those rows again, makes sure that they
    are the same, and goes on. The file is removed at the end, and kept where the callback stopped the fit. A
    file that is damaged or belongs to something else is an error. Functions count by their names: after
    changing what a callable kernel does remove the file. Of fits of rows in memory only those in blocks
    write it; in others there is nothing that would be worth keeping.

    A dictionary of more than 30,000 kernel functions is looked at in blocks: the scheme runs on a working
    set of a few thousand, sweeps over the rest bring in what gains, and the last sweep, over all candidates,
    finds none that does. Kernels that are smooth at the scale of the data are swept through rigorous bounds,
    in L^2 operations a candidate (L: a few hundred landmarks) in place of N n_active. ``callback`` hears of
    sweeps by records with the action ``"sweep"``, and ``checkpoint`` names a file from which a fit that was
    killed goes on.

    Names elsewhere: what `sklearn.linear_model.ARDRegression` calls ``alpha_`` is our ``beta_``, and its
    ``lambda_`` our ``alpha_``; the dual coefficients of libsvm and the ``alpha_`` of Gaussian processes are
    our ``mu_``.

    References
    ----------
    C. M. Bishop and M. E. Tipping (2000). Variational relevance vector machines. UAI, 46-53.

    M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1, 211-244.

    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

    C. E. Rasmussen and J. Quinonero-Candela (2005). Healing the relevance vector machine through
    augmentation. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.cos(37 * np.arange(100))
    >>> model = RVR(gamma=0.1).fit(X, y)
    >>> model.status_, len(model.relevance_) < 20
    ('converged', True)
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 3 * std[0])
    True

    Kernels about 25 rows in place of all, or about centres of one's own:

    >>> some = RVR(gamma=0.1, candidates=25, random_state=0).fit(X, y)
    >>> len(some.candidate_rows_), set(some.relevance_) <= set(some.candidate_rows_)
    (25, True)
    >>> RVR(gamma=0.1, candidates=[[-3.0], [0.0], [3.0]]).fit(X, y).relevance_vectors_.ravel()
    array([-3.,  0.,  3.])

    Two outputs at once:

    >>> noise = 0.2 * np.sin(53 * np.arange(100) ** 2)
    >>> both = RVR(gamma=0.1).fit(X, np.column_stack([y, 2.0 - y + noise]))
    >>> both.predict([[0.0]]).round(0)
    array([[1., 1.]])
    >>> both.dual_coef_.shape == (2, len(both.relevance_)), both.noise_variance_.shape
    (True, (2,))
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
        noise_variance: float | ArrayLike | None = None,
        shared_noise: bool = False,
        extra_basis: ExtraBasis = None,
        keep_rows: bool = False,
        scheme: Scheme = "sequential",
        alpha_prior: tuple[float, float] = (0.0, 0.0),
        noise_prior: tuple[float, float] = (0.0, 0.0),
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
        self.noise_variance = noise_variance
        self.optimize_kernel = optimize_kernel
        self.shared_noise = shared_noise
        self.extra_basis = extra_basis
        self.keep_rows = keep_rows
        self.scheme = scheme
        self.alpha_prior = alpha_prior
        self.noise_prior = noise_prior
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


class SparseBayesRegressor(ChunkedColumnRegression, _Regression):
    r"""Sparse Bayesian regression on any basis: the columns of X are the basis functions.

    The model of `RVR` with :math:`\phi_j` the j-th column of X, as in Tipping (2001), section 2: automatic
    relevance determination over the columns. With ``likelihood="poisson"`` y are counts of mean
    :math:`\exp(w^T \phi)`, through the Laplace approximation (Tipping & Faul 2003, section 2.2).

    Parameters
    ----------
    likelihood : {"gaussian", "poisson"}, default="gaussian"
        Distribution of y given the linear predictor.
    fit_intercept : bool, default=True
        Whether the model has a constant function, the intercept. The columns are then centred by their
        weighted mean, so that a constant added to a column changes nothing but ``intercept_``. False: the
        columns are exactly those given.
    noise_variance : positive float or array-like of shape (n_outputs,), optional
        Variance of the noise, of every output or of each; None: estimated, down to a floor of var(y) / 1e6.
        Only with a Gaussian likelihood.
    shared_noise : bool, default=False
        Whether all columns of a y of several have one noise level in place of one each.
    scheme, alpha_prior, noise_prior, memory_limit, checkpoint, search, tol, max_iter, n_jobs, verbose,
    callback
        As for `RVR`.

    Attributes
    ----------
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the column of X, and -1 for the bias.
    alpha_, mu_, sigma_, log_marginal_likelihood_, log_marginal_likelihood_path_, n_iter_, status_
        As for `RVR`. With a Poisson likelihood the log evidence is its Laplace approximation (Tipping 2001),
        and the end is a fixed point of its updates, which treat the working weights as constants.
    beta_, noise_variance_ : float
        Noise precision and its inverse; not with a Poisson likelihood.
    coef_ : ndarray of shape (n_features,)
        Posterior mean of the weights of all columns, 0 for those not in the model.
    intercept_ : ndarray of shape (1,)
        Constant of the prediction, ``X @ coef_ + intercept_``.
    X_offset_ : ndarray of shape (n_features,)
        Weighted mean of each column, which is subtracted from it; 0 with ``fit_intercept=False``. ``mu_`` and
        ``sigma_`` belong to the columns less these.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    y may have several columns, as for `RVR`, but for a Poisson likelihood; ``coef_`` then is (n_outputs,
    n_features).

    Rows need not be there all at once: ``fit`` reads them part by part as that of `RVR` does, ``partial_fit``
    takes them in chunk by chunk, ``fit_statistics`` as sums that other processes may have made
    (`SufficientStatistics`).

    Names elsewhere: what `sklearn.linear_model.ARDRegression` calls ``alpha_`` is our ``beta_``, and its
    ``lambda_`` our ``alpha_``.

    References
    ----------
    M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1, 211-244.

    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
    AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor
    >>> x = np.linspace(-1, 1, 50)
    >>> basis = np.polynomial.legendre.legvander(x, 9)
    >>> noise = np.random.default_rng(0).normal(size=50)
    >>> y = 3 * basis[:, 2] - basis[:, 5] + 0.01 * noise
    >>> model = SparseBayesRegressor().fit(basis, y)
    >>> np.flatnonzero(abs(model.coef_) > 0.1)
    array([2, 5])
    >>> model.coef_[[2, 5]].round(1)
    array([ 3., -1.])
    """

    def __init__(
        self,
        *,
        likelihood: Literal["gaussian", "poisson"] = "gaussian",
        fit_intercept: bool = True,
        noise_variance: float | ArrayLike | None = None,
        shared_noise: bool = False,
        scheme: Scheme = "sequential",
        alpha_prior: tuple[float, float] = (0.0, 0.0),
        noise_prior: tuple[float, float] = (0.0, 0.0),
        memory_limit: int | str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        search: Search = "greedy",
        tol: float = 1e-6,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.likelihood = likelihood
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.shared_noise = shared_noise
        self.scheme = scheme
        self.alpha_prior = alpha_prior
        self.noise_prior = noise_prior
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.search = search
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn is to know about this estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood == "poisson"
        tags.target_tags.multi_output &= self.likelihood != "poisson"
        return tags

    def _check_likelihood(self) -> Likelihood:
        if self.likelihood not in ("gaussian", "poisson"):
            raise ValueError(f"likelihood must be 'gaussian' or 'poisson', got {self.likelihood!r}")
        if self.likelihood == "poisson" and self.noise_variance is not None:
            raise ValueError(
                "noise_variance must be None with likelihood='poisson', which has its own; "
                f"got {self.noise_variance}"
            )
        if self.likelihood == "poisson" and check_prior("noise_prior", self.noise_prior) != (0.0, 0.0):
            raise ValueError(
                "noise_prior must be (0, 0) with likelihood='poisson', which has no beta; "
                f"got {self.noise_prior!r}"
            )
        return self.likelihood

    def _targets(self, labels_or_values: NDArray[Any], *, reset: bool) -> list[FloatArray]:
        if self.likelihood == "poisson" and labels_or_values.ndim == 2:
            raise ValueError(
                "y must have one column with likelihood='poisson', got an array of shape "
                f"{labels_or_values.shape}; fit each column on its own"
            )
        if self.likelihood == "poisson" and (labels_or_values < 0.0).any():
            raise ValueError(
                "y must not be negative with likelihood='poisson'; use likelihood='gaussian' for such y"
            )
        return [labels_or_values]

    def _publish_posteriors(self, posteriors: list[_core.Posterior], layout: Layout) -> None:
        super()._publish_posteriors(posteriors, layout)
        if self.likelihood == "poisson":
            del self.beta_, self.noise_variance_

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, *, y_std: ArrayLike | None = None
    ) -> FloatArray: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], *, y_std: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self, X: ArrayLike, return_std: bool = False, *, y_std: ArrayLike | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        Gaussian likelihood: mean :math:`m = \mu^T \phi(x)` and variance :math:`\beta^{-1} + v` with
        :math:`v = \phi(x)^T \Sigma \phi(x)` (Tipping 2001, equations 21 and 22). Poisson likelihood: the mean
        at the mode, :math:`\exp(m)`, and the standard deviation of a count whose log mean is Gaussian with
        mean m and variance v: :math:`e^{m + v/2} + (e^v - 1) e^{2m + v}` is its square.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Values of the basis functions.
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        y_std : positive float or array-like of shape (n,), optional
            Standard deviations of new targets, after a fit with ``y_std`` and in its unit: their part of the
            variance is ``noise_variance_ * y_std**2``. None: that of the typical training row, ``y_std**2``
            being the harmonic mean of its squares.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, n_outputs)
        std : ndarray of the same shape
            Only if ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        check_is_fitted(self)
        return_std = check_flag("return_std", return_std)
        if hasattr(self, "beta_"):
            # Two calls, for the sake of the overloads.
            return super().predict(X, return_std=True, y_std=y_std) if return_std else super().predict(X)
        if y_std is not None:
            raise ValueError("y_std must be None with likelihood='poisson', which has its own noise")
        means, variances = self._moments(X, variance=return_std)
        mean = means[:, 0]
        # Far from the data a count may well be expected to be infinite.
        with np.errstate(over="ignore"):
            if variances is None:
                return np.exp(mean)
            variance = variances[:, 0]
            spread = np.exp(mean + variance / 2) + np.expm1(variance) * np.exp(2 * mean + variance)
            return np.exp(mean), np.sqrt(spread)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R^2, or with a Poisson likelihood the fraction of deviance explained, D^2.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,) or (n, n_outputs)
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            1 is best; 0 is as good as the mean of y. With several outputs the mean of theirs.
        """
        if self.likelihood != "poisson":
            return float(super().score(X, y, sample_weight))
        tiny = np.finfo(np.float64).tiny
        mean = np.clip(self.predict(X), tiny, None)
        return float(d2_tweedie_score(y, mean, sample_weight=sample_weight, power=1))
