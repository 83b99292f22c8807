"""Do the error bars hold?
=======================

Error bars are *calibrated* if a 50 % interval contains half of the new targets, and a 95 % interval 95 % of
them. Class probabilities are calibrated if of the rows that get a probability of 0.8 for a class, 80 % belong
to it. Both can be checked on rows that were left out of the fit.
"""

# %%
# Intervals of a regression
# -------------------------
# Friedman's first function: 10 inputs, 100 rows, and 2000 new rows. A model with few rows knows less than its
# own formula says, since it chose its functions and widths by the same rows. `RVR` therefore widens error
# bars away from the rows that it has seen (``std="full"``, the default); ``std="plain"`` has those of Tipping
# (2001). A curve on the diagonal is calibrated, one below it promises too much.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_breast_cancer, make_friedman1
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from sparsebayes import RVC, RVR

X, y = make_friedman1(2100, noise=1.0, random_state=0)
model = RVR().fit(X[:100], y[:100])
fixed = RVR(gamma="scale").fit(X[:100], y[:100])
levels = np.linspace(0.05, 0.95, 10)


def coverage(model, std):
    """Return the share of new targets within the central intervals of each level."""
    model.set_params(std=std)
    limits = [model.predict_interval(X[100:], level) for level in levels]
    return [np.mean((low < y[100:]) & (y[100:] < high)) for low, high in limits]


fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.7")
for name, estimator in (("learned widths", model), ("gamma='scale'", fixed)):
    for std, style in (("full", "o-"), ("plain", "o--")):
        ax.plot(levels, coverage(estimator, std), style, label=f"{name}, std={std!r}", markersize=3)
ax.set(xlabel="coverage asked for", ylabel="share of new targets inside")
ax.legend(fontsize="small")

# %%
# Without rows to spare
# ---------------------
# ``loo_coverage_`` is the share of training rows within the 95 % interval that the *other* rows predict, and
# ``loo_`` the log density of each row given the others. Both come with the fit, at almost no cost. They are a little
# too high, because the widths, the precisions and the noise were chosen with all rows.

new = model.set_params(std="plain").predict(X[100:], return_std=True)
inside = np.abs(y[100:] - new[0]) < 1.96 * new[1]
print(
    f"95 % intervals contain {model.loo_coverage_:.0%} of the training rows left out, {inside.mean():.0%} of new rows"
)

# %%
# Probabilities of a classification
# ---------------------------------
# `RVC` returns probabilities without calibration afterwards, and needs no scaler. A support vector machine has
# no probabilities: its curve is that of the logistic function of its decision values. Rows of
# ``load_breast_cancer`` are predicted by models of the other four fifths of the rows.

data, classes = load_breast_cancer(return_X_y=True)
svm = make_pipeline(StandardScaler(), SVC())
probability = {"RVC": np.empty(len(classes)), "SVC, logistic of its decision": np.empty(len(classes))}
for rows, others in StratifiedKFold(5, shuffle=True, random_state=0).split(data, classes):
    rvc = RVC().fit(data[rows], classes[rows])
    decision = svm.fit(data[rows], classes[rows]).decision_function(data[others])
    probability["RVC"][others] = rvc.predict_proba(data[others])[:, 1]
    probability["SVC, logistic of its decision"][others] = 1.0 / (1.0 + np.exp(-decision))

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.7")
for name, p in probability.items():
    share, mean = calibration_curve(classes, p, n_bins=6, strategy="quantile")
    loss = -np.mean(np.log(np.where(classes == 1, p, 1.0 - p)))
    ax.plot(mean, share, "o-", label=f"{name}: log loss {loss:.3f}")
ax.set(xlabel="probability", ylabel="share of the class")
ax.legend(fontsize="small")

# %%
# A rare class
# ------------
# One row in fifty belongs to a class that overlaps with the other; of 3000 training rows 60 do. Fitted with
# ``class_weight="balanced"`` the probabilities are those of equal shares, which ``prior`` converts to the true
# shares. Both are calibrated down to a probability of about 1 in 1000. What is below rests on a handful of rows:
# take it as "rare", not as a number.

rng = np.random.default_rng(0)
rare = (rng.random(30_000) < 0.02).astype(int)
X = rng.normal(size=(len(rare), 2)) + 2.0 * rare[:, np.newaxis]
train, new = slice(0, 3000), slice(3000, None)
plain = RVC().fit(X[train], rare[train])
balanced = RVC(class_weight="balanced").fit(X[train], rare[train])

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot([1e-4, 1], [1e-4, 1], color="0.7")
for name, p in (
    ("as they are", plain.predict_proba(X[new])),
    ("balanced, with the true shares as prior", balanced.predict_proba(X[new], prior=[0.98, 0.02])),
):
    share, mean = calibration_curve(rare[new], p[:, 1], n_bins=12, strategy="quantile")
    loss = -np.mean(np.log(p[np.arange(len(p)), rare[new]]))
    ax.plot(mean[share > 0], share[share > 0], "o-", label=f"{name}: log loss {loss:.4f}")
ax.set(xscale="log", yscale="log", xlabel="probability of the rare class", ylabel="share of the rare class")
ax.legend(fontsize="small")
plt.show()
