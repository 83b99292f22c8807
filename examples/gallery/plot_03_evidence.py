"""The evidence along a fit
========================

A fit maximises the marginal likelihood, or evidence: the probability of the targets with all weights
integrated out (Tipping & Faul 2003). Each step adds a function, deletes one, or changes the precision of one.
No step lowers the evidence. A callback observes each step.
"""

# %%
# A function that gets records
# ----------------------------
# The fit calls ``callback`` after each step. If the callback returned True, the fit would stop with the
# current model.

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (500, 1))
y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=500)

records = []
model = RVR(Gaussian(2.0), callback=records.append).fit(X, y)

# %%
# What the steps do
# -----------------
# The fit begins with few functions, adds the ones with the largest gain, and deletes those that later
# functions made superfluous. ``log_marginal_likelihood_path_`` contains the upper curve without any callback.

path = model.log_marginal_likelihood_path_
steps = np.arange(len(path))
fig, axes = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, layout="constrained")
axes[0].plot(steps[1:], path[1:], color="0.5", lw=1)  # the empty model is thousands of nats below
actions = sorted({record.action for record in records})
for colour, action in enumerate(actions):
    at = [record.iteration for record in records if record.action == action]
    axes[0].plot(at, path[at], "o", ms=4, color=f"C{colour}", label=action)
axes[0].set(ylabel="log evidence, nats", title=f"{model.n_iter_} steps, {model.status_}")
axes[0].legend(fontsize="small", loc="lower right")
axes[1].step([record.iteration for record in records], [record.n_active for record in records], color="C0")
axes[1].set(xlabel="step", ylabel="functions in the model")

# %%
# On the long plateau one function slowly becomes superfluous; after its deletion the fit needs a few more
# steps. A fit has converged when no precision would change and no function outside the model would raise the
# evidence. `sparsebayes.inspection.certificate` checks both conditions independently.

missing = path[-1] - path
shown = missing > 1e-10
fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
ax.semilogy(steps[shown], missing[shown], ".-", color="C0")
ax.set(xlabel="step", ylabel="evidence missing, nats")
plt.show()
