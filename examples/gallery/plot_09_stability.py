"""Which rows come back
====================

Section VIII-F of Psorakis et al. (2010), figure 12. A row that a sparse model keeps is a prototype of its
class only if the model keeps it for other training sets too. So the authors count how often each row is kept
in a hundred fits of a cross-validation.
"""

# %%
# Wines
# -----
# The data of the paper: 178 wines of three cultivars, thirteen measurements of each, a linear kernel. Three
# repetitions of a ten-fold cross-validation make thirty fits, and every wine is in 27 of their training sets.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import RepeatedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from sparsebayes import MRVM1, MRVM2

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
folds = RepeatedKFold(n_splits=10, n_repeats=3, random_state=0)
models = {
    "mRVM1": MRVM1(kernel="linear", fit_intercept=False),
    "mRVM2": MRVM2(kernel="linear", fit_intercept=False),
    "SVC": SVC(kernel="linear"),
}
counts = {name: np.zeros(len(X), dtype=int) for name in models}
for train, _ in folds.split(X):
    for name, model in models.items():
        model.fit(X[train], y[train])
        counts[name][train[model.support_ if name == "SVC" else model.relevance_]] += 1

# %%
# Support vectors, rows near the borders, are counted in the same way. The two models of the paper keep two or
# three wines per fit, and no wine is kept by every fit that contains it: many wines carry the same
# information, and which one is kept depends on the training set. An SVM keeps ten times as many wines, and
# most of them come back. (In the paper, too, `MRVM1` keeps fewer wines than `MRVM2`. But there `MRVM2` keeps
# nearly all wines at least a couple of times, which does not happen here.)

fig, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
for ax, (name, count) in zip(axes, counts.items(), strict=True):
    ax.bar(np.arange(len(X)), count, width=1)
    for border in np.flatnonzero(np.diff(y)):
        ax.axvline(border + 0.5, color="0.3", linestyle="--", linewidth=1)
    kept = count.sum() / folds.get_n_splits()
    often = np.count_nonzero(2 * count > 27)
    title = f"{name}: {kept:.1f} wines a fit, {np.count_nonzero(count)} different ones, {often} in most fits"
    ax.set(title=title, ylabel="fits with it")
axes[-1].set_xlabel("wines by class")

# %%
# The wines in the plane of their two principal components; larger circles were kept more often. Relevance
# vectors are mostly inside their class or at its outer side, support vectors between classes.

plane = PCA(2).fit_transform(X)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (name, count) in zip(axes, counts.items(), strict=True):
    ax.scatter(*plane.T, c=[f"C{label}" for label in y], s=8)
    ax.scatter(*plane.T, s=10 * count, facecolors="none", edgecolors="black", lw=0.8)
    ax.set(title=name, xlabel="first component")
axes[0].set_ylabel("second component")
plt.show()
