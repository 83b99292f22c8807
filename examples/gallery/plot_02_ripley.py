"""A border between two classes, beside a support vector machine
=============================================================

Figure 4 of Tipping (2001): two overlapping classes, each a mixture of two Gaussians in the plane, similar to
the data of Ripley (1996). Here the true probabilities are known, so the best possible border is known too.
"""

# %%
# The rows
# --------
# 250 training rows, and many test rows to count errors.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from sparsebayes import RVC
from sparsebayes.kernels import Gaussian

CENTRES = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
VARIANCE = 0.03


def draw(n, seed):
    """Return rows and their classes, 0 and 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return CENTRES[y, rng.integers(0, 2, n)] + VARIANCE**0.5 * rng.normal(size=(n, 2)), y


def log_odds(X):
    """Return the true log odds of class 1."""
    squares = np.sum((X[:, np.newaxis, np.newaxis] - CENTRES) ** 2, axis=-1)
    density = np.exp(-0.5 * squares / VARIANCE).sum(axis=-1)
    return np.log(density[:, 1] / density[:, 0])


X, y = draw(250, seed=0)
X_test, y_test = draw(20000, seed=1)

# %%
# The two models
# --------------
# Both models have the same Gaussian kernel, with the width of the paper.

kernel = Gaussian(0.5)
rvc = RVC(kernel).fit(X, y)
svc = SVC(C=1.0, gamma=1 / 0.5**2).fit(X, y)
best = np.mean((log_odds(X_test) > 0) != y_test)

# %%
# The dashed line is the best possible border; the title gives the share of errors that no border can avoid.
# Support vectors lie along the border, where rows are misclassified or nearly so. Relevance vectors are few,
# and in this draw lie away from the border, as prototypes of their class.

side = np.linspace(-1.3, 1.1, 121), np.linspace(-0.3, 1.3, 121)
mesh = np.meshgrid(*side)
points = np.column_stack([part.ravel() for part in mesh])
fig, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
for ax, model, kept, name in [
    (axes[0], rvc, rvc.relevance_, "relevance vectors"),
    (axes[1], svc, svc.support_, "support vectors"),
]:
    for label, marker in enumerate("x."):
        ax.plot(*X[y == label].T, marker, color=f"C{label}", ms=5, label=f"class {label}")
    ax.plot(*X[kept].T, "o", ms=10, mfc="none", mec="C3", label=name)
    ax.contour(*mesh, model.decision_function(points).reshape(mesh[0].shape), [0.0], colors="C2")
    ax.contour(*mesh, log_odds(points).reshape(mesh[0].shape), [0.0], colors="0.5", linestyles="--")
    error = np.mean(model.predict(X_test) != y_test)
    ax.set(xlabel="$x_1$", title=f"{len(kept)} {name}\nerrors: {error:.1%}, unavoidable {best:.1%}")
axes[0].set_ylabel("$x_2$")
for ax in axes:
    ax.legend(fontsize="small", loc="lower right")
plt.show()
