"""`DaskRVR` and `DaskRVC`: relevance vector machines whose rows are in Dask arrays or data frames.

The workers compute sums over their rows; neither rows nor anything else of their number leaves the workers.
Needs ``pip install sparsebayes[dask]``.
"""

from __future__ import annotations

try:
    import dask.array
    import distributed  # noqa: F401 # the extra installs both
except ImportError as error:
    raise ImportError(
        "sparsebayes.dask needs Dask, which is not installed: pip install 'sparsebayes[dask]'"
    ) from error

import inspect
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial, reduce, wraps
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from dask.base import compute, get_scheduler, is_dask_collection, persist
from dask.delayed import Delayed, delayed
from dask.utils import is_dataframe_like, is_series_like
from distributed import Client, TimeoutError
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ._arrays import check_X
from ._checks import PLAIN, check_flag, check_n_jobs, check_settings
from ._data.basis import Basis, check_without_rows
from ._data.chunks import Rows, check_rows
from ._data.statistics import Moments, SufficientStatistics, Survey, basis_after
from ._estimators.base import Estimator, atomic
from ._estimators.class_rows import ClassBasis, check_class_weight, check_scheme
from ._estimators.docs import documented
from ._estimators.fit import check_sums, of_sums
from ._estimators.likelihoods import with_unpenalized
from ._estimators.posterior import problems
from ._estimators.run import publish, run
from ._types import FloatArray
from .classification import RVC
from .providers import Call, PyStatistics, RowPart, SummedStatistics, add
from .regression import RVR

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import KernelSpec

__all__ = ["DaskRVC", "DaskRVR"]

_Class = TypeVar("_Class", bound="type[_OnDask]")
#: Results combined by one task.
_FAN_IN = 8
#: What scikit-learn stores in an estimator that has callbacks.
_OF_CALLBACKS = {
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
    "_callback_fit_ctx",
    "_parent_callback_ctx",
}
#: Seconds between two checks for cancellation.
_INTERVAL = 0.5


class Engine:
    """Runs tasks with a client, or with Dask's configured scheduler if there is none.

    Results are combined in the order of the partitions, in a tree whose shape depends only on their number: a
    task that runs again leaves the combined result unchanged. So no task may change its arguments.
    """

    def __init__(self, client: Any) -> None:
        if client is not None and (not isinstance(client, Client) or client.asynchronous):
            raise TypeError(
                "client must be a dask.distributed.Client that is not asynchronous, or None for the current "
                f"one; got {client!r}"
            )
        # Found now, because the fit calls `result` from another thread, which has no current client.
        owner = getattr(get_scheduler(), "__self__", None) if client is None else client  # type: ignore[no-untyped-call] # Dask's
        self._client: Any = owner if isinstance(owner, Client) else None

    def keep(self, tasks: Sequence[Delayed]) -> list[Delayed]:
        """Start these tasks and keep their results on the workers, which can still recompute them."""
        kept = persist(*tasks) if self._client is None else self._client.persist(list(tasks))  # type: ignore[no-untyped-call] # Dask's
        return list(kept)

    def result(self, task: Delayed, cancelled: Callable[[], bool] | None = None) -> Any:
        """Return the result of a task; KeyboardInterrupt if ``cancelled`` returns True meanwhile."""
        if self._client is None:
            return compute(task)[0]  # type: ignore[no-untyped-call] # Dask's
        future = self._client.compute(task)
        while cancelled is not None and not future.done():
            try:
                return future.result(timeout=_INTERVAL)
            except TimeoutError:
                if cancelled():
                    raise KeyboardInterrupt from None  # releasing the future stops its tasks
        return future.result()

    def merged(self, tasks: Sequence[Delayed]) -> Any:
        """Return the results of all tasks merged into one, by their own method ``merge``."""
        return self.result(_combined(_merged, tasks))


def shared(value: Any) -> Delayed:
    """Return a task with the result ``value``, sent once to each worker instead of with each task."""
    task: Delayed = delayed(value, pure=False, traverse=False)
    return task


def on_each(function: Callable[..., Any], parts: Sequence[Delayed], *arguments: Any) -> list[Delayed]:
    """Return a task for each partition: ``function(part, *arguments)``."""
    task = delayed(function, pure=False)
    return [task(part, *arguments) for part in parts]


def _combined(function: Callable[[Sequence[Any]], Any], tasks: Sequence[Delayed]) -> Delayed:
    """Return one task that combines all results with ``function``, in a tree."""
    task, level = delayed(function, pure=False), list(tasks)
    while True:
        level = [task(level[start : start + _FAN_IN]) for start in range(0, len(level), _FAN_IN)]
        if len(level) == 1:
            return level[0]


def _merged(results: Sequence[Any]) -> Any:
    total = deepcopy(results[0])
    for result in results[1:]:
        total.merge(result)
    return total


class Partitions(SummedStatistics):
    """The Bernoulli providers that tasks return as one: each call is one round trip to the workers."""

    def __init__(self, engine: Engine, parts: Sequence[Delayed], n_basis: int) -> None:
        # With a map of its own a sum leaves its parts, which are elsewhere, alone.
        super().__init__(parts, map=map, n_basis=n_basis, likelihood="bernoulli")
        self._tasks, self._engine = parts, engine

    def _forward(self, method: str, **arguments: Any) -> Any:
        results = on_each(_call, self._tasks, shared(Call(method, tuple(arguments.values()))))
        return self._engine.result(_combined(partial(reduce, add), results), self._cancelled)


def _call(part: Any, call: Call) -> Any:
    # Arrays unpickled from messages may be misaligned.
    arguments = (np.require(a, a.dtype, PLAIN) if isinstance(a, np.ndarray) else a for a in call.arguments)
    return Call(call.method, tuple(arguments))(part)


# --- collections ---------------------------------------------------------------------------------------


def is_array(X: Any) -> bool:
    """Tell whether this is a Dask array."""
    return isinstance(X, dask.array.Array)


def _is_pandas(is_like: Callable[[Any], bool], X: Any) -> bool:
    return is_dask_collection(X) and is_like(getattr(X, "_meta", None))


def _check_columns(local: Any, X: Any, *, reset: bool) -> Any:
    """Check the columns of X, which ``local`` learns if ``reset``; return X with all in each chunk."""
    if is_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, (n_samples, n_features), got {X.ndim}")
        _check_known("X", X.shape[1:])
        check_X(local, np.ones((1, X.shape[1]), X.dtype), reset=reset)
        X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    elif _is_pandas(is_dataframe_like, X):
        check_X(local, X._meta_nonempty, reset=reset)
    else:
        raise TypeError(
            f"X must be a Dask array or data frame, got {type(X).__name__}; for data in memory use "
            f"{type(local).__name__}, or dask.array.from_array"
        )
    if not reset:  # the rows of partitions have no names
        vars(local).pop("feature_names_in_", None)
    return X


def partitions(local: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> list[Delayed]:
    """Return tasks that check the rows of each partition, after checks of types, dimensions and chunks."""
    X = _check_columns(local, X, reset=reset)
    if y is None:
        name = type(local).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    columns = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    _check_known("X", X.chunks[0] if is_array(X) else ())
    for name, values in columns.items():
        _check_column(X, name, values)
    blocks = [list(np.ravel(values.to_delayed())) for values in (X, *columns.values())]
    task = delayed(_checked, pure=False)
    return [
        task(number, local.n_features_in_, local._labels, *block)
        for number, block in enumerate(zip(*blocks, strict=True))
    ]


def _checked(number: int, n_features: int, labels: bool, X: Any, y: Any, weights: Any = None) -> Rows:
    """Check the rows of a partition, which may have none."""
    X, y, weights = np.asarray(X), np.asarray(y), None if weights is None else np.asarray(weights)
    try:
        for name, values in (("y", y), ("sample_weight", weights)):
            if values is not None and len(values) != len(X):
                raise ValueError(
                    f"X and {name} must have the same rows in each partition, got {len(X)} and "
                    f"{len(values)}; make both of one collection, or repartition them alike"
                )
        return check_rows(X, y, weights, n_features, labels)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error} (in partition {number}, counted from 0)") from None


def _check_known(name: str, sizes: tuple[float, ...]) -> None:
    if any(math.isnan(size) for size in sizes):
        raise ValueError(
            f"{name} has chunks of unknown size, so that its rows cannot be matched with other arrays; call "
            f"{name}.compute_chunk_sizes() first"
        )


def _check_column(X: Any, name: str, values: Any) -> None:
    """Check a column of y or weights; the workers compare the lengths of its partitions with those of X."""
    if not (is_array(values) or _is_pandas(is_series_like, values)):
        raise TypeError(
            f"{name} must be one column, a Dask array or series with the partitions of X, got "
            f"{type(values).__name__}"
        )
    if values.ndim != 1:
        raise ValueError(
            f"{name} must have one dimension, got {values.ndim}: fit each column separately, {name}[:, 0]"
        )
    _check_known(name, values.chunks[0] if is_array(values) else ())
    both, remedy = [X, values], f"rechunk or repartition, as in {name}.rechunk(X.chunks[0])"
    if all(map(is_array, both)) and X.chunks[0] != values.chunks[0]:
        got = " and ".join(f"{len(each)} in {shortened(each.chunks[0])}" for each in both)
        raise ValueError(f"X and {name} must have the same number of rows and chunks, got {got}; {remedy}")
    if X.npartitions != values.npartitions:
        got = f"{X.npartitions} and {values.npartitions}"
        raise ValueError(f"X and {name} must have the same partitions, got {got}; {remedy}")
    first, second = (getattr(each, "divisions", (None,)) for each in both)
    if None not in (*first, *second) and first != second:
        raise ValueError(f"X and {name} must have the same divisions: make both of one data frame; {remedy}")


def lazily(local: Any, X: Any, predict: Callable[[Any], Any], columns: Any = None) -> Any:
    """Return the predictions for X: for a Dask collection a lazy one with its partitions.

    Data frames become series, or data frames with these ``columns`` if a prediction has several values.
    """
    if not is_dask_collection(X):
        return predict(X)
    X = _check_columns(local, X, reset=False)
    empty = predict(local.candidates_[:1])[:0]
    if is_array(X):
        shape = {"drop_axis": 1} if empty.ndim == 1 else {"chunks": (X.chunks[0], empty.shape[1:])}
        return X.map_blocks(_predict_array, predict, empty, dtype=empty.dtype, meta=empty, **shape)
    frame = _as_frame(empty, columns, X._meta.index)
    return X.map_partitions(_predict_frame, predict, empty, columns, meta=frame)


def _predict_array(X: Any, predict: Callable[[Any], Any], empty: Any) -> Any:
    # Partitions may be empty, and Dask calls functions with no rows to find their type.
    return predict(X) if len(X) > 0 else empty


def _predict_frame(X: Any, predict: Callable[[Any], Any], empty: Any, columns: Any) -> Any:
    return _as_frame(_predict_array(X.to_numpy(), predict, empty), columns, X.index)


def _as_frame(values: Any, columns: Any, index: Any) -> Any:
    if values.ndim == 1:
        # With dtype=None pandas would infer another type from labels that are objects.
        return pd.Series(values, index=index, dtype=object if values.dtype == object else None)
    return pd.DataFrame(values, index=index, columns=columns)


# --- estimators ---------------------------------------------------------------------------------------


def _with_client(cls: _Class) -> _Class:
    """Give the constructor the signature of the estimator in memory, with ``client`` added."""
    constructor: Any = vars(cls)["__init__"]
    own = inspect.signature(vars(cls._local)["__init__"])
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    constructor.__signature__ = own.replace(parameters=[*own.parameters.values(), client])
    return cls


def _lazy(method: Any) -> Any:
    """Return a method of a classifier in memory, which is evaluated lazily for Dask collections."""

    @wraps(method)
    def predict(self: Any, X: Any, **options: Any) -> Any:
        local = self.to_local()
        return lazily(local, X, partial(getattr(local, method.__name__), **options), local.classes_)

    return predict


@documented
class _OnDask(Estimator):
    """A kernel estimator for rows in Dask collections, with the arguments and attributes of one in memory."""

    #: The class of the estimator in memory.
    _local: ClassVar[type]
    _public_module = "sparsebayes.dask"
    client: Any

    def to_local(self) -> Any:
        """Return the fitted model as an `RVR` or `RVC`, without ``client``; NotFittedError before ``fit``."""
        check_is_fitted(self)
        local = self._unfitted()
        vars(local).update(self._results(self))
        return local

    def _unfitted(self, **changes: Any) -> Any:
        """Return the estimator in memory with these parameters."""
        parameters = self.get_params(deep=False)
        del parameters["client"]
        return self._local(**parameters | changes)

    def _results(self, estimator: Any) -> dict[str, Any]:
        """Return the attributes of an estimator that are neither parameters nor callbacks of scikit-learn."""
        own = self.get_params(deep=False).keys() | _OF_CALLBACKS
        return {name: value for name, value in vars(estimator).items() if name not in own}

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model, as the estimator in memory does.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame, (n_samples, n_features)
            Training inputs. Some partitions may be empty. Chunks of columns are joined.
        y, sample_weight : dask.array.Array or dask.dataframe.Series, (n_samples,)
            Targets or class labels and, optionally, weights of the rows, in the partitions of X.

        {fit_sections}
        """
        with atomic(self):
            local = self._fitted(X, y, sample_weight)
            for name in self._results(self).keys() - {"_metadata_request"}:
                delattr(self, name)  # from an earlier fit
            self.__dict__.update(self._results(local))
        return self

    def _fitted(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Return the estimator in memory, fitted to what the workers return."""
        settings, engine = check_settings(self), Engine(self.client)
        # One thread for each task: a worker runs as many tasks at once as it has threads.
        local = self._unfitted(n_jobs=check_n_jobs(self.n_jobs) or 1)
        if local.memory_limit is not None:
            raise ValueError("memory_limit is not for Dask, whose workers manage memory")
        if local.checkpoint is not None:
            raise ValueError("checkpoint is not for Dask, which repeats lost work")
        if local._labels:
            check_without_rows(local, "a fit on Dask")
            check_scheme(settings.scheme)
            check_class_weight(local, "a fit on Dask")
        else:
            check_sums(local, "a fit on Dask")
        parts = partitions(local, X, y, sample_weight, reset=True)
        parts = engine.keep(parts) if local._labels else parts
        d = local.n_features_in_
        survey = engine.merged(on_each(_surveyed, parts, shared(Survey(local, d))))
        if survey.n_rows == 0:
            raise ValueError("X has no rows: all its partitions are empty")
        if local._labels:
            functions = ClassBasis.after(local, survey, d)
            sent = shared(functions)

            def provider_of(label: Any) -> PyStatistics:
                rows = engine.keep(on_each(_class_part, parts, sent, label))
                return Partitions(engine, rows, functions.basis.n_basis)

            settings = with_unpenalized(local, functions.basis, settings, functions.likelihood)
            task = functions.task(provider_of, settings)
        else:
            basis = basis_after(local, survey.facts(local), d)
            stats = engine.merged(on_each(_sums, parts, shared(basis), local.n_jobs))
            task = of_sums(local, basis, stats, settings)
        publish(local, *run(self, [task]))
        return local

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2, or the weighted fraction of right labels, of collections or of rows in memory."""
        local = self.to_local()
        if not is_dask_collection(X):
            return float(local.score(X, y, sample_weight))
        parts = partitions(local, X, y, sample_weight, reset=False)
        moments: Moments = Engine(self.client).merged(on_each(_compared, parts, shared(local)))
        if moments.weight == 0.0:
            raise ValueError("X has no row of positive weight in any partition")
        if local._labels:
            return float(moments.mean[0])
        squares, errors = moments.squares[0], moments.squares[1] + moments.weight * moments.mean[1] ** 2
        return float(1.0 - errors / squares) if squares > 0.0 else float(errors == 0.0)  # as scikit-learn

    _problems = problems

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator in memory."""
        return self._unfitted().__sklearn_tags__()

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy with the same client, which cannot be copied."""
        twin = type(self)(**clone(self._unfitted()).get_params(deep=False), client=self.client)
        for name in {"_metadata_request", "_skl_callbacks"} & vars(self).keys():
            setattr(twin, name, getattr(self, name))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client, which belongs to this process."""
        return {**super().__getstate__(), "client": None}


@_with_client
@documented
class DaskRVR(_OnDask):
    r"""`RVR` for rows in Dask arrays or data frames.

    The workers sum over the rows of their partitions (`SufficientStatistics`, 8 K^2 bytes for K functions).
    The weights and means are those of `RVR` for all rows, the same centres and kernel, to 1e-8, whatever the
    chunks. Error bars grow with the distance from the candidates, not from the rows.

    Parameters
    ----------
    candidates : int or array-like of shape (n_candidates, n_features)
        Centres of the kernel functions; None is an error. An int: that many rows, the same as `RVR` chooses
        with this ``random_state``.
    n_jobs : int, optional
        Threads of each task on the workers (default: one) and of the fit to the sums (default: all cores).
    client : dask.distributed.Client, optional
        None: the current client, or Dask's configured scheduler. Clones share it; pickles lack it.
    **arguments
        The other arguments of `RVR`, except ``kernel="precomputed"``, ``memory_limit``, ``checkpoint``, and
        an ``extra_basis`` that is an unfitted transformer. Kernels are learned from at most 2000 rows.

    Attributes
    ----------
    active_, alpha_, mu_, sigma_, beta_, noise_variance_
        As for `RVR`, as are all others: arrays in memory. Training rows are numbered across the partitions.
    {n_features_in_}

    Notes
    -----
    The fit reads the rows twice: persist a collection that is slow to compute. If a worker fails Dask runs
    its tasks again, and the result is the same to the last bit. y must have one column.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from sparsebayes.dask import DaskRVR
    >>> X = da.linspace(-10, 10, 1000, chunks=100)[:, None]
    >>> y = da.sinc(X[:, 0] / np.pi) + 0.1 * da.cos(37 * da.arange(1000, chunks=100) ** 2)
    >>> model = DaskRVR(gamma=0.1, candidates=50, random_state=0).fit(X, y)
    >>> model.status_, len(model.relevance_) < 20
    ('converged', True)
    >>> model.predict([[0.0]]).round(1)
    array([1.])
    """

    _local, _labels = RVR, False

    def __init__(self, kernel: KernelSpec = "rbf", *, client: Any = None, **arguments: Any) -> None:
        self.__dict__.update(RVR(kernel, **arguments).get_params(deep=False), client=client)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets, lazily for Dask collections.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)
            Inputs; chunks may be of unknown size.
        {return_std}

        Returns
        -------
        mean, std : of shape (n,)
            Dask arrays, series with the index of X, or ndarrays, as X is; ``std`` only if ``return_std``.

        {predict_raises}
        """
        local, return_std = self.to_local(), check_flag("return_std", return_std)
        if not return_std or not is_dask_collection(X):
            return lazily(local, X, partial(local.predict, return_std=return_std))
        both = lazily(local, X, partial(_mean_and_std, local), ["mean", "std"])
        return (both[:, 0], both[:, 1]) if is_array(X) else (both["mean"], both["std"])


@_with_client
@documented
class DaskRVC(_OnDask):
    r"""`RVC` for rows in Dask arrays or data frames.

    The rows stay on the workers during the fit, which sends them the weights of the active functions and
    receives sums over rows (see `PyStatistics`). It is the model of `RVC` with the same centres and kernel
    and ``landmarks=None``, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates, random_state, n_jobs, client
        As for `DaskRVR`.
    **arguments
        The other arguments of `RVC`, except ``kernel="precomputed"``, ``memory_limit``, ``checkpoint``, an
        ``extra_basis`` that is an unfitted transformer, ``class_weight``, ``scheme="variational"`` and, with
        more than two classes, ``multi_class="softmax"``. Kernels are learned from at most 2000 rows.

    Attributes
    ----------
    classes_, active_, alpha_, mu_, sigma_
        As for `RVC`, as are all others: arrays in memory. Training rows are numbered across the partitions.
    {n_features_in_}

    Notes
    -----
    The workers store the inputs twice. A round trip takes some milliseconds for each partition: use a few
    partitions for each thread of the workers. Predictions are lazy Dask arrays for arrays; series, or data
    frames of several columns, with the index of X for data frames.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from sparsebayes.dask import DaskRVC
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> rows = da.from_array(X, chunks=(100, 2))
    >>> labels = da.where(rows[:, 0] * rows[:, 1] > 0.3 * da.sin(9 * rows[:, 0]), "same", "different")
    >>> model = DaskRVC(candidates=40, random_state=0).fit(rows, labels)
    >>> model.predict_proba(rows).shape, model.predict([[1.0, 1.0]])
    ((400, 2), array(['same'], dtype='<U9'))
    """

    _local, _labels = RVC, True

    def __init__(self, kernel: KernelSpec = "rbf", *, client: Any = None, **arguments: Any) -> None:
        self.__dict__.update(RVC(kernel, **arguments).get_params(deep=False), client=client)

    decision_function = _lazy(RVC.decision_function)
    predict_proba = _lazy(RVC.predict_proba)
    predict = _lazy(RVC.predict)


def _surveyed(rows: Rows, empty: Survey) -> Survey:
    survey = deepcopy(empty)
    survey.add(rows)
    return survey


def _sums(rows: Rows, basis: Basis, n_jobs: int) -> SufficientStatistics:
    """Return the sums of a regression over the rows of a partition."""
    stats = SufficientStatistics(basis.n_summed, n_jobs=n_jobs)
    if len(rows) > 0:
        basis.add(stats, rows.X, rows.y, rows.weights)
    return stats


def _class_part(rows: Rows, functions: ClassBasis, label: Any) -> RowPart:
    """Return the provider of a partition, with target 1 for rows of this label and 0 for others."""
    return functions.part(rows.X, rows.y == label, rows.weights)


def _compared(rows: Rows, local: Any) -> Moments:
    """Return the moments of y and of its errors; for labels of 1 where the prediction is right, else 0."""
    predicted = local.predict(rows.X) if len(rows) > 0 else rows.y
    columns = [rows.y == predicted] if local._labels else [rows.y, rows.y - predicted]
    moments = Moments(len(columns))
    moments.add(np.column_stack(columns).astype(np.float64), rows.weights)
    return moments


def _mean_and_std(local: Any, X: FloatArray) -> FloatArray:
    return np.column_stack(local.predict(X, return_std=True))
