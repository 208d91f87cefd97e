"""A method gives the same clusters and accuracies over nodes as in the simulator: same seed, same data."""

import json
from pathlib import Path

import numpy as np
import pytest

from clustpsi.methods import method_types
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import RunFolder, Store
from federations import federate_here

METHODS = [
    *(name for name, kind in method_types().items() if not kind.is_centralized),
    "haccs:haccs_loss=all",
    "cfl:cfl_preset=relative:eps1=1:gamma=0:warmup=1",
    "clust_psi_pfl:inner=prior_pfl",
    "clust_psi_pfl:inner=fedprox",
]


def check_same(nodes: RunFolder, simulated: RunFolder) -> None:
    ours, theirs = nodes.accuracy(), simulated.accuracy()
    assert ours["client"].tolist() == theirs["client"].tolist()
    assert np.abs(ours["accuracy"] - theirs["accuracy"]).max() < 1e-5
    assert np.abs(ours["loss"] - theirs["loss"]).max() < 1e-4
    assert (nodes.clusters() is None) == (simulated.clusters() is None)
    if nodes.clusters() is not None:
        assert nodes.clusters().tolist() == simulated.clusters().tolist()
    assert nodes.clients().equals(simulated.clients())
    one, other = nodes.summary(), simulated.summary()
    for key in ("bytes_up", "bytes_down", "participants", "left_out", "model", "num_parameters", "tau", "skew"):
        assert one[key] == other[key], key
    mine, yours = (json.loads((folder / "config.json").read_text()) for folder in (nodes, simulated))
    assert mine.pop("content") != yours.pop("content")
    assert mine == yours


@pytest.mark.parametrize("method", METHODS)
def test_every_method_agrees_with_the_simulator_on_part_of_a_data_set(method: str, tmp_path: Path) -> None:
    config = Config(
        num_clients=5, non_iid_param=0.5, agg_method=method, comm_rounds=2, local_epochs=1, fraction=0.6, lr=0.01
    )
    check_same(federate_here(config, tmp_path / "nodes"), run(config, Store(tmp_path / "simulated")))
