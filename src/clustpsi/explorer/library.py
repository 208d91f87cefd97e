"""The data that the page can show: the named data sets on this machine, and tables that were dropped on the page.

A table is kept in the explorer's folder under a hash of its content.  No other file is ever opened by a name from a
browser.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets import DATASETS, Dataset, data_folder, load_dataset
from clustpsi.datasets.counts import read_counts
from clustpsi.datasets.table_files import kind_of, read_table
from clustpsi.errors import ClustPSIError
from clustpsi.explorer.settings import MOST_CLIENTS, TABLE, Settings, is_table
from clustpsi.federation import build_federation
from clustpsi.files import make_folder, write_atomically
from clustpsi.partition import label_counts

LARGEST_TABLE = 50_000_000  # bytes
LONGEST_NAME = 200  # bytes of a file's name
KEPT_IN_MEMORY = 3  # data sets; the largest takes a gigabyte


@dataclass(frozen=True)
class Clients:
    """What is known about the clients before training.

    Attributes
    ----------
    names, classes
        Names of clients and classes.
    counts
        Label counts of the training samples (for a table with clients of its own, of all samples), clients x classes.
    test_counts
        Label counts of the test samples, if some are set aside.
    notes
        One sentence for each thing that was guessed or omitted when a table was read.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    test_counts: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()


class Library:
    """Data sets and tables, by their names on the page.

    Parameters
    ----------
    folder
        Folder for dropped tables.
    data_dir
        Folder with the named data sets.
    """

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        self.folder, self.data_dir = folder, data_dir
        self._load = lru_cache(KEPT_IN_MEMORY)(self._read)

    def names(self) -> list[str]:
        """The named data sets that are on this machine."""
        folder = data_folder(self.data_dir)
        return [name for name in DATASETS if name == "digits" or _has_files(folder / name)]

    def keep(self, name: str, content: bytes) -> str:
        """Keep a dropped file if it is a table; gives its name on the page."""
        if len(content) > LARGEST_TABLE:
            raise too_large()
        name = name.replace("\\", "/").rpartition("/")[2]
        if name in ("", ".", "..") or "\0" in name or len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
            raise ClustPSIError(f"a file of this name cannot be kept: give it a name of 1 to {LONGEST_NAME} characters")
        if kind_of(Path(name)) == "npz":
            raise ClustPSIError(f"{name} is a file of arrays, and the page takes tables: use clustpsi run")
        identity = hashlib.sha256(name.encode(errors="surrogatepass") + b"\0" + content).hexdigest()[:16]
        path = self.folder / identity / name
        make_folder(path.parent)
        write_atomically(path, lambda file: file.write(content))
        try:
            read_table(path)
        except ClustPSIError:
            path.unlink()
            path.parent.rmdir()
            raise
        return TABLE + identity

    def path(self, table: str) -> Path:
        """The file of a table."""
        folder = self.folder / table.removeprefix(TABLE)
        found = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
        if len(found) != 1:
            raise ClustPSIError("this table is not here (any more): drop it on the page again")
        return found[0]

    def file(self, settings: Settings) -> str:
        """The ``dataset`` of a run: a name, or the path of a table."""
        return str(self.path(settings.dataset)) if is_table(settings.dataset) else settings.dataset

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns."""
        return [str(column) for column in read_table(self.path(table)).columns]

    def told(self, error: Exception) -> str:
        """An error for the page, with the names of tables instead of their paths."""
        return re.sub(re.escape(str(self.folder)) + r"[/\\\\][0-9a-f]{16}[/\\\\]", "", str(error))

    def dataset(self, settings: Settings) -> Dataset:
        """The data set to train on; it is loaded only once."""
        return self._load(self.file(settings), settings.label, settings.client)

    def _read(self, file: str, label: str | None, client: str | None) -> Dataset:
        return load_dataset(file, data_dir=self.data_dir, label=label, client=client)

    def clients(self, settings: Settings) -> Clients:
        """The clients that the page shows."""
        if is_table(settings.dataset) and (settings.client is not None or settings.label is None):
            given = read_counts(self.path(settings.dataset), settings.label, settings.client)
            found = Clients(given.clients, given.classes, given.counts, notes=given.notes)
        else:
            found = self._spread(settings)
        _check_number(len(found.names))
        return found

    def _spread(self, settings: Settings) -> Clients:
        dataset = self.dataset(settings)
        if settings.partitioner == "natural" and dataset.client_ids is not None:
            # Before the federation is built, which takes long for many clients.
            _check_number(int((np.bincount(dataset.client_ids.codes) >= 2).sum()))
        federation = build_federation(
            dataset, settings.partitioner, settings.non_iid_param, settings.num_clients, settings.seed
        )
        return Clients(
            federation.client_names,
            dataset.class_names,
            federation.label_counts,
            label_counts(federation.test, dataset.labels, dataset.num_classes),
        )


def _check_number(clients: int) -> None:
    if clients > MOST_CLIENTS:
        raise ClustPSIError(
            f"there are {clients:,} clients, and the page shows at most {MOST_CLIENTS:,}: use clustpsi diagnose or "
            "clustpsi run"
        )


def too_large() -> ClustPSIError:
    return ClustPSIError(
        f"the file is larger than {LARGEST_TABLE / 1e6:.0f} MB: for a table of this size, use clustpsi diagnose or "
        "clustpsi run"
    )


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))
