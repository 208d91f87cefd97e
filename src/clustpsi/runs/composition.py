"""What a run's clusters contain, and what constant answers would score."""

from typing import Any

import numpy as np

from clustpsi.evaluation import constant_answers
from clustpsi.runs.store import RunFolder

COLUMNS = ("singletons", "majorities", "constant_federation", "constant_cluster", "constant_client")


def composition(folder: RunFolder) -> dict[str, Any]:
    """The columns :data:`COLUMNS` of one finished run; those about clusters only if the run has clusters.

    ``majorities`` counts for each class the clusters in which it is the most frequent class: "2 1 0".  Old runs, which
    did not record test labels, have no scores of constant answers.
    """
    (train, test), cluster_of = folder.label_counts(), folder.clusters()
    row: dict[str, Any] = {"constant_federation": None, "constant_client": None}
    if cluster_of is not None:
        row["constant_cluster"] = None
    if test.size:
        constant = constant_answers(train, test, cluster_of)
        row |= {f"constant_{who}": scores.global_accuracy for who, scores in constant.items()}
    if cluster_of is not None:
        labels, sizes = np.unique(cluster_of, return_counts=True)
        totals = np.stack([train[cluster_of == label].sum(axis=0) for label in labels])
        prevailing = np.bincount(totals.argmax(axis=1), minlength=train.shape[1])
        row |= {"singletons": int((sizes == 1).sum()), "majorities": " ".join(map(str, prevailing))}
    return row
