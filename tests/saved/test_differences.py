"""Models as differences from the first of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file

from clustpsi import load_model
from clustpsi.orders import Deployment, Model
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import Store
from clustpsi.saved.differences import packed, unpacked
from clustpsi.saved.file import save_model

VALUES = st.sampled_from([0.0, -0.0, 1.5, np.float32(1e-40), float("inf")])


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 30)), elements=VALUES))
def test_every_bit_comes_back_from_what_is_never_larger(vectors: np.ndarray) -> None:
    small = packed("p", vectors)
    assert unpacked("p", small).tobytes() == vectors.tobytes()
    assert sum(array.nbytes for array in small.values()) <= vectors.nbytes


def test_personal_models_that_differ_little_make_a_small_file(tmp_path: Path) -> None:
    config = Config(num_clients=6, comm_rounds=1, local_epochs=1, agg_method="fedavg", seed=0)
    model = load_model(run(config, Store(tmp_path / "runs"), save_models=True) / "model.safetensors")
    (shared,) = model.deployment.models
    own = [Model(shared.parameters.copy(), shared.buffers) for _ in range(6)]
    for number, each in enumerate(own):
        each.parameters[10 * number : 10 * number + 9] += 1
    personal = replace(model, deployment=Deployment((shared, *own), np.arange(1, 7)))
    path = tmp_path / "model.safetensors"
    save_model(personal, path)
    written = load_file(path)
    assert "parameters" not in written and len(written["parameters.places"]) == 6 * 9
    for before, after in zip(personal.deployment.models, load_model(path).deployment.models, strict=True):
        assert before.parameters.tobytes() == after.parameters.tobytes()


@pytest.mark.parametrize(
    ("part", "value"), [("counts", [1, 9]), ("counts", [-1, 3]), ("places", [0, -2]), ("places", [0, 99])]
)
def test_differences_that_do_not_fit_are_refused(part: str, value: list[int]) -> None:
    few = np.zeros((3, 20), np.float32)
    few[1, 7] = few[2, 8] = 1
    damaged = packed("p", few) | {f"p.{part}": np.array(value, np.int32)}
    with pytest.raises((ValueError, IndexError)):  # which `load_model` reports as damage
        unpacked("p", damaged)
