"""Three classes, bottom up and top down
=====================================

Figures 2 to 5 of Psorakis et al. (2010): 140 rows of three classes from five Gaussians, and the two models of
the paper during their fits. `MRVM1` begins with no function and adds functions; `MRVM2` begins with all
functions and deletes.
"""

# %%
# The rows
# --------
# The paper shows a picture of the rows but no numbers. These rows are similar.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import MRVM1, MRVM2
from sparsebayes.plot import RelevanceVectorsDisplay

CENTRES = np.array([[-2.0, 1.5], [1.0, 2.0], [2.5, -0.5], [-0.5, -0.5], [-2.0, -2.0]])
CLASSES = np.array([0, 1, 0, 2, 1])


def draw(n, seed):
    """Return rows of the five Gaussians, as many of each, and their classes."""
    component = np.arange(n) % 5
    noise = np.random.default_rng(seed).normal(size=(n, 2))
    return CENTRES[component] + 0.6 * noise, CLASSES[component]


X, y = draw(140, seed=0)
fig, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
for label, marker in enumerate("*.+"):
    ax.scatter(*X[y == label].T, marker=marker, color=f"C{label}", label=f"class {label}")
ax.set(xlabel="$x_1$", ylabel="$x_2$")
ax.legend(fontsize="small")

# %%
# Beginning, middle and end
# -------------------------
# ``max_iter`` stops a fit early. Circles are the rows whose functions are in the model at that point, and
# lines are the borders between two classes. At the end `MRVM1` has one row in each of the five Gaussians, and
# `MRVM2` a few more. The titles give the errors on many new rows, in per cent.

test = draw(5000, seed=1)
grid = np.stack(np.meshgrid(np.linspace(-4, 4.5, 200), np.linspace(-4, 4, 200)), axis=-1)
paths = {}
fig, axes = plt.subplots(2, 3, figsize=(10, 7), sharex=True, sharey=True, layout="constrained")
for row, machine in zip(axes, (MRVM1, MRVM2), strict=True):
    name = machine.__name__
    for ax, stop in zip(row, (2, 10, 2000), strict=True):
        model = machine(gamma=0.5, fit_intercept=False, max_iter=stop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # stopped early on purpose
            model.fit(X, y)
        RelevanceVectorsDisplay.from_estimator(model, X, y, ax=ax)
        ax.get_legend().remove()
        classes = model.predict(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        ax.contour(grid[..., 0], grid[..., 1], classes, levels=[0.5, 1.5], colors="0.3", linewidths=1)
        error = 100 * (1 - model.score(*test))
        ax.set_title(
            f"{name}, step {model.n_iter_}: {len(model.relevance_)} rows, {error:.1f} %", fontsize=10
        )
    paths[name] = model.n_relevance_path_

# %%
# `MRVM1` adds more functions than it needs and deletes some again. `MRVM2` deletes most of its functions in
# the first few steps, and the last ones slowly, as is usual for expectation-maximisation.

fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for name, path in paths.items():
    ax.semilogx(np.arange(1, len(path)), path[1:], label=name)
ax.set(xlabel="step", ylabel="rows in the model")
ax.legend(fontsize="small")
plt.show()
