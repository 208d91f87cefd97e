"""Sentiment140: is a tweet's mood negative or positive? 1.6 million tweets, labelled by their emoticons.

Go, Bhayani, Huang: Twitter sentiment classification using distant supervision. 2009.

Layouts: the official ``training.1600000.processed.noemoticon.csv`` (Latin-1, or UTF-8 where somebody saved it again; no
header: target, id, date, query, user, text), or ``tweets.parquet`` with the columns label and text. Label: 0 is
negative, 4 is positive. The paper's third class (neutral) exists in the 498 tweets of the manual test file only, so
there are two here.

Features: @names become "user" and links become "url" (the usual normalisation of this set), lower case, words of
letters, digits and apostrophes; the 10,000 most frequent words of the training rows; the first 30 words (99.6 % of
the tweets are shorter).
"""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import check_header, find, missing, open_binary, reading
from clustpsi.errors import ClustPSIError
from clustpsi.features import TextFeatures, TextRows
from clustpsi.features.words import split_words

if TYPE_CHECKING:
    import pyarrow as pa

CSV = "training.1600000.processed.noemoticon.csv"
COLUMNS = ["target", "id", "date", "query", "user", "text"]
LENGTH = 30


def load(folder: Path) -> Dataset:
    path = find(folder, CSV) or find(folder, "tweets.parquet")
    if path is None:
        raise missing(folder, CSV, "tweets.parquet")
    arrays = cached(folder, [path], 2, lambda: _parse(path))
    return Dataset(
        "sent140",
        np.asarray(arrays["labels"]),
        ("negative", "positive"),
        TextRows(arrays["ids"], arrays["starts"], arrays["words"], is_ranked=True),
        TextFeatures(LENGTH),
        model="lstm",
        model_reason="the paper's model for Sent140",
    )


def _parse(path: Path) -> Arrays:
    import pyarrow.compute as pc

    labels: list[NDArray[np.int32]] = []

    def texts() -> "Iterator[pa.Array]":
        rows = 0
        for batch in _parquet(path) if path.suffix == ".parquet" else _official(path):
            targets = batch.column(0).to_numpy(zero_copy_only=False)
            strange = np.flatnonzero((targets != 0) & (targets != 4))
            if strange.size:
                row = rows + strange[0] + 1
                raise ClustPSIError(f"{path}, row {row}: label {targets[strange[0]]} is neither 0 nor 4")
            labels.append((targets == 4).astype(np.int32))
            rows += len(targets)
            named = pc.replace_substring_regex(batch.column(1), r"@\w+", " user ")
            yield pc.replace_substring_regex(named, r"(https?://|www\.)\S+", " url ")

    with reading(path, "Sentiment140 tweets"):
        words = split_words(texts())
    if not labels:
        raise ClustPSIError(f"{path} holds no tweet")
    return {"labels": np.concatenate(labels), **words}


def _parquet(path: Path) -> "Iterator[pa.RecordBatch]":
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        check_header(path, file.schema_arrow.names, ("label", "text"))
        yield from file.iter_batches(columns=["label", "text"])


def _official(path: Path) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    from pyarrow import csv

    with csv.open_csv(
        path,
        read_options=csv.ReadOptions(column_names=COLUMNS, encoding=_encoding(path), block_size=16 << 20),
        convert_options=csv.ConvertOptions(
            include_columns=["target", "text"], column_types={"target": pa.int64(), "text": pa.string()}
        ),
    ) as reader:
        yield from reader


def _encoding(path: Path) -> str:
    """UTF-8 if the whole file is, else Latin-1, which any bytes are; a file that ends within a cell is refused."""
    decoder, encoding = codecs.getincrementaldecoder("utf-8")(), "utf8"
    first, last = b"", b""
    with open_binary(path) as file:
        while piece := file.read(1 << 20):
            first, last = first or piece[:1], (last + piece)[-8:].rstrip()
            if encoding == "utf8":
                try:
                    decoder.decode(piece)
                except UnicodeDecodeError:
                    encoding = "latin1"
    if first == b'"' and not last.endswith(b'"'):
        raise ClustPSIError(f"{path} ends in the middle of a tweet: it is truncated, fetch it again")
    return encoding
