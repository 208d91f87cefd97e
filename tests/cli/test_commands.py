"""The command line: what users type, and what they get back when they mistype."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clustpsi.cli import run
from clustpsi.cli.app import program
from clustpsi.methods import method_types, parameters_of, short_spec
from helpers import clustpsi

ROOT = Path(__file__).parents[2]
QUICK = ["--num-clients", "5", "--comm-rounds", "2", "--local-epochs", "1", "--seeds-list", "0,1"]


def test_run_compares_methods_and_tells_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["--agg-method", "fedavg,clust_psi_pfl:psi_features=signed", "--output", str(tmp_path)]
    assert clustpsi("run", *QUICK, *methods, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in report["methods"]] == ["fedavg", "clust_psi_pfl:psi_features=signed"]
    assert report["seeds"] == [0, 1]
    fedavg = report["methods"][0]
    assert fedavg["global_accuracy"]["mean"] == pytest.approx(np.mean(fedavg["global_accuracy"]["values"]))
    for path in fedavg["runs"]:
        assert len(pd.read_csv(Path(path) / "rounds.csv")) == 3
    assert clustpsi("run", *QUICK, *methods) == 0
    shown = capsys.readouterr()
    assert "FedAvg" in shown.out and "Clust-PSI-PFL" in shown.out and "±" in shown.out
    assert "finished before" in shown.err


def test_the_papers_command_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "main.py",
        "--dataset=digits",
        "--partitioner=similarity",
        "--non-iid-param=0.03",
        "--num-clients=5",
        "--agg-method=clust_psi_pfl",
        "--tau-clusters=2",
        "--comm-rounds=2",
        "--local-epochs=1",
        "--seeds-list=42,0",
        "--lr=0.01",
        "--batch-size=16",
        "--fraction=1",
        f"--output={tmp_path}",
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["settings"]["partitioner"] == "similarity"
    assert report["methods"][0]["tau"] == [2, 2]
    assert report["methods"][0]["participants"] == 10


MISTAKES = [
    (["--agg-method", "fedavgg"], "unknown method 'fedavgg': did you mean 'fedavg'?"),
    (["--dataset", "digit"], "unknown dataset 'digit': did you mean 'digits'?"),
    (["--model", "logistik"], "unknown model 'logistik': did you mean 'logistic'?"),
    (["--partitioner", "dirichlett"], "--partitioner must be one of dirichlet, similarity, iid, natural"),
    (["--non-iid-param", "0"], "alpha and must be above 0, not 0"),
    (["--non-iid-param", "-1"], "alpha and must be above 0"),
    (["--non-iid-param", "nan"], "--non-iid-param must be a number"),
    (["--partitioner", "similarity", "--non-iid-param", "1.5"], "S and must be from 0 to 1, not 1.5"),
    (["--partitioner", "natural"], "--num-clients 5 contradicts natural clients"),
    (["--num-clients", "1"], "--num-clients must be a number at least 2 and at most 10,000,000, not 1"),
    (["--num-clients", "5000"], "from 2 to the 1797 samples, not 5000"),
    (["--num-clients", "400"], "samples"),
    (["--tau-clusters", "9", "--agg-method", "clust_psi_pfl"], "tau_clusters is 9, but there are only 5 clients"),
    (["--tau-clusters", "9", "--agg-method", "clust_psi_pfl", "--fresh"], "there are only 5 clients"),
    (["--tau-clusters", "0", "--agg-method", "clust_psi_pfl"], "tau_clusters must be a number at least 1, not 0"),
    (["--tau-clusters", "2", "--agg-method", "fedavg"], "--tau-clusters is a parameter of clust_psi_pfl"),
    (["--agg-method", "fedavg:mu=1"], "fedavg has no parameter 'mu'"),
    (["--agg-method", "clust_psi_pfl:tau_clusters=two"], "tau_clusters must be a whole number, not 'two'"),
    (["--agg-method", "clust_psi_pfl:inner=local"], "unknown single-model method 'local'"),
    (["--agg-method", ","], "--agg-method is empty"),
    (["--agg-method", "fedprox,local,fedprox:mu=0.01"], "--agg-method names fedprox more than once"),
    (
        ["--psi-features", "sgined", "--agg-method", "clust_psi_pfl"],
        "psi_features must be one of psi, signed, not 'sgined'",
    ),
    (["--seeds-list", "1,two"], "--seeds-list must be one or more different whole numbers"),
    (["--seeds-list", "1,1"], "--seeds-list must be one or more different whole numbers"),
    (["--fraction", "0"], "--fraction must be a number above 0 and at most 1, not 0"),
    (["--lr", "-1"], "--lr must be a number above 0, not -1"),
    (["--comm-rounds", "0"], "--comm-rounds must be a number at least 1 and at most 1,000,000, not 0"),
    (["--optimizer", "adamw"], "--optimizer must be one of adam, sgd"),
    (["--resume", "--fresh"], "give one of them"),
    (["--dataset", "absent.csv", "--label", "y"], "absent.csv"),
    (["--dataset", str(ROOT / "docs"), "--label", "y"], "docs is a folder"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    assert clustpsi("run", "--output", str(output), *QUICK, *arguments) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ") and sentence in message
    assert not output.exists() or {path.name for path in output.iterdir()} <= {".locks"}


def test_an_output_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    assert clustpsi("run", *QUICK, "--output", str(tmp_path / "taken")) == 2
    assert "is a file: runs need a folder" in capsys.readouterr().err


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _commands(each)


def test_every_argument_and_option_has_a_help() -> None:
    for command in _commands(program()):
        texts = {parameter.name: parameter.help for parameter in command.params} | {"command": command.help}
        for name, text in texts.items():
            assert text, f"{command.name} {name}"
            assert "[" not in text, f"{command.name} {name}: some versions of Typer take brackets for markup"


def test_the_help_of_run_names_the_methods_that_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    asked = inspect.signature(run.command).parameters["agg_method"].default
    titles = ["local training" if name == "local" else method_types()[name].title for name in asked.split(",")]
    assert clustpsi("run", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Without options: {', '.join(titles[:-1])} and {titles[-1]} on scikit-learn's digits" in said


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("--help") == 0
    for name in ("run", "diagnose", "methods", "data"):
        assert name in capsys.readouterr().out or clustpsi("--help") == 0
        assert clustpsi(name, "--help") == 0
    help_text = subprocess.run(
        [sys.executable, "-m", "clustpsi", "run", "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "PATH": ""},
    )
    for flag in (
        "--dataset",
        "--partitioner",
        "--non-iid-param",
        "--num-clients",
        "--agg-method",
        "--comm-rounds",
        "--local-epochs",
        "--seeds-list",
        "--tau-clusters",
        "--lr",
        "--batch-size",
        "--fraction",
        "--psi-features",
        "--resume",
        "--json",
    ):
        assert flag in help_text.stdout


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("methods", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"fedavg", "local", "centralized", "clust_psi_pfl"} <= set(rows)
    assert rows["clust_psi_pfl"]["parameters"]["psi_features"] == "psi"


def test_a_preset_sets_what_is_not_said_otherwise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from clustpsi.cli.options import chosen_methods
    from clustpsi.methods import make_method

    robust = {"preset": "robust"}
    values = "psi_features=signed:psi_smoothing=laplace:min_clarity=0.75"
    fedavg, clust = chosen_methods("fedavg,clust_psi_pfl", robust)
    assert fedavg == "fedavg"
    assert make_method(clust) == make_method(f"clust_psi_pfl:{values}:min_wpsi=0.1:inner=prior_pfl")
    assert make_method(clust) == make_method("clust_psi_pfl:robust")
    (other,) = chosen_methods("clust_psi_pfl:min_wpsi=0.5:inner=fedavg", robust)
    assert make_method(other) == make_method(f"clust_psi_pfl:{values}:min_wpsi=0.5")
    assert chosen_methods("clust_psi_pfl", {"preset": "paper"}) == ["clust_psi_pfl"]
    assert clustpsi("run", "--preset", "papper", "--output", str(tmp_path / "none")) == 2
    assert "unknown preset 'papper': did you mean 'paper'?" in capsys.readouterr().err


@pytest.mark.parametrize("mistyped", [["tabel"], ["table", "costs"], ["run", "--ouput", "x"], ["federation", "nod"]])
def test_what_was_meant_is_asked_once(mistyped: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi(*mistyped) == 2
    said = capsys.readouterr().err.lower()
    assert said.count("did you mean") + said.count("possible options") == 1  # as older versions of Click say it


def test_what_is_on_or_off_by_default_can_be_switched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {name for each in program().commands["sweep"].params for name in (*each.opts, *each.secondary_opts)}
    for kind in method_types().values():
        for name, plain in parameters_of(kind).items():
            flag = name.replace("_", "-")
            assert plain is not bool or {f"--{flag}", f"--no-{flag}"} <= options
    command = ["run", *QUICK, "--comm-rounds=1", "--seeds-list=0", "--output", str(tmp_path), "--json", "--quiet"]
    for flags, name in (
        (["--no-personal", "--server-opt-on-buffers"], "prior_pfl:server_opt_on_buffers=true:personal=false"),
        (["--personal", "--no-server-opt-on-buffers"], "prior_pfl"),
    ):
        assert clustpsi(*command, "--agg-method=prior_pfl", *flags) == 0
        (row,) = json.loads(capsys.readouterr().out)["methods"]
        assert short_spec(row["method"]) == name
