"""Where data files lie, and reading them with errors that name the file."""

import csv
import gzip
import io
import lzma
import os
import pickle
import stat
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import platformdirs

from clustpsi.datasets.catalogue import DATASETS
from clustpsi.errors import ClustPSIError, nearest
from clustpsi.exact import read_exact_csv

if TYPE_CHECKING:
    import pandas as pd

HEADER_BYTES = 1 << 20
UNPACKED_FACTOR = 100
UNPACKED_LEAST = 100_000_000


class DataMissing(ClustPSIError):
    """A data set's files are not in the data folder."""


def user_path(name: str | Path) -> Path:
    """A path as people write it, with ~ for a home folder."""
    if "\0" in str(name):
        raise ClustPSIError(f"{name} has a NUL character, which no name of a file may have")
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ClustPSIError(f"{name} starts with a home folder that does not exist") from None


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder with one sub-folder per data set: the argument, ``CLUSTPSI_DATA``, or one in the user's cache."""
    chosen = data_dir or os.environ.get("CLUSTPSI_DATA")
    return user_path(chosen) if chosen else platformdirs.user_cache_path("clustpsi") / "data"


def missing(folder: Path, *needed: str) -> DataMissing:
    return DataMissing(
        f"{folder} has no {' or '.join(needed)}: run `clustpsi data get {folder.name}`, "
        "or name the data folder with --data-dir or CLUSTPSI_DATA"
    )


def find(folder: Path, name: str) -> Path | None:
    """The file ``name`` or ``name.gz`` in ``folder`` or below it, where there is one.

    Sub-folders are searched because other tools store the same files deeper.
    """
    for candidate in (name, f"{name}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
        below = sorted(path for path in folder.rglob(candidate) if path.is_file())
        if below:
            return below[0]
    return None


@contextmanager
def reading(path: Path, kind: str = "data") -> Iterator[None]:
    """Turn any error of a parser that reads ``path`` into one sentence that names the file."""
    try:
        yield
    except ClustPSIError:
        raise
    except FileNotFoundError as error:
        raise DataMissing(f"{path} does not exist") from error
    except NotImplementedError as error:  # a kind of compression
        raise ClustPSIError(f"{path} cannot be unpacked: {first_line(error)}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ClustPSIError(f"{path} is damaged or truncated ({first_line(error)}): fetch it again") from error
    except UnicodeDecodeError as error:
        raise ClustPSIError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} at {error.start}): save it as UTF-8"
        ) from error
    except (OSError, ValueError, struct.error, pickle.UnpicklingError, csv.Error, Warning) as error:
        raise ClustPSIError(f"{path} cannot be read as {kind}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def open_binary(path: Path) -> IO[bytes]:
    """A plain or gzip file."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file."""
    with reading(path), open_binary(path) as file:
        return file.read()


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; False also for a name that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with characters that names cannot have
        return False


def is_file_name(dataset: str) -> bool:
    """Whether a data set is named by its file: by a path, by a name with an ending, or because there is such a file.

    >>> [is_file_name(name) for name in ("digits", "birds.csv", "data/birds", "birds")]
    [False, True, True, False]
    """
    path = user_path(dataset)
    return dataset not in DATASETS and (bool(path.suffix) or len(path.parts) > 1 or is_there(path))


def check_file(path: Path, needed: str) -> None:
    """Raise if a path is not a file; the message says what it is instead, and what is ``needed``."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise DataMissing(f"{path} does not exist: {needed} is needed") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClustPSIError(f"{path} cannot be read ({reason}): {needed} is needed") from None
    if stat.S_ISDIR(mode):
        raise ClustPSIError(f"{path} is a folder: {needed} is needed")
    if not stat.S_ISREG(mode):
        raise ClustPSIError(f"{path} is a device or a pipe: {needed} is needed")


def unpacked_limit(packed_size: int) -> int:
    """The most bytes that a packed file may unpack to: data shrink to a hundredth at best, zip bombs far more.

    >>> unpacked_limit(611_000), unpacked_limit(50_000_000)
    (100000000, 5000000000)
    """
    return max(UNPACKED_LEAST, UNPACKED_FACTOR * packed_size)


class Bounded(io.RawIOBase):
    """A stream of unpacked bytes that refuses to go on beyond what :func:`unpacked_limit` allows.

    ``packed`` is the file that they are unpacked from, where somebody wants to know how much of it has been read.
    """

    def __init__(self, stream: IO[bytes], path: Path, packed: IO[bytes] | None = None) -> None:
        self._stream, self._path, self.packed = stream, path, packed
        self._left = self._limit = unpacked_limit(path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise too_large(self._path, self._limit)
        buffer[: len(piece)] = piece
        return len(piece)


def too_large(path: Path, limit: int) -> ClustPSIError:
    return ClustPSIError(
        f"{path} unpacks to more than {limit / 1e6:,.0f} MB, over {UNPACKED_FACTOR} times its size: "
        "if it is what you expect, unpack it and name the unpacked file"
    )


def check_header(path: Path | str, header: Sequence[str], needed: Iterable[str] = ()) -> None:
    """Raise if a header has a column twice or lacks a needed column."""
    from clustpsi.features.written import NUMBER  # here, because it loads all kinds of features

    numbers = [name for name in header if NUMBER.fullmatch(name)]
    hint = "; if these are values, the file has no header line: give --no-header (no_header=True in Python)"
    hint = "" if numbers == [str(place) for place in range(len(numbers))] else hint
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ClustPSIError(f"{path} has column {twice[0]!r} more than once: give every column its own name{hint}")
    known = set(header)
    for name in needed:
        if name not in known:
            shown = ", ".join(header[:20]) + (", ..." if len(header) > 20 else "")
            near = nearest(name, header)
            question = "" if near is None else f": {near}"
            raise ClustPSIError(f"{path} has no column {name!r}{question} (columns: {shown}{hint})")


def csv_header(path: Path) -> list[str]:
    """The column names of a UTF-8 CSV file, plain or gzip."""
    with reading(path, "CSV"), open_binary(path) as file:
        # In bounded pieces: a file without line ends must not be read as a whole.
        lines = iter(partial(file.readline, HEADER_BYTES), b"")
        header = next(csv.reader(line.decode("utf-8-sig") for line in lines), [])
    if not header:
        raise ClustPSIError(f"{path} is empty: a CSV file with a header line is needed")
    return header


def read_csv(path: Path, needed: Iterable[str] = (), **options: Any) -> "pd.DataFrame":
    """A UTF-8 CSV file (plain or gzip) with commas and a header; ``options`` go to :func:`pandas.read_csv`."""
    import pandas as pd

    check_header(path, csv_header(path), needed)
    with reading(path, "CSV"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header would lose cells
        return read_exact_csv(path, index_col=False, encoding="utf-8-sig", low_memory=False, **options)
