"""The tables of docs/results.md are what their commands print from the files in the repository."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "results"


def test_tables_are_what_their_commands_print() -> None:
    spec = importlib.util.spec_from_file_location("update", FOLDER / "update.py")
    assert spec is not None and spec.loader is not None
    update = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(update)
    page = update.PAGE.read_text()
    assert len(update.TABLE.findall(page)) == page.count("<!-- end -->") > 0
    assert update.updated(page) == page
