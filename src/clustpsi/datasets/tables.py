"""The user's own data: a table in a file or a data frame, an NPZ file, or arrays.

Columns: numbers (dates among them, as days) are standardized (mean 0, variance 1), with a column that marks gaps where
the training rows have any; everything else is a category and becomes one column for each of its 50 most frequent
values, missing included, and one for all the others. Columns that name rows are omitted. Columns named as text are
joined and replace all other features.

Models: text takes ``embedding_mlp``; grey images ``fmnist_cnn``, colour images ``cifar_cnn``; tables ``mlp``, or
``logistic`` for fewer than 2,000 rows, which the half million weights of ``mlp`` would memorize.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.datasets.base import ClientIds, Dataset
from clustpsi.datasets.files import check_file, check_header, reading, too_large, unpacked_limit, user_path
from clustpsi.datasets.labels import (
    MAX_CLASSES,
    Labels,
    Name,
    Parts,
    assign_parts,
    check_number,
    column_names,
    read_clients,
    read_labels,
)
from clustpsi.datasets.table_files import NEEDED, POINTS, kind_of, read_table
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.features import (
    ArrayFeatures,
    ArrayRows,
    Features,
    Kinds,
    Rows,
    TableFeatures,
    TableRows,
    TextFeatures,
    TextRows,
)
from clustpsi.features.columns import Categories, Column, Numbers, Omitted, read_column
from clustpsi.features.table import CategoryColumn, FittedTable, NumberColumn
from clustpsi.features.written import PLAIN, Form

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 50
SMALL_TABLE = 2_000
LENGTH = 100
TOLD = 5  # omitted columns that are named one by one


@dataclass(frozen=True)
class Made:
    """Rows, what is to be learned from them, and the model that suits them."""

    rows: Rows
    features: Features[Any, Any]
    model: str
    reason: str

    def dataset(self, name: str, labels: NDArray[np.int32], classes: tuple[str, ...], **more: Any) -> Dataset:
        return Dataset(name, labels, classes, self.rows, self.features, self.model, model_reason=self.reason, **more)


def from_table(
    table: "pd.DataFrame | str | Path",
    *,
    label: Name | None,
    client: Name | None = None,
    text: Name | Sequence[Name] = (),
    drop: Name | Sequence[Name] = (),
    drop_unlabelled: bool = False,
    min_class: int | None = None,
    sep: str | None = None,
    no_header: bool = False,
    name: str | None = None,
    is_part: bool = False,
    like: TableFeatures | None = None,
) -> Dataset:
    """A dataset from a data frame or from a file.

    Parameters
    ----------
    table
        The data: a data frame; a CSV, Parquet, Feather, Arrow or JSON lines file; or an NPZ file that holds one array
        ``features`` (or a single array besides label and client).
    label
        The column (NPZ: the array) with the class of every row.
    client
        The column that names the client that a row belongs to; it is not a feature.
    text
        Columns of free text.
    drop
        Columns that are not used.
    drop_unlabelled
        Omit rows without a label, which are an error otherwise.
    min_class
        Merge classes with fewer samples than this into one, "other".
    sep
        What separates the cells of a CSV file: a character, "tab" or "space"; by default it is detected.
    no_header
        The first line of a CSV file is data; the columns are called 0, 1, 2, ...
    name
        Name of the data set; by default the file's name.
    is_part
        Whether it is one client's part of more, which may have a single class, or one row of a class.
    like
        Features whose columns it must have, read as numbers and categories as these say; by default what a column is
        is found out.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"wing": [1.0, 2.0, 3.0, 9.0], "sex": ["f", "m", "f", None], "species": list("aabb")})
    >>> dataset = from_table(frame, label="species")
    >>> dataset.class_names, dataset.model, dataset.prepare(np.arange(3)).shape
    (('a', 'b'), 'logistic', (4, 4))
    """
    path = user_path(table) if isinstance(table, str | Path) else None
    if label is None:
        raise ClustPSIError(
            f"{path or 'the table'} needs the name of its label column: give --label (label= in Python)"
        )
    labels: dict[str, Any] = {"drop_unlabelled": drop_unlabelled, "min_class": min_class, "is_part": is_part}
    if path is not None and kind_of(path) == "npz":
        if sep is not None or no_header or text or drop:
            raise ClustPSIError(f"{path} is an NPZ file of arrays: sep, no_header, text and drop are for tables")
        return _from_npz(path, name or path.name, str(label), None if client is None else str(client), labels)
    if path is not None:
        named = {str(each) for each in (label, client) if each is not None} | set(column_names(text))
        frame = read_table(path, names=named, sep=sep, no_header=no_header)
    elif sep is None and not no_header:
        frame = cast("pd.DataFrame", table)
    else:
        raise ClustPSIError("sep and no_header say how a CSV file is read, and a data frame has been read already")
    where = name or "the table" if path is None else str(path)
    frame, parts = assign_parts(frame, where, label=label, client=client, text=text, drop=drop, is_part=is_part)
    return _from_frame(frame, name or ("table" if path is None else path.name), where, parts, labels, like)


def from_arrays(
    features: ArrayLike,
    labels: ArrayLike,
    clients: ArrayLike | None = None,
    *,
    drop_unlabelled: bool = False,
    min_class: int | None = None,
    name: str = "arrays",
    is_part: bool = False,
) -> Dataset:
    """A dataset from arrays: numbers (N, d), images (N, H, W) or (N, H, W, channels), or N texts.

    Images are uint8, 0 to 255. ``drop_unlabelled``, ``min_class`` and ``is_part`` are those of :func:`from_table`.

    Examples
    --------
    >>> dataset = from_arrays(np.zeros((4, 28, 28), np.uint8), [0, 1, 1, 0])
    >>> dataset.model, dataset.prepare(np.arange(4)).shape
    ('fmnist_cnn', (4, 28, 28, 1))
    """
    try:
        values = np.asarray(features)
    except ValueError:
        raise ClustPSIError(f"{name} has rows of features of different lengths: all must have the same") from None
    if values.ndim == 0:
        raise ClustPSIError(f"{name} has a single value for features: one row of them per label is needed")
    rows = len(values)
    found = read_labels(labels, "the labels", name, drop_unlabelled=drop_unlabelled, min_class=min_class)
    given = len(np.asarray(labels))
    if rows != given:
        raise ClustPSIError(f"{name} has {rows} rows of features but {given} labels")
    _check_classes(found, "the labels", name, is_part)
    for note in found.notes:
        warn(note, ClustPSIWarning, stacklevel=2)
    client_ids = None
    if clients is not None:
        codes, names = read_clients(clients, "the clients", name)
        if len(codes) != given:
            raise ClustPSIError(f"{name} has {given} labels but {len(codes)} client names")
        client_ids = ClientIds.sorted(codes[found.kept], names)
    values = values[found.kept] if len(found.kept) < rows else values
    if values.ndim > 1 and 0 in values.shape[1:]:
        raise ClustPSIError(f"{name} has features of shape {values.shape}: every row is empty")
    if values.ndim == 1 and values.dtype.kind in "UTO":
        made = _text(values.tolist())
    elif values.ndim == 2 and values.dtype.kind in "biuf":
        _refuse_infinite(values, [f"feature {index}" for index in range(values.shape[1])], found.kept, name)
        made = _numbers(values, [(str(index), PLAIN) for index in range(values.shape[1])], [], ...)
    elif values.ndim in (3, 4):
        made = _images(values, name)
    else:
        raise ClustPSIError(
            f"{name} has features of shape {values.shape} and type {values.dtype}: numbers (rows, columns), "
            "images (rows, height, width[, channels]) or texts (rows,) are needed"
        )
    return made.dataset(name, found.codes, found.names, client_ids=client_ids)


def _from_npz(path: Path, name: str, label: str, client: str | None, options: dict[str, Any]) -> Dataset:
    with open_arrays(path) as arrays:
        named = [label] if client is None else [label, client]
        check_header(path, list(arrays), named)
        chosen = features_array(path, list(arrays), named)
        clients = None if client is None else arrays[client]
        return from_arrays(arrays[chosen], arrays[label], clients, name=name, **options)


@contextmanager
def open_arrays(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of an NPZ file, each read when it is asked for."""
    check_file(path, NEEDED)
    with reading(path, "NPZ"):
        with zipfile.ZipFile(path) as archive:
            size, limit = sum(each.file_size for each in archive.infolist()), unpacked_limit(path.stat().st_size)
        if size > limit:
            raise too_large(path, limit)
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays


def features_array(path: Path, names: Sequence[str], named: Sequence[str]) -> str:
    """Which of a file's arrays holds the features, where some are named for something else."""
    others = [key for key in names if key not in named]
    chosen = "features" if "features" in others else others[0] if len(others) == 1 else None
    if chosen is None or len(set(named)) < len(named):
        raise ClustPSIError(
            f"{path} needs different arrays for features and label (and client), and one called 'features' where there "
            f"are more (arrays: {', '.join(names)})"
        )
    return chosen


def _from_frame(
    frame: "pd.DataFrame",
    name: str,
    where: str,
    parts: Parts,
    options: dict[str, Any],
    like: TableFeatures | None,
) -> Dataset:
    assert parts.label is not None
    what = f"column {parts.label!r}"
    is_part = options.pop("is_part")
    labels = read_labels(frame[parts.label], what, where, **options)
    _check_classes(labels, what, where, is_part)
    notes = [*labels.notes]
    rows = labels.kept
    of_label = Column(parts.label, "label", f"{len(labels.names)} classes")
    columns = {parts.label: of_label} | {each: Column(each, "dropped") for each in parts.drop}
    client_ids = None
    if parts.client is not None:
        client_ids = ClientIds.sorted(*read_clients(frame[parts.client].iloc[rows], f"column {parts.client!r}", where))
        columns[parts.client] = Column(parts.client, "client", f"{len(client_ids.names):,} clients")
    rest = [column for column in frame.columns if column not in parts.columns]
    if parts.text:
        columns |= {each: Column(each, "text") for each in parts.text} | {each: Column(each, "unused") for each in rest}
        texts = frame[list(parts.text)].iloc[rows].astype(object).fillna("").astype(str).agg(" ".join, axis=1)
        made = _text(texts.tolist())
        if rest:
            made = replace(made, reason=f"{made.reason}; {len(rest)} other columns are not used")
    elif like is not None:
        made = _like(frame.iloc[rows], like, where)
        columns |= {each: Column(each, "number") for each in like.numbers}
        columns |= {each: Column(each, "category") for each in like.categories}
        columns |= {each: Column(each, "unused") for each in rest if each not in columns}
    else:
        first, points = frame.columns[0], frame.attrs.get(POINTS)
        typed = {each: read_column(frame[each], each, is_first=each == first, points=points) for each in rest}
        columns |= {each: column.column for each, column in typed.items()}
        omitted = _told(where, [column for column in typed.values() if isinstance(column, Omitted)])
        numbers = [column for column in typed.values() if isinstance(column, Numbers)]
        categories = [column for column in typed.values() if isinstance(column, Categories)]
        if not numbers and not categories:
            why = "".join(f" ({note.removeprefix(f'{where}: ')})" for note in omitted)
            raise ClustPSIError(f"{where} has no feature column besides {', '.join(map(repr, parts.columns))}{why}")
        notes += omitted
        values = np.column_stack([np.empty((len(rows), 0)), *(column.values[rows] for column in numbers)])
        _refuse_infinite(values, [f"column {column.column.name!r}" for column in numbers], rows, where)
        made = _numbers(values, [(column.column.name, column.form) for column in numbers], categories, rows)
    for note in notes:
        warn(note, ClustPSIWarning, stacklevel=3)
    described = tuple(columns[each] for each in frame.columns)
    return made.dataset(name, labels.codes, labels.names, client_ids=client_ids, columns=described)


def _check_classes(labels: Labels, what: str, where: str, is_part: bool) -> None:
    """Refuse labels that cannot be learnt."""
    classes = len(labels.names)
    if classes < 2 and not is_part:
        raise ClustPSIError(f"{where}, {what} has {classes} different values: a label needs at least two")
    if not is_part or classes > MAX_CLASSES:
        check_number(labels, what, where)
    counts = np.bincount(labels.codes)
    if counts.min() < 2 and not is_part:
        alone = int(counts.argmin())
        row = labels.kept[(labels.codes == alone).argmax()] + 1
        merge = "" if labels.is_merged else ", or merge rare classes with --min-class (min_class= in Python)"
        raise ClustPSIError(
            f"{where}, {what}: class {labels.names[alone]!r} has only one sample (row {row}): add samples or take it "
            f"out{merge}"
        )


def _told(where: str, omitted: Sequence[Omitted]) -> list[str]:
    """A note about omitted columns, if there are any."""
    if not omitted:
        return []
    shown = [f"{each.column.name!r} ({each.column.kind}: {each.column.detail})" for each in omitted[:TOLD]]
    shown += [f"and {len(omitted) - TOLD:,} more"] if len(omitted) > TOLD else []
    hint = "; what is text, name with --text (text= in Python)" if any(each.may_be_text for each in omitted) else ""
    return [f"{where}: {'column' if len(omitted) == 1 else 'columns'} omitted: {', '.join(shown)}{hint}"]


def _refuse_infinite(values: NDArray[Any], columns: Sequence[str], rows: NDArray[np.int64], where: str) -> None:
    found, indices = np.nonzero(np.isinf(values))
    if found.size:
        row = rows[found[0]] + 1
        raise ClustPSIError(f"{where}, {columns[indices[0]]} is infinite in row {row}: leave the cell empty")


def _numbers(
    numbers: NDArray[Any], named: Sequence[tuple[str, Form]], categories: Sequence[Categories], kept: Any
) -> Made:
    """Features of typed columns; those of numbers by their names and forms."""
    kinds = tuple(Kinds(each.codes[kept], each.kinds) for each in categories)
    features = TableFeatures(
        tuple(name for name, _ in named),
        tuple(each.column.name for each in categories),
        marks_gaps=True,
        most_kinds=MAX_CATEGORIES,
        forms=tuple(form for _, form in named),
    )
    return Made(TableRows(numbers, kinds), features, *model_of_table(features, len(numbers)))


def _like(frame: "pd.DataFrame", features: TableFeatures, where: str) -> Made:
    """Features of columns whose kinds are known."""
    forms = features.forms or (PLAIN,) * len(features.numbers)
    numbers = tuple(
        NumberColumn(name, 0.0, 1.0, False, form) for name, form in zip(features.numbers, forms, strict=True)
    )
    read = FittedTable(numbers, tuple(CategoryColumn(name, ()) for name in features.categories)).read(frame, where)
    return Made(read, features, *model_of_table(features, len(read)))


def model_of_table(features: TableFeatures, rows: int) -> tuple[str, str]:
    """The model that suits so many rows of a table, and why."""
    reason = f"{len(features.numbers)} numeric and {len(features.categories)} categorical columns"
    if rows < SMALL_TABLE:
        return "logistic", f"{reason}, fewer than {SMALL_TABLE:,} rows"
    return "mlp", reason


def _text(texts: list[str]) -> Made:
    return Made(TextRows.of(texts), TextFeatures(LENGTH), "embedding_mlp", "text")


def _images(values: NDArray[Any], where: str) -> Made:
    images = values[..., None] if values.ndim == 3 else values
    channels = images.shape[3]
    if images.dtype != np.uint8 or channels not in (1, 3):
        raise ClustPSIError(
            f"{where} has images of type {images.dtype} with {channels} channels: uint8 with 1 or 3 is needed"
        )
    model, reason = ("fmnist_cnn", "grey images") if channels == 1 else ("cifar_cnn", "colour images")
    return Made(ArrayRows(images), ArrayFeatures(images.shape[1:], "uint8"), model, reason)
