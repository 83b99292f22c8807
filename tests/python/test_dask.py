"""Estimators on Dask collections: they give the models of arrays in memory, even if workers die."""

import inspect
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dask_problems import MarkedGaussian, forbidden
from problems import sinc_2d, two_classes

pytest.importorskip("distributed")
import dask
import dask.array as da
import dask.dataframe as dd
import psutil
from distributed import Client, LocalCluster

from sparsebayes import RVC, RVR
from sparsebayes.dask import DaskRVC, DaskRVR, Engine
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Linear, OnColumns

BAD = (ValueError, TypeError)
ROWS = da.from_array(np.arange(20.0).reshape(10, 2), chunks=(5, 2))
FITTED = ("alpha_", "mu_", "sigma_", "dual_coef_", "intercept_", "log_marginal_likelihood_")


@pytest.fixture(autouse=True)
def threads():
    """Use three threads where there is no client."""
    with dask.config.set(scheduler="threads", num_workers=3):
        yield


@pytest.fixture(scope="module")
def client():
    """Three processes with one thread each, which are waited for at the end."""
    before = set(psutil.Process().children(recursive=True))
    options = {"processes": True, "dashboard_address": None, "worker_dashboard_address": None}
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, memory_limit="1GiB", **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
    left = [child for child in set(psutil.Process().children(recursive=True)) - before if is_worker(child)]
    psutil.wait_procs(left)


def is_worker(process):
    try:
        return "resource_tracker" not in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def random_chunks(rng, n, most=9):
    """Return sizes that add up to n, some of them perhaps 0."""
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(0, most)))
    return tuple(np.diff([0, *cuts, n]).tolist())


def collection(values, chunks):
    return da.from_array(values, chunks=(chunks, *values.shape[1:]))


def collections(X, y, w, chunks):
    return [None if values is None else collection(values, chunks) for values in (X, y, w)]


def assert_same_model(model, expected, rtol=1e-8):
    assert model.status_ == expected.status_ == "converged"
    np.testing.assert_array_equal(model.active_, expected.active_)
    np.testing.assert_array_equal(model.relevance_, expected.relevance_)
    np.testing.assert_array_equal(model.relevance_vectors_, expected.relevance_vectors_)
    for name in FITTED:
        ours, theirs = getattr(model, name), getattr(expected, name)
        scale = np.abs(theirs).max() if name in ("sigma_", "mu_", "dual_coef_") else 0.0
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * scale, err_msg=name)


def assert_same_bits(model, other):
    for name in FITTED:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))


def waves(seed, n=700):
    """Return rows of the 2-D sinc, weights of which some are zero, and centres that are not rows."""
    X, y = sinc_2d(n, seed=seed)
    rng = np.random.default_rng(seed)
    w = rng.integers(0, 4, n) * rng.uniform(0.5, 1.5, n)
    return X, y, w, np.random.default_rng(99).uniform(-10, 10, (45, 2))


# --- regression -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_chunks_do_not_change_a_regression(seed):
    X, y, w, centres = waves(seed)
    rng = np.random.default_rng(seed)
    settings = {"candidates": centres, "gamma": 0.16, "tol": 1e-10, "fit_intercept": seed % 2 == 0}
    w = w if seed % 3 else None
    expected = RVR(**settings).fit(X, y, w)
    assert len(expected.relevance_) > 5
    for _ in range(3):
        model = DaskRVR(**settings).fit(*collections(X, y, w, random_chunks(rng, len(X))))
        assert_same_model(model, expected)
        np.testing.assert_allclose(model.beta_, expected.beta_, rtol=1e-8)
    found = certificate(model, X, y, w)
    assert max(abs(found.max_log_alpha_change), abs(found.log_beta_residual)) < 1e-5
    assert found.max_gain_outside < 1e-6


@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_centres_are_chosen_as_in_memory(weighted):
    X, y, w, _ = waves(7)
    settings = {"candidates": 40, "random_state": 3, "gamma": 0.3, "tol": 1e-10}
    w = w if weighted else None
    expected = RVR(**settings).fit(X, y, w)
    for chunks in [(700,), (1, 99, 0, 300, 300)]:
        model = DaskRVR(**settings).fit(*collections(X, y, w, chunks))
        np.testing.assert_array_equal(model.candidate_rows_, expected.candidate_rows_)
        np.testing.assert_array_equal(model.candidates_, expected.candidates_)
        assert_same_model(model, expected)


def test_centres_of_many_rows_are_chosen_from_a_sample_for_any_chunks(monkeypatch):
    monkeypatch.setattr("sparsebayes._data.candidates._ROWS", 150)
    X, y, w, _ = waves(8)
    fits = [
        DaskRVR(candidates=5, random_state=seed, gamma=0.3).fit(*collections(X, y, w, chunks))
        for seed, chunks in [(0, (700,)), (0, (200, 0, 1, 499)), (1, (700,))]
    ]
    one, same, other = (model.candidate_rows_ for model in fits)
    np.testing.assert_array_equal(one, same)
    local = RVR(candidates=5, random_state=0, gamma=0.3).fit(X, y, w)
    np.testing.assert_array_equal(one, local.candidate_rows_)
    assert len(set(one) & set(other)) < 5
    for model in fits:
        assert (w[model.candidate_rows_] > 0).all()
        np.testing.assert_array_equal(model.candidates_, X[model.candidate_rows_])


def test_gamma_is_scaled_to_the_variance_of_all_rows():
    X, y, w, _ = waves(9)
    X = X * [1.0, 3.0] + [1000.0, -20.0]
    chunks = (100, 0, 250, 350)
    for kernel in ["rbf", OnColumns("rbf", [1]), OnColumns("laplacian", [0]) * Gaussian(4.0)]:
        settings = {"kernel": kernel, "gamma": "scale", "candidates": X[::50], "max_iter": 1}
        with pytest.warns(ConvergenceWarning):
            expected = RVR(**settings).fit(X, y, w)
        with pytest.warns(ConvergenceWarning):
            model = DaskRVR(**settings).fit(*collections(X, y, w, chunks))
        assert repr(type(model.kernel_)) == repr(type(expected.kernel_))
        np.testing.assert_allclose(model.kernel_(X, X[:3]), expected.kernel_(X, X[:3]), rtol=1e-10)


def test_several_kernels_and_extra_columns_are_fitted():
    X, y, w, centres = waves(10)
    y, chunks = y + X[:, 0] + np.cos(X[:, 1]), (300, 400)
    for extra in ["linear", np.cos]:
        settings = {"kernel": [Gaussian(2.5), Linear()], "extra_basis": extra, "candidates": centres}
        expected = RVR(**settings, tol=1e-10).fit(X, y, w)
        model = DaskRVR(**settings, tol=1e-10).fit(*collections(X, y, w, chunks))
        np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-7, atol=1e-8)
        assert model.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-9)
        assert model.extra_coef_.shape == (1, 2)


@pytest.mark.parametrize("ours", [DaskRVR, DaskRVC])
def test_offsets_of_the_rows_do_not_change_linear_terms(ours):
    X, y, w, centres = waves(4)
    y = y + 0.05 * X[:, 0] if ours is DaskRVR else y + 0.05 * X[:, 0] > 0.1
    kernel, settings = [Gaussian(2.5), Linear()], {"extra_basis": "linear", "tol": 1e-9}
    near, far = (
        ours(kernel, candidates=centres + offset, **settings).fit(*collections(X + offset, y, w, (300, 400)))
        for offset in (0.0, 2.0**20)
    )
    np.testing.assert_array_equal(far.active_, near.active_)
    assert far.log_marginal_likelihood_ == pytest.approx(near.log_marginal_likelihood_, rel=1e-6)
    method = "predict" if ours is DaskRVR else "decision_function"
    np.testing.assert_allclose(
        getattr(far, method)(X + 2.0**20), getattr(near, method)(X), rtol=1e-5, atol=1e-5
    )


def test_other_schemes_are_fitted():
    X, y, _, centres = waves(11)
    settings = {"candidates": centres[:15], "gamma": 0.1, "scheme": "mackay", "noise_variance": 0.02}
    expected = RVR(**settings).fit(X, y)
    assert_same_model(DaskRVR(**settings).fit(*collections(X, y, None, (350, 350))[:2]), expected, rtol=1e-6)


# --- data frames ----------------------------------------------------------------------------------


def frame(seed=12):
    X, y, w, _ = waves(seed)
    table = pd.DataFrame(X, columns=["east", "north"]).assign(height=y, weight=w, number=range(700))
    return table, dd.from_pandas(table, npartitions=4)


def test_data_frames_are_fitted_and_predicted_as_series():
    table, rows = frame()
    X, settings = ["east", "north"], {"candidates": 40, "random_state": 0, "gamma": 0.2, "tol": 1e-10}
    settings["std"] = "plain"  # landmarks are candidates or rows
    expected = RVR(**settings).fit(table[X], table["height"], table["weight"])
    model = DaskRVR(**settings).fit(rows[X], rows["height"], rows["weight"])
    assert model.feature_names_in_.tolist() == X
    assert_same_model(model, expected)
    mean, std = model.predict(rows[X], return_std=True)
    ours = rows.assign(mean=mean, std=std, again=model.predict(rows[X])).compute()
    for name, values in zip(["mean", "std"], expected.predict(table[X], return_std=True), strict=True):
        np.testing.assert_allclose(ours[name], values, rtol=1e-7)
    np.testing.assert_array_equal(ours["again"], ours["mean"])
    score = model.score(rows[X], rows["height"], rows["weight"])
    np.testing.assert_allclose(score, expected.score(table[X], table["height"], table["weight"]), rtol=1e-8)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(rows[["north", "east"]])


def test_partitions_of_a_frame_may_be_empty():
    table, rows = frame()
    X, settings = ["east", "north"], {"candidates": table[["east", "north"]][:40], "gamma": 0.2}
    some, kept = table[table["number"] >= 400], rows[rows["number"] >= 400]
    assert kept.map_partitions(len).compute().min() == 0
    expected = RVR(**settings).fit(some[X], some["height"])
    model = DaskRVR(**settings).fit(kept[X], kept["height"])
    np.testing.assert_array_equal(model.active_, expected.active_)
    np.testing.assert_allclose(model.predict(kept[X]).compute(), expected.predict(some[X]), rtol=1e-7)


# --- classification -------------------------------------------------------------------------------


def blobs(n_classes, n=500):
    """Return rows of two or three classes, labels of text, weights of which some are zero, and centres."""
    X, y = two_classes(n, std=0.25, seed=n_classes)
    if n_classes == 3:
        y = y + (X[:, 0] > 0.3)
    rng = np.random.default_rng(n_classes)
    labels = np.array(["bat", "cat", "dodo"])[y]
    return X, labels, rng.integers(0, 3, n) * rng.uniform(0.5, 1.5, n), X[::25] + 0.01


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_do_not_change_a_classification(n_classes, weighted):
    X, y, w, centres = blobs(n_classes)
    w, rng = w if weighted else None, np.random.default_rng(n_classes)
    settings = {"candidates": centres, "gamma": 4.0, "tol": 1e-10, "fit_intercept": not weighted}
    expected = RVC(**settings).fit(X, y, w)
    assert len(expected.relevance_) > 2
    for chunks in [random_chunks(rng, len(X)), random_chunks(rng, len(X)), (0, 500)]:
        model = DaskRVC(**settings).fit(*collections(X, y, w, chunks))
        np.testing.assert_array_equal(model.classes_, expected.classes_)
        assert_same_model(model, expected)
    found = certificate(model, X, y, w)
    assert abs(found.max_log_alpha_change) < 1e-5
    assert found.max_gain_outside < 1e-6


def test_a_class_may_be_in_a_single_partition():
    X, y, _, centres = blobs(3)
    order = np.argsort(y, kind="stable")
    sizes = tuple(np.unique(y, return_counts=True)[1].tolist())
    model = DaskRVC(candidates=centres, gamma=4.0).fit(*collections(X[order], y[order], None, sizes))
    np.testing.assert_array_equal(model.classes_, ["bat", "cat", "dodo"])
    np.testing.assert_allclose(
        model.predict_proba(X), RVC(candidates=centres, gamma=4.0).fit(X, y).predict_proba(X), atol=1e-6
    )


def test_classifiers_take_callable_kernels_and_extra_columns(tmp_path):
    X, y, _, centres = blobs(2)
    kernel, chunks = MarkedGaussian(tmp_path, 0.0), (250, 250)
    for settings in [{"kernel": kernel}, {"kernel": [Gaussian(0.6), "linear"], "extra_basis": np.cos}]:
        expected = RVC(**settings, candidates=centres).fit(X, y)
        model = DaskRVC(**settings, candidates=centres).fit(*collections(X, y, None, chunks))
        np.testing.assert_array_equal(model.active_, expected.active_)
        np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_probabilities_are_lazy(n_classes):
    X, y, w, centres = blobs(n_classes)
    rows, labels, weights = collections(X, y, w, (200, 0, 300))
    model = DaskRVC(candidates=centres, gamma=4.0).fit(rows, labels)
    local = model.to_local()
    assert type(local) is RVC
    never = da.map_blocks(forbidden, chunks=((5, 6), (2,)), dtype=float, meta=np.empty((0, 2)))
    for method in ["predict", "predict_proba", "decision_function"]:
        with pytest.raises(AssertionError, match="computed"):
            getattr(model, method)(never).compute()
        lazy, here = getattr(model, method)(rows), getattr(local, method)(X)
        assert (lazy.shape, lazy.dtype) == (here.shape, here.dtype)
        lazy = lazy.compute()
        if method == "predict":
            np.testing.assert_array_equal(lazy, here)
        else:
            np.testing.assert_allclose(lazy, here, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(getattr(model, method)(X), here)
    plain = model.predict_proba(rows, moderate=False).compute()
    np.testing.assert_allclose(plain, local.predict_proba(X, moderate=False), rtol=1e-9)
    np.testing.assert_allclose(model.score(rows, labels, weights), local.score(X, y, w), rtol=1e-12)


def test_classes_of_a_data_frame():
    X, y, _, centres = blobs(3)
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=y)
    rows = dd.from_pandas(table, npartitions=3)
    model = DaskRVC(candidates=centres, gamma=4.0).fit(rows[["a", "b"]], rows["kind"])
    local = model.to_local()
    shares = model.predict_proba(rows[["a", "b"]]).compute()
    assert shares.columns.tolist() == ["bat", "cat", "dodo"]
    np.testing.assert_allclose(shares, local.predict_proba(table[["a", "b"]]), rtol=1e-9)
    lazy = model.predict(rows[["a", "b"]])
    assert lazy.dtype == lazy.compute().dtype
    kinds = rows.assign(guess=lazy).compute()
    np.testing.assert_array_equal(kinds["guess"].to_numpy(str), local.predict(table[["a", "b"]]))
    right = model.score(rows[["a", "b"]], rows["kind"])
    np.testing.assert_allclose(right, (kinds["guess"] == kinds["kind"]).mean())


# --- predictions ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y, w, centres = waves(13)
    with dask.config.set(scheduler="threads"):
        return DaskRVR(candidates=centres, gamma=0.2).fit(*collections(X, y, w, (300, 400))), X, y, w


def test_predictions_are_lazy_and_keep_chunks(fitted):
    model, X, _, _ = fitted
    never = da.map_blocks(forbidden, chunks=((5, 6), (2,)), dtype=float, meta=np.empty((0, 2)))
    for lazy in (model.predict(never), *model.predict(never, return_std=True)):
        assert lazy.chunks == ((5, 6),)
        assert lazy.dtype == float
        with pytest.raises(AssertionError, match="computed"):
            lazy.compute()
    local = model.to_local()
    rows = da.from_array(X, chunks=((100, 0, 600), (1, 1)))
    mean, std = dask.compute(*model.predict(rows, return_std=True))
    np.testing.assert_allclose([mean, std], local.predict(X, return_std=True), rtol=0, atol=1e-14)
    unknown = rows[rows[:, 0] > 0]
    east = local.predict(X[X[:, 0] > 0])
    np.testing.assert_allclose(model.predict(unknown).compute(), east, rtol=0, atol=1e-14)


def test_rows_in_memory_are_predicted_in_memory(fitted):
    model, X, y, w = fitted
    assert isinstance(model.predict(X), np.ndarray)
    np.testing.assert_allclose(model.predict(X[:3].tolist()), model.predict(X)[:3], rtol=1e-12)
    everywhere = model.score(*collections(X, y, w, (100, 0, 600)))
    np.testing.assert_allclose(everywhere, model.score(X, y, w), rtol=1e-12)


def test_to_local_returns_the_estimator_for_memory(fitted):
    model, X, y, _ = fitted
    local = model.to_local()
    assert type(local) is RVR
    assert local.get_params().keys() | {"client"} == model.get_params().keys()
    np.testing.assert_array_equal(local.to_predictor().predict(X[:9]), model.to_predictor().predict(X[:9]))
    np.testing.assert_allclose(local.to_predictor().predict(X[:9]), model.predict(X[:9]), rtol=1e-10)
    assert len(clone(local).fit(X, y).relevance_) > 5


@pytest.mark.parametrize(("ours", "local"), [(DaskRVR, RVR), (DaskRVC, RVC)])
def test_the_constructor_takes_the_arguments_of_the_local_estimator_and_a_client(ours, local):
    parameters = dict(inspect.signature(ours).parameters)
    assert parameters.pop("client").default is None
    assert parameters == dict(inspect.signature(local).parameters)
    assert list(ours().get_params()) == sorted([*local().get_params(), "client"])
    assert repr(ours(gamma=0.5)) == f"{ours.__name__}(gamma=0.5)"
    with pytest.raises(TypeError, match="unexpected"):
        ours(gama=0.5)


def test_clones_share_the_client_and_pickles_have_none(fitted, client):
    model = clone(fitted[0].set_params(client=client))
    assert model.client is client
    assert not hasattr(model, "mu_")
    again = pickle.loads(pickle.dumps(fitted[0]))
    assert again.client is None
    np.testing.assert_array_equal(again.predict(fitted[1]), fitted[0].predict(fitted[1]))
    fitted[0].set_params(client=None)


# --- refusals -------------------------------------------------------------------------------------


def ten(chunks=5, dimensions=1, value=1.0):
    return da.full((10, 2)[:dimensions], value, chunks=(chunks, 2)[:dimensions])


def with_one(value, row, chunks=5):
    values = np.ones(10)
    values[row] = value
    return da.from_array(values, chunks=chunks)


UNKNOWN = ten()[ten() > 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((10, 2)), ten()), "X must be a Dask array or data frame, got ndarray; .* use RVR"),
        ((ROWS, np.ones(10)), "y must be one column, a Dask array or series"),
        ((ROWS, None), "requires y"),
        ((ten(), ten()), "X must have 2 dimensions"),
        ((ROWS, ten(dimensions=2)), r"y must have one dimension, got 2"),
        ((ROWS[ten() > 0], ten()), r"X has chunks of unknown size.*X.compute_chunk_sizes"),
        ((ROWS, UNKNOWN), r"y has chunks of unknown size.*y.compute_chunk_sizes"),
        ((ROWS, ten(), UNKNOWN), r"sample_weight has chunks of unknown size"),
        ((ROWS, ten(2)), r"X and y must have .*chunks, got 10 in \(5, 5\) and 10 in \(2, .*y.rechunk"),
        ((ROWS, ten()[:9]), "X and y must have the same number of rows and chunks, got 10 in .* and 9"),
        ((ROWS, ten(), ten(2)), "X and sample_weight must have the same number of rows and chunks"),
        ((ROWS * np.nan, ten()), r"X contains NaN.*in partition [01]"),
        ((ROWS, with_one(np.inf, 7)), r"y contains infinity.*in partition 1"),
        ((ROWS, ten(), with_one(-1.0, 2)), r"sample_weight must not be negative.*in partition 0"),
        ((ROWS, ten(), ten(value=0.0)), "sample_weight is zero in every row"),
        ((ROWS[:0], ten()[:0]), "X has no rows"),
    ],
)
def test_bad_collections_are_refused(arguments, message):
    with pytest.raises(BAD, match=message):
        DaskRVR(gamma=1.0, candidates=[[0.0, 1.0]]).fit(*arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": None}, "candidates must be an integer or an array for a fit on Dask"),
        ({"candidates": 0}, "candidates must be"),
        ({"candidates": [[1.0]]}, "candidates must have the 2 columns"),
        ({"kernel": "precomputed"}, "kernel='precomputed' .*not possible for a fit on Dask"),
        ({"extra_basis": np.ones((10, 1))}, "extra_basis must be 'auto', 'linear'.*OnColumns"),
        ({"tol": -1.0}, "tol must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"memory_limit": "1GiB"}, "memory_limit is not for Dask"),
        ({"checkpoint": "state"}, "checkpoint is not for Dask"),
        ({"likelihood": "poisson"}, "a fit on Dask needs likelihood='gaussian'.*with the rows in memory"),
        ({"likelihood": "negative_binomial"}, "likelihood='gaussian'"),
        ({"likelihood": "gamma"}, "likelihood='gaussian'"),
        ({"likelihood": "student_t"}, "likelihood='gaussian'"),
        ({"noise_basis": "linear"}, "noise_basis must be None for a fit on Dask"),
        ({"client": "tcp://localhost:8786"}, "client must be a dask.distributed.Client"),
    ],
)
def test_options_that_need_all_rows_in_memory_are_refused(settings, message):
    with pytest.raises(BAD, match=message):
        DaskRVR(**{"candidates": 5} | settings).fit(ROWS, ten())


@pytest.mark.parametrize(
    ("settings", "labels", "message"),
    [
        ({"multi_class": "softmax"}, np.arange(10) % 3, "multi_class='ovr'"),
        ({"scheme": "variational"}, np.arange(10) % 2, "scheme other than 'variational'"),
        ({}, np.zeros(10), "y holds one class only"),
        ({}, np.linspace(0, 1, 10), "y: Unknown label type: continuous.*in partition"),
        ({}, np.where(np.arange(10) == 7, np.nan, 1.0), "y contains NaN.*in partition 1"),
    ],
)
def test_labels_and_schemes_that_cannot_be_fitted_are_refused(settings, labels, message):
    with pytest.raises(BAD, match=message):
        DaskRVC(candidates=3, gamma=0.1, **settings).fit(ROWS, da.from_array(labels, chunks=5))


def test_partitions_of_frames_must_match():
    _, rows = frame()
    model = DaskRVR(candidates=5, gamma="scale")
    X, y = rows[["east", "north"]], rows["height"]
    with pytest.raises(ValueError, match="X and y must have the same partitions, got 4 and 2"):
        model.fit(X, y.repartition(npartitions=2))
    with pytest.raises(ValueError, match="same divisions"):
        model.fit(X, y.repartition(divisions=[0, 100, 200, 300, 699]))
    shorter = y.map_partitions(lambda some: some[:-1]).clear_divisions()
    with pytest.raises(ValueError, match=r"same rows in each partition.*in partition \d"):
        model.fit(X, shorter)
    with pytest.raises(TypeError, match=r"y must be one column.*got DataFrame"):
        model.fit(X, rows[["height"]])
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_known_noise_is_refused(fitted):
    model, X, _, _ = fitted
    rows = collection(X, (700,))
    with pytest.raises(TypeError, match="y_std"):
        model.predict(rows, y_std=True)
    with pytest.raises(TypeError, match="y_std"):
        model.fit(rows, collection(X[:, 0], (700,)), y_std=1.0)
    with pytest.raises(ValueError, match="2 features"):
        model.predict(ten(dimensions=2)[:, :1])


def test_dask_is_imported_only_on_demand():
    code = "import sys, sparsebayes; sparsebayes.RVR(); assert 'dask' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "try: import sparsebayes.dask\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'sparsebayes[dask]'" in done.stdout


# --- transfers ---------------------------------------------------------------------------------


def test_no_result_is_as_long_as_the_rows(monkeypatch):
    sizes, ask = [], Engine.result

    def measured(self, *question):
        answer = ask(self, *question)
        sizes.append(len(pickle.dumps(answer)))
        return answer

    monkeypatch.setattr(Engine, "result", measured)
    for n in (2_000, 8_000):
        X, y, _, centres = waves(15, n)
        rows, heights, _ = collections(X, y, None, (n // 2, n // 2))
        DaskRVR(candidates=centres[:10], gamma=0.1).fit(rows, heights)
        model = DaskRVC(candidates=centres[:10], gamma=0.1).fit(rows, heights > 0.0)
        model.score(rows, heights > 0.0)
    assert len(sizes) > 10
    assert max(sizes) < 2_000


def test_any_number_of_threads_and_workers_gives_the_same_bits():
    X, y, w, centres = waves(16)
    rows, heights, weights = collections(X, y, w, (200, 0, 250, 250))
    for kind, target in [(DaskRVR, heights), (DaskRVC, heights > 0.0)]:
        fits = []
        for n_workers, n_jobs in [(1, None), (3, 1), (2, 2)]:
            with dask.config.set(num_workers=n_workers):
                model = kind(candidates=centres[:20], gamma=0.1, n_jobs=n_jobs)
                fits.append(model.fit(rows, target, weights))
        for other in fits[1:]:
            assert_same_bits(fits[0], other)


# --- workers that die -----------------------------------------------------------------------------


def test_a_regression_survives_a_killed_worker(client, tmp_path):
    X, y, w, centres = waves(14)
    rows = collections(X, y, w, (87,) * 8 + (4,))
    kernel = MarkedGaussian(tmp_path, fatal=4)
    before = set(client.run(os.getpid).values())
    model = DaskRVR(kernel, candidates=centres, tol=1e-10, client=client, std="plain").fit(*rows)
    assert (tmp_path / "victim").exists()
    # Other workers repeated the work of the dead one. (Landmarks are evaluated in this process.)
    assert len(kernel.calls()) > len(rows[0].chunks[0])
    assert set(kernel.calls()) <= before | set(client.run(os.getpid).values())
    expected = RVR(Gaussian(1.0), candidates=centres, tol=1e-10).fit(X, y, w)
    assert_same_model(model, expected)
    assert_same_bits(model, clone(model).set_params(kernel=MarkedGaussian(tmp_path, np.inf)).fit(*rows))


def test_a_classification_survives_a_killed_worker(client):
    X, y, _, centres = blobs(2, n=300)
    rows, centres = collections(X, y, None, (100, 100, 100))[:2], centres[::2]
    dead = []

    def kill(record):
        if record.iteration == 2:
            held = client.has_what()
            fullest = max(held, key=lambda worker: len(held[worker]))
            assert len(held[fullest]) > 0
            dead.extend(client.run(os.getpid, workers=[fullest]).values())
            os.kill(dead[0], signal.SIGKILL)

    settings = {"candidates": centres, "gamma": 4.0, "tol": 1e-10}
    expected = RVC(**settings).fit(X, y)
    assert expected.n_iter_ > 4
    model = DaskRVC(**settings, client=client, callback=kill).fit(*rows)
    assert len(dead) == 1
    assert dead[0] not in client.run(os.getpid).values()
    assert_same_model(model, expected)
    assert_same_bits(model, DaskRVC(**settings).fit(*rows))
