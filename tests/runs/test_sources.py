"""A result belongs to its data, whichever way the data came."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustpsi import compare, from_arrays, from_table
from clustpsi.datasets import load_dataset
from clustpsi.datasets.base import ClientIds, Dataset, fingerprint
from clustpsi.errors import ClustPSIError
from clustpsi.features import ArrayFeatures, ArrayRows
from clustpsi.runs import infeasible
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import Store
from helpers import clustpsi

QUICK = {"comm_rounds": 1, "local_epochs": 1, "seeds": [0], "num_clients": 3, "partitioner": "iid"}


def birds(path: Path, swapped: bool = False) -> Path:
    """A table in which the wing tells the species, or the other species."""
    rng = np.random.default_rng(0)
    owl = rng.random(90) < 0.5
    frame = pd.DataFrame({"wing": owl * 6 - 3 + rng.normal(size=90), "tail": rng.normal(size=90)})
    frame["species"] = np.where(owl ^ swapped, "owl", "jay")  # names of one length: all such files have one size
    frame.to_csv(path, index=False)
    return path


def incomes(folder: Path, shift: float) -> None:
    """A named data set in a folder; its ages depend on ``shift``."""
    rng = np.random.default_rng(1)
    place = folder / "acs_income"
    place.mkdir(parents=True, exist_ok=True)
    columns = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
    frame = pd.DataFrame({name: rng.integers(1, 9, 60).astype(float) for name in columns})
    frame["AGEP"] += shift * (np.arange(60) % 2)
    frame["PINCP"], frame["STATE"] = np.arange(60) % 2, "CA"
    frame.to_parquet(place / "acs_income_2018.parquet")


def test_finding_1_another_data_set_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    first = from_table(pd.read_csv(birds(tmp_path / "a.csv")), label="species")
    second = from_table(pd.read_csv(birds(tmp_path / "b.csv", swapped=True)), label="species")
    other_label = from_arrays(np.arange(90.0)[:, None], np.arange(90) % 2, name="table")
    stored = [compare(each, ["fedavg"], output=tmp_path / "runs", **QUICK) for each in (first, second, other_label)]
    alone = [compare(each, ["fedavg"], **QUICK) for each in (first, second, other_label)]
    for kept, fresh in zip(stored, alone, strict=True):
        assert kept["last_loss"].tolist() == fresh["last_loss"].tolist()
    assert len({table["content"].item() for table in stored}) == 3


def test_finding_20_an_edited_file_is_another_data_set_in_the_same_process(tmp_path: Path) -> None:
    path = birds(tmp_path / "n.csv")
    file = path.stat()
    settings = QUICK | {"label": "species", "output": tmp_path / "runs"}
    before = compare(str(path), ["fedavg"], **settings)["last_loss"].item()
    birds(path, swapped=True)
    os.utime(path, ns=(file.st_atime_ns, file.st_mtime_ns))
    assert path.stat().st_size == file.st_size  # so that only the content tells
    after = compare(str(path), ["fedavg"], **settings)["last_loss"].item()
    assert after == compare(str(path), ["fedavg"], **settings | {"output": None})["last_loss"].item() != before


def test_finding_17_every_spelling_of_a_path_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    birds(tmp_path / "birds.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link.csv").symlink_to(tmp_path / "birds.csv")
    spellings = ("birds.csv", "./birds.csv", "~/birds.csv", str(tmp_path / "birds.csv"), "link.csv")
    configs = [Config(dataset=spelling, label="species").checked() for spelling in spellings]
    names = {identified(config, Sources().load(config)).folder_name for config in configs}
    assert len(names) == 1


def test_finding_21_an_edited_file_in_the_home_folder_is_not_finished_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = ["run", "--dataset=~/birds.csv", "--label", "species", "--partitioner", "iid", "--num-clients", "3"]
    arguments += ["--comm-rounds", "1", "--seeds-list", "0", "--agg-method", "fedavg"]
    arguments += ["--output", str(tmp_path / "runs")]
    for swapped in (False, True):
        birds(tmp_path / "birds.csv", swapped)
        assert clustpsi(*arguments) == 0
        assert "finished before" not in "".join(capsys.readouterr())
    assert len(list(Store(tmp_path / "runs"))) == 2
    assert clustpsi(*arguments) == 0 and "finished before" in "".join(capsys.readouterr())


def test_finding_22_a_named_data_set_in_another_folder_is_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, shift in (("a", 0.0), ("b", 9.0)):
        incomes(tmp_path / folder, shift)
    arguments = ["run", "--dataset", "acs_income", "--partitioner", "iid", "--num-clients", "3", "--comm-rounds", "1"]
    arguments += ["--seeds-list", "0", "--agg-method", "fedavg", "--output", str(tmp_path / "runs"), "--data-dir"]
    for folder in ("a", "b"):
        assert clustpsi(*arguments, str(tmp_path / folder)) == 0
    capsys.readouterr()
    folders = list(Store(tmp_path / "runs"))
    assert len(folders) == 2
    assert folders[0].summary()["last"]["loss"] != folders[1].summary()["last"]["loss"]


def test_finding_23_infeasible_is_remembered_of_this_content_only(tmp_path: Path) -> None:
    config = replace(Config(dataset="birds.csv", label="species", num_clients=500), content="one").checked()
    infeasible.record(Store(tmp_path), config, "no such partition")
    known = infeasible.recorded(Store(tmp_path))
    assert infeasible.partition_name(config) in known
    assert infeasible.partition_name(replace(config, content="two")) not in known


def test_a_run_that_was_identified_refuses_other_data(tmp_path: Path) -> None:
    config = replace(Config(num_clients=4, comm_rounds=1).checked(), content="0123456789abcdef")
    with pytest.raises(ClustPSIError, match="the data of digits is not what it was when this run was set up"):
        run(config, Store(tmp_path))
    assert not list(tmp_path.iterdir())


def test_unchanged_data_is_loaded_once(tmp_path: Path) -> None:
    path = birds(tmp_path / "birds.csv")
    sources, config = Sources(), Config(dataset=str(path), label="species").checked()
    first = sources.load(config)
    assert sources.load(config) is first
    birds(path, swapped=True)
    assert sources.load(config) is not first


def test_a_named_data_set_is_loaded_again_once_its_files_have_changed(tmp_path: Path) -> None:
    incomes(tmp_path, 0.0)
    sources, config = Sources(tmp_path), Config(dataset="acs_income").checked()
    first = sources.load(config)
    assert sources.load(config) is first
    incomes(tmp_path, 9.0)
    assert sources.load(config).content != first.content


def test_runs_are_identified_by_how_their_file_is_read_and_by_their_word_vectors(tmp_path: Path) -> None:
    path = str(birds(tmp_path / "birds.csv"))
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    config = Config(dataset=path, label="species").checked()
    others = [
        replace(config, drop="tail"),
        *(replace(config, word_vectors=str(tmp_path / f"{n}.txt")) for n in ("one", "two")),
    ]
    known, unknown = Sources().identify([config, *others, config])
    assert not unknown
    contents = [each.content for each in known]
    assert contents[0] == contents[-1] and len(set(contents)) == 4


def test_data_that_cannot_be_had_is_named_with_its_runs(tmp_path: Path) -> None:
    here, missing = Config(), Config(dataset="fmnist")
    known, unknown = Sources(tmp_path).identify([here, missing])
    assert [config.dataset for config in known] == ["digits"] and known[0].content == load_dataset("digits").content
    assert list(unknown) == [missing] and "clustpsi data get fmnist" in unknown[missing]


@given(st.sampled_from(["labels", "class_names", "client_ids", "official_test", "source"]))
def test_any_change_of_the_data_changes_its_content(what: str) -> None:
    def dataset(changed: str | None = None) -> Dataset:
        pick = lambda name, plain, other: other if name == changed else plain  # noqa: E731
        features = pick("source", np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[::-1])
        return Dataset(
            "made",
            pick("labels", np.array([0, 1, 0, 1], np.int32), np.array([0, 1, 1, 0], np.int32)),
            pick("class_names", ("a", "b"), ("ab", "")),
            ArrayRows(features),
            ArrayFeatures((4,)),
            model="logistic",
            client_ids=pick("client_ids", ClientIds.of("xyxy"), ClientIds.of("xyyx")),
            official_test=pick("official_test", None, np.array([3])),
        )

    assert dataset().content == dataset().content != dataset(what).content


def test_content_does_not_depend_on_memory_layout_or_string_width() -> None:
    table = np.arange(12.0).reshape(3, 4)
    assert fingerprint([table]) == fingerprint([np.asfortranarray(table)]) == fingerprint([table[:, ::-1][:, ::-1]])
    assert fingerprint([np.array(["a", "bc"])]) == fingerprint([np.array(["a", "bc"], dtype=object)])
    assert fingerprint([np.array(["ab", "c"])]) != fingerprint([np.array(["a", "bc"])])
    assert fingerprint([table]) != fingerprint([table.astype(np.float32)]) != fingerprint([table.reshape(4, 3)])
