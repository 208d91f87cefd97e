"""Training further from a saved model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi import load_model
from clustpsi.datasets import from_table, load_dataset
from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method, method_types
from clustpsi.methods.base import Setting
from clustpsi.orders import Deployment, LabelCounts, Model
from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import RunFolder, Store

DIGITS = load_dataset("digits")
TINY = Config(num_clients=6, non_iid_param=0.5, comm_rounds=2, local_epochs=1, seed=0).checked()
# Without a calibration, which every run makes for itself.
PLAIN_PRIOR = "prior_pfl:average_over=all:momentum=0:prior_strength=0.5:hold_out=0"
NATURAL = Config(partitioner="natural", comm_rounds=2, local_epochs=1, seed=0).checked()


def birds(seed: int, sites: str = "abcd", species: str = "owl tit gull") -> pd.DataFrame:
    rng, kinds = np.random.default_rng(seed), species.split()
    labels = rng.integers(0, len(kinds), 160)
    return pd.DataFrame(
        {
            "wing": rng.normal(3 * labels + seed, 1),
            "habitat": rng.choice(["sea", "wood"], 160),
            "site": rng.choice(list(sites), 160),
            "species": np.array(kinds)[labels],
        }
    )


def first(tmp_path: Path, config: Config, frame: pd.DataFrame | None = None) -> RunFolder:
    dataset = DIGITS if frame is None else from_table(frame, label="species", client="site")
    return run(config, Store(tmp_path / "first"), cell=open_cell(config, dataset=dataset), save_models=True)


def go_on(tmp_path: Path, before: RunFolder, config: Config, frame: pd.DataFrame | None = None) -> RunFolder:
    dataset = DIGITS if frame is None else from_table(frame, label="species", client="site")
    config = replace(config, start_from=str(before.path)).checked()
    return run(config, Store(tmp_path / "then"), cell=open_cell(config, dataset=dataset), save_models=True)


@pytest.mark.parametrize("method", ["fedavg", "local", "cfl", "clust_psi_pfl", PLAIN_PRIOR])
def test_a_run_starts_with_the_accuracy_that_the_saved_model_ended_with(method: str, tmp_path: Path) -> None:
    config = replace(TINY, agg_method=method)
    before = first(tmp_path, config)
    after = go_on(tmp_path, before, config)
    ended, started = before.rounds().iloc[-1], after.rounds().iloc[0]
    assert started["global_accuracy"] == ended["global_accuracy"] and started["loss"] == ended["loss"]
    assert after.rounds()["loss"].iloc[-1] < started["loss"]


@pytest.mark.parametrize("method", list(method_types()))
def test_every_method_goes_on_from_the_models_of_clusters(method: str, tmp_path: Path) -> None:
    before = first(tmp_path, replace(TINY, agg_method="clust_psi_pfl:tau_clusters=3", comm_rounds=8))
    after = go_on(tmp_path, before, replace(TINY, agg_method=method, comm_rounds=1))
    untrained = before.rounds()["loss"].iloc[0]
    assert after.rounds()["loss"].iloc[0] < untrained


def test_the_file_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    one, other = first(tmp_path, TINY), first(tmp_path, replace(TINY, seed=1))
    names = {go_on(tmp_path, before, TINY).path.name for before in (one, other)}
    assert len(names) == 2 and one.path.name not in names
    plain = {key: value for key, value in one.config().as_dict().items() if key != "content"}
    assert "start_from" not in plain


def test_new_data_with_new_clients_keeps_the_old_features(tmp_path: Path) -> None:
    before = first(tmp_path, NATURAL, birds(0))
    frame = birds(5, sites="dexyz", species="tit gull")[["site", "species", "habitat", "wing"]]
    after = go_on(tmp_path, before, replace(NATURAL, agg_method="clust_psi_pfl"), frame)
    old, new = load_model(before.path), load_model(after.path)
    assert new.features == old.features and new.class_names == old.class_names == ("gull", "owl", "tit")
    assert new.client_names == ("d", "e", "x", "y", "z")
    assert (new.label_counts[:, 1] == 0).all()  # nobody has an owl now


def test_clients_start_from_what_they_used(tmp_path: Path) -> None:
    before = first(tmp_path, replace(NATURAL, agg_method="local"), birds(0))
    config = replace(NATURAL, agg_method="local", start_from=str(before.path)).checked()
    cell = open_cell(config, dataset=from_table(birds(1, sites="bdx"), label="species", client="site"))
    model, starts = load_model(before.path), cell.setting(config).own_starts
    for name, start in zip("bd", starts, strict=False):
        own = model.deployment.models[model.deployment.of_client[model.client_names.index(name)]]
        np.testing.assert_array_equal(start.parameters, own.parameters)
    counts = cell.server.clients.train_counts
    np.testing.assert_array_equal(starts[2].parameters, model.newcomers.models[model.assign(counts[2:])[0]].parameters)


def test_clients_of_another_partition_are_others_of_the_same_name(tmp_path: Path) -> None:
    config = replace(TINY, agg_method="local")
    before = first(tmp_path, config)
    model = load_model(before.path)

    def starts(config: Config) -> list[float]:
        going_on = replace(config, start_from=str(before.path)).checked()
        cell = open_cell(going_on, dataset=DIGITS)
        return [float(start.parameters.sum()) for start in cell.setting(going_on).own_starts]

    own = [float(model.deployment.models[each].parameters.sum()) for each in model.deployment.of_client]
    assert starts(config) == own
    assert starts(replace(config, seed=1)) != own


def setting(before: Deployment) -> Setting:
    nothing = Model(np.zeros(1, np.float32), np.zeros(0, np.float32))
    return Setting(np.arange(4), np.array([1, 1, 1, 5]), 2, 1.0, 1, 1, lambda index: nothing, 0, before)


def test_what_methods_start_from() -> None:
    models = tuple(Model(np.full(1, value, np.float32), np.zeros(0, np.float32)) for value in (0.0, 4.0, 9.0))
    now = setting(Deployment(models, np.array([0, 1, 1, 0])))
    assert now.common_start.parameters.tolist() == [1.0]  # 6 samples use 0, 2 use 4
    assert replace(now, clients=np.array([1, 2])).common_start is models[1]
    assert [start.parameters[0] for start in now.own_starts] == [0.0, 4.0, 4.0, 0.0]
    cfl = make_method("cfl").start(now)
    with pytest.raises(StopIteration) as ended:
        next(cfl)
    assert ended.value.value.memory["cluster"].tolist() == [0, 1, 1, 0] and len(ended.value.value.models) == 2


def test_methods_with_personal_parts_start_from_those_that_are_there() -> None:
    models = tuple(Model(np.array([value, -value], np.float32), np.zeros(0, np.float32)) for value in (0.0, 4.0, 9.0))
    now = replace(setting(Deployment(models, np.array([0, 1, 1, 0]))), head=np.array([False, True]))
    counts = np.ones((4, 2), np.int64)

    def used(method: str, setting: Setting) -> list[list[float]]:
        work = make_method(method).start(setting)
        try:
            order = next(work)
            while True:
                assert isinstance(order, LabelCounts)
                order = work.send(counts)
        except StopIteration as ended:
            deployment = make_method(method).deploy(setting, ended.value)
        return [deployment.models[each].parameters.tolist() for each in deployment.of_client]

    assert used("ditto", now) == [[0, 0], [4, -4], [4, -4], [0, 0]]
    for method in ("fedrep", "fedrod"):  # the shared part is the mean
        assert used(method, now) == [[1, 0], [1, -4], [1, -4], [1, 0]]
    assert used("ditto", setting(None)) == [[0.0]] * 4, "until they have trained, all use the shared model"


def test_ifca_goes_on_with_the_models_that_are_used_most() -> None:
    models = tuple(Model(np.full(1, value, np.float32), np.zeros(0, np.float32)) for value in (7.0, 8.0, 9.0))

    def starts(number: int) -> list[float]:
        work = make_method(f"ifca:n_ifca={number}").start(setting(Deployment(models, np.array([2, 1, 1, 0]))))
        return [model.parameters[0] for order in next(work).orders for model in [order.model]]

    assert starts(1) == [8] and starts(2) == [7, 8] and starts(3) == [7, 8, 9]
    assert starts(4)[:3] == [7, 8, 9] and starts(4)[3] not in (7, 8, 9)


@pytest.mark.parametrize(
    ("change", "frame", "message"),
    [
        ({"model": "mlp"}, birds(0), "is of the network logistic, not of --model mlp"),
        ({"word_vectors": "glove.txt"}, birds(0), "leave --word-vectors away"),
        ({}, birds(0, species="owl tit emu"), "has the class 'emu', which the saved model .* does not have"),
        ({}, birds(0).drop(columns="wing"), "other features .* the column 'wing' must be there and hold numbers"),
        ({}, birds(0).assign(habitat=1.5), "the column 'habitat' must be there and hold categories"),
        ({}, birds(0).assign(wing=pd.Timestamp("2020-01-01")), "the column 'wing' must be there and hold numbers"),
        ({}, None, "has the class '0', which the saved model"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    change: dict[str, str], frame: pd.DataFrame | None, message: str, tmp_path: Path
) -> None:
    before = first(tmp_path, NATURAL, birds(0))
    config = TINY if frame is None else NATURAL
    with pytest.raises(ClustPSIError, match=message):
        go_on(tmp_path, before, replace(config, **change), frame)


def test_there_must_be_a_saved_model(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="does not exist"):
        run(replace(TINY, start_from=str(tmp_path)), Store(tmp_path))
