"""What commands print: names as they are, numbers whole, notes apart and only where they are wanted."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi.cli import run
from clustpsi.errors import ClustPSIWarning
from clustpsi.report.glossary import CONSTANTS
from helpers import clustpsi

QUICK = ["--num-clients", "3", "--comm-rounds", "2", "--local-epochs", "1", "--partitioner", "iid", "--workers", "1"]
QUICK += ["--seeds-list", "0"]
ODD = ("[/b]", "[age<30]", "\x1b[31mred\u202e")
SHOWN = ("[/b]", "[age<30]", r"\x1b[31mred\u202e")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with markup and escape sequences in its name, columns, classes and clients."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"[bold]wing": rng.normal(size=60), "leg": rng.normal(size=60)})
    frame["[/b]kind"] = np.repeat(ODD, 20)
    frame["site"] = np.tile(ODD, 20)
    frame.to_csv(tmp_path / "t[b].csv", index=False)
    return tmp_path / "t[b].csv"


def test_finding_34_names_in_a_diagnosis(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("diagnose", str(table), "--label", "[/b]kind", "--client", "site") == 0
    shown = capsys.readouterr()
    assert all(name in shown.out for name in SHOWN) and not CONTROL.search(shown.out + shown.err)


def test_finding_34_names_in_a_comparison(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "[b]\x1b[31m"
    given = ["--dataset", str(table), "--label", "[/b]kind", *QUICK, "--output", str(output)]
    assert clustpsi("run", *given, "--agg-method", "fedavg") == 0
    shown = capsys.readouterr()
    assert " t[b].csv, iid, 3 clients, 2 rounds" in shown.out and r"[b]\x1b[31m/" in shown.err
    assert not CONTROL.search(shown.out + shown.err)
    assert clustpsi("sweep", *given, "--agg-method", "fedavg") == 0
    tuning = [*given, "--grid", "lr=0.1", "--grid", "batch-size=8", "--grid", "optimizer=sgd"]
    assert clustpsi("tune", *tuning, "--agg-method", "fedavg") == 0
    assert clustpsi("table", "global", str(output), "--where", "validation=false") == 0
    assert (
        clustpsi(
            "figure",
            "rounds",
            "--runs",
            str(output),
            "--where",
            "validation=false",
            "--output",
            str(tmp_path / "[b].svg"),
        )
        == 0
    )
    shown = capsys.readouterr()
    assert "t[b].csv" in shown.out and not CONTROL.search(shown.out + shown.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--dataset", "[/b]\x1b[31m"],
        ["run", "--agg-method", "[/b]\x1b[31m"],
        ["run", "--dataset", "[/b]\x1b[31m.csv", "--label", "a\nb"],
        ["diagnose", "[/b]\x1b[31m.csv"],
        ["sweep", "--grid", "[/b]\x1b[31m.toml"],
        ["tune", "--grid", "[/b]\x1b[31m"],
        ["study", "metrics", "--measures", "[/b]\x1b[31m"],
        ["table", "global", "[/b]\x1b[31m"],
        ["figure", "[/b]\x1b[31m"],
        ["data", "get", "[/b]\x1b[31m"],
        ["data", "check", "--data-dir", "[/b]\x1b[31m", "digits", "fmnist"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_finding_34_names_in_errors(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert clustpsi(*arguments) == 2
    shown = capsys.readouterr()
    assert [line.startswith("error: ") for line in shown.err.splitlines()] == [True]
    assert r"[/b]\x1b[31m" in (shown.err + shown.out) and not CONTROL.search(shown.out + shown.err)


@pytest.mark.parametrize("arguments", [["sweep", "more\x92"], ["sweep", "--\x92"], ["\x92"], ["table", "\x92"]])
def test_finding_34_arguments_that_no_command_takes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi(*arguments) == 2
    shown = capsys.readouterr().err
    assert r"\x92" in shown and not CONTROL.search(shown)


def test_finding_13_no_table_is_cut_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    methods = "clust_psi_pfl:psi_epsilon=0.001:min_wpsi=0.1:psi_features=signed,prior_pfl:prior_strength=0.25"
    assert clustpsi("run", *QUICK, "--agg-method", methods, "--seeds-list", "0,1", "--output", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    header, *rows = [line.split() for line in shown.splitlines() if not set(line) & set("─,:;") or "(" in line]
    assert header[-3:] == ["tau", "MB", "s"]
    assert "Clust-PSI-PFL (psi_features=signed, psi_epsilon=0.001, min_wpsi=0.1)" in shown
    assert "prior-PFL (prior_strength=0.25)" in shown and "…" not in shown
    assert rows and all(re.fullmatch(r"\d+\.\d", row[-1]) for row in rows[:2])


def test_constant_answers_are_rows_and_other_scores_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["run", *QUICK, "--agg-method", "fedavg", "--output", str(tmp_path), "--partitioner", "dirichlet"]
    assert clustpsi(*given, "--scores", "macro-f1") == 0
    shown = capsys.readouterr().out
    assert "macro F1" in shown and "balanced" not in shown
    own, everybody = (
        next(line.split()[-len(run.ALWAYS) - 1 :] for line in shown.splitlines() if title in line)
        for title in CONSTANTS.values()
    )
    assert clustpsi(*given, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    for row, kind in ((own, "client"), (everybody, "federation")):
        assert [f"{report['constant'][kind][key]['mean']:.3f}" for key in (*run.ALWAYS, "macro_f1")] == row
    assert report["constant"]["client"]["global_accuracy"]["mean"] > 0.2  # much of the skew is in the labels
    assert {"balanced_accuracy", "macro_f1", "compilation"} <= set(report["methods"][0])
    assert clustpsi(*given, "--scores", "macro") == 2
    assert "unknown score 'macro': did you mean 'macro_f1'?" in capsys.readouterr().err


def test_finding_15_models_that_were_not_saved_are_computed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["run", *QUICK, "--agg-method", "fedavg", "--output", str(tmp_path)]
    assert clustpsi(*given) == 0
    before = next(tmp_path.glob("*/summary.json")).read_bytes()
    assert clustpsi(*given, "--save-models") == 0
    assert "fedavg, seed 0: computed again, because its models were not saved" in capsys.readouterr().err
    (models,) = tmp_path.glob("*/model.safetensors")
    stamp = models.stat().st_mtime_ns
    assert clustpsi(*given, "--save-models") == 0
    assert "finished before" in capsys.readouterr().err and models.stat().st_mtime_ns == stamp
    assert next(tmp_path.glob("*/summary.json")).read_bytes() == before


def test_finding_19_progress_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "BETWEEN_LINES", 0.0)
    given = ["run", *QUICK, "--agg-method", "fedavg,local", "--output", str(tmp_path)]
    assert clustpsi(*given) == 0
    told = capsys.readouterr().err
    assert "fedavg, seed 0: run 1 of 2 starts\n" in told and "local, seed 0: run 2 of 2 starts\n" in told
    assert re.search(r"^fedavg, seed 0: round 1/2, accuracy 0\.\d{3}, 0:00:\d\d left$", told, re.M)
    assert re.search(r"^local, seed 0: finished in \d+\.\d s, accuracy 0\.\d{3}$", told, re.M)
    assert clustpsi(*given, "--fresh", "--agg-method", "fedavg") == 0
    many = capsys.readouterr().err.count("round ")
    monkeypatch.setattr(run, "BETWEEN_LINES", 1e9)
    assert clustpsi(*given, "--fresh", "--agg-method", "fedavg") == 0
    assert capsys.readouterr().err.count(": round ") == 0 < many


def test_finding_19_quiet_commands_say_nothing_but_errors(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--output", str(tmp_path / "runs")]
    small = ["--grid", "lr=0.1", "--grid", "batch-size=8", "--grid", "optimizer=sgd"]
    study = ["--dataset", "digits", "--num-clients", "3", "--alphas", "1,9", "--similarities", "0,1", "--seeds", "4"]
    study += ["--models", "tree", "--output", str(tmp_path / "study")]
    data = ["--dataset", str(table), "--label", "[/b]kind"]
    for arguments in (
        ["run", *data, *QUICK, *store],
        ["sweep", *data, *QUICK, *store],
        ["tune", *data, *QUICK, *store, *small],
        ["study", "metrics", *study],
        ["figure", "rounds", "--runs", *store[1:], "--where", "validation=false", "--output", str(tmp_path / "f.svg")],
    ):
        assert clustpsi(*arguments, "--quiet") == 0
        assert capsys.readouterr().err == "", arguments
    assert clustpsi("run", "--quiet", "--dataset", "digit") == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_warnings_are_notes_unless_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from clustpsi.runs.sources import Sources

    load = Sources.load

    def warned(self: Sources, config: object) -> object:
        warnings.warn("[/b] is\nodd", ClustPSIWarning, stacklevel=1)
        return load(self, config)  # type: ignore[arg-type]

    monkeypatch.setattr(Sources, "load", warned)
    given = ["run", *QUICK, "--agg-method", "fedavg", "--output", str(tmp_path)]
    assert clustpsi(*given) == 0
    assert r"note: [/b] is\nodd" in capsys.readouterr().err.splitlines()
    assert clustpsi(*given, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_notes_of_other_processes_are_notes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["n,kind,site", *rows, "1,a,alone", ""]))
    given = ["sweep", "--dataset", str(tmp_path / "t.csv"), "--label", "kind", "--client", "site", "--workers", "1"]
    given += ["--comm-rounds", "1", "--agg-method", "fedavg", "--output", str(tmp_path / "runs")]
    assert clustpsi(*given, "--seeds-list", "0,1") == 0
    told = capsys.readouterr().err
    assert told.startswith("note: 1 of 4 natural clients of t.csv") and told.count("natural clients") == 1
    assert "Warning" not in told


# --------------------------------------------------------------------------------------------------------- diagnose


def diagnosed(counts: list[list[int]], path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    frame = pd.DataFrame(counts, columns=list("abcdefghij")[: len(counts[0])])
    frame.insert(0, "site", [f"s{i}" for i in range(len(counts))])
    frame.to_csv(path / "counts.csv", index=False)
    assert clustpsi("diagnose", str(path / "counts.csv"), *more) == 0
    return capsys.readouterr().out


def test_finding_17_a_diagnosis_reads_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = diagnosed([[50, 50], [51, 50], [50, 49]], tmp_path, capsys, "--tau-clusters", "2")
    assert "no significant shift (below 0.1" in shown and "none shift" not in shown
    assert "1 client (" in shown and "1 clients" not in shown


def test_weak_clusters_and_lone_clients_are_remarked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    weak = diagnosed(rng.integers(80, 120, (12, 10)).tolist(), tmp_path, capsys, "--preset", "paper")
    assert re.search(r"^note: a silhouette of 0\.\d+ is weak \(below 0\.25: .*Kaufman and Rousseeuw", weak, re.M)
    clear = [[90, 10], [88, 12], [10, 90], [12, 88]]
    assert "note: " not in diagnosed(clear, tmp_path, capsys)
    lone = diagnosed([[100, 1], [99, 2], [98, 1], [1, 100]], tmp_path, capsys, "--json")
    assert json.loads(lone)["cautions"] == ["1 cluster of 2 has a single client, which would train alone"]
    assert "a silhouette" not in diagnosed([[100, 1], [99, 2], [98, 1], [1, 100]], tmp_path, capsys)


# ------------------------------------------------------------------------------------------------- what people expect


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert clustpsi("--version") == 0
    assert capsys.readouterr().out == f"clustpsi {version('clustpsi')}\n"


def completed(*words: str) -> list[str]:
    environment = {"_CLUSTPSI_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["clustpsi", *words])}
    environment["COMP_CWORD"] = str(len(words))
    program = [sys.executable, "-m", "clustpsi"]
    done = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_options_methods_and_data_sets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed("run", "--agg-method", "fedavg,fedp") == ["fedavg,fedprox"]
    assert completed("run", "--local-e") == ["--local-epochs"]
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert clustpsi("--show-completion") == 0
    assert "_CLUSTPSI_COMPLETE=complete_bash" in capsys.readouterr().out


HEAVY = {"jax", "pandas", "scipy", "pyarrow", "sklearn", "matplotlib", "numba", "flax"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["table", "--help"], ["--version"], ["methods"]])
def test_help_is_light(arguments: list[str]) -> None:
    program = f"""import sys, time
from clustpsi.cli import main
try:
    main({arguments!r})
except SystemExit as stopped:
    assert not stopped.code
print(*sys.modules, file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout
    assert not HEAVY & set(done.stderr.split())
