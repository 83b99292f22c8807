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

from functools import partial
from typing import TYPE_CHECKING, Any

from dask.base import is_dask_collection
from dask.delayed import Delayed
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._checks.arguments import check_flag
from ._checks.targets import learn_classes
from ._dask.collections import Hits, Moments, Squares, added, added_squares, is_array, lazily, measure_all
from ._dask.engine import Engine, Partitions, combined, on_each, shared
from ._dask.estimator import OnDask, Setup, with_client
from ._dask.parts import Facts, merged_sums, one_against_the_rest, sums
from ._estimators import outputs as _outputs
from ._estimators.docs import documented
from ._estimators.healing import KernelRegression
from ._estimators.provider_fit import offset_of
from ._progress import FitReporter
from .classification import RVC
from .regression import RVR

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import KernelSpec

__all__ = ["DaskRVC", "DaskRVR"]


@with_client
@documented
class DaskRVR(OnDask, RVR):
    r"""`RVR` for rows in Dask arrays or data frames.

    The workers sum over the rows of their partitions (`SufficientStatistics` of the kernel functions) and
    merge the sums; the model is fitted to the total, of about 8 K^2 bytes for K functions. It is the model of
    `RVR` for all rows and the same centres, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates : int or array-like of shape (n_candidates, n_features)
        Centres of the kernel functions; None is an error. An array: as for `RVR`. An int: that many rows,
        the same as `RVR` chooses with this ``random_state``, from a sample of 32,768 rows (20 for each
        centre, if that is more) that does not depend on the chunks.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of centres if ``candidates`` is an int.
    n_jobs : int, optional
        Threads of each task on the workers (None or -1: one, as workers run several tasks at once) and of the
        fit to the sums (None or -1: one per core). The result does not depend on it.
    client : dask.distributed.Client, optional
        Client that runs the tasks; None: the current client, or Dask's configured scheduler. Clones share it;
        pickles do not contain it.
    **arguments
        The other arguments of `RVR`, except ``kernel="precomputed"``, ``optimize_kernel``, ``keep_rows``, and
        an ``extra_basis`` that is an unfitted transformer.

    Attributes
    ----------
    active_, alpha_, mu_, sigma_, beta_, noise_variance_
        As for `RVR`, as are all others: arrays in memory. Training rows are numbered across the partitions.
    {n_features_in_}

    Notes
    -----
    The fit reads the rows twice, and a third time to choose centres: persist a collection that is slow to
    compute. If a worker fails Dask runs its tasks again, and the result is the same to the last bit. y must
    have one column.

    See Also
    --------
    sparsebayes.RVR : The estimator for rows in memory, with all parameters and attributes.

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
    >>> model.predict(X)
    dask.array<_predict_array, shape=(1000,), dtype=float64, chunksize=(100,), chunktype=numpy.ndarray>
    >>> model.predict([[0.0]]).round(1)
    array([1.])
    """

    _local = RVR

    def __init__(self, kernel: KernelSpec = "rbf", *, client: Any = None, **arguments: Any) -> None:
        super().__init__(kernel, **arguments)
        self.client = client

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, y_std: Any = None) -> Self:
        """Fit the model by maximising its marginal likelihood.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame, (n_samples, n_features)
            Training inputs. Some partitions may be empty. Chunks of columns are joined.
        y : dask.array.Array or dask.dataframe.Series, (n_samples,)
            Targets, in the partitions of X.
        sample_weight : dask.array.Array or dask.dataframe.Series, (n_samples,), optional
            Weight of each row, in the partitions of X: 2 counts like two equal rows, 0 like none.
        y_std
            Must be None.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an invalid argument, chunks of unknown size, partitions that differ, and rows that are not
            finite numbers; the message names the argument, the remedy and, for rows, the partition.
        NumericalError
            If the arithmetic failed on valid input.

        {fit_warns}
        """
        self._train(X, y, sample_weight, y_std=y_std)
        return self

    def _fit_partitions(self, setup: Setup) -> list[Any]:
        _outputs.check_single(self, setup.settings)
        tasks = on_each(sums, setup.parts, shared(setup.functions))
        statistics = setup.engine.result(combined(merged_sums, tasks))
        layout, n_basis = setup.layout, int(setup.layout.bias) + setup.functions.n_basis
        watch = FitReporter(self, layout, n_basis, has_noise=True)
        with watch.fit() as step:
            n_centred = self._n_extra if layout.bias else 0
            posterior = statistics._core.fit(
                bias=layout.bias, n_centred=n_centred, callback=step, **setup.settings.of_one_target()
            )
            watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
        self._publish_offset(offset_of([posterior], self._n_extra))
        return [posterior]

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        y_std: Any = None,
        healed: bool = False,
    ) -> Any:
        """Predict targets, lazily for Dask collections.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)
            Inputs; chunks may be of unknown size.
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        y_std, healed
            Must have their default values.

        Returns
        -------
        mean : of shape (n,)
            A Dask array for an array, a series with the index of X for a data frame, an ndarray for rows in
            memory.
        std : of shape (n,)
            Only if ``return_std``; computed together with the mean.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X lacks columns of ``fit``; during computation, if its rows are not finite numbers.
        """
        check_is_fitted(self)
        if check_flag("healed", healed):
            raise ValueError("healed=True needs the training rows, which are not here; fit an RVR in memory")
        self._noise_of(y_std, 0)  # y_std must be None
        if not is_dask_collection(X):
            return KernelRegression.predict(self, X, bool(return_std))  # type: ignore[call-overload] # a bool
        local = self._local_without_names()
        if not check_flag("return_std", return_std):
            return lazily(self, X, local.predict, float)
        both = lazily(self, X, Moments(local), float, ["mean", "std"])
        return (both[:, 0], both[:, 1]) if is_array(X) else (both["mean"], both["std"])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``, or all in memory.

        Returns
        -------
        float
            1 is best; 0 is as good as the mean of y.
        """
        if not is_dask_collection(X):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        measured = measure_all(self, X, y, sample_weight, Squares(self._local_without_names()), added_squares)
        _, _, squares, residuals = measured
        if squares == 0.0:
            return 1.0 if residuals == 0.0 else 0.0  # as in scikit-learn
        return float(1.0 - residuals / squares)


@with_client
@documented
class DaskRVC(OnDask, RVC):
    r"""`RVC` for rows in Dask arrays or data frames.

    The rows stay on the workers during the fit, which sends them the weights of the active functions and
    receives sums over rows (see `PyStatistics`). It is the model of `RVC` for all rows and the same centres,
    to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates, random_state, n_jobs, client
        As for `DaskRVR`.
    **arguments
        The other arguments of `RVC`, except ``kernel="precomputed"``, ``optimize_kernel``, an ``extra_basis``
        that is an unfitted transformer, ``scheme="variational"`` and, with more than two classes,
        ``multi_class="softmax"``.

    Attributes
    ----------
    classes_, active_, alpha_, mu_, sigma_
        As for `RVC`, as are all others: arrays in memory. Training rows are numbered across the partitions.
    {n_features_in_}

    Notes
    -----
    The workers store the inputs twice, 16 bytes for each number of X; with a callable as kernel or with
    ``extra_basis`` the second copy is replaced by all values of the basis functions. A round trip takes some
    milliseconds for each partition: use a few partitions for each thread of the workers. Classes are fitted
    one after another against the rest. If a worker fails Dask recomputes its partitions, and the result is
    the same to the last bit.

    See Also
    --------
    sparsebayes.RVC : The estimator for rows in memory, with all parameters and attributes.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from sparsebayes.dask import DaskRVC
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0.3 * np.sin(9 * X[:, 0]), "same", "different")
    >>> rows, labels = da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100)
    >>> model = DaskRVC(candidates=40, random_state=0).fit(rows, labels)
    >>> model.predict_proba(rows)
    dask.array<_predict_array, shape=(400, 2), dtype=float64, chunksize=(100, 2), chunktype=numpy.ndarray>
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array(['same', 'different'], dtype='<U9')
    """

    _local = RVC

    def __init__(self, kernel: KernelSpec = "rbf", *, client: Any = None, **arguments: Any) -> None:
        super().__init__(kernel, **arguments)
        self.client = client

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model by maximising the Laplace approximation of its marginal likelihood.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame, (n_samples, n_features)
            Training inputs. Some partitions may be empty. Chunks of columns are joined.
        y : dask.array.Array or dask.dataframe.Series, (n_samples,)
            Class labels, in the partitions of X; a partition need not contain all classes.
        sample_weight : dask.array.Array or dask.dataframe.Series, (n_samples,), optional
            Weight of each row, in the partitions of X: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError, NumericalError
            As for `DaskRVR.fit`.

        {fit_warns}
        """
        self._train(X, y, sample_weight)
        return self

    def _held_parts(self, engine: Engine, parts: list[Delayed]) -> list[Delayed]:
        return engine.keep(parts)

    def _learn_from_facts(self, known: Facts) -> None:
        self.classes_ = learn_classes(known.classes)

    def _fit_partitions(self, setup: Setup) -> list[Any]:
        layout, bias = setup.layout, setup.layout.bias
        if setup.likelihood == "multinomial" or setup.settings.scheme == "variational":
            raise ValueError(
                "DaskRVC fits one logit at a time by its Laplace approximation: give multi_class='ovr' and a "
                "scheme other than 'variational', or use RVC"
            )
        n_basis = int(bias) + setup.functions.n_basis
        labels = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        watch = FitReporter(self, layout, n_basis, has_noise=False, n_fits=len(labels))
        functions = shared(setup.functions)

        def fit(label: Any) -> Any:
            rows = on_each(one_against_the_rest, setup.parts, functions, bias, label)
            # Released when this function returns, before the next class is fitted.
            provider = Partitions(setup.engine, setup.engine.keep(rows), n_basis, "bernoulli")
            with watch.fit() as step:
                posterior = _core.fit_provider(
                    provider,
                    n_centred=self._n_extra if bias else 0,
                    callback=step,
                    **setup.settings.of_one_target(),
                )
                watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
            return posterior

        posteriors = [fit(label) for label in labels]
        self._publish_offset(setup.functions.shift + offset_of(posteriors, self._n_extra))
        return posteriors

    def decision_function(self, X: Any) -> Any:
        r"""Return the linear predictor at the posterior mode, :math:`\mu^T \phi(x)`.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)

        Returns
        -------
        of shape (n,) or (n, n_classes)
            As for `RVC`: a Dask array for an array, a series or data frame with the index of X for a data
            frame, an ndarray for rows in memory.
        """
        if not is_dask_collection(X):
            return super().decision_function(X)
        check_is_fitted(self)
        columns = None if len(self.classes_) == 2 else self.classes_
        return lazily(self, X, self._local_without_names().decision_function, float, columns)

    def predict_proba(self, X: Any, *, moderate: bool = True) -> Any:
        """Return class probabilities.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)
        moderate : bool, default=True
            As for `RVC`.

        Returns
        -------
        of shape (n, n_classes)
            Columns as in ``classes_``; types as for ``decision_function``.
        """
        if not is_dask_collection(X):
            return super().predict_proba(X, moderate=moderate)
        check_is_fitted(self)
        probabilities = partial(self._local_without_names().predict_proba, moderate=moderate)
        return lazily(self, X, probabilities, float, self.classes_)

    def predict(self, X: Any) -> Any:
        """Predict the most probable class.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)

        Returns
        -------
        of shape (n,)
            Elements of ``classes_``; types as for ``decision_function``.
        """
        if not is_dask_collection(X):
            return super().predict(X)
        check_is_fitted(self)
        return lazily(self, X, self._local_without_names().predict, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the weighted fraction of right predictions, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``, or all in memory.

        Returns
        -------
        float
            Between 0 and 1.
        """
        if not is_dask_collection(X):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        weight, hits = measure_all(self, X, y, sample_weight, Hits(self._local_without_names()), added)
        return float(hits / weight)
