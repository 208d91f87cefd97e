"""Runs where a mistake would leave all tables in order: whose chance, whose seconds, which round."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustpsi.datasets import load_dataset
from clustpsi.engine import Simulator
from clustpsi.errors import ClustPSIError
from clustpsi.files import UNFINISHED
from clustpsi.models import MODELS
from clustpsi.models.images import CIFARCNN
from clustpsi.orders import LabelCounts, Order, Train
from clustpsi.runs.cell import Cell, open_cell, open_federation
from clustpsi.runs.config import Config
from clustpsi.runs.course import Progress
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import RunFolder, Store, load_arrays
from clustpsi.saved.file import load_model
from clustpsi.streams import Stream, generator

TINY = identified(Config(num_clients=6, comm_rounds=4, local_epochs=1, seed=3).checked(), load_dataset("digits"))
run_module: Any = importlib.import_module("clustpsi.runs.run")
store_module: Any = importlib.import_module("clustpsi.runs.store")
local_module: Any = importlib.import_module("clustpsi.engine.local")
take_ledger = Simulator.take_ledger


@pytest.fixture(scope="module")
def cell() -> Cell:
    return open_cell(TINY)


@pytest.fixture
def every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every round."""
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(run_module, "CHECKPOINT_SHARE", 0)


def contents(folder: RunFolder) -> dict[str, bytes]:
    """Every file of a run but the one that tells the time."""
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.name not in ("timing.json", ".lock")}


class Stop(Exception):
    pass


def stop_after(last: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.round > last:
            raise Stop

    return watch


def interrupted(config: Config, store: Store, cell: Cell, after: int = 2) -> RunFolder:
    """A run that was stopped; its checkpoint is that of round ``after``."""
    with pytest.raises(Stop):
        run(config, store, cell=cell, watch=stop_after(after))
    folder = store.folder(config)
    assert not folder.finished and load_arrays(folder / "checkpoint.npz")["round"] == after
    return folder


# --------------------------------------------------------------------------------------------------------------- chance


def test_clients_are_drawn_anew_every_round_from_the_seeds_own_stream(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, serve = list[tuple[int, Order]](), cell.server.serve

    def watched(order: Order, t: int) -> Any:
        asked.append((t, order))
        return serve(order, t)

    monkeypatch.setattr(cell.server, "serve", watched)
    run(TINY, Store(tmp_path), cell=cell)
    assert [t for t, order in asked if isinstance(order, Train)] == [1, 2, 3, 4]
    drawn = [order.clients.tolist() for _, order in asked if isinstance(order, Train)]
    assert drawn == [sorted(generator(3, Stream.SAMPLING, t).choice(6, 3, replace=False)) for t in (1, 2, 3, 4)]
    assert len({tuple(clients) for clients in drawn}) > 1


def test_validation_rows_are_drawn_with_the_runs_seed(cell: Cell) -> None:
    federation, held = cell.server.federation, {}
    for seed in (3, 4):
        config = replace(TINY, validation=True, seed=seed)
        held[seed] = open_federation(federation, config).server.federation.test
        expected = federation.for_validation(seed).test
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(held[seed], expected, strict=True))
    assert any(set(one) != set(other) for one, other in zip(held[3], held[4], strict=True))


# ------------------------------------------------------------------------------------------------ the settings of a run

OTHER = {
    "dataset": "other.csv", "label": "y", "client": "c", "text": "t", "partitioner": "iid", "non_iid_param": 0.7,
    "num_clients": 7, "split": "client_80_20", "validation": True, "model": "mlp", "word_vectors": "v.txt",
    "local_epochs": 2, "optimizer": "sgd", "lr": 0.5, "batch_size": 8, "seed": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_a_cell_is_another_one_where_anything_that_decides_it_is_another(name: str) -> None:
    other = replace(TINY, **{name: OTHER[name]})
    assert other.cell != TINY.cell
    assert other.folder_name != TINY.folder_name


def test_methods_share_a_cell_but_not_a_folder() -> None:
    other = replace(TINY, agg_method="local")
    assert other.cell == TINY.cell and other.folder_name != TINY.folder_name


def test_partitions_are_strongly_skewed_where_nobody_says() -> None:
    levels = {name: Config(partitioner=name).checked().non_iid_param for name in ("dirichlet", "similarity", "iid")}
    assert levels == {"dirichlet": 0.1, "similarity": 0.03, "iid": None}


@pytest.mark.parametrize("name", ["local_epochs", "optimizer", "lr", "batch_size", "seed"])
def test_a_cell_trains_as_its_run_says(cell: Cell, name: str) -> None:
    federation, config = cell.server.federation, replace(TINY, **{name: OTHER[name]})
    start, names = cell.server.initial(0), ("optimizer", "lr", "batch_size", "local_epochs", "seed")
    network, clients = cell.server.network, np.arange(2)
    opened = open_federation(federation, config)
    expected = Simulator(federation, network, **{each: getattr(config, each) for each in names})
    trained, by_hand, plain = (
        server.serve(Train(clients, start), 1).mean.parameters for server in (opened.server, expected, cell.server)
    )
    np.testing.assert_array_equal(trained, by_hand)
    assert not np.array_equal(trained, plain)
    assert opened.setting(config).seed == config.seed and opened.setting(config).local_epochs == config.local_epochs


@pytest.mark.parametrize("name", ["lr", "fraction", "non_iid_param"])
def test_a_whole_number_is_the_same_run_as_its_fraction(name: str) -> None:
    whole, fraction = (replace(TINY, **{name: value}).checked() for value in (1, 1.0))
    assert whole.folder_name == fraction.folder_name
    assert type(getattr(whole, name)) is float


# ------------------------------------------------------------------------------------------------ stopped and continued


def test_a_fresh_run_begins_with_round_0_whatever_is_in_the_folder(
    cell: Cell, tmp_path: Path, every_round: None
) -> None:
    seen: dict[str, list[int]] = {}
    for name, options in (("resumed", {"resume": True}), ("fresh", {"fresh": True})):
        store, rounds = Store(tmp_path / name), list[int]()
        interrupted(TINY, store, cell)
        run(TINY, store, cell=cell, watch=lambda now, rounds=rounds: rounds.append(now.round), **options)
        seen[name] = list(dict.fromkeys(rounds))
    assert seen == {"resumed": [2, 3, 4], "fresh": [0, 1, 2, 3, 4]}


def test_what_a_process_left_half_written_goes_when_the_run_is_next_worked_on(cell: Cell, tmp_path: Path) -> None:
    folder = run(TINY, Store(tmp_path), cell=cell)
    left = [folder / f".rounds.csv.1{UNFINISHED}", folder / "checkpoint.npz"]
    for path in left:
        path.write_bytes(b"half")
    with folder.locked():
        assert not any(path.exists() for path in left) and folder.finished


def test_a_fresh_run_leaves_files_that_are_not_its_own(cell: Cell, tmp_path: Path) -> None:
    folder = run(TINY, Store(tmp_path), cell=cell)
    (folder / "thoughts.md").write_text("mine")
    (folder / "left_out.csv").write_text("of an earlier version\n")
    run(TINY, Store(tmp_path), cell=cell, fresh=True)
    assert (folder / "thoughts.md").read_text() == "mine"
    assert folder.finished and not (folder / "left_out.csv").exists()


def test_a_run_goes_on_with_the_forms_of_convolutions_that_it_began_with(
    tmp_path: Path, every_round: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the machine would choose others now; its summary says which, unless they are the usual ones."""
    monkeypatch.setitem(MODELS, "cifar_cnn", partial(CIFARCNN, blocks=((2, 0.2),), width=4))  # compiled in less time
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", images=images, kind=np.arange(40) % 2)
    config = replace(TINY, dataset=str(tmp_path / "images.npz"), label="kind", model="cifar_cnn", content=None)
    config = replace(config, partitioner="iid", non_iid_param=None, num_clients=2)
    config, store = identified(config, Sources().load(config)), Store(tmp_path / "runs")
    monkeypatch.setattr(local_module, "suited_forms", lambda network, batch_size: ("patches",) * 2)
    interrupted(config, store, open_cell(config))
    monkeypatch.setattr(local_module, "suited_forms", lambda network, batch_size: ())
    now = open_cell(config)
    assert now.forms == () and now.with_forms(()) is now
    served = list[tuple[str, ...]]()
    monkeypatch.setattr(Simulator, "take_ledger", lambda self: (served.append(self.forms), take_ledger(self))[1])
    folder = run(config, store, cell=now, resume=True)
    assert set(served) == {("patches",) * 2}
    assert folder.summary()["convolutions"] == ["patches"] * 2
    assert "convolutions" not in run(config, Store(tmp_path / "usual"), cell=now).summary()


def test_a_run_that_goes_on_reports_the_last_accuracy_until_it_has_another(
    cell: Cell, tmp_path: Path, every_round: None
) -> None:
    config, store = replace(TINY, eval_every=2), Store(tmp_path)
    interrupted(config, store, cell)
    seen = list[tuple[int, float]]()
    folder = run(config, store, cell=cell, resume=True, watch=lambda now: seen.append((now.round, now.global_accuracy)))
    known = folder.rounds()["global_accuracy"]
    assert dict(seen)[3] == known[2] and dict(seen)[4] == known[4]


def test_seconds_of_a_run_include_those_before_it_was_stopped(
    cell: Cell, tmp_path: Path, every_round: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, take = Store(tmp_path), cell.server.take_ledger

    def slow() -> Any:
        ledger = take()
        ledger.seconds["training"] = 1000.0
        return ledger

    with monkeypatch.context() as patched:
        patched.setattr(cell.server, "take_ledger", slow)
        interrupted(TINY, store, cell)
    timing = run(TINY, store, cell=cell, resume=True).timing()
    assert 3000 <= timing["by_purpose"]["training"] < 3100  # rounds 0, 1 and 2
    assert timing["seconds"] == pytest.approx(sum(timing["by_purpose"].values()))


@pytest.mark.parametrize(
    "limit", [100, 2_000, 16_000]
)  # bytes of a file: enough for no table, for one, for all of them
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_bit_for_bit(
    cell: Cell, tmp_path: Path, every_round: None, limit: int
) -> None:
    resource = pytest.importorskip("resource", reason="files cannot be limited here")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    config, store = replace(TINY, agg_method="local"), Store(tmp_path / "full")

    def watch(progress: Progress) -> None:
        if progress.round == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    try:
        with pytest.raises(ClustPSIError, match=r"no space left to write .*: free some, then go on with --resume"):
            run(config, store, cell=cell, watch=watch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    folder = store.folder(config)
    assert not list(folder.path.glob(".*.tmp"))
    assert load_arrays(folder / "checkpoint.npz")["round"] == 2
    run(config, store, cell=cell, resume=True)
    assert contents(folder) == contents(run(config, Store(tmp_path / "whole"), cell=cell))


def test_what_another_process_has_finished_meanwhile_is_left_as_it_is(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)

    def open_slowly(config: Config, **_: Any) -> Cell:
        run(TINY, store, cell=cell)  # by somebody else
        return cell

    monkeypatch.setattr(run_module, "open_cell", open_slowly)
    rounds = list[int]()
    assert run(TINY, store, watch=lambda now: rounds.append(now.round)).finished
    assert rounds == []


# -------------------------------------------------------------------------------------------------------- what is saved


def test_what_a_cell_was_used_for_before_is_not_charged_to_a_run(cell: Cell, tmp_path: Path) -> None:
    cell.server.serve(LabelCounts(np.arange(6)), 0)
    assert run(TINY, Store(tmp_path), cell=cell).rounds()["bytes_up"][0] == 0


def test_the_best_round_is_the_first_of_equals(cell: Cell, tmp_path: Path) -> None:
    config = replace(TINY, lr=1e-12)
    summary = run(config, Store(tmp_path), cell=open_federation(cell.server.federation, config)).summary()
    assert summary["best"]["round"] == 0 and summary["last"]["round"] == 4
    assert summary["best"]["global_accuracy"] == summary["last"]["global_accuracy"]


def test_saved_models_come_with_their_log_priors(cell: Cell, tmp_path: Path) -> None:
    folder = run(replace(TINY, agg_method="prior_pfl:prior_strength=2"), Store(tmp_path), cell=cell, save_models=True)
    saved, counts = load_model(folder.path).deployment, cell.server.federation.label_counts
    mixed = counts + 2 * counts.sum(axis=0) / counts.sum()
    np.testing.assert_allclose(np.exp(saved.log_prior), mixed / mixed.sum(axis=1, keepdims=True))
    plain = run(TINY, Store(tmp_path), cell=cell, save_models=True)
    assert load_model(plain.path).deployment.log_prior is None


def test_a_short_run_writes_every_file_once(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = store_module.write_atomically

    def watched(path: Path, *rest: Any) -> None:
        written.append(path.name)
        write(path, *rest)

    monkeypatch.setattr(store_module, "write_atomically", watched)
    folder = run(TINY, Store(tmp_path), cell=cell)
    assert sorted(written) == sorted(path.name for path in folder.path.iterdir())


def test_a_run_needs_rows_to_score_on(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="--split none leaves no rows to score a run on"):
        run(replace(TINY, split="none", content=None), Store(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["local", "prior_pfl"])  # a model for each client, and a prior
def test_a_sample_of_the_clients_is_scored_as_these_clients_are_among_all(
    method: str, cell: Cell, tmp_path: Path
) -> None:
    config, store = replace(TINY, agg_method=method).checked(), Store(tmp_path)
    some, everybody = run(replace(config, eval_clients=3), store, cell=cell), run(config, store, cell=cell)
    scored = some.accuracy()
    assert scored["client"].nunique() == 3 and len(scored) == 3 * (TINY.comm_rounds + 1)
    both = scored.merge(everybody.accuracy(), on=["round", "client"])
    assert both["accuracy_x"].tolist() == both["accuracy_y"].tolist()
    assert both["loss_x"].tolist() == both["loss_y"].tolist()
    # what the scores say is about them, and so is what constant answers would score
    last = both[both["round"] == TINY.comm_rounds]
    assert some.summary()["last"]["ad"] == pytest.approx(1 - last["accuracy_x"].mean())
    clients = some.clients().astype({"client": str}).set_index("client").loc[last["client"]]
    counts = clients.filter(like="count_").to_numpy().argmax(axis=1)
    right = clients.filter(like="test_").to_numpy()[np.arange(3), counts].sum()
    assert some.summary()["constant"]["client"]["global_accuracy"] == right / clients["test"].sum()
    assert "scores are those of 3 of the 6 clients, drawn by the seed" in some.summary()["notes"]
    assert not any("drawn" in note for note in everybody.summary()["notes"])


def test_of_very_many_clients_a_sample_is_scored(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustpsi.runs.course.SCORED_CLIENTS", 4)
    assert run(TINY, Store(tmp_path), cell=cell).accuracy()["client"].nunique() == 4
    asked = replace(TINY, eval_clients=6)
    assert run(asked, Store(tmp_path), cell=cell).accuracy()["client"].nunique() == 6
