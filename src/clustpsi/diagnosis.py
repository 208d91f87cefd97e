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
from clustpsi.datasets.counts import CountTable, read_counts
from clustpsi.datasets.labels import Name
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.presets import CLUSTERING, DEFAULT_CLUSTERING
from clustpsi.printing import counted
from clustpsi.psi_space import FEATURES

# What credit scoring reads into a PSI: below 0.1 no significant shift, up to 0.25 a moderate one, above a major one.
BANDS = ((0.1, "none"), (0.25, "moderate"), (np.inf, "major"))
DRIVERS = 3  # classes named per client
WEAK = 0.25  # silhouette below which Kaufman and Rousseeuw (1990) see no substantial structure


def band(psi: float) -> str:
    """
    >>> [band(value) for value in (0.02, 0.1, 0.3)]
    ['none', 'moderate', 'major']
    """
    return next(name for limit, name in BANDS if psi < limit)


@dataclass(frozen=True)
class Diagnosis:
    """What the label counts of a federation show.

    Attributes
    ----------
    client_names, class_names
        Names, as in the input.
    counts
        Label counts (clients x classes).
    measures
        The federation's skew: wpsi, hellinger, jensen_shannon, earth_mover, label_earth_mover.
    psi
        PSI of every client, compared with all clients together.
    terms
        What each class adds to a client's PSI (clients x classes).
    clustering
        The fitted clustering; its ``labels_`` are the clusters.
    notes
        One sentence for everything that was guessed or omitted when the table was read.
    preset
        The settings of the clustering, by name.
    """

    client_names: tuple[str, ...]
    class_names: tuple[str, ...]
    counts: NDArray[np.int64]
    measures: dict[str, float]
    psi: NDArray[np.float64]
    terms: NDArray[np.float64]
    clustering: PSIClustering
    notes: tuple[str, ...] = ()
    preset: str = "paper"

    @property
    def class_shares(self) -> NDArray[np.float64]:
        """For every class, the share of the federation's WPSI that it causes."""
        weighted = self.counts.sum(axis=1) @ self.terms
        return weighted / weighted.sum() if weighted.sum() > 0 else np.zeros_like(weighted)

    def drivers(self) -> list[list[tuple[str, bool]]]:
        """For every client, the classes that add most to its PSI, and whether it has too much of each."""
        pooled = self.counts.sum(axis=0) / self.counts.sum()
        shares = self.counts / self.counts.sum(axis=1, keepdims=True)
        found = []
        for own, share in zip(self.terms, shares, strict=True):
            top = [c for c in np.argsort(-own, kind="stable")[:DRIVERS] if own[c] > 0.05 * own.sum() > 0]
            found.append([(self.class_names[c], bool(share[c] > pooled[c])) for c in top])
        return found

    def clients(self) -> pd.DataFrame:
        """One row per client: size, PSI, band, cluster, and the classes it has too much (+) or too little (-) of."""
        drivers = [" ".join(f"{'+' if much else '-'}{name}" for name, much in own) for own in self.drivers()]
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

    def cautions(self) -> list[str]:
        """What speaks against taking the clusters at face value, a sentence each."""
        found = []
        if not np.isnan(exact := self.clustering.exact_silhouette_) and self.clustering.n_clusters_ == 1:
            scores = self.clustering.silhouette_scores_
            tau = max(scores, key=lambda j: scores[j])
            found.append(
                f"there are no clear groups: {tau} clusters have the best silhouette, {scores[tau]:.2f}, but it would "
                f"be about {exact:.2f} if all clients of a cluster had the same label mix"
            )
        score = self.clustering.silhouette_scores_.get(self.clustering.n_clusters_)
        if score is not None and score < WEAK:
            found.append(
                f"a silhouette of {score:.3f} is weak (below {WEAK}: no substantial structure, after Kaufman and "
                "Rousseeuw), so the clusters may be chance"
            )
        alone = int((np.bincount(self.clustering.labels_) == 1).sum())
        if alone and self.clustering.n_clusters_ > 1:
            have = "has" if alone == 1 else "have"
            of = self.clustering.n_clusters_
            found.append(f"{counted(alone, 'cluster')} of {of} {have} a single client, which would train alone")
        return found

    @property
    def other_features(self) -> str:
        """The kind of features that the clients were not clustered by."""
        return next(kind for kind in FEATURES if kind != self.clustering.features)

    @property
    def settings(self) -> str:
        """What PSI and clusters were made with."""
        own = self.clustering
        together = f", all clients together below a WPSI of {own.min_wpsi:g} above chance" if own.min_wpsi else ""
        together += " or without clear groups" if own.min_clarity else ""
        return f"preset {self.preset}: {own.features} features, {own.smoothing} smoothing{together}"

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
            "notes": list(self.notes),
            "preset": self.preset,
        }


def _names(names: Sequence[str] | None, own: tuple[str, ...], what: str, of: str) -> tuple[str, ...]:
    """The names that the user gives, one for each row or column, else the table's own."""
    if names is None:
        return own
    given = tuple(map(str, names))
    if len(given) != len(own):
        raise ClustPSIError(f"{what} has {counted(len(given), 'name')}, and the counts have {counted(len(own), of)}")
    if len(set(given)) < len(given):
        twice = next(name for place, name in enumerate(given) if name in given[:place])
        raise ClustPSIError(f"{what} has {twice!r} more than once: give every {of} its own name")
    return given


def diagnose(
    counts: "ArrayLike | pd.DataFrame | str | Path",
    client_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    *,
    label: Name | None = None,
    client: Name | None = None,
    drop: Name | Sequence[Name] = (),
    drop_unlabelled: bool = False,
    min_class: int | None = None,
    sep: str | None = None,
    no_header: bool = False,
    preset: str = DEFAULT_CLUSTERING,
    **clustering: Any,
) -> Diagnosis:
    """Diagnose a federation from its label counts, or from a table of samples.

    Parameters
    ----------
    counts
        Label counts, one row per client and one column per class: an array, a data frame or a file. Or, with ``label``
        and ``client``, a data frame or a file with one row per sample.
    client_names, class_names
        Names for the rows and columns of an array.
    label, client, drop, drop_unlabelled, min_class, sep, no_header
        For a table: as in :func:`clustpsi.from_table`.
    preset
        Of PSI and of the clustering: "robust" (signed roots of the PSI terms, Laplace's smoothing, no clusters below a
        WPSI of 0.1 above chance or without clear groups) or "paper" (PSI terms, smoothing by 1e-6, always clusters).
    clustering
        Parameters of :class:`clustpsi.PSIClustering`, which count more than the preset.

    Examples
    --------
    >>> report = diagnose([[90, 10], [88, 12], [10, 90], [12, 88]])
    >>> report.clustering.n_clusters_, report.clients()["shift"].tolist()
    (2, ['major', 'major', 'major', 'major'])
    """
    if isinstance(counts, pd.DataFrame | str | Path):
        given = read_counts(
            counts,
            label,
            client,
            drop=drop,
            drop_unlabelled=drop_unlabelled,
            min_class=min_class,
            sep=sep,
            no_header=no_header,
        )
    elif label is None and client is None and not (drop or drop_unlabelled or min_class or sep or no_header):
        table = skew.check_counts(counts, client_names, class_names)
        given = CountTable(table, tuple(map(str, range(len(table)))), tuple(map(str, range(table.shape[1]))))
    else:
        raise ClustPSIError(
            "label, client and the other names of columns are for data frames and files, not for arrays"
        )
    table = given.counts
    if len(table) < 2:
        raise ClustPSIError("a federation needs at least two clients to compare, and there is one row of counts")
    if np.count_nonzero(table.sum(axis=0)) < 2:
        raise ClustPSIError("all samples have the same label: with one class there is no label skew to measure")
    if preset not in CLUSTERING:
        raise unknown_name("preset", str(preset), CLUSTERING)
    known = PSIClustering().get_params()
    for key in clustering:
        if key not in known:
            raise unknown_name("parameter of the clustering", key, known)
    model = PSIClustering(**{"random_state": 0, **CLUSTERING[preset], **clustering}).fit(table)
    kind: dict[str, Any] = {"smoothing": model.smoothing, "epsilon": model.epsilon}
    return Diagnosis(
        _names(client_names, given.clients, "client_names", "row"),
        _names(class_names, given.classes, "class_names", "column"),
        table,
        skew.measures(table, **kind),
        skew.psi(table, **kind),
        skew.psi_terms(table, **kind),
        model,
        given.notes,
        preset,
    )
