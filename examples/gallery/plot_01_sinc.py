r"""The sinc function with linear splines
=====================================

The first picture of Tipping (2001), figure 1: noisy rows of :math:`\sin(x)/x`, a linear spline about each of
them as dictionary, and what is left of it after the fit. A support vector regression is beside it.
"""

# %%
# A hundred rows
# --------------
# The noise has a standard deviation of 0.1, which nobody tells the models.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVR

from sparsebayes import RVR
from sparsebayes.kernels import LinearSpline

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(-10, 10, (100, 1)), axis=0)
y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)

# %%
# Two machines, one kernel
# ------------------------
# The support vector machine has two settings that would have to be cross-validated: C, and the width of the
# tube in which an error costs nothing, here given the true noise. The relevance vector machine has none: it
# finds the noise itself. The spline of the paper is meant for positive inputs, so both see x + 10.

spline = LinearSpline()
rvr = RVR(spline).fit(X + 10, y)
svr = SVR(kernel=spline, C=1.0, epsilon=0.1).fit(X + 10, y)

# %%
# Circles are the rows whose functions the model is made of. The support vector machine keeps every row that is
# on its tube or outside of it, and so more of them the more rows there are; the other keeps as many as the
# shape of the function asks for.

grid = np.linspace(-10, 10, 400)[:, np.newaxis]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, model, kept, name in [
    (axes[0], rvr, rvr.relevance_, "relevance vectors"),
    (axes[1], svr, svr.support_, "support vectors"),
]:
    ax.plot(grid, np.sinc(grid / np.pi), "--", color="0.5", label="sin(x) / x")
    ax.plot(X, y, ".", color="0.5", ms=4, label="rows")
    ax.plot(grid, model.predict(grid + 10), color="C0", label="model")
    ax.plot(X[kept], y[kept], "o", ms=9, mfc="none", mec="C3", label=name)
    ax.set(xlabel="x", title=f"{len(kept)} {name} of 100 rows")
axes[0].set_ylabel("y")
axes[1].legend(fontsize="small")

# %%
# The noise that the relevance vector machine found is in ``noise_variance_``. Its error bars are that noise and
# what is not known of the weights.

mean, std = rvr.predict(grid + 10, return_std=True)
fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color="C0", alpha=0.25, lw=0, label="mean ± 2 sd")
ax.plot(grid, mean, color="C0", label="mean")
ax.plot(X, y, ".", color="0.5", ms=4, label="rows")
ax.set(xlabel="x", ylabel="y", title=f"noise: {rvr.noise_variance_**0.5:.3f} found, 0.100 true")
ax.legend(fontsize="small")
plt.show()
