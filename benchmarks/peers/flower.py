"""Flower's simulation on Ray: one processor for each client, as many clients at once as there are processors."""

import os
import sys
import tempfile

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_DEDUP_LOGS": "0"}
os.environ["RAY_ADDRESS"] = "local"  # whatever cluster there is, or was and left its address
os.environ.setdefault("FLWR_HOME", tempfile.mkdtemp(prefix="flower-"))

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.flower_client import client_app, loaded
from peers.protocol import PER_ROUND, Gate
from peers.torch_models import accuracy

MANY = 10**6


class Rounds(FedAvg):
    """Its own averaging, which stops before every round until it is told to go on."""

    def __init__(self, gate: Gate, path: str) -> None:
        self._gate, self._path = gate, path
        task = loaded(path)[0]
        super().__init__(fraction_train=PER_ROUND / task.num_clients, fraction_evaluate=0.0)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid):  # type: ignore[no-untyped-def]
        if not self._gate.wait():
            os._exit(0)  # the strategy has no way to end early; Ray's processes end with this one
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(f"{len(failed)} clients failed: {failed[0]}")
        arrays, metrics = super().aggregate_train(server_round, replies)
        task, _, _, model = loaded(self._path)
        model.load_state_dict(arrays.to_torch_state_dict())
        self._gate.trained(accuracy(model, task))
        return arrays, metrics


def main(path: str) -> None:
    gate = Gate()
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        Rounds(gate, path).start(grid, ArrayRecord(loaded(path)[3].state_dict()), num_rounds=MANY)

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server,
        client_app(path),
        num_supernodes=loaded(path)[0].num_clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
