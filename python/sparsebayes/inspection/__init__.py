r"""Optimality of a fitted model, recomputed from its hyperparameters.

The certificate shares no code with the solver: it evaluates kernels and products in NumPy, decomposes the
covariance of the targets by singular values, and finds the posterior mode by its own Newton method.
"""

from __future__ import annotations

from ._certificate import certificate
from ._dense import Certificate

__all__ = ["Certificate", "certificate"]
