"""`SummedStatistics`: many providers as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks.arguments import check_integer, check_row_likelihood
from .._types import FloatArray, Likelihood
from .provider import Functions, PyStatistics


@dataclass(frozen=True)
class Question:
    """A question to a part: called with it, it returns the part's answer. Small, and can be pickled."""

    method: str
    arguments: tuple[Any, ...]

    def __call__(self, part: Any) -> Any:
        """Return what ``part`` answers."""
        ask = getattr(part, self.method, None)
        if ask is None:
            raise TypeError(f"parts must be PyStatistics, which answer {self.method}; got {part!r}")
        return ask(*self.arguments)


class SummedStatistics(PyStatistics):
    """The rows of many parts: their answers are added up, in the order of the parts.

    Parameters
    ----------
    parts : iterable of PyStatistics
        Iterated over at each question: a list, or an object that makes its parts anew each time, from files
        for instance. With ``map`` whatever that hands to the function.
    map : callable, optional
        ``map(function, parts)`` returns ``function(part)`` for each part, in the order of the parts, as the
        built-in does: ``ThreadPoolExecutor().map``, or where parts are far away ``lambda f, parts:
        client.gather(client.map(f, parts))``. What travels is the function, which holds a question (some
        numbers for each active function), and the answers; both can be pickled.
    n_basis, likelihood : optional
        What the parts have in common; None: asked from the first part, which then has to be here.

    Raises
    ------
    TypeError, ValueError
        If ``parts`` cannot be gone through again, or an argument is not what it should be; if there are no
        parts, or answers of different shapes: when it is asked.

    Notes
    -----
    Since sums are taken in one order, the answers do not depend on which part is done first, nor on the
    number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from sparsebayes import SparseBayesRegressor
    >>> from sparsebayes.providers import RowPart, SummedStatistics
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(1000, 5))
    >>> t = 2 * Phi[:, 1] + 0.1 * rng.normal(size=1000)
    >>> parts = [
    ...     RowPart(Phi[n : n + 250], t[n : n + 250], fit_intercept=True, n_jobs=1)
    ...     for n in range(0, 1000, 250)
    ... ]
    >>> with ThreadPoolExecutor(2) as pool:
    ...     model = SparseBayesRegressor().fit_provider(SummedStatistics(parts, map=pool.map))
    >>> bool(np.allclose(model.mu_, SparseBayesRegressor().fit(Phi, t).mu_, rtol=1e-8))
    True
    """

    def __init__(
        self,
        parts: Iterable[Any],
        *,
        map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] | None = None,
        n_basis: int | None = None,
        likelihood: Likelihood | None = None,
    ) -> None:
        if not _again(parts):
            raise TypeError(
                "parts must be something that can be gone through again and again, such as a list; got "
                f"{type(parts).__name__}"
            )
        if map is not None and not callable(map):
            raise TypeError(f"map must be None or a callable map(function, parts), got {map!r}")
        self._parts, self._map = parts, map
        self._cancelled: Callable[[], bool] | None = None
        if n_basis is None or likelihood is None:
            first = next(iter(parts), None)
            if first is None:
                raise ValueError("parts must hold at least one part")
            if not (hasattr(first, "n_basis") and hasattr(first, "likelihood")):
                raise TypeError(
                    f"parts must have n_basis and likelihood, which {type(first).__name__} has not; give "
                    "them as arguments"
                )
            n_basis = first.n_basis if n_basis is None else n_basis
            likelihood = first.likelihood if likelihood is None else likelihood
        self.n_basis = check_integer("n_basis", n_basis, least=1)
        self.likelihood = check_row_likelihood(likelihood)

    def _sum(self, method: str, *arguments: Any) -> Any:
        question = Question(method, arguments)
        answers = iter((self._map or map)(question, self._parts))
        total = next(answers, None)
        if total is None:
            raise ValueError("parts must hold at least one part")
        for answer in answers:
            if self._cancelled is not None and self._cancelled():
                raise KeyboardInterrupt
            total = _added(total, answer)
        return total

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Look between any two parts whether the fit was given up; parts asked here look themselves."""
        self._cancelled = cancelled
        if self._map is not None or not isinstance(self._parts, (list, tuple)):
            return
        for part in self._parts:
            if hasattr(part, "listen"):
                part.listen(cancelled)

    def shifted(self, offset: FloatArray) -> SummedStatistics | None:
        """Return the parts with an offset subtracted from each column; None if they cannot do that."""
        if not isinstance(self._parts, (list, tuple)) or not all(hasattr(p, "shifted") for p in self._parts):
            return None
        parts = [part.shifted(offset) for part in self._parts]
        return SummedStatistics(parts, map=self._map, n_basis=self.n_basis, likelihood=self.likelihood)

    def target_moments(self, centre: float) -> FloatArray:
        """Return the sum of what the parts answer."""
        moments: FloatArray = self._sum("target_moments", centre)
        return moments

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        """Return the sum of what the parts answer."""
        deviance: float = self._sum("deviance", active, mu)
        return deviance

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return the sums of what the parts answer."""
        deviance, gradient = self._sum("gradient", active, mu)
        return deviance, gradient

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        """Return the sums of what the parts answer."""
        deviance, gradient, gram = self._sum("among", active, mu, js)
        return deviance, gradient, gram

    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return the sums of what the parts answer."""
        deviance, gradient, diag, gram = self._sum("sweep", active, mu, wanted)
        return deviance, gradient, diag, gram

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return the sum of what the parts answer."""
        drift: FloatArray = self._sum("variance_drift", active, mu, sigma)
        return drift


def _again(parts: Any) -> bool:
    """Tell whether an object can be gone through more than once."""
    try:
        return iter(parts) is not parts
    except TypeError:
        return False


def _added(total: Any, answer: Any) -> Any:
    """Return the sum of two answers: numbers, arrays, or sequences of these."""
    several = isinstance(total, (tuple, list))
    shapes = [len(total), len(answer)] if several else [np.shape(total), np.shape(answer)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"parts must answer alike, for the same functions; got answers of {shapes}")
    if several:
        return tuple(_added(a, b) for a, b in zip(total, answer, strict=True))
    return np.add(total, answer)
