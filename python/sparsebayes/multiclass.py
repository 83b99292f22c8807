"""Multinomial probit machines of several kernels: `MRVM1` from the bottom up, `MRVM2` from the top down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from ._checks.arguments import check_flag, check_real
from ._mrvm.estimator import ProbitMachine
from ._mrvm.updates import Constructive, Outcome, Task, TopDown
from ._types import Callback, Candidates, KernelSpec, OutputsProblem
from .inspection._probit import written_out

__all__ = ["MRVM1", "MRVM2"]


def _check_convergence(value: object, rules: tuple[str, str]) -> str:
    if isinstance(value, str) and value in rules:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"convergence must be {rules[0]!r} or {rules[1]!r}, got {value!r}")


class MRVM1(ProbitMachine):
    r"""Multi-class relevance vector machine that builds its model up: mRVM1 of Psorakis et al. (2010).

    Each class has a score :math:`w_c^T \phi(x)`; each row has an auxiliary target for each class, its score
    plus standard normal noise, and belongs to the class whose target is largest. The weights of function i
    in all classes have one prior precision :math:`\alpha_i`. In turns the targets are replaced by their
    expectations given the class (equations 3 and 4), and the evidence of the targets is maximised over
    functions and precisions by the sequential scheme with :math:`\alpha_i = C s_i^2 / (\sum_c q_{ci}^2 - C
    s_i)` (equations 6 to 21). A handful of training rows remain, prototypes of the classes.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        As for `RVC`. A list makes one composite kernel, a convex combination whose weights are learned;
        `sparsebayes.kernels.OnColumns` gives each kernel columns of its own.
    gamma : {"scale", "auto"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias. Like any other function it may be pruned.
        The paper has none.
    convergence : {"conv2", "conv1"}, default="conv2"
        ``"conv1"``: once every function in the model contributes, none outside does, and no
        :math:`\ln \alpha` changes by ``tol``. ``"conv2"``: not before ``min_iter_factor * n_samples``
        iterations either.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"conv2"``.
    n_quadrature : int, optional
        Nodes for each integral over the likelihood. None: 16 for up to 14 classes and 24 beyond, which give
        probabilities to 1e-6.
    candidates : int or array-like of shape (n_candidates, n_features), optional
        Centres of the kernel functions in the dictionary, as for `RVC`. None: every training row. An int:
        that many training rows, or all where there are no more, spread over the inputs by k-means++. An
        array: its rows, which need not be training rows. With ``kernel="precomputed"`` an int chooses columns
        of X, and an array is an error.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice that an integer ``candidates`` asks for; an int makes it the same in every fit.
        Nothing else is random.
    tol : positive float, default=1e-6
        At convergence E-step and M-step together would change no :math:`\ln \alpha` by more.
    max_iter : int, default=100_000
        Largest number of iterations.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each iteration; returning True stops the fit with the
        model as it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the training row, and -1 for the bias.
    alpha_ : ndarray of shape (n_active,)
        Prior precision of each function's weights.
    mu_ : ndarray of shape (n_active, n_classes)
        Posterior mean of the weights; it sums to zero over the classes.
    sigma_ : ndarray of shape (n_active, n_active)
        Posterior covariance of the weights of each class.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_classes, n_relevance)
        Their weights.
    intercept_ : ndarray of shape (n_classes,)
        Constant of each score, as for `RVR`.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernels with all their parameters.
    kernel_weights_ : ndarray of shape (n_kernels,)
        Their convex combination: none negative, sum 1.
    candidates_ : ndarray of shape (n_candidates, n_features)
        The centres, chosen or given; only with ``candidates``, and not with ``kernel="precomputed"``. Where
        they were given, ``active_`` and ``relevance_`` count rows of this array in place of training rows.
    candidate_rows_ : ndarray of shape (n_candidates,), int
        The training rows chosen, ascending; only where ``candidates`` is an int.
    n_iter_ : int
        Updates of a precision.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias;
        ``"alpha_floor"``: likewise, but a precision is at its floor; ``"max_iter"``; ``"stopped"`` by the
        callback; ``"stalled"``: rounding stood in the way.
    log_marginal_likelihood_ : float
        Log evidence of the auxiliary targets at the end, equation (6).
    log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The same at the start and after each iteration. Within an M-step it does not fall; from one to the
        next the targets change, and with them what it is the evidence of.
    lower_bound_path_ : ndarray
        After each E-step, the variational bound on the log evidence of the labels that E- and M-steps raise.
    lower_bound_ : float
        Its last value.
    n_relevance_path_ : ndarray of shape (n_iter_ + 1,), int
        Functions in the model.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    The model may end without functions, every class being equally probable everywhere: by its evidence the
    kernel links no rows of a class. So it is with kernels so narrow that each row stands alone, where a wider
    one (a smaller ``gamma``) or other units of X are what helps, and with two rows in all.

    References
    ----------
    I. Psorakis, T. Damoulas and M. Girolami, "Multiclass relevance vector machines: sparsity and accuracy",
    IEEE Transactions on Neural Networks 21(10), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM1
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MRVM1(gamma=0.25).fit(X, y)
    >>> len(model.relevance_) < 10, model.score(X, y) > 0.95
    (True, True)
    """

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        convergence: str = "conv2",
        min_iter_factor: float = 1,
        n_quadrature: int | None = None,
        candidates: Candidates = None,
        random_state: int | np.random.RandomState | None = None,
        tol: float = 1e-6,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.convergence = convergence
        self.min_iter_factor = min_iter_factor
        self.n_quadrature = n_quadrature
        self.candidates = candidates
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _run(self, task: Task) -> Outcome:
        rule = _check_convergence(self.convergence, ("conv1", "conv2"))
        return Constructive(task, at_once=rule == "conv1").run()

    def _publish_paths(self, outcome: Outcome) -> None:
        self.sigma_ = outcome.sigma
        self.log_marginal_likelihood_path_ = np.array(outcome.path)
        self.log_marginal_likelihood_ = outcome.path[-1]
        self.lower_bound_path_ = np.array(outcome.bounds)
        self.lower_bound_ = outcome.bounds[-1]

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Iterator[OutputsProblem]:
        """Yield the fit with its targets written out, for its certificate."""
        yield written_out(self, X, y, sample_weight)


class MRVM2(ProbitMachine):
    r"""Multi-class relevance vector machine that prunes its model down: mRVM2 of Psorakis et al. (2010).

    As `MRVM1`, with a precision :math:`\alpha_{ic}` for each function and class, a Gamma prior of each, and
    weights at the maximum of their posterior. It begins with all functions; in turns come the weights
    (equation 2), the expectations of the auxiliary targets (3, 4) and those of the precisions, :math:`(2
    \tau + 1) / (w_{ic}^2 + 2 \upsilon)` (5). Functions leave once all their precisions exceed 1e5, and do
    not come back. Precisions are in the units of the kernel's values, which should be of order 1.

    Parameters
    ----------
    kernel : str, kernel object, callable, or list of these, default="rbf"
        As for `RVC`. A list makes one composite kernel, a convex combination whose weights are learned;
        `sparsebayes.kernels.OnColumns` gives each kernel columns of its own.
    gamma : {"scale", "auto"} or positive float, default="scale"
        Of the kernels given by name ``"rbf"``, ``"laplacian"``, ``"poly"`` and ``"sigmoid"``. ``"scale"`` is
        1 / (n_features * variance of X), ``"auto"`` 1 / n_features.
    degree : int, default=3
        Of ``"poly"``.
    coef0 : float, default=0.0
        Of ``"poly"`` and ``"sigmoid"``.
    fit_intercept : bool, default=True
        Whether the dictionary holds a constant function, the bias. The paper has none.
    convergence : {"convA", "convN"}, default="convA"
        ``"convA"``: once no :math:`\ln \alpha` changes by ``tol``. ``"convN"``: after ``min_iter_factor *
        n_samples`` iterations.
    min_iter_factor : positive float, default=1
        The :math:`\lambda` of ``"convN"``.
    tau, upsilon : positive float, default=1e-6
        Shape and rate of the Gamma prior of each precision. No precision exceeds :math:`(2 \tau + 1) / (2
        \upsilon)`, so with ``upsilon`` above 5e-6 nothing is pruned.
    prune : bool, default=True
        False: all functions stay, the paper's non-sparse E-M model.
    n_quadrature : int, optional
        Nodes for each integral over the likelihood. None: 16 for up to 14 classes and 24 beyond, which give
        probabilities to 1e-6.
    candidates : int or array-like of shape (n_candidates, n_features), optional
        Centres of the kernel functions in the dictionary, as for `RVC`. None: every training row. An int:
        that many training rows, or all where there are no more, spread over the inputs by k-means++. An
        array: its rows, which need not be training rows. With ``kernel="precomputed"`` an int chooses columns
        of X, and an array is an error.
    random_state : int, RandomState instance or None, default=None
        Of the choice that an integer ``candidates`` asks for; an int makes it the same in every fit. Nothing
        else is random.
    tol : positive float, default=1e-3
        Of ``"convA"``.
    max_iter : int, default=100_000
        Largest number of iterations.
    n_jobs : int, optional
        Threads; None or -1: one per core. The result does not depend on it.
    verbose : int, default=0
        1: a progress bar, for which tqdm has to be installed: ``pip install "sparsebayes[progress]"``.
    callback : callable, optional
        Called with a `sparsebayes.StepRecord` after each iteration (its evidence is the log joint
        likelihood); returning True stops the fit with the model as it then is, and ``status_`` ``"stopped"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    active_ : ndarray of shape (n_active,), int
        Functions in the model, ascending: the training row, and -1 for the bias.
    alpha_ : ndarray of shape (n_active, n_classes)
        Expected precision of each weight.
    mu_ : ndarray of shape (n_active, n_classes)
        The weights.
    relevance_ : ndarray of shape (n_relevance,), int
        Training rows with a function in the model, ascending.
    relevance_vectors_ : ndarray of shape (n_relevance, n_features)
        Those rows; not with ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_classes, n_relevance)
        Their weights.
    intercept_ : ndarray of shape (n_classes,)
        Constant of each score, as for `RVR`.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights over the columns of X; with a linear kernel only.
    kernel_ : kernel object, list of these, or "precomputed"
        The kernels with all their parameters.
    kernel_weights_ : ndarray of shape (n_kernels,)
        Their convex combination: none negative, sum 1.
    candidates_ : ndarray of shape (n_candidates, n_features)
        The centres, chosen or given; only with ``candidates``, and not with ``kernel="precomputed"``. Where
        they were given, ``active_`` and ``relevance_`` count rows of this array in place of training rows.
    candidate_rows_ : ndarray of shape (n_candidates,), int
        The training rows chosen, ascending; only where ``candidates`` is an int.
    n_iter_ : int
        Iterations.
    status_ : str
        ``"converged"``; ``"empty"``: likewise, but no function is in the model apart from the bias;
        ``"max_iter"``; or ``"stopped"`` by the callback.
    log_joint_likelihood_ : float
        Log of the joint density of labels and weights at the end, up to a constant; precisions and auxiliary
        targets are integrated out.
    log_joint_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
        The same at the start and after each iteration. It does not fall, unless pruning takes functions that
        matter: those of a kernel whose values are so large that small weights do.
    n_relevance_path_ : ndarray of shape (n_iter_ + 1,), int
        Functions in the model.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    References
    ----------
    I. Psorakis, T. Damoulas and M. Girolami, "Multiclass relevance vector machines: sparsity and accuracy",
    IEEE Transactions on Neural Networks 21(10), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM2
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MRVM2(gamma=0.25).fit(X, y)
    >>> len(model.relevance_) < 15, model.score(X, y) > 0.95
    (True, True)
    """

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        convergence: str = "convA",
        min_iter_factor: float = 1,
        tau: float = 1e-6,
        upsilon: float = 1e-6,
        prune: bool = True,
        n_quadrature: int | None = None,
        candidates: Candidates = None,
        random_state: int | np.random.RandomState | None = None,
        tol: float = 1e-3,
        max_iter: int = 100_000,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.convergence = convergence
        self.min_iter_factor = min_iter_factor
        self.tau = tau
        self.upsilon = upsilon
        self.prune = prune
        self.n_quadrature = n_quadrature
        self.candidates = candidates
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _run(self, task: Task) -> Outcome:
        rule = _check_convergence(self.convergence, ("convA", "convN"))
        return TopDown(
            task,
            tau=check_real("tau", self.tau, positive=True),
            upsilon=check_real("upsilon", self.upsilon, positive=True),
            prune=check_flag("prune", self.prune),
            until_still=rule == "convA",
        ).run()

    def _publish_paths(self, outcome: Outcome) -> None:
        self.log_joint_likelihood_path_ = np.array(outcome.path)
        self.log_joint_likelihood_ = outcome.path[-1]

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Iterator[OutputsProblem]:
        """Say why there is no certificate."""
        raise TypeError(
            "est must be a machine that maximises an evidence; MRVM2 has none to certify, its weights are a "
            "maximum of their posterior. See log_joint_likelihood_path_, or use MRVM1"
        )
