"""Displays of a fit: how the evidence climbed, and which precisions it ended with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ._checks.arguments import check_entries
from ._checks.numbers import real_array
from ._display import Display, fitted
from ._figures import _OBJECTIVES, last_step
from ._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Self


class EvidencePathDisplay(Display):
    """The log evidence against the steps of a fit.

    Made by `from_estimator`; ``plot`` draws it again, on other axes for instance.

    Parameters
    ----------
    path : array-like of shape (n_steps + 1,)
        The log evidence at the start and after each step.
    objective : str, default="log evidence"
        What it is called on the picture.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import RVR
    >>> from sparsebayes.plot import EvidencePathDisplay
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> model = RVR(gamma=0.1).fit(X, np.sinc(X[:, 0] / np.pi) + 0.1 * np.cos(37 * np.arange(100)))
    >>> display = EvidencePathDisplay.from_estimator(model, ax=Figure().subplots())
    >>> bool(display.line_.get_ydata()[-1] == model.log_marginal_likelihood_)
    True
    """

    def __init__(self, path: ArrayLike, *, objective: str = "log evidence") -> None:
        self.path = real_array("path", path)
        self.objective = objective

    @classmethod
    def from_estimator(cls, est: Any, *, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the path of a fitted estimator.

        Parameters
        ----------
        est : fitted estimator of this package, or a pipeline that ends in one
            With ``log_marginal_likelihood_path_``, or `MRVM2`, whose objective is the log joint likelihood.
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            For ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        EvidencePathDisplay

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        NotFittedError
            If ``est`` is not fitted.
        TypeError
            If ``est`` has no such path, as is so of eigen-vector machines.
        """
        est, _ = last_step(est)
        path = next((name for name in _OBJECTIVES if hasattr(est, name)), "log_marginal_likelihood_path_")
        fitted(est, cls.__name__, path, "the log evidence after each step")
        return cls(getattr(est, path), objective=_objective(est, path)).plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        (self.line_,) = ax.plot(np.arange(len(self.path)), self.path, **kwargs)
        ax.set(xlabel="step", ylabel=self.objective)


def _objective(est: Any, path: str) -> str:
    """Return what the fit raised."""
    if getattr(est, "_variational", False):
        return "lower bound on the log evidence"
    priors = (getattr(est, name, (0.0, 0.0)) for name in ("alpha_prior", "noise_prior"))
    if path == "log_marginal_likelihood_path_" and any(tuple(prior) != (0.0, 0.0) for prior in priors):
        return "log posterior of the hyperparameters"
    return _OBJECTIVES[path]


class AlphaSpectrumDisplay(Display):
    r"""The precisions of the weights in order of size, or how well the data determine each weight.

    The latter is :math:`\gamma_j = 1 - \alpha_j \Sigma_{jj}`, between 0 (the prior's word) and 1 (that of the
    data); Tipping (2001), below equation 16.

    Parameters
    ----------
    spectra : sequence of array-likes
        Ascending values of each fit, output or class; a curve for each.
    quantity : {"alpha", "gamma"}, default="alpha"
        What they are.
    names : sequence, optional
        Of the curves.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import RVR
    >>> from sparsebayes.plot import AlphaSpectrumDisplay
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> model = RVR(gamma=0.1).fit(X, np.sinc(X[:, 0] / np.pi) + 0.1 * np.cos(37 * np.arange(100)))
    >>> display = AlphaSpectrumDisplay.from_estimator(model, ax=Figure().subplots())
    >>> len(display.spectra[0]) == len(model.active_)
    True
    """

    def __init__(
        self,
        spectra: Sequence[ArrayLike],
        *,
        quantity: Literal["alpha", "gamma"] = "alpha",
        names: Sequence[Any] | None = None,
    ) -> None:
        entries = check_entries("spectra", spectra, "array-likes")
        self.spectra = [real_array("spectra", spectrum) for spectrum in entries]
        self.quantity = quantity
        self.names = names

    @classmethod
    def from_estimator(
        cls, est: Any, *, quantity: Literal["alpha", "gamma"] = "alpha", ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the spectrum of a fitted estimator.

        Parameters
        ----------
        est : fitted estimator of this package, or a pipeline that ends in one
        quantity : {"alpha", "gamma"}, default="alpha"
            Precisions, those at infinity left out, or how well determined the weights are, for which ``est``
            has to have ``sigma_``.
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            For ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        AlphaSpectrumDisplay

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        NotFittedError
            If ``est`` is not fitted.
        TypeError, ValueError
            If ``est`` has no precisions or no covariance, or ``quantity`` is none of the two.
        """
        if not isinstance(quantity, str) or quantity not in ("alpha", "gamma"):
            raise ValueError(f"quantity must be 'alpha' or 'gamma', got {quantity!r}")
        est, _ = last_step(est)
        fitted(est, cls.__name__, "alpha_", "precisions")
        if quantity == "gamma":
            fitted(est, cls.__name__, "sigma_", "by quantity='gamma' the posterior covariance")
        columns = np.atleast_2d(est.alpha_.T)
        found = [a[np.isfinite(a)] for a in columns] if quantity == "alpha" else _gammas(columns, est.sigma_)
        names = list(getattr(est, "classes_", range(len(found)))) if len(found) > 1 else None
        return cls([np.sort(values) for values in found], quantity=quantity, names=names).plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        self.lines_ = []
        for i, spectrum in enumerate(self.spectra):
            label = {} if self.names is None else {"label": str(self.names[i])}
            steps = np.arange(1, len(spectrum) + 1)
            self.lines_ += ax.plot(steps, spectrum, **{"marker": ".", **label, **kwargs})
        name = "alpha: prior precision" if self.quantity == "alpha" else "gamma: 1 is determined by the data"
        ax.set(yscale="log", xlabel="weights, in order of size", ylabel=name)
        if self.names is not None:
            ax.legend()


def _gammas(alphas: FloatArray, sigma: FloatArray) -> list[FloatArray]:
    """Return gamma of the weights in the model for each of the fits, outputs or classes."""
    used = [np.isfinite(alpha) for alpha in alphas]
    if sigma.ndim == 2 and len(alphas) > 1:
        # A softmax: one covariance of the weights of all classes, class after class.
        variances = np.split(np.diagonal(sigma), np.cumsum([u.sum() for u in used])[:-1])
        return [1.0 - alpha[u] * v for alpha, u, v in zip(alphas, used, variances, strict=True)]
    sigmas = sigma if sigma.ndim == 3 else sigma[np.newaxis]
    if len(alphas) == 1:
        # Several outputs share their precisions, but not their noise.
        alphas, used = np.repeat(alphas, len(sigmas), axis=0), used * len(sigmas)
    return [1.0 - a[u] * np.diagonal(s)[u] for a, u, s in zip(alphas, used, sigmas, strict=True)]
