"""``clustpsi data``: the table, getting and checking."""

import gzip
import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clustpsi.cli.data import app
from clustpsi.datasets import DATASETS, download, verify
from clustpsi.errors import ClustPSIError


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def small_fmnist(folder: Path) -> None:
    """Ten training and two test images, in the official layout."""
    folder.mkdir(parents=True)
    for part, rows in (("train", 10), ("t10k", 2)):
        images = struct.pack(">BBBB3I", 0, 0, 8, 3, rows, 28, 28) + bytes(rows * 784)
        labels = struct.pack(">BBBBI", 0, 0, 8, 1, rows) + bytes(range(rows))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(run("--data-dir", folder, "--json").stdout)["datasets"]}


def test_table_tells_present_absent_and_damaged_apart(tmp_path: Path) -> None:
    small_fmnist(tmp_path / "fmnist")
    (tmp_path / "sent140").mkdir()
    (tmp_path / "sent140/tweets.parquet").write_text("no parquet")
    rows = listed(tmp_path)
    assert list(rows) == list(DATASETS)
    assert (rows["fmnist"]["status"], rows["fmnist"]["rows"], rows["fmnist"]["classes"]) == ("yes", 12, 10)
    assert rows["fmnist"]["bytes"] == sum(path.stat().st_size for path in (tmp_path / "fmnist").glob("*.gz"))
    assert rows["cifar10"]["status"] == "no" and rows["cifar10"]["rows"] == 60_000
    assert rows["sent140"]["status"] == "damaged" and rows["digits"]["status"] == "yes"
    shown = run("--data-dir", tmp_path).stdout
    for name, entry in DATASETS.items():
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(name)]
        assert entry.licence in line


@pytest.mark.parametrize("name", ["sent140", "amazon_reviews", "serengeti"])
def test_get_says_what_to_fetch_by_hand_and_where_to_put_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTPSI_DATA", str(tmp_path / "variable"))
    assert str(tmp_path / "variable" / name) in run("get", name).stdout
    result = run("get", name, "--data-dir", tmp_path)
    assert result.exit_code == 0 and str(tmp_path / name) in result.stdout and "http" in result.stdout
    assert result.stdout == run("--data-dir", tmp_path, "get", name).stdout
    assert result.stdout == run("--data-dir", tmp_path / "other", "get", name, "--data-dir", tmp_path).stdout


def test_get_downloads_from_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = tmp_path / "mirror"
    small_fmnist(mirror)
    for name in download.FMNIST_MD5:
        monkeypatch.setitem(download.FMNIST_MD5, name, hashlib.md5((mirror / name).read_bytes()).hexdigest())
    result = run("get", "fmnist", "--data-dir", tmp_path / "data", "--mirror", mirror.as_uri())
    assert result.exit_code == 0 and result.stdout.count("got ") == 4
    assert listed(tmp_path / "data")["fmnist"]["rows"] == 12
    assert "nothing to do" in run("get", "fmnist", "--data-dir", tmp_path / "data").stdout


def test_mistakes_are_one_sentence() -> None:
    for arguments, sentence in (
        (("get", "fmnst"), "unknown dataset 'fmnst': did you mean 'fmnist'"),
        (("get", "fmnist", "--states", "CA"), "--states is for acs_income"),
        (("check", "fmnst"), "unknown dataset 'fmnst'"),
    ):
        error = run(*arguments).exception
        assert isinstance(error, ClustPSIError) and sentence in str(error)


def test_check_reads_the_files_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_fmnist(tmp_path / "fmnist")
    result = run("check", "--data-dir", tmp_path)
    assert isinstance(result.exception, ClustPSIError) and "not the official Fashion-MNIST" in result.stdout

    content = hashlib.sha256(bytes(12 * 784) + bytes([*range(10), 0, 1])).hexdigest()
    monkeypatch.setitem(verify.CONTENT, "fmnist", content)
    result = run("check", "--data-dir", tmp_path)
    assert result.exit_code == 0 and "fmnist: ok, 12 rows, 10 classes, identical" in result.stdout
    assert "cifar10: absent\n" in result.stdout

    path = tmp_path / "fmnist/t10k-labels-idx1-ubyte.gz"
    stamp = path.stat().st_mtime_ns
    damaged = bytearray(path.read_bytes())
    damaged[-6] ^= 1  # in the checksum; size and time stay, so the cache would not notice
    path.write_bytes(damaged)
    os.utime(path, ns=(stamp, stamp))
    result = run("check", "fmnist", "--data-dir", tmp_path)
    assert isinstance(result.exception, ClustPSIError) and f"not usable: {path} is damaged" in result.stdout


def test_check_of_an_absent_set_fails_when_it_is_named(tmp_path: Path) -> None:
    result = run("check", "cifar10", "--data-dir", tmp_path)
    assert isinstance(result.exception, ClustPSIError) and "cifar10" in str(result.exception)
    everything = run("check", "--data-dir", tmp_path)
    assert everything.exit_code == 0 and everything.stdout.count(": absent\n") == len(DATASETS) - 1
