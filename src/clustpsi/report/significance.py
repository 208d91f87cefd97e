"""Which differences between methods are real: paired tests over seeds.

Two methods with the same seed share partition, split, initial model and batch order, so their scores are compared in
pairs.  In each cell: a paired t-test over seeds.  Over all cells of a data set: Wilcoxon's signed-rank test over the
pairs of all cells and seeds.  Both are corrected after Holm for the number of comparisons in their table.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import make_method, method_spec
from clustpsi.report import paper
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.report.tables import (
    MEASURES,
    comparable,
    level_order,
    level_title,
    method_order,
    method_title,
    with_server_rows,
)

LEVEL = 0.05


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's correction: p-values that may each be held against the level; NaN (no test) stays and is not counted.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    corrected = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if not np.isnan(p[i])]
    steps = [(len(order) - rank) * p[i] for rank, i in enumerate(order)]
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if steps else []
    return corrected


def paired_t_test(differences: ArrayLike) -> float:
    """p-value of a paired t-test; NaN for fewer than two pairs, 1 where nothing differs.

    >>> paired_t_test([0.0, 0.0, 0.0]), round(paired_t_test([1.0, 2.0, 3.0]), 4)
    (1.0, 0.0742)
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        return float("nan")
    if np.ptp(values) == 0:  # no variance to estimate: no difference at all, or a constant one
        return 1.0 if values[0] == 0 else 0.0
    from scipy import stats

    return float(stats.ttest_1samp(values, 0.0).pvalue)


def signed_rank_test(differences: ArrayLike) -> float:
    """p-value of Wilcoxon's signed-rank test; NaN for fewer than two pairs, 1 where nothing differs."""
    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        return float("nan")
    from scipy import stats

    return 1.0 if not values.any() else float(stats.wilcoxon(values, zero_method="pratt").pvalue)


def difference_tables(
    runs: pd.DataFrame, kind: str, reference: str, num_clients: int | None = None
) -> tuple[Sheet, Sheet]:
    """A method against every other: cell by cell, and over all cells of a data set.

    Parameters
    ----------
    runs
        From :func:`clustpsi.report.runs.read_runs`.
    kind
        ``global`` (accuracy) or ``local`` (AD).
    reference
        The method.
    num_clients
        As for the tables.
    """
    measure = MEASURES[kind]
    chosen = with_server_rows(comparable(runs, num_clients))
    chosen = chosen[~chosen["method"].str.startswith("centralized")]
    reference = method_spec(make_method(reference))
    if reference not in set(chosen["method"]):
        raise unknown_name("method among the runs", reference, set(chosen["method"]))
    score = f"last_{measure.score}"
    keys = ["dataset", "level", "seed"]
    ours = chosen.loc[chosen["method"] == reference, [*keys, score]]
    pairs = chosen[chosen["method"] != reference].merge(ours, on=keys, suffixes=("", "_reference"))
    if pairs.empty:
        raise ClustPSIError(f"no other method has runs with the same partitions and seeds as {reference}")
    pairs["difference"] = pairs[f"{score}_reference"] - pairs[score]
    pairs = pairs.sort_values("seed")
    by_cell = _tested(pairs, ["dataset", "method", "level"], paired_t_test)
    overall = _tested(pairs, ["dataset", "method"], signed_rank_test)
    for table in (by_cell, overall):
        table["verdict"] = [
            _verdict(*row) for row in zip(table["difference"] * measure.sign, table["p_holm"], strict=True)
        ]
    return _cell_sheet(by_cell, reference, measure.score), _overall_sheet(overall, reference, measure.score)


def _tested(pairs: pd.DataFrame, keys: list[str], test: Callable[[ArrayLike], float]) -> pd.DataFrame:
    rows = []
    for names, group in pairs.groupby(keys, sort=False):
        row = dict(zip(keys, names, strict=True))
        differences = group["difference"].to_numpy()
        rows.append({**row, "pairs": len(group), "difference": differences.mean(), "p": test(differences)})
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"])
    return table


def _verdict(gain: float, p: float) -> str:
    if np.isnan(p):
        return "untested"
    return "not shown" if p >= LEVEL else "better" if gain > 0 else "worse"


def _cell_sheet(table: pd.DataFrame, reference: str, score: str) -> Sheet:
    levels = level_order(table["level"])
    sections = []
    for dataset, group in table.groupby("dataset", sort=False):
        lines = []
        for method in method_order(group["method"].unique()):
            of_level = {cell["level"]: cell for cell in group[group["method"] == method].to_dict("records")}
            lines.append(Line(method_title(method), tuple(_entry(of_level.get(level)) for level in levels)))
        sections.append((paper.DATASETS.get(str(dataset), str(dataset)), lines))
    frame = table.assign(
        partitioner=[level[0] for level in table["level"]], non_iid_param=[level[1] for level in table["level"]]
    )
    columns = ["dataset", "method", "partitioner", "non_iid_param", "pairs", "difference", "p", "p_holm", "verdict"]
    seeds = (
        f"{table['pairs'].min()} to {table['pairs'].max()}" if table["pairs"].nunique() > 1 else table["pairs"].max()
    )
    return Sheet(
        f"{method_title(reference)} minus each method: {score}, paired t-test over seeds",
        tuple(map(level_title, levels)),
        sections,
        frame[columns],
        [f"bold: p < {LEVEL} after Holm's correction for {table['p'].notna().sum()} comparisons; {seeds} seeds a cell"],
    )


def _entry(cell: Mapping[Any, Any] | None) -> Entry:
    if cell is None:
        return Entry()
    p = "-" if np.isnan(cell["p_holm"]) else f"{cell['p_holm']:.2g}"
    return Entry((f"{cell['difference']:+.3f}", f"p {p}"), bold=cell["verdict"] in ("better", "worse"))


def _overall_sheet(table: pd.DataFrame, reference: str, score: str) -> Sheet:
    sections = []
    for dataset, group in table.groupby("dataset", sort=False):
        of_method: dict[str, Any] = {row["method"]: row for row in group.to_dict("records")}
        lines = []
        for method in method_order(of_method):
            row = of_method[method]
            texts = (f"{row['difference']:+.3f}", str(row["pairs"]), f"{row['p_holm']:.2g}", row["verdict"])
            bold = row["verdict"] in ("better", "worse")
            lines.append(Line(method_title(method), tuple(Entry((text,), bold) for text in texts)))
        sections.append((paper.DATASETS.get(str(dataset), str(dataset)), lines))
    return Sheet(
        f"{method_title(reference)} minus each method: {score}, Wilcoxon's signed-rank test over cells and seeds",
        ("mean difference", "pairs", "p (Holm)", f"{method_title(reference)} is"),
        sections,
        table,
        [f"better, worse: p < {LEVEL} after Holm's correction for {table['p'].notna().sum()} comparisons"],
    )
