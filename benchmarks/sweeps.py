"""Runs per hour of a sweep, what a run costs besides its training, and the same sweep on a Ray cluster of two nodes.

    python benchmarks/sweeps.py [--dataset digits] [--data-dir FOLDER] [--seeds NUMBER]

Three methods and some seeds, 20 clients, 40 rounds, one process per core.  The two nodes are two `ray start` on this
machine, with one core each.  Needs ``pip install -e '.[ray]'``.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
METHODS = ("fedavg", "local", "clust_psi_pfl")
TRAINING = ("training", "evaluation", "server", "start")  # what a run is for; compiling and files are not


def sweep(output: Path, arguments: list[str]) -> tuple[float, int]:
    """Seconds of a sweep, and its number of runs."""
    before = time.perf_counter()
    command = [BIN / "clustpsi", "sweep", "--quiet", "--agg-method", ",".join(METHODS), "--output", output, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before, len(list(output.glob("*/summary.json")))


def overhead(output: Path, seconds: float, workers: int) -> float:
    """The share of the workers' time that did not go into training, scoring and the methods' own work."""
    spent = 0.0
    for path in output.glob("*/timing.json"):
        by_purpose = json.loads(path.read_text())["by_purpose"]
        spent += sum(by_purpose.get(purpose, 0.0) for purpose in TRAINING)
    return 1 - spent / (seconds * workers)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def start_node(*arguments: str) -> "subprocess.Popen[bytes]":
    """A Ray node that ends with its process; its workers have the usual priority, as those of the local sweep do."""
    command = [BIN / "ray", "start", "--block", "--num-cpus", "1", *arguments]
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    arguments = ["--dataset", options.dataset, "--seeds-list", ",".join(map(str, range(options.seeds)))]
    arguments += [] if options.data_dir is None else ["--data-dir", options.data_dir]
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        sweep(Path(folder) / "first", [*arguments, "--seeds-list", "0"])  # compiles what is not in the cache
        local, runs = sweep(Path(folder) / "local", arguments)
        share = overhead(Path(folder) / "local", local, cores)
        port = free_port()
        address = f"127.0.0.1:{port}"
        head = start_node("--head", "--port", str(port), "--node-ip-address", "127.0.0.1", "--include-dashboard=false")
        other = None
        try:
            wait_for(port)
            other = start_node("--address", address)
            time.sleep(10)  # until the second node has joined
            there, _ = sweep(Path(folder) / "ray", [*arguments, "--ray", address])
        finally:
            for node in (other, head):
                if node is not None:
                    node.terminate()
                    node.wait()
    print(f"{options.dataset}, {runs} runs, {cores} cores, load average {os.getloadavg()[0]:.1f}")
    print(f"local: {3600 * runs / local:,.0f} runs per hour, {share:.0%} of the time besides training and scoring")
    print(f"Ray, two nodes: {3600 * runs / there:,.0f} runs per hour, {local / there:.2f} of local")


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the first Ray node does not answer")


if __name__ == "__main__":
    main()
