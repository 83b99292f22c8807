"""`JournalledStatistics`: what a provider answered, in a file, so that a fit that was killed goes on.

A fit asks what it asks because of what was answered before: with the same answers it takes the same steps, to
the bit. So the answers are all there is to keep. Layout: a line that says what the file is; the header (its
length, JSON, a digest of both); and records, each of them the length of what follows, a digest of the
question, the answer, and a digest of all that. A record at the end that is not whole was being written.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from ._arguments import check_file, check_integer, check_row_likelihood
from ._provider import Functions, PyStatistics
from ._types import FloatArray

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._progress import Watch

_MAGIC: Final = b"sparsebayes journal\n"
_VERSION: Final = 1
#: Bytes of a length, and of a digest.
_LENGTH: Final = 8
_DIGEST: Final = 32
#: Seconds between two times that the disk is waited for.
_INTERVAL: Final = 1.0


class JournalledStatistics(PyStatistics):
    """A provider whose answers are kept in a file: after a crash the fit goes on from there.

    Give the same arguments again, and the same fit: questions that were answered are answered from the file,
    and later ones by the provider. The model is that of a fit that was never interrupted, bit for bit, if the
    provider gives equal answers to equal questions.

    Parameters
    ----------
    provider : PyStatistics
        Who answers. Asked nothing as long as the file has the answers.
    path : str or path-like
        The file, made if it is not there. Answers are added at its end: it grows by 8 bytes for each number,
        K (p + 2) for a pass over K functions with p Gram columns.
    identity : str, default=""
        What tells these data from others: a name, a version, a digest. A file with another is refused.

    Raises
    ------
    TypeError, ValueError
        If ``path`` is no path, or the file is of another kind or belongs to other data. When it is asked: if
        the questions differ from those in the file, as they do with other arguments of the estimator.

    See Also
    --------
    PyStatistics : What the methods mean.

    Notes
    -----
    An answer is in the file before it is used. The end of a record that was being written when the process
    was killed is cut off. At a power failure a second of answers may be lost. Once a callback has asked to
    stop, nothing more is kept: the next fit goes on from there.

    For one process at a time. Fits of several classes need a file each.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sparsebayes import SparseBayesRegressor
    >>> from sparsebayes.providers import JournalledStatistics, RowPart
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(100, 5))
    >>> rows = RowPart(Phi, 2 * Phi[:, 1] + 0.1 * rng.normal(size=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = JournalledStatistics(rows, os.path.join(folder, "fit.journal"))
    ...     model = SparseBayesRegressor(fit_intercept=False).fit_provider(journal)
    ...     journal.remove()
    >>> model.active_
    array([1])
    """

    #: What tells whether the user has stopped the fit.
    _watch: Watch | None = None

    def __init__(self, provider: Any, path: str | os.PathLike[str], *, identity: str = "") -> None:
        path = check_file("path", path)
        if not isinstance(identity, str):
            raise TypeError(f"identity must be a text, got {identity!r}")
        if not (hasattr(provider, "n_basis") and hasattr(provider, "likelihood")):
            raise TypeError(f"provider must be a PyStatistics, got {type(provider).__name__}")
        self._provider = provider
        self.n_basis = check_integer("n_basis of provider", provider.n_basis, least=1)
        self.likelihood = check_row_likelihood(provider.likelihood)
        if (n_samples := getattr(provider, "n_samples", None)) is not None:
            self.n_samples = n_samples
        problem = {"n_basis": self.n_basis, "likelihood": self.likelihood, "identity": identity}
        self._journal = Journal(path, problem)

    @classmethod
    def _within(cls, journal: Journal, provider: Any) -> Self:
        """Return a provider whose answers go to a file that others write to before or after."""
        this = cls.__new__(cls)
        this._provider, this._journal = provider, journal
        this.n_basis, this.likelihood = provider.n_basis, provider.likelihood
        return this

    def remove(self) -> None:
        """Remove the file, for the work is done."""
        self._journal.remove()

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Have the provider listen, if it can."""
        if hasattr(self._provider, "listen"):
            self._provider.listen(cancelled)

    def _end_with(self, watch: Watch) -> None:
        """Leave the file alone once the user has stopped a fit: one that goes on asks other things."""
        self._watch = watch

    def _ask(self, method: str, *arguments: Any) -> Any:
        def ask() -> Any:
            return getattr(self._provider, method)(*arguments)

        stopped = self._watch is not None and self._watch.stopped
        return ask() if stopped else self._journal.answer(method, arguments, ask)

    def target_moments(self, centre: float) -> FloatArray:
        """Return what the provider answers, or answered."""
        moments: FloatArray = self._ask("target_moments", centre)
        return moments

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        """Return what the provider answers, or answered."""
        deviance: float = self._ask("deviance", active, mu)
        return deviance

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return what the provider answers, or answered."""
        deviance, gradient = self._ask("gradient", active, mu)
        return deviance, gradient

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        """Return what the provider answers, or answered."""
        deviance, gradient, gram = self._ask("among", active, mu, js)
        return deviance, gradient, gram

    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return what the provider answers, or answered."""
        deviance, gradient, diag, gram = self._ask("sweep", active, mu, wanted)
        return deviance, gradient, diag, gram

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return what the provider answers, or answered."""
        drift: FloatArray = self._ask("variance_drift", active, mu, sigma)
        return drift


class Journal:
    """Questions and answers in a file, read from its start and then added to.

    ``problem``: what the file has to belong to, as JSON has it. ``argument``: what complaints call the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], problem: dict[str, Any], *, argument: str = "path"
    ) -> None:
        self._path, self._argument = Path(path), argument
        #: Where the next record is read or written; None once that is the end.
        self._at: int | None = None
        self._synced = 0.0
        header = json.dumps({"version": _VERSION, **problem}, sort_keys=True).encode()
        head = _MAGIC + _sealed(header)
        try:
            file = open(self._path, "r+b")
        except FileNotFoundError:
            file = open(self._path, "w+b")
        self._file: BinaryIO = file
        weakref.finalize(self, file.close)
        found = file.read(len(head))
        if found == head:
            self._at = len(head)
        elif head.startswith(found):
            self._truncate(0)  # killed while it wrote this
            self._append(head)
        else:
            file.close()
            raise self._refusal(
                "belongs to another fit: other data, functions or version"
                if found.startswith(_MAGIC)
                else "is no journal of a fit"
            )

    def answer(self, method: str, arguments: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """Return the answer in the file, or that of ``ask()``, which is then in the file."""
        question = _digest_of(method, arguments)
        if self._at is not None:
            record = self._next()
            if record is not None:
                if record[:_DIGEST] != question:
                    raise self._refusal("belongs to another fit: it has answers to other questions")
                return _decoded(record[_DIGEST:])
        answer = _encoded(ask())
        self._append(_sealed(question + answer))
        return _decoded(answer)

    def remove(self) -> None:
        """Close and remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _next(self) -> bytes | None:
        """Return the next record; None, and go over to writing, if there is no whole one."""
        assert self._at is not None
        self._file.seek(self._at)
        length = int.from_bytes(self._file.read(_LENGTH), "little")
        left = os.fstat(self._file.fileno()).st_size - self._at - _LENGTH
        if _DIGEST <= length <= left - _DIGEST:
            record = self._file.read(length)
            if self._file.read(_DIGEST) == _seal(record):
                self._at += _LENGTH + length + _DIGEST
                return record
        self._truncate(self._at)
        self._at = None
        return None

    def _truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        if time.monotonic() - self._synced > _INTERVAL:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def _refusal(self, what: str) -> ValueError:
        return ValueError(
            f"{self._argument}: the file {os.fspath(self._path)!r} {what}. Remove it to begin anew, or give "
            "another path"
        )


def _seal(data: bytes) -> bytes:
    return hashlib.blake2b(len(data).to_bytes(_LENGTH, "little") + data, digest_size=_DIGEST).digest()


def _sealed(data: bytes) -> bytes:
    """Return data between its length and a digest of both."""
    return len(data).to_bytes(_LENGTH, "little") + data + _seal(data)


def _digest_of(method: str, arguments: tuple[Any, ...]) -> bytes:
    state = hashlib.blake2b(method.encode(), digest_size=_DIGEST)
    for argument in arguments:
        array = np.ascontiguousarray(argument)
        state.update(f"\0{array.dtype.str}{array.shape}\0".encode() + array.tobytes())
    return state.digest()


def _encoded(answer: Any) -> bytes:
    """Return an answer, an array or a tuple of arrays, as bytes: a line of shapes, and the numbers."""
    several = isinstance(answer, (tuple, list)) and any(np.ndim(part) for part in answer)
    arrays = [np.asarray(part, np.float64) for part in (answer if several else [answer])]
    head = json.dumps([several, [array.shape for array in arrays]]).encode()
    return b"".join([head, b"\n", *(array.tobytes() for array in arrays)])


def _decoded(record: bytes) -> Any:
    head, _, numbers = record.partition(b"\n")
    several, shapes = json.loads(head)
    values, start, parts = np.frombuffer(numbers, np.float64), 0, []
    for shape in shapes:
        size = int(np.prod(shape))
        part = values[start : start + size].reshape(shape)
        parts.append(part if shape else float(part))
        start += size
    return tuple(parts) if several else parts[0]
