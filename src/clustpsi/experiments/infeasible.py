"""Partitions that turned out infeasible, remembered in the store so that the long search for them is made once.

They are files ``infeasible/<partition>.json`` beside the run folders; without its file a partition is tried again.
"""

import hashlib
import json
from typing import Any

from clustpsi.config import FORMAT, Config
from clustpsi.results import Store, write_json, writing

#: The settings that decide whether there is a partition.
SETTINGS = ("dataset", "label", "client", "text", "partitioner", "non_iid_param", "num_clients", "split", "seed")
#: And those that came later, where they are used: which rows and classes there are.
LATER_SETTINGS = ("sep", "no_header", "drop_unlabelled", "min_class")


def partition_name(config: Config) -> str:
    """Name of a run's partition, the same for all runs on it."""
    settings = json.dumps([FORMAT, *(getattr(config, key) for key in SETTINGS), *_later_settings(config).items()])
    dataset, partition, clients, *_ = config.folder_name.split("-")
    return f"{dataset}-{partition}-{clients}-seed{config.seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def record(store: Store, config: Config, reason: str) -> None:
    """Remember that there is no such partition."""
    path = store.root / "infeasible" / f"{partition_name(config)}.json"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    settings = {key: getattr(config, key) for key in SETTINGS} | _later_settings(config)
    write_json(path, {"format": FORMAT, **settings, "reason": reason})


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


def _later_settings(config: Config) -> dict[str, Any]:
    used = config.as_dict()
    return {key: used[key] for key in LATER_SETTINGS if key in used}
