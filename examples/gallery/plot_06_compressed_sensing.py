"""Compressed sensing
==================

A signal of 512 samples is zero except for twenty spikes, and only about a hundred random combinations of its
samples are measured. The measurement matrix is the design matrix of a sparse Bayesian regression, and its
weights are the signal; no kernel is needed. The problem and its numbers are from Ji, Xue and Carin (2008).
"""

# %%
# Fewer measurements than samples
# -------------------------------
# Each measurement is the product of the signal with a random direction, plus noise of 0.005. With more
# columns than rows, some set of columns explains the measurements without any noise, so an estimated noise
# could end at its floor. The noise of an instrument is usually known, so all methods below get it: the
# regression as ``noise_variance``.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Lasso, OrthogonalMatchingPursuit

from sparsebayes import SparseBayesRegressor

N_SAMPLES, N_SPIKES, NOISE = 512, 20, 0.005


def measure(n, seed, *, equal):
    """Return n random directions, the measurements, and the signal, with equal spikes if asked."""
    rng = np.random.default_rng(seed)
    signal = np.zeros(N_SAMPLES)
    at = rng.choice(N_SAMPLES, N_SPIKES, replace=False)
    signal[at] = rng.choice([-1.0, 1.0], N_SPIKES) if equal else rng.normal(size=N_SPIKES)
    Phi = rng.normal(size=(n, N_SAMPLES))
    Phi /= np.linalg.norm(Phi, axis=1, keepdims=True)
    return Phi, Phi @ signal + NOISE * rng.normal(size=n), signal


def methods(n):
    """Return three regressions that know the noise of n measurements."""
    column = np.sqrt(n / N_SAMPLES)  # about the norm of a column
    threshold = (
        NOISE * column * np.sqrt(2 * np.log(N_SAMPLES))
    )  # expected largest product of a column with the noise
    return {
        "SparseBayesRegressor": SparseBayesRegressor(noise_variance=NOISE**2),
        "orthogonal matching pursuit": OrthogonalMatchingPursuit(tol=n * NOISE**2, fit_intercept=False),
        "Lasso": Lasso(alpha=threshold / n, fit_intercept=False, max_iter=20_000),
    }


def error(model, signal):
    """Return the relative error of the weights."""
    return np.linalg.norm(model.coef_ - signal) / np.linalg.norm(signal)


# %%
# One signal from a hundred measurements. All three methods find the spikes. Matching pursuit has the smallest
# error; it adds columns until only noise is left, and fits them by least squares. The sparse Bayesian model
# has more weights, but those beside the spikes are tiny. The Lasso shrinks all weights.

Phi, t, signal = measure(100, seed=0, equal=True)
found = {name: model.fit(Phi, t) for name, model in methods(100).items()}

fig, axes = plt.subplots(4, 1, figsize=(8, 7.5), sharex=True, sharey=True, layout="constrained")
axes[0].plot(signal, color="0.3", lw=1)
axes[0].set(title="the signal", ylabel="weight")
for ax, (name, model) in zip(axes[1:], found.items(), strict=True):
    ax.plot(model.coef_, color="C0", lw=1)
    kept = np.count_nonzero(model.coef_)
    ax.set(title=f"{name}: {kept} weights, error {error(model, signal):.3f}", ylabel="weight")
axes[-1].set_xlabel("sample")

# %%
# How many measurements does it take?
# -----------------------------------
# How many of ten signals are found, to a relative error of 0.2. Equal spikes are hard for methods that look
# for the largest spike first; there the Lasso, a convex problem, needs the fewest measurements. For spikes of
# random size, as in most signals, the sparse Bayesian model needs the fewest and the Lasso the most.

numbers = range(50, 131, 10)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, equal in zip(axes, (True, False), strict=True):
    shares = {name: [] for name in found}
    for n in numbers:
        problems = [measure(n, seed, equal=equal) for seed in range(10)]
        for name, model in methods(n).items():
            errors = [error(model.fit(Phi, t), signal) for Phi, t, signal in problems]
            shares[name].append(100 * np.mean(np.array(errors) < 0.2))
    for (name, share), marker in zip(shares.items(), "os^", strict=True):
        ax.plot(numbers, share, marker + "-", label=name)
    ax.set(xlabel="measurements", title="spikes of ±1" if equal else "spikes of random size")
axes[0].set_ylabel("signals found, per cent")
axes[0].legend(fontsize="small")
plt.show()
