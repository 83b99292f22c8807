"""Public names except ``fit`` with arbitrary arguments: a result, or an error with a reason."""

import functools
import inspect
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebayes
from problems import ESTIMATORS
from sparsebayes import (
    MRVM1,
    RVC,
    RVR,
    Predictor,
    SparseBayesRegressor,
    SufficientStatistics,
    inspection,
    kernels,
    model_selection,
    plot,
    providers,
)
from sparsebayes.kernels import Custom, Gaussian, Linear, OnColumns
from sparsebayes.providers import RowPart, SummedStatistics
from surface_data import Given, arrays, labels, weights
from surface_oracle import assert_finite, attempt
from surface_strategies import JUNK, KERNELS, UNSOUND_KERNELS
from test_surface import BASE, BASE_Y, OUTCOMES, fast, surface, tell_outcomes  # noqa: F401

N = len(BASE)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Run in an empty folder: drawn texts are names of files too."""
    monkeypatch.chdir(tmp_path)


# --- models ----------------------------------------------------------------------------------------


def lambda_kernel(X, Z):
    return np.exp(-np.abs(X[:, None] - Z).sum(axis=2))


def _usual(kind):
    return lambda: kind(**fast(kind)).fit(BASE, BASE_Y[is_classifier(kind())])


THREE = np.arange(N) % 3
#: What makes models by name.
MODELS = {name: _usual(kind) for name, kind in ESTIMATORS.items()} | {
    "RVR of one input": lambda: RVR(gamma="scale").fit(BASE[:, :1], BASE[:, 1]),
    "RVR of two outputs": lambda: RVR(gamma="scale").fit(BASE, BASE),
    "RVR of full error bars": lambda: RVR(std="full", noise_variance=0.1, gamma="scale").fit(
        BASE, BASE[:, 0]
    ),
    "RVR of a callable": lambda: RVR(lambda_kernel).fit(BASE, BASE[:, 0]),
    "RVR of kernel values": lambda: RVR("precomputed").fit(BASE @ BASE.T, BASE[:, 0]),
    "RVC of three classes": lambda: RVC(gamma="scale").fit(BASE, np.array(["a", "b", "c"])[THREE]),
    "RVC of a softmax": lambda: RVC(multi_class="softmax", candidates=4, random_state=0, gamma="scale").fit(
        BASE, THREE
    ),
    "MRVM1 of three classes": lambda: MRVM1().fit(BASE, THREE),
    "a Poisson likelihood": lambda: SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(
        BASE, THREE
    ),
    "counts": lambda: RVR(likelihood="negative_binomial", gamma="scale").fit(BASE, THREE, exposure=0.5),
    "positive numbers": lambda: RVR(likelihood="gamma", gamma="scale").fit(BASE, 1.0 + THREE),
    "outliers": lambda: RVR(likelihood="student_t", gamma="scale").fit(BASE, BASE[:, 0]),
    "a pipeline": lambda: make_pipeline(StandardScaler(), RVR(gamma="scale")).fit(BASE, BASE[:, 0]),
    "a model not fitted": RVR,
}


@functools.cache
def pickled(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pickle.dumps(MODELS[name]())


def model(name):
    return pickle.loads(pickled(name))


# --- arguments --------------------------------------------------------------------------------------


def some(*values):
    """Draw one of these, or now and then anything."""
    return st.one_of(*[st.sampled_from(list(values))] * 4, st.sampled_from(JUNK))


def rows(d=2, n=5):
    return st.one_of(*[arrays((n, d), 1 / 8)] * 3, arrays((n, d + 1), 1 / 2), st.sampled_from(JUNK))


def column(n=5):
    return st.one_of(*[arrays((n,), 1 / 8)] * 4, arrays((n, 2), 1 / 2), labels(n), st.sampled_from(JUNK))


def training_rows():
    return st.one_of(st.just(BASE), rows(n=N))


def training_targets():
    return st.one_of(*map(st.just, BASE_Y.values()), column(N))


def axes():
    return some(None, None, Figure().subplots())


def parts():
    """Row providers of each kind."""
    return [
        RowPart(BASE, BASE[:, 0]),
        RowPart(BASE, BASE[:, 0], kernels=Gaussian(1.0), centres=BASE[:3], fit_intercept=True),
        RowPart(BASE, BASE_Y[True], likelihood="bernoulli"),
        RowPart(BASE[:0], BASE[:0, 0]),
    ]


def bad_parts():
    """Providers whose sweeps return no sums."""
    found = []
    no_ends = (1.0, *[np.zeros((2, 0))] * 3)
    for answer in (None, 1, (1.0, 2.0), (np.nan,) * 4, (1.0, [1.0], [1.0], [1.0]), "abcd", no_ends):
        found.append(RowPart(BASE, BASE[:, 0]))
        found[-1].sweep = lambda *arguments, answer=answer: answer
    return found


def any_provider():
    two = SummedStatistics(parts()[:1] * 2)
    empty = SummedStatistics([None], n_basis=2, likelihood="gaussian")
    return some(*parts(), two, *bad_parts(), [parts()[2]] * 3, [parts()[0], None], empty)


def sums():
    return some(
        SufficientStatistics(2).update(BASE, BASE[:, 0]), SufficientStatistics(2), SufficientStatistics(3)
    )


def out():
    return st.one_of(
        st.sampled_from([(5,), (5, 1), (5, 2), (5, 3), (4,), (5, 2, 1), ()]).map(np.empty),
        st.sampled_from([np.empty(5, np.float32), np.empty((2, 5)).T, np.empty(10)[::2]]),
        st.sampled_from(JUNK),
    )


def functions():
    return some(
        np.array([0], dtype=np.int64),
        np.array([1, 0], dtype=np.int64),
        np.arange(2, dtype=np.int64),
        np.array([2**62]),
        np.array([7], dtype=np.int64),
        np.array([], dtype=np.int64),
        np.array([0], dtype=np.int32),
        np.array([-1]),
        [0],
        [0, 0],
    )


def content():
    return model("RVR").to_predictor().to_bytes()


def paths(tmp_path):
    return some(
        tmp_path / "model", str(tmp_path / "other"), tmp_path, tmp_path / "nowhere" / "x", bytes(tmp_path)
    )


def common(tmp_path):
    """Strategies by the names of arguments."""
    return {
        "X": rows(),
        "Z": rows(),
        "Phi": rows(),
        "x": arrays((2,), 1 / 4),
        "y": column(),
        "t": column(),
        "sample_weight": weights(5),
        "y_std": st.one_of(some(None, 0.5, np.linspace(0.1, 2.0, 5)), weights(5)),
        "exposure": st.one_of(some(None, 0.5, np.linspace(0.1, 2.0, 5)), weights(5)),
        "n_jobs": some(None, 1, 2, -1),
        "return_std": some(True, False),
        "return_cov": some(True, False),
        "moderate": some(True, False),
        "prior": some(
            None, None, [0.5, 0.5], [0.1, 0.9], [0.2, 0.3, 0.5], [0.0, 1.0], [1e-300, 1.0], [0.5, 1.5]
        ),
        "coverage": some(0.5, 0.95, 0.0, 1.0, 1e-300, 95, "most"),
        "random_state": some(None, 0, 2**31, -1, "abc"),
        "stats": sums(),
        "other": sums(),
        "provider": any_provider(),
        "classes": some([0, 1], [0, 1, 2], ["b", "a"], [0, 0], [[0, 1]], [0, None], [0.0, np.nan]),
        "n_samples": some(None, 5, N),
        "out": out(),
        "path": paths(tmp_path),
        "content": some(
            content(), bytearray(content()), content()[:-1], content()[:99], b"", b"abc", "model"
        ),
        "est": st.one_of(*[st.sampled_from(sorted(MODELS)).map(model)] * 4, st.sampled_from(JUNK)),
        "ax": axes(),
        "kernel": some(*KERNELS, *UNSOUND_KERNELS),
        "centres": rows(n=2),
        "columns": some(
            0, [0, 1], [True, False], slice(0, 2), "x0", ["x0", "x1"], [0, 0], -1, [5], slice(5, 9)
        ),
        "n_features": some(1, 2, 3),
        "n_basis": some(1, 2, 10),
        "deep": some(True, False),
    }


# --- what is called ---------------------------------------------------------------------------------

#: Public methods of estimators that are scikit-learn's own.
THEIRS = {"get_metadata_routing", "get_params", "set_params"}


def methods(name):
    """Return the public methods of a model of this package."""
    est = model(name)
    return [
        method
        for method in dir(type(est))
        if not method.startswith(("_", "set_")) and method not in THEIRS
        if callable(getattr(type(est), method, None)) and hasattr(est, method)
    ]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "a pipeline"])
def test_methods_of_estimators(name, capfd, tmp_path):
    names = [*model(name).get_params(), "X", "y"]
    for method in methods(name):
        theirs = (TypeError, ValueError, ArithmeticError, Warning) if method == "score" else ()
        exercise(
            f"{type(model(name)).__name__}.{method}",
            lambda method=method: getattr(model(name), method),
            capfd,
            common(tmp_path)
            | ({"y": st.one_of(labels(5), column())} if is_classifier(model(name)) else {})
            | {"X": rows(getattr(model(name), "n_features_in_", 2))},
            names,
            share=0.2,
            allowed=theirs,
        )


def exercise(name, make, capfd, strategies, names=(), share=1.0, allowed=(), finite=True):
    """Call what ``make`` returns with what is drawn for its arguments."""
    signature = inspect.signature(make()).parameters
    wanted = [p for p in signature.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p.name for p in wanted if p.name not in strategies]
    assert not missing, f"add values for {missing} of {name}"
    told = [*signature, *names]
    if {"path", "X"} & signature.keys():
        allowed = (*allowed, OSError)

    @surface(share)
    @given(st.data())
    def check(data):
        chosen = {}
        for parameter in wanted:
            if parameter.default is parameter.empty or data.draw(st.integers(0, 2)):
                chosen[parameter.name] = data.draw(strategies[parameter.name], label=parameter.name)
        given_data = [value for value in chosen.values() if isinstance(value, Given)]
        plain = {key: value.value if isinstance(value, Given) else value for key, value in chosen.items()}
        function = make()
        positional = [plain.pop(p.name) for p in wanted if p.kind is p.POSITIONAL_ONLY and p.name in plain]
        found = attempt(lambda: function(*positional, **plain), told, allowed)
        plt.close("all")  # of more than 20 open at a time Matplotlib warns
        for part in given_data:
            part.assert_unchanged()
        assert capfd.readouterr() == ("", "")
        OUTCOMES[name, type(found.error).__name__ if found.failed else "answered"] += 1
        if found.failed:
            note(f"{type(found.error).__name__}: {found.error}")
        elif finite and isinstance(found.value, (np.ndarray, float, tuple)):
            assert_finite(found.value)

    check()


PREDICTORS = [name for name in ("RVR", "RVR of two outputs", "RVC", "RVC of three classes", "MRVM1", "GREVM")]


@pytest.mark.parametrize("name", PREDICTORS)
def test_methods_of_predictors(name, capfd, tmp_path):
    for method in (m for m in dir(Predictor) if not m.startswith("_") and callable(getattr(Predictor, m))):
        make = functools.partial(lambda method: getattr(model(name).to_predictor(), method), method)
        exercise(f"Predictor.{method}", make, capfd, common(tmp_path), share=0.3)


KERNEL_ARGUMENTS = {
    "width": some(1.0, [1.0, 2.0], 1e-150, 1e151, [], [[1.0]], [1.0, "a"]),
    "gamma": some(1.0, 0.1, 1e300),
    "period": some(1.0, [1.0, 2.0], 1e-150, 1e151, [], [[1.0]], [1.0, "a"]),
    "alpha": some(1.0, 1e-150, 1e300),
    "degree": some(1, 3, 10**6),
    "coef0": some(0.0, 1.0, -1e300),
    "offset": some(None, [1.0, 2.0], [1.0], [np.nan], [[1.0]], [1.0, "a"]),
    "terms": some([Gaussian(1.0), Linear()], (), [None], "ab", Gaussian(1.0)),
    "factors": some([Gaussian(1.0), Linear()], (), [None], "ab", Gaussian(1.0)),
    "function": some(lambda_kernel, "rbf"),
}


@pytest.mark.parametrize("name", kernels.__all__)
def test_constructors_of_kernels(name, capfd, tmp_path):
    exercise(f"kernels.{name}", lambda: getattr(kernels, name), capfd, common(tmp_path) | KERNEL_ARGUMENTS)


@pytest.mark.parametrize(
    "kernel",
    [k for k in [*KERNELS, *UNSOUND_KERNELS] if isinstance(k, kernels.Kernel)],
    ids=lambda k: type(k).__name__,
)
def test_methods_of_kernels(kernel, capfd, tmp_path):
    for method in [m for m in dir(kernel) if callable(getattr(kernel, m)) and not m.startswith("_")] + [
        "__call__"
    ]:
        if (method, type(kernel)) == ("function", Custom) or method == "kernel":
            continue
        exercise(
            f"Kernel.{method}",
            lambda method=method: getattr(kernel, method),
            capfd,
            common(tmp_path),
            ["kernel", "columns"],
            share=0.2,
            finite=False,
        )


@pytest.mark.parametrize("operator", ["__add__", "__mul__"])
def test_kernels_combine_with_kernels(operator, capfd):
    strategies = {"other": some(*KERNELS, *UNSOUND_KERNELS)}
    exercise(f"Kernel.{operator}", lambda: getattr(Gaussian(1.0), operator), capfd, strategies, ["kernel"])


def test_statistics(capfd, tmp_path):
    exercise(
        "SufficientStatistics",
        lambda: SufficientStatistics,
        capfd,
        common(tmp_path) | {"n_basis": some(1, 2, 30)},
    )
    for method in ("update", "update_kernel", "merge"):
        make = functools.partial(lambda method: getattr(SufficientStatistics(2), method), method)
        exercise(f"SufficientStatistics.{method}", make, capfd, common(tmp_path))


QUESTIONS = {
    "centre": some(0.0, 1.5),
    "active": functions(),
    "js": functions(),
    "wanted": functions(),
    "mu": some(np.zeros(1), np.zeros(2), np.array([np.nan]), np.array([1e300]), np.zeros((1, 1)), [0.0]),
    "sigma": some(np.eye(1), np.eye(2), np.zeros((1, 2)), np.full((1, 1), np.nan), np.zeros(1), -np.eye(1)),
    "cancelled": some(bool, lambda: False),
}
PARTS = {
    "likelihood": some("gaussian", "bernoulli", "poisson", "multinomial"),
    "kernels": some(None, Gaussian(1.0), [Gaussian(1.0), Linear()], [], "rbf", [None], OnColumns("rbf", 0)),
    "centres": st.one_of(st.none(), rows(n=2)),
    "fit_intercept": some(True, False),
    "parts": some(parts(), parts()[:1], (), [None], [1], iter(parts())),
    "map": some(None, map, lambda f, parts: [], lambda f, parts: None, lambda f, parts: [None, None]),
}


@pytest.mark.parametrize("kind", [RowPart, SummedStatistics])
def test_constructors_of_providers(kind, capfd, tmp_path):
    exercise(kind.__name__, lambda: kind, capfd, common(tmp_path) | PARTS, allowed=())


@pytest.mark.parametrize("number", range(3))
def test_questions_to_providers(number, capfd, tmp_path):
    for method in ("target_moments", "deviance", "gradient", "among", "sweep", "variance_drift", "listen"):
        for make in (
            lambda method=method: getattr(parts()[number], method),
            lambda method=method: getattr(SummedStatistics(parts()[number : number + 1]), method),
        ):
            exercise(f"RowPart.{method}", make, capfd, QUESTIONS, share=0.3, finite=False)


def test_model_selection(capfd, tmp_path):
    exercise("density_score", lambda: model_selection.density_score, capfd, common(tmp_path))


PICTURES = {
    "X": training_rows(),
    "y": training_targets(),
    "sample_weight": weights(N),
    "y_std": st.one_of(st.none(), weights(N)),
    "exposure": st.one_of(st.none(), weights(N)),
    "exchanges": some(None, True, False),
    "n_sigma": some(2.0, 1),
    "margin": some(0.1, 0),
    "levels": some((0.5,), [0.25, 0.75], [0.5, 0.5], ["a"], (), 0.5),
    "class_of_interest": some(None, 0, 1, "a"),
}


def test_certificate(capfd, tmp_path):
    exercise("certificate", lambda: inspection.certificate, capfd, common(tmp_path) | PICTURES, share=0.5)
    exercise("diagnose", lambda: inspection.diagnose, capfd, common(tmp_path) | PICTURES, share=0.1)


DRAWN = {
    "points": rows(),
    "vectors": rows(),
    "x": column(),
    "mean": column(),
    "std": column(),
    "labels": some(("x", "y"), ["x"], "ab"),
    "classes": some(None, [0, 1], ["a", "b"]),
    "first": column(),
    "second": column(),
    "probabilities": st.one_of(arrays((5, 5)), st.just(np.full((5, 5, 1), 0.5))),
    "drawn": some([0], [1], [5], []),
    "X": training_rows(),
    "y": training_targets(),
}


@pytest.mark.parametrize("name", plot.__all__)
def test_displays(name, capfd, tmp_path):
    kind = getattr(plot, name)
    strategies = common(tmp_path) | PICTURES | DRAWN
    exercise(f"{name}.from_estimator", lambda: kind.from_estimator, capfd, strategies, share=0.3)
    exercise(name, lambda: kind, capfd, strategies, share=0.3)


EXPORT = {
    "name": some("model", "a_b", "1a", "a b", "int", "é", "a__b"),
    "dtype": some("float", "double", "float32", "float64", np.float32, np.dtype(">f4")),
    "std": some(True, False),
    "opset": some(13, 15, 10**6),
}


@pytest.mark.parametrize("name", ["to_c", "to_onnx"])
def test_exports(name, capfd, tmp_path):
    exercise(
        name,
        lambda: getattr(sparsebayes, name),
        capfd,
        common(tmp_path) | EXPORT,
        RVR(gamma="scale").get_params(),
    )


def test_load(capfd, tmp_path):
    model("RVR").save(tmp_path / "model")
    (tmp_path / "other").write_bytes(b"abc")
    exercise("load", lambda: sparsebayes.load, capfd, common(tmp_path))


# --- nothing is left out ----------------------------------------------------------------------------

#: Public names that take no arguments from users, or only others made by the package.
EXEMPT = {
    "Certificate": "made by certificate",
    "Diagnosis": "made by diagnose",
    "NumericalError": "an exception",
    "OverfitWarning": "a warning",
    "Progress": "made by fits",
    "PyStatistics": "a base class",
    "StepRecord": "made by fits",
    "__version__": "a text",
    "register_onnx_converters": "takes no arguments",
}
CALLED = {
    *ESTIMATORS,
    *kernels.__all__,
    *plot.__all__,
    *model_selection.__all__,
    *("certificate", "diagnose", "to_c", "to_onnx", "load", "Predictor", "SufficientStatistics"),
    *("RowPart", "SummedStatistics"),
}


def test_every_public_name_is_called():
    modules = [sparsebayes, kernels, inspection, plot, model_selection, providers]
    public = {
        name for module in modules for name in module.__all__ if not inspect.ismodule(getattr(module, name))
    }
    assert public == CALLED | EXEMPT.keys()
