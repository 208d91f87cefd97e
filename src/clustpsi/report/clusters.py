"""Contents of the clusters of runs: which classes dominate them, and what constant answers would score.

If one class dominates a cluster, a model that always predicts this class does well there.  So a method's accuracy is
compared with three constant answers: the class that is most frequent in the training data of the whole federation, of
the cluster, or of the client.  They are scored on test data, like the methods.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clustpsi.errors import ClustPSIError
from clustpsi.report.sheet import Entry, Line, Sheet
from clustpsi.report.tables import (
    comparable,
    dataset_title,
    left_out_notes,
    level_order,
    level_title,
    method_order,
    method_title,
)

HEADINGS = (
    "tau",
    "of one client",
    "by majority class",
    "constant: all",
    "constant: cluster",
    "constant: client",
    "accuracy",
)


def cluster_table(runs: pd.DataFrame, *, num_clients: int | None = None) -> Sheet:
    """Means over seeds for every clustered method under every partition."""
    clustered = runs[runs["majorities"].notna()] if "majorities" in runs else runs.iloc[:0]
    if clustered.empty:
        raise ClustPSIError("none of these runs has clusters: run clust_psi_pfl, say")
    chosen = comparable(clustered, num_clients).sort_values("seed")
    sections, rows = [], []
    for dataset, of_dataset in chosen.groupby("dataset", sort=False):
        for method in method_order(of_dataset["method"].unique()):
            own = of_dataset[of_dataset["method"] == method]
            lines = []
            for level in level_order(own["level"]):
                group = own[own["level"].map(lambda each, level=level: each == level)]
                rows.append(
                    {
                        "dataset": dataset,
                        "method": method,
                        "partitioner": level[0],
                        "non_iid_param": level[1],
                        "seeds": len(group),
                        "tau": float(group["tau"].mean()),
                        "tau_least": int(group["tau"].min()),
                        "tau_most": int(group["tau"].max()),
                        "singletons": float(group["singletons"].mean()),
                        "majorities": " ".join(f"{number:g}" for number in _mean_majorities(list(group["majorities"]))),
                        **{
                            f"constant_{who}": group[f"constant_{who}"].astype(float).mean(skipna=False)
                            for who in ("federation", "cluster", "client")
                        },
                        "global_accuracy": group["last_global_accuracy"].mean(),
                    }
                )
                lines.append(Line(level_title(level), _entries(rows[-1])))
            sections.append((f"{dataset_title(str(dataset))}, {method_title(method)}", lines))
    size = chosen["num_clients"].dropna().unique()
    title = "Clusters, and the accuracy of constant answers (means over seeds)" + (
        f", {size[0]} clients" if len(size) else ""
    )
    notes = [
        "tau: mean (least to most); by majority class: how many clusters have class 1, 2, ... as their most frequent",
        "constant: test accuracy of always naming the class that is most frequent among the training labels of all "
        "clients, of the cluster, of the client",
    ]
    if chosen["constant_cluster"].isna().any():
        notes.append("-: some runs were made before clients' test labels were recorded")
    notes += left_out_notes(chosen)
    return Sheet(title, HEADINGS, sections, pd.DataFrame(rows), notes, corner=("method", "partition"))


def _entries(row: dict[str, Any]) -> tuple[Entry, ...]:
    span = f" ({row['tau_least']} to {row['tau_most']})" if row["tau_least"] < row["tau_most"] else ""
    texts = [f"{row['tau']:.3g}{span}", f"{row['singletons']:.3g}", row["majorities"]]
    texts += [
        "-" if np.isnan(row[key]) else f"{row[key]:.3f}"
        for key in ("constant_federation", "constant_cluster", "constant_client", "global_accuracy")
    ]
    return tuple(Entry((text,)) for text in texts)


def _mean_majorities(texts: Sequence[str]) -> list[float]:
    return [round(float(mean), 1) for mean in np.array([text.split() for text in texts], float).mean(axis=0)]
