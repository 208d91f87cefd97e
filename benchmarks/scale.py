"""Time per round and memory of a run as the number of clients grows, and of PSI and clustering alone.

    python benchmarks/scale.py [--most CLIENTS] [--most-counts CLIENTS]

Logistic regression on ten features, FedAvg with 50 clients per round.  In one series every client has ten rows, so the
data grows with the clients; in the other there are always a million rows.  Then PSI of every client and its clusters
from label counts alone.  Every line is a process of its own, which reports its own peak memory.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PER_ROUND, ROUNDS, FEATURES, CLASSES = 50, 5, 10, 4
ROWS_PER_CLIENT, FIXED_ROWS = 10, 1_000_000


def run(clients: int, rows: int) -> dict[str, float]:
    """A run as `clustpsi run` does it, from the federation to its files."""
    from clustpsi.datasets.base import Dataset
    from clustpsi.features import as_they_are
    from clustpsi.federation import build_federation
    from clustpsi.runs.cell import open_federation
    from clustpsi.runs.config import Config
    from clustpsi.runs.run import run
    from clustpsi.runs.store import Store

    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    labels = (features @ rng.standard_normal((FEATURES, CLASSES))).argmax(axis=1).astype(np.int32)
    dataset = Dataset("noise", labels, tuple("abcd"), *as_they_are(features), model="logistic")
    config = Config(
        partitioner="iid",
        num_clients=clients,
        fraction=min(1.0, PER_ROUND / clients),
        comm_rounds=ROUNDS,
        local_epochs=1,
    )
    before = time.perf_counter()
    cell = open_federation(build_federation(dataset, "iid", None, clients, 42), config.checked())
    set_up = time.perf_counter() - before
    with tempfile.TemporaryDirectory() as folder:
        before = time.perf_counter()
        done = run(config, Store(Path(folder)), cell=cell)
        took = time.perf_counter() - before
        spent = done.timing()["by_purpose"]
        written = sum(path.stat().st_size for path in done.path.iterdir())
    cell.server.close()
    per_round = (spent["training"] + spent["server"] + spent["evaluation"]) / ROUNDS
    return {"set_up": set_up, "per_round": per_round, "run": took, "written": written}


def counts(clients: int) -> dict[str, float]:
    """PSI of every client, and clusters."""
    from clustpsi.clustering import PSIClustering
    from clustpsi.skew import psi

    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(10, 0.3), 8)
    table = rng.multinomial(100, mixes[rng.integers(0, 8, clients)])
    before = time.perf_counter()
    psi(table)
    between = time.perf_counter()
    found = PSIClustering(random_state=0).fit(table)
    return {"psi": between - before, "clustering": time.perf_counter() - between, "tau": int(found.labels_.max()) + 1}


def measured(*arguments: object) -> dict[str, float] | None:
    """One line in a process of its own; None if it fails."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(map(str, arguments))} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def one(kind: str, clients: int, rows: int = 0) -> None:
    found = run(clients, rows) if kind == "run" else counts(clients)
    print(json.dumps({**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000, help="clients of a run")
    parser.add_argument("--most-counts", type=int, default=10_000_000, help="clients of PSI and clustering")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], *map(int, options.one[1:]))
        return
    print(f"load average {os.getloadavg()[0]:.1f}\n")
    for title, rows_of in (
        (f"{ROWS_PER_CLIENT} rows per client", lambda clients: ROWS_PER_CLIENT * clients),
        (f"{FIXED_ROWS:,} rows in all", lambda clients: FIXED_ROWS),
    ):
        print(f"{title}\n\n| clients | set-up, s | ms per round | whole run, s | peak MB | files, MB |")
        print("|---|---|---|---|---|---|")
        for clients in (10**e for e in range(1, 8)):
            if clients > options.most or rows_of(clients) < 2 * clients:
                break
            found = measured("run", clients, rows_of(clients))
            if found:
                print(
                    f"| {clients:,} | {found['set_up']:.2f} | {1e3 * found['per_round']:.1f} | {found['run']:.2f} "
                    f"| {found['peak'] / 2**20:,.0f} | {found['written'] / 1e6:.2f} |",
                    flush=True,
                )
        print()
    print("PSI and clusters\n\n| clients | PSI, s | clustering, s | tau | peak MB |\n|---|---|---|---|---|")
    for clients in (10**e for e in range(1, 8)):
        found = measured("counts", clients) if clients <= options.most_counts else None
        if found:
            print(
                f"| {clients:,} | {found['psi']:.2f} | {found['clustering']:.2f} | {found['tau']} "
                f"| {found['peak'] / 2**20:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
