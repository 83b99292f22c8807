r"""Kernels: what they are, how they combine, and their values in plain NumPy.

Kernel objects compare by value and are hashable and picklable; ``kernel(X, Z)`` is the matrix of values.
Invalid parameters raise TypeError or ValueError, and so do X or Z with columns that a kernel cannot use.
``+`` and ``*`` combine kernels into sums and products:

>>> from sparsebayes.kernels import Gaussian, Linear
>>> Gaussian(2.0) + Linear() * Gaussian([1.0, 5.0])
Gaussian(width=2.0) + Linear() * Gaussian(width=(1.0, 5.0))

``OnColumns`` evaluates a kernel on some of the columns only. Parameters have names, which a grid search
takes:

>>> from sklearn.model_selection import GridSearchCV
>>> from sparsebayes import RVR
>>> search = GridSearchCV(RVR(Gaussian(1.0) + Linear()), {"kernel__k1__width": [0.5, 1.0, 2.0]})
>>> Gaussian(1.0).set_params(width=3.0)
Gaussian(width=3.0)

Unlike in a support vector machine a kernel need not be positive definite here: it only makes the basis
functions :math:`\phi_n(x) = k(x, x_n)` of a linear model (Tipping 2001, section 2).
"""

from __future__ import annotations

from ._base import Custom, Kernel, OnColumns, Product, Sum
from ._standard import (
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)

__all__ = [
    "Custom",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "LinearSpline",
    "Matern32",
    "Matern52",
    "OnColumns",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Sigmoid",
    "Sum",
]
