"""Every iterative estimator: weights count rows, threads change no bit, and fits can be stopped."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from problems import ESTIMATORS, assert_same_bits, columns, predictions, sinc_1d, sinc_2d, two_classes
from sparsebayes import GREVM, MRVM1, MRVM2, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.kernels import Gaussian, Linear

X, Y = sinc_2d(90, seed=1)
LINE, WAVE = sinc_1d(90)
TWO_OUTPUTS = np.column_stack([WAVE, LINE[:, 0] / 10 + 0.3 * np.random.default_rng(0).normal(size=90)])
COUNTS = np.random.default_rng(1).poisson(np.exp(1.0 + X[:, 0] / 10)).astype(float)
PLANE, TWO = two_classes(90, seed=1)
THREE = np.digitize(PLANE[:, 0] + 0.2 * np.random.default_rng(2).normal(size=90), [-0.4, 0.3])
WIDE, NARROW = Gaussian(2.5), Gaussian(0.7)

CASES = {
    "one output": (RVR(WIDE), X, Y),
    "several kernels": (RVR([WIDE, Linear()]), X, Y),
    "columns": (SparseBayesRegressor(), *columns(90, 15)),
    "several outputs": (RVR(Gaussian(3.0)), LINE, TWO_OUTPUTS),
    "shared noise": (RVR(Gaussian(3.0), shared_noise=True), LINE, TWO_OUTPUTS),
    "exchange": (RVR(WIDE, search="exchange"), X, Y),
    "mackay": (RVR(Gaussian(3.0), scheme="mackay"), LINE, WAVE),
    "em": (RVR(Gaussian(3.0), scheme="em"), LINE, WAVE),
    "variational": (RVR(Gaussian(3.0), scheme="variational"), LINE, WAVE),
    "counts": (SparseBayesRegressor(likelihood="poisson"), X, COUNTS),
    "two classes": (RVC(NARROW), PLANE, TWO),
    "variational classes": (RVC(NARROW, scheme="variational"), PLANE, TWO),
    "exchanged classes": (RVC(NARROW, search="exchange"), PLANE, TWO),
    "one against the rest": (SparseBayesClassifier(), PLANE, THREE),
    "softmax": (RVC(NARROW, multi_class="softmax"), PLANE, THREE),
    "softmax of columns": (SparseBayesClassifier(multi_class="softmax"), PLANE, THREE),
    "mRVM1": (MRVM1(NARROW, convergence="conv1"), PLANE, THREE),
    "mRVM2": (MRVM2(NARROW), PLANE, THREE),
    "mRVM1 of two kernels": (MRVM1([NARROW, Gaussian(1.5)], convergence="conv1"), PLANE, THREE),
    "mRVM2 of two kernels": (MRVM2([NARROW, Gaussian(2.0)]), PLANE, THREE),
}
#: Models without steps.
EIGENVECTOR_MODELS = {
    **{name: (ESTIMATORS[name](NARROW), PLANE, TWO) for name in ("GREVM", "LREVM", "VGREVM")},
    **{name: (ESTIMATORS[name](Gaussian(3.0)), LINE, WAVE) for name in ("GREVMRegressor", "LREVMRegressor")},
    "GREVM of three classes": (GREVM(NARROW), PLANE, THREE),
}
every_model = pytest.mark.parametrize("name", [*CASES, *EIGENVECTOR_MODELS])


@every_model
def test_integer_weights_count_like_repeated_rows(name):
    model, X, y = (CASES | EIGENVECTOR_MODELS)[name]
    n = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = clone(model).fit(X, y, sample_weight=n)
    repeated = clone(model).fit(np.repeat(X, n, axis=0), np.repeat(y, n, axis=0))
    atol = 2e-4 if name.startswith("mRVM") else 1e-5
    np.testing.assert_allclose(predictions(weighted, X), predictions(repeated, X), rtol=1e-5, atol=atol)
    if hasattr(weighted, "log_marginal_likelihood_") and not name.startswith("mRVM"):
        np.testing.assert_allclose(
            weighted.log_marginal_likelihood_, repeated.log_marginal_likelihood_, rtol=1e-7
        )


@every_model
def test_threads_and_pickles_change_no_bit(name):
    model, X, y = (CASES | EIGENVECTOR_MODELS)[name]
    first, *others = (clone(model).set_params(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, None))
    for other in (*others, pickle.loads(pickle.dumps(first))):
        assert_same_bits(other, first)
        np.testing.assert_array_equal(predictions(other, X), predictions(first, X))


@pytest.mark.parametrize("name", CASES)
def test_a_callback_stops_a_fit_and_max_iter_ends_it_with_a_warning(name):
    model, X, y = CASES[name]
    stopped = clone(model).set_params(callback=lambda record: record.iteration == 3).fit(X, y)
    assert stopped.status_ == "stopped"
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ended = clone(model).set_params(max_iter=4).fit(X, y)
    assert ended.status_ == "max_iter"
    for cut in (stopped, ended):
        assert np.isfinite(predictions(cut, X)).all()
