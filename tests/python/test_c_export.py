"""Headers compile without a warning and predict what their estimators predict."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge

import sparsebayes
from c_program import PICKY, STRICT, ask, build
from sparsebayes import (
    GREVM,
    LREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    VGREVM,
    GREVMRegressor,
    LREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
    to_c,
)
from sparsebayes.kernels import (
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    OnColumns,
    Polynomial,
    Sigmoid,
)

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc")
TOLERANCE = {"double": 1e-12, "float": 1e-4}

KERNELS = {
    "gaussian": Gaussian(2.0),
    "widths": Gaussian([2.0, 1.0, 5.0]),
    "laplacian": Laplacian(0.4),
    "polynomial": Polynomial(3, 0.2, 1.0),
    "linear": Linear(),
    "sigmoid": Sigmoid(0.2, -0.3),
    "spline": LinearSpline(),
    "sum": Gaussian(2.0) + Linear(),
    "product": (Gaussian(3.0) + Polynomial(2, 0.1, 0.5)) * Laplacian(0.1) + Sigmoid(0.1),
    "columns": OnColumns(Gaussian(1.5), [2, 0]) + OnColumns(Linear(), 1),
    "column": OnColumns(Gaussian(1.5), [2]) * OnColumns(Laplacian(0.1), [0, 0]),
    "inside": OnColumns(Gaussian([1.0, 2.0]) + OnColumns(Linear(), [1]), [2, 1]),
    "list": [Gaussian(2.0), OnColumns(Polynomial(2), [0, 2]), Gaussian(0.7)],
}


def rows(n=40, seed=7):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32).astype(np.float64)


def target(X, seed=3):
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(X))
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + noise


def labels(X, n_classes, seed=3):
    levels = target(X, seed) + 0.3 * np.random.default_rng(seed + 1).normal(size=len(X))
    cuts = np.quantile(levels, np.arange(1, n_classes) / n_classes)
    return np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[np.digitize(levels, cuts)]


def numbers(X, *, n_outputs=2):
    return np.stack([target(X, seed) * 10.0 ** (seed - 3) for seed in range(3, 3 + n_outputs)], axis=1)


def same_regression(est, X, directory, dtype, **options):
    mean, std = est.predict(X, return_std=True)
    n_outputs = 1 if mean.ndim == 1 else mean.shape[1]
    found = ask(to_c(est, dtype=dtype, **options), X, directory, n_outputs=n_outputs)
    # Terms of either sign cancel: errors are relative to what is typical.
    size, tolerance = np.abs(mean).max(axis=0), TOLERANCE[dtype]
    assert np.all(np.abs(found.means().reshape(mean.shape) - mean) <= tolerance * size)
    # Where Sigma is badly conditioned rounding shows in either way to the variance.
    np.testing.assert_allclose(found.stds().reshape(std.shape), std, rtol=max(tolerance, 1e-10))


def same_classes(est, X, directory, dtype, tolerance=None):
    p = est.predict_proba(X)
    found = ask(to_c(est, dtype=dtype), X, directory)
    np.testing.assert_allclose(found.probabilities(), p, rtol=0.0, atol=tolerance or TOLERANCE[dtype])
    best = np.sort(p, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-3
    assert clear.sum() > len(X) / 2
    assert np.array_equal(est.classes_[found.classes()][clear], est.predict(X)[clear])


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_predicts_the_same_with_error_bars(kernel, dtype, tmp_path):
    X = rows(60)
    est = RVR(KERNELS[kernel], noise_variance=0.02).fit(X, target(X))
    assert len(est.active_) > 1
    same_regression(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "est",
    [
        RVR(gamma=0.3, extra_basis="linear", noise_variance=0.02),
        RVR(gamma=0.3, scheme="variational"),
        RVR(gamma=0.3, fit_intercept=False),
        SparseBayesRegressor(),
        GREVMRegressor(gamma=0.3),
        LREVMRegressor(gamma=0.3),
        LREVMRegressor([Gaussian(2.0), OnColumns(Linear(), 1)], fit_intercept=False),
    ],
    ids=repr,
)
def test_regressors(est, dtype, tmp_path):
    X = rows(60)
    est.fit(X, target(X))
    same_regression(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "est", [RVR(gamma=0.3), RVR(gamma=0.3, shared_noise=True), SparseBayesRegressor()], ids=repr
)
def test_several_outputs(est, dtype, tmp_path):
    X = rows(60)
    est.fit(X, numbers(X, n_outputs=3))
    same_regression(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_counts(dtype, tmp_path):
    X = rows(80)
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 2]))
    est = SparseBayesRegressor(likelihood="poisson").fit(X, y)
    same_regression(est, rows(30, seed=8), tmp_path, dtype)
    mean, std = est.predict(100.0 * X, return_std=True)
    found = ask(to_c(est), 100.0 * X, tmp_path)
    small = (mean < 1e30) & (mean > 1e-30)
    np.testing.assert_allclose(found.means()[small, 0], mean[small], rtol=1e-4)
    in_range = std < 1e30
    assert 0 < in_range.sum() < len(X)
    np.testing.assert_allclose(found.stds()[in_range, 0], std[in_range], rtol=1e-3, atol=1e-30)
    assert not np.isnan(found.stds()).any()


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "est",
    [
        RVC(gamma=0.3),
        RVC([Gaussian(2.0), OnColumns(Linear(), 1)], extra_basis="linear"),
        RVC(gamma=0.3, multi_class="softmax"),
        RVC(gamma=0.3, multi_class="softmax", share_alpha=True),
        RVC(gamma=0.3, scheme="variational"),
        SparseBayesClassifier(),
        SparseBayesClassifier(multi_class="softmax"),
        GREVM(gamma=0.3),
        LREVM(gamma=0.3, fit_intercept=False),
        VGREVM(gamma=0.3),
    ],
    ids=repr,
)
def test_classifiers(est, n_classes, dtype, tmp_path):
    X = rows(120)
    est.fit(X, labels(X, n_classes))
    same_classes(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("est", [MRVM1(gamma=0.3), MRVM2([Gaussian(2.0), OnColumns(Linear(), 1)])], ids=repr)
def test_probit_machines(est, n_classes, dtype, tmp_path):
    X = rows(90)
    est.fit(X, labels(X, n_classes))
    # So many nodes that the estimator's own integrals are exact to rounding.
    same_classes(est.set_params(n_quadrature=200), rows(30, seed=8), tmp_path, dtype)


@needs_compiler
def test_many_classes_of_a_probit_machine(tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 3)) * 3.0, 8, axis=0) + 0.5 * rng.normal(size=(160, 3))
    est = MRVM1(gamma=0.1).fit(X, np.repeat(np.arange(20), 8)).set_params(n_quadrature=300)
    same_classes(est, X[::3], tmp_path, "double")
    same_classes(est, X[::3].astype(np.float32).astype(float), tmp_path, "float")


@needs_compiler
@pytest.mark.parametrize("std", [True, False])
def test_precomputed_kernels_take_kernel_values(std, tmp_path):
    X, new = rows(50), rows(20, seed=8)
    kernel = Gaussian(2.0)
    est = RVR("precomputed", noise_variance=0.02).fit(kernel(X, X), target(X))
    header = to_c(est, dtype="double", std=std)
    found = ask(header, kernel(new, X), tmp_path)
    np.testing.assert_allclose(found.means()[:, 0], est.predict(kernel(new, X)), rtol=1e-11)
    assert std == ("predict_std" in header)
    classifier = GREVM("precomputed").fit(kernel(X, X), labels(X, 3))
    same_classes(classifier, kernel(new, X), tmp_path, "double")


@needs_compiler
@pytest.mark.parametrize("est", [RVC(gamma=0.3), RVC(gamma=0.3, multi_class="softmax")], ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_variances_probabilities_are_those_of_the_mode(est, n_classes, tmp_path):
    X, new = rows(100), rows(30, seed=8)
    est.fit(X, labels(X, n_classes))
    header = to_c(est, dtype="double", std=False)
    assert len(header) < len(to_c(est, dtype="double"))
    found = ask(header, new, tmp_path)
    np.testing.assert_allclose(found.probabilities(), est.predict_proba(new, moderate=False), atol=1e-12)


@needs_compiler
def test_models_without_functions(tmp_path):
    X = rows(30)
    silent = RVR(gamma=0.3, fit_intercept=False, noise_variance=100.0).fit(X, 1e-3 * target(X))
    assert len(silent.active_) == 0
    same_regression(silent, X, tmp_path, "double")
    same_regression(silent, X, tmp_path, "float")
    coin = np.random.default_rng(0).permutation(np.arange(30) % 3)
    for est in (
        RVC(gamma=1e-8, fit_intercept=False),
        RVC(gamma=1e-8, fit_intercept=False, multi_class="softmax"),
    ):
        found = ask(to_c(est.fit(X, coin)), X, tmp_path)
        np.testing.assert_allclose(found.probabilities(), est.predict_proba(X), atol=1e-5)


@needs_compiler
def test_probabilities_survive_extreme_predictors(tmp_path):
    X = rows(80)
    for est in (
        RVC("linear"),
        RVC("linear", multi_class="softmax"),
        GREVM("linear"),
        MRVM1("linear"),
        SparseBayesClassifier(),
    ):
        est.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
        for dtype in TOLERANCE:
            found = ask(to_c(est, dtype=dtype), 1e6 * X, tmp_path).probabilities()
            np.testing.assert_allclose(found, est.predict_proba(1e6 * X), atol=1e-3)
            np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_floats_take_targets_whose_squares_they_do_not(scale, tmp_path):
    X = rows(60)
    for y in (scale * target(X), scale * numbers(X)):
        est = RVR(gamma=0.3).fit(X, y)
        same_regression(est, rows(30, seed=8), tmp_path, "float")


def test_numbers_out_of_the_range_of_a_float_are_refused():
    X = rows(40)
    with pytest.raises(
        ValueError, match="out of the range of float; rescale the data, or use dtype='double'"
    ):
        to_c(RVR(gamma=0.3).fit(X, 1e60 * target(X)))
    with pytest.raises(ValueError, match=r"kernel parameter 1 / width\^2 of 5e-51 is out of the range"):
        to_c(RVR(Gaussian(2**0.5 * 1e25)).fit(1e25 * X, target(X)))


@needs_compiler
def test_pixels_are_stored_in_bytes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(60, 20)).astype(float)
    est = RVR(gamma=1e-6, noise_variance=0.01).fit(X, np.sin(X[:, 0] / 40.0))
    assert "static const unsigned char model_points_" in to_c(est)
    same_regression(est, X[:20] + 0.5, tmp_path, "double")
    est.fit(X - 128.0, np.sin(X[:, 0] / 40.0))
    assert "static const signed char model_points_" in to_c(est) or "static const short" in to_c(est)
    same_regression(est, X[:20], tmp_path, "double")


def test_equal_tables_are_stored_once():
    X = rows(60)
    est = GREVM([Gaussian(2.0), Laplacian(0.3)]).fit(X, labels(X, 3))
    assert len(re.findall(r"static const model_real model_points_\d+_\[", to_c(est))) == 1


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_size_stated_is_that_of_the_tables(dtype, tmp_path):
    X = rows(100)
    for est in (RVC(gamma=0.3).fit(X, labels(X, 4)), RVR(gamma=0.3).fit(X, target(X))):
        header = to_c(est, dtype=dtype)
        tables = re.findall(r"^static const .* (model_\w+)\[", header, re.MULTILINE)
        total = " + ".join(f"sizeof({table})" for table in tables)
        main = f'int main(void) {{ return !printf("%d", (int)({total})); }}\n'
        main = '#include "model.h"\n#include <stdio.h>\n' + main
        program = build(tmp_path, {"model.h": header, "main.c": main})
        done = subprocess.run([program], capture_output=True, text=True, check=True)
        assert f"Constant data: {done.stdout} bytes in tables of {dtype}" in header.partition("*/")[0]


@needs_compiler
def test_picky_compilers_have_nothing_to_say(tmp_path):
    X = rows(80)
    for est in every_link(X):
        for dtype in TOLERANCE:
            ask(to_c(est, dtype=dtype), X, tmp_path, flags=STRICT + PICKY)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler called g++")
@pytest.mark.parametrize("standard", ["c++98", "c++17"])
def test_headers_are_cplusplus_too(standard, tmp_path):
    X = rows(80)
    flags = [
        f"-std={standard}",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-Wold-style-cast",
        "-Wshadow",
    ]
    for est in every_link(X):
        header = to_c(est, dtype="double")
        n_outputs = 2 if "N_OUTPUTS 2" in header else 1
        here = ask(header, X, tmp_path, n_outputs=n_outputs, compiler="g++", flags=flags[:-2])
        assert np.array_equal(here.numbers, ask(header, X, tmp_path, n_outputs=n_outputs).numbers)
        build(
            tmp_path,
            {"model.h": header, "main.cpp": '#include "model.h"\nint main() { return 0; }\n'},
            compiler="g++",
            flags=flags,
        )


def every_link(X):
    mixed = [Gaussian(2.0), OnColumns(Polynomial(2), [0, 2]) * LinearSpline()]
    yield RVR(mixed, extra_basis="linear", noise_variance=0.02).fit(X, target(X))
    yield RVR(gamma=0.3).fit(X, numbers(X))
    yield SparseBayesRegressor(likelihood="poisson").fit(X, np.round(np.exp(X[:, 0])))
    yield RVC(gamma=0.3).fit(X, labels(X, 2))
    yield RVC(gamma=0.3).fit(X, labels(X, 3))
    yield RVC(gamma=0.3, multi_class="softmax").fit(X, labels(X, 3))
    yield GREVMRegressor(Laplacian(0.3)).fit(X, target(X))
    yield MRVM1(Sigmoid(0.1)).fit(X, labels(X, 2))
    yield MRVM1(gamma=0.3).fit(X, labels(X, 3))


@needs_compiler
def test_several_models_in_several_files(tmp_path):
    X = rows(60)
    first = to_c(RVR(gamma=0.3).fit(X, target(X)), name="first")
    second = to_c(RVC(gamma=0.3).fit(X, labels(X, 3)), name="second", dtype="double")
    include = '#include "first.h"\n#include "second.h"\n#include "first.h"\n'
    other = "double other(const first_real *x);\n"
    main = """
int main(void)
{
    first_real x[FIRST_N_FEATURES] = {0.5f};
    return !(other(x) == first_predict(x) && SECOND_N_CLASSES == 3);
}
"""
    there = include + other + "double other(const first_real *x) { return first_predict(x); }\n"
    main = include + other + main
    files = {"first.h": first, "second.h": second, "other.c": there, "main.c": main}
    subprocess.run([build(tmp_path, files)], check=True)


SPELL_NAMES = """
#include "model.h"
#include <stdio.h>
int main(void)
{
    for (int c = 0; c < MODEL_N_CLASSES; c++)
        for (const char *s = model_class_name(c); ; s++) {
            printf("%d ", (unsigned char)*s);
            if (!*s)
                break;
        }
    return 0;
}
"""
HOSTILE = [
    "*/ int injected(void) { return 1; } /*",
    '"; int injected; char *s = "',
    '\\"; int injected; //\\',
    "new\nline\r\n#error injected",
    "??/",
    "??/\n*/ #error injected /*",
    "nul\0 after",
    "température 温度 \U0001f321 \ud800",
    "%s%n$NAME${f}",
    "digits after \x01" + "1",
    "",
    "#define x",
]


@needs_compiler
def test_labels_cannot_inject_code(tmp_path):
    X = np.repeat(rows(len(HOSTILE)), 4, axis=0) * 5.0
    y = np.repeat(np.array(HOSTILE, dtype=object), 4)
    est = SparseBayesClassifier().fit(X, y)
    header = to_c(est)
    assert header.isascii()
    assert header.count("/*") == header.count("*/")
    assert "??" not in header
    flags = [*STRICT, "-trigraphs"]
    program = build(tmp_path, {"model.h": header, "main.c": SPELL_NAMES}, flags=flags)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    found = bytes(map(int, printed)).split(b"\0")[:-1]
    assert found == [label.partition("\0")[0].encode("utf-8", "backslashreplace") for label in est.classes_]


@needs_compiler
def test_names_of_features_and_estimators_cannot_inject_code(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(40, len(HOSTILE)))
    evil = type("*/ int injected; /*", (RVR,), {})
    est = evil(gamma=0.1, noise_variance=0.1).fit(pandas.DataFrame(X, columns=HOSTILE), X[:, 0])
    header = to_c(est)
    assert header.isascii()
    assert header.count("/*") == header.count("*/")
    assert "??" not in header
    assert "injected" not in re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    ask(header, X, tmp_path, flags=[*STRICT, "-trigraphs"])


def test_labels_of_every_type_have_names():
    X = rows(40)
    for y in (np.array([False, True]), np.array([-3, 7]), np.array([0.0, 1.0]), np.array(["a", "b"])):
        est = SparseBayesClassifier().fit(X, y[(X[:, 0] > 0).astype(int)])
        header = to_c(est)
        for label in y:
            assert f'"{label}"' in header


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"name": "2fast"}, ValueError, "name must be ASCII letters"),
        ({"name": "a-b"}, ValueError, "name must be"),
        ({"name": "a b"}, ValueError, "name must be"),
        ({"name": "a__b"}, ValueError, "name must be"),
        ({"name": "_a"}, ValueError, "name must be"),
        ({"name": "a_"}, ValueError, "name must be"),
        ({"name": "a\n"}, ValueError, "name must be"),
        ({"name": "é"}, ValueError, "name must be"),
        ({"name": ""}, ValueError, "name must be"),
        ({"name": "a" * 33}, ValueError, "32 characters"),
        ({"name": 3}, TypeError, "name must be a string"),
        ({"dtype": "half"}, ValueError, "dtype must be 'float' or 'double'"),
        ({"dtype": np.float32}, TypeError, "dtype must be 'float' or 'double'"),
        ({"std": "yes"}, TypeError, "std must be True or False"),
    ],
)
def test_bad_arguments_are_named(options, kind, message):
    X = rows(20)
    with pytest.raises(kind, match=message):
        to_c(SparseBayesRegressor().fit(X, X[:, 0] + target(X)), **options)


def test_what_cannot_be_exported_is_refused():
    X = rows(30)
    with pytest.raises(NotFittedError):
        to_c(RVR())
    with pytest.raises(TypeError, match="est must be a fitted estimator of sparsebayes"):
        to_c(BayesianRidge().fit(X, target(X)))
    with pytest.raises(ValueError, match="evaluated by Python"):
        to_c(RVR(lambda A, B: np.cos(A @ B.T), noise_variance=0.1).fit(X, target(X)))
    with pytest.raises(ValueError, match="extra_basis can be exported only where it is 'linear'"):
        to_c(RVR(gamma=0.3, extra_basis=lambda A: A**2, noise_variance=0.01).fit(X, X[:, 0] ** 2))


def test_the_same_model_gives_the_same_header():
    X = rows(40)
    assert to_c(RVR(gamma=0.3, n_jobs=1).fit(X, target(X))) == to_c(
        RVR(gamma=0.3, n_jobs=2).fit(X, target(X))
    )
    assert sparsebayes.to_c is to_c
