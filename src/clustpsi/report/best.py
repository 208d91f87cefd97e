"""How far a method is from the best of the others in each cell, and whether the distance is real."""

from typing import Any, cast

import numpy as np
import pandas as pd

from clustpsi.errors import ClustPSIError
from clustpsi.printing import counted
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.report.significance import FEWEST_PAIRS, LEVEL, holm, paired_t_test, reference_among
from clustpsi.report.tables import (
    SCORES,
    Level,
    comparable,
    dataset_rank,
    dataset_title,
    having,
    is_central,
    left_out_notes,
    level_order,
    level_title,
    method_title,
)


def best_table(
    runs: pd.DataFrame, reference: str, score: str = "global_accuracy", *, num_clients: int | None = None
) -> Sheet:
    """A method minus the best other method of each cell, over the seeds that both have.

    Of the other methods, those with the most of these seeds take part; a note names others that were better over fewer.
    The other method is chosen because its mean is best, which favours it.  A difference is called real after a paired
    t-test over seeds with Holm's correction for the number of tested cells.  Centralized learning and scores on the
    server do not take part.

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
    chosen = chosen[~is_central(chosen["method"])]
    reference = reference_among(chosen, reference)
    cells = _cells(chosen, reference, score)
    if cells.empty:
        raise ClustPSIError(f"no other method has runs with the same partitions and seeds as {reference}")
    cells["p_holm"] = holm(cells["p"])
    gains = cells["difference"] * SCORES[score].sign
    shown = (cells["p_holm"] < LEVEL).tolist()
    cells["verdict"] = [
        "untested" if np.isnan(p) else "not shown" if not real else "better" if gain > 0 else "worse"
        for p, real, gain in zip(cells["p"], shown, gains, strict=True)
    ]
    tested = int(cells["p"].notna().sum())
    levels = level_order(cells["level"])
    sections = []
    for dataset in sorted(cells["dataset"].unique(), key=dataset_rank):
        of_level = {row["level"]: row for row in cells[cells["dataset"] == dataset].to_dict("records")}
        entries = tuple(_entry(of_level.get(level), score) for level in levels)
        sections.append((dataset_title(dataset), [Line(method_title(reference), entries)]))
    clients = chosen["num_clients"].dropna().unique()
    size = f", {clients[0]} clients" if len(clients) else ""
    frame = cells.assign(
        partitioner=[level[0] for level in cells["level"]], non_iid_param=[level[1] for level in cells["level"]]
    )
    columns = ["dataset", "partitioner", "non_iid_param", "seeds", "mean", "best_other", "best_mean", "difference"]
    notes = [
        f"lines: {SCORES[score].title.lower()}, its difference from the best other method's over the same seeds and p "
        "of a paired t-test, that method",
        *([f"bold: better, or (!) worse, with p < {LEVEL} after Holm's correction for {counted(tested, 'cell')}"]
          if tested else []),
        *([f"p -: untested, with fewer than {FEWEST_PAIRS} seeds or a difference that does not vary"]
          if (cells["verdict"] == "untested").any() else []),
        *_fewer_notes(cells),
        *notes,
        *left_out_notes(chosen),
    ]  # fmt: skip
    return Sheet(
        f"{method_title(reference)} minus the best other method of each cell: {score}{size}",
        tuple(map(level_title, levels)),
        sections,
        frame[[*columns, "p", "p_holm", "verdict"]],
        notes,
    )


def _cells(chosen: pd.DataFrame, reference: str, score: str) -> pd.DataFrame:
    """One row per data set and level: the method's mean, the best other method, and the differences over seeds."""
    column = f"last_{score}"
    rows = []
    for names, group in chosen.groupby(["dataset", "level"], sort=False):
        dataset, level = cast("tuple[str, Level]", names)
        by_seed = group.pivot(index="seed", columns="method", values=column).sort_index()
        if reference not in by_seed:
            continue
        pairs = {  # with each other method, the seeds that both have
            method: both
            for method in by_seed.columns.drop(reference)
            if len(both := by_seed[[reference, method]].dropna())
        }
        if not pairs:
            continue
        ahead = {name: SCORES[score].sign * (both[name] - both[reference]).mean() for name, both in pairs.items()}
        most = max(map(len, pairs.values()))
        best = max((name for name, both in pairs.items() if len(both) == most), key=ahead.__getitem__)
        difference = (pairs[best][reference] - pairs[best][best]).to_numpy(np.float64)
        rows.append(
            {
                "dataset": dataset,
                "level": level,
                "seeds": most,
                "mean": pairs[best][reference].mean(),
                "best_other": best,
                "best_mean": pairs[best][best].mean(),
                "difference": difference.mean(),
                "p": paired_t_test(difference),
                "better_with_fewer": {
                    name: len(both) for name, both in pairs.items() if len(both) < most and ahead[name] > ahead[best]
                },
            }
        )
    return pd.DataFrame(rows)


def _fewer_notes(cells: pd.DataFrame) -> list[str]:
    """Methods that would be the best other one, had they been run with as many seeds as that is."""
    found = [
        f"{method_title(name)} ({dataset_title(dataset)}, {level_title(level)}, {counted(seeds, 'seed')})"
        for dataset, level, fewer in cells[["dataset", "level", "better_with_fewer"]].itertuples(index=False)
        for name, seeds in fewer.items()
    ]
    return [f"better than the named method, but with fewer seeds: {', '.join(found)}"] if found else []


def _entry(cell: dict[Any, Any] | None, score: str) -> Entry:
    if cell is None:
        return Entry()
    p = "-" if np.isnan(cell["p_holm"]) else f"{cell['p_holm']:.2g}"
    mark = "! " if cell["verdict"] == "worse" else ""
    lines = (f"{mark}{cell['mean']:.4f}", f"{cell['difference']:+.4f}, p {p}", method_title(cell["best_other"]))
    return Entry(lines, bold=cell["verdict"] in ("better", "worse"))
