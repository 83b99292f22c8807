"""Texts that several docstrings share, and the decorator that inserts them."""

from __future__ import annotations

import re
from types import FunctionType
from typing import Final, TypeVar

_Class = TypeVar("_Class", bound=type)
_PLACEHOLDER: Final = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)


def documented(cls: _Class) -> _Class:
    """Replace each line ``{name}`` in the docstrings of a class and its methods by ``TEXTS[name]``."""

    def expand(line: re.Match[str]) -> str:
        indent, name = line.groups()
        lines = _PLACEHOLDER.sub(expand, TEXTS[name]).strip("\n").split("\n")
        return "\n".join(f"{indent}{text}".rstrip() for text in lines)

    for target in (cls, *vars(cls).values()):
        target = getattr(target, "fn", target)  # of `available_if`
        if isinstance(target, (type, FunctionType)) and target.__doc__:
            target.__doc__ = _PLACEHOLDER.sub(expand, target.__doc__)
    return cls


TEXTS: Final = {
    # Groups of parameters.
    "kernel_parameters": r"""{kernel}
gamma : {"ard", "learn", "scale", "auto"} or positive float, default="ard"
    As 1 / width^2, a parameter of kernels given by name. ``"ard"`` learns a width for each input, which shows
    the inputs that matter (``inputs_``), and one for all of ``"laplacian"``; ``"learn"`` learns one for all.
    ``"scale"``: 1 / (n_features * variance of X), which takes a fraction of the time; ``"auto"``: 1 /
    n_features. ``"poly"`` and ``"sigmoid"``, and lists with one of them or with an object that has parameters
    of its own, take ``"scale"`` instead of learning. See Notes.
{degree_coef0}
{fit_intercept}
    It is always in the model, unless it has a precision of its own: see ``penalize_intercept``.
optimize_kernel : bool, default=False
    Whether to learn all continuous kernel parameters: widths, gammas, and coef0 if not 0. See Notes.""",
    "mrvm_kernel_parameters": r"""{kernel_values}
    A list makes one composite kernel, a convex combination whose weights are learned;
    `sparsebayes.kernels.OnColumns` restricts a kernel to some of the columns.
{gamma}
{degree_coef0}
{fit_intercept}
    It may be pruned like any other. The paper has none.""",
    "revm_kernel_parameters": r"""{kernel}
{gamma}
{degree_coef0}
{fit_intercept}""",
    "centre_parameters": "{extra_basis}\n{unpenalized}\n{candidates}\n{random_state}\n{checkpoint}",
    "noise_parameters": "{likelihood}\n{noise_variance}\n{shared_noise}\n{noise_prior}\n{noise_basis}",
    "noise_basis": r"""noise_basis : {"linear"}, transformer or callable, optional
    Functions that the log of the noise variance is linear in: the columns of X; those of a scikit-learn
    transformer, cloned and fitted to X; or those of a callable ``f(X) -> (n, p)``. None: the same noise in
    all rows. A sparse model of these functions, with a Gamma likelihood, alternates with that of the mean.
    Needs rows in memory, a Gaussian likelihood and y of one column; such models are not exported.""",
    "fit_parameters": "{penalize_intercept}\n{complexity}\n{scheme}\n{alpha_prior}\n{memory_limit}\n"
    "{search}\n{tol}\n{run_parameters}",
    "run_parameters": "{max_iter}\n{n_jobs}\n{verbose}\n{callback}",
    "mrvm_candidates": r"""n_quadrature : int, optional
    Quadrature nodes for each integral over the likelihood. None: 16 for up to 14 classes, 24 for more, which
    gives probabilities to 1e-6.
{candidates}
{random_state}""",
    "revm_classifier_parameters": r"""{revm_kernel_parameters}
ridge : positive float, default=3e-3
    Precision of the common prior that the likelihood is maximised under, in units of the mean curvature at
    w = 0, trace(Phi^T Phi) / (4 M). See Notes of `GREVM`.
tol : positive float, default=1e-8
    Error of a maximum in posterior standard deviations; under a Laplace prior, error of the Kuhn-Tucker
    conditions relative to the prior's slope.
max_iter : int, default=1000
    Largest number of steps of each search.
{revm_n_jobs}
{verbose}""",
    "revm_regressor_parameters": r"""{revm_kernel_parameters}
noise_variance : positive float, optional
    Variance of the noise; None: estimated.
{revm_n_jobs}
{verbose}""",
    "targets_fit_sections": """Parameters
----------
{X_fit}
y : array-like of shape (n_samples,)
    Targets.
{sample_weight}

{fit_sections}""",
    "decision_sections": """Parameters
----------
{X}

Returns
-------
ndarray of shape (n,) or (n, n_classes)
    Two classes: one number, positive for the second. More: a column for each class.

{predict_raises}""",
    # Parameters of estimators.
    "kernel_values": r"""kernel : str, kernel object, callable, or list of these, default="rbf"
    ``"rbf"``, ``"matern32"``, ``"matern52"``, ``"rational_quadratic"``, ``"laplacian"``, ``"poly"``,
    ``"linear"``, ``"sigmoid"``, ``"linear_spline"``; an object of `sparsebayes.kernels`; a callable
    ``k(X, Z) -> (n, m)``; or ``"precomputed"``: X holds kernel values.""",
    "kernel": r"""{kernel_values}
    A list makes a dictionary of every kernel centred at every training row.""",
    "gamma": r"""gamma : {"scale", "auto"} or positive float, default="scale"
    As 1 / width^2, a parameter of kernels given by name. ``"scale"``: 1 / (n_features * variance of X);
    ``"auto"``: 1 / n_features.""",
    "degree_coef0": r"""degree : int, default=3
    Degree of the kernel named ``"poly"``.
coef0 : float, default=0.0
    Constant of the kernels named ``"poly"`` and ``"sigmoid"``.""",
    "fit_intercept": r"""fit_intercept : bool, default=True
    Whether the dictionary includes a constant function, the bias.""",
    "column_intercept": r"""fit_intercept : bool, default=True
    Whether the model has a constant function, the intercept. The columns are then centred by their weighted
    mean: a constant added to a column changes only ``intercept_``.""",
    "allow_dense": r"""allow_dense : bool, default=True
    Whether all columns may have weights. Where many columns have effects, few of them predict badly. So all
    weights are estimated too, with one prior variance for columns of mean square 1, as in ridge regression;
    they are the model if rows left out are predicted better by a standard error. ``active_`` then holds
    all columns. False: the model is always sparse. Tried with 16 rows and more, at most 1000 columns, both in
    memory and dense, and one column of y; for numbers with ``likelihood="gaussian"`` or ``"student_t"``,
    without ``noise_prior`` and ``groups``; for classes without a softmax; not with ``complexity="none"``,
    ``penalize_intercept=True``, ``fit_intercept=False`` or another scheme than ``"sequential"``.""",
    "process_variance": r"""process_variance_ : float
    Where all columns have weights: the prior variance of weights of columns of mean square 1. The log
    evidence, its path and ``n_iter_`` are those of the sparse model.""",
    "penalize_intercept": r"""penalize_intercept : bool, default=False
    Whether the intercept has a prior precision of its own and may be pruned, as in Tipping (2001). False: its
    prior is flat, so it is always in the model, and adding a constant to y changes nothing but the intercept.
    With ``scheme="variational"`` the intercept always has a precision.""",
    "complexity": r"""complexity : {"auto", "none", "aic", "bic", "ebic"} or float, default="auto"
    Weight c of a prior on the complexity of the model, which keeps it from overfitting: with the trace of the
    matrix S that maps targets to fitted values, the number of weights that the data determine, the objective
    is the log evidence minus c tr S (Schmolck & Everson 2007). ``"none"``: 0, as in Tipping (2001);
    ``"aic"``: 1; ``"bic"``: half the log of the number of rows; ``"ebic"``: that, and half the log of the
    number of functions in the dictionary, divided among the outputs (Chen & Chen 2008). Larger: fewer
    functions, wider error bars.
    ``"auto"``: 0.5 for kernels, ``"ebic"`` for columns; 0 with ``alpha_prior`` or another scheme than
    ``"sequential"``.""",
    "likelihood": r"""likelihood : {"gaussian", "student_t", "poisson", "negative_binomial", "gamma"}
    Distribution of y given the linear predictor eta. ``"gaussian"``, the default; ``"student_t"``: like it,
    but with outliers; ``"poisson"``: counts of mean exp(eta); ``"negative_binomial"``: counts that vary more;
    ``"gamma"``: positive numbers of mean exp(eta) whose standard deviation is proportional to it. All but the
    Gaussian need y of one column. See Notes.
dispersion : positive float, optional
    d of ``"negative_binomial"``, whose variance is m + d m^2 at the mean m, or of ``"gamma"``, whose variance
    is d m^2; from 1e-6 to 1e4. None: estimated.
degrees_of_freedom : float from 2.1 to 1000, optional
    Of ``"student_t"``. None: estimated; few if there are many outliers. With a tenth of gross outliers or
    more they end at 2.1, and intervals contain nearly all other rows, but few of the outliers.""",
    "likelihood_attributes": r"""noise_model_ : SparseBayesRegressor
    With ``noise_basis`` only, like ``noise_basis_``, the fitted transformer or ``noise_basis`` itself: the
    model of ln of the noise variance. ``noise_variance_`` is the geometric mean over the training rows.
dispersion_ : float
    With ``"negative_binomial"`` and ``"gamma"`` only.
degrees_of_freedom_ : float
    With ``"student_t"`` only, like ``row_weights_``.
row_weights_ : ndarray of shape (n_samples,)
    Precision of each row relative to ``beta_``, as expected from its residual r in units of the scale,
    (nu + 1) / (nu + r^2) up to the variance of the prediction: nearly 0 for outliers; 0 for rows of weight
    0.""",
    "likelihood_notes": r"""Counts and positive numbers are fitted by the Laplace approximation (Tipping
& Faul 2003, section 2.2): the fit ends at a fixed point of updates that treat the working weights as
constants. A dispersion maximises the Laplace evidence. Student's t is a Gaussian whose precision varies from
row to row; a weighted fit and the distribution of these precisions maximise a lower bound of the log evidence
in turn (Tipping & Lawrence 2005), which ``log_marginal_likelihood_`` holds. The first precisions are those of
a Gaussian process, which hardly follows outliers; kernels are learned from the other rows. There are several
fits then: ``callback`` receives their steps one after another; ``n_iter_`` and
``log_marginal_likelihood_path_`` are of the last.""",
    "noise_variance": r"""noise_variance : positive float or array-like of shape (n_outputs,), optional
    Variance of the noise, of every output or of each; with ``"student_t"`` the square of its scale. None:
    estimated, with the lower bound var(y) / 1e6, of the middle half of y with ``"student_t"``. Only with
    ``"gaussian"`` and ``"student_t"``, like ``noise_prior``.""",
    "shared_noise": r"""shared_noise : bool, default=False
    Whether all columns of y have one noise level (multiple measurement vectors) instead of one each.""",
    "multi_class": r"""multi_class : {"ovr", "softmax"}, default="ovr"
    For more than two classes: ``"ovr"`` fits each against the rest; ``"softmax"`` fits one multinomial model,
    with the full Hessian over all weights, and needs about half as many functions.""",
    "class_weight": r"""class_weight : {"balanced"} or dict, optional
    Factor on the weight of each row, by its class: a dict {label: factor}, 1 for other labels; or
    ``"balanced"``, which gives all classes the same total weight and keeps the total of all rows. Only for
    rows in memory. Weights count as rows, so a rare class that is weighted up is overfitted: rather fit
    without, and decide with ``prior`` in `predict`.""",
    "extra_basis": r"""extra_basis : {"auto", "linear"}, transformer, callable or None
    Functions besides the kernels. ``"linear"``: the columns of X; or those of a scikit-learn transformer,
    cloned and fitted to X; or those of a callable ``f(X) -> (n, p)``. Both get X as an array, without
    names. ``"auto"``, the default of `RVR`: ``"linear"`` if the kernel is learned and rows left out are
    predicted better with linear terms. They are not tried with the papers' priors (``complexity="none"``,
    ``penalize_intercept=True``), other schemes and likelihoods than Gaussian and Student's t, rows in chunks,
    and from 100,000 rows on. None, the default of `RVC`: none.""",
    "unpenalized": r"""unpenalized : "all", or list of int or str, optional
    Columns of ``extra_basis`` whose weights have a flat prior, like the intercept: always in the model, with
    ``alpha_`` 0. Adding such a column to y changes nothing but its weight. ``"all"``, positions, or, with
    ``"linear"``, names. Not with a softmax and ``scheme="variational"``.""",
    "scheme": r"""scheme : {"sequential", "mackay", "em", "variational"}, default="sequential"
    Algorithm for the precisions. ``"sequential"`` changes one function at a time (Tipping & Faul 2003).
    ``"mackay"`` and ``"em"`` prune the full basis in N^3 time (Tipping 2001, appendix A).
    ``"variational"``, also N^3, infers posteriors of the precisions (Bishop & Tipping 2000). See Notes.""",
    "alpha_prior": r"""alpha_prior : (shape, rate), default=(0.0, 0.0)
    Gamma prior of each :math:`\alpha_j`; (0, 0) is uniform in :math:`\ln \alpha_j`. The log posterior counts
    the log density of each :math:`\ln \alpha_j` in the model relative to its peak.""",
    "noise_prior": r"""noise_prior : (shape, rate), default=(0.0, 0.0)
    Gamma prior of :math:`\beta`; (0, 0) is uniform in :math:`\ln \beta`.""",
    "candidates": r"""candidates : "auto", int, array-like (n_candidates, n_features) or None, default="auto"
    Centres of the kernel functions. ``"auto"``: up to 2000 rows every training row; of more rows 1000 to 2000
    that are drawn at random, the same ones in each fit. None: every training row; time and memory then grow
    with N^2. An int: that many distinct rows, chosen by k-means++ (inputs should have comparable scales). An
    array: its rows. With ``kernel="precomputed"`` an int chooses columns of X, ``"auto"`` all; an array is
    an error.""",
    "landmarks": r"""landmarks : int, "auto" or None, default="auto"
    The sparse fits, of each class against the rest, choose relevance vectors. Then the weights of all
    classes are estimated anew, together, with one Gaussian process as the prior of their functions, which
    are kernels at the relevance vectors and at up to ``landmarks`` other candidates, spread over the data
    (chosen from 1000 of them, or as many as landmarks). This mostly predicts better, with a larger model; if
    rows left out are predicted no better than by the shares of the classes, the model is ``"empty"``.
    ``None``: the sparse fits are the model, often with some ten functions. ``"auto"``: 150 for two classes
    and 300 for more, if the rows are in memory (``memory_limit``) and the kernel is learned and falls with
    the distance, such as ``"rbf"``, `kernels.Matern52` or ``"laplacian"``; else None. None too with
    ``complexity="none"``, ``penalize_intercept=True``, ``fit_intercept=False``, ``multi_class="softmax"`` or
    another scheme than ``"sequential"``.""",
    "landmarks_of_numbers": r"""landmarks : int, "auto" or None, default="auto"
    Where y has little noise a few functions cannot follow it. The weights are then estimated anew with one
    Gaussian process as the prior of the function, which is a sum of kernels at the relevance vectors and at
    up to ``landmarks`` other candidates, spread over the data (chosen from 1000 of them, or as many as
    landmarks); fewer where these leave much less than the noise. ``None``: the sparse model, often with some
    ten to a hundred functions, small and fast to serve. ``"auto"``: up to 2000 landmarks, of as many
    candidates, where the process predicts rows left out better, by three standard errors more than its widths
    cost (four with at most 60 rows), or where the sparse model predicts far worse than its trials promised;
    relevance vectors are then chosen among 500. With ``kernel="rbf"`` and ``gamma="ard"`` its kernel,
    ``kernel_``, is a Matern one, `kernels.Matern52` or `kernels.Matern32`, if the targets are more probable
    with it, as those of rough functions are (not with fewer than 100 landmarks); a `kernels.Gaussian` that is
    given remains one. That is tried with 16 to 30,000 rows in memory, one column of y with
    ``likelihood="gaussian"`` or ``"student_t"``, without ``noise_prior``, and a learned kernel that falls
    with the distance, such as ``"rbf"`` or `kernels.Matern52`; not with ``complexity="none"``,
    ``penalize_intercept=True``, ``fit_intercept=False`` or another scheme than ``"sequential"``.""",
    "random_state": r"""random_state : int, RandomState instance or None, default=None
    Seed for choosing an integer number of ``candidates``; nothing else depends on it.""",
    "memory_limit": r"""memory_limit : int or str, optional
    Bytes that a fit may use besides the data: a number or a text such as ``"2GiB"``. None: half of the memory
    of the computer or container.""",
    "checkpoint": r"""checkpoint : str or path-like, optional
    File for the state of a fit that reads its rows in chunks or its dictionary in blocks. After a crash the
    fit continues from it, to the same model bit for bit. Removed at the end. Classifications need the rows in
    memory; each of several classes has a file.""",
    "search": r"""search : {"greedy", "exchange"}, default="greedy"
    ``"exchange"``: after the sequential scheme replace one or two functions of the model by one or two others
    until no exchange gains a thousandth of a nat, in about three times the time; y must have one column.
    Models of classes and counts with at most 20 functions always try a few exchanges.""",
    "tol": r"""tol : positive float, default=1e-6
    At convergence no :math:`\ln \alpha_j` nor :math:`\ln \beta` would change by more (Tipping & Faul 2003,
    section 4.4), and no inactive function has a gain.""",
    "max_iter": r"""max_iter : int, default=100_000
    Largest number of steps of each fit; see `sparsebayes.StepRecord`.""",
    "n_jobs": r"""n_jobs : int, optional
    Number of threads; None or -1: one per core. The result does not depend on it.""",
    "revm_n_jobs": r"""n_jobs : int, optional
    Threads that evaluate kernels; None or -1: one per core. The rest uses one thread.""",
    "verbose": r"""verbose : int, default=0
    1: show a progress bar, which needs tqdm: ``pip install "sparsebayes[progress]"``.""",
    "callback": r"""callback : callable, optional
    Called with a `sparsebayes.StepRecord` after each step; True stops the fit, as its ``status_`` says.""",
    # Attributes.
    "fit_attributes": "{log_marginal_likelihood_}\n{status_}\n{kernel_weights}\n{kernel_attributes}",
    "loo_": r"""loo_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
    Log density of each training target given the other rows, with the precisions and the noise as fitted; NaN
    for rows of weight 0. Only for rows in memory.
loo_coverage_ : float or ndarray of shape (n_outputs,)
    Share of rows, by weight, within their 95 % intervals given the other rows.""",
    "class_loo_": r"""loo_ : ndarray of shape (n_samples,)
    Log probability of the class of each training row given the other rows, with the precisions as fitted; NaN
    for rows of weight 0. Only for rows in memory.""",
    "classes_": r"""classes_ : ndarray of shape (n_classes,)
    The labels, sorted.""",
    "class_prior_": r"""class_prior_ : ndarray of shape (n_classes,)
    Share of each class among the training rows, by weight (``sample_weight`` times ``class_weight``).""",
    "log_marginal_likelihood_": r"""log_marginal_likelihood_ : float
    Log evidence in nats; for classification its Laplace approximation (Tipping 2001), summed over the fits.
log_marginal_likelihood_path_ : ndarray of shape (n_iter_ + 1,)
    The log evidence, with priors the log posterior, at the start and after each step. For classification it
    may fall where a step finds the mode again.
n_iter_ : int
    Number of steps, of all fits together.""",
    "relevance_": r"""relevance_ : ndarray of shape (n_relevance,), int
    Training rows with a function in the model, ascending.
{relevance_vectors_}""",
    "relevance_vectors_": r"""relevance_vectors_ : ndarray of shape (n_relevance, n_features)
    The inputs of these rows; not with ``kernel="precomputed"``.""",
    "kernel_functions": r"""active_ : ndarray of shape (n_active,), int
    Functions in the model (of any class), ascending: the training row, and -1 for the bias. Row n of kernel p
    of several is ``p * n_samples + n``; extra column j after P kernels is ``P * n_samples + j``.""",
    "kernel_weights": r"""{relevance_}
dual_coef_ : ndarray of shape (1 or n_outputs, n_relevance)
    Weights of these functions, a row for each output or class; not with a list of kernels.
intercept_ : ndarray of shape (1 or n_outputs,)
    Constant of the linear predictor: the weight of the bias, corrected for centred columns.
{kernel_coef_}""",
    "kernel_coef_": r"""coef_ : ndarray of shape (1 or n_classes, n_features)
    Weights of the columns of X; with a linear kernel only.""",
    "kernel_attributes": r"""extra_coef_ : ndarray of shape (1 or n_classes, p)
    Weights of the extra columns, 0 where pruned; only with ``extra_basis``.
extra_basis_ : transformer, callable, "linear" or None
    The fitted transformer, or ``extra_basis`` itself.
{candidates_}
kernel_ : kernel object, list of these, or "precomputed"
    The kernel with all its parameters, given or learned; of `RVR` perhaps a Matern one (``landmarks``).
inputs_ : dict of {str or int: float}
    Relevance of each input, the most important first: the root mean square change of the prediction if the
    values of the input are exchanged between rows, relative to the largest. Only for rows in memory and one
    kernel with one width per input, as learned by default.
{n_features_in_}""",
    "candidates_": r"""candidates_ : ndarray of shape (n_candidates, n_features)
    The centres; only with ``candidates``, not with ``kernel="precomputed"``. If they were given, ``active_``
    and ``relevance_`` count rows of this array.
candidate_rows_ : ndarray of shape (n_candidates,), int
    The chosen training rows, ascending; only if ``candidates`` is an int, or ``"auto"`` of many rows.""",
    "X_offset_": r"""X_offset_ : ndarray of shape (n_features,)
    Weighted means subtracted from the columns, 0 with ``fit_intercept=False``; ``mu_`` and ``sigma_`` refer
    to centred columns.
{n_features_in_}""",
    "n_features_in_": r"""n_features_in_, feature_names_in_
    Number of columns of X, and their names if they are strings, as everywhere in scikit-learn.""",
    "revm_alpha_laplace": r"""alpha_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
    Parameter of the prior along each eigenvector; inf where that is irrelevant. A coordinate may be zero
    even if its parameter is finite.""",
    "revm_gaussian_attributes": r"""{classes_}
alpha_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
    Prior precision along each eigenvector; inf where that is irrelevant.
{revm_attributes}
{revm_status_}""",
    "revm_attributes": r"""eigenvalues_ : ndarray of shape (n_basis,) or (n_basis, n_classes)
    Eigenvalues h of the negative Hessian of the log likelihood, descending; with more than two classes a
    column for each. ``n_basis`` is the number of functions: distinct training rows and the bias.
n_effective_ : int or ndarray of shape (n_classes,)
    Number of coordinates u that are not zero.
ridge_ : float or ndarray of shape (n_classes,)
    Precision of the weak common prior, in the units of the weights.
dual_coef_ : ndarray of shape (1 or n_classes, n_relevance)
    Weights of the kernel functions; those of several kernels one after the other.
intercept_ : ndarray of shape (1 or n_classes,)
    Constant of the prediction.
{kernel_coef_}
relevance_ : ndarray of shape (n_relevance,), int
    Training rows with a function: all distinct ones.
{relevance_vectors_}
kernel_ : kernel object, list of these, or "precomputed"
    The kernel with all its parameters.
{n_features_in_}""",
    "revm_regressor_attributes": r"""noise_variance_, beta_ : float
    Variance of the noise, and its inverse.
{revm_attributes}
n_iter_ : int
    1.
status_ : str
    ``"converged"``; ``"empty"``: no eigenvector is relevant; or ``"noise_floor"``: the noise variance is at
    its lower bound, var(y) / 1e6.""",
    "revm_status_": r"""n_iter_ : int
    Number of steps, of all searches together.
status_ : str
    ``"converged"``; ``"empty"``: no eigenvector is relevant at any ridge; ``"max_iter"``. Of several fits the
    worst.""",
    "mrvm_functions": r"""{classes_}
class_prior_ : ndarray of shape (n_classes,)
    Share of each class among the training rows, by weight.
active_ : ndarray of shape (n_active,), int
    Functions in the model, ascending: the training row, and -1 for the bias.""",
    "mrvm_attributes": r"""{relevance_}
dual_coef_ : ndarray of shape (n_classes, n_relevance)
    Weights of these functions.
intercept_ : ndarray of shape (n_classes,)
    Constant of each score.
{kernel_coef_}
kernel_ : kernel object, list of these, or "precomputed"
    The kernels with all their parameters.
kernel_weights_ : ndarray of shape (n_kernels,)
    Weights of their convex combination: not negative, sum 1.
{candidates_}
n_relevance_path_ : ndarray of shape (n_iter_ + 1,), int
    Number of functions in the model at the start and after each iteration.
{n_features_in_}""",
    # Notes and references.
    "learning_notes": r"""
To learn a kernel, a Gaussian process on at most 1000 rows proposes parameters, and rows left out, of at most
10,000, choose between these and shorter or longer lengths, for classes also equal ones. The evidence, which
overfits narrow kernels, may fall. Widths start at 2 sqrt(n_features) times the standard deviation of each
input; those of inputs that do not matter become large or infinite. All classes and outputs share one kernel.
If rows are read in chunks, or come through ``partial_fit``, the kernel is learned from at most 2000 of them,
or from those of the first call.""",
    "variational_notes": r"""
With ``scheme="variational"`` the posterior is :math:`q(w) q(\alpha) q(\beta)`: ``alpha_`` (and ``beta_``) are
expectations, ``mu_`` and ``sigma_`` belong to q(w), and ``log_marginal_likelihood_`` is a lower bound. The
paper's priors are (1e-6, 1e-6); with (0, 0) the constants of the improper priors are omitted.""",
    "block_notes": r"""
More than 30,000 kernel functions are processed in blocks: the scheme runs on a working set of a few thousand,
sweeps over the other candidates add those with a gain, and the last sweep finds none.""",
    "tipping": r"""References
----------
C. M. Bishop and M. E. Tipping (2000). Variational relevance vector machines. UAI, 46-53.

M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1, 211-244.

M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian models.
AISTATS.""",
    "kropotov": r"""References
----------
D. Kropotov and D. Vetrov (2007). On one method of non-diagonal regularization in sparse Bayesian
learning. ICML, 457-464.""",
    "psorakis": r"""References
----------
I. Psorakis, T. Damoulas and M. Girolami, "Multiclass relevance vector machines: sparsity and accuracy",
IEEE Transactions on Neural Networks 21(10), 2010.""",
    # Parameters and sections of methods.
    "X_fit": r"""X : array-like of shape (n_samples, n_features)
    Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples).""",
    "sample_weight": r"""sample_weight : array-like of shape (n_samples,), optional
    Weight of each row: a row of weight 2 counts like two equal rows, one of weight 0 like none. (A
    learned kernel may differ between weights and copies.)""",
    "labels_fit_sections": r"""Parameters
----------
{X_fit}
y : array-like of shape (n_samples,)
    Class labels of any type, at least two different ones.
{sample_weight}

{fit_sections}""",
    "fit_sections": r"""Returns
-------
self

Raises
------
TypeError, ValueError
    If an argument has the wrong type or an invalid value; the message names it and the remedy.
NumericalError
    If the arithmetic broke down on valid input.
KeyboardInterrupt
    On Ctrl-C, within a second.

{fit_warns}""",
    "fit_warns": r"""Warns
-----
ConvergenceWarning
    If the fit ended with a ``status_`` other than ``"converged"`` or ``"stopped"``.
OverfitWarning
    If the data determine more parameters than half of the rows, or the status is ``"noise_floor"``; it is a
    ``ConvergenceWarning`` too.
UserWarning
    If a kernel has one scale for inputs whose standard deviations differ more than a thousandfold.""",
    "X": r"""X : array-like of shape (n, n_features)
    Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n, n_samples).""",
    "return_std": r"""return_std : bool, default=False
    Whether to return the predictive standard deviation too.""",
    "return_cov": r"""return_cov : bool, default=False
    Whether to return the joint covariance of the targets instead; only with a Gaussian likelihood.""",
    "y_std": r"""y_std : positive float or array-like of shape (n,), optional
    Standard deviations of new targets, after a fit with ``y_std``: they add ``noise_variance_ * y_std**2`` to
    the variance. None: a typical row, whose ``y_std**2`` is the harmonic mean of those of the fit.""",
    "exposure": r"""exposure : positive float or array-like of shape (n,), optional
    Exposures of new counts or positive targets, which multiply their mean. None: an exposure of 1.""",
    "predict_sections_std": r"""Returns
-------
mean : ndarray of shape (n,) or (n, n_outputs)
std : ndarray of the same shape
    Only if ``return_std``.
cov : ndarray of shape (n, n) or (n, n, n_outputs)
    Only if ``return_cov``: the noise is on the diagonal.

{predict_raises}""",
    "status_": r"""status_ : str
    ``"converged"``; ``"empty"``: converged, but the model predicts the same everywhere; ``"noise_floor"`` or
    ``"alpha_floor"``: converged, but the noise variance or dispersion, or a prior precision, is at its lower
    bound; ``"max_iter"``; ``"stopped"`` by the callback; ``"stalled"``: rounding prevented convergence to
    ``tol``. Of several fits the worst.""",
    "prior": r"""prior : array-like of shape (n_classes,), optional
    Share of each class, in the order of ``classes_``, where the model is used; they sum to 1. None: as in
    training, ``class_prior_``. Probabilities become proportional to :math:`p_c \, \mathrm{prior}_c /
    \mathrm{class\_prior}_c`: Bayes' rule, if the inputs of each class are distributed as in training (Elkan
    2001, Saerens et al. 2002).""",
    "predict_prior_sections": r"""Parameters
----------
{X}
{prior}

Returns
-------
{labels}

{predict_raises}""",
    "labels": r"""ndarray of shape (n,)
    Labels out of ``classes_``.""",
    "predict_sections": r"""Parameters
----------
{X}

Returns
-------
{labels}

{predict_raises}""",
    "predict_proba_sections": r"""Parameters
----------
{X}

Returns
-------
{probabilities}

{predict_raises}""",
    "predict_raises": r"""Raises
------
NotFittedError
    Before ``fit``.
TypeError, ValueError
    If X is not a finite numeric matrix with the columns that ``fit`` saw.""",
    "probabilities": r"""ndarray of shape (n, n_classes)
    Columns as in ``classes_``; rows sum to 1.""",
    "display_data": r"""points, vectors : array-like of shape (n, 2) and (n_relevance, 2)
    Coordinates of the data and of the relevance vectors.
y : array-like of shape (n,), optional
    Targets or labels of the data.
classes : array-like of shape (n_classes,), optional
    All labels of a classifier.
labels : sequence of str, default=("x", "y")
    Labels of the axes.""",
    "provider_sections": r"""n_samples : int, optional
    Number of rows, which `sparsebayes.inspection.certificate` compares; None: that of the provider, if known.

Returns
-------
self
    With the attributes that ``fit`` publishes, except ``feature_names_in_``.

Raises
------
TypeError, ValueError
    If an argument or a result of the provider is invalid, or the estimator needs the rows themselves.
    Exceptions of the provider are passed on unchanged.""",
}
