"""Workers on a Ray cluster.

The only module that imports ray.  Nodes need clustpsi and the data sets, but no shared storage: the files of a run are
sent to its worker, and all of them come back.  Meanwhile the sweep holds the run's lock.
"""

import contextlib
import importlib
import io
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.workers import Event, Outcome, Worker
from clustpsi.files import make_folder, write_atomically
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import RunFolder, RunLocked, Store


def pack(folder: RunFolder) -> bytes:
    """A run's files as one archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.path.glob("[!.]*")):
            archive.add(path, arcname=path.name)
    return buffer.getvalue()


def unpack(packed: bytes, folder: RunFolder) -> None:
    """Put a run's files in place, the summary last, so that a half-unpacked run never looks finished."""
    make_folder(folder.path)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [
            member for member in archive.getmembers() if member.isfile() and Path(member.name).name == member.name
        ]
        for member in sorted(members, key=lambda member: member.name == "summary.json"):
            content = archive.extractfile(member)
            if content is not None:
                write_atomically(folder / member.name, partial(shutil.copyfileobj, content))
        if any(member.name == "summary.json" for member in members):
            (folder / "checkpoint.npz").unlink(missing_ok=True)


class _RemoteWorker:
    """A worker on some node of the cluster; its store lasts as long as a run."""

    def __init__(self, data_dir: Path | None) -> None:
        self.worker = Worker(data_dir)

    def execute(self, config: Config, packed: bytes) -> tuple[Outcome, bytes]:
        with tempfile.TemporaryDirectory(prefix="clustpsi-") as root:
            store = Store(Path(root))
            folder = store.folder(config)
            unpack(packed, folder)
            outcome = self.worker.execute(config, store)
            return outcome, pack(folder)


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
        self._locks: dict[int, contextlib.ExitStack] = {}
        self._runs: dict[Any, tuple[int, Config]] = {}
        self._refused: list[tuple[int, Event]] = []

    def identify(self, configs: Sequence[Config]) -> tuple[list[Config], dict[Config, str]]:
        """The result of :meth:`~clustpsi.runs.sources.Sources.identify` on a node, where the data are."""
        look = self._ray.remote(num_cpus=1)(_identify)
        found: tuple[list[Config], dict[Config, str]] = self._ray.get(look.remote(self.data_dir, list(configs)))
        return found

    def submit(self, worker: int, config: Config) -> None:
        folder = self.store.folder(config)
        lock = contextlib.ExitStack()
        try:
            lock.enter_context(folder.locked())
        except ClustPSIError as error:
            self._refused.append((worker, Outcome("locked" if isinstance(error, RunLocked) else "failed", str(error))))
            return
        self._locks[worker] = lock
        if worker not in self._actors:
            self._actors[worker] = self._remote.remote(self.data_dir)
        self._runs[self._actors[worker].execute.remote(config, pack(folder))] = worker, config

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        refused, self._refused = self._refused, []
        yield from refused
        if not self._runs:
            return
        done, _ = self._ray.wait(list(self._runs), num_returns=1, timeout=0 if refused else timeout)
        for future in done:
            worker, config = self._runs.pop(future)
            outcome = self._receive(worker, future, self.store.folder(config))
            self._locks.pop(worker).close()
            yield worker, outcome

    def _receive(self, worker: int, future: Any, folder: RunFolder) -> Outcome:
        try:
            outcome, packed = self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            del self._actors[worker]
            return Outcome("died", f"its Ray worker is gone ({str(error).partition(chr(10))[0]})")
        try:
            unpack(packed, folder)
        except ClustPSIError as error:
            return Outcome("failed", str(error))
        result: Outcome = outcome
        return result

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        for lock in self._locks.values():
            lock.close()
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
