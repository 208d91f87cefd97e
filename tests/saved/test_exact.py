"""A saved model answers for every client's test rows exactly as the run scored them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi import load_model
from clustpsi.datasets import from_arrays, from_table, load_dataset
from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator
from clustpsi.methods import method_types
from clustpsi.models import MODELS
from clustpsi.runs.cell import Cell, open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import Store

TINY = Config(num_clients=6, non_iid_param=0.5, comm_rounds=2, local_epochs=1, seed=0).checked()
RNG = np.random.default_rng(0)
WORDS = ("red", "green", "blue", "sea", "wood", "moor")
INNER = "clust_psi_pfl:inner=prior_pfl:tau_clusters=2"


def table() -> pd.DataFrame:
    """Numbers with gaps, dates, categories and true or false, in clients."""
    size = 240
    labels = RNG.integers(0, 3, size)
    wing = RNG.normal(labels, 1).round(2)
    wing[::17] = np.nan
    return pd.DataFrame(
        {
            "site": RNG.choice(["rome", "oslo", "paris", "kyiv"], size),
            "wing": wing,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, size), unit="D"),
            "habitat": RNG.choice(["sea", "wood", None], size),
            "ringed": RNG.random(size) < 0.5,
            "species": np.array(["gull", "owl", "tit"])[labels],
        }
    )


def texts() -> tuple[list[str], np.ndarray]:
    labels = RNG.integers(0, 2, 200)
    return [f"{WORDS[label]} {' '.join(RNG.choice(WORDS, 4))}" for label in labels], labels


def check_exact(config: Config, dataset: Dataset, store: Path, given: Callable[[np.ndarray], object]) -> None:
    """Run, save, load, and predict each client's test rows: its accuracy is the run's, to the last bit."""
    cell = open_cell(config, dataset=dataset)
    folder = run(config, Store(store), cell=cell, save_models=True)
    model = load_model(folder.path)
    last = folder.accuracy().query("round == round.max()").set_index("client")["accuracy"]
    federation = server(cell).federation
    for name, rows in zip(federation.client_names, federation.test, strict=True):
        if len(rows):
            codes = model.predict_codes(given(rows), name)
            assert (codes == federation.labels[rows]).mean() == last[name], name


def server(cell: Cell) -> Simulator:
    assert isinstance(cell.server, Simulator)
    return cell.server


@pytest.mark.parametrize("method", [*method_types(), INNER])
def test_every_method_on_digits(method: str, tmp_path: Path) -> None:
    digits = load_dataset("digits")
    pixels = digits.rows.arrays[0]
    check_exact(replace(TINY, agg_method=method), digits, tmp_path, lambda rows: pixels[rows])


@pytest.mark.parametrize("method", ["fedavg", "local", INNER])
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_table(method: str, model: str, tmp_path: Path) -> None:
    frame = table()
    birds = from_table(frame, label="species", client="site")
    config = Config(partitioner="natural", model=model, comm_rounds=2, local_epochs=1, agg_method=method)
    shuffled = frame[["ringed", "habitat", "seen", "wing", "species"]].assign(more=1)
    check_exact(config.checked(), birds, tmp_path, lambda rows: shuffled.iloc[rows])


@pytest.mark.parametrize(
    ("model", "shape", "smaller"),
    [
        ("fmnist_cnn", (8, 8, 1), {"maps": (4,), "width": 8}),
        ("cifar_cnn", (8, 8, 3), {"blocks": ((4, 0.2),), "width": 8}),
        # The paper's networks, which have more of the same layers, compile for most of a minute.
        pytest.param("fmnist_cnn", (28, 28, 1), {}, marks=pytest.mark.slow),
        pytest.param("cifar_cnn", (32, 32, 3), {}, marks=pytest.mark.slow),
    ],
)
def test_images(
    model: str,
    shape: tuple[int, ...],
    smaller: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODELS, model, partial(MODELS[model], **smaller))
    images = RNG.integers(0, 256, (60, *shape), np.uint8)
    dataset = from_arrays(images, RNG.integers(0, 2, 60))
    assert dataset.model == model
    config = replace(TINY, num_clients=2, comm_rounds=1, agg_method="local", non_iid_param=10.0)
    check_exact(config, dataset, tmp_path, lambda rows: images[rows])


@pytest.mark.parametrize("model", ["embedding_mlp", "lstm"])
def test_texts(model: str, tmp_path: Path) -> None:
    written, labels = texts()
    config = replace(TINY, num_clients=3, comm_rounds=1, model=model, agg_method="clust_psi_pfl:tau_clusters=2")
    check_exact(config, from_arrays(written, labels), tmp_path, lambda rows: [written[row] for row in rows])


def test_texts_with_word_vectors(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {i} {-i} 0.5\n" for i, word in enumerate(WORDS)))
    written, labels = texts()
    config = replace(TINY, num_clients=3, comm_rounds=1, word_vectors=str(vectors), agg_method="prior_pfl")
    check_exact(config, from_arrays(written, labels), tmp_path, lambda rows: [written[row] for row in rows])
