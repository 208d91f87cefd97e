"""Pages whose links lead somewhere, and notebooks that run."""

import importlib.util
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
NOTEBOOKS = ROOT / "docs" / "notebooks"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s:#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["skew", "compare"])
def test_notebooks_are_kept_without_outputs(name: str) -> None:
    code = [cell for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells if cell.cell_type == "code"]
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("skew", ["[A1, A2, A3]", "[B1, B2, B3]", "[C1, C2, C3]", "array([1])", "image/png"]),
        ("compare", ["last_worst10", "clust_psi_pfl", "hospital 6"]),
    ],
)
def test_notebooks_run_and_show_what_their_text_says(name: str, shown: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("execution", ROOT / "docs" / "building" / "execution.py")
    assert spec is not None and spec.loader is not None
    execution = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execution)
    notebook = execution.executed(NOTEBOOKS / f"{name}.ipynb")
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []  # no warning for the reader
    for text in shown:
        assert text in str(outputs)


def test_the_architecture_page_shows_every_layer_and_module_where_it_is() -> None:
    source = ROOT / "src" / "clustpsi"
    rows = re.findall(r"^\| (`.+?`) \| (.+) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    shown: list[str] = []
    for layer, job in rows:
        package = layer.strip("`/") if "/" in layer else "."
        named = re.findall(r"`([a-z_]+\.py)`", layer + job)
        there = {path.name for path in (source / package).glob("*.py")} - {"__init__.py", "__main__.py"}
        assert set(named) <= there, f"{layer} names modules that are not there"
        if package != "." and "one file each" not in job and "per file" not in job:
            assert set(named) == there, f"{layer} lacks modules"
        shown += [package] if package != "." else [name.removesuffix(".py") for name in named]
    assert len(shown) == len(set(shown))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    height = {name: i for i, level in enumerate(contracts[0]["layers"]) for name in re.findall(r"\w+", level)}
    assert set(shown) == set(height)
    tops = [min(height[each] for each in re.findall(r"[a-z_]+", layer) if each in height) for layer, _ in rows]
    assert tops == sorted(tops), "rows are in the order of the layers"
