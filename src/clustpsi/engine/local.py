"""Training and scoring on the rows of this machine: one client's rows on a node, all clients' rows in the simulator.

The device holds the data once; a client is a list of row numbers.  Clients train in chunks: for a small model a chunk
has several clients side by side (in lanes), for other models it has one.  Each worker trains one chunk at a time.
Every random number belongs to a (seed, round, client), so results depend neither on the number of workers nor on the
chunks.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clustpsi.engine import runtime
from clustpsi.engine.forms import suited_forms, with_forms
from clustpsi.engine.network import Network
from clustpsi.engine.own_words import OwnWords
from clustpsi.engine.programs import programs_for
from clustpsi.engine.shuffling import shuffled_epochs
from clustpsi.engine.sizes import power_of_two, round_up
from clustpsi.engine.training import NEVER, Job, make_optimizer
from clustpsi.limits import check_visits, cpu_count
from clustpsi.orders import HoldOut, Model, Pooled, TrainPooled
from clustpsi.partition import RowLists
from clustpsi.streams import Stream, generator, raw_key

# Stands for a part that a job does not have.
NOTHING = np.zeros(0, np.float32)

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Task:
    """One client's part of a training order: its position among the clients on this machine, its rows, its start."""

    client: int
    rows: NDArray[np.int64]
    start: Model
    proximal: float
    anchor: Model
    log_prior: NDArray[np.float32]
    logit_scale: NDArray[np.float32] | None = None
    trains: NDArray[np.float32] | None = None

    @property
    def kind(self) -> dict[str, bool]:
        """What the program that trains it must support."""
        return {
            "proximal": self.proximal > 0,
            "scaled": self.logit_scale is not None,
            "partial": self.trains is not None,
        }


class _Batch(NamedTuple):
    """Rows that are scored at once: part of a list, under one model, padded to a size."""

    model: tuple[Any, Any]
    size: int
    begin: int
    end: int


class LocalWork:
    """Trains and scores a network on rows.

    Parameters
    ----------
    features, labels
        Features and labels of all rows.
    train_rows
        Training rows of every client on this machine.
    network
        The model.
    num_classes
        C, the number of classes.
    numbers
        Numbers of these clients in their federation; their random numbers depend on them.  By default 0, 1, 2, ...
    optimizer, lr, batch_size, local_epochs
        Settings of local training.
    seed
        Seed of batch order, dropout and initial models.
    workers
        How many chunks of clients run at once; by default one per core (one on an accelerator).
    lanes
        Clients per chunk of the general program.  By default the model's size decides, and a small softmax regression
        uses its own program.
    forms
        Forms of the model's convolutions, none for the usual ones; by default those that suit this machine.
    compiling
        Returns a context that times the first call of a program, which compiles it.
    """

    def __init__(
        self,
        features: NDArray[np.generic],
        labels: NDArray[np.int32],
        train_rows: RowLists,
        network: Network,
        num_classes: int,
        *,
        numbers: Sequence[int] | None = None,
        optimizer: str = "adam",
        lr: float = 1e-3,
        batch_size: int = 32,
        local_epochs: int = 5,
        seed: int = 0,
        workers: int | None = None,
        lanes: int | None = None,
        forms: tuple[str, ...] | None = None,
        compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        runtime.use_compilation_cache()
        on_cpu = jax.default_backend() == "cpu"
        if forms is None:
            with compiling():
                forms = suited_forms(network, batch_size)
        network = with_forms(network, forms)
        self.network, self.forms, self.seed, self.num_classes = network, forms, seed, num_classes
        self.batch_size, self.local_epochs = batch_size, local_epochs
        self._numbers = range(len(train_rows)) if numbers is None else numbers
        self.workers = workers or (cpu_count() if on_cpu else 1)
        self._on_one_core = on_cpu and self.workers == 1
        self._optimizer = make_optimizer(optimizer, lr)
        self._programs = programs_for(network, optimizer, lr, batch_size, lanes)
        self.lanes = self._programs.lanes
        largest = int(train_rows.sizes.max())
        check_visits(largest, local_epochs, "the largest client", self.workers * self.lanes)
        self._features: Any
        self._labels: Any
        if self._programs.side_by_side is None:
            self._features, self._labels = jnp.asarray(features), jnp.asarray(labels)
        else:  # loops read NumPy's arrays, and JAX would copy them
            self._features, self._labels = features, labels
        self._own_words = OwnWords.of(network, features, train_rows) if self.lanes == 1 else None
        self._scoring = self._programs.scoring
        self._no_prior = np.zeros((self._scoring.most_rows, num_classes), np.float32)
        self._no_scale = np.ones(self._scoring.most_rows, np.float32)
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="clients")
        self._order_length = round_up(largest * local_epochs + batch_size)
        self._time_compilation = compiling
        self._called: set[Hashable] = set()  # programs that were called, and so are compiled

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""
        with self._compiling("initial"):
            return self.network.initial(self.seed, index)

    # -------------------------------------------------------------------------------------------------- training

    def train(self, chunks: list[list[Task]], t: int) -> Iterator[list[tuple[Model, float]]]:
        """Train chunks of at most :attr:`lanes` clients in round t; yields each chunk's models and losses."""
        self._compile(chunks, t)
        return self._in_order(lambda chunk: self._run_chunk(chunk, t), chunks)

    def _compile(self, chunks: list[list[Task]], t: int) -> None:
        """Compile the programs that these chunks need and that are not compiled yet."""
        new = [chunk for chunk in chunks if self._is_new(self._program_of(chunk))]
        if new:
            with self._time_compilation():
                list(self._in_order(lambda chunk: self._run_chunk(chunk, t, for_nothing=True), new))

    def _program_of(self, tasks: list[Task]) -> Hashable:
        """What decides which compiled program trains a chunk."""
        words, task = self._words_of(tasks[0]), tasks[0]
        network = self.network if words is None else words.networks[task.client]
        return network, *task.kind.values(), self._lanes_for(tasks)

    def _lanes_for(self, tasks: list[Task]) -> int:
        return min(self.lanes, power_of_two(len(tasks)))  # no more than a small chunk needs

    def _words_of(self, task: Task) -> OwnWords | None:
        """For a text model, the client's own words; None if training also changes other words."""
        return None if task.proximal > 0 and task.anchor is not task.start else self._own_words

    def _run_chunk(self, tasks: list[Task], t: int, *, for_nothing: bool = False) -> list[tuple[Model, float]]:
        """Train the clients of a chunk, or only compile the program without taking a step."""
        words, task = self._words_of(tasks[0]), tasks[0]
        if words is None:
            return self._run_lanes(self.network, self._features, tasks, t, for_nothing)
        start = Model(words.cut(task.client, task.start.parameters), task.start.buffers)
        trains = None if task.trains is None else words.cut(task.client, task.trains)
        own = replace(task, start=start, anchor=start, trains=trains)
        ((model, loss),) = self._run_lanes(words.networks[task.client], words.tokens, [own], t, for_nothing)
        return [(Model(words.put_back(task.client, task.start.parameters, model.parameters), model.buffers), loss)]

    def _run_lanes(
        self, network: Network, features: Any, tasks: list[Task], t: int, for_nothing: bool
    ) -> list[tuple[Model, float]]:
        """Train clients side by side; empty lanes have no rows and take no steps."""
        kind, lanes = tasks[0].kind, self._lanes_for(tasks)
        labels = self._labels
        rows = [task.rows for task in tasks]
        if self._programs.side_by_side is not None:
            features, labels, own = self._side_by_side(rows[0])
            rows = [own]
        order = np.zeros((lanes, self._order_length), np.int32)
        keys = np.zeros((lanes, 2), np.uint32)
        for lane, task in enumerate(tasks):
            stream = (self.seed, Stream.TRAINING, t, self._numbers[task.client])
            _fill_order(order[lane], rows[lane], self.local_epochs, generator(*stream))
            if self._programs.side_by_side is None:  # the loops draw no other random numbers
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
            anchor=_stack([task.anchor.parameters if kind["proximal"] else NOTHING for task in padded]),
            log_prior=_stack([task.log_prior for task in padded]),
            logit_scale=_stack([NOTHING if task.logit_scale is None else task.logit_scale for task in padded]),
            trains=_stack([NOTHING if task.trains is None else task.trains for task in padded]),
        )
        train = self._programs.training(network, **kind, keep_optimizer=False, lanes=lanes)
        result = train(features, labels, _without_steps(jobs) if for_nothing else jobs)
        parameters, buffers, losses = np.asarray(result.parameters), np.asarray(result.buffers), np.asarray(result.loss)
        return [(Model(parameters[lane], buffers[lane]), float(losses[lane])) for lane in range(len(tasks))]

    def _side_by_side(self, rows: NDArray[np.int64]) -> tuple[Any, Any, NDArray[np.int64]]:
        """Features, labels and the numbers that rows have in them: copies of these rows, if training takes such."""
        if self._programs.side_by_side is None:
            return self._features, self._labels, rows
        return *self._programs.side_by_side(self._features, self._labels, rows), np.arange(len(rows))

    def train_pooled(self, order: TrainPooled, rows: NDArray[np.int64], client: int, t: int) -> Pooled:
        """Train on all given rows as one client with this number, which keeps its optimizer."""
        stream = (self.seed, Stream.TRAINING, t, client)
        features, labels, rows = self._side_by_side(rows)
        visits = np.zeros((1, order.epochs * len(rows) + self.batch_size), np.int32)
        _fill_order(visits[0], rows, order.epochs, generator(*stream))
        state = order.optimizer_state
        if state is None:
            with self._compiling("optimizer"):
                fresh = self._optimizer.start(self.network.parameters_of(jnp.asarray(order.start.parameters)))
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
            log_prior=np.zeros((1, self.num_classes), np.float32),
            logit_scale=NOTHING[None],
            trains=NOTHING[None],
        )
        train = self._programs.training(self.network, proximal=False, keep_optimizer=True, lanes=1)
        with self._compiling(("pooled", visits.shape)) as new:
            if new:
                np.asarray(train(features, labels, _without_steps(job)).parameters)
        result = train(features, labels, job)
        model = Model(np.asarray(result.parameters)[0], np.asarray(result.buffers)[0])
        return Pooled(model, float(result.loss[0]), np.asarray(result.optimizer_state)[0])

    # --------------------------------------------------------------------------------------------------- scoring

    def score(
        self,
        models: Sequence[Model],
        ends: Sequence[int] | NDArray[np.int64],
        rows: NDArray[np.int64],
        owner: NDArray[np.int64] | None = None,
        log_prior: NDArray[np.float64] | None = None,
        scale: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Predicted class and loss of rows: up to ends[0] under the first model, then up to ends[1] under the second...

        ``log_prior`` has one row per owner, which is added to the logits; ``scale`` has one number per owner, by which
        the logits are multiplied before.
        """
        predicted, losses = np.empty(len(rows), np.int32), np.empty(len(rows), np.float64)

        def score_batch(batch: _Batch) -> None:
            number, filled_up = batch.end - batch.begin, self._filled_up(batch, rows)
            prior, times = self._no_prior[: len(filled_up)], self._no_scale[: len(filled_up)]
            if log_prior is not None and owner is not None:
                prior = np.zeros_like(prior)
                prior[:number] = np.maximum(log_prior[owner[batch.begin : batch.end]], NEVER)
            if scale is not None and owner is not None:
                times = np.ones_like(times)
                times[:number] = scale[owner[batch.begin : batch.end]]
            classes, loss = self._scoring.score(self._features, self._labels, *batch.model, filled_up, times, prior)
            predicted[batch.begin : batch.end] = np.asarray(classes)[:number]
            losses[batch.begin : batch.end] = np.asarray(loss)[:number]

        def compile_for(batch: _Batch) -> None:
            nothing = self._filled_up(batch, rows)
            unread = self._no_scale[: len(nothing)], self._no_prior[: len(nothing)]
            np.asarray(self._scoring.score(self._features, self._labels, *batch.model, nothing, *unread)[1])

        for _ in self._in_order(score_batch, self._batches("score", compile_for, models, ends)):
            pass
        return predicted, losses

    def logits(
        self, models: Sequence[Model], ends: Sequence[int] | NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Logits of rows; models and ends as in :meth:`score`."""
        found = np.empty((len(rows), self.num_classes), np.float32)

        def read_batch(batch: _Batch) -> None:
            logits = self._scoring.logits(self._features, *batch.model, self._filled_up(batch, rows))
            found[batch.begin : batch.end] = np.asarray(logits)[: batch.end - batch.begin]

        def compile_for(batch: _Batch) -> None:
            np.asarray(self._scoring.logits(self._features, *batch.model, self._filled_up(batch, rows)))

        for _ in self._in_order(read_batch, self._batches("logits", compile_for, models, ends)):
            pass
        return found

    def held_out(
        self, client: int, rows: NDArray[np.int64], hold_out: HoldOut
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A client's rows: those that it trains on, and those that it holds out."""
        held = hold_out.chosen(len(rows), generator(self.seed, Stream.HELD_OUT, self._numbers[client]))
        return rows[~held], rows[held]

    def _filled_up(self, batch: _Batch, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """The rows of a batch, padded to the size that its program needs."""
        own = rows[batch.begin : batch.end]
        filled_up = np.zeros(batch.size if self._scoring.one_size else len(own), np.int32)
        filled_up[: len(own)] = own
        return filled_up

    def _batches(
        self,
        program: str,
        compile_for: Callable[[_Batch], None],
        models: Sequence[Model],
        ends: Sequence[int] | NDArray[np.int64],
    ) -> Iterator[_Batch]:
        """The rows of every model in batches; compiles their program."""
        begin = 0
        for model, end in zip(models, map(int, ends), strict=True):
            if end == begin:
                continue
            size = self._scoring.size_for(end - begin)
            with self._compiling((program, size if self._scoring.one_size else 0)) as new:
                placed = self._scoring.place(model.parameters), self._scoring.place(model.buffers)
                if new:
                    compile_for(_Batch(placed, size, begin, begin))
            for at in range(begin, end, size):
                yield _Batch(placed, size, at, min(at + size, end))
            begin = end

    # ------------------------------------------------------------------------------------------------------ pool

    def _is_new(self, program: Hashable) -> bool:
        """Whether a program is needed for the first time."""
        new = program not in self._called
        self._called.add(program)
        return new

    @contextmanager
    def _compiling(self, program: Hashable) -> Iterator[bool]:
        """A context for a call of a program.  The first call compiles it, and that time is counted separately.

        Returns whether the call is the first.  The first call of training and scoring does no work, so that later
        calls take the same time for every method.
        """
        new = self._is_new(program)
        with self._time_compilation() if new else nullcontext():
            yield new

    def _in_order(self, work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield results in the order of the items, with only a few items in progress or waiting at any time."""
        if self._on_one_core:  # a thread of its own would only take turns with this one
            yield from map(work, items)
            return
        remaining = iter(items)
        first = list(islice(remaining, 2 * self.workers))
        if len(first) == 1:  # as a node always has: no other thread could do anything meanwhile
            yield work(first[0])
            return
        waiting = [self._pool.submit(work, item) for item in first]
        while waiting:
            result = waiting.pop(0).result()
            waiting.extend(self._pool.submit(work, item) for item in islice(remaining, 1))
            yield result


def _fill_order(out: NDArray[np.int32], rows: NDArray[np.int64], epochs: int, rng: np.random.Generator) -> None:
    """Write the rows of each epoch, reshuffled, one epoch after the other; fill the rest with the client's own rows.

    The rest fills the last batch and does not count.  It cannot be another client's rows: their texts may have words
    that this client lacks.
    """
    shuffled_epochs(rows, epochs, rng, out)
    out[epochs * len(rows) :] = rows[0]


def _without_steps(job: Job) -> Job:
    """The same job without rows: calling its program compiles it and does nothing else."""
    return job._replace(size=np.zeros_like(job.size), epochs=np.zeros_like(job.epochs))


def _stack(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return vectors[0][None] if len(vectors) == 1 else np.stack(vectors)
