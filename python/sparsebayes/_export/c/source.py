"""C99 text: numbers, tables, strings and names. Knows nothing of models."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..._types import FloatArray

#: Integer types by what C promises of them, and their usual size.
_INTEGERS = (
    ("unsigned char", 0, 255, 1),
    ("signed char", -127, 127, 1),
    ("unsigned short", 0, 65535, 2),
    ("short", -32767, 32767, 2),
)
#: So long a name keeps every identifier within the 63 characters that C99 tells apart.
_LONGEST_NAME = 32
_FUNCTIONS = ("erfc", "exp", "expm1", "fabs", "hypot", "log", "log1p", "sqrt", "tanh")


@dataclass(frozen=True)
class Real:
    """The type of the numbers."""

    #: "float" or "double".
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """What NumPy calls it."""
        return np.dtype(np.float32 if self.name == "float" else np.float64)

    @property
    def suffix(self) -> str:
        """What makes a literal, or the name of a function of libm, one of this type."""
        return "f" if self.name == "float" else ""

    def literal(self, value: float) -> str:
        """Return the shortest decimal that reads back as this number.

        Decimal, not hexadecimal: C++ has no hexadecimal floats before 2017.
        """
        with np.errstate(over="ignore", under="ignore"):
            rounded = self.dtype.type(value)
        assert np.isfinite(rounded)
        return str(rounded) + self.suffix

    def check(self, what: str, values: ArrayLike) -> None:
        """Raise ValueError unless every number is 0 or a normal number of this type."""
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        limits = np.finfo(self.dtype)
        outside = (sizes != 0.0) & ~((sizes >= limits.tiny) & (sizes <= limits.max))
        if np.any(outside):
            wider = ", or use dtype='double'" if self.name == "float" else ""
            raise ValueError(
                f"{what} of {sizes[outside][0]:.3g} is out of the range of {self.name}; "
                f"rescale the data{wider}"
            )


@dataclass(frozen=True)
class Table:
    """A constant array."""

    name: str
    #: Type of its elements.
    type: str
    length: int
    #: Bytes, where a byte has 8 bits.
    size: int
    definition: str


@dataclass
class Source:
    """A header while it is written: its tables, and templates filled with its names."""

    prefix: str
    real: Real
    tables: dict[tuple[str, bytes], Table] = field(default_factory=dict)

    def table(self, role: str, values: ArrayLike) -> Table:
        """Return a table of these numbers, the earlier one if there is one with the same.

        Integers are stored in the least type that holds them: pixels take a byte.
        """
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        integers = _integers(flat)
        if integers is None:
            # Small ones may vanish beside the largest.
            self.real.check(f"a number among the {role}", np.abs(flat).max())
            texts = [self.real.literal(value) for value in flat]
            return self._table(role, flat, f"{self.prefix}_real", self.real.dtype.itemsize, texts)
        return self._table(role, flat, *integers, [str(int(value)) for value in flat])

    def indices(self, role: str, values: ArrayLike) -> Table:
        """Return a table of integers that are not negative."""
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        type_, size = _integers(flat) or ("unsigned long", 4)
        return self._table(role, flat, type_, size, [str(int(value)) for value in flat])

    def _table(self, role: str, flat: FloatArray, type_: str, size: int, texts: list[str]) -> Table:
        key = (type_, flat.tobytes())
        if key not in self.tables:
            name = f"{self.prefix}_{role}_{len(self.tables)}_"
            body = "\n    ".join(wrap(", ".join(texts), 106))
            definition = f"static const {type_} {name}[{len(flat)}] = {{\n    {body}\n}};\n"
            self.tables[key] = Table(name, type_, len(flat), size * len(flat), definition)
        return self.tables[key]

    def fill(self, template: str, **parts: object) -> str:
        """Return a template with its names: ``$NAME``, ``$REAL``, ``$exp`` and so on, and these parts."""
        names: dict[str, object] = {name: name + self.real.suffix for name in _FUNCTIONS}
        names |= {"NAME": self.prefix, "REAL": f"{self.prefix}_real", "f": self.real.suffix}
        names["MACRO"] = self.prefix.upper()
        return Template(template).substitute(names | parts)


def _integers(values: FloatArray) -> tuple[str, int] | None:
    """Return the least type that holds these numbers, and its size; None if they are no small integers."""
    if np.all(values == np.trunc(values)):
        for type_, least, most, size in _INTEGERS:
            if least <= values.min() and values.max() <= most:
                return type_, size
    return None


def check_name(name: object) -> str:
    """Return ``name``; TypeError or ValueError if it cannot begin the identifiers of a C header."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string that begins C identifiers, got {name!r}")
    good = re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name) and len(name) <= _LONGEST_NAME
    if not good:
        raise ValueError(
            "name must be ASCII letters, digits and single underscores between them, begin with a letter and "
            f"have {_LONGEST_NAME} characters at most, got {name!r}"
        )
    return name


def check_real_type(dtype: object) -> Real:
    """Return the type of that name."""
    if not isinstance(dtype, str):
        raise TypeError(f"dtype must be 'float' or 'double', got {dtype!r}")
    if dtype not in ("float", "double"):
        raise ValueError(f"dtype must be 'float' or 'double', got {dtype!r}")
    return Real(dtype)


def quote(label: Any) -> str:
    """Return a label or name of the user as a C string literal that is safe in comments too.

    UTF-8. All but harmless characters become octal escapes, always of three digits so that none can swallow
    what follows: no quote or backslash ends the string, no ``*`` and ``/`` a comment, and no ``?`` is part of
    a trigraph.
    """
    return '"' + "".join(chr(c) if chr(c) in _HARMLESS else f"\\{c:03o}" for c in encode(label)) + '"'


_HARMLESS = frozenset(
    " !#$%&'()+,-.0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
)


def encode(label: Any) -> bytes:
    """Return the bytes of that string, without its final zero."""
    return str(label).encode("utf-8", "backslashreplace")


def plain(text: str) -> str:
    """Return text of ours, a kernel or an estimator by name, with all that could end a comment taken out."""
    return re.sub(r"[^A-Za-z0-9 _.,:+*=()\[\]'-]", "_", text)
