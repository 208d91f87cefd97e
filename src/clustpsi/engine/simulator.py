"""The simulator: serves a method's orders for a whole federation on one machine.

Chunks of clients follow a fixed rule, and sums are made in a fixed order in double precision.  So results depend
neither on the number of workers nor on which of them finishes first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.engine.local import LocalWork, Task
from clustpsi.engine.network import Network
from clustpsi.engine.readings import reading_losses
from clustpsi.engine.training import NEVER
from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation
from clustpsi.orders import (
    RULED_OUT_LOSS,
    Answers,
    Clients,
    Evaluate,
    Evaluated,
    HeldOutLosses,
    HoldOut,
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
    traffic,
)
from clustpsi.partition import RowLists, Rows, label_counts


class Simulator:
    """A federation whose clients are simulated on this machine: a :class:`~clustpsi.orders.Server`.

    Parameters
    ----------
    federation
        Data and clients.
    network
        The model.
    told
        Label counts of training and test rows as the clients report them; by default the true counts.
    settings
        Settings of :class:`~clustpsi.engine.local.LocalWork`: local training, seed, workers, lanes and forms.
    """

    def __init__(
        self,
        federation: Federation,
        network: Network,
        *,
        told: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        **settings: Any,
    ) -> None:
        self.federation, self.network, self._told, self._settings = federation, network, told, settings
        counts = told or (federation.label_counts, federation.test_label_counts)
        self.clients = Clients(federation.client_names, federation.dataset.class_names, *counts)
        self.newcomers: Clients | None = None
        self.ledger = Ledger()
        self.watch: Callable[[float], None] | None = None
        # A client's rows lie side by side on the device, so that its batches stay in the processor's caches.
        train, test = federation.train, federation.test
        layout = np.concatenate([train.rows, test.rows])
        self._train_rows, self._test_rows = (
            RowLists(places, part.sizes)
            for places, part in zip(np.split(np.arange(len(layout)), [len(train.rows)]), (train, test), strict=True)
        )
        self._label_of_row = federation.labels.take(layout)
        self._parts: dict[tuple[int, HoldOut], tuple[Rows, Rows]] = {}
        self.work = LocalWork(
            federation.features.take(layout, axis=0),
            self._label_of_row,
            self._train_rows,
            network,
            federation.num_classes,
            compiling=lambda: self.ledger.timed("compilation"),
            **settings,
        )

    def close(self) -> None:
        self.work.close()

    @property
    def forms(self) -> tuple[str, ...]:
        """Forms of the model's convolutions; none if they are the usual ones."""
        return self.work.forms

    def with_forms(self, forms: tuple[str, ...]) -> "Simulator":
        """The same federation, with these forms."""
        return Simulator(self.federation, self.network, told=self._told, **{**self._settings, "forms": forms})

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""
        return self.work.initial(index)

    def take_ledger(self) -> Ledger:
        """Costs of orders since the last call."""
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
                    rows = self._train_rows.rows
                    return self.work.train_pooled(order, rows, self.federation.num_clients, t)
            case LabelCounts(clients, hold_out):
                self._book(order)
                return self._label_counts(clients, hold_out)
            case LabelPresence(clients):
                self._book(order)
                return self.clients.train_counts[clients] > 0
            case Losses(clients, model):
                self._book(order)
                with self.ledger.timed(order.purpose):
                    return self._client_losses(clients, model)
            case HeldOutLosses():
                self._book(order)
                with self.ledger.timed(order.purpose):
                    return self._held_out_losses(order)
            case NearestModel(clients, models):
                self._book(order)
                with self.ledger.timed(order.purpose):
                    return self._nearest_model(clients, models)
            case Evaluate():
                with self.ledger.timed(order.purpose):
                    return self._evaluate(order)
        raise ClustPSIError(f"the simulator cannot serve an order of the type {type(order).__name__}")

    def _split(self, client: int, hold_out: HoldOut | None) -> tuple[Rows, Rows]:
        """A client's training rows: those that it trains on, and those that it holds out."""
        rows = self._train_rows[client]
        if hold_out is None:
            return rows, rows[:0]
        if (client, hold_out) not in self._parts:
            self._parts[client, hold_out] = self.work.held_out(client, rows, hold_out)
        return self._parts[client, hold_out]

    def _label_counts(self, clients: Rows, hold_out: HoldOut | None) -> Rows:
        if hold_out is None or self._told is not None:  # protected counts are reported only once
            return self.clients.train_counts[clients]
        trained_on = [self._split(int(client), hold_out)[0] for client in clients]
        return label_counts(trained_on, self._label_of_row, self.federation.num_classes)

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
        # Lanes of a chunk run until the longest is done, so neighbours should be similar.  Ties: by client, then order.
        queue.sort(key=lambda item: (-len(item[2].rows), item[2].client, item[0]))
        groups: dict[tuple[bool, ...], list[tuple[int, int, Task]]] = {}  # each kind needs its own program
        for item in queue:
            groups.setdefault(tuple(item[2].kind.values()), []).append(item)
        chunks = [
            group[at : at + self.work.lanes]
            for _, group in sorted(groups.items())
            for at in range(0, len(group), self.work.lanes)
        ]
        sums = [self._answers(order) for order in orders]
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
        replies = [Trained.of(each) for each in sums]
        for order, reply in zip(orders, replies, strict=True):
            self._book(order)
            self.ledger.trained += len(order.clients)
            self.ledger.left_out.extend(int(client) for client in order.clients[~reply.kept])
        return replies

    def _answers(self, order: Train) -> Answers:
        weights = self.clients.sizes[order.clients] if order.weights is None else order.weights
        return Answers(order.clients, weights, order.each, order.running_mean())

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
        rows = [self._split(int(client), order.hold_out)[0] for client in order.clients]
        if self._told is not None:
            log_prior = np.stack([self._with_untold(*each) for each in zip(log_prior, rows, strict=True)])
        scales = [None] * number if order.logit_scale is None else list(order.logit_scale.astype(np.float32))
        trains = None if order.trains is None else order.trains.astype(np.float32)
        return [
            Task(int(client), own, start, float(mu), anchor, prior, scale, trains)
            for client, own, start, mu, anchor, prior, scale in zip(
                order.clients, rows, starts, proximal, anchors, log_prior, scales, strict=True
            )
        ]

    def _with_untold(self, log_prior: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """A client's log prior in which no class that it holds is ruled out.

        What it did not tell, or told as none because of noise, the server believes absent.  Here such a class counts as
        the rarest of those that the server knows of: with a probability of zero its rows would push all others away.
        """
        told, held = log_prior > NEVER, np.zeros(len(log_prior), bool)
        held[self._label_of_row[rows]] = True
        if not told.any():
            return np.zeros_like(log_prior)
        return np.where(held & ~told, log_prior[told].min(), log_prior)

    # --------------------------------------------------------------------------------------------------- scoring

    def _evaluate(self, order: Evaluate) -> Evaluated:
        """Score each model once, over the test rows of all clients that use it."""
        models, of_client, log_prior = order.deployment.models, order.deployment.of_client, order.deployment.log_prior
        sizes = self.federation.test_sizes[order.clients]
        by_model = np.argsort(of_client, kind="stable")
        rows = self._test_rows.chosen(order.clients[by_model]).rows
        owner, labels = np.repeat(by_model, sizes[by_model]), self._label_of_row.take(rows)
        ends = np.cumsum(np.bincount(of_client, sizes, minlength=len(models)).astype(np.int64))
        predicted, losses = self.work.score(models, ends, rows, owner, log_prior, order.deployment.scale)
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
        own = self._train_rows.chosen(clients)
        _, losses = self.work.score([model], [len(own.rows)], own.rows)
        return _sums(own.owners, losses, len(own)) / np.maximum(own.sizes, 1)

    def _held_out_losses(self, order: HeldOutLosses) -> NDArray[np.float64]:
        own = RowLists.of([self._split(int(client), order.hold_out)[1] for client in order.clients])
        rows, owner = own.rows, own.owners
        if isinstance(order.model, Model):
            logits = self.work.logits([order.model], [len(rows)], rows)
        else:
            logits = self.work.logits(order.model, np.cumsum(own.sizes), rows)
        return reading_losses(order, logits, self._label_of_row[rows], owner)

    def _nearest_model(self, clients: NDArray[np.int64], models: Sequence[Model]) -> NDArray[np.int64]:
        own = self._train_rows.chosen(clients)
        losses = np.stack([self.work.score([model], [len(own.rows)], own.rows)[1] for model in models])
        counts = np.zeros((len(clients), len(models)), np.int64)
        np.add.at(counts, (own.owners, losses.argmin(axis=0)), 1)
        return counts


def _sums(owner: NDArray[np.int64], values: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """The sum of every owner's values, added in their order."""
    return np.bincount(owner, values, minlength=number).astype(np.float64)
