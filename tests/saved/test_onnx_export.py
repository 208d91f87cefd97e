"""Exported models: what ONNX Runtime and NumPy make of them is what the saved model predicts."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from clustpsi import FederatedClassifier, SavedModel
from clustpsi.datasets.table_files import read_table
from clustpsi.orders import Deployment
from clustpsi.saved import onnx_export
from helpers import clustpsi

EXAMPLES = Path(__file__).parents[2] / "examples" / "onnx"
#: Runs an example and fails if it has loaded anything of ours.
ALONE = """
import runpy, sys
example, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_path(example)
assert not {"clustpsi", "jax", "flax", "pandas", "sklearn"} & set(sys.modules)
"""


def birds(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    species = rng.integers(0, 3, rows)
    frame = pd.DataFrame(
        {
            "wing": species + rng.normal(0, 0.5, rows),
            "leg": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "habitat": np.where(rng.random(rows) < 0.2, None, np.array(["sea", "wood", "Moor, wet"])[species]),
        }
    )
    site = np.array(["oslo", "rome", "Łódź"])[(species + (rng.random(rows) < 0.3)) % 3]
    return frame.assign(site=site, species=np.array(["auk", "jay", "kite"])[species])


def trained(X: Any, y: Any, clients: Any, method: str, **settings: Any) -> SavedModel:
    settings = {"comm_rounds": 4, "local_epochs": 2, "lr": 0.05, "random_state": 0, "workers": 1, **settings}
    return FederatedClassifier(method, **settings).fit(X, y, clients=clients).model_


def table(method: str = "prior_pfl") -> SavedModel:
    frame = birds()
    return trained(frame.drop(columns=["site", "species"]), frame["species"], frame["site"], method)


def export(model: SavedModel, folder: Path) -> dict[str, Any]:
    """Save a model, export it with the command line, and read the description."""
    model.save(folder / "m.safetensors")
    assert clustpsi("export", str(folder / "m.safetensors"), "--format", "onnx", "--quiet") == 0
    described: dict[str, Any] = json.loads((folder / "onnx" / "model.json").read_text(encoding="utf-8"))
    return described


def run_example(name: str, *arguments: str, given: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(EXAMPLES / name), *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "method", ["clust_psi_pfl", "local", "prior_pfl", "fedsoft:n_fedsoft=2", "clust_psi_pfl:inner=prior_pfl"]
)
def test_probabilities_of_every_client_are_ours(method: str, tmp_path: Path) -> None:
    model, frame = table(method), birds()
    described = export(model, tmp_path)
    assert described["classes"] == ["auk", "jay", "kite"] and set(described["clients"]) == set(model.client_names)
    assert described["columns"] == {"label": "species", "client": "site", "text": []}
    assert sorted(path.name for path in (tmp_path / "onnx").glob("*.onnx")) == sorted(described["models"])
    features = model.read(frame)
    served = {**described["clients"], "nobody": described["others"]}
    for client, own in served.items():
        session = onnxruntime.InferenceSession(tmp_path / "onnx" / own["model"])
        logits = own["scale"] * session.run(["logits"], {"features": features})[0] + np.array(own["log_prior"])
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        counts = model.newcomers.federation if client == "nobody" else None
        np.testing.assert_allclose(shares, model.predict_proba(frame, client, counts=counts), atol=1e-5)


def test_equal_models_share_a_file(tmp_path: Path) -> None:
    assert export(table("fedavg"), tmp_path)["models"] == ["model-0.onnx"]
    assert len(export(table("local"), tmp_path)["models"]) == 3


def test_the_example_for_tables(tmp_path: Path) -> None:
    model, frame = table(), birds()
    export(model, tmp_path)
    frame.loc[:5, "site"] = "new"
    frame.loc[6:9, "habitat"] = "unheard of"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    counts = {"new": model.newcomers.federation}
    expected = model.predict(frame, "site", counts=counts).tolist()
    assert run_example("table.py", str(tmp_path / "onnx"), str(tmp_path / "rows.csv"), "site") == expected
    assert len(set(expected)) == 3


def written_oddly(rows: int, separator: str, seed: int) -> str:
    """A CSV file as people write it: dates, decimal commas, money, marks of gaps, padded and typed categories."""
    rng = np.random.default_rng(seed)
    species = rng.integers(0, 3, rows)
    lines = [["site", "leg", "wing", "mass", "price", "day", "seen", "ring", "kept", "habitat", "species"]]
    for at, kind in enumerate(species):
        wing, mass = 10 * kind + rng.normal(), 1000 * kind + rng.normal(0, 50)
        day = np.datetime64("2025-01-01") + int(120 * kind + rng.integers(0, 40))
        iso = f"{day}" if at % 3 else f"{day}T{rng.integers(0, 24):02}:30:15{rng.choice(['Z', '+02:00', ''])}"
        last = f"{int(str(day)[8:])}.{int(str(day)[5:7])}.{str(day)[:4]} 6:05 PM"
        pointed = f"{mass:,.1f}".replace(",", "_").replace(".", ",").replace("_", ".")
        plain = f"{kind - rng.normal():.2f}".replace(".", ",")  # only with other separators all commas are decimal ones
        cells = [plain, f"{wing:.3f}".replace(".", ","), pointed, f"${abs(mass):,.2f}", iso, last]
        gaps = ["", rng.choice(["?", "n/a", "", " - "]), "lost", "", "NA", "unknown"]
        cells = [gap if rng.random() < 0.03 else cell for gap, cell in zip(gaps, cells, strict=True)]
        ring = rng.choice(["07", "7.0" if separator == "," else "+7", "8"] if seed else ["7", "8", "x9"])
        kept = rng.choice(["true", "False"])
        habitat = rng.choice(["sea", " sea", "sea ", "NA", "", "wood", "cliff " if seed else "cliff"])
        site = ["oslo", "rome ", "elsewhere"][rng.choice(3, p=[0.5, 0.4, 0.1])] if seed else ["oslo", "rome"][at % 2]
        lines.append([site, *cells, str(ring), str(kept), str(habitat), ["auk", "jay", "kite"][kind]])

    def cell(text: str) -> str:
        return f'"{text}"' if separator in text else text

    return "".join(separator.join(map(cell, line)) + "\n" for line in lines)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.filterwarnings("ignore::clustpsi.errors.ClustPSIWarning")
def test_the_example_reads_tables_as_predict_does(separator: str, tmp_path: Path) -> None:
    (tmp_path / "training.csv").write_text(written_oddly(300, separator, 0))
    (tmp_path / "rows.csv").write_text(written_oddly(150, separator, 1), encoding="utf-8-sig")
    frame = read_table(tmp_path / "training.csv")
    model = trained(
        frame.drop(columns=["site", "species"]), frame["species"], frame["site"], "prior_pfl", comm_rounds=1
    )
    (own,) = model.deployment.models  # with weights of which every feature changes the answer
    weights = np.random.default_rng(0).normal(size=own.parameters.size).astype(np.float32)
    model = replace(model, deployment=replace(model.deployment, models=(own._replace(parameters=weights),)))
    described = export(model, tmp_path)["features"]
    assert described["kind"] == "table"
    columns = {each["name"]: each for each in (*described["numbers"], *described["categories"])}
    assert columns["day"]["kind"] == columns["seen"]["kind"] == "date" and columns["seen"]["day_first"]
    assert columns["wing"]["decimal_comma"] and columns["leg"]["decimal_comma"] == (separator == ",")
    assert "lost" in columns["mass"]["gap_marks"] and columns["mass"]["marks_gaps"]
    predicted = tmp_path / "predicted.csv"
    given = (str(tmp_path / "m.safetensors"), str(tmp_path / "rows.csv"), "--client", "site", "--ignore-label")
    assert clustpsi("predict", *given, "--output", str(predicted), "--quiet") == 0
    expected = pd.read_csv(predicted)["prediction"].tolist()
    assert run_example("table.py", str(tmp_path / "onnx"), str(tmp_path / "rows.csv"), "site") == expected
    assert len(set(expected)) == 3


def test_cells_that_pandas_takes_for_missing_are_all_named() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(onnx_export.MISSING) == set(STR_NA_VALUES)


def test_the_example_for_texts(tmp_path: Path) -> None:
    texts = ["good, fine DAY", "bad sad night"] * 4
    model = trained(texts, ["up", "down"] * 4, ["a", "b", "b", "a"] * 2, "fedavg", comm_rounds=1)
    parameters = np.random.default_rng(6).normal(size=model.deployment.models[0].parameters.size).astype(np.float32)
    tossed = Deployment((model.deployment.models[0]._replace(parameters=parameters),), model.deployment.of_client)
    model = replace(model, deployment=tossed)
    export(model, tmp_path)
    once = ["Good ", "sad_bad ", "fine's fine,", "a NIGHT... ", "élan good ", "day-night ", "'bad' "]
    shown = [text * number for text in once for number in (1, 30, 120)]
    expected = model.predict(shown, "a").tolist()
    assert run_example("text.py", str(tmp_path / "onnx"), "a", given="".join(f"{each}\n" for each in shown)) == expected
    assert set(expected) == {"up", "down"}


def test_images_are_the_input_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (24, 8, 8), dtype=np.uint8)
    model = trained(images, [0, 1] * 12, ["a", "b", "b", "a"] * 6, "fedavg", model="logistic", comm_rounds=1)
    described = export(model, tmp_path)
    assert described["input"] == {"name": "features", "shape": [8, 8, 1], "dtype": "uint8"}
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / described["clients"]["a"]["model"])
    logits = session.run(["logits"], {"features": images[..., None]})[0]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict_proba(images, "a"), atol=1e-5)


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table("local").save(tmp_path / "model.safetensors")
    output = tmp_path / "[b]out"
    assert clustpsi("export", str(tmp_path), "--format", "onnx", "--output", str(output)) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("3 models of 3 clients, and model.json, in ") and (output / "model-2.onnx").exists()
    assert clustpsi("export", str(tmp_path / "none"), "--format", "onnx") == 2
    assert clustpsi("export", str(tmp_path), "--format", "pmml") == 2
    assert clustpsi("export", str(tmp_path)) == 2
    assert "--format" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert clustpsi("export", str(tmp_path), "--format", "onnx", "--output", str(tmp_path / "file")) == 2


def test_a_description_is_there_only_if_everything_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = table("local")
    described = export(model, tmp_path)
    write = onnx_export.write_atomically

    def fail_late(path: Path, *rest: Any) -> None:
        if path.name == described["models"][-1]:
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(onnx_export, "write_atomically", fail_late)
    with pytest.raises(KeyboardInterrupt):
        onnx_export.export_onnx(model, tmp_path / "onnx")
    assert not (tmp_path / "onnx" / "model.json").exists()


def test_without_the_extra_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table("fedavg").save(tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "clustpsi.models.onnx_graph", raising=False)
    assert clustpsi("export", str(tmp_path), "--format", "onnx") == 2
    assert "pip install 'clustpsi[onnx]'" in capsys.readouterr().err
    assert not (tmp_path / "onnx").exists()
