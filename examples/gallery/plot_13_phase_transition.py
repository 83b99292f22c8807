"""How many spikes can there be?
=============================

A hundred random projections of 256 samples, of which all but a few spikes are zero. With few spikes every
method finds them, with many none does, and each method has its own threshold in between. If the evidence has
many maxima, the threshold also depends on the search for the best one.
"""

# %%
# Equal spikes, and spikes of random size
# ---------------------------------------
# Equal spikes are hard for methods that look for the largest spike first; here they have noise 30 dB below
# the measurements. Spikes of random size have no noise, because noise would hide the smallest. The sparse
# Bayesian models get the variance of the noise (without noise, a millionth of the signal's), orthogonal
# matching pursuit gets the number of spikes, and the Lasso is cross-validated. A signal counts as found if
# the largest weights are at its spikes, so that no method depends on its own rule for which weights are zero.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import ARDRegression, LassoCV, OrthogonalMatchingPursuit

from sparsebayes import SparseBayesRegressor

N_ROWS, N_SAMPLES, N_SIGNALS = 100, 256, 4
NUMBERS = range(16, 57, 8)


def measure(n_spikes, seed, *, equal):
    """Return the projections, the measurements, the signal, and the variance of the noise."""
    rng = np.random.default_rng([seed, n_spikes])
    Phi = rng.normal(size=(N_ROWS, N_SAMPLES)) / N_ROWS**0.5
    signal = np.zeros(N_SAMPLES)
    at = rng.choice(N_SAMPLES, n_spikes, replace=False)
    signal[at] = rng.choice([-1.0, 1.0], n_spikes) if equal else rng.normal(size=n_spikes)
    clean = Phi @ signal
    if not equal:
        return Phi, clean, signal, 1e-6 * np.mean(clean**2)
    variance = 1e-3 * np.mean(clean**2)
    return Phi, clean + variance**0.5 * rng.normal(size=N_ROWS), signal, variance


def methods(n_spikes, variance):
    """Return what is compared."""
    ours = {"noise_variance": variance, "n_jobs": 1}
    return {
        'search="exchange"': SparseBayesRegressor(**ours, search="exchange"),
        "greedy": SparseBayesRegressor(**ours),
        "MacKay's updates": SparseBayesRegressor(**ours, scheme="mackay"),
        "ARDRegression": ARDRegression(fit_intercept=False),
        "matching pursuit": OrthogonalMatchingPursuit(n_nonzero_coefs=n_spikes, fit_intercept=False),
        "Lasso": LassoCV(fit_intercept=False),
    }


def is_found(model, signal):
    """Return whether the largest weights are where the spikes are."""
    spikes = np.flatnonzero(signal)
    return set(np.argsort(-abs(model.coef_))[: len(spikes)]) == set(spikes)


def shares(*, equal):
    """Return for each method the share of signals found, in per cent, by the number of spikes."""
    found = {}
    for n_spikes in NUMBERS:
        for seed in range(N_SIGNALS):
            Phi, t, signal, variance = measure(n_spikes, seed, equal=equal)
            for name, model in methods(n_spikes, variance).items():
                found.setdefault(name, []).append(is_found(model.fit(Phi, t), signal))
    return {name: 100 * np.reshape(those, (-1, N_SIGNALS)).mean(axis=1) for name, those in found.items()}


# %%
# Each point is only four signals; the benchmarks in the documentation use fifty. For equal spikes a greedy
# fit finds fewer signals than MacKay's updates, for spikes of random size far more. Exchanges, which for
# crowded models also start from all columns, find the most of both.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, equal in zip(axes, (True, False), strict=True):
    with warnings.catch_warnings():
        # Paths of the Lasso and of ARDRegression end before they converge where there are many spikes.
        warnings.simplefilter("ignore")
        curves = shares(equal=equal)
    for (name, share), marker in zip(curves.items(), "os^DvP", strict=True):
        # Wide, so that equal curves do not hide it.
        broad = {"lw": 5, "alpha": 0.5} if "exchange" in name else {}
        ax.plot(NUMBERS, share, marker + "-", ms=4, label=name, **broad)
    ax.set(xlabel="spikes", title="spikes of ±1, 30 dB" if equal else "spikes of random size, no noise")
axes[0].set_ylabel("signals found, per cent")
axes[0].legend(fontsize="small")
plt.show()
