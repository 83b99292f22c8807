"""Arrays of any layout and type give the same model, and are never changed."""

import numpy as np
import pandas as pd
import pytest

from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from surface_data import read_only, reversed_view, strided, unaligned

ESTIMATORS = [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier]

# Small integers, which every type below holds exactly.
_RNG = np.random.default_rng(0)
X = _RNG.integers(-8, 8, (40, 3)).astype(float)
Y = (X[:, 0] + X[:, 1] * X[:, 2] / 4 + _RNG.integers(-4, 5, 40) > 0).astype(float)
WEIGHTS = _RNG.integers(1, 4, 40).astype(float)


FORMS = {
    "read-only": read_only,
    "Fortran-ordered": np.asfortranarray,
    "strided": strided,
    "reversed": reversed_view,
    "unaligned": unaligned,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "big-endian": lambda a: a.astype(">f8"),
    "objects": lambda a: a.astype(object),
    "lists": lambda a: a.tolist(),
    "pandas": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
}


def contents(data):
    return np.array(data, dtype=float)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_the_same_bits(kind, form):
    expected = kind().fit(X, Y, WEIGHTS).predict(X)
    X_form, y_form, weights_form = (FORMS[form](a) for a in (X, Y, WEIGHTS))
    if kind in (RVC, SparseBayesClassifier) and form == "objects":
        y_form = Y  # numbers as objects are no class labels to scikit-learn
    model = kind().fit(X_form, y_form, weights_form)
    np.testing.assert_array_equal(model.predict(X_form), expected)
    # scikit-learn computes scores in the precision of y.
    score = kind().fit(X, Y, WEIGHTS).score(X, Y, WEIGHTS)
    np.testing.assert_allclose(model.score(X_form, y_form, weights_form), score, rtol=1e-14)
    for given, original in ((X_form, X), (y_form, Y), (weights_form, WEIGHTS)):
        np.testing.assert_array_equal(contents(given), original)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_precomputed_kernel_gives_the_same_bits(form):
    kernel = X @ X.T
    # Too large for eight bits, and for float16 to hold exactly.
    if form in ("int8", "float16"):
        kernel = np.clip(kernel, -100, 100)
    expected = RVC("precomputed").fit(kernel, Y).predict_proba(kernel)
    given = FORMS[form](kernel)
    np.testing.assert_array_equal(RVC("precomputed").fit(given, Y).predict_proba(given), expected)
    np.testing.assert_array_equal(contents(given), kernel)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_column_of_targets_is_taken_with_a_warning(kind):
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        model = kind().fit(X, Y[:, np.newaxis])
    np.testing.assert_array_equal(model.predict(X), kind().fit(X, Y).predict(X))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_one_weight_for_all_is_a_weight_for_each(kind):
    np.testing.assert_array_equal(
        kind().fit(X, Y, sample_weight=2).predict(X),
        kind().fit(X, Y, sample_weight=np.full(40, 2.0)).predict(X),
    )


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, 7], [-1.0, 1.0], [False, True], np.array(["x", "y"], object)],
)
@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
def test_labels_of_any_type_come_back(kind, labels):
    y = np.asarray(labels)[Y.astype(int)]
    model = kind().fit(X, y)
    assert model.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(model.classes_, labels)
    np.testing.assert_array_equal(model.predict_proba(X), kind().fit(X, Y).predict_proba(X))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_attributes_do_not_alias_the_data(kind):
    data, target = X.copy(), Y.copy()
    model = kind().fit(data, target)
    expected = model.predict(X)
    data[:], target[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.predict(X), expected)
