"""Shared docstring texts: every placeholder is replaced, and every text is used."""

import inspect
import re
from pathlib import Path

import pytest

import sparsebayes
from sparsebayes._estimators.docs import TEXTS

CLASSES = [value for name in sparsebayes.__all__ if inspect.isclass(value := getattr(sparsebayes, name))]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_docstrings_have_no_placeholders_left(cls):
    members = [cls, *(getattr(cls, name) for name in dir(cls) if not name.startswith("__"))]
    for member in members:
        assert not re.findall(r"^ *\{\w+\}$", inspect.getdoc(member) or "", re.MULTILINE)


def test_every_shared_text_is_used():
    root = Path(sparsebayes.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    assert [name for name in TEXTS if f"{{{name}}}" not in source] == []
