"""Downloads that resume, are verified, and appear under their name only when complete.

A transfer goes to ``NAME.part`` beside its target. If it is interrupted, the next attempt asks the server for the rest.
The file gets its name only when it is complete and its checksum is right.
"""

import csv
import errno
import hashlib
import http.client
import io
import itertools
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from clustpsi.datasets.acs_income import PUMS_COLUMNS, STATES
from clustpsi.datasets.catalogue import DATASETS
from clustpsi.datasets.files import Bounded, check_header, csv_header, reading
from clustpsi.errors import ClustPSIError, unknown_name

CHUNK = 1 << 18
ATTEMPTS = 4
TIMEOUT = 30.0  # seconds without a byte
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
PAUSE = 1.0  # seconds before the second attempt, doubled for each further one

FMNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
CIFAR_MD5 = {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received so far, and the total number of bytes (if known)."""


def silent(name: str, done: int, total: int | None) -> None:
    pass


def fetch(
    name: str,
    folder: Path,
    *,
    mirror: str | None = None,
    states: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Path]:
    """Download a data set into ``folder``; files that are there already are left alone.

    Parameters
    ----------
    name
        ``fmnist``, ``cifar10`` or ``acs_income``.
    folder
        The data set's folder.
    mirror
        URL of a folder with the same file names, instead of the official one; default: ``CLUSTPSI_MIRROR``, if set.
    states
        For ``acs_income``: postal codes; default: all that folktables uses.
    progress
        Called for every piece that arrives.

    Returns
    -------
    The files and folders that are new.
    """
    if not DATASETS[name].base_url:
        raise ClustPSIError(f"{name} cannot be downloaded: {DATASETS[name].by_hand.format(folder=folder)}")
    base = (mirror or os.environ.get("CLUSTPSI_MIRROR") or DATASETS[name].base_url).rstrip("/")
    try:
        return _fetch(name, base, folder, states, progress)
    except OSError as error:
        raise ClustPSIError(f"cannot write to {folder}: {error.strerror or error}") from error


def _fetch(name: str, base: str, folder: Path, states: Sequence[str], progress: Progress) -> list[Path]:
    if name == "fmnist":
        absent = [file for file in FMNIST_MD5 if not (folder / file).exists() and not (folder / file[:-3]).exists()]
        return [download(f"{base}/{file}", folder / file, md5=FMNIST_MD5[file], progress=progress) for file in absent]
    if name == "cifar10":
        if any((folder / f"cifar-10-batches-{kind}").is_dir() for kind in ("bin", "py")):
            return []
        ((file, md5),) = CIFAR_MD5.items()
        return [_unpack_tar(download(f"{base}/{file}", folder / file, md5=md5, progress=progress))]
    return _fetch_states(base, folder / "2018" / "1-Year", states or tuple(STATES), progress)


def _fetch_states(base: str, folder: Path, states: Sequence[str], progress: Progress) -> list[Path]:
    for state in states:
        if state not in STATES:
            raise unknown_name("state", state, STATES)
    new = []
    for state in states:
        person_file = f"psam_p{STATES[state]}.csv"
        if not (folder / person_file).exists():
            archive = f"csv_p{state.lower()}.zip"
            download(f"{base}/{archive}", folder / archive, progress=progress)
            new.append(_unpack_person_file(folder / archive, person_file))
    return new


def download(url: str, target: Path, *, md5: str | None = None, progress: Progress = silent) -> Path:
    """Download ``url`` to ``target``; continue where an earlier transfer stopped."""
    if target.exists() and (md5 is None or _md5(target) == md5):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    resumed = part.exists()
    for attempt in range(ATTEMPTS):
        try:
            _transfer(url, part, progress)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise ClustPSIError(f"{url} answered {error.code} {error.reason}: try another --mirror") from error
            problem: Exception = error
        except urllib.error.URLError as error:  # no connection at all: trying again would only delay the news
            problem = error
            break
        except ValueError as error:
            raise ClustPSIError(f"{url} is no URL: a mirror starts with https://, http:// or file://") from error
        except (OSError, http.client.HTTPException) as error:  # a transfer that broke or stalled
            if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
                raise
            problem = error
        else:
            if md5 is None or _md5(part) == md5:
                part.replace(target)
                return target
            part.unlink()
            if not resumed:
                raise ClustPSIError(f"{url} is corrupt: its md5 is not {md5}; try again, or another --mirror")
            resumed = False  # what was resumed may have been another file: once more from the start
            continue
        if attempt + 1 < ATTEMPTS:
            time.sleep(PAUSE * 2**attempt)
    raise ClustPSIError(
        f"cannot download {url} ({getattr(problem, 'reason', problem)}): check the network and run the command again "
        f"to go on, or fetch the file by other means and put it at {target}"
    ) from problem


def _transfer(url: str, part: Path, progress: Progress) -> None:
    """Append the missing bytes to ``part``; raise if the answer is incomplete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    name = urllib.parse.urlsplit(url).path.rpartition("/")[2]
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # nothing is lacking
        part.unlink()
        raise ConnectionError(f"{part} was no piece of the file on the server") from error
    with answer:
        if answer.status != 206:  # the server does not resume
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            progress(name, have, total)
            while piece := answer.read(CHUNK):
                file.write(piece)
                have += len(piece)
                progress(name, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _unpack_tar(archive: Path) -> Path:
    """Unpack the archive's only folder beside the archive, then remove the archive."""
    unfinished = archive.with_name("unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(unfinished, filter="data")
        (inside,) = unfinished.iterdir()
        inside.replace(archive.parent / inside.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    archive.unlink()
    return archive.parent / inside.name


def _unpack_person_file(archive: Path, name: str) -> Path:
    """Check the state's person file and put it beside the archive; then remove the archive, even if it is wrong.

    The Census Bureau publishes no checksums, so the archive's CRC, the header and the state's code are checked instead.
    """
    target, part = archive.with_name(name), archive.with_name(f"{name}.part")
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(name) as source, part.open("wb") as file:
            shutil.copyfileobj(io.BufferedReader(Bounded(source, archive), CHUNK), file, CHUNK)
        _check_person_file(part)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ClustPSIError) as error:
        archive.unlink()
        part.unlink(missing_ok=True)
        raise ClustPSIError(
            f"{archive} is not the official archive ({error}) and was removed: run the command again, or try another "
            "--mirror"
        ) from error
    part.replace(target)
    archive.unlink()
    return target


def _check_person_file(path: Path) -> None:
    """Refuse a file without the survey's columns, or of another state than its name says."""
    header = csv_header(path)
    check_header(path, header, PUMS_COLUMNS)
    with reading(path, "CSV"), path.open(encoding="utf-8-sig", newline="") as file:
        first = next(itertools.islice(csv.reader(file), 1, None), [])
    state, code = dict(zip(header, first, strict=False)).get("ST", ""), path.name.removeprefix("psam_p")[:2]
    if not state.isdecimal() or int(state) != int(code):
        raise ClustPSIError(f"its first person is of state {state or 'none'!r}, not of {code}")
