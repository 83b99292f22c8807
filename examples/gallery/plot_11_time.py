"""Time against the number of rows
===============================

The time of a fit compared with libsvm, the library behind scikit-learn's support vector machines. All times
are measured when this page is built, ours and libsvm's in turns, and shown as ratios. A ratio below 1 means
that ours was faster on that computer; other computers give other ratios.
"""

# %%
# Two problems
# ------------
# The surface sin(r) / r of Tipping and Faul (2003) for regression; two overlapping classes, each a mixture of
# two Gaussians, for classification. All rows are candidates, and all models have the same kernel.

import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

CENTRES = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])


def surface(n, rng):
    """Return rows of sin(r) / r with noise."""
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(np.hypot(*X.T) / np.pi) + 0.1 * rng.normal(size=n)


def mixture(n, rng):
    """Return rows of the two classes."""
    y = np.arange(n) % 2
    return CENTRES[y, rng.integers(0, 2, n)] + 0.03**0.5 * rng.normal(size=(n, 2)), y


def probable(gamma):
    """Return a support vector machine with probabilities, as RVC has them."""
    return CalibratedClassifierCV(SVC(gamma=gamma), ensemble=False)


PAIRS = {
    "RVR / SVR": (surface, RVR(gamma=0.16, candidates=None, n_jobs=1), SVR(gamma=0.16)),
    "RVC / SVC": (mixture, RVC(gamma=4.0, candidates=None, n_jobs=1), SVC(gamma=4.0)),
    "RVC / SVC with probabilities": (mixture, RVC(gamma=4.0, candidates=None, n_jobs=1), probable(4.0)),
}

# %%
# One core each
# -------------
# libsvm uses one core, so ours gets one too. CPU time is measured, because other programs hardly change it.
# Each ratio is the median of five ratios, each of one fit of ours and the next fit of libsvm; predictions are
# measured in the same way.


def seconds(call, *data):
    """Return the CPU time that a call takes."""
    start = time.process_time()
    call(*data)
    return time.process_time() - start


def ratio(ours, theirs, *data):
    """Return the median of five ratios, in turns."""
    return np.median([seconds(ours, *data) / seconds(theirs, *data) for _ in range(5)])


def support(machine):
    """Return how many support vectors there are."""
    if isinstance(machine, CalibratedClassifierCV):
        machine = machine.calibrated_classifiers_[0].estimator
    return len(machine.support_)


numbers = [125, 250, 500, 1000, 2000]
fits, sizes, predictions = {}, {}, {}
for name, (draw, ours, theirs) in PAIRS.items():
    fits[name], sizes[name], predictions[name] = [], [], []
    new, _ = draw(2000, np.random.default_rng(0))
    for n in numbers:
        X, y = draw(n, np.random.default_rng(n))
        ours.fit(X[:50], y[:50])  # the first call loads libraries, so it is not timed
        fits[name].append(ratio(ours.fit, theirs.fit, X, y))
        sizes[name].append((len(ours.relevance_), support(theirs)))
        if name.endswith("probabilities"):
            predictions[name].append(ratio(ours.predict_proba, theirs.predict_proba, new))
        else:
            predictions[name].append(ratio(ours.predict, theirs.predict, new))

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for (name, found), marker in zip(fits.items(), "os^", strict=True):
    ax.loglog(numbers, found, marker + "-", label=f"{name}: {found[-1]:.2g} at {numbers[-1]} rows")
ax.axhline(1.0, ls="--", color="0.4", lw=1)
ax.set(xlabel="rows", ylabel="time of fit, ours / libsvm")
ax.set_xticks(numbers, numbers)
ax.xaxis.set_minor_locator(NullLocator())
ax.legend(fontsize="small")

# %%
# What a fit buys
# ---------------
# The number of support vectors grows with the rows; the number of relevance vectors hardly grows. The time of
# a prediction is proportional to either number. The left plot shows the number of vectors (solid lines are
# ours), the right plot the time of 2000 predictions.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for colour, name in enumerate(["RVR / SVR", "RVC / SVC"]):
    ours, theirs = np.transpose(sizes[name])
    for vectors, style, label in zip((ours, theirs), ("o-", "s--"), name.split(" / "), strict=True):
        axes[0].loglog(numbers, vectors, style, color=f"C{colour}", label=label)
for (name, found), marker in zip(predictions.items(), "os^", strict=True):
    axes[1].loglog(numbers, found, marker + "-", label=name)
axes[1].axhline(1.0, ls="--", color="0.4", lw=1)
for ax, label in zip(axes, ("vectors", "time to predict, ours / libsvm"), strict=True):
    ax.set(xlabel="rows", ylabel=label)
    ax.set_xticks(numbers, numbers)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(fontsize="small")
plt.show()
