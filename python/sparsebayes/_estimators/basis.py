"""The two kinds of basis: kernels centred at the candidates, and the columns of X."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._checks.arguments import check_flag, check_n_jobs, learning_argument
from .._checks.numbers import column_means
from .._checks.targets import Training, check_sizes, check_square, check_X, distinct_rows
from .._data import candidates as _candidates
from .._data.chunks import Chunks
from .._data.design import (
    DenseDesign,
    Design,
    KernelDesign,
    Layout,
    centre,
    centring,
    check_extra_basis,
    columns_at,
    evaluate,
    fitted_extra,
    is_transformer,
)
from .._data.out_of_core import Facts
from .._data.statistics import Columns, Kernels, Summed, check_memory_limit, check_room
from .._hyper import LearningData, check_learnable, check_model, learn
from .._types import Candidates, ExtraBasis, FloatArray, IntArray, KernelSpec, Settings
from ..kernels import Kernel, Linear
from ..kernels._base import column_stds
from ..kernels._resolve import is_precomputed, measures_inputs, resolve
from ..kernels._stationary import Radial
from .base import Fits, SparseBayesEstimator, Trainable
from .status import MAX_CONSTANT_FUNCTIONS

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(kw_only=True, repr=False, eq=False)
class KernelEstimator(Trainable):
    """An estimator with the arguments ``kernel``, ``gamma``, ``degree`` and ``coef0``."""

    #: Whether gamma may be "learn" or "ard".
    _learns_kernels: ClassVar[bool] = False

    kernel: KernelSpec = field(default="rbf", kw_only=False)
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    # After a fit.
    kernel_: Kernel | list[Kernel] | str = field(init=False)
    relevance_: IntArray = field(init=False)
    relevance_vectors_: FloatArray = field(init=False)
    dual_coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a kernel object: ``kernel__width``.

        Parameters
        ----------
        **params
            New values by name.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        kernel = params.get("kernel", self.kernel)
        inner = [name for name in params if name.startswith("kernel__")]
        if inner and not isinstance(kernel, Kernel):
            raise ValueError(
                f"{inner[0]!r} is a parameter of a kernel object, such as kernels.Gaussian(1.0), and kernel "
                f"is {kernel!r}; give an object, or set gamma. Of a list set kernel as a whole"
            )
        super().set_params(**params)
        return self

    def _resolve(self, training: Training) -> list[Kernel]:
        """Return the kernels with every parameter known."""
        centred = check_flag("fit_intercept", self.fit_intercept)
        return resolve(
            self.kernel,
            X=training.X,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            sample_weight=training.counts,
            feature_names=getattr(self, "feature_names_in_", None),
            middle=partial(self._middle, training) if centred else None,
            learns=self._learns_kernels,
        )

    def _publish_kernels(self, training: Training) -> list[Kernel]:
        """Publish ``kernel_``, and return the kernels; none if X holds kernel values."""
        if is_precomputed(self.kernel):
            check_square(training)
            self.kernel_ = "precomputed"
            return []
        kernels = self._resolve(training)
        self.kernel_ = self._as_given(kernels)
        return kernels

    def _middle(self, training: Training) -> FloatArray:
        """Return the mean of the centres, which linear kernels subtract if there is an intercept.

        So a constant added to a column of X, and of the centres, does not change the model.
        """
        centres: FloatArray | None = getattr(self, "candidates_", None)
        if centres is None:
            centres = training.at(distinct_rows(training))
        return column_means(centres, None)

    def _as_given(self, kernels: list[Kernel]) -> Kernel | list[Kernel]:
        """Return the kernels in the form of ``kernel_``: a list if ``kernel`` is one."""
        return kernels if isinstance(self.kernel, (list, tuple)) else kernels[0]

    def _n_kernels(self) -> int:
        return len(self.kernel) if isinstance(self.kernel, (list, tuple)) else 1

    def _kernels(self) -> list[Kernel]:
        return self.kernel_ if isinstance(self.kernel_, list) else [self.kernel_]  # type: ignore[list-item] # no string here

    def _at_relevance(self, kernel: Kernel, X: FloatArray) -> FloatArray:
        """Return a kernel between these rows and the relevance vectors, (n, n_relevance)."""
        if is_precomputed(kernel):
            return X[:, self.relevance_]
        return evaluate(kernel, X, self.relevance_vectors_, check_n_jobs(self.n_jobs))

    def _dense_blocks(self, training: Training, layout: Layout) -> list[FloatArray]:
        """Return the functions of each kernel at the training rows, evaluated in NumPy alone."""
        if is_precomputed(self.kernel_):
            return [training.X[:, layout.kept]]
        centres = _candidates.points(self, training, layout.kept)
        return [kernel(training.X, centres) for kernel in self._kernels()]

    def _publish_linear(self, bias: FloatArray) -> None:
        """Publish ``intercept_`` and, for a linear kernel, ``coef_``."""
        self.intercept_ = bias
        self.__dict__.pop("coef_", None)  # left by an earlier fit with another kernel
        if isinstance(self.kernel_, Linear):
            self.coef_ = self.dual_coef_ @ self.kernel_.centred(self.relevance_vectors_)
            if self.kernel_.offset is not None:
                self.intercept_ = bias - self.coef_ @ np.asarray(self.kernel_.offset)


#: The rules of the core: kernels of at most so many inputs are not stored, nor are designs of more values.
_MAX_UNSTORED_FEATURES: Final = 8
_MAX_STORED_VALUES: Final = 1 << 26
#: Bytes of a row for each function in a model, and the number of functions to expect.
_ACTIVE_BYTES: Final = 24
_TYPICAL_ACTIVE: Final = 100
#: Bytes per number of the sample that centres are chosen from, with its copies.
_SAMPLE_BYTES: Final = 64
#: Learned kernels that are tried, best first, until a fit converges.
_MAX_KERNELS_TRIED: Final = 3


@dataclass(kw_only=True, repr=False, eq=False)
class KernelBasis(KernelEstimator, SparseBayesEstimator):
    """One function per kernel and candidate, k(., z_m), after a bias and before any extra columns."""

    _learns_kernels = True

    optimize_kernel: bool = False
    extra_basis: ExtraBasis = None
    candidates: Candidates = None
    random_state: int | np.random.RandomState | None = None

    # After a fit.
    _n_extra: int = field(init=False)
    _extra_offset: FloatArray = field(init=False)

    def _layout(self, training: Training) -> Layout:
        size, kept = _candidates.block_size(self, training), _candidates.in_use(self, training)
        return Layout(check_flag("fit_intercept", self.fit_intercept), size, kept, self._n_kernels())

    def _design(self, training: Training) -> Design:
        extra = self._fit_extra(training)
        if kernels := self._publish_kernels(training):
            return self._kernel_design(kernels, training, extra)
        layout = self._layout(training)
        return DenseDesign([training.X[:, layout.kept], extra], layout)

    def _kernel_design(self, kernels: list[Kernel], training: Training, extra: FloatArray) -> Design:
        """Return the dictionary of these kernels before the extra columns, and publish the kernels."""
        layout, X = self._layout(training), training.X
        self.kernel_ = self._as_given(kernels)
        # X may be passed without a copy: the core and callables copy it.
        centres = X if layout.kept is training.rows else _candidates.points(self, training, layout.kept)
        cores = [core for kernel in kernels if (core := kernel.to_core()) is not None]
        if len(cores) == len(kernels):
            # The checkpoint belongs to a single fit; the fits that learn a kernel are short.
            owner = None if learning_argument(self) else self
            return KernelDesign(X, centres, cores, layout, extra, owner)
        n_threads = check_n_jobs(self.n_jobs)
        blocks = [evaluate(kernel, X, centres, n_threads) for kernel in kernels]
        return DenseDesign([*blocks, extra], layout)

    def _infer(self, training: Training, targets: list[FloatArray], settings: Settings) -> Fits:
        _candidates.place(self, training)
        argument = learning_argument(self)
        if not argument:
            return super()._infer(training, targets, settings)
        check_model(argument, self.kernel, training.y, self._check_likelihood(), settings)
        kernels, extra = self._resolve(training), self._fit_extra(training)
        check_learnable(kernels)
        data = self._learning_data(training, extra, targets, settings)
        fits = []
        for learned in learn(kernels, data, settings)[:_MAX_KERNELS_TRIED]:
            design = self._kernel_design(learned, training, extra)
            posteriors = self._fit_design(design, training, targets, settings)
            fits.append((learned, posteriors))
            if all(one.status in ("converged", "stopped") for one in posteriors):
                break
        else:
            learned, posteriors = fits[0]
            design = self._kernel_design(learned, training, extra)
        return design, posteriors

    def _learning_data(
        self, training: Training, extra: FloatArray, targets: list[FloatArray], settings: Settings
    ) -> LearningData:
        layout, X = self._layout(training), training.X
        given = _candidates.are_given(self)
        return LearningData(
            X=X,
            centres=_candidates.points(self, training, layout.kept),
            fixed=np.hstack([np.ones((len(X), int(layout.bias))), extra]),
            n_before=int(layout.bias),
            centre_rows=None if given else np.searchsorted(training.rows, layout.kept),
            targets=targets,
            weights=np.ones(len(X)) if training.weights is None else training.weights,
            likelihood=self._check_likelihood(),
            noise_variance=settings.noise_variance,
        )

    def _dense(self, training: Training) -> FloatArray:
        layout = self._layout(training)
        blocks = self._dense_blocks(training, layout)
        return DenseDesign([*blocks, self._training_extra(training)], layout).Phi

    def _fit_extra(self, training: Training) -> FloatArray:
        """Return the extra columns at the training rows, N x p; publishes ``extra_basis_``."""
        self.extra_basis_ = fitted_extra(self.extra_basis, self.kernel, training.X)
        columns = columns_at(self.extra_basis_, training.X)
        self._n_extra = columns.shape[1]
        bias = check_flag("fit_intercept", self.fit_intercept)
        self._extra_offset = centring(columns, training.weights, bias=bias)
        return centre(columns.copy(), self._extra_offset)

    def _training_extra(self, training: Training) -> FloatArray:
        """Return the extra columns of the fitted model at the training rows, N x p."""
        columns = columns_at(self.extra_basis_, training.X)
        return centre(columns.copy(), self._extra_offset)

    def _n_columns(self) -> int:
        return self._n_extra

    def _publish_offset(self, offset: FloatArray) -> None:
        self._extra_offset = offset

    def _active_extra(self) -> IntArray:
        """Return the extra column of each active function; negative for kernels and the bias."""
        return self.active_ - len(self._kernels()) * self._block_size

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        if self.extra_basis_ is not None or len(self.relevance_) > MAX_CONSTANT_FUNCTIONS:
            return None
        columns = self.active_ >= 0
        phi = self._functions(X, np.empty((len(X), 0)))
        return phi[:, columns] @ self._output_weights()[:, columns].T

    def _publish_basis(self, training: Training) -> None:
        self._block_size = _candidates.block_size(self, training)
        columns = self._active_extra()
        kernels = (self.active_ >= 0) & (columns < 0)
        functions = self.active_[kernels] % self._block_size
        # A row may have functions of several kernels.
        self.relevance_: IntArray = (np.unique if isinstance(self.kernel_, list) else np.sort)(functions)
        weights = self._output_weights()
        for name in ("relevance_vectors_", "dual_coef_", "extra_coef_", "inputs_"):
            self.__dict__.pop(name, None)  # left by an earlier fit with another kernel
        if not is_precomputed(self.kernel_):
            self.relevance_vectors_ = _candidates.points(self, training, self.relevance_)
        if not isinstance(self.kernel_, list):
            self.dual_coef_ = weights[:, kernels]
        self._publish_linear(self._bias_weights())
        if isinstance(self.kernel_, Radial) and isinstance(self.kernel_.width, tuple) and len(training.X):
            self.inputs_ = self._input_relevances(training, self.kernel_)
        if self.extra_basis_ is not None:
            self.extra_coef_ = np.zeros((len(weights), self._n_extra))
            self.extra_coef_[:, columns[columns >= 0]] = weights[:, columns >= 0]
            self.intercept_ = self.intercept_ - self.extra_coef_ @ self._extra_offset

    def _input_relevances(self, training: Training, kernel: Radial) -> dict[str | int, float]:
        """Return how much the prediction changes with each input, the most important first.

        The root mean square over rows and outputs of the slope of the kernel functions,
        df/dx_d = 2 sum_m w_m k'(v) (x_d - c_md) / width_d^2, times the standard deviation of the input,
        relative to the largest.
        """
        X, centres = training.X, self.relevance_vectors_
        slopes = kernel._profile(kernel._squares(X, centres))[1]
        square = np.zeros(X.shape[1])
        for weights in self.dual_coef_:
            values = slopes * weights
            slope = values.sum(axis=1, keepdims=True) * X - values @ centres
            square += np.average(slope**2, axis=0, weights=training.weights)
        size = np.sqrt(square) * column_stds(X, training.weights) / np.square(kernel.width)
        size /= size.max() or 1.0
        names = getattr(self, "feature_names_in_", range(X.shape[1]))
        order = np.argsort(-size, kind="stable")
        return {names[d] if isinstance(names[d], str) else int(names[d]): float(size[d]) for d in order}

    def _rows(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        values = check_X(self, X, reset=False)
        return values, columns_at(self.extra_basis_, values, self._n_extra) - self._extra_offset

    def _functions(self, X: FloatArray, extra: FloatArray) -> FloatArray:
        phi, columns = np.ones((len(X), len(self.active_))), self._active_extra()
        phi[:, columns >= 0] = extra[:, columns[columns >= 0]]
        if is_precomputed(self.kernel_):
            phi[:, (self.active_ >= 0) & (columns < 0)] = X[:, self.relevance_]
            return phi
        block, row = np.divmod(self.active_, self._block_size)
        for p, kernel in enumerate(self._kernels()):
            columns = np.flatnonzero(block == p)
            if len(columns) > 0:
                centres = self.relevance_vectors_[np.searchsorted(self.relevance_, row[columns])]
                phi[:, columns] = evaluate(kernel, X, centres, check_n_jobs(self.n_jobs))
        return phi

    def _check_fixed(self, doing: str) -> None:
        """Raise ValueError, naming the remedy, if the functions depend on all rows, for ``doing`` this."""
        if is_precomputed(self.kernel):
            raise ValueError(
                f"kernel='precomputed' has a column for each row and is not possible for {doing}"
            )
        if self.candidates is None:
            raise ValueError(
                f"candidates must be an integer or an array for {doing}: with None each row adds a function; "
                "an integer chooses that many rows"
            )
        if argument := learning_argument(self):
            raise ValueError(
                f"{argument} needs the rows in memory and is not possible for {doing}; learn on a "
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
        k = self._n_kernels() * _candidates.number(self.candidates, n)
        stored = n * k if (d > _MAX_UNSTORED_FEATURES and n * k <= _MAX_STORED_VALUES) else 0
        return _bytes_of_fit(X, n * d + stored, k)

    def _first_pass_needs(self, n_features: int) -> tuple[int | None, bool]:
        asked = self.candidates
        scale = measures_inputs(self.kernel, self.gamma)
        if not _candidates.is_number(asked):
            return None, scale
        room = check_memory_limit(self.memory_limit) // (_SAMPLE_BYTES * n_features)
        size = _candidates.sample_size(asked)
        return max(_candidates.number(asked, size) + 1, min(size, room)), scale

    def _check_memory(self, chunks: Chunks) -> None:
        if chunks.n_rows is not None and _candidates.is_number(self.candidates):
            n, d = _candidates.number(self.candidates, chunks.n_rows), chunks.n_features
            # A lower bound of the memory of the actual kernels and centres.
            smallest = Kernels([Linear()] * self._n_kernels(), np.broadcast_to(0.0, (n, d)))
            check_room(smallest, d, check_memory_limit(self.memory_limit))

    def _choose_centres(self, sample: Training) -> Facts:
        _candidates.place(self, sample)
        return {"candidate_rows": self.candidate_rows_, "candidates": self.candidates_}

    def _publish_functions(self, facts: Facts) -> None:
        empty = no_rows(self.n_features_in_)
        if "candidates" in facts:
            self.candidate_rows_, self.candidates_ = facts["candidate_rows"], facts["candidates"]
        else:
            _candidates.place(self, empty)
        inputs = facts.get("inputs", np.zeros((2, self.n_features_in_)))
        rows = Training(inputs, np.zeros(2), None, np.arange(2), 2)
        self.kernel_ = self._as_given(self._resolve(rows))
        self.extra_basis_ = fitted_extra(self.extra_basis, self.kernel, empty.X)
        self._n_extra = columns_at(self.extra_basis_, self.candidates_[:1]).shape[1]

    def _summed(self) -> Summed:
        rows = no_rows(self.n_features_in_)
        centres = _candidates.points(self, rows, self._layout(rows).kept)
        n_threads = check_n_jobs(self.n_jobs)
        return Kernels(self._kernels(), centres, self.extra_basis_, self._n_extra, n_threads)


class ColumnBasis(SparseBayesEstimator):
    """The columns of X, after a bias if there is one."""

    _core_reads_X = True

    if TYPE_CHECKING:
        n_features_in_: int
        X_offset_: FloatArray

    def _layout(self, training: Training) -> Layout:
        n_features = training.X.shape[1]
        return Layout(check_flag("fit_intercept", self.fit_intercept), n_features, np.arange(n_features))

    def _design(self, training: Training) -> DenseDesign:
        layout = self._layout(training)
        check_sizes(training.X)
        self.X_offset_ = centring(training.X, training.weights, bias=layout.bias)
        return DenseDesign([training.X], layout, self.X_offset_ if layout.bias else None)

    def _dense(self, training: Training) -> FloatArray:
        layout = self._layout(training)
        return DenseDesign([training.X], layout, self.X_offset_ if layout.bias else None).Phi

    def _infer(self, training: Training, targets: list[FloatArray], settings: Settings) -> Fits:
        try:
            return super()._infer(training, targets, settings)
        except ValueError as error:
            failure = error
        try:
            # If X is not finite, raise the error that says so instead.
            check_X(self, training.X, reset=False)
            raise failure
        finally:
            del failure  # it refers to this frame, and so to X

    def _n_columns(self) -> int:
        return self.n_features_in_

    def _publish_offset(self, offset: FloatArray) -> None:
        self.X_offset_ = offset

    def _publish_basis(self, training: Training) -> None:
        functions = self.active_ >= 0
        coef = np.zeros((len(self._output_weights()), self.n_features_in_))
        coef[:, self.active_[functions]] = self._output_weights()[:, functions]
        self.coef_ = coef if self._labels or self.mu_.ndim == 2 else coef[0]
        self.intercept_ = self._bias_weights() - coef @ self.X_offset_

    def _functions(self, X: FloatArray, extra: FloatArray) -> FloatArray:
        phi = np.ones((len(X), len(self.active_)))
        columns = self.active_[self.active_ >= 0]
        phi[:, self.active_ >= 0] = X[:, columns] - self.X_offset_[columns]
        return phi

    def _usual_bytes(self, X: NDArray[Any]) -> float:
        return _bytes_of_fit(X, X.size, X.shape[1])

    def _publish_functions(self, facts: Facts) -> None:
        pass  # the columns are given

    def _summed(self) -> Summed:
        return Columns(self.n_features_in_)


def _bytes_of_fit(X: NDArray[Any], n_values: int, n_basis: int) -> float:
    """Return the memory of a fit that stores ``n_values`` and, unless it is used as it is, a copy of X."""
    copied = 0 if X.dtype == np.float64 and X.flags.c_contiguous else X.size
    return float(8 * (copied + n_values) + _ACTIVE_BYTES * len(X) * min(n_basis, _TYPICAL_ACTIVE))


def no_rows(n_features: int, n_samples: int = 0) -> Training:
    """Return training data without rows, for functions that need only the shape of the data."""
    X = np.empty((0, n_features))
    return Training(X, np.empty(0), None, np.arange(0), n_samples)
