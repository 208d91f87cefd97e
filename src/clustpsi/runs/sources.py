"""The data of a run, identified by its content: a result belongs to its data, not to the name of a file.

Every way to the same data (any spelling of a path, a data frame, arrays, a named data set in any folder) leads to the
same hash.  Every change of the data leads to another hash.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustpsi.datasets import Dataset, data_folder, is_file_name, load_dataset
from clustpsi.datasets.files import is_there, reading, user_path
from clustpsi.errors import ClustPSIError
from clustpsi.federation import workable
from clustpsi.runs.config import Config


class Sources:
    """Loads the data of runs; consecutive runs on unchanged data share it."""

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self.data_dir = data_dir
        self._key: Any = None
        self._dataset: Dataset | None = None

    def load(self, config: Config) -> Dataset:
        """The data set of a run, as it is now."""
        key = (config.dataset, config.reading, self._stamp(config))
        if self._dataset is None or key != self._key:
            self._dataset = None  # frees the old one's memory before the new one needs any
            self._dataset = load_dataset(config.dataset, data_dir=self.data_dir, **config.reading)
            self._key = key
        return self._dataset

    def identify(self, configs: Iterable[Config]) -> tuple[list[Config], dict[Config, str]]:
        """The runs with the hash of their data; and the runs whose data cannot be read, with the reason."""
        contents: dict[Any, str] = {}
        known, unknown = [], {}
        for config in configs:
            key = (config.dataset, config.word_vectors, config.start_from, *config.reading.values())
            try:
                if key not in contents:
                    contents[key] = content(config, self.load(config))
                known.append(replace(config, content=contents[key]))
            except ClustPSIError as error:
                unknown[config] = str(error)
        return known, unknown

    def _stamp(self, config: Config) -> Any:
        """A value that changes whenever the data may have changed."""
        if is_file_name(config.dataset):
            path = user_path(config.dataset)
            return _file_hash(path) if is_there(path) and path.is_file() else None
        folder = data_folder(self.data_dir) / config.dataset
        files = sorted(path for path in folder.rglob("*") if path.is_file() and ".clustpsi" not in path.parts)
        return folder, [(path, path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino) for path in files]


def settled(config: Config, dataset: Dataset, seeds: Sequence[int]) -> Config:
    """The run with a partition that exists for its data and all seeds; settings of the user stay."""
    partitioner = config.checked().partitioner
    if partitioner in (None, "natural") or None not in (config.non_iid_param, config.num_clients):
        return config
    assert partitioner is not None
    level, clients = workable(dataset, partitioner, seeds, config.non_iid_param, config.num_clients, config.split)
    return replace(config, non_iid_param=level, num_clients=clients)


def identified(config: Config, dataset: Dataset) -> Config:
    """The run with the hash of its data."""
    return with_content(config, content(config, dataset))


def with_content(config: Config, found: str) -> Config:
    """The run with the hash of its data; raises if the run already has another hash."""
    if config.content not in (None, found):
        raise ClustPSIError(
            f"the data of {config.dataset} is not what it was when this run was set up: start the command again"
        )
    return replace(config, content=found)


def content(config: Config, dataset: Dataset) -> str:
    """The hash of everything that a run reads: its data set and, if used, word vectors and the saved model."""
    files = [name for name in (config.word_vectors, config.start_from) if name is not None]
    return "-".join([dataset.content, *(_file_hash(user_path(name)) for name in files)])


def _file_hash(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
