"""How skewed a federation is, which clients stand out and which belong together: from label counts alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi import skew
from clustpsi.clustering import PSIClustering
from clustpsi.datasets.files import read_csv, read_parquet
from clustpsi.errors import ClustPSIError, unknown_name

# What credit scoring reads into a PSI: below 0.1 no significant shift, up to 0.25 a moderate one, above a major one.
BANDS = ((0.1, "none"), (0.25, "moderate"), (np.inf, "major"))
DRIVERS = 3  # classes named per client


def band(psi: float) -> str:
    """
    >>> [band(value) for value in (0.02, 0.1, 0.3)]
    ['none', 'moderate', 'major']
    """
    return next(name for limit, name in BANDS if psi < limit)


@dataclass(frozen=True)
class Diagnosis:
    """What label counts tell.

    Attributes
    ----------
    client_names, class_names
        As in the input.
    counts
        K x C.
    measures
        The federation's skew: wpsi, hellinger, jensen_shannon, earth_mover, label_earth_mover.
    psi
        Of every client, against all clients together.
    terms
        What each class adds to it (K x C).
    clustering
        The fitted clustering; its ``labels_`` are the clusters.
    """

    client_names: tuple[str, ...]
    class_names: tuple[str, ...]
    counts: NDArray[np.int64]
    measures: dict[str, float]
    psi: NDArray[np.float64]
    terms: NDArray[np.float64]
    clustering: PSIClustering

    @property
    def class_shares(self) -> NDArray[np.float64]:
        """For every class, the share of the federation's WPSI that it causes."""
        weighted = self.counts.sum(axis=1) @ self.terms
        return weighted / weighted.sum() if weighted.sum() > 0 else np.zeros_like(weighted)

    def clients(self) -> pd.DataFrame:
        """A row a client: size, PSI, band, cluster, and the classes that drive it: too much (+) or too little (-)."""
        pooled = self.counts.sum(axis=0) / self.counts.sum()
        shares = self.counts / self.counts.sum(axis=1, keepdims=True)
        drivers = []
        for own, share in zip(self.terms, shares, strict=True):
            top = [c for c in np.argsort(-own, kind="stable")[:DRIVERS] if own[c] > 0.05 * own.sum() > 0]
            drivers.append(" ".join(f"{'+' if share[c] > pooled[c] else '-'}{self.class_names[c]}" for c in top))
        return pd.DataFrame(
            {
                "client": self.client_names,
                "samples": self.counts.sum(axis=1),
                "psi": self.psi,
                "shift": [band(value) for value in self.psi],
                "cluster": self.clustering.labels_,
                "drivers": drivers,
            }
        )

    def as_dict(self) -> dict[str, Any]:
        clusters = self.clustering.labels_
        return {
            "num_clients": len(self.client_names),
            "num_classes": len(self.class_names),
            "num_samples": int(self.counts.sum()),
            "measures": self.measures,
            "shift": band(self.measures["wpsi"]),
            "classes": dict(zip(self.class_names, self.class_shares.tolist(), strict=True)),
            "tau": int(self.clustering.n_clusters_),
            "silhouette": {str(j): float(value) for j, value in self.clustering.silhouette_scores_.items()},
            "clusters": [
                [name for name, own in zip(self.client_names, clusters, strict=True) if own == c]
                for c in range(clusters.max() + 1)
            ],
            "clients": self.clients().to_dict(orient="records"),
        }


def diagnose(
    counts: ArrayLike,
    client_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    **clustering: Any,
) -> Diagnosis:
    """Diagnose a federation from its label counts (a row a client, a column a class).

    ``clustering`` goes to :class:`clustpsi.PSIClustering`.

    >>> report = diagnose([[90, 10], [88, 12], [10, 90], [12, 88]])
    >>> report.clustering.n_clusters_, report.clients()["shift"].tolist()
    (2, ['major', 'major', 'major', 'major'])
    """
    table = skew.check_counts(counts)
    if len(table) < 2:
        raise ClustPSIError("a federation needs at least two clients to compare, and there is one row of counts")
    if np.count_nonzero(table.sum(axis=0)) < 2:
        raise ClustPSIError("all samples have the same label: with one class there is no label skew to measure")
    names = tuple(map(str, range(len(table)) if client_names is None else client_names))
    classes = tuple(map(str, range(table.shape[1]) if class_names is None else class_names))
    model = PSIClustering(**{"random_state": 0, **clustering}).fit(table)
    kind: dict[str, Any] = {"smoothing": model.smoothing, "epsilon": model.epsilon}
    return Diagnosis(
        names,
        classes,
        table,
        skew.measures(table, **kind),
        skew.psi(table, **kind),
        skew.psi_terms(table, **kind),
        model,
    )


def read_counts(
    path: Path, label: str | None = None, client: str | None = None
) -> tuple[NDArray[np.int64], list[str], list[str]]:
    """Label counts, client names and class names from a CSV or Parquet file.

    With ``label`` the file is a labelled table: a row a sample, ``client`` names its client.  Without, it has a row a
    client and a column a class; the column ``client``, or else a first column that is not numeric, names the clients.
    """
    frame = _read_table(path)
    for column in filter(None, (label, client)):
        if column not in frame.columns:
            raise unknown_name(f"column of {path}", column, map(str, frame.columns))
    if label is not None:
        if client is None:
            raise ClustPSIError("a labelled table needs --client too: the column that names the client of each row")
        for column in (label, client):
            if frame[column].isna().any():
                row = int(np.flatnonzero(frame[column].isna())[0])
                raise ClustPSIError(
                    f"{path}: column {column!r} is empty in data row {row + 1}; every row needs a label and a client"
                )
        table = pd.crosstab(frame[client], frame[label])
        return (
            skew.check_counts(table.to_numpy()),
            [str(each) for each in table.index],
            [str(each) for each in table.columns],
        )
    if client is None and len(frame.columns) > 1 and not pd.api.types.is_numeric_dtype(frame[frame.columns[0]]):
        client = str(frame.columns[0])
    names = [str(i) for i in range(len(frame))] if client is None else [str(each) for each in frame[client]]
    if client is not None:
        frame = frame.drop(columns=client)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ClustPSIError(
                f"{path}: client {twice!r} has more than one row of counts; for a table of samples give --label too"
            )
    for column in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            raise ClustPSIError(
                f"{path}: column {column!r} is not numeric, but counts are whole numbers; "
                "for a table of samples give --label and --client"
            )
        missing = frame[column].isna()
        if missing.any():
            first = names[int(np.flatnonzero(missing)[0])]
            raise ClustPSIError(f"{path}: column {column!r} has no count for client {first!r}; write 0 for none")
    return skew.check_counts(frame.to_numpy()), names, [str(column) for column in frame.columns]


def _read_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ClustPSIError(f"there is no file {path}: a CSV or Parquet file of label counts is needed")
    frame = read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else read_csv(path)
    if frame.empty:
        raise ClustPSIError(f"{path} has no rows: it needs a row a client")
    return frame
