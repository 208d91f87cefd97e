"""The simulator: serves a method's orders for a whole federation on one machine.

Chunks of clients are formed by a fixed rule and sums run in a fixed order in double precision, so that results depend
neither on the number of workers nor on who finishes first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.engine.local import LocalWork, Task
from clustpsi.engine.network import Network
from clustpsi.engine.training import NEVER
from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation
from clustpsi.orders import (
    RULED_OUT_LOSS,
    Clients,
    Evaluate,
    Evaluated,
    LabelCounts,
    LabelPresence,
    Ledger,
    Losses,
    Model,
    NearestModel,
    Order,
    Together,
    Train,
    Trained,
    TrainPooled,
    WeightedMean,
    traffic,
)


class Simulator:
    """A federation whose clients are simulated on this machine: a :class:`~clustpsi.orders.Server`.

    Parameters
    ----------
    federation
        Data and clients.
    network
        The model.
    settings
        Those of :class:`~clustpsi.engine.local.LocalWork`: of local training, seed, workers and lanes.
    """

    def __init__(self, federation: Federation, network: Network, **settings: Any) -> None:
        self.federation, self.network = federation, network
        self.clients = Clients(
            federation.client_names,
            federation.dataset.class_names,
            federation.label_counts,
            federation.test_label_counts,
        )
        self.ledger = Ledger()
        self.watch: Callable[[float], None] | None = None
        # A client's rows lie side by side on the device, so that its batches stay in the processor's caches.
        parts = [*federation.train, *federation.test]
        layout, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        places = [np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
        self._train_rows, self._test_rows = places[: federation.num_clients], places[federation.num_clients :]
        self._label_of_row = federation.labels[layout]
        self.work = LocalWork(
            federation.features[layout],
            self._label_of_row,
            self._train_rows,
            network,
            federation.num_classes,
            compiling=lambda: self.ledger.timed("compilation"),
            **settings,
        )

    def close(self) -> None:
        self.work.close()

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""
        return self.work.initial(index)

    def take_ledger(self) -> Ledger:
        """What orders have cost since the last call."""
        taken, self.ledger = self.ledger, Ledger()
        return taken

    # ---------------------------------------------------------------------------------------------------- orders

    def serve(self, order: Order, t: int) -> Any:
        """Serve an order of round t (0: before the first round)."""
        match order:
            case Together(orders):
                return self._together(orders, t)
            case Train():
                return self._together((order,), t)[0]
            case TrainPooled():
                with self.ledger.timed("training"):
                    rows = np.concatenate(self._train_rows)
                    return self.work.train_pooled(order, rows, self.federation.num_clients, t)
            case LabelCounts(clients):
                self._book(order)
                return self.federation.label_counts[clients]
            case LabelPresence(clients):
                self._book(order)
                return self.federation.label_counts[clients] > 0
            case Losses(clients, model):
                self._book(order)
                with self.ledger.timed("losses"):
                    return self._client_losses(clients, model)
            case NearestModel(clients, models):
                self._book(order)
                with self.ledger.timed("estimation"):
                    return self._nearest_model(clients, models)
            case Evaluate():
                with self.ledger.timed("evaluation"):
                    return self._evaluate(order)
        raise ClustPSIError(f"the simulator cannot serve an order of the type {type(order).__name__}")

    def _book(self, order: Order) -> None:
        self.ledger.add(traffic(order, self.federation.num_classes))

    def _together(self, orders: tuple[Order, ...], t: int) -> tuple[Any, ...]:
        """Serve orders side by side: all local training in them shares one queue."""
        training = [order for order in orders if isinstance(order, Train)]
        trained: Iterator[Trained] = iter(())
        if training:
            with self.ledger.timed(training[0].purpose):
                trained = iter(self._train(training, t))
        return tuple(next(trained) if isinstance(order, Train) else self.serve(order, t) for order in orders)

    # -------------------------------------------------------------------------------------------------- training

    def _train(self, orders: Sequence[Train], t: int) -> list[Trained]:
        """Serve training orders from one queue of clients, largest first."""
        queue = [(i, j, task) for i, order in enumerate(orders) for j, task in enumerate(self._tasks(order))]
        # Lanes of a chunk run until the longest is done, so neighbours should be alike; ties go by client, then order.
        queue.sort(key=lambda item: (-len(item[2].rows), item[2].client, item[0]))
        groups = [
            [item for item in queue if (item[2].proximal > 0) == proximal] for proximal in (False, True)
        ]  # with and without the proximal term are two programs
        chunks = [group[at : at + self.work.lanes] for group in groups for at in range(0, len(group), self.work.lanes)]
        sums = [_Answers(order, self.federation.train_sizes) for order in orders]
        rows, done = sum(len(task.rows) for _, _, task in queue), 0
        for chunk, results in zip(
            chunks,
            self.work.train([[task for _, _, task in chunk] for chunk in chunks], t),
            strict=True,
        ):
            for (i, j, task), (model, loss) in zip(chunk, results, strict=True):
                sums[i].add(j, model, loss)
                done += len(task.rows)
            if self.watch is not None:
                self.watch(done / rows)
        replies = [each.result() for each in sums]
        for order, reply in zip(orders, replies, strict=True):
            self._book(order)
            self.ledger.trained += len(order.clients)
            self.ledger.left_out.extend(int(client) for client in order.clients[~reply.kept])
        return replies

    def _tasks(self, order: Train) -> list[Task]:
        number = len(order.clients)
        starts = [order.start] * number if isinstance(order.start, Model) else list(order.start)
        anchors = starts if order.anchors is None else list(order.anchors)
        proximal = np.broadcast_to(np.asarray(order.proximal, np.float64), number)
        shape = (number, self.federation.num_classes)
        log_prior = (
            np.zeros(shape, np.float32)
            if order.log_prior is None
            else np.maximum(order.log_prior, NEVER).astype(np.float32)
        )
        rows = self._train_rows
        return [
            Task(int(client), rows[client], start, float(mu), anchor, prior)
            for client, start, mu, anchor, prior in zip(
                order.clients, starts, proximal, anchors, log_prior, strict=True
            )
        ]

    # --------------------------------------------------------------------------------------------------- scoring

    def _evaluate(self, order: Evaluate) -> Evaluated:
        """Score each model once, over the test rows of all clients that use it."""
        models, of_client, log_prior = order.deployment.models, order.deployment.of_client, order.deployment.log_prior
        sizes = self.federation.test_sizes[order.clients]
        by_model = np.argsort(of_client, kind="stable")
        rows = np.concatenate([self._test_rows[client] for client in order.clients[by_model]])
        owner, labels = np.repeat(by_model, sizes[by_model]), self._label_of_row.take(rows)
        ends = np.cumsum(np.bincount(of_client, sizes, minlength=len(models)).astype(np.int64))
        predicted, losses = self.work.score(models, ends, rows, owner, log_prior)
        if log_prior is not None:
            losses[np.isneginf(log_prior)[owner, labels]] = RULED_OUT_LOSS
        shape = len(sizes), self.federation.num_classes
        cell = owner * shape[1] + predicted
        return Evaluated(
            actual=self.federation.test_label_counts[order.clients],
            predicted=np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape),
            correct=np.bincount(cell.compress(predicted == labels), minlength=shape[0] * shape[1]).reshape(shape),
            loss=_sums(owner, losses, shape[0]),
        )

    def _client_losses(self, clients: NDArray[np.int64], model: Model) -> NDArray[np.float64]:
        own = [self._train_rows[client] for client in clients]
        _, losses = self.work.score([model], [sum(map(len, own))], np.concatenate(own))
        return _sums(_owners(own), losses, len(own)) / [max(len(rows), 1) for rows in own]

    def _nearest_model(self, clients: NDArray[np.int64], models: Sequence[Model]) -> NDArray[np.int64]:
        own = [self._train_rows[client] for client in clients]
        rows = np.concatenate(own)
        losses = np.stack([self.work.score([model], [len(rows)], rows)[1] for model in models])
        counts = np.zeros((len(clients), len(models)), np.int64)
        np.add.at(counts, (_owners(own), losses.argmin(axis=0)), 1)
        return counts


class _Answers:
    """The replies to a training order as they come in."""

    def __init__(self, order: Train, sizes: NDArray[np.int64]) -> None:
        number = len(order.clients)
        self.weights = np.asarray(sizes[order.clients] if order.weights is None else order.weights, np.float64)
        self.losses, self.kept = np.full(number, np.nan), np.zeros(number, bool)
        self.models: list[Model | None] | None = [None] * number if order.each else None
        self.mean = WeightedMean()

    def add(self, j: int, model: Model, loss: float) -> None:
        if not all(bool(np.isfinite(vector).all()) for vector in model):
            return
        self.kept[j], self.losses[j] = True, loss
        if self.models is not None:
            self.models[j] = Model(model.parameters.copy(), model.buffers.copy())
        self.mean.add(model, float(self.weights[j]))

    def result(self) -> Trained:
        return Trained(self.mean.result(), self.losses, self.kept, self.models)


def _owners(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For every row of the concatenation, the position of the list it comes from."""
    return np.repeat(np.arange(len(rows)), [len(own) for own in rows])


def _sums(owner: NDArray[np.int64], values: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """The sum of every owner's values, added in their order."""
    return np.bincount(owner, values, minlength=number).astype(np.float64)
