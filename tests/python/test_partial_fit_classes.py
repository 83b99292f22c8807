"""`partial_fit` of the classifiers: the past as a quadratic term, rows of some classes only, errors."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import log_loss

from sparsebayes import RVC, SparseBayesClassifier
from test_chunked_classes import KINDS, assert_same_model, problem
from test_providers import same_bits


def stream(model, X, y, weights=None, n_chunks=4, **options):
    """Return the model after calls with successive rows."""
    for rows in np.array_split(np.arange(len(y)), n_chunks):
        model.partial_fit(
            X[rows], y[rows], sample_weight=None if weights is None else weights[rows], **options
        )
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_first_call_gives_the_model_of_fit(kind, n_classes):
    X, y, weights = problem(3, n_classes=n_classes)
    X[:, 1] += 1000.0 * (kind == "columns")
    reference = KINDS[kind]().fit(X, y, weights)
    model = KINDS[kind]().partial_fit(X, y, sample_weight=weights)
    assert model.status_ == "converged"
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, rtol=1e-7)
    if kind == "beside":  # its columns are centred by other means, which changes the weight of the bias
        model.mu_[0] = reference.mu_[0]
    assert_same_model(model, reference, rtol=1e-7)
    np.testing.assert_allclose(model.class_prior_, reference.class_prior_, rtol=1e-12)
    weighted = KINDS[kind](class_weight={"ant": 2.0}).partial_fit(X, y, sample_weight=weights)
    assert_same_model(weighted, KINDS[kind]().partial_fit(X, y, sample_weight=weights * (1.0 + (y == "ant"))))


@pytest.fixture
def expanded(monkeypatch):
    """Expand the likelihood of the rows of each call."""
    monkeypatch.setattr("sparsebayes._estimators.class_rows._RECENT_ROWS", 0)


def test_earlier_rows_count_by_their_expansion_at_the_mode(expanded):
    X, y, w = problem(8, n=300)
    first, second = slice(0, 180), slice(180, 300)
    model = SparseBayesClassifier(tol=1e-10, complexity="none")
    Phi = np.column_stack([np.ones(len(X)), X])

    def weights_of(model):
        found = np.zeros(4)
        found[1:] = model.coef_[0]
        found[0] = model.intercept_[0]
        return found

    model.partial_fit(X[first], y[first], sample_weight=w[first])
    before = weights_of(model)
    model.partial_fit(X[second], y[second], sample_weight=w[second])
    after = weights_of(model)
    # Gradient and curvature of the earlier rows at the earlier mode, and of the later ones at this mode.
    slope, curvature = np.zeros(4), np.zeros((4, 4))
    for rows, at in ((first, before), (second, after)):
        p = expit(Phi[rows] @ at)
        G = (Phi[rows] * (w[rows] * p * (1.0 - p))[:, np.newaxis]).T @ Phi[rows]
        slope += Phi[rows].T @ (w[rows] * ((y[rows] == "bee") - p)) - G @ (after - at)
        curvature += G
    used = np.append(0, model.active_[model.active_ >= 0] + 1)
    alpha = model.alpha_
    assert len(used) >= 3
    assert alpha[0] == 0.0
    np.testing.assert_allclose(slope[used], alpha * after[used], atol=1e-6 * np.abs(curvature).max())
    gamma = 1.0 - alpha * np.diag(np.linalg.inv(np.diag(alpha) + curvature[np.ix_(used, used)]))
    np.testing.assert_allclose(alpha[1:], (gamma / after[used] ** 2)[1:], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_several_calls_are_close_to_one_fit(kind, expanded):
    X, y, _ = problem(4, n=2000, n_classes=3)
    model = stream(KINDS[kind](), X, y, classes=["ant", "bee", "cat"])
    whole = KINDS[kind]()
    own = {"allow_dense": False} if kind == "columns" else {"candidates": model.candidates_}
    whole.set_params(**own)
    p = model.predict_proba(X)
    assert log_loss(y, p) < log_loss(y, whole.fit(X, y).predict_proba(X)) + 0.01
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert "converged" in str(model.summary())
    if kind != "python":
        np.testing.assert_allclose(model.to_predictor().predict_proba(X), p, rtol=1e-10, atol=1e-14)


def test_calls_are_reproducible_and_continue_from_pickles(expanded):
    X, y, weights = problem(5, n=600)
    model, pickled = KINDS["number"](n_jobs=1), KINDS["number"](n_jobs=2)
    for rows in np.array_split(np.arange(600), 5):
        model.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
        pickled = pickle.loads(
            pickle.dumps(pickled.partial_fit(X[rows], y[rows], sample_weight=weights[rows]))
        )
    assert same_bits(model, pickled)
    small = len(pickle.dumps(KINDS["given"]().partial_fit(X, y)))
    assert len(pickle.dumps(stream(KINDS["given"](), X, y, n_chunks=5))) < 1.1 * small
    # `fit` forgets the rows, and the next call starts again.
    again = model.fit(X, y).partial_fit(X, y)
    assert same_bits(again, clone(model).partial_fit(X, y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calls_may_lack_rows_of_some_classes():
    X, y, _ = problem(6, n=900, n_classes=3)
    order = np.argsort(y, kind="stable")
    model = SparseBayesClassifier()
    model.partial_fit(X[y == "ant"], y[y == "ant"], classes=["cat", "bee", "ant"])
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert model.class_prior_.tolist() == [1.0, 0.0, 0.0]
    p = model.predict_proba(X)
    # An uncertain intercept: the log odds, -ln 301, have a variance of about 1.
    assert (p[:, 0] > 0.98).all()
    assert (np.ptp(p, axis=0) == 0.0).all()
    with pytest.raises(ValueError, match="prior needs a row of each class, and there is none yet of 'bee'"):
        model.predict(X, prior=np.full(3, 1.0 / 3.0))
    # All rows of one class after those of another, and then in random order.
    stream(model, X[order], y[order], n_chunks=3)
    for seed in range(2):
        rows = np.random.default_rng(seed).permutation(900)
        model.partial_fit(X[rows], y[rows])
    assert model.status_ == "converged"
    assert log_loss(y, model.predict_proba(X)) < 0.1 + log_loss(
        y, SparseBayesClassifier().fit(X, y).predict_proba(X)
    )


def test_few_rows_give_the_model_of_fit_and_many_are_not_kept():
    X, y, weights = problem(8, n=3900)
    model = SparseBayesClassifier()
    for first in range(0, 1900, 100):
        rows = slice(first, first + 100)
        model.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
    whole = SparseBayesClassifier().fit(X[:1900], y[:1900], weights[:1900])
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-7)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=1e-7)
    sizes = []
    for first in range(1900, 3900, 100):
        rows = slice(first, first + 100)
        sizes.append(len(pickle.dumps(model.partial_fit(X[rows], y[rows], sample_weight=weights[rows]))))
    assert sizes[0] < 0.2 * sizes[-1]
    reference = SparseBayesClassifier().fit(X, y, weights)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=0.01)


def test_what_needs_all_rows_is_refused():
    X, y, _ = problem(7, n_classes=3)
    for model, message in [
        (RVC(), "candidates must be an integer or an array for partial_fit"),
        (SparseBayesClassifier(scheme="variational"), "scheme='variational' needs the rows in memory"),
        (SparseBayesClassifier(multi_class="softmax"), "partial_fit needs multi_class='ovr'"),
    ]:
        assert not hasattr(model, "partial_fit")
        with pytest.raises(AttributeError) as caught:
            model.partial_fit(X, y)
        assert message in str(caught.value.__cause__)
    for model, message in [
        (SparseBayesClassifier(class_weight="balanced"), "class_weight='balanced' needs all rows .* a dict"),
        (SparseBayesClassifier(memory_limit=100), "memory_limit of 100 B is too small"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y)
    with pytest.raises(TypeError, match="X must be a table for partial_fit"):
        SparseBayesClassifier().partial_fit(sparse.csr_array(X), y)


def test_a_call_that_fails_adds_no_rows():
    X, y, _ = problem(9)
    model = SparseBayesClassifier().partial_fit(X[:99], y[:99])

    def fail(record):
        raise ZeroDivisionError

    for call, error, message in [
        (lambda: model.partial_fit(X[99:], y[99:-1]), ValueError, "y must hold a label for each of 141 rows"),
        (lambda: model.partial_fit(X[99:, :2], y[99:]), ValueError, "3 features"),
        (lambda: model.partial_fit(X[:1], ["cow"]), ValueError, "'cow', which is not among the classes"),
        (
            lambda: model.partial_fit(X, y, ["ant", "cow"]),
            ValueError,
            "classes must be those of the first call",
        ),
        (lambda: model.set_params(callback=fail).partial_fit(X, y), ZeroDivisionError, None),
        (
            lambda: SparseBayesClassifier().partial_fit(X, y, ["ant"]),
            ValueError,
            "classes must hold all labels",
        ),
        (
            lambda: SparseBayesClassifier().partial_fit(X, y, ["ant", None]),
            ValueError,
            "classes .* leave out missing",
        ),
        (lambda: model.partial_fit(X[:2], np.array(["ant", 1], dtype=object)), TypeError, "y: '<'"),
    ]:
        with pytest.raises(error, match=message):
            call()
    model.set_params(callback=None).partial_fit(X[99:], y[99:])
    assert same_bits(model, SparseBayesClassifier().partial_fit(X[:99], y[:99]).partial_fit(X[99:], y[99:]))
    assert model._n_samples == len(y)


def test_separable_rows_and_kernels_learned_from_the_first_rows():
    X, y, _ = problem(2, n=800)
    y = X[:, 0] + X[:, 1] > 0.3
    model = stream(RVC(candidates=30, random_state=0), X, y, n_chunks=8)
    assert model.status_ == "converged"
    assert np.ndim(model.kernel_.width) == 1
    assert model.score(X, y) > 0.97


def test_columns_whose_squares_overflow_are_refused():
    X = np.array([[1.3, -1.3], [6.4, 1.0], [-5.0, 3.6], [13.0, 9.4], [-7.0, -12.0]]) * 1e299
    for model in (SparseBayesClassifier(), RVC(candidates=3, gamma="scale", random_state=0)):
        with pytest.raises(ValueError, match="rescale X"):
            model.partial_fit(X, [0, 0, 1, 0, 1])  # a warning would be an error
