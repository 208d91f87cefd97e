"""Compare methods from Python: like ``clustpsi run``, but as one call that returns a data frame."""

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from clustpsi.datasets.base import Dataset
from clustpsi.errors import ClustPSIError
from clustpsi.runs.cell import Cells
from clustpsi.runs.config import Config
from clustpsi.runs.frame import run_row
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources, settled
from clustpsi.runs.store import Store


def compare(
    dataset: str | Path | Dataset = "digits",
    methods: Sequence[str] = ("fedavg", "local", "clust_psi_pfl", "prior_pfl"),
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
        Each as ``name`` or ``name:parameter=value:...``.
    seeds
        Each seed has its own partition, split and initial model.
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
    given = dataset if isinstance(dataset, Dataset) else None
    if given is not None and given.client_ids is not None:
        settings = {"partitioner": "natural", **settings}
    settings["dataset"] = str(dataset) if given is None else given.name
    rows = []
    with tempfile.TemporaryDirectory() as unkept:
        store = Store(Path(unkept if output is None else output))
        sources, first = Sources(data_dir), Config(**settings)
        first = settled(first, given or sources.load(first.checked()), seeds)
        with Cells.of(sources) as cells:
            for seed, method in itertools.product(seeds, methods):
                config = replace(first, agg_method=method, seed=seed).checked()
                folder = run(config, store, cell=cells.open(config, given), resume=True)
                rows.append(run_row(folder.config(), folder))
    return pd.DataFrame(rows)
