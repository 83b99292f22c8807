"""Rows as sums: what they hold, how they add up, and that fits of them are fits of the rows."""

import copy
import pickle
import threading
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from problems import assert_certified, assert_same_model
from sparsebayes import RVR, SparseBayesRegressor, SufficientStatistics
from sparsebayes.inspection import certificate

BAD = (ValueError, TypeError)


def waves(seed, n=400, k=25, width=2.0):
    """Gaussian bumps over one input, targets that some of them make, noise 0.1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, n)
    Phi = np.exp(-(((x[:, np.newaxis] - np.linspace(-10, 10, k)) / width) ** 2))
    return Phi, np.sinc(x / np.pi) + 0.1 * rng.normal(size=n)


def sums(Phi, t, w=None, rows=slice(None)):
    return SufficientStatistics(Phi.shape[1]).update(Phi[rows], t[rows], None if w is None else w[rows])


def tree(parts):
    """Merge neighbours until one is left."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [reduce(lambda a, b: a.merge(b), pair) for pair in pairs]
    return parts[0]


def random_parts(rng, n):
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(1, 9)))
    return [part for part in rng.permutation(np.array([*np.split(rng.permutation(n), cuts), []], object))]


@pytest.mark.parametrize("seed", range(8))
def test_chunks_in_any_order_give_the_model_of_one_fit(seed):
    rng = np.random.default_rng(seed)
    Phi, t = waves(seed)
    w = rng.uniform(0.1, 3.0, len(t)) if seed % 2 else None
    model = SparseBayesRegressor(tol=1e-10, fit_intercept=seed % 4 > 1)
    expected = clone(model).fit(Phi, t, w)
    assert len(expected.active_) > 3
    for _ in range(3):
        parts = [sums(Phi, t, w, np.asarray(rows, int)) for rows in random_parts(rng, len(t))]
        total = tree(parts)
        assert total.n_samples == len(t)
        assert_same_model(model.fit_statistics(total), expected)
        whole = SufficientStatistics(Phi.shape[1])
        for rows in random_parts(rng, len(t)):
            rows = np.asarray(rows, int)
            whole.update(Phi[rows], t[rows], None if w is None else w[rows])
        assert_same_model(model.fit_statistics(whole), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [1, 40, 700])
def test_sums_are_right_to_the_last_bit(order, n):
    rng = np.random.default_rng(n)
    Phi = np.asarray(rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-5, 5, (n, 3)), order=order)
    t = rng.normal(size=n) + 1e4
    stats = sums(Phi, t)
    columns = [[Fraction(v) for v in column] for column in (*Phi.T, t)]

    def exact(i, j):
        return float(sum(a * b for a, b in zip(columns[i], columns[j], strict=True)))

    for i in range(3):
        assert stats.projections[i] == pytest.approx(exact(i, 3), rel=2.3e-16, abs=0)
        for j in range(3):
            assert stats.gram[i, j] == pytest.approx(exact(i, j), rel=2.3e-16, abs=0)
    assert stats.target_square == pytest.approx(exact(3, 3), rel=2.3e-16, abs=0)
    assert stats.sum_of_weights == stats.n_samples == n


def rounded(stats):
    """Return the statistics with sums of 53 bits."""
    parts = stats.__getstate__()["parts"]
    low = 7 + (len(parts) - 7) // 2
    return restored(stats, parts=np.where(np.arange(len(parts)) < low, parts, 0.0))


def restored(stats, **changes):
    """Return the statistics of a pickle with other content."""
    other = SufficientStatistics.__new__(SufficientStatistics)
    other.__setstate__(stats.__getstate__() | changes)
    return other


@pytest.mark.parametrize("offset", [3e3, 1.5e4])  # further away `fit` moves them
def test_targets_far_from_zero_leave_sums_their_digits(offset):
    # The weight of the bias is 1e6 and more times the noise, and no more than that cancels in what is left.
    Phi, t = waves(6)
    model = SparseBayesRegressor(fit_intercept=True, tol=1e-9)
    expected = clone(model).fit(Phi, t + offset)
    parts = [sums(Phi, t + offset, rows=part) for part in (slice(130, None), slice(130))]
    assert_same_model(clone(model).fit_statistics(tree(parts)), expected)
    # Sums rounded to 53 bits would not do.
    with np.errstate(all="ignore"):
        plain = model.fit_statistics(rounded(parts[0]))
    assert abs(plain.log_marginal_likelihood_ - expected.log_marginal_likelihood_) > 1e-5


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_weights_that_cancel_leave_sums_their_digits(noise):
    # Powers on an interval are much alike: unit-norm columns get weights of a thousand times the targets.
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    Phi, t = x[:, np.newaxis] ** np.arange(1, 13), np.sinc(10 * x / np.pi) + noise * rng.normal(size=300)
    model = SparseBayesRegressor(fit_intercept=True, tol=1e-9)
    expected = clone(model).fit(Phi, t)
    assert np.abs(expected.mu_).max() > 50
    parts = [sums(Phi, t, rows=part) for part in (slice(130, None), slice(130))]
    assert_same_model(model.fit_statistics(tree(parts)), expected)


def state(stats):
    content = stats.__getstate__()
    return content["n_rows"], content["parts"].tobytes()


def test_merging_is_commutative_and_nothing_is_neutral():
    Phi, t = waves(0)
    a, b = (lambda: sums(Phi, t, rows=slice(150))), (lambda: sums(Phi, t, rows=slice(150, None)))
    assert state(a().merge(b())) == state(b().merge(a()))
    assert (
        state(SufficientStatistics(25).merge(a())) == state(a().merge(SufficientStatistics(25))) == state(a())
    )
    twice = a()
    assert state(twice.merge(twice)) == state(a().merge(a()))
    other = b()
    before = state(other)
    a().merge(other)
    assert state(other) == before


def test_empty_chunks_and_chunks_of_no_weight_change_nothing_but_the_count():
    Phi, t = waves(0)
    stats = sums(Phi, t)
    before = state(stats)
    assert state(stats.update(Phi[:0], t[:0])) == before
    stats.update(Phi[:7], t[:7], np.zeros(7)).update(Phi[:3], t[:3], 0.0)
    assert state(stats) == (before[0] + 10, before[1])


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_statistics_travel_to_the_bit(protocol):
    stats = SufficientStatistics(25, n_jobs=2).update(*waves(0))
    for other in (
        pickle.loads(pickle.dumps(stats, protocol)),
        copy.copy(stats),
        copy.deepcopy(stats),
    ):
        assert state(other) == state(stats)
        assert repr(other) == "SufficientStatistics(n_basis=25, n_samples=400)"
        assert state(other.merge(stats)) != state(stats)


def test_spoiled_pickles_are_refused():
    stats = sums(*waves(0))
    parts = stats.__getstate__()["parts"]
    for wrong in [
        {"n_basis": stats.n_basis + 1},
        {"n_basis": 2**62},
        {"parts": parts[:-1]},
        {"parts": np.where(np.arange(len(parts)) == 40, np.nan, parts)},
        {"parts": -parts},
    ]:
        with pytest.raises(ValueError, match="parts"):
            restored(stats, **wrong)


@pytest.mark.parametrize("k", [3, 150])
def test_the_number_of_threads_does_not_show(k):
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(5000, k))
    t = Phi[:, 0] + rng.normal(size=5000)
    first, *others = (SufficientStatistics(k, n_jobs=n_jobs).update(Phi, t) for n_jobs in (1, 2, 5, None, -1))
    for other in others:
        assert state(other) == state(first)
    models = [
        SparseBayesRegressor(fit_intercept=False, n_jobs=n_jobs).fit_statistics(first)
        for n_jobs in (1, 2, None)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.mu_, models[0].mu_)


def test_many_threads_may_share_statistics():
    Phi, t = waves(0, n=4000)
    shared, expected = SufficientStatistics(25, n_jobs=1), sums(Phi, t)
    start, failures = threading.Barrier(8), []

    def work(k):
        try:
            start.wait()
            for rows in np.array_split(np.arange(4000)[k::8], 10):
                shared.update(Phi[rows], t[rows])
                shared.merge(SufficientStatistics(25))
                SparseBayesRegressor(fit_intercept=False, n_jobs=1, noise_variance=0.01).fit_statistics(
                    shared
                )
                pickle.loads(pickle.dumps(shared))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert shared.n_samples == 4000
    np.testing.assert_allclose(shared.gram, expected.gram, rtol=1e-15)


def test_rows_added_during_a_fit_are_not_in_its_model():
    Phi, t = waves(0)
    stats = sums(Phi, t)
    model = SparseBayesRegressor(
        fit_intercept=False, callback=lambda record: stats.update(Phi, t) and False
    ).fit_statistics(stats)
    assert stats.n_samples == (model.n_iter_ + 1) * 400
    assert_same_model(
        model, SparseBayesRegressor(fit_intercept=False).fit_statistics(sums(Phi, t)), rtol=1e-15
    )
    assert certificate(model, Phi, t).max_gain_outside < 1e-6


def test_two_that_merge_one_another_do_not_wait_for_ever():
    a, b = sums(*waves(0)), sums(*waves(1))

    def work(one, other):
        for _ in range(200):
            one.merge(other)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in ((a, b), (b, a))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PHI, T = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12.0)


def spoiled(array, value):
    other = np.array(array)
    other[(1,) * other.ndim] = value
    return other


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Phi", (spoiled(PHI, np.nan), T)),
        ("Phi", (spoiled(PHI, np.inf), T)),
        ("Phi", (spoiled(PHI, 1e200), T)),
        ("Phi", (PHI[:, :1], T)),
        ("Phi", (PHI[:, 0], T)),
        ("Phi", (PHI.astype(str), T)),
        ("Phi", (PHI + 1j, T)),
        ("Phi", (None, T)),
        ("t", (PHI, spoiled(T, np.nan))),
        ("t", (PHI, spoiled(T, 1e200))),
        ("t", (PHI, T[:-1])),
        ("t", (PHI, PHI)),
        ("t", (PHI, None)),
        ("t", (PHI, ["a"] * 12)),
        ("sample_weight", (PHI, T, -T)),
        ("sample_weight", (PHI, T, T[:-1])),
        ("sample_weight", (PHI, T, spoiled(T, np.nan))),
        ("sample_weight", (PHI, T, "many")),
        ("sample_weight", (PHI, T, spoiled(T, 1e300))),
    ],
)
def test_bad_rows_are_refused_by_name_and_leave_the_sums_alone(name, arguments):
    stats = sums(PHI, T)
    before = state(stats)
    with pytest.raises(BAD, match=rf"\b{name}\b"):
        stats.update(*arguments)
    assert state(stats) == before


@pytest.mark.parametrize("n_basis", [0, -1, 2.0, "3", None, True])
def test_n_basis_is_a_count(n_basis):
    with pytest.raises(BAD, match="n_basis"):
        SufficientStatistics(n_basis)


def test_more_functions_than_memory_are_refused():
    for n_basis in (2**40, 2**63 - 1):
        with pytest.raises(MemoryError, match=r"n_basis.*fewer"):
            SufficientStatistics(n_basis)


def test_only_statistics_of_the_same_functions_merge():
    stats = SufficientStatistics(2)
    with pytest.raises(ValueError, match="other"):
        stats.merge(SufficientStatistics(3))
    for other in (None, PHI, 3):
        with pytest.raises(TypeError, match="other"):
            stats.merge(other)
    with pytest.raises(BAD, match="n_jobs"):
        SufficientStatistics(2, n_jobs=0)


def test_a_fit_of_sums_publishes_what_a_fit_of_rows_does():
    Phi, t = waves(0)
    rows = SparseBayesRegressor(fit_intercept=True).fit(Phi, t)
    summed = SparseBayesRegressor(fit_intercept=True).fit_statistics(sums(Phi, t))
    published = {name for name in vars(rows) if name.endswith("_")}
    assert published == {name for name in vars(summed) if name.endswith("_")}
    for name in published - {"status_", "log_marginal_likelihood_path_", "n_iter_"}:
        np.testing.assert_allclose(getattr(summed, name), getattr(rows, name), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(
        summed.predict(Phi, return_std=True), rows.predict(Phi, return_std=True), rtol=1e-6
    )
    assert summed.score(Phi, t) == pytest.approx(rows.score(Phi, t))
    assert len(summed.log_marginal_likelihood_path_) == summed.n_iter_ + 1


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_models_of_sums_are_certified_by_all_the_rows(fit_intercept):
    Phi, t = waves(7)
    w = np.random.default_rng(1).integers(0, 3, len(t)).astype(float)
    model = SparseBayesRegressor(fit_intercept=fit_intercept)
    model.fit_statistics(tree([sums(Phi, t, w, rows) for rows in np.array_split(np.arange(400), 7)]))
    assert model.status_ == "converged"
    shuffled = np.random.default_rng(2).permutation(400)
    assert_certified(model, Phi[shuffled], t[shuffled], w[shuffled])
    with pytest.raises(ValueError, match="training data"):
        certificate(model, Phi[1:], t[1:])


def test_fit_statistics_says_what_it_cannot_do():
    stats = sums(*waves(0))
    for wrong in (None, waves(0)[0], SufficientStatistics):
        with pytest.raises(TypeError, match="stats"):
            SparseBayesRegressor(fit_intercept=False).fit_statistics(wrong)
    with pytest.raises(ValueError, match="likelihood='gaussian'"):
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit_statistics(stats)
    with pytest.raises(ValueError, match="noise_variance"):
        SparseBayesRegressor(fit_intercept=False, noise_variance=[0.1, 0.2]).fit_statistics(stats)
    model = SparseBayesRegressor(fit_intercept=False).fit_statistics(stats)
    expected = model.mu_
    with pytest.raises(ValueError, match="positive weight"):
        model.fit_statistics(SufficientStatistics(3))
    np.testing.assert_array_equal(model.mu_, expected)
    assert model.n_features_in_ == 25
    assert not hasattr(RVR(gamma="scale"), "partial_fit")


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_partial_fits_end_at_the_model_of_all_rows(fit_intercept):
    Phi, t = waves(8)
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(t))
    expected = SparseBayesRegressor(fit_intercept=fit_intercept, tol=1e-10).fit(Phi, t, w)
    model = SparseBayesRegressor(fit_intercept=fit_intercept, tol=1e-10)
    for rows in (slice(300, 400), slice(0, 1), slice(1, 290), slice(290, 300)):
        assert model.partial_fit(Phi[rows], t[rows], w[rows]) is model
        assert np.isfinite(model.predict(Phi)).all()
        model = pickle.loads(pickle.dumps(model))
    assert_same_model(model, expected)
    assert certificate(model, Phi, t, w).max_gain_outside < 1e-6


def test_partial_fit_begins_where_there_are_no_sums_to_go_on_from():
    Phi, t = waves(0)
    model = SparseBayesRegressor(fit_intercept=False, complexity="none").partial_fit(Phi, t)
    again = clone(model)
    with pytest.raises(NotFittedError):
        again.predict(Phi)
    begun = [again, clone(model).fit(Phi[:99], t[:99]), clone(model).fit_statistics(sums(Phi, 1 - t))]
    begun.append(clone(model).partial_fit(Phi[:99], t[:99]).fit(Phi[:99], t[:99]))
    begun.append(clone(model).partial_fit(Phi, 1 - t).fit_statistics(sums(Phi, t)))
    begun.append(clone(model).fit(Phi[:, :7], t))
    for other in begun:
        assert_same_model(other.partial_fit(Phi, t), model, rtol=1e-12)
        assert other.n_features_in_ == 25


def test_a_partial_fit_that_fails_takes_no_rows_in():
    Phi, t = waves(0)
    model = SparseBayesRegressor(fit_intercept=False, tol=1e-10).partial_fit(Phi[:200], t[:200])
    expected = model.mu_

    def fail(record):
        raise ZeroDivisionError("mine")

    for call, error in [
        (lambda: model.partial_fit(Phi[200:, :3], t[200:]), ValueError),
        (lambda: model.partial_fit(Phi[200:], t[200:-1]), ValueError),
        (lambda: model.partial_fit(Phi[200:], None), ValueError),
        (lambda: model.partial_fit(1e200 * Phi[200:], t[200:]), ValueError),
        (lambda: model.partial_fit(Phi[200:], np.c_[t, t][200:]), ValueError),
        (lambda: model.set_params(callback=fail).partial_fit(Phi[200:], t[200:]), ZeroDivisionError),
    ]:
        with pytest.raises(error):
            call()
        np.testing.assert_array_equal(model.mu_, expected)
    model.set_params(callback=None).partial_fit(Phi[200:], t[200:])
    assert_same_model(model, SparseBayesRegressor(fit_intercept=False, tol=1e-10).fit(Phi, t))


def test_partial_fit_is_not_for_counts():
    model = SparseBayesRegressor(fit_intercept=False, likelihood="poisson")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(PHI, T)
    assert "likelihood='gaussian'" in str(caught.value.__cause__)


def test_partial_fit_holds_on_to_the_names_of_columns():
    pandas = pytest.importorskip("pandas")
    Phi, t = waves(0, k=4)
    frame = pandas.DataFrame(Phi, columns=list("abcd"))
    model = SparseBayesRegressor(fit_intercept=False).partial_fit(frame, t)
    assert list(model.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[list("abdc")], t)
    model.fit_statistics(sums(Phi, t))
    assert not hasattr(model, "feature_names_in_")
