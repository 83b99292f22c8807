"""What is good and bad about a fitted model, in words, with the fits that would be better."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing

from .. import _core
from .._arrays import about_copies, equal_rows, is_unstored, last_step
from .._checks import counted, is_auto
from .._data.candidates import is_number
from .._estimators.process import landmarks_of_classes
from .._estimators.status import functions_of, number_of_functions
from .._hyper.evidence import draw
from .._types import FloatArray, IntArray, PerRow
from ..classification import Classification, SparseBayesClassifier
from ..kernels import Matern32, Matern52
from ..kernels._base import all_log_parameters, with_all_log_parameters
from ..model_selection import log_densities
from ..regression import Regression, SparseBayesRegressor
from ._certificate import Certificate, certificate

#: Limits of a certificate: of changes of log parameters, and of gains in nats.
_MAX_CHANGE: Final = 1e-3
_MAX_GAIN: Final = 1e-3
#: Share of the rows with a function above which a model may be overfitted.
_MAX_SHARE: Final = 0.5
#: Coverage of 95 % intervals below and above which they are wrong, beyond three standard errors.
_COVERAGE: Final = (0.92, 0.985)
#: Standard deviations of a residual that a Gaussian does not have; the largest share of such rows that can be
#: outliers; and least rows for shares of the rows.
_FAR: Final = 5.0
_MAX_FAR: Final = 0.25
_MIN_ROWS: Final = 60
#: Most inputs by which coverage is compared; and standard errors by which it has to differ between thirds of
#: the rows, by their prediction and by one of several inputs.
_MAX_INPUTS: Final = 5
_ERRORS_OF_PREDICTION, _ERRORS_OF_INPUT = 3.0, 4.0
_MIN_SPAN: Final = 0.05
#: Most rows of other fits, of which there are several, and of an exchange search.
_MAX_ROWS: Final = 1000
#: Nats per row, and standard errors, by which another model has to predict better to be named; and nats of
#: log evidence by which another optimum of the same model has to exceed it.
_BETTER: Final = 0.02
_STANDARD_ERRORS: Final = 2.0
_HIGHER: Final = 1.0


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found; its text by ``str`` or ``print``.

    Attributes
    ----------
    n_rows : int
        Number of rows of the fit.
    certificate : Certificate
        Of the model.
    share_of_rows : float
        Number of functions over number of rows.
    loo_score, loo_coverage : float
        Leave-one-out R^2, D^2 or accuracy; and the share of rows inside their 95 % intervals, NaN of classes.
    coverage_by_prediction : tuple of float
        The same for rows with small, medium and large predictions; empty if there are few rows, several
        outputs or classes.
    alternatives : dict of {str: tuple of float}
        Other fits to the same rows by name: gain in leave-one-out log density, nats per row, and in log
        evidence, nats, NaN for other models.
    rows_of_alternatives : int
        Number of rows of these fits: all, or some if there are more than 1000; 0 without such fits.
    advice : list of str
        What is wrong and what to do; empty if nothing was found.
    """

    title: str
    n_rows: int
    certificate: Certificate
    share_of_rows: float
    loo_score: float
    loo_coverage: float
    coverage_by_prediction: tuple[float, ...]
    alternatives: dict[str, tuple[float, float]]
    rows_of_alternatives: int
    advice: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the text."""
        lines = [self.title, *self._lines()]
        lines += [f"! {one}" for one in self.advice] or ["nothing to complain of"]
        return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        found = self.certificate
        yield (
            f"optimum: another function gains at most {found.max_gain_outside:.2g} nats, precisions change "
            f"by at most {found.max_log_alpha_change:.2g}"
        )
        yield f"functions: {100.0 * self.share_of_rows:.3g} % of the number of rows"
        line = f"leave-one-out: score {self.loo_score:.4g}"
        if not np.isnan(self.loo_coverage):
            line += f", 95 % intervals hold {100.0 * self.loo_coverage:.1f} % of the rows"
        if self.coverage_by_prediction:
            thirds = [f"{100.0 * share:.0f} %" for share in self.coverage_by_prediction]
            line += f" ({', '.join(thirds)} where the prediction is small, medium, large)"
        yield line
        if not self.alternatives:
            yield "other fits: none"
        elif self.rows_of_alternatives < self.n_rows:
            yield (
                f"other fits: to {self.rows_of_alternatives} rows drawn at random, beside the same model "
                "fitted to them; what only more rows would show is not seen"
            )
        for name, (density, evidence) in self.alternatives.items():
            change = "" if np.isnan(evidence) else f", {evidence:+.2f} nats of log evidence"
            yield f"{name}: {density:+.4f} nats per row{change}"


def diagnose(
    est: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: PerRow = None,
    *,
    y_std: PerRow = None,
    exposure: PerRow = None,
) -> Diagnosis:
    """Look for what is wrong with a fitted model, and for fits to the same rows that are better.

    Checks the certificate, the number of functions, the leave-one-out coverage for small, medium and large
    predictions, and residuals that a Gaussian does not have. Fits again with twice and half the kernel
    widths, with learned widths, with learned Matern 5/2 kernels, with linear terms, with the columns of X as
    functions and, up to 1000 rows, with an exchange search. A kernel that predicts rows left out better is
    confirmed on a third of the rows that neither fit sees. This takes the time of some two to five fits with
    learned widths. Of more than 1000 rows, 1000 drawn at random are fitted, with the model as given and with
    the others, so that it takes less than one fit to all rows.

    Parameters
    ----------
    est : fitted estimator
        `RVR`, `RVC`, `SparseBayesRegressor`, `SparseBayesClassifier`, or a pipeline that ends in one.
    X, y, sample_weight, y_std, exposure
        The training data, as for `certificate`.

    Returns
    -------
    Diagnosis

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is not such an estimator, or X, y cannot be its training data.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, inspection
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(2).normal(size=100)
    >>> inspection.diagnose(RVR().fit(X, y), X, y).advice
    []
    """
    est, X = last_step(est, X)
    if not isinstance(est, (Regression, Classification)):
        raise TypeError(
            "est must be a fitted RVR, RVC, SparseBayesRegressor or SparseBayesClassifier, or a pipeline "
            f"that ends in one; got {est!r}"
        )
    given = {"y_std": y_std, "exposure": exposure}
    extra: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    found = certificate(est, X, y, sample_weight, **extra)
    if getattr(est, "_loo", None) is None:
        raise TypeError(
            f"est must have leave-one-out predictions: fit it to rows in memory, not in chunks; got {est!r}"
        )
    scores = est._loo.scores
    n_rows, n_functions, parts = len(est.loo_), number_of_functions(est), functions_of(est)
    with np.errstate(all="ignore"):  # targets near the largest number
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        copies = "" if is_unstored(X) else about_copies(np.asarray(X, dtype=float), np.asarray(y))
        # The others predict copies well that overfit.
        others, n_used = ({}, 0) if copies else _others(est, X, y, weights | extra)
    advice = [est._advice] if est._advice else []
    advice += [f"{copies}."] if copies and copies not in est._advice else []
    advice += _about_optimum(est, found)
    if n_functions > _MAX_SHARE * n_rows and not est._advice and est.__dict__.get("_selection") is None:
        advice.append(
            f"There are {n_functions} {parts} for {n_rows} rows, so the model may be overfitted: "
            "give complexity='bic', or a wider kernel."
        )
    thirds, about_bars = bars(est, X)
    advice += about_bars
    advice += _about_others(others)
    return Diagnosis(
        title=f"{type(est).__name__} on {counted(n_rows, 'row')}: {counted(n_functions, parts[:-1])}",
        n_rows=n_rows,
        certificate=found,
        share_of_rows=found.share_of_rows,
        loo_score=scores.score,
        loo_coverage=float("nan") if found.loo_coverage is None else found.loo_coverage,
        coverage_by_prediction=thirds,
        alternatives={name: gains for name, (gains, _) in others.items()},
        rows_of_alternatives=n_used,
        advice=advice,
    )


def _about_optimum(est: Any, found: Certificate) -> Iterator[str]:
    residual = max(found.max_log_alpha_change, found.log_beta_residual, found.parameter_residual)
    if not est._advice and (residual > _MAX_CHANGE or found.max_gain_outside > _MAX_GAIN):
        yield (
            "The fit is not at an optimum of these data. Check that X and y are the training data; otherwise "
            "raise max_iter or lower tol."
        )


def bars(est: Any, X: Any) -> tuple[tuple[float, ...], list[str]]:
    """Return the coverage for small, medium and large predictions, and sentences about error bars.

    ``X``: the inputs of the training rows.
    """
    loo = est._loo
    # A pickled model has scores only.
    if is_classifier(est) or est.mu_.ndim > 1 or not hasattr(loo, "m") or len(loo.t) < _MIN_ROWS:
        return (), []
    with np.errstate(all="ignore"):  # targets near the largest number
        _, inside, _ = loo._of_numbers()
        far = 0
        if est._likelihood.name == "gaussian":
            mean, std = loo.gaussian()
            far = int(np.sum(np.abs(loo.t.reshape(mean.shape) - mean) / std > _FAR))
        advice = list(_about_coverage(len(loo.t), float(np.mean(inside)), far))
        if number_of_functions(est) == 0:
            return (), advice
        # By the prediction with the row: those without it depend on the target.
        thirds = _by_thirds(loo.m[:, 0], inside)
        parts = list(_about_parts(est, X, thirds, inside))
        # Bars that are too small somewhere are no reason for fewer functions.
        return thirds, parts if parts and far == 0 else [*advice, *parts]


def _by_thirds(values: FloatArray, inside: NDArray[np.bool_]) -> tuple[float, ...]:
    """Return the coverage where values are small, neither small nor large, and large."""
    parts = np.array_split(np.argsort(values, kind="stable"), 3)
    return tuple(float(np.mean(inside[part])) for part in parts)


def _about_parts(est: Any, X: Any, thirds: tuple[float, ...], inside: NDArray[np.bool_]) -> Iterator[str]:
    """Yield a sentence about the prediction or the input that divides rows with good bars from others."""
    found = [("the prediction", thirds, _ERRORS_OF_PREDICTION)]
    if not is_unstored(X) and len(np.asarray(X)) == len(inside):
        table, names = np.asarray(X, dtype=float), list(getattr(est, "feature_names_in_", ()))
        for key in list(getattr(est, "inputs_", ()))[:_MAX_INPUTS]:  # the most important first
            j = names.index(key) if isinstance(key, str) else key
            # Names may have been given after the fit.
            name = repr(names[j]) if names and j is key else f"input {key}"
            found.append((name, _by_thirds(table[:, j], inside), _ERRORS_OF_INPUT))
    error = np.sqrt(2.0 * 0.95 * 0.05 * 3.0 / len(inside))
    uneven = [
        (max(shares) - min(shares), name, shares)
        for name, shares, n_errors in found
        if max(shares) - min(shares) > max(n_errors * error, _MIN_SPAN)
    ]
    if not uneven:
        return
    _, name, shares = max(uneven)
    low = int(np.argmin(shares))
    where = ("small", "neither small nor large", "large")[low]
    yield (
        f"Error bars do not fit everywhere: 95 % intervals hold {100.0 * shares[low]:.0f} % of the rows "
        f"where {name} is {where}, and up to {100.0 * max(shares):.0f} % elsewhere. {_about_noise(est)}."
    )


def _about_noise(est: Any) -> str:
    """Return what is wrong with the noise where error bars do not fit everywhere, and the remedies."""
    likelihood, t = est._likelihood.name, est._loo.t
    if likelihood == "poisson":
        return "Counts vary more than those of a Poisson distribution: give likelihood='negative_binomial'"
    if likelihood != "gaussian" or getattr(est, "noise_basis", None) is not None:
        return "The noise depends on the inputs: transform y, or give another likelihood"
    remedies = ["give noise_basis='linear'"]
    remedies += ["fit log(y)", "give likelihood='gamma'"] if t.min() > 0.0 else []
    counts = t.min() >= 0.0 and (t == np.round(t)).all()
    remedies += ["give likelihood='poisson' if y counts events"] if counts else []
    return f"The noise depends on the inputs: {', or '.join(remedies)}"


def _about_coverage(n_rows: int, coverage: float, n_far: int) -> Iterator[str]:
    def wrong(share: float, n: float) -> float:
        """Return by how much a share is beyond a limit and three standard errors, with its sign."""
        error = 3.0 * np.sqrt(0.95 * 0.05 / n)
        low, high = _COVERAGE
        return float(min(0.0, share - low + error) or max(0.0, share - high - error))

    if n_far > _MAX_FAR * n_rows:
        yield (
            f"The noise is underestimated: {n_far} of {n_rows} rows left out differ from their prediction by "
            f"more than {_FAR:g} standard deviations. Leave noise_variance out, or give a wider kernel."
        )
    elif n_far > 0:
        yield (
            f"In {counted(n_far, 'row')} the target is more than {_FAR:g} standard deviations from its "
            "prediction: check such rows, or give likelihood='student_t'."
        )
    elif wrong(coverage, n_rows):
        size = "small" if wrong(coverage, n_rows) < 0.0 else "large"
        yield (
            f"Error bars are too {size}: 95 % intervals hold {100.0 * coverage:.0f} % of the rows left out. "
            "Fewer or wider functions may help (complexity='bic')."
        )


def _others(est: Any, X: Any, y: Any, extra: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the other fits by name, see `_alternatives`, and the number of their rows."""
    n = len(est.loo_)
    if n <= _MAX_ROWS or getattr(est, "kernel", "precomputed") == "precomputed":
        found = dict(_alternatives(est, X, y, extra, exchanges=n <= _MAX_ROWS))
        return found, n if found else 0
    rows = draw(n, _MAX_ROWS)
    base, part = _unfitted(est), {key: np.broadcast_to(value, (n,))[rows] for key, value in extra.items()}
    if is_number(getattr(base, "candidates", None)):
        base.candidates = min(base.candidates, _MAX_ROWS)
    X, y = _safe_indexing(X, rows), np.asarray(y)[rows]  # names of columns stay
    if not _has_fit(base, X, y, part):  # for instance, rare classes have no row
        return {}, 0
    found = {
        name: (gains, text and f"{text[:-1]} (found with {_MAX_ROWS} of the rows).")
        for name, (gains, text) in _alternatives(base, X, y, part, exchanges=False)
    }
    return found, _MAX_ROWS if found else 0


def _alternatives(
    est: Any, X: Any, y: Any, extra: dict[str, Any], *, exchanges: bool
) -> Iterator[tuple[str, tuple[tuple[float, float], str]]]:
    """Yield the name of each other fit, with its gains, and a sentence if it is better."""
    kernels = est._kernels() if hasattr(est, "kernel_") and est.kernel != "precomputed" else []
    base = est.loo_.reshape(len(est.loo_), -1).sum(axis=1)
    # The target of a row that repeats another is known from that.
    number = np.arange(len(base)) if is_unstored(X) else equal_rows(np.asarray(X, dtype=float))[1]
    repeats = number.max() + 1 < len(base)
    for name, other, remedy in _variants(est, kernels, exchanges=exchanges):
        if not _has_fit(other, X, y, extra):
            continue
        gain = other.loo_.reshape(len(base), -1).sum(axis=1) - base
        gain = gain[np.isfinite(gain)]
        density = float(gain.mean()) if len(gain) else float("nan")
        evidence, text = float("nan"), ""
        if getattr(other, "search", "") != getattr(est, "search", ""):
            evidence = other.log_marginal_likelihood_ - est.log_marginal_likelihood_
            if evidence > _HIGHER and gain.sum() > _HIGHER:
                text = f"The log evidence is {evidence:.1f} nats higher with {remedy}."
        elif _is_better(gain):
            # Widths and functions were chosen with these rows. A gain above that of two parameters for each
            # function (Akaike 1974) suffices, and less is confirmed with other rows.
            by_choice = (2.0 * number_of_functions(other) + est.n_features_in_) / len(gain)
            if density < by_choice + _BETTER or repeats:
                gain = _gains_apart(est, other, X, y, extra, number)
            if _is_better(gain):
                text = f"Rows left out are predicted better, by {gain.mean():.3f} nats each, with {remedy}."
        yield name, ((density, evidence), text)


def _has_fit(model: Any, X: Any, y: Any, extra: dict[str, Any]) -> bool:
    """Fit a model without warnings; tell whether it can be fitted to these rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y, **extra)
        except (ValueError, _core.NumericalError):
            return False
    return True


def _about_others(others: dict[str, tuple[tuple[float, float], str]]) -> Iterator[str]:
    """Yield the sentences about a better kernel, of several as good the simplest, and about a search."""
    texts = {name: text for name, ((_, evidence), text) in others.items() if text and np.isnan(evidence)}
    most = max((others[name][0][0] for name in texts), default=0.0)
    best = [name for name in texts if others[name][0][0] >= most - _BETTER]
    # Learned widths are better than others that have to be given.
    yield from [texts[name] for name in sorted(best, key=lambda name: name.endswith("the widths"))[:1]]
    yield from (text for name, (_, text) in others.items() if text and name not in texts)


def _unfitted(est: Any) -> Any:
    """Return an unfitted copy that reports no progress, and has as many landmarks."""
    quiet = {"callback": None, "verbose": 0}
    if hasattr(est, "landmarks") and est.__dict__.get("_selection") is not None:
        n_classes = len(est.classes_) if is_classifier(est) else 0
        quiet["landmarks"] = landmarks_of_classes(n_classes) if n_classes > 0 else len(est.relevance_)
    twin = clone(est).set_params(**{key: v for key, v in quiet.items() if key in est.get_params()})
    vars(twin).pop("_skl_callbacks", None)
    return twin


def _is_better(gain: FloatArray) -> bool:
    error = gain.std() / np.sqrt(max(len(gain), 1))
    return bool(len(gain) > 0 and gain.mean() > max(_BETTER, _STANDARD_ERRORS * error))


def _gains_apart(est: Any, other: Any, X: Any, y: Any, extra: dict[str, Any], number: IntArray) -> FloatArray:
    """Return the gains in log density of a third of the rows, left out of fits of both models.

    ``number``: of the set of rows that each row is left out with.
    """
    if "y_std" in extra:
        return np.zeros(0)  # densities of rows with other errors
    n, X, y = len(est.loo_), np.asarray(X), np.asarray(y)
    order = np.random.default_rng(0).permutation(number.max() + 1)
    is_out = np.isin(number, order[: len(order) // 3])
    rest, part = np.flatnonzero(~is_out), np.flatnonzero(is_out)
    per_row = {key: np.broadcast_to(np.asarray(value, float), (n,)) for key, value in extra.items()}
    exposure = {"exposure": per_row["exposure"][part]} if "exposure" in per_row else {}
    densities = []
    for model in (est, other):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitted = _unfitted(model)
                fitted.fit(X[rest], y[rest], **{key: v[rest] for key, v in per_row.items()})
                densities.append(log_densities(fitted, X[part], y[part], **exposure))
            except (ValueError, TypeError, _core.NumericalError):
                return np.zeros(0)
    gain: FloatArray = (densities[1] - densities[0]).reshape(len(part), -1).sum(axis=1)
    return gain[np.isfinite(gain)]


def _on_columns(est: Any) -> Any:
    """Return an unfitted model whose functions are the columns of X, with the same settings."""
    other = SparseBayesClassifier() if is_classifier(est) else SparseBayesRegressor()
    given, own = _unfitted(est).get_params(), other.get_params()
    return other.set_params(**{key: given[key] for key in own if key in given})


def _variants(est: Any, kernels: list[Any], *, exchanges: bool) -> Iterator[tuple[str, Any, str]]:
    """Yield a name, another unfitted estimator, and its name in an advice."""

    def changed(**changes: Any) -> Any:
        return _unfitted(est).set_params(**changes)

    powers = np.concatenate([np.zeros(0), *(kernel._length_powers() for kernel in kernels)])
    if powers.any():
        theta: FloatArray = all_log_parameters(kernels)
        fixed: dict[str, Any] = {"optimize_kernel": False}
        if is_auto(getattr(est, "extra_basis", None)):
            fixed["extra_basis"] = est.extra_basis_
        if "landmarks" in est.get_params() and est.__dict__.get("_selection") is None:
            fixed["landmarks"] = None
        for name, factor in (("twice the widths", 2.0), ("half the widths", 0.5)):
            scaled = with_all_log_parameters(kernels, theta + np.log(factor) * powers)
            kernel = scaled if isinstance(est.kernel_, list) else scaled[0]
            yield name, changed(kernel=kernel, **fixed), f"{name} of the kernel ({kernel!r})"
        if isinstance(est.kernel, str) and est.gamma != "ard":
            yield "learned widths", changed(kernel="rbf", gamma="ard"), "gamma='ard', learned widths"
        if isinstance(est.kernel, str) and not isinstance(est.kernel_, (Matern32, Matern52)):
            remedy = "kernel='matern52', for functions that are less smooth"
            yield "a Matern 5/2 kernel", changed(kernel="matern52", gamma="ard"), remedy
        if getattr(est, "extra_basis_", "") is None:
            remedy = "extra_basis='linear', linear terms besides the kernel"
            yield "linear terms", changed(extra_basis="linear"), remedy
    elif isinstance(getattr(est, "kernel", None), str) and est.kernel != "precomputed":
        yield (
            "learned widths",
            changed(kernel="rbf", gamma="ard"),
            "kernel='rbf' and gamma='ard', learned widths",
        )
    if kernels:
        other = _on_columns(est)
        yield "the columns of X", other, f"{type(other).__name__}, whose functions are the columns of X"
    can_search = exchanges and est.mu_.ndim == 1
    if getattr(est, "search", "") == "greedy" and can_search and est.status_ != "stopped":
        yield "an exchange search", changed(search="exchange"), "search='exchange'"
