"""Equations from measurements
===========================

A system moves, and its states are measured, with noise. Which differential equations does it obey? pysindy makes a
table of candidate terms, such as x, y and x z, and a sparse regression finds the few that explain the derivatives.
`SparseBayesRegressor` can be this regression, and has no threshold to tune.
"""

# %%
# Data
# ----
# The Lorenz system, whose seven terms are known: x' = 10 (y - x), y' = x (28 - z) - y, z' = x y - 8/3 z. Its states are
# simulated for 10 seconds and measured 5000 times, with noise.

import matplotlib.pyplot as plt
import numpy as np
import pysindy
from scipy.integrate import solve_ivp
from sklearn.linear_model import ARDRegression

from sparsebayes import SparseBayesRegressor

STEP = 0.002
TRUE = {"x": {"x", "y"}, "y": {"x", "y", "x z"}, "z": {"z", "x y"}}


def lorenz(_, state):
    """Return the derivatives of a state."""
    x, y, z = state
    return [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]


times = np.arange(0.0, 10.0, STEP)
states = solve_ivp(lorenz, (0.0, 10.0), [-8.0, 8.0, 27.0], t_eval=times, rtol=1e-12, atol=1e-12).y.T


def measure(noise, seed):
    """Return the states with noise of this standard deviation."""
    return states + noise * np.random.default_rng(seed).normal(size=states.shape)


def discover(optimizer, measured, degree):
    """Fit equations to measured states, with all products of up to this degree as candidates."""
    model = pysindy.SINDy(
        optimizer,
        feature_library=pysindy.PolynomialLibrary(degree),
        differentiation_method=pysindy.SmoothedFiniteDifference(),
    )
    return model.fit(measured, t=STEP, feature_names=["x", "y", "z"])


# %%
# Find the equations
# ------------------
# The noise is 0.3, where x, y and z range over 40 and more. ``WrappedOptimizer`` makes an optimizer of an estimator of
# scikit-learn, one for each equation. Of 35 candidate terms for each equation those that are printed remain.

ours = pysindy.WrappedOptimizer(SparseBayesRegressor(fit_intercept=False))
model = discover(ours, measure(0.3, seed=0), degree=4)
model.print(precision=2)

# %%
# The equations predict the next seconds from a start that is not among the data. The Lorenz system is
# chaotic: any error of a weight grows, so the two curves part in the end.

start, later = [5.0, -5.0, 20.0], np.arange(0.0, 8.0, 0.01)
truth = solve_ivp(lorenz, (0.0, 8.0), start, t_eval=later, rtol=1e-9).y.T
predicted = model.simulate(start, later)

fig, ax = plt.subplots(figsize=(9, 3), layout="constrained")
ax.plot(later, truth[:, 0], color="0.6", lw=3, label="truth")
ax.plot(later, predicted[:, 0], "--", color="C0", label="equations found")
ax.set(xlabel="seconds", ylabel="x")
ax.legend(loc="upper left")

# %%
# How much noise is too much?
# ---------------------------
# STLSQ, the default of pysindy, is least squares which repeatedly drops terms of a weight below a threshold. Its
# threshold has to lie between the smallest true weight and the errors of the others, which a user does not
# know. Each method gets the same measurements, three for each noise and degree.


def stlsq(threshold):
    """Return a function that makes this optimizer."""
    return lambda: pysindy.STLSQ(threshold=threshold)


methods = {
    "SparseBayesRegressor": lambda: pysindy.WrappedOptimizer(SparseBayesRegressor(fit_intercept=False)),
    "STLSQ, threshold 0.1": stlsq(0.1),
    "STLSQ, threshold 0.5": stlsq(0.5),
    "ARDRegression": lambda: pysindy.WrappedOptimizer(ARDRegression(fit_intercept=False)),
}
noises = (0.03, 0.1, 0.3, 0.6, 1.0)
missed = {name: np.zeros((2, len(noises))) for name in methods}
wrong = {name: np.zeros((2, len(noises))) for name in methods}
for d, degree in enumerate((2, 4)):
    for k, noise in enumerate(noises):
        for seed in range(3):
            measured = measure(noise, seed)
            for name, make in methods.items():
                found = discover(make(), measured, degree)
                names = np.array(found.get_feature_names())
                for equation, weights in zip("xyz", found.coefficients(), strict=True):
                    kept = set(names[weights != 0.0].tolist())
                    missed[name][d, k] += len(TRUE[equation] - kept) / 3
                    wrong[name][d, k] += len(kept - TRUE[equation]) / 3

fig, axes = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
for d, count in enumerate((10, 35)):
    for row, (counts, what) in enumerate(((missed, "missed"), (wrong, "wrong"))):
        for (name, values), marker in zip(counts.items(), "osx^", strict=True):
            axes[row, d].plot(noises, values[d], marker + "-", label=name)
        axes[row, d].set(xscale="log", ylabel=f"{what} terms")
    axes[0, d].set_title(f"{count} candidate terms for an equation")
    axes[1, d].set_xlabel("noise")
axes[0, 0].legend(fontsize="small")
for name in methods:
    print(f"{name:21}: {missed[name].mean():.2f} terms missed and {wrong[name].mean():.2f} wrong on average")
plt.show()

# %%
# When to take something else
# ---------------------------
# With much noise `SparseBayesRegressor` rather misses a term than takes a wrong one. If a missed term is worse for you than a
# wrong one, take STLSQ with a small threshold. If you know a constraint, such as a symmetry, take an
# optimizer that accepts it: pysindy's ``ConstrainedSR3``.
