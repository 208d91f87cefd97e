"""Made-up birds of four sites, ``site-1.csv`` to ``site-4.csv``: python make_sites.py FOLDER

Two sites see mostly larks and finches, two mostly finches and wrens.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

SPECIES = {"finch": (4.0, 2.0, 1.0), "lark": (6.0, 3.0, 2.0), "wren": (3.0, 1.0, 2.5)}
MIXES = [(0.3, 0.65, 0.05), (0.4, 0.55, 0.05), (0.35, 0.05, 0.6), (0.3, 0.1, 0.6)]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    for site, mix in enumerate(MIXES, start=1):
        species = rng.choice(list(SPECIES), size=120, p=mix)
        sizes = np.array([SPECIES[each] for each in species]) + rng.normal(scale=0.7, size=(120, 3))
        table = pd.DataFrame(sizes.round(2), columns=["length", "width", "depth"]).assign(species=species)
        table.to_csv(folder / f"site-{site}.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
