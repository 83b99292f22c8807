"""Columns in groups
=================

``groups=`` gives columns that belong together one precision: they are in the model all together or not at
all.
"""

# %%
# Powers of an input
# ------------------
# 442 patients, ten inputs, the progression of diabetes after a year. Each input has its first three powers; the
# sex, of two values, only one. With groups a model chooses inputs, without them single powers.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler

from sparsebayes import SparseBayesRegressor

data = load_diabetes()
names, labels, columns = np.array(data.feature_names), [], []
for j, name in enumerate(names):
    for power in (1, 2, 3) if name != "sex" else (1,):
        columns.append(data.data[:, j] ** power)
        labels.append(name)
X, y, labels = StandardScaler().fit_transform(np.column_stack(columns)), data.target, np.array(labels)

for groups in (labels, None):
    model = SparseBayesRegressor(groups=groups)
    score = cross_val_score(model, X, y, cv=10).mean()
    model.fit(X, y)
    kept = sorted(set(labels[model.active_[model.active_ >= 0]].tolist()))
    title = "in groups" if groups is not None else "one by one"
    print(f"{title:10}: R^2 of left-out rows {score:.3f}, {len(model.active_) - 1} columns, inputs {kept}")

# %%
# Sources of a magnetic field
# ---------------------------
# Sixty sensors above a plane measure the field of three magnetic dipoles at twenty times. Each of the 441
# places of a grid may have a dipole of any direction, three columns. The noise is the same at all times,
# ``shared_noise=True``: this is gamma-MAP, as in the analysis of magnetoencephalograms.

rng = np.random.default_rng(1)
side = np.linspace(-1.0, 1.0, 21)
places = np.array([(a, b, 0.0) for a in side for b in side])
sensors = np.column_stack([rng.uniform(-1.2, 1.2, (60, 2)), np.full(60, 0.3)])
apart = sensors[:, np.newaxis] - places
distance = np.linalg.norm(apart, axis=2)[..., np.newaxis]
#: Vertical part of the field of unit dipoles along each axis.
fields = 3.0 * apart * apart[..., 2:] / distance**5
fields[..., 2] -= 1.0 / distance[..., 0] ** 3
fields = fields.reshape(60, -1)

true = np.array([100, 215, 330])
waves = np.sin(np.linspace(0.0, 6.0, 20) * np.array([[1.0], [2.0], [3.0]]))
moments = rng.normal(size=(3, 3, 1)) * waves[:, np.newaxis]
signal = np.einsum("nkd,kdt->nt", fields.reshape(60, -1, 3)[:, true], moments)
measured = signal + 0.3 * np.std(signal) * rng.normal(size=signal.shape)

model = SparseBayesRegressor(groups=3, fit_intercept=False, shared_noise=True).fit(fields, measured)
strength = np.linalg.norm(model.coef_.reshape(20, -1, 3), axis=(0, 2))
found = np.flatnonzero(strength)

fig, ax = plt.subplots(figsize=(4.5, 4), layout="constrained")
ax.scatter(sensors[:, 0], sensors[:, 1], marker="+", color="grey", label="sensors")
ax.scatter(*places[true, :2].T, s=160, facecolors="none", edgecolors="black", label="true sources")
ax.scatter(*places[found, :2].T, s=60.0 * strength[found] / strength.max(), label="found")
ax.set(xlabel="x", ylabel="y", title="Dipoles found from their field")
ax.legend(loc="upper right")
print(f"places found {found.tolist()}, true ones {true.tolist()}")
