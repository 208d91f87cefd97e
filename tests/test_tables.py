"""The user's own data: what becomes a feature, which model is chosen, and what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi.datasets import from_arrays, from_table, load_dataset
from clustpsi.errors import ClustPSIError, ClustPSIWarning


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
    assert dataset.client_ids is not None and dataset.client_ids.tolist() == birds["site"].tolist()
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


def test_frames_may_have_numbers_as_column_names() -> None:
    dataset = from_table(pd.DataFrame({0: [1.0, 2.0, 3.0, 4.0], 1: list("abab")}), label="1")
    assert dataset.class_names == ("a", "b") and dataset.prepare(np.arange(4)).shape == (4, 1)


def test_rare_categories_are_pooled() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.integers(0, 200, 1000).astype(str), "y": np.arange(1000) % 2})
    features = from_table(frame, label="y").prepare(np.arange(1000))
    assert features.shape == (1000, 51) and (features.sum(axis=1) == 1).all()
    kept = features[:, :50].sum(axis=0)
    assert kept.min() >= frame["code"].value_counts().iloc[49]


def test_identifiers_are_left_out_with_a_warning(birds: pd.DataFrame) -> None:
    frame = pd.DataFrame({"key": [f"k{i}" for i in range(200)], "x": np.arange(200.0), "y": np.arange(200) % 2})
    with pytest.warns(ClustPSIWarning, match="column 'key' is left out: 200 different values in 200 rows"):
        dataset = from_table(frame, label="y")
    assert dataset.prepare(np.arange(200)).shape == (200, 1)


@pytest.mark.parametrize(("rows", "model"), [(1_999, "logistic"), (2_000, "mlp")])
def test_model_by_the_number_of_rows(rows: int, model: str) -> None:
    dataset = from_arrays(np.zeros((rows, 3)), np.arange(rows) % 2)
    assert dataset.model == model and "3 numeric" in dataset.model_reason


def test_text_columns_replace_the_others(birds: pd.DataFrame) -> None:
    dataset = from_table(birds, label="species", text=["notes", "sex"])
    tokens = dataset.prepare(np.arange(6))
    assert dataset.model == "embedding_mlp" and "3 other columns left out" in dataset.model_reason
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
    assert dataset.client_ids is not None and dataset.client_ids.tolist() == ["1", "1", "2", "2"]
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
    expect("needs the name of its label column", path, label=None)
    expect("must be different columns", path, client="species")
    write(birds.assign(species="owl"), path)
    expect("'species' has 1 different values: a label needs at least two", path)
    write(birds.assign(species=["owl"] * 4 + ["jay", "owl"]), path)
    expect(r"class 'jay' has only one sample \(row 5\)", path)
    write(birds.assign(species=["owl", "jay", None, "owl", "jay", "jay"]), path)
    expect("'species' is empty in row 3", path)
    write(birds.assign(site=["a", None, "b", "b", "b", "b"]), path)
    expect("'site' is empty in row 2", path, client="site")
    write(pd.DataFrame({"x": 1.0, "species": np.arange(1_000_000)}), path)
    expect("'species' has 1,000,000 different values", path)


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
    path = write(birds.assign(seen=pd.Timestamp("2020-01-01")), tmp_path / "birds.parquet")
    expect("column 'seen' holds times", path)


def test_damaged_files_are_named(tmp_path: Path, birds: pd.DataFrame) -> None:
    path = tmp_path / "birds.csv"
    path.write_bytes("wing,species\n1,caf\xe9\n".encode("latin-1"))
    expect("is not UTF-8 text", path)
    path.write_bytes(b"")
    expect("is empty", path)
    path.write_text('wing,species\n1,"owl\n2,jay\n')
    expect("cannot be read as CSV", path)
    expect("does not exist", tmp_path / "absent.csv")

    path = tmp_path / "birds.csv.gz"
    content = gzip.compress(birds.to_csv(index=False).encode() * 500)
    path.write_bytes(content[: len(content) // 2])
    expect("damaged or truncated", path)
    path.write_text("wing,species\n1,owl\n")
    expect("damaged or truncated", path)

    path = tmp_path / "birds.parquet"
    path.write_text("not parquet")
    expect("cannot be read as Parquet", path)
    write(birds, path)
    path.write_bytes(path.read_bytes()[:-30])
    expect("cannot be read as Parquet", path)

    path = tmp_path / "birds.npz"
    path.write_text("not a zip")
    expect("cannot be read as NPZ", path)
    np.savez(path, a=np.zeros(2), b=np.zeros(2), species=np.zeros(2))
    expect("needs one array named 'features'", path)
    np.savez(path, features=np.array([{}, {}], dtype=object), species=np.zeros(2))
    expect("cannot be read as NPZ", path)

    path = tmp_path / "birds.xlsx"
    path.write_text("x")
    expect("of no known kind", path)


def test_bad_arrays_are_named() -> None:
    with pytest.raises(ClustPSIError, match="3 rows of features but 4 labels"):
        from_arrays(np.zeros((3, 2)), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="4 labels but 1 client names"):
        from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a"])
    with pytest.raises(ClustPSIError, match="type float64 with 1 channels: uint8"):
        from_arrays(np.zeros((4, 5, 5)), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="feature 1 is infinite in row 2"):
        from_arrays(np.array([[0, 1], [0, np.inf]] * 2), [0, 1, 0, 1])
    with pytest.raises(ClustPSIError, match="one label a row"):
        from_arrays(np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ClustPSIError, match="features of shape"):
        from_arrays(np.zeros(4), [0, 1, 0, 1])
