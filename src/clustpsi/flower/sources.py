"""Which rows a node has: decided by its own configuration and that of the run.

A node's configuration (``--node-config``) names its file: ``data``.  It may also give ``label``, ``text``, ``drop``,
``sep``, ``no-header`` and ``drop-unlabelled``, if they differ from the run's.  ``name`` is the client's name.  With
``partition-id`` and ``num-partitions`` instead, the node gets a part of the run's data set.  ``secret`` names a file
(:mod:`clustpsi.flower.secret`).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation, build_federation
from clustpsi.flower.settings import Settings
from clustpsi.nodes.data import NodeData, from_file, share
from clustpsi.nodes.node import Node
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources

OWN_READING = ("label", "text", "drop", "sep", "no-header", "drop-unlabelled")


def node_for(node_config: Mapping[str, Any], run_config: Mapping[str, Any], secret: str) -> Node:
    """A node with its rows; it makes its noise from ``secret``."""
    return Node(data_of(node_config, run_config), secret=secret)


def data_of(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> NodeData:
    """The rows of a node."""
    name = node_config.get("name")
    if "data" in node_config:
        own = {key: node_config[key] for key in OWN_READING if key in node_config}
        config = Settings.of({**run_config, **own}).config
        reading = {key: value for key, value in config.reading.items() if key not in ("client", "min_class")}
        return from_file(str(node_config["data"]), None if name is None else str(name), **reading)
    if "partition-id" not in node_config:
        raise ClustPSIError(
            "this node has no rows: its --node-config must name a file (data=...) or a part of the run's data set "
            "(partition-id=... num-partitions=...)"
        )
    config = Settings.of(run_config).config
    number, parts = int(node_config["partition-id"]), int(node_config.get("num-partitions", config.num_clients or 0))
    if config.checked().partitioner != "natural":
        config = replace(config, num_clients=parts)
    federation = _federation(config, node_config.get("data-dir"))
    if not 0 <= number < federation.num_clients:
        raise ClustPSIError(f"partition-id must be from 0 to {federation.num_clients - 1}, not {number}")
    data = share(federation, number)
    return data if name is None else replace(data, name=str(name))


@lru_cache(maxsize=1)
def _federation(config: Config, data_dir: Any) -> Federation:
    """All clients, from a data set on this machine."""
    config = config.checked()
    assert config.partitioner is not None
    dataset = Sources(None if data_dir is None else Path(data_dir)).load(config)
    made = build_federation(
        dataset, config.partitioner, config.non_iid_param, config.num_clients, config.seed, config.split
    )
    return made.for_validation(config.seed) if config.validation else made
