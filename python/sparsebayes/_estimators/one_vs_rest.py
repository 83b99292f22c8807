"""Class probabilities of several models of one class each against the rest."""

from __future__ import annotations

import numpy as np

from .._types import FloatArray


def log_normalised(logits: FloatArray) -> FloatArray:
    """Return the log sigmoids of the logits, (n, n_classes), of each row less the log of their sum.

    One column is the logit of the second of two classes.
    """
    if logits.shape[1] == 1:
        logits = np.hstack([-logits, logits])
    # Through logarithms: the ratios survive where every probability is too small for a float.
    log_p = -np.logaddexp(0.0, -logits)
    log_p -= log_p.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    return log_p


def normalised(logits: FloatArray) -> FloatArray:
    """Return the sigmoids of the logits, (n, n_classes), each row divided by its sum."""
    p: FloatArray = np.exp(log_normalised(logits))
    return p
