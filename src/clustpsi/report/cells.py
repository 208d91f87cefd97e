"""Runs that a report compares: those of one cell (a data set, a partition, a number of clients).

This module reads or computes everything that a report says about training.  The tests of differences are those of
``clustpsi table tests``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clustpsi.diagnosis import Diagnosis, diagnose
from clustpsi.errors import ClustPSIError
from clustpsi.printing import counted
from clustpsi.report.charts import Curve
from clustpsi.report.glossary import CONSTANTS
from clustpsi.report.significance import difference_tables
from clustpsi.report.tables import (
    SCORES,
    Level,
    comparable,
    dataset_rank,
    dataset_title,
    is_central,
    left_out_notes,
    level_order,
    level_title,
    method_order,
    method_title,
)
from clustpsi.runs.config import Config, run_command
from clustpsi.runs.frame import SETTINGS, check_comparable, read_folders, read_runs
from clustpsi.runs.store import RunFolder, Store

CELL = ["dataset", "partitioner", "non_iid_param", "num_clients"]


# --------------------------------------------------------------------------------------------------------- finding runs


def find_runs(sources: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """The finished runs of stores and run folders, and one sentence for each run that is left out.

    In a store, unfinished runs are left out.  If a source is itself a run folder, its run must be finished.
    """
    frames, notes = [], []
    single = [RunFolder(source) for source in sources if RunFolder(source).exists]
    for folder in single:
        if not folder.finished:
            raise ClustPSIError(unfinished(folder))
    if single:
        frames.append(read_folders(single))
    for source in sources:
        if RunFolder(source).exists:
            continue
        if not source.exists():
            raise ClustPSIError(f"there is no folder {source}: name a folder of runs, or make some with clustpsi run")
        if source.is_file():
            raise ClustPSIError(
                f"{source} is a file, and a report needs the folders of runs: name a folder of runs, such as runs"
            )
        waiting = [unfinished(folder) for folder in Store(source) if not folder.finished]
        try:
            runs, problems = read_runs(source)
        except ClustPSIError as error:
            raise ClustPSIError(waiting[0]) if waiting else error from None
        frames.append(runs)
        notes += [*problems, *waiting]
    runs = pd.concat(frames, ignore_index=True)
    return runs[~runs.duplicated([*SETTINGS, "status"])].reset_index(drop=True), notes


def unfinished(folder: RunFolder) -> str:
    """Why a run has no result yet."""
    if folder.is_locked:
        return f"{folder.path} is still running: wait until it has finished"
    reason = folder / "failed.txt"
    if reason.exists():
        return f"{folder.path} failed: {reason.read_text(errors='replace').strip()}"
    return f"{folder.path} was stopped before its end: finish it with the same command and --resume"


def find_cells(runs: pd.DataFrame) -> list["Cell"]:
    """The cells of runs by data set, from the least to the most skewed; raises if the runs cannot be compared."""
    runs = runs[(runs["status"] == "finished") & ~runs["validation"].astype("boolean").fillna(False)]
    if runs.empty:
        raise ClustPSIError("none of these runs was scored on test data: a report is not made from validation scores")
    runs = runs.sort_values("eval_every", kind="stable")  # of otherwise equal runs, the one with the most evaluations
    for dataset, group in runs.groupby("dataset", sort=False):
        check_comparable(group, f"the runs on {dataset}")
    central = runs[is_central(runs["agg_method"])]
    cells = []
    for _, group in runs.drop(central.index).groupby(CELL, sort=False, dropna=False):
        pooled = central[central["dataset"] == group["dataset"].iloc[0]]
        own = pooled.merge(group[CELL].drop_duplicates(), on=CELL)
        cells.append(Cell(comparable(pd.concat([group, own if len(own) else _one_size(pooled)], ignore_index=True))))
    if not cells:
        raise ClustPSIError(
            "all of these runs are centralized learning, which has no clients: add runs of a federated method"
        )
    order = {level: i for i, level in enumerate(level_order(cell.level for cell in cells))}
    return sorted(cells, key=lambda cell: (dataset_rank(cell.dataset), cell.num_clients, order[cell.level]))


def _one_size(pooled: pd.DataFrame) -> pd.DataFrame:
    """The runs of centralized learning with one number of clients: it is the same for every number."""
    return pooled[pooled["num_clients"] == pooled["num_clients"].max()] if len(pooled) else pooled


# ------------------------------------------------------------------------------------------------------------- one cell


@dataclass(frozen=True)
class WorstClient:
    """A client with a low accuracy under a method, and what explains it."""

    name: str
    cluster: int
    train: int
    test: int
    labels: str
    accuracy: float
    elsewhere: str | None  # the method that serves it best, if it is another one
    accuracy_elsewhere: float


class Cell:
    """The finished runs of one cell; ``runs`` are from :func:`clustpsi.report.tables.comparable`."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self.runs = runs
        federated = runs[~is_central(runs["method"])]
        first = federated.iloc[0]
        self.dataset: str = first["dataset"]
        self.level: Level = first["level"]
        self.methods = method_order(federated["method"].unique())
        self.all_methods = method_order(runs["method"].unique())
        # Seeds that the most methods have come first: charts of single clients show the first seed.
        have = federated.groupby("seed", sort=False)["method"].nunique()
        self.seeds = [int(seed) for seed in have.sort_values(ascending=False, kind="stable").index]
        self._folders = {
            (row["method"], int(row["seed"])): RunFolder(Path(row["folder"])) for row in runs.to_dict("records")
        }

    # ------------------------------------------------------------------------------------------------- what it is

    @cached_property
    def title(self) -> str:
        how, value = self.level
        named = {"natural": "its own clients", "iid": "IID"}.get(how, how.capitalize())
        return f"{dataset_title(self.dataset)} ({named if value is None else f'{named}, {level_title(self.level)}'})"

    @cached_property
    def num_clients(self) -> int:
        return len(self.diagnosis.client_names)

    @property
    def shown_seed(self) -> int:
        return self.seeds[0]

    @cached_property
    def config(self) -> Config:
        return self._any_folder.config()

    @cached_property
    def model(self) -> dict[str, Any]:
        """The model's name and size, if the runs recorded them."""
        summary = self._any_folder.summary()
        return {key: summary[key] for key in ("model", "num_parameters")} if "model" in summary else {}

    @property
    def _any_folder(self) -> RunFolder:
        """The folder of any run with the shown seed: the clients are the same for all methods."""
        return next(folder for (method, seed), folder in self._folders.items() if seed == self.shown_seed)

    @cached_property
    def _clients(self) -> pd.DataFrame:
        return self._any_folder.clients()

    @cached_property
    def _counts(self) -> tuple[list[str], NDArray[np.int64]]:
        columns = [str(column) for column in self._clients if str(column).startswith("count_")]
        return [column.removeprefix("count_") for column in columns], self._clients[columns].to_numpy(np.int64)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Diagnosis of the clients of the shown seed, with the features of Clust-PSI-PFL."""
        return self._diagnose("psi")

    @cached_property
    def signed(self) -> Diagnosis:
        """The same diagnosis with signed features."""
        return self._diagnose("signed")

    def _diagnose(self, features: str) -> Diagnosis:
        classes, counts = self._counts
        names = self._clients["client"].tolist()
        return diagnose(counts, names, classes, preset="paper", features=features, random_state=self.shown_seed)

    def measures(self) -> dict[str, list[float]]:
        """Measures of skew, one value per seed."""
        of_seed = self.runs.drop_duplicates("seed")
        names = [name for name in map(str, of_seed) if name.startswith("skew_")]
        return {name.removeprefix("skew_"): of_seed[name].dropna().astype(float).tolist() for name in names}

    # -------------------------------------------------------------------------------------------------- scores

    def scores(self, score: str = "global_accuracy") -> dict[str, list[float]]:
        """Scores of the last round by method, one value per seed."""
        column = f"last_{score}"
        if column not in self.runs:
            return {}
        names = self.methods if SCORES[score].of_clients else self.all_methods
        found = {name: self.runs.loc[self.runs["method"] == name, column].dropna().tolist() for name in names}
        return {name: values for name, values in found.items() if values}

    @cached_property
    def best(self) -> str:
        """The federated method with the highest mean accuracy."""
        scores = self.scores()
        return max(self.methods, key=lambda name: float(np.mean(scores[name])))

    def constants(self, score: str = "global_accuracy") -> dict[str, float]:
        """Scores of constant answers, which need no training, by kind; means over seeds."""
        by_seed = {seed: folder for (method, seed), folder in self._folders.items() if method in self.methods}
        given = [folder.summary().get("constant") for folder in by_seed.values()]
        known = [each for each in given if isinstance(each, dict)]  # runs of earlier versions lack them
        return {
            kind: float(np.mean([each[kind][score] for each in known]))
            for kind in CONSTANTS
            if known and all(kind in each for each in known)
        }

    @cached_property
    def tests(self) -> pd.DataFrame:
        """The best method against every other: ``method, pairs, difference, p, p_holm, verdict, same_as``."""
        if len(self.methods) < 2:
            return pd.DataFrame()
        try:
            by_cell, _ = difference_tables(self.runs, self.best)
        except ClustPSIError:  # no other method shares a seed with it
            return pd.DataFrame()
        return by_cell.frame

    def curves(self, score: str = "global_accuracy") -> dict[str, Curve]:
        """A score over the rounds in which every seed was evaluated, by method."""
        found = {}
        for method in self.all_methods:
            tables = [
                folder.rounds().reindex(columns=["round", score]).dropna().set_index("round")[score]
                for (name, _), folder in self._folders.items()
                if name == method
            ]
            joined = pd.concat(tables, axis=1, join="inner")
            if len(joined):
                found[method] = Curve(joined.index.to_numpy(), joined.to_numpy(np.float64).T)
        return found

    # --------------------------------------------------------------------------------------------- single clients

    def local_accuracy(self) -> dict[str, NDArray[np.float64]]:
        """Accuracy in the last round by method, of every client of every seed."""
        return {
            method: np.concatenate([self._last(method, seed) for name, seed in self._folders if name == method])
            for method in self.methods
        }

    def accuracy_of_clients(self) -> dict[str, NDArray[np.float64]]:
        """Accuracy in the last round by method, of every client of the shown seed."""
        return {method: self._last(method, self.shown_seed) for method in self.methods if self._has(method)}

    def _has(self, method: str) -> bool:
        return (method, self.shown_seed) in self._folders

    def _last(self, method: str, seed: int) -> NDArray[np.float64]:
        folder = self._folders[method, seed]
        try:
            accuracy = folder.accuracy()
            last = accuracy[accuracy["round"] == accuracy["round"].max()].set_index("client")["accuracy"]
            # A client that was not scored has no accuracy.
            return np.asarray(last.reindex(list(self.diagnosis.client_names)), np.float64)
        except (OSError, ValueError, KeyError) as error:
            raise ClustPSIError(
                f"{folder.path} is damaged: its accuracy.parquet cannot be read ({error}); compute it with --fresh"
            ) from None

    def worst_clients(self, most: int = 10) -> list[WorstClient]:
        """The clients with the lowest accuracy under the best method, for the shown seed; only clients with errors."""
        method = self.best if self._has(self.best) else next(iter(self.accuracy_of_clients()))
        accuracies = self.accuracy_of_clients()
        own = accuracies[method]
        names, table = list(accuracies), np.array(list(accuracies.values()))
        found = []
        for i in [int(i) for i in np.argsort(own, kind="stable") if own[i] < 1][:most]:
            better = float(np.nanmax(table[:, i])) > own[i]
            found.append(
                WorstClient(
                    self.diagnosis.client_names[i],
                    int(self.diagnosis.clustering.labels_[i]),
                    int(self._clients["train"].iloc[i]),
                    int(self._clients["test"].iloc[i]),
                    top_labels(self.diagnosis.counts[i], self.diagnosis.class_names),
                    float(own[i]),
                    names[int(np.nanargmax(table[:, i]))] if better else None,
                    float(np.nanmax(table[:, i])),
                )
            )
        return found

    # ------------------------------------------------------------------------------------------------------- the rest

    def costs(self) -> dict[str, dict[str, float]]:
        """Means over seeds, by method: clients that trained, bytes up and down, seconds."""
        keys = ["participants", "bytes_up", "bytes_down", "seconds"]
        means = self.runs.astype(dict.fromkeys(keys, float)).groupby("method")[keys].mean()
        return {
            method: dict(zip(keys, means.loc[[method]].to_numpy()[0].tolist(), strict=True))
            for method in self.all_methods
        }

    def notes(self) -> list[str]:
        """What a reader of the scores should know about single runs, one sentence each."""
        found = [
            f"{method_title(method)}, seed {seed}: {text}"
            for (method, seed), folder in self._folders.items()
            for text in folder.summary().get("notes", [])
        ]
        return found + left_out_notes(self.runs)

    def command(self) -> str:
        """The command line that computes these runs."""
        return run_command(self.config, self.all_methods, self.seeds)


def top_labels(counts: NDArray[np.int64], class_names: Sequence[str], most: int = 3) -> str:
    """The most frequent labels with their shares.

    >>> top_labels(np.array([3, 0, 9]), ["cat", "dog", "cow"])
    'cow: 75%, cat: 25%'
    """
    top = [c for c in np.argsort(-counts, kind="stable")[:most] if counts[c]]
    return ", ".join(f"{class_names[c]}: {counts[c] / counts.sum():.0%}" for c in top)


def two_dimensions(found: Diagnosis) -> tuple[NDArray[np.float64], list[float]]:
    """Clients along the two directions in which their features differ most, and each direction's share of variance."""
    from sklearn.decomposition import PCA

    features = found.clustering.transform(found.counts)
    if not features.any():
        return np.zeros((len(features), 2)), [0.0, 0.0]
    model = PCA(2, svd_solver="full")
    return model.fit_transform(features), model.explained_variance_ratio_.tolist()


def shared_settings(cells: Iterable[Cell]) -> str:
    """The numbers of methods and of seeds, for a report's heading."""
    seeds = {seed for cell in cells for seed in cell.seeds}
    methods = {method for cell in cells for method in cell.all_methods}
    return f"{counted(len(methods), 'method')}, {counted(len(seeds), 'seed')}"
