"""The paper's six data sets, scikit-learn's digits, and the user's own tables."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.catalogue import DATASETS
from clustpsi.datasets.files import DataMissing, data_folder
from clustpsi.datasets.tables import from_arrays, from_table
from clustpsi.errors import ClustPSIError, unknown_name

__all__ = ["DATASETS", "DataMissing", "Dataset", "data_folder", "from_arrays", "from_table", "load_dataset"]


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    label: str | None = None,
    client: str | None = None,
    text: Sequence[str] = (),
) -> Dataset:
    """Load a data set by name, or the user's own from a CSV, Parquet or NPZ file.

    Parameters
    ----------
    name_or_path
        One of ``DATASETS``, or a file.
    data_dir
        Folder with one sub-folder a named data set; default: ``CLUSTPSI_DATA`` or a folder in the user's cache.
    label, client, text
        For a file: its label column, the column that names the natural client, and the columns of free text.

    Examples
    --------
    >>> dataset = load_dataset("digits")
    >>> dataset.num_classes, len(dataset.labels), dataset.model
    (10, 1797, 'logistic')
    """
    name = str(name_or_path)
    if name in DATASETS:
        if label is not None or client is not None or text:
            raise ClustPSIError(f"label, client and text columns are for a file of your own: {name} has its own")
        dataset: Dataset = import_module(f"clustpsi.datasets.{name}").load(data_folder(data_dir) / name)
        return dataset
    path = Path(name_or_path).expanduser()
    if path.is_file() or path.suffix or len(path.parts) > 1:
        return from_table(path, label=label, client=client, text=text)
    raise unknown_name("dataset", name, DATASETS)
