"""Runs as folders: written during the run, each file atomically, and readable with pandas.

config.json      what was run
clients.csv      one row per client: samples, PSI, label counts of training and test data
rounds.csv       one row per round: scores if it was evaluated, participants, bytes
accuracy.parquet one row per scored client and evaluated round: local accuracy and loss
clusters.csv     for clustering methods: one row per client
silhouette.csv   for Clust-PSI-PFL: the score of every number of clusters tried
left_out.csv     clients whose update was missing or not finite, if there were any
timing.json      seconds (the only file that differs between two runs of the same configuration)
summary.json     the scores of the last and of the best round; exists if and only if the run has finished
failed.txt       why the run failed, if it did
checkpoint.npz   where to continue; removed once the run has finished
newcomers.csv    clients that came after the start: the model that each uses, and its accuracy
model.safetensors the saved model, if asked for
models.npz       for clients with a model of their own, instead of the saved model: the vectors
"""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from clustpsi import skew
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores
from clustpsi.exact import read_exact_csv
from clustpsi.files import is_unfinished, make_folder, write_atomically, writing
from clustpsi.methods.base import State
from clustpsi.orders import Deployment, Model
from clustpsi.runs.config import Config
from clustpsi.runs.history import COSTS, SCORES, History

# Endings of the files that a run writes.  Other files in its folder are not the run's.
SUFFIXES = (".json", ".csv", ".parquet", ".npz", ".safetensors", ".txt")


class RunLocked(ClustPSIError):
    """Another process is working on the run."""


def write_json(path: Path, values: Any) -> None:
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"  # NaN is not JSON
    write_atomically(path, lambda file: file.write(text.encode()))


def write_csv(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """Write a CSV in which floats keep every digit."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    # Names stay a tuple: in an array each would take as much memory as the longest.
    plain = [column if isinstance(column, tuple) else np.asarray(column).tolist() for column in columns.values()]
    table.writerows(zip(*plain, strict=True))
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def inputs_beside(source: Path, output: Path) -> list[Path]:
    """Which files of a store, of a run or of a CSV of runs could be replaced by the output."""
    if not source.is_dir():
        return [source]
    folder = RunFolder(output.parent)
    if not folder.exists or not output.resolve().is_relative_to(source.resolve()):
        return []
    return [path for path in folder.path.iterdir() if path.suffix in SUFFIXES]


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
        make_folder(self.path)
        write_json(self / "config.json", config.as_dict())

    def clear(self) -> None:
        """Remove what a run has written.

        The summary goes first, so that a half-cleared folder never looks finished.  The configuration goes last, so
        that the folder always looks like a run.
        """
        files = self.path.iterdir() if self.path.is_dir() else ()
        own = [path for path in files if path.suffix in SUFFIXES and path.is_file()]
        for path in sorted(own, key=lambda path: (path.name == "config.json", path.name != "summary.json", path.name)):
            with writing(path):
                path.unlink()

    @property
    def _lock_file(self) -> Path:
        """The lock file, beside the folder.  It is never removed, so that two processes cannot both hold the lock."""
        return self.path.parent / ".locks" / f"{self.path.name}.lock"

    @contextlib.contextmanager
    def locked(self, patience: float = 0.5) -> Iterator[None]:
        """Hold the run's lock; if a process is killed, the system releases its lock.

        A process that only checks the lock holds it for a moment, so this waits up to ``patience`` seconds.
        """
        lock = filelock.FileLock(self._lock_file, thread_local=False)  # another thread may release it
        with writing(self._lock_file):
            make_folder(self._lock_file.parent)
            try:
                lock.acquire(timeout=patience, poll_interval=0.01)
            except filelock.Timeout:
                raise RunLocked(
                    f"another process is working on the run {self.path}: wait for it, or choose another --output"
                ) from None
        try:
            self._remove_left_overs()
            yield
        finally:
            try:
                self._remove_if_empty()
            finally:
                lock.release()

    @property
    def is_locked(self) -> bool:
        """Whether a process is working on the run now."""
        if not self._lock_file.exists():
            return False
        try:
            with self.locked(patience=0):
                return False
        except RunLocked:
            return True
        except ClustPSIError:  # the lock file cannot be opened: waiting would not help
            return False

    def _remove_left_overs(self) -> None:
        """Remove what a killed process left behind: unfinished files, and the checkpoint of a finished run."""
        if self.path.is_dir():
            with writing(self.path):
                for path in self.path.iterdir():
                    if is_unfinished(path) or (path.name == "checkpoint.npz" and self.finished):
                        path.unlink()

    def _remove_if_empty(self) -> None:
        """Remove the folder if the run failed before it wrote anything."""
        with contextlib.suppress(OSError):  # it is not empty, or does not exist
            self.path.rmdir()

    # --------------------------------------------------------------------------------------------------- writing

    def write_clients(
        self,
        client_names: Sequence[str],
        class_names: Sequence[str],
        train: NDArray[np.int64],
        test: NDArray[np.int64],
    ) -> None:
        """Write what is known before training; ``train`` and ``test`` count each client's samples of each class."""
        columns: dict[str, Any] = {"client": client_names, "train": train.sum(axis=1), "test": test.sum(axis=1)}
        columns["psi"] = skew.psi(train)
        columns |= {f"count_{name}": train[:, c] for c, name in enumerate(class_names)}
        columns |= {f"test_{name}": test[:, c] for c, name in enumerate(class_names)}
        write_csv(self / "clients.csv", columns)

    def write_tables(
        self,
        history: History,
        client_names: Sequence[str],
        scored: NDArray[np.int64],
        clusters: NDArray[np.int64] | None,
        own: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write all scores and costs so far."""
        write_csv(self / "rounds.csv", history.rounds())
        local = pa.table(history.local([client_names[client] for client in scored]))
        write_atomically(self / "accuracy.parquet", lambda file: parquet.write_table(local, file))
        if clusters is not None:
            write_csv(self / "clusters.csv", {"client": client_names, "cluster": clusters})
        left_out = history.left_out(client_names)
        if len(left_out["round"]):
            write_csv(self / "left_out.csv", left_out)
        for name, columns in own.items():
            write_csv(self / f"{name}.csv", columns)

    def write_newcomers(self, newcomers: Sequence[Mapping[str, Any]]) -> None:
        """Write the scores of clients that came after the start, if there are any."""
        if newcomers:
            write_csv(self / "newcomers.csv", {key: tuple(row[key] for row in newcomers) for key in newcomers[0]})

    def write_vectors(self, deployment: Deployment, client_names: Sequence[str]) -> None:
        """Write models that only the clients know: one vector per model, and which one each client uses."""
        arrays = {
            "parameters": np.stack([model.parameters for model in deployment.models]),
            "client": np.array(client_names, dtype=str),
            "model_of_client": deployment.of_client,
        }
        save_arrays(self / "models.npz", arrays)

    def write_failure(self, reason: str) -> None:
        """Write why the run failed."""
        write_atomically(self / "failed.txt", lambda file: file.write(f"{reason}\n".encode()))

    def write_timing(self, seconds: Mapping[str, float]) -> None:
        """Write the time that the run took, by purpose."""
        parts = {purpose: spent for purpose, spent in seconds.items() if purpose != "compilation"}
        timing = {"seconds": sum(parts.values()), "by_purpose": parts, "compilation": seconds.get("compilation", 0.0)}
        write_json(self / "timing.json", timing)

    def finish(
        self,
        history: History,
        facts: Mapping[str, Any],
        label_counts: NDArray[np.int64],
        constant: Mapping[str, Scores],
    ) -> None:
        """Write the summary, which marks the run as finished.

        Parameters
        ----------
        history
            Scores and costs of the run.
        facts
            Other entries of the summary.
        label_counts
            How many training samples of each class every client has.
        constant
            Scores of constant answers.
        """
        rounds, evaluated, few = history.rounds(), history.evaluated(), history.last_few()
        best = int(np.argmax(evaluated["global_accuracy"]))  # the first if several are equal
        scores = {key: column for key, column in evaluated.items() if key not in COSTS}
        summary = {
            **facts,
            "num_clients": len(label_counts),
            "skew": skew.measures(label_counts),
            "last": {key: column[-1].item() for key, column in scores.items()},
            "best": {key: column[best].item() for key, column in scores.items()},
            "constant": {
                who: {key: getattr(each, key) for key in SCORES if key != "loss"} for who, each in constant.items()
            },
            "unstable": {"min": few.min(), "max": few.max()},
            "tau": int(rounds["tau"][-1]) if "tau" in rounds else None,
            "participants": int(rounds["participants"].sum()),
            "left_out": int(rounds["left_out"].sum()),
            "left_out_clients": history.num_left_out,
            "bytes_up": int(rounds["bytes_up"].sum()),
            "bytes_down": int(rounds["bytes_down"].sum()),
            "notes": history.notes(len(label_counts)),
        }
        write_json(self / "summary.json", summary)
        (self / "checkpoint.npz").unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------- reading

    def config(self) -> Config:
        return Config.from_dict(self._read_json("config.json"))

    def summary(self) -> dict[str, Any]:
        values = self._read_json("summary.json")
        lacking = [key for key in ("last", "best", "skew") if not isinstance(values.get(key), dict)]
        if lacking:
            raise ClustPSIError(
                f"{self.path} is damaged: its summary.json has no {lacking[0]}; compute the run again with --fresh"
            )
        return values

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

    def forms(self) -> tuple[str, ...]:
        """Forms of convolutions that an unfinished run began with; none if they are the usual ones."""
        return tuple(load_arrays(self / "checkpoint.npz").get("forms", np.array([], dtype=str)).tolist())

    def rounds(self) -> pd.DataFrame:
        return self._read_csv("rounds.csv")

    def clients(self) -> pd.DataFrame:
        return self._read_csv("clients.csv", dtype={"client": str}, keep_default_na=False)  # NA and 007 are names

    def label_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many training and test samples of each class every client has; old runs have no test samples."""
        try:
            with (self / "clients.csv").open(newline="", encoding="utf-8") as file:
                header, *rows = csv.reader(file)
            kinds = [[i for i, name in enumerate(header) if name.startswith(kind)] for kind in ("count_", "test_")]
            train, test = (np.array([[int(row[i]) for i in columns] for row in rows], np.int64) for columns in kinds)
        except (OSError, ValueError, IndexError, OverflowError, csv.Error) as error:
            raise ClustPSIError(f"{self.path} is damaged: its clients.csv cannot be read ({error})") from None
        return train, test

    def newcomers(self) -> list[dict[str, Any]]:
        """Clients that came after the start, one row per client and evaluation."""
        exists = (self / "newcomers.csv").exists()
        records = self._read_csv("newcomers.csv").to_dict("records") if exists else []
        return [{str(key): value for key, value in record.items()} for record in records]

    def clusters(self) -> NDArray[np.int64] | None:
        """The cluster of each client, if the method has clusters."""
        exists = (self / "clusters.csv").exists()
        return self._read_csv("clusters.csv")["cluster"].to_numpy(np.int64) if exists else None

    def _read_csv(self, name: str, **options: Any) -> pd.DataFrame:
        try:
            return read_exact_csv(self / name, **options)
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
        if folder.path.exists() and not folder.path.is_dir():
            raise ClustPSIError(f"{folder.path} is a file where the folder of a run should be; move it away")
        if not folder.exists:
            if folder.path.exists() and any(not is_unfinished(path) for path in folder.path.iterdir()):
                raise ClustPSIError(
                    f"{folder.path} is not a run folder of clustpsi: it has no config.json; move it away"
                )
        elif folder.config().as_dict() != config.as_dict():
            raise ClustPSIError(f"{folder.path} holds a run with other settings than its name says; move it away")
        elif folder.finished and (folder / "checkpoint.npz").exists():  # its process was killed at the very end
            with contextlib.suppress(ClustPSIError), folder.locked():
                pass
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
    """The state from the arrays that :func:`pack_state` made."""
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
    except Exception as error:  # damaged bytes make the parsers of ZIP and NPY raise all kinds of errors
        raise ClustPSIError(f"{path} cannot be read ({error!r}): start the run afresh with --fresh") from None
