"""Functions between the rows
==========================

A relevance vector machine puts its kernel functions about training rows, since some have to be chosen from and these are
at hand. Nothing in the model asks for that. With ``generate=True`` the centres of a model climb the evidence by its
gradient, and functions come in wherever they gain most.
"""

# %%
# Few rows
# --------
# Thirty rows of the sinc function. Below each fit stand the functions of its model, each times its weight: their sum, with
# the bias, is the line above.

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import RVR
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

rng = np.random.default_rng(3)
X = np.sort(rng.uniform(-10, 10, (30, 1)), axis=0)
y = np.sinc(X[:, 0] / np.pi) + 0.05 * rng.normal(size=30)
grid = np.linspace(-10, 10, 400)[:, np.newaxis]
kernel = Gaussian(3.0)

fig, axes = plt.subplots(2, 2, figsize=(9, 5.5), sharex=True, sharey="row", layout="constrained")
for (above, below), generate in zip(axes.T, (False, True), strict=True):
    model = RVR(kernel, generate=generate).fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    above.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.2)
    above.plot(grid, mean)
    above.plot(X, y, "k.", ms=4)
    above.set_title(
        f"{'anywhere' if generate else 'at rows'}: {len(model.relevance_)} functions, "
        f"{model.log_marginal_likelihood_:.1f} nats"
    )
    centres, weights = model.relevance_vectors_, model.dual_coef_[0]
    below.plot(grid, kernel(grid, centres) * weights)
    below.plot(centres, np.zeros(len(centres)), "k|", ms=10)
plt.show()

# %%
# Two inputs
# ----------
# 200 rows of a surface. Circles are the centres of the model on rows; dots those of the other, which has fewer. The
# certificate is that of any fit, over the rows and the new centres together: none of either has anything to gain.

X = rng.uniform(-10, 10, (200, 2))
y = np.sinc(np.hypot(*X.T) / np.pi) + 0.1 * rng.normal(size=200)
rows, anywhere = (RVR(Gaussian(2.5), generate=generate).fit(X, y) for generate in (False, True))

fig, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
ax.plot(*X.T, ".", color="0.8", ms=4, label="rows")
for model, style, name in ((rows, "o", "at rows"), (anywhere, ".", "anywhere")):
    label = f"{name}: {len(model.relevance_)} functions, {model.log_marginal_likelihood_:.1f} nats"
    ax.plot(*model.relevance_vectors_.T, style, mfc="none" if style == "o" else None, ms=9, label=label)
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08))
plt.show()

found = certificate(anywhere, X, y)
print(f"{anywhere.status_}: largest change of ln alpha {found.max_log_alpha_change:.0e}")
print(f"most to gain among {found.n_basis} functions: {found.max_gain_outside:.0e} nats")
