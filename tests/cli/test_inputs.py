"""No command replaces a file that it reads: it says so, before any work."""

from pathlib import Path

import pandas as pd
import pytest

from helpers import clustpsi

COMMANDS = [
    "predict m.safetensors in.csv --output in.csv",
    "predict m.safetensors link.csv --output in.csv",
    "predict m.safetensors in.csv --output link.csv",
    "predict m.safetensors in.csv --output twin.csv",
    "predict m.safetensors in.parquet --counts in.csv --output in.csv",
    "predict in.csv new.csv --output in.csv",
    "diagnose in.html --report in.html",
    "run --dataset in.html --label y --report in.html",
    "run --word-vectors in.html --report in.html",
    "sweep --dataset in.html --label y --report in.html",
    "sweep --grid in.html --report in.html",
    "table global in.csv --output in.csv",
    "table local in.csv --output in.csv",
    "table tests in.csv --output in.csv",
    "table best in.csv --output link.csv",
    "table runs in.csv --output in.csv",
    "table effort store --output store/run/rounds.csv",
    "table runs store/run --output store/run/summary.json",
    "study advice in.csv --output in.csv",
    "export store/model-0.onnx --format onnx --output store",
    "export store/model.json --format onnx --output store",
    "figure rounds --runs store --output store/run/rounds.pdf",
    "figure importances --study study --output study/scores.svg",
    "figure importances --study study --output study/importances.png",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_command_replaces_what_it_reads(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("store/run", "study"):
        Path(folder).mkdir(parents=True)
    names = ("in.csv", "in.html", "in.parquet", "store/model-0.onnx", "store/model.json", "study/scores.csv")
    names += ("study/importances.csv", *(f"store/run/{name}" for name in ("config.json", "summary.json", "rounds.csv")))
    for name in names:
        Path(name).write_text('lr = 0.1  # "rows"')
    Path("link.csv").symlink_to("in.csv")
    Path("twin.csv").hardlink_to("in.csv")
    assert clustpsi(*line.split()) == 2
    assert "would replace" in capsys.readouterr().err
    assert all(Path(name).read_text() == 'lr = 0.1  # "rows"' for name in names) and Path("link.csv").is_symlink()


def test_a_figures_data_replaces_other_data_only_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["figure", "skew-similarity", "--similarities", "0,1", "--num-clients", "4", "--seeds-list", "0"]
    Path("skew-similarity.csv").write_text("mine,only\n1,2\n")
    assert clustpsi(*command) == 0
    assert "skew-similarity.csv was there with other columns, and was replaced" in capsys.readouterr().err
    assert "wpsi" in pd.read_csv("skew-similarity.csv")
    assert clustpsi(*command) == 0
    assert "was there" not in capsys.readouterr().err
