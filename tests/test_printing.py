"""What is printed: names stay text, and tables keep every digit at any width."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustpsi.printing import console, print_table, printable

HOSTILE = "[/b] [age<30] :smile: \x1b[2J\x07\x9b1m\nnext \u202eleft \udc80"


def table(num_numbers: int = 9, name: str = "Clust-PSI-PFL (psi_features=signed)", rows: int = 2) -> Table:
    made = Table("dataset", "method", box=box.SIMPLE, title="a title", caption="a caption")
    for i in range(num_numbers):
        made.add_column(f"α={i}", justify="right", no_wrap=True)
    for row in range(rows):
        made.add_row("ACSIncome", f"{name} {row}", *(f"{row}.{i}11 ± {i}.{row}22" for i in range(num_numbers)))
    return made


def printed(made: Table, width: int | None) -> str:
    """What a terminal of some width shows, or (None) a file."""
    text = io.StringIO()
    to = Console(file=text, width=width, force_terminal=width is not None, no_color=True, markup=False, emoji=False)
    print_table(made, to, names=2)
    return re.sub("\x1b\\[[0-9;]*m", "", text.getvalue())


def test_control_characters_become_visible_escapes() -> None:
    shown = printable(HOSTILE)
    assert shown == r"[/b] [age<30] :smile: \x1b[2J\x07\x9b1m\nnext \u202eleft \udc80"
    assert printable("Zürich ± 東京 👩‍🔬 a\\b") == "Zürich ± 東京 👩‍🔬 a\\b"


@given(st.text())
def test_whatever_is_printable_is_one_line_that_can_be_written(text: str) -> None:
    shown = printable(text)
    assert shown.encode().decode() == shown and len(shown.splitlines()) <= 1
    assert printable(shown) == shown


def test_finding_34_names_in_tables_are_text() -> None:
    made = Table(HOSTILE, title=HOSTILE, caption=f"{HOSTILE}\nsecond line")
    made.add_row(HOSTILE)
    made.add_row(Text("two\nlines", style="bold"))
    shown = printed(made, None)
    assert shown.count(printable(HOSTILE).split("\\n")[0]) == 4 and "\x1b" not in shown and "\x07" not in shown
    assert shown.count("[age<30] :smile:") == 4 and "second line" in shown


@settings(deadline=None)
@given(width=st.integers(20, 260), columns=st.integers(1, 12))
def test_finding_13_no_number_is_cut_at_any_width(width: int, columns: int) -> None:
    shown = printed(table(columns), width)
    for row in range(2):
        for i in range(columns):
            assert f"{row}.{i}11 ± {i}.{row}22" in shown
    assert "…" not in shown and shown.count("a title") == shown.count("a caption") == 1
    widest = max(map(len, shown.splitlines()))
    assert widest <= max(width, 13 + 13 + 13 + 8)  # two narrow columns of names and a single one of numbers


def test_a_table_that_fits_is_one_block_and_names_give_way_first() -> None:
    assert max(map(len, printed(table(3), 200).splitlines())) > 90
    narrower = printed(table(3), 80)
    assert narrower.count("ACSIncome") == 2 and max(map(len, narrower.splitlines())) <= 80
    blocks = printed(table(9), 80)
    assert blocks.count("ACSIncome") == 2 * 3 and max(map(len, blocks.splitlines())) <= 80


@pytest.mark.parametrize("width", [None, 200, 60])
def test_columns_stay_aligned(width: int | None) -> None:
    made = Table("name")
    made.add_column("number", justify="right", no_wrap=True)
    made.add_row("a", "1")
    made.add_row("b", Text("2\n33"))
    shown = printed(made, width).splitlines()
    assert len({line.rindex(end) for line, end in zip(shown[3:6], "123", strict=True)}) == 1


def test_a_file_gets_the_table_as_wide_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    assert f"{long} 1" in printed(table(12, name=long), None)
    to = console()
    print_table(table(12), to, names=2)
    assert to.width == console().width
    to.print("[b] " + "word " * 60 + ":smile:")
    assert "[b] " + "word " * 60 + ":smile:" in capsys.readouterr().out
