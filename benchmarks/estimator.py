"""What `FederatedClassifier.fit` costs beside a run of the same settings on the same rows.

    python benchmarks/estimator.py [--model logistic] [--rows 20000] [--rounds 20] [--repeats 5]

A data frame of ten columns, 20 clients with label mixes of their own.  Both take turns, with the same split and seed,
and the median CPU time counts: unlike the clock it does not count what other processes take.  A run reads no file here
(it is given the data frame too) and writes its folder.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

import clustpsi
from clustpsi.runs.cell import open_cell
from clustpsi.runs.sources import identified


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    site = rng.integers(0, 20, rows)
    label = (rng.random(rows) < np.linspace(0.05, 0.95, 20)[site]).astype(int)
    frame = pd.DataFrame(rng.normal(size=(rows, 10)) + label[:, None], columns=[f"x{i}" for i in range(10)])
    return frame.assign(site=[f"site {number}" for number in site], label=label)


def by_run(frame: pd.DataFrame, model: str, rounds: int) -> None:
    dataset = clustpsi.from_table(frame, label="label", client="site")
    config = clustpsi.Config(
        dataset=dataset.name,
        model=model,
        partitioner="natural",
        agg_method="clust_psi_pfl",
        comm_rounds=rounds,
        split="client_80_20",
        seed=0,
    )
    config = identified(config.checked(), dataset)
    with tempfile.TemporaryDirectory() as folder:
        clustpsi.run(config, clustpsi.Store(Path(folder)), cell=open_cell(config, dataset=dataset), save_models=True)


def by_fit(frame: pd.DataFrame, model: str, rounds: int, split: str) -> None:
    estimator = clustpsi.FederatedClassifier("clust_psi_pfl", model, comm_rounds=rounds, split=split, random_state=0)
    estimator.fit(frame.drop(columns=["site", "label"]), frame["label"], clients=frame["site"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="logistic")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    frame = table(given.rows)
    ways = {
        "run": lambda: by_run(frame, given.model, given.rounds),
        "fit": lambda: by_fit(frame, given.model, given.rounds, "client_80_20"),
        "all": lambda: by_fit(frame, given.model, given.rounds, "none"),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(given.repeats + 1):  # the first compiles
        for name, work in ways.items():
            start = time.process_time()
            work()
            if repeat:
                spent[name].append(time.process_time() - start)
    run, fit, everything = (median(spent[name]) for name in ways)
    print("| model | rows | rounds | run, CPU s | fit, same split | fit, all rows train |")
    print("|---|---|---|---|---|---|")
    settings = f"{given.model} | {given.rows:,} | {given.rounds}"
    print(f"| {settings} | {run:.2f} | {fit:.2f} ({fit / run:.2f}) | {everything:.2f} ({everything / run:.2f}) |")


if __name__ == "__main__":
    main()
