"""Which differences between methods are real: paired tests over seeds.

Two methods with the same seed share partition, split, initial model and batch order.  So their scores are compared in
pairs, one pair per seed.  In each cell (a data set and a level) there is a paired t-test over seeds.  Over all cells of
a data set there is a paired t-test over the seeds' means over cells.  The cells of one seed depend on each other, so
they do not count as separate pairs.  With five pairs, Wilcoxon's signed-rank test could never give less than
p = 0.0625, so it is not used.  A test over seeds generalizes to other partitions and initial models of this data set,
not to other data sets or levels.

Tests have Holm's correction for the number of comparisons in their table.  Methods whose results are the same bit for
bit count as one comparison.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method, method_spec, short_spec
from clustpsi.printing import counted
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.report.tables import (
    SCORES,
    SERVER,
    Level,
    comparable,
    dataset_rank,
    dataset_title,
    having,
    is_central,
    left_out_notes,
    level_order,
    level_title,
    method_order,
    method_title,
    with_server_rows,
)

LEVEL = 0.05
FEWEST_PAIRS = 3
ROUNDING = 1e-9  # differences that vary by no more than this count as constant


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's correction: p-values that can each be compared with the level; NaN (no test) stays and does not count.

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
    """p-value of a paired t-test; NaN for fewer than three pairs or differences that do not vary.

    >>> round(paired_t_test([1.0, 2.0, 3.0]), 4), paired_t_test([0.1, 0.1 + 1e-15, 0.1])
    (0.0742, nan)
    """
    values = np.asarray(differences, np.float64)
    if len(values) < FEWEST_PAIRS or np.ptp(values) <= ROUNDING:
        return float("nan")
    from scipy import stats

    return float(stats.ttest_1samp(values, 0.0).pvalue)


def reference_among(runs: pd.DataFrame, reference: str) -> str:
    """The specification of the method that others are compared with; it must be among the runs."""
    spec, methods = method_spec(make_method(reference)), set(runs["method"])
    if spec not in methods:
        there = ", ".join(short_spec(name) for name in method_order(methods) if not name.endswith(SERVER))
        raise ClustPSIError(
            f"no run of {short_spec(spec)} is here, with which the others would be compared: name another method with "
            f"--reference ({there or 'there is none'})"
        )
    return spec


def difference_tables(
    runs: pd.DataFrame, reference: str, score: str = "global_accuracy", *, num_clients: int | None = None
) -> tuple[Sheet, Sheet]:
    """A method against every other: cell by cell, and over all cells of a data set.

    Parameters
    ----------
    runs
        From :func:`clustpsi.runs.frame.read_runs`.
    reference
        The method.
    score
        One of :data:`clustpsi.report.tables.SCORES`.
    num_clients
        K, see :func:`clustpsi.report.tables.comparable`.
    """
    chosen, notes = having(comparable(runs, num_clients), score)
    chosen = with_server_rows(chosen[~is_central(chosen["method"])], score)
    reference = reference_among(chosen, reference)
    column = f"last_{score}"
    keys = ["dataset", "level", "seed"]
    ours = chosen.loc[chosen["method"] == reference, [*keys, column]]
    pairs = chosen[chosen["method"] != reference].merge(ours, on=keys, suffixes=("", "_reference"))
    if pairs.empty:
        raise ClustPSIError(f"no other method has runs with the same partitions and seeds as {reference}")
    pairs["difference"] = pairs[f"{column}_reference"] - pairs[column]
    pairs = pairs.sort_values("seed", kind="stable")
    same_as = _identical(chosen, reference)
    notes += left_out_notes(chosen)
    by_cell, overall = _by_cell(pairs, same_as), _overall(pairs, same_as)
    for table in (by_cell, overall):
        table["p_holm"] = holm(table["p"])
        gains = table["difference"] * SCORES[score].sign
        table["verdict"] = [_verdict(*row) for row in zip(table["same_as"], gains, table["p_holm"], strict=True)]
    return _cell_sheet(by_cell, reference, score, notes), _overall_sheet(overall, reference, score, notes)


def _identical(chosen: pd.DataFrame, reference: str) -> dict[tuple[str, str], str]:
    """For each data set and method, an earlier method (or the reference) whose results are the same bit for bit.

    The results are all scores of the last round in all cells and seeds, without scores on the server.
    """
    scores = [name for name in map(str, chosen) if name.startswith("last_") and not name.startswith("last_server_")]
    found: dict[tuple[str, str], str] = {}
    for dataset, group in chosen.groupby("dataset", sort=False):
        names = [name for name in method_order(group["method"].unique()) if not name.endswith(SERVER)]
        first: dict[str, str] = {}
        for method in sorted(names, key=lambda name: name != reference):
            rows = group[group["method"] == method].sort_values(["level", "seed"])
            results = rows[["level", "seed", *scores]].to_csv(index=False)  # with every digit
            if results in first:
                found[str(dataset), method] = first[results]
            first.setdefault(results, method)
    return found


def _by_cell(pairs: pd.DataFrame, same_as: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """One row per data set, method and level."""
    rows = []
    for names, group in pairs.groupby(["dataset", "method", "level"], sort=False):
        dataset, method, level = cast("tuple[str, str, Level]", names)
        differences = group["difference"].to_numpy()
        same = same_as.get((dataset, method), "")
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "level": level,
                "pairs": len(differences),
                "difference": differences.mean(),
                "p": float("nan") if same else paired_t_test(differences),
                "same_as": same,
            }
        )
    return pd.DataFrame(rows)


def _overall(pairs: pd.DataFrame, same_as: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """One row per data set and method; a pair is the mean over all cells of one seed that has them all."""
    rows = []
    for names, group in pairs.groupby(["dataset", "method"], sort=False):
        dataset, method = cast("tuple[str, str]", names)
        cells = group["level"].nunique()
        of_seed = group.groupby("seed")["difference"]
        complete = of_seed.count() == cells
        differences = of_seed.mean()[complete].to_numpy()
        of_cell = group[group["seed"].map(complete)].groupby("level")["difference"].mean()
        same = same_as.get((dataset, method), "")
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "cells": cells,
                "pairs": len(differences),
                "incomplete": int((~complete).sum()),
                "difference": differences.mean() if len(differences) else float("nan"),
                "least": of_cell.min(),
                "most": of_cell.max(),
                "p": float("nan") if same else paired_t_test(differences),
                "same_as": same,
            }
        )
    return pd.DataFrame(rows)


def _verdict(same_as: str, gain: float, p: float) -> str:
    if same_as:
        return "identical"
    if np.isnan(p):
        return "untested"
    return "not shown" if p >= LEVEL else "better" if gain > 0 else "worse"


def _cell_sheet(table: pd.DataFrame, reference: str, score: str, notes: Sequence[str]) -> Sheet:
    levels = level_order(table["level"])
    sections = []
    for dataset in sorted(table["dataset"].unique(), key=dataset_rank):
        group = table[table["dataset"] == dataset]
        lines = []
        for method in method_order(group["method"].unique()):
            of_level = {cell["level"]: cell for cell in group[group["method"] == method].to_dict("records")}
            lines.append(Line(method_title(method), tuple(_entry(of_level.get(level)) for level in levels)))
        sections.append((dataset_title(dataset), lines))
    frame = table.assign(
        partitioner=[level[0] for level in table["level"]], non_iid_param=[level[1] for level in table["level"]]
    )
    columns = ["dataset", "method", "partitioner", "non_iid_param", "pairs", "difference", "p", "p_holm", "verdict"]
    return Sheet(
        f"{method_title(reference)} minus each method: {score}, paired t-test over seeds",
        tuple(map(level_title, levels)),
        sections,
        frame[[*columns, "same_as"]],
        [*_explained(table, "bold", "="), *notes],
    )


def _entry(cell: Mapping[Any, Any] | None) -> Entry:
    if cell is None:
        return Entry()
    if cell["same_as"]:
        return Entry((f"= {method_title(cell['same_as'])}",))
    p = "-" if np.isnan(cell["p_holm"]) else f"{cell['p_holm']:.2g}"
    return Entry((f"{cell['difference']:+.3f}", f"p {p}"), bold=cell["verdict"] in ("better", "worse"))


def _overall_sheet(table: pd.DataFrame, reference: str, score: str, notes: Sequence[str]) -> Sheet:
    sections = []
    for dataset in sorted(table["dataset"].unique(), key=dataset_rank):
        of_method: dict[str, Any] = {
            row["method"]: row for row in table[table["dataset"] == dataset].to_dict("records")
        }
        lines = []
        for method in method_order(of_method):
            row = of_method[method]
            p = "-" if np.isnan(row["p_holm"]) else f"{row['p_holm']:.2g}"
            verdict = f"identical to {method_title(row['same_as'])}" if row["same_as"] else row["verdict"]
            span = f"{row['least']:+.3f} to {row['most']:+.3f}"
            texts = (f"{row['difference']:+.3f}", span, str(row["cells"]), str(row["pairs"]), p, verdict)
            bold = row["verdict"] in ("better", "worse")
            lines.append(Line(method_title(method), tuple(Entry((text,), bold) for text in texts)))
        sections.append((dataset_title(dataset), lines))
    incomplete = int(table["incomplete"].max())
    return Sheet(
        f"{method_title(reference)} minus each method: {score}, paired t-test over the seeds' means over cells",
        ("mean difference", "in single cells", "cells", "seeds", "p (Holm)", f"{method_title(reference)} is"),
        sections,
        table.drop(columns="incomplete"),
        [
            *_explained(table, "better, worse", "identical"),
            "a pair is a seed: the test generalizes over the partitions and initial models that other seeds would draw "
            "of the same data set at these levels, not over other data sets or levels",
            *([f"up to {counted(incomplete, 'seed')} without a run in every cell omitted"] if incomplete else []),
            *notes,
        ],
    )


def _explained(table: pd.DataFrame, shown: str, identical: str) -> list[str]:
    """What the marks in a table mean: real differences, untested ones, identical methods."""
    notes = []
    tested = table["p"].notna()
    if tested.any():
        pairs = table.loc[tested, "pairs"]
        seeds = f"{pairs.max()} seeds" if pairs.nunique() == 1 else f"{pairs.min()} to {pairs.max()} seeds"
        comparisons = counted(tested.sum(), "comparison")
        notes.append(f"{shown}: p < {LEVEL} after Holm's correction for {comparisons}; {seeds}")
    if (table["verdict"] == "untested").any():
        notes.append(f"p -: untested, with fewer than {FEWEST_PAIRS} seeds or a difference that does not vary")
    if (table["verdict"] == "identical").any():
        notes.append(f"{identical}: the same results bit for bit, so that one comparison counts for both")
    return notes
