"""What a run has measured so far."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.evaluation import Scores
from clustpsi.methods.ledger import Ledger

SCORES = ("global_accuracy", "ad", "sdad", "worst10", "loss")
SERVER_SCORES = ("server_accuracy", "server_ad", "server_sdad")
COSTS = ("participants", "left_out", "bytes_up", "bytes_down", "tau")


class History:
    """Every round's costs and every evaluated round's scores; plain arrays inside, so that a checkpoint can hold it.

    Round 0 is the set-up: what it sends (label counts, for instance) is a cost too, and its scores are those of the
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
        """Record round t; ``scores`` is None where it was not evaluated."""
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
            "history/rounds": np.array(self._rounds, np.float64),
            "history/evaluated": np.array(self._evaluated, np.int64),
            "history/accuracy": np.array(self._accuracy),
            "history/loss": np.array(self._loss),
            "history/left_out": np.array(self._left_out, np.int64).reshape(-1, 2),
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, NDArray[Any]]) -> "History":
        history = cls()
        history._rounds = packed["history/rounds"].tolist()
        history._evaluated = packed["history/evaluated"].tolist()
        history._accuracy, history._loss = list(packed["history/accuracy"]), list(packed["history/loss"])
        history._left_out = [(t, client) for t, client in packed["history/left_out"].tolist()]
        history.last_accuracy = history.evaluated()["global_accuracy"][-1]
        return history

    def rounds(self) -> dict[str, NDArray[Any]]:
        """All rounds, a column a quantity; columns that do not apply to the method are left out."""
        table = dict(zip(("round", *SCORES, *SERVER_SCORES, *COSTS), np.array(self._rounds).T, strict=True))
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
        """A row for every client and evaluated round."""
        return {
            "round": np.repeat(np.array(self._evaluated), len(client_names)),
            "client": np.tile(np.array(client_names, dtype=object), len(self._evaluated)),
            "accuracy": np.concatenate(self._accuracy),
            "loss": np.concatenate(self._loss),
        }

    def left_out(self) -> dict[str, NDArray[Any]]:
        """Clients whose update was not finite, with the round."""
        pairs = np.array(self._left_out, np.int64).reshape(-1, 2)
        return {"round": pairs[:, 0], "client": pairs[:, 1]}
