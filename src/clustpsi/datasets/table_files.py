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
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.files import Bounded, check_file, check_header, first_line, reading, too_large, unpacked_limit
from clustpsi.errors import ClustPSIError
from clustpsi.exact import read_exact_csv
from clustpsi.features.columns import SAVED_INDEX
from clustpsi.features.written import CODE, DECIMAL_COMMA, GAPS, NUMBER, POINTED_THOUSANDS, Points

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NEEDED = "a CSV, Parquet, Feather, Arrow or JSON lines table (or an NPZ file of arrays)"
SEPARATORS = (",", ";", "\t", "|")  # in the order in which they are preferred
NAMED = {"tab": "\t", r"\t": "\t", "space": " "}  # what is awkward to type
PIECE = 1 << 18  # bytes that are unpacked at once
SAMPLE = 1 << 22  # characters, and
RECORDS = 200  # records that the dialect is guessed from
DECIMAL_POINT = re.compile(r"[-+]?\d+\.\d+")
POINTS = "points"  # what the frame's attribute is called that says how points in numbers are meant
FEW = 64  # bytes at the end of a piece that are looked at again with the next
ROWS = 1 << 16  # rows that are searched for codes at once

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


def read_table(
    path: Path,
    *,
    names: Collection[str] | None = (),
    sep: str | None = None,
    no_header: bool = False,
) -> "pd.DataFrame":
    """Read a table; column names are texts, and an index saved with the table becomes the frame's index.

    Digits with a leading zero are texts.  If points in the numbers of a CSV file may stand for thousands, the frame's
    attribute ``points`` says so (see :data:`clustpsi.features.written.Points`).

    Parameters
    ----------
    path
        The file.
    names
        Columns of names or of free text, where a cell of a CSV file is empty only if nothing is written in it; None for
        all columns.  In other columns the usual marks, as NA, are gaps.
    sep
        What separates the cells of a CSV file (see :func:`separator`); by default it is detected.
    no_header
        The first line of a CSV file is data; the columns are called 0, 1, 2, ...
    """
    kind, head = _look(path, sep, no_header, whole=True)
    if kind == "csv":
        return _read_csv(path, head, names, sep, no_header)
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
        Columns of a CSV file whose cells stay as they are written, but for blanks around them.
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


def _read_csv(
    path: Path, head: bytes, names: Collection[str] | None, sep: str | None, no_header: bool
) -> "pd.DataFrame":
    from pandas.api import types

    with _parsing(path):
        form = _csv_form(path, head, sep, no_header)
        options = form.options(names, ())
        with _unpacked(path) as file:
            codes = CodeSearch(file, form.sep, has_wide_characters=form.encoding == "utf-16")
            frame = read_exact_csv(io.BufferedReader(codes, PIECE), **options)
        if codes.found:
            are_numbers = [types.is_any_real_numeric_dtype(dtype) for dtype in frame.dtypes]
            if found := _with_codes(path, options, np.flatnonzero(are_numbers).tolist()):
                options["dtype"] |= dict.fromkeys(found, str)
                with _unpacked(path) as file:
                    frame = read_exact_csv(file, **options)
        return _tidy(path, frame, form, names)


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
        form = _csv_form(path, head, sep, no_header)
        options = form.options(texts, texts)
    if only is not None:
        options["usecols"] = lambda name: str(name).strip() in only
    with _unpacked(path) as file:
        with _parsing(path):
            pieces: Any = read_exact_csv(file, chunksize=rows, **options)
        while True:
            with _parsing(path):  # a piece at a time: others' warnings are their own
                piece = next(pieces, None)
                piece = None if piece is None else _tidy(path, piece, form, texts)
            if piece is None:
                return
            yield piece, _share(path, file)


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    import pandas as pd

    with reading(path, "CSV"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header would lose cells
        try:
            yield
        except pd.errors.ParserError as error:
            found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
            if found is None:
                raise
            needed, line, there = found.groups()
            reason = f"line {line} has {there} cells, and the first line {needed}"
            raise ClustPSIError(f"{path} cannot be read as CSV: {reason}") from None
        except pd.errors.ParserWarning:
            reason = "its lines have more cells than the first line names columns"
            raise ClustPSIError(f"{path} cannot be read as CSV: {reason}") from None


class CodeSearch(io.RawIOBase):
    """The bytes of a CSV file as they are; ``found`` says whether digits with a leading zero may be a cell of it.

    Characters of more than one byte are not searched: codes are then taken to be there.
    """

    def __init__(self, source: io.BufferedReader, sep: str, *, has_wide_characters: bool) -> None:
        self._source, self.found, self._last = source, has_wide_characters, b"\n"
        around = rb"[\s\"" + re.escape(sep).encode() + b"]"
        self._cell = re.compile(rb"(?<=" + around + rb")0\d+(?=" + around + rb"|$)")
        self._sep = ord(sep)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._source.readinto(buffer)
        if size and not self.found:
            text = self._last + bytes(memoryview(buffer)[:size])
            if self._may_have_codes(np.frombuffer(text, np.uint8)):
                self.found = self._cell.search(text) is not None
            self._last = text[-FEW:]
        return size

    def _may_have_codes(self, text: NDArray[np.uint8]) -> bool:
        """A quick look: whether a zero stands between what ends a cell (blanks, quotes) and a digit."""
        before, here, after = text[:-2], text[1:-1], text[2:]
        starts = (before <= ord('"')) | (before == self._sep)
        return bool((starts & (here == ord("0")) & (after - np.uint8(ord("0")) < 10)).any())


def _with_codes(path: Path, options: dict[str, Any], places: list[int]) -> set[Any]:
    """Those of the columns in these places in which some cell is digits with a leading zero."""
    found: set[Any] = set()
    texts = options | {"dtype": str, "chunksize": ROWS, "usecols": places}
    with _unpacked(path) as file:
        pieces: Any = read_exact_csv(file, **texts)
        for piece in pieces:
            for name in set(piece.columns) - found:
                if piece[name].str.strip().str.fullmatch(CODE.pattern).any():
                    found.add(name)
    return found


def _tidy(path: Path, frame: "pd.DataFrame", form: "CsvForm", names: Collection[str] | None) -> "pd.DataFrame":
    """A frame as it is meant: without empty columns that have no name, and without blanks around texts."""
    import pandas as pd

    unnamed = [name for name in frame.columns if SAVED_INDEX.fullmatch(str(name).strip())]
    empty = [name for name in unnamed if frame[name].isna().all()]
    frame = frame.drop(columns=empty) if empty else frame
    if form.has_longer_rows and form.header[-1] in frame.columns:
        reason = "its lines have more cells than the first line names columns"
        raise ClustPSIError(f"{path} cannot be read as CSV: {reason}")
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) != "string":
            continue
        if not (column.dtype == object or pd.api.types.is_string_dtype(column.dtype)):
            continue
        stripped = column.str.strip()
        changed = stripped.ne(column) & column.notna()
        if changed.any():
            if names is not None and str(name).strip() not in names:
                gaps = changed & stripped.isin(GAPS)
                # Beside numbers a mark says that they are numbers and no codes, see clustpsi.features.written.
                if gaps.any() and not all(map(NUMBER.fullmatch, stripped[~gaps].dropna().unique())):
                    stripped = stripped.mask(gaps)
            frame[name] = stripped
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if form.points is not None:
        frame.attrs[POINTS] = form.points
    return frame


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file is written.

    Attributes
    ----------
    encoding, sep
        Of its characters, and what separates its cells.
    header
        What pandas calls its columns.
    no_header
        Whether the first line is data.
    has_longer_rows
        Whether the rows end with a separator and the header does not; the last column is then the empty one.
    decimal
        The sign before decimals.
    points
        How points in numbers are meant, if they may stand for thousands.
    pointed
        Columns whose points may stand for thousands.
    """

    encoding: str
    sep: str
    header: tuple[str | int, ...]
    no_header: bool
    has_longer_rows: bool
    decimal: str
    points: Points | None
    pointed: tuple[str | int, ...]

    def options(self, names: Collection[str] | None, texts: Collection[str]) -> dict[str, Any]:
        """How pandas is to read it, with these columns of names, and cells that stay as they are."""

        def gaps(column: str | int) -> tuple[str, ...]:
            return ("",) if names is None or str(column).strip() in names else tuple(GAPS)

        as_written = [name for name in self.header if str(name).strip() in texts or name in self.pointed]
        named: dict[str, Any] = {"names": list(self.header)} if self.has_longer_rows else {}
        return {
            **named,
            "encoding": self.encoding,
            "sep": r"\s+" if self.sep == " " else self.sep,
            "decimal": self.decimal,
            "header": None if self.no_header else 0,
            "index_col": False,
            "skipinitialspace": True,
            "low_memory": False,
            "keep_default_na": False,
            "na_values": {name: list(gaps(name)) for name in self.header},
            "dtype": dict.fromkeys(as_written, str),
        }


def _csv_form(path: Path, head: bytes, sep: str | None, no_header: bool) -> CsvForm:
    """Find out how a CSV file is written."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in head and encoding != "utf-16":
        raise ClustPSIError(f"{path} is of no known kind: {NEEDED} is needed")
    with _unpacked(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        sep, records = _dialect(text.read(SAMPLE), None if sep is None else separator(sep))
    if not records:
        raise ClustPSIError(f"{path} is empty, or its first line is no line of a table: {NEEDED} is needed")
    if not no_header:
        check_header(path, [name.strip() for name in records[0] if name.strip()])
    longer = not no_header and _ends_with_separators(records)
    if not no_header:
        _refuse_title(path, records, 1 if longer else 0)
    with _unpacked(path) as file:
        pattern, first = r"\s+" if sep == " " else sep, None if no_header else 0
        empty = read_exact_csv(
            file, nrows=0, sep=pattern, header=first, encoding=encoding, index_col=False, skipinitialspace=True
        )
    header = (*empty.columns, *([f"Unnamed: {len(records[0])}"] if longer else []))
    decimal, points, pointed = _decimals(sep, records if no_header else records[1:])
    at = tuple(header[place] for place in pointed if place < len(header))
    return CsvForm(encoding, sep, header, no_header, longer, decimal, points, at)


def _ends_with_separators(records: list[list[str]]) -> bool:
    """Whether all rows end with a separator, and the header does not."""
    width = len(records[0])
    return len(records) > 1 and all(len(each) == width + 1 and not each[-1].strip() for each in records[1:])


def _refuse_title(path: Path, records: list[list[str]], more: int) -> None:
    """Raise if the first line is something else than the names of the columns, as a title or a comment."""
    width, widths = len(records[0]), Counter(map(len, records[1:]))
    named = sum(bool(name.strip()) for name in records[0])
    usual, often = widths.most_common(1)[0] if widths else (width, 0)
    shorter = usual > width + more and 2 * often > len(records) - 1 and not widths[width]
    in_first_cell = named == 1 < width - 1 and any(sum(map(bool, each)) > 2 for each in records[1:3])
    if shorter or in_first_cell:
        cells = f"{named} cell{'' if named == 1 else 's'}"
        raise ClustPSIError(
            f"{path} cannot be read as CSV: line 1 has {cells} and the lines below have {usual}, but the first "
            "line must name every column; if it is a title or a comment, take it out"
        )


def _dialect(head: str, sep: str | None) -> tuple[str, list[list[str]]]:
    """The separator and the first records: the separator that gives the most records the width of the first.

    Of equally good ones, the one that gives the most cells.
    """
    if sep is not None:
        return sep, _records(head, sep)
    best, chosen, found = (-1, -1, -1), ",", []
    for candidate in SEPARATORS:
        records = _records(head, candidate)
        width = len(records[0]) if records else 0
        fitting = sum(len(record) == width for record in records[1:]) if width > 1 else 0
        # Below a title all rows are wider than the first: then the rows decide.
        wide = Counter(len(record) for record in records[1:] if len(record) > 1)
        alike = 0 if fitting else max(wide.values(), default=0)
        if (fitting, alike, width) > best:
            best, chosen, found = (fitting, alike, width), candidate, records
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


def _decimals(sep: str, records: list[list[str]]) -> tuple[str, Points | None, list[int]]:
    """The sign before decimals, how points are meant if they may stand for thousands, and the columns with such points.

    Where a comma stands before decimals, 1.500 is 1500, unless other numbers show that points stand there as well.
    """
    if sep == ",":
        return ".", None, []
    columns = [[cell.strip() for cell in column] for column in zip_longest(*records, fillvalue="")]
    pointed = [[cell for cell in column if DECIMAL_POINT.fullmatch(cell)] for column in columns]
    commas = any(DECIMAL_COMMA.fullmatch(cell) for column in columns for cell in column)
    proof = any(not POINTED_THOUSANDS.fullmatch(cell) for column in pointed for cell in column)
    if commas and not proof:
        return ",", "thousands", []
    places = [
        place for place, column in enumerate(columns) if any(POINTED_THOUSANDS.fullmatch(cell) for cell in column)
    ]
    places = [place for place in places if all(POINTED_THOUSANDS.fullmatch(cell) for cell in pointed[place])]
    return (".", "unclear", places) if places and commas == proof else (".", None, [])


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
