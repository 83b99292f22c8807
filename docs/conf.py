"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from sparsebayes import __version__

project = "sparsebayes"
author = "The sparsebayes developers"
copyright = author
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

exclude_patterns = ["_templates", "auto_examples/**/*.ipynb", "**sg_execution_times.rst"]
templates_path = ["_templates"]
default_role = "py:obj"

# --- what is reported as broken -----------------------------------------------------------------------------

nitpicky = True
nitpick_ignore_regex = [
    # Other projects: no inventories are fetched, so that the site builds without a network.
    ("py:.*", r"(sklearn|numpy|scipy|matplotlib|onnx|skl2onnx|np|pandas|collections|os|typing)\..*"),
]

# --- Markdown ---------------------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# --- the reference ------------------------------------------------------------------------------------------

autosummary_generate = True
# File systems that do not tell case apart would have one page for the function and its result.
autosummary_filename_map = {"sparsebayes.inspection.certificate": "sparsebayes.inspection.certify"}
autodoc_typehints = "none"
# The reference needs their names alone.
autodoc_mock_imports = [name for name in ("dask", "distributed") if find_spec(name) is None]
# Methods are documented in full on the page of their class (_templates/autosummary/class.rst).
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- examples -----------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "capture_repr": (),
    "remove_config_comments": True,
}

# --- appearance ---------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "sparsebayes"
# One file of MathJax, with its fonts: formulas need no network.
_MATHJAX = Path(files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js")
html_static_path = ["_static", str(_MATHJAX)]
mathjax_path = _MATHJAX.name
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sparsebayes"},
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
# Pages of no section have no list of its pages beside them.
_ALONE = "index install tour clients questions benchmarks architecture references changelog"
html_sidebars = {page: [] for page in _ALONE.split()}

# --- hooks --------------------------------------------------------------------------------------------------

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./((?:examples|rust|benches|tests)/[^)]*)\)")


#: A tag that loads something from another host; links to read, and the address of the page itself, do not.
_FOREIGN = re.compile(
    r"<(?:script|img|iframe|link(?![^>]*canonical))\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
)

#: In a toctree: a page that need not be there.
_OPTIONAL = re.compile(r"^([\w./-]+)\?\n", flags=re.MULTILINE)


def _prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn links to files beside docs/, which the site does not have, into their names; drop absent pages."""
    source[0] = _OUTSIDE.sub(r"\1 (`\2` in the repository)", source[0])
    folder = Path(app.env.doc2path(docname)).parent
    source[0] = _OPTIONAL.sub(
        lambda entry: f"{entry[1]}\n" if (folder / f"{entry[1]}.md").exists() else "", source[0]
    )


def _find_public_name(app: Sphinx, env: Any, node: Any, contnode: nodes.Element) -> nodes.Element | None:
    """Resolve `RVR` and `Gaussian` in the docstrings of any module, as a reader does."""
    if node.get("refdomain") != "py":
        return None
    objects = env.get_domain("py").objects
    for module in ("", "kernels.", "inspection.", "plot.", "model_selection.", "providers.", "dask."):
        name = f"sparsebayes.{module}{node['reftarget']}"
        if name in objects:
            return env.get_domain("py").resolve_xref(
                env, node["refdoc"], app.builder, "obj", name, node, contnode
            )
    return None


def _skip_inherited(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn documents itself: get_params, metadata routing and the like."""
    module = getattr(member, "__module__", None) or ""
    if name.startswith("set_") and name.endswith("_request"):
        return True
    return True if module.startswith("sklearn.") else None


def _escape_types(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the underscore in "n_iter_ : ndarray of shape (n_iter_ + 1,)" from being a reference."""
    for i, line in enumerate(lines):
        names, colon, kind = line.partition(" : ")
        if colon and re.fullmatch(r"[\w, ]+", names):
            lines[i] = names + colon + re.sub(r"(?<=\w)_(?!\w)", r"\\_", kind)


def _refuse_other_hosts(app: Sphinx, exception: Exception | None) -> None:
    """Report each page with a script, style or image of another host: the site works without a network."""
    if exception or app.builder.format != "html":
        return
    for page in app.env.found_docs:
        for tag in _FOREIGN.findall(Path(app.builder.get_outfilename(page)).read_text(encoding="utf-8")):
            logging.getLogger(__name__).warning("needs a network: %s", tag, location=page)


def setup(app: Sphinx) -> None:
    """Connect the hooks."""
    app.connect("source-read", _prepare)
    app.connect("missing-reference", _find_public_name)
    app.connect("autodoc-skip-member", _skip_inherited)
    app.connect("build-finished", _refuse_other_hosts)
    app.connect("autodoc-process-docstring", _escape_types, priority=400)  # before numpydoc
