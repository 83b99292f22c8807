"""Regression: `RVR` on kernels centred at the training rows, `SparseBayesRegressor` on any basis."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ._arrays import check_scored, naming, publish_features
from ._checks import check_choice, check_flag, check_integer, check_prior, check_real, check_settings
from ._data.basis import basis_of, without_rows
from ._data.statistics import SufficientStatistics
from ._estimators.base import Estimator, atomic
from ._estimators.docs import documented
from ._estimators.fit import add_rows, build, check_sums, of_providers, of_sums, validate
from ._estimators.leave_one_out import attribute
from ._estimators.likelihoods import Numbers, can_have_outputs
from ._estimators.noise import Start, check_noise_basis, fit_noise
from ._estimators.posterior import joint_moments, moments, noise_stds, problems, samples
from ._estimators.run import publish, run
from ._row_likelihoods import DISPERSED, DISPERSIONS, FREEDOMS, OF_NUMBERS, r2
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

__all__ = ["RVR", "SparseBayesRegressor"]


def _can_continue(estimator: Regression) -> bool:
    check_sums(estimator, "partial_fit")
    return True


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class Regression(RegressorMixin, Estimator):  # type: ignore[misc] # scikit-learn carries no types
    """Regression of numeric targets: one fit, with a Gaussian likelihood by default."""

    _labels = False

    likelihood: str = "gaussian"
    dispersion: float | None = None
    degrees_of_freedom: float | None = None
    noise_variance: float | ArrayLike | None = None
    shared_noise: bool = False
    noise_prior: tuple[float, float] = (0.0, 0.0)
    noise_basis: ExtraBasis = None
    penalize_intercept: bool = False
    complexity: float | str = "auto"
    scheme: Scheme = "sequential"
    alpha_prior: tuple[float, float] = (0.0, 0.0)
    memory_limit: int | str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    search: Search = "greedy"
    tol: float = 1e-6
    max_iter: int = 100_000
    callback: Callback | None = None

    # After a fit.
    _likelihood: Numbers = field(init=False)
    loo_, loo_coverage_ = attribute("loo_"), attribute("loo_coverage_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = can_have_outputs(self)
        tags.target_tags.positive_only = self.likelihood not in ("gaussian", "student_t")
        return tags

    def fit(
        self,
        X: Data,
        y: Target = None,
        sample_weight: Target = None,
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> Self:
        """Fit the model by maximising its marginal likelihood.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), iterable of chunks, path, or Arrow data set
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples). The
            ``SparseBayes*`` classes also take sparse matrices and linear operators of `scipy.sparse`, and
            data frames of sparse columns, which are not made dense. Read in chunks: arrays, such as
            `numpy.memmap`, for which a fit would need more than ``memory_limit``; an iterable of chunks (X,
            y) or (X, y, sample_weight), or a function that returns one; the path of Parquet or Arrow files, a
            directory or a pattern, and data sets, readers and tables of pyarrow (needs ``pip install
            sparsebayes[arrow]``).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or str
            Targets; several outputs with a Gaussian likelihood only. None with chunks; for Arrow data the
            name of a column.
        sample_weight : array-like of shape (n_samples,), or str, optional
            Weight of each row: 2 counts like two equal rows, 0 like none (a learned kernel may differ between
            weights and copies); precisions of targets belong into ``y_std``. For Arrow data the name of a
            column.
        y_std : array-like of shape (n_samples,), optional
            Known standard deviation of each target, up to a factor: the noise of target n has the variance
            ``noise_variance_ * y_std[n]**2``; ``noise_variance=1.0`` fixes it. Only with rows in memory, y of
            one column and a Gaussian likelihood.
        exposure : array-like of shape (n_samples,), optional
            For counts and positive targets: what their means are proportional to, such as the time or the
            area that counts belong to. Only with rows in memory.

        {fit_sections}
        """
        with atomic(self, X, y, sample_weight=sample_weight, exposure=exposure):
            rows = validate(self, X, y, sample_weight, y_std, exposure)
            if self.noise_basis is None:
                self._fit(rows)
            else:
                training = check_noise_basis(self, rows, y_std, exposure)
                model = SparseBayesRegressor(likelihood="gamma", dispersion=2.0, n_jobs=self.n_jobs)
                fit_noise(self, training, model, self._fit)
        return self

    def _fit(self, rows: Any, start: Start | None = None) -> tuple[Any, Any]:
        """Publish the fit of checked rows; return it and its posterior."""
        task, posteriors = publish(self, *run(self, build(self, rows, start)))
        return task, posteriors[0]

    def fit_provider(self, provider: Any, *, n_samples: int | None = None) -> Self:
        """Fit the model to statistics of rows that may be on other computers or devices, or in files.

        Parameters
        ----------
        provider : PyStatistics
            Computes statistics over all rows, for the functions of this estimator in order: the constant one
            if ``fit_intercept``, then the columns of X or, for a kernel estimator, each kernel centred at
            each of ``candidates``, which must be an array of distinct centres.
        {provider_sections}
        """
        with atomic(self):
            tasks = of_providers(self, [provider], n_samples, self._likelihood_of(None, None))
            publish(self, *run(self, tasks))
        return self

    @available_if(_can_continue)  # type: ignore[untyped-decorator] # scikit-learn carries no types
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows and fit the model to all rows so far.

        The first call, and one after ``fit`` or ``fit_statistics``, starts with no rows. Rows are kept as
        sums (`SufficientStatistics`), so the time does not depend on the number of earlier rows. Chunks in
        any order give the weights of one ``fit`` to 1e-8, for the same kernel and centres; of columns with
        ``allow_dense=False``. Only with a Gaussian likelihood; with kernels only with ``candidates``. An
        integer number of candidates and the kernel come from the rows of the first call, which should cover
        all of the input space. The arguments that the functions depend on, such as ``fit_intercept`` and
        ``kernel``, must stay as they are between calls.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs, or values of the basis functions, the same functions in each call.
        y, sample_weight : array-like of shape (n,)
            As for ``fit``; one column. Some row so far needs a positive weight.

        {fit_sections}
        """
        with atomic(self):
            task, stats = add_rows(self, X, y, sample_weight)
            publish(self, *run(self, [task]))
            self._statistics = stats
        return self

    def _likelihood_of(self, y: NDArray[Any] | None, weights: FloatArray | None) -> Numbers:
        """Return the likelihood of these targets."""
        name = check_choice("likelihood", self.likelihood, OF_NUMBERS)
        shapes = {"student_t": "degrees_of_freedom"} | dict.fromkeys(DISPERSED, "dispersion")
        for own in ("dispersion", "degrees_of_freedom"):
            if shapes.get(name) != own and (value := getattr(self, own)) is not None:
                of = [repr(other) for other, shape in shapes.items() if shape == own]
                raise ValueError(f"{own} is for likelihood={' or '.join(of)}; got {value!r} with {name!r}")
        if name not in ("gaussian", "student_t"):
            if self.noise_variance is not None:
                raise ValueError(
                    f"noise_variance must be None with likelihood={name!r}, which has its own noise; "
                    f"got {self.noise_variance}"
                )
            if check_prior("noise_prior", self.noise_prior) != (0.0, 0.0):
                raise ValueError(
                    f"noise_prior must be (0, 0) with likelihood={name!r}, which has no beta; "
                    f"got {self.noise_prior!r}"
                )
        if name == "student_t" and self.scheme != "sequential":
            raise ValueError(f"likelihood='student_t' needs scheme='sequential', got {self.scheme!r}")
        given = getattr(self, shapes[name]) if name in shapes else None
        if given is None:
            return Numbers(name)
        least, most = FREEDOMS if name == "student_t" else DISPERSIONS
        shape = check_real(shapes[name], given, positive=True)
        if not least <= shape <= most:
            raise ValueError(f"{shapes[name]} must be between {least:g} and {most:g}; got {given!r}")
        return Numbers(name, shape)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, exposure: PerRow = None
    ) -> float:
        """Return R^2; for counts and positive targets the fraction of deviance explained, D^2.

        1 is best; 0 is as good as the mean of y, or as one rate for all rows. With several outputs the
        average over them. Of outliers R^2 tells little: see `model_selection.density_score`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.
        exposure : array-like of shape (n_samples,), optional
            Exposures of counts and positive targets; needed if the fit had them.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        mean, own = self.predict(X), self._likelihood
        target, weights = check_scored(y, sample_weight, mean.shape)
        used = slice(None) if weights is None else np.flatnonzero(weights)
        exposures = own.exposures(self, exposure, len(mean), used)
        mean, target, weights = mean[used], target[used], None if weights is None else weights[used]
        own.check(target)
        score = r2 if (targets := own.row(self).targets) is None else targets.score
        return score(target, mean if own.has_noise else exposures * mean, exposures, weights)

    _problems = problems

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        *,
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
        *,
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        *,
        return_cov: Literal[True],
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, optionally with error bars.

        Gaussian likelihood: mean :math:`m = \mu^T \phi(x)` and variance :math:`\beta^{-1} + v` with
        :math:`v = \phi(x)^T \Sigma \phi(x)` (Tipping 2001, equations 21 and 22). Student's t:
        :math:`\beta^{-1} \nu / (\nu - 2) + v`, which exceeds the width of most residuals; `predict_interval`
        is better. Counts and positive numbers: the mean at the mode, :math:`\exp(m)`, and the standard
        deviation of a target whose log mean is Gaussian with mean m and variance v, the square root of
        :math:`e^{m + v/2} + (e^v - 1 + d e^v) e^{2m + v}` with the dispersion d, for ``"gamma"`` without the
        first term.

        Parameters
        ----------
        {X}
        {return_std}
        {return_cov}
        {y_std}
        {exposure}

        {predict_sections_std}
        """
        check_is_fitted(self)
        return_std = check_flag("return_std", return_std)
        if check_flag("return_cov", return_cov):
            if return_std:
                raise ValueError(
                    "return_std and return_cov must not both be True: the diagonal of the covariance holds "
                    "the squares of the standard deviations"
                )
            y_std = noise_stds(self, X, y_std)
            if exposure is not None:
                self._likelihood.check_has_exposure()
            return self._likelihood.covariance(self, partial(joint_moments, self, X), y_std)
        y_std = noise_stds(self, X, y_std) if return_std else y_std
        mean, variance = moments(self, X, variance=return_std)
        return self._likelihood.predict(self, self._exposed(mean, exposure), variance, y_std)

    def _exposed(self, eta: FloatArray, exposure: PerRow) -> FloatArray:
        """Return linear predictors, (n, ...), of rows with these exposures; None: of exposure 1."""
        if exposure is None:
            return eta
        offset = np.log(self._likelihood.exposures(self, exposure, len(eta)))
        return eta + offset.reshape(-1, *[1] * (eta.ndim - 1))

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.95, *, y_std: PerRow = None, exposure: PerRow = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return intervals that contain a new target with a given probability.

        They are central intervals of the predictive distribution, which averages the distribution of a target
        over the Gaussian posterior of its linear predictor.

        Parameters
        ----------
        {X}
        coverage : float, default=0.95
            Probability, between 0 and 1.
        {y_std}
        {exposure}

        Returns
        -------
        low, high : ndarray of shape (n_samples,) or (n_samples, n_outputs)

        {predict_raises}
        """
        check_is_fitted(self)
        p = check_real("coverage", coverage, positive=True)
        if p >= 1.0:
            raise ValueError(f"coverage must be below 1, got {coverage}")
        mean, variance = moments(self, X, variance=True)
        assert variance is not None
        y_std = noise_stds(self, X, y_std)
        return self._likelihood.interval(self, (self._exposed(mean, exposure), variance), y_std, p)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        y_std: PerRow = None,
        exposure: PerRow = None,
    ) -> FloatArray:
        """Draw targets from their joint predictive distribution.

        The weights are drawn from their posterior, so that all rows of one draw belong to one function; then
        noise is added.

        Parameters
        ----------
        {X}
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=0
            Seed or generator of the draws.
        {y_std}
        {exposure}

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)

        {predict_raises}
        """
        check_is_fitted(self)
        count = check_integer("n_samples", n_samples, least=1)
        with naming("random_state"):
            random = check_random_state(random_state)
        y_std = noise_stds(self, X, y_std)
        eta = self._exposed(samples(self, X, count, random), exposure)
        y = self._likelihood.sample(self, eta, y_std, random)
        return y[:, 0] if self.mu_.ndim == 1 else y


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class RVR(Regression):
    r"""Relevance vector regression: a sparse Bayesian linear model on kernels centred at the training rows.

    .. math:: y = w_0 + \sum_n w_n k(x, x_n) + \epsilon, \quad w_j \sim N(0, \alpha_j^{-1}), \quad
        \epsilon \sim N(0, \beta^{-1})

    The precisions :math:`\alpha` and :math:`\beta` maximise the marginal likelihood (Tipping & Faul 2003,
    equation 7). At the maximum most :math:`\alpha_j` are infinite, which deletes their functions. The rows
    whose functions remain are the relevance vectors.

    Where a Gaussian process predicts rows left out clearly better than such a model, as where there is little
    noise, it becomes the prior of the weights, of a hundred to two thousand functions: see ``landmarks``.

    Parameters
    ----------
    {kernel_parameters}
    {centre_parameters}
    {landmarks_of_numbers}
    {noise_parameters}
    std : {"full", "plain"}, default="full"
        Error bars. ``"plain"``: the noise and the uncertainty of the functions in the model (Tipping 2001,
        equation 22), which vanishes far from the data, and between the rows where ``kernel_`` is a Matern
        kernel. ``"full"``: they grow there, by the variance of a Gaussian process with the same kernel given
        its values at the relevance vectors and at most 100 training rows (not with ``kernel="precomputed"``),
        and their variance counts the fitted precisions and widths, which matters with few rows. Predictions
        are the same.
    {fit_parameters}

    Attributes
    ----------
    {kernel_functions}
    alpha_ : ndarray of shape (n_active,)
        Prior precisions of the weights; 0 of those with a flat prior.
    mu_ : ndarray of shape (n_active,)
        Posterior mean of the weights.
    sigma_ : ndarray of shape (n_active, n_active)
        Posterior covariance of the weights.
    beta_, noise_variance_ : float
        Noise precision and its inverse; after a fit with ``y_std`` in units of ``y_std**2``. Only with
        ``"gaussian"`` and ``"student_t"``.
    process_variance_ : float
        Only with weights under a Gaussian process (``landmarks``): its variance v. The prior covariance of
        the weights is :math:`v K^{-1}`, and ``alpha_`` holds the diagonal of :math:`K / v`. ``status_``,
        ``n_iter_`` and the log evidence are those of the sparse fit.
    {likelihood_attributes}
    {loo_}
    {fit_attributes}

    Notes
    -----
    {learning_notes}

    {likelihood_notes}

    Several outputs have their own weights and noise, :math:`w_{jc} \sim N(0, \alpha_j^{-1})`, and share the
    functions and precisions, which maximise the sum of the log evidences. Then ``mu_`` is (n_active,
    n_outputs), ``sigma_`` (n_outputs, n_active, n_active), ``beta_`` and ``noise_variance_`` (n_outputs,);
    with shared noise ``sigma_`` and noise as for one output. Scale outputs to similar variance, and fit
    outputs of very different noise apart: one that is mostly noise makes the others less accurate.

    {variational_notes}

    Rows that are read in chunks are summed (`SufficientStatistics`), in one pass, or two if ``candidates`` is
    an integer or the kernel depends on the rows. Weights and means are those of a fit in memory with the same
    centres, kernel and extra columns, to 1e-8. Error bars grow with the distance from the candidates instead
    of the rows, there is no ``loo_``, and ``"auto"`` adds no extra columns. ``candidates`` must be given; an
    ``extra_basis`` that is a transformer needs rows in memory.

    {block_notes}

    What `sklearn.linear_model.ARDRegression` calls ``alpha_`` and ``lambda_`` is ``beta_`` and ``alpha_``
    here; the dual coefficients of libsvm are ``mu_``.

    {tipping}

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

    Kernels centred at given points, and two outputs at once:

    >>> RVR(gamma=0.1, candidates=[[-3.0], [0.0], [3.0]]).fit(X, y).relevance_vectors_.ravel()
    array([-3.,  0.,  3.])
    >>> RVR(gamma=0.1).fit(X, np.column_stack([y, 2.0 - y])).predict([[0.0]]).round(0)
    array([[1., 1.]])
    """

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "ard"
    degree: int = 3
    coef0: float = 0.0
    optimize_kernel: bool = False
    extra_basis: ExtraBasis = "auto"
    unpenalized: Unpenalized = None
    candidates: Candidates = "auto"
    landmarks: int | str | None = "auto"
    random_state: int | np.random.RandomState | None = None
    std: Literal["plain", "full"] = "full"


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class SparseBayesRegressor(Regression):
    r"""Sparse Bayesian regression on any basis: the columns of X are the basis functions.

    The model of `RVR` with :math:`\phi_j` the j-th column of X, as in Tipping (2001), section 2: automatic
    relevance determination over the columns.

    Parameters
    ----------
    {column_intercept}
    {allow_dense}
    groups : int or array-like of shape (n_features,), optional
        Columns that share a precision, and so are in the model all together or not at all: a label for each
        column, or the number of consecutive columns of each group. Columns of one group should have the same
        scale; X is not rescaled. Levels of a factor as 0/1 columns, powers of an input, the three
        orientations of a source, real and imaginary part. None: each column has its own precision. Needs rows
        in memory, a Gaussian likelihood, ``scheme="sequential"``, ``search="greedy"``, and with y of several
        columns ``shared_noise=True``. See Notes.
    {noise_parameters}
    {checkpoint}
    {fit_parameters}

    Attributes
    ----------
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the column of X, and -1 for the bias.
    alpha_, mu_, sigma_, log_marginal_likelihood_, log_marginal_likelihood_path_, n_iter_, status_
        As for `RVR`. For counts and positive numbers the log evidence is its Laplace approximation.
    beta_, noise_variance_ : float
        Noise precision and its inverse; only with ``"gaussian"`` and ``"student_t"``.
    {likelihood_attributes}
    {process_variance}
    {loo_}
    coef_ : ndarray of shape (n_features,)
        Posterior mean of the weights of all columns, 0 for those not in the model.
    intercept_ : ndarray of shape (1,)
        Constant of the prediction, ``X @ coef_ + intercept_``.
    {X_offset_}

    Notes
    -----
    y may have several columns, as for `RVR`; ``coef_`` then is (n_outputs, n_features).

    {likelihood_notes}

    With ``groups`` a step changes the precision of a group. Its gain is the sum of those of Tipping & Faul
    (2003, equation 18) along the eigenvectors of its sparsity factor, which is a matrix then, at the
    precision that maximises the sum. Each column of a group of d has the weight ``complexity`` / d^(3/4), so
    that groups without effect enter as rarely as single columns do; ``"auto"`` counts groups.

    Rows need not be in memory together: ``fit`` reads them in chunks, ``partial_fit`` adds them chunk by
    chunk, ``fit_statistics`` takes sums of other processes. `RVR` describes the variational scheme.

    {tipping}

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor
    >>> basis = np.polynomial.legendre.legvander(np.linspace(-1, 1, 50), 9)
    >>> y = 3 * basis[:, 2] - basis[:, 5] + 0.01 * np.random.default_rng(0).normal(size=50)
    >>> SparseBayesRegressor().fit(basis, y).coef_.round(1) + 0.0
    array([ 0.,  0.,  3.,  0.,  0., -1.,  0.,  0.,  0.,  0.])
    """

    allow_dense: bool = True
    groups: int | ArrayLike | None = None

    # After a fit.
    X_offset_: FloatArray = field(init=False)

    def fit_statistics(self, stats: SufficientStatistics) -> Self:
        """Fit the model to sums over rows, in a time independent of their number.

        It is that of ``fit`` with ``allow_dense=False`` to 1e-8.

        Parameters
        ----------
        stats : SufficientStatistics
            Sums over rows of the columns of X, for models with and without bias; not changed.

        {fit_sections}
        """
        check_sums(self, "fit_statistics")
        if not isinstance(stats, SufficientStatistics):
            raise TypeError(f"stats must be SufficientStatistics, got {type(stats).__name__}")
        with atomic(self):
            settings = check_settings(self)
            publish_features(self, stats.n_basis)
            basis = basis_of(self, without_rows(stats.n_basis), stored=False)
            publish(self, *run(self, [of_sums(self, basis, stats, settings)]))
        return self
