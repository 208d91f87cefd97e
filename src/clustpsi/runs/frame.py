"""Runs as one table with one row per run, from a store or from its compact form, a CSV file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from clustpsi.datasets.files import is_file_name
from clustpsi.errors import ClustPSIError
from clustpsi.exact import read_exact_csv
from clustpsi.methods import MethodSpec, make_method, method_spec, method_types, recorded_method
from clustpsi.runs import infeasible
from clustpsi.runs.composition import COLUMNS as COMPOSITION
from clustpsi.runs.composition import composition
from clustpsi.runs.config import LATER_OPTIONS, READABLE, Config
from clustpsi.runs.store import RunFolder, Store

SETTINGS = tuple(each.name for each in fields(Config))
#: Settings that make the rows and columns of tables, and those that do not change a score.
VARIED = ("dataset", "partitioner", "non_iid_param", "num_clients", "agg_method", "seed", "eval_every")
#: All other settings: runs of one data set that are compared must agree in them.
SHARED = tuple(each.name for each in fields(Config) if each.name not in VARIED)
TOTALS = ("num_parameters", "tau", "participants", "left_out", "bytes_up", "bytes_down")


def read_runs(source: Path) -> tuple[pd.DataFrame, list[str]]:
    """The finished runs and infeasible partitions of a store or of a CSV that :func:`write_runs` wrote.

    Returns
    -------
    runs
        Columns: ``format``; ``status`` (finished or infeasible); the settings of a run; ``last_...`` and ``best_...``,
        the scores of the last and of the best round; ``skew_...``; the bytes sent; the contents of the clusters;
        ``seconds``; ``folder``, the folder of a finished run (runs from a CSV have none).
    problems
        One sentence for each folder that was omitted because it is damaged or of a different version.
    """
    if source.is_dir():
        rows, problems = _read_store(Store(source))
    elif source.is_file():
        return _read_csv(source), []
    else:
        raise ClustPSIError(f"there is no store of runs at {source}: name a folder of runs, or a CSV of them")
    if not rows:
        trouble = f" ({problems[0]})" if problems else ""
        raise ClustPSIError(f"{source} has no finished run{trouble}: make some with clustpsi run or clustpsi sweep")
    return _typed(pd.DataFrame(rows)), problems


def read_folders(folders: Iterable[RunFolder]) -> pd.DataFrame:
    """The finished runs in these folders, as :func:`read_runs` gives them."""
    return _typed(
        pd.DataFrame([{**run_row(folder.config(), folder), "folder": str(folder.path)} for folder in folders])
    )


def check_comparable(runs: pd.DataFrame, which: str) -> None:
    """Raise if runs cannot be compared; the message names them by ``which``."""
    for setting in SHARED:
        values = runs[setting].drop_duplicates()
        if len(values) > 1:
            named = ", ".join("none" if pd.isna(value) else str(value) for value in values)
            raise ClustPSIError(
                f"{which} differ in {setting} ({named}): choose which to compare, with --where {setting}=..."
            )


def write_runs(runs: pd.DataFrame) -> str:
    """The compact form of a store: CSV text in which floats keep every digit, without the folders."""
    text: str = runs.drop(columns="folder").to_csv(index=False, lineterminator="\n")
    return text


def _read_store(store: Store) -> tuple[list[dict[str, Any]], list[str]]:
    rows, problems = [], []
    for folder in store:
        try:
            config = folder.config()
            if folder.finished:
                rows.append({**run_row(config, folder), "folder": str(folder.path)})
        except ClustPSIError as error:
            problems.append(f"left out {folder.path}: {error}")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"left out {folder.path}: its files are damaged ({error!r})")
    for values in infeasible.recorded(store).values():
        rows.append({**values, "status": "infeasible"})
    return rows, problems


def run_row(config: Config, folder: RunFolder) -> dict[str, Any]:
    """A finished run as one row."""
    summary = folder.summary()
    row: dict[str, Any] = {"status": "finished", **config.as_dict()}
    row |= {f"last_{key}": value for key, value in summary["last"].items()}
    row |= {f"best_{key}": value for key, value in summary["best"].items()}
    row |= {f"skew_{key}": value for key, value in summary["skew"].items()}
    row |= {key: summary[key] for key in TOTALS}
    for key in row.keys() - config.as_dict().keys() - {"status"}:
        if row[key] is not None and not isinstance(row[key], int | float):
            raise TypeError(f"{key} is not a number")
    row |= composition(folder)
    try:
        row["seconds"] = folder.timing()["seconds"]
    except (ClustPSIError, KeyError):  # times are not results: a run without them counts
        row["seconds"] = None
    return row


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        texts = ("label", "client", "text", "drop", "sep", "word_vectors", "content")
        runs = read_exact_csv(path, dtype=dict.fromkeys(texts, object))
    except (ValueError, OSError) as error:
        raise ClustPSIError(f"{path} is not a CSV of runs: {error}") from None
    for column in ("format", "status", *SETTINGS, "last_global_accuracy"):
        if column not in runs and column not in LATER_OPTIONS:
            raise ClustPSIError(
                f"{path} is not a CSV of runs as `clustpsi table runs` writes: it has no column {column}"
            )
    if not runs["format"].isin(READABLE).all():
        raise ClustPSIError(
            f"{path} was written by a different version of clustpsi: this one reads runs of format "
            f"{' and '.join(map(str, READABLE))}"
        )
    runs["agg_method"] = runs["agg_method"].map(recorded_method, na_action="ignore")
    return _typed(runs)


def _typed(runs: pd.DataFrame) -> pd.DataFrame:
    """Give all runs the same columns in the same order with the same types."""
    columns = ["format", "status", *SETTINGS]
    rest = [column for column in map(str, runs) if column not in columns and column not in ("reason", "folder")]
    order = ("last_", "best_", "skew_", *TOTALS, *COMPOSITION, "seconds")
    rest.sort(key=lambda column: next((i for i, start in enumerate(order) if column.startswith(start)), len(order)))
    runs = runs.reindex(columns=[*columns, *rest, "folder"]).astype({"folder": object})
    whole = ["num_clients", "seed", *(column for column in (*TOTALS, "singletons") if column in runs)]
    return runs.astype(dict.fromkeys(whole, "Int64") | {"non_iid_param": "float64"})


def parse_filters(texts: list[str]) -> dict[str, str]:
    """``setting=value`` texts as a mapping."""
    filters: dict[str, str] = {}
    for text in texts:
        key, equals, value = map(str.strip, text.partition("="))
        key = key.replace("-", "_")
        if not equals or key not in SETTINGS:
            raise ClustPSIError(f"{text!r} should read setting=value, with a setting among {', '.join(SETTINGS)}")
        if key in filters:
            raise ClustPSIError(f"{key} is asked for twice; several values go into one: {key}={filters[key]},{value}")
        filters[key] = value
    return filters


def select(runs: pd.DataFrame, filters: Mapping[str, str]) -> pd.DataFrame:
    """The runs with these settings; a filter may give several values, comma-separated; "none" stands for no value.

    Infeasible partitions have no settings of training, so a filter on such a setting keeps them.
    """
    for key, text in filters.items():
        wanted = {_canonical(_named(key, each.strip())) for each in text.split(",")}
        given = runs[key].map(lambda value: _canonical("none" if pd.isna(value) else str(value)))
        kept = given.map(wanted.__contains__)  # not isin, which fails at names that are not UTF-8
        if key not in infeasible.SETTINGS:
            kept |= runs["status"] == "infeasible"
        runs = runs[kept]
        if not (runs["status"] == "finished").any():
            raise ClustPSIError(f"no finished run has {key}={text}")
    return runs


def _named(setting: str, text: str) -> str:
    """The value to look for, as runs record it: a file by its name, a method with all its parameters."""
    if setting == "dataset":
        return dataset_name(text)
    known = setting == "agg_method" and MethodSpec.parse(text).name in method_types()
    return method_spec(make_method(text)) if known else text


def dataset_name(dataset: str) -> str:
    """The name of a data set in the records of runs: for a file, the file's name.

    >>> dataset_name("digits"), dataset_name("data/birds.csv")
    ('digits', 'birds.csv')
    """
    return Path(dataset).name if is_file_name(dataset) else dataset


def _canonical(text: str) -> str:
    """Numbers and truth values in one spelling: 0.30 becomes 0.3, True becomes true."""
    text = text.strip().lower()
    try:
        return json.dumps(float(text))
    except ValueError:
        return text
