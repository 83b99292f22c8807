"""Estimators with arbitrary arguments: a model of finite numbers, or an error with a reason.

``SURFACE_EXAMPLES=20000`` draws so many examples for each estimator, others each time; the ordinary tests
draw a few, always the same.
"""

import inspect
import os
import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

import sparsebayes
from problems import ESTIMATORS
from surface_data import LAYOUTS, arrays, floats, tables
from surface_oracle import assert_finite, assert_is_a_model, attempt, same_bits
from surface_strategies import ARGUMENTS, arguments

EXAMPLES = int(os.environ.get("SURFACE_EXAMPLES", "0"))


def surface(share=1.0):
    """Settings of the tests of this file; ``share`` of the examples."""
    return settings(
        max_examples=max(1, int(share * (EXAMPLES or 60))),
        derandomize=not EXAMPLES,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )


#: How the fits ended, printed if SURFACE_EXAMPLES is set.
OUTCOMES: Counter[tuple[str, str]] = Counter()


@pytest.fixture(scope="module", autouse=True)
def tell_outcomes(pytestconfig):
    yield
    if EXAMPLES:
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            for (what, outcome), count in sorted(OUTCOMES.items()):
                print(f"{what:28s} {outcome:24s} {count}")


#: The rows of an earlier model.
BASE = np.random.default_rng(0).integers(-8, 9, (14, 2)) / 4.0
BASE_Y = {False: BASE[:, 0] - BASE[:, 1] ** 2, True: (BASE[:, 0] > BASE[:, 1]).astype(int)}
#: Settings of each example that draws no others.
FAST = {"max_iter": 1000, "n_jobs": 1, "random_state": 0}


def fast(kind):
    found = {name: value for name, value in FAST.items() if name in kind().get_params()}
    # The steps of VGREVM take longest.
    return found | {"max_iter": 50} if kind is sparsebayes.VGREVM else found


@pytest.fixture(scope="module")
def fitted():
    """A fitted model of each kind, as a pickle, and what it predicts."""
    found = {}
    for name, kind in ESTIMATORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # MRVM2 is empty
            est = kind(**fast(kind)).fit(BASE, BASE_Y[is_classifier(kind())])
        found[name] = (pickle.dumps(est), predictions(est, BASE))
    return found


def predictions(est, X):
    return est.predict_proba(X) if is_classifier(est) else est.predict(X)


def names_of(kind, method):
    return [*kind().get_params(), *inspect.signature(getattr(kind, method)).parameters]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_argument_has_values(name):
    missing = ESTIMATORS[name]().get_params().keys() - ARGUMENTS.keys()
    assert not missing, f"add values for {missing} to surface_strategies.ARGUMENTS"


def test_values_are_only_for_existing_arguments():
    assert ARGUMENTS.keys() == {argument for kind in ESTIMATORS.values() for argument in kind().get_params()}


#: Forms that hold no numbers: no fit takes them for rows.
NO_ROWS = [
    *("text", "lone surrogates", "dates", "spans of time", "None among them", "text among them", "complex"),
    *("a list among them", "complex among them", "structured", "void", "ragged", "sparse rows", "no rows"),
    *("sparse array", "three dimensions", "no columns", "a set", "a number", "None", "an object", "a class"),
    *("an integer of 400 digits among them", "pandas.NA among them"),
]
#: Nor for targets of a regression.
NO_TARGETS = [form for form in NO_ROWS if form != "no columns"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_ends_as_a_model_or_a_reason(name, fitted, capfd, tmp_path):
    kind = ESTIMATORS[name]
    pickled, expected = fitted[name]
    own, names = kind().get_params(), names_of(kind, "fit")
    paths = [tmp_path / "checkpoint", str(tmp_path / "other"), tmp_path, tmp_path / "nowhere" / "file"]

    @surface()
    @given(st.data())
    def check(data):
        table = data.draw(tables(is_classifier(kind())), label="data")
        chosen = data.draw(arguments(own, extra={"checkpoint": paths}), label="arguments")
        other = data.draw(arrays((3, table.n_features), 1 / 16), label="rows to predict at")
        est = pickle.loads(pickled)
        est.set_params(**fast(kind) | chosen)
        given_to = est.get_params(deep=False)
        # A file that cannot be written; a path as X; what other people's functions warn of.
        files = (OSError,) if {"checkpoint"} & chosen.keys() or isinstance(table.X.value, str) else ()
        theirs = (Warning,) if "extra_basis" in chosen else ()
        found = attempt(
            lambda: est.fit(table.X.value, table.y.value, table.sample_weight.value), names, (*files, *theirs)
        )
        table.assert_unchanged()
        assert all(est.get_params(deep=False)[argument] is value for argument, value in given_to.items())
        printed = capfd.readouterr()
        assert printed.out == ""
        assert printed.err == "" or "verbose" in chosen
        if found.failed:
            OUTCOMES[name, type(found.error).__name__] += 1
            note(f"{type(found.error).__name__}: {found.error}")
            est.set_params(**own | fast(kind))
            np.testing.assert_array_equal(predictions(est, BASE), expected)
            return
        OUTCOMES[name, est.status_] += 1
        assert table.X.note not in NO_ROWS
        assert is_classifier(est) or table.y.note not in NO_TARGETS
        assert_is_a_model(est, found.said)
        for rows in (table.X, other):
            for method in ("predict", "predict_proba"):
                if rows.before is not None and hasattr(est, method):
                    predicted = attempt(
                        lambda method=method, rows=rows: getattr(est, method)(rows.value), names, theirs
                    )
                    if not predicted.failed:
                        assert_finite(predicted.value)
                        OUTCOMES[name, "predicted"] += 1
            rows.assert_unchanged()

    check()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_layouts_of_the_same_values_give_the_same_bits(name):
    kind = ESTIMATORS[name]
    layout = st.sampled_from(sorted(LAYOUTS))

    @surface(0.3)
    @given(st.data())
    def check(data):
        n, d = data.draw(st.integers(2, 10)), data.draw(st.integers(1, 4))
        X = data.draw(floats((n, d), planting=False))
        y = np.arange(n) % 2 if is_classifier(kind()) else data.draw(floats((n,), planting=False))
        w = data.draw(st.one_of(st.none(), floats((n,), planting=False).map(np.abs)))
        est, other = kind(**fast(kind)), kind(**fast(kind))
        found = attempt(lambda: est.fit(X, y, w), names_of(kind, "fit"))
        forms = {part: data.draw(layout, label=part) for part in ("X", "y", "sample_weight")}
        again = [
            None if a is None else LAYOUTS[forms[part]](a) for a, part in zip((X, y, w), forms, strict=True)
        ]
        second = attempt(lambda: other.fit(*again), names_of(kind, "fit"))
        assert type(second.error) is type(found.error), (found.error, second.error)
        if not found.failed:
            assert same_bits(est, other)

    check()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_second_fit_is_like_a_first(name, fitted):
    kind = ESTIMATORS[name]
    names = names_of(kind, "fit")

    @surface(0.3)
    @given(st.data())
    def check(data):
        chosen = data.draw(arguments(kind().get_params().keys() - {"checkpoint", "random_state", "callback"}))
        n = data.draw(st.integers(4, 10))
        X = data.draw(floats((n, 2), planting=False))
        y = np.arange(n) % 2 if is_classifier(kind()) else np.abs(X[:, 0])
        fresh, again = kind(), pickle.loads(fitted[name][0])
        results = []
        for est in (fresh, again):
            est.set_params(**fast(kind) | chosen)
            results.append(attempt(lambda est=est: est.fit(X, y), names))
        assert type(results[0].error) is type(results[1].error), [found.error for found in results]
        if not results[0].failed:
            assert same_bits(fresh, again)

    check()
