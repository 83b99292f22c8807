"""mRVM1 and mRVM2 while they run, between fits, and when they are asked for what cannot be."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sparsebayes import MRVM1, MRVM2, StepRecord
from sparsebayes.kernels import Gaussian, Linear

MACHINES = [MRVM1, MRVM2]
CLOUD = np.random.default_rng(0).normal(size=(36, 2))
THIRDS = np.repeat([0, 1, 2], 12)


def assert_same_models(one, other):
    for name in ("active_", "alpha_", "mu_", "n_relevance_path_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# --- while it runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MACHINES)
def test_the_callback_sees_each_step_and_can_stop_the_fit(kind, three):
    X, y = three
    records = []
    model = kind(gamma=0.5, callback=records.append).fit(X, y)
    assert all(isinstance(record, StepRecord) for record in records)
    assert [record.iteration for record in records] == list(range(1, model.n_iter_ + 1))
    assert [record.n_active for record in records] == model.n_relevance_path_[1:].tolist()
    whole = model.log_marginal_likelihood_path_ if kind is MRVM1 else model.log_joint_likelihood_path_
    np.testing.assert_array_equal([record.log_marginal_likelihood for record in records], whole[1:])
    assert {record.noise_variance for record in records} == {None}
    assert_same_models(model, kind(gamma=0.5).fit(X, y))
    stopped = kind(gamma=0.5, callback=lambda record: record.iteration == 5).fit(X, y)
    assert (stopped.status_, stopped.n_iter_) == ("stopped", 5)
    assert np.isfinite(stopped.predict_proba(X)).all()


@pytest.mark.parametrize("kind", MACHINES)
def test_a_fit_that_fails_leaves_the_model_that_was_there(kind, three):
    X, y = three
    model = kind(gamma=0.5).fit(X, y)
    expected = model.predict_proba(X)

    def fail(record):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        model.set_params(gamma=5.0, callback=fail).fit(X[:50], y[:50][::-1])
    np.testing.assert_array_equal(model.predict_proba(X), expected)


@pytest.mark.parametrize("kind", MACHINES)
def test_models_clone_pickle_take_frames_and_fit_again(kind, three):
    X, y = three
    model = kind(gamma=0.5).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    assert clone(model).get_params() == model.get_params()
    frame = pd.DataFrame(X, columns=["width", "height"])
    framed = kind(gamma=0.5).fit(frame, pd.Series(y))
    assert list(framed.feature_names_in_) == ["width", "height"]
    assert_same_models(framed, model)
    with pytest.raises(ValueError, match="feature names"):
        framed.predict(frame[["height", "width"]])
    copy.set_params(kernel="linear").fit(X, y)
    assert copy.coef_.shape == (3, 2)
    copy.set_params(kernel=Linear() + Gaussian(1.0)).fit(X, y)
    assert not hasattr(copy, "coef_")


# --- bad input -------------------------------------------------------------------------------------

BAD_SETTINGS = [
    ("kernel", "gaussian"),
    ("kernel", []),
    ("kernel", ["rbf", "precomputed"]),
    ("kernel", 3.0),
    ("gamma", -1.0),
    ("gamma", "wide"),
    ("degree", 0),
    ("degree", 2.5),
    ("coef0", np.inf),
    ("fit_intercept", "no"),
    ("convergence", "conv3"),
    ("convergence", 2),
    ("convergence", None),
    ("min_iter_factor", 0),
    ("min_iter_factor", -1),
    ("min_iter_factor", np.nan),
    ("min_iter_factor", "one"),
    ("n_quadrature", 0),
    ("n_quadrature", 2.0),
    ("n_quadrature", "many"),
    ("tol", 0),
    ("tol", "small"),
    ("max_iter", 0),
    ("max_iter", 10.0),
    ("n_jobs", 0),
    ("n_jobs", 1.5),
    ("verbose", -1),
    ("verbose", "yes"),
    ("callback", 3),
]
BAD_OF_MRVM2 = [
    ("tau", 0.0),
    ("tau", -1e-6),
    ("tau", "flat"),
    ("upsilon", 0),
    ("upsilon", np.inf),
    ("upsilon", None),
    ("prune", "no"),
    ("prune", None),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, *bad) for kind in MACHINES for bad in BAD_SETTINGS] + [(MRVM2, *bad) for bad in BAD_OF_MRVM2],
)
def test_bad_settings_are_refused_by_name(kind, name, value):
    with pytest.raises((TypeError, ValueError), match=rf"^{name}\b"):
        kind(**{name: value}).fit(CLOUD, THIRDS)


@pytest.mark.parametrize("kind", MACHINES)
def test_bad_data_are_refused_by_name(kind):
    for X in (CLOUD[:, 0], np.full((36, 2), np.nan), CLOUD + 1j, CLOUD[:0], None):
        with pytest.raises((TypeError, ValueError), match=r"\bX\b"):
            kind().fit(X, THIRDS)
    for y in (THIRDS[:-1], np.c_[THIRDS, THIRDS], CLOUD[:, 0], None, np.full(36, np.nan)):
        with pytest.raises((TypeError, ValueError), match=r"\by\b|continuous"):
            kind().fit(CLOUD, y)
    for w in (-np.ones(36), np.zeros(36), np.ones(35), np.full(36, np.nan)):
        with pytest.raises(ValueError, match="sample_weight"):
            kind().fit(CLOUD, THIRDS, w)
    with pytest.raises(ValueError, match=r"^y holds one class only"):
        kind().fit(CLOUD, np.zeros(36))
    with pytest.raises(ValueError, match=r"^y holds one class only"):
        kind().fit(CLOUD, THIRDS, THIRDS == 1)
    with pytest.raises(ValueError, match="X must be square"):
        kind("precomputed").fit(CLOUD, THIRDS)
