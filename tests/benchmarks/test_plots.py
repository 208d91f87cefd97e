"""The plots of the page of benchmarks show what its tables say."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_tables_are_found_by_section_and_by_the_line_above() -> None:
    import plots

    page = "# Page\n\n## Speed\n\n`mlp`\n\n| | s | s |\n|---|---|---|\n| a | 1.5 (1 to 2) | 2,000 |\n\nText.\n"
    found = plots.tables(page)
    assert found["mlp"] == found["Speed"] == [[{"": "a", "s": "1.5 (1 to 2)", "s 2": "2,000"}]]
    assert plots.column(found["mlp"][0], "s") == [1.5] and plots.column(found["mlp"][0], "s 2") == [2000.0]


def test_plots_show_the_figures_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import plots

    text = plots.PAGE.read_text()
    assert plots.old_plots(plots.tables(text)) == [], "run python benchmarks/plots.py"
    assert plots.old_plots(plots.tables(text.replace("| `mlp` | ", "| `mlp` | 1"))) == ["limits"]
    monkeypatch.setattr(plots, "IMAGES", tmp_path)
    assert plots.old_plots(plots.tables(text)) == list(plots.PLOTS)
    plots.write("scale", plots.tables(text))
    assert plots.old_plots(plots.tables(text)) == ["peers", "limits"]
