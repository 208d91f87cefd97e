"""Where data files lie, and reading them with errors that name the file."""

import csv
import gzip
import io
import os
import pickle
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import platformdirs

from clustpsi.errors import ClustPSIError

if TYPE_CHECKING:
    import pandas as pd


class DataMissing(ClustPSIError):
    """A data set's files are not in the data folder."""


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder that holds one sub-folder a data set: the argument, ``CLUSTPSI_DATA``, or one in the user's cache."""
    chosen = data_dir or os.environ.get("CLUSTPSI_DATA")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("clustpsi") / "data"


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
    """Turn whatever a parser raises while it reads ``path`` into one sentence that names the file."""
    try:
        yield
    except ClustPSIError:
        raise
    except FileNotFoundError as error:
        raise DataMissing(f"{path} does not exist") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise ClustPSIError(f"{path} is damaged or truncated ({_first_line(error)}): fetch it again") from error
    except UnicodeDecodeError as error:
        raise ClustPSIError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} at {error.start}): save it as UTF-8"
        ) from error
    except (OSError, ValueError, struct.error, pickle.UnpicklingError, csv.Error, Warning) as error:
        raise ClustPSIError(f"{path} cannot be read as {kind}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def open_binary(path: Path) -> IO[bytes]:
    """A plain or gzip file."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file."""
    with reading(path), open_binary(path) as file:
        return file.read()


def check_header(path: Path | str, header: Sequence[str], needed: Iterable[str] = ()) -> None:
    """Refuse a header with a column twice, or without a column that is needed."""
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ClustPSIError(f"{path} has column {twice[0]!r} more than once: give every column its own name")
    lacking = [name for name in needed if name not in header]
    if lacking:
        shown = ", ".join(header[:20]) + (", ..." if len(header) > 20 else "")
        raise ClustPSIError(f"{path} has no column {lacking[0]!r} (columns: {shown})")


def csv_header(path: Path) -> list[str]:
    """The column names of a UTF-8 CSV file, plain or gzip."""
    with reading(path, "CSV"), open_binary(path) as file:
        header = next(csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline="")), [])
    if not header:
        raise ClustPSIError(f"{path} is empty: a CSV file with a header line is needed")
    return header


def read_csv(path: Path, needed: Iterable[str] = (), **options: Any) -> "pd.DataFrame":
    """A UTF-8 CSV file (plain or gzip) with a header; ``options`` go to :func:`pandas.read_csv`."""
    import pandas as pd

    check_header(path, csv_header(path), needed)
    with reading(path, "CSV"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header would lose cells
        table: pd.DataFrame = pd.read_csv(path, index_col=False, encoding="utf-8-sig", low_memory=False, **options)
        return table


def read_parquet(path: Path) -> "pd.DataFrame":
    """A Parquet file."""
    import pyarrow.parquet as pq

    with reading(path, "Parquet"):
        check_header(path, pq.read_schema(path).names)
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
        return frame
