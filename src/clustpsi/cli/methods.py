"""``clustpsi methods``: the methods that can be compared."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clustpsi.methods import Method, method_types, parameters_of
from clustpsi.printing import console, print_table, printable


def command(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the methods: family, idea, parameters with their defaults, paper."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "family": kind.family,
            "idea": kind.idea,
            "parameters": _defaults(kind),
            "paper": kind.paper,
        }
        for name, kind in method_types().items()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("name", "family", "idea", "parameters (default)", "paper", show_lines=True)
    for row in rows:
        kind = method_types()[row["name"]]
        parameters = "\n".join(
            printable(f"{key} ({_in_words(kind, key) if value is None else value})")
            for key, value in row["parameters"].items()
        )
        table.add_row(row["name"], row["family"], row["idea"], Text(parameters), row["paper"])
    print_table(table, console())


def _in_words(kind: type[Method], key: str) -> str:
    """The default of a parameter, in the words of its help."""
    text: str = kind.__dataclass_fields__[key].metadata["help"]
    return text.partition("(default: ")[2].rpartition(")")[0]


def _defaults(kind: type[Method]) -> dict[str, Any]:
    inner = {} if kind.inner_default is None else {"inner": kind.inner_default.name}
    return inner | {key: kind.__dataclass_fields__[key].default for key in parameters_of(kind)}
