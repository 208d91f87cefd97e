"""The scores and costs of a run so far."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.evaluation import Scores
from clustpsi.orders import Ledger

SCORES = ("global_accuracy", "balanced_accuracy", "macro_f1", "ad", "sdad", "worst10", "loss")
SERVER_SCORES = ("server_accuracy", "server_ad", "server_sdad")
COSTS = ("participants", "left_out", "bytes_up", "bytes_down", "tau")
COLUMNS = ("round", *SCORES, *SERVER_SCORES, *COSTS)

# A run's score is that of its last round.  It is unstable if global accuracy in the last few evaluated rounds differed
# from it by more than this.
STABLE = 0.05
LAST_FEW = 5


class History:
    """Costs of every round and scores of every evaluated round; plain arrays, so that a checkpoint can hold them.

    Round 0 is the set-up.  What it sends (for instance, label counts) is a cost too.  Its scores are those of the
    initial model.
    """

    def __init__(self) -> None:
        self._rounds: list[list[float]] = []
        self._evaluated: list[int] = []
        self._accuracy: list[NDArray[np.float64]] = []
        self._loss: list[NDArray[np.float64]] = []
        self._left_out: list[tuple[int, int]] = []
        self.last_accuracy = float("nan")

    def add(
        self,
        t: int,
        scores: Scores | None,
        server: Sequence[Scores],
        ledger: Ledger,
        clusters: NDArray[np.int64] | None,
    ) -> None:
        """Record round t; ``scores`` is None if the round was not evaluated."""
        row = [float("nan")] * (len(SCORES) + len(SERVER_SCORES))
        if scores is not None:
            row[: len(SCORES)] = [getattr(scores, key) for key in SCORES]
            self._evaluated.append(t)
            self._accuracy.append(scores.local_accuracy)
            self._loss.append(scores.local_loss)
            self.last_accuracy = scores.global_accuracy
        if server:
            distance = 1 - np.mean([each.local_accuracy for each in server], axis=0)
            row[len(SCORES) :] = [
                float(np.mean([each.global_accuracy for each in server])),
                np.nanmean(distance),
                np.nanstd(distance),
            ]
        tau = 0 if clusters is None else int(clusters.max()) + 1
        self._rounds.append([t, *row, ledger.trained, len(ledger.left_out), ledger.bytes_up, ledger.bytes_down, tau])
        self._left_out += [(t, client) for client in ledger.left_out]

    def pack(self) -> dict[str, NDArray[Any]]:
        return {
            "history/columns": np.array(COLUMNS),
            "history/rounds": np.array(self._rounds, np.float64),
            "history/evaluated": np.array(self._evaluated, np.int64),
            "history/accuracy": np.array(self._accuracy),
            "history/loss": np.array(self._loss),
            "history/left_out": np.array(self._left_out, np.int64).reshape(-1, 2),
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, NDArray[Any]]) -> "History":
        """The history from the arrays that :meth:`pack` made."""
        if tuple(packed["history/columns"].tolist()) != COLUMNS:
            raise ValueError("its rounds have other columns")
        history = cls()
        history._rounds = packed["history/rounds"].tolist()
        history._evaluated = packed["history/evaluated"].tolist()
        history._accuracy, history._loss = list(packed["history/accuracy"]), list(packed["history/loss"])
        history._left_out = [(t, client) for t, client in packed["history/left_out"].tolist()]
        history.last_accuracy = history.evaluated()["global_accuracy"][-1]
        return history

    def rounds(self) -> dict[str, NDArray[Any]]:
        """All rounds, one column per quantity; columns that do not apply to the method are omitted."""
        table = dict(zip(COLUMNS, np.array(self._rounds).T, strict=True))
        columns = {
            key: column.astype(np.int64) if key in ("round", *COSTS) else column for key, column in table.items()
        }
        if np.isnan(columns["server_accuracy"]).all():
            columns = {key: column for key, column in columns.items() if key not in SERVER_SCORES}
        if not columns["tau"].any():
            del columns["tau"]
        return columns

    def evaluated(self) -> dict[str, NDArray[Any]]:
        """Only the evaluated rounds."""
        rounds = self.rounds()
        kept = np.isin(rounds["round"], self._evaluated)
        return {key: column[kept] for key, column in rounds.items()}

    def local(self, client_names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """One row per scored client and evaluated round."""
        return {
            "round": np.repeat(np.array(self._evaluated), len(client_names)),
            "client": np.tile(np.array(client_names, dtype=object), len(self._evaluated)),
            "accuracy": np.concatenate(self._accuracy),
            "loss": np.concatenate(self._loss),
        }

    def left_out(self, client_names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Clients whose update was missing or not finite, with the round."""
        pairs = np.array(self._left_out, np.int64).reshape(-1, 2)
        return {"round": pairs[:, 0], "client": np.array(client_names, dtype=object)[pairs[:, 1]]}

    @property
    def num_left_out(self) -> int:
        """How many different clients had an update that was missing or not finite."""
        return len({client for _, client in self._left_out})

    def last_few(self) -> NDArray[np.float64]:
        """Global accuracy of the last evaluated rounds, without the initial model."""
        evaluated = self.evaluated()
        accuracy: NDArray[np.float64] = evaluated["global_accuracy"][evaluated["round"] > 0][-LAST_FEW:]
        return accuracy

    def notes(self, num_clients: int) -> list[str]:
        """What a reader of the scores should know, one sentence each; usually empty."""
        notes, rounds, accuracy = [], self.rounds(), self.last_few()
        scored = len(self._accuracy[-1])
        if scored < num_clients:
            notes.append(f"scores are those of {scored:,} of the {num_clients:,} clients, drawn by the seed")
        if self._left_out:
            clients = self.num_left_out
            notes.append(
                f"{len(self._left_out)} of {int(rounds['participants'].sum())} updates were missing or not finite and "
                f"omitted ({clients} {'client' if clients == 1 else 'clients'}, see left_out.csv)"
            )
        if max(accuracy.max() - accuracy[-1], accuracy[-1] - accuracy.min()) > STABLE:
            notes.append(
                f"accuracy moved between {accuracy.min():.3f} and {accuracy.max():.3f} in the last {len(accuracy)} "
                f"evaluated rounds: that of the last one, {accuracy[-1]:.3f}, may be chance"
            )
        return notes
