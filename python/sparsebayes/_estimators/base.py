"""The base class of all estimators: fits as a whole or not at all, warnings, parameters, and files."""

from __future__ import annotations

import os
import warnings
from abc import ABC
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._checks import check_n_jobs
from .._data.basis import output_weights
from .._export.description import to_predictor
from .._progress import CallbackSupportMixin, begin_fit, end_fit, release_callbacks
from .._row_likelihoods import DISPERSED
from .._types import FloatArray, IntArray
from ..kernels import Kernel
from ..kernels._resolve import is_precomputed
from ..predictor import Predictor
from .posterior import Growth
from .status import SUMMARISED, Summary, is_constant, is_empty, is_saturated, summary_of, warning_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


@cache
def _documentation() -> str:
    """Return the address of the documentation in the metadata of the installed package, "" without one."""
    try:
        urls = metadata("sparsebayes").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    addresses: dict[str, str] = dict(url.split(", ", 1) for url in urls)
    return addresses.get("Documentation", "").rstrip("/")


class atomic:  # a context manager
    """A fit: if it raises, the estimator keeps its previous attributes; at its end it may warn.

    The warning names the line that called the function with the ``with`` statement. The callbacks of
    scikit-learn are given the arguments of ``fit``, if y has the targets, and not the name of their column.
    """

    def __init__(self, est: Estimator, X: Any = None, y: Any = None, **metadata: Any) -> None:
        self._est, self._before = est, est.__dict__.copy()
        given = {name: value for name, value in metadata.items() if value is not None}
        self._data = {} if y is None or isinstance(y, str) else {"X": X, "y": y, "metadata": given or None}

    def __enter__(self) -> None:
        """Begin the fit."""
        try:
            begin_fit(self._est, self._data)
        except BaseException:
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the attributes, or issue the warning."""
        if kind is not None:
            self._restore()
            return
        try:
            warning = self._end()
        except BaseException:
            self._restore()
            raise
        release_callbacks(self._est)
        if warning:
            category, text = warning
            warnings.warn(text, category, stacklevel=3)

    def _restore(self) -> None:
        try:
            release_callbacks(self._est)
        finally:
            self._est.__dict__.clear()
            self._est.__dict__.update(self._before)

    def _end(self) -> tuple[type[Warning], str] | None:
        """Publish what is known at the end, and return the warning."""
        est = self._est
        summary = est.__dict__.pop("_row_summary")
        if summary.X is None:
            summary = replace(summary, X=getattr(est, "candidates_", None))
        if est.status_ == "converged" and (is_empty(est) or is_constant(est, summary)):
            est.status_ = "empty"
        est._is_saturated, est._n_rows, est._advice = is_saturated(summary), summary.n_rows, ""
        est._given = {name: value for name, value in vars(est).items() if name in SUMMARISED}
        if warning := warning_of(est, summary):
            est._advice = warning[1]
        end_fit(est, self._data)
        return warning


@dataclass(kw_only=True, repr=False, eq=False)
class Estimator(BaseEstimator, ABC, CallbackSupportMixin):  # type: ignore[misc] # scikit-learn carries no types
    """An estimator of this package.

    The fields of the classes of an estimator are the arguments of its constructor, except those that a fit
    sets.
    """

    fit_intercept: bool = True
    n_jobs: int | None = None
    verbose: int = 0

    #: Whether y holds class labels.
    _labels: ClassVar[bool]
    #: For the link in scikit-learn's diagram; and the module that the reference has the estimator in.
    _doc_link_module: ClassVar[str] = "sparsebayes"
    _public_module: ClassVar[str] = "sparsebayes"

    # After a fit; each class documents those that it has.
    n_features_in_: int = field(init=False)
    classes_: NDArray[Any] = field(init=False)
    active_: IntArray = field(init=False)
    alpha_: FloatArray = field(init=False)
    mu_: FloatArray = field(init=False)
    sigma_: Any = field(init=False)
    beta_: Any = field(init=False)
    noise_variance_: Any = field(init=False)
    intercept_: FloatArray = field(init=False)
    coef_: FloatArray = field(init=False)
    kernel_: Any = field(init=False)
    relevance_: IntArray = field(init=False)
    relevance_vectors_: FloatArray = field(init=False)
    dual_coef_: FloatArray = field(init=False)
    log_marginal_likelihood_: float = field(init=False)
    log_marginal_likelihood_path_: FloatArray = field(init=False)
    n_iter_: int = field(init=False)
    status_: str = field(init=False)
    _is_saturated: bool = field(init=False)
    #: Rows of positive weight, if known, and the text of the warning.
    _n_rows: int | None = field(init=False)
    _advice: str = field(init=False)
    #: Arguments of the constructor as they were in the fit.
    _given: dict[str, Any] = field(init=False)
    _basis: Any = field(init=False)
    #: What error bars grow by; None for plain ones.
    _growths: list[Growth] | None = field(init=False)
    _variance_factor: FloatArray = field(init=False)
    _likelihood: Any = field(init=False)
    #: Noise variance of a row of weight 1 in units of ``noise_variance_``: the harmonic mean of squares of
    #: ``y_std``. None: the fit had no ``y_std``.
    _y_variance: float | None = field(init=False)
    #: Whether the fit had exposures.
    _has_exposure: bool = field(init=False)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has finished."""
        return hasattr(self, "status_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # These need all columns at once.
        dense = {"variational", "softmax"} & {getattr(self, "scheme", ""), getattr(self, "multi_class", "")}
        needs_rows = getattr(self, "likelihood", "gaussian") in ("student_t", *DISPERSED)
        needs_rows |= any(getattr(self, name, None) is not None for name in ("groups", "noise_basis"))
        tags.input_tags.sparse = not (hasattr(self, "kernel") or dense or needs_rows)
        tags.input_tags.pairwise = is_precomputed(getattr(self, "kernel", None))
        return tags

    def __dask_tokenize__(self) -> Any:
        # Dask takes the fields of a dataclass for its whole state.
        return type(self), self.__getstate__()

    def __repr__(self, N_CHAR_MAX: int = 100_000) -> str:
        """Return the whole constructor call; scikit-learn would truncate long kernels."""
        return str(super().__repr__(N_CHAR_MAX=N_CHAR_MAX))

    @property
    def _doc_link_template(self) -> str:
        """Address of the estimator's page for scikit-learn, "" if the package names no documentation."""
        site = _documentation()
        return f"{site}/generated/{self._public_module}.{{estimator_name}}.html" if site else ""

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a kernel object: ``kernel__width``.

        Parameters
        ----------
        **params
            New values by name; ValueError if there is no such parameter.

        Returns
        -------
        self
        """
        kernel = params.get("kernel", getattr(self, "kernel", None))
        inner = [name for name in params if name.startswith("kernel__")]
        if inner and kernel is not None and not isinstance(kernel, Kernel):
            raise ValueError(
                f"{inner[0]!r} is a parameter of a kernel object, such as kernels.Gaussian(1.0), and kernel "
                f"is {kernel!r}; give an object, or set gamma. Of a list set kernel as a whole"
            )
        super().set_params(**params)
        return self

    def summary(self) -> Summary:
        """Return what the model is and how good it is, on one screen: a text, and in notebooks a table.

        Returns
        -------
        Summary
            Prints the number of functions, the shares of the classes, leave-one-out predictions (see
            ``loo_``) beside those of the shares alone, the relevance of inputs, the noise, the log evidence,
            the status of the fit, and its advice if it warned.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        """
        return summary_of(self)

    def to_predictor(self) -> Predictor:
        """Return the fitted model without the estimator, for services.

        Returns
        -------
        Predictor
            Makes the same predictions in microseconds, and needs neither scikit-learn nor SciPy.

        Raises
        ------
        NotFittedError, ValueError
            Before ``fit``, and if predictions use functions that only Python can evaluate: a callable kernel,
            or an ``extra_basis`` other than "linear"; or of a model with ``noise_basis``.
        """
        return to_predictor(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `sparsebayes.load` reads, completely or not at all.

        Parameters
        ----------
        path : str or path-like
            The format is safetensors, whatever the name; ``.safetensors`` is customary.

        Raises
        ------
        NotFittedError, ValueError
            As for ``to_predictor``.
        TypeError, ValueError, OSError
            If ``path`` is not a path that can be written; an existing file is then unchanged.
        """
        self.to_predictor().save(path)

    def _kernels(self) -> list[Kernel]:
        """Return the fitted kernels."""
        kernel: Any = self.kernel_
        return kernel if isinstance(kernel, list) else [kernel]

    def _linear_predictor(self, X: FloatArray) -> FloatArray:
        """Return the mean of the linear predictor at checked rows of X, (n, n_outputs)."""
        phi: FloatArray = self._basis.functions(self.active_, X, check_n_jobs(self.n_jobs))
        return phi @ output_weights(self).T
