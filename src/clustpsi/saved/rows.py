"""Predictions for the rows of a file, piece by piece: memory does not grow with the number of rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clustpsi.datasets.counts import read_counts
from clustpsi.datasets.files import check_header
from clustpsi.datasets.labels import OTHER, read_labels
from clustpsi.datasets.table_files import kind_of, read_pieces
from clustpsi.datasets.tables import features_array, open_arrays
from clustpsi.errors import ClustPSIError, nearest
from clustpsi.features import FittedTable, FittedText
from clustpsi.features.columns import known_name
from clustpsi.saved.model import NOBODY, Counts, SavedModel

# Limits of a piece: rows, and numbers that its rows become as features.
MOST_ROWS, LEAST_ROWS, MOST_NUMBERS = 2**17, 2**10, 2**24
# Most names among which a similar name is searched, for a hint.
FEW_NAMES = 10_000


@dataclass(frozen=True)
class Reading:
    """A file of rows, and how to read it.

    Attributes
    ----------
    path
        A table, or an NPZ file of arrays.
    client
        A column that names the client of each row, or one client for all rows.
    label
        The column of labels; by default the one that the model was trained with, if the file has it.
    text
        Columns of text; by default those that the model was trained with.
    ignore_label
        Whether labels are ignored.
    sep, no_header
        As for :func:`clustpsi.datasets.table_files.read_table`.
    """

    path: Path
    client: str | None = None
    label: str | None = None
    text: tuple[str, ...] = ()
    ignore_label: bool = False
    sep: str | None = None
    no_header: bool = False


@dataclass(frozen=True)
class Piece:
    """Some of a file's rows: the data of the features, the other columns, and the share of the file read so far."""

    rows: Any
    columns: Mapping[str, "pd.Series[Any]"]
    start: int
    share: float


@dataclass(frozen=True)
class Predicted:
    """Predictions for the rows of one piece.

    Attributes
    ----------
    start
        Number of the first row, from 0.
    client_names, client_of_row
        Names of clients, and the position of each row's client in them; no names if the clients are unknown.
    classes
        Class of each row, as a position in the model's class names.
    probabilities
        (rows, C), if asked for.
    share
        Share of the file that has been read.
    """

    start: int
    client_names: tuple[str, ...]
    client_of_row: NDArray[np.int64]
    classes: NDArray[np.int32]
    probabilities: NDArray[np.float32] | None
    share: float


@dataclass
class Tally:
    """Totals over all rows, once they are predicted.

    Attributes
    ----------
    rows, right
        Number of rows, and how many were predicted correctly (None without labels).
    strange
        Number of rows whose label is not a class of the model.
    clients, new, without
        Names of all clients, of the new ones, which did not take part, and of the new ones without label counts.
    """

    rows: int = 0
    right: int | None = None
    strange: int = 0
    clients: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)


class FilePrediction:
    """Predicts the rows of a file.

    Parameters
    ----------
    model
        The model.
    reading
        The file, and how to read it.
    counts
        A table with the label counts of clients that did not take part: one row per client and one column per class.
    probabilities
        Whether probabilities are wanted.
    watch
        Called with the name of the current step and the share of it that is done.
    """

    def __init__(
        self,
        model: SavedModel,
        reading: Reading,
        *,
        counts: Path | None = None,
        probabilities: bool = False,
        watch: Callable[[str, float], None] = lambda what, share: None,
    ) -> None:
        self.model, self.reading, self.watch = model, reading, watch
        self.probabilities = probabilities
        self.where = str(reading.path)
        self.tally = Tally()
        self.notes: list[str] = []
        if reading.text and not isinstance(model.features, FittedText):
            raise ClustPSIError("--text is for models of texts, and this model reads other features: leave it away")
        self._is_npz = kind_of(reading.path) == "npz"
        columns = self._columns()
        self._label = self._label_column(columns)
        given = {} if counts is None else self._read_counts(counts)
        self._client, self._client_column = self._whose(columns, given)
        self._counts: Counts = {**self._counted(), **given}

    def __iter__(self) -> Iterator[Predicted]:
        model, tally = self.model, self.tally
        tally.right = None if self._label is None else 0
        for piece in self._pieces():
            features = model.read(piece.rows, self.where, without=self._no_features, text=self.reading.text)
            codes, names = self._clients(piece, len(features))
            deployment = model.serve(names, self._counts)
            classes = model.predictor.classes(features, deployment, codes)
            found = model.predictor.probabilities(features, deployment, codes) if self.probabilities else None
            self._count(piece, classes, names)
            self.watch("predicting", piece.share)
            shown = () if names == [NOBODY] else tuple(names)
            yield Predicted(piece.start, shown, codes, classes, found, piece.share)

    def _count(self, piece: Piece, classes: NDArray[np.int32], names: list[str]) -> None:
        tally, model = self.tally, self.model
        tally.rows += len(classes)
        new = [name for name in names if name not in model.place_of]
        tally.clients.update(names)
        tally.new.update(new)
        tally.without.update(name for name in new if name not in self._counts)
        if self._label is not None:
            actual = self._labels(piece)
            tally.strange += int((actual < 0).sum())
            tally.right = (tally.right or 0) + int((actual == classes).sum())

    # ----------------------------------------------------------------------------------------------------- reading

    def _columns(self) -> list[str]:
        """Names of the file's columns, or of its arrays."""
        if self._is_npz:
            with open_arrays(self.reading.path) as arrays:
                return list(arrays)
        pieces = read_pieces(self.reading.path, 1, sep=self.reading.sep, no_header=self.reading.no_header)
        frame, _ = next(pieces)
        return [str(name) for name in frame.columns]

    @property
    def _no_features(self) -> tuple[str, ...]:
        return tuple(name for name in (self._label, self._client_column) if name is not None)

    def _pieces(self, only: set[str] | None = None) -> Iterator[Piece]:
        size = int(np.prod(self.model.architecture.input_shape))
        rows = int(np.clip(MOST_NUMBERS // max(size, 1), LEAST_ROWS, MOST_ROWS))
        if self._is_npz:
            yield from self._array_pieces(rows)
            return
        reading, features = self.reading, self.model.features
        texts = {*self._no_features, *reading.text, *self.model.parts.text}
        if isinstance(features, FittedTable):
            texts |= {column.name for column in features.categories}
        start = 0
        for frame, share in read_pieces(
            reading.path, rows, texts=texts, only=only, sep=reading.sep, no_header=reading.no_header
        ):
            named = frame.set_axis([str(name) for name in frame.columns], axis=1)
            yield Piece(named, {name: named[name] for name in self._no_features}, start, share)
            start += len(frame)

    def _array_pieces(self, rows: int) -> Iterator[Piece]:
        path = self.reading.path
        with open_arrays(path) as arrays:
            chosen = features_array(path, list(arrays), self._no_features)
            features, named = arrays[chosen], {name: arrays[name] for name in self._no_features}
        lengths = {name: len(array) if array.ndim else 0 for name, array in {chosen: features, **named}.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise ClustPSIError(f"{path} has arrays of different lengths ({told}): one line per row is needed")
        if not lengths[chosen]:
            raise ClustPSIError(f"{path} has no rows")
        for start in range(0, len(features), rows):
            index = pd.RangeIndex(start, min(start + rows, len(features)))
            columns = {name: pd.Series(list(array[start : start + rows]), index) for name, array in named.items()}
            yield Piece(features[start : start + rows], columns, start, index.stop / len(features))

    # ------------------------------------------------------------------------------------------------------ labels

    def _label_column(self, columns: list[str]) -> str | None:
        """The column of labels, if the file has one and it is not ignored."""
        asked, trained = self.reading.label, self.model.parts.label
        if self.reading.ignore_label:
            return None
        if asked is not None:
            check_header(self.where, columns, [asked])
            return asked
        return trained if trained in columns else None

    def _labels(self, piece: Piece) -> NDArray[np.int32]:
        """The class of each row; -1 for a class that the model does not know."""
        assert self._label is not None
        try:
            labels = read_labels(piece.columns[self._label], f"column {self._label!r}", self.where)
        except ClustPSIError as error:
            if "--drop-unlabelled" not in str(error):
                raise
            reason = str(error).partition(":")[0]
            raise ClustPSIError(
                f"{reason}: give every row its label, take the column out, or leave it aside with --ignore-label"
            ) from None
        classes = self.model.class_names
        place = {name: at for at, name in enumerate(classes)}
        merged = place[OTHER] if self.model.config.get("min_class") and OTHER in place else -1
        codes = [place.get(known_name(name, place), merged) for name in labels.names]
        return np.array(codes, np.int32)[labels.codes]

    # ----------------------------------------------------------------------------------------------------- clients

    def _whose(self, columns: list[str], given: Counts) -> tuple[str | None, str | None]:
        """One client for all rows, or the column that names each row's client."""
        asked, model = self.reading.client, self.model
        if asked is None:
            column = model.parts.client if model.parts.client in columns else None
            if column is not None:
                self.notes.append(f"clients are those of the column {column!r}, as in training")
            return None, column
        if asked in columns:
            model.refuse_ambiguous(asked)
            return None, asked
        name = known_name(asked, model.place_of)
        if name in model.place_of or name in given:
            return name, None
        names = model.client_names if len(model.client_names) <= FEW_NAMES else ()
        near = nearest(asked, [*columns, *names, *given])
        if near is None and self._label is not None:
            self.notes.append(f"{asked!r} is no client of the federation: its label counts are those of these rows")
            return name, None
        hint = near or "leave --client away for rows of a client that was not there, or give its --counts"
        raise ClustPSIError(f"{self.where} has no column {asked!r} and the model no client of that name: {hint}")

    def _clients(self, piece: Piece, number: int) -> tuple[NDArray[np.int64], list[str]]:
        if self._client_column is None:
            return self.model.clients_of(self._client, number)
        return self.model.clients_of(
            piece.columns[self._client_column], number, f"{self.where}, column {self._client_column!r}"
        )

    def _read_counts(self, path: Path) -> Counts:
        """Label counts from a table, by client name."""
        table = read_counts(path)
        frame = pd.DataFrame(table.counts, columns=list(table.classes))
        try:
            counts = self.model.counts_table(frame)
        except ClustPSIError as error:
            raise ClustPSIError(f"{path}: {error}") from None
        known = [name for name in table.clients if known_name(name, self.model.place_of) in self.model.place_of]
        if known:
            more = f" and {len(known) - 1:,} more" if len(known) > 1 else ""
            self.notes.append(f"{path}: client {known[0]!r}{more} took part, and is served as it was then")
        return dict(zip(table.clients, counts, strict=True))

    def _counted(self) -> dict[str, NDArray[np.int64]]:
        """Label counts of clients that did not take part, from the labels of the file."""
        model = self.model
        alone = self._client is not None and self._client in model.place_of
        if self._label is None or alone or not model.newcomers.uses_counts:
            return {}
        counts: dict[str, NDArray[np.int64]] = {}
        for piece in self._pieces(only=set(self._no_features)):
            actual = self._labels(piece)
            codes, names = self._clients(piece, len(actual))
            kept = actual >= 0
            shape = len(names), len(model.class_names)
            cells = np.bincount(codes[kept] * shape[1] + actual[kept], minlength=shape[0] * shape[1]).reshape(shape)
            for name, own in zip(names, cells, strict=True):
                if name not in model.place_of and own.any():
                    counts[name] = counts.get(name, 0) + own
            self.watch("counting labels", piece.share)
        return counts
