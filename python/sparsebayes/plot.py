"""Pictures of fitted models, as displays in the manner of scikit-learn: ``pip install "sparsebayes[plot]"``.

``SomeDisplay.from_estimator(est, ...)`` draws and returns an object that holds the numbers of the picture,
its ``ax_`` and its ``figure_``; ``plot(ax)`` draws it again. matplotlib is imported only to make a figure of
their own for those who give no ``ax``. `sparsebayes.inspection` has more pictures, of classifiers.
"""

from __future__ import annotations

from ._display_data import PredictiveBandDisplay, RelevanceVectorsDisplay
from ._display_fit import AlphaSpectrumDisplay, EvidencePathDisplay
from ._display_probability import ProbabilityDisplay

__all__ = [
    "AlphaSpectrumDisplay",
    "EvidencePathDisplay",
    "PredictiveBandDisplay",
    "ProbabilityDisplay",
    "RelevanceVectorsDisplay",
]
