"""Our recorded runs next to the paper's figures, for a data set and a partition that the user picks."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from clustpsi.errors import ClustPSIError
from clustpsi.paper import DATASETS, NUM_CLIENTS
from clustpsi.recorded import recorded_runs
from clustpsi.report.charts import Chart, accuracy_by_method
from clustpsi.report.look import Theme
from clustpsi.report.tables import (
    Level,
    comparable,
    having,
    level_order,
    level_title,
    method_order,
    score_table,
    with_server_rows,
)

#: The paper's two tables: score, title, and the score that follows the ±.
SCORES = {
    "global_accuracy": ("Accuracy ± spread over seeds", None),
    "ad": ("AD ± SDAD: less is better", "sdad"),
}


@dataclass(frozen=True)
class Line:
    """A method under one partition: our score, the paper's, and the score of each seed."""

    method: str
    mean: float
    spread: float
    paper_mean: float
    paper_spread: float
    seeds: dict[int, float]
    best: bool

    @property
    def difference(self) -> float:
        return self.mean - self.paper_mean


@cache
def _runs(dataset: str) -> pd.DataFrame:
    if dataset not in DATASETS:
        raise ClustPSIError(f"the paper has no data set {dataset!r}: it has {', '.join(DATASETS)}")
    return recorded_runs(dataset)


def client_numbers(dataset: str) -> list[int]:
    """Numbers of clients in the recorded runs on a data set, the paper's first."""
    return sorted(map(int, _runs(dataset)["num_clients"].dropna().unique()), reverse=True)


@cache
def _table(dataset: str, score: str, num_clients: int) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    """The cells of the table, the runs behind them, and notes."""
    if score not in SCORES:
        raise ClustPSIError(f"there is no table of {score!r}: choose {' or '.join(SCORES)}")
    runs = _runs(dataset)
    sheet = score_table(runs, score, spread=SCORES[score][1], num_clients=num_clients, against_paper=True)
    single = with_server_rows(having(comparable(runs, num_clients), score)[0], score)
    return sheet.frame, single, tuple(sheet.notes)


def levels(dataset: str, num_clients: int) -> dict[str, Level]:
    """The partitions that have runs, by title, from the least to the most skewed."""
    _, single, _ = _table(dataset, "global_accuracy", num_clients)
    federated = single[~single["method"].str.startswith("centralized")]
    return {level_title(level): level for level in level_order(federated["level"])}


def methods(dataset: str, num_clients: int) -> list[str]:
    """The methods that have runs, in the paper's order."""
    return method_order(_table(dataset, "global_accuracy", num_clients)[1]["method"].unique())


def check(
    dataset: str | None,
    clients: str | None,
    level: str | None,
    score: str | None,
    chosen: list[str] | None,
) -> None:
    """Raise if there are no such runs; what is None is not asked for."""
    if score is not None and score not in SCORES:
        raise ClustPSIError(f"there is no table of {score!r}: choose {' or '.join(SCORES)}")
    if dataset is None:
        return
    numbers = client_numbers(dataset)
    if clients is not None and clients not in map(str, numbers):
        raise ClustPSIError(f"there are no runs with {clients} clients: choose {' or '.join(map(str, numbers))}")
    number = numbers[0] if clients is None else int(clients)
    if level is not None and level not in (known := levels(dataset, number)):
        raise ClustPSIError(f"there are no runs at {level}: choose one of {', '.join(known)}")
    if chosen and set(chosen).isdisjoint(known_methods := methods(dataset, number)):  # one of several may be lacking
        raise ClustPSIError(f"there are no runs of {', '.join(chosen)}: choose from {', '.join(known_methods)}")


def lines(dataset: str, num_clients: int, level: str, score: str, chosen: list[str] | None = None) -> list[Line]:
    """The table of one partition, one line per method (by default, all methods)."""
    known = levels(dataset, num_clients)
    if level not in known:
        raise ClustPSIError(f"there are no runs at {level}: choose one of {', '.join(known)}")
    cells, single, _ = _table(dataset, score, num_clients)
    how, value = known[level]
    found = []
    for cell in cells.to_dict("records"):
        method = str(cell["method"])
        central = method.startswith("centralized")  # the same under every partition
        here = cell["partitioner"] == how and (cell["non_iid_param"] == value or value is None)
        if not (central or here) or (chosen and method not in chosen):
            continue
        has_paper = central or num_clients == NUM_CLIENTS
        own = single[single["method"] == method]
        own = own if central else own[own["level"] == (how, value)]
        if own.empty:
            continue
        seeds = dict(zip(map(int, own["seed"]), own[f"last_{score}"].astype(float), strict=True))
        found.append(
            Line(
                method,
                float(cell["mean"]),
                float(cell["spread"]),
                float(cell["paper_mean"]) if has_paper else np.nan,
                float(cell["paper_spread"]) if has_paper else np.nan,
                seeds,
                bool(cell["best"]),
            )
        )
    return found


def notes(dataset: str, num_clients: int, score: str) -> list[str]:
    """What a reader of the table should know."""
    told = _table(dataset, score, num_clients)[2]
    own = [note for note in told if not note.startswith(("†", "second line", "empty", "---"))]  # about the sheet
    if num_clients != NUM_CLIENTS:
        own.append(f"the paper reports {NUM_CLIENTS} clients only")
    return own


def chart(found: list[Line], score: str, theme: Theme) -> Chart:
    """Our scores with one tick per seed, and the paper's scores."""
    ours = {line.method: list(line.seeds.values()) for line in found if line.seeds}
    theirs = {line.method: line.paper_mean for line in found if line.seeds and not np.isnan(line.paper_mean)}
    title = "accuracy" if score == "global_accuracy" else "AD"
    return accuracy_by_method(ours, theme=theme, score=title, paper=theirs)
