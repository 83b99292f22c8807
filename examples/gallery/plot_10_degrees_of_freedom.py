"""Degrees of freedom instead of weights
=====================================

The relevance eigen-vector machines of Kropotov and Vetrov (2007) do not choose *weights* but *directions* in
the space of all weights. The directions are the eigenvectors of the likelihood's curvature at its maximum, in
the order of decreasing curvature.
"""

# %%
# The rows of Tipping's border
# ----------------------------
# Two overlapping classes, each a mixture of two Gaussians (figure 4 of Tipping 2001).

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from sparsebayes import GREVM, LREVM, RVC, VGREVM
from sparsebayes.kernels import Gaussian

CENTRES = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
VARIANCE = 0.03


def draw(n, seed):
    """Return rows and their classes, 0 and 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return CENTRES[y, rng.integers(0, 2, n)] + VARIANCE**0.5 * rng.normal(size=(n, 2)), y


X, y = draw(250, seed=0)
X_test, y_test = draw(5000, seed=1)

# %%
# Which directions stand out
# --------------------------
# ``eigenvalues_`` contains the curvature h of the log likelihood along each direction. The model keeps a
# direction if its coordinate differs from zero by more than a standard deviation of the likelihood, the
# square root of 1 / h; ``alpha_`` is finite there. A large curvature is not enough: the data determine the
# first coordinate well, but its value is close to zero.

grevm, lrevm = GREVM(Gaussian(0.5)).fit(X, y), LREVM(Gaussian(0.5)).fit(X, y)
shown = 25
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, model in zip(axes, (grevm, lrevm), strict=True):
    kept = np.isfinite(model.alpha_)[:shown]
    number, h = np.arange(1, shown + 1), model.eigenvalues_[:shown]
    ax.semilogy(number[kept], h[kept], "o", color="C0", label="kept")
    ax.semilogy(number[~kept], h[~kept], "o", mfc="none", mec="0.5", label="left out")
    name, total = type(model).__name__, len(model.alpha_)
    ax.set(title=f"{name}: {model.n_effective_} of {total} directions", xlabel="direction")
axes[0].set_ylabel("curvature h")
axes[0].legend(fontsize="small")

# %%
# Beside a relevance vector machine
# ---------------------------------
# The degrees of freedom of each model (for `RVC` its weights) and the errors on new rows, for many kernel
# widths. From 0.3 to 0.7 all four models make similar errors. With narrow kernels `RVC` needs fewer degrees
# of freedom and makes fewer errors; with wide kernels the eigen-vector models do. `LREVM` never needs more
# than `GREVM`; `VGREVM` needs most with narrow kernels.


def log_odds(X):
    """Return the true log odds of class 1."""
    squares = np.sum((X[:, np.newaxis, np.newaxis] - CENTRES) ** 2, axis=-1)
    density = np.exp(-0.5 * squares / VARIANCE).sum(axis=-1)
    return np.log(density[:, 1] / density[:, 0])


widths = [0.2, 0.3, 0.5, 0.7, 1.0, 2.0]
fig, axes = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, layout="constrained")
for machine, marker in zip((RVC, GREVM, LREVM, VGREVM), "os^v", strict=True):
    models = [machine(Gaussian(width)).fit(X, y) for width in widths]
    freedom = [len(model.active_) if machine is RVC else model.n_effective_ for model in models]
    axes[0].plot(widths, freedom, marker + "-", label=machine.__name__)
    axes[1].plot(widths, [100 * (1 - model.score(X_test, y_test)) for model in models], marker + "-")
axes[1].axhline(
    100 * np.mean((log_odds(X_test) > 0) != y_test), ls="--", color="0.4", lw=1, label="unavoidable"
)
axes[0].set(ylabel="degrees of freedom", ylim=(0, None))
axes[0].legend(fontsize="small")
axes[1].set(xscale="log", xlabel="width of the Gaussian", ylabel="errors, per cent")
axes[1].set_xticks(widths, [f"{width:g}" for width in widths], minor=False)
axes[1].xaxis.set_minor_locator(NullLocator())
axes[1].legend(fontsize="small")
plt.show()
