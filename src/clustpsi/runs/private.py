"""Simulated clients that protect their counts and summaries as real nodes do, so that the effect can be measured."""

from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from clustpsi.federation import Federation
from clustpsi.privacy import learns, private_counts, private_summary

Told = tuple[NDArray[np.int64], NDArray[np.int64]]


def as_told(
    federation: Federation, epsilon: float | None, min_count: int | None, seed: int
) -> tuple[Federation, Told | None]:
    """The federation with features fitted from protected summaries, and the protected label counts.

    Without a budget and a least count nothing is protected: the federation stays as it is.
    """
    if epsilon is None and min_count is None:
        return federation, None
    dataset, alone = federation.dataset, not learns(federation.dataset.features)
    told, summaries = [], []
    for client, rows in enumerate(federation.train):
        private = epsilon, min_count, f"simulated {seed} {client}"
        counts = federation.label_counts[client : client + 1], federation.test_label_counts[client : client + 1]
        told.append(private_counts(counts[0], counts[1], *private, alone=alone))
        summaries.append(private_summary(dataset.features, dataset.rows.take(rows), *private))
    fitted = dataset.features.fit(reduce(lambda one, other: one.merge(other), summaries))
    train, test = (np.concatenate(part) for part in zip(*told, strict=True))
    return replace(federation, fitted_before=federation.fitted_before or fitted), (train, test)
