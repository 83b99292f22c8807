"""`SufficientStatistics`: sums over rows of basis functions, their memory, and passes over rows in parts."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from .. import _core
from .._arrays import check_chunk, check_chunk_targets, naming
from .._checks import PLAIN, check_integer, check_memory_limit, check_n_jobs, check_settings, in_words
from .._hyper.evidence import LearningData
from .._hyper.learner import learn
from .._progress import ReadReporter
from .._types import FloatArray
from ..kernels._base import all_log_parameters, with_all_log_parameters
from . import candidates as _candidates
from .basis import (
    LEARNING_ROWS,
    Basis,
    basis_of,
    block_rows,
    first_pass,
    learns_kernel,
    sized,
    without_rows,
)
from .candidates import RowSample, seed_of
from .chunks import Checkpoint, Chunks, Rows, located, new_digest, open_checkpoint
from .design import check_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from ..kernels import Kernel

__all__ = ["SufficientStatistics"]


class SufficientStatistics:
    r"""The sums over rows that sparse Bayesian regression needs.

    With a Gaussian likelihood the evidence depends on the rows only through :math:`\Phi^T W \Phi`,
    :math:`\Phi^T W t`, :math:`t^T W t` and the sum of the weights (Tipping & Faul 2003, equations 6, 22 and
    23). Sums over chunks add up in any order and from several processes, and
    `SparseBayesRegressor.fit_statistics` returns the model of ``fit`` on all rows, to 1e-8.

    Sums have about 75 bits, because residuals are small differences of large sums. Column sums are included,
    for models with and without intercept.

    Parameters
    ----------
    n_basis : int
        Number of columns of Phi. Each pair of them takes 16 bytes of memory, and 8 of a pickle.
    n_jobs : int, optional
        Threads for long updates; None or -1: all cores. The result does not depend on it.

    Notes
    -----
    All chunks must have the same basis functions in the same order. Do not centre or scale each chunk with
    its own moments.

    Safe to share between threads; pickles and copies contain all digits. An update that fails or is
    interrupted does not change the sums. Invalid arguments are a TypeError or ValueError that names them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor, SufficientStatistics
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(1000, 5))
    >>> t = 2 * Phi[:, 1] + 0.1 * rng.normal(size=1000)
    >>> first, second = SufficientStatistics(5), SufficientStatistics(5)
    >>> first.update(Phi[:300], t[:300]).merge(second.update(Phi[300:], t[300:]))
    SufficientStatistics(n_basis=5, n_samples=1000)
    >>> model = SparseBayesRegressor().fit_statistics(first)
    >>> bool(np.allclose(model.mu_, SparseBayesRegressor().fit(Phi, t).mu_, rtol=1e-8))
    True
    """

    __slots__ = ("_core", "_n_jobs")

    def __init__(self, n_basis: int, *, n_jobs: int | None = None) -> None:
        self._core = _core.SufficientStatistics(check_integer("n_basis", n_basis, least=1))
        self._n_jobs = check_n_jobs(n_jobs)

    def update(self, Phi: ArrayLike, t: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows; after an error none has been added.

        Parameters
        ----------
        Phi : array-like of shape (n, n_basis)
            Values of the basis functions; not copied if float64 in C or Fortran order. n may be 0.
        t : array-like of shape (n,)
            Targets.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self
        """
        values = check_chunk("Phi", Phi, self.n_basis)
        target, weights = check_chunk_targets("t", t, sample_weight, len(values))
        self._core.update(values, target, weights, n_threads=self._n_jobs)
        return self

    def update_kernel(
        self,
        X: ArrayLike,
        t: ArrayLike,
        centres: ArrayLike,
        kernel: Kernel | Sequence[Kernel],
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows of inputs; the values of the kernel functions are not stored.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs. n may be 0.
        t, sample_weight
            As for ``update``.
        centres : array-like of shape (n_centres, n_features)
            Centres of the kernel functions, the same in each call.
        kernel : kernel object or list of these
            Of `sparsebayes.kernels`, with all parameters. With several, the functions of the first kernel
            precede those of the second; n_basis is the number of kernels times the number of centres.

        Returns
        -------
        self
        """
        with naming("centres"):
            points = np.ascontiguousarray(check_array(centres, dtype=np.float64, input_name="centres"))
        kernels = check_kernels("kernel", kernel)
        for one in kernels:
            one.check_features(points.shape[1])
        n = len(points)
        basis = Basis(False, kernels, n, np.arange(n), points, None, np.zeros(0))
        if basis.n_summed != self.n_basis:
            raise ValueError(
                f"centres must make n_basis={self.n_basis} functions, {len(kernels)} for each; got "
                f"{len(points)} centres"
            )
        values = check_chunk("X", X, points.shape[1])
        basis.add(self, values, *check_chunk_targets("t", t, sample_weight, len(values)))
        return self

    def merge(self, other: SufficientStatistics) -> Self:
        """Add all rows of ``other``, which does not change.

        Parameters
        ----------
        other : SufficientStatistics
            Sums for the same basis functions; TypeError or ValueError if they are not.

        Returns
        -------
        self
        """
        if not isinstance(other, SufficientStatistics):
            raise TypeError(f"other must be SufficientStatistics, got {type(other).__name__}")
        if other.n_basis != self.n_basis:
            raise ValueError(
                f"other must have n_basis={self.n_basis}, the same functions; got n_basis={other.n_basis}"
            )
        self._core.merge(other._core, n_threads=self._n_jobs)
        return self

    @property
    def n_basis(self) -> int:
        """Number of basis functions."""
        return self._core.n_basis

    @property
    def n_samples(self) -> int:
        """Number of rows, including those of zero weight."""
        return self._core.n_rows

    @property
    def sum_of_weights(self) -> float:
        """Sum of the sample weights."""
        return self._core.weight

    @property
    def gram(self) -> FloatArray:
        """Weighted Gram matrix of the basis functions."""
        return self._core.gram()

    @property
    def projections(self) -> FloatArray:
        """Weighted products of the basis functions with the targets."""
        return self._core.projections()

    @property
    def target_square(self) -> float:
        """Weighted sum of the squared targets."""
        return self._core.target_square()

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a pickle, which skops can store, too."""
        n_rows, parts = self._core.parts()
        return {"n_basis": self.n_basis, "n_jobs": self._n_jobs, "n_rows": n_rows, "parts": parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle."""
        # An array unpickled from a message may be misaligned.
        parts = np.require(state["parts"], np.float64, PLAIN)
        self._core = _core.SufficientStatistics.from_parts(state["n_basis"], state["n_rows"], parts)
        self._n_jobs = state["n_jobs"]

    def __sizeof__(self) -> int:
        """Return the bytes of the sums, for Dask's scheduler."""
        return 16 * self.n_basis**2

    def __repr__(self) -> str:
        """Return the class and its sizes."""
        return f"SufficientStatistics(n_basis={self.n_basis}, n_samples={self.n_samples})"


#: Bytes for each pair of functions: 16 for the sums, 16 for the sums of a block, later replaced by the
#: matrices of a fit with nearly all functions active.
_BYTES_PER_PAIR: Final = 100
#: Bytes for each function, a strip of rows and its two halves in double-double arithmetic, over twice those.
_STRIPS: Final = 64
#: Bytes for each value of a block: read, checked and passed to kernels.
_BYTES_PER_VALUE: Final = 32


def check_room(basis: Basis, n_features: int, limit: int) -> None:
    """Raise ValueError if the sums for a basis take more than ``limit`` bytes."""
    rows, size = _BYTES_PER_VALUE * block_rows(basis.width) * max(basis.width, n_features), basis.n_summed + 2
    needed = _BYTES_PER_PAIR * size * (size + 2 * _STRIPS) + rows
    if needed > limit:
        room = max(0.0, limit - rows) / _BYTES_PER_PAIR
        fits = max(0, int(math.sqrt(room + _STRIPS**2) - _STRIPS) - 2)
        most = fits // max(len(basis.kernels), 1)
        fewer = f"give at most {f'candidates={most}' if basis.kernels else f'{most} columns'}, or "
        raise ValueError(
            f"memory_limit of {in_words(limit)} is too small: sums over pairs of functions take "
            f"{in_words(needed)} here; {fewer if most > 0 else ''}raise memory_limit"
        )


# --- passes over rows that are read in parts: what basis functions depend on, and sums with checkpoints

#: Results of a first pass by name, as a checkpoint stores them.
Facts = dict[str, NDArray[Any]]


class Survey:
    """What basis functions and classes depend on, from a first pass; surveys of successive rows add up.

    ``classes`` are the distinct labels of rows of positive weight, sorted, and ``class_weights`` the sums of
    their weights; none if targets are numbers.
    """

    def __init__(self, est: Any, n_features: int) -> None:
        size, needs_moments = first_pass(est, n_features, check_memory_limit(est.memory_limit))
        self.n_rows, self.weight = 0, 0.0
        self.classes: NDArray[Any] = np.empty(0)
        self.class_weights: FloatArray = np.empty(0)
        self._has_labels = est._labels
        self.sample: RowSample | None = None
        if size is not None:
            with naming("random_state"):
                seed = seed_of(check_random_state(est.random_state))
            self.sample = RowSample(size, n_features, seed)
        self.moments = Moments(n_features) if needs_moments else None

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        if self.sample is not None:
            self.sample.add(rows)
        if self.moments is not None:
            self.moments.add(rows.X, rows.weights)
        if self._has_labels:
            weights = np.ones(len(rows)) if rows.weights is None else rows.weights
            self.add_labels(rows.y[weights > 0], weights[weights > 0])
        self.n_rows += len(rows)
        self.weight += len(rows) if rows.weights is None else float(rows.weights.sum())

    def merge(self, later: Survey) -> None:
        """Add the survey of the rows that follow, which are numbered from 0 there."""
        if self.sample is not None and later.sample is not None:
            self.sample.merge(later.sample, self.n_rows)
        if self.moments is not None and later.moments is not None:
            self.moments.merge(later.moments)
        self.add_labels(later.classes, later.class_weights)
        self.n_rows += later.n_rows
        self.weight += later.weight

    def add_labels(self, labels: NDArray[Any], weights: FloatArray) -> None:
        """Add labels with these weights."""
        if len(labels) > 0:
            with naming("y"):
                known = [self.classes] if len(self.classes) > 0 else []
                self.classes, at = np.unique(np.concatenate([*known, labels]), return_inverse=True)
            self.class_weights = np.bincount(at, np.append(self.class_weights, weights)).astype(np.float64)

    def facts(self, est: Any) -> Facts:
        """Return what the basis of an estimator depends on.

        Centres are chosen, and kernels learned, from the sample.
        """
        if self.weight == 0.0:
            # The words in parentheses are required by scikit-learn's checks.
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        facts: Facts = {"n_rows": np.array(self.n_rows)}
        if self.sample is not None and _candidates.is_number(est.candidates):
            _candidates.place(est, self.sample.training(self.n_rows))
            facts |= {"candidate_rows": est.candidate_rows_, "candidates": est.candidates_}
        if self.moments is not None:
            facts["inputs"] = self.moments.rows()
        if self.sample is not None and learns_kernel(est):
            facts["kernel_parameters"] = self._learned(est, facts, self.sample)
        return facts

    def _learned(self, est: Any, facts: Facts, sample: RowSample) -> FloatArray:
        """Return the log parameters of the kernels learned from a sample of the rows."""
        training = sample.training(self.n_rows, LEARNING_ROWS)
        basis = basis_after(est, facts, training.X.shape[1])
        likelihood = est._likelihood_of(self.classes if self._has_labels else None, None)
        settings = check_settings(est)
        data = LearningData.of(est, basis, training, likelihood, settings)
        return all_log_parameters(learn(basis.kernels, data, settings)[0].kernels)


def basis_after(est: Any, facts: Facts, n_features: int) -> Basis:
    """Return the basis of an estimator without rows in memory, given the results of a first pass."""
    rows = without_rows(n_features, int(facts.get("n_rows", 0)), facts.get("inputs"))
    if "candidates" in facts:
        est.candidate_rows_, est.candidates_ = facts["candidate_rows"], facts["candidates"]
    elif hasattr(est, "candidates"):
        _candidates.place(est, rows)
    basis: Basis = basis_of(est, rows, stored=False)
    if "kernel_parameters" in facts:
        kernels = with_all_log_parameters(basis.kernels, facts["kernel_parameters"])
        basis = replace(basis, kernels=kernels)
    return basis


@dataclass
class Gathered:
    """Sums over the rows of a data set, for the functions of a basis."""

    basis: Basis
    stats: SufficientStatistics
    #: Whether the callback stopped the passes.
    stopped: bool
    #: To be removed after the fit.
    checkpoint: Checkpoint | None


def gather(est: Any, chunks: Chunks) -> Gathered:
    """Sum over all rows, or until the callback stops it, after a first pass if the basis needs one."""
    d, limit = chunks.n_features, check_memory_limit(est.memory_limit)
    checkpoint, reading = open_checkpoint(est, d), ReadReporter(est, chunks.n_rows)
    facts = None if checkpoint is None else checkpoint.load()
    if facts is None:
        if chunks.n_rows is not None:
            check_room(sized(est, chunks.n_rows, d), d, limit)
        facts = _first_pass(est, chunks, reading)
        if reading.stopped:
            checkpoint = None  # a fit of all rows would have other centres
        elif checkpoint is not None and facts:
            checkpoint.save(**facts)
    basis = basis_after(est, facts, d)
    check_room(basis, d, limit)
    stats = SufficientStatistics(basis.n_summed, n_jobs=est.n_jobs)
    # With a checkpoint the rows after its rows are added, if those before have the same digest.
    running, rows, done = new_digest(), 0, int(facts.get("rows", 0))
    if "parts" in facts:
        stats._core = _core.SufficientStatistics.from_parts(basis.n_summed, done, facts.pop("parts"))

    def save(file: Checkpoint) -> None:
        _, parts = stats._core.parts()
        sums = {"rows": np.array(rows), "parts": parts, "digest": np.frombuffer(running.digest(), np.uint8)}
        file.save(**facts | sums)

    for block in reading.passing("summing", chunks.blocks(block_rows(max(basis.width, d))), done):
        rows += len(block)
        if checkpoint is not None:
            _feed(running, block)
        if rows > done:
            with located(block.chunk, block.first, len(block)):
                basis.add(stats, block.X, block.y, block.weights)
            if checkpoint is not None and checkpoint.is_due():
                save(checkpoint)
        elif rows == done and checkpoint is not None and running.digest() != facts["digest"].tobytes():
            raise checkpoint.mismatch()
    if checkpoint is not None:
        changed = "whole" in facts and running.digest() != facts["whole"].tobytes()
        if not reading.stopped and (rows < done or changed):
            raise checkpoint.mismatch()
        if rows > done:
            save(checkpoint)
    return Gathered(basis, stats, reading.stopped, checkpoint)


def _first_pass(est: Any, chunks: Chunks, reading: ReadReporter) -> Facts:
    survey, digest = Survey(est, chunks.n_features), new_digest()
    if survey.sample is None and survey.moments is None:
        return {}
    of_centres = _candidates.is_number(getattr(est, "candidates", None))
    chunks.check_passes("an integer in candidates" if of_centres else f"gamma={est.gamma!r}")
    what = "looking for centres" if of_centres else "measuring X"
    for block in reading.passing(what, chunks.blocks(block_rows(chunks.n_features))):
        survey.add(block)
        if est.checkpoint is not None:
            _feed(digest, block)
    return survey.facts(est) | {"whole": np.frombuffer(digest.digest(), np.uint8)}


def _feed(digest: hashlib.blake2b, rows: Rows) -> None:
    """Add the next rows to a running digest."""
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    for values in (rows.X, rows.y, weights):
        digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


class Moments:
    """Running weighted mean and variance of each column (Chan, Golub & LeVeque 1983)."""

    def __init__(self, n_features: int) -> None:
        self.weight = 0.0
        self.mean, self.squares = np.zeros(n_features), np.zeros(n_features)

    def add(self, X: FloatArray, weights: FloatArray | None) -> None:
        """Add rows."""
        if weights is not None and not weights.all():
            X, weights = X[weights > 0.0], weights[weights > 0.0]
        w = np.ones(len(X)) if weights is None else weights
        total = float(w.sum())
        if total == 0.0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported where the moments are used
            mean = w @ X / total
            self._merge(total, mean, w @ (X - mean) ** 2)

    def merge(self, other: Moments) -> None:
        """Add the rows of ``other``."""
        if other.weight > 0.0:
            self._merge(other.weight, other.mean, other.squares)

    def _merge(self, total: float, mean: FloatArray, squares: FloatArray) -> None:
        difference, weight = mean - self.mean, self.weight + total
        self.squares += squares + difference**2 * (self.weight * total / weight)
        self.mean += difference * (total / weight)
        self.weight = weight

    def rows(self) -> FloatArray:
        """Return two rows with the means and variances of all rows, which is all that `resolve` uses."""
        std = np.sqrt(self.squares / self.weight)
        return np.stack([self.mean - std, self.mean + std])
