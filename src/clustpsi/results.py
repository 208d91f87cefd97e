"""Runs as folders: written as the run goes, each file atomically, readable with pandas.

config.json      what was run
clients.csv      a row a client: samples, PSI, label counts
rounds.csv       a row a round: scores where it was evaluated, participants, bytes
accuracy.parquet a row a client and evaluated round: local accuracy and loss
clusters.csv     for clustering methods: a row a client
silhouette.csv   for Clust-PSI-PFL: the score of every number of clusters tried
left_out.csv     clients whose update was not finite, if there were any
timing.json      seconds (the only file that differs between two runs of the same configuration)
summary.json     the scores of the last and of the best round; it is there if and only if the run has finished
checkpoint.npz   where to go on; gone once the run has finished
models.npz       the models, if asked for
"""

import contextlib
import csv
import errno
import fcntl
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from clustpsi import skew
from clustpsi.config import Config
from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation
from clustpsi.history import COSTS, History
from clustpsi.methods.base import Deployment, State
from clustpsi.methods.orders import Model


class RunLocked(ClustPSIError):
    """Another process is working on the run."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence what went wrong with writing."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ClustPSIError(f"no space left to write {path}: free some, then go on with --resume") from error
        raise ClustPSIError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that it is either there as a whole or not at all, whatever happens meanwhile."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that leads to it."""
    if path.is_dir():
        raise ClustPSIError(f"cannot write {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise ClustPSIError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ClustPSIError(f"cannot write {path}: the folder {path.parent} may not be written to")


def write_json(path: Path, values: Any) -> None:
    write_atomically(path, lambda file: file.write((json.dumps(values, indent=2) + "\n").encode()))


def write_csv(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """A CSV in which floats keep every digit."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def exists(self) -> bool:
        return (self / "config.json").exists()

    @property
    def finished(self) -> bool:
        return (self / "summary.json").exists()

    def create(self, config: Config) -> None:
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        content = {} if config.content is None else {"content": config.content}
        write_json(self / "config.json", config.as_dict() | content)

    def clear(self) -> None:
        """Remove what a run has written, summary first, so that a half-cleared folder never looks finished."""
        (self / "summary.json").unlink(missing_ok=True)
        for path in self.path.iterdir():
            if path.name != ".lock":  # which is held
                path.unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other processes; a killed process lets go by itself."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunLocked(
                    f"another process is working on the run {self.path}: wait for it, or choose another --output"
                ) from None
            for left_over in self.path.glob(".*.tmp"):  # of a process that was killed while it wrote
                left_over.unlink()
            try:
                yield
            finally:
                self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        """Leave nothing behind where the run failed before it wrote anything."""
        if [path.name for path in self.path.iterdir()] == [".lock"]:
            (self / ".lock").unlink()
            self.path.rmdir()

    # --------------------------------------------------------------------------------------------------- writing

    def write_clients(self, federation: Federation) -> None:
        """What is known of the clients before training."""
        counts = federation.label_counts
        columns: dict[str, Any] = {
            "client": federation.client_names,
            "train": federation.train_sizes,
            "test": federation.test_sizes,
        }
        columns["psi"] = skew.psi(counts)
        columns |= {f"count_{name}": counts[:, c] for c, name in enumerate(federation.dataset.class_names)}
        write_csv(self / "clients.csv", columns)

    def write_tables(
        self,
        history: History,
        client_names: Sequence[str],
        clusters: NDArray[np.int64] | None,
        own: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """What has been measured so far."""
        write_csv(self / "rounds.csv", history.rounds())
        local = pa.table(history.local(client_names))
        write_atomically(self / "accuracy.parquet", lambda file: parquet.write_table(local, file))
        if clusters is not None:
            write_csv(self / "clusters.csv", {"client": client_names, "cluster": clusters})
        if len(history.left_out()["round"]):
            write_csv(self / "left_out.csv", history.left_out())
        for name, columns in own.items():
            write_csv(self / f"{name}.csv", columns)

    def write_models(self, deployment: Deployment, client_names: Sequence[str]) -> None:
        """The final models: one row each in parameters and buffers, and which one each client uses."""
        arrays = {
            "parameters": np.stack([model.parameters for model in deployment.models]),
            "buffers": np.stack([model.buffers for model in deployment.models]),
            "client": np.array(client_names, dtype=str),
            "model_of_client": deployment.of_client,
        }
        if deployment.log_prior is not None:
            arrays["log_prior"] = deployment.log_prior
        save_arrays(self / "models.npz", arrays)

    def finish(
        self, federation: Federation, history: History, facts: Mapping[str, Any], seconds: Mapping[str, float]
    ) -> None:
        """Write the summary, which says that the run is complete."""
        rounds, evaluated = history.rounds(), history.evaluated()
        best = int(np.argmax(evaluated["global_accuracy"]))  # the first of equals
        scores = {key: column for key, column in evaluated.items() if key not in COSTS}
        summary = {
            **facts,
            "num_clients": federation.num_clients,
            "skew": skew.measures(federation.label_counts),
            "last": {key: column[-1].item() for key, column in scores.items()},
            "best": {key: column[best].item() for key, column in scores.items()},
            "tau": int(rounds["tau"][-1]) if "tau" in rounds else None,
            "participants": int(rounds["participants"].sum()),
            "left_out": int(rounds["left_out"].sum()),
            "bytes_up": int(rounds["bytes_up"].sum()),
            "bytes_down": int(rounds["bytes_down"].sum()),
        }
        write_json(self / "timing.json", {"seconds": sum(seconds.values()), "by_purpose": dict(seconds)})
        write_json(self / "summary.json", summary)
        (self / "checkpoint.npz").unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------- reading

    def config(self) -> Config:
        return Config.from_dict(self._read_json("config.json"))

    def summary(self) -> dict[str, Any]:
        return self._read_json("summary.json")

    def timing(self) -> dict[str, Any]:
        return self._read_json("timing.json")

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            values = json.loads((self / name).read_text())
        except (OSError, ValueError) as error:
            raise ClustPSIError(
                f"{self.path} is not a run folder of clustpsi: its {name} cannot be read ({error})"
            ) from None
        if not isinstance(values, dict):
            raise ClustPSIError(f"{self.path} is not a run folder of clustpsi: its {name} is not an object")
        return values

    def rounds(self) -> pd.DataFrame:
        return self._read_csv("rounds.csv")

    def clients(self) -> pd.DataFrame:
        return self._read_csv("clients.csv")

    def clusters(self) -> NDArray[np.int64] | None:
        """The cluster of each client, if the method has clusters."""
        exists = (self / "clusters.csv").exists()
        return self._read_csv("clusters.csv")["cluster"].to_numpy(np.int64) if exists else None

    def _read_csv(self, name: str) -> pd.DataFrame:
        try:
            return pd.read_csv(self / name)
        except (OSError, ValueError) as error:
            raise ClustPSIError(f"{self.path} is damaged: its {name} cannot be read ({error})") from None

    def accuracy(self) -> pd.DataFrame:
        return pd.read_parquet(self / "accuracy.parquet")


class Store:
    """A folder of run folders, one for each configuration."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise ClustPSIError(f"{self.root} is a file: runs need a folder")

    def folder(self, config: Config) -> RunFolder:
        folder = RunFolder(self.root / config.folder_name)
        if folder.path.exists() and any(each.name != ".lock" for each in folder.path.iterdir()):
            if not folder.exists:
                raise ClustPSIError(
                    f"{folder.path} is not a run folder of clustpsi: it has no config.json; move it away"
                )
            if folder.config() != config:
                raise ClustPSIError(f"{folder.path} holds a run with other settings than its name says; move it away")
            if folder.finished:  # but its process was killed before it could tidy up
                with contextlib.suppress(OSError):
                    (folder / "checkpoint.npz").unlink(missing_ok=True)
        return folder

    def __iter__(self) -> Iterator[RunFolder]:
        """All run folders, by name."""
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if (path / "config.json").exists():
                    yield RunFolder(path)


# ------------------------------------------------------------------------------------------------ arrays in files


def pack_state(state: State, prefix: str = "state") -> dict[str, NDArray[Any]]:
    """A state as named arrays."""
    packed: dict[str, NDArray[Any]] = {f"{prefix}/size": np.array([len(state.models), len(state.parts)])}
    if state.models:
        packed[f"{prefix}/parameters"] = np.stack([model.parameters for model in state.models])
        packed[f"{prefix}/buffers"] = np.stack([model.buffers for model in state.models])
    packed |= {f"{prefix}/memory/{key}": value for key, value in state.memory.items()}
    for i, part in enumerate(state.parts):
        packed |= pack_state(part, f"{prefix}/{i}")
    return packed


def unpack_state(packed: Mapping[str, NDArray[Any]], prefix: str = "state") -> State:
    """The state that :func:`pack_state` made the arrays of."""
    num_models, num_parts = packed[f"{prefix}/size"]
    models: tuple[Model, ...] = ()
    if num_models:
        models = tuple(map(Model, packed[f"{prefix}/parameters"], packed[f"{prefix}/buffers"]))
    memory_of = f"{prefix}/memory/"
    memory = {key.removeprefix(memory_of): value for key, value in packed.items() if key.startswith(memory_of)}
    return State(models, memory, tuple(unpack_state(packed, f"{prefix}/{i}") for i in range(num_parts)))


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ClustPSIError(f"{path} cannot be read ({error}): start the run afresh with --fresh") from None
