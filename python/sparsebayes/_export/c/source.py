"""C99 text: numbers, tables, strings and names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..._types import FloatArray

#: Integer types, the ranges that the C standard guarantees, and their usual sizes.
_INTEGERS = (
    ("unsigned char", 0, 255, 1),
    ("signed char", -127, 127, 1),
    ("unsigned short", 0, 65535, 2),
    ("short", -32767, 32767, 2),
)
#: Longest name with which every identifier has at most 63 characters, as many as C99 distinguishes.
_MAX_NAME_LENGTH = 32
_FUNCTIONS = ("erfc", "exp", "expm1", "fabs", "hypot", "log", "log1p", "sqrt", "tanh")


@dataclass(frozen=True)
class Real:
    """The type of the numbers."""

    #: "float" or "double".
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return np.dtype(np.float32 if self.name == "float" else np.float64)

    @property
    def suffix(self) -> str:
        """Suffix of literals and libm functions of this type."""
        return "f" if self.name == "float" else ""

    def literal(self, value: float) -> str:
        """Return the shortest decimal that is read back as this number.

        It is not hexadecimal, because C++ has no hexadecimal floats before 2017.
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
    #: Type of the elements.
    type: str
    #: Size in bytes.
    size: int
    definition: str


@dataclass
class Source:
    """A header under construction: its tables, and its names for templates."""

    prefix: str
    real: Real
    tables: dict[tuple[str, bytes], Table] = field(default_factory=dict)

    def table(self, role: str, values: ArrayLike) -> Table:
        """Return a table of these numbers; equal tables are written once.

        Integers have the smallest type that holds them.
        """
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        integers = _integers(flat)
        if integers is None:
            # Only the largest is checked: small numbers may underflow to 0.
            self.real.check(f"a number among the {role}", np.abs(flat).max())
            texts = [self.real.literal(value) for value in flat]
            return self._table(role, flat, f"{self.prefix}_real", self.real.dtype.itemsize, texts)
        return self._table(role, flat, *integers, [str(int(value)) for value in flat])

    def indices(self, role: str, values: ArrayLike) -> Table:
        """Return a table of non-negative integers."""
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        type_, size = _integers(flat) or ("unsigned long", 4)
        return self._table(role, flat, type_, size, [str(int(value)) for value in flat])

    def _table(self, role: str, flat: FloatArray, type_: str, size: int, texts: list[str]) -> Table:
        key = (type_, flat.tobytes())
        if key not in self.tables:
            name = f"{self.prefix}_{role}_{len(self.tables)}_"
            body = "\n    ".join(wrap(", ".join(texts), 106))
            definition = f"static const {type_} {name}[{len(flat)}] = {{\n    {body}\n}};\n"
            self.tables[key] = Table(name, type_, size * len(flat), definition)
        return self.tables[key]

    def fill(self, template: str, **parts: object) -> str:
        """Substitute ``$NAME``, ``$REAL``, ``$exp`` and so on, and ``parts``, in a template."""
        names: dict[str, object] = {name: name + self.real.suffix for name in _FUNCTIONS}
        names |= {"NAME": self.prefix, "REAL": f"{self.prefix}_real", "f": self.real.suffix}
        names["MACRO"] = self.prefix.upper()
        return Template(template).substitute(names | parts)


def _integers(values: FloatArray) -> tuple[str, int] | None:
    """Return the smallest integer type of these numbers and its size; None if there is none."""
    if np.all(values == np.trunc(values)):
        for type_, lowest, highest, size in _INTEGERS:
            if lowest <= values.min() and values.max() <= highest:
                return type_, size
    return None


def check_name(name: object) -> str:
    """Return ``name``; TypeError or ValueError if it cannot begin the identifiers of a C header."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string that begins C identifiers, got {name!r}")
    if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name) or len(name) > _MAX_NAME_LENGTH:
        raise ValueError(
            "name must be ASCII letters, digits and single underscores between them, begin with a letter and "
            f"have {_MAX_NAME_LENGTH} characters at most, got {name!r}"
        )
    return name


def check_real_type(dtype: object) -> Real:
    """Return the type named ``dtype``."""
    if isinstance(dtype, str) and dtype in ("float", "double"):
        return Real(dtype)
    error = ValueError if isinstance(dtype, str) else TypeError
    raise error(f"dtype must be 'float' or 'double', got {dtype!r}")


def quote(label: Any) -> str:
    """Return a label or name of the user as a C string literal that is safe in comments too.

    The string is UTF-8. Characters that are not in `_SAFE` become octal escapes of three digits, so that no
    quote or backslash ends the string, no ``*/`` ends a comment, and no ``?`` starts a trigraph.
    """
    return '"' + "".join(chr(c) if chr(c) in _SAFE else f"\\{c:03o}" for c in encode(label)) + '"'


_SAFE = frozenset(
    " !#$%&'()+,-.0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
)


def encode(label: Any) -> bytes:
    """Return a label in UTF-8."""
    return str(label).encode("utf-8", "backslashreplace")


def plain(text: str) -> str:
    """Return the name of a kernel or an estimator without characters that could end a comment."""
    return re.sub(r"[^A-Za-z0-9 _.,:+*=()\[\]'-]", "_", text)
