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
from ._dask.collections import Hits, Moments, Squares, added, is_array, joined_squares, lazily, of_all_rows
from ._dask.engine import Engine, brought_together, on_each, shared
from ._dask.estimator import OnDask, SetUp, with_client
from ._dask.parts import Facts, merged_sums, sums
from ._dask.provider import Partitions, one_against_the_rest
from ._estimators import outputs as _outputs
from ._estimators.healing import KernelRegression
from ._estimators.provider_fit import offset_of
from ._progress import Watch
from .classification import RVC
from .regression import RVR

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import KernelSpec

__all__ = ["DaskRVC", "DaskRVR"]


@with_client
class DaskRVR(OnDask, RVR):
    r"""`RVR` for rows in Dask arrays or data frames.

    Each partition is made into sums over its rows where it is (`SufficientStatistics` of the kernel
    functions), sums are merged on the workers, and the model is fitted to the total: what comes here are
    about 8 K^2 bytes for K functions, whatever the number of rows. It is the model that `RVR` makes of all
    rows with the same centres, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates : int or array-like of shape (n_candidates, n_features)
        Centres of the kernel functions; None is refused. An array: as for `RVR`. An int: that many rows,
        those that `RVR` chooses with this ``random_state``. They are chosen here, out of a sample of 32,768
        rows (20 for each centre, if that is more) that does not depend on the chunks.
    random_state : int, RandomState instance or None, default=None
        Of the choice that an integer ``candidates`` asks for.
    n_jobs : int, optional
        Threads of each task on the workers, None or -1: one, as workers run several tasks at once; and of the
        fit to the sums, None or -1: one per core. The result does not depend on it.
    client : dask.distributed.Client, optional
        Who runs the tasks; None: the current client, or the scheduler that Dask is configured for. Pickles
        leave it out, clones share it.
    **arguments
        The other arguments of `RVR`. Refused are ``kernel="precomputed"``, ``optimize_kernel``,
        ``keep_rows``, and an ``extra_basis`` that is a transformer still to be fitted.

    Attributes
    ----------
    active_, alpha_, mu_, sigma_, beta_, noise_variance_
        As for `RVR`, arrays in memory; likewise all others. Training rows are counted through all partitions.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn; names are those of a data frame.

    Notes
    -----
    The rows are looked at two times, and a third time to choose centres; persist a collection that is dear
    to make. A worker that dies takes nothing along: Dask runs its tasks again, sums are added in the order of
    the partitions, and the result is the same to the last bit. y has one column.

    See Also
    --------
    sparsebayes.RVR : The same for rows in memory, with all parameters and attributes described.

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
    dask.array<_of_array, shape=(1000,), dtype=float64, chunksize=(100,), chunktype=numpy.ndarray>
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
            Training inputs; partitions may be empty, but not all. Chunks of columns are joined.
        y : dask.array.Array or dask.dataframe.Series, (n_samples,)
            Targets, in the partitions of X.
        sample_weight : dask.array.Array or dask.dataframe.Series, (n_samples,), optional
            Weight of each row, in the partitions of X: 2 counts like two equal rows, 0 like none.
        y_std
            Of `RVR`; there is nothing for it here.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or outside its domain, chunks of unknown size, partitions that
            differ, and rows that are no finite numbers; the message names the argument, the remedy, and where
            it is about rows the partition.
        NumericalError
            If the arithmetic broke down on valid input.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"`` or ``"stopped"``.
        OverfitWarning
            If the data determine more parameters than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight, y_std=y_std)
        return self

    def _fit_partitions(self, setup: SetUp) -> list[Any]:
        _outputs.check_single(self, setup.settings)
        tasks = on_each(sums, setup.parts, shared(setup.functions))
        statistics = setup.engine.result(brought_together(merged_sums, tasks))
        layout, n_basis = setup.layout, int(setup.layout.bias) + setup.functions.n_basis
        watch = Watch(self, layout, n_basis, has_noise=True)
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
        """Predict targets, with error bars if wanted.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)
            Inputs; chunks may be of unknown size.
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        y_std, healed
            As for `RVR`, and refused here.

        Returns
        -------
        mean : of shape (n,)
            Nothing is computed yet: a Dask array for an array, a series with the index of X for a data frame.
            For rows in memory an ndarray.
        std : of shape (n,)
            Only if ``return_std``; computed together with the mean it costs no second pass.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X has not the columns that ``fit`` saw; when it is computed, if its rows are no finite numbers.
        """
        check_is_fitted(self)
        if check_flag("healed", healed):
            raise ValueError("healed=True needs the training rows, which are not here; fit an RVR in memory")
        self._noise_of(y_std, 0)  # refuses it
        if not is_dask_collection(X):
            return KernelRegression.predict(self, X, bool(return_std))  # type: ignore[call-overload] # a bool
        local = self._nameless()
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
        measured = of_all_rows(self, X, y, sample_weight, Squares(self._nameless()), joined_squares)
        _, _, squares, left = measured
        if squares == 0.0:
            return 1.0 if left == 0.0 else 0.0  # as scikit-learn has it
        return float(1.0 - left / squares)


@with_client
class DaskRVC(OnDask, RVC):
    r"""`RVC` for rows in Dask arrays or data frames.

    The rows stay on the workers during the fit. Each question of the fit goes there as the weights of the
    functions in the model, and comes back as sums over rows, added up on the way (`PyStatistics` says which).
    It is the model that `RVC` makes of all rows with the same centres, to 1e-8, whatever the chunks.

    Parameters
    ----------
    candidates, random_state, client
        As for `DaskRVR`.
    n_jobs : int, optional
        As for `DaskRVR`.
    **arguments
        The other arguments of `RVC`. Refused are ``kernel="precomputed"``, ``optimize_kernel``, an
        ``extra_basis`` that is a transformer still to be fitted, ``scheme="variational"``, and with more than
        two classes ``multi_class="softmax"``.

    Attributes
    ----------
    classes_, active_, alpha_, mu_, sigma_
        As for `RVC`, arrays in memory; likewise all others. Training rows are counted through all partitions.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn; names are those of a data frame.

    Notes
    -----
    Inputs are held twice in the memory of the workers, 16 bytes for each number of X; with a callable as
    kernel or with ``extra_basis`` in place of the second copy all values of the basis functions. A question
    takes some milliseconds for each partition beside the work itself: a few partitions for each thread of the
    workers are better than many. Classes are fitted one after another against the rest.

    A worker that dies takes nothing along: Dask makes its partitions again from the collection, sums are
    added in the order of the partitions, and the result is the same to the last bit.

    See Also
    --------
    sparsebayes.RVC : The same for rows in memory, with all parameters and attributes described.

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
    dask.array<_of_array, shape=(400, 2), dtype=float64, chunksize=(100, 2), chunktype=numpy.ndarray>
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
            Training inputs; partitions may be empty, but not all. Chunks of columns are joined.
        y : dask.array.Array or dask.dataframe.Series, (n_samples,)
            Class labels, in the partitions of X; a partition need not have all of them.
        sample_weight : dask.array.Array or dask.dataframe.Series, (n_samples,), optional
            Weight of each row, in the partitions of X: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError, NumericalError
            As for `DaskRVR.fit`.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"`` or ``"stopped"``.
        OverfitWarning
            If the data determine more parameters than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _held_parts(self, engine: Engine, parts: list[Delayed]) -> list[Delayed]:
        return engine.keep(parts)

    def _learn_from_facts(self, known: Facts) -> None:
        self.classes_ = learn_classes(known.classes)

    def _fit_partitions(self, setup: SetUp) -> list[Any]:
        layout, bias = setup.layout, setup.layout.bias
        if setup.likelihood == "multinomial" or setup.settings.scheme == "variational":
            raise ValueError(
                "DaskRVC fits one logit at a time by its Laplace approximation: give multi_class='ovr' and a "
                "scheme other than 'variational', or use RVC"
            )
        n_basis = int(bias) + setup.functions.n_basis
        labels = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        watch = Watch(self, layout, n_basis, has_noise=False, n_fits=len(labels))
        functions = shared(setup.functions)

        def fit(label: Any) -> Any:
            rows = on_each(one_against_the_rest, setup.parts, functions, bias, label)
            # Let go of at the end, before those of the next class are made.
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
            As of `RVC`, and not computed yet: a Dask array for an array, a series or data frame with the
            index of X for a data frame. For rows in memory an ndarray.
        """
        if not is_dask_collection(X):
            return super().decision_function(X)
        check_is_fitted(self)
        columns = None if len(self.classes_) == 2 else self.classes_
        return lazily(self, X, self._nameless().decision_function, float, columns)

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
            Columns as in ``classes_``, whose names a data frame has; kinds as of ``decision_function``.
        """
        if not is_dask_collection(X):
            return super().predict_proba(X, moderate=moderate)
        check_is_fitted(self)
        probabilities = partial(self._nameless().predict_proba, moderate=moderate)
        return lazily(self, X, probabilities, float, self.classes_)

    def predict(self, X: Any) -> Any:
        """Predict the most probable class.

        Parameters
        ----------
        X : dask.array.Array, dask.dataframe.DataFrame or array-like, (n, n_features)

        Returns
        -------
        of shape (n,)
            Labels out of ``classes_``; kinds as of ``decision_function``.
        """
        if not is_dask_collection(X):
            return super().predict(X)
        check_is_fitted(self)
        return lazily(self, X, self._nameless().predict, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of labels that `predict` gets right, computed on the workers.

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
        weight, hits = of_all_rows(self, X, y, sample_weight, Hits(self._nameless()), added)
        return float(hits / weight)
