"""The optimality certificate holds for every converged fit, and for no other model."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import reference
from exact_reference import certificate_of_counts, log_alpha_change
from problems import PAPERS, PROBLEMS, assert_certified, sinc_1d, sinc_2d, two_classes
from reference import best_alpha, contribution, fit_laplace, fit_regression
from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_fit_ends_at_a_certified_optimum(name):
    problem = PROBLEMS[name]
    found = assert_certified(problem.fitted(), problem.X, problem.y, problem.sample_weight, problem.status)
    assert found.max_mean_error <= 1e-6


#: How fits of the default model end, other than converged.
ENDS = {"exact-fit": "noise_floor", "noise-only": "empty"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_fit_of_the_default_model_ends_at_a_certified_optimum(name):
    problem = PROBLEMS[name]
    model = problem.fitted(penalize_intercept=False, complexity="auto")
    status = ENDS.get(name, "converged")
    found = assert_certified(model, problem.X, problem.y, problem.sample_weight, status)
    assert found.max_mean_error <= 1e-6


def reference_certificate(problem):
    """Return the certificate by the reference's formulas, which invert the covariance itself."""
    used = slice(None) if problem.weights is None else problem.weights > 0
    Phi, t = problem.Phi[used], problem.target[used]
    w = None if problem.weights is None else problem.weights[used]
    active, alpha, inside = problem.active, problem.alpha, Phi[:, problem.active]
    if problem.likelihood == "gaussian":
        s, q, S, _ = reference.statistics(Phi, t, active, alpha, problem.beta, w)
        evidence = reference.log_evidence(inside, t, alpha, problem.beta, w)
        change = np.log(reference.noise_precision(inside, t, alpha, problem.beta, w) / problem.beta)
    else:
        s, q, S, _ = reference.laplace_statistics(Phi, t, active, alpha, problem.likelihood, w)
        evidence, change = reference.laplace_log_evidence(inside, t, alpha, problem.likelihood, w), 0.0
    outside = np.setdiff1d(np.flatnonzero(S > 1e-9 * np.max(S)), active)
    target = best_alpha(s[outside], q[outside])
    return SimpleNamespace(
        max_log_alpha_change=np.max(np.abs(np.log(best_alpha(s[active], q[active]) / alpha)), initial=0.0),
        max_gain_outside=np.max(contribution(target, s[outside], q[outside]), initial=0.0),
        log_beta_residual=abs(change),
        log_marginal_likelihood=evidence,
    )


# One problem of each kind, moved off its optimum so that the quantities are not zero.
@pytest.mark.parametrize(
    "name",
    ["sinc-1d-100-width-3.0", "columns-weights", "two-classes-100", "counts-columns", "logistic-columns"],
)
def test_certificates_are_those_of_the_reference(name):
    problem = PROBLEMS[name]
    model = problem.fitted()
    model.alpha_ = model.alpha_ * np.linspace(0.7, 1.4, len(model.alpha_))
    found = certificate(model, problem.X, problem.y, problem.sample_weight)
    (written_out,) = model._problems(problem.X, problem.y, problem.sample_weight)
    expected = reference_certificate(written_out)
    assert expected.max_log_alpha_change > 1e-2
    for field, value in vars(expected).items():
        np.testing.assert_allclose(getattr(found, field), value, rtol=1e-5, atol=1e-8, err_msg=field)


# --- models off their optimum -------------------------------------------------------------------------


@pytest.fixture
def regression():
    X, y = sinc_1d(80)
    return RVR(gamma=0.1).fit(X, y), X, y


@pytest.mark.parametrize("kind", [RVR, RVC])
def test_changed_precisions_and_means_and_missing_functions_are_noticed(regression, kind):
    model, X, y = regression
    if kind is RVC:
        X, y = two_classes(150)
        model = RVC(gamma=2.0).fit(X, y)
    alpha, mu = model.alpha_, model.mu_
    model.alpha_ = 1.001 * alpha
    assert certificate(model, X, y).max_log_alpha_change > 1e-4
    model.alpha_, model.mu_ = alpha, 1.01 * mu
    assert certificate(model, X, y).max_mean_error > 1e-3
    keep = np.arange(len(alpha)) != 1
    model.active_, model.alpha_, model.mu_ = model.active_[keep], alpha[keep], mu[keep]
    model.sigma_ = model.sigma_[np.ix_(keep, keep)]
    assert certificate(model, X, y).max_gain_outside > 1e-3


def test_other_targets_and_a_changed_noise_level_are_noticed(regression):
    model, X, y = regression
    assert certificate(model, X, y + 0.1 * np.sin(5 * X[:, 0])).max_log_alpha_change > 1e-3
    model.beta_ = 1.01 * model.beta_
    found = certificate(model, X, y)
    assert found.log_beta_residual > 1e-3
    assert found.log_marginal_likelihood < model.log_marginal_likelihood_


def test_an_irrelevant_function_in_the_model_is_noticed():
    X = np.random.default_rng(0).normal(size=(60, 4))
    y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=60)
    model = SparseBayesRegressor(fit_intercept=False).fit(X, y)
    outside = np.setdiff1d(np.arange(4), model.active_)[:1]
    model.active_ = np.append(model.active_, outside)
    model.alpha_ = np.append(model.alpha_, 1e4)
    order = np.argsort(model.active_)
    model.active_, model.alpha_ = model.active_[order], model.alpha_[order]
    model.mu_ = np.append(model.mu_, 0.0)[order]
    assert certificate(model, X, y).max_log_alpha_change == np.inf


def test_precisions_over_many_decades_cost_no_digits():
    # Q as a sum over the rows has an error of eps beta max(w) max|t|, here a hundredth of Q.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] - 0.5 * X[:, 2] + 0.1 * rng.normal(size=40)
    weights = 10.0 ** rng.uniform(-12, 12, 40)
    model = SparseBayesRegressor(fit_intercept=False, **PAPERS).fit(X, y, sample_weight=weights)
    Phi, found = X[:, model.active_], certificate(model, X, y, weights)
    expected = log_alpha_change(Phi, y, weights, model.alpha_, model.beta_)
    assert expected < 1e-5
    assert found.max_log_alpha_change == pytest.approx(expected, rel=0.01, abs=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("seed", "width"), [(0, 4.0), (2, 8.0), (3, 20.0)])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_nearly_dependent_functions_of_large_counts_cost_no_digits(seed, width, factor):
    # Working weights of 1e4 multiply the round-off of linear predictors: sums over rows lose Q = alpha mu.
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 1))
    y = rng.poisson(1e4 * np.exp(X[:, 0]) * rng.gamma(5, 0.2, 50))
    model = RVR(Gaussian(width), likelihood="poisson", **PAPERS).fit(X, y)
    model.alpha_[0] *= factor
    (problem,) = model._problems(X, y, None)
    change, gain = certificate_of_counts(
        problem.Phi, problem.target, problem.active, problem.alpha, problem.mu
    )
    found = certificate(model, X, y)
    assert found.max_log_alpha_change == pytest.approx(change, rel=1e-3, abs=1e-6)
    assert found.max_gain_outside == pytest.approx(gain, rel=1e-3)


def test_a_fit_cut_short_is_not_certified():
    X, y = sinc_1d(80)
    with pytest.warns(ConvergenceWarning):
        model = RVR(gamma=0.1, max_iter=3).fit(X, y)
    assert certificate(model, X, y).max_gain_outside > 1e-3


def test_labels_of_python_objects_have_a_certificate():
    X, y = two_classes(100)
    labels = np.array(["low", "high"], dtype=object)[y.astype(int)]
    assert_certified(RVC(gamma=0.5, landmarks=None).fit(X, labels), X, labels)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_empty_models_have_a_certificate():
    X = np.random.default_rng(0).normal(size=(30, 3))
    regression = SparseBayesRegressor(fit_intercept=False, noise_variance=1.0).fit(X, np.zeros(30))
    found = certificate(regression, X, np.zeros(30))
    assert (found.n_active, found.max_gain_outside) == (0, 0.0)
    X, y = np.ones((60, 2)), np.arange(60) % 3
    softmax = RVC(multi_class="softmax", gamma="scale", penalize_intercept=True).fit(X, y)
    assert certificate(softmax, X, y).n_active == len(softmax.active_) == 0


def test_what_is_known_about_rows_left_out(regression):
    model, X, y = regression
    found = certificate(model, X, y)
    assert (found.loo_score, found.loo_coverage) == (model._loo.scores.score, model.loo_coverage_)
    assert found.share_of_rows == len(model.relevance_) / len(X)
    labels = y > y.mean()
    found = certificate(RVC(gamma=0.1).fit(X, labels), X, labels)
    assert 0.5 < found.loo_score <= 1.0
    assert found.loo_coverage is None
    two = np.column_stack([y, y[::-1]])
    model = RVR(gamma=0.1).fit(X, two)
    assert certificate(model, X, two).loo_coverage == np.mean(model.loo_coverage_)
    machine = MRVM1(gamma=0.1).fit(X, labels)
    found = certificate(machine, X, labels)
    assert (found.loo_score, found.loo_coverage) == (None, None)


def test_other_objects_and_unfitted_models_are_refused(regression):
    model, X, y = regression
    for other in (GREVM(), "model"):
        with pytest.raises(TypeError, match=r"est must be a fitted RVR, RVC, .* MRVM1 or MRVM2"):
            certificate(other, X, y)
    with pytest.raises(NotFittedError):
        certificate(RVR(gamma="scale"), X, y)
    with pytest.raises(ValueError, match="features"):
        certificate(model, np.hstack([X, X]), y)


# --- against the plain algorithm ------------------------------------------------------------------


PLAIN = (
    "columns columns-weights noise-only sinc-1d-50-width-3.0 sinc-1d-100-width-3.0 bumps linear "
    "counts-columns counts-rare logistic-columns iris-1-2 two-classes-100"
)


@pytest.mark.parametrize("name", PLAIN.split())
def test_the_evidence_is_not_below_that_of_the_plain_algorithm(name):
    problem = PROBLEMS[name]
    model = problem.fitted()
    (written_out,) = model._problems(problem.X, problem.y, problem.sample_weight)
    Phi, t, options = written_out.Phi, written_out.target, {"tol": 1e-5, "weights": written_out.weights}
    # Several optima; for likelihoods with a mode the classic scheme is not monotone: more slack.
    if written_out.likelihood == "gaussian":
        plain, slack = fit_regression(Phi, t, **options), 0.05
    else:
        plain, slack = fit_laplace(Phi, t, written_out.likelihood, **options), 1.0
    assert model.log_marginal_likelihood_ >= plain.log_evidence - slack


def test_problems_that_keep_every_function_agree_with_the_plain_algorithm():
    """There is one optimum: the columns are well separated and all relevant."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    t = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=200)
    model = SparseBayesRegressor(fit_intercept=False, tol=1e-10, **PAPERS).fit(X, t)
    plain = fit_regression(X, t, tol=1e-10)
    np.testing.assert_allclose(model.alpha_, plain.alpha, rtol=1e-7)
    np.testing.assert_allclose(model.mu_, plain.mu, rtol=1e-9)
    np.testing.assert_allclose(model.beta_, plain.beta, rtol=1e-7)
    labels = (t + rng.logistic(size=200) > 0).astype(int)
    model = SparseBayesClassifier(fit_intercept=False, tol=1e-9, **PAPERS).fit(X, labels)
    plain = fit_laplace(X, labels * 1.0, "bernoulli", tol=1e-9)
    np.testing.assert_allclose(model.alpha_, plain.alpha, rtol=1e-6)
    np.testing.assert_allclose(model.mu_, plain.mu, rtol=1e-6)


# --- the paper's problem ----------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_the_surface_is_recovered_with_few_functions(seed):
    X, y = sinc_2d(1000, seed=seed)
    model = RVR(Gaussian(2.5)).fit(X, y)
    assert model.status_ == "converged"
    drawn = np.std(y - np.sinc(np.linalg.norm(X, axis=1) / np.pi))
    assert model.noise_variance_**0.5 == pytest.approx(drawn, rel=0.05)
    assert len(model.active_) < 60


def test_thousands_of_rows_converge():
    assert RVR(Gaussian(2.5)).fit(*sinc_2d(4000)).status_ == "converged"
    assert RVC(gamma=1.0).fit(*two_classes(4000)).status_ == "converged"


def test_a_first_model_from_a_subsample_of_the_rows_is_certified_on_all():
    # One row in 16 has to make 2^14 rows, and a working set holds 512 candidates.
    n = 1 << 18
    rng = np.random.default_rng(0)
    # Sorted, so that neighbouring rows are alike.
    X = np.sort(rng.uniform(-10, 10, n))[:, np.newaxis]
    truth = np.sinc(X[:, 0] / np.pi)
    y = truth + 0.1 * rng.normal(size=n)
    model = RVR(gamma=0.1, candidates=520, random_state=0).fit(X, y)
    assert_certified(model, X, y)
    assert abs(model.noise_variance_ / 0.01 - 1.0) < 0.01
    assert np.sqrt(np.mean((model.predict(X[::64]) - truth[::64]) ** 2)) < 0.003


# --- steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, problem in PROBLEMS.items() if problem.kind == "regression"])
def test_every_step_gains_the_predicted_evidence(name):
    """Within 1e-6 even where functions depend on one another almost exactly; elsewhere it is some 1e-9."""
    problem, steps = PROBLEMS[name], []
    model = problem.fitted(callback=steps.append)
    achieved = np.diff(model.log_marginal_likelihood_path_)
    for step, gain in zip(steps, achieved, strict=True):
        if step.action in ("add", "delete", "reestimate"):
            assert abs(gain - step.gain) <= 1e-6 * max(1.0, abs(step.gain))
    # Updates of the noise raise the evidence too.
    assert (achieved >= -1e-9 * (1.0 + np.abs(model.log_marginal_likelihood_path_[1:]))).all()


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_fits_that_rounding_stops_report_stalled(seed):
    # Rows of so little noise make candidates of large gain nearly dependent on the active set.
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) + 1e-2 * rng.normal(size=60)
    weights = rng.choice([1.0, 10.0, 100.0], 60)
    with pytest.warns(ConvergenceWarning):
        model = RVR(Gaussian(4.0)).fit(X, y, weights)
    assert model.status_ == "stalled"


def test_blocks_that_rounding_makes_indefinite_are_added_one_function_at_a_time():
    # The four best functions beside the first two are nearly dependent: with all of them H is indefinite.
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 1))
    y = rng.poisson(1e4 * np.exp(X[:, 0]) * rng.gamma(5, 0.2, 50))
    model = RVR(Gaussian(4.0), likelihood="poisson", **PAPERS).fit(X, y)
    assert_certified(model, X, y)
