"""Compare methods from Python: like ``clustpsi run``, but as one call that returns a data frame."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from clustpsi.datasets.base import Dataset
from clustpsi.errors import ClustPSIError, in_python, unknown_name
from clustpsi.runs.cell import Cells
from clustpsi.runs.config import Config, listed_methods, of_methods, typed
from clustpsi.runs.frame import run_row
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources, settled
from clustpsi.runs.store import Store


def compare(
    dataset: str | Path | Dataset = "digits",
    methods: str | Sequence[str] = ("fedavg", "local", "clust_psi_pfl", "prior_pfl"),
    *,
    seeds: Sequence[int] = (42, 0, 1),
    output: str | Path | None = None,
    data_dir: str | Path | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Run methods on a data set; returns one row per method and seed with its settings, scores and costs.

    Parameters
    ----------
    dataset
        A name, a file, or a :class:`clustpsi.datasets.base.Dataset`.  If a data set has natural clients, they are used
        unless a partitioner is named.
    methods
        Each as ``name`` or ``name:parameter=value:...``; or one text with commas between them, or ``"all"``.
    seeds
        Different whole numbers; each seed has its own partition, split and initial model.
    output
        Folder that keeps the runs, so that finished ones are not computed again; by default nothing is kept.
    data_dir
        Folder with the data sets.
    settings
        Any other field of :class:`clustpsi.Config`: ``num_clients``, ``comm_rounds``, ...

    Examples
    --------
    >>> table = compare("digits", ["fedavg"], seeds=[0], num_clients=4, comm_rounds=1, local_epochs=1)
    >>> table[["agg_method", "seed", "comm_rounds"]].values.tolist()
    [['fedavg', 0, 1]]
    """
    if not isinstance(dataset, str | Path | Dataset):
        raise ClustPSIError(
            f"compare takes a data set's name, a file or a Dataset, not a {type(dataset).__name__}: "
            "make a Dataset of a data frame with clustpsi.from_table(frame, label=...), of arrays with from_arrays"
        )
    with in_python(agg_method="methods", seed="seeds"):
        return _compare(dataset, _listed(methods), _different(seeds), output, data_dir, settings)


def _compare(
    dataset: str | Path | Dataset,
    methods: Sequence[str],
    seeds: Sequence[int],
    output: str | Path | None,
    data_dir: str | Path | None,
    settings: Mapping[str, Any],
) -> pd.DataFrame:
    given = dataset if isinstance(dataset, Dataset) else None
    known = {each.name for each in fields(Config)} - {"dataset", "agg_method", "seed", "content"}
    for key in settings:
        if key not in known:
            raise unknown_name("setting", key, {*known, "methods", "seeds"})
    natural = {} if given is None or given.client_ids is None else {"partitioner": "natural"}
    first = Config(**{**natural, **settings, "dataset": str(dataset) if given is None else given.name})
    runs = [run for seed in seeds for run in of_methods(replace(first, seed=seed), methods)]
    rows = []
    with tempfile.TemporaryDirectory() as unkept:
        store, sources = Store(Path(unkept if output is None else output)), Sources(data_dir)
        first = settled(first, given or sources.load(first.checked()), seeds)
        with Cells.of(sources) as cells:
            for each in runs:
                config = replace(first, agg_method=each.agg_method, seed=each.seed).checked()
                folder = run(config, store, cell=cells.open(config, given), resume=True)
                rows.append(run_row(folder.config(), folder))
    return pd.DataFrame(rows)


def _listed(methods: str | Sequence[str]) -> list[str]:
    if isinstance(methods, Iterable):
        named = methods if isinstance(methods, str) else list(methods)
        if all(isinstance(each, str) for each in named):
            return [str(spec) for spec in listed_methods(named)]
    raise ClustPSIError(f"methods must be a list of texts, or one text with commas, not {methods!r}")


def _different(seeds: Sequence[int]) -> list[int]:
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        values = [typed("every one of seeds", seed, int) for seed in seeds]
        if values and len(set(values)) == len(values):
            return values
    raise ClustPSIError(f"seeds must be a list of one or more different whole numbers, such as [42, 0], not {seeds!r}")
