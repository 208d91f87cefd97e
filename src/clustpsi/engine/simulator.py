"""The simulator: serves a method's orders for a whole federation on one machine.

Data lives on the device once; a client is a list of row numbers.  Clients train in chunks of lanes (several side by
side for small models, one at a time for others), as many chunks at once as there are cores.  Every random number
belongs to a (seed, round, client), chunks are formed by a fixed rule and sums run in a fixed order in double precision,
so that results depend neither on the number of workers nor on who finishes first.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

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
from clustpsi.ledger import Ledger
from clustpsi.methods.orders import (
    RULED_OUT_LOSS,
    Evaluate,
    Evaluated,
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


class _Batch(NamedTuple):
    """Rows that are scored at once: a part of a list, under one model, filled up to a size."""

    model: tuple[jax.Array, jax.Array]
    size: int
    begin: int
    end: int


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
        self._label_of_row = np.asarray(self._labels)
        places = [np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
        self._train_rows, self._test_rows = places[: federation.num_clients], places[federation.num_clients :]
        self._own_words = OwnWords.of(network, features, self._train_rows) if self._lanes == 1 else None
        # Fewer rows at a time for larger inputs: enough to fill the machine, not its memory.
        rows = 2 ** int(np.log2(2**18 / network.input_size))
        self._score_rows = int(np.clip(rows, LEAST_ROWS, self._programs.most_rows))
        self._no_prior = np.zeros((self._score_rows, federation.num_classes), np.float32)
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="clients")
        self._order_length = round_up(max(map(len, federation.train)) * local_epochs + batch_size)
        self._called: set[Hashable] = set()  # programs that have been, and are therefore compiled

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""
        with self._compiling("initial"):
            return self.network.initial(self.seed, index)

    def take_ledger(self) -> Ledger:
        """What orders have cost since the last call."""
        taken, self.ledger = self.ledger, Ledger()
        return taken

    def _is_new(self, program: Hashable) -> bool:
        """Whether a program is asked for the first time."""
        new = program not in self._called
        self._called.add(program)
        return new

    @contextmanager
    def _compiling(self, program: Hashable) -> Iterator[bool]:
        """For the first call of a program, which compiles it: its time is booked apart.  Says whether it is the first.

        Programs that train and score are then called for nothing, so that what they do afterwards takes the same time,
        whoever needs them first.
        """
        new = self._is_new(program)
        with self.ledger.timed("compilation") if new else nullcontext():
            yield new

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
                    return self._train_pooled(order, t)
            case LabelCounts(clients):
                counts = self.federation.label_counts[clients]
                self.ledger.bytes_up += 4 * counts.size  # a 32-bit integer a class
                return counts
            case LabelPresence(clients):
                present = self.federation.label_counts[clients] > 0
                self.ledger.bytes_up += len(clients) * -(-present.shape[1] // 8)  # one bit per class, in whole bytes
                return present
            case Losses(clients, model):
                self.ledger.bytes_down += len(clients) * model.num_bytes
                self.ledger.bytes_up += 4 * len(clients)
                with self.ledger.timed("losses"):
                    return self._client_losses(clients, model)
            case NearestModel(clients, models):
                self.ledger.bytes_down += len(clients) * sum(model.num_bytes for model in models)
                self.ledger.bytes_up += 4 * len(clients) * len(models)
                with self.ledger.timed("estimation"):
                    return self._nearest_model(clients, models)
            case Evaluate():
                with self.ledger.timed("evaluation"):
                    return self._evaluate(order)
        raise ClustPSIError(f"the simulator cannot serve an order of the type {type(order).__name__}")

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
        chunks = [group[at : at + self._lanes] for group in groups for at in range(0, len(group), self._lanes)]
        self._compile([[task for _, _, task in chunk] for chunk in chunks], t)
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

    def _compile(self, chunks: list[list[_Task]], t: int) -> None:
        """Compile the programs that these chunks are the first to need."""
        new = [chunk for chunk in chunks if self._is_new(self._program_of(chunk))]
        if new:
            with self.ledger.timed("compilation"):
                list(self._pool.map(lambda chunk: self._run_chunk(chunk, t, for_nothing=True), new))

    def _program_of(self, tasks: list[_Task]) -> Hashable:
        """What decides which compiled program trains a chunk."""
        words, task = self._words_of(tasks[0]), tasks[0]
        network = self.network if words is None else words.networks[task.client]
        return network, task.proximal > 0, self._lanes_for(tasks)

    def _lanes_for(self, tasks: list[_Task]) -> int:
        return min(self._lanes, power_of_two(len(tasks)))  # no more than a small chunk needs

    def _words_of(self, task: _Task) -> OwnWords | None:
        """For a model of text, the clients' own words, unless the client's other words move too."""
        return None if task.proximal > 0 and task.anchor is not task.start else self._own_words

    def _run_chunk(self, tasks: list[_Task], t: int, *, for_nothing: bool = False) -> list[tuple[Model, float]]:
        """Train the clients of a chunk, or take no step if it is only to compile the program."""
        words, task = self._words_of(tasks[0]), tasks[0]
        if words is None:
            return self._run_lanes(self.network, self._features, tasks, t, for_nothing)
        start = Model(words.cut(task.client, task.start.parameters), task.start.buffers)
        own = replace(task, start=start, anchor=start)
        ((model, loss),) = self._run_lanes(words.networks[task.client], words.tokens, [own], t, for_nothing)
        return [(Model(words.put_back(task.client, task.start.parameters, model.parameters), model.buffers), loss)]

    def _run_lanes(
        self, network: Network, features: jax.Array, tasks: list[_Task], t: int, for_nothing: bool
    ) -> list[tuple[Model, float]]:
        """Train clients side by side; empty lanes have no rows and take no steps."""
        proximal, lanes = tasks[0].proximal > 0, self._lanes_for(tasks)
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
        result = train(features, self._labels, _without_steps(jobs) if for_nothing else jobs)
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
            with self._compiling("optimizer"):
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
        with self._compiling(("pooled", visits.shape)) as new:
            if new:
                np.asarray(train(self._features, self._labels, _without_steps(job)).parameters)
        result = train(self._features, self._labels, job)
        model = Model(np.asarray(result.parameters)[0], np.asarray(result.buffers)[0])
        return Pooled(model, float(result.loss[0]), np.asarray(result.optimizer_state)[0])

    # --------------------------------------------------------------------------------------------------- scoring

    def _evaluate(self, order: Evaluate) -> Evaluated:
        """Score each model once, over the test rows of all clients that use it."""
        models, of_client, log_prior = order.deployment.models, order.deployment.of_client, order.deployment.log_prior
        sizes = self.federation.test_sizes[order.clients]
        by_model = np.argsort(of_client, kind="stable")
        rows = np.concatenate([self._test_rows[client] for client in order.clients[by_model]])
        owner, labels = np.repeat(by_model, sizes[by_model]), self._label_of_row.take(rows)
        ends = np.cumsum(np.bincount(of_client, sizes, minlength=len(models)).astype(np.int64))
        predicted, losses = self._score(models, ends, rows, owner, log_prior)
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
        _, losses = self._score([model], [sum(map(len, own))], np.concatenate(own))
        return _sums(_owners(own), losses, len(own)) / [max(len(rows), 1) for rows in own]

    def _nearest_model(self, clients: NDArray[np.int64], models: Sequence[Model]) -> NDArray[np.int64]:
        own = [self._train_rows[client] for client in clients]
        rows = np.concatenate(own)
        losses = np.stack([self._score([model], [len(rows)], rows)[1] for model in models])
        counts = np.zeros((len(clients), len(models)), np.int64)
        np.add.at(counts, (_owners(own), losses.argmin(axis=0)), 1)
        return counts

    def _score(
        self,
        models: Sequence[Model],
        ends: Sequence[int] | NDArray[np.int64],
        rows: NDArray[np.int64],
        owner: NDArray[np.int64] | None = None,
        log_prior: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Predicted class and loss of rows: up to ends[0] under the first model, then up to ends[1] under the second...

        ``log_prior`` has a line for each owner.
        """
        predicted, losses = np.empty(len(rows), np.int32), np.empty(len(rows), np.float64)

        def score(batch: _Batch) -> None:
            own = rows[batch.begin : batch.end]
            length = batch.size if self._programs.one_size else len(own)
            filled_up = np.zeros(length, np.int32)
            filled_up[: len(own)] = own
            prior = self._no_prior[:length]
            if log_prior is not None and owner is not None:
                prior = np.zeros_like(prior)
                prior[: len(own)] = np.maximum(log_prior[owner[batch.begin : batch.end]], NEVER)
            classes, loss = self._programs.score(self._features, self._labels, *batch.model, filled_up, prior)
            predicted[batch.begin : batch.end] = np.asarray(classes)[: len(own)]
            losses[batch.begin : batch.end] = np.asarray(loss)[: len(own)]

        for _ in self._in_order(score, self._batches(models, ends)):
            pass
        return predicted, losses

    def _batches(self, models: Sequence[Model], ends: Sequence[int] | NDArray[np.int64]) -> Iterator[_Batch]:
        """The rows of every model in batches, and their program compiled."""
        begin = 0
        for model, end in zip(models, map(int, ends), strict=True):
            if end == begin:
                continue
            # For a model that only few rows are scored with, a power of two that holds them: few sizes, few programs.
            size = min(self._score_rows, max(LEAST_ROWS, power_of_two(end - begin)))
            length = size if self._programs.one_size else 0
            with self._compiling(("score", length)) as new:
                on_device = jnp.asarray(model.parameters), jnp.asarray(model.buffers)
                if new:
                    nothing = np.zeros(length, np.int32), self._no_prior[:length]
                    np.asarray(self._programs.score(self._features, self._labels, *on_device, *nothing)[1])
            for at in range(begin, end, size):
                yield _Batch(on_device, size, at, min(at + size, end))
            begin = end

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


def _without_steps(job: Job) -> Job:
    """The same job with no rows to go over: calling its program compiles it and does nothing else."""
    return job._replace(size=np.zeros_like(job.size), epochs=np.zeros_like(job.epochs))


def _is_finite(model: Model) -> bool:
    return all(bool(np.isfinite(vector).all()) for vector in model)


def _stack(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return vectors[0][None] if len(vectors) == 1 else np.stack(vectors)


def _owners(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For every row of the concatenation, the position of the list it comes from."""
    return np.repeat(np.arange(len(rows)), [len(own) for own in rows])


def _sums(owner: NDArray[np.int64], values: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """The sum of every owner's values, added in their order."""
    return np.bincount(owner, values, minlength=number).astype(np.float64)
