"""The six loaders on small files in the exact official layouts, and on damaged ones."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi.datasets import DATASETS, DataMissing, load_dataset
from clustpsi.errors import ClustPSIError
from helpers import clients_of

TWEETS = "training.1600000.processed.noemoticon.csv"


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_fmnist(root: Path, suffix: str = ".gz") -> tuple[np.ndarray, np.ndarray]:
    folder = root / "fmnist"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (14, 28, 28)), np.arange(14) % 10
    pack = gzip.compress if suffix else bytes
    for part, rows in (("train", slice(0, 10)), ("t10k", slice(10, 14))):
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images[rows])))
        (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels[rows])))
    return images, labels


def write_cifar(root: Path, kind: str) -> tuple[np.ndarray, np.ndarray]:
    folder = root / "cifar10" / f"cifar-10-batches-{kind}"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    pixels, labels = rng.integers(0, 256, (12, 3072), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 10
    for batch, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        rows = slice(2 * batch, 2 * batch + 2)
        if kind == "bin":
            (folder / f"{name}.bin").write_bytes(np.column_stack([labels[rows], pixels[rows]]).tobytes())
        else:
            content = {b"data": pixels[rows], b"labels": labels[rows].tolist(), b"batch_label": b"x"}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return pixels, labels


def write_pums(root: Path, name: str, state: int, **columns: list[object]) -> Path:
    """A person file as the Census Bureau publishes it: more columns than needed, blanks for missing values."""
    folder = root / "acs_income" / "2018" / "1-Year"
    folder.mkdir(parents=True, exist_ok=True)
    defaults = {"RT": "P", "SERIALNO": "2018GQ01", "ST": f"{state:02d}", "PWGTP": 20, "AGEP": 40, "COW": 1, "SCHL": 21}
    defaults |= {"MAR": 1, "OCCP": "0410", "POBP": "006", "RELP": "00", "WKHP": 40, "SEX": 1, "RAC1P": 1}
    rows = max(map(len, columns.values()))
    frame = pd.DataFrame({**{key: [value] * rows for key, value in defaults.items()}, **columns})
    frame.to_csv(folder / name, index=False)
    return folder / name


def write_tweets(root: Path, rows: list[tuple[int, str]]) -> Path:
    folder = root / "sent140"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'"{target}","{i}","Mon Apr 06","NO_QUERY","bob","{text}"\n' for i, (target, text) in enumerate(rows)]
    (folder / TWEETS).write_bytes("".join(lines).encode("latin-1"))
    return folder / TWEETS


def write_reviews(root: Path, name: str, rows: list[tuple[str, str, str]]) -> Path:
    folder = root / "amazon_reviews"
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=["Title", "Text", "Cat1"])
    frame.insert(0, "productId", "B1")
    for column in ("userId", "Helpfulness", "Score", "Time", "Cat2", "Cat3"):
        frame[column] = "0"
    frame.to_csv(folder / name, index=False)
    return folder / name


def write_consensus(root: Path, **columns: object) -> Path:
    folder = root / "serengeti"
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(folder / "consensus_data.csv", index=False)
    return folder / "consensus_data.csv"


def everything(dataset: object) -> np.ndarray:
    return dataset.prepare(np.arange(len(dataset.labels)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_fmnist_keeps_pixels_and_puts_the_official_test_part_last(tmp_path: Path, suffix: str) -> None:
    images, labels = write_fmnist(tmp_path, suffix)
    dataset = load_dataset("fmnist", data_dir=tmp_path)
    features = everything(dataset)
    assert features.dtype == np.uint8 and features.shape == (14, 28, 28, 1)
    np.testing.assert_array_equal(features[..., 0], images)
    np.testing.assert_array_equal(dataset.labels, labels)
    np.testing.assert_array_equal(dataset.official_test, np.arange(10, 14))
    assert dataset.num_classes == 10 and dataset.model == "fmnist_cnn"


@pytest.mark.parametrize("kind", ["bin", "py"])
def test_cifar_layouts_give_rgb_images_in_height_width_order(tmp_path: Path, kind: str) -> None:
    pixels, labels = write_cifar(tmp_path, kind)
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    features = everything(dataset)
    assert features.dtype == np.uint8 and features.shape == (12, 32, 32, 3)
    assert features[3, 5, 7, 2] == pixels[3, 2 * 1024 + 5 * 32 + 7]  # blue plane, row 5, column 7
    np.testing.assert_array_equal(dataset.labels, labels)
    np.testing.assert_array_equal(dataset.official_test, [10, 11])


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path, "py")
    marker = tmp_path / "executed"

    class Attack:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (marker,)

    (tmp_path / "cifar10/cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(ClustPSIError, match="data_batch_3 cannot be read as a CIFAR-10 batch"):
        load_dataset("cifar10", data_dir=tmp_path)
    assert not marker.exists()


def test_acs_reads_person_files_with_folktables_filter_and_label(tmp_path: Path) -> None:
    write_pums(
        tmp_path, "psam_p06.csv", 6, AGEP=[40, 16, 50, 50, 50], PINCP=[60000, 60000, 100, "", 50000],
        WKHP=[40, 40, 40, 40, 38], COW=[1, 1, 1, 1, ""],
    )  # fmt: skip
    write_pums(tmp_path, "psam_p72.csv", 72, PINCP=[50001, 50001, 101], WKHP=[40, "", 40], PWGTP=[1, 1, 0])
    dataset = load_dataset("acs_income", data_dir=tmp_path)
    assert dataset.labels.tolist() == [1, 0, 1]
    assert clients_of(dataset) == ["CA", "CA", "PR"]
    features = everything(dataset)
    assert features.dtype == np.float32 and features.shape == (3, 10)
    np.testing.assert_allclose(features[:, 0], [0, 2, 0])  # AGEP 40, 50, 40: median 40, interquartile range 5
    np.testing.assert_allclose(features[:, 1], [0, -2, 0])  # COW 1, missing (-1), 1


def test_acs_leaves_other_years_alone(tmp_path: Path) -> None:
    path = write_pums(tmp_path, "psam_p06.csv", 6, PINCP=[60000, 200])
    older = tmp_path / "acs_income/2014/1-Year"
    older.mkdir(parents=True)
    (older / path.name).write_bytes(path.read_bytes())
    assert len(load_dataset("acs_income", data_dir=tmp_path).labels) == 2


def test_acs_scale_is_fitted_on_training_rows_alone(tmp_path: Path) -> None:
    write_pums(tmp_path, "psam_p06.csv", 6, AGEP=[20, 30, 40, 90], PINCP=[60000, 200, 60000, 200])
    dataset = load_dataset("acs_income", data_dir=tmp_path)
    np.testing.assert_allclose(dataset.prepare(np.array([0, 1, 2]))[:, 0], [-1, 0, 1, 6])
    np.testing.assert_allclose(dataset.prepare(np.array([1, 2, 3]))[:, 0], [-20 / 30, -10 / 30, 0, 50 / 30], rtol=1e-6)


def test_acs_reads_the_filtered_parquet_copy(tmp_path: Path) -> None:
    from clustpsi.datasets.acs_income import FEATURES

    (tmp_path / "acs_income").mkdir()
    frame = pd.DataFrame({name: [1, 2, 3] for name in FEATURES} | {"PINCP": [0, 1, 1], "STATE": ["AK", "AL", "TX"]})
    frame.to_parquet(tmp_path / "acs_income/acs_income_2018.parquet")
    dataset = load_dataset("acs_income", data_dir=tmp_path)
    assert dataset.labels.tolist() == [0, 1, 1]
    assert clients_of(dataset) == ["AK", "AL", "TX"]
    frame.assign(PINCP=[0, 1, 52000]).to_parquet(tmp_path / "acs_income/acs_income_2018.parquet")
    with pytest.raises(ClustPSIError, match="PINCP, row 3: 52000 is neither 0 nor 1"):
        load_dataset("acs_income", data_dir=tmp_path)


def test_sent140_words_of_training_rows_only_and_most_frequent_first(tmp_path: Path) -> None:
    write_tweets(
        tmp_path, [(0, "@Bob_1 sad sad day http://x.co/a?b=1"), (4, "Caf\xe9 DAY, sad!"), (4, "unseen word"), (0, "")]
    )
    dataset = load_dataset("sent140", data_dir=tmp_path)
    assert dataset.labels.tolist() == [0, 1, 1, 0] and dataset.class_names == ("negative", "positive")
    tokens = dataset.prepare(np.array([0, 1]))
    assert tokens.dtype == np.int32 and tokens.shape == (4, 30)
    # frequencies in the training rows: sad 3, day 2, then user, url, café once each, by first occurrence
    assert tokens[0, :6].tolist() == [4, 2, 2, 3, 5, 0]
    assert tokens[1, :4].tolist() == [6, 3, 2, 0]
    assert tokens[2, :3].tolist() == [1, 1, 0]
    assert not tokens[3].any()


def test_sent140_saved_again_as_utf8_reads_the_same(tmp_path: Path) -> None:
    path = write_tweets(tmp_path, [(0, "caf\xe9 na\xefve"), (4, "caf")])
    latin = everything(load_dataset("sent140", data_dir=tmp_path))
    path.write_bytes(path.read_bytes().decode("latin-1").encode())
    np.testing.assert_array_equal(everything(load_dataset("sent140", data_dir=tmp_path)), latin)
    assert (latin > 0).sum(axis=1).tolist() == [2, 1]


def test_sent140_copy_and_official_file_give_the_same_tokens(tmp_path: Path) -> None:
    write_tweets(tmp_path, [(0, "@Bob hi http://x.co"), (4, "fine isn't it")])
    official = load_dataset("sent140", data_dir=tmp_path)
    (tmp_path / "copy/sent140").mkdir(parents=True)
    copy = pd.DataFrame({"label": [0, 4], "text": ["USER hi URL", "fine isn't it"]}).astype({"label": "int8"})
    copy.to_parquet(tmp_path / "copy/sent140/tweets.parquet")
    np.testing.assert_array_equal(everything(official), everything(load_dataset("sent140", data_dir=tmp_path / "copy")))


def test_amazon_joins_both_files_title_before_text(tmp_path: Path) -> None:
    write_reviews(
        tmp_path, "train_40k.csv", [("NA", "good toy", "toys games"), ("Ball", 'a "good"\nball', "toys games")]
    )
    write_reviews(tmp_path, "val_10k.csv", [("Soap", "clean", "beauty")])
    dataset = load_dataset("amazon_reviews", data_dir=tmp_path)
    assert dataset.class_names == ("beauty", "toys games") and dataset.labels.tolist() == [1, 1, 0]
    tokens = everything(dataset)
    assert tokens.shape == (3, 100) and (tokens[0, :3] > 1).all() and tokens[0, 3] == 0  # "NA" is a word here
    assert tokens[1, 0] == tokens[1, 3] and tokens[1, 2] == tokens[0, 1]


def test_serengeti_takes_the_13_most_frequent_species_and_known_columns(tmp_path: Path) -> None:
    species = [f"s{i:02d}" for i in range(15) for _ in range(2 + (i < 13))]
    rows = len(species)
    write_consensus(
        tmp_path, CaptureEventID=range(rows), Species=species, Count=["11-50", "51+", "3"] + ["1"] * (rows - 3),
        Standing=np.linspace(0, 1, rows), SiteID=["B04", "C05"] * (rows // 2) + ["B04"] * (rows % 2),
    )  # fmt: skip
    dataset = load_dataset("serengeti", data_dir=tmp_path)
    assert dataset.class_names == tuple(f"s{i:02d}" for i in range(13)) and len(dataset.labels) == 39
    features = everything(dataset)
    assert features.shape == (39, 2 + 3)  # Count, Standing, two sites and the place for unseen ones
    counts = np.array([11, 51, 3] + [1] * 36)
    np.testing.assert_allclose(features[:, 0], (counts - counts.mean()) / counts.std(), rtol=1e-5)
    assert clients_of(dataset)[:2] == ["B04", "C05"]


def test_serengeti_copy_leaves_leaking_columns_out(tmp_path: Path) -> None:
    (tmp_path / "serengeti").mkdir()
    rows = {"Season": [1, 1, 2, 2], "Site": list("ABAB"), "Roll": ["R1"] * 4, "label": ["zebra", "blank"] * 2}
    path = tmp_path / "serengeti/capture_events.csv.gz"
    pd.DataFrame({**rows, "Decision Type": ["c", None] * 2, "Total Animals Present": [1, None] * 2}).to_csv(path)
    with_leaks = everything(load_dataset("serengeti", data_dir=tmp_path))
    pd.DataFrame(rows).to_csv(path, index=False)
    np.testing.assert_array_equal(with_leaks, everything(load_dataset("serengeti", data_dir=tmp_path)))
    unseen = load_dataset("serengeti", data_dir=tmp_path).prepare(np.array([0, 1]))
    assert unseen[2, :2].tolist() == [0, 1]  # season 2 is in no training row


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    dataset = load_dataset("digits")
    np.testing.assert_array_equal(everything(dataset), (pixels / 16).astype(np.float32))
    np.testing.assert_array_equal(dataset.labels, labels)


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_absent_data_name_the_folder_and_the_command(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataMissing, match=f"{tmp_path / name} has no .*clustpsi data get {name}"):
        load_dataset(name, data_dir=tmp_path)


def test_unknown_names_and_absent_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="unknown dataset 'fminst': did you mean 'fmnist'"):
        load_dataset("fminst")
    with pytest.raises(DataMissing, match=r"birds\.csv does not exist"):
        load_dataset(tmp_path / "birds.csv", label="species")
    with pytest.raises(ClustPSIError, match="for a file of your own"):
        load_dataset("digits", label="species")


def test_data_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fmnist(tmp_path)
    monkeypatch.setenv("CLUSTPSI_DATA", str(tmp_path))
    assert len(load_dataset("fmnist").labels) == 14


def damaged_gzip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def foreign(path: Path) -> None:
    path.write_bytes(b"<html>not found</html>" * 10)


@pytest.mark.parametrize("damage", [damaged_gzip, truncated, foreign])
def test_damaged_fmnist_is_named(tmp_path: Path, damage: object) -> None:
    write_fmnist(tmp_path)
    path = tmp_path / "fmnist/train-images-idx3-ubyte.gz"
    damage(path)  # type: ignore[operator]
    with pytest.raises(ClustPSIError, match=f"{path} is damaged or truncated"):
        load_dataset("fmnist", data_dir=tmp_path)


def test_plain_idx_files_are_checked(tmp_path: Path) -> None:
    write_fmnist(tmp_path, "")
    path = tmp_path / "fmnist/train-images-idx3-ubyte"
    truncated(path)
    with pytest.raises(ClustPSIError, match="announces 10 x 28 x 28 bytes but holds 7820"):
        load_dataset("fmnist", data_dir=tmp_path)
    foreign(path)
    with pytest.raises(ClustPSIError, match=f"{path} is not an IDX file"):
        load_dataset("fmnist", data_dir=tmp_path)
    path.write_bytes(idx(np.zeros((3, 28, 28))))
    with pytest.raises(ClustPSIError, match=r"holds 3 images but .* 10 labels"):
        load_dataset("fmnist", data_dir=tmp_path)


@pytest.mark.parametrize("damage", [truncated, foreign])
def test_damaged_cifar_is_named(tmp_path: Path, damage: object) -> None:
    write_cifar(tmp_path, "bin")
    path = tmp_path / "cifar10/cifar-10-batches-bin/data_batch_2.bin"
    damage(path)  # type: ignore[operator]
    with pytest.raises(ClustPSIError, match=f"{path} has .* bytes, which is no multiple of 3073"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    path = write_pums(tmp_path, "psam_p06.csv", 6, PINCP=[60000, 200])
    path.write_text(path.read_text().replace("PINCP", "INCOME"))
    with pytest.raises(ClustPSIError, match=f"{path} has no column 'PINCP'"):
        load_dataset("acs_income", data_dir=tmp_path)
    path.write_text(path.read_text().replace("INCOME", "PINCP").replace("60000", "lots"))
    with pytest.raises(ClustPSIError, match=f"{path} cannot be read as CSV: .*lots"):
        load_dataset("acs_income", data_dir=tmp_path)

    path = write_tweets(tmp_path, [(0, "one"), (2, "two")])
    with pytest.raises(ClustPSIError, match=f"{path}, row 2: label 2 is neither 0 nor 4"):
        load_dataset("sent140", data_dir=tmp_path)
    path.write_bytes(write_tweets(tmp_path, [(0, "one"), (4, "two")]).read_bytes()[:-4])
    with pytest.raises(ClustPSIError, match=f"{path} ends in the middle of a tweet"):
        load_dataset("sent140", data_dir=tmp_path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ClustPSIError, match=f"{path} cannot be read as Sentiment140 tweets"):
        load_dataset("sent140", data_dir=tmp_path)

    path = write_reviews(tmp_path, "val_10k.csv", [("t", "x", "a"), ("t", "x", "")])
    with pytest.raises(ClustPSIError, match=f"{path}, column Cat1, row 2: the category is missing"):
        load_dataset("amazon_reviews", data_dir=tmp_path)
    path.write_bytes("Title,Text,Cat1\ncaf\xe9,x,a\n".encode("latin-1"))
    with pytest.raises(ClustPSIError, match=f"{path} is not UTF-8 text"):
        load_dataset("amazon_reviews", data_dir=tmp_path)

    path = write_consensus(tmp_path, Species=["a", "b"], Weather=[1, 2])
    with pytest.raises(ClustPSIError, match=f"{path} has none of the known feature columns"):
        load_dataset("serengeti", data_dir=tmp_path)
    path = write_consensus(tmp_path, Species=["a", "b", "a"], Babies=[0.5, 0.1, "many"])
    with pytest.raises(ClustPSIError, match="column Babies, row 3: 'many' is not a finite number"):
        load_dataset("serengeti", data_dir=tmp_path)
    path = write_consensus(tmp_path, Species=["a", "a"], Babies=[0, 1])
    with pytest.raises(ClustPSIError, match="column Species: 1 classes"):
        load_dataset("serengeti", data_dir=tmp_path)
