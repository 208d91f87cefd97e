"""Read the user's own tables from files into data frames.

CSV in its common dialects (comma, semicolon, tab or bar; a decimal comma where the separator is another character;
UTF-8 or UTF-16 with a byte order mark; quoted cells), JSON lines, Parquet with any compression, Feather and Arrow; and
all of them packed as gz, bz2, xz or as the only member of a zip. A file's content decides how it is packed; the name
decides what it is where it says so (``adult.parquet.brotli``, ``adult.pq``), else the content, else it is CSV.

What the columns mean is decided in :mod:`clustpsi.features.columns`.
"""

import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from clustpsi.datasets.files import Bounded, check_file, check_header, first_line, reading, too_large, unpacked_limit
from clustpsi.errors import ClustPSIError
from clustpsi.exact import read_exact_csv

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NEEDED = "a CSV, Parquet, Feather, Arrow or JSON lines table (or an NPZ file of arrays)"
SEPARATORS = (",", ";", "\t", "|")  # in the order in which they are preferred
NAMED = {"tab": "\t", r"\t": "\t", "space": " "}  # what is awkward to type
PIECE = 1 << 18  # bytes that are unpacked at once
SAMPLE = 1 << 22  # characters, and
RECORDS = 200  # records that the dialect is guessed from
DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")

KINDS = {
    "csv": ("csv", "tsv", "tab", "txt"),
    "parquet": ("parquet", "pq"),
    "arrow": ("feather", "arrow", "ipc", "ftr"),
    "json": ("jsonl", "ndjson", "json"),
    "npz": ("npz",),
}
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"FEA1": "arrow"}
# How packed files begin, and how they are named: a file that is named so and does not begin so is damaged.
PACKED = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00", "zip": b"PK\x03\x04"}


def read_table(path: Path, *, sep: str | None = None, no_header: bool = False) -> "pd.DataFrame":
    """Read a table; column names are texts, and an index saved with the table becomes the frame's index.

    Parameters
    ----------
    path
        The file.
    sep
        What separates the cells of a CSV file (see :func:`separator`); by default it is detected.
    no_header
        The first line of a CSV file is data; the columns are called 0, 1, 2, ...
    """
    kind, head = _look(path, sep, no_header, whole=True)
    if kind == "csv":
        return _read_csv(path, head, sep, no_header)
    return _read_json(path) if kind == "json" else _read_arrow(path, kind)


def read_pieces(
    path: Path,
    rows: int,
    *,
    texts: Collection[str] = (),
    only: Collection[str] | None = None,
    sep: str | None = None,
    no_header: bool = False,
) -> "Iterator[tuple[pd.DataFrame, float]]":
    """Read a table piece by piece, and the share of the file that has been read with each; memory stays flat.

    A piece's index goes on where that of the piece before ends.  What a column of a CSV file is read as may differ from
    piece to piece, except for columns that are texts: whoever puts pieces together has to know what they mean.

    Parameters
    ----------
    path
        The file.
    rows
        The most rows of a piece.
    texts
        Columns of a CSV file whose cells stay as they are written.
    only
        The columns to read; by default all.
    sep, no_header
        As for :func:`read_table`.
    """
    kind, head = _look(path, sep, no_header)
    if kind == "csv":
        pieces = _csv_pieces(path, head, rows, texts, only, sep, no_header)
    else:
        pieces = _json_pieces(path, rows) if kind == "json" else _arrow_pieces(path, kind, rows, only)
    found = False
    for frame, share in pieces:
        if len(frame):
            found = True
            yield frame, share
    if not found:
        raise ClustPSIError(f"{path} has no rows")


def _look(path: Path, sep: str | None, no_header: bool, *, whole: bool = False) -> tuple[str, bytes]:
    """What a table's file is, and how it begins; ``whole`` unpacks all of it, so that a trap is found at once."""
    check_file(path, NEEDED)
    if kind_of(path) == "npz":
        raise ClustPSIError(f"{path} is an NPZ file of arrays, and a table is needed here")
    with reading(path, "a table"), _unpacked(path) as file:
        head = file.peek(PIECE)
        while whole and isinstance(file.raw, Bounded) and file.read(PIECE):
            pass
    kind = kind_of(path, head)
    if kind != "csv" and (sep is not None or no_header):
        option = "--no-header" if sep is None else "--sep"
        raise ClustPSIError(f"{option} is for CSV files, and {path} is not one: leave it out")
    return kind, head


def separator(text: str) -> str:
    r"""The character that separates cells, from what a user calls it.

    >>> separator(";"), separator("tab"), separator(r"\t")
    (';', '\t', '\t')
    """
    character = NAMED.get(text.lower(), text)
    if len(character) != 1 or character in '"\r\n.':
        raise ClustPSIError(f"--sep must be one character, tab or space (for any run of blanks), not {text!r}")
    return character


def kind_of(path: Path, head: bytes = b"") -> str:
    """What a file is: csv, json, parquet, arrow or npz; by its name, else by how its content begins, else CSV.

    >>> [kind_of(Path(name)) for name in ("a.csv.gz", "a.parquet.brotli", "a.pq", "a.jsonl", "adult.data")]
    ['csv', 'parquet', 'parquet', 'json', 'csv']
    """
    for suffix in reversed(path.name.lower().split(".")[1:]):
        for kind, suffixes in KINDS.items():
            if suffix in suffixes:
                return kind
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "csv")


# ------------------------------------------------------------------------------------------------------ packed files


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file that may be packed; what it unpacks to is bounded."""
    with path.open("rb") as file:
        head = file.peek(8)[:8]
        named = path.name.lower().rsplit(".", 1)[-1]
        how = next((how for how, magic in PACKED.items() if head.startswith(magic)), None)
        if how is None and named in PACKED and not any(head.startswith(magic) for magic in MAGIC):
            how = named
        if how is None:
            yield file
        elif how == "zip":
            with zipfile.ZipFile(file) as archive, archive.open(_only_member(path, archive)) as member:
                yield io.BufferedReader(Bounded(member, path, file), PIECE)
        else:
            opener: Any = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}[how]
            with opener(file) as stream:
                yield io.BufferedReader(Bounded(cast(IO[bytes], stream), path, file), PIECE)


def _share(path: Path, file: io.BufferedReader) -> float:
    """How much of a file has been read."""
    source = file.raw.packed or file if isinstance(file.raw, Bounded) else file
    return min(1.0, source.tell() / max(path.stat().st_size, 1))


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    inside = [each for each in archive.infolist() if not each.is_dir() and not _is_clutter(each.filename)]
    names = [each.filename for each in inside]
    if any(name.startswith("xl/") for name in names):
        raise ClustPSIError(f"{path} is an Excel file: save the sheet as CSV")
    if len(inside) != 1:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise ClustPSIError(f"{path} holds {len(names)} files ({shown}): a zip of one table is needed; unpack it")
    if inside[0].flag_bits & 1:
        raise ClustPSIError(f"{path} is locked with a password: unpack it and name the unpacked file")
    limit = unpacked_limit(path.stat().st_size)
    if inside[0].file_size > limit:
        raise too_large(path, limit)
    return inside[0]


def _is_clutter(name: str) -> bool:
    """Whether the archiver itself added a file, as macOS does."""
    return name.startswith("__MACOSX/") or name.rsplit("/", 1)[-1].startswith("._") or name.endswith(".DS_Store")


# --------------------------------------------------------------------------------------------------------------- CSV


def _read_csv(path: Path, head: bytes, sep: str | None, no_header: bool) -> "pd.DataFrame":
    with _parsing(path):
        options = _csv_options(path, head, sep, no_header)
        with _unpacked(path) as file:
            return _named(read_exact_csv(file, **options))


def _csv_pieces(
    path: Path,
    head: bytes,
    rows: int,
    texts: Collection[str],
    only: Collection[str] | None,
    sep: str | None,
    no_header: bool,
) -> "Iterator[tuple[pd.DataFrame, float]]":
    with _parsing(path):
        options = _csv_options(path, head, sep, no_header, texts)
    if only is not None:
        options["usecols"] = lambda name: str(name).strip() in only
    with _unpacked(path) as file:
        with _parsing(path):
            pieces: Any = read_exact_csv(file, chunksize=rows, **options)
        while True:
            with _parsing(path):  # a piece at a time: others' warnings are their own
                piece = next(pieces, None)
            if piece is None:
                return
            yield _named(piece), _share(path, file)


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    import pandas as pd

    with reading(path, "CSV"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header would lose cells
        yield


def _named(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame.set_axis([str(name).strip() for name in frame.columns], axis=1)


def _csv_options(
    path: Path, head: bytes, sep: str | None, no_header: bool, texts: Collection[str] = ()
) -> dict[str, Any]:
    """How a CSV file is to be read."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in head and encoding != "utf-16":
        raise ClustPSIError(f"{path} is of no known kind: {NEEDED} is needed")
    with _unpacked(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        sep, records = _dialect(text.read(SAMPLE), None if sep is None else separator(sep))
    if not records:
        raise ClustPSIError(f"{path} is empty, or its first line is no line of a table: {NEEDED} is needed")
    if not no_header:
        check_header(path, [name.strip() for name in records[0] if name.strip()])
    columns: Sequence[str | int] = range(len(records[0])) if no_header else records[0]
    return {
        "encoding": encoding,
        "sep": r"\s+" if sep == " " else sep,
        "decimal": "," if _has_decimal_commas(sep, records[1:]) else ".",
        "header": None if no_header else 0,
        "index_col": False,
        "skipinitialspace": True,
        "low_memory": False,
        "dtype": {name: str for name in columns if str(name).strip() in texts},
    }


def _dialect(head: str, sep: str | None) -> tuple[str, list[list[str]]]:
    """The separator and the first records: the separator that gives the most records the width of the first.

    Of equally good ones, the one that gives the most cells.
    """
    if sep is not None:
        return sep, _records(head, sep)
    best, chosen, found = (-1, -1), ",", []
    for candidate in SEPARATORS:
        records = _records(head, candidate)
        width = len(records[0]) if records else 0
        fitting = sum(len(record) == width for record in records) if width > 1 else 0
        if (fitting, width) > best:
            best, chosen, found = (fitting, width), candidate, records
    return chosen, found


def _records(head: str, sep: str) -> list[list[str]]:
    records: list[list[str]] = []
    with contextlib.suppress(csv.Error):  # a cell too long for the csv module, not for pandas
        for record in csv.reader(io.StringIO(head, newline=""), delimiter=sep, skipinitialspace=True):
            if record:
                records.append(record)
            if len(records) > RECORDS:
                break
    # The last one may be cut: it counts only where it is the only one.
    is_cut = len(records) > RECORDS or len(head) == SAMPLE
    return records[:-1] if is_cut and len(records) > 1 else records


def _has_decimal_commas(sep: str, records: list[list[str]]) -> bool:
    cells = [cell.strip() for record in records for cell in record]
    commas = any(DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return sep != "," and commas and not any(DECIMAL_POINT.fullmatch(cell) for cell in cells)


# ------------------------------------------------------------------------------------------------------- other kinds


def _read_json(path: Path) -> "pd.DataFrame":
    """JSON lines (one object per line), or one list of objects."""
    import pandas as pd

    with reading(path, "JSON"), _unpacked(path) as file:
        rows = list(_json_rows(path, file))
    if not rows:
        raise ClustPSIError(f"{path} is empty: {NEEDED} is needed")
    return pd.DataFrame(rows)


def _json_pieces(path: Path, rows: int) -> "Iterator[tuple[pd.DataFrame, float]]":
    import pandas as pd

    with reading(path, "JSON"), _unpacked(path) as file:
        objects, start = _json_rows(path, file), 0
        while piece := list(islice(objects, rows)):
            yield pd.DataFrame(piece, index=pd.RangeIndex(start, start + len(piece))), _share(path, file)
            start += len(piece)


def _json_rows(path: Path, file: io.BufferedReader) -> Iterator[dict[str, Any]]:
    """The objects of a file, one after the other."""
    rows = json.load(file) if file.peek(64).lstrip().startswith(b"[") else _json_lines(path, file)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ClustPSIError(f"{path}, row {number} is not a JSON object: one object per row is needed")
        yield row


def _json_lines(path: Path, file: io.BufferedReader) -> Iterator[Any]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                reason = getattr(error, "msg", error)
                raise ClustPSIError(f"{path}, line {number} is not JSON ({reason}): one object per line") from None


def _read_arrow(path: Path, kind: str) -> "pd.DataFrame":
    with _arrow_source(path, kind) as source:
        return _as_frame(path, _arrow_table(source, kind))


def _arrow_pieces(
    path: Path, kind: str, rows: int, only: Collection[str] | None
) -> "Iterator[tuple[pd.DataFrame, float]]":
    import pandas as pd

    with _arrow_source(path, kind) as source:
        start = 0
        for table, share in _arrow_tables(source, kind, rows, only):
            frame = _as_frame(path, table)
            named = [level for level in frame.index.names if level is not None]
            frame = frame.reset_index(level=named) if named else frame  # of a saved index, which may name the clients
            yield frame.set_axis(pd.RangeIndex(start, start + len(frame)), axis=0), share
            start += len(frame)


@contextlib.contextmanager
def _arrow_source(path: Path, kind: str) -> "Iterator[pa.NativeFile]":
    import pyarrow as pa

    title = "Parquet" if kind == "parquet" else "Arrow"
    with reading(path, title), _unpacked(path) as file:
        # Parquet is read from its end, which a packed file does not have: it is unpacked as a whole.
        is_plain = isinstance(file.raw, io.FileIO)
        with pa.OSFile(str(path)) if is_plain else pa.BufferReader(file.read()) as source:
            try:
                yield source
            except (pa.ArrowException, KeyError, TypeError) as error:  # the last two from damaged metadata
                raise ClustPSIError(f"{path} cannot be read as {title}: {first_line(error)}") from error


def _as_frame(path: Path, table: "pa.Table") -> "pd.DataFrame":
    table.validate(full=True)  # a damaged file may point anywhere in memory
    check_header(path, table.column_names)
    frame: pd.DataFrame = _plain(table).to_pandas(date_as_object=False)
    return frame


def _arrow_tables(
    source: "pa.NativeFile", kind: str, rows: int, only: Collection[str] | None
) -> "Iterator[tuple[pa.Table, float]]":
    """Tables of at most so many rows, and the share that has been read with each."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    if kind == "parquet":
        with pq.ParquetFile(source) as parquet:
            done, total = 0, max(parquet.metadata.num_rows, 1)
            names = parquet.schema_arrow.names
            for batch in parquet.iter_batches(rows, columns=None if only is None else [n for n in names if n in only]):
                done += len(batch)
                yield pa.Table.from_batches([batch]), done / total
        return
    table = _arrow_table(source, kind)
    for start in range(0, len(table), rows):
        yield table.slice(start, rows), min(1.0, (start + rows) / len(table))


def _arrow_table(source: "pa.NativeFile", kind: str) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import feather
    from pyarrow import parquet as pq

    if kind == "parquet":
        with pq.ParquetFile(source) as parquet:
            return parquet.read()
    try:
        return feather.read_table(source)
    except pa.ArrowInvalid:  # a stream of batches, as Hugging Face's data sets keep them
        source.seek(0)
        with pa.ipc.open_stream(source) as batches:
            return batches.read_all()


def _plain(table: "pa.Table") -> "pa.Table":
    """The table with decimals as numbers, and with bytes as texts where they are UTF-8, which some writers mean."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        wanted = None
        if pa.types.is_decimal(field.type):
            wanted = pa.float64()
        elif pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            wanted = pa.large_string()
        if wanted is not None:
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(place, field.name, table.column(place).cast(wanted))
    return table
