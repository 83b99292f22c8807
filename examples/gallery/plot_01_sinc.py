r"""The sinc function with linear splines
=====================================

Figure 1 of Tipping (2001): noisy rows of :math:`\sin(x)/x`. The candidate functions are linear splines, one
about each row, and the fit keeps a few of them. A support vector regression is shown beside it.
"""

# %%
# A hundred rows
# --------------
# The noise has a standard deviation of 0.1. The models do not know this value.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVR

from sparsebayes import RVR
from sparsebayes.kernels import LinearSpline

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(-10, 10, (100, 1)), axis=0)
y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)

# %%
# Two models, one kernel
# ----------------------
# The support vector machine has two settings that need cross-validation: C, and the width of the tube inside
# which errors cost nothing, here set to the true noise. The relevance vector machine has none, and estimates
# the noise. The spline of the paper is meant for positive inputs, so both models get x + 10.

spline = LinearSpline()
rvr = RVR(spline).fit(X + 10, y)
svr = SVR(kernel=spline, C=1.0, epsilon=0.1).fit(X + 10, y)

# %%
# Circles are the rows that each model keeps. The support vector machine keeps every row on its tube or
# outside of it, so their number grows with the rows. The number of relevance vectors depends on the shape of
# the function instead.

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
# ``noise_variance_`` contains the estimated noise. The error bars include this noise and the uncertainty of
# the weights.

mean, std = rvr.predict(grid + 10, return_std=True)
fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color="C0", alpha=0.25, lw=0, label="mean ± 2 sd")
ax.plot(grid, mean, color="C0", label="mean")
ax.plot(X, y, ".", color="0.5", ms=4, label="rows")
ax.set(xlabel="x", ylabel="y", title=f"noise: {rvr.noise_variance_**0.5:.3f} found, 0.100 true")
ax.legend(fontsize="small")
plt.show()
