"""Which inputs matter
===================

Friedman's first function (section 4 of Tipping 2001) depends on five inputs; the other inputs of the model
have no effect. Learned widths show which inputs matter: automatic relevance determination, for inputs instead
of functions.
"""

# %%
# Twenty inputs, five of which matter
# -----------------------------------
# y is 10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5, plus noise of standard deviation 1.

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import RVR, SparseBayesRegressor


def friedman(X):
    """Return the function without noise."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


rng = np.random.default_rng(0)
X, X_test = rng.uniform(size=(150, 20)), rng.uniform(size=(2000, 20))
y = friedman(X) + rng.normal(size=150)

# %%
# Two kinds of relevance
# ----------------------
# `SparseBayesRegressor` on the inputs themselves has a prior precision for each of twenty weights, like
# scikit-learn's ``ARDRegression``. It is linear and hardly detects input 3, whose parabola rises on both
# sides: an input without effect has a larger weight. `RVR` with a Gaussian kernel of twenty learned widths
# separates the five inputs from the rest. The height of a bar, ``inputs_``, measures how much the prediction
# changes along an input.

linear = SparseBayesRegressor(fit_intercept=True).fit(X, y)
widths = RVR().fit(X, y)

numbers = np.arange(1, 21)
colours = ["C0"] * 5 + ["C1"] * 15
fig, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
axes[0].bar(numbers, np.abs(linear.coef_), color=colours)
axes[0].set(ylabel="|weight|", title="linear model: size of the weights")
axes[1].bar(numbers, [widths.inputs_[d] for d in range(20)], color=colours)
axes[1].set(ylabel="relevance", title="Gaussian kernel: inputs_", xlabel="input (1 to 5 matter)")
axes[1].set_xticks(numbers)

# %%
# What useless inputs cost
# ------------------------
# The same rows with the first 5, 10 and 20 inputs. With one learned width for all inputs, each useless input
# increases the distance between similar rows, and the error grows. With one width for each input the error
# stays the same.

given = [5, 10, 20]
errors = {"one width": [], "a width for each input": []}
for n in given:
    for gamma, found in zip(("learn", "ard"), errors.values(), strict=True):
        model = RVR(gamma=gamma).fit(X[:, :n], y)
        found.append(np.sqrt(np.mean((model.predict(X_test[:, :n]) - friedman(X_test)) ** 2)))

fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for name, found in errors.items():
    ax.plot(given, found, "o-", label=name)
ax.set(xlabel="inputs given, five of which matter", ylabel="error (RMS)", xticks=given, ylim=(0, None))
ax.legend(fontsize="small")
plt.show()
