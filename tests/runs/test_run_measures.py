"""What a run measures, what it takes, and what it says when its numbers are not to be trusted."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clustpsi.clustering import PSIClustering
from clustpsi.datasets import load_dataset
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores
from clustpsi.experiments.workers import Worker
from clustpsi.methods.fedavgm import FedAvgM
from clustpsi.orders import Ledger
from clustpsi.runs.cell import Cell, open_cell, open_federation
from clustpsi.runs.config import Config
from clustpsi.runs.course import Progress
from clustpsi.runs.history import History
from clustpsi.runs.run import run
from clustpsi.runs.sources import identified
from clustpsi.runs.store import RunFolder, Store, load_arrays, save_arrays, write_json
from helpers import clustpsi, make_federation

TINY = identified(Config(num_clients=6, comm_rounds=3, local_epochs=1, seed=0).checked(), load_dataset("digits"))


@pytest.fixture(scope="module")
def cell() -> Cell:
    return open_cell(TINY)


def strict_json(path: Path) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


# ------------------------------------------------------------------------------------------------------------- scores


def test_scores_of_classes_and_constant_answers_are_in_the_files(tmp_path: Path, cell: Cell) -> None:
    folder = run(TINY, Store(tmp_path), cell=cell)
    summary, rounds, clients = strict_json(folder / "summary.json"), folder.rounds(), folder.clients()
    for key in ("balanced_accuracy", "macro_f1"):
        assert summary["last"][key] == rounds[key].iloc[-1] > 0
        assert summary["best"][key] == rounds[key][summary["best"]["round"]]
    train, test = (clients[[f"{kind}_{name}" for name in range(10)]].to_numpy(np.int64) for kind in ("count", "test"))
    assert train.sum(axis=1).tolist() == clients["train"].tolist()
    assert test.sum(axis=1).tolist() == clients["test"].tolist()
    right = {"federation": test[:, train.sum(axis=0).argmax()], "client": test[np.arange(6), train.argmax(axis=1)]}
    for who, correct in right.items():
        constant = summary["constant"][who]
        assert set(constant) == {"global_accuracy", "balanced_accuracy", "macro_f1", "ad", "sdad", "worst10"}
        assert constant["global_accuracy"] == pytest.approx(correct.sum() / test.sum())
        assert constant["ad"] == pytest.approx(1 - (correct / test.sum(axis=1)).mean())


# --------------------------------------------------------------------------------------------------------- divergence


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("fedadam:eta=1e38", "the test loss is not finite in round 1"),  # finite, but its logits overflow
        ("fedavgm:server_lr=1e300", "a model of the server is not finite in round 1"),
        ("clust_psi_pfl:inner=fedavgm:server_lr=1e300", "a model of the server is not finite in round 1"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_finding_24_a_server_that_diverges_ends_the_run(method: str, what: str, tmp_path: Path, cell: Cell) -> None:
    config = replace(TINY, agg_method=method).checked()
    store = Store(tmp_path)
    for resume in (False, True):
        with pytest.raises(ClustPSIError, match=f"diverged: {what}; try a smaller --lr") as error:
            run(config, store, cell=cell, resume=resume)
        folder = store.folder(config)
        assert not folder.finished
        assert str(error.value).startswith(config.agg_method)
        assert (folder / "failed.txt").read_text() == f"{error.value}\n"
        assert folder.rounds()["round"].tolist() == [0]
        assert load_arrays(folder / "checkpoint.npz")["round"] == 0
        for path in folder.path.glob("*.json"):
            strict_json(path)
    outcome = Worker(None).execute(config, store)
    assert (outcome.status, outcome.reason) == ("failed", str(error.value))


def test_finding_24_divergence_has_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--num-clients", "6", "--comm-rounds", "1", "--local-epochs", "1", "--seeds-list", "0")
    assert clustpsi("run", *settings, "--agg-method", "fedavgm:server_lr=1e300", "--output", str(tmp_path)) == 2
    assert "diverged: a model of the server is not finite in round 1" in capsys.readouterr().err.replace("\n", " ")


def test_a_failed_run_keeps_its_rounds_and_can_go_on(
    tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(TINY, agg_method="fedavgm")
    whole = run(config, Store(tmp_path / "whole"), cell=cell)
    step = FedAvgM.step

    def broken(self: FedAvgM, theta: Any, mean: Any, memory: Any, t: int) -> Any:
        moved, after = step(self, theta, mean, memory, t)
        return (moved * np.inf if t == 3 else moved), after

    with monkeypatch.context() as patch, pytest.raises(ClustPSIError, match="in round 3"):
        patch.setattr(FedAvgM, "step", broken)
        run(config, Store(tmp_path / "broken"), cell=cell)
    folder = Store(tmp_path / "broken").folder(config)
    assert folder.rounds()["round"].tolist() == [0, 1, 2]
    run(config, Store(tmp_path / "broken"), cell=cell, resume=True)
    assert not (folder / "failed.txt").exists()
    for name in ("rounds.csv", "accuracy.parquet", "summary.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_features_that_are_not_finite_leave_nothing_behind(tmp_path: Path) -> None:
    federation = make_federation([20, 20, 20])
    federation.features[federation.test[1][3]] = np.inf
    with pytest.raises(ClustPSIError, match="before the first round: are all features finite"):
        run(replace(TINY, content=None), Store(tmp_path), cell=open_federation(federation, TINY))
    assert [path.name for path in tmp_path.iterdir()] == [".locks"]


def test_finding_4_clients_that_are_left_out_are_named(tmp_path: Path) -> None:
    federation = replace(make_federation([20, 20, 20]), client_names=("north", "east", "south"))
    federation.features[federation.train[1]] = np.inf
    said: list[tuple[str, ...]] = []
    config = replace(TINY, num_clients=3, fraction=1.0, comm_rounds=2, content=None)
    folder = run(
        config, Store(tmp_path), cell=open_federation(federation, config), watch=lambda now: said.append(now.left_out)
    )
    assert pd.read_csv(folder / "left_out.csv").to_dict("list") == {"round": [1, 2], "client": ["east", "east"]}
    assert [names for names in said if names] == [("east",), ("east",)]
    assert strict_json(folder / "summary.json")["notes"][0] == (
        "2 of 6 updates were missing or not finite and omitted (1 client, see left_out.csv)"
    )


def test_json_is_never_written_with_what_is_not_a_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})


# --------------------------------------------------------------------------------------------------------------- time


def test_finding_25_every_second_of_a_run_is_booked(
    tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = PSIClustering.fit
    monkeypatch.setattr(PSIClustering, "fit", lambda self, counts: (time.sleep(0.5), fit(self, counts))[1])
    config = replace(TINY, agg_method="clust_psi_pfl", comm_rounds=10)
    begun = time.perf_counter()
    folder = run(config, Store(tmp_path), cell=cell)
    clock = time.perf_counter() - begun
    timing = folder.timing()
    assert set(timing) == {"seconds", "by_purpose", "compilation"}
    assert set(timing["by_purpose"]) == {"start", "server", "training", "evaluation", "files"}
    assert timing["by_purpose"]["start"] >= 0.5
    assert timing["seconds"] == pytest.approx(sum(timing["by_purpose"].values()))
    assert timing["seconds"] + timing["compilation"] == pytest.approx(clock, rel=0.1)


def test_a_block_inside_another_is_not_booked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def work(seconds: float) -> None:
        clock[0] += seconds

    ledger = Ledger()
    with ledger.timed("outer"):
        work(1)
        for _ in range(2):
            with ledger.timed("inner"):
                work(10)
                with ledger.timed("innermost"):
                    work(100)
        with pytest.raises(KeyError), ledger.timed("broken"):
            work(1000)
            raise KeyError
        work(1)
    with ledger.timed("inner"):
        work(10)
    assert ledger.seconds == {"innermost": 200, "inner": 30, "broken": 1000, "outer": 2}


# -------------------------------------------------------------------------------------------------- what is to be said


def test_findings_4_and_27_clients_that_are_omitted_are_named_and_counted(tmp_path: Path) -> None:
    federation = make_federation([20, 20, 20, 20])
    for client in (1, 3):
        federation.features[federation.train[client][2]] = np.nan
    named = replace(federation, client_names=("north", "east", "south", "west"))
    config = replace(TINY, fraction=1.0, comm_rounds=2, content=None)
    seen: list[Progress] = []
    folder = run(config, Store(tmp_path), cell=open_federation(named, config), watch=seen.append)
    left_out = pd.read_csv(folder / "left_out.csv")
    assert left_out.to_dict("list") == {"round": [1, 1, 2, 2], "client": ["east", "west", "east", "west"]}
    summary = strict_json(folder / "summary.json")
    assert (summary["left_out"], summary["left_out_clients"], summary["participants"]) == (4, 2, 8)
    assert summary["notes"] == ["4 of 8 updates were missing or not finite and omitted (2 clients, see left_out.csv)"]
    assert [now.left_out for now in seen if now.part == 0] == [(), ("east", "west"), ("east", "west")]


def history_of(*accuracies: float) -> History:
    """Accuracy before the first round and after each."""
    history = History()
    for t, accuracy in enumerate(accuracies):
        local = np.array([accuracy])
        scores = Scores(local, 1 - local, accuracy, accuracy, accuracy, 1 - accuracy, 0.0, accuracy, 1.0)
        history.add(t, scores, [], Ledger(), None)
    return history


@pytest.mark.parametrize(
    ("accuracies", "least", "most", "said"),
    [
        ((0.1, 0.9, 0.9, 0.9), 0.9, 0.9, False),  # what the initial model has does not count
        ((0.1, 0.2, 0.9, 0.91, 0.92, 0.93, 0.94), 0.9, 0.94, False),  # nor do rounds long ago
        ((0.1, 0.998, 0.998, 0.998, 0.998, 0.899), 0.899, 0.998, True),  # it has fallen
        ((0.1, 0.899, 0.998, 0.998, 0.998, 0.998), 0.899, 0.998, True),  # it has risen
        ((0.1, 0.95, 0.99, 0.94, 0.96), 0.94, 0.99, False),
        ((0.1, 0.5), 0.5, 0.5, False),
    ],
)
def test_finding_9_accuracy_that_jumps_is_said(
    accuracies: tuple[float, ...], least: float, most: float, said: bool, tmp_path: Path
) -> None:
    history = history_of(*accuracies)
    folder = RunFolder(tmp_path)
    folder.write_timing({"training": 1.0, "compilation": 2.0})
    folder.finish(history, {}, np.array([[6, 14]]), {})
    summary = strict_json(folder / "summary.json")
    assert summary["unstable"] == {"min": least, "max": most}
    assert len(summary["notes"]) == said
    if said:
        assert summary["notes"][0].startswith("accuracy moved between 0.899 and 0.998 in the last 5 evaluated rounds")
    assert folder.timing() == {"seconds": 1.0, "by_purpose": {"training": 1.0}, "compilation": 2.0}


# --------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("columns", [None, ("round", "global_accuracy")])
def test_a_checkpoint_of_a_different_version_is_refused(
    columns: tuple[str, ...] | None, tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAvgM, "step", lambda self, theta, mean, memory, t: (theta * np.inf, memory))
    config, store = replace(TINY, agg_method="fedavgm"), Store(tmp_path)
    with pytest.raises(ClustPSIError, match="diverged"):
        run(config, store, cell=cell)
    path = store.folder(config) / "checkpoint.npz"
    arrays = load_arrays(path)
    del arrays["history/columns"]
    save_arrays(path, arrays if columns is None else arrays | {"history/columns": np.array(columns)})
    with pytest.raises(ClustPSIError, match=r"different version of clustpsi .* start the run afresh with --fresh"):
        run(config, store, cell=cell, resume=True)
