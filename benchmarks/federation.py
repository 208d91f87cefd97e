"""What clustpsi adds to Flower: time per round beside a bare Flower app, and a Grid inside one process beside Ray.

    python benchmarks/federation.py deployed     four nodes as processes: clustpsi's FedAvg and a bare Flower FedAvg
    python benchmarks/federation.py simulated    100 nodes, 50 a round: LocalGrid and Flower's Ray simulation

Both train softmax regression on scikit-learn's digits and score every round.  The two sides take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")

NODES = 4
FEWEST_SIMULATED = 3

# The least that a Flower app must be: NumPy alone, nothing loaded that is not needed.
BARE_APP = """
import time

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid, context):
    def ended(number, arrays):
        with open(context.run_config["times"], "a") as file:
            file.write(f"{time.time()}\\n")

    nodes = context.run_config["nodes"]
    every = dict(fraction_train=1.0, fraction_evaluate=1.0, min_train_nodes=nodes, min_evaluate_nodes=nodes)
    strategy = FedAvg(**every, min_available_nodes=nodes)
    start = ArrayRecord([np.zeros((64, 10), np.float32), np.zeros(10, np.float32)])
    strategy.start(grid, start, num_rounds=context.run_config["rounds"], evaluate_fn=ended)


def rows(context):
    data = np.load(context.run_config["data"])
    own = slice(context.node_config["partition-id"], None, context.node_config["num-partitions"])
    return data["x"][own] / 16, data["y"][own]


def probabilities(weights, bias, x):
    logits = x @ weights + bias
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@client.train()
def train(message, context):
    weights, bias = message.content["arrays"].to_numpy_ndarrays()
    x, y = rows(context)
    for at in range(0, len(y), 32):
        gradient = probabilities(weights, bias, x[at : at + 32]) - np.eye(10)[y[at : at + 32]]
        weights = weights - 0.01 * x[at : at + 32].T @ gradient
        bias = bias - 0.01 * gradient.sum(axis=0)
    content = {"arrays": ArrayRecord([weights.astype(np.float32), bias.astype(np.float32)])}
    return Message(RecordDict({**content, "metrics": MetricRecord({"num-examples": len(y)})}), reply_to=message)


@client.evaluate()
def evaluate(message, context):
    weights, bias = message.content["arrays"].to_numpy_ndarrays()
    x, y = rows(context)
    right = float((probabilities(weights, bias, x).argmax(axis=1) == y).mean())
    return Message(
        RecordDict({"metrics": MetricRecord({"accuracy": right, "num-examples": len(y)})}), reply_to=message
    )
"""

BARE_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "bare"
version = "1.0.0"
license = "MIT"
dependencies = []
[tool.flwr.app]
publisher = "bare"
[tool.flwr.app.components]
serverapp = "bare:server"
clientapp = "bare:client"
[tool.flwr.app.config]
"""


def deployed(rounds: int, turns: int) -> None:
    """Time per round over processes, side by side on one SuperLink with the same nodes."""
    import numpy as np
    from sklearn.datasets import load_digits

    from clustpsi.flower.deployment import Federation, _flower, _flwr
    from clustpsi.flower.processes import check_port, program
    from clustpsi.flower.settings import Settings
    from clustpsi.runs.config import Config

    x, y = load_digits(return_X_y=True)
    spent: dict[str, list[float]] = {"bare": [], "clustpsi": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "digits.npz", x=x.astype(np.float32), y=y)
        for turn in range(turns):
            # Nodes of their own for each side: Flower's SuperNodes for the bare app, and clustpsi's.
            with Federation.up(0) as federation:
                for n in range(NODES):
                    supernode = [program("flower-supernode"), *federation.connection.arguments]
                    own = ["--port", str(check_port(0)), "--node-config", f"partition-id={n} num-partitions={NODES}"]
                    federation._processes.start(f"node-{n}", [*supernode, *own])
                app, times = folder / f"bare-{turn}", folder / f"times-{turn}"
                app.mkdir()
                (app / "bare.py").write_text(BARE_APP)
                config = {"times": str(times), "nodes": NODES, "rounds": rounds, "data": str(folder / "digits.npz")}
                lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in config.items())
                (app / "pyproject.toml").write_text(BARE_PROJECT + lines + "\n")
                command = [program("flwr"), "run", str(app), "clustpsi"]
                _flower(command, _flwr(federation.connection, folder), "the run")
                while not times.exists() or len(times.read_text().splitlines()) < rounds + 1:
                    federation.check()
                    time.sleep(0.2)
                ends = [float(line) for line in times.read_text().splitlines()]
                spent["bare"] += [after - before for before, after in pairwise(ends)]
            with Federation.up(0) as federation:
                for n in range(NODES):
                    federation.start_node(f"node-{n}", ["--partition-id", str(n), "--num-partitions", str(NODES)])
                stamps: list[float] = []

                def heard(event: dict[str, object], stamps: list[float] = stamps) -> None:
                    if event["event"] == "progress" and event["part"] == 0:
                        stamps.append(time.time())

                run = Config(
                    num_clients=NODES, non_iid_param=1.0, agg_method="fedavg", comm_rounds=rounds, local_epochs=1,
                    fraction=1.0,
                )  # fmt: skip
                federation.run(Settings(run, nodes=NODES, output=str(folder / f"runs-{turn}")), heard)
                spent["clustpsi"] += [after - before for before, after in pairwise(stamps)]
            print(
                f"turn {turn + 1}: { ({who: [round(each, 1) for each in times] for who, times in spent.items()}) }",
                flush=True,
            )
    middle = {who: statistics.median(times) for who, times in spent.items()}
    print(f"| seconds per round, {NODES} nodes | median | least |\n|---|---|---|")
    for who, times in spent.items():
        print(f"| {who} | {middle[who]:.1f} | {min(times):.1f} |")
    medians, least = middle["clustpsi"] / middle["bare"], min(spent["clustpsi"]) / min(spent["bare"])
    print(f"ratio of medians {medians:.2f}, of the least {least:.2f}")


SIDES = {
    "ray": ("ray_simulation", None),
    "ray, polled every 0.01 s": ("ray_simulation", 0.01),
    "local": ("local_grid", None),
}


def simulated(rounds: int, nodes: int = 100) -> None:
    """Time per round of the same apps over a Grid inside one process and over Flower's Ray simulation.

    Each side has a process of its own.  A node is set up when it is first asked, in Ray once in each of its processes,
    so the first half of the rounds does not count.  The last one, which ends with an evaluation on all nodes, does not
    count either.
    """
    from clustpsi.flower.settings import Settings
    from clustpsi.runs.config import Config

    run = Config(
        num_clients=nodes, non_iid_param=1.0, agg_method="fedavg", comm_rounds=rounds, local_epochs=1, fraction=0.5,
        eval_every=rounds,
    )  # fmt: skip
    code = "import sys, json, federation as own; getattr(own, sys.argv[1])(*map(json.loads, sys.argv[2:]))"
    spent, ready, ended = {}, {}, {}
    for side, (function, poll) in SIDES.items():
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "told"
            config = Settings(run, nodes=nodes, output=folder).as_run_config()
            start = time.time()
            subprocess.run(
                [sys.executable, "-c", code, function, *map(json.dumps, (config, nodes, str(told), poll))],
                check=True, stderr=subprocess.DEVNULL, cwd=Path(__file__).parent,
            )  # fmt: skip
            stamps, ended[side] = json.loads(told.read_text()).values()
        ready[side] = stamps[0] - start
        spent[side] = [after - before for before, after in pairwise(stamps)]
        print(f"{side}: {[round(each, 3) for each in spent[side]]}", flush=True)
    if len({json.dumps(each) for each in ended.values()}) > 1:
        raise SystemExit(f"the sides do not agree: {ended}")
    steady = {side: times[rounds // 2 : -1] for side, times in spent.items()}
    middle = {side: statistics.median(times) for side, times in steady.items()}
    print(f"| {nodes} nodes, {nodes // 2} train | start-up, s | first round, s | round, s: median | least |")
    print("|---|---|---|---|---|")
    for side, times in steady.items():
        print(f"| {side} | {ready[side]:.1f} | {spent[side][0]:.2f} | {middle[side]:.3f} | {min(times):.3f} |")
    for side in [*SIDES][:-1]:
        ratio, least = middle[side] / middle["local"], min(steady[side]) / min(steady["local"])
        print(f"the Grid inside one process beside {side}: {ratio:.1f} times as fast (least {least:.1f})")


def federate_over(grid, config: dict[str, object], path: str) -> None:
    """A run over a Grid; leaves the time at which each round ended, and the accuracy and loss of the last one."""
    from clustpsi.flower.server import federate
    from clustpsi.flower.settings import Settings

    stamps: list[float] = []

    def tell(event: str, **values: object) -> None:
        if event == "progress" and values["part"] == 0:
            stamps.append(time.time())

    last = federate(grid, Settings.of(config), tell).summary()["last"]
    Path(path).write_text(json.dumps({"stamps": stamps, "ended": last}))


def local_grid(config: dict[str, object], nodes: int, path: str, _: object) -> None:
    from clustpsi.flower.client import app_for
    from clustpsi.flower.local_grid import LocalGrid
    from clustpsi.flower.sources import node_for

    made = [node_for({"partition-id": k, "num-partitions": nodes}, config, str(k)) for k in range(nodes)]
    apps = {k: app_for(lambda envelope, _, node=node: node.handle(envelope)) for k, node in enumerate(made)}
    federate_over(LocalGrid(apps), config, path)


def ray_simulation(config: dict[str, object], nodes: int, path: str, poll: float | None) -> None:
    """One process of Ray's per core.  Flower's own Grid looks for answers every 0.1 s, as clustpsi's server does."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from clustpsi.flower.client import app_for
    from clustpsi.nodes import server as nodes_server

    server = ServerApp()
    if poll is not None:
        nodes_server.POLL = poll

    @server.main()
    def main(grid, context) -> None:
        federate_over(grid, config, path)

    def answer(envelope, context):
        from clustpsi.flower import sources

        # Ray copies this function for each message, but a module of an actor stays: so nodes keep rows and programs.
        kept = vars(sources).setdefault("kept_by_benchmark", {})
        number = int(context.node_config["partition-id"])
        if number not in kept:
            kept[number] = sources.node_for(context.node_config, config, str(number))
        return kept[number].handle(envelope)

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"address": "local", "include_dashboard": False}}
    run_simulation(server, app_for(answer), num_supernodes=nodes, backend_config=resources)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("deployed", "simulated"))
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "deployed":
        deployed(arguments.rounds or 4, arguments.turns)
    elif arguments.rounds is not None and arguments.rounds < FEWEST_SIMULATED:
        parser.error(f"simulated needs at least {FEWEST_SIMULATED} rounds: the first and the last do not count")
    else:
        simulated(arguments.rounds or 8)
