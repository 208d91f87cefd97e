"""Print the tables of docs/results.md anew.

    python docs/results/update.py [--check]

In the page each table stands between the command that prints it, a comment such as
<!-- clustpsi table global src/clustpsi/recorded/acs_income.csv --format markdown -->, and <!-- end -->.  The commands
read the CSV files in src/clustpsi/recorded.  With --check nothing is written, and the exit code is 1 if a table is not
what its command prints.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from clustpsi.cli import main as clustpsi

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
TABLE = re.compile(r"(<!-- clustpsi (table .*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def printed(command: str) -> str:
    """What a command prints, run in the repository's folder."""
    output = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        clustpsi(shlex.split(command))
    if not output.getvalue():
        raise SystemExit(f"clustpsi {command} printed nothing")
    return output.getvalue()


def updated(page: str) -> str:
    """The page with all its tables as their commands print them now."""
    return TABLE.sub(lambda match: f"{match[1]}\n{printed(match[2])}\n{match[4]}", page)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = updated(before)
    if "--check" in sys.argv[1:]:
        sys.exit(after != before)
    PAGE.write_text(after)
