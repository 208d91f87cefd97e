"""Partitions that turned out to be infeasible.  The store records them, so that the long search happens only once.

Each has a file ``infeasible/<partition>.json`` beside the run folders.  If the file is removed, the partition is tried
again.
"""

import hashlib
import json
from typing import Any

from clustpsi.files import make_folder
from clustpsi.runs.config import FORMAT, Config
from clustpsi.runs.store import Store, write_json

#: The settings that decide whether a partition exists.
SETTINGS = (
    *("dataset", "label", "client", "text", "content"),
    *("partitioner", "non_iid_param", "num_clients", "split", "seed"),
)


def partition_name(config: Config) -> str:
    """Name of a run's partition, the same for all runs on it."""
    settings = json.dumps([FORMAT, *_settings(config).values()])
    dataset, partition, clients, *_ = config.folder_name.split("-")
    return f"{dataset}-{partition}-{clients}-seed{config.seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def record(store: Store, config: Config, reason: str) -> None:
    """Record that the run's partition does not exist."""
    path = store.root / "infeasible" / f"{partition_name(config)}.json"
    make_folder(path.parent)
    write_json(path, {"format": FORMAT, **_settings(config), "reason": reason})


def recorded(store: Store) -> dict[str, dict[str, Any]]:
    """All partitions that are known to be infeasible: their settings and the reason, by name."""
    found = {}
    for path in sorted((store.root / "infeasible").glob("*.json")):
        try:
            values = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # damaged: the partition is tried again
        if isinstance(values, dict) and values.get("format") == FORMAT and set(SETTINGS) <= set(values):
            found[path.stem] = values
    return found


def _settings(config: Config) -> dict[str, Any]:
    values = config.as_dict()
    return {key: values.get(key) for key in SETTINGS}
