"""The partitions of the study of measures, drawn on class counts.

They have the same distribution as those of :mod:`clustpsi.partition`, but need no rows.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi import skew
from clustpsi.datasets import load_dataset
from clustpsi.errors import ClustPSIError, InfeasiblePartition
from clustpsi.exact import read_exact_csv
from clustpsi.experiments.study_axes import CLASS_COUNTS, NUM_CLIENTS, STUDY_LEVELS
from clustpsi.files import check_writable, make_folder
from clustpsi.runs.store import write_csv, write_json

Counts = NDArray[np.int64]

#: After so many Dirichlet passes without success a cell (data set, number of clients, alpha) counts as infeasible.
MAX_PASSES = 100_000
MIN_SAMPLES = 10


def dirichlet_counts(
    class_sizes: ArrayLike,
    num_clients: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_samples: int = MIN_SAMPLES,
    max_passes: int = MAX_PASSES,
) -> Counts:
    """Label counts (clients x classes) of a random Dirichlet partition.

    The distribution is that of :func:`clustpsi.partition.dirichlet`: one Dirichlet draw per class, nothing more for
    clients that hold their fair share, cuts rounded down, and passes until every client has `min_samples`. Many passes
    are drawn at once and the first good one is taken.

    >>> dirichlet_counts([500, 500], num_clients=4, alpha=0.5, rng=np.random.default_rng(0)).sum(axis=0)
    array([500, 500])
    """
    sizes = np.asarray(class_sizes, dtype=np.int64)
    fair_share = sizes.sum() / num_clients
    concentration = np.full(num_clients, alpha)
    tried, batch = 0, 1
    while tried < max_passes and num_clients * min_samples <= sizes.sum():
        shares = np.zeros((batch, num_clients, len(sizes)), dtype=np.int64)
        held = np.zeros((batch, num_clients), dtype=np.int64)
        failed = np.zeros(batch, dtype=bool)
        for label, size in enumerate(sizes):
            proportions = rng.dirichlet(concentration, batch) * (held < fair_share)
            totals = proportions.sum(axis=1, keepdims=True)
            failed |= ~(totals[:, 0] > 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                cuts = np.nan_to_num(np.cumsum(proportions / totals, axis=1)) * size
            ends = cuts.astype(np.int64)
            ends[:, -1] = size
            shares[:, :, label] = np.diff(ends, axis=1, prepend=0)
            held += shares[:, :, label]
        good = np.flatnonzero(~failed & (held.min(axis=1) >= min_samples))
        if good.size:
            found: Counts = shares[good[0]]
            return found
        tried += batch
        batch = min(2 * batch, 256, max(1, max_passes - tried))
    raise InfeasiblePartition(
        f"no Dirichlet partition over {num_clients} clients with alpha={alpha:g} gave every client "
        f"{min_samples} samples in {tried} passes: raise alpha or take fewer clients"
    )


def similarity_counts(class_sizes: ArrayLike, num_clients: int, s: float, rng: np.random.Generator) -> Counts:
    """Label counts (clients x classes) of a random Similarity partition, distributed as :func:`~.partition.similarity`.

    >>> similarity_counts([50, 50], num_clients=4, s=0.0, rng=np.random.default_rng(0)).tolist()
    [[25, 0], [25, 0], [0, 25], [0, 25]]
    """
    sizes = np.asarray(class_sizes, dtype=np.int64)
    mixed = rng.multivariate_hypergeometric(sizes, round(s * int(sizes.sum())))
    from_mixed, from_sorted = (int(part.sum()) // num_clients for part in (mixed, sizes - mixed))
    if from_mixed + from_sorted == 0:
        raise InfeasiblePartition(
            f"{sizes.sum()} samples are too few for {num_clients} clients with S={s:g}: take fewer clients"
        )
    # Client i takes the sorted rows from i to i + 1 times `from_sorted`; class c lies between its two borders.
    borders = np.concatenate([[0], np.cumsum(sizes - mixed)])
    before = np.minimum(np.arange(num_clients + 1)[:, None] * from_sorted, borders)  # rows before a cut or a border
    counts: Counts = np.diff(np.diff(before, axis=1), axis=0)
    for client in counts:
        drawn = rng.multivariate_hypergeometric(mixed, from_mixed)
        client += drawn
        mixed = mixed - drawn
    return counts


def class_counts(dataset: str, data_dir: Path | None = None) -> tuple[int, ...]:
    """Samples of each class: of the paper's data sets by table, of others, or with a `data_dir`, from the data."""
    if data_dir is None and dataset in CLASS_COUNTS:
        return CLASS_COUNTS[dataset]
    loaded = load_dataset(dataset, data_dir=data_dir)
    return tuple(np.bincount(loaded.labels, minlength=loaded.num_classes).tolist())


def draw_counts(dataset: str, sizes: Sequence[int], protocol: str, num_clients: int, level: float, seed: int) -> Counts:
    """The partition of these settings; it does not depend on what else is drawn."""
    cell = zlib.crc32(f"{dataset}/{protocol}/{num_clients}/{level:g}".encode())
    rng = np.random.default_rng((seed, cell))
    if protocol == "dirichlet":
        return dirichlet_counts(sizes, num_clients, level, rng)
    return similarity_counts(sizes, num_clients, level, rng)


# -------------------------------------------------------------------------------------------------------- the study


@dataclass(frozen=True)
class StudySettings:
    """Which partitions are drawn."""

    class_counts: dict[str, tuple[int, ...]]
    num_clients: tuple[int, ...] = NUM_CLIENTS
    alphas: tuple[float, ...] = STUDY_LEVELS["dirichlet"]
    similarities: tuple[float, ...] = STUDY_LEVELS["similarity"]
    seeds: int = 20

    def __post_init__(self) -> None:
        if self.seeds < 4:
            raise ClustPSIError(f"the study needs at least 4 seeds, a quarter of them held out, not {self.seeds}")
        for name, levels, right in (
            ("alpha", self.alphas, all(0 < each < np.inf for each in self.alphas)),
            ("S", self.similarities, all(0 <= each <= 1 for each in self.similarities)),
        ):
            bounds = "above 0" if name == "alpha" else "from 0 to 1"
            if not right or len(set(levels)) < max(len(levels), 2):
                raise ClustPSIError(f"the values of {name} must be two or more different numbers {bounds}: {levels}")
        if not self.num_clients or min(self.num_clients) < 2:
            raise ClustPSIError(f"numbers of clients must be at least 2, not {self.num_clients}")

    def levels(self, protocol: str) -> tuple[float, ...]:
        return self.alphas if protocol == "dirichlet" else self.similarities


def draw_partitions(
    settings: StudySettings, folder: Path, *, fresh: bool = False, watch: Callable[[str], None] | None = None
) -> pd.DataFrame:
    """All measures, one row per partition; partitions in the folder's ``partitions.csv`` are not drawn again.

    A cell in which one partition is infeasible is left out as a whole.
    """
    make_folder(folder)
    settings_file, file = folder / "settings.json", folder / "partitions.csv"
    check_writable(file)
    described = {key: _plain(value) for key, value in asdict(settings).items()}
    rows: list[dict[str, Any]] = []
    drawn: list[str] = []
    if settings_file.exists() and not fresh:
        try:
            known = json.loads(settings_file.read_text())
        except ValueError as error:
            raise ClustPSIError(f"{settings_file} cannot be read ({error}): start again with --fresh") from None
        drawn = known.pop("drawn", [])
        if known != described:
            raise ClustPSIError(f"{folder} holds a study with other settings: choose another --output, or add --fresh")
        if drawn:
            table = read_exact_csv(file)
            rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    for dataset, sizes in settings.class_counts.items():
        if dataset in drawn:
            continue
        if watch is not None:
            watch(dataset)
        rows += _partitions_of(dataset, sizes, settings)
        drawn.append(dataset)
        if rows:
            write_csv(file, {key: [row[key] for row in rows] for key in rows[0]})
        write_json(settings_file, {**described, "drawn": drawn})
    if not rows:
        raise ClustPSIError("no partition of the study is feasible: take larger alphas or fewer clients")
    return pd.DataFrame(rows)


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _partitions_of(dataset: str, sizes: Sequence[int], settings: StudySettings) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for protocol in STUDY_LEVELS:
        for num_clients in settings.num_clients:
            for level in settings.levels(protocol):
                cell: list[dict[str, Any]] = []
                try:
                    for seed in range(settings.seeds):
                        counts = draw_counts(dataset, sizes, protocol, num_clients, level, seed)
                        where = {"dataset": dataset, "protocol": protocol, "num_clients": num_clients}
                        cell.append(where | {"level": float(level), "seed": seed} | skew.measures(counts))
                except InfeasiblePartition:
                    continue
                rows += cell
    return rows
