"""`DaskRVR` and `DaskRVC`: relevance vector machines whose rows are in Dask arrays or data frames.

The workers compute sums over their rows; neither rows nor anything else of their number leaves the workers.
Needs ``pip install sparsebayes[dask]``.
"""

from __future__ import annotations

try:
    import dask.array  # noqa: F401 # the extra installs both
    import distributed  # noqa: F401 # as above
except ImportError as error:
    raise ImportError(
        "sparsebayes.dask needs Dask, which is not installed: pip install 'sparsebayes[dask]'"
    ) from error

import inspect
from copy import deepcopy
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from dask.base import is_dask_collection
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ._checks import check_flag, check_n_jobs, check_settings
from ._dask import Engine, Partitions, is_array, lazily, on_each, partitions, shared
from ._data.basis import Basis, check_without_rows
from ._data.chunks import Rows
from ._data.out_of_core import Moments, Survey, basis_after
from ._data.statistics import SufficientStatistics
from ._estimators.base import Estimator, atomic
from ._estimators.chunked_classes import ClassBasis, check_scheme
from ._estimators.docs import documented
from ._estimators.fit import of_sums
from ._estimators.posterior import kernel_contribution, problems
from ._estimators.run import publish, run
from ._types import FloatArray
from .classification import RVC
from .providers import PyStatistics, RowPart
from .regression import RVR

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import KernelSpec

__all__ = ["DaskRVC", "DaskRVR"]

_Class = TypeVar("_Class", bound="type[_OnDask]")


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
        """Return the attributes of an estimator that are not parameters."""
        parameters = self.get_params(deep=False)
        return {name: value for name, value in vars(estimator).items() if name not in parameters}

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
        check_without_rows(local, "a fit on Dask")
        if local._labels:
            check_scheme(settings)
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
                return Partitions(engine, rows, functions.n_basis)

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

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        return kernel_contribution(self, X)

    def _problems(self, *rows: Any, **known: Any) -> Any:
        return problems(self, *rows, **known)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator in memory."""
        return self._unfitted().__sklearn_tags__()

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy with the same client, which cannot be copied."""
        twin = type(self)(**clone(self._unfitted()).get_params(deep=False), client=self.client)
        if hasattr(self, "_metadata_request"):
            twin._metadata_request = self._metadata_request
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client, which belongs to this process."""
        return {**super().__getstate__(), "client": None}


@_with_client
@documented
class DaskRVR(_OnDask):
    r"""`RVR` for rows in Dask arrays or data frames.

    The workers sum over the rows of their partitions (`SufficientStatistics` of the kernel functions); the
    model is fitted to the total, of about 8 K^2 bytes for K functions. It is the model of `RVR` for all rows
    and the same centres, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates : int or array-like of shape (n_candidates, n_features)
        Centres of the kernel functions; None is an error. An int: that many rows, the same as `RVR` chooses
        with this ``random_state``.
    n_jobs : int, optional
        Threads of each task on the workers (None or -1: one) and of the fit to the sums (None or -1: one per
        core). The result does not depend on it.
    client : dask.distributed.Client, optional
        Client that runs the tasks; None: the current client, or Dask's configured scheduler. Clones share it;
        pickles do not contain it.
    **arguments
        The other arguments of `RVR`, except ``kernel="precomputed"``, learned widths (``gamma="ard"``,
        ``"learn"``, ``optimize_kernel``), ``keep_rows``, ``memory_limit``, ``checkpoint``, and an
        ``extra_basis`` that is an unfitted transformer.

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
    receives sums over rows (see `PyStatistics`). It is the model of `RVC`, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates, random_state, n_jobs, client
        As for `DaskRVR`.
    **arguments
        The other arguments of `RVC`, except ``kernel="precomputed"``, learned widths (``gamma="ard"``,
        ``"learn"``, ``optimize_kernel``), ``memory_limit``, ``checkpoint``, an ``extra_basis`` that is an
        unfitted transformer, ``scheme="variational"`` and, with more than two classes,
        ``multi_class="softmax"``.

    Attributes
    ----------
    classes_, active_, alpha_, mu_, sigma_
        As for `RVC`, as are all others: arrays in memory. Training rows are numbered across the partitions.
    {n_features_in_}

    Notes
    -----
    The workers store the inputs twice, 16 bytes for each number of X. A round trip takes some milliseconds
    for each partition: use a few partitions for each thread of the workers. Predictions are lazy Dask arrays
    for arrays; series, or data frames of several columns, with the index of X for data frames.

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
