"""The user's own data: a CSV or Parquet table, an NPZ file, a data frame, or arrays.

Columns: numbers are standardized (mean 0, variance 1), with a column that marks missing values where the training rows
have any; everything else is a category and becomes one column for each of its 50 most frequent values, missing
included, and one for all the others. Columns named as text are joined and replace all other features.

Models: text takes ``embedding_mlp``; grey images ``fmnist_cnn``, colour images ``cifar_cnn``; tables ``mlp``, or
``logistic`` under 2,000 rows, where the half million weights of ``mlp`` would learn the rows by heart.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.datasets.base import Dataset, Prepare
from clustpsi.datasets.encode import one_hot, standard_scale
from clustpsi.datasets.files import DataMissing, check_header, read_csv, read_parquet, reading
from clustpsi.datasets.text import Texts, split_words
from clustpsi.errors import ClustPSIError, ClustPSIWarning

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 50
MAX_CLASSES = 1_000
SMALL_TABLE = 2_000
LENGTH = 100
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")


def from_table(
    table: "pd.DataFrame | str | Path",
    *,
    label: str | None,
    client: str | None = None,
    text: Sequence[str] = (),
    name: str | None = None,
) -> Dataset:
    """A dataset from a data frame or a CSV, Parquet or NPZ file.

    Parameters
    ----------
    table
        The data. An NPZ file holds one array ``features`` (or a single array besides label and client).
    label
        The column (NPZ: the array) with the class of every row.
    client
        The column that names the client that a row belongs to; it is not a feature.
    text
        Columns of free text.
    name
        What to call it; default: the file's name.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"wing": [1.0, 2.0, 3.0, 9.0], "sex": ["f", "m", "f", None], "species": list("aabb")})
    >>> dataset = from_table(frame, label="species")
    >>> dataset.class_names, dataset.model, dataset.prepare(np.arange(3)).shape
    (('a', 'b'), 'logistic', (4, 4))
    """
    if label is None:
        raise ClustPSIError(f"{_shown(table)} needs the name of its label column: give --label (label= in Python)")
    if not isinstance(table, str | Path):
        return _from_frame(table, name or "table", name or "the table", label, client, text)
    path = Path(table).expanduser()
    if not path.is_file():
        raise DataMissing(f"{path} does not exist: a {', '.join(SUFFIXES)} file is needed")
    name = name or path.name
    if path.name.endswith((".csv", ".csv.gz")):
        return _from_frame(read_csv(path, [label]), name, str(path), label, client, text)
    if path.suffix == ".parquet":
        return _from_frame(read_parquet(path), name, str(path), label, client, text)
    if path.suffix == ".npz":
        return _from_npz(path, name, label, client, text)
    raise ClustPSIError(f"{path} is of no known kind: a {', '.join(SUFFIXES)} file is needed")


def from_arrays(
    features: ArrayLike, labels: ArrayLike, clients: ArrayLike | None = None, *, name: str = "arrays"
) -> Dataset:
    """A dataset from arrays: numbers (N, d), images (N, H, W) or (N, H, W, channels), or N texts.

    Images are uint8, 0 to 255.

    Examples
    --------
    >>> dataset = from_arrays(np.zeros((4, 28, 28), np.uint8), [0, 1, 1, 0])
    >>> dataset.model, dataset.prepare(np.arange(4)).shape
    ('fmnist_cnn', (4, 28, 28, 1))
    """
    values = np.asarray(features)
    codes, classes = _classes(np.asarray(labels), "the labels", name)
    if len(values) != len(codes):
        raise ClustPSIError(f"{name} has {len(values)} rows of features but {len(codes)} labels")
    client_ids = None if clients is None else _clients(np.asarray(clients), "the clients", name)
    if client_ids is not None and len(client_ids) != len(codes):
        raise ClustPSIError(f"{name} has {len(codes)} labels but {len(client_ids)} client names")
    if values.ndim == 1 and values.dtype.kind in "UTO":
        prepare, model, reason = _text(values.tolist())
    elif values.ndim == 2 and values.dtype.kind in "biuf":
        _refuse_infinite(values, [f"feature {index}" for index in range(values.shape[1])], name)
        prepare, model, reason = _numbers(values, [], len(codes))
    elif values.ndim in (3, 4):
        prepare, model, reason = _images(values, name)
    else:
        raise ClustPSIError(
            f"{name} has features of shape {values.shape} and type {values.dtype}: numbers (rows, columns), "
            "images (rows, height, width[, channels]) or texts (rows,) are needed"
        )
    return Dataset(name, codes, classes, prepare, model, client_ids=client_ids, model_reason=reason)


def _shown(table: object) -> str:
    return str(table) if isinstance(table, str | Path) else "the table"


def _from_npz(path: Path, name: str, label: str, client: str | None, text: Sequence[str]) -> Dataset:
    if text:
        raise ClustPSIError(f"{path} is an NPZ file, whose text is an array of strings: leave --text out")
    with reading(path, "NPZ"), np.load(path, allow_pickle=False) as arrays:
        check_header(path, arrays.files, [label] if client is None else [label, client])
        others = [key for key in arrays.files if key not in (label, client)]
        chosen = "features" if "features" in others else others[0] if len(others) == 1 else None
        if chosen is None:
            raise ClustPSIError(f"{path} needs one array named 'features' besides the label (arrays: {arrays.files})")
        return from_arrays(arrays[chosen], arrays[label], arrays[client] if client else None, name=name)


def _from_frame(
    frame: "pd.DataFrame", name: str, where: str, label: str, client: str | None, text: Sequence[str]
) -> Dataset:
    from pandas.api import types

    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    named = [label, *([] if client is None else [client]), *text]
    check_header(where, list(frame.columns), named)
    if len(set(named)) < len(named):
        raise ClustPSIError(f"{where}: label, client and text must be different columns, not {', '.join(named)}")
    labels, classes = _classes(frame[label].to_numpy(), f"column {label!r}", where)
    client_ids = None if client is None else _clients(frame[client].to_numpy(), f"column {client!r}", where)

    rest = frame.drop(columns=named)
    if text:
        joined = frame[list(text)].astype(object).fillna("").astype(str).agg(" ".join, axis=1)
        prepare, model, reason = _text(joined.tolist())
        if len(rest.columns):
            reason += f"; {len(rest.columns)} other columns left out"
        return Dataset(name, labels, classes, prepare, model, client_ids=client_ids, model_reason=reason)

    numeric, categories = [], []
    for column in rest.columns:
        values = rest[column]
        if types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype):
            numeric.append(column)
        elif types.is_datetime64_any_dtype(values.dtype) or types.is_timedelta64_dtype(values.dtype):
            raise ClustPSIError(f"{where}, column {column!r} holds times: turn them into numbers or categories first")
        elif (codes := _categories(values, str(column), where)) is not None:
            categories.append(codes)
    numbers = rest[numeric].to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_infinite(numbers, [f"column {column!r}" for column in numeric], where)
    if not numeric and not categories:
        raise ClustPSIError(f"{where} has no feature column besides {', '.join(map(repr, named))}")
    prepare, model, reason = _numbers(numbers, categories, len(labels))
    return Dataset(name, labels, classes, prepare, model, client_ids=client_ids, model_reason=reason)


def _classes(values: NDArray[Any], what: str, where: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Class of every row, and the classes' names in their order."""
    import pandas as pd

    if values.ndim != 1:
        raise ClustPSIError(f"{where}, {what}: one label a row is needed, not an array of shape {values.shape}")
    _refuse_missing(values, what, where)
    codes, classes = pd.factorize(values)
    if len(classes) < 2:
        raise ClustPSIError(f"{where}, {what} has {len(classes)} different values: a label needs at least two")
    if len(classes) > MAX_CLASSES:
        raise ClustPSIError(
            f"{where}, {what} has {len(classes):,} different values: a label has at most {MAX_CLASSES:,} classes"
        )
    counts = np.bincount(codes)
    if counts.min() < 2:
        alone = int(counts.argmin())
        row = int((codes == alone).argmax()) + 1
        raise ClustPSIError(
            f"{where}, {what}: class {str(classes[alone])!r} has only one sample (row {row}): "
            "add samples or take it out"
        )
    try:
        order = sorted(range(len(classes)), key=lambda code: classes[code])
    except TypeError:  # numbers and text together
        order = sorted(range(len(classes)), key=lambda code: str(classes[code]))
    rank = np.empty(len(classes), dtype=np.int32)
    rank[order] = np.arange(len(classes))
    return rank[codes], tuple(str(classes[code]) for code in order)


def _clients(values: NDArray[Any], what: str, where: str) -> NDArray[np.str_]:
    _refuse_missing(values, what, where)
    return values.astype(np.str_)


def _categories(values: "pd.Series[Any]", column: str, where: str) -> NDArray[np.int32] | None:
    """Codes of a categorical column, -1 = missing; nothing for a column that identifies rows rather than kinds."""
    import pandas as pd

    codes, kinds = pd.factorize(values.astype(str).where(values.notna()))
    if len(kinds) > MAX_CATEGORIES and len(kinds) > 0.5 * len(values):
        warn(
            f"{where}, column {column!r} is left out: {len(kinds):,} different values in {len(values):,} rows look "
            "like identifiers; if it is text, name it with --text",
            ClustPSIWarning,
            stacklevel=4,
        )
        return None
    return codes.astype(np.int32)


def _refuse_missing(values: NDArray[Any], what: str, where: str) -> None:
    import pandas as pd

    absent = np.flatnonzero(pd.isna(values))
    if absent.size:
        raise ClustPSIError(f"{where}, {what} is empty in row {absent[0] + 1}: every row needs one")


def _refuse_infinite(values: NDArray[Any], columns: Sequence[str], where: str) -> None:
    rows, indices = np.nonzero(np.isinf(values))
    if rows.size:
        raise ClustPSIError(f"{where}, {columns[indices[0]]} is infinite in row {rows[0] + 1}: leave the cell empty")


def _numbers(numbers: NDArray[Any], categories: list[NDArray[np.int32]], rows: int) -> tuple[Prepare, str, str]:
    def prepare(train_rows: NDArray[np.int64]) -> NDArray[np.float32]:
        absent = np.isnan(numbers)
        marks = absent[:, absent[train_rows].any(axis=0)].astype(np.float32)
        hot = [one_hot(codes, train_rows, MAX_CATEGORIES) for codes in categories]
        return np.hstack([standard_scale(numbers, train_rows), marks, *hot])

    kinds = f"{numbers.shape[1]} numeric and {len(categories)} categorical columns"
    if rows < SMALL_TABLE:
        return prepare, "logistic", f"{kinds}, fewer than {SMALL_TABLE:,} rows"
    return prepare, "mlp", kinds


def _text(texts: list[str]) -> tuple[Prepare, str, str]:
    import pyarrow as pa

    split = split_words([pa.array(texts, pa.large_string())])
    return Texts(split, length=LENGTH), "embedding_mlp", "text"


def _images(values: NDArray[Any], where: str) -> tuple[Prepare, str, str]:
    images = values[..., None] if values.ndim == 3 else values
    channels = images.shape[3]
    if images.dtype != np.uint8 or channels not in (1, 3):
        raise ClustPSIError(
            f"{where} has images of type {images.dtype} with {channels} channels: uint8 with 1 or 3 is needed"
        )

    def prepare(train_rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return images

    return prepare, *(("fmnist_cnn", "grey images") if channels == 1 else ("cifar_cnn", "colour images"))
