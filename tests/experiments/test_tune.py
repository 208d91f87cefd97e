"""Grid search: the paper's grids, resumable, and blind to test data."""

import json
import signal
import struct
from pathlib import Path

import numpy as np
import pytest

from clustpsi.datasets import load_dataset
from clustpsi.errors import ClustPSIError
from clustpsi.exact import read_exact_csv
from clustpsi.experiments import workers
from clustpsi.experiments.tune import OWN, TRAINING, Search, search_space
from clustpsi.federation import build_federation
from clustpsi.methods import method_types, parameters_of
from clustpsi.runs.config import Config
from clustpsi.runs.store import RunFolder, Store
from helpers import clustpsi

QUICK = ["--num-clients", "4", "--comm-rounds", "2", "--local-epochs", "1", "--workers", "1"]
FEW = ["--grid", "lr=0.1", "--grid", "batch-size=32", "--grid", "optimizer=adam"]


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_fmnist(root: Path, test_labels: np.ndarray) -> None:
    """A small Fashion-MNIST: images that show their class, and an official test part with these labels."""
    folder = root / "fmnist"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 10
    images = rng.integers(0, 60, (300 + len(test_labels), 28, 28))
    images[np.arange(300), labels, :] += 150
    write_idx(folder / "train-images-idx3-ubyte", images[:300])
    write_idx(folder / "train-labels-idx1-ubyte", labels)
    write_idx(folder / "t10k-images-idx3-ubyte", images[300:])
    write_idx(folder / "t10k-labels-idx1-ubyte", test_labels)


def test_the_grids_are_the_papers() -> None:
    own = {"fedavg": 1, "fedprox": 3, "fedavgm": 3, "fedadagrad": 8, "fedyogi": 48, "fedadam": 48, "poc": 4}
    own |= {"haccs": 3, "fedcls": 3, "cfl": 27, "fedsoft": 3, "clust_psi_pfl": 1}
    for name, combinations in own.items():
        assert len(Search.of(name, settings={"seeds_list": [42]}).configs) == 18 * combinations
    best = {"cfl": {"eps1": 1e-5, "eps2": 0.1}}  # the defaults of these two depend on another parameter
    for name, grid in OWN.items():
        kind = method_types()[name]
        assert set(grid) <= set(parameters_of(kind))
        for key, values in grid.items():
            default = kind.__dataclass_fields__[key].default
            assert best.get(name, {}).get(key, default) in values
    assert all(getattr(Config(), key) in values for key, values in TRAINING.items())


def test_the_space_can_be_changed() -> None:
    space = search_space("fedprox:mu=0.5", {"lr": "0.2", "local_epochs": "1, 2"})
    assert space["lr"] == ["0.2"] and space["local_epochs"] == ["1", "2"] and "mu" not in space
    search = Search.of("clust_psi_pfl", {"inner": "fedavg,fedprox", "lr": "0.1", "batch_size": "8", "optimizer": "sgd"})
    assert {config.agg_method for config in search.configs} == {"clust_psi_pfl", "clust_psi_pfl:inner=fedprox"}
    for changes, message in (
        ({"lrr": "1"}, "did you mean 'lr'"),
        ({"mu": "1,1"}, "different values"),
        ({"mu": ""}, "different values"),
        ({"seed": "1"}, "unknown hyper-parameter"),
        ({"lr": "high"}, "must be numbers"),
    ):
        with pytest.raises(ClustPSIError, match=message):
            Search.of("fedprox", changes)
    with pytest.raises(ClustPSIError, match="give it once"):
        search_space("fedprox:mu=0.5", {"mu": "1"})


def test_validation_rows_are_training_rows() -> None:
    dataset = load_dataset("digits")
    federation = build_federation(dataset, "dirichlet", 0.3, 8, seed=3)
    inner = federation.for_validation(3)
    for before, after, judged, test in zip(federation.train, inner.train, inner.test, federation.test, strict=True):
        assert not set(after) & set(judged)
        assert set(after) | set(judged) == set(before)
        assert not set(judged) & set(test) and not set(after) & set(test)
        assert len(judged) == -(-len(before) // 5)
    assert all(config.validation for config in Search.of("fedcls").configs)


def test_test_labels_make_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = []
    for name, test_labels in (("right", np.arange(60) % 10), ("wrong", np.full(60, 9))):
        write_fmnist(tmp_path / name, test_labels)
        where = ["--data-dir", str(tmp_path / name), "--output", str(tmp_path / f"{name}-runs")]
        what = ["--dataset", "fmnist", "--model", "logistic", "--partitioner", "iid", "--agg-method", "fedavg"]
        assert clustpsi("tune", *what, *QUICK, *FEW, *where, "--json") == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0]["ranking"] == reports[1]["ranking"]
    assert reports[0]["best"] == reports[1]["best"]
    runs = [RunFolder(path.parent) for path in (tmp_path / "right-runs").glob("*/summary.json")]
    assert len(runs) == 1
    assert sum(runs[0].clients()["test"]) == 60 and sum(runs[0].clients()["train"]) == 240  # of the 300 to train on


def test_a_search_is_ranked_kept_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--agg-method", "fedprox", *QUICK, *FEW, "--seeds-list", "1,2", "--output", str(tmp_path)]
    given += ["--grid", "mu=0.5,0.01"]
    submitted = []
    submit = workers.ThisProcess.submit

    def interrupted(self: workers.ThisProcess, worker: int, config: Config) -> None:
        if submitted:
            signal.raise_signal(signal.SIGINT)
        submitted.append(config)
        submit(self, worker, config)

    monkeypatch.setattr(workers.ThisProcess, "submit", interrupted)
    assert clustpsi("tune", *given) == 130
    assert "stopped (1 of 4 runs" in capsys.readouterr().err
    submitted.clear()
    monkeypatch.setattr(workers.ThisProcess, "submit", lambda *call: submitted.append(call[2]) or submit(*call))
    assert clustpsi("tune", *given, "--json") == 0
    assert len(submitted) == 4 - 1
    report = json.loads(capsys.readouterr().out)
    accuracies = [row["accuracy"] for row in report["ranking"]]
    assert len(accuracies) == 2 and accuracies == sorted(accuracies, reverse=True)
    best = report["ranking"][0]
    assert best["lr"] == 0.1 and best["seeds"] == 2
    spec = "fedprox" if best["mu"] == 0.01 else "fedprox:mu=0.5"
    assert report["best"] == f"--agg-method {spec} --lr 0.1 --batch-size 32 --optimizer adam"

    last = [run.summary()["last"]["global_accuracy"] for run in Store(tmp_path) if run.config().agg_method == spec]
    assert best["accuracy"] == pytest.approx(np.mean(last)) and len(last) == 2
    assert read_exact_csv(report["file"])["accuracy"].tolist() == accuracies
    assert clustpsi("tune", *given) == 0
    assert len(submitted) == 3
    assert report["best"] in capsys.readouterr().out
    assert clustpsi("tune", *given, "--dry-run") == 0
    assert "4 runs, 0 of them to be computed" in capsys.readouterr().out


def test_failed_combinations_do_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--agg-method", "clust_psi_pfl", *QUICK, *FEW, "--output", str(tmp_path)]
    assert clustpsi("tune", *given, "--grid", "tau_clusters=2,50", "--json") == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert [row["tau_clusters"] for row in report["ranking"]] == [2] and report["failed"] == 1
    assert "only 4 clients" in shown.err
    assert clustpsi("tune", *given, "--grid", "tau_clusters=50,60") == 2
    assert "every run failed" in capsys.readouterr().err
    assert clustpsi("tune", *given, "--grid", "lr") == 2
    assert "should read key=value1" in capsys.readouterr().err
