"""Headers: warnings of compilers, sizes, labels that could inject code, extreme numbers, refused models."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c_program import PICKY, STRICT, ask, build, needs_compiler
from export_problems import every_link, labels, numbers, rows, target
from exports import same_regression
from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, to_c
from sparsebayes._export.c_header import Real, quote
from sparsebayes.kernels import Gaussian, Laplacian


@needs_compiler
def test_equal_tables_are_stored_once(tmp_path):
    X = rows(60)
    est = GREVM([Gaussian(2.0), Laplacian(0.3)]).fit(X, labels(X, 3))
    ask(to_c(est), X, tmp_path)
    assert len(re.findall(r"static const model_real model_points_\d+_\[", to_c(est))) == 1


@needs_compiler
@pytest.mark.parametrize("dtype", ["float", "double"])
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
def test_headers_compile_without_any_warning(tmp_path):
    X = rows(80)
    for est in every_link(X):
        for dtype in ("float", "double"):
            ask(to_c(est, dtype=dtype), X, tmp_path, flags=STRICT + PICKY)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler called g++")
@pytest.mark.parametrize("standard", ["c++98", "c++17"])
def test_headers_compile_as_cplusplus(standard, tmp_path):
    X = rows(80)
    flags = [f"-std={standard}", *STRICT[1:], "-Wold-style-cast", "-Wshadow"]
    for est in every_link(X):
        header = to_c(est, dtype="double")
        here = ask(header, X, tmp_path, compiler="g++", flags=flags[:-2])
        for cplusplus, c in zip(here, ask(header, X, tmp_path), strict=True):
            np.testing.assert_array_equal(cplusplus, c)
        main = '#include "model.h"\nint main() { return 0; }\n'
        build(tmp_path, {"model.h": header, "main.cpp": main}, compiler="g++", flags=flags)


@needs_compiler
def test_several_models_can_be_included_in_several_files(tmp_path):
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


@given(st.text())
def test_text_is_quoted_reversibly_and_harmlessly(text):
    inside = quote(text)[1:-1]
    assert re.fullmatch(r"(?:[^\x00-\x1f\x7f-\U0010ffff\\?*/\"]|\\[0-7]{3})*", inside)
    bytes_ = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), inside).encode("latin-1")
    assert bytes_ == text.encode("utf-8", "backslashreplace")


FINITE = {"allow_nan": False, "allow_infinity": False}


@given(st.floats(**FINITE, width=32), st.floats(**FINITE))
def test_literals_read_back_as_the_same_number(single, double):
    text = Real("float").literal(single)
    assert text.endswith("f")
    assert np.float32(text[:-1]) == np.float32(single)
    assert float(Real("double").literal(double)) == double
    # Without a point or an exponent it would be an integer.
    assert re.search("[.e]", text)
    assert re.search("[.e]", Real("double").literal(double))


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


def assert_harmless(header):
    """Check that comments are balanced and that there are no trigraphs."""
    assert header.isascii()
    assert header.count("/*") == header.count("*/")
    assert "??" not in header


@needs_compiler
def test_labels_cannot_inject_code(tmp_path):
    X = np.repeat(rows(len(HOSTILE)), 4, axis=0) * 5.0
    y = np.repeat(np.array(HOSTILE, dtype=object), 4)
    est = SparseBayesClassifier(fit_intercept=False).fit(X, y)
    header = to_c(est)
    assert_harmless(header)
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
    names = pandas.Index(HOSTILE, dtype=object)  # Arrow refuses half of a surrogate pair
    est = evil(gamma=0.1, noise_variance=0.1).fit(pandas.DataFrame(X, columns=names), X[:, 0])
    header = to_c(est)
    assert_harmless(header)
    assert "injected" not in re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    ask(header, X, tmp_path, flags=[*STRICT, "-trigraphs"])


def test_labels_of_every_type_have_names():
    X = rows(40)
    for y in (np.array([False, True]), np.array([-3, 7]), np.array([0.0, 1.0]), np.array(["a", "b"])):
        est = SparseBayesClassifier(fit_intercept=False).fit(X, y[(X[:, 0] > 0).astype(int)])
        header = to_c(est)
        for label in y:
            assert f'"{label}"' in header


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"name": "2fast"}, ValueError, "name must be ASCII letters"),
        *(
            ({"name": name}, ValueError, "name must be")
            for name in ("a-b", "a b", "a__b", "_a", "a_", "a\n", "é", "")
        ),
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
        to_c(SparseBayesRegressor(fit_intercept=False).fit(X, X[:, 0] + target(X)), **options)


def test_the_same_model_gives_the_same_header():
    X = rows(40)
    one, two = (to_c(RVR(gamma=0.3, n_jobs=n).fit(X, target(X))) for n in (1, 2))
    assert one == two


@needs_compiler
def test_counts_are_right_where_their_squares_overflow(tmp_path):
    X = rows(80)
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 2]))
    est = SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, y)
    mean, std = est.predict(100.0 * X, return_std=True)
    means, stds = ask(to_c(est), 100.0 * X, tmp_path)
    small = (mean < 1e30) & (mean > 1e-30)
    np.testing.assert_allclose(means[small, 0], mean[small], rtol=1e-4)
    in_range = std < 1e30
    assert 0 < in_range.sum() < len(X)
    np.testing.assert_allclose(stds[in_range, 0], std[in_range], rtol=1e-3, atol=1e-30)
    assert not np.isnan(stds).any()


@needs_compiler
def test_headers_without_error_bars_have_the_same_means(tmp_path):
    X = rows(50)
    est = RVR(gamma=0.3, noise_variance=0.02).fit(X, target(X))
    header = to_c(est, dtype="double", std=False)
    assert "predict_std" not in header
    np.testing.assert_allclose(ask(header, X, tmp_path)[0][:, 0], est.predict(X), rtol=1e-11)


@needs_compiler
@pytest.mark.parametrize("est", [RVC(gamma=0.3), RVC(gamma=0.3, multi_class="softmax")], ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_variances_probabilities_are_those_of_the_mode(est, n_classes, tmp_path):
    X, new = rows(100), rows(30, seed=8)
    est.fit(X, labels(X, n_classes))
    header = to_c(est, dtype="double", std=False)
    assert len(header) < len(to_c(est, dtype="double"))
    _, found = ask(header, new, tmp_path)
    np.testing.assert_allclose(found, est.predict_proba(new, moderate=False), atol=1e-12)


@needs_compiler
def test_probabilities_survive_extreme_predictors(tmp_path):
    X = rows(80)
    softmax, columns = RVC("linear", multi_class="softmax"), SparseBayesClassifier(fit_intercept=False)
    for est in (RVC("linear"), softmax, GREVM("linear"), MRVM1("linear"), columns):
        est.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
        for dtype in ("float", "double"):
            _, found = ask(to_c(est, dtype=dtype), 1e6 * X, tmp_path)
            np.testing.assert_allclose(found, est.predict_proba(1e6 * X), atol=1e-3)
            np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_floats_represent_small_and_large_targets(scale, tmp_path):
    X = rows(60)
    for y in (scale * target(X), scale * numbers(X)):
        same_regression(RVR(gamma=0.3).fit(X, y), rows(30, seed=8), "c-float", tmp_path)


def test_numbers_out_of_the_range_of_a_float_are_refused():
    X = rows(40)
    with pytest.raises(ValueError, match="range of float; rescale the data, or use dtype='double'"):
        to_c(RVR(gamma=0.3).fit(X, 1e60 * target(X)))
    with pytest.raises(ValueError, match=r"noise variance of .* is out of the range of float; rescale"):
        to_c(RVR(gamma=0.3).fit(X, 1e-25 * target(X)))
    with pytest.raises(ValueError, match=r"a constant of a kernel of 5e-51 is out of the range"):
        to_c(RVR(Gaussian(2**0.5 * 1e25)).fit(1e25 * X, target(X)))


@needs_compiler
def test_pixels_are_stored_in_bytes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(60, 20)).astype(float)
    est = RVR(gamma=1e-6, noise_variance=0.01).fit(X, np.sin(X[:, 0] / 40.0))
    assert "static const unsigned char model_points_" in to_c(est)
    same_regression(est, X[:20] + 0.5, "c-double", tmp_path)
    est.fit(X - 128.0, np.sin(X[:, 0] / 40.0))
    assert "static const signed char model_points_" in to_c(est) or "static const short" in to_c(est)
    same_regression(est, X[:20], "c-double", tmp_path)
