r"""Fits of columns in groups that share a precision: the steps of Tipping & Faul (2003) for blocks.

Let alpha be the precision of all columns Phi of a group, and C the covariance of the targets without them. In
the basis of the eigenvectors u_k of S = Phi^T C^-1 Phi the evidence of n outputs depends on alpha by

    l(alpha) = 1/2 sum_k [n ln(alpha / (alpha + s_k)) + q_k^2 / (alpha + s_k)],    q_k = u_k^T Phi^T C^-1 t,

equation (18) for each k, with q_k^2 summed over the outputs. The prior on complexity is
exp(-sum_g c_g tr_g) for each output, tr_g = sum_j (1 - alpha_g Sigma_jj) over the d_g columns of group g and
c_g = c / d_g^(3/4), so that groups without effect enter as often as single columns do. With
G = beta Phi_active^T Phi and A_c the diagonal matrix of c_g alpha_g it takes 2 n rho_k from q_k^2,
rho_k = u_k^T (c_g S - G^T Sigma A_c Sigma G) u_k.

Rows are multiplied by the roots of their weights, and columns with a flat prior are projected out of the
others and of the targets (restricted maximum likelihood).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, qr, solve_triangular

from .._arrays import Training
from .._cancellable import one_blas_thread
from .._checks import check_flag
from .._data.basis import Basis, groups_of
from .._data.design import matrix
from .._types import NOISE_FLOOR, FloatArray, IntArray, Settings
from .likelihoods import NEEDED

#: Smallest gain of a step in nats, as in the core, and the smallest beside a model that has not converged.
_MIN_GAIN: Final = 1e-7
_COARSE_GAIN: Final = 1e-2
#: First noise variance in units of var(y).
_INITIAL_NOISE: Final = 0.1
#: Power of the number of columns that the weight of the prior on complexity is divided by. Derivation:
#: docs/theory/groups.md.
_GROUP_POWER: Final = 0.75
#: Groups that are considered between two passes over all of them, until no gain exceeds this fraction of the
#: largest.
_WORKING_SET: Final = 50
_GAIN_RATIO: Final = 0.3
#: Passes over all groups at the first noise: where it is too low, groups without end gain.
_FIRST_PASSES: Final = 3
#: Precisions for which a gain is computed before the best is refined, and Newton steps to refine it.
_GRID: Final = 48
_GRID_ROWS: Final = 4096
_POLISH: Final = 60
#: Largest step of Newton's method in the log of a precision, and halvings of a step.
_MAX_STEP: Final = 2.0
_MAX_HALVINGS: Final = 30
#: Length of Newton's step below which it need not raise the objective.
_CLOSE: Final = 1e-3
#: Eigenvalues of S below this fraction of the largest are rounding: the columns depend on one another.
_RANK: Final = 1e-12
#: Most passes that lead to a model of no greater evidence.
_MAX_IDLE: Final = 3


def fit_of_groups(est: Any, basis: Basis, rows: Training, settings: Settings) -> GroupFit:
    """Return the fit of columns in groups, as a function of ``callback``."""
    groups = groups_of(est, basis)
    assert groups is not None
    assert basis.columns is not None
    for name, needed in NEEDED.items():
        if (value := getattr(settings, name)) != needed:
            raise ValueError(f"{name} must be {needed!r} with groups, got {value!r}; or set groups=None")
    if rows.y.ndim == 2 and not check_flag("shared_noise", est.shared_noise):
        raise ValueError(
            "shared_noise must be True with groups where y has several columns; or fit its columns one by one"
        )
    if settings.noise_variances is not None:
        raise ValueError("noise_variance must be one number with groups, got an array")
    Phi = matrix([basis.columns], bias=basis.bias, offset=basis.offset if basis.bias else None)
    flat = list(settings.unpenalized)
    penalized = [group for group in groups if group[0] not in flat]
    complexity = settings.complexity_for(rows.weight, len(groups), rows.y[0].size)
    return GroupFit(Phi, rows.y, rows.weights, penalized, flat, settings, complexity)


class GroupPosterior(NamedTuple):
    """The result of a fit, with the attributes of those of the core."""

    active: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    gamma: FloatArray
    beta: float
    log_evidence: float
    trace: FloatArray
    n_iter: int
    status: str


class _Stopped(Exception):
    """The callback asked to stop, or there were ``max_iter`` steps."""


class _Factors(NamedTuple):
    """s_k and q_k^2 - 2 n rho_k of groups, (n_groups, size)."""

    s: FloatArray
    square: FloatArray


def _resolved(s: FloatArray, square: FloatArray, size: FloatArray) -> _Factors:
    """Return factors without those that are rounding: the columns, or these and the model, depend.

    ``size``: of the terms that s is a difference of.
    """
    least = _RANK * np.maximum(s.max(axis=1, keepdims=True), np.finfo(float).tiny)
    none = s <= np.maximum(least, _RANK * size)
    return _Factors(np.where(none, 0.0, s), np.where(none, 0.0, square))


def _value(factors: _Factors, n: int, alpha: FloatArray) -> FloatArray:
    """Return l(alpha) of each group."""
    s, a = factors.s, alpha[..., np.newaxis]
    terms = -n * np.log1p(s / a) + factors.square / (a + s)
    return np.asarray(0.5 * terms.sum(axis=-1))


def _best_alphas(factors: _Factors, n: int, *, polishes: bool = True) -> tuple[FloatArray, FloatArray]:
    """Return the precision of the largest gain of each group, infinite without a gain, and the gain.

    ``polishes``: to rounding, else nearly.
    """
    s, square = factors
    excess = square - n * s
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where((excess > 0.0) & (s > 0.0), n * s**2 / excess, np.inf)  # equation (20)
    low, size = own.min(axis=1), s.max(axis=1)
    alphas, gains = np.full(len(s), np.inf), np.zeros(len(s))
    some = np.flatnonzero(np.isfinite(low) & (low > 0.0))
    if s.shape[1] == 1:
        alphas[some] = low[some]
        gains[some] = _value(_Factors(s[some], square[some]), n, low[some])
        return alphas, gains
    if len(some) == 0:
        return alphas, gains
    part = _Factors(s[some], square[some])
    # A maximum is between the smallest of the precisions that are best for one k alone, and infinity.
    finite = np.where(np.isfinite(own[some]), own[some], 0.0).max(axis=1)
    low, high = np.log(low[some]), np.log(np.maximum(finite, 1e4 * size[some]))
    x = low[:, np.newaxis] + (high - low)[:, np.newaxis] * np.linspace(0.0, 1.0, _GRID)
    at = np.empty(len(some), np.intp)
    for start in range(0, len(some), _GRID_ROWS):
        own_rows = slice(start, start + _GRID_ROWS)
        wide = _Factors(part.s[own_rows, np.newaxis], part.square[own_rows, np.newaxis])
        at[own_rows] = np.argmax(_value(wide, n, np.exp(x[own_rows])), axis=1)
    rows = np.arange(len(some))
    left, right = x[rows, np.maximum(at - 1, 0)], x[rows, np.minimum(at + 1, _GRID - 1)]
    best = x[rows, at]
    for _ in range(_POLISH if polishes else 0):
        # Newton steps in ln alpha on the slope, by halves where they leave the bracket.
        a = np.exp(best)[:, np.newaxis]
        inverse = 1.0 / (a + part.s)
        slope = 0.5 * (n * part.s * inverse - a * part.square * inverse**2).sum(axis=1)
        bend = -n * part.s * a * inverse**2 - a * part.square * inverse**2 * (1.0 - 2.0 * a * inverse)
        curvature = 0.5 * bend.sum(axis=1)
        left, right = np.where(slope > 0.0, best, left), np.where(slope > 0.0, right, best)
        with np.errstate(divide="ignore", invalid="ignore"):
            there = best - slope / curvature
        inside = (curvature < 0.0) & (there >= left) & (there <= right)
        there = np.where(inside, there, 0.5 * (left + right))
        if (np.abs(there - best) < 1e-13 * (1.0 + np.abs(best))).all():
            break
        best = there
    found = _value(part, n, np.exp(best))
    good = found > 0.0
    alphas[some[good]], gains[some[good]] = np.exp(best[good]), found[good]
    return alphas, gains


@dataclass
class _Posterior:
    """The posterior of the active columns: A = diag(alpha), H = A + beta G, Sigma = H^-1."""

    sigma: FloatArray
    mu: FloatArray
    #: K = Sigma - Sigma A Sigma, the covariance of mu over draws of the noise, and M = Sigma A_c Sigma.
    sampling: FloatArray
    shrunk: FloatArray
    #: The lower triangular factor of H.
    root: FloatArray
    #: ln p(t) with the prior on complexity, and without.
    objective: float
    log_evidence: float
    #: Targets less predictions, and their sum of squares.
    rest: FloatArray
    residual: float


class GroupFit:
    """The fit of targets, (n, n_outputs), to columns in groups; outputs share precisions and noise."""

    def __init__(
        self,
        Phi: FloatArray,
        t: FloatArray,
        weights: FloatArray | None,
        groups: list[IntArray],
        flat: list[int],
        settings: Settings,
        complexity: float,
    ) -> None:
        root = np.ones(len(Phi)) if weights is None else np.sqrt(weights)
        t = t.reshape(len(t), -1)
        self.groups, self.flat, self.settings, self.complexity = groups, flat, settings, complexity
        self.n_outputs, rows = t.shape[1], float(np.sum(root**2))
        # Logarithms of determinants need no scale; that of the targets keeps beta near 1.
        deviations = t - np.average(t, axis=0, weights=root**2)
        given, size = settings.noise_variance, float(np.abs(deviations).max()) or 1.0
        variance = float(np.average(np.mean((deviations / size) ** 2, axis=1), weights=root**2))
        self.unit = size * np.sqrt(variance) or 1.0
        if not 1e-150 < self.unit < 1e150:
            raise ValueError(
                f"y has the standard deviation {self.unit:.4g}, whose square is out of range; rescale y to "
                "one between 1e-150 and 1e150"
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(np.sum(Phi**2, axis=0)).all():
                raise ValueError("a column of X is not finite or too large to square; rescale X")
        if given is not None and not 1e-100 <= self.unit / given * self.unit <= 1e24:
            raise ValueError(
                f"noise_variance is {given:.4g} and the variance of y is {self.unit**2:.4g}: double "
                "precision cannot resolve both; choose another, or leave it out to estimate it"
            )
        # In units of the largest value of each group products and precisions stay in range.
        self.scales = np.abs(Phi).max(axis=0, initial=0.0)
        for group in groups:
            self.scales[group] = self.scales[group].max()
        self.scales[self.scales == 0.0] = 1.0
        Phi, t = root[:, np.newaxis] * (Phi / self.scales), root[:, np.newaxis] * t
        self.F = Phi[:, flat]
        self.norms = np.sqrt(np.sum(self.F**2, axis=0))
        self.raw, self.raw_t, t = Phi, t, t / self.unit
        if flat:
            Q, R = qr(self.F / self.norms, mode="economic")
            self.ln_volume = 2.0 * float(np.log(np.abs(np.diag(R))).sum())
            Phi, t = Phi - Q @ (Q.T @ Phi), t - Q @ (Q.T @ t)
        else:
            self.ln_volume = 0.0
        self.Phi, self.t, self.products = Phi, t, Phi.T @ t
        self.n_contrasts = max(rows - len(flat), 0.0)
        sizes = np.array([len(group) for group in groups])
        #: Numbers of the groups of each size, their columns, and the products of these.
        self.buckets = []
        for size in np.unique(sizes):
            numbers = np.flatnonzero(sizes == size)
            columns = np.stack([groups[g] for g in numbers])
            blocks = Phi.T[columns]
            self.buckets.append((numbers, columns, blocks @ blocks.transpose(0, 2, 1)))
        self.active: list[int] = []
        self.x = np.zeros(0)
        # Without rows beside the columns with a flat prior nothing tells the noise.
        self.estimates_noise = given is None and self.n_contrasts > 0.0
        self.beta = 1.0 / _INITIAL_NOISE if given is None else self.unit**2 / given
        #: Phi^T of the active columns, one row for each.
        self.gram_columns = np.zeros((0, Phi.shape[1]))
        #: Groups whose steps were refused, as rounding hides the gain.
        self.refused: set[int] = set()
        self.trace: list[float] = []
        self.callback: Any = None

    # --- the posterior ----------------------------------------------------------------------------------

    @property
    def columns(self) -> IntArray:
        """The active columns, group by group."""
        none = np.zeros(0, np.intp)
        return np.concatenate([none, *(self.groups[g] for g in self.active)])

    def _sums(self) -> FloatArray:
        """Return the matrix that sums over the columns of each active group, (n_columns, n_groups)."""
        sizes = [len(self.groups[g]) for g in self.active]
        return np.repeat(np.eye(len(sizes)), sizes, axis=0)

    def _penalties(self) -> FloatArray:
        """Return c_g of each active column."""
        sizes = np.array([len(self.groups[g]) for g in self.active], dtype=np.intp)
        return np.repeat(self._penalty(sizes), sizes)

    def _penalty(self, size: Any) -> Any:
        """Return the weight of the prior on complexity for each column of groups of a size."""
        return self.complexity / size**_GROUP_POWER

    def posterior(self, x: FloatArray, beta: float) -> _Posterior:
        """Return the posterior at the logs of the precisions of the active groups, or raise LinAlgError."""
        columns, n = self.columns, self.n_outputs
        alpha = np.exp(self._sums() @ x) if len(x) else np.zeros(0)
        G, P = self.gram_columns[:, columns], self.products[columns]
        H = beta * G
        H[np.diag_indices(len(H))] += alpha
        root = cholesky(H, lower=True) if len(H) else H
        sigma = cho_solve((root, True), np.eye(len(H))) if len(H) else H
        mu = beta * (sigma @ P)
        sampling, c = sigma - (sigma * alpha) @ sigma, self._penalties()
        shrunk = (sigma * (c * alpha)) @ sigma
        rest = self.t - self.Phi[:, columns] @ mu
        residual = float(np.sum(rest**2))
        ln_det = 2.0 * float(np.log(np.diag(root)).sum())
        energy = beta * residual + float(alpha @ np.sum(mu**2, axis=1))
        log_p = n * (self.n_contrasts * np.log(beta / (2.0 * np.pi)) - ln_det + float(np.log(alpha).sum()))
        log_p = 0.5 * (log_p - energy)
        # In the units of the targets, as the core has it.
        log_p -= n * (self.n_contrasts * np.log(self.unit) + 0.5 * self.ln_volume)
        objective = log_p - n * float(c @ (1.0 - alpha * np.diag(sigma)))
        return _Posterior(sigma, mu, sampling, shrunk, root, float(objective), float(log_p), rest, residual)

    def _posterior_or_none(self, x: FloatArray, beta: float) -> _Posterior | None:
        """Return the posterior, or None where rounding makes its precision indefinite."""
        try:
            return self.posterior(x, beta)
        except LinAlgError:
            return None

    # --- gains of groups --------------------------------------------------------------------------------

    def factors(self, now: _Posterior, columns: IntArray, own: FloatArray) -> _Factors:
        """Return the factors of groups outside the model, (n_groups, size) columns, with products ``own``."""
        shape, n = columns.shape, self.n_outputs
        g = self.beta * self.gram_columns[:, columns.reshape(-1)]  # (m, n_groups * size)
        active = self.columns
        Q = self.beta * (self.Phi[:, columns.reshape(-1)].T @ now.rest).reshape(*shape, n)
        if len(active) > 0:
            V = solve_triangular(now.root, g, lower=True)
            V = V.T.reshape(*shape, -1)
            S = self.beta * own - V @ V.transpose(0, 2, 1)
            scale = np.sqrt(self._penalties()) * np.exp(0.5 * self._sums() @ self.x)
            U = (cho_solve((now.root, True), g).T * scale).reshape(*shape, -1)
            R = self._penalty(shape[1]) * S - U @ U.transpose(0, 2, 1)
        else:
            S = self.beta * own
            R = self._penalty(shape[1]) * S
        # S is a difference of terms of this size.
        size = self.beta * np.trace(own, axis1=1, axis2=2)
        return self._in_eigenbasis(S, Q, R, size[:, np.newaxis])

    def _in_eigenbasis(self, S: FloatArray, Q: FloatArray, R: FloatArray, size: FloatArray) -> _Factors:
        if S.shape[1] == 1:
            s, q, rho = S[:, :, 0], Q, R[:, :, 0]
        else:
            s, u = np.linalg.eigh(S)
            q = u.transpose(0, 2, 1) @ Q
            rho = np.sum(u * (R @ u), axis=1)
        return _resolved(s, np.sum(q**2, axis=2) - 2.0 * self.n_outputs * np.maximum(rho, 0.0), size)

    def best_of_active(self, now: _Posterior) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the best precision of each active group, the gain beside its absence, and the present gain.

        With the group left out, its factors are 1 / variance - alpha and mean / variance in the eigenbasis of
        its part of the posterior.
        """
        sizes = np.array([len(self.groups[g]) for g in self.active], dtype=np.intp)
        alphas, gains, present = np.zeros((3, len(sizes)))
        first = np.cumsum(sizes) - sizes
        for size in np.unique(sizes):
            ks = np.flatnonzero(sizes == size)
            at = first[ks, np.newaxis] + np.arange(size)
            rows, columns = at[:, :, np.newaxis], at[:, np.newaxis]
            variances, u = np.linalg.eigh(now.sigma[rows, columns])
            K = self._penalty(size) * now.sigma[rows, columns] - now.shrunk[rows, columns]
            m = u.transpose(0, 2, 1) @ now.mu[at]
            square = np.sum(m**2, axis=2) - 2.0 * self.n_outputs * np.sum(u * (K @ u), axis=1)
            alpha = np.exp(self.x[ks])
            factors = _resolved(
                1.0 / variances - alpha[:, np.newaxis], square / variances**2, alpha[:, np.newaxis]
            )
            alphas[ks], gains[ks] = _best_alphas(factors, self.n_outputs)
            present[ks] = _value(factors, self.n_outputs, alpha)
        return alphas, gains, present

    # --- steps ------------------------------------------------------------------------------------------

    @one_blas_thread()
    def __call__(self, callback: Any = None) -> GroupPosterior:
        """Return the posterior at a maximum of the evidence."""
        self.callback = callback
        now = self.posterior(self.x, self.beta)
        self.trace = [now.log_evidence]
        try:
            status = self._maximise()
        except _Stopped as reason:
            status = str(reason)
        return self._result(status)

    def _maximise(self) -> str:
        """Maximise the objective, then again from an optimum with less weight of the prior on complexity.

        Where many groups explain equal parts of the targets none of them gains enough alone: as in the core.
        The mean of the gains in several outputs hardly exceeds 1 by chance.
        """
        status, full = self._ascend(), self.complexity
        rows, n_groups = max(self.n_contrasts, 1.0), len(self.groups)
        least = max(0.5 * np.log(rows), np.log(4.0 * n_groups / rows))
        less = max(1.0 + (least - 1.0) / self.n_outputs, 0.5 * full)
        if not self.estimates_noise or less >= full or 2.0 * full * n_groups <= rows:
            return status
        best = self.posterior(self.x, self.beta).objective
        before = self.active.copy(), self.x, self.gram_columns, self.beta
        try:
            for self.complexity in (less, full):
                again = self._ascend()
        except _Stopped as reason:
            again, self.complexity = str(reason), full
            status = again
        if self.posterior(self.x, self.beta).objective > best + _MIN_GAIN:
            return again
        self.active, self.x, self.gram_columns, self.beta = before
        self.trace.append(self.posterior(self.x, self.beta).log_evidence)
        return status

    def _ascend(self) -> str:
        """Add, re-estimate and delete groups, and move all precisions and the noise, until nothing gains."""
        if self.estimates_noise and not self.active:
            self._step_greedily(_COARSE_GAIN, n_passes=_FIRST_PASSES)
        highest, idle = -np.inf, 0
        while True:
            converged = self._refine()
            now = self.posterior(self.x, self.beta).objective
            idle = 0 if now > highest + _MIN_GAIN * (1.0 + abs(now)) else idle + 1
            highest = max(highest, now)
            if idle > _MAX_IDLE:
                return "stalled"
            if not self._step_greedily(_COARSE_GAIN) and not self._step_greedily(_MIN_GAIN):
                break
        if self.estimates_noise and self.beta >= (1.0 - 1e-9) / NOISE_FLOOR:
            return "noise_floor"
        return "converged" if converged and not self.refused else "stalled"

    def _step_greedily(self, least: float, n_passes: int | None = None) -> bool:
        """Add, re-estimate and delete groups at fixed noise, the largest gain first; tell if any was."""
        changed = False
        for _ in count() if n_passes is None else range(n_passes):
            now, found = self.posterior(self.x, self.beta), []
            for numbers, columns, own in self.buckets:
                outside = ~np.isin(numbers, self.active)
                if not outside.any():
                    continue
                factors = self.factors(now, columns[outside], own[outside])
                _, gains = _best_alphas(factors, self.n_outputs, polishes=False)
                order = np.argsort(-gains, kind="stable")[:_WORKING_SET]
                found += [(gains[i], numbers[outside][i]) for i in order if gains[i] > least]
            found.sort(key=lambda pair: (-pair[0], pair[1]))
            if not found:
                self.refused.clear()
                return changed
            end = max(least, _GAIN_RATIO * found[0][0])
            if not self._step_among([int(g) for _, g in found[:_WORKING_SET]], end):
                return changed
            changed = True
        return changed

    def _step_among(self, members: list[int], least: float) -> bool:
        """Step among these groups and the active ones until no gain exceeds ``least``.

        A group whose step does not raise the objective, by rounding, is left as it is.
        """
        changed, left, now = False, self.refused, self.posterior(self.x, self.beta)
        left.clear()
        while True:
            steps = [(0.0, -1, np.inf)]
            open_ones = [g for g in members if g not in self.active and g not in left]
            for numbers, columns, own in self.buckets:
                at = np.flatnonzero(np.isin(numbers, open_ones))
                if len(at) > 0:
                    found = _best_alphas(self.factors(now, columns[at], own[at]), self.n_outputs)
                    steps += [
                        (gain, int(g), alpha) for g, alpha, gain in zip(numbers[at], *found, strict=True)
                    ]
            alphas, gains, present = self.best_of_active(now)
            for g, alpha, gain in zip(self.active, alphas, gains - present, strict=True):
                if g not in left:
                    steps.append((gain, g, alpha))
            gain, g, alpha = max(steps, key=lambda step: (step[0], -step[1]))
            if not gain > least:
                return changed
            before = self.active.copy(), self.x.copy(), self.gram_columns
            action = self._set(g, alpha)
            after = self._posterior_or_none(self.x, self.beta)
            if after is not None and after.objective - now.objective > 0.5 * min(least, gain):
                self._record(action, g, float(gain), after)
                changed, now = True, after
            else:
                self.active, self.x, self.gram_columns = before
                left.add(g)

    def _set(self, g: int, alpha: float) -> str:
        """Give a group this precision; return the name of the step."""
        if g not in self.active:
            self.active.append(g)
            self.x = np.append(self.x, np.log(alpha))
            self.gram_columns = np.vstack([self.gram_columns, self.Phi[:, self.groups[g]].T @ self.Phi])
            return "add"
        k = self.active.index(g)
        if np.isfinite(alpha):
            self.x[k] = np.log(alpha)
            return "reestimate"
        kept = np.repeat(np.arange(len(self.active)) != k, [len(self.groups[h]) for h in self.active])
        del self.active[k]
        self.x, self.gram_columns = np.delete(self.x, k), self.gram_columns[kept]
        return "delete"

    def _record(self, action: str, g: int, gain: float, now: _Posterior) -> None:
        self.trace.append(now.log_evidence)
        column = -1 if g < 0 else int(self.groups[g][0])
        beta = self.beta / self.unit**2
        n_active = len(self.columns) + len(self.flat)
        step = (len(self.trace) - 1, action, column, gain, now.log_evidence, n_active, beta)
        if self.callback is not None and self.callback(*step):
            raise _Stopped("stopped")
        if len(self.trace) > self.settings.max_iter:
            raise _Stopped("max_iter")

    # --- all precisions and the noise together ----------------------------------------------------------

    def _refine(self) -> bool:
        """Maximise over the precisions of the active groups and the noise; return whether it converged."""
        last, now = np.inf, self.posterior(self.x, self.beta)
        while True:
            now = self._delete_useless(now)
            y = np.append(self.x, np.log(self.beta))
            if len(y) == 1 and not self.estimates_noise:
                return True
            slope, curvature = self._derivatives(now)
            free = np.ones(len(y), dtype=bool)
            free[-1] = self.estimates_noise
            if y[-1] >= -np.log(NOISE_FLOOR) - 1e-12 and slope[-1] > 0.0:
                free[-1] = False
            step = np.zeros(len(y))
            values, vectors = np.linalg.eigh(curvature[np.ix_(free, free)])
            size = np.maximum(np.abs(values), 1e-12 * max(np.abs(values).max(initial=0.0), 1e-12))
            step[free] = vectors @ ((vectors.T @ slope[free]) / size)
            length = float(np.abs(step).max(initial=0.0))
            step *= min(1.0, _MAX_STEP / max(length, 1e-300))
            # So close to the maximum that rounding hides the rise, steps have to become shorter.
            is_close = length < _CLOSE
            if not length > 0.1 * self.settings.tol or (is_close and length > 0.5 * last):
                return length <= self.settings.tol
            last = length
            for _ in range(1 if is_close else _MAX_HALVINGS):
                there = y + step
                if self.estimates_noise:
                    there[-1] = min(there[-1], -np.log(NOISE_FLOOR))
                after = self._posterior_or_none(there[:-1], np.exp(there[-1]))
                if after is not None and (is_close or after.objective > now.objective):
                    break
                step *= 0.5
            else:
                return False
            assert after is not None
            self.x, self.beta, now = there[:-1], float(np.exp(there[-1])), after
            self._record("joint", -1, np.nan, now)

    def _delete_useless(self, now: _Posterior) -> _Posterior:
        """Delete groups whose best precision is infinite, the least useful first; return the posterior."""
        while self.active:
            alphas, _, present = self.best_of_active(now)
            if not np.isinf(alphas).any():
                break
            k = int(np.argmin(np.where(np.isinf(alphas), present, np.inf)))
            g = self.active[k]
            self._set(g, np.inf)
            now = self.posterior(self.x, self.beta)
            self._record("delete", g, -float(present[k]), now)
        return now

    def _derivatives(self, now: _Posterior) -> tuple[FloatArray, FloatArray]:
        """Return slope and curvature of the objective in the logs of precisions and of beta.

        With theta_g = ln alpha_g and A_g the part of A of group g: dSigma = -Sigma A_g Sigma and
        dmu = -Sigma A_g mu; for ln beta, dSigma = -K and dmu = Sigma A mu, with K = Sigma - Sigma A Sigma.
        """
        Z, n, c = self._sums(), self.n_outputs, self._penalties()
        alpha = np.exp(Z @ self.x) if len(self.x) else np.zeros(0)
        sigma, K, mu = now.sigma, now.sampling, now.mu
        # A Sigma, A K and A M
        aS, aK, aM = (alpha[:, np.newaxis] * part for part in (sigma, K, now.shrunk))
        m, sizes = alpha[:, np.newaxis] * mu, Z.sum(axis=0)
        inner, of_mu = Z.T @ np.diag(aS), Z.T @ np.sum(m * mu, axis=1)
        of_K, beta = Z.T @ np.diag(aK), self.beta
        slope = 0.5 * (n * (sizes - inner) - of_mu) + n * (Z.T @ (c * np.diag(aS) - np.diag(aM)))
        curvature = 0.5 * (n * (Z.T @ (aS * aS.T) @ Z - np.diag(inner)) - np.diag(of_mu))
        curvature += Z.T @ ((m @ m.T) * sigma) @ Z
        penalty = np.diag(Z.T @ (np.diag(aM) - c * np.diag(aS))) - 2.0 * Z.T @ (aS * aM.T) @ Z
        penalty += Z.T @ ((c[:, np.newaxis] + c) * aS * aS.T) @ Z
        curvature -= n * penalty
        shrunk = sigma @ m  # Sigma A mu
        gamma = float(len(alpha) - np.trace(aS))
        of_beta = 0.5 * (n * (self.n_contrasts - gamma) - beta * now.residual) - n * float(c @ np.diag(aK))
        cross = 0.5 * n * of_K - Z.T @ np.sum(m * shrunk, axis=1)
        cross -= n * Z.T @ (c * np.diag(aK) - 2.0 * alpha * np.diag(K @ (c[:, np.newaxis] * aS)))
        bend = -0.5 * (n * float(np.trace(aK)) + beta * now.residual) + float(np.sum(m * shrunk))
        bend += n * float(c @ (np.diag(aK) - 2.0 * alpha * np.diag(K @ aS)))
        top = np.column_stack([curvature, cross])
        return np.append(slope, of_beta), np.vstack([top, np.append(cross, bend)])

    # --- the result -------------------------------------------------------------------------------------

    def _result(self, status: str) -> GroupPosterior:
        """Return the posterior in the units of the targets, with the columns that have a flat prior."""
        now = self.posterior(self.x, self.beta)
        columns, f, beta = self.columns, len(self.flat), self.beta / self.unit**2
        alpha = np.exp(self._sums() @ self.x) / self.unit**2 if len(self.x) else np.zeros(0)
        sigma, mu = self.unit**2 * now.sigma, self.unit * now.mu
        gamma = 1.0 - alpha * np.diag(sigma)
        if f > 0:
            inverse = np.linalg.inv((self.F / self.norms).T @ (self.F / self.norms))
            inverse /= np.outer(self.norms, self.norms)
            B = inverse @ (self.F.T @ self.raw[:, columns])
            of_flat = inverse @ (self.F.T @ (self.raw_t - self.raw[:, columns] @ mu))
            sigma = np.block([[inverse / beta + B @ sigma @ B.T, -B @ sigma], [-sigma @ B.T, sigma]])
            mu, alpha = np.vstack([of_flat, mu]), np.append(np.zeros(f), alpha)
            gamma = np.append(np.ones(f), gamma)
            columns = np.append(np.array(self.flat, dtype=np.intp), columns)
        scales = self.scales[columns]
        sigma, mu = sigma / scales / scales[:, np.newaxis], mu / scales[:, np.newaxis]
        alpha = alpha * scales * scales
        order = np.argsort(columns, kind="stable")
        return GroupPosterior(
            active=columns[order],
            alpha=alpha[order],
            mu=mu[order] if self.n_outputs > 1 else mu[order, 0],
            sigma=sigma[np.ix_(order, order)],
            gamma=gamma[order],
            beta=beta,
            log_evidence=now.log_evidence,
            trace=np.array(self.trace),
            n_iter=len(self.trace) - 1,
            status=status,
        )
