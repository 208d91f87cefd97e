"""Runs per hour of a sweep, the overhead of a run, and the same sweep on a Ray cluster of two nodes.

    python benchmarks/sweeps.py [--dataset digits] [--data-dir FOLDER] [--seeds NUMBER] [--num-clients NUMBER]
                                [--dirichlet ALPHA] [--local]

Three methods and some seeds, 40 rounds, one process per core.  A sweep of a single seed per core is timed too: what it
takes less than the whole sweep is what the other runs take, so start and compilation, which every process has once, can
be told from what every run has (setting up its federation, writing its files).  The two nodes are two `ray start` on
this machine, with one core each; --local goes without them.  Needs ``pip install -e '.[ray]'``.
"""

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
METHODS = ("fedavg", "local", "clust_psi_pfl")
TRAINING = ("training", "evaluation", "server", "start")  # what a run is for; compiling and files are not


@dataclass(frozen=True)
class Sweep:
    """A sweep that was made: seconds from start to end, runs, and what the runs themselves book as work."""

    seconds: float
    runs: int
    work: float
    files: float

    @classmethod
    def of(cls, output: Path, seeds: int, arguments: list[str]) -> "Sweep":
        command = [BIN / "clustpsi", "sweep", "--quiet", "--agg-method", ",".join(METHODS), "--output", output]
        before = time.perf_counter()
        subprocess.run(
            [*command, "--seeds-list", ",".join(map(str, range(seeds))), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - before
        spent = [json.loads(path.read_text())["by_purpose"] for path in output.glob("*/timing.json")]
        work = sum(each.get(purpose, 0.0) for each in spent for purpose in TRAINING)
        return cls(seconds, len(spent), work, sum(each["files"] for each in spent))


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a Ray cluster of two nodes with a core each, which knows us by a token of its own."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    port = free_port()
    address = f"127.0.0.1:{port}"
    nodes = [start_node("--head", "--port", str(port), "--node-ip-address", "127.0.0.1", "--include-dashboard=false")]
    try:
        wait_for(port)
        nodes.append(start_node("--address", address))
        time.sleep(10)  # until the second node has joined
        yield address
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait()


def start_node(*arguments: str) -> "subprocess.Popen[bytes]":
    """A Ray node that ends with its process; its workers have the usual priority, as those of the local sweep do."""
    command = [BIN / "ray", "start", "--block", "--num-cpus", "1", *arguments]
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the first Ray node does not answer")


def row(title: str, few: Sweep, whole: Sweep, cores: int, local: Sweep) -> str:
    """Runs per hour in all; of the runs beyond the first few, seconds of work, and the share of what is not work."""
    runs, seconds = whole.runs - few.runs, (whole.seconds - few.seconds) * cores
    work, files = whole.work - few.work, whole.files - few.files
    start = few.seconds - seconds / runs * few.runs / cores
    return (
        f"| {title} | {whole.runs} | {3600 * whole.runs / whole.seconds:,.0f} | {local.seconds / whole.seconds:.2f} "
        f"| {start:.1f} | {work / runs:.3f} | {files / runs:.3f} | {seconds / runs - (work + files) / runs:.3f} "
        f"| {seconds / work - 1:.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--num-clients", default="20")
    parser.add_argument("--dirichlet", default="0.1", help="alpha of the partition (ACSIncome has none at 0.1)")
    parser.add_argument("--local", action="store_true", help="without Ray")
    options = parser.parse_args()
    arguments = ["--dataset", options.dataset, "--num-clients", options.num_clients, "--dirichlet", options.dirichlet]
    arguments += [] if options.data_dir is None else ["--data-dir", options.data_dir]
    cores = len(os.sched_getaffinity(0))
    print(f"{options.dataset}, {options.num_clients} clients, {cores} cores, load average {os.getloadavg()[0]:.1f}\n")
    print(
        "| | runs | runs per hour | of local | start of a process, s | work of a run, s | its files, s | the rest, s "
        "| overhead |\n|---|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        Sweep.of(place / "first", 1, arguments)  # compiles what is not in the cache
        few = Sweep.of(place / "few", cores, arguments)
        local = Sweep.of(place / "local", options.seeds, arguments)
        print(row("processes", few, local, cores, local), flush=True)
        if options.local:
            return
        with two_nodes() as address:
            on_ray = [*arguments, "--ray", address]
            few = Sweep.of(place / "few on Ray", cores, on_ray)
            print(row("Ray, two nodes", few, Sweep.of(place / "Ray", options.seeds, on_ray), cores, local))


if __name__ == "__main__":
    main()
