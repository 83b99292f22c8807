"""A description of a fitted model that all exports share, and model files, which hold it.

The basis functions are, in order, a constant, columns of x, and kernels about centres. Each output has a
linear predictor of some of them, eta_c = sum_j w_cj phi_j(x). A link turns the linear predictors into means
or probabilities; covariances of the weights give error bars.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .. import _core
from .._estimators.posterior import growths, variance_factor
from .._types import FloatArray, IntArray, Link
from ..kernels import Kernel, OnColumns
from ..kernels._base import Combination
from ..kernels._resolve import is_precomputed
from ..predictor import Predictor

#: Which covariances there are: see `ServedModel`.
Uncertainty: TypeAlias = Literal["none", "shared", "each", "joint", "directions"]


@dataclass(frozen=True)
class Constant:
    """The function that is 1 everywhere."""

    size: ClassVar[int] = 1


@dataclass(frozen=True)
class Columns:
    """Columns of x, at non-negative positions, each minus its offset."""

    columns: IntArray
    offsets: FloatArray

    @property
    def size(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class Centres:
    """A kernel about points, k(x, z_j), with points of shape (size, n_features).

    The core evaluates the kernel. `OnColumns`, with non-negative positions, wraps only elementary kernels.
    """

    kernel: Kernel
    points: FloatArray

    @property
    def size(self) -> int:
        return len(self.points)


Block: TypeAlias = Constant | Columns | Centres


class Output(NamedTuple):
    """A linear predictor, eta = weights . phi[functions], with ascending indices into all functions."""

    functions: IntArray
    weights: FloatArray


class Growth(NamedTuple):
    """The prior of a kernel given its values at centres: v (k(x, x) - |L^-1 k(Z, x)|^2) for each output."""

    centres: Centres
    #: L, lower triangular.
    factor: FloatArray
    #: v of each output.
    scale: FloatArray


@dataclass(frozen=True)
class ServedModel:
    """A fitted model, independent of its estimator.

    Links, for the linear predictors eta of a row and their variances v, 0 without covariances:

    * ``"identity"``: the mean is eta, its variance noise_variance + v.
    * ``"log"``: a count; the mean is exp(eta), its variance exp(eta + v/2) + (e^v - 1 + d e^v) exp(2 eta +
      v), d = noise_variance the dispersion.
    * ``"log_continuous"``: a positive number; without the first term of that variance.
    * ``"logistic"``: z = eta / sqrt(1 + pi v / 8). One output: the two classes have the
      probabilities sigma(-z), sigma(z); several: the softmax of z.
    * ``"softmax"``: p_c proportional to 1 / sum_d exp(-k_cd (eta_c - eta_d)), k_cd = (1 + pi v_cd / 8)^(-1/2)
      with v_cd the variance of that difference.
    * ``"probit"``: P(c) = E_u prod_{d != c} Phi(u + eta_c - eta_d), u standard normal.

    Covariances: ``"shared"``: one matrix for the weights of every output; ``"each"``: one for each output;
    ``"joint"``: one for the concatenated weights of all outputs; ``"directions"``: D, (functions, p), with
    v = |D^T phi|^2 of one output; ``"none"``. Growths add to the variances of a regression.
    """

    #: Name of the estimator's class.
    estimator: str
    n_features: int
    feature_names: list[str] | None
    #: Labels of the classes, sorted; None for regression.
    classes: NDArray[Any] | None
    #: Whether y was one-dimensional, and so are predictions.
    flat: bool
    blocks: list[Block]
    outputs: list[Output]
    link: Link
    uncertainty: Uncertainty = "none"
    covariances: list[FloatArray] = field(default_factory=list)
    #: One variance for all outputs, or one for each, or with a log link the dispersion; None without.
    noise_variance: FloatArray | None = None
    #: Number of nodes of the probit's quadrature; None: chosen from the number of classes.
    n_quadrature: int | None = None
    growths: list[Growth] = field(default_factory=list)

    @property
    def n_functions(self) -> int:
        return sum(block.size for block in self.blocks)

    def has_all_functions(self, output: Output) -> bool:
        return np.array_equal(output.functions, np.arange(self.n_functions))


def roots(model: ServedModel) -> list[FloatArray]:
    """Return R, upper triangular, with R^T R the covariance, for each covariance of the model."""
    if model.uncertainty != "directions":
        return [_root(covariance) for covariance in model.covariances]
    # A row of zeros if there are no directions.
    return [np.linalg.qr(D.T if D.size else np.zeros((1, len(D))))[1] for D in model.covariances]


def _root(covariance: FloatArray) -> FloatArray:
    # By the correlations, because weights have very different scales.
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    inverse = 1.0 / np.where(scale > 0.0, scale, 1.0)
    correlation = covariance * inverse[:, np.newaxis] * inverse
    try:
        root = np.asarray(np.linalg.cholesky(correlation).T, dtype=np.float64)
    except np.linalg.LinAlgError:  # semidefinite to rounding
        values, vectors = np.linalg.eigh(correlation)
        root = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T)[1]
    return root * scale


def describe(est: Any) -> ServedModel:
    """Return the description of a fitted estimator; ValueError if only Python can evaluate its functions."""
    est = est.to_local() if hasattr(est, "to_local") else est  # on Dask
    if isinstance(est, type) or not hasattr(est, "to_predictor"):
        raise TypeError(f"est must be a fitted estimator of sparsebayes, got {type(est).__name__}")
    check_is_fitted(est)
    if hasattr(est, "noise_model_"):
        raise ValueError(
            "a model with noise_basis cannot be exported or saved as a model file, whose noise is the same "
            "everywhere. To keep these error bars use pickle or joblib instead; or fit with "
            "noise_basis=None, whose error bars are those of a typical row"
        )
    return _describe_posterior(est) if hasattr(est, "_basis") else _describe_dense(est)


def _common(est: Any) -> dict[str, Any]:
    names = getattr(est, "feature_names_in_", None)
    return {
        "estimator": type(est).__name__,
        "n_features": int(est.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": getattr(est, "classes_", None),
    }


def _describe_posterior(est: Any) -> ServedModel:
    blocks = _blocks_of_basis(est)
    mu = np.atleast_2d(est.mu_.T).T
    alpha = np.broadcast_to(np.atleast_2d(est.alpha_.T).T, mu.shape)
    used = [np.flatnonzero(np.isfinite(column)) for column in alpha.T]
    factor = variance_factor(est)
    covariances, uncertainty = [factor[0] * est.sigma_], "shared"
    if est._likelihood.name == "multinomial":
        uncertainty = "joint"  # class by class
    elif getattr(est._likelihood, "at_mode", False):
        covariances, uncertainty = [], "none"
    elif est.sigma_.ndim == 3:
        factors = np.broadcast_to(factor, len(used))
        covariances = [
            f * sigma[np.ix_(at, at)] for f, sigma, at in zip(factors, est.sigma_, used, strict=True)
        ]
        uncertainty = "each"
    noise = getattr(est, "noise_variance_", getattr(est, "dispersion_", None))
    if (freedom := getattr(est, "degrees_of_freedom_", None)) is not None:
        noise = noise * freedom / (freedom - 2.0)  # the variance of Student's t
    elif noise is not None and est._y_variance is not None:
        noise = noise * est._y_variance  # the variance of a typical row
    return ServedModel(
        **_common(est),
        flat=est.mu_.ndim == 1,
        blocks=blocks,
        outputs=[Output(at, mu[at, c]) for c, at in enumerate(used)],
        link=est._likelihood.link,
        uncertainty=cast(Uncertainty, uncertainty),
        covariances=covariances,
        noise_variance=None if noise is None else factor * np.asarray(noise, dtype=np.float64),
        growths=[Growth(_centres(g.kernel, g.centres), g.factor, factor * g.scale) for g in growths(est)],
    )


def _describe_dense(est: Any) -> ServedModel:
    """Describe a model whose outputs have all functions."""
    blocks: list[Block] = [Constant()] if est.fit_intercept else []
    weights = [est._bias[:, np.newaxis]] if est.fit_intercept else []
    if is_precomputed(est.kernel_):
        blocks += _columns(est.relevance_)
        weights.append(est.dual_coef_)
    elif hasattr(est, "eigenvalues_"):
        blocks += [_centres(kernel, est.relevance_vectors_) for kernel in est._kernels()]
        weights.append(est.dual_coef_)
    else:
        for kernel, b in zip(est._kernels(), est.kernel_weights_, strict=True):
            if b > 0.0 and len(est.relevance_) > 0:
                blocks.append(_centres(kernel, est.relevance_vectors_))
                weights.append(b * est.dual_coef_)
    rows = np.hstack([np.empty((len(est._bias), 0)), *weights])
    outputs = [Output(np.arange(len(row)), row) for row in rows]
    model = partial(ServedModel, **_common(est), flat=True, blocks=blocks, outputs=outputs)
    if hasattr(est, "kernel_weights_"):
        return model(link="probit", n_quadrature=est.n_quadrature)
    if est._labels:
        return model(link="logistic")
    covariances, noise = [est._directions * np.sqrt(est._variances)], np.array([est.noise_variance_])
    return model(link="identity", uncertainty="directions", covariances=covariances, noise_variance=noise)


def _blocks_of_basis(est: Any) -> list[Block]:
    blocks: list[Block] = [Constant()] if np.any(est.active_ < 0) else []
    basis = est._basis
    extra = basis.column_of(est.active_)
    if np.any(extra >= 0) and not isinstance(basis.extra, str):
        raise ValueError(
            "extra_basis can be exported only where it is 'linear': a callable or a transformer is evaluated "
            "by Python. Compute the columns yourself and use SparseBayesRegressor or SparseBayesClassifier"
        )
    kernels = (est.active_ >= 0) & (extra < 0)
    if basis.precomputed:
        blocks += _columns(est.relevance_)
    elif basis.kernels:
        block, row = np.divmod(est.active_[kernels], basis.size)
        for p, kernel in enumerate(est._kernels()):
            at = np.searchsorted(est.relevance_, row[block == p])
            if len(at) > 0:
                blocks.append(_centres(kernel, est.relevance_vectors_[at]))
    return blocks + _columns(extra[extra >= 0], basis.offset)


def _columns(columns: IntArray, offset: FloatArray | None = None) -> list[Block]:
    if len(columns) == 0:
        return []
    return [Columns(columns.astype(np.int64), np.zeros(len(columns)) if offset is None else offset[columns])]


def _centres(kernel: Kernel, points: FloatArray) -> Centres:
    return Centres(flatten(kernel, np.arange(points.shape[1])), np.ascontiguousarray(points))


def flatten(kernel: Kernel, columns: IntArray, *, whole: bool = True) -> Kernel:
    """Return the kernel on these columns of x, with `OnColumns` moved inside sums and products.

    ``whole``: ``columns`` are all columns, in order.
    """
    if isinstance(kernel, OnColumns):
        return flatten(kernel.inner(), columns[kernel.positions(len(columns))], whole=False)
    if isinstance(kernel, Combination):
        return kernel._of_members(flatten(part, columns, whole=whole) for part in kernel._members)
    if not kernel._is_in_core():
        raise ValueError(
            f"kernel {kernel!r} cannot be exported: it is evaluated by Python. Use the kernels of "
            "sparsebayes.kernels, their sums and products"
        )
    return kernel if whole else OnColumns(kernel, tuple(columns.tolist()))


# --- model files --------------------------------------------------------------------------------------

#: Versions of the format, of models without growths and with; the core reads both.
_FORMAT_VERSION, _FORMAT_VERSION_WITH_GROWTHS = 1, 2


def with_offset(model: ServedModel, name: str) -> ServedModel:
    """Return a model of one output with another input, of this name, added to its linear predictor."""
    d, m = model.n_features, model.n_functions
    own, (output,) = np.arange(d), model.outputs
    blocks = [_padded(block, own) if isinstance(block, Centres) else block for block in model.blocks]
    return replace(
        model,
        n_features=d + 1,
        feature_names=[*(model.feature_names or map(str, own)), name],
        blocks=[*blocks, Columns(np.array([d]), np.zeros(1))],
        outputs=[Output(np.append(output.functions, m), np.append(output.weights, 1.0))],
        covariances=[np.pad(covariance, (0, 1)) for covariance in model.covariances],
        growths=[growth._replace(centres=_padded(growth.centres, own)) for growth in model.growths],
    )


def _padded(block: Centres, own: IntArray) -> Centres:
    """Return kernels that depend on the features ``own`` alone, of rows with one more."""
    return Centres(flatten(block.kernel, own, whole=False), np.pad(block.points, ((0, 0), (0, 1))))


def to_predictor(est: Any, offset: str | None = None) -> Predictor:
    """Return a fitted estimator as a `Predictor`; ``offset``: as for `with_offset`."""
    model = describe(est)
    model = model if offset is None else with_offset(model, offset)
    names = ("estimator", "n_features", "feature_names", "flat", "link", "uncertainty", "n_quadrature")
    header = {name: getattr(model, name) for name in names} | {
        "format_version": _FORMAT_VERSION_WITH_GROWTHS if model.growths else _FORMAT_VERSION,
        "library_version": _core.__version__,
        "classes": None if model.classes is None else _labels(model.classes),
        "blocks": [_block(block) for block in model.blocks],
        "outputs": [
            None if model.has_all_functions(output) else output.functions.tolist() for output in model.outputs
        ],
    }
    if model.growths:
        header["growths"] = [growth.centres.kernel._header() for growth in model.growths]
    tables = {f"points.{b}": x.points for b, x in enumerate(model.blocks) if isinstance(x, Centres)}
    tables |= {f"weights.{c}": output.weights for c, output in enumerate(model.outputs)}
    tables |= {f"covariance.{i}": matrix for i, matrix in enumerate(model.covariances)}
    for g, (centres, factor, scale) in enumerate(model.growths):
        tables |= {f"landmarks.{g}": centres.points, f"scale.{g}": scale}
        tables[f"factor.{g}"] = factor[np.tril_indices(len(factor))]
    if model.noise_variance is not None:
        tables["noise_variance"] = model.noise_variance
    tables = {name: np.ascontiguousarray(table, dtype=np.float64) for name, table in tables.items()}
    return Predictor(_core.Predictor.from_parts(json.dumps(header), tables))


def _block(block: Block) -> Any:
    if isinstance(block, Constant):
        return "constant"
    if isinstance(block, Columns):
        columns = block.columns.tolist()
        if not block.offsets.any():
            return {"columns": columns}
        return {"centred_columns": {"columns": columns, "offsets": block.offsets.tolist()}}
    return {"centres": block.kernel._header()}


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Return labels as JSON types, and the name of their dtype."""
    if classes.dtype.char == "g" and np.array_equal(doubles := classes.astype(np.float64), classes):
        classes = doubles  # long doubles differ between computers
    kind = classes.dtype.kind
    if kind in "Mm":
        values = classes.view(np.int64).tolist()
    elif (kind in "biufU" and classes.dtype.char != "g") or (
        kind == "O" and all(isinstance(v, (str, bool, int, float)) for v in classes)
    ):
        values = classes.tolist()
    else:
        raise ValueError(
            f"y has labels of type {classes.dtype}, which a model file cannot hold; fit with strings "
            "or numbers"
        )
    return {"dtype": classes.dtype.str, "values": values}


# --- NumPy formulas that write code, applied to numbers of a C function or an ONNX graph ----------------


class Traced(NDArrayOperatorsMixin):
    """A number of code under construction; arithmetic and functions of NumPy append to the code."""

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        if function is np.power:
            return _power(*inputs)
        return self._apply(function.__name__, inputs)

    def _apply(self, function: str, inputs: tuple[Any, ...]) -> Any:
        """Append a function of NumPy, by its name there, and return its result."""
        raise NotImplementedError


def _power(base: Traced, exponent: int) -> Traced:
    """Return a positive integer power by squaring: on some devices pow() of a negative base is NaN."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    square: Traced = half * half
    return square * base if exponent % 2 else square
