"""Workers on a Ray cluster.

The only module that imports ray.  Nodes need clustpsi and the data sets, but no shared storage: the files of a run are
sent to its worker, and all of them come back.  Meanwhile the sweep holds the run's lock.
"""

import contextlib
import importlib
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.workers import Event, Outcome, Worker
from clustpsi.files import for_now, make_folder, write_atomically
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import RunFolder, RunLocked, Store


def pack(folder: RunFolder) -> dict[str, bytes]:
    """A run's files by name."""
    return {path.name: path.read_bytes() for path in folder.path.glob("[!.]*") if path.is_file()}


def unpack(packed: Mapping[str, bytes], folder: RunFolder) -> None:
    """Put a run's files in place, the summary last, so that a half-unpacked run never looks finished."""
    make_folder(folder.path)
    for name in sorted(packed, key=lambda name: name == "summary.json"):
        if Path(name).name == name:
            write_atomically(folder / name, partial(_write, packed[name]))
    if "summary.json" in packed:
        (folder / "checkpoint.npz").unlink(missing_ok=True)


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


class _RemoteWorker:
    """A worker on some node of the cluster; its store lasts as long as a run."""

    def __init__(self, data_dir: Path | None) -> None:
        self.worker = Worker(data_dir)

    def execute(self, config: Config, packed: Mapping[str, bytes]) -> tuple[Outcome, dict[str, bytes]]:
        with tempfile.TemporaryDirectory(prefix="clustpsi-") as root, for_now():
            store = Store(Path(root))
            folder = store.folder(config)
            unpack(packed, folder)
            outcome = self.worker.execute(config, store)
            return outcome, pack(folder)


@dataclass(frozen=True)
class _Run:
    """A run that a worker has been given, and its lock."""

    future: Any
    folder: RunFolder
    lock: contextlib.ExitStack


class RayWorkers:
    """A :class:`~clustpsi.experiments.sweep.Pool` on a Ray cluster: one worker for each of its cores.

    Parameters
    ----------
    address
        ``host:port`` or ``ray://host:port`` of a cluster, ``auto`` for the one this machine belongs to, or ``local`` to
        start one on this machine.
    store, data_dir
        As in a sweep; ``data_dir`` is a folder on the nodes.
    size
        Number of workers; by default one for each core of the cluster.
    """

    def __init__(self, address: str, store: Store, data_dir: Path | None = None, size: int | None = None) -> None:
        self._ray = ray = _connect(address, size)
        self.store, self.data_dir = store, data_dir and data_dir.absolute()
        self.size = size or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # One core per worker.  Runs are deterministic, so a worker that dies is replaced here and not by Ray.
        self._remote = ray.remote(num_cpus=1, max_restarts=0)(_RemoteWorker)
        self._actors: dict[int, Any] = {}
        self._runs: dict[int, list[_Run | Outcome]] = {}  # of each worker, in order; an outcome if it cannot be locked

    def identify(self, configs: Sequence[Config]) -> tuple[list[Config], dict[Config, str]]:
        """The result of :meth:`~clustpsi.runs.sources.Sources.identify` on a node, where the data are."""
        look = self._ray.remote(num_cpus=1)(_identify)
        found: tuple[list[Config], dict[Config, str]] = self._ray.get(look.remote(self.data_dir, list(configs)))
        return found

    def submit(self, worker: int, config: Config) -> None:
        folder = self.store.folder(config)
        lock = contextlib.ExitStack()
        runs = self._runs.setdefault(worker, [])
        try:
            lock.enter_context(folder.locked())
        except ClustPSIError as error:
            runs.append(Outcome("locked" if isinstance(error, RunLocked) else "failed", str(error)))
            return
        if worker not in self._actors:
            self._actors[worker] = self._remote.remote(self.data_dir)
        future = self._actors[worker].execute.remote(config, pack(folder))
        runs.append(_Run(future, folder, lock))

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        first = {worker: runs[0] for worker, runs in self._runs.items() if runs}
        busy = {run.future: worker for worker, run in first.items() if isinstance(run, _Run)}
        ended = [worker for worker, run in first.items() if isinstance(run, Outcome)]
        if busy:
            done, _ = self._ray.wait(list(busy), num_returns=1, timeout=0 if ended else timeout)
            ended += map(busy.__getitem__, done)
        for worker in ended:
            run = self._runs[worker].pop(0)
            outcome = run if isinstance(run, Outcome) else self._receive(run)
            if outcome.status == "died":
                self._bury(worker)
            yield worker, outcome

    def _receive(self, run: _Run) -> Outcome:
        with run.lock:
            try:
                outcome, packed = self._ray.get(run.future)
                unpack(packed, run.folder)
            except self._ray.exceptions.RayError as error:
                return Outcome("died", f"its Ray worker is gone ({str(error).partition(chr(10))[0]})")
            except ClustPSIError as error:
                return Outcome("failed", str(error))
        result: Outcome = outcome
        return result

    def _bury(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker))
        for run in self._runs.pop(worker):
            if isinstance(run, _Run):
                run.lock.close()

    def close(self) -> None:
        for worker in list(self._actors):
            self._bury(worker)
        self._ray.shutdown()


def _identify(data_dir: Path | None, configs: list[Config]) -> tuple[list[Config], dict[Config, str]]:
    return Sources(data_dir).identify(configs)


def _connect(address: str, size: int | None) -> Any:
    """The ray module, connected."""
    if not address.strip():
        raise ClustPSIError("--ray needs the address of a cluster: host:port, ray://host:port, auto, or local")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise ClustPSIError("--ray needs the package ray: pip install 'clustpsi[ray]'") from None
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            ray.init(address="local", num_cpus=size, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except Exception as error:  # whatever Ray raises here, it is about the address or the cluster behind it
        reason = str(error).partition("\n")[0]
        raise ClustPSIError(
            f"no Ray cluster answers at {address!r} ({reason}): start one, or use --ray local"
        ) from None
    return ray


def _knock(address: str) -> None:
    """Raise at once if nothing listens at an address; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()
