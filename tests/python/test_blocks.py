"""Dictionaries in blocks: certified over all candidates, resumed, the same bits for any n_jobs."""

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from problems import PAPERS, assert_certified, sinc_2d, two_classes
from reference import best_alpha, contribution, laplace_statistics, statistics
from sparsebayes import RVC, RVR, _core, _progress
from sparsebayes._data import design
from sparsebayes._data.chunks import Checkpoint
from sparsebayes.kernels import Gaussian, Sigmoid

#: Sizes of the first and later working sets, candidates added after a sweep, block size, search rounds.
SIZES = (150, 200, 48, 256, 2)


@pytest.fixture
def in_blocks(monkeypatch):
    monkeypatch.setattr(design, "_MAX_UNBLOCKED", 0)
    monkeypatch.setattr(design, "_BLOCK_SIZES", SIZES)


KERNELS = {
    "rbf": Gaussian(2.5),
    "not positive definite": Sigmoid(0.1, -1.0),
    "sum": Gaussian(4.0) + Gaussian(2.0),
    "several": [Gaussian(4.0), Gaussian(2.0)],
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_regression_is_certified_over_all_candidates(in_blocks, kernel):
    X, y = sinc_2d(1500)
    found = assert_certified(RVR(KERNELS[kernel], gamma="scale").fit(X, y), X, y)
    assert found.n_basis == 1 + 1500 * (2 if kernel == "several" else 1)


@pytest.mark.parametrize("kernel", ["rbf", "not positive definite"])
def test_classification_is_certified_over_all_candidates(in_blocks, kernel):
    X, y = two_classes(1500)
    assert_certified(
        RVC({"rbf": Gaussian(0.5), "not positive definite": Sigmoid(0.5, 0.1)}[kernel], gamma="scale").fit(
            X, y
        ),
        X,
        y,
    )


def test_weights_centres_priors_and_columns_are_certified(in_blocks):
    X, y = sinc_2d(1500)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.2, 3.0, len(X))
    assert_certified(RVR(Gaussian(2.5)).fit(X, y, sample_weight=weight), X, y, weight)
    centres = rng.uniform(-12, 12, (2500, 2))
    assert_certified(RVR(Gaussian(2.5), candidates=centres).fit(X, y), X, y)
    assert_certified(RVR(Gaussian(2.5), alpha_prior=(0.1, 1e-3), extra_basis="linear").fit(X, y), X, y)
    assert_certified(RVR(Gaussian(2.5), noise_variance=0.01).fit(X, y), X, y)
    X, y = two_classes(1500)
    weight = rng.uniform(0.2, 3.0, len(X))
    assert_certified(RVC(Gaussian(0.5)).fit(X, y, sample_weight=weight), X, y, weight)


def gains_outside(model, Phi, t, columns, likelihood):
    """Return the largest gain among all inactive columns, from the dense covariance."""
    if likelihood == "gaussian":
        s, q, _, _ = statistics(Phi, t, columns, model.alpha_, model.beta_)
    else:
        s, q, _, _ = laplace_statistics(Phi, t, columns, model.alpha_, likelihood)
    outside = np.setdiff1d(np.arange(Phi.shape[1]), columns)
    return np.max(contribution(best_alpha(s[outside], q[outside]), s[outside], q[outside]), initial=0.0)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_screened_sweeps_end_at_an_optimum_by_the_dense_reference(in_blocks, likelihood):
    """For wide kernels a few landmarks are enough, so that bounds decide; the reference shares no code."""
    X, y = sinc_2d(2000) if likelihood == "gaussian" else two_classes(2000)
    model = RVR(Gaussian(5.0), **PAPERS) if likelihood == "gaussian" else RVC(Gaussian(2.0), **PAPERS)
    Phi = np.column_stack([np.ones(len(X)), model.fit(X, y).kernel(X, X)])
    assert gains_outside(model, Phi, y, model.active_ + 1, likelihood) <= 1e-6
    assert_certified(model, X, y)


def test_the_evidence_is_not_below_that_of_a_fit_in_one_piece(monkeypatch):
    differences = []
    for seed in range(16):
        X, y = sinc_2d(1000, seed=seed)
        whole = RVR(Gaussian(2.5), **PAPERS).fit(X, y)
        with monkeypatch.context() as patch:
            patch.setattr(design, "_MAX_UNBLOCKED", 0)
            patch.setattr(design, "_BLOCK_SIZES", (512, 512, 128, 512, 3))
            parts = RVR(Gaussian(2.5), **PAPERS).fit(X, y)
        differences.append(parts.log_marginal_likelihood_ - whole.log_marginal_likelihood_)
    assert np.mean(differences) > -1.5


def same(a, b):
    for name in ("active", "alpha", "mu", "sigma", "trace"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (a.beta, a.log_evidence, a.status) == (b.beta, b.log_evidence, b.status)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_a_resumed_fit_ends_at_the_same_model_bit_for_bit(kind):
    X, y = sinc_2d(1200) if kind == "gaussian" else two_classes(1200)
    kernel = (Gaussian(2.5) if kind == "gaussian" else Gaussian(0.5)).to_core()

    def fit(resume=None, keep=None, n_threads=None):
        return _core.fit_kernel_in_blocks(
            X, X, [kernel], y.astype(float), likelihood=kind, sizes=SIZES, resume=resume, keep=keep,
            n_threads=n_threads,
        )  # fmt: skip

    kept = []
    whole = fit(keep=kept.append)
    assert len(kept) > 1
    for sketch in kept[1:]:
        same(fit(sketch), whole)
    same(fit(n_threads=1), whole)
    same(fit(n_threads=3), whole)


def test_unsound_states_are_refused():
    X, y = sinc_2d(300)
    kept = []

    def fit(**options):
        _core.fit_kernel_in_blocks(X, X, [Gaussian(2.5).to_core()], y, sizes=SIZES, **options)

    fit(keep=kept.append)
    for change in (
        {"working": np.array([5, 3])},
        {"working": np.array([-1, 3])},
        {"active": np.array([301])},
        {"alpha": np.array([])},
        {"beta": np.array([np.nan])},
        {"counts": np.array([1, 0, 0])},
        {"counts": np.array([1])},
    ):
        with pytest.raises(ValueError, match="resume"):
            fit(resume={**kept[-1], **change})
    with pytest.raises(ValueError, match="resume"):
        fit(resume={})

    def fail(sketch):
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        fit(keep=fail)


KILLED = """
import os, signal, sys
from problems import sinc_2d
from sparsebayes import RVR
from sparsebayes._data import design
from sparsebayes.kernels import Gaussian
design._MAX_UNBLOCKED, design._BLOCK_SIZES = 0, {sizes}
seen = []
def kill(record):
    seen.append(record.action)
    if seen[-1] == "sweep" and seen.count("sweep") > 9:
        os.kill(os.getpid(), signal.SIGKILL)
RVR(Gaussian(2.5), checkpoint=sys.argv[1], callback=kill).fit(*sinc_2d(1500))
"""


def test_a_killed_fit_resumes_from_its_checkpoint(in_blocks, tmp_path):
    X, y = sinc_2d(1500)
    path = tmp_path / "state"
    whole = RVR(Gaussian(2.5), checkpoint=path).fit(X, y)
    assert not path.exists()
    code = KILLED.format(sizes=SIZES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code, path], env=environment, check=False)
    assert run.returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match="belongs to another fit"):
        RVR(Gaussian(2.5), checkpoint=path).fit(X, y + 1.0)
    steps = []
    again = RVR(Gaussian(2.5), checkpoint=path, callback=lambda r: steps.append(r.iteration)).fit(X, y)
    assert steps[0] > 1  # it resumed
    assert not path.exists()
    for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    assert again.beta_ == whole.beta_


def test_one_against_the_rest_keeps_a_file_for_each_class(in_blocks, tmp_path, monkeypatch):
    X, y = two_classes(600)
    y = y + (X[:, 0] > 0.3)
    seen = set()
    kept = Checkpoint.save

    def save(self, **arrays):
        kept(self, **arrays)
        seen.update(path.name for path in tmp_path.iterdir())

    monkeypatch.setattr(Checkpoint, "save", save)
    model = RVC(Gaussian(0.5), checkpoint=tmp_path / "state").fit(X, y)
    assert len(seen) == 3
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(model.mu_, RVC(Gaussian(0.5)).fit(X, y).mu_)


def test_sweeps_are_reported(in_blocks, capsys, monkeypatch):
    # Show every change, however fast the sweeps are.
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.setattr(_progress, "_tqdm", lambda: partial(tqdm, mininterval=0.0))
    X, y = sinc_2d(1500)
    records = []
    model = RVR(Gaussian(2.5), callback=records.append, verbose=1).fit(X, y)
    sweeps = [record for record in records if record.action == "sweep"]
    assert all(record.progress is None for record in records if record.action != "sweep")
    first, last = sweeps[0].progress, sweeps[-1].progress
    assert (first.what, first.done) == ("sweeping", 0)
    assert last.done == last.total == 1501 - len(model.active_)
    assert sweeps[0].index is None
    assert sweeps[-1].log_marginal_likelihood == model.log_marginal_likelihood_path_[-1]
    assert sweeps[-1].n_active == len(model.active_)
    assert len(model.log_marginal_likelihood_path_) == model.n_iter_ + 1
    assert "candidates swept" in capsys.readouterr().err


def test_a_callback_stops_a_sweep(in_blocks):
    X, y = sinc_2d(1500)
    model = RVR(Gaussian(2.5), callback=lambda record: record.action == "sweep").fit(X, y)
    assert model.status_ == "stopped"
    assert len(model.active_) > 5
    assert model.score(X, y) > 0.6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("steps", [1, 40, 200])
def test_steps_are_limited_over_all_rounds(in_blocks, steps):
    X, y = sinc_2d(1500)
    model = RVR(Gaussian(2.5), max_iter=steps).fit(X, y)
    assert (model.status_, model.n_iter_) == ("max_iter", steps)


def test_small_dictionaries_and_other_schemes_are_fitted_in_one_piece(monkeypatch):
    X, y = sinc_2d(200)

    def fail(*args, **options):
        raise AssertionError

    monkeypatch.setattr(_core, "fit_kernel_in_blocks", fail)
    RVR(Gaussian(2.5)).fit(X, y)
    monkeypatch.setattr(design, "_MAX_UNBLOCKED", 0)
    RVR(Gaussian(2.5), scheme="em").fit(X, y)
    X, y = two_classes(200)
    RVC(Gaussian(0.5), multi_class="softmax").fit(X, y + (X[:, 0] > 0.3))
    with pytest.raises(AssertionError):
        RVC(Gaussian(0.5)).fit(X, y)
