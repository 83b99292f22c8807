"""Likelihoods: their name in the core, the targets of each fit, what is published, and how they predict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.linalg import svd
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import gammaln, ndtri

from .. import _core
from .._arrays import check_exposure, check_y_std, learn_classes
from .._checks import check_flag
from .._data.basis import Basis, flat_columns
from .._data.design import Design, Layout
from .._row_likelihoods import ROW_LIKELIHOODS, RowLikelihood, row_likelihood
from .._types import FloatArray, IntArray, Link, PerRow, Settings
from .._types import Likelihood as Name
from .posterior import check_multi_class, variance_factor, weights_in_order

if TYPE_CHECKING:
    from .._arrays import Training
    from .._types import Problem


@dataclass(frozen=True)
class Numbers:
    """Numbers: with Gaussian noise, of one output or several, or with another likelihood."""

    name: Name = "gaussian"
    #: Dispersion or degrees of freedom, if the likelihood has one; before a fit None if it is estimated.
    shape: float | None = None

    @property
    def has_noise(self) -> bool:
        """Whether the fits of the core are Gaussian."""
        return self.name in ("gaussian", "student_t")

    @property
    def link(self) -> Link:
        """How the mean follows from the linear predictor."""
        return row_likelihood(self.name).link

    def row(self, est: Any = None) -> RowLikelihood:
        """Return the distribution of a target; Student's t needs the noise variance of the estimator."""
        return row_likelihood(self.name, self.shape, getattr(est, "noise_variance_", 1.0))

    def targets(self, y: FloatArray) -> list[FloatArray]:
        """Return the target of each fit; all outputs are fitted together."""
        if self.row().targets is not None and y.ndim == 2:
            raise ValueError(
                f"y must have one column with likelihood={self.name!r}, got an array of shape {y.shape}; fit "
                "each column separately"
            )
        self.check(y)
        if self.name == "negative_binomial" and not y.any():
            raise ValueError(
                "y must hold a count above 0 with likelihood='negative_binomial': zeros do not tell how "
                "counts vary; take likelihood='poisson'"
            )
        return [y]

    def check(self, y: FloatArray) -> None:
        """Raise ValueError if a target is not in the support of the likelihood."""
        if (own := self.row().targets) is not None and not own.is_valid(y):
            row = own.first_invalid(y)
            raise ValueError(
                f"y must {own.must_be} with likelihood={self.name!r}; got {y[row]:g} in row {row}. Use "
                "likelihood='gaussian' for such y"
            )

    def exposures(
        self, est: Any, exposure: PerRow, n_rows: int, rows: IntArray | slice = slice(None)
    ) -> FloatArray:
        """Return the exposures of these rows, all by default, that a fitted estimator is compared with."""
        if exposure is None:
            if est._has_exposure:
                raise ValueError(
                    "exposure must be given, as it was in fit; give exposure=1.0 for targets of that exposure"
                )
            return np.ones(n_rows)[rows]
        self.check_has_exposure()
        return check_exposure(exposure, n_rows, rows)

    def check_has_exposure(self) -> None:
        """Raise ValueError for exposures of targets that have none."""
        if self.has_noise:
            raise ValueError(
                "exposure is for counts and positive targets, likelihood='poisson', 'negative_binomial' or "
                f"'gamma'; got likelihood={self.name!r}"
            )

    def shifted(self, training: Training, shift: FloatArray | float) -> Training:
        """Return rows whose intercept is less by ``shift``."""
        if not np.any(shift):
            return training
        if self.has_noise:
            return replace(training, y=training.y - shift)
        return replace(training, exposure=training.exposures * np.exp(shift))

    def publish(self, est: Any, posteriors: list[Any], layout: Layout) -> None:
        """Publish the posterior; outputs with shared noise have one covariance and one noise level."""
        (posterior,) = posteriors
        publish_one(est, posterior, layout)
        # Left by an earlier fit with another likelihood.
        shapes = ("dispersion_", "degrees_of_freedom_", "row_weights_", "_rest_of_bound")
        noise = ("beta_", "noise_variance_", "noise_model_", "noise_basis_", "_noise_centre")
        for name in (*noise, *shapes):
            est.__dict__.pop(name, None)
        if not self.has_noise:
            return
        est.beta_ = posterior.beta
        if isinstance(posterior, _core.OutputPosterior):
            shared = bool(est.shared_noise)
            est.sigma_ = posterior.sigma[0] if shared else np.stack(posterior.sigma)
            est.beta_ = float(posterior.beta[0]) if shared else posterior.beta
            est._noise_at_floor = posterior.at_floor
        elif est.mu_.ndim == 2:  # columns in groups
            est._noise_at_floor = np.array([posterior.status == "noise_floor"])
        est.noise_variance_ = 1.0 / est.beta_

    def model_of(self, est: Any, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the columns of the fit in the dictionary, with their alpha and mu."""
        mu = est.mu_.copy()
        mu[est.active_ == -1] -= est._offset
        return columns, est.alpha_, mu

    def predict(
        self, est: Any, mean: FloatArray, variance: FloatArray | None, y_std: PerRow
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Return mean and, unless ``variance`` is None, standard deviation of targets.

        Arguments are the moments of the linear predictor, (n, n_outputs).
        """
        if est.mu_.ndim == 1:
            mean, variance = mean[:, 0], None if variance is None else variance[:, 0]
        if (own := self.row(est).targets) is None:
            if variance is None:
                return mean
            return mean, np.sqrt(_noise_of(est, y_std, len(mean)) + variance)
        self._check_no(y_std)
        moments: FloatArray | tuple[FloatArray, FloatArray] = own.predict(mean, variance)
        return moments

    def interval(
        self, est: Any, moments: tuple[FloatArray, FloatArray], y_std: PerRow, coverage: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of targets, from moments of the linear predictor, (n, n_outputs)."""
        tails = (0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage)
        if (own := self.row(est).targets) is None:
            mean, std = self.predict(est, *moments, y_std)
            low, high = (mean + ndtri(p) * std for p in tails)
            return low, high
        self._check_no(y_std)
        with np.errstate(all="ignore"):  # far from the data limits may be infinite
            low, high = (own.quantile(moments[0][:, 0], moments[1][:, 0], p) for p in tails)
        return low, high

    def log_density(self, est: Any, moments: tuple[FloatArray, FloatArray], y: FloatArray) -> FloatArray:
        """Return the log predictive density of targets, given moments of linear predictors, (n, n_outputs).

        The density of a target, or the probability of a count, averaged over the Gaussian linear predictor.
        """
        self.check(y)
        with np.errstate(all="ignore"):  # far from the data densities may be 0
            return self.row(est).log_mean_likelihood(y, moments[0][:, 0], moments[1][:, 0])

    def covariance(
        self, est: Any, moments: Callable[[], tuple[FloatArray, FloatArray]], y_std: PerRow
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and joint covariance of targets, given a function for those of linear predictors."""
        if self.name != "gaussian":
            raise ValueError(
                f"return_cov must be False with likelihood={self.name!r}; sample_y draws targets jointly"
            )
        mean, covariance = moments()
        rows = np.arange(len(mean))
        noise = np.asarray(_noise_of(est, y_std, len(mean)))
        covariance[rows, rows] += noise[:, np.newaxis] if y_std is not None else noise
        return (mean[:, 0], covariance[:, :, 0]) if est.mu_.ndim == 1 else (mean, covariance)

    def sample(self, est: Any, eta: FloatArray, y_std: PerRow, random: np.random.RandomState) -> FloatArray:
        """Draw a target for each linear predictor, (n, n_outputs, n_samples)."""
        if (own := self.row(est).targets) is not None:
            self._check_no(y_std)
            with np.errstate(over="ignore"):
                return own.sample(eta, random)
        noise = np.sqrt(np.asarray(_noise_of(est, y_std, len(eta))))
        # One level for all, for each output, or for each row.
        shape = (-1, 1, 1) if noise.ndim == 1 and est.mu_.ndim == 1 else (1, -1, 1)
        return np.asarray(eta + noise.reshape(shape) * random.standard_normal(eta.shape))

    def _check_no(self, y_std: PerRow) -> None:
        if y_std is not None:
            raise ValueError(f"y_std must be None with likelihood={self.name!r}, which has its own noise")


@dataclass(frozen=True)
class Classes:
    """Class labels: Bernoulli, one fit for each class against the rest, or a softmax of all classes."""

    classes: NDArray[Any]
    name: Name
    #: Share of each class among the rows, by weight.
    shares: FloatArray
    #: Whether probabilities are those at the mode of the weights, which all classes have together.
    at_mode: bool = False
    has_noise: ClassVar[bool] = False

    @classmethod
    def of(cls, labels: NDArray[Any], multi_class: object, weights: FloatArray | None) -> Classes:
        """Return the likelihood of these labels, of rows with these weights."""
        softmax, classes = check_multi_class(multi_class), learn_classes(labels)
        sums = np.bincount(np.searchsorted(classes, labels), weights)
        # For two classes both are the same model: the difference of the two logits is the Bernoulli logit.
        name = "multinomial" if softmax and len(classes) > 2 else "bernoulli"
        return cls(classes, name, sums / sums.sum())

    @property
    def link(self) -> Link:
        """How probabilities follow from the linear predictors."""
        return "softmax" if self.name == "multinomial" else ROW_LIKELIHOODS[self.name].link

    @property
    def positive(self) -> NDArray[Any]:
        """The class with target 1 in each Bernoulli fit."""
        return self.classes[1:] if len(self.classes) == 2 else self.classes

    def targets(self, y: NDArray[Any]) -> list[FloatArray]:
        """Return the target of each fit: 0 and 1, or the numbers of the classes."""
        if self.name == "multinomial":
            return [np.searchsorted(self.classes, y).astype(np.float64)]
        return [(y == label).astype(np.float64) for label in self.positive]

    def publish(self, est: Any, posteriors: list[Any], layout: Layout) -> None:
        """Publish the classes, and the posterior of each class for the functions of any class."""
        est.classes_, est.class_prior_ = self.classes, self.shares
        joint = self.name == "multinomial"
        if len(posteriors) == 1 and not joint:
            publish_one(est, posteriors[0], layout)
            return
        functions = np.concatenate([posterior.active for posterior in posteriors]).astype(np.intp)
        classes = np.repeat(np.arange(len(posteriors)), [len(posterior.active) for posterior in posteriors])
        if joint:
            classes, functions = np.divmod(functions, est._n_basis)
        columns, at = np.unique(functions, return_inverse=True)
        shape = m, c = len(columns), len(self.classes)
        est.active_ = layout.names(columns)
        est.alpha_, est.mu_ = np.full(shape, np.inf), np.zeros(shape)
        est.alpha_[at, classes] = np.concatenate([posterior.alpha for posterior in posteriors])
        est.mu_[at, classes] = np.concatenate([posterior.mu for posterior in posteriors])
        if joint:
            # For the weights in the model only, class by class: most functions belong to one class, so the
            # matrix of all n_active * n_classes weights would be almost all zeros.
            est.sigma_ = posteriors[0].sigma
            return
        est.sigma_ = np.zeros((c, m, m))
        for output, posterior in enumerate(posteriors):
            own = at[classes == output]
            est.sigma_[output][np.ix_(own, own)] = posterior.sigma

    def model_of(self, est: Any, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the columns of one fit in the dictionary, with their alpha and mu."""
        if self.name == "multinomial":
            classes, rows = weights_in_order(est.alpha_)
            return classes * est._n_basis + columns[rows], est.alpha_[rows, classes], est.mu_[rows, classes]
        alpha, mu = (part if part.ndim == 1 else part[:, output] for part in (est.alpha_, est.mu_))
        used = np.isfinite(alpha)
        return columns[used], alpha[used], mu[used]


Likelihood = Numbers | Classes


def publish_one(est: Any, posterior: Any, layout: Layout) -> None:
    """Publish ``active_``, ``alpha_``, ``mu_`` and ``sigma_`` of one fit."""
    est.active_ = layout.names(posterior.active.astype(np.intp))
    est.alpha_, est.mu_, est.sigma_ = posterior.alpha, posterior.mu, posterior.sigma


def _noise_of(est: Any, y_std: PerRow, n_rows: int) -> Any:
    """Return the noise variance of rows with these standard deviations of their targets."""
    noise = variance_factor(est) * est.noise_variance_
    if est._y_variance is None:
        if y_std is not None:
            raise ValueError(
                "y_std is for models that were fitted with y_std; this one has the same noise in all rows: "
                "leave y_std out"
            )
        return noise
    if y_std is None:
        return noise * est._y_variance
    return noise * check_y_std(y_std, n_rows) ** 2


#: The settings that several outputs, and columns in groups, need.
NEEDED: Final[dict[str, Any]] = {
    "search": "greedy",
    "scheme": "sequential",
    "alpha_prior": (0, 0),
    "noise_prior": (0, 0),
}


def can_have_outputs(est: Any) -> bool:
    """Whether y may have several columns with these arguments."""
    plain = all(_is_same(getattr(est, name), needed) for name, needed in NEEDED.items())
    has_one_noise = getattr(est, "noise_basis", None) is None
    return plain and has_one_noise and getattr(est, "likelihood", "gaussian") == "gaussian"


def _is_same(value: Any, needed: str | tuple[int, int]) -> bool:
    """Tell whether an unchecked argument is this one; arrays of numbers and text are not compared."""
    if isinstance(needed, str):
        return isinstance(value, str) and value == needed
    is_list = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return is_list and len(value) == 2 and all(isinstance(one, Real) and one == 0 for one in value)


def fit_of_outputs(est: Any, design: Design, training: Training, settings: Settings) -> Any:
    """Return the fit of all columns of y, as a function of ``callback``."""
    for name, needed in NEEDED.items():
        if (value := getattr(settings, name)) != needed:
            raise ValueError(
                f"{name} must be {needed!r} if y has several columns, got {value!r}; with another value "
                "fit the columns one by one"
            )
    shared = check_flag("shared_noise", est.shared_noise)
    noise = _noise_variances(settings, training.y.shape[1], shared=shared)
    return partial(
        design.several,
        np.asfortranarray(training.y),
        training.weights,
        noise_variance=noise,
        shared_noise=shared,
        unpenalized=settings.unpenalized,
        complexity=settings.complexity,
        tol=settings.tol,
        max_iter=settings.max_iter,
        n_threads=settings.n_threads,
    )


def _noise_variances(settings: Settings, n_outputs: int, *, shared: bool) -> list[float] | None:
    """Return a variance for each noise level, or None if they are estimated."""
    if settings.noise_variance is not None:
        return [settings.noise_variance] * (1 if shared else n_outputs)
    if (given := settings.noise_variances) is None:
        return None
    if shared:
        raise ValueError("noise_variance must be one number with shared_noise=True, got an array")
    if len(given) != n_outputs:
        raise ValueError(
            f"noise_variance must be one number, or one for each of the {n_outputs} columns of y, "
            f"got {len(given)}"
        )
    return list(given)


def check_single(est: Any, settings: Settings) -> None:
    """Raise ValueError if a setting needs several outputs."""
    check_flag("shared_noise", getattr(est, "shared_noise", False))
    if settings.noise_variances is not None:
        raise ValueError(
            "noise_variance must be one number if y has one column, got an array of "
            f"{len(settings.noise_variances)}"
        )


def with_unpenalized(est: Any, basis: Basis, settings: Settings, likelihood: Likelihood) -> Settings:
    """Return the settings of a fit of this dictionary, with the flat priors that ``unpenalized`` asks for.

    A softmax depends on the differences of its logits only, so its first class has no function with a flat
    prior.
    """
    first, n_basis = basis.n_basis - basis.n_columns, basis.n_basis
    flat = (*settings.unpenalized, *(first + j for j in flat_columns(est, basis, settings.scheme)))
    if isinstance(likelihood, Classes) and likelihood.name == "multinomial":
        flat = tuple(c * n_basis + j for c in range(1, len(likelihood.classes)) for j in flat)
    return replace(settings, unpenalized=flat)


# --- the variational scheme (Bishop & Tipping 2000): check of settings, and its bound for certificates
#
# The bound is computed from arrays, and shares no code with the core.

#: Largest number of updates of xi, and the relative change that ends them.
_MAX_UPDATES = 100_000
_XI_RTOL = 1e-11


def check_variational(settings: Settings, likelihood: Name) -> None:
    """Raise ValueError if scheme="variational" is not available for this fit."""
    if settings.scheme != "variational":
        return
    needs = None
    if likelihood == "multinomial":
        needs = "multi_class='ovr' for more than two classes, got 'softmax'"
    elif not row_likelihood(likelihood).has_bound:
        needs = f"likelihood='gaussian', got {likelihood!r}"
    if needs is not None:
        raise ValueError(f"scheme='variational' needs {needs}")


def constants(problem: Problem, n_rows: float) -> float:
    """Return the bound minus the log evidence at the expected precisions; sum(w) = ``n_rows``.

    For each function, with q(alpha) = Gamma(A, A / <alpha>) and A = a + 1/2, that is E[ln p(w | alpha)] +
    E[ln p(alpha)] - E[ln q(alpha)] minus ln N(w; 0, 1 / <alpha>), averaged over q(w); for beta likewise, if
    it is estimated, with A = c + N/2. Infinite constants of improper priors are omitted. 0 for other schemes.
    """
    if not problem.variational:
        return 0.0
    value = len(problem.alpha) * per_function(problem)
    (a, b), (c, d) = problem.alpha_prior, problem.noise_prior
    if (a, b) != (0.0, 0.0):
        value += float(np.sum(a * np.log(problem.alpha) - b * problem.alpha))
        value += len(problem.alpha) * (a * math.log(b / a) + a if a > 0.0 else 0.0)
    if problem.noise in ("estimated", "floor") and (c, d) != (0.0, 0.0):
        value += c * math.log(problem.beta) - d * problem.beta
        if c > 0.0 and d > 0.0:
            value += _gamma_terms(c, c + n_rows / 2.0) + c * math.log(d)
    return value


def per_function(problem: Problem) -> float:
    """Return the cost of a function for an uncertain alpha at the peak of its prior; never positive."""
    a, b = problem.alpha_prior
    if not problem.variational or a == 0.0 or b == 0.0:
        return 0.0
    return _gamma_terms(a, a + 0.5) + a * math.log(a) - a


def _gamma_terms(shape: float, updated: float) -> float:
    return float(gammaln(updated) - gammaln(shape) - updated * math.log(updated) + updated)


def bounded(
    scaled: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """Return logistic rows as the equivalent regression problem under their tightest bound.

    ``scaled`` holds the active functions divided by the roots of their expected alphas, so that weights have
    unit prior precision. In order: the root of each row's curvature, the singular value decomposition of the
    whitened design, the posterior mean, the slope of the bound in the linear predictor, and the log evidence.
    """
    xi = tightest_xi(scaled, t, w)
    root = np.sqrt(w * curvature(xi))
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    # The slope at zero lies in the row space, so it is zero in directions that the data do not determine.
    mean = right.T @ ((right @ (scaled.T @ (w * (t - 0.5)))) / (1.0 + singular**2))
    eta = scaled @ mean
    log_evidence = log_bound(xi, eta, t, w) - 0.5 * float(mean @ mean + np.log1p(singular**2).sum())
    slope: FloatArray = w * (t - 0.5) - root**2 * eta
    return root, left, singular, right, mean, slope, log_evidence


def tightest_xi(scaled: FloatArray, t: FloatArray, w: FloatArray) -> FloatArray:
    """Return the xi of each row for which its bound is tightest (Jaakkola & Jordan 2000).

    Alternates xi_n^2 = E[eta_n^2] and the Gaussian posterior under the bound. This converges slowly, so every
    second update extrapolates ln xi (SQUAREM, Varadhan & Roland 2008) if that does not lower the bound.
    """
    xi: FloatArray = np.sqrt(np.sum(scaled**2, axis=1))
    for _ in range(_MAX_UPDATES):
        once, _ = _xi_update(scaled, t, w, xi)
        twice, value = _xi_update(scaled, t, w, once)
        if np.max(np.abs(twice - once), initial=0.0) <= _XI_RTOL * np.max(twice, initial=1.0):
            xi = twice
            break
        with np.errstate(all="ignore"):
            first, last = np.log(once / xi), np.log(twice / once)
            stride = max(1.0, float(np.linalg.norm(first) / np.linalg.norm(last - first)))
            further = xi * np.exp(2.0 * stride * first + stride**2 * (last - first))
        xi = twice
        # A row on which all functions vanish has xi = 0, and no logarithm.
        if np.isfinite(further).all() and _xi_update(scaled, t, w, further)[1] >= value:
            xi = further
    return xi


def _xi_update(scaled: FloatArray, t: FloatArray, w: FloatArray, xi: FloatArray) -> tuple[FloatArray, float]:
    """Return the root of E[eta_n^2] under the bound at ``xi``, and its log evidence."""
    precision = np.eye(scaled.shape[1]) + scaled.T @ ((w * curvature(xi))[:, np.newaxis] * scaled)
    factor = np.linalg.cholesky(precision)
    whitened = solve_triangular(factor, scaled.T, lower=True)
    mean = whitened @ (w * (t - 0.5))
    moments: FloatArray = np.sqrt(np.sum(whitened**2, axis=0) + (mean @ whitened) ** 2)
    log_det = float(np.log(np.diag(factor)).sum())
    return moments, log_bound(xi, np.zeros_like(xi), t, w) + 0.5 * float(mean @ mean) - log_det


def curvature(xi: FloatArray) -> FloatArray:
    """Return the curvature of the bound, 2 lambda(xi) = tanh(xi / 2) / (2 xi)."""
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.25 - xi**2 / 48.0, np.tanh(safe / 2.0) / (2.0 * safe))


def log_bound(xi: FloatArray, eta: FloatArray, t: FloatArray, w: FloatArray) -> float:
    """Return the bound on the log likelihood that is exact at eta = +-xi."""
    constant = -np.logaddexp(xi / 2.0, -xi / 2.0)
    return float(w @ ((t - 0.5) * eta + constant - 0.5 * curvature(xi) * (eta**2 - xi**2)))
