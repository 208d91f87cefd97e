"""The paper's six data sets, scikit-learn's digits, and the user's own tables."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustpsi.datasets.catalogue import DATASETS
from clustpsi.datasets.files import DataMissing, data_folder, is_file_name
from clustpsi.errors import ClustPSIError, unknown_name

if TYPE_CHECKING:
    from clustpsi.datasets.base import Dataset
    from clustpsi.datasets.labels import Name
    from clustpsi.datasets.tables import from_arrays, from_table

# Loaded when they are first used: the command line's help needs only the data sets' names.
_HOMES = {"Dataset": "base", "from_arrays": "tables", "from_table": "tables"}

__all__ = [
    "DATASETS",
    "DataMissing",
    "Dataset",
    "data_folder",
    "from_arrays",
    "from_table",
    "is_file_name",
    "load_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clustpsi.datasets' has no attribute {name!r}")
    return getattr(import_module(f"clustpsi.datasets.{_HOMES[name]}"), name)


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    label: "Name | None" = None,
    **reading: Any,
) -> "Dataset":
    """Load a data set by name, or the user's own from a file.

    Parameters
    ----------
    name_or_path
        One of ``DATASETS``, or a file.
    data_dir
        Folder with one sub-folder per named data set; default: ``CLUSTPSI_DATA`` or a folder in the user's cache.
    label, reading
        For a file: its label column, and the other arguments of :func:`from_table`.

    Examples
    --------
    >>> dataset = load_dataset("digits")
    >>> dataset.num_classes, len(dataset.labels), dataset.model
    (10, 1797, 'logistic')
    """
    name = str(name_or_path)
    if name in DATASETS:
        for option, value in {"label": label, **reading}.items():
            if value not in (None, (), False):
                flag = "--" + option.replace("_", "-")
                raise ClustPSIError(f"{flag} is for a file of your own, and {name} is a data set with its own columns")
        dataset: Dataset = import_module(f"clustpsi.datasets.{name}").load(data_folder(data_dir) / name)
        return dataset
    if is_file_name(name):
        from clustpsi.datasets.tables import from_table

        return from_table(name, label=label, **reading)
    raise unknown_name("dataset", name, DATASETS)
