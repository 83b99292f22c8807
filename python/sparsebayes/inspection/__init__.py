r"""Optimality of a fitted model, recomputed from its hyperparameters.

The certificate shares nothing with the solver: kernels and products are NumPy's, the covariance of the
targets is taken apart by singular values, and the posterior mode found by a Newton method of its own.
"""

from __future__ import annotations

from ._certificate import Certificate, certificate

__all__ = ["Certificate", "certificate"]
