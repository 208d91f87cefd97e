"""The configuration of one run: everything that decides its result, and nothing else."""

import hashlib
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from clustpsi.datasets.files import is_file_name, user_path
from clustpsi.datasets.table_files import separator
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.limits import LARGEST
from clustpsi.methods import MethodSpec, make_method, method_spec, method_types, recorded_method, short_spec
from clustpsi.methods.base import check_option, option
from clustpsi.partition import DEFAULT_CLIENTS, DEFAULT_LEVELS
from clustpsi.saved import NAME as MODEL

# Options that were added later.  A run that leaves them at their defaults does not record them, so it keeps its name.
LATER_OPTIONS = (
    *("word_vectors", "content", "drop", "drop_unlabelled", "min_class", "sep", "no_header"),
    *("start_from", "dp_epsilon", "min_count", "eval_clients"),
)

# By default at most this many clients are scored: the standard error of a mean over them is at most half a percent, and
# the files of a run stay small.
SCORED_CLIENTS = 10_000

# Most characters of a run's folder name, and of the data set's part in it: file systems allow 255 bytes.
LONGEST_NAME, LONGEST_DATASET = 200, 64

# Format of run folders: raised when runs of an older version cannot be continued.  Format 1 did not identify its data.
FORMAT = 2
# Formats whose finished runs can still be read.  Tables and figures mix them only if they can be compared.
READABLE = (1, FORMAT)


@dataclass(frozen=True)
class Config:
    """One run.  The fields are the options of the command line, with the paper's names and values if it has any.

    ``content`` is not an option: it is the hash of the data, which :func:`clustpsi.runs.sources.identified` fills in.
    """

    dataset: str = option("digits", "name of a data set, or a file: a table (CSV, Parquet, ...) or arrays (NPZ)")
    label: str | None = option(None, "column to predict, for a file")
    client: str | None = option(
        None, "column that names the client of each row, for a file: clients are then those of the file"
    )
    text: str | None = option(None, "columns of free text, comma-separated, for a file")
    drop: str | None = option(None, "columns not to use, comma-separated, for a file")
    drop_unlabelled: bool = option(False, "omit rows without a label, for a file")
    min_class: int | None = option(
        None, "merge classes with fewer samples than this into one, called other, for a file", least=2
    )
    sep: str | None = option(
        None, "separator of the cells of a CSV file: a character, tab or space (default: detected)"
    )
    no_header: bool = option(False, "the first line of a CSV file is data: its columns are called 0, 1, 2, ...")
    partitioner: str | None = option(
        None,
        "how samples are spread over clients (default: dirichlet, or natural if a column names the clients)",
        choices=("dirichlet", "similarity", "iid", "natural"),
    )
    non_iid_param: float | None = option(
        None,
        "alpha of the Dirichlet partition (above 0; default 0.1, or more if the data has no such partition), S of "
        "the Similarity partition (0 to 1; default 0.03)",
        most=1e6,
    )
    num_clients: int | None = option(
        None,
        f"K, the number of clients (default: {DEFAULT_CLIENTS}, or fewer if the data has no such partition; natural "
        "clients: all of them)",
        least=2,
        most=10_000_000,
    )
    split: str = option(
        "auto",
        "where clients' test data comes from (none: all rows train, for FederatedClassifier)",
        choices=("auto", "client_80_20", "official_matched", "merge_80_20", "none"),
    )
    validation: bool = option(False, "score on a fifth of the clients' training data instead of their test data")
    model: str | None = option(None, "name of the model (default: the data set's own)")
    word_vectors: str | None = option(
        None, "file of word vectors (GloVe's text format) for text models; they are not trained"
    )
    start_from: str | None = option(
        None,
        f"saved model ({MODEL}, or the folder of a run that has one) whose models are trained further: it decides "
        "features, classes and network",
    )
    agg_method: str = option("fedavg", "the method, as name:parameter=value:...")
    comm_rounds: int = option(40, "T, communication rounds", least=1, most=1_000_000)
    local_epochs: int = option(5, "E, epochs of local training in a round", least=1, most=1_000_000)
    fraction: float = option(0.5, "q, share of the clients that a round trains", above=0, most=1)
    optimizer: str = option("adam", "optimizer of local training", choices=("adam", "sgd"))
    lr: float = option(0.001, "learning rate of local training", above=0)
    batch_size: int = option(32, "batch size of local training", least=1, most=LARGEST)
    eval_every: int = option(
        1, "rounds between evaluations; the last round is always evaluated", least=1, most=1_000_000
    )
    dp_epsilon: float | None = option(
        None,
        "privacy budget: every client adds noise to its label counts and summaries (default: no noise)",
        above=0,
    )
    min_count: int | None = option(
        None, "clients report counts below this as 0 (default: they report all counts)", least=2
    )
    eval_clients: int | None = option(
        None,
        f"score this many clients, drawn by the seed (default: all, but at most {SCORED_CLIENTS:,})",
        least=1,
        most=10_000_000,
    )
    seed: int = option(42, "seed of partition, split, initial model, sampling and batches", least=0, most=LARGEST)
    content: str | None = field(default=None)

    def __post_init__(self) -> None:
        types = setting_types()
        for each in fields(self):
            value, flag = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if value is not None or each.default is not None:
                value = typed(flag, value, types[each.name])
                object.__setattr__(self, each.name, value)
                check_option(flag, value, each.metadata)

    def checked(self) -> "Config":
        """The same configuration in its canonical form, so that equal runs have equal configurations."""
        partitioner = self.partitioner or ("dirichlet" if self.client is None else "natural")
        num_clients, param = self.num_clients, self.non_iid_param
        if self.client is not None and partitioner != "natural":
            raise ClustPSIError(
                f"--client {self.client} makes the clients those of the data, and --partitioner {partitioner} makes "
                "others: give one of them"
            )
        if partitioner == "natural":
            for flag, value in (("--num-clients", num_clients), ("--non-iid-param", param)):
                if value is not None:
                    raise ClustPSIError(
                        f"{flag} {value:g} contradicts natural clients, who are those of the data (--client, or "
                        "--partitioner natural): leave one of them out"
                    )
        elif num_clients is None:
            num_clients = DEFAULT_CLIENTS
        if partitioner == "iid" and param is not None:
            raise ClustPSIError(
                f"--non-iid-param {param:g} contradicts --partitioner iid, which has no such level: leave it away"
            )
        if param is None:
            param = DEFAULT_LEVELS.get(partitioner)
        if partitioner == "dirichlet" and not (param is not None and 0 < param < math.inf):
            raise ClustPSIError(f"--non-iid-param is the Dirichlet partition's alpha and must be above 0, not {param}")
        if partitioner == "similarity" and not (param is not None and 0 <= param <= 1):
            raise ClustPSIError(f"--non-iid-param is the Similarity partition's S and must be from 0 to 1, not {param}")
        return replace(
            self,
            dataset=canonical_path(self.dataset) if is_file_name(self.dataset) else self.dataset,
            word_vectors=None if self.word_vectors is None else canonical_path(self.word_vectors),
            start_from=None if self.start_from is None else _model_path(self.start_from),
            agg_method=method_spec(make_method(self.agg_method)),
            drop=None if self.drop is None else ",".join(sorted(set(column_names(self.drop)))),
            sep=None if self.sep is None else separator(self.sep),
            partitioner=partitioner,
            non_iid_param=param,
            num_clients=num_clients,
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How a file of the user's own is read: arguments of :func:`clustpsi.datasets.load_dataset`."""
        return {
            "label": self.label,
            "client": self.client,
            "text": column_names(self.text),
            "drop": column_names(self.drop),
            "drop_unlabelled": self.drop_unlabelled,
            "min_class": self.min_class,
            "sep": self.sep,
            "no_header": self.no_header,
        }

    @property
    def files(self) -> list[Path]:
        """The user's own files that the run reads."""
        names = (self.dataset if is_file_name(self.dataset) else None, self.word_vectors, self.start_from)
        return [user_path(name) for name in names if name is not None]

    @property
    def cell(self) -> dict[str, Any]:
        """The settings that all methods of a comparison share."""
        return {key: value for key, value in vars(self).items() if key != "agg_method"}

    @property
    def folder_name(self) -> str:
        """Readable, unique name of this run's folder; a long name is cut, and the hash at its end keeps it unique."""
        level = "" if self.non_iid_param is None else f"{self.non_iid_param:g}"
        where = re.sub(r"[^A-Za-z0-9_.]+", "_", Path(self.dataset).name)[:LONGEST_DATASET]
        how = re.sub(r"[^A-Za-z0-9_.=]+", "_", self.agg_method)
        clients = "" if self.num_clients is None else f"k{self.num_clients}"
        before = [part for part in (where, f"{self.partitioner}{level}", clients) if part]
        after = [f"seed{self.seed}", self.digest]
        room = LONGEST_NAME - len("-".join([*before, "", *after]))
        return "-".join([*before, how[:room], *after])

    @property
    def digest(self) -> str:
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def as_dict(self) -> dict[str, Any]:
        """What identifies the run in its folder.  Files are given by name, because ``content`` identifies the data."""
        values = dict(vars(self))
        if is_file_name(self.dataset):
            values["dataset"] = Path(self.dataset).name
        for key in ("word_vectors", "start_from"):
            if values[key] is not None:
                values[key] = Path(values[key]).name
        unused = [name for name in LATER_OPTIONS if values[name] == self.__dataclass_fields__[name].default]
        return {"format": FORMAT, **{key: value for key, value in values.items() if key not in unused}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Config":
        if values.get("format") not in READABLE:
            raise ClustPSIError(
                f"it was written in format {values.get('format')}, and this version of clustpsi reads format "
                f"{' and '.join(map(str, READABLE))}"
            )
        known = {each.name for each in fields(cls)}
        for key in values:
            if key not in known | {"format"}:
                raise unknown_name("setting", key, known)
        given = {key: value for key, value in values.items() if key in known}
        return cls(**given | {"agg_method": recorded_method(given.get("agg_method", cls.agg_method))})


@cache
def setting_types() -> Mapping[str, type]:
    """The type of every setting (without None)."""
    hints = get_type_hints(Config).items()
    return {name: next(kind for kind in get_args(hint) or (hint,) if kind is not type(None)) for name, hint in hints}


KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def typed(what: str, value: Any, plain: type) -> Any:
    """The value as this type if it is one of its kind, such as NumPy's numbers, 3.0 for 3, or a path for a text.

    >>> typed("comm_rounds", 3.0, int), typed("lr", 1, float)
    (3, 1.0)
    """
    is_bool, number = isinstance(value, bool | np.bool_), value
    if plain in (int, float) and isinstance(value, Real) and not is_bool:
        if plain is float or isinstance(value, Integral) or float(value).is_integer():
            with suppress(OverflowError):
                return plain(number)
    elif (plain is bool and is_bool) or (plain is str and isinstance(value, str | os.PathLike)):
        return plain(value)
    raise ClustPSIError(f"{what} must be {KINDS[plain]}, not {value!r}")


def column_names(text: str | None) -> tuple[str, ...]:
    """Names of columns, from a comma-separated text."""
    return () if text is None else tuple(name.strip() for name in text.split(","))


def listed_methods(asked: str | Sequence[str]) -> list[MethodSpec]:
    """The methods in a comma-separated text or a list; "all" are all there are.

    >>> [str(spec) for spec in listed_methods("fedavg, fedprox:mu=0.1")]
    ['fedavg', 'fedprox:mu=0.1']
    """
    listed = asked.split(",") if isinstance(asked, str) else asked
    specs = [MethodSpec.parse(each) for each in listed if each.strip()]
    if specs == [MethodSpec("all")]:
        specs = [MethodSpec(name) for name in method_types()]
    if not specs:
        raise ClustPSIError("--agg-method is empty: name at least one method, or all")
    return specs


def of_methods(config: Config, methods: Sequence[str]) -> list[Config]:
    """The runs that differ from one only in their methods, in canonical form; each method may occur once."""
    runs = [replace(config, agg_method=method).checked() for method in methods]
    for method, count in Counter(run.agg_method for run in runs).items():
        if count > 1:
            raise ClustPSIError(f"--agg-method names {method} more than once: name each method once")
    return runs


def _model_path(name: str) -> str:
    """The file of a saved model; the user may name the folder of its run instead."""
    path = Path(canonical_path(name))
    return str(path / MODEL if path.is_dir() else path)


def run_command(config: Config, methods: Sequence[str], seeds: Sequence[int]) -> str:
    """The command line of runs that differ only in method and seed.

    >>> run_command(Config(partitioner="iid", num_clients=5).checked(), ["fedavg", "local"], [42])
    'clustpsi run --dataset digits --partitioner iid --num-clients 5 --agg-method fedavg,local --seeds-list 42'
    """
    words = ["clustpsi", "run"]
    for each in fields(Config):
        value = getattr(config, each.name)
        if each.name in ("agg_method", "seed", "content") or (value == each.default and each.name != "dataset"):
            continue
        flag = f"--{each.name.replace('_', '-')}"
        written = f"{value:.15g}" if isinstance(value, float) else str(value)
        words += [flag] if value is True else [flag, written]
    words += ["--agg-method", ",".join(map(short_spec, methods)), "--seeds-list", ",".join(map(str, seeds))]
    return shlex.join(words)


def canonical_path(name: str) -> str:
    """The same spelling for all names of a file."""
    return str(user_path(name).resolve())
