"""Labels under a logistic likelihood, for the relevance eigen-vector machines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from .._checks.arguments import check_integer, check_real
from .._checks.targets import Training, learn_classes
from .._estimators.one_vs_rest import normalised
from .._types import FloatArray, KernelSpec
from .eigen import Approximation, Axes, Rules, Solution, classify
from .estimator import EigenMachine

if TYPE_CHECKING:
    from typing_extensions import Self


class EigenClassifier(ClassifierMixin, EigenMachine):  # type: ignore[misc] # scikit-learn carries no types
    """Two classes in one fit; more as one against the rest."""

    if TYPE_CHECKING:
        classes_: NDArray[Any]

    _labels = True
    _approximation: ClassVar[Approximation] = "laplace"

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        ridge: float = 3e-3,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Class labels of any type, at least two different ones.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or outside its domain; the message names it and the remedy.
        KeyboardInterrupt
            On Ctrl-C, within a second; what LAPACK has begun it ends in the background.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"``.
        OverfitWarning
            If effective eigenvectors are more than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _rules(self) -> Rules:
        return Rules(
            prior=self._prior,
            approximation=self._approximation,
            ridge=check_real("ridge", self.ridge, positive=True),
            tol=check_real("tol", self.tol, positive=True),
            max_iter=check_integer("max_iter", self.max_iter, least=1),
        )

    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        self.classes_ = learn_classes(training.y)
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        solutions = []
        for k, label in enumerate(positive):
            sign = np.where(training.y == label, 1.0, -1.0)
            solutions.append(self._fit_one(partial(classify, axes, sign, rules), k + 1, len(positive)))
        return solutions

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Return the linear predictor at the maximum of the posterior, :math:`w_{MP}^T \phi(x)`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        eta, _ = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities: the sigmoid of the decision function.

        As in the paper (section 2.2) they are those of the most probable weights. With more than two classes
        they are divided by their sum.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns as in ``classes_``; rows sum to 1.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        logits, _ = self._predictor(X)
        return normalised(logits)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Labels out of ``classes_``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        eta, _ = self._predictor(X)
        winners = (eta[:, 0] > 0.0).astype(np.intp) if eta.shape[1] == 1 else np.argmax(eta, axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels
