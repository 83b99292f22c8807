"""Error bars far from the data
============================

The kernel functions of a relevance vector machine vanish far from their centres, and the uncertainty of their
weights with them. Away from the data the plain error bars are therefore only the noise (Tipping 2001,
appendix D). With ``std="full"``, the default, they grow there, by the variance of a Gaussian process with the same
kernel, given its values at the relevance vectors and at most 100 training rows.
"""

# %%
# Rows with a gap
# ---------------
# Noisy rows of the sinc function, with none between 0.5 and 5.5, and none beyond 8 on either side.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian
from sparsebayes.plot import PredictiveBandDisplay

NOISE = 0.1
REGIONS = {"among the data": (-8.0, 0.5), "in the gap": (0.5, 5.5), "beyond": (8.0, 11.0)}


def sinc(X):
    """Return sin(x) / x."""
    return np.sinc(X[:, 0] / np.pi)


def draw(n, seed):
    """Return noisy rows, none of them in the gap."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-8, 3, n)
    X = np.where(x > 0.5, x + 5, x)[:, np.newaxis]
    return X, sinc(X) + NOISE * rng.normal(size=n)


X, y = draw(100, seed=0)
models = {std: RVR(Gaussian(1.5), std=std).fit(X, y) for std in ("plain", "full")}

# %%
# Both error bars agree among the data. In the gap and beyond the data the plain error bars are hardly more
# than the noise, and the true function lies outside of them. The full error bars grow to the size of the
# function. The predictions are the same.

grid = np.linspace(-12, 12, 481)[:, np.newaxis]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, (std, model) in zip(axes, models.items(), strict=True):
    PredictiveBandDisplay.from_estimator(model, X, y, margin=0.25, ax=ax)
    ax.plot(grid, sinc(grid), "--", color="0.4", lw=1, label="truth")
    ax.set(title=std, ylim=(-1.0, 1.6))
    ax.get_legend().remove()
axes[0].set_ylabel("y")
axes[1].set_ylabel("")
axes[1].legend(loc="upper right", fontsize="small")

# %%
# Beside a Gaussian process
# -------------------------
# A Gaussian process with the same kernel, and with fitted amplitude and noise, does not have this problem.
# Full error bars are similar to its error bars: equally small among the data, of similar size far away, but
# different in between.

kernel = ConstantKernel(0.3) * RBF(1.5 / 2**0.5, "fixed") + WhiteKernel(0.01)
process = GaussianProcessRegressor(kernel).fit(X, y)
fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
for label, (_, std) in {
    **{std: model.predict(grid, return_std=True) for std, model in models.items()},
    "Gaussian process": process.predict(grid, return_std=True),
}.items():
    ax.plot(grid, std, "--" if label == "Gaussian process" else "-", label=label)
ax.plot(X[:, 0], np.zeros(100), "|", color="0.5", label="rows")
ax.set(xlabel="x", ylabel="standard deviation", ylim=(-0.02, None))
ax.legend(fontsize="small", loc="center", bbox_to_anchor=(0.36, 0.6))

# %%
# Are they right?
# ---------------
# The share of new observations within two standard deviations, over forty draws of such rows. It should be
# 95.4 per cent.

inside = {"plain": [], "full": []}
for seed in range(40):
    data = draw(100, seed)
    rng = np.random.default_rng(1000 + seed)
    for kind, found in inside.items():
        rvr = RVR(Gaussian(1.5), std=kind).fit(*data)
        shares = []
        for low, high in REGIONS.values():
            rows = np.linspace(low, high, 100)[:, np.newaxis]
            mean, std = rvr.predict(rows, return_std=True)
            shares.append(np.mean(abs(sinc(rows) + NOISE * rng.normal(size=100) - mean) < 2 * std))
        found.append(shares)

fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for shift, (kind, found) in zip((-0.2, 0.2), inside.items(), strict=True):
    bars = ax.bar(np.arange(3) + shift, 100 * np.mean(found, axis=0), width=0.38, label=kind)
    ax.bar_label(bars, fmt="%.0f")
ax.axhline(95.4, ls="--", color="0.4", lw=1)
ax.set(xticks=range(3), xticklabels=REGIONS, ylabel="within two sd, per cent", ylim=(0, 115))
ax.legend(fontsize="small", loc="lower left", framealpha=1.0)
plt.show()
