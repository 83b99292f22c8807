"""Predictions with error bars over HTTP: FastAPI, and a model that is loaded at start-up and on SIGHUP.

    SPARSEBAYES_MODEL=diabetes.safetensors uvicorn app:create_app --factory

``POST /predict`` takes ``{"rows": [...]}``, each row a list of numbers in the model's order or an object with
its feature names, and returns means and standard deviations, or labels and class probabilities.
``GET /info`` describes the model, and ``GET /health`` returns 200 once it is loaded.
"""

import asyncio
import hashlib
import logging
import os
import signal
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, create_model
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

import sparsebayes

#: Largest number of rows in a request: while a batch is computed, no other request is answered.
MOST_ROWS = 10_000
MOST_BYTES = 8 << 20

#: Refuses text that looks like a number, and NaN, which Python's JSON accepts.
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Served:
    """A model and its description."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            content = file.read()
        # Every response contains the digest of the file, so that logs show which model answered.
        self.version = hashlib.sha256(content).hexdigest()[:12]
        self.model = sparsebayes.Predictor.from_bytes(content)
        names, classes = self.model.feature_names_in_, self.model.classes_
        self.names: list[str] | None = None if names is None else names.tolist()
        self.classes = None if classes is None else [as_json(label) for label in classes.tolist()]

    def takes_rows_of(self, other: "Served") -> bool:
        """Tell whether a row for the other model is one for this."""
        return self.names == other.names and self.model.n_features_in_ == other.model.n_features_in_

    def info(self) -> dict[str, Any]:
        """Return the description of the model for clients."""
        return {
            "model": self.version,
            "estimator": self.model.estimator,
            "n_features": self.model.n_features_in_,
            "feature_names": self.names,
            "n_functions": self.model.n_functions_,
            "classes": self.classes,
            "most_rows": MOST_ROWS,
            "sparsebayes": sparsebayes.__version__,
        }

    def predict(self, rows: list[Any]) -> dict[str, Any]:
        """Return predictions for validated rows."""
        X = np.array([row.values() if isinstance(row, NamedRow) else row for row in rows])
        if self.classes is None:
            mean, std = self.model.predict_std(X, n_jobs=1)
            return {"model": self.version, "mean": mean.tolist(), "std": std.tolist()}
        probabilities = self.model.predict_proba(X, n_jobs=1)
        labels = [self.classes[best] for best in probabilities.argmax(axis=1)]
        return {"model": self.version, "label": labels, "probabilities": probabilities.tolist()}


class NamedRow(BaseModel):
    """A row by the names of its features; the fields are those of the model that is served."""

    model_config = ConfigDict(extra="forbid")

    def values(self) -> list[float]:
        """Return the numbers in the model's order."""
        return [getattr(self, field) for field in type(self).model_fields]


def request_type(n_features: int, names: list[str] | None) -> type[BaseModel]:
    """Return the type of a request for a model with these numbers and names of features."""
    listed = Annotated[list[Number], Field(min_length=n_features, max_length=n_features)]
    row: Any = listed
    if names is not None:
        # Fields have names of our own: a feature may be called anything.
        fields: Any = {f"feature_{d}": (Number, Field(alias=name)) for d, name in enumerate(names)}
        named = create_model("Row", __base__=NamedRow, **fields)
        kind = Discriminator(lambda value: "object" if isinstance(value, dict) else "list")
        row = Annotated[Annotated[named, Tag("object")] | Annotated[listed, Tag("list")], kind]
    rows = Annotated[list[row], Field(min_length=1, max_length=MOST_ROWS)]
    return create_model("PredictRequest", __config__=ConfigDict(extra="forbid"), rows=(rows, ...))


class LimitBody:
    """Refuses requests that are too long before reading them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with 411 or 413, or pass the request on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            length = dict(scope["headers"]).get(b"content-length", b"")
            if not length.isdigit() or len(length) > 18:
                return await refusal(411, "a request needs a Content-Length")(scope, receive, send)
            if int(length) > MOST_BYTES:
                text = f"a request has at most {MOST_BYTES} bytes, this one has {int(length)}"
                return await refusal(413, text)(scope, receive, send)
        await self.app(scope, receive, send)


def refusal(status: int, message: str) -> JSONResponse:
    """Return an error in the form of all errors of the service."""
    return JSONResponse({"errors": [{"where": "", "what": message}]}, status_code=status)


async def invalid(_: Request, error: Exception) -> JSONResponse:
    """Return the errors of a request and their places, without echoing the request."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": ".".join(str(part) for part in found["loc"][1:]), "what": found["msg"]}
        for found in error.errors()[:20]
    ]
    return JSONResponse({"errors": errors}, status_code=422)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Return an error of FastAPI in the form of all errors of the service."""
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail)


def as_json(label: Any) -> Any:
    """Return a class label as it is where JSON has its type, as text otherwise."""
    return label if isinstance(label, (str, int, float, bool)) else str(label)


@dataclass
class Current:
    """The newest of the models whose rows have the same features."""

    served: Served


class Reloading:
    """The service of a model file, which is read again on SIGHUP; running requests keep their model."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.current = Current(Served(path))
        self.app = app_of(self.current)

    def reload(self) -> None:
        """Read the file again; if it is not a model, the old one stays."""
        try:
            served = Served(self.path)
        except (OSError, ValueError) as error:
            logging.getLogger("uvicorn.error").error("the model stays as it was: %s", error)
            return
        if served.takes_rows_of(self.current.served):
            self.current.served = served
        else:  # requests have another type
            self.current = Current(served)
            self.app = app_of(self.current)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; wait for signals from the first message of the server on."""
        if scope["type"] == "lifespan" and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        await self.app(scope, receive, send)


def create_app(path: str | None = None) -> ASGIApp:
    """Load the model and return the service; without a path the environment's ``SPARSEBAYES_MODEL``."""
    path = path or os.environ.get("SPARSEBAYES_MODEL")
    if path is None:
        raise RuntimeError("set SPARSEBAYES_MODEL to the path of a model file (train.py makes one)")
    return Reloading(path)


def app_of(current: Current) -> FastAPI:
    """Return the service of models whose rows have the same features."""
    served = current.served
    Rows: Any = request_type(served.model.n_features_in_, served.names)
    app = FastAPI(title="sparsebayes", version=served.version)
    app.add_middleware(LimitBody)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)

    # Called here, not in FastAPI's thread pool: a prediction takes less time than the hand-over.
    @app.post("/predict")
    async def predict(request: Rows) -> JSONResponse:
        return JSONResponse(current.served.predict(request.rows))

    @app.get("/info")
    async def info() -> JSONResponse:
        return JSONResponse(current.served.info())

    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok", "model": current.served.version})

    return app
