"""Rows that keep coming
=====================

A regression needs only sums over its rows. With fixed centres, rows can arrive in chunks and be discarded
afterwards; at any time the model is that of all rows so far.
"""

# %%
# Chunks
# ------
# Noisy rows of sin(x) / x, a hundred at a time, and a grid of 60 centres as candidates.

import sys

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import RVR, SparseBayesRegressor, SufficientStatistics
from sparsebayes.kernels import Gaussian

CENTRES = np.linspace(-10, 10, 60)[:, np.newaxis]
kernel = Gaussian(2.0)


def chunks(number, size=100):
    """Yield chunks of rows, one after another."""
    rng = np.random.default_rng(0)
    for _ in range(number):
        X = rng.uniform(-10, 10, (size, 1))
        yield X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=size)


# %%
# One call for each chunk
# -----------------------
# ``partial_fit`` adds the rows and returns the model of all rows so far. The band is two standard deviations
# of the function's uncertainty, without the noise; dots are the rows of the last chunk.

grid = np.linspace(-10, 10, 401)[:, np.newaxis]
truth = np.sinc(grid[:, 0] / np.pi)
model = RVR(kernel, candidates=CENTRES)
rows, errors, doubts = [], [], []
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
drawn = dict(zip((1, 10, 100), axes, strict=True))
for i, (X, y) in enumerate(chunks(100), start=1):
    model.partial_fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    doubt = np.sqrt(std**2 - model.noise_variance_)
    rows.append(100 * i)
    errors.append(np.sqrt(np.mean((mean - truth) ** 2)))
    doubts.append(np.sqrt(np.mean(doubt**2)))
    if i in drawn:
        ax = drawn[i]
        ax.plot(X[:, 0], y, ".", color="0.7", ms=3)
        ax.fill_between(grid[:, 0], mean - 2 * doubt, mean + 2 * doubt, alpha=0.4, lw=0)
        ax.plot(grid, mean, label="model")
        ax.plot(grid, truth, "--", color="0.4", lw=1, label="truth")
        ax.set(title=f"{rows[-1]} rows, {len(model.active_)} functions", xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(fontsize="small", loc="upper right")

# %%
# Sums in several places
# ----------------------
# `SufficientStatistics` holds these sums. Here four objects sum every fourth chunk each, as four processes
# would, and are merged. The model of the total equals a fit of all rows in memory.

parts = [SufficientStatistics(len(CENTRES)) for _ in range(4)]
for i, (X, y) in enumerate(chunks(100)):
    parts[i % 4].update_kernel(X, y, CENTRES, kernel)
total = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
merged = SparseBayesRegressor(fit_intercept=True).fit_statistics(total)

X, y = (np.concatenate(part) for part in zip(*chunks(100), strict=True))
whole = RVR(kernel, candidates=CENTRES).fit(X, y)
columns = kernel(grid, CENTRES)
difference = max(np.ptp([model.predict(grid), whole.predict(grid), merged.predict(columns)], axis=0))

# %%
# The left plot shows the errors, and the model's own uncertainty, which is somewhat smaller. The right plot
# shows the memory: that of the rows grows, that of the sums does not.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].loglog(rows, errors, label="error (RMS)")
axes[0].loglog(rows, doubts, label="standard deviation (RMS)")
axes[0].set(title=f"three ways, predictions alike to {difference:.0e}", ylabel="of the function, noise apart")
axes[1].plot(rows, 16e-3 * np.array(rows), label="rows")
axes[1].axhline(1e-3 * sys.getsizeof(total), color="C1", label="sums")
axes[1].set(ylabel="kB")
for ax in axes:
    ax.set(xlabel="rows seen")
    ax.legend(fontsize="small")
plt.show()
