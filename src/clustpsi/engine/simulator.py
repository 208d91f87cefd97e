"""The simulator: serves a method's orders for a whole federation on one machine.

Data lives on the device once; a client is a list of row numbers.  Clients train in chunks of lanes (several side by
side for small models, one at a time for others), as many chunks at once as there are cores.  Every random number
belongs to a (seed, round, client), chunks are formed by a fixed rule and sums run in a fixed order in double precision,
so that results depend neither on the number of workers nor on who finishes first.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clustpsi.engine import runtime
from clustpsi.engine.network import Network
from clustpsi.engine.own_words import OwnWords
from clustpsi.engine.programs import programs_for
from clustpsi.engine.sizes import power_of_two, round_up
from clustpsi.engine.training import NEVER, Job, make_optimizer
from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation
from clustpsi.methods.base import Deployment
from clustpsi.methods.ledger import Ledger
from clustpsi.methods.orders import (
    LabelCounts,
    LabelPresence,
    Losses,
    Model,
    NearestModel,
    Order,
    Pooled,
    Together,
    Train,
    Trained,
    TrainPooled,
)
from clustpsi.streams import Stream, generator, raw_key

# Scored at once, unused rows included.
LEAST_ROWS = 64

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class _Task:
    """One client's part of a training order."""

    client: int
    rows: NDArray[np.int64]
    start: Model
    proximal: float
    anchor: Model
    log_prior: NDArray[np.float32]


class Simulator:
    """A federation whose clients are simulated on this machine.

    Parameters
    ----------
    federation
        Data and clients.
    network
        The model.
    optimizer, lr, batch_size, local_epochs
        Of local training.
    seed
        Of batch order, dropout and initial models.
    workers
        How many chunks of clients run at once; by default one per core (one on an accelerator).
    lanes
        Clients per chunk of the general program; by default decided by the model's size, and a small softmax
        regression has a program of its own.
    """

    def __init__(
        self,
        federation: Federation,
        network: Network,
        *,
        optimizer: str = "adam",
        lr: float = 1e-3,
        batch_size: int = 32,
        local_epochs: int = 5,
        seed: int = 0,
        workers: int | None = None,
        lanes: int | None = None,
    ) -> None:
        runtime.use_compilation_cache()
        on_cpu = jax.default_backend() == "cpu"
        self.federation, self.network, self.seed = federation, network, seed
        self.batch_size, self.local_epochs = batch_size, local_epochs
        self.workers = workers or (runtime.cpu_count() if on_cpu else 1)
        self._optimizer = make_optimizer(optimizer, lr)
        self._programs = programs_for(network, optimizer, lr, batch_size, lanes)
        self._lanes = self._programs.lanes
        self.ledger = Ledger()
        self.watch: Callable[[float], None] | None = None  # told which share of a training order is done
        # A client's rows lie side by side on the device, so that its batches stay in the processor's caches.
        parts = [*federation.train, *federation.test]
        layout, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        features = federation.features[layout]
        self._features, self._labels = jnp.asarray(features), jnp.asarray(federation.labels[layout])
        places = [np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
        self._train_rows, self._test_rows = places[: federation.num_clients], places[federation.num_clients :]
        self._own_words = OwnWords.of(network, features, self._train_rows) if self._lanes == 1 else None
        # Fewer rows at a time for larger inputs: enough to fill the machine, not its memory.
        rows = 2 ** int(np.log2(2**18 / network.input_size))
        self._score_rows = int(np.clip(rows, LEAST_ROWS, self._programs.most_rows))
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="clients")
        self._order_length = round_up(max(map(len, federation.train)) * local_epochs + batch_size)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""
        return self.network.initial(self.seed, index)

    def take_ledger(self) -> Ledger:
        """What orders and evaluations have cost since the last call."""
        taken, self.ledger = self.ledger, Ledger()
        return taken

    @contextmanager
    def _timed(self, purpose: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.ledger.seconds[purpose] = self.ledger.seconds.get(purpose, 0.0) + time.perf_counter() - start

    # ---------------------------------------------------------------------------------------------------- orders

    def serve(self, order: Order, t: int) -> Any:
        """Serve an order of round t (0: before the first round)."""
        match order:
            case Together(orders):
                return self._together(orders, t)
            case Train():
                return self._together((order,), t)[0]
            case TrainPooled():
                with self._timed("training"):
                    return self._train_pooled(order, t)
            case LabelCounts(clients):
                counts = self.federation.label_counts[clients]
                self.ledger.bytes_up += 4 * counts.size  # a 32-bit integer a class
                return counts
            case LabelPresence(clients):
                present = self.federation.label_counts[clients] > 0
                self.ledger.bytes_up += len(clients) * -(-present.shape[1] // 8)  # a bit a class, in whole bytes
                return present
            case Losses(clients, model):
                self.ledger.bytes_down += len(clients) * model.num_bytes
                self.ledger.bytes_up += 4 * len(clients)
                with self._timed("losses"):
                    return self._client_losses(clients, model)
            case NearestModel(clients, models):
                self.ledger.bytes_down += len(clients) * sum(model.num_bytes for model in models)
                self.ledger.bytes_up += 4 * len(clients) * len(models)
                with self._timed("estimation"):
                    return self._nearest_model(clients, models)
        raise TypeError(f"not an order: {order!r}")

    def _together(self, orders: tuple[Order, ...], t: int) -> tuple[Any, ...]:
        """Serve orders side by side: all local training in them shares one queue."""
        training = [order for order in orders if isinstance(order, Train)]
        trained: Iterator[Trained] = iter(())
        if training:
            with self._timed(training[0].purpose):
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
        chunks = [group[at : at + self._lanes] for group in groups for at in range(0, len(group), self._lanes)]
        sums = [_WeightedMean(order, self.federation.train_sizes) for order in orders]
        rows, done = sum(len(task.rows) for _, _, task in queue), 0
        for chunk, results in zip(
            chunks,
            self._in_order(lambda chunk: self._run_chunk([task for _, _, task in chunk], t), chunks),
            strict=True,
        ):
            for (i, j, task), (model, loss) in zip(chunk, results, strict=True):
                sums[i].add(j, model, loss)
                done += len(task.rows)
            if self.watch is not None:
                self.watch(done / rows)
        replies = [each.result() for each in sums]
        for order, reply in zip(orders, replies, strict=True):
            size = (order.start if isinstance(order.start, Model) else order.start[0]).num_bytes
            self.ledger.bytes_down += order.downloads * size * len(order.clients)
            self.ledger.bytes_up += order.uploads * size * len(order.clients)
            self.ledger.trained += len(order.clients)
            self.ledger.left_out.extend(int(client) for client in order.clients[~reply.kept])
        return replies

    def _tasks(self, order: Train) -> list[_Task]:
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
            _Task(int(client), rows[client], start, float(mu), anchor, prior)
            for client, start, mu, anchor, prior in zip(
                order.clients, starts, proximal, anchors, log_prior, strict=True
            )
        ]

    def _run_chunk(self, tasks: list[_Task], t: int) -> list[tuple[Model, float]]:
        """Train the clients of a chunk, a model of text over the client's own words if the others would not move."""
        words, task = self._own_words, tasks[0]
        if words is None or (task.proximal > 0 and task.anchor is not task.start):
            return self._run_lanes(self.network, self._features, tasks, t)
        start = Model(words.cut(task.client, task.start.parameters), task.start.buffers)
        own = replace(task, start=start, anchor=start)
        ((model, loss),) = self._run_lanes(words.networks[task.client], words.tokens, [own], t)
        return [(Model(words.put_back(task.client, task.start.parameters, model.parameters), model.buffers), loss)]

    def _run_lanes(
        self, network: Network, features: jax.Array, tasks: list[_Task], t: int
    ) -> list[tuple[Model, float]]:
        """Train clients side by side; empty lanes have no rows and take no steps."""
        proximal = tasks[0].proximal > 0
        lanes = min(self._lanes, power_of_two(len(tasks)))  # no more than a small chunk needs
        order = np.zeros((lanes, self._order_length), np.int32)
        keys = np.zeros((lanes, 2), np.uint32)
        for lane, task in enumerate(tasks):
            stream = (self.seed, Stream.TRAINING, t, task.client)
            _fill_order(order[lane], task.rows, self.local_epochs, generator(*stream))
            keys[lane] = raw_key(*stream)
        padded = [*tasks, *[tasks[-1]] * (lanes - len(tasks))]
        jobs = Job(
            parameters=_stack([task.start.parameters for task in padded]),
            buffers=_stack([task.start.buffers for task in padded]),
            optimizer_state=np.zeros((lanes, 0), np.float32),
            order=order,
            size=np.array([len(task.rows) for task in tasks] + [0] * (lanes - len(tasks)), np.int32),
            epochs=np.full(lanes, self.local_epochs, np.int32),
            key=keys,
            proximal=np.array([task.proximal for task in padded], np.float32),
            anchor=_stack([task.anchor.parameters for task in padded])
            if proximal
            else np.zeros((lanes, 0), np.float32),
            log_prior=_stack([task.log_prior for task in padded]),
        )
        train = self._programs.training(network, proximal=proximal, keep_optimizer=False, lanes=lanes)
        result = train(features, self._labels, jobs)
        parameters, buffers, losses = np.asarray(result.parameters), np.asarray(result.buffers), np.asarray(result.loss)
        return [(Model(parameters[lane], buffers[lane]), float(losses[lane])) for lane in range(len(tasks))]

    def _train_pooled(self, order: TrainPooled, t: int) -> Pooled:
        """Train on all clients' rows: one client who holds everything and keeps its optimizer."""
        rows = np.concatenate(self._train_rows)
        stream = (self.seed, Stream.TRAINING, t, self.federation.num_clients)
        visits = np.zeros((1, order.epochs * len(rows) + self.batch_size), np.int32)
        _fill_order(visits[0], rows, order.epochs, generator(*stream))
        state = order.optimizer_state
        if state is None:
            fresh = self._optimizer.init(self.network.parameters_of(jnp.asarray(order.start.parameters)))
            state = np.asarray(ravel_pytree(fresh)[0], np.float32)
        job = Job(
            parameters=order.start.parameters[None],
            buffers=order.start.buffers[None],
            optimizer_state=state[None],
            order=visits,
            size=np.array([len(rows)], np.int32),
            epochs=np.array([order.epochs], np.int32),
            key=raw_key(*stream)[None],
            proximal=np.zeros(1, np.float32),
            anchor=np.zeros((1, 0), np.float32),
            log_prior=np.zeros((1, self.federation.num_classes), np.float32),
        )
        train = self._programs.training(self.network, proximal=False, keep_optimizer=True, lanes=1)
        result = train(self._features, self._labels, job)
        model = Model(np.asarray(result.parameters)[0], np.asarray(result.buffers)[0])
        if not _is_finite(model):
            raise ClustPSIError("centralized training diverged to values that are not finite; a smaller --lr may help")
        return Pooled(model, float(result.loss[0]), np.asarray(result.optimizer_state)[0])

    # --------------------------------------------------------------------------------------------------- scoring

    def evaluate(self, deployment: Deployment) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Correctly classified test samples and summed test loss of every client, each under the model it uses."""
        with self._timed("evaluation"):
            return self._score_clients(self._test_rows, deployment)

    def _client_losses(self, clients: NDArray[np.int64], model: Model) -> NDArray[np.float64]:
        rows = [self._train_rows[client] for client in clients]
        _, loss = self._score_clients(rows, Deployment((model,), np.zeros(len(clients), np.int64)))
        return loss / [max(len(own), 1) for own in rows]

    def _nearest_model(self, clients: NDArray[np.int64], models: Sequence[Model]) -> NDArray[np.int64]:
        rows = [self._train_rows[client] for client in clients]
        owner, everything = _owners(rows), np.concatenate(rows)
        losses = np.stack([self._score_rows_of(model, everything, owner, None)[1] for model in models])
        nearest = losses.argmin(axis=0)
        counts = np.zeros((len(clients), len(models)), np.int64)
        np.add.at(counts, (owner, nearest), 1)
        return counts

    def _score_clients(
        self, rows: Sequence[NDArray[np.int64]], deployment: Deployment
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Each model is evaluated once, over the rows of all clients that use it."""
        correct, loss = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.float64)
        for index, model in enumerate(deployment.models):
            users = np.flatnonzero(deployment.of_client == index)
            own = [rows[int(user)] for user in users]
            if not sum(map(len, own)):
                continue
            owner = _owners(own)
            prior = None if deployment.log_prior is None else deployment.log_prior[users]
            right, losses = self._score_rows_of(model, np.concatenate(own), owner, prior)
            correct[users] = np.bincount(owner, right, minlength=len(users))
            loss[users] = np.bincount(owner, losses, minlength=len(users))
        return correct, loss

    def _score_rows_of(
        self, model: Model, rows: NDArray[np.int64], owner: NDArray[np.int64], log_prior: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Score rows in batches; for a program that is compiled for one size, the last is filled up."""
        # For a model that only few rows are scored with, a power of two that holds them: few sizes, few compilations.
        size, classes = min(self._score_rows, max(LEAST_ROWS, power_of_two(len(rows)))), self.federation.num_classes
        batches = range(0, len(rows), size)
        parameters, buffers = jnp.asarray(model.parameters), jnp.asarray(model.buffers)

        def score(at: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
            own = rows[at : at + size]
            length = size if self._programs.one_size else len(own)
            padded = np.zeros(length, np.int32)
            padded[: len(own)] = own
            prior = np.zeros((length, classes), np.float32)
            if log_prior is not None:
                prior[: len(own)] = np.maximum(log_prior[owner[at : at + size]], NEVER)
            right, losses = self._programs.score(self._features, self._labels, parameters, buffers, padded, prior)
            return np.asarray(right)[: len(own)], np.asarray(losses)[: len(own)]

        parts = list(self._in_order(score, batches))
        return np.concatenate([right for right, _ in parts]), np.concatenate([losses for _, losses in parts]).astype(
            np.float64
        )

    # ------------------------------------------------------------------------------------------------------ pool

    def _in_order(self, work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Results in the order of the items, with only a few items under way or waiting at any time."""
        waiting: list[Future[B]] = []
        remaining = iter(items)
        waiting.extend(self._pool.submit(work, item) for item in islice(remaining, 2 * self.workers))
        while waiting:
            result = waiting.pop(0).result()
            waiting.extend(self._pool.submit(work, item) for item in islice(remaining, 1))
            yield result


class _WeightedMean:
    """The weighted mean of models as they come in, in double precision: memory does not grow with their number."""

    def __init__(self, order: Train, sizes: NDArray[np.int64]) -> None:
        number = len(order.clients)
        self.weights = np.asarray(sizes[order.clients] if order.weights is None else order.weights, np.float64)
        self.losses, self.kept = np.full(number, np.nan), np.zeros(number, bool)
        self.models: list[Model | None] | None = [None] * number if order.each else None
        self.sums: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def add(self, j: int, model: Model, loss: float) -> None:
        if not _is_finite(model):
            return
        self.kept[j], self.losses[j] = True, loss
        if self.models is not None:
            self.models[j] = Model(model.parameters.copy(), model.buffers.copy())
        if self.sums is None:
            self.sums = np.zeros(model.parameters.size), np.zeros(model.buffers.size)
        if self.weights[j] > 0:
            for total, vector in zip(self.sums, model, strict=True):
                total += self.weights[j] * vector

    def result(self) -> Trained:
        total = self.weights[self.kept].sum()
        mean = None
        if self.sums is not None and total > 0:
            mean = Model(*((vector / total).astype(np.float32) for vector in self.sums))
        return Trained(mean, self.losses, self.kept, self.models)


def _fill_order(out: NDArray[np.int32], rows: NDArray[np.int64], epochs: int, rng: np.random.Generator) -> None:
    """Write the rows of each epoch, reshuffled, one epoch after the other; the rest is the client's own rows too.

    It fills the last batch, where it does not count, but another client's texts may have words this client lacks.
    """
    out[epochs * len(rows) :] = rows[0]
    epoch = rows.astype(np.int64)  # NumPy shuffles integers of the machine's size fastest
    for e in range(epochs):
        rng.shuffle(epoch)
        out[e * len(epoch) : (e + 1) * len(epoch)] = epoch


def _is_finite(model: Model) -> bool:
    return all(bool(np.isfinite(vector).all()) for vector in model)


def _stack(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return vectors[0][None] if len(vectors) == 1 else np.stack(vectors)


def _owners(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For every row of the concatenation, the position of the list it comes from."""
    return np.repeat(np.arange(len(rows)), [len(own) for own in rows])
