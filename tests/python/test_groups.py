"""Columns in groups that share a precision, beside dense covariances and fits without groups."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from exports import TOLERANCE, same_regression
from problems import assert_certified
from sparsebayes import SparseBayesRegressor

RNG = np.random.default_rng(0)
N = 150
LEVEL = RNG.integers(0, 5, N)
#: Levels of a factor, then ten groups of three columns, then singles; labels in no order.
X = np.hstack([(LEVEL[:, np.newaxis] == np.arange(5)) * 1.0, RNG.normal(size=(N, 38))])
LABELS = np.r_[np.full(5, 99), np.repeat(np.arange(10), 3), np.arange(20, 28)]
ORDER = RNG.permutation(len(LABELS))
X, LABELS = X[:, ORDER], LABELS[ORDER]
Y = np.array([0.0, 1.0, -1.0, 2.0, 0.5])[LEVEL] + X[:, LABELS == 4] @ [1.0, -0.5, 0.3] + 10.0
Y = Y + 0.5 * X[:, LABELS == 22][:, 0] + 0.3 * RNG.normal(size=N)
COUNTS = RNG.integers(0, 3, N)
TRUE = {99, 4, 22}


def groups_in(model):
    return set(LABELS[model.active_[model.active_ >= 0]].tolist())


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, {}),
        ({"complexity": "none"}, {}),
        ({"complexity": 2.0}, {"sample_weight": COUNTS}),
        ({"fit_intercept": False}, {}),
        ({"penalize_intercept": True}, {}),
        ({"noise_variance": 0.1}, {}),
        ({"noise_variance": 1e-5}, {}),
        ({}, {"y_std": RNG.uniform(0.5, 2.0, N)}),
        ({"shared_noise": True, "two": True}, {}),
        ({"shared_noise": True, "two": True, "complexity": "none"}, {"sample_weight": COUNTS}),
    ],
    ids=str,
)
def test_a_fit_is_certified(settings, given):
    settings = dict(settings)
    y = np.column_stack([Y, 5.0 - Y + 0.3 * RNG.normal(size=N)]) if settings.pop("two", False) else Y
    model = SparseBayesRegressor(groups=LABELS, **settings).fit(X, y, **given)
    weight = given.pop("sample_weight", None)
    assert_certified(model, X, y, weight, **given)
    assert groups_in(model) >= ({99, 4} if y is Y else {99})
    # All columns of a group are in the model, with one precision.
    for label in groups_in(model):
        at = np.isin(model.active_, np.flatnonzero(LABELS == label))
        assert at.sum() == np.count_nonzero(LABELS == label)
        assert len(np.unique(model.alpha_[at])) == 1


def objective(model, alphas, beta, complexity):
    """Log evidence less the prior on complexity, from the covariance of the targets (no intercept)."""
    C = np.eye(N) / beta + (X / alphas) @ X.T
    quadratic = Y @ np.linalg.solve(C, Y)
    log_p = -0.5 * (N * np.log(2.0 * np.pi) + np.linalg.slogdet(C)[1] + quadratic)
    # 1 - alpha_j Sigma_jj = phi_j^T C^-1 phi_j / alpha_j.
    determined = np.sum(X * np.linalg.solve(C, X), axis=0) / alphas
    sizes = np.array([np.count_nonzero(label == LABELS) for label in LABELS])
    return log_p, log_p - complexity * np.sum(determined / sizes**0.75)


@pytest.mark.parametrize("complexity", [0.0, 1.5])
def test_no_change_of_a_group_or_the_noise_raises_the_objective(complexity):
    model = SparseBayesRegressor(groups=LABELS, fit_intercept=False, complexity=complexity).fit(X, Y)
    alphas = np.full(len(LABELS), np.inf)
    alphas[model.active_] = model.alpha_
    log_p, best = objective(model, alphas, model.beta_, complexity)
    assert_allclose(log_p, model.log_marginal_likelihood_, rtol=1e-8)
    for label in np.unique(LABELS):
        own = LABELS == label
        inside = np.isfinite(alphas[own]).all()
        around = alphas[own][0] * np.array([0.01, 0.9, 1.1, 100.0]) if inside else np.geomspace(1e-4, 1e6, 30)
        for alpha in around:
            assert objective(model, np.where(own, alpha, alphas), model.beta_, complexity)[1] < best
    for factor in (0.9, 1.1):
        assert objective(model, alphas, factor * model.beta_, complexity)[1] < best


def test_predicted_gains_are_achieved_and_the_evidence_never_falls_at_given_noise():
    steps = []
    settings = {"groups": LABELS, "complexity": "none", "noise_variance": 0.05, "callback": steps.append}
    model = SparseBayesRegressor(**settings).fit(X, Y)
    path = model.log_marginal_likelihood_path_
    assert (np.diff(path) >= -1e-9).all()
    gains = np.array([step.gain for step in steps])
    single = np.array([step.action in ("add", "reestimate", "delete") for step in steps])
    assert single.sum() > 3
    assert_allclose(np.diff(path)[single], gains[single], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("complexity", ["none", "auto", 2.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weights", [None, COUNTS], ids=["rows", "weights"])
def test_groups_of_one_column_are_the_model_without_groups(complexity, intercept, weights):
    settings = {"complexity": complexity, "fit_intercept": intercept}
    single = SparseBayesRegressor(groups=1, **settings).fit(X, Y, weights)
    plain = SparseBayesRegressor(**settings).fit(X, Y, weights)
    assert_array_equal(single.active_, plain.active_)
    assert_allclose(single.log_marginal_likelihood_, plain.log_marginal_likelihood_, rtol=1e-7)
    assert_allclose(single.coef_, plain.coef_, atol=1e-5)
    assert_allclose(single.predict(X, return_std=True), plain.predict(X, return_std=True), rtol=1e-5)
    assert_allclose(single.loo_, plain.loo_, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("settings", [{}, {"complexity": "none", "fit_intercept": False}], ids=str)
def test_a_group_of_more_columns_than_rows(settings):
    rng = np.random.default_rng(0)
    rows, sizes = rng.normal(size=(30, 100)), [80, 3, 17]
    y = 0.1 * rows[:, :80] @ rng.normal(size=(80, 8)) + rows[:, 80:83] @ np.ones((3, 8))
    y += 0.5 * rng.normal(size=(30, 8))
    labels = np.repeat(np.arange(3), sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # more than half as many parameters as rows
        model = SparseBayesRegressor(groups=labels, shared_noise=True, **settings).fit(rows, y)
    assert_certified(model, rows, y)
    assert len(model.active_[model.active_ >= 0]) >= 80
    Phi = rows[:, model.active_[model.active_ >= 0]]
    if settings:
        H = model.beta_ * Phi.T @ Phi + np.diag(model.alpha_)
        assert_allclose(model.sigma_, np.linalg.inv(H), atol=1e-9 / model.alpha_.min())
        assert_allclose(model.mu_, model.beta_ * model.sigma_ @ Phi.T @ y, atol=1e-9)


def test_many_groups_that_explain_equal_parts_are_found():
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(400, 240)), rng.normal(size=(200, 240))
    weights = np.r_[rng.normal(size=120), np.zeros(120)]
    model = SparseBayesRegressor(groups=2).fit(rows, rows @ weights + 0.5 * rng.normal(size=400))
    assert model.score(new, new @ weights) > 0.99
    assert 110 < len(model.active_) < 140


def test_a_factor_of_many_levels_is_kept():
    rng = np.random.default_rng(0)
    level = np.repeat(np.arange(50), 4)
    effects = rng.normal(size=50)
    others = rng.normal(size=(200, 5))
    truth = effects[level] + others[:, 0]
    columns = np.hstack([np.eye(50)[level], others])
    model = SparseBayesRegressor(groups=[0] * 50 + [1, 2, 3, 4, 5])
    model.fit(columns, truth + 0.5 * rng.normal(size=200))
    assert set(model.active_.tolist()) == {-1, *range(51)}
    assert np.sqrt(np.mean((model.predict(columns) - truth) ** 2)) < 0.3


def test_noise_without_effect_keeps_nothing():
    kept = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        model = SparseBayesRegressor(groups=4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rng.normal(size=(200, 100)), rng.normal(size=200))
        kept += len(model.active_) - 1
    assert kept <= 8


def test_groups_are_found_whatever_their_labels_and_order():
    model = SparseBayesRegressor(groups=LABELS).fit(X, Y)
    assert groups_in(model) == TRUE
    names = np.array([f"group {label}" for label in LABELS])
    back = np.argsort(LABELS, kind="stable")[::-1]
    other = SparseBayesRegressor(groups=names[back].tolist()).fit(X[:, back], Y)
    assert_allclose(other.predict(X[:, back]), model.predict(X), rtol=1e-6)
    blocks = SparseBayesRegressor(groups=3).fit(X[:, np.argsort(LABELS, kind="stable")[:30]], Y)
    assert set(blocks.active_.tolist()) == {-1, 12, 13, 14}


@pytest.mark.parametrize("units", [1e-6, 1e6])
def test_units_do_not_matter(units):
    model = SparseBayesRegressor(groups=LABELS).fit(X, Y)
    scaled = SparseBayesRegressor(groups=LABELS).fit(units * X, Y / units)
    assert_allclose(units * scaled.predict(units * X), model.predict(X), rtol=1e-6)
    assert_allclose(scaled.noise_variance_ * units**2, model.noise_variance_, rtol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("units", [1e-80, 1e80, 1e140])
def test_units_of_one_group_do_not_matter(units, intercept):
    rows = np.where(LABELS == 4, units, 1.0) * X
    model, scaled = (
        SparseBayesRegressor(groups=LABELS, fit_intercept=intercept).fit(given, Y) for given in (X, rows)
    )
    assert scaled.status_ == "converged"
    assert_allclose(scaled.predict(rows, return_std=True), model.predict(X, return_std=True), rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_nearly_depend_end_without_a_hang(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(90, 40))
    rows[:, 20:] = rows[:, :20] + 1e-3 * rng.normal(size=(90, 20))
    y = rows[:, :4].sum(axis=1)
    with pytest.warns(ConvergenceWarning, match="noise"):
        model = SparseBayesRegressor(groups=np.arange(40) // 3, complexity="none").fit(rows, y)
    assert_certified(model, rows, y, status="noise_floor")
    assert model.score(rows, y) > 1.0 - 1e-4


def test_constant_targets_and_columns():
    for rows, y in ((X, np.ones(N)), (0.0 * X, Y)):
        with pytest.warns(ConvergenceWarning):
            model = SparseBayesRegressor(groups=LABELS).fit(rows, y)
        assert_array_equal(model.active_, [-1])
        assert_allclose(model.predict(rows), np.mean(y))
    doubled = SparseBayesRegressor(groups=2).fit(np.repeat(X[:, LABELS == 4], 2, axis=1), Y)
    assert_allclose(doubled.coef_[::2], doubled.coef_[1::2])


def test_each_step_has_a_callback():
    # The second ascent, with less weight of the prior on complexity, ends lower.
    for seed in range(6):
        rng = np.random.default_rng(seed)
        steps = []
        rows, y = rng.normal(size=(40, 60)), rng.normal(size=40)
        y = y + rows[:, :2].sum(axis=1)
        model = SparseBayesRegressor(groups=2, callback=steps.append).fit(rows, y)
        assert len(steps) == model.n_iter_
        path = [step.log_marginal_likelihood for step in steps]
        assert_allclose(path, model.log_marginal_likelihood_path_[1:])
        assert np.isfinite([step.gain for step in steps]).all()


def test_a_callback_stops_a_fit_and_so_does_max_iter():
    stopped = SparseBayesRegressor(groups=LABELS, callback=lambda step: step.n_active > 5).fit(X, Y)
    assert stopped.status_ == "stopped"
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = SparseBayesRegressor(groups=LABELS, max_iter=2).fit(X, Y)
    assert short.n_iter_ == 2
    assert np.isfinite(short.predict(X)).all()


def test_the_number_of_threads_does_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 600))
    y = rows[:, :6] @ rng.normal(size=(6, 2)) + 0.1 * rng.normal(size=(60, 2))
    one, two = (SparseBayesRegressor(groups=3, shared_noise=True, n_jobs=n).fit(rows, y) for n in (1, 2))
    assert_array_equal(one.mu_, two.mu_)
    assert_array_equal(one.sigma_, two.sigma_)


@pytest.mark.parametrize("export", TOLERANCE)
def test_served_models_predict_the_same(export, tmp_path):
    same_regression(SparseBayesRegressor(groups=LABELS).fit(X, Y), X[:7], export, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": 4}, "groups=4 must divide the number of columns of X, 43"),
        ({"groups": 0}, "groups must be an integer of at least 1"),
        ({"groups": 2.0}, "a label for each of the 43 columns"),
        ({"groups": [1, 2]}, "a label for each of the 43 columns"),
        ({"groups": [[1], [2, 3]]}, "groups: "),
        ({"groups": [None] * 43}, "none missing"),
        ({"groups": [np.nan] * 43}, "none missing"),
        ({"noise_variance": 1e-300}, "double precision cannot resolve both"),
        ({"scheme": "em"}, "scheme must be 'sequential' with groups"),
        ({"search": "exchange"}, "search must be 'greedy' with groups"),
        ({"alpha_prior": (1e-3, 1e-3)}, "alpha_prior must be"),
        ({"likelihood": "student_t"}, "likelihood must be 'gaussian' with groups"),
    ],
)
def test_what_does_not_go_with_groups_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SparseBayesRegressor(**{"groups": LABELS} | settings).fit(X, Y)


def test_groups_need_rows_and_columns_in_memory():
    model = SparseBayesRegressor(groups=LABELS)
    for fit in (
        lambda: model.fit(sparse.csr_array(X), Y),
        lambda: model.fit([(X, Y)]),
        lambda: model.fit(X, np.column_stack([Y, Y])),
        lambda: model.fit(X, Y * 1e200),
        lambda: model.fit(X, np.full(N, 1e200)),
        lambda: model.fit(X * 1e200, Y),
    ):
        with pytest.raises(ValueError, match=r"groups|rescale"):
            fit()
    assert not hasattr(model, "partial_fit")


@pytest.mark.parametrize("seed", [4, 7, 9, 12, 39])
def test_sources_among_similar_neighbours(seed):
    """Fields of neighbours add up to that of a source, which a penalty on every step prefers."""
    rng = np.random.default_rng(seed)
    sensors = rng.normal(size=(60, 3))
    sensors[:, 2] = abs(sensors[:, 2])
    sensors *= 1.1 / np.linalg.norm(sensors, axis=1, keepdims=True)
    grid = np.stack(np.meshgrid(*[np.linspace(-0.6, 0.6, 8)] * 3), axis=-1).reshape(-1, 3)
    grid = grid[np.linalg.norm(grid, axis=1) < 0.65]
    away = sensors[:, np.newaxis] - grid
    fields = (away / np.linalg.norm(away, axis=2, keepdims=True) ** 3).reshape(60, -1)
    fields -= fields.mean(axis=0)
    sources, times = rng.choice(len(grid), 2, replace=False), np.arange(40) / 40.0
    weights = np.zeros((len(grid), 3, 40))
    weights[sources[0]] = np.outer(rng.normal(size=3), np.sin(6.0 * np.pi * times))
    weights[sources[1]] = np.outer(rng.normal(size=3), np.cos(10.0 * np.pi * times))
    y = fields @ weights.reshape(-1, 40)
    y = 5.0 * y / y.std() + rng.normal(size=y.shape)
    model = SparseBayesRegressor(fit_intercept=False, groups=3, shared_noise=True).fit(fields, y)
    assert set(model.active_ // 3) == set(sources)
