"""Outliers, and counts with exposures
====================================

Not all targets are numbers with Gaussian noise. ``likelihood="student_t"`` is for numbers of which some are
wrong, ``"poisson"`` and ``"negative_binomial"`` are for counts.
"""

# %%
# Outliers
# --------
# 442 patients, 10 inputs, the progression of diabetes after a year. In 300 rows one target in ten is
# spoilt, as by a misplaced decimal point. The others predict the rows left out. Beside such outliers the
# Gaussian model finds nothing that the inputs explain, and warns.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import root_mean_squared_error

from sparsebayes import RVR, SparseBayesRegressor

X, y = load_diabetes(return_X_y=True)
rng = np.random.default_rng(0)
order = rng.permutation(len(y))
train, test = order[:300], order[300:]
spoilt = y[train].copy()
bad = rng.choice(300, 30, replace=False)
spoilt[bad] = 10.0 * spoilt[bad]

models = {
    "Gaussian, as it was": RVR().fit(X[train], y[train]),
    "Student's t, spoilt": RVR(likelihood="student_t").fit(X[train], spoilt),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    models["Gaussian, spoilt"] = RVR().fit(X[train], spoilt)
for name, model in models.items():
    low, high = model.predict_interval(X[test])
    covered = np.mean((low <= y[test]) & (y[test] <= high))
    error = root_mean_squared_error(y[test], model.predict(X[test]))
    print(
        f"{name:20s} error {error:5.1f}, 95 % intervals of mean width {np.mean(high - low):5.0f} hold {covered:.0%}"
    )

# %%
# ``row_weights_`` is how much each row counts. The spoilt ones count little.

robust = models["Student's t, spoilt"]
fig, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.scatter(spoilt, robust.row_weights_, s=8, label="as they were")
ax.scatter(spoilt[bad], robust.row_weights_[bad], s=16, label="spoilt")
ax.set(xlabel="target", ylabel="row_weights_")
ax.legend()

# %%
# Counts with exposures
# ---------------------
# Damage to cargo ships (McCullagh & Nelder 1989, section 6.3.2): incidents by type of ship, period of
# construction and period of operation, with the months of service as exposure. Ten 0/1 columns say which type
# and which periods; the sparse model keeps those that matter.

TABLE = """A 60 60 127 0, A 60 75 63 0, A 65 60 1095 3, A 65 75 1095 4, A 70 60 1512 6, A 70 75 3353 18,
A 75 75 2244 11, B 60 60 44882 39, B 60 75 17176 29, B 65 60 28609 58, B 65 75 20370 53, B 70 60 7064 12,
B 70 75 13099 44, B 75 75 7117 18, C 60 60 1179 1, C 60 75 552 1, C 65 60 781 0, C 65 75 676 1, C 70 60 783 6,
C 70 75 1948 2, C 75 75 274 1, D 60 60 251 0, D 60 75 105 0, D 65 60 288 0, D 65 75 192 0, D 70 60 349 2,
D 70 75 1208 11, D 75 75 2051 4, E 60 60 45 0, E 65 60 789 7, E 65 75 437 7, E 70 60 1157 5, E 70 75 2161 12,
E 75 75 542 1"""
rows = [row.split() for row in TABLE.replace("\n", " ").split(",")]
months = np.array([float(row[3]) for row in rows])
incidents = np.array([float(row[4]) for row in rows])
names = [
    *(f"type {kind}" for kind in "ABCDE"),
    *(f"built 19{year}" for year in (60, 65, 70, 75)),
    "after 1975",
]
columns = [[row[0] == kind for row in rows] for kind in "ABCDE"]
columns += [[row[1] == year for row in rows] for year in ("60", "65", "70", "75")]
columns = np.column_stack([*columns, [row[2] == "75" for row in rows]]).astype(float)

for likelihood in ("poisson", "negative_binomial"):
    model = SparseBayesRegressor(likelihood=likelihood, complexity="none")
    model.fit(columns, incidents, exposure=months)
    factors = {names[j]: np.exp(model.coef_[j]).round(2).item() for j in model.active_ if j >= 0}
    print(f"{likelihood}: leave-one-out log density {model.loo_.mean():.3f}, factors of the rate {factors}")

# %%
# The two models agree: given these columns the incidents hardly vary more than Poisson counts, and the
# dispersion is small.

print(
    f"dispersion {model.dispersion_:.3f}, 95 % intervals hold {model.loo_coverage_:.0%} of the rows left out"
)
