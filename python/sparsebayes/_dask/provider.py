"""Rows on workers as one provider: each question is one round trip, and its answer comes back as one sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from .._checks.numbers import PLAIN
from .._checks.targets import Training
from .._types import FloatArray, Likelihood
from ..providers import Functions as Numbers
from ..providers import PyStatistics, Question, RowPart, _added
from .engine import Engine, brought_together, on_each, shared
from .parts import Functions, in_place

#: Bytes that the core keeps of a row for each function in the model, and how many functions that may well be.
_ACTIVE_BYTES, _ACTIVE = 24, 100


class WorkerRows(RowPart):
    """Rows that answer on a worker.

    Dask asks how large they are, for its account of memory and before it moves them. What the core keeps from
    one question to the next counts: a move loses it, and moved rows answer more slowly than waiting ones.
    """

    def __sizeof__(self) -> int:
        given = sum(values.nbytes for values in self._rows if values is not None)
        return 2 * given + self.n_samples * _ACTIVE_BYTES * min(self.n_basis, _ACTIVE)


def one_against_the_rest(part: Training, functions: Functions, bias: bool, label: Any) -> WorkerRows:
    """Return rows of a partition with targets 1 where they have this label."""
    part, functions = in_place(part, functions)
    target = (part.y == label).astype(np.float64)
    options: dict[str, Any] = {
        "fit_intercept": bias,
        "likelihood": "bernoulli",
        "n_jobs": functions.n_threads,
    }
    if functions.n_extra > 0:
        return WorkerRows(functions.at(part.X), target, part.weights, **options)
    options |= {"kernels": functions.kernels, "centres": functions.centres}
    return WorkerRows(part.X, target, part.weights, **options)


def _answered(part: PyStatistics, question: Question) -> Any:
    # What came from another process may lie anywhere in its message.
    plain = (
        np.require(value, value.dtype, PLAIN) if isinstance(value, np.ndarray) else value
        for value in question.arguments
    )
    return Question(question.method, tuple(plain))(part)


def _summed(answers: Sequence[Any]) -> Any:
    total = answers[0]
    for answer in answers[1:]:
        total = _added(total, answer)
    return total


class Partitions(PyStatistics):
    """Partitions of rows that answer together.

    Parameters
    ----------
    engine : Engine
    parts : list of tasks
        Whose results are `PyStatistics`, kept by the engine.
    n_basis, likelihood
        What they have in common.
    """

    def __init__(
        self, engine: Engine, parts: Sequence[Delayed], n_basis: int, likelihood: Likelihood
    ) -> None:
        self._engine, self._parts = engine, parts
        self.n_basis, self.likelihood = n_basis, likelihood
        self._cancelled: Callable[[], bool] | None = None

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Look while a question is away whether the fit was given up."""
        self._cancelled = cancelled

    def _ask(self, method: str, *arguments: Any) -> Any:
        answers = on_each(_answered, self._parts, shared(Question(method, arguments)))
        return self._engine.result(brought_together(_summed, answers), self._cancelled)

    def target_moments(self, centre: float) -> FloatArray:
        """Return the sums over all rows."""
        moments: FloatArray = self._ask("target_moments", centre)
        return moments

    def deviance(self, active: Numbers, mu: FloatArray) -> float:
        """Return the sum over all rows."""
        deviance: float = self._ask("deviance", active, mu)
        return deviance

    def gradient(self, active: Numbers, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return the sums over all rows."""
        deviance, gradient = self._ask("gradient", active, mu)
        return deviance, gradient

    def among(self, active: Numbers, mu: FloatArray, js: Numbers) -> tuple[float, FloatArray, NDArray[Any]]:
        """Return the sums over all rows."""
        deviance, gradient, gram = self._ask("among", active, mu, js)
        return deviance, gradient, gram

    def sweep(
        self, active: Numbers, mu: FloatArray, wanted: Numbers
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return the sums over all rows."""
        deviance, gradient, diag, gram = self._ask("sweep", active, mu, wanted)
        return deviance, gradient, diag, gram

    def variance_drift(self, active: Numbers, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return the sum over all rows."""
        drift: FloatArray = self._ask("variance_drift", active, mu, sigma)
        return drift
