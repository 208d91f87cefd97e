"""A peer as a process: it is started, told to train rounds, and measured with all its children."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

import psutil

BENCHMARKS = Path(__file__).resolve().parents[1]
BETWEEN_LOOKS = 0.5  # seconds between two looks at the memory


class PeerFailed(Exception):
    """A peer that cannot start, ends early or does not answer; the text says what is known."""


class Peer:
    """A running peer.

    Parameters
    ----------
    name
        The module in this package.
    case
        File of the case's data.
    log
        File for what it prints.
    patience
        Seconds to wait for an answer.
    """

    def __init__(self, name: str, case: Path, log: Path, patience: float) -> None:
        self.name, self._log, self._patience = name, log, patience
        self._started = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"peers.{name}", str(case)],
                cwd=BENCHMARKS,
                env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that all of it can be ended
            )
        self._said: Queue[tuple[float, dict[str, Any] | None]] = Queue()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, channel: IO[str]) -> None:
        for line in channel:
            self._said.put((time.perf_counter(), json.loads(line)))
        self._said.put((time.perf_counter(), None))

    def first_round(self) -> dict[str, Any]:
        """Get ready and train once; the seconds count from the start of the process."""
        self._answer("ready")
        return self._train(self._started)

    def round(self) -> dict[str, Any]:
        """Train one round: seconds, CPU seconds and peak memory of all processes, accuracy afterwards."""
        return self._train(time.perf_counter())

    def _train(self, start: float) -> dict[str, Any]:
        before, memory = self._cpu_seconds(), _Watcher(self._processes)
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        end, _ = self._answer("trained")
        measured = {"seconds": end - start, "cpu": self._cpu_seconds() - before, "bytes": memory.peak()}
        return {**measured, "accuracy": self._answer("accuracy")[1]}

    def _answer(self, key: str) -> tuple[float, Any]:
        try:
            when, said = self._said.get(timeout=self._patience)
        except Empty:
            raise PeerFailed(f"no answer in {self._patience:g} seconds") from None
        if said is None:
            lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            raise PeerFailed(lines[-1] if lines else "ended without a word")
        return when, said[key]

    def _processes(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _cpu_seconds(self) -> float:
        total = 0.0
        for process in self._processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            # of children that have ended, too
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def stop(self) -> None:
        """End it and all its children."""
        everything = self._processes()
        for process in reversed(everything):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()


class _Watcher:
    """Looks at the memory of processes until its peak is asked for; pages that several share count once."""

    def __init__(self, processes: Any) -> None:
        self._processes, self._peak, self._ended = processes, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        total = 0
        for process in self._processes():
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        self._peak = max(self._peak, total)

    def _watch(self) -> None:
        while not self._ended.wait(BETWEEN_LOOKS):
            self._look()

    def peak(self) -> int:
        self._ended.set()
        self._thread.join()
        self._look()
        return self._peak
