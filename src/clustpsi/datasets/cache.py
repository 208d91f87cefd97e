"""Parsed arrays kept next to the data, so that only the first load parses.

A cache entry is a folder ``.clustpsi/<fingerprint>`` of .npy files and a manifest with their checksums. The fingerprint
covers the names, sizes and times of the source files and the parser's version: when any changes, the entry is stale
and is built again, as it is when a checksum does not match. An entry appears by one rename, so readers never see half
of one. Where the data folder cannot be written, the entry goes to the user's cache folder.
"""

import hashlib
import json
import mmap
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def cached(folder: Path, sources: Iterable[Path], version: int, parse: Callable[[], Arrays]) -> Arrays:
    """The arrays of ``parse()``, memory-mapped from the cache of ``folder`` once they are there.

    Parameters
    ----------
    folder
        The data set's folder.
    sources
        The files that ``parse`` reads.
    version
        A number to increase whenever ``parse`` changes what it returns.
    parse
        Reads the sources.
    """
    entry = _fingerprint(sources, version)
    for place in _places(folder):
        found = _read(place / entry)
        if found is not None:
            return found
    arrays = parse()
    for place in _places(folder):
        try:
            _write(place, entry, arrays)
        except OSError:  # read-only or full: the next place, or no cache at all
            continue
        return _read(place / entry) or arrays
    return arrays


def discard(folder: Path) -> None:
    """Remove the cache, so that the next load reads the sources."""
    for place in _places(folder):
        shutil.rmtree(place, ignore_errors=True)


def _places(folder: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return folder / ".clustpsi", platformdirs.user_cache_path("clustpsi") / "parsed" / f"{folder.name}-{name}"


def _fingerprint(sources: Iterable[Path], version: int) -> str:
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    return hashlib.sha256(repr((version, stats)).encode()).hexdigest()[:16]


def _checksum(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return zlib.crc32(content)


def _read(entry: Path) -> Arrays | None:
    try:
        checksums = json.loads((entry / "manifest.json").read_text())
        kept = {path.stem for path in entry.glob("*.npy")}
        if not (isinstance(checksums, dict) and kept and kept == set(checksums)):
            return None
        if any(_checksum(entry / f"{name}.npy") != checksum for name, checksum in checksums.items()):
            return None
        return {name: np.load(entry / f"{name}.npy", mmap_mode="r") for name in checksums}
    except (OSError, ValueError):  # absent or damaged: either way it is built again
        return None


def _write(place: Path, entry: str, arrays: Arrays) -> None:
    unfinished = place / f"unfinished-{entry}-{os.getpid()}"
    unfinished.mkdir(parents=True)
    try:
        for name, array in arrays.items():
            np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
        checksums = {name: _checksum(unfinished / f"{name}.npy") for name in arrays}
        (unfinished / "manifest.json").write_text(json.dumps(checksums))
        for stale in place.iterdir():
            if not stale.name.startswith("unfinished-"):
                shutil.rmtree(stale, ignore_errors=True)
        unfinished.replace(place / entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
