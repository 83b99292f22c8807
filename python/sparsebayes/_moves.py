r"""Steps on models whose centres move: ascents of all that is continuous, additions, merges and splits.

Each is tried out: it stands if the evidence, computed anew, is higher by `WORTH`. What is tried is told by
exact gains with the noise, the other precisions and the other centres held: a function at z gains what
equation 27 of Tipping & Faul (2003) says of theta = Q^2 / S there, and functions J lose
:math:`\tfrac{1}{2} [\ln |A_J \Sigma_{JJ}| + \mu_J^T \Sigma_{JJ}^{-1} \mu_J]` by leaving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from ._kernel_centres import about
from ._placed import Place, Placed, Quadratic
from ._types import FloatArray, IntArray

#: Nats by which a move has to raise the evidence; and those that one may promise to lose and still be tried.
WORTH: Final = 0.05
_HOPELESS: Final = 3.0
#: How far ln alpha and ln beta may go from where an ascent begins.
_HYPER_RANGE: Final = 25.0
#: L-BFGS iterations of an ascent and of the search for a place; of one that tries a move; and of those that
#: follow if it has come so near.
_STEPS: Final = 200
_PLACE_STEPS: Final = 40
_TRIAL_STEPS: Final = (15, 50)
_NEAR: Final = 0.3
#: Places that a search for new functions of a kernel sets out from; centres it looks at for them, and values
#: of functions about these that it takes at a time.
_STARTS: Final = 6
_LOOKED_AT: Final = 1000
_MOST_VALUES: Final = 1 << 23
#: Functions whose values have a larger cosine are one place.
_ALIKE: Final = 0.95
#: And those that differ from one by less are one function, if the evidence loses no more by that.
_SAME: Final = 1e-5
_UNITED: Final = 1e-4
#: Cosine of the two functions that one is split into.
_SPLIT: Final = 0.8


@dataclass(frozen=True)
class Found:
    """A model and its log evidence."""

    model: Placed
    value: float


@dataclass(frozen=True)
class Mover:
    """Moves on models about some rows."""

    place: Place
    #: How far centres may go, (2, d), and the unit of each coordinate, length d.
    box: FloatArray
    unit: FloatArray
    #: Moves that are tried before a pass is over.
    trials: int

    @classmethod
    def about(cls, place: Place, trials: int) -> Mover:
        """Return the moves for these rows: centres stay in the box around them.

        Beyond it the tail of a function far away, with a weight without bound, may be what gains most.
        """
        counted = place.data.weights > 0.0
        X, weights = place.data.X[counted], place.data.weights[counted]
        unit = np.sqrt(np.average((X - np.average(X, axis=0, weights=weights)) ** 2, axis=0, weights=weights))
        unit[unit <= 0.0] = 1.0
        return cls(place, np.array([X.min(axis=0), X.max(axis=0)]), unit, trials)

    # --- ascents ------------------------------------------------------------------------------------

    def ascend(self, model: Placed, steps: int = _STEPS) -> Found | None:
        """Climb the evidence in centres, precisions and noise together; None where arithmetic breaks down."""
        shape, estimated = model.centres.shape, self.place.estimated
        n_centres = model.centres.size

        def at(x: FloatArray) -> Placed:
            hyper = x[n_centres:]
            return replace(
                model,
                centres=x[:n_centres].reshape(shape) * self.unit,
                log_alpha=hyper[: len(model)],
                log_beta=float(hyper[-1]) if estimated else model.log_beta,
            )

        mean: FloatArray | None = None

        def descend(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal mean
            found = self.place.evidence(at(x), mean)
            if found is None:
                return np.inf, np.zeros_like(x)
            evidence, slopes = found
            mean = evidence.mean
            parts = [(slopes * self.unit).ravel(), evidence.log_alpha]
            noise = [evidence.log_beta] if estimated else []
            return -evidence.value, -np.concatenate([*parts, noise])

        hyper = np.append(model.log_alpha, [model.log_beta] if estimated else [])
        x0 = np.concatenate([(model.centres / self.unit).ravel(), hyper])
        if len(x0) == 0:
            value = -descend(x0)[0]
            return Found(model, value) if np.isfinite(value) else None
        lower = np.concatenate([np.tile(self.box[0] / self.unit, shape[0]), hyper - _HYPER_RANGE])
        upper = np.concatenate([np.tile(self.box[1] / self.unit, shape[0]), hyper + _HYPER_RANGE])
        # Candidates that were given may lie outside.
        bounds = np.column_stack([np.minimum(lower, x0), np.maximum(upper, x0)])
        options: dict[str, Any] = {"maxiter": steps, "maxcor": 20}
        result = minimize(descend, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not np.isfinite(result.fun):
            return None
        found = self._united(Found(at(result.x), -float(result.fun)))
        return None if found is None else self._pruned(found.model, found.value)

    def _united(self, found: Found) -> Found | None:
        """Make functions one that have come to the same place.

        Their precisions then have no optimum of their own: only the sum of the prior variances matters.
        """
        model, n_fixed = found.model, len(found.model.fixed)
        phi = self.place.values(model)[0][:, n_fixed:]
        norms = np.sqrt(np.sum(phi**2, axis=0))
        for k, other in _alike(phi, norms, model.kernel):
            united = _one_for(model, n_fixed + k, n_fixed + other, norms[other] / norms[k])
            better = self.place.evidence(united)
            if better is not None and better[0].value > found.value - _UNITED:
                return self._united(Found(united, better[0].value))
        return found

    def _pruned(self, model: Placed, value: float) -> Found | None:
        """Take out the functions that gain by leaving, those that gain most first."""
        while len(model) > 0:
            quadratic = self._quadratic(model)
            if quadratic is None:
                return None
            gains = np.array([_leaving(quadratic, model, [k]) for k in range(len(model))])
            k = int(np.argmax(gains))
            if gains[k] <= 0.0:
                break
            fewer = model.without([k])
            found = self.place.evidence(fewer)
            if found is None or found[0].value < value:
                break
            model, value = fewer, found[0].value
        return Found(model, value)

    def _quadratic(self, model: Placed) -> Quadratic | None:
        try:
            return self.place.quadratic(model)
        except (LinAlgError, ValueError):
            return None

    # --- moves --------------------------------------------------------------------------------------

    def add(self, best: Found, centres: FloatArray) -> Found | None:
        """Return what is better by another function, placed where it gains most; None if nothing is.

        ``centres``: where to begin to look for a place.
        """
        quadratic = self._quadratic(best.model)
        if quadratic is None:
            return None
        suggested = []
        for k in range(len(self.place.kernels)):
            starts = self._starts(quadratic, k, centres)
            suggested += [
                (gain, best.model.plus(k, z, log_alpha))
                for gain, z, log_alpha in self._places(quadratic, k, starts)
                if gain > WORTH
            ]
        return self._first_better(best, suggested)

    def merge(self, best: Found) -> Found | None:
        """Return what is better with two functions made one, or one taken out, all others following."""
        model = best.model
        quadratic = self._quadratic(model)
        if quadratic is None:
            return None
        suggested = []
        n_fixed = len(model.fixed)
        for k in range(len(model)):
            loss = _leaving(quadratic, model, [k])
            suggested.append((loss, model.without([k])))
        for k, other in self._neighbours(quadratic, model):
            places = [n_fixed + k, n_fixed + other]
            loss = _leaving(quadratic, model, places)
            rest = quadratic.without(places, model.log_alpha)
            pair = model.centres[[k, other]]
            starts = np.vstack([pair, pair.mean(axis=0)])
            fewer = model.without(places)
            suggested += [
                (loss + gain, fewer.plus(int(model.kernel[k]), z, log_alpha))
                for gain, z, log_alpha in self._places(rest, int(model.kernel[k]), starts)[:1]
            ]
        return self._first_better(best, [pair for pair in suggested if pair[0] > -_HOPELESS])

    def split(self, best: Found) -> Found | None:
        """Return what is better with a function made two, side by side along an input."""
        model, n_fixed = best.model, len(best.model.fixed)
        suggested = []
        for k, (kernel, z) in enumerate(zip(model.kernel, model.centres, strict=True)):
            fewer = model.without([n_fixed + k])
            # Two of twice the precision, and half the weight each, are what the one was.
            log_alpha = float(model.log_alpha[n_fixed + k] + np.log(2.0))
            for axis in range(len(z)):
                step = self._step_apart(int(kernel), z, axis)
                two = fewer.plus(int(kernel), z - step, log_alpha).plus(int(kernel), z + step, log_alpha)
                found = self.place.evidence(two)
                if found is not None and found[0].value > best.value - _HOPELESS:
                    suggested.append((found[0].value - best.value, two))
        return self._first_better(best, suggested)

    def _first_better(self, best: Found, suggested: list[tuple[float, Placed]]) -> Found | None:
        suggested.sort(key=lambda pair: -pair[0])
        for _, model in suggested[: self.trials]:
            found = self.ascend(model, _TRIAL_STEPS[0])
            if found is not None and best.value - _NEAR < found.value <= best.value + WORTH:
                found = self.ascend(found.model, _TRIAL_STEPS[1])
            if found is not None and found.value > best.value + WORTH:
                return found
        return None

    # --- places -------------------------------------------------------------------------------------

    def _starts(self, quadratic: Quadratic, k: int, centres: FloatArray) -> FloatArray:
        """Return the centres about which kernel k has the largest theta, no two of them alike."""
        most = max(_STARTS, min(_LOOKED_AT, _MOST_VALUES // len(self.place.data.X)))
        if len(centres) > most:
            centres = centres[np.sort(np.random.default_rng(0).permutation(len(centres))[:most])]
        phi, _ = about(self.place.kernels[k], self.place.data.X, centres)
        S, Q, _ = quadratic.factors(phi)
        norms = np.sqrt(np.sum(phi**2, axis=0))
        theta = np.where(
            S > 1e-9 * quadratic.curvature.max() * norms**2, Q**2 / np.where(S > 0.0, S, 1.0), 0.0
        )
        chosen: list[int] = []
        for i in np.argsort(-theta, kind="stable"):
            if len(chosen) == _STARTS or theta[i] <= 0.0:
                break
            cosines = phi[:, chosen].T @ phi[:, i] / (norms[chosen] * norms[i])
            if (np.abs(cosines) < _ALIKE).all():
                chosen.append(int(i))
        return centres[chosen]

    def _places(
        self, quadratic: Quadratic, k: int, starts: FloatArray
    ) -> list[tuple[float, FloatArray, float]]:
        """Climb theta from each start; return what a function of kernel k gains there, where, and ln alpha.

        The best first; only those that gain.
        """
        if len(starts) == 0:
            return []
        kernel, X, shape = self.place.kernels[k], self.place.data.X, starts.shape

        def descend(x: FloatArray) -> tuple[float, FloatArray]:
            phi, pull = about(kernel, X, x.reshape(shape) * self.unit)
            S, Q, left = quadratic.factors(phi)
            if not (S > 0.0).all() or (Q == 0.0).any():
                return np.inf, np.zeros_like(x)
            slopes = 2.0 * (quadratic.slope[:, np.newaxis] / Q - left / S)
            return -float(np.sum(np.log(Q**2 / S))), -(pull(slopes) * self.unit).ravel()

        x0 = (starts / self.unit).ravel()
        lower, upper = (np.tile(edge / self.unit, shape[0]) for edge in self.box)
        bounds = np.column_stack([np.minimum(lower, x0), np.maximum(upper, x0)])
        options: dict[str, Any] = {"maxiter": _PLACE_STEPS}
        result = minimize(descend, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not np.isfinite(result.fun):
            return []
        places = result.x.reshape(shape) * self.unit
        S, Q, _ = quadratic.factors(about(kernel, X, places)[0])
        found = []
        for z, s, q in zip(places, S, Q, strict=True):
            theta = q**2 / s
            if theta > 1.0:
                gain = 0.5 * (theta - 1.0 - np.log(theta))
                found.append((float(gain), z, float(np.log(s / (theta - 1.0)))))
        found.sort(key=lambda one: -one[0])
        return found

    def _neighbours(self, quadratic: Quadratic, model: Placed) -> list[tuple[int, int]]:
        """Return pairs of kernel functions of the same kernel: each with the two most like it."""
        phi = quadratic.Phi[:, len(model.fixed) :]
        norms = np.sqrt(np.sum(phi**2, axis=0))
        cosines = np.abs(phi.T @ phi) / np.maximum(np.outer(norms, norms), 1e-300)
        cosines[model.kernel[:, np.newaxis] != model.kernel] = -1.0
        np.fill_diagonal(cosines, -1.0)
        pairs: set[tuple[int, int]] = set()
        for k, row in enumerate(cosines):
            for other in map(int, np.argsort(-row, kind="stable")[:2]):
                if row[other] >= 0.0:
                    pairs.add((min(k, other), max(k, other)))
        return sorted(pairs)

    def _step_apart(self, k: int, z: FloatArray, axis: int) -> FloatArray:
        """Return a step along an input to where functions on both sides of z are much alike, not the same."""
        step = np.zeros_like(z)
        step[axis] = self.unit[axis]
        for _ in range(20):
            phi, _ = about(self.place.kernels[k], self.place.data.X, np.array([z - step, z + step]))
            norm = np.sqrt(np.prod(np.sum(phi**2, axis=0)))
            if norm > 0.0 and abs(phi[:, 0] @ phi[:, 1]) > _SPLIT * norm:
                break
            step = step / 2.0
        return step


def _alike(phi: FloatArray, norms: FloatArray, kernel: IntArray) -> list[tuple[int, int]]:
    """Return pairs of functions of the same kernel that are the same but for their scale."""
    unit = phi / np.maximum(norms, 1e-300)
    pairs = np.argwhere(np.triu(np.abs(unit.T @ unit) > 1.0 - _SAME, 1))
    return [(int(k), int(other)) for k, other in pairs if kernel[k] == kernel[other]]


def _one_for(model: Placed, k: int, other: int, ratio: float) -> Placed:
    """Return the model with two functions made one, at the stronger's centre.

    ``ratio``: c in phi_other = c phi_k. The weight of phi_k is w_k + c w_other, of prior variance
    1 / alpha_k + c^2 / alpha_other.
    """
    log_alpha = model.log_alpha.copy()
    stays, goes, c = k, other, ratio
    if log_alpha[k] > log_alpha[other] - 2.0 * np.log(ratio):
        stays, goes, c = other, k, 1.0 / ratio
    log_alpha[stays] = -np.logaddexp(-log_alpha[stays], 2.0 * np.log(c) - log_alpha[goes])
    return replace(model, log_alpha=log_alpha).without([goes])


def _leaving(quadratic: Quadratic, model: Placed, places: list[int]) -> float:
    """Return what functions gain by leaving together, mostly a loss."""
    sigma, mu = quadratic.sigma[np.ix_(places, places)], quadratic.mu[places]
    sign, log_det = np.linalg.slogdet(sigma)
    if sign <= 0.0:
        return -np.inf
    return -0.5 * float(model.log_alpha[places].sum() + log_det + mu @ np.linalg.solve(sigma, mu))


def combined(names: IntArray, alpha: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return each function once: equal ones are one whose prior variance is the sum of theirs."""
    unique, inverse = np.unique(names, return_inverse=True)
    variance = np.bincount(inverse.ravel(), weights=1.0 / alpha, minlength=len(unique))
    return unique, 1.0 / variance
