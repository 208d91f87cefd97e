"""PFLlib, a research code base: its FedAvg server and clients, from a checkout in the folder that PFLLIB names.

It is no package, so `make bench` cannot install it, and without a checkout it is reported as missing.  Of what it
imports, h5py is not among the other peers' packages.
"""

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from peers.protocol import BATCH, EPOCHS, LEARNING_RATE, PER_ROUND, Gate, Task, chosen
from peers.torch_models import accuracy, adam, build

if "PFLLIB" not in os.environ:
    raise SystemExit("set PFLLIB to the folder of a checkout of PFLlib")
sys.path.insert(0, str(Path(os.environ["PFLLIB"]).resolve() / "system"))


def write_clients(task: Task, folder: Path) -> None:
    """The files that PFLlib reads a client's data from, every time the client trains."""
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        for client, rows in enumerate(task.train):
            own = rows if part == "train" else rows[:1]
            data = {"x": task.features[own], "y": task.labels[own]}
            np.savez_compressed(folder / part / f"{client}.npz", data=np.array(data, dtype=object))


def main(path: str) -> None:
    gate, task = Gate(), Task.load(path)
    folder = Path(tempfile.mkdtemp(prefix="pfllib-"))
    # Its reader takes names with Shakespeare in them for texts, whose tokens it keeps whole numbers.
    name = "Shakespeare" if np.issubdtype(task.features.dtype, np.signedinteger) else "case"
    write_clients(task, folder / "dataset" / name)
    (folder / "system").mkdir()
    os.chdir(folder / "system")

    from flcore.clients.clientavg import clientAVG
    from flcore.servers.serveravg import FedAvg

    class Client(clientAVG):
        """Its own training, with a fresh Adam for every round in place of SGD."""

        def train(self) -> None:
            self.optimizer = adam(self.model.parameters())
            super().train()

    settings = SimpleNamespace(
        model=build(task), dataset=name, num_classes=task.num_classes, num_clients=task.num_clients, device="cpu",
        global_rounds=1, local_epochs=EPOCHS, batch_size=BATCH, local_learning_rate=LEARNING_RATE,
        join_ratio=PER_ROUND / task.num_clients, random_join_ratio=False, few_shot=0, algorithm="FedAvg",
        time_select=False, goal="case", time_threthold=1e9, save_folder_name="items", top_cnt=100, auto_break=False,
        eval_gap=1, client_drop_rate=0.0, train_slow_rate=0.0, send_slow_rate=0.0, dlg_eval=False, dlg_gap=100,
        batch_num_per_client=2, num_new_clients=0, fine_tuning_epoch_new=0, learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
    )  # fmt: skip
    with mock.patch("flcore.servers.serveravg.clientAVG", Client):
        server = FedAvg(settings, 0)
    rng = np.random.default_rng(0)
    while gate.wait():
        server.current_num_join_clients = PER_ROUND
        server.selected_clients = [server.clients[client] for client in chosen(rng, task)]
        server.send_models()
        for client in server.selected_clients:
            client.train()
        server.receive_models()
        server.aggregate_parameters()
        gate.trained(accuracy(server.global_model, task))


if __name__ == "__main__":
    main(sys.argv[1])
