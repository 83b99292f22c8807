"""Kernel functions about fixed centres, over rows as sums: `RVR.partial_fit`, and `fit` part by part."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._checks.arguments import check_flag, check_n_jobs, learning_argument
from .._checks.targets import Training, naming
from .._data import candidates as _candidates
from .._data.accumulate import Kernels, Summed, check_room
from .._data.chunks import Chunks
from .._data.design import Layout
from .._data.extra_columns import check_extra_basis, columns_at, fitted_extra, is_transformer
from .._data.first_pass import seed_of
from .._data.memory import check_memory_limit
from .._data.out_of_core import Facts
from .._types import FloatArray
from ..kernels import Linear
from ..kernels._resolve import is_precomputed, measures_inputs
from .basis import KernelBasis
from .prediction import KernelRegression
from .sums_fit import OnSums

#: As the core does it: kernels of so many inputs are not stored, nor are designs of more values.
_CHEAP: Final = 8
_STORED: Final = 1 << 26
#: Bytes that a row takes for each function in a model, and how many functions a model may well have.
_ACTIVE_BYTES: Final = 24
_ACTIVE: Final = 100
#: Bytes that a number of the sample takes that centres are chosen from: copies, and copies being made.
_SAMPLE_BYTES: Final = 64


class FixedCentres(KernelBasis):
    """Kernels about centres that are settled before the rows are read, or after a first look at them."""

    def _check_fixed(self, doing: str) -> None:
        """Raise ValueError, naming the remedy, if functions need all rows, which ``doing`` this has not."""
        if is_precomputed(self.kernel):
            raise ValueError(f"kernel='precomputed' has a column for each row and will not do for {doing}")
        if self.candidates is None:
            raise ValueError(
                f"candidates must be an integer or an array for {doing}: with None each row brings a "
                "function of its own; an integer has that many rows chosen"
            )
        if argument := learning_argument(self):
            raise ValueError(
                f"{argument} needs the rows in memory and will not do for {doing}; learn on a "
                "sample, and give its kernel_ as kernel"
            )
        check_extra_basis(self.extra_basis, self.kernel)
        if is_transformer(self.extra_basis):
            raise ValueError(
                f"extra_basis must be None, 'linear' or a callable for {doing}: a transformer is fitted to "
                "all rows; fit it beforehand and give extra_basis=transformer.transform"
            )

    def _usual_bytes(self, X: NDArray[Any]) -> float:
        n, d = X.shape
        n_kernels = len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1
        k = n_kernels * _candidates.number(self.candidates, n)
        copied = 0 if X.dtype == np.float64 and X.flags.c_contiguous else n * d
        stored = n * k if (d > _CHEAP and n * k <= _STORED) else 0
        return float(8 * (copied + n * d + stored) + _ACTIVE_BYTES * n * min(k, _ACTIVE))

    def _wanted(self, n_features: int) -> tuple[int | None, bool]:
        asked = self.candidates
        scale = measures_inputs(self.kernel, self.gamma)
        if not _candidates.is_number(asked):
            return None, scale
        room = check_memory_limit(self.memory_limit) // (_SAMPLE_BYTES * n_features)
        size = _candidates.sample_size(asked)
        return max(_candidates.number(asked, size) + 1, min(size, room)), scale

    def _foresee(self, chunks: Chunks) -> None:
        if chunks.n_rows is not None and _candidates.is_number(self.candidates):
            n, d = _candidates.number(self.candidates, chunks.n_rows), chunks.n_features
            n_kernels = len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1
            # At least as much as their own kernels and centres will take.
            least = Kernels([Linear()] * n_kernels, np.broadcast_to(0.0, (n, d)))
            check_room(least, d, check_memory_limit(self.memory_limit))

    def _sampling_seed(self) -> int:
        with naming("random_state"):
            return seed_of(check_random_state(self.random_state))

    def _chosen(self, sample: Training) -> Facts:
        if len(sample.rows) == 0:
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        _candidates.place(self, sample)
        return {"candidate_rows": self.candidate_rows_, "candidates": self.candidates_}

    def _settle(self, facts: Facts, n_features: int) -> None:
        empty = _stand_in(np.empty((0, n_features)), 0)
        if "candidates" in facts:
            self.candidate_rows_, self.candidates_ = facts["candidate_rows"], facts["candidates"]
        else:
            _candidates.place(self, empty)
        inputs = facts.get("inputs", np.zeros((2, n_features)))
        self.kernel_ = self._as_given(self._resolve(_stand_in(inputs, 2)))
        self.extra_basis_ = fitted_extra(self.extra_basis, self.kernel, empty.X)
        self._n_extra = columns_at(self.extra_basis_, self.candidates_[:1]).shape[1]

    def _layout_of(self, n_samples: int, n_features: int) -> Layout:
        return self._layout(_stand_in(np.empty((0, n_features)), n_samples))

    def _publish_sums(self, n_samples: int) -> None:
        self._publish_basis(_stand_in(np.empty((0, self.n_features_in_)), n_samples))


class KernelSums(FixedCentres, OnSums, KernelRegression):
    """A regression on kernels that can do with sums over rows, if its centres are few and fixed."""

    def _check_sums(self, doing: str) -> None:
        self._check_fixed(doing)
        if check_flag("keep_rows", self.keep_rows):
            raise ValueError(f"keep_rows must be False for {doing}, which keeps no rows")

    def _summed(self, n_features: int) -> Summed:
        layout = self._layout_of(0, n_features)
        centres = _candidates.points(self, _stand_in(np.empty((0, n_features)), 0), layout.kept)
        n_threads = check_n_jobs(self.n_jobs)
        return Kernels(self._kernels(), centres, self.extra_basis_, self._n_extra, n_threads)


def _stand_in(X: FloatArray, n_samples: int) -> Training:
    """Return training data where no more is asked than the number of rows and columns, or what X says."""
    return Training(X, np.zeros(len(X)), None, np.arange(len(X)), n_samples)
