"""The paper's two big tables, from runs: global accuracy, and the clients' distance from a perfect model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from clustpsi.config import Config
from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method
from clustpsi.report import paper
from clustpsi.report.sheet import Entry, Line, Sheet

Level = tuple[str, float | None]

#: What the rows and columns of tables are made of, and what does not change a score.
VARIED = ("dataset", "partitioner", "non_iid_param", "num_clients", "agg_method", "seed", "eval_every")

#: All other settings: the runs of a data set must agree in them to stand in one table.
SHARED = tuple(each.name for each in fields(Config) if each.name not in VARIED)

#: Marks a row with scores as the literature's code takes them, on the server, where they differ from the clients' own.
SERVER = " (server)"


@dataclass(frozen=True)
class Measure:
    """What a table shows: a score of the last round, and what follows the ±."""

    name: str
    title: str
    score: str
    server_score: str
    spread: str | None  # a score of its own, or None for the standard deviation over seeds
    server_spread: str | None
    sign: int  # +1 if more is better


MEASURES = {
    "global": Measure(
        "global",
        "Global accuracy (mean ± standard deviation over seeds)",
        "global_accuracy",
        "server_accuracy",
        None,
        None,
        +1,
    ),
    "local": Measure(
        "local",
        "Clients' distance from accuracy 1 (AD ± SDAD, means over seeds)",
        "ad",
        "server_ad",
        "sdad",
        "server_sdad",
        -1,
    ),
}


def check_comparable(runs: pd.DataFrame, which: str) -> None:
    """Refuse runs that may not stand side by side; ``which`` is what they are called in the sentence."""
    for setting in SHARED:
        values = runs[setting].drop_duplicates()
        if len(values) > 1:
            named = ", ".join("none" if pd.isna(value) else str(value) for value in values)
            raise ClustPSIError(
                f"{which} differ in {setting} ({named}): choose which to compare, with --where {setting}=..."
            )


def comparable(runs: pd.DataFrame, num_clients: int | None = None) -> pd.DataFrame:
    """The finished runs that may stand side by side, with columns ``method`` (its row) and ``level`` (its column).

    Parameters
    ----------
    runs
        From :func:`clustpsi.report.runs.read_runs`.
    num_clients
        K; by default the largest in the runs.  Centralized learning is the same for every K.
    """
    runs = runs[runs["status"] == "finished"]
    central = _is_central(runs["agg_method"])
    clients = runs.loc[~central, "num_clients"].dropna()
    wanted = num_clients if num_clients is not None else (clients.max() if len(clients) else None)
    of_size = runs["num_clients"].isna() | (runs["num_clients"] == wanted)
    if wanted is not None and not (of_size & ~central).any() and not central.all():
        there = ", ".join(map(str, sorted(clients.unique())))
        raise ClustPSIError(f"no run has {wanted} clients: there are runs with {there}")
    most = runs[central].groupby("dataset")["num_clients"].transform("max")
    kept = runs[~central & of_size | (runs["num_clients"] == most.reindex(runs.index)) & central]
    for dataset, group in kept.groupby("dataset", sort=False):
        check_comparable(group, f"the runs on {dataset}")
    levels = [
        (partitioner, None if pd.isna(level) else float(level))
        for partitioner, level in zip(kept["partitioner"], kept["non_iid_param"], strict=True)
    ]
    kept = kept.assign(method=kept["agg_method"], level=pd.Series(levels, index=kept.index, dtype=object))
    return kept.drop_duplicates(["dataset", "method", "level", "seed"])


def with_server_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Add, for methods whose scores on the server differ from the clients' own, rows with those."""
    if "last_server_accuracy" not in runs:
        return runs
    scored = runs[runs["last_server_accuracy"].notna()]
    differs = ~np.isclose(scored["last_server_accuracy"], scored["last_global_accuracy"], rtol=0, atol=1e-12)
    added = scored[scored["method"].isin(scored.loc[differs, "method"])]
    columns = {
        f"last_{own}": added[f"last_{server}"]
        for measure in MEASURES.values()
        for own, server in ((measure.score, measure.server_score), (measure.spread, measure.server_spread))
        if own is not None
    }
    return pd.concat([runs, added.assign(method=added["method"] + SERVER, **columns)], ignore_index=True)


def method_title(method: str) -> str:
    """What a row is called: the method's title and those of its parameters that differ from the defaults.

    >>> method_title("clust_psi_pfl:psi_features=signed")
    'Clust-PSI-PFL (psi_features=signed)'
    """
    spec = method.removesuffix(SERVER)
    _, _, parameters = spec.partition(":")
    try:
        title = make_method(spec).title
    except ClustPSIError:  # of a package that is not installed here
        return method
    return title + (f" ({parameters.replace(':', ', ')})" if parameters else "") + method.removeprefix(spec)


def method_order(methods: Iterable[str]) -> list[str]:
    """The paper's methods as it orders them, then others, then scores on the server."""
    rank = {name: i for i, name in enumerate(paper.METHODS)}
    return sorted(methods, key=lambda method: (rank.get(method, len(rank)), method.endswith(SERVER), method))


def level_title(level: Level) -> str:
    """Heading of a column.

    >>> level_title(("dirichlet", 0.3)), level_title(("similarity", 0.0)), level_title(("iid", None))
    ('α=0.3', 'S=0', 'iid')
    """
    partitioner, value = level
    symbol = {"dirichlet": "α", "similarity": "S"}.get(partitioner)
    return partitioner if symbol is None else f"{symbol}={value:g}"


def level_order(levels: Iterable[Level]) -> list[Level]:
    """From the least to the most skewed: Dirichlet, Similarity, others."""
    rank = {"dirichlet": 0, "similarity": 1, "iid": 2}
    return sorted(set(levels), key=lambda level: (rank.get(level[0], 3), -(level[1] or 0.0)))


def score_table(
    runs: pd.DataFrame,
    kind: str,
    *,
    num_clients: int | None = None,
    seeds: int | None = None,
    against_paper: bool = False,
    digits: int = 2,
) -> Sheet:
    """The paper's table ``global`` or ``local`` from runs.

    Best values (at the printed precision) are bold; "---" is an infeasible partition, an empty cell was not run; cells
    with fewer than ``seeds`` runs (by default, the most that any cell has) are marked.
    """
    measure = MEASURES[kind]
    chosen = with_server_rows(comparable(runs, num_clients))
    if kind == "local":  # there are no clients where all data is in one place
        chosen = chosen[~_is_central(chosen["method"])]
    if chosen.empty:
        raise ClustPSIError(f"none of these runs belongs in the {kind} table")
    clients = chosen.loc[~_is_central(chosen["method"]), "num_clients"].dropna().unique()
    impossible = _impossible(runs, chosen["dataset"].unique(), clients)
    levels = level_order(
        [
            *chosen.loc[~_is_central(chosen["method"]), "level"],
            *(level for _, level in impossible),
            *(paper.LEVELS if set(chosen["dataset"]) & set(paper.DATASETS) else ()),
        ]
    )
    cells = _cells(chosen, measure, levels, impossible)
    cells["best"] = _best(cells, measure, digits)
    asked = seeds or int(cells["seeds"].max())
    few = (cells["seeds"] > 0) & (cells["seeds"] < asked)
    cells["text"] = [
        _text(cell, digits, is_few, against_paper) for cell, is_few in zip(cells.to_dict("records"), few, strict=True)
    ]
    sections = [
        (
            paper.DATASETS.get(str(dataset), str(dataset)),
            [
                Line(method_title(str(method)), tuple(map(Entry, row["text"], row["best"])), spans=row["spans"].iloc[0])
                for method, row in group.groupby("method", sort=False)
            ],
        )
        for dataset, group in cells.groupby("dataset", sort=False)
    ]
    size = f", {clients[0]} clients" if len(clients) else ""
    notes = [f"† fewer than {asked} seeds"] if few.any() else []
    if (cells["infeasible"]).any():
        notes.append("--- infeasible partition")
    gaps = (cells["mean"] - cells["paper_mean"]).abs().dropna()
    if against_paper:
        notes.append(
            f"second line: the paper's value and ours minus the paper's; |difference| is {gaps.mean():.3f} on average "
            f"and {gaps.median():.3f} in the median of {len(gaps)} cells"
            if len(gaps)
            else "the paper has no value for any of these cells"
        )
    return Sheet(f"{measure.title}{size}", tuple(map(level_title, levels)), sections, _frame(cells), notes)


def _is_central(methods: "pd.Series[str]") -> "pd.Series[bool]":
    central: pd.Series[bool] = methods.str.split(":").str[0] == "centralized"
    return central


def _impossible(runs: pd.DataFrame, datasets: Iterable[str], clients: Iterable[int]) -> set[tuple[str, Level]]:
    """The cells without a partition: those the store says so of, and those the paper says so of."""
    found: set[tuple[str, Level]] = {(name, (how, level)) for name, how, level in paper.INFEASIBLE if name in datasets}
    none = runs[(runs["status"] == "infeasible") & runs["dataset"].isin(datasets) & runs["num_clients"].isin(clients)]
    return found | {
        (dataset, (how, None if pd.isna(level) else float(level)))
        for dataset, how, level in zip(none["dataset"], none["partitioner"], none["non_iid_param"], strict=True)
    }


def _cells(
    chosen: pd.DataFrame, measure: Measure, levels: Sequence[Level], impossible: set[tuple[str, Level]]
) -> pd.DataFrame:
    """A row for each cell of the table, in its order; centralized learning has a single one for all columns."""
    score, spread = f"last_{measure.score}", measure.spread and f"last_{measure.spread}"
    theirs = _paper_scores(measure)
    # Sorted, so that a mean does not depend on the order in which runs were found.
    groups: dict[Any, pd.DataFrame] = dict(iter(chosen.sort_values("seed").groupby(["dataset", "method", "level"])))
    rows = []
    for dataset in sorted(chosen["dataset"].unique(), key=_dataset_rank):
        for method in method_order(chosen.loc[chosen["dataset"] == dataset, "method"].unique()):
            spans = method.startswith("centralized")
            own = [level for d, m, level in groups if (d, m) == (dataset, method)] if spans else levels
            for level in own:
                group = groups.get((dataset, method, level), chosen.iloc[:0])
                base = method.removesuffix(SERVER)
                paper_mean, paper_spread = theirs.get((dataset, base, "any" if spans else level), (np.nan, np.nan))
                rows.append(
                    {
                        "dataset": dataset,
                        "method": method,
                        "level": level,
                        "spans": spans,
                        "mean": group[score].mean(),
                        "spread": group[spread].mean() if spread else _deviation(group[score]),
                        "seeds": len(group),
                        "infeasible": group.empty and (dataset, level) in impossible,
                        "paper_mean": paper_mean,
                        "paper_spread": paper_spread,
                    }
                )
    return pd.DataFrame(rows)


def _deviation(values: "pd.Series[float]") -> float:
    """Over seeds: a single one says nothing about it."""
    return float(values.std(ddof=0)) if len(values) > 1 else np.nan


def _dataset_rank(name: str) -> tuple[int, str]:
    known = list(paper.DATASETS)
    return (known.index(name) if name in known else len(known), name)


def _paper_scores(measure: Measure) -> dict[tuple[str, str, Level | str], tuple[float, float]]:
    """The paper's mean and spread by data set, method and level ("any" for centralized learning)."""
    table = paper.global_accuracy() if measure.name == "global" else paper.local_distance()
    scores = {}
    for dataset, method, how, level, mean, spread in table.itertuples(index=False):
        scores[dataset, method, "any" if how == "any" else (how, level)] = (mean, spread)
    return scores


def _best(cells: pd.DataFrame, measure: Measure, digits: int) -> "pd.Series[bool]":
    value = (measure.sign * cells["mean"]).round(digits).where(~cells["spans"])
    best = value.groupby([cells["dataset"], cells["level"]]).transform("max")
    is_best: pd.Series[bool] = value == best
    return is_best


def _text(cell: Mapping[Any, Any], digits: int, few: bool, against_paper: bool) -> tuple[str, ...]:
    if cell["seeds"] == 0:
        return ("---" if cell["infeasible"] else "",)
    spread = "" if np.isnan(cell["spread"]) else f" ± {cell['spread']:.{digits}f}"
    ours = f"{cell['mean']:.{digits}f}{spread}{' †' if few else ''}"
    if not against_paper or np.isnan(cell["paper_mean"]):
        return (ours,)
    return (ours, f"{cell['paper_mean']:.2f} {cell['mean'] - cell['paper_mean']:+.{digits}f}")


def _frame(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with all digits, for CSV."""
    frame = cells.assign(
        partitioner=[level[0] for level in cells["level"]],
        non_iid_param=[level[1] for level in cells["level"]],
        difference=cells["mean"] - cells["paper_mean"],
    )
    columns = ["dataset", "method", "partitioner", "non_iid_param", "mean", "spread", "seeds", "infeasible", "best"]
    return frame[[*columns, "paper_mean", "paper_spread", "difference"]]
