"""Regression on columns whose rows are gone, or not all there yet: fits of sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from . import _outputs
from ._arguments import check_settings
from ._basis import ColumnBasis
from ._statistics import SufficientStatistics
from ._validation import check_chunk_targets, check_X
from ._variational import check_variational
from ._watch import Watch

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import Settings


def _is_gaussian(estimator: Streaming) -> bool:
    estimator._check_gaussian("partial_fit")
    return True


class Streaming(ColumnBasis):
    """A regression on the columns of X that can do with sums over rows."""

    if TYPE_CHECKING:
        #: Sums over the rows seen so far; only between calls of `partial_fit`.
        _statistics: SufficientStatistics

    def fit_statistics(self, stats: SufficientStatistics) -> Self:
        """Fit the model to all rows that sums have taken in.

        Parameters
        ----------
        stats : SufficientStatistics
            Sums over rows of the columns of X; they are left as they are. With ``fit_intercept=True`` the
            bias is one function more, whose sums the statistics have without being told.

        Returns
        -------
        self
            With the attributes that ``fit`` publishes, but for ``feature_names_in_``: sums know no names.

        Raises
        ------
        TypeError, ValueError
            If ``stats`` is something else or holds no row of positive weight, or if the likelihood is not
            Gaussian: others need the rows at each step.

        Warns
        -----
        ConvergenceWarning
            If the fit ended short of a certified optimum; ``status_`` says how.

        See Also
        --------
        SufficientStatistics : The sums, and how they are merged.

        Notes
        -----
        Each call fits from nothing, in a time that does not depend on the number of rows. The model is the
        one that ``fit`` makes of the rows, to about 1e-8. `sparsebayes.inspection.certificate` takes it with
        all the rows, in any order.
        """
        self._check_gaussian("fit_statistics")
        if not isinstance(stats, SufficientStatistics):
            raise TypeError(f"stats must be SufficientStatistics, got {type(stats).__name__}")
        self._train_on_sums(partial(self._fit_given, stats))
        return self

    @available_if(_is_gaussian)  # type: ignore[untyped-decorator] # scikit-learn carries no types
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take in more rows and fit the model to all rows so far.

        The first call begins, and so does one after ``fit`` or ``fit_statistics``, which keep no sums to go
        on from. Rows are kept as sums (`SufficientStatistics`), and each call fits anew at once, in a time
        that does not depend on the number of rows before. Chunks in any order give the model of one ``fit``
        to 1e-8. To take in many small chunks and fit once, use `SufficientStatistics` and ``fit_statistics``.
        Not with a Poisson likelihood, which needs all rows at each step.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Values of the basis functions, the same functions in each call.
        y : array-like of shape (n,)
            Targets; one column.
        sample_weight : array-like of shape (n,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none. Some row so far has to count.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            As for ``fit``, and if X has other columns than before. Rows of a call that raises do not count.

        Warns
        -----
        ConvergenceWarning
            If the fit ended short of a certified optimum, as early fits to few rows may.
        """
        self._train_on_sums(partial(self._go_on, X, y, sample_weight))
        return self

    def _train_on_sums(self, train: Callable[[], None]) -> None:
        self._wholly(train)  # which counts this call: `_wholly` names the line two calls further out

    def _train_anew(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        super()._train_anew(X, y, sample_weight)
        self.__dict__.pop("_statistics", None)

    def _fit_given(self, stats: SufficientStatistics) -> None:
        settings = check_settings(self)
        self.n_features_in_ = stats.n_basis
        for name in ("feature_names_in_", "_statistics"):
            self.__dict__.pop(name, None)
        self._fit_sums(stats, settings)

    def _go_on(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        settings = check_settings(self)
        before = getattr(self, "_statistics", None)
        values = check_X(self, X, reset=before is None)
        stats = SufficientStatistics(values.shape[1], n_jobs=self.n_jobs)
        stats._take(values, *check_chunk_targets("y", y, sample_weight, len(values)))
        if before is not None:
            stats.merge(before)
        self._fit_sums(stats, settings)
        self._statistics = stats

    def _fit_sums(self, stats: SufficientStatistics, settings: Settings) -> None:
        """Fit the model of these sums and publish it."""
        layout = self._column_layout(stats.n_basis)
        _outputs.check_single(self, settings)
        check_variational(settings, "gaussian", learning=False)
        n_basis = int(layout.bias) + stats.n_basis
        watch = Watch(type(self).__name__, self.callback, bool(self.verbose), layout, True, 1, n_basis)
        # Others may add rows meanwhile.
        sums = stats._core.snapshot()
        posterior = sums.fit(bias=layout.bias, callback=watch.begin(), **settings.of_one_target())
        watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
        self._publish_fit(settings, "gaussian", sums.n_rows, n_basis, layout, [posterior])
        self._publish_columns()

    def _check_gaussian(self, method: str) -> None:
        if self._check_likelihood() != "gaussian":
            raise ValueError(
                f"{method} needs likelihood='gaussian': with another the sums over rows change with the "
                "weights; use fit"
            )
