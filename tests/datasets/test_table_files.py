"""Tables are read alike from every kind of file, and a file that is no table is named in one sentence."""

import bz2
import gzip
import io
import lzma
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from clustpsi.datasets import files
from clustpsi.datasets.table_files import read_pieces, read_table
from clustpsi.errors import ClustPSIError
from clustpsi.features.columns import Numbers, read_column

TABLE = pd.DataFrame(
    {"wing": [1.5, 2.25, np.nan, -4.0], "eggs": [3, 1, 2, 2], "note": ["grey, small", 'a "fine" one', "é", "x;y|z"]}
)


def csv(**options: object) -> bytes:
    text: str = TABLE.to_csv(index=False, **options)  # type: ignore[call-overload]
    return text.encode()


def zipped(*members: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def parquet(compression: str) -> bytes:
    content: bytes = TABLE.to_parquet(compression=compression)  # type: ignore[call-overload]
    return content


def arrow(make: Callable[..., Any]) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pandas(TABLE)
    with make(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


FILES = {
    "t.csv": csv(),
    "t.CSV": csv(),
    "table.data": csv(),
    "table": csv(),
    "bom.csv": b"\xef\xbb\xbf" + csv(),
    "windows.csv": csv(lineterminator="\r\n"),
    "quoted.csv": csv(quoting=1),
    "spaces.csv": b'wing , eggs, note\n1.5, 3, "grey, small"\n2.25, 1, "a ""fine"" one"\n, 2, \xc3\xa9\n-4, 2, x;y|z\n',
    "semicolon.csv": csv(sep=";"),
    "german.csv": csv(sep=";", decimal=","),
    "tab.tsv": csv(sep="\t"),
    "tab.csv": csv(sep="\t", decimal=","),
    "bar.txt": csv(sep="|"),
    "utf16.txt": csv(sep="\t").decode().encode("utf-16"),
    "t.csv.gz": gzip.compress(csv()),
    "t.csv.bz2": bz2.compress(csv()),
    "t.csv.xz": lzma.compress(csv()),
    "packed.csv": gzip.compress(csv()),
    "t.csv.zip": zipped(("folder/t.csv", csv())),
    "mac.zip": zipped(("t.csv", csv()), ("__MACOSX/._t.csv", b"x")),
    "t.parquet": parquet("snappy"),
    "t.parquet.brotli": parquet("brotli"),
    "t.parquet.gz": parquet("gzip"),
    "packed.parquet.gz": gzip.compress(parquet("none")),
    "t.pq": parquet("zstd"),
    "unnamed_parquet": parquet("lz4"),
    "t.feather": arrow(pa.ipc.new_file),
    "stream.arrow": arrow(pa.ipc.new_stream),
    "t.jsonl": TABLE.to_json(orient="records", lines=True).encode(),
    "t.ndjson.gz": gzip.compress(TABLE.to_json(orient="records", lines=True).encode()),
    "t.json": TABLE.to_json(orient="records").encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_finding_17_every_kind_of_file_gives_the_same_table(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = read_table(tmp_path / name)
    pd.testing.assert_frame_equal(table, TABLE, check_dtype=False, rtol=0, atol=0)


def test_what_is_said_about_a_csv_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1;2,a\n3;4,b\n")
    assert read_table(path, sep=";", no_header=True).values.tolist() == [[1, "2,a"], [3, "4,b"]]
    assert read_table(path, no_header=True, sep=",").columns.tolist() == ["0", "1"]
    path.write_text("a  b\n1   2\n3 4\n")
    assert read_table(path, sep="space").values.tolist() == [[1, 2], [3, 4]]
    path.write_text("a\tb\n1,5\t2\n")
    for tab in ("tab", "\\t", "\t"):
        assert read_table(path, sep=tab).values.tolist() == [[1.5, 2]]
    with pytest.raises(ClustPSIError, match="--sep must be one character, tab or space"):
        read_table(path, sep="::")
    TABLE.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ClustPSIError, match="--sep is for CSV files"):
        read_table(tmp_path / "t.parquet", sep=";")


def test_of_two_separators_that_fit_the_one_with_more_cells_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b;size, m\n1;2;3,5\n4;5;6,5\n")
    assert read_table(path).values.tolist() == [[1, 2, 3.5], [4, 5, 6.5]]


def test_a_decimal_comma_is_one_only_where_no_decimal_point_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2.5\n")
    assert read_table(path).values.tolist() == [["1,5", 2.5]]


def test_a_wide_header_and_long_cells_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    names = [f"a column with a long name {i}" for i in range(10_000)]
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    assert read_table(path).columns.tolist() == names
    path.write_text(f"a;b\n1;{'x' * 200_000}\n2;y\n")
    assert read_table(path)["a"].tolist() == [1, 2]


NO_TABLES = {
    "empty.csv": (b"", "is empty"),
    "latin.csv": ("a,b\n1,caf\xe9\n".encode("latin-1"), "is not UTF-8 text"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3\n", "cannot be read as CSV: .*line 3"),
    "long_rows.csv": (b"a,b\n1,2,3\n1,2,3\n", "cannot be read as CSV"),
    "open_quote.csv": (b'a,b\n1,"x\n', "cannot be read as CSV"),
    "twice.csv": (b"a,b, a\n1,2,3\n", "has column 'a' more than once"),
    "no_header.csv": (b"39,x,39\n1,y,2\n", "column '39' more than once.*--no-header"),
    "one_cell.csv": (b"x" * 200_000, "its first line is no line of a table"),
    "program": (b"\x7fELF\x02\x01\x01\x00\x00", "is of no known kind"),
    "cut.csv.gz": (gzip.compress(csv() * 99)[:-9], "is damaged or truncated"),
    "cut.csv.bz2": (bz2.compress(csv())[:-9], "is damaged or truncated"),
    "cut.csv.xz": (lzma.compress(csv())[:-9], "is damaged or truncated"),
    "plain.csv.gz": (csv(), "is damaged or truncated"),
    "plain.csv.xz": (csv(), "is damaged or truncated"),
    "plain.zip": (csv(), "is damaged or truncated"),
    "two.zip": (zipped(("a.csv", csv()), ("b.csv", csv())), r"holds 2 files \(a.csv, b.csv\)"),
    "none.zip": (zipped(), "holds 0 files|damaged"),
    "sheet.xlsx": (zipped(("xl/workbook.xml", b""), ("xl/a.xml", b"")), "is an Excel file: save the sheet as CSV"),
    "text.parquet": (csv(), "cannot be read as Parquet"),
    "cut.parquet": (parquet("snappy")[:-9], "cannot be read as Parquet"),
    "text.arrow": (csv() * 9, "cannot be read as Arrow"),
    "text.jsonl": (csv(), "line 1 is not JSON"),
    "cut.jsonl": (b'{"a": 1}\n{"a": \n', "line 2 is not JSON"),
    "numbers.jsonl": (b"1\n2\n", "row 1 is not a JSON object"),
    "cut.json": (b'[{"a": 1}, ', "cannot be read as JSON"),
    "blank.jsonl": (b"\n\n", "is empty"),
    "arrays.npz": (zipped(("a.npy", b"")), "is an NPZ file of arrays"),
}


@pytest.mark.parametrize("name", NO_TABLES)
def test_finding_33_what_is_no_table_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, sentence = NO_TABLES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ClustPSIError, match=sentence) as caught:
        read_table(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent.csv", "does not exist"),
        ("", "is a folder"),
        ("/dev/null", "is a device or a pipe"),
        ("x" * 300 + ".csv", "cannot be read .*too long"),
        ("a\0.csv", "cannot be read"),
    ],
)
def test_finding_33_what_is_no_file_is_one_sentence(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=f"{sentence}.*a CSV, Parquet, .* is needed"):
        read_table(tmp_path / name)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, lambda content: zipped(("t.csv", content))])
def test_finding_36_a_file_that_unpacks_without_end_is_refused_before_it_fills_the_memory(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_LEAST", 100_000)
    path = tmp_path / "trap"
    path.write_bytes(pack(b"a,b\n" + b"1,2\n" * 1_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ClustPSIError, match=r"unpacks to more than .* unpack it and name the unpacked file"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 12_000_000  # of which lzma's window takes 8
    finally:
        tracemalloc.stop()


def test_a_damaged_arrow_file_never_reaches_into_memory(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(["one", "two", "three"])})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    offsets = np.array([0, 3, 6, 11], np.int32).tobytes()
    assert sink.getvalue().count(offsets) == 1
    path = tmp_path / "t.feather"
    path.write_bytes(sink.getvalue().replace(offsets, np.array([0, 2**30, 6, 11], np.int32).tobytes()))
    with pytest.raises(ClustPSIError, match=r"t\.feather cannot be read as Arrow"):
        read_table(path)


def test_an_index_that_was_saved_with_the_table_is_its_index(tmp_path: Path) -> None:
    TABLE.set_index("note").to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").index.tolist() == TABLE["note"].tolist()


def test_decimals_and_bytes_are_numbers_and_texts(tmp_path: Path) -> None:
    table = pa.table(
        {
            "price": pa.array([1, 2, None], pa.int64()).cast(pa.decimal128(30, 2)),
            "name": pa.array([b"a", b"b", b"c"]),
            "image": pa.array([b"\xff\xd8", b"b", b"c"]),
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame["price"].tolist()[:2] == [1.0, 2.0] and frame["name"].tolist() == ["a", "b", "c"]
    assert frame["image"].tolist() == [b"\xff\xd8", b"b", b"c"]


def test_a_long_column_of_digits_and_a_letter_is_quick(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + f"{'1' * 60_000}x,0\n" * 3)
    start = time.monotonic()
    assert read_column(read_table(path)["a"], "a").column.kind == "constant"
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".jsonl", ".csv", ".csv.gz"])
def test_pieces_are_the_table(suffix: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"code": ["01", "2", "x", "03"] * 3, "number": np.arange(12)})
    path = tmp_path / f"table{suffix}"
    if suffix in (".parquet", ".feather"):
        (frame.to_parquet if suffix == ".parquet" else frame.to_feather)(path)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    pieces = list(read_pieces(path, 5, texts={"code"}))
    assert [len(piece) for piece, _ in pieces] == [5, 5, 2]
    assert pd.concat([piece for piece, _ in pieces]).equals(frame.astype(pieces[0][0].dtypes))
    assert [share for _, share in pieces] == sorted(share for _, share in pieces) and pieces[-1][1] == 1
    only = [list(piece) for piece, _ in read_pieces(path, 5, only={"code"})]
    assert suffix in (".feather", ".jsonl") or only == [["code"]] * 3


def test_pieces_have_the_columns_of_a_saved_index(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2, 3]}, index=pd.Index(list("xyz"), name="site")).to_parquet(tmp_path / "t.parquet")
    pieces = [piece for piece, _ in read_pieces(tmp_path / "t.parquet", 2)]
    assert [piece["site"].tolist() for piece in pieces] == [["x", "y"], ["z"]]
    assert [piece.index.tolist() for piece in pieces] == [[0, 1], [2]]


GERMAN = "einwohner;temp;y\n999;0,5;a\n1.500;0,7;b\n2.500;1,5;a\n12.000;2,5;b\n"


def numbers_of_column(path: Path, column: str) -> tuple[list[float], str]:
    frame = read_table(path)
    typed = read_column(frame[column], column, points=frame.attrs.get("points"))
    assert isinstance(typed, Numbers)
    return typed.values.tolist(), typed.column.detail


def test_points_before_thousands_are_no_decimal_points_beside_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(GERMAN)
    assert read_table(path)["temp"].tolist() == [0.5, 0.7, 1.5, 2.5]
    values, detail = numbers_of_column(path, "einwohner")
    assert values == [999, 1500, 2500, 12000] and "written like '1.500'" in detail
    path.write_text(GERMAN.replace("2.500;", "?;"))
    values, detail = numbers_of_column(path, "einwohner")
    assert np.nan_to_num(values).tolist() == [999, 1500, 0, 12000] and "1 gap written '?'" in detail


@pytest.mark.parametrize("other", ["0,5;2.25", "5;7"])
def test_points_that_may_mean_either_are_told(other: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"n;a;b\n999;{other}\n1.500;{other}\n12.000;{other}\n")
    values, detail = numbers_of_column(path, "n")
    assert values == [999, 1.5, 12] and detail == "'1.500' read as 1.5; if it means 1500, write it so"


def test_points_of_decimals_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n;a\n1.500;2.25\n2.125;3.5\n")
    assert read_table(path).to_numpy().tolist() == [[1.5, 2.25], [2.125, 3.5]]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_digits_with_a_leading_zero_are_codes_wherever_they_stand(ending: str, encoding: str, tmp_path: Path) -> None:
    rows = [f"{10 + row},0.5,{row},00:30" for row in range(20_000)]
    plain, path = tmp_path / "plain.csv", tmp_path / "t.csv"
    plain.write_text(ending.join(["a,b,c,t", *rows, ""]), encoding=encoding)
    assert [dtype.kind for dtype in read_table(plain).dtypes[:3]] == ["i", "f", "i"]
    for place in (0, 15_000, 19_999):
        for cell, beside in (("007", "007"), (' "007" ', "007"), ("0", 0)):
            there = [*rows[:place], f"{cell},0.5,01.5,00:30", *rows[place + 1 :]]
            path.write_text(ending.join(["a,b,c,t", *there]), encoding=encoding)
            frame = read_table(path)
            assert frame["a"][place] == beside and frame["a"][1] == ("11" if beside else 11)
            assert frame["c"][place] == 1.5 and frame["b"].tolist() == [0.5] * len(rows)


def test_codes_are_found_without_a_header_and_in_a_file_of_any_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("5,007\n8,9\n")
    assert read_table(path, no_header=True).to_dict("list") == {"0": [5, 8], "1": ["007", "9"]}
    for sep in (";", "|", "\t", " ", "x"):
        path.write_text("a,b,\n007,1,\n8,2,\n".replace(",", sep))
        assert read_table(path, sep=sep).iloc[:, :2].to_dict("list") == {"a": ["007", "8"], "b": [1, 2]}


def test_blanks_around_texts_are_not_part_of_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b,c\ncat ,x, 1 \n cat,"y ",2\n NA ,x , NA \n')
    table = pd.DataFrame({"a": ["cat", "cat", None], "b": ["x", "y", "x"]})
    pd.testing.assert_frame_equal(read_table(path)[["a", "b"]], table, check_dtype=False)
    assert np.nan_to_num(numbers_of_column(path, "c")[0]).tolist() == [1, 2, 0]
    ((piece, _),) = read_pieces(path, 9, texts={"a", "b"})
    assert piece["a"].tolist() == ["cat", "cat", "NA"] and piece["b"].tolist() == ["x", "y", "x"]


def test_a_name_is_empty_only_where_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\nNA,NA\nNone,None\n,x\n")
    frame = read_table(path, names=["a"])
    assert frame["a"].tolist()[:2] == ["NA", "None"] and frame.isna().to_numpy().sum(axis=0).tolist() == [1, 2]
    assert read_table(path, names=None)["b"].tolist() == ["NA", "None", "x"]


@pytest.mark.parametrize("text", ["a,b,\n1,x,\n2,y,\n", "a,b\n1,x,\n2,y,\n", "a,b,,\n1,x,,\n2,y,,\n"])
def test_separators_at_the_end_of_lines_make_no_column(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert read_table(path).to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}
    ((piece, _),) = read_pieces(path, 9)
    assert piece.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_cells_beyond_the_header_are_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,x,\n" * 300 + "2,y,z\n")
    with pytest.raises(ClustPSIError, match="cannot be read as CSV: its lines have more cells than the first line"):
        read_table(path)


@pytest.mark.parametrize(
    ("title", "cells"),
    [("Counts of 2020", "1 cell"), ("# made by hand, 2020", "2 cells"), ("Counts;;", "1 cell"), ("# a|b", "1 cell")],
)
def test_a_title_above_the_header_is_one_sentence(title: str, cells: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    sep = "," if "," in title else ";"
    path.write_text(f"{title}\nsite;cat;dog\nA;1;2\nB;3;4\n".replace(";", sep))
    with pytest.raises(ClustPSIError, match=f"line 1 has {cells} and the lines below have 3, .* take it out"):
        read_table(path)


def test_lines_of_another_length_are_told_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(ClustPSIError, match=r"cannot be read as CSV: line 3 has 3 cells, and the first line 2$"):
        read_table(path)
