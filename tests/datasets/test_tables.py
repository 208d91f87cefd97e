"""The user's own data: what becomes a feature, which model is chosen, and what is refused."""

import datetime
import gc
import json
import tracemalloc
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustpsi import compare
from clustpsi.datasets import files, from_arrays, from_table, load_dataset
from clustpsi.datasets.base import ClientIds
from clustpsi.datasets.table_files import read_pieces
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.features.columns import describe
from helpers import clients_of, clustpsi


@pytest.fixture
def birds() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "wing": [1.0, 2.0, np.nan, 4.0, 5.0, 60.0],
            "sex": ["f", "m", "f", None, "x", "f"],
            "ringed": [True, False, True, True, False, True],
            "site": ["north", "north", "south", "south", "south", "north"],
            "notes": ["grey wing", "small", None, "grey", "loud", "grey small"],
            "species": ["owl", "owl", "jay", "jay", "owl", "jay"],
        }
    )


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("file", ["birds.csv", "birds.csv.gz", "birds.parquet"])
def test_files_and_frames_agree(tmp_path: Path, birds: pd.DataFrame, file: str) -> None:
    path = write(birds.drop(columns="notes"), tmp_path / file)
    dataset = load_dataset(path, label="species", client="site")
    assert dataset.name == file and dataset.class_names == ("jay", "owl")
    assert dataset.labels.tolist() == [1, 1, 0, 0, 1, 0]
    assert clients_of(dataset) == birds["site"].tolist()
    same = from_table(birds.drop(columns="notes"), label="species", client="site")
    np.testing.assert_array_equal(dataset.prepare(np.arange(5)), same.prepare(np.arange(5)))


def test_encoding_is_fitted_on_training_rows(birds: pd.DataFrame) -> None:
    dataset = from_table(birds[["wing", "sex", "species"]], label="species")
    features = dataset.prepare(np.array([0, 1, 2, 3]))  # wings 1, 2, missing, 4: mean 7/3, variance 14/9
    assert features.dtype == np.float32
    wing, missing, sexes = features[:, 0], features[:, 1], features[:, 2:]
    np.testing.assert_allclose(wing, (np.array([1, 2, 7 / 3, 4, 5, 60]) - 7 / 3) / np.sqrt(14 / 9), atol=1e-5)
    assert missing.tolist() == [0, 0, 1, 0, 0, 0]
    # f is the most frequent; missing and m follow; x is in no training row and goes to the last column
    assert sexes.tolist() == [
        [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0],
    ]  # fmt: skip
    assert dataset.prepare(np.array([0, 1])).shape[1] == 1 + 3  # no mark without a missing wing; f, m, others


@pytest.mark.parametrize("label", [1, "1"])
def test_finding_16_frames_may_have_numbers_as_column_names(label: str | int) -> None:
    dataset = from_table(pd.DataFrame({0: [1.0, 2.0, 3.0, 4.0], 1: list("abab")}), label=label)
    assert dataset.class_names == ("a", "b") and dataset.prepare(np.arange(4)).shape == (4, 1)


def test_rare_categories_are_pooled() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.integers(0, 200, 1000).astype(str), "y": np.arange(1000) % 2})
    features = from_table(frame, label="y").prepare(np.arange(1000))
    assert features.shape == (1000, 51) and (features.sum(axis=1) == 1).all()
    kept = features[:, :50].sum(axis=0)
    assert kept.min() >= frame["code"].value_counts().iloc[49]


def test_texts_that_name_rows_are_omitted_with_a_warning() -> None:
    frame = pd.DataFrame({"key": [f"k{i}" for i in range(200)], "x": np.arange(200.0), "y": np.arange(200) % 2})
    told = r"column omitted: 'key' \(identifier: 200 different values in 200 rows\); .* --text \(text= in Python\)"
    with pytest.warns(ClustPSIWarning, match=told) as caught:
        dataset = from_table(frame, label="y")
    assert dataset.prepare(np.arange(200)).shape == (200, 1) and caught[0].filename == __file__


NUMBERED = np.random.default_rng(0).permutation(40)


@pytest.mark.parametrize(
    "columns",
    [
        {"Unnamed: 0": np.arange(40)},
        {"first": np.arange(40)},
        {"first": np.arange(1, 41)},
        {"PassengerId": NUMBERED},
        {"customer_id": 7 * NUMBERED},
        {"RowNumber": NUMBERED},
        {"id": [f"c{number}" for number in NUMBERED]},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_finding_14_numbers_that_name_rows_are_omitted_and_told(columns: dict[str, object]) -> None:
    rest = {"x": np.random.default_rng(1).normal(size=40), "y": np.arange(40) % 2}
    frame = pd.DataFrame({**columns, **rest})
    with pytest.warns(ClustPSIWarning, match=f"column omitted: '{frame.columns[0]}'"):
        dataset = from_table(frame, label="y")
    assert dataset.prepare(np.arange(40)).shape == (40, 1)
    assert [column.kind for column in dataset.columns] == ["identifier", "number", "label"]


@pytest.mark.parametrize(
    "columns",
    [
        {"x": np.arange(2, 42)},
        {"x": NUMBERED},
        {"x": np.arange(40) + 0.0},
        {"id": np.arange(40) // 2},
        {"humid": NUMBERED},
    ],
    ids=str,
)
def test_other_numbers_stay_features(columns: dict[str, object]) -> None:
    dataset = from_table(pd.DataFrame({**columns, "y": np.arange(40) % 2}), label="y")
    assert dataset.columns[0].kind == "number" and dataset.prepare(np.arange(40)).shape == (40, 1)


@pytest.mark.parametrize(("rows", "model"), [(1_999, "logistic"), (2_000, "mlp")])
def test_model_by_the_number_of_rows(rows: int, model: str) -> None:
    dataset = from_arrays(np.zeros((rows, 3)), np.arange(rows) % 2)
    assert dataset.model == model and "3 numeric" in dataset.model_reason


def test_text_columns_replace_the_others(birds: pd.DataFrame) -> None:
    dataset = from_table(birds, label="species", text=["notes", "sex"])
    tokens = dataset.prepare(np.arange(6))
    assert dataset.model == "embedding_mlp" and "3 other columns are not used" in dataset.model_reason
    assert tokens.dtype == np.int32 and tokens.shape == (6, 100)
    assert (tokens > 0).sum(axis=1).tolist() == [3, 2, 1, 1, 2, 3]
    assert tokens[0, 0] == tokens[3, 0] == tokens[5, 0]  # grey


@pytest.mark.parametrize(("shape", "model"), [((4, 9, 9), "fmnist_cnn"), ((4, 9, 9, 3), "cifar_cnn")])
def test_npz_images(tmp_path: Path, shape: tuple[int, ...], model: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / "images.npz"
    np.savez(path, pictures=images, kind=np.array([3, 5, 3, 5]), owner=np.array([1, 1, 2, 2]))
    dataset = load_dataset(path, label="kind", client="owner")
    assert dataset.model == model and dataset.class_names == ("3", "5")
    assert clients_of(dataset) == ["1", "1", "2", "2"]
    np.testing.assert_array_equal(dataset.prepare(np.arange(4)).reshape(shape), images)


def test_numeric_labels_keep_their_order() -> None:
    dataset = from_arrays(np.zeros((6, 1)), [10, 9, 10, 100, 9, 100])
    assert dataset.class_names == ("9", "10", "100") and dataset.labels.tolist() == [1, 0, 1, 2, 0, 2]


def test_arrays_of_texts() -> None:
    dataset = from_arrays(["good", "bad", "good"] * 2, list("pnp") * 2)
    assert dataset.model == "embedding_mlp" and dataset.prepare(np.arange(6))[:, 0].tolist() == [2, 3, 2] * 2


def expect(match: str, path: Path, **options: object) -> None:
    with pytest.raises(ClustPSIError, match=match) as caught:
        load_dataset(path, **{"label": "species", **options})  # type: ignore[arg-type]
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_bad_labels_are_named(tmp_path: Path, birds: pd.DataFrame) -> None:
    path = tmp_path / "birds.csv"
    write(birds, path)
    expect("has no column 'kind'", path, label="kind")
    expect("has no column 'Specie': did you mean 'species'", path, label="Specie")
    expect("needs the name of its label column", path, label=None)
    expect("must be different columns, and two are 'species'", path, client="species")
    with pytest.raises(ClustPSIError, match="--client is empty: give it a value"):
        load_dataset(path, label="species", client="")
    write(birds.assign(species="owl"), path)
    expect("'species' has 1 different values: a label needs at least two", path)
    write(birds.assign(species=["owl"] * 4 + ["jay", "owl"]), path)
    expect(r"class 'jay' has only one sample \(row 5\)", path)
    write(birds.assign(species=["owl", "jay", None, "owl", "jay", "jay"]), path)
    expect("'species' is empty in row 3", path)
    write(birds.assign(site=["a", None, "b", "b", "b", "b"]), path)
    expect("'site' is empty in row 2", path, client="site")
    write(pd.DataFrame({"x": 1.0, "species": np.arange(100_000)}), path)
    expect("'species' has 100,000 different values", path)


def test_bad_columns_are_named(tmp_path: Path, birds: pd.DataFrame) -> None:
    path = tmp_path / "birds.csv"
    write(birds.assign(wing=[1, 2, 3, np.inf, 5, 6]), path)
    expect("column 'wing' is infinite in row 4", path)
    path.write_text("x,species,x\n1,a,2\n1,b,2\n")
    expect("has column 'x' more than once", path)
    path.write_text("x,species\n1,a,7\n1,b,7\n")
    expect("cannot be read as CSV", path)
    path.write_text("x,species\n1,a\n1,b,7\n")
    expect("cannot be read as CSV: .*line 3", path)
    write(birds[["species"]], path)
    expect("has no feature column", path)
    path.write_text("wing,species\n")
    expect("has no rows", path)


def test_bad_npz_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "birds.npz"
    path.write_text("not a zip")
    expect("is damaged or truncated", path)
    np.savez(path, a=np.zeros(2), b=np.zeros(2), species=np.zeros(2))
    expect("one called 'features'", path)
    np.savez(path, features=np.array([{}, {}], dtype=object), species=np.zeros(2))
    expect("cannot be read as NPZ", path)
    np.savez(path, features=np.zeros((4, 2)), species=np.arange(4) % 2)
    expect("needs different arrays", path, client="species")
    expect("sep, no_header, text and drop are for tables", path, drop=["x"])
    monkeypatch.setattr(files, "UNPACKED_LEAST", 10_000)
    np.savez_compressed(path, features=np.zeros((100_000, 2)), species=np.arange(100_000) % 2)
    expect("unpacks to more than", path)


@pytest.mark.parametrize(
    ("features", "sentence"),
    [(np.float64(1), "a single value for features"), (np.zeros((4, 0)), "every row is empty"), ([1, 2, 3, 4], "shape")],
)
def test_finding_33_npz_files_without_features_are_named(tmp_path: Path, features: object, sentence: str) -> None:
    np.savez(tmp_path / "a.npz", features=np.asarray(features), y=np.arange(4) % 2)
    with pytest.raises(ClustPSIError, match=sentence):
        load_dataset(tmp_path / "a.npz", label="y")


def test_finding_33_lists_are_no_labels_and_no_features(tmp_path: Path, birds: pd.DataFrame) -> None:
    path = tmp_path / "birds.parquet"
    birds.assign(species=[["owl"]] * 6).to_parquet(path)
    expect("column 'species' holds lists: one number or text per row is needed", path)
    expect("column 'species' holds lists", path, label="ringed", client="species")
    birds.assign(place=[{"lat": 1.0}] * 6)[["wing", "place", "species"]].to_parquet(path)
    with pytest.warns(ClustPSIWarning, match=r"omitted: 'place' \(unsupported: holds objects\)"):
        dataset = load_dataset(path, label="species")
    assert [column.kind for column in dataset.columns] == ["number", "unsupported", "label"]


def test_bad_arrays_are_named() -> None:
    with pytest.raises(ClustPSIError, match="3 rows of features but 4 labels"):
        from_arrays(np.zeros((3, 2)), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="rows of features of different lengths"):
        from_arrays([[1.0], [1.0, 2.0]], [0, 1])
    with pytest.raises(ClustPSIError, match="4 labels but 1 client names"):
        from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a"])
    with pytest.raises(ClustPSIError, match="type float64 with 1 channels: uint8"):
        from_arrays(np.zeros((4, 5, 5)), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="feature 1 is infinite in row 2"):
        from_arrays(np.array([[0, 1], [0, np.inf]] * 2), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="one value per row"):
        from_arrays(np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ClustPSIError, match="features of shape"):
        from_arrays(np.zeros(4), [0, 1, 0, 1])


# ------------------------------------------------------------------------------------------- what columns are read as


def test_finding_14_decimals_are_numbers(tmp_path: Path) -> None:
    prices = [Decimal("1.50"), Decimal("2.25"), None, Decimal("7.00")]
    frame = pd.DataFrame({"price": prices, "y": [0, 1, 0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    for table in (frame, tmp_path / "t.parquet"):
        dataset = from_table(table, label="y")
        assert dataset.columns[0].kind == "number" and dataset.columns[0].detail == "1 gap"
        assert dataset.prepare(np.arange(4)).shape == (4, 2)


def test_finding_14_dates_are_numbers_alike_in_all_formats(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 3, 1), None, datetime.date(2019, 5, 7)]
    texts = pd.DataFrame({"day": [day and day.isoformat() for day in days], "y": [0, 1, 0, 1]})
    dates, stamps = texts.assign(day=days), texts.assign(day=pd.to_datetime(texts["day"]))
    zoned = stamps.assign(day=stamps["day"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    texts.to_csv(tmp_path / "texts.csv", index=False)
    texts.to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    stamps.to_csv(tmp_path / "stamps.csv", index=False)
    for name, frame in {"texts": texts, "dates": dates, "stamps": stamps, "zoned": zoned}.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    expected = from_table(texts, label="y")
    assert expected.columns[0].kind == "date" and expected.columns[0].detail == "2019-05-07 to 2020-03-01, 1 gap"
    features = expected.prepare(np.arange(4))
    assert features.shape == (4, 2)
    for table in [texts, dates, stamps, zoned, *sorted(tmp_path.iterdir())]:
        dataset = from_table(table, label="y")
        assert dataset.columns == expected.columns
        np.testing.assert_array_equal(dataset.prepare(np.arange(4)), features)


def test_times_of_day_and_durations_are_numbers() -> None:
    frame = pd.DataFrame(
        {
            "at": [datetime.time(6, 30), datetime.time(12), None, datetime.time(18, 45)],
            "took": pd.to_timedelta([1, 2, 3, 4], unit="D"),
            "y": [0, 1, 0, 1],
        }
    )
    dataset = from_table(frame, label="y")
    assert [(column.kind, column.detail) for column in dataset.columns[:2]] == [
        ("number", "in hours, 1 gap"),
        ("number", "in days"),
    ]


def test_finding_14_what_each_column_was_read_as_is_told(tmp_path: Path) -> None:
    rows = 60
    frame = pd.DataFrame(
        {
            "age": [*map(str, range(20, 20 + rows - 1)), "?"],
            "spent": [f"${value:,}" for value in range(900, 900 + 7 * rows, 7)],
            "joined": [f"2020-01-{1 + row % 28:02}" for row in range(rows)],
            "sex": ["f", "m"] * (rows // 2),
            "planet": "earth",
            "customerID": [f"c{row}" for row in range(rows)],
            "old": 0,
            "site": ["a", "b", "c"] * (rows // 3),
            "y": np.arange(rows) % 2,
        }
    )
    with pytest.warns(ClustPSIWarning, match="customerID"):
        dataset = from_table(frame, label="y", client="site", drop="old")
    assert describe(dataset.columns) == [
        "label: y (2 classes)",
        "client: site (3 clients)",
        "2 numbers: age (1 gap written '?'), spent (written like '$900')",
        "date: joined (2020-01-01 to 2020-01-28)",
        "category: sex (2 kinds)",
        "constant: planet ('earth')",
        "identifier, omitted: customerID (60 different values in 60 rows)",
        "dropped: old",
    ]
    assert [column.name for column in dataset.columns] == frame.columns.tolist()


def test_wide_tables_are_told_in_a_few_lines() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 500))).assign(y=[0, 1] * 4)
    lines = describe(from_table(frame, label="y").columns)
    assert len(lines) == 2 and lines[1].startswith("500 numbers: 0, 1,") and lines[1].endswith("and 488 more")


def test_column_names_cannot_steer_the_terminal() -> None:
    frame = pd.DataFrame({"a\x1b[31m": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
    assert "\x1b" not in "".join(describe(from_table(frame, label="y").columns))


# ------------------------------------------------------------------------------------------------------------ options


def test_drop_leaves_columns_out(birds: pd.DataFrame) -> None:
    dataset = from_table(birds, label="species", drop=["notes", "sex", "site", "ringed"])
    assert dataset.prepare(np.arange(6)).shape == (6, 2)  # wing, and the mark of its gap
    with pytest.raises(ClustPSIError, match="no column 'note': did you mean 'notes'"):
        from_table(birds, label="species", drop=["note"])


def test_rows_without_a_label_are_omitted_on_request(birds: pd.DataFrame) -> None:
    frame = birds[["wing", "sex", "site", "species"]]
    unlabelled = frame.assign(species=["owl", None, "jay", "jay", " ", "owl"], site=["n", None, "s", "s", None, "n"])
    with pytest.raises(ClustPSIError, match=r"empty in row 2.*--drop-unlabelled"):
        from_table(unlabelled, label="species")
    with pytest.warns(ClustPSIWarning, match="2 of 6 rows have no label and are omitted"):
        dataset = from_table(unlabelled, label="species", client="site", drop_unlabelled=True)
    assert dataset.labels.tolist() == [1, 0, 0, 1] and clients_of(dataset) == ["n", "s", "s", "n"]
    kept = from_table(
        frame.iloc[[0, 2, 3, 5]].assign(species=["owl", "jay", "jay", "owl"]), label="species", client="site"
    )
    np.testing.assert_array_equal(dataset.prepare(np.arange(3)), kept.prepare(np.arange(3)))
    for column, value in (("site", None), ("wing", np.inf)):
        broken = unlabelled.assign(**{column: [*unlabelled[column][:5], value]})
        with pytest.raises(ClustPSIError, match=f"'{column}' is .* in row 6"):
            from_table(broken, label="species", client="site", drop_unlabelled=True)


def test_rare_classes_are_merged_on_request() -> None:
    frame = pd.DataFrame({"x": np.arange(2.0, 12), "y": [3, 3, 3, 20, 20, 20, 1, 5, 5, 7]})
    with pytest.raises(ClustPSIError, match=r"class '1' has only one sample \(row 7\).*--min-class"):
        from_table(frame, label="y")
    with pytest.warns(
        ClustPSIWarning, match=r"3 classes with fewer than 3 samples are merged into 'other' \(1, 5, 7\)"
    ):
        dataset = from_table(frame, label="y", min_class=3)
    assert dataset.class_names == ("3", "20", "other") and dataset.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert from_table(frame[:6], label="y", min_class=3).class_names == ("3", "20")


def test_arrays_take_the_same_options() -> None:
    labels = ["a", "a", None, "b", "c", "a"]
    with pytest.warns(ClustPSIWarning) as told:
        dataset = from_arrays(np.eye(6), labels, list("xxzyyx"), drop_unlabelled=True, min_class=2)
    assert [str(each.message).partition(": ")[2] for each in told] == [
        "1 of 6 rows have no label and are omitted",
        "2 classes with fewer than 2 samples are merged into 'other' (b, c)",
    ]
    assert dataset.class_names == ("a", "other") and dataset.labels.tolist() == [0, 0, 1, 1, 0]
    assert clients_of(dataset) == list("xxyyx") and dataset.prepare(np.arange(5)).shape == (5, 6)


def test_csv_files_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "adult.data"
    path.write_text("39, State-gov, <=50K\n50, Private, >50K\n38, Private, <=50K\n51, ?, >50K\n")
    dataset = load_dataset(path, label=2, no_header=True)
    assert dataset.class_names == ("<=50K", ">50K") and [column.name for column in dataset.columns] == ["0", "1", "2"]
    with pytest.raises(ClustPSIError, match=r"no column '2' .*the file has no header line: give --no-header"):
        load_dataset(path, label="2")


# --------------------------------------------------------------------------------------- names of classes and clients


NAMES = {"code": ["007", "7", "007", "01", "7", "01"], "kind": ["NA", "None", "null", "NA", "None", "null"]}


@pytest.mark.parametrize("file", ["t.csv", "t.parquet", "t.jsonl"])
def test_names_are_the_same_in_all_formats(file: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({**NAMES, "zip": ["00001", "2", "00001", "2", "00001", "2"]})
    path = tmp_path / file
    frame.to_json(path, orient="records", lines=True) if file == "t.jsonl" else write(frame, path)
    with pytest.warns(ClustPSIWarning, match="'NA' is the name of a class; if it stands for a gap, leave these cells"):
        dataset = from_table(path, label="kind", client="code")
    assert dataset.class_names == ("NA", "None", "null") and clients_of(dataset) == NAMES["code"]
    assert [column.kind for column in dataset.columns] == ["client", "label", "category"]
    swapped = from_table(path, label="code", client="kind")
    assert clients_of(swapped) == NAMES["kind"] and set(swapped.class_names) == {"007", "7", "01"}


def test_only_rows_with_an_empty_label_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1.5,None\n2.5,None\n3.5,\n4.5,a\n5.5,a \nNA,None\n")
    with pytest.warns(ClustPSIWarning) as told:
        dataset = from_table(path, label="y", drop_unlabelled=True)
    assert "1 of 6 rows have no label and are omitted" in str(told[0].message)
    assert dataset.class_names == ("None", "a") and dataset.labels.tolist() == [0, 0, 1, 1, 0]
    assert dataset.columns[0].detail == "1 gap"


def test_blanks_make_no_class_client_or_category(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("site,kind,y\nrome ,a ,cat \n rome, a, cat\noslo,b,dog \noslo ,b , dog\n")
    dataset = from_table(path, label="y", client="site")
    assert dataset.class_names == ("cat", "dog") and clients_of(dataset) == ["rome", "rome", "oslo", "oslo"]
    assert dataset.columns[1].detail == "2 kinds"


def test_whole_numbers_beside_gaps_have_no_decimals(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("site,x,y\n3,1.5,0\n3,2.5,10\n,3.5,\n5,4.5,10\n5,5.5,0\n5,6.5,2\n5,6.5,2\n")
    frame = pd.read_csv(path)
    for table in (path, frame):
        with pytest.warns(ClustPSIWarning, match="1 of 7 rows"):
            dataset = from_table(table, label="y", client="site", drop_unlabelled=True)
        assert dataset.class_names == ("0", "2", "10") and clients_of(dataset) == list("335555")
    assert from_arrays(np.eye(4), [0.5, 1.0, 0.5, 1.0]).class_names == ("0.5", "1")


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_gaps_in_lists_are_gaps(gap: object) -> None:
    rows = np.eye(4)
    with pytest.raises(ClustPSIError, match="the labels is empty in row 1"):
        from_arrays(rows, [gap, "a", "a", "b"])  # type: ignore[arg-type]
    with pytest.raises(ClustPSIError, match="the clients is empty in row 2"):
        from_arrays(rows, list("aabb"), ["rome", gap, "rome", "oslo"])  # type: ignore[arg-type]
    with pytest.raises(ClustPSIError, match="the labels is empty in row 2"):
        from_arrays(rows, pd.Series(["a", gap, "a", "b"], index=list("wxyz")))


def test_rows_of_a_file_are_read_for_predictions_as_for_training(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [
        f"{'007' if row % 3 else ' 7'},{('a ', ' a', 'NA', 'b', '')[row % 5]},{row}.500;0,5" for row in range(2, 40)
    ]
    text = "\n".join(["code;kind;number;other;y", *(line.replace(",", ";", 2) for line in lines)])
    path.write_text("\n".join(f"{line};{'uv'[at % 2]}" if at else line for at, line in enumerate(text.split("\n"))))
    dataset = from_table(path, label="y")
    assert [column.kind for column in dataset.columns[:3]] == ["category", "category", "number"]
    fitted = dataset.features.fit(dataset.features.summarize(dataset.rows))
    pieces = [fitted.read(piece) for piece, _ in read_pieces(path, 7, texts={"code", "kind", "y"})]
    as_features = np.concatenate([fitted.transform(piece) for piece in pieces])
    np.testing.assert_array_equal(as_features, dataset.prepare(np.arange(len(lines))))


def test_without_features_it_says_what_was_omitted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"id": NUMBERED, "note": [f"text {row}" for row in NUMBERED], "y": np.arange(40) % 2})
    pd.concat([frame, frame.assign(id=frame["id"] + 40, note="other " + frame["note"])]).to_csv(path, index=False)
    omitted = r"'id' \(identifier: different whole numbers\), 'note' \(identifier: 80 different values in 80 rows\)"
    with pytest.raises(
        ClustPSIError, match=rf"has no feature column besides 'y' \(columns omitted: {omitted}; .*--text"
    ):
        from_table(path, label="y")


# ------------------------------------------------------------------------------------------------------ in all places


def test_finding_37_long_client_names_take_no_more_room_than_they_have() -> None:
    rows = 20_000
    names = [f"site {row % 50}" for row in range(rows - 1)] + ["x" * 50_000]
    frame = pd.DataFrame({"x": np.arange(rows) % 7 + 0.5, "y": np.arange(rows) % 2, "site": names})
    tracemalloc.start()
    try:
        dataset = from_table(frame, label="y", client="site")
        assert dataset.content
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert clients_of(dataset) == names


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5), min_size=1))
def test_clients_are_in_the_order_of_their_names_as_texts(names: list[str]) -> None:
    ids = ClientIds.of(names)
    assert list(ids.names) == np.unique(np.array(names, dtype=object)).tolist()
    assert [ids.names[code] for code in ids.codes] == names


def test_finding_16_compare_says_what_to_do_with_a_data_frame(birds: pd.DataFrame) -> None:
    with pytest.raises(
        ClustPSIError, match=r"not a DataFrame: make a Dataset .* clustpsi\.from_table\(frame, label=...\)"
    ):
        compare(birds)  # type: ignore[arg-type]


@pytest.mark.parametrize("file", ["t.csv", "t.csv.gz", "t.csv.zip", "t.parquet", "t.jsonl"])
def test_finding_16_no_file_is_left_open(tmp_path: Path, file: str) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5, 5.5], "y": [0, 1, 0, 1]})
    if file.endswith("parquet"):
        frame.to_parquet(tmp_path / file)
    elif file.endswith("jsonl"):
        frame.to_json(tmp_path / file, orient="records", lines=True)
    else:
        frame.to_csv(tmp_path / file, index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        from_table(tmp_path / file, label="y")
        with pytest.raises(ClustPSIError):
            from_table(tmp_path / file, label="z")
        gc.collect()
    assert not [warning for warning in caught if warning.category is ResourceWarning]


@pytest.fixture
def churn(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 80, 90).astype(str), "site": rng.choice(list("abc"), 90)})
    frame.loc[7, "age"] = "?"
    frame.assign(Churn=rng.choice(["no", "yes"], 90)).to_csv(tmp_path / "churn.csv", index=False, sep=";")
    return tmp_path / "churn.csv"


MISTAKES = [
    (["--label", "Churnn", "--client", "site"], "has no column 'Churnn': did you mean 'Churn'?"),
    (["--label", "Churn", "--client", "sit"], "has no column 'sit': did you mean 'site'?"),
    (["--label", "Churn", "--client", "Churn"], "must be different columns, and two are 'Churn'"),
    (["--label", "Churn", "--client", ""], "--client is empty: give it a value, or leave it away"),
    (["--label", "Churn", "--client", "site", "--drop", "sitee"], "has no column 'sitee'"),
    (["--label", "Churn", "--client", "site", "--min-class", "1"], "--min-class must be a number at least 2, not 1"),
    (["--label", "Churn", "--client", "site", "--sep", ";;"], "--sep must be one character"),
    (["--label", "Churn", "--client", "site", "--sep", ","], "has no column 'Churn'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_finding_17_run_and_diagnose_say_the_same_about_the_same_mistake(
    arguments: list[str], sentence: str, churn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for command in (["run", "--output", str(tmp_path / "runs"), "--dataset", str(churn)], ["diagnose", str(churn)]):
        assert clustpsi(*command, *arguments) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and said[0].startswith("error: ") and sentence in said[0]
    assert not (tmp_path / "runs").exists()


def test_finding_14_run_prints_what_columns_were_read_as(
    churn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--dataset", str(churn), "--label", "Churn", "--output", str(tmp_path / "runs"), "--json"]
    command += ["--partitioner", "iid", "--num-clients", "3", "--comm-rounds", "1", "--local-epochs", "1"]
    command += ["--agg-method", "fedavg", "--seeds-list", "0,1", "--drop", "site"]
    assert clustpsi(*command) == 0
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[:3] == ["label: Churn (2 classes)", "number: age (1 gap written '?')", "dropped: site"]
    assert shown.err.count("number: age") == 1
    report = json.loads(shown.out)
    assert report["columns"][0] == {"name": "age", "kind": "number", "detail": "1 gap written '?'"}
    assert report["settings"]["drop"] == "site"
