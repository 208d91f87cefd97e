"""Check a data set: read it again, and compare it with the official content where that is known."""

import hashlib
from pathlib import Path

import numpy as np

from clustpsi.datasets import load_dataset
from clustpsi.datasets.cache import discard
from clustpsi.datasets.catalogue import DATASETS
from clustpsi.errors import ClustPSIError

# SHA-256 of all pixels, training part first, and then all labels: the same for every layout a release comes in.
CONTENT = {
    "fmnist": "2cbc59191665e1ba3f2494648f17edac5974f748ab89fb2ae05597d658161f54",
    "cifar10": "795f1793d7b8f8883c578442a02455d2469d49685325e98ea0621b15f4a88d69",
}


def verify(name: str, data_dir: Path) -> str:
    """One line about a data set that is fine; an error about one that is not.

    Examples
    --------
    >>> verify("digits", Path("anywhere"))
    'ok, 1,797 rows, 10 classes'
    """
    discard(data_dir / name)
    dataset = load_dataset(name, data_dir=data_dir)
    rows, entry = len(dataset.labels), DATASETS[name]
    line = f"ok, {rows:,} rows, {dataset.num_classes} classes"
    if name in CONTENT:
        digest = hashlib.sha256(np.ascontiguousarray(dataset.prepare(np.arange(rows))).data)
        digest.update(dataset.labels.astype(np.uint8).data)
        if digest.hexdigest() != CONTENT[name]:
            raise ClustPSIError(f"{data_dir / name} can be read but is not the official {entry.title}: get it again")
        return f"{line}, identical with the official release"
    if rows != entry.rows:
        line += f" (the complete set has {entry.rows:,})"
    return line
