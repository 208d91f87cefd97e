"""Federations of nodes inside one process, over Flower's Grid, and faults in them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clustpsi.flower.client import app_for
from clustpsi.flower.local_grid import LocalGrid
from clustpsi.flower.server import federate
from clustpsi.flower.settings import Settings
from clustpsi.flower.sources import data_of
from clustpsi.nodes.codec import Envelope
from clustpsi.nodes.node import AnyNode, Node
from clustpsi.nodes.server import Patience
from clustpsi.runs.config import Config
from clustpsi.runs.store import RunFolder

FIRST = 100  # number of the first node on the grid

Fault = Callable[[Envelope, AnyNode], Envelope]


def parts_of(config: Config, number: int) -> list[Node]:
    """Nodes that share a data set."""
    run_config = Settings(config).as_run_config()
    return [
        Node(data_of({"partition-id": k, "num-partitions": number}, run_config), workers=1, secret=f"secret {k}")
        for k in range(number)
    ]


def grid_of(nodes: Mapping[int, AnyNode], faults: Mapping[int, Fault] | None = None) -> LocalGrid:
    """A grid of nodes, some of which may answer wrongly."""

    def answering(number: int, node: AnyNode) -> Any:
        fault = (faults or {}).get(number)
        return app_for(lambda envelope, _: node.handle(envelope) if fault is None else fault(envelope, node))

    return LocalGrid({number: answering(number, node) for number, node in nodes.items()})


def federate_here(
    config: Config, output: Path, nodes: list[AnyNode] | None = None, patience: Patience | None = None, **more: Any
) -> RunFolder:
    """Run a configuration over nodes of this process."""
    if nodes is None:
        nodes = [*parts_of(config, config.num_clients or 5)]
    # Nodes connect in any order.
    grid = grid_of({FIRST + number: node for number, node in reversed(list(enumerate(nodes)))})
    settings = Settings(config, nodes=len(nodes), output=str(output), patience=patience or Patience(), **more)
    try:
        return federate(grid, Settings.of(settings.as_run_config()))
    finally:
        for node in nodes:
            node.close()
