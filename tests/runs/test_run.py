"""Runs as folders: complete, resumable, never silently recomputed."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi.datasets import load_dataset
from clustpsi.errors import ClustPSIError
from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.course import Progress
from clustpsi.runs.run import run
from clustpsi.runs.sources import identified
from clustpsi.runs.store import RunFolder, Store, load_arrays
from clustpsi.saved.file import load_model
from helpers import clustpsi

DIGITS = load_dataset("digits")
TINY = identified(Config(num_clients=6, comm_rounds=3, local_epochs=1, seed=0).checked(), DIGITS)
METHODS = ("fedavg", "local", "centralized", "clust_psi_pfl")


def contents(folder: RunFolder) -> dict[str, bytes]:
    """Every file of a run but the one that tells the time."""
    files = [path for path in folder.path.iterdir() if path.is_file() and path.name != "timing.json"]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_leaves_tables_that_agree_with_its_summary(tmp_path: Path, method: str) -> None:
    folder = run(replace(TINY, agg_method=method), Store(tmp_path), save_models=True)
    summary, rounds, accuracy, clients = folder.summary(), folder.rounds(), folder.accuracy(), folder.clients()
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    assert len(accuracy) == 4 * 6
    last = accuracy[accuracy["round"] == 3]["accuracy"].to_numpy()
    tests = clients["test"].to_numpy()
    assert summary["last"]["global_accuracy"] == pytest.approx((last * tests).sum() / tests.sum())
    assert summary["last"]["ad"] == pytest.approx((1 - last).mean())
    assert summary["last"]["sdad"] == pytest.approx((1 - last).std())
    assert summary["best"]["global_accuracy"] == rounds["global_accuracy"].max()
    assert summary["bytes_up"] == rounds["bytes_up"].sum()
    assert RunFolder(folder.path).config() == replace(TINY, agg_method=method)
    assert not (folder / "checkpoint.npz").exists()
    model = load_model(folder.path)
    assert {len(each.parameters) for each in model.deployment.models} == {summary["num_parameters"]} == {650}
    assert len(model.deployment.of_client) == 6


def test_bytes_of_a_run_include_the_histograms(tmp_path: Path) -> None:
    rounds = run(replace(TINY, agg_method="clust_psi_pfl:tau_clusters=1"), Store(tmp_path)).rounds()
    assert rounds["bytes_up"].tolist() == [6 * 10 * 4, *[3 * 650 * 4] * 3]
    assert rounds["bytes_down"].tolist() == [0, *[3 * 650 * 4] * 3]


def test_clust_with_one_cluster_is_fedavg_and_with_a_cluster_each_is_local(tmp_path: Path) -> None:
    runs = {
        name: run(replace(TINY, agg_method=name), Store(tmp_path))
        for name in ("fedavg", "local", "clust_psi_pfl:tau_clusters=1", "clust_psi_pfl:tau_clusters=6")
    }
    accuracy = {name: folder.accuracy() for name, folder in runs.items()}
    pd.testing.assert_frame_equal(accuracy["clust_psi_pfl:tau_clusters=1"], accuracy["fedavg"])
    pd.testing.assert_frame_equal(accuracy["clust_psi_pfl:tau_clusters=6"], accuracy["local"])


def test_same_seed_same_bits_whatever_the_workers(tmp_path: Path) -> None:
    config = replace(TINY, agg_method="clust_psi_pfl:tau_clusters=2")
    one = run(config, Store(tmp_path / "one"), workers=1)
    three = run(config, Store(tmp_path / "three"), workers=3)
    assert contents(one) == contents(three)
    other = run(replace(config, seed=1), Store(tmp_path / "one"))
    assert contents(other)["rounds.csv"] != contents(one)["rounds.csv"]


def test_methods_of_a_cell_share_partition_split_and_initial_model(tmp_path: Path) -> None:
    folders = [run(replace(TINY, agg_method=method), Store(tmp_path)) for method in METHODS]
    assert len({(folder / "clients.csv").read_bytes() for folder in folders}) == 1
    assert len({folder.rounds()["loss"][0] for folder in folders}) == 1


def test_evaluation_can_be_rarer_but_the_last_round_always_counts(tmp_path: Path) -> None:
    often = run(TINY, Store(tmp_path))
    rarely = run(replace(TINY, eval_every=2), Store(tmp_path))
    assert rarely.accuracy()["round"].unique().tolist() == [0, 2, 3]
    assert rarely.summary()["last"] == often.summary()["last"]
    assert np.isnan(rarely.rounds()["global_accuracy"][1])


def test_a_finished_run_is_not_computed_again_unless_asked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = run(TINY, store)
    written = (folder / "summary.json").stat().st_mtime_ns
    run(TINY, store)
    assert (folder / "summary.json").stat().st_mtime_ns == written
    before = contents(folder)
    run(TINY, store, fresh=True)
    assert (folder / "summary.json").stat().st_mtime_ns > written
    assert contents(folder) == before


SCRIPT = """
import sys, clustpsi.runs.run
clustpsi.runs.run.CHECKPOINT_SECONDS = clustpsi.runs.run.CHECKPOINT_SHARE = 0  # a checkpoint every round
from clustpsi.cli import main
main(sys.argv[1:])
"""


def test_a_killed_run_goes_on_and_ends_bit_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "killed")
    command = ["run", "--agg-method", "clust_psi_pfl", "--num-clients", "6", "--seeds-list", "0", "--output", store]
    command += ["--comm-rounds", "40", "--local-epochs", "1", "--eval-every", "7"]
    config = replace(TINY, agg_method="clust_psi_pfl", comm_rounds=40, eval_every=7)
    killed = Store(Path(store)).folder(config)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *command], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (killed / "checkpoint.npz").exists() or load_arrays(killed / "checkpoint.npz")["round"] < 5:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.finished
    assert clustpsi(*command) == 2
    assert "unfinished run: go on with --resume" in capsys.readouterr().err
    assert clustpsi(*command, "--resume") == 0
    uninterrupted = run(config, Store(tmp_path / "whole"))
    assert contents(killed) == contents(uninterrupted)


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with (
        store.folder(TINY).locked(),
        pytest.raises(ClustPSIError, match="another process is working on the run"),
    ):
        run(TINY, store)
    assert run(TINY, store).finished


def test_foreign_and_damaged_folders_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = tmp_path / TINY.folder_name
    path.mkdir()
    (path / "holiday.jpg").write_text("not a run")
    with pytest.raises(ClustPSIError, match=r"is not a run folder of clustpsi: it has no config\.json"):
        run(TINY, store)
    (path / "config.json").write_text("{")
    with pytest.raises(ClustPSIError, match=r"config\.json cannot be read"):
        run(TINY, store)
    (path / "config.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ClustPSIError, match="format 99"):
        run(TINY, store)
    (path / "config.json").write_text(json.dumps({"format": 1, "seed": 0}))  # which did not name its data
    with pytest.raises(ClustPSIError, match="other settings"):
        run(TINY, store)
    (path / "config.json").write_text(json.dumps(replace(TINY, lr=0.5).as_dict()))
    with pytest.raises(ClustPSIError, match="other settings"):
        run(TINY, store)
    (path / "config.json").write_text(json.dumps(TINY.as_dict()))
    for damaged in (b"PK\x03\x04 half of it", b"", b"PK\x05\x06" + bytes(18)):
        (path / "checkpoint.npz").write_bytes(damaged)
        with pytest.raises(ClustPSIError, match=r"start the run afresh with --fresh"):
            run(TINY, store, resume=True)
    assert run(TINY, store, fresh=True).finished
    assert (path / "holiday.jpg").exists()
    (path / "summary.json").write_text("{}")
    with pytest.raises(ClustPSIError, match=r"its summary\.json has no last; compute the run again with --fresh"):
        run(TINY, store).summary()


def test_finding_31_what_is_in_the_way_of_a_run_is_one_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / TINY.folder_name).write_text("a file")
    with pytest.raises(ClustPSIError, match="is a file where the folder of a run should be"):
        run(TINY, store)
    (tmp_path / TINY.folder_name).unlink()
    folder = run(TINY, store)
    (folder / "notes").mkdir()
    before = contents(folder)
    assert contents(run(TINY, store, fresh=True)) == before
    assert (folder / "notes").is_dir()  # not ours, so it stays

    def remove(progress: Progress) -> None:
        if progress.round == 2:
            shutil.rmtree(folder.path, ignore_errors=True)

    with pytest.raises(ClustPSIError, match="cannot write"):
        run(TINY, store, fresh=True, watch=remove)


def test_an_impossible_setting_leaves_nothing_behind(tmp_path: Path) -> None:
    for config in (
        replace(TINY, num_clients=500),  # no Dirichlet partition of 1,797 digits gives 500 clients ten samples each
        replace(TINY, agg_method="clust_psi_pfl:tau_clusters=7"),
        replace(TINY, model="mpl"),
    ):
        with pytest.raises(ClustPSIError):
            run(config, Store(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [".locks"]


def test_validation_never_touches_test_rows() -> None:
    config = replace(TINY, validation=True)
    real, held = open_cell(TINY).server.federation, open_cell(config).server.federation
    for train, test, validation, kept in zip(real.train, real.test, held.test, held.train, strict=True):
        assert set(validation) | set(kept) == set(train)
        assert not set(validation) & set(kept) and not set(test) & (set(validation) | set(kept))
