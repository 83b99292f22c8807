"""MNE decodes with our classifiers, and finds the sources that we find."""

import numpy as np
import pytest

from sparsebayes import RVC, SparseBayesClassifier, SparseBayesRegressor

client = pytest.importorskip("mne")
decoding = pytest.importorskip("mne.decoding")
inverse = pytest.importorskip("mne.inverse_sparse")

# At times without signal.
empty = pytest.mark.filterwarnings("ignore:.*'empty':sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def epochs():
    """Class 1 has a signal in sensors 1 and 2 at times 4 and 5."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(160, 5, 8)), np.arange(160) % 2
    X[y == 1, 1:3, 4:6] += 1.5
    return X, y


@empty
@pytest.mark.parametrize("model", [RVC(), SparseBayesClassifier()], ids=repr)
def test_the_times_of_a_signal_are_found(model, epochs):
    X, y = epochs
    sliding = decoding.SlidingEstimator(model, scoring="roc_auc", verbose=False)
    areas = decoding.cross_val_multiscore(sliding, X, y, cv=4, verbose=False).mean(axis=0)
    assert areas[4:6].min() > 0.85
    assert np.delete(areas, [4, 5]).max() < 0.7


@empty
def test_patterns_show_the_sensors_of_a_signal(epochs):
    model = decoding.LinearModel(SparseBayesClassifier())
    sliding = decoding.SlidingEstimator(model, verbose=False).fit(*epochs)
    patterns = decoding.get_coef(sliding, "patterns_")
    assert patterns.shape == (5, 8)
    assert np.abs(patterns[1:3, 4:6]).min() > 3.0 * np.abs(patterns[[0, 3, 4], 4:6]).max()


@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
def test_a_receptive_field_has_the_lags_of_the_stimulus():
    rng, true = np.random.default_rng(0), np.zeros((2, 10))
    true[0, 3], true[1, 5] = 1.0, -0.5
    stimulus = rng.normal(size=(600, 2))
    response = sum(np.convolve(stimulus[:, j], true[j])[:600] for j in (0, 1)) + 0.2 * rng.normal(size=600)
    field = decoding.ReceptiveField(0.0, 0.9, 10.0, estimator=SparseBayesRegressor())
    field.fit(stimulus[:400], response[:400])
    np.testing.assert_array_equal(field.coef_ != 0.0, true != 0.0)
    np.testing.assert_allclose(field.coef_, true, atol=0.05)
    assert field.score(stimulus[400:], response[400:])[0] > 0.9


def test_the_two_strongest_sources_of_gamma_map_are_found_and_no_others():
    client.set_log_level("error")
    montage = client.channels.make_standard_montage("biosemi64")
    info = client.create_info(montage.ch_names, 100.0, "eeg").set_montage(montage)
    sphere = client.make_sphere_model("auto", "auto", info)
    grid = np.stack(np.meshgrid(*[np.linspace(-0.06, 0.06, 8)] * 3), axis=-1).reshape(-1, 3)
    grid = grid[np.linalg.norm(grid, axis=1) < 0.065]
    places = {"rr": grid + sphere["r0"], "nn": np.tile([0.0, 0.0, 1.0], (len(grid), 1))}
    space = client.setup_volume_source_space(sphere=sphere, pos=places)
    forward = client.make_forward_solution(info, None, space, sphere)

    rng, times = np.random.default_rng(0), np.arange(40) / 40.0
    gain = forward["sol"]["data"]
    currents = np.zeros((gain.shape[1], 40))
    currents[60:63] = np.outer([1.0, 1.0, 0.0], 3e-8 * np.sin(6.0 * np.pi * times))
    currents[300:303] = np.outer([0.0, 0.5, 1.0], 3e-8 * np.cos(10.0 * np.pi * times))
    signal = gain @ currents
    noise = signal.std() / 5.0
    measured = signal + noise * rng.normal(size=signal.shape)

    evoked = client.EvokedArray(measured, info).set_eeg_reference(projection=True)
    covariance = client.make_ad_hoc_cov(info, std={"eeg": noise})
    dipoles = inverse.gamma_map(
        evoked, forward, covariance, 0.3, loose=1.0, depth=None, maxit=1000, return_as_dipoles=True
    )
    strongest = sorted(dipoles, key=lambda dipole: -np.abs(dipole.amplitude).max())[:2]

    # Potentials are relative to their mean, so one direction of the 64 is lost.
    directions = np.linalg.svd(np.eye(64) - 1.0 / 64.0)[0][:, :63].T
    model = SparseBayesRegressor(fit_intercept=False, groups=3, shared_noise=True)
    model.fit(directions @ gain * 1e-8 / noise, directions @ measured / noise)
    found = np.unique(model.active_ // 3)
    assert found.tolist() == [20, 100]
    assert 0.9 < model.noise_variance_ < 1.1
    theirs = sorted(dipole.pos[0].tolist() for dipole in strongest)
    np.testing.assert_allclose(sorted(forward["source_rr"][found].tolist()), theirs, atol=1e-6)
