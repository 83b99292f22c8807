"""Regression on columns whose rows are gone, or not all there yet: fits of sums over rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks.arguments import check_settings
from .._data.accumulate import Columns, Summed
from .._data.design import Layout
from .._data.out_of_core import Facts
from .._data.statistics import SufficientStatistics
from .basis import ColumnBasis
from .sums_fit import OnSums

if TYPE_CHECKING:
    from typing_extensions import Self

#: Bytes that a row takes for each function in a model, and how many functions a model may well have.
_ACTIVE_BYTES: Final = 24
_ACTIVE: Final = 100


class WholeColumns(ColumnBasis):
    """The columns of rows that are read part by part."""

    def _usual_bytes(self, X: NDArray[Any]) -> float:
        n, k = X.shape
        copied = 0 if X.dtype == np.float64 and X.flags.c_contiguous else n * k
        return float(8 * (copied + n * k) + _ACTIVE_BYTES * n * min(k, _ACTIVE))

    def _settle(self, facts: Facts, n_features: int) -> None:
        pass  # the columns are there

    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        return self._column_layout(n_features)

    def _publish_sums(self, n_samples: int) -> None:
        self._publish_columns()


class Streaming(WholeColumns, OnSums):
    """A regression on the columns of X that can do with sums over rows."""

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
        ConvergenceWarning, OverfitWarning
            As for ``fit``.

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

    def _fit_given(self, stats: SufficientStatistics) -> None:
        settings = check_settings(self)
        self.n_features_in_ = stats.n_basis
        for name in ("feature_names_in_", "_statistics"):
            self.__dict__.pop(name, None)
        self._fit_sums(stats, settings)

    def _check_sums(self, doing: str) -> None:
        self._check_gaussian(doing)

    def _summed(self, n_features: int) -> Summed:
        return Columns(n_features)

    def _check_gaussian(self, method: str) -> None:
        if self._check_likelihood() != "gaussian":
            raise ValueError(
                f"{method} needs likelihood='gaussian': with another the sums over rows change with the "
                "weights; use fit"
            )
