"""Clients with a model of their own: the examples, and what the server does when they cannot do something."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.flower import client_app
from clustpsi.flower.local_grid import LocalGrid
from clustpsi.flower.server import federate
from clustpsi.flower.settings import Settings
from clustpsi.nodes.server import Patience
from clustpsi.runs.config import Config
from clustpsi.runs.store import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples" / "federation"
CONFIG = Config(
    dataset="site-{n}.csv", label="species", partitioner="natural", comm_rounds=4, local_epochs=3, lr=0.02, fraction=1.0
)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    subprocess.run([sys.executable, EXAMPLES / "make_sites.py", folder], check=True)
    return folder


def example(name: str) -> Any:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_sites(app: Any, sites: Path, output: Path, config: Config = CONFIG, **more: Any) -> RunFolder:
    nodes = {k: {"name": f"site-{k}", "data": str(sites / f"site-{k}.csv"), "label": "species"} for k in range(1, 5)}
    grid = LocalGrid(dict.fromkeys(nodes, app), nodes)
    return federate(grid, Settings(config, nodes=4, output=str(output), patience=Patience(1, 30), **more))


@pytest.mark.parametrize("method", ["fedavg", "clust_psi_pfl:tau_clusters=2", "poc", "fedsoft:n_fedsoft=2", "cfl"])
def test_the_scikit_learn_client_runs(method: str, sites: Path, tmp_path: Path) -> None:
    # It trains without the proximal term: enough to see that orders get through.
    takes = ("proximal",) if method.startswith("fedsoft") else ()
    module = example("sklearn_client")
    functions = {name: getattr(module, name) for name in ("label_counts", "train", "evaluate", "initial", "losses")}
    config = replace(CONFIG, agg_method=method, comm_rounds=10)
    folder = run_sites(client_app(**functions, takes=takes), sites, tmp_path, config, save_models=True)
    assert folder.summary()["last"]["global_accuracy"] > 0.75
    assert folder.summary()["num_parameters"] == 12
    if method.startswith("clust"):
        assert folder.clusters().tolist() == [0, 0, 1, 1] or folder.clusters().tolist() == [1, 1, 0, 0]
        with np.load(folder / "models.npz") as saved:
            assert saved["parameters"].shape == (2, 12)


def test_clients_with_different_models_leave_different_runs(sites: Path, tmp_path: Path) -> None:
    module = example("sklearn_client")
    functions = {name: getattr(module, name) for name in ("label_counts", "train", "evaluate", "initial")}
    folders = {
        run_sites(client_app(**functions, model=model), sites, tmp_path, replace(CONFIG, comm_rounds=1)).path
        for model in ("one", "other")
    }
    assert len(folders) == 2


def test_the_torch_client_runs(sites: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'clustpsi[benchmark]'")
    config = replace(CONFIG, agg_method="clust_psi_pfl:tau_clusters=2")
    folder = run_sites(example("torch_client").app, sites, tmp_path, config)
    assert folder.summary()["last"]["global_accuracy"] > 0.75
    assert folder.summary()["num_parameters"] == 3 * 16 + 16 + 16 * 3 + 3


def test_examples_are_short() -> None:
    for name in ("torch_client.py", "sklearn_client.py"):
        assert len((EXAMPLES / name).read_text().splitlines()) < 100


@pytest.mark.parametrize(
    "method, said",
    [
        ("fedprox", "this client trains without a proximal term, which the method needs"),
        ("prior_pfl", "a client with a model of its own holds no rows out, which the method needs"),
        ("prior_pfl:plain", "this client trains without a prior of the labels, which the method needs"),
        ("fedrs", "trains all of it on its own logits, and the method needs otherwise"),
        ("poc", "this client gives no losses, which the method asks for"),
    ],
)
def test_what_a_client_cannot_do_is_a_sentence(method: str, said: str, sites: Path, tmp_path: Path) -> None:
    module = example("sklearn_client")
    functions = {name: getattr(module, name) for name in ("label_counts", "train", "evaluate", "initial")}
    with pytest.raises(ClustPSIError, match=said):
        run_sites(client_app(**functions), sites, tmp_path, replace(CONFIG, agg_method=method))


def test_clients_with_models_of_different_sizes_do_not_mix(sites: Path, tmp_path: Path) -> None:
    module = example("sklearn_client")
    functions = {name: getattr(module, name) for name in ("label_counts", "train", "evaluate")}
    apps = {k: client_app(**functions, initial=lambda seed, size=k: [np.zeros((3, size)), np.zeros(3)]) for k in (3, 4)}
    nodes = {k: {"name": f"n{k}", "data": str(sites / f"site-{k}.csv"), "label": "species"} for k in apps}
    settings = Settings(CONFIG, nodes=2, output=str(tmp_path), patience=Patience(1, 30, 1.0))
    with pytest.raises(ClustPSIError, match="the federation's model has 12 parameters, and this client's 15"):
        federate(LocalGrid(apps, nodes), settings)
