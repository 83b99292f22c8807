"""Where in the brain?
===================

An electroencephalogram (EEG) measures potentials on the scalp. Which places in the brain produce them? There are
thousands of places for 64 electrodes, so the answer needs an assumption: here, that few places are active.
MNE computes the potentials of each place, and `SparseBayesRegressor` chooses places.
"""

# %%
# Data
# ----
# MNE's model of a head of three spheres, with 64 electrodes and a grid of places 10 mm apart. At each place a current
# can flow in any direction: three columns, which enter the model together. The measurements are simulated: three
# sources at random places, not on the grid, for 0.3 seconds, with noise half as large as the signal.

import time

import matplotlib.pyplot as plt
import mne
import numpy as np
from mne.inverse_sparse import gamma_map
from mne.minimum_norm import apply_inverse, make_inverse_operator
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist

from sparsebayes import SparseBayesRegressor

mne.set_log_level("error")
montage = mne.channels.make_standard_montage("biosemi64")
info = mne.create_info(montage.ch_names, 200.0, "eeg").set_montage(montage)
sphere = mne.make_sphere_model("auto", "auto", info)


def forward_of(places):
    """Return MNE's forward solution of dipoles at these places."""
    upward = np.tile([0.0, 0.0, 1.0], (len(places), 1))
    space = mne.setup_volume_source_space(sphere=sphere, pos={"rr": places + sphere["r0"], "nn": upward})
    return mne.make_forward_solution(info, None, space, sphere)


side = np.arange(-0.07, 0.0701, 0.01)
grid = np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3)
radius = np.linalg.norm(grid, axis=1)
grid = grid[(radius > 0.02) & (radius < 0.075) & (grid[:, 2] > -0.03)]
forward = forward_of(grid)
seconds = np.arange(60) / 200.0
waves = np.array(
    [
        np.exp(-(((seconds - at) / 0.04) ** 2)) * np.sin(2 * np.pi * f * seconds)
        for at, f in ((0.1, 8), (0.16, 11), (0.2, 6))
    ]
)
print(f"{len(info.ch_names)} electrodes, {len(grid)} places, {len(seconds)} times")


def simulate(seed):
    """Return the places of three sources, their currents, the potentials and the noise."""
    rng = np.random.default_rng(seed)
    while True:
        true = rng.normal(size=(3, 3))
        true *= rng.uniform(0.045, 0.07, (3, 1)) / np.linalg.norm(true, axis=1, keepdims=True)
        if true[:, 2].min() > -0.02 and pdist(true).min() > 0.04:
            break
    towards = rng.normal(size=(3, 3, 1))
    currents = 3e-8 * towards / np.linalg.norm(towards, axis=1, keepdims=True) * waves[:, np.newaxis]
    signal = forward_of(true)["sol"]["data"] @ currents.reshape(9, -1)
    noise = signal.std() / 2.0
    return true, currents, signal + noise * rng.normal(size=signal.shape), noise


# %%
# Three methods
# -------------
# Potentials are relative to their mean, so one direction of the 64 is lost; ``directions`` spans the others. Divided by the
# noise they are *whitened*: ``noise_variance=1.0``. ``groups=3`` keeps the directions of a current together.
#
# The default prior against overfitting counts each weight at each of the 60 times, and would leave out weak sources.
# ``complexity="aic"`` is milder. With ``complexity="none"`` the model is that of ``gamma_map`` of MNE, which
# is compared. eLORETA spreads currents over all places; it does better here than MNE's dSPM and sLORETA.

directions = np.linalg.svd(np.eye(64) - 1.0 / 64.0)[0][:, :63].T


def ours(potentials, noise):
    """Return the currents of each place, (places, 3, times)."""
    model = SparseBayesRegressor(
        fit_intercept=False, groups=3, shared_noise=True, noise_variance=1.0, complexity="aic"
    )
    model.fit(1e-8 / noise * directions @ forward["sol"]["data"], directions @ potentials / noise)
    return 1e-8 * model.coef_.T.reshape(len(grid), 3, -1)


def theirs(method):
    """Return a function that finds currents by a method of MNE."""

    def find(potentials, noise):
        evoked = mne.EvokedArray(potentials, info).set_eeg_reference(projection=True)
        covariance = mne.make_ad_hoc_cov(info, std={"eeg": noise})
        if method == "gamma_map":
            sources = gamma_map(
                evoked, forward, covariance, 1.0, loose=1.0, depth=None, maxit=2000, pick_ori="vector"
            )
            currents = np.zeros((len(grid), 3, len(seconds)))
            currents[sources.vertices[0]] = sources.data
            return currents
        inverse = make_inverse_operator(info, forward, covariance, loose=1.0, depth=0.8)
        return apply_inverse(evoked, inverse, 1.0 / 4.0, method, pick_ori="vector").data

    return find


def peaks(currents):
    """Return the three strongest places that are at least 25 mm apart, and the strength of all places."""
    strength, chosen = np.linalg.norm(currents, axis=(1, 2)), []
    for place in np.argsort(-strength):
        if strength[place] > 0 and all(np.linalg.norm(grid[place] - grid[c]) > 0.025 for c in chosen):
            chosen.append(place)
    return chosen[:3], strength


# %%
# Ten problems. A source is found if one of the three strongest places is within 15 mm of it.

methods = {
    "SparseBayesRegressor": ours,
    "MNE, gamma_map": theirs("gamma_map"),
    "MNE, eLORETA": theirs("eLORETA"),
}
results = {name: [] for name in methods}
for seed in range(10):
    true, currents, potentials, noise = simulate(seed)
    for name, find in methods.items():
        start = time.perf_counter()
        found = find(potentials, noise)
        passed = time.perf_counter() - start
        places, strength = peaks(found)
        distances = cdist(true, grid[places])
        distances = distances[linear_sum_assignment(distances)]
        results[name].append([np.sum(distances < 0.015), np.count_nonzero(strength), passed])

print(f"{'':22}{'sources found':>14}{'places active':>15}{'seconds':>9}")
for name, rows in results.items():
    found, active, passed = np.transpose(rows)
    print(f"{name:22}{found.sum():8.0f} of {3 * len(found)}{np.median(active):15.0f}{np.median(passed):9.2f}")

# %%
# The first problem, seen from above. The size of a dot is the strength of the current.

true, currents, potentials, noise = simulate(0)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (name, find) in zip(axes, methods.items(), strict=True):
    strength = peaks(find(potentials, noise))[1]
    ax.add_patch(plt.Circle((0, 0), 95, fill=False, color="0.7"))
    ax.scatter(*1000 * grid[:, :2].T, s=120 * (strength / strength.max()) ** 2, alpha=0.6, lw=0)
    ax.scatter(*1000 * true[:, :2].T, marker="x", color="C3", label="true source")
    ax.set(title=name, xlabel="to the right, mm", aspect="equal", xlim=(-100, 100), ylim=(-100, 100))
axes[0].set_ylabel("to the front, mm")
axes[0].legend(loc="lower left", fontsize="small")

# %%
# The currents over time, along the true direction of each source: all that was found within 25 mm of it.

found = ours(potentials, noise)
fig, axes = plt.subplots(1, 3, figsize=(10, 2.8), sharey=True, layout="constrained")
for ax, place, current in zip(axes, true, currents, strict=True):
    towards = np.linalg.svd(current)[0][:, 0]
    near = np.linalg.norm(grid - place, axis=1) < 0.025
    ax.plot(seconds, 1e9 * towards @ current, color="0.6", lw=3, label="true")
    ax.plot(seconds, 1e9 * towards @ found[near].sum(axis=0), color="C0", label="SparseBayesRegressor")
    ax.set(xlabel="seconds")
axes[0].set_ylabel("current, nA m")
axes[0].legend(fontsize="small")
plt.show()

# %%
# When to take something else
# ---------------------------
# Take eLORETA or dSPM for activity that is spread over the cortex, and for maps to average over people. Take a dipole fit if there is
# one source and you need it to the millimetre. This example has the true head model and the true noise;
# real recordings have neither, and every method finds less.
