"""The examples of the gallery run without a warning and draw figures."""

import runpy
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("plot_*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws(example, monkeypatch):
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
