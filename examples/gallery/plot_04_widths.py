"""Learned widths
==============

A kernel of the wrong width makes a bad model: too narrow a kernel needs many functions, and too wide a kernel
cannot follow the data. ``gamma="learn"`` chooses the width that best predicts rows left out; ``gamma="ard"``
chooses one for each input.
"""

# %%
# What the evidence says about the width
# --------------------------------------
# One fit for each of thirty widths, and its error against the true function.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (120, 1))
y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=120)
grid = np.linspace(-10, 10, 400)[:, np.newaxis]
truth = np.sinc(grid[:, 0] / np.pi)


def error(model):
    """Return the root mean square error against the true function."""
    return np.sqrt(np.mean((model.predict(grid) - truth) ** 2))


widths = np.geomspace(0.3, 12, 30)
with warnings.catch_warnings():
    # Much too narrow or wide functions give convergence warnings.
    warnings.simplefilter("ignore", ConvergenceWarning)
    models = [RVR(Gaussian(width)).fit(X, y) for width in widths]
learned = RVR(gamma="learn").fit(X, y)

# %%
# Too large widths have a much lower evidence. Among narrow widths the evidence hardly differs, although the
# models have more functions and larger errors: the evidence alone overfits. The learned width is the one that
# best predicts rows left out.

fig, axes = plt.subplots(3, 1, figsize=(8, 7.5), sharex=True, layout="constrained")
for ax, measure, label in [
    (axes[0], lambda model: model.log_marginal_likelihood_, "log evidence, nats"),
    (axes[1], error, "error"),
    (axes[2], lambda model: len(model.active_), "functions"),
]:
    ax.semilogx(widths, [measure(model) for model in models], ".-", color="C0", label="width given")
    ax.plot(learned.kernel_.width, measure(learned), "*", ms=14, color="C3", label="width learned")
    ax.set_ylabel(label)
axes[0].legend(fontsize="small")
axes[2].set_xlabel("width of the Gaussian")
plt.show()
