"""Columns of a sparse matrix or of a linear operator: the model of the same columns in a table."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from sparsebayes import RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes._data import basis
from sparsebayes._data.basis import ColumnStatistics
from sparsebayes.inspection import certificate, diagnose
from sparsebayes.providers import RowPart

N, P = 120, 40
FORMS = {
    "csr": sparse.csr_array,
    "csc matrix": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "operator": aslinearoperator,
    "products": lambda X: LinearOperator(X.shape, lambda w: X @ w, lambda r: X.T @ r, dtype=float),
}


def table(seed=0):
    return sparse.random(N, P, density=0.3, random_state=seed, format="csr").toarray()


def targets(X, mean=100.0):
    return X[:, :4] @ [1.0, -2.0, 3.0, 1.5] + 0.1 * np.random.default_rng(1).normal(size=N) + mean


def weights():
    return np.random.default_rng(2).integers(0, 3, N).astype(float)


def assert_same(one, other):
    np.testing.assert_array_equal(one.active_, other.active_)
    np.testing.assert_allclose(other.coef_, one.coef_, atol=1e-6)
    np.testing.assert_allclose(other.intercept_, one.intercept_, rtol=1e-7)
    np.testing.assert_allclose(other.log_marginal_likelihood_, one.log_marginal_likelihood_, rtol=1e-9)
    np.testing.assert_allclose(other.loo_, one.loo_, atol=1e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fit_intercept": False},
        {"penalize_intercept": True},
        {"complexity": "none"},
        {"search": "exchange"},
        {"scheme": "em"},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_is_that_of_the_table(form, options, weighted):
    X = table()
    y, w = targets(X, mean=100.0 * options.get("fit_intercept", True)), weights() if weighted else None
    one = SparseBayesRegressor(**options).fit(X, y, w)
    other = SparseBayesRegressor(**options).fit(form(X), y, w)
    assert_same(one, other)
    for a, b in zip(one.predict(X, return_std=True), other.predict(form(X), return_std=True), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9)
    assert other.score(form(X), y) == pytest.approx(one.score(X, y))
    found = certificate(other, form(X), y, w)
    assert found.max_gain_outside < 1e-6
    assert found.max_log_alpha_change < 1e-4


def test_a_data_frame_of_sparse_columns_is_a_sparse_matrix_with_names():
    X = pd.get_dummies(pd.Series(list("abcdabca") * 15), sparse=True)
    y = targets(X.to_numpy(float))
    model = SparseBayesRegressor().fit(X, y)
    assert_same(model, SparseBayesRegressor().fit(sparse.csr_array(X.to_numpy(float)), y))
    assert list(model.feature_names_in_) == list("abcd")
    assert model.score(X, y) > 0.9
    assert certificate(model, X, y).max_gain_outside < 1e-6
    assert diagnose(model, X, y).n_rows == N
    labels = np.where(X["a"], "one", "other")
    assert SparseBayesClassifier().fit(X, labels).score(X, labels) == 1.0
    with pytest.raises(TypeError, match=r"X is a sparse .*X\.sparse\.to_dense\(\)"):
        RVR().fit(X, y)
    with pytest.raises(TypeError, match="X must be a table for partial_fit"):
        SparseBayesRegressor().partial_fit(X, y)


def test_a_data_frame_of_sparse_columns_that_leave_out_other_values_than_0_is_a_table():
    X = pd.DataFrame(table(), columns=[f"x{j}" for j in range(P)])
    y = targets(X.to_numpy())
    model = SparseBayesRegressor().fit(X, y)
    of_nan = X.astype("Sparse")
    assert_same(model, SparseBayesRegressor().fit(of_nan, y))
    np.testing.assert_allclose(model.predict(of_nan), model.predict(X))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification_is_that_of_the_table(form, n_classes):
    X = table()
    y = np.digitize(targets(X, mean=0.0), np.linspace(-1, 1, n_classes + 1)[1:-1])
    one, other = SparseBayesClassifier().fit(X, y), SparseBayesClassifier().fit(form(X), y)
    assert_same(one, other)
    np.testing.assert_allclose(other.predict_proba(form(X)), one.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_counts_are_those_of_the_table(form):
    X = table()
    y = np.random.default_rng(3).poisson(np.exp(X[:, 0] - X[:, 1] + 1.0))
    one = SparseBayesRegressor(likelihood="poisson").fit(X, y)
    assert_same(one, SparseBayesRegressor(likelihood="poisson").fit(form(X), y))


@pytest.mark.parametrize("form", [sparse.csc_array, aslinearoperator], ids=["csc", "operator"])
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [N, P - 20], ids=["long", "wide"])
def test_all_sums_are_those_of_rows_in_memory(form, likelihood, bias, n, monkeypatch):
    monkeypatch.setattr(basis, "_BLOCK", 300)  # several blocks of rows or columns
    X, rng = table()[:n], np.random.default_rng(4)
    y, w = rng.integers(0, 2, n).astype(float), rng.uniform(0.1, 2.0, n)
    ours = ColumnStatistics(form(X), y, w, likelihood, bias=bias)
    expected = RowPart(X, y, w, likelihood=likelihood, fit_intercept=bias)
    # The core asks for a function twice where it has no other.
    active, mu, js = np.array([0, 3, 5]), np.array([0.3, -0.2, 0.5]), np.array([1, 0, 4, 0, 6])
    calls = [("target_moments", 0.3), ("sweep", active, mu, js), ("sweep", active[:0], mu[:0], js[:0])]
    calls += [("among", active, mu, js), ("gradient", active, mu), ("deviance", active, mu)]
    if likelihood != "gaussian":
        calls.append(("variance_drift", active, mu, np.cov(rng.normal(size=(3, 9)))))
    for name, *arguments in calls:
        found, right = (getattr(part, name)(*arguments) for part in (ours, expected))
        found, right = (part if isinstance(part, tuple) else (part,) for part in (found, right))
        for a, b in zip(found, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_large_sparse_matrix_is_never_made_dense():
    n, p = 20_000, 50_000  # 8 GB as a table
    rng, n_each = np.random.default_rng(0), 50
    places = (np.repeat(np.arange(n), n_each), rng.integers(0, p, n * n_each))
    X = sparse.csr_array((rng.normal(size=n * n_each), places), shape=(n, p))
    y = np.asarray(X[:, :20].sum(axis=1)).ravel() + 0.01 * rng.normal(size=n)
    model = SparseBayesRegressor().fit(X, y)
    assert set(range(20)) <= set(model.active_)
    assert len(model.active_) < 30
    assert model.predict(X).shape == (n,)


def test_an_operator_without_a_matrix():
    rng, n, p = np.random.default_rng(0), 60, 128
    rows = rng.choice(p, n, replace=False)
    signs = rng.choice([-1.0, 1.0], p)

    def apply(w):  # a random selection of a circular convolution
        return (np.roll(w.T * signs, 1, axis=-1) + 0.5 * w.T)[..., rows].T

    def transposed(r):
        z = np.zeros((p, *r.shape[1:]))
        z[rows] = r
        return ((np.roll(z, -1, axis=0).T * signs) + 0.5 * z.T).T

    A = LinearOperator(
        (n, p), matvec=apply, rmatvec=transposed, matmat=apply, rmatmat=transposed, dtype=float
    )
    w = np.zeros(p)
    w[rows[:5]] = 2.0
    y = A.matvec(w) + 0.01 * rng.normal(size=n)
    X = A.matmat(np.eye(p))
    one, other = (SparseBayesRegressor(fit_intercept=False).fit(form, y) for form in (X, A))
    assert_same(one, other)


@pytest.mark.parametrize("form", [sparse.csr_array, aslinearoperator], ids=["csr", "operator"])
def test_what_needs_a_table_says_so(form):
    X = table()
    y = targets(X)
    refused = [
        (lambda: RVR().fit(form(X), y), TypeError, "kernels need rows"),
        (lambda: SparseBayesRegressor().partial_fit(form(X), y), TypeError, "partial_fit"),
        (lambda: SparseBayesRegressor().fit(form(X), np.column_stack([y, y])), ValueError, "one column"),
        (lambda: SparseBayesRegressor().fit(form(X), y, y_std=np.ones(N)), ValueError, "y_std"),
        (lambda: SparseBayesRegressor(checkpoint="x.npz").fit(form(X), y), ValueError, "checkpoint"),
        (lambda: SparseBayesRegressor(scheme="variational").fit(form(X), y), ValueError, "variational"),
        (
            lambda: SparseBayesClassifier(multi_class="softmax").fit(form(X), np.arange(N) % 3),
            ValueError,
            "softmax",
        ),
        (lambda: SparseBayesRegressor().fit(form(X), y[:-1]), ValueError, "same number of rows"),
        (lambda: SparseBayesRegressor().fit(X, y).predict(form(X[:, 1:])), ValueError, "39"),
    ]
    for call, error, words in refused:
        with pytest.raises(error, match=re.escape(words)):
            call()
    X[3, 5] = np.nan
    with pytest.raises(ValueError, match=r"(?i)nan"):
        SparseBayesRegressor().fit(form(X), y)


def test_operators_must_be_real_and_have_columns():
    y = np.ones(3)
    for shape, dtype in [((3, 0), float), ((3, 2), complex)]:
        A = LinearOperator(shape, matvec=lambda w: y, rmatvec=lambda r: r[:2], dtype=dtype)
        with pytest.raises(ValueError, match="real linear operator"):
            SparseBayesRegressor().fit(A, y)


@pytest.mark.parametrize(
    ("products", "words"),
    [
        ({}, "with rmatvec"),
        ({"rmatvec": lambda r: 2.0 * (table().T @ r)}, "u @ X.matvec(v)"),
        ({"rmatvec": lambda r: r[:-1]}, "X: cannot reshape"),
    ],
    ids=["absent", "of another matrix", "of another shape"],
)
def test_operators_need_products_with_the_transpose(products, words):
    X = table()
    A = LinearOperator(X.shape, matvec=lambda w: X @ w, dtype=float, **products)
    with pytest.raises(ValueError, match=re.escape(words)):
        SparseBayesRegressor().fit(A, targets(X))


def used_again(X):
    """Return a function of vectors that overwrites its results and its arguments."""
    result = np.empty(len(X))

    def product(v):
        np.matmul(X, v.ravel(), out=result)
        v[:] = np.nan
        return result

    return product


@pytest.mark.parametrize(
    "of_vectors",
    [used_again, lambda X: lambda v: np.array([np.correlate(x, v)[0] for x in X])],
    ids=["arrays used again", "no columns"],
)
def test_operators_may_have_products_for_vectors_alone(of_vectors):
    X = table()
    A = LinearOperator(X.shape, matvec=of_vectors(X), rmatvec=of_vectors(X.T.copy()), dtype=float)
    y = targets(X)
    one, other = (SparseBayesRegressor().fit(form, y) for form in (X, A))
    assert_same(one, other)
    np.testing.assert_allclose(one.predict(A), other.predict(X))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", [SparseBayesRegressor, SparseBayesClassifier])
def test_a_column_too_far_from_0_is_named(form, kind):
    X = table()
    y = targets(X, mean=0.0)
    y = y if kind is SparseBayesRegressor else y > 0
    X[:, 3] = 7.0  # a constant is not far
    X[:, [1, 5]] += 1e4  # not too far
    kind().fit(form(X), y)
    X[:, 2] += 3e7
    with pytest.warns(
        UserWarning, match=r"mean of column 2 of X is 1e\+08 .*subtract its mean, or .*toarray"
    ):
        kind().fit(form(X), y)
    kind(fit_intercept=False).fit(form(X), y)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("kind", "size"), [(SparseBayesRegressor, 1e-145), (SparseBayesClassifier, 1e-100)])
def test_columns_too_small_to_square_are_refused(form, kind, size):
    X = table()
    y = targets(X, mean=0.0) > 0
    X[:, 4] = 0.0
    kind().fit(form(X), y)
    X[:, 6] *= size
    with pytest.raises(
        ValueError, match=r"X has no larger value than .* in column 6, too small .* rescale X"
    ):
        kind().fit(form(X), y)
