"""The common base of `DaskRVR` and `DaskRVC`: checks, and the set-up of a model before its fit."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from dask.delayed import Delayed
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._checks.arguments import check_flag, check_n_jobs, check_settings, learning_argument
from .._checks.targets import Training, naming
from .._data import candidates as _candidates
from .._data.candidates import seed_of
from .._data.design import check_extra_basis, columns_at, extra_offset, fitted_extra, is_transformer
from .._estimators.basis import KernelBasis
from .._estimators.status import RowSummary
from .._estimators.variational import check_variational
from .._types import FloatArray, IntArray, Likelihood, Settings
from ..kernels._resolve import is_precomputed
from .collections import partitions
from .engine import Engine, combined, on_each
from .parts import Facts, Functions, combined_facts, facts, joined_samples, sample

if TYPE_CHECKING:
    from .._data.design import Layout

Class = TypeVar("Class", bound="type[OnDask]")


def with_client(cls: Class) -> Class:
    """Give the constructor the signature of the estimator in memory, with ``client`` added."""
    constructor: Any = vars(cls)["__init__"]
    own = inspect.signature(vars(cls._local)["__init__"])
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    constructor.__signature__ = own.replace(parameters=[*own.parameters.values(), client])
    return cls


@dataclass(frozen=True)
class Setup:
    """What the fit of a model starts from."""

    engine: Engine
    #: Tasks whose results are checked rows.
    parts: list[Delayed]
    facts: Facts
    functions: Functions
    layout: Layout
    settings: Settings
    likelihood: Likelihood


class OnDask(KernelBasis):
    """Base of kernel estimators whose rows are in the partitions of Dask collections."""

    if TYPE_CHECKING:
        client: Any
        n_jobs: int | None

    #: The estimator in memory.
    _local: ClassVar[type]

    def to_local(self) -> Any:
        """Return the fitted model as an estimator without Dask.

        Returns
        -------
        RVR or RVC
            With the same parameters except ``client``, and the same attributes.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        del parameters["client"]
        local = self._local(**parameters)
        given = {*parameters, "client"}
        local.__dict__.update({name: value for name, value in vars(self).items() if name not in given})
        return local

    def _local_without_names(self) -> Any:
        """Return the fitted model for rows whose column names have been checked already."""
        local = self.to_local()
        local.__dict__.pop("feature_names_in_", None)
        return local

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy with the same client, which cannot be copied."""
        parameters = self.get_params(deep=False)
        client = parameters.pop("client")
        twin = type(self)(**{name: clone(value, safe=False) for name, value in parameters.items()})
        twin.client = client
        if hasattr(self, "_metadata_request"):
            twin._metadata_request = self._metadata_request
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client, which belongs to this process."""
        return {**super().__getstate__(), "client": None}

    @abstractmethod
    def _fit_partitions(self, setup: Setup) -> list[Any]:
        """Fit each model of these partitions, and return the posteriors."""

    def _fit_and_publish(self, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> None:
        if y_std is not None:
            raise ValueError(
                "y_std needs the rows in memory; give weights in proportion to 1 / y_std**2 with a mean of 1 "
                "as sample_weight"
            )
        settings = check_settings(self)
        _check_supported(self)
        for name in ("feature_names_in_", "_statistics"):
            self.__dict__.pop(name, None)  # from an earlier fit
        engine = Engine(self.client)
        parts = self._held_parts(
            engine, partitions(self, X, y, sample_weight, labels=self._labels, reset=True)
        )
        known = _ask_facts(engine, parts, self._labels)
        self._learn_from_facts(known)
        likelihood = self._check_likelihood()
        check_variational(settings, likelihood, learning=False)
        rows = _inputs_only(_moment_rows(known), np.arange(2), int(known.n_samples.sum()))
        _candidates.place(
            self,
            self._sample_of_workers(engine, parts, known) if _candidates.is_number(self.candidates) else rows,
        )
        layout, functions = self._layout(rows), self._worker_functions(rows, known)
        setup = Setup(engine, parts, known, functions, layout, settings, likelihood)
        posteriors = self._fit_partitions(setup)
        n_basis = int(layout.bias) + functions.n_basis
        seen = RowSummary(int(known.n_rows.sum()), known.weight)
        self._publish_fit(settings, likelihood, rows.n_samples, n_basis, layout, posteriors, seen)
        self._publish_basis(rows)

    def _held_parts(self, engine: Engine, parts: list[Delayed]) -> list[Delayed]:
        """Return the partitions to use, kept on the workers if they are needed more than once."""
        return parts

    def _learn_from_facts(self, known: Facts) -> None:
        """Take the attributes that depend on the targets from the facts."""

    def _sample_of_workers(self, engine: Engine, parts: list[Delayed], known: Facts) -> Training:
        """Return the same rows to choose centres from as `candidates.place` draws from rows in memory."""
        size = _candidates.sample_size(self.candidates)
        with naming("random_state"):
            seed = seed_of(check_random_state(self.random_state))
        starts = np.cumsum(known.n_samples) - known.n_samples
        tasks = [
            on_each(sample, [part], int(start), size, seed)[0]
            for part, start in zip(parts, starts, strict=True)
        ]
        found = engine.result(combined(partial(joined_samples, size=size), tasks))
        order = np.argsort(found.rows)
        return _inputs_only(found.X[order], found.rows[order], int(known.n_samples.sum()))

    def _worker_functions(self, rows: Training, known: Facts) -> Functions:
        """Return all functions but the bias, and set the attributes that describe them."""
        kernels = self._resolve(rows)
        self.kernel_ = self._as_given(kernels)
        self.extra_basis_ = fitted_extra(self.extra_basis, self.kernel, rows.X)
        self._n_extra = columns_at(self.extra_basis_, known.example).shape[1]
        centres = _candidates.points(self, rows, self._layout(rows).kept)
        # One thread per task: a worker runs as many tasks at once as it has threads.
        n_threads = check_n_jobs(self.n_jobs) or 1
        bias = check_flag("fit_intercept", self.fit_intercept)
        shift = extra_offset(self.extra_basis_, centres, self._n_extra, bias=bias)
        return Functions(kernels, centres, self.extra_basis_, self._n_extra, n_threads, shift)


def _inputs_only(X: FloatArray, rows: IntArray, n_samples: int) -> Training:
    """Return training data without targets and weights."""
    return Training(X, np.zeros(len(X)), None, rows, n_samples)


def _ask_facts(engine: Engine, parts: list[Delayed], labels: bool) -> Facts:
    known: Facts = engine.result(combined(combined_facts, on_each(facts, parts, labels)))
    if known.n_samples.sum() == 0:
        raise ValueError("X has no rows: all its partitions are empty")
    if known.weight == 0.0:
        # The words in parentheses are required by scikit-learn's checks.
        raise ValueError("sample_weight is zero in every row (it must contain at least one non-zero number)")
    return known


def _moment_rows(known: Facts) -> FloatArray:
    """Return two rows with the variances of the columns and their common mean, which kernels depend on.

    The mean over all columns is subtracted: ``gamma="scale"`` depends on differences only.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        std = np.sqrt(known.squares / known.weight)
        middle = known.mean - known.mean.mean()
        return np.stack([middle - std, middle + std])


def _check_supported(estimator: Any) -> None:
    """Raise ValueError for arguments that need all rows in one place."""
    local = estimator._local.__name__
    if is_precomputed(estimator.kernel):
        raise ValueError(
            "kernel='precomputed' is not for Dask: X would have a column for every row; give the "
            f"kernel as an object or a callable, or use {local}"
        )
    if estimator.candidates is None:
        raise ValueError(
            "candidates=None, a function about every row, is not for Dask; give candidates=500, say, for "
            "that many rows as centres, or an array of centres"
        )
    if argument := learning_argument(estimator):
        raise ValueError(
            f"{argument} needs all rows in one place; learn the kernel with {local}({argument}) on a "
            "sample of rows, and give its kernel_"
        )
    for name in ("memory_limit", "checkpoint"):
        if getattr(estimator, name, None) is not None:
            raise ValueError(f"{name} is not for Dask, whose workers manage memory and lost work")
    if check_flag("keep_rows", getattr(estimator, "keep_rows", False)):
        raise ValueError("keep_rows=True is not for Dask, whose rows stay where they are")
    check_extra_basis(estimator.extra_basis, estimator.kernel)
    if is_transformer(estimator.extra_basis):
        raise ValueError(
            "extra_basis cannot be fitted to distributed rows; fit the transformer to some rows and "
            "give extra_basis=transformer.transform"
        )
