"""The cache of parsed arrays: used when fresh, rebuilt when stale or damaged, never in the way."""

import os
from pathlib import Path

import numpy as np
import pytest

from clustpsi.datasets import cache
from clustpsi.datasets.cache import cached, discard


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user-cache"
    monkeypatch.setattr(cache.platformdirs, "user_cache_path", lambda name: folder)
    return folder


class Parser:
    """Counts how often it is called."""

    def __init__(self, value: int = 1) -> None:
        self.calls = 0
        self.value = value

    def __call__(self) -> cache.Arrays:
        self.calls += 1
        return {"numbers": np.full((3, 2), self.value), "names": np.array(["a", "bc"])}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "source.csv"
    path.parent.mkdir()
    path.write_text("x")
    return path


def test_second_load_comes_from_the_cache(source: Path) -> None:
    parser = Parser()
    first = cached(source.parent, [source], 1, parser)
    second = cached(source.parent, [source], 1, parser)
    assert parser.calls == 1
    np.testing.assert_array_equal(first["numbers"], second["numbers"])
    assert second["names"].tolist() == ["a", "bc"] and isinstance(second["numbers"], np.memmap)


def test_changed_sources_and_versions_are_parsed_again_and_leave_nothing_behind(source: Path) -> None:
    parser = Parser()
    cached(source.parent, [source], 1, parser)
    cached(source.parent, [source], 2, parser)
    os.utime(source, ns=(1, 1))
    cached(source.parent, [source], 2, parser)
    source.write_text("xy")
    cached(source.parent, [source], 2, parser)
    assert parser.calls == 4
    assert len(list((source.parent / ".clustpsi").iterdir())) == 1


MANIFESTS = ["{", "{}", "[]", "null", "5", '{"numbers": 1}', '{"numbers": "x", "names": []}', "\0"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", *MANIFESTS])
def test_finding_36_damaged_entries_are_rebuilt(source: Path, damage: str) -> None:
    parser = Parser()
    cached(source.parent, [source], 1, parser)
    path = next((source.parent / ".clustpsi").rglob("numbers.npy"))
    content = path.read_bytes()
    if damage == "flip":
        path.write_bytes(content[:-3] + b"\x07" + content[-2:])
    elif damage == "truncate":
        path.write_bytes(content[:-8])
    elif damage == "delete":
        path.unlink()
    else:
        path.with_name("manifest.json").write_text(damage)
    assert (cached(source.parent, [source], 1, parser)["numbers"] == 1).all()
    cached(source.parent, [source], 1, parser)
    assert parser.calls == 2


def test_a_folder_that_cannot_be_written_uses_the_users_cache(source: Path, user_cache: Path) -> None:
    (source.parent / ".clustpsi").write_text("in the way")  # works for every user, unlike permissions
    parser = Parser()
    for _ in range(2):
        cached(source.parent, [source], 1, parser)
    assert parser.calls == 1 and list(user_cache.rglob("numbers.npy"))


def test_without_any_place_to_write_the_arrays_still_come(source: Path, user_cache: Path) -> None:
    (source.parent / ".clustpsi").write_text("in the way")
    user_cache.write_text("in the way")
    assert (cached(source.parent, [source], 1, Parser(5))["numbers"] == 5).all()


def test_an_error_while_parsing_leaves_no_entry(source: Path) -> None:
    def broken() -> cache.Arrays:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached(source.parent, [source], 1, broken)
    assert not (source.parent / ".clustpsi").exists()


def test_discard_forgets(source: Path) -> None:
    parser = Parser()
    cached(source.parent, [source], 1, parser)
    discard(source.parent)
    cached(source.parent, [source], 1, parser)
    assert parser.calls == 2
