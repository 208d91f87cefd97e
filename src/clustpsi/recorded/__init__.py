"""The runs behind the page of results, one row each, as ``clustpsi table runs`` writes them.

There is a file for each grid: one for each data set of the paper and for ``digits``, and others about variants:
``amazon_prior``, ``fmnist_prior``, ``serengeti_prior``, ``fmnist_late``, ``serengeti_late``, ``sgd`` and ``smoothing``.
They are part of the package so that an installed copy can show them and compare with them.
"""

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from clustpsi.errors import unknown_name
from clustpsi.paper import DATASETS
from clustpsi.runs.frame import read_runs

if TYPE_CHECKING:
    import pandas as pd

#: Names of grids that look at one question with few methods.
VARIANTS = ("fmnist_late", "serengeti_late", "sgd", "smoothing")

#: Names of all grids.
GRIDS = (*DATASETS, "digits", "amazon_prior", "fmnist_prior", "serengeti_prior", *VARIANTS)

#: Those that compare methods with the paper's settings, from which advice is learned.
COMPARISONS = tuple(grid for grid in GRIDS if grid not in VARIANTS)


def recorded_runs(grid: str) -> "pd.DataFrame":
    """The runs of a grid, as :func:`clustpsi.runs.frame.read_runs` gives them.

    >>> recorded_runs("fmnist")["agg_method"].nunique() > 3
    True
    """
    if grid not in GRIDS:
        raise unknown_name("grid", grid, GRIDS)
    with as_file(files(__name__) / f"{grid}.csv") as path:
        return read_runs(path)[0]
