"""The example service: what it answers, and what it refuses."""

import asyncio
import importlib.util
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from sparsebayes import RVC, RVR

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

SOURCE = Path(__file__).parents[2] / "examples" / "service" / "app.py"


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("service_app", SOURCE)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def regression(module, tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(60, 2)), columns=["model_age", "blood pressure"])
    est = RVR(gamma=0.5).fit(X, np.sin(X["model_age"]) + 0.1 * rng.normal(size=60))
    path = tmp_path_factory.mktemp("models") / "regression.safetensors"
    est.save(path)
    return est, X, module.create_app(str(path))


def ask(app, method, path, **content):
    async def once():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, path, **content)

    return asyncio.run(once())


def test_rows_in_both_forms_have_the_predictions_of_the_estimator(regression):
    est, X, app = regression
    rows = [X.iloc[0].tolist(), X.iloc[1].to_dict(), X.iloc[2].tolist()]
    answer = ask(app, "POST", "/predict", json={"rows": rows})
    assert answer.status_code == 200
    mean, std = est.predict(X[:3], return_std=True)
    np.testing.assert_allclose(answer.json()["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(answer.json()["std"], std, rtol=1e-12)


@pytest.fixture
def replaceable(module, regression, tmp_path):
    """Return the inputs of a model, its file, the service of that and the version it names."""
    est, X, _ = regression
    path = tmp_path / "model.safetensors"
    est.save(path)
    app = module.create_app(str(path))
    return X, path, app, ask(app, "GET", "/health").json()["model"]


def test_a_new_model_file_is_read_on_request_and_a_broken_one_is_not(replaceable):
    X, path, app, first = replaceable
    noise = np.random.default_rng(1).normal(size=len(X))
    RVR(gamma=0.5).fit(X.iloc[:, :1], np.cos(X["model_age"]) + 0.1 * noise).save(path)
    assert ask(app, "GET", "/health").json()["model"] == first
    app.reload()
    second = ask(app, "GET", "/info").json()
    assert second["n_features"] == 1
    assert second["model"] != first
    assert ask(app, "POST", "/predict", json={"rows": [{"model_age": 0.5}]}).status_code == 200
    path.write_bytes(b"no model")
    app.reload()
    assert ask(app, "GET", "/health").json()["model"] == second["model"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal on this system")
def test_a_signal_makes_the_service_read_the_file(replaceable):
    X, path, app, first = replaceable
    RVR(gamma=0.5).fit(X, X["model_age"] ** 2).save(path)

    async def serve():
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive():
            if len(messages) == 1:  # the server runs
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0.1)
            return messages.pop(0)

        async def send(_):
            pass

        await app({"type": "lifespan", "state": {}}, receive, send)

    asyncio.run(serve())
    assert ask(app, "GET", "/health").json()["model"] != first


def test_classes_come_with_probabilities(module, three, tmp_path):
    X, y = three
    est = RVC(gamma=0.5).fit(X, y)
    est.save(tmp_path / "classes.safetensors")
    app = module.create_app(str(tmp_path / "classes.safetensors"))
    answer = ask(app, "POST", "/predict", json={"rows": X[:9].tolist()}).json()
    np.testing.assert_allclose(answer["probabilities"], est.predict_proba(X[:9]), rtol=1e-9)
    assert answer["label"] == est.predict(X[:9]).tolist()
    info = ask(app, "GET", "/info").json()
    assert info["classes"] == ["a", "b", "c"]
    assert info["feature_names"] is None
    assert ask(app, "POST", "/predict", json={"rows": [{"x0": 1, "x1": 2}]}).status_code == 422


def test_health_and_info_name_the_file_that_is_served(regression):
    est, _, app = regression
    health, info = (ask(app, "GET", path).json() for path in ("/health", "/info"))
    assert health == {"status": "ok", "model": info["model"]}
    assert info["n_features"] == 2
    assert info["feature_names"] == ["model_age", "blood pressure"]
    assert info["n_functions"] == len(est.active_)


@pytest.mark.parametrize(
    ("body", "where", "what"),
    [
        ({"rows": [[1.0]]}, "rows.0.list", "at least 2"),
        ({"rows": [[1.0, 2.0], [1.0, "2"]]}, "rows.1.list.1", "valid number"),
        ({"rows": [{"model_age": 1.0}]}, "rows.0.object.blood pressure", "required"),
        ({"rows": [{"model_age": 1.0, "blood pressure": 2.0, "x": 3.0}]}, "rows.0.object.x", "not permitted"),
        ({"rows": []}, "rows", "at least 1"),
        ({"rows": [[1.0, 2.0]], "row": 1}, "row", "not permitted"),
        ({}, "rows", "required"),
        ([], "", "dictionary"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(regression, body, where, what):
    answer = ask(regression[-1], "POST", "/predict", json=body)
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert error["where"] == where
    assert what in error["what"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "true", "null"])
def test_what_is_no_finite_number_is_refused_and_not_echoed(regression, number):
    content = f'{{"rows": [[{number}, 1]]}}'.encode()
    answer = ask(
        regression[-1], "POST", "/predict", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["where"] == "rows.0.list.0"


def test_broken_and_endless_requests_are_refused(module, regression):
    app = regression[-1]
    assert ask(app, "POST", "/predict", content=b'{"rows":').status_code == 422
    too_long = b" " * (module.MOST_BYTES + 1)
    assert ask(app, "POST", "/predict", content=too_long).status_code == 413
    too_many = json.dumps({"rows": [[1, 2]] * (module.MOST_ROWS + 1)}).encode()
    assert ask(app, "POST", "/predict", content=too_many).status_code == 422

    async def pieces():
        yield b"{}"

    assert ask(app, "POST", "/predict", content=pieces()).status_code == 411
    assert ask(app, "GET", "/elsewhere").json() == {"errors": [{"where": "", "what": "Not Found"}]}


def test_a_service_without_a_model_does_not_start(module, monkeypatch, tmp_path):
    monkeypatch.delenv("SPARSEBAYES_MODEL", raising=False)
    with pytest.raises(RuntimeError, match="SPARSEBAYES_MODEL"):
        module.create_app()
    (tmp_path / "broken").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="safetensors"):
        module.create_app(str(tmp_path / "broken"))
