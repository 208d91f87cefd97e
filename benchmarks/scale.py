"""Time per round and memory of a run as the number of clients grows, of PSI and clustering alone, and of starting.

    python benchmarks/scale.py [PART ...] [--clients NUMBER ...]

The parts, by default all of them:

growing   a run of clients with ten rows each, so the data grow with the clients
fixed     a run of clients who share a million rows
clusters  PSI of every client and its clusters, from label counts alone
start     the command line's help, the import, and the first and the second start of a run

A run is logistic regression on ten features: FedAvg with 50 clients per round.  Every line is a process of its own,
which reports its own peak memory.  Seconds are CPU seconds of all its threads, which a busy machine distorts least.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PER_ROUND, ROUNDS, FEATURES, CLASSES = 50, 20, 10, 4
ROWS_PER_CLIENT, FIXED_ROWS = 10, 1_000_000
PARTS = ("growing", "fixed", "clusters", "start")
MOST = {"growing": 10**6, "fixed": 10**5, "clusters": 10**7}


def run(clients: int, rows: int) -> dict[str, float]:
    """A run as `clustpsi run` does it, from the federation to its files."""
    from clustpsi.datasets.base import Dataset
    from clustpsi.features import as_they_are
    from clustpsi.federation import build_federation
    from clustpsi.runs.cell import open_federation
    from clustpsi.runs.config import Config
    from clustpsi.runs.course import Course
    from clustpsi.runs.run import run
    from clustpsi.runs.store import Store

    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    labels = (features @ rng.standard_normal((FEATURES, CLASSES), dtype=np.float32)).argmax(axis=1).astype(np.int32)
    dataset = Dataset("noise", labels, tuple("abcd"), *as_they_are(features), model="logistic")
    config = Config(
        partitioner="iid",
        num_clients=clients,
        fraction=min(1.0, PER_ROUND / clients),
        comm_rounds=ROUNDS,
        local_epochs=1,
    )
    before = time.process_time()
    cell = open_federation(build_federation(dataset, "iid", None, clients, 42), config.checked())
    set_up = time.process_time() - before
    course = Course(config.checked(), cell)
    course.start()
    course.round()  # what is compiled or loaded for the first does not count
    before = time.process_time()
    while not course.is_over:
        course.round()
    per_round = (time.process_time() - before) / (ROUNDS - 1)
    with tempfile.TemporaryDirectory() as folder:
        done = run(config, Store(Path(folder)), cell=cell)
        written = sum(path.stat().st_size for path in done.path.iterdir())
    cell.server.close()
    return {"set_up": set_up, "per_round": per_round, "written": written}


def clusters(clients: int) -> dict[str, float]:
    """PSI of every client, and clusters; the compiled loops are loaded before."""
    from clustpsi.clustering import PSIClustering
    from clustpsi.skew import psi

    PSIClustering(max_clusters=2).fit(np.eye(300, dtype=np.int64))
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(10, 0.3), 8)
    table = rng.multinomial(100, mixes[rng.integers(0, 8, clients)])
    before = time.process_time()
    psi(table)
    between = time.process_time()
    found = PSIClustering(random_state=0).fit(table)
    return {"psi": between - before, "clustering": time.process_time() - between, "tau": found.n_clusters_}


def measured(*arguments: object) -> dict[str, float] | None:
    """One line in a process of its own; None if it fails."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(f"{' '.join(map(str, arguments))} failed: {last}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def one(kind: str, clients: int, rows: int = 0) -> None:
    found = run(clients, rows) if kind == "run" else clusters(clients)
    print(json.dumps({**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def print_runs(part: str, numbers: list[int]) -> None:
    growing = part == "growing"
    print(f"{ROWS_PER_CLIENT} rows per client" if growing else f"{FIXED_ROWS:,} rows in all")
    print("\n| clients | set-up, s | ms per round | peak MB | files, MB |\n|---|---|---|---|---|")
    for clients in numbers:
        found = measured("run", clients, ROWS_PER_CLIENT * clients if growing else FIXED_ROWS)
        if found:
            print(
                f"| {clients:,} | {found['set_up']:.2f} | {1e3 * found['per_round']:.1f} "
                f"| {found['peak'] / 2**20:,.0f} | {found['written'] / 1e6:.2f} |",
                flush=True,
            )


def print_clusters(numbers: list[int]) -> None:
    print("PSI and clusters\n\n| clients | PSI, s | clustering, s | tau | peak MB |\n|---|---|---|---|---|")
    for clients in numbers:
        found = measured("clusters", clients)
        if found:
            print(
                f"| {clients:,} | {found['psi']:.3f} | {found['clustering']:.2f} | {found['tau']:.0f} "
                f"| {found['peak'] / 2**20:,.0f} |",
                flush=True,
            )


def print_start() -> None:
    print("Starting\n\n| | s | CPU s | of it compiling, s |\n|---|---|---|---|")
    for title, *values in starts():
        print(f"| {title} | {' | '.join(value if isinstance(value, str) else f'{value:.2f}' for value in values)} |")


def starts() -> Iterator[tuple[Any, ...]]:
    """Seconds, CPU seconds and seconds of compiling of each kind of start."""
    python = [sys.executable, "-c"]
    yield "`python -c 'pass'`", *timed([*python, "pass"]), ""
    yield "`import clustpsi`", *timed([*python, "import clustpsi"]), ""
    yield "`clustpsi --help`", *timed([sys.executable, "-m", "clustpsi", "--help"]), ""
    for model in ("logistic", "mlp"):
        with tempfile.TemporaryDirectory() as folder:
            caches = {"CLUSTPSI_CACHE": f"{folder}/xla", "NUMBA_CACHE_DIR": f"{folder}/numba"}
            for start in ("first", "second"):
                output = Path(folder) / start
                command = [sys.executable, "-m", "clustpsi", "run", "--quiet", "--agg-method", "fedavg"]
                command += ["--model", model, "--comm-rounds", "1", "--seeds-list", "0", "--output", str(output)]
                spent = timed(command, caches)
                (timing,) = output.glob("*/timing.json")
                yield (
                    f"a run of one round, `{model}`, {start} start",
                    *spent,
                    json.loads(timing.read_text())["compilation"],
                )


def timed(command: list[str], caches: dict[str, str] | None = None) -> tuple[float, float]:
    """Seconds and CPU seconds of a process: the fewest of three, unless it is a run, whose caches fill."""
    # Python keeps modules compiled, as it does where nothing forbids it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent = []
    for _ in range(3 if caches is None else 1):
        began, used = time.perf_counter(), _cpu_of_children()
        subprocess.run(command, check=True, env=environment | (caches or {}), stdout=subprocess.DEVNULL)
        spent.append((time.perf_counter() - began, _cpu_of_children() - used))
    return tuple(map(min, zip(*spent, strict=True)))


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--clients", type=int, nargs="+", help="numbers of clients (default: 10, 100, 1,000, ...)")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], *map(int, options.one[1:]))
        return
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part}: choose from {', '.join(PARTS)}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    for part in options.parts or PARTS:
        print()
        if part == "start":
            print_start()
            continue
        powers = [10**e for e in range(1, 8) if 10**e <= MOST[part]]
        numbers = options.clients or powers
        print_clusters(numbers) if part == "clusters" else print_runs(part, numbers)


if __name__ == "__main__":
    main()
