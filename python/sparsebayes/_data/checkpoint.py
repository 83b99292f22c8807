"""The state of a fit in a file, from which an interrupted fit resumes.

The file is a BLAKE2b digest of the rest, which is an archive of arrays (`numpy.savez`).
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._checks import check_file

#: Bytes of a digest.
DIGEST_BYTES: Final = 32
#: Least time between two saves: in seconds, and as a multiple of the time that a save takes.
_INTERVAL: Final = 3.0
_PATIENCE: Final = 20.0
#: Arguments of an estimator that its sums or working sets do not depend on.
_IRRELEVANT: Final = frozenset({"n_jobs", "verbose", "callback", "checkpoint", "memory_limit"})


class Checkpoint:
    """Named arrays in a file that is replaced atomically and belongs to one problem.

    While the file is written there is a second one, with ``.`` before and ``.part`` after the name.
    ``problem`` is the `digest` of all that the state depends on.
    """

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        self._path = check_path(path)
        self._part = self._path.with_name(f".{self._path.name}.part")
        self._problem = problem
        self._last_save, self._took = time.monotonic(), 0.0

    def load(self) -> dict[str, NDArray[Any]] | None:
        """Return the arrays last saved, None if there is no file.

        ValueError if the file is damaged or belongs to another problem.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        state = memoryview(content)[DIGEST_BYTES:]
        if content[:DIGEST_BYTES] != new_digest(state).digest():
            raise self._refusal("is damaged, or not a checkpoint of a fit")
        with np.load(BytesIO(state), allow_pickle=False) as saved:
            arrays = dict(saved)
        if arrays.pop("problem").item() != self._problem:
            raise self.mismatch()
        return arrays

    def save(self, **arrays: NDArray[Any]) -> None:
        """Replace the saved arrays by these; OSError, and the old file, if it cannot be written."""
        began, state = time.monotonic(), BytesIO()
        np.savez(state, **{**arrays, "problem": np.array(self._problem)})  # type: ignore[arg-type] # no flag
        try:
            with open(self._part, "wb") as file:
                file.write(new_digest(state.getbuffer()).digest())
                file.write(state.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._part, self._path)
        except BaseException:
            self._part.unlink(missing_ok=True)
            raise
        if os.name == "posix":  # where directories can be synced, write the new name to the disk
            handle = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self._last_save = time.monotonic()
        self._took = self._last_save - began

    def is_due(self) -> bool:
        """Tell whether enough time has passed since the last save."""
        return time.monotonic() - self._last_save > max(_INTERVAL, _PATIENCE * self._took)

    def remove(self) -> None:
        """Remove the file."""
        for path in (self._path, self._part):
            path.unlink(missing_ok=True)

    def mismatch(self) -> ValueError:
        """Return the error for a state of other data or another model."""
        return self._refusal("belongs to another fit: other data or arguments")

    def _refusal(self, what: str) -> ValueError:
        return ValueError(
            f"checkpoint: the file {os.fspath(self._path)!r} {what}. Remove it to begin anew, or give "
            "another path"
        )


def new_digest(data: Any = b"") -> hashlib.blake2b:
    """Return a digest of some bytes, to which others can be added."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)


def open_checkpoint(estimator: Any, *data: Any, suffix: str = "") -> Checkpoint | None:
    """Return the checkpoint that an estimator's argument names, if any.

    ``data``: what the state depends on beside the estimator's arguments (shapes, or arrays, which are read in
    full). ``suffix`` is appended to the file name.
    """
    path = estimator.checkpoint
    if path is None:
        return None
    given = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _IRRELEVANT}
    if suffix and isinstance(path, (str, os.PathLike)):
        path = os.fspath(path) + suffix
    return Checkpoint(path, digest(_core.__version__, type(estimator).__name__, given, *data))


def digest(*values: Any) -> str:
    """Return a digest of values: numbers, strings, arrays, kernels, and lists and dictionaries of these.

    Functions and other objects enter with their names, random number generators with their type.
    """
    state = new_digest()
    _feed(state, *values)
    return state.hexdigest()


def _feed(state: Any, *values: Any) -> None:
    for value in values:
        kind = np.ndarray if isinstance(value, np.ndarray) else type(value)  # memory-mapped or not
        state.update(f"{kind.__module__}.{kind.__qualname__}\0".encode())
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            state.update(f"{value.dtype.str}{value.shape}\0".encode())
            state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        elif isinstance(value, dict):
            entries = sorted(value.items(), key=lambda item: str(item[0]))
            _feed(state, len(entries), *entries)
        elif isinstance(value, (list, tuple, np.ndarray)):
            _feed(state, len(value), *value)
        elif is_dataclass(value) and not isinstance(value, type):
            _feed(state, *(getattr(value, field.name) for field in fields(value)))
        elif hasattr(value, "get_params") and not isinstance(value, type):
            _feed(state, value.get_params(deep=False))
        elif hasattr(value, "__array__") and not np.isscalar(value):
            _feed(state, np.asarray(value))
        elif isinstance(value, (str, bytes, int, float, complex, np.generic, type(None), slice)):
            state.update(repr(value).encode() + b"\0")
        else:
            # The ufuncs of NumPy 1 have no __qualname__.
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
            state.update(f"{getattr(value, '__module__', '')}.{name}\0".encode())


def check_path(path: object) -> Path:
    """Return the path of a checkpoint; TypeError if it is not a path, ValueError if it cannot be written."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be None or a path, got {path!r}")
    checked = Path(check_file("checkpoint", path))
    if checked.is_dir() or not os.access(checked.parent, os.W_OK):
        raise ValueError(
            f"checkpoint must name a file in a directory that can be written to, got {os.fspath(path)!r}"
        )
    return checked
