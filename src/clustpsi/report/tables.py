"""Tables of scores from runs: the paper's two (global accuracy and distance from accuracy 1) and others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from clustpsi import paper
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import make_method, short_spec
from clustpsi.printing import counted
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.runs.frame import check_comparable

Level = tuple[str, float | None]

#: Marks a row with scores on the server, as code of the literature takes them, if they differ from the clients' own.
SERVER = " (server)"


@dataclass(frozen=True)
class Score:
    """A score of a run's last round."""

    title: str
    sign: int  # +1 if more is better
    server: str | None = None  # the same score, taken on the server
    of_clients: bool = False  # about single clients, which centralized learning does not have


#: The scores that tables and tests can show, by their names in the files of a run.
SCORES = {
    "global_accuracy": Score("Global accuracy", +1, "server_accuracy"),
    "balanced_accuracy": Score("Balanced accuracy, the mean recall of the classes", +1),
    "macro_f1": Score("Macro F1, the mean F1 of the classes", +1),
    "worst10": Score("Accuracy of the tenth of the clients that fare worst", +1, of_clients=True),
    "loss": Score("Test loss, less is better", -1),
    "ad": Score("AD, the clients' distance from accuracy 1, less is better", -1, "server_ad", of_clients=True),
    "sdad": Score("SDAD, the spread of the clients' distances from accuracy 1", -1, "server_sdad", of_clients=True),
}


def comparable(runs: pd.DataFrame, num_clients: int | None = None) -> pd.DataFrame:
    """The finished runs that can be compared, with columns ``method`` (the row) and ``level`` (the column).

    Parameters
    ----------
    runs
        From :func:`clustpsi.runs.frame.read_runs`.
    num_clients
        K; by default the largest in the runs.  Centralized learning is the same for every K.
    """
    runs = runs[runs["status"] == "finished"]
    central = is_central(runs["agg_method"])
    clients = runs.loc[~central, "num_clients"].dropna()
    wanted = num_clients if num_clients is not None else (clients.max() if len(clients) else None)
    of_size = runs["num_clients"].isna() | (runs["num_clients"] == wanted)
    if wanted is not None and not (of_size & ~central).any() and not central.all():
        there = ", ".join(map(str, sorted(clients.unique())))
        raise ClustPSIError(f"no run has {counted(wanted, 'client')}: there are runs with {there}")
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


def having(runs: pd.DataFrame, score: str) -> tuple[pd.DataFrame, list[str]]:
    """The runs that have a score, and a sentence about those without it."""
    if score not in SCORES:
        raise unknown_name("score", score, SCORES)
    known = [name for name in SCORES if f"last_{name}" in runs and runs[f"last_{name}"].notna().any()]
    if score not in known:
        raise ClustPSIError(
            f"none of these runs has {score}: they were made before it was recorded; they have {', '.join(known)}"
        )
    lacking = runs[f"last_{score}"].isna()
    notes = [f"{counted(lacking.sum(), 'run')} without {score} omitted"] if lacking.any() else []
    return runs[~lacking], notes


def with_server_rows(runs: pd.DataFrame, score: str) -> pd.DataFrame:
    """Add rows with scores on the server, for methods whose scores there differ from the clients' own."""
    names = {own: each.server for own, each in SCORES.items() if each.server is not None}
    if score not in names or "last_server_accuracy" not in runs:
        return runs
    scored = runs[runs["last_server_accuracy"].notna()]
    differs = ~np.isclose(scored["last_server_accuracy"], scored["last_global_accuracy"], rtol=0, atol=1e-12)
    added = scored[scored["method"].isin(scored.loc[differs, "method"])]
    columns = {f"last_{own}": added[f"last_{server}"] for own, server in names.items()}
    return pd.concat([runs, added.assign(method=added["method"] + SERVER, **columns)], ignore_index=True)


def left_out_notes(runs: pd.DataFrame) -> list[str]:
    """A sentence about the runs that left out some updates."""
    if "left_out" not in runs:
        return []
    hit = runs[(runs["left_out"].fillna(0) > 0) & ~runs["method"].str.endswith(SERVER)]
    if hit.empty:
        return []
    cells = []
    for names, group in hit.groupby(["dataset", "method", "level"], sort=False):
        dataset, method, level = cast("tuple[str, str, Level]", names)
        updates = counted(int(group["left_out"].sum()), "update")
        cells.append(f"{method_title(method)} at {level_title(level)} on {dataset_title(dataset)} ({updates})")
    return [f"{counted(len(hit), 'run')} left out clients whose update was not finite: {', '.join(cells)}"]


def method_title(method: str) -> str:
    """The name of a row: the method's title, its preset, and its parameters that differ from the defaults.

    >>> method_title("clust_psi_pfl:psi_features=signed")
    'Clust-PSI-PFL (psi_features=signed)'
    """
    spec = method.removesuffix(SERVER)
    try:
        title = make_method(spec).title
    except ClustPSIError:  # of a package that is not installed here
        return method
    _, _, parameters = short_spec(spec).partition(":")
    return title + (f" ({parameters.replace(':', ', ')})" if parameters else "") + method.removeprefix(spec)


def method_idea(method: str) -> str | None:
    """What a method does, in a few words.

    >>> method_idea("clust_psi_pfl:psi_features=signed")
    "K-means++ on the clients' PSI, clusters by silhouette, one model per cluster"
    """
    try:
        return make_method(method.removesuffix(SERVER)).idea
    except ClustPSIError:  # of a package that is not installed here
        return None


def method_order(methods: Iterable[str]) -> list[str]:
    """The paper's methods in its order, then others, then scores on the server."""
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


def dataset_title(name: str) -> str:
    return paper.DATASETS.get(name, name)


def score_table(
    runs: pd.DataFrame,
    score: str = "global_accuracy",
    *,
    spread: str | None = None,
    num_clients: int | None = None,
    seeds: int | None = None,
    against_paper: bool = False,
    digits: int = 2,
) -> Sheet:
    """A score of every method under every partition; the paper's two tables are ``global_accuracy`` and ``ad``.

    Best values (at the printed precision) are bold.  "---" is a partition that was tried and is infeasible.  An empty
    cell was not run.  Cells with fewer than ``seeds`` runs (by default, the largest number of any cell) are marked.

    Parameters
    ----------
    runs
        From :func:`clustpsi.runs.frame.read_runs`.
    score
        One of :data:`SCORES`.
    spread
        The score whose mean follows the ±, ``sdad`` for ``ad`` in the paper; by default the standard deviation over
        seeds.
    num_clients, seeds, digits
        K, see :func:`comparable`; the expected number of seeds; digits after the point.
    against_paper
        Add the paper's values.
    """
    chosen, notes = having(comparable(runs, num_clients), score)
    chosen = with_server_rows(chosen, score)
    if SCORES[score].of_clients:
        chosen = chosen[~is_central(chosen["method"])]
    if chosen.empty:
        raise ClustPSIError("none of these runs belongs in this table: centralized learning has no clients")
    clients = chosen.loc[~is_central(chosen["method"]), "num_clients"].dropna().unique()
    impossible = _impossible(runs, chosen["dataset"].unique(), clients)
    levels = level_order(
        [
            *chosen.loc[~is_central(chosen["method"]), "level"],
            *(level for _, level in impossible),
            *(paper.LEVELS if set(chosen["dataset"]) & set(paper.DATASETS) else ()),
        ]
    )
    cells = _cells(chosen, score, spread, levels, impossible)
    cells["best"] = _best(cells, SCORES[score].sign, digits)
    asked = seeds or int(cells["seeds"].max())
    few = (cells["seeds"] > 0) & (cells["seeds"] < asked)
    cells["text"] = [
        _text(cell, digits, is_few, against_paper) for cell, is_few in zip(cells.to_dict("records"), few, strict=True)
    ]
    sections = [
        (
            dataset_title(str(dataset)),
            [
                Line(method_title(str(method)), tuple(map(Entry, row["text"], row["best"])), spans=row["spans"].iloc[0])
                for method, row in group.groupby("method", sort=False)
            ],
        )
        for dataset, group in cells.groupby("dataset", sort=False)
    ]
    if few.any():
        notes.append(f"† fewer than {asked} seeds")
    if cells["infeasible"].any():
        notes.append("--- tried, and there is no such partition")
    if ((cells["seeds"] == 0) & ~cells["infeasible"]).any():
        notes.append("empty: not run")
    if against_paper:
        notes.append(_against_paper(cells))
    notes += left_out_notes(chosen)
    size = f", {clients[0]} clients" if len(clients) else ""
    title = (
        f"{SCORES[score].title} (mean ± standard deviation over seeds)"
        if spread is None
        else f"Clients' distance from accuracy 1 ({score.upper()} ± {spread.upper()}, means over seeds)"
    )
    return Sheet(f"{title}{size}", tuple(map(level_title, levels)), sections, _frame(cells), notes)


def is_central(methods: "pd.Series[str]") -> "pd.Series[bool]":
    central: pd.Series[bool] = methods.str.split(":").str[0] == "centralized"
    return central


def _against_paper(cells: pd.DataFrame) -> str:
    gaps = (cells["mean"] - cells["paper_mean"]).abs().dropna()
    if gaps.empty:
        return "the paper has no value for any of these cells"
    dashes = " (--- where it calls the partition infeasible)" if cells["paper_infeasible"].any() else ""
    return (
        f"second line: the paper's value{dashes} and ours minus the paper's; |difference| is {gaps.mean():.3f} on "
        f"average and {gaps.median():.3f} in the median of {len(gaps)} cells"
    )


def _impossible(runs: pd.DataFrame, datasets: Iterable[str], clients: Iterable[int]) -> set[tuple[str, Level]]:
    """The cells whose partition is infeasible, as the store recorded."""
    none = runs[(runs["status"] == "infeasible") & runs["dataset"].isin(datasets) & runs["num_clients"].isin(clients)]
    return {
        (dataset, (how, None if pd.isna(level) else float(level)))
        for dataset, how, level in zip(none["dataset"], none["partitioner"], none["non_iid_param"], strict=True)
    }


def _cells(
    chosen: pd.DataFrame, score: str, spread: str | None, levels: Sequence[Level], impossible: set[tuple[str, Level]]
) -> pd.DataFrame:
    """One row per cell of the table, in its order; centralized learning has a single cell for all columns."""
    theirs = _paper_scores(score, spread)
    # Sorted, so that a mean does not depend on the order in which runs were found.
    groups: dict[Any, pd.DataFrame] = dict(iter(chosen.sort_values("seed").groupby(["dataset", "method", "level"])))
    rows = []
    for dataset in sorted(chosen["dataset"].unique(), key=dataset_rank):
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
                        "mean": group[f"last_{score}"].mean(),
                        "spread": group[f"last_{spread}"].mean() if spread else _deviation(group[f"last_{score}"]),
                        "seeds": len(group),
                        "infeasible": group.empty and (dataset, level) in impossible,
                        "paper_mean": paper_mean,
                        "paper_spread": paper_spread,
                        "paper_infeasible": (dataset, base, level) in theirs and (dataset, *level) in paper.INFEASIBLE,
                    }
                )
    return pd.DataFrame(rows)


def _deviation(values: "pd.Series[float]") -> float:
    """Standard deviation over seeds; NaN for a single seed."""
    return float(values.std(ddof=0)) if len(values) > 1 else np.nan


def dataset_rank(name: str) -> tuple[int, str]:
    """The paper's data sets in its order, then others."""
    known = list(paper.DATASETS)
    return (known.index(name) if name in known else len(known), name)


def _paper_scores(score: str, spread: str | None) -> dict[tuple[str, str, Level | str], tuple[float, float]]:
    """The paper's mean and spread by data set, method and level ("any" for centralized learning)."""
    tables = {("global_accuracy", None): paper.global_accuracy, ("ad", "sdad"): paper.local_distance}
    if (score, spread) not in tables:
        return {}
    scores = {}
    for dataset, method, how, level, mean, deviation in tables[score, spread]().itertuples(index=False):
        scores[dataset, method, "any" if how == "any" else (how, level)] = (mean, deviation)
    return scores


def _best(cells: pd.DataFrame, sign: int, digits: int) -> "pd.Series[bool]":
    value = (sign * cells["mean"]).round(digits).where(~cells["spans"])
    best = value.groupby([cells["dataset"], cells["level"]]).transform("max")
    is_best: pd.Series[bool] = value == best
    return is_best


def _text(cell: Mapping[Any, Any], digits: int, few: bool, against_paper: bool) -> tuple[str, ...]:
    ours = "---" if cell["infeasible"] else ""
    if cell["seeds"]:
        spread = "" if np.isnan(cell["spread"]) else f" ± {cell['spread']:.{digits}f}"
        ours = f"{cell['mean']:.{digits}f}{spread}{' †' if few else ''}"
    if against_paper and cell["paper_infeasible"]:
        return (ours, "---")
    if not against_paper or not cell["seeds"] or np.isnan(cell["paper_mean"]):
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
