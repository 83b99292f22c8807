"""mRVM1 and mRVM2 while they run, between fits, and when they are asked for what cannot be."""

import numpy as np
import pytest

from sparsebayes import MRVM1, MRVM2, StepRecord

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


# --- bad input -------------------------------------------------------------------------------------

BAD_SETTINGS = [
    ("convergence", "conv3"),
    ("convergence", 2),
    ("convergence", None),
    ("min_iter_factor", 0),
    ("min_iter_factor", np.nan),
    ("min_iter_factor", "one"),
    ("n_quadrature", 0),
    ("n_quadrature", 2.0),
    ("n_quadrature", "many"),
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
