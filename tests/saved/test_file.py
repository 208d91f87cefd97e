"""The file of a saved model: what comes back, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clustpsi import SavedModel, load_model
from clustpsi.errors import ClustPSIError
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import Store
from clustpsi.saved.file import save_model

Damage = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config(num_clients=6, comm_rounds=1, local_epochs=1, agg_method="clust_psi_pfl:inner=prior_pfl", seed=0)
    return run(config, Store(tmp_path_factory.mktemp("runs")), save_models=True) / "model.safetensors"


def as_plain(model: SavedModel) -> Any:
    """Everything in a model as values that compare."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if hasattr(value, "__dataclass_fields__"):
            return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
        return [plain(each) for each in value] if isinstance(value, tuple | list) else value

    return plain(model)


def test_what_is_saved_comes_back_and_is_written_to_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved)
    save_model(model, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()
    assert as_plain(load_model(tmp_path / "again.safetensors")) == as_plain(model)
    assert model.method.startswith("clust_psi_pfl:inner=prior_pfl") and model.config["num_clients"] == 6
    assert set(model.versions) >= {"clustpsi", "jax", "numpy"}


def test_models_that_several_clients_use_are_in_the_file_once(saved: Path) -> None:
    model = load_model(saved)
    assert model.clusters is not None
    assert len(load_file(saved)["parameters"]) == len(set(model.clusters.tolist())) < 6


def test_the_folder_of_a_run_will_do(saved: Path) -> None:
    assert as_plain(load_model(saved.parent)) == as_plain(load_model(str(saved)))


def damaged(saved: Path, path: Path, damage: Damage) -> Path:
    """A copy of a saved model with other content."""
    with safe_open(saved, framework="numpy") as file:
        header = json.loads(file.metadata()["clustpsi"])
    arrays = load_file(saved)
    damage(header, arrays)
    save_file(arrays, path, {"clustpsi": json.dumps(header)})
    return path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda header, arrays: header.update(format=2), "format 2, and this version .* reads format 1.*or later"),
        (lambda header, arrays: header.update(format="x"), "format x.*save the model again"),
        (lambda header, arrays: header["network"].update(model="mlp"), "of another network: they have 650 parameters"),
        (lambda header, arrays: header["network"].update(model="vit"), "unknown model 'vit'"),
        (lambda header, arrays: header["classes"].pop(), "of another network"),
        (lambda header, arrays: header["clients"].pop(), "model_of_client has shape"),
        (lambda header, arrays: header.pop("features"), "is damaged.*features"),
        (lambda header, arrays: header["features"].update(kind="sound"), "no features of clustpsi"),
        (lambda header, arrays: arrays.pop("buffers"), "is damaged.*buffers"),
        (lambda header, arrays: arrays.pop("newcomers.mean"), "is damaged.*newcomers.mean"),
        (lambda header, arrays: arrays["parameters"].fill(np.nan), "not finite"),
        (lambda header, arrays: arrays["model_of_client"].fill(99), "a model that is not there"),
        (lambda header, arrays: arrays["newcomers.models"].fill(99), "is damaged"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(
    saved: Path, tmp_path: Path, damage: Damage, message: str
) -> None:
    path = damaged(saved, tmp_path / "model.safetensors", damage)
    with pytest.raises(ClustPSIError, match=message) as refused:
        load_model(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_truncated_file_is_refused(saved: Path, tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(ClustPSIError, match="damaged, truncated or no saved model"):
        load_model(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=r"does not exist: a saved model \(model.safetensors"):
        load_model(tmp_path / "none.safetensors")
    with pytest.raises(ClustPSIError, match="does not exist"):
        load_model(tmp_path)
    np.savez(tmp_path / "models.npz", parameters=np.zeros(3))
    with pytest.raises(ClustPSIError, match=r"models.npz.*again with --save-models"):
        load_model(tmp_path / "models.npz")
    save_file({"weights": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ClustPSIError, match="safetensors file of something else"):
        load_model(tmp_path / "other.safetensors")
