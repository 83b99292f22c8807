"""Columns in groups of three beside gamma-MAP of MNE-Python: the sources of a simulated magnetic field.

MNE-Python is not among the dependencies of the benchmarks: pip install mne.
"""

import time
import warnings

import numpy as np

from sparsebayes import SparseBayesRegressor


def field(seed, n_sensors, n_sources, n_times, n_active=3):
    """Return fields of unit dipoles, three orientations each, measured fields of noise 1, and the sources."""
    rng = np.random.default_rng(seed)
    sources = rng.normal(size=(n_sources, 3))
    sources *= 0.07 * rng.uniform(0.6, 1.0, (n_sources, 1)) / np.linalg.norm(sources, axis=1, keepdims=True)
    sensors = rng.normal(size=(n_sensors, 3))
    sensors[:, 2] = np.abs(sensors[:, 2])
    normals = sensors / np.linalg.norm(sensors, axis=1, keepdims=True)
    apart = 0.11 * normals[:, np.newaxis] - sources
    fields = np.cross(apart, np.broadcast_to(normals[:, np.newaxis], apart.shape))
    fields /= np.linalg.norm(apart, axis=2)[..., np.newaxis] ** 3
    fields = fields.reshape(n_sensors, -1) / np.sqrt(np.mean(fields**2) * n_sensors)
    active = rng.choice(n_sources, n_active, replace=False)
    moments = np.zeros((n_sources, 3, n_times))
    waves = np.sin(np.linspace(0.0, 6.0, n_times))
    moments[active] = 8.0 * rng.normal(size=(n_active, 3, 1)) * waves + rng.normal(
        size=(n_active, 3, n_times)
    )
    measured = fields @ moments.reshape(-1, n_times) / 0.3 + rng.normal(size=(n_sensors, n_times))
    return fields, measured, set(active.tolist())


def fit(fields, measured, times=1):
    """Return the evidence, the median of the seconds and the sources of our fit."""
    model = SparseBayesRegressor(
        groups=3, fit_intercept=False, noise_variance=1.0, shared_noise=True, complexity="none"
    )
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        model.fit(fields, measured)
        seconds.append(time.perf_counter() - start)
    return model.log_marginal_likelihood_, np.median(seconds), model.active_ // 3


def main():
    warnings.simplefilter("ignore")
    try:
        from mne import set_log_level
        from mne.inverse_sparse._gamma_map import _gamma_map_opt
    except ImportError:
        print("mne is not installed; pip install mne to compare with it")
        _gamma_map_opt = None
    else:
        set_log_level("ERROR")
    fit(*field(0, 20, 50, 2)[:2])  # imports
    print(f"{'sensors x sources x times':28}{'ours: s':>9}{'found':>7}{'MNE: s':>9}{'found':>7}{'nats':>8}")
    for shape, seeds in (((100, 2000, 10), range(4)), ((200, 5000, 40), range(1))):
        for seed in seeds:
            fields, measured, true = field(seed, *shape)
            evidence, seconds, sources = fit(fields, measured, times=5)
            line = f"{' x '.join(map(str, shape)):28}{seconds:9.3f}{len(true & set(sources.tolist())):7}"
            if _gamma_map_opt is not None:
                start = time.perf_counter()
                _, kept, *_ = _gamma_map_opt(
                    measured.copy(), fields.copy(), 1.0, maxit=10_000, tol=1e-6, update_mode=1, group_size=3
                )
                theirs = time.perf_counter() - start
                # The best precisions of the sources that it kept.
                least = fit(fields[:, kept], measured)[0]
                found = len(true & set((kept // 3).tolist()))
                line += f"{theirs:9.2f}{found:7}{evidence - least:8.1f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
