"""No module imports a module that imports it, directly or through others."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python_imports():
    """Return the modules of the package that each module imports, except for type checkers."""
    package = ROOT / "python"
    files = {
        ".".join(file.relative_to(package).with_suffix("").parts): file for file in package.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    return {name: imported_by(name, file, files) for name, file in files.items()}


def imported_by(name, file, files):
    parts = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(without_type_checking(ast.parse(file.read_text()))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(parts[: len(parts) - node.level + 1] + ([node.module] if node.module else []))
            names = [alias.name for alias in node.names if alias.name != "_core"]
            found.update(f"{base}.{name}" if f"{base}.{name}" in files else base for name in names)
    return found & files.keys()


class without_type_checking(ast.NodeTransformer):
    def __new__(cls, tree):
        return super().__new__(cls).visit(tree)

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def rust_uses(source):
    """Return the modules of a crate that each module uses, except for tests."""
    files = {"::".join(file.relative_to(source).with_suffix("").parts): file for file in source.rglob("*.rs")}
    uses = {}
    for name, file in files.items():
        text = re.sub(r"//.*", "", file.read_text()).split("#[cfg(test)]")[0]
        paths = set(re.findall(r"crate::((?:[a-z_0-9]+::)*[a-z_0-9]+)", text))
        uses[name] = {module for path in paths for module in modules_on(path, files)} - {name}
    return uses


def modules_on(path, files):
    parts = path.split("::")
    for n in range(len(parts), 0, -1):
        if (module := "::".join(parts[:n])) in files:
            return [module]
    return []


def circle(graph):
    """Return a circle of the graph as a list of names, or an empty list."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        path.append(name)
        found = next((found for other in sorted(graph[name]) if (found := visit(other))), [])
        path.pop()
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := visit(name))), [])


def test_imports_have_no_circle():
    assert circle(python_imports()) == []


@pytest.mark.parametrize("folder", ["src", "py/src", "c/src"])
def test_rust_modules_have_no_circle(folder):
    uses = rust_uses(ROOT / "rust" / folder)
    assert len(uses) > 3
    assert circle(uses) == []
