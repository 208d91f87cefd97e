"""The cost of methods: how many clients trained, and how much was sent."""

from typing import Any

import pandas as pd

from clustpsi.errors import ClustPSIError
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.report.tables import (
    comparable,
    dataset_rank,
    dataset_title,
    is_central,
    left_out_notes,
    level_order,
    level_title,
    method_order,
    method_title,
)

COSTS = ("participants", "bytes_up", "bytes_down")


def effort_table(runs: pd.DataFrame, *, num_clients: int | None = None) -> Sheet:
    """Clients that trained and megabytes sent in all rounds together, for every method and partition."""
    chosen = comparable(runs, num_clients)
    chosen = chosen[~is_central(chosen["method"])]
    if chosen.empty:
        raise ClustPSIError("none of these runs has clients: centralized learning trains on all data in one place")
    levels = level_order(chosen["level"])
    keys = ["dataset", "method", "level"]
    groups: dict[Any, pd.DataFrame] = dict(iter(chosen.groupby(keys)))
    sections, rows = [], []
    for dataset in sorted(chosen["dataset"].unique(), key=dataset_rank):
        lines = []
        for method in method_order(chosen.loc[chosen["dataset"] == dataset, "method"].unique()):
            entries = []
            for level in levels:
                group = groups.get((dataset, method, level))
                if group is None:
                    entries.append(Entry())
                    continue
                means = {cost: float(group[cost].mean()) for cost in COSTS}
                where = {"dataset": dataset, "method": method, "partitioner": level[0], "non_iid_param": level[1]}
                rows.append({**where, "seeds": len(group), **means})
                sent = (means["bytes_up"] + means["bytes_down"]) / 1e6
                volume = f"{sent:,.0f} MB" if sent >= 100 else f"{sent:.3g} MB"
                entries.append(Entry((f"{means['participants']:,.0f}", volume)))
            lines.append(Line(method_title(method), tuple(entries)))
        sections.append((dataset_title(dataset), lines))
    rounds = ", ".join(f"{number:g}" for number in chosen["comm_rounds"].unique())
    size = chosen["num_clients"].dropna().unique()
    title = f"Clients that trained in {rounds} rounds, and MB sent both ways (means over seeds)" + (
        f", {size[0]} clients" if len(size) else ""
    )
    notes = ["a client counts once each time it is asked to train, twice in a round of Ditto, FedRep or FedROD"]
    if any(entry == Entry() for _, lines in sections for line in lines for entry in line.entries):
        notes.append("empty: not run")
    return Sheet(title, tuple(map(level_title, levels)), sections, pd.DataFrame(rows), notes + left_out_notes(chosen))
