r"""Convex weights: the minimum of a quadratic form over the simplex.

    minimise b^T Omega b / 2 - f^T b  subject to  b >= 0, sum(b) = 1,

Omega symmetric and positive semidefinite. With g = Omega b - f, b is a minimum if and only if g_i = lambda
where b_i > 0 and g_i >= lambda elsewhere (Karush, Kuhn and Tucker). Where there are several minima, as for
equal kernels, the one with the least sum of Omega_ii b_i^2 is taken: equal kernels share equally.

With Omega = A^T A and f = A^T y this is the point of a polytope nearest to 0, which non-negative least
squares finds to rounding; that fails where rounding, or the caller, takes f out of the range of Omega.
SciPy's SLSQP meets these conditions to 1e-7 of the terms in g. Hence an active-set method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import FloatArray

#: Where g_i falls short of lambda by less than this part of the terms it is made of, it is none.
_RESIDUAL: Final = 1e-13
#: Curvature, of 1 for a variable alone, that counts as none: in the descent, and where minima are compared.
_FLAT: Final = 1e-14
_EQUAL: Final = 1e-12
#: Curvature added to find the shortest of several minima.
_TILT: Final = 1e-7
#: Ratio of the units of variables beyond which the small ones are no longer scaled up.
_UNITS: Final = 1e-8
_EPS: Final = float(np.finfo(np.float64).eps)


def minimise_on_simplex(Omega: ArrayLike, f: ArrayLike) -> FloatArray:
    r"""Return the b on the simplex that minimises b^T Omega b / 2 - f^T b.

    A primal active-set method: from equal weights Newton steps lead to the minimum of a face of the simplex,
    a variable that reaches 0 leaves the face, and at the minimum the one whose slope falls most short of
    lambda enters. Each face has a lower minimum than those before, so in exact arithmetic none comes twice;
    where rounding brings one back the search is over, and there are finitely many. All minima have the same
    Omega b and f^T b. Of these the shortest one is returned, in units in which Omega has equal numbers on its
    diagonal; those that vanish count like the largest.

    That minimum is unique, so permuting the variables permutes the result, and variables with the same rows
    in Omega and f have the same weight, both up to rounding. Slopes agree to about 1e-12 of the terms in
    them, also where the diagonal of Omega spans twelve orders of magnitude.

    Parameters
    ----------
    Omega : array-like of shape (S, S)
        Symmetric, positive semidefinite, possibly singular.
    f : array-like of shape (S,)

    Returns
    -------
    ndarray of shape (S,)
        None negative, sum 1.

    Raises
    ------
    ValueError
        If the shapes do not agree, or values are not finite.

    Examples
    --------
    >>> minimise_on_simplex([[2.0, 0.0], [0.0, 1.0]], [0.0, 0.0]).round(3)
    array([0.333, 0.667])
    >>> minimise_on_simplex(np.ones((3, 3)), [1.0, 1.0, 0.0])
    array([0.5, 0.5, 0. ])
    """
    quadratic, linear = _checked(Omega, f)
    problem = _Problem.of(quadratic, linear)
    found = _some_minimum(problem)
    shortest = _shortest_minimum(problem, found)
    best = shortest if problem.residual(shortest) <= max(problem.residual(found), 1e-11) else found
    weights: FloatArray = best * problem.units / (best @ problem.units)
    return weights


def _checked(Omega: ArrayLike, f: ArrayLike) -> tuple[FloatArray, FloatArray]:
    quadratic, linear = np.array(Omega, dtype=np.float64), np.array(f, dtype=np.float64)
    if linear.ndim != 1 or len(linear) == 0 or quadratic.shape != 2 * linear.shape:
        raise ValueError(
            f"Omega must have the shape (S, S) and f (S,), S >= 1; got {quadratic.shape} and {linear.shape}"
        )
    if not (np.isfinite(quadratic).all() and np.isfinite(linear).all()):
        raise ValueError("Omega and f must be finite")
    size = max(np.abs(quadratic).max(), np.abs(linear).max())
    if size > 0.0:
        quadratic, linear = quadratic / size, linear / size  # the minimum stays where it is
    return (quadratic + quadratic.T) / 2.0, linear


@dataclass(frozen=True)
class _Problem:
    """The same in variables c = b / units: H has equal numbers on its diagonal, and units^T c = 1."""

    H: FloatArray
    f: FloatArray
    units: FloatArray

    @classmethod
    def of(cls, Omega: FloatArray, f: FloatArray) -> _Problem:
        lengths = np.sqrt(np.maximum(np.diagonal(Omega), 0.0))
        # Functions that vanish have no unit of their own.
        longest = lengths.max() or 1.0
        lengths = np.where(lengths > 0.0, np.maximum(lengths / longest, _UNITS), 1.0)
        # The corners of the simplex are at c_i = lengths_i <= 1: a step of length 2 leaves it.
        units = 1.0 / lengths
        return cls(units[:, np.newaxis] * Omega * units, units * f, units)

    def slopes(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return g - lambda units, 0 inside a face at its minimum, and the size of the terms in it."""
        g, terms = self.H @ c - self.f, np.abs(self.H) @ c + np.abs(self.f)
        size = terms + (c @ terms) * self.units
        return g - (c @ g) * self.units, np.where(size > 0.0, size, 1.0)

    def residual(self, c: FloatArray) -> float:
        """Return how far c is from the conditions of a minimum, in proportion to the terms in them."""
        slopes, size = self.slopes(c)
        return float(np.max(np.where(c > 0.0, np.abs(slopes), -slopes) / size))


def _some_minimum(problem: _Problem) -> FloatArray:
    """Return a minimum; the order of the variables decides which, if there are several."""
    n = len(problem.f)
    c, inside = 1.0 / (n * problem.units), np.ones(n, dtype=np.bool_)
    best, least, seen = c, np.inf, set()
    while True:
        c, inside = _minimum_of_face(problem, c, inside)
        residual = problem.residual(c)
        if residual < least:
            best, least = c, residual
        slopes, size = problem.slopes(c)
        shortfall = np.where(inside, 0.0, slopes / size)
        entering = int(np.argmin(shortfall))
        if inside.tobytes() in seen or shortfall[entering] >= -_RESIDUAL:
            return best
        seen.add(inside.tobytes())
        inside[entering] = True


def _minimum_of_face(
    problem: _Problem, c: FloatArray, inside: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Descend to the minimum over the variables ``inside``, or over those of them that stay positive."""
    inside, whole_steps = inside.copy(), 0
    while whole_steps < 2:  # the second takes back what rounding did to the first
        step = _newton(problem, c, inside)
        falling = np.flatnonzero(step < 0.0)
        reach = -c[falling] / step[falling]
        if len(falling) == 0 or reach.min() > 1.0:
            c, whole_steps = c + step, whole_steps + 1
        else:
            nearest = int(np.argmin(reach))
            c = np.maximum(c + reach[nearest] * step, 0.0)
            c[falling[nearest]] = 0.0
        c[c <= _EPS**2 * c.max()] = 0.0
        inside &= c > 0.0
        c = c / (c @ problem.units)
    return c, inside


def _newton(problem: _Problem, c: FloatArray, inside: NDArray[np.bool_]) -> FloatArray:
    """Return the step to the minimum over a face; far beyond its ends where it falls without curvature."""
    step, at = np.zeros(len(c)), np.flatnonzero(inside)
    if len(at) < 2:
        return step
    # Directions in which sum(b) stays what it is.
    Z = np.linalg.qr(problem.units[at, np.newaxis], mode="complete")[0][:, 1:]
    curvature, V = np.linalg.eigh(Z.T @ problem.H[np.ix_(at, at)] @ Z)
    slopes, size = problem.slopes(c)
    Z = Z @ V
    downhill = -Z.T @ slopes[at]
    flat = curvature <= _FLAT * len(at)
    rounding = 4.0 * _EPS * len(at) * np.abs(Z.T) @ size[at]
    downhill[flat & (np.abs(downhill) <= rounding)] = 0.0
    step[at] = Z @ (downhill / np.where(flat, _EPS, curvature))
    return step


def _shortest_minimum(problem: _Problem, c: FloatArray) -> FloatArray:
    """Return the shortest of all minima, given any.

    A curvature added to all directions has the active set of the shortest minimum, if it is small enough; the
    equations that all minima solve then have a shortest solution in the variables left.
    """
    n, size = len(c), max(float(np.linalg.norm(problem.f)), float(np.linalg.norm(problem.H @ c)), _EPS)
    sums = problem.units / np.linalg.norm(problem.units)
    equations = np.vstack([problem.H, problem.f / size, sums])
    singular = np.linalg.svd(equations, compute_uv=False)
    if singular[-1] > _EQUAL * singular[0]:
        return c
    near = _some_minimum(replace(problem, H=problem.H + _TILT * np.eye(n)))
    at = np.flatnonzero(near)
    shortest = np.zeros(n)
    shortest[at] = np.linalg.pinv(equations[:, at], rcond=_EQUAL) @ (equations @ c)
    if shortest.min() < -_TILT * shortest.max():
        shortest = near
    shortest = np.where(shortest > _FLAT * shortest.max(), shortest, 0.0)
    # Newton steps are orthogonal to what is free here, and take back the rounding.
    return _minimum_of_face(problem, shortest / (shortest @ problem.units), shortest > 0.0)[0]
