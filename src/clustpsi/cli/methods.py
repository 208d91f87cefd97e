"""``clustpsi methods``: what there is to compare."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from clustpsi.methods import method_types, parameters_of


def command(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the methods: family, idea, parameters with their defaults, paper."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "family": kind.family,
            "idea": kind.idea,
            "parameters": {key: kind.__dataclass_fields__[key].default for key in parameters_of(kind)},
            "paper": kind.paper,
        }
        for name, kind in method_types().items()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("name", "family", "idea", "parameters (default)", "paper", show_lines=True)
    for row in rows:
        parameters = "\n".join(
            f"{key} ({'auto' if value is None else value})" for key, value in row["parameters"].items()
        )
        table.add_row(row["name"], row["family"], row["idea"], parameters, row["paper"])
    Console().print(table)
