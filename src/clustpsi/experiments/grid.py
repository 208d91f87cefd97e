"""Grids: many runs from a few lists of values.

A grid gives each setting of a run one value or several; its runs are all combinations.  Two names stand for lists of
partitions, ``dirichlet`` (values of alpha) and ``similarity`` (values of S); ``seeds_list`` is the list of seeds.
"""

import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from clustpsi.datasets import DATASETS, is_file_name
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import make_method
from clustpsi.paper import DATASETS as PAPER_DATASETS
from clustpsi.paper import INFEASIBLE, LEVELS, METHODS, NUM_CLIENTS, SEEDS
from clustpsi.runs.config import Config, setting_types

#: The paper's grid: its two big tables.
PAPER: Mapping[str, Any] = {
    "dataset": list(PAPER_DATASETS),
    "seeds_list": list(SEEDS),
    "dirichlet": [level for partitioner, level in LEVELS if partitioner == "dirichlet"],
    "similarity": [level for partitioner, level in LEVELS if partitioner == "similarity"],
    "num_clients": NUM_CLIENTS,
    "agg_method": list(METHODS),
    "comm_rounds": 40,
    "local_epochs": 5,
    "fraction": 0.5,
}

#: The axes, the slowest first.  Seeds vary more slowly than partitions, so that a complete table exists after the runs
#: of one seed.  Methods vary fastest, so that runs that share a federation follow each other.
_ORDER = ("dataset", "seed", "partition", "num_clients")

LARGEST_FILE = 1_000_000  # characters of a TOML file

_SHORT = {"dirichlet": "alpha", "similarity": "S"}
_PARTITIONS = (*_SHORT, "partitioner", "non_iid_param")


def grid(values: Mapping[str, Any]) -> list[Config]:
    """All runs of a grid, in the order in which they are worked on, each once.

    Centralized learning does not depend on the partition, so it runs once for each data set and seed: on the iid
    partition over the largest number of clients of the grid.

    Parameters
    ----------
    values
        Settings by name (hyphens or underscores); each is a value, a list, or a text with commas between values.

    Examples
    --------
    >>> runs = grid({"dirichlet": "50,0.3", "similarity": 0, "num_clients": 10, "seeds_list": [42, 0]})
    >>> [(run.seed, run.partitioner, run.non_iid_param) for run in runs[:3]]
    [(42, 'dirichlet', 50.0), (42, 'dirichlet', 0.3), (42, 'similarity', 0.0)]
    >>> len(runs)
    6
    """
    axes = _axes({key.replace("-", "_"): value for key, value in values.items()})
    most_clients = max((k for k in axes["num_clients"] if k is not None), default=None)
    methods = axes.pop("agg_method")
    has_levels = any(partitioner not in ("iid", "natural") for partitioner, _ in axes["partition"])
    found: dict[Config, None] = {}
    for point in itertools.product(*axes.values()):
        settings = dict(zip(axes, point, strict=True))
        partitioner, level = settings.pop("partition")
        if partitioner == "natural":  # levels and numbers of clients are for the other partitions of the grid
            settings["num_clients"] = level = None
        elif partitioner == "iid" and has_levels:
            level = None
        base = Config(**settings, partitioner=partitioner, non_iid_param=level)
        for method in methods:
            run = replace(base, agg_method=method)
            if make_method(method).is_centralized and base.client is None and partitioner != "natural":
                run = replace(run, partitioner="iid", num_clients=most_clients)
                run = run if partitioner == "iid" else replace(run, non_iid_param=None)
            found[run.checked()] = None
    return list(found)


def paper_grid(values: Mapping[str, Any]) -> list[Config]:
    """The paper's grid, with these settings instead of its own, and without the cells that it prints as "---"."""
    runs = [
        run
        for run in grid(replaced(PAPER, values))
        if (run.dataset, run.partitioner, run.non_iid_param) not in INFEASIBLE
    ]
    if not runs:
        raise ClustPSIError(
            'all cells of this grid are infeasible ("---") in the paper: leave --paper away to try them anyway'
        )
    return runs


def replaced(values: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """A grid's settings with some of them replaced; partitions are always replaced as a whole.

    >>> replaced({"dirichlet": [50, 0.3], "similarity": 0, "num-clients": 10}, {"similarity": 1})
    {'num_clients': 10, 'similarity': 1}
    """
    old, new = ({key.replace("-", "_"): value for key, value in each.items()} for each in (values, by))
    if any(key in _PARTITIONS for key in new):
        old = {key: value for key, value in old.items() if key not in _PARTITIONS}
    return old | new


def read_grids(path: Path) -> list[dict[str, Any]]:
    """The grids of a TOML file: the whole file, or each of its ``[[grid]]`` tables with what stands above them."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise ClustPSIError(f"the grid {path} has more than {LARGEST_FILE:,} characters: is it a grid?")
        values = tomllib.loads(text)
    except OSError as error:
        raise ClustPSIError(f"cannot read the grid {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClustPSIError(f"the grid {path} is not TOML: {error}") from None
    tables = values.pop("grid", [{}])
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        raise ClustPSIError(f"the grid {path}: grid must be one or more [[grid]] tables")
    return [values | table for table in tables]


def unique(runs: Iterable[Config]) -> list[Config]:
    """The runs of several grids, each once."""
    return list(dict.fromkeys(runs))


def _axes(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Every setting of a run as a list of values, in the order of the loops."""
    types = dict(setting_types())
    known = set(types) - {"seed", "content"} | {"seeds_list", *_SHORT}
    for key in values:
        if key not in known:
            raise unknown_name("grid setting", key, known)
    defaults = {each.name: each.default for each in fields(Config)} | {"seeds_list": "42,0,1"}
    types["seeds_list"] = int
    axes = {
        key: _list(key, values.get(key, defaults[key]), types[key])
        for key in ("dataset", "seeds_list", "num_clients", "agg_method", *defaults)
        if key not in ("seed", "content", "partitioner", "non_iid_param")
    }
    for name in axes["dataset"]:
        if name not in DATASETS and not is_file_name(name):
            raise unknown_name("dataset", name, DATASETS)
    axes["seed"] = axes.pop("seeds_list")
    axes["partition"] = _partitions(values, types)
    return {key: axes[key] for key in (*_ORDER, *(key for key in axes if key not in _ORDER))}


def _partitions(values: Mapping[str, Any], types: Mapping[str, type]) -> list[tuple[str | None, float | None]]:
    short = [key for key in _SHORT if key in values]
    if not short:
        partitioners, levels = (
            _list(key, values.get(key, Config.__dataclass_fields__[key].default), types[key])
            for key in ("partitioner", "non_iid_param")
        )
        return list(itertools.product(partitioners, levels))
    if {"partitioner", "non_iid_param"} & set(values):
        raise ClustPSIError(
            f"give the partitions as {' and '.join(short)}, or as partitioner and non_iid_param, not both ways"
        )
    return [(key, level) for key in short for level in _list(key, values[key], float)]


def _list(key: str, value: Any, plain: type) -> list[Any]:
    """The values of one axis, each of the setting's type."""
    if isinstance(value, str) and key not in ("text", "drop", "sep"):  # which may have commas of their own
        values: Sequence[Any] = [part.strip() for part in value.split(",") if part.strip()]
    else:
        values = value if isinstance(value, list | tuple) else [value]
    if not values:
        meaning = f" (values of {_SHORT[key]})" if key in _SHORT else ""
        raise ClustPSIError(f"the grid's {key}{meaning} is empty: it needs at least one value")
    parsed = [_parse(key, each, plain) for each in values]
    if len(set(parsed)) < len(parsed):
        raise ClustPSIError(f"the grid's {key} names a value twice: {', '.join(map(str, parsed))}")
    return parsed


def _parse(key: str, value: Any, plain: type) -> Any:
    if value is None or (isinstance(value, plain) and isinstance(value, bool) == (plain is bool)):
        return value
    if plain in (int, float) and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            if plain(value) == float(value):
                return plain(value)
        except (ValueError, OverflowError):
            pass
    kind = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts"}[plain]
    raise ClustPSIError(f"the grid's {key} must be {kind}, not {value!r}")
