"""``clustpsi predict`` and ``clustpsi describe``, on real files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from clustpsi import SavedModel, load_model
from clustpsi.errors import ClustPSIError
from clustpsi.saved import rows as saved_rows
from clustpsi.skew import check_counts
from helpers import clustpsi

METHOD = "clust_psi_pfl:inner=prior_pfl:tau_clusters=2:psi_epsilon=0.01"
SPECIES = ("gull", "owl", "tit")
MIX = {"rome": (8, 1, 1), "oslo": (1, 8, 1), "kyiv": (1, 1, 8), "7": (8, 1, 1)}


def birds(seed: int, size: int = 240, sites: dict[str, tuple[int, ...]] = MIX) -> pd.DataFrame:
    """Birds whose wing, date and habitat tell the species; sites see different ones."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(sites), size)
    labels = np.array([rng.choice(3, p=np.array(sites[name]) / sum(sites[name])) for name in names])
    wing = rng.normal(2.0 * labels, 1).round(2)
    day = pd.Timestamp("2020-01-15") + pd.to_timedelta(rng.integers(0, 300, size) + 30 * labels, unit="D")
    return pd.DataFrame(
        {
            "site": names,
            "wing": np.where(rng.random(size) < 0.05, np.nan, wing),
            "seen": day.strftime("%d/%m/%Y"),
            "habitat": np.array(["sea", "wood", "02"])[(labels + (rng.random(size) < 0.3)) % 3],
            "ringed": rng.random(size) < 0.3,
            "species": np.array(SPECIES)[labels],
        }
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    birds(0).to_csv(folder / "birds.csv", index=False)
    given = ("--dataset", str(folder / "birds.csv"), "--label", "species", "--client", "site", "--model", "logistic")
    training = ("--agg-method", METHOD, "--comm-rounds", "20", "--lr", "0.05", "--seeds-list", "0", "--save-models")
    assert clustpsi("run", *given, *training, "--output", str(folder / "runs"), "--quiet") == 0
    (path,) = (folder / "runs").glob("*/model.safetensors")
    return path


@pytest.fixture
def model(saved: Path) -> SavedModel:
    return load_model(saved)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_rows, "MOST_ROWS", 7)
    monkeypatch.setattr(saved_rows, "LEAST_ROWS", 1)


def predict(saved: Path, rows: Path, *more: str) -> list[str]:
    """The predictions that the command leaves in a file."""
    output = rows.with_name("predictions.parquet")
    assert clustpsi("predict", str(saved), str(rows), *more, "--output", str(output)) == 0
    table = pd.read_parquet(output)
    assert table["row"].tolist() == list(range(1, len(table) + 1))
    return table["prediction"].tolist()


FORMATS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "rows.csv": lambda frame, path: frame.to_csv(path, index=False),
    "rows.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "semicolons.csv": lambda frame, path: frame.to_csv(path, index=False, sep=";", decimal=","),
    "utf16.csv": lambda frame, path: frame.to_csv(path, index=False, encoding="utf-16"),
    "rows.parquet": lambda frame, path: frame.to_parquet(path),
    "rows.feather": lambda frame, path: frame.to_feather(path),
    "rows.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "rows.json": lambda frame, path: frame.to_json(path, orient="records"),
}


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", FORMATS)
def test_files_in_pieces_give_what_the_whole_table_gives(
    name: str, saved: Path, model: SavedModel, tmp_path: Path
) -> None:
    frame = birds(1, 50)
    # As numbers, dates and true or false stand in a table that was read as a whole.
    whole = frame.assign(seen=pd.to_datetime(frame["seen"], format="%d/%m/%Y"))
    FORMATS[name](frame, tmp_path / name)
    expected = model.predict(whole, "site").tolist()
    assert predict(saved, tmp_path / name, "--client", "site") == expected
    assert len(set(expected)) == 3


def test_the_accuracy_is_told(
    saved: Path, model: SavedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = birds(1, 50)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    right = int((model.predict(frame, "site") == frame["species"]).sum())
    predict(saved, tmp_path / "rows.csv")
    told = capsys.readouterr()
    assert told.out == f"accuracy {right / 50:.4f} ({right} of 50 rows)\n"
    assert "clients are those of the column 'site', as in training" in told.err
    predict(saved, tmp_path / "rows.csv", "--ignore-label")
    assert capsys.readouterr().out == ""


def test_columns_in_any_order_of_any_type(saved: Path, model: SavedModel, tmp_path: Path) -> None:
    frame = birds(1, 40)
    expected = model.predict(frame, "site").tolist()
    other = frame[["ringed", "seen", "habitat", "site", "wing"]].assign(more="x", id=range(40))
    assert model.predict(other, "site").tolist() == expected
    assert model.predict(other.assign(ringed=other["ringed"].astype(str).str.lower()), "site").tolist() == expected
    assert model.predict(other.assign(wing=other["wing"].astype("float32")), "site").tolist() is not None
    assert model.predict(other.assign(wing=other["wing"].astype(str)), "site").tolist() == expected
    assert model.predict(other.assign(wing=other["wing"].astype("Float64")), "site").tolist() == expected
    numbered = other.assign(site=other["site"].replace({"7": "07"}))
    numbered.to_csv(tmp_path / "rows.csv", index=False)
    assert predict(saved, tmp_path / "rows.csv") == expected


def test_unseen_kinds_and_gaps_are_features_like_others(model: SavedModel) -> None:
    frame = birds(1, 8).assign(habitat="moor", seen=None, wing=np.nan)
    assert set(model.predict(frame, "site")) <= set(SPECIES)
    shares = model.predict_proba(frame, "site")
    assert shares.shape == (8, 3) and np.allclose(shares.sum(axis=1), 1, atol=1e-5)


def test_probabilities_belong_to_the_predictions(saved: Path, model: SavedModel, tmp_path: Path) -> None:
    frame = birds(1, 50)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert (
        clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), "--proba", "--output", str(tmp_path / "p.csv")) == 0
    )
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table) == ["row", "client", "prediction", *(f"probability_{name}" for name in SPECIES)]
    shares = table[[f"probability_{name}" for name in SPECIES]].to_numpy()
    np.testing.assert_allclose(shares, model.predict_proba(frame, "site"), rtol=1e-5)
    assert (np.array(SPECIES)[shares.argmax(axis=1)] == table["prediction"]).all()


def test_predictions_go_to_standard_output_or_json_lines(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    birds(1, 5).to_csv(tmp_path / "rows.csv", index=False)
    assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), "--client", "rome") == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:1] == ['"row","client","prediction"'] and len(told.out.splitlines()) == 6
    assert "accuracy" in told.err
    output = tmp_path / "p.jsonl"
    assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), "--output", str(output), "--quiet") == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4, 5] and set(lines[0]) == {"row", "client", "prediction"}


# ------------------------------------------------------------------------------------------------- clients not there

NEW = {"lima": (1, 1, 8), "bern": (8, 1, 1)}


@pytest.mark.usefixtures("small_pieces")
def test_new_clients_are_placed_by_the_labels_of_their_rows(
    saved: Path, model: SavedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = birds(1, 60, {**NEW, **MIX})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    counts = pd.crosstab(frame["site"], frame["species"])
    expected = model.predict(frame, "site", counts=counts).tolist()
    assert predict(saved, tmp_path / "rows.csv", "--client", "site") == expected
    assert "placed by label counts: 2 clients ('bern', 'lima')" in capsys.readouterr().err


def test_new_clients_are_placed_by_a_table_of_counts(
    saved: Path, model: SavedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = birds(1, 60, NEW).drop(columns="species")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "counts.csv").write_text("client,tit,gull\nlima,80,10\nbern,10,80\nrome,1,1\n")
    counts = {"lima": {"tit": 80, "gull": 10}, "bern": [80, 0, 10]}
    expected = model.predict(frame, "site", counts=counts).tolist()
    assert (
        predict(saved, tmp_path / "rows.csv", "--client", "site", "--counts", str(tmp_path / "counts.csv")) == expected
    )
    told = capsys.readouterr().err
    assert "client 'rome' took part, and is served as it was then" in told
    with pytest.warns(UserWarning, match=r"2 clients \('bern', 'lima'\) were not in the federation and have no label"):
        assert model.predict(frame, "site").tolist() != expected
    placed = model.newcomers.place(check_counts([[10, 0, 80], [80, 0, 10]]))
    assert model.assign([[10, 0, 80], [80, 0, 10]]).tolist() == placed.of_client.tolist()


def test_rows_of_nobody_get_the_federations_mix_and_that_is_said(
    saved: Path, model: SavedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = birds(1, 20).drop(columns=["site", "species"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    found = predict(saved, tmp_path / "rows.csv")
    assert "nobody in the federation, without label counts: the federation's label mix" in capsys.readouterr().err
    assert found == model.predict(frame, counts=model.label_counts.sum(axis=0)).tolist()
    assert "client" not in pd.read_parquet(tmp_path / "predictions.parquet")


def test_one_client_for_all_rows(saved: Path, model: SavedModel, tmp_path: Path) -> None:
    frame = birds(1, 30)
    frame.drop(columns=["site", "species"]).to_csv(tmp_path / "rows.csv", index=False)
    assert predict(saved, tmp_path / "rows.csv", "--client", "oslo") == model.predict(frame, "oslo").tolist()
    assert predict(saved, tmp_path / "rows.csv", "--client", "07") == model.predict(frame, "7").tolist()
    assert model.predict(frame, ["oslo"] * 30).tolist() == model.predict(frame, "oslo").tolist()


# ---------------------------------------------------------------------------------------------------------- mistakes


def with_cell(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        cells = frame[column].astype(object)
        cells.iloc[8] = value
        return frame.assign(**{column: cells})

    return changed


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda frame: frame.drop(columns="wing"), (), "has no column 'wing', which the features need"),
        (lambda frame: frame.rename(columns={"wing": "wings"}), (), "did you mean 'wings'?"),
        (with_cell("species", None), (), "column 'species' is empty in row 9: give every row its label, take the"),
        (with_cell("wing", "inf"), (), "column 'wing' is infinite in row 9: leave the cell empty"),
        (with_cell("wing", "long"), (), "column 'wing' must hold numbers, and row 9 has 'long'"),
        (with_cell("seen", "soon"), (), "column 'seen' must hold dates, and row 9 has 'soon'"),
        (lambda frame: frame.assign(seen=3), (), "column 'seen' must hold dates, and it holds numbers"),
        (with_cell("site", None), (), "column 'site', the client is empty in row 9: every row needs one"),
        (lambda frame: frame.head(0), (), "has no rows"),
        (lambda frame: frame, ("--client", "stie"), "no client of that name: did you mean 'site'?"),
        (lambda frame: frame, ("--client", "romee"), "did you mean 'rome'?"),
        (
            lambda frame: frame.drop(columns="species"),
            ("--client", "xyzzy"),
            "leave --client away for rows of a client that was not there, or give its --counts",
        ),
        (lambda frame: frame.assign(rome=1), ("--client", "rome"), "'rome' is a column of the rows and a client"),
        (lambda frame: frame, ("--label", "kind"), "has no column 'kind'"),
        (lambda frame: frame, ("--label", "species", "--ignore-label"), "give one of them"),
        (lambda frame: frame, ("--counts", "{folder}/twice.csv"), "client 'lima' has more than one row of counts"),
        (lambda frame: frame, ("--counts", "{folder}/strange.csv"), "unknown class 'emu'"),
        (lambda frame: frame, ("--output", "{folder}/p.xlsx"), "must end in .csv, .parquet, .jsonl"),
        (lambda frame: frame, ("--output", "{folder}/none/p.csv"), "there is no folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    change: Callable[[pd.DataFrame], pd.DataFrame],
    options: tuple[str, ...],
    message: str,
    saved: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(birds(1, 20)).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "twice.csv").write_text("client,gull,owl,tit\nlima,1,2,3\nlima,4,5,6\nbern,1,1,7\n")
    (tmp_path / "strange.csv").write_text("client,gull,emu\nlima,1,2\n")
    before = set(tmp_path.iterdir())
    given = [each.format(folder=tmp_path) for each in options]
    given += [] if "--output" in given else ["--output", str(tmp_path / "p.parquet")]
    assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), *given) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"\n\n", b"wing\n"])
def test_an_empty_file_is_one_sentence(
    content: bytes, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv")) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("command", ["predict", "describe"])
def test_what_is_no_saved_model_is_one_sentence(
    command: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    birds(1, 5).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "model.safetensors").write_bytes(saved.read_bytes()[:500])
    more = [str(tmp_path / "rows.csv")] if command == "predict" else []
    assert clustpsi(command, str(tmp_path), *more) == 2
    assert "damaged, truncated or no saved model" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------ other kinds


def test_arrays_in_an_npz_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    arrays = {"features": rng.normal(labels[:, None], 1, (60, 3)), "y": labels, "who": np.array(["a", "b", "c"] * 20)}
    np.savez(tmp_path / "rows.npz", **arrays)
    given = ("--dataset", str(tmp_path / "rows.npz"), "--label", "y", "--client", "who", "--seeds-list", "0")
    run = ("run", *given, "--agg-method", "local", "--comm-rounds", "1", "--save-models", "--quiet")
    assert clustpsi(*run, "--output", str(tmp_path / "runs")) == 0
    (saved,) = (tmp_path / "runs").glob("*/model.safetensors")
    expected = load_model(saved).predict(arrays["features"], arrays["who"]).tolist()
    assert predict(saved, tmp_path / "rows.npz", "--client", "who") == expected
    np.savez(tmp_path / "bad.npz", features=arrays["features"], who=arrays["who"][:5])
    assert clustpsi("predict", str(saved), str(tmp_path / "bad.npz"), "--client", "who") == 2


def test_texts_in_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["good", "bad", "fine", "sad"])
    labels = rng.integers(0, 2, 60)
    title = words[labels + 2 * rng.integers(0, 2, 60)]
    frame = pd.DataFrame({"title": title, "body": "so it is", "stars": labels, "shop": list("abc") * 20})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    given = ("--dataset", str(tmp_path / "rows.csv"), "--label", "stars", "--client", "shop", "--text", "title,body")
    run = ("run", *given, "--agg-method", "fedavg", "--comm-rounds", "1", "--save-models", "--quiet")
    assert clustpsi(*run, "--seeds-list", "0", "--output", str(tmp_path / "runs")) == 0
    (saved,) = (tmp_path / "runs").glob("*/model.safetensors")
    expected = load_model(saved).predict([f"{each} so it is" for each in title], "a").tolist()
    assert predict(saved, tmp_path / "rows.csv") == expected
    frame.rename(columns={"title": "head"}).to_csv(tmp_path / "other.csv", index=False)
    assert clustpsi("predict", str(saved), str(tmp_path / "other.csv")) == 2
    assert predict(saved, tmp_path / "other.csv", "--text", "head,body") == expected


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_memory_does_not_grow_with_the_rows(suffix: str, saved: Path, tmp_path: Path) -> None:
    table = pa.Table.from_pandas(birds(1, 100_000), preserve_index=False)
    peaks = []
    for times in (5, 40):  # half a million rows, and four million
        path = tmp_path / f"rows{suffix}"
        with (csv.CSVWriter if suffix == ".csv" else parquet.ParquetWriter)(path, table.schema) as writer:
            for _ in range(times):
                writer.write_table(table)
        command = ["predict", str(saved), str(path), "--output", str(tmp_path / "p.parquet"), "--quiet"]
        told = subprocess.run([sys.executable, "-c", PEAK, *command], check=True, capture_output=True, text=True).stdout
        peaks.append(int(told.split()[-1]))
    assert peaks[1] < peaks[0] + 150_000  # kilobytes; the rows alone would be ten times as much


PEAK = """
import resource, sys
from clustpsi.cli import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


# ---------------------------------------------------------------------------------------------------------- describe


def test_describe_fits_a_screen_and_names_what_matters(
    saved: Path, model: SavedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clustpsi("describe", str(saved)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    for part in (
        model.method,
        "gull, owl, tit",
        "4 clients",
        "wing, seen",
        "logistic",
        "nearest centre",
        "label prior",
    ):
        assert any(part in line for line in lines), part
    assert clustpsi("describe", str(saved), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["client"] for each in told["clients"]] == list(model.client_names)
    assert told["clients"][0]["counts"] == dict(zip(SPECIES, model.label_counts[0].tolist(), strict=True))
    assert told["features"] == model.features.as_dict()


def test_a_client_may_be_called_by_its_number(model: SavedModel) -> None:
    frame = birds(1, 20)
    expected = model.predict_proba(frame, "7").tolist()
    for number in (7, 7.0, np.int64(7)):
        assert model.predict_proba(frame, number).tolist() == expected
    columns = frame.assign(**{"3": frame["site"]}).rename(columns={"3": 3})
    assert model.predict(columns, 3).tolist() == model.predict(frame, "site").tolist()  # the name of a column
    for nobody in ("", " "):
        with pytest.raises(ClustPSIError, match="the name of the client is empty"):
            model.predict(frame, nobody)


def test_label_counts_of_several_clients_need_their_names(model: SavedModel) -> None:
    frame, new = birds(1, 4), ["a", "b", "a", "b"]
    for wrong in ([[5, 0, 1], [0, 5, 1]], [[5, 0, 1]], np.array([[5, 0, 1]]), [5, 0, 1]):
        with pytest.raises(ClustPSIError, match=r"give a data frame with one row per client, .* or a mapping"):
            model.predict(frame, new, counts=wrong)
    with pytest.raises(ClustPSIError, match="give a data frame"):
        model.predict(frame, "a", counts=[[5, 0, 1]])
    named = pd.DataFrame([[5, 0, 1], [0, 5, 1]], index=["a", "b"], columns=SPECIES)
    mapped = model.predict_proba(frame, new, counts={"a": [5, 0, 1], "b": np.array([0, 5, 1])})
    assert mapped.tolist() == model.predict_proba(frame, new, counts=named).tolist()


def test_no_rows_are_told_in_plain_words(model: SavedModel) -> None:
    with pytest.raises(ClustPSIError, match=r"^the data has no rows$"):
        model.predict(birds(1, 5)[:0], "7")


@pytest.mark.parametrize("option", ["--client", "--label", "--text"])
def test_empty_names_are_refused(option: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    birds(1, 5).to_csv(tmp_path / "rows.csv", index=False)
    for name in ("", " "):
        assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), option, name) == 2
        assert f"{option} is empty" in capsys.readouterr().err


def test_columns_of_text_are_refused_by_a_model_without(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    birds(1, 5).to_csv(tmp_path / "rows.csv", index=False)
    assert clustpsi("predict", str(saved), str(tmp_path / "rows.csv"), "--text", "habitat") == 2
    assert "--text is for models of texts" in capsys.readouterr().err


@pytest.mark.parametrize(("strange", "sentence"), [(1, "1 row has a label"), (2, "2 rows have a label")])
def test_strange_labels_are_counted_in_words(
    strange: int, sentence: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = birds(1, 5)
    frame.loc[: strange - 1, "species"] = "dodo"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    predict(saved, tmp_path / "rows.csv")
    assert f"note: {sentence} that is no class of the model" in capsys.readouterr().err
