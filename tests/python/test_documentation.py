"""The code and commands in README.md and the pages of docs/ run."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparsebayes

# The pages need the packages of `requirements/dev.txt`.
mpl = pytest.importorskip("matplotlib")
pytest.importorskip("dask")
pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "examples/service/README.md"]

#: On the line above a block that cannot run here, with the reason: <!-- not run: needs a cluster -->
NOT_RUN = re.compile(r"\s*<!-- not run: \S.* -->\s*")
#: Hidden code that is run too: <!-- setup, lines of Python, -->
SETUP = re.compile(r"^<!-- setup\n(.*?)^-->$", flags=re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*\{?([\w+-]*)\}?(?: +(\S.*))?\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: language, text, number of its first line, and whether a marker says not to run it."""

    language: str
    text: str
    line: int
    excused: bool


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, those inside other fences too, and its hidden ones."""
    opened: list[tuple[str, str, int]] = []
    text = page.read_text(encoding="utf-8")
    # A fenced block of as many lines replaces it.
    text = SETUP.sub(lambda hidden: f"```python\n{hidden[1]}```", text)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        ticks, language, argument = fence.groups()
        if opened and not language and ticks == opened[-1][0]:
            _, language, start = opened.pop()
            above = lines[start - 1] if start else ""
            inside = "\n".join(lines[start + 1 : number]) + "\n"
            yield Block(language, inside, start + 2, NOT_RUN.fullmatch(above) is not None)
        else:
            opened.append((ticks, (argument or "") if language == "code-block" else language, number))
    assert not opened, f"{page.name}: the fence in line {opened[-1][2] + 1} is not closed"


def run(block: Block, page: Path, namespace: dict[str, object]) -> None:
    """Execute a block; where it has prompts, compare what it prints."""
    if ">>>" not in block.text:
        # Line numbers of the page in tracebacks.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        exec(code, namespace)
        return
    test = doctest.DocTestParser().get_doctest(block.text, {}, page.name, str(page), block.line - 1)
    test.globs = namespace
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    failed = runner.run(test, out=report.append, clear_globs=False).failed
    assert failed == 0, "".join(report)


def compile_c(block: Block, page: Path) -> None:
    """Compile a block as the body of a program, in a folder with the headers that the page has written."""
    lines = block.text.splitlines()
    include = [line for line in lines if line.startswith("#")]
    inside = [line for line in lines if not line.startswith("#")]
    source = Path(f"block-{block.line}.c")
    body = ["int main(void) {", f'#line {block.line} "{page.name}"', *inside, "return 0; }", ""]
    source.write_text("\n".join(["#include <stdio.h>", *include, *body]), encoding="utf-8")
    flags = "-std=c99 -Wall -Wextra -Werror -Wno-unused-variable -Wno-unused-but-set-variable".split()
    command = ["cc", *flags, "-I.", f"-I{ROOT / 'rust/c/include'}", "-c", str(source), "-o", os.devnull]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def of_language(page: Path, *languages: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in languages]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if of_language(page, "python", "pycon")], ids=name)
def test_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with mpl.rc_context({"backend": "agg"}):
        for block in of_language(page, "python", "pycon"):
            if not block.excused:
                run(block, page, namespace)
    if shutil.which("cc") is not None:
        for block in of_language(page, "c"):
            compile_c(block, page)


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_commands_name_existing_targets_and_scripts(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = "".join(block.text for block in of_language(page, "", "sh", "console", "bash", "text"))
    asked = set(re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*make ([a-z0-9-]+)", commands, flags=re.MULTILINE))
    assert asked <= targets
    scripts = re.findall(r"python3? ((?:benches|examples)/\S+\.py)", commands)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_lead_to_existing_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    built = ("auto_examples/", "generated/", "../auto_examples/", "../generated/")
    missing = [
        link
        for link in local
        if not link.startswith(built)
        and not any((page.parent / candidate).exists() for candidate in (link, f"{link}.md", f"{link}.rst"))
    ]
    assert missing == []


def test_the_reference_lists_every_public_name() -> None:
    import sparsebayes
    from sparsebayes import dask, inspection, kernels, model_selection, plot, providers

    listed = set(re.findall(r"^   (\w+)$", (ROOT / "docs/api.rst").read_text(), flags=re.MULTILINE))
    modules = (sparsebayes, dask, inspection, kernels, model_selection, plot, providers)
    public = {name for module in modules for name in module.__all__}
    modules_themselves = {"inspection", "kernels", "model_selection", "plot", "providers"}
    assert public - listed == {"__version__", *modules_themselves}


def test_dir_lists_only_public_names() -> None:
    # A new process has loaded only the modules that an estimator needs.
    code = (
        "import sparsebayes as s; s.RVR().fit([[0.0], [1.0], [2.5]], [0.0, 1.0, 0.0]); "
        "print(*(n for n in dir(s) if not n.startswith('__') or n == '__version__'))"
    )
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(shown.stdout.split()) == {*sparsebayes.__all__, "dask"}
    assert all(hasattr(sparsebayes, name) for name in sparsebayes.__all__)
