"""Fits of likelihoods with parameters of their own: dispersion, degrees of freedom, a variance of each row.

All alternate between the core's fit for given parameters, which continues from the model before, and the
parameters for a given model, until these no longer change.

* A dispersion d (negative binomial, Gamma) maximises the Laplace evidence, with the precisions as they are
  and the mode at its optimum for each d.
* Student's t is a Gaussian whose precision in row n is beta lambda_n, lambda_n ~ Gamma(nu / 2, nu / 2). With
  q(w, lambda) = q(w) q(lambda) the bound of the evidence is maximised in turn by a weighted Gaussian fit and
  by q(lambda_n) = Gamma((nu + 1) / 2, (nu + beta E[(t_n - eta_n)^2]) / 2) (Tipping & Lawrence 2005). With
  ``complexity="none"`` it never falls.
* A variance that depends on the inputs has a second sparse model, of its logarithm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, ndtri, psi
from sklearn.exceptions import ConvergenceWarning

from .. import _core
from .._arrays import TO_TABLE, KnownNoise, Training, check_training, is_unstored, known_noise
from .._data.basis import Basis
from .._data.design import Design, columns_at, fitted_extra
from .._row_likelihoods import DISPERSIONS, FREEDOMS, row_likelihood
from .._types import NOISE_FLOOR, FloatArray, PerRow, Settings
from .likelihoods import Numbers
from .posterior import log_noise, moments

if TYPE_CHECKING:
    from .run import Task

#: Change of the log of a parameter, or of a row weight, that ends a fit, and most alternations of each fit.
_TOL: Final = 1e-6
_MAX_ROUNDS: Final = 50
_MAX_WEIGHTINGS: Final = 200
#: Number of functions of the first fit below which the second is a new one: there a wrong choice of functions
#: costs more, and a new fit takes little time. Measured: docs/notebook/robust.md.
_FEW_FUNCTIONS: Final = 30
#: Change to which weights converge at first, with the functions of the model alone.
_SMALL_CHANGE: Final = 0.02
#: Share of the prior on complexity while first row weights are found: with rough ones the noise is large, and
#: beside it the whole prior leaves no function. Measured: docs/notebook/robust.md.
_FIRST_COMPLEXITY: Final = 0.25
#: Degrees of freedom to begin with: estimated ones are large where outliers are fitted. Measured:
#: docs/notebook/robust.md.
FIRST_FREEDOM: Final = 4.0
#: Distances from the median, in standard deviations of the middle half, at which targets begin with less
#: weight. Where functions explain most of y, 1 mistakes them for outliers: docs/notebook/robust.md.
_FAR: Final = 30.0
#: The noise may be at its floor where the floor is more than this share of it.
_NEAR_FLOOR: Final = 0.99
#: Most steps of an extrapolation.
_MAX_EXTRAPOLATION: Final = 20.0
#: Dispersions of counts to begin with, in units of the one that they would have with one mean. Larger ones
#: explain what functions are to explain, with smaller ones functions are fitted to noise.
_STARTS: Final = (0.1, 1.0)
#: Difference of log dispersions for derivatives.
_DIFFERENCE: Final = 1e-4
#: Newton steps to a mode, and halvings of one step.
_MAX_STEPS: Final = 100
_MAX_HALVINGS: Final = 40

#: Attributes of a fit that `RowWeights.publish` sets.
OF_ROWS: Final = ("degrees_of_freedom_", "row_weights_", "_rest_of_bound", "_likelihood")

#: The first model of a fit: its functions, their prior precisions, and the noise precision.
First = tuple[list[int], list[float], float]


class Start(NamedTuple):
    """A model to continue from: its fits, and functions with their precisions and that of the noise."""

    task: Task
    first: First


def extrapolated(first: FloatArray, second: FloatArray, third: FloatArray) -> FloatArray:
    """Return what a sequence may converge to (SQUAREM: Varadhan & Roland 2008, scheme 3)."""
    step, bend = second - first, third - 2.0 * second + first
    ratio = float(np.linalg.norm(step)) / max(float(np.linalg.norm(bend)), 1e-300)
    length = float(np.clip(ratio, 1.0, _MAX_EXTRAPOLATION))
    return np.asarray(first + 2.0 * length * step + length**2 * bend)


def as_first(posterior: Any) -> First:
    """Return the model of a posterior, for another fit to continue from."""
    return posterior.active.tolist(), posterior.alpha.tolist(), float(posterior.beta)


def _of_one_mean(target: FloatArray, offset: FloatArray, weights: FloatArray) -> float:
    """Return the dispersion that targets would have with one mean."""
    log_rates = np.log(np.maximum(target, 1e-300)) - offset
    rates = np.exp(np.clip(log_rates - log_rates.max(), -300.0, 0.0))
    mean = float(np.average(rates, weights=weights))
    return float(np.average((rates - mean) ** 2, weights=weights)) / mean**2


@dataclass(eq=False)
class _ParameterFit:
    """Fits of rows to a dictionary; the likelihood has its parameter if that is given."""

    basis: Basis
    design: Design
    data: Training
    likelihood: Numbers
    settings: Settings
    converged: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        # The prior on complexity is for these rows; the weights of the core's fits need not count them.
        complexity = self.settings.complexity_for(self.data.weight, self.design.n_basis)
        self.settings = replace(self.settings, complexity=complexity)

    def functions(self, active: Any) -> FloatArray:
        """Return the values of these columns at the rows."""
        names = self.basis.layout.names(active.astype(np.intp))
        return self.basis.functions(names, self.data.X, self.settings.n_threads, self.basis.columns)

    def _report(self, est: Any, *, at_floor: bool) -> None:
        """Change the status of a fit whose parameters have not converged or whose noise is at its floor."""
        if est.status_ == "converged" and not self.converged:
            est.status_ = "stalled"
        if at_floor and est.status_ in ("converged", "stalled", "empty"):
            est.status_ = "noise_floor"


@dataclass(eq=False)
class DispersionFit(_ParameterFit):
    """The fit of a likelihood with a dispersion, given or estimated."""

    dispersion: float = field(default=np.nan, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = self.data
        self._counts, self._offset = rows.row_counts, np.log(rows.exposures)
        #: Dispersions to begin with, and the model.
        self._starts = [factor * _of_one_mean(rows.y, self._offset, self._counts) for factor in _STARTS]
        self._begin: First | None = None
        if self.likelihood.name == "gamma":
            # From one mean, weights of very different rows mislead steps: begin with the model of logarithms,
            # whose noise has the variance psi'(1 / d), about d + d^2 / 2. It may interpolate.
            logs = np.log(rows.y) - self._offset
            fit = self.design.bind(logs, rows.weights, "gaussian", self.settings)
            self._begin = as_first(fit(callback=None))
            self._starts[0] = float(np.sqrt(1.0 + 2.0 / self._begin[2])) - 1.0

    def _fit(self, dispersion: float, first: First | None, callback: Any) -> Any:
        """Fit the model of a dispersion."""
        rows, name = self.data, self.likelihood.name
        extra: Any = {"dispersion": dispersion, "offset": self._offset, "first": first or self._begin}
        return self.design.bind(rows.y, rows.weights, name, self.settings, **extra)(callback=callback)

    def found(self, training: Training) -> tuple[Numbers, Training]:
        """Return the likelihood with the dispersion of the fit, and the rows."""
        return replace(self.likelihood, shape=self.dispersion), training

    def publish(self, est: Any, training: Training) -> None:
        """Publish ``dispersion_``."""
        est.dispersion_ = self.dispersion
        # Counts of the least dispersion are Poisson's, whose noise is that of their mean.
        least = 0.0 if self.likelihood.name != "gamma" or self.likelihood.shape else DISPERSIONS[0]
        self._report(est, at_floor=self.dispersion <= least * (1.0 + 10.0 * _TOL))

    def __call__(self, callback: Any) -> Any:
        """Return the posterior at the best dispersion."""
        if (given := self.likelihood.shape) is not None:
            x, first = float(np.log(given)), None
        else:
            starts = [self._start(dispersion, callback) for dispersion in self._starts]
            _, x, first = max(starts, key=lambda start: start[0])
        before = None
        low, high = np.log(DISPERSIONS).tolist()
        for _ in range(_MAX_ROUNDS):
            self.dispersion = float(np.exp(x))
            posterior = self._fit(self.dispersion, first, callback)
            self.converged = given is not None
            if self.converged or posterior.status in ("stopped", "max_iter"):
                break
            slope, curvature = self._slope(posterior, x)
            if before is not None and before[0] != x:
                # The curvature of the evidence at its best precisions, which change with the dispersion.
                curvature = (slope - before[1]) / (x - before[0])
            step = -slope / curvature if curvature < 0.0 else np.sign(slope)
            # A maximum is between a dispersion where the evidence rises and a larger one where it falls.
            low, high = (max(low, x), high) if slope > 0.0 else (low, min(high, x))
            there = x + np.clip(step, -1.0, 1.0)
            if not low <= there <= high:
                there = np.clip(there, low, high) if before is None else 0.5 * (low + high)
            self.converged = not abs(there - x) > _TOL
            if self.converged:
                break
            x, before = float(there), (x, slope)
            first = as_first(posterior)
        return posterior

    def _start(self, dispersion: float, callback: Any) -> tuple[float, float, First]:
        """Return the largest evidence over all dispersions, the log of the best one, and the model.

        The model is fitted with the given one.
        """
        posterior = self._fit(float(np.clip(dispersion, 1e-3, 1e2)), None, callback)
        Phi, alpha = self.functions(posterior.active), posterior.alpha

        def negative(x: float) -> float:
            return -self._evidence(float(np.exp(x)), Phi, alpha, posterior.mu)

        with np.errstate(over="ignore", invalid="ignore"):
            found = minimize_scalar(negative, bounds=tuple(np.log(DISPERSIONS)), method="bounded")
        return -float(found.fun), float(found.x), as_first(posterior)

    def _slope(self, posterior: Any, x: float) -> tuple[float, float]:
        """Return the first two derivatives of the Laplace evidence of a model in the log dispersion."""
        Phi, alpha, h = self.functions(posterior.active), posterior.alpha, _DIFFERENCE
        with np.errstate(over="ignore", invalid="ignore"):
            low, here, high = (
                self._evidence(float(np.exp(x + d)), Phi, alpha, posterior.mu) for d in (-h, 0.0, h)
            )
        slope, curvature = (high - low) / (2.0 * h), (high - 2.0 * here + low) / h**2
        return (slope, curvature) if np.isfinite([slope, curvature]).all() else (0.0, -1.0)

    def _evidence(self, dispersion: float, Phi: FloatArray, alpha: FloatArray, mu: FloatArray) -> float:
        """Return the Laplace evidence less the prior on complexity, up to a constant; -inf without a mode."""
        row, t, w = row_likelihood(self.likelihood.name, dispersion), self.data.y, self._counts

        def height(mu: FloatArray) -> tuple[float, FloatArray]:
            eta = Phi @ mu + self._offset
            return float(w @ row.log_likelihood(eta, t) - 0.5 * (alpha @ mu**2)), eta

        value, eta = height(mu)
        for _ in range(_MAX_STEPS):
            slope = Phi.T @ (w * row.slope(eta, t)) - alpha * mu
            H = (Phi.T * (w * row.curvature(eta, t))) @ Phi + np.diag(alpha)
            try:
                factor = cho_factor(H)
            except (LinAlgError, ValueError):
                return -np.inf
            step = cho_solve(factor, slope)
            rise = float(slope @ step)
            if not rise > 1e-13 * (1.0 + abs(value)):
                break
            for _ in range(_MAX_HALVINGS):
                higher, eta_there = height(mu + step)
                if higher >= value:
                    break
                step = 0.5 * step
            else:
                break
            mu, value, eta = mu + step, higher, eta_there
        proper = alpha > 0.0
        evidence = value + 0.5 * float(np.log(alpha[proper]).sum()) - float(np.log(np.diag(factor[0])).sum())
        if (complexity := float(self.settings.complexity)) > 0.0:
            variances = np.diag(cho_solve(factor, np.eye(len(alpha))))
            evidence -= complexity * float(np.sum(1.0 - (alpha * variances)[proper]))
        return evidence


def _middle(y: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return the median, and the variance that the median deviation from it has under a Gaussian.

    The variance where at least half of the targets are equal.
    """

    def median(values: FloatArray) -> float:
        order = np.argsort(values, kind="stable")
        shares = np.cumsum(counts[order])
        return float(values[order[np.searchsorted(shares, 0.5 * shares[-1])]])

    centre = median(y)
    variance = (median(np.abs(y - centre)) / ndtri(0.75)) ** 2
    with np.errstate(over="ignore"):
        deviations = y - np.average(y, weights=counts)
        return centre, variance or float(np.average(deviations**2, weights=counts))


@dataclass
class RowWeights:
    """q(lambda) of each row under Student's t, and the degrees of freedom."""

    #: Degrees of freedom; None: estimated.
    given: float | None
    #: Sample weights, which count rows.
    counts: FloatArray
    #: E[lambda] of each row.
    values: FloatArray
    freedom: float = FIRST_FREEDOM
    #: Noise variance at which a fit ends.
    least_noise: float = 0.0

    @classmethod
    def of(
        cls, given: float | None, training: Training, settings: Settings, values: FloatArray | None = None
    ) -> RowWeights:
        """Return these weights of the rows to begin with, None: equal but for wild targets."""
        counts = training.row_counts
        if (total := float(counts.sum())) < 1.0:
            raise ValueError(
                f"sample_weight counts rows, and sums to {total:.3g}: scale it to count rows, as "
                "likelihood='student_t' needs at least one"
            )
        weights = cls(given, counts, np.ones(len(counts)), FIRST_FREEDOM if given is None else given)
        centre, variance = _middle(training.y, counts)
        weights.least_noise = NOISE_FLOOR * variance if settings.noise_variance is None else 0.0
        if values is None:
            scaled = (training.y - centre) ** 2 / (_FAR**2 * variance or 1.0)
            values = weights.best(scaled)
        weights.values = values
        return weights

    def update(self, squares: FloatArray, noise: float, *, estimates: bool = True) -> float:
        """Take the best values for E[(t_n - eta_n)^2], and return the largest change of their logs.

        ``noise``: the noise variance of a fit with these weights. ``estimates``: sets the degrees of freedom
        first, unless they are given.
        """
        scaled = squares / (noise * self.unit)
        if self.given is None and estimates:
            self.freedom = self._best_freedom(scaled)
        values = self.best(scaled)
        change = float(np.abs(np.log(values / self.values)).max())
        self.values = values
        return change

    def best(self, scaled: FloatArray) -> FloatArray:
        """Return the best values for beta E[(t_n - eta_n)^2]."""
        return (self.freedom + 1.0) / (self.freedom + scaled)

    @property
    def unit(self) -> float:
        """The mean row weight."""
        return float(np.average(self.values, weights=self.counts))

    @property
    def of_fit(self) -> FloatArray:
        """The weights of the fits, which sum to the number of rows."""
        return self.counts * self.values / self.unit

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of the fits, whose noise variance is that of a row of the mean weight."""
        return settings.with_noise_of(1.0 / self.unit)

    @property
    def beside_evidence(self) -> float:
        """The bound minus the log evidence of a fit with these weights."""
        return 0.5 * float(self.counts @ np.log(self.values / self.unit)) + self.rest_of_bound

    @property
    def rest_of_bound(self) -> float:
        """sum_n c_n [(E[ln lambda_n] - ln E[lambda_n]) / 2 - KL(q(lambda_n) || p(lambda_n))].

        That is the bound minus the log evidence of a Gaussian fit with the precisions beta E[lambda].
        """
        shape, prior = 0.5 * (self.freedom + 1.0), 0.5 * self.freedom
        rate = shape / self.values
        divergence = (shape - prior) * psi(shape) - gammaln(shape) + gammaln(prior)
        divergence += prior * np.log(rate / prior) + shape * (prior - rate) / rate
        return float(self.counts @ (0.5 * (psi(shape) - np.log(shape)) - divergence))

    def weighted(self, training: Training) -> Training:
        """Return the rows with these weights, as if their standard deviations were known."""
        noise = KnownNoise(training.counts, 1.0 / self.unit, self.beside_evidence)
        return replace(training, weights=self.of_fit, noise=noise)

    def publish(self, est: Any, training: Training) -> None:
        """Publish ``degrees_of_freedom_`` and ``row_weights_``."""
        est.degrees_of_freedom_, est._rest_of_bound = self.freedom, self.rest_of_bound
        est._likelihood = replace(est._likelihood, shape=self.freedom)
        est.row_weights_ = np.zeros(training.n_samples)
        est.row_weights_[training.rows] = self.values

    def _best_freedom(self, scaled: FloatArray) -> float:
        """Return the degrees of freedom that maximise the bound, q(lambda) being at its optimum for each."""

        def negative(x: float) -> float:
            nu = np.exp(x)
            constant = gammaln((nu + 1.0) / 2.0) - gammaln(nu / 2.0) - 0.5 * np.log(nu)
            return -float(self.counts @ (constant - 0.5 * (nu + 1.0) * np.log1p(scaled / nu)))

        bounds = tuple(np.log(FREEDOMS))
        found = minimize_scalar(negative, bounds=bounds, method="bounded", options={"xatol": 1e-10})
        return float(np.exp(min((found.x, *bounds), key=negative)))


@dataclass(eq=False)
class StudentFit(_ParameterFit):
    """The fit of Student's t: of weighted rows, whose weights depend on the residuals."""

    #: Weights to begin with, those of a process; None: those of a fit with less prior on complexity, or where
    #: functions could explain every row, rough ones.
    begin: FloatArray | None
    #: Whether the noise is at the floor of the core's fits, which may exceed `RowWeights.least_noise`.
    is_held: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        #: The weights of the rows, and those of the first fit.
        self.rows = RowWeights.of(self.likelihood.shape, self.data, self.settings, self.begin)
        self.start = replace(self.rows)

    def _fit(self, first: First | None, callback: Any) -> Any:
        """Fit a Gaussian model of the weighted rows."""
        settings, weights = self.rows.settings(self.settings), self.rows.of_fit
        extra: Any = {} if first is None else {"first": first}
        return self.design.bind(self.data.y, weights, "gaussian", settings, **extra)(callback=callback)

    def _refit(self, Phi: FloatArray, model: First) -> Any:
        """Continue from a model with its functions alone, given their values."""
        flat = [k for k, alpha in enumerate(model[1]) if alpha == 0.0]
        first = list(range(len(model[0]))), *model[1:]
        plain = self.rows.settings(self.settings).of_one_target() | {"unpenalized": flat, "search": "greedy"}
        return _core.fit_dense(np.asfortranarray(Phi), self.data.y, self.rows.of_fit, first=first, **plain)

    def found(self, training: Training) -> tuple[Numbers, Training]:
        """Return the likelihood with the degrees of freedom of the fit, and the rows with its weights."""
        return replace(self.likelihood, shape=self.rows.freedom), self.rows.weighted(training)

    def publish(self, est: Any, training: Training) -> None:
        """Publish ``degrees_of_freedom_`` and ``row_weights_``."""
        self.rows.publish(est, training)
        est._y_variance = None  # the weights are not standard deviations of the user
        self._report(est, at_floor=self.is_held or est.noise_variance_ <= self.rows.least_noise)

    def __call__(self, callback: Any) -> Any:
        """Return the posterior of the weighted fit at the best weights."""
        less = _FIRST_COMPLEXITY * float(self.settings.complexity)
        if self.begin is None and less > 0.0 and self.design.n_basis < self.data.weight:
            other = copy(self)
            other.settings, other.rows = replace(self.settings, complexity=less), replace(self.rows)
            posterior = other._alternated(callback)
            if other.converged or posterior.status == "stopped":
                self.rows, self.begin = other.rows, other.rows.values
            if posterior.status == "stopped":
                return posterior
        posterior = self._alternated(callback)
        if self.converged and len(posterior.active) < _FEW_FUNCTIONS:
            # The search may have missed functions that explain little alone, but much together.
            other = copy(self)
            other.rows = replace(self.rows, values=np.ones_like(self.rows.values))
            first = as_first(other._fit(None, callback))
            other.rows = replace(self.rows)
            if other._fit(first, callback).log_evidence > posterior.log_evidence:
                posterior = self._better(posterior, other, first, callback)
        if self.rows.given is not None or not self.converged or self.rows.freedom <= FIRST_FREEDOM:
            return posterior
        # Functions may have been fitted to outliers, beside which the noise looks Gaussian.
        other = copy(self)
        other.rows = replace(self.rows)
        if other._with_heavy_tails(posterior) > self._bound(posterior):
            posterior = self._better(posterior, other, None, callback)
        return posterior

    def _better(self, posterior: Any, other: StudentFit, first: First | None, callback: Any) -> Any:
        """Continue another fit to its end, and return the better one of both."""
        other.converged = False
        found = other._alternated(callback, first)
        if other.converged and other._bound(found) > self._bound(posterior):
            self.__dict__.update(other.__dict__)
            return found
        return posterior

    def _with_heavy_tails(self, posterior: Any) -> float:
        """Find weights for the functions of a model from few degrees of freedom; return the bound."""
        model, Phi = as_first(posterior), self.functions(posterior.active)
        for self.rows.given in (FREEDOMS[0], None):
            self.rows.freedom = FREEDOMS[0]
            model, Phi, posterior = self._settled(model, Phi)
        return self._bound(posterior)

    def _alternated(self, callback: Any, first: First | None = None) -> Any:
        """Alternate between fits and weights, from the present ones, until both converge."""
        for number in range(_MAX_ROUNDS):
            posterior = self._fit(first, callback)
            if posterior.status in ("stopped", "max_iter"):
                break
            if self._is_at_floor(posterior):
                break
            Phi, before = self.functions(posterior.active), replace(self.rows)
            change = self._reweight(posterior, Phi, estimates=first is not None)
            self.converged = first is not None and not change > _TOL
            if self.converged or number == _MAX_ROUNDS - 1:
                self.rows = replace(self.rows, values=before.values)
                break
            if (
                first is None
                and number == 0
                and (self.begin is None or len(posterior.active) < _FEW_FUNCTIONS)
            ):
                continue  # a model of other weights may be far from the best one
            tol = _TOL if change <= _SMALL_CHANGE else _SMALL_CHANGE
            first, _, _ = self._settled(as_first(posterior), Phi, tol)
        self.is_held = self.converged and self._is_held(posterior)
        return posterior

    def _settled(self, model: First, Phi: FloatArray, tol: float = _TOL) -> tuple[First, FloatArray, Any]:
        """Alternate between weights and a model of no other functions until the weights converge.

        Every third step extrapolates the logs of the weights from the two before.
        """
        logs = [np.log(self.rows.values)]
        for _ in range(_MAX_WEIGHTINGS):
            posterior = self._refit(Phi, model)
            kept = posterior.active
            model = [model[0][k] for k in kept], posterior.alpha.tolist(), float(posterior.beta)
            Phi = Phi[:, kept]
            if self._is_at_floor(posterior) or not self._reweight(posterior, Phi) > tol:
                break
            logs.append(np.log(self.rows.values))
            if len(logs) == 3:
                logs = [extrapolated(*logs)]
                self.rows.values = np.exp(logs[0])
        return model, Phi, posterior

    def _reweight(self, posterior: Any, Phi: FloatArray, *, estimates: bool = True) -> float:
        """Weigh the rows by a posterior of functions; return the largest change of the log of a weight."""
        squares = (self.data.y - Phi @ posterior.mu) ** 2
        squares += np.maximum(np.sum((Phi @ posterior.sigma) * Phi, axis=1), 0.0)
        return self.rows.update(squares, 1.0 / posterior.beta, estimates=estimates)

    def _is_at_floor(self, posterior: Any) -> bool:
        return bool(self.rows.unit <= posterior.beta * self.rows.least_noise)

    def _is_held(self, posterior: Any) -> bool:
        """Return whether the noise is at the floor of the core's fits, which changes with the weights.

        A fit that begins just above the floor ends there as converged, one that begins below does not.
        """
        y, weights = self.data.y, self.rows.of_fit
        with np.errstate(over="ignore"):
            variance = float(np.average((y - np.average(y, weights=weights)) ** 2, weights=weights))
        if posterior.status != "converged" or posterior.beta * variance * NOISE_FLOOR < _NEAR_FLOOR:
            return False
        active, alpha, beta = as_first(posterior)
        below = active, alpha, beta / _NEAR_FLOOR
        return bool(self._refit(self.functions(posterior.active), below).status == "noise_floor")

    def _bound(self, posterior: Any) -> float:
        """Return the bound of the log evidence, given the posterior of the last fit."""
        return float(posterior.log_evidence) + self.rows.beside_evidence


# --- noise whose variance depends on the inputs -----------------------------------------------------
#
# There are two sparse models, of the mean and of ln of the variance. With q(w) the posterior of the weights
# of the mean, E[ln p(t_n | w)] = -(u_n + e_n exp(-u_n)) / 2 up to a constant, u_n the log variance and
# e_n = E[(t_n - eta_n)^2]. As a function of u_n this is the log likelihood of a Gamma variable e_n of mean
# exp(u_n) and dispersion 2. So fits of the mean, with known standard deviations, alternate with Gamma fits of
# e until u no longer changes.

#: Largest change of u that ends a fit, and most alternations.
_TOL_OF_VARIANCES: Final = 3e-7
_MAX_ALTERNATIONS: Final = 30
#: Change of u below which fits continue from the model before.
_LARGE_CHANGE_OF_VARIANCES: Final = 0.5
#: Change of u below which every third one extrapolates from the two before.
_SMALL_CHANGE_OF_VARIANCES: Final = 0.2
#: Smallest e in units of its mean.
_LEAST: Final = 1e-12


def check_noise_basis(est: Any, rows: Any, y_std: Any, exposure: Any) -> Training:
    """Return the rows; ValueError, naming the remedy, if their noise cannot be modelled."""
    if est.likelihood != "gaussian":
        raise ValueError(f"noise_basis needs likelihood='gaussian'; got {est.likelihood!r}")
    if y_std is not None or exposure is not None or est.noise_variance is not None:
        raise ValueError("noise_basis estimates the noise: noise_variance, y_std and exposure must be None")
    if not isinstance(rows, Training):
        raise ValueError("noise_basis needs the rows in memory; give arrays, and raise memory_limit")
    if rows.y.ndim == 2:
        raise ValueError("y must have one column with noise_basis; fit the columns one by one")
    if is_unstored(rows.X):
        raise ValueError(f"X must be a table with noise_basis; give {TO_TABLE}")
    return rows


def fit_noise(
    est: Any,
    rows: Training,
    model: Any,
    fit: Callable[[Training, Start | None], tuple[Any, Any]],
) -> None:
    """Alternate between ``fit``, which publishes the model of the mean, and fits of the noise ``model``.

    Once u changes little ``fit`` continues from the model before: a new one may be another.
    """
    basis = fitted_extra(est.noise_basis, None, rows.X, "noise_basis")
    columns = columns_at(basis, rows.X, name="noise_basis")
    u, change, counts = np.zeros(len(rows.y)), np.inf, rows.weights
    path: list[FloatArray] = []
    start: Start | None = None
    own: dict[str, Any] = {}
    for number in range(_MAX_ALTERNATIONS + 1):
        noise, weights = known_noise(np.exp(0.5 * u), counts)
        status = est.status_ if own else ""
        found, posterior = fit(replace(rows, weights=weights, noise=noise), start)
        est.__dict__.update(own)
        if est.status_ in ("stopped", "max_iter") or number == _MAX_ALTERNATIONS:
            break
        squares = _squares(rows.y, est._loo.m[:, 0], est._loo.v[:, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # noise may be the same in all rows
            model.fit(columns, squares, sample_weight=counts)
        own = {"noise_model_": model, "noise_basis_": basis, "_noise_centre": 0.0}
        est.__dict__.update(own)
        # The factor of all variances is in the noise variance of the model.
        own["_noise_centre"] = est._noise_centre = float(np.average(log_noise(est, columns), weights=counts))
        before, u = u, log_noise(est, columns)
        change = float(np.abs(u - before).max())
        path = [*path, u] if change < _SMALL_CHANGE_OF_VARIANCES else [u]
        if len(path) == 3 and change > _TOL_OF_VARIANCES:
            u = extrapolated(*path)
            path = [u]
        if not change > _TOL_OF_VARIANCES:
            # Where a fit begins at its optimum rounding may exceed all gains.
            est.status_ = (status or "stalled") if est.status_ == "stalled" else est.status_
            break
        # Groups have no fit that continues.
        can_continue = getattr(est, "groups", None) is None and est.scheme == "sequential"
        start = (
            Start(found, as_first(posterior))
            if can_continue and change < _LARGE_CHANGE_OF_VARIANCES
            else None
        )
    if not own:
        est._y_variance = None  # the noise is the same in all rows
    elif est.status_ == "converged" and (
        change > _TOL_OF_VARIANCES or model.status_ not in ("converged", "empty")
    ):
        est.status_ = "stalled"


def _squares(y: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Return e in units of its mean."""
    e = (y - m) ** 2 + v
    return np.asarray(np.maximum(e / (e.mean() or 1.0), _LEAST))


def noise_problem(
    est: Any, X: ArrayLike, y: ArrayLike, sample_weight: PerRow
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return columns, targets and weights of the noise model, given the training rows."""
    rows = check_training(est, X, y, sample_weight, reset=False)
    est = copy(est)
    vars(est).pop("feature_names_in_", None)  # the rows are arrays from here on
    m, v = moments(est, rows.X, variance=True, grows=False)
    assert v is not None
    return columns_at(est.noise_basis_, rows.X), _squares(rows.y, m[:, 0], v[:, 0]), rows.weights
