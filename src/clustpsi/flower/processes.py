"""Flower's processes on this machine: started without telemetry and update checks, and stopped whatever happens."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from clustpsi.errors import ClustPSIError
from clustpsi.files import make_folder

STOP_SECONDS = 8.0  # within which processes must end before they are killed
LOOPBACK = "127.0.0.1"

# What clustpsi sets unless the user has set it: no telemetry, no update checks, and frequent checks for work.
DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
}


def environment(home: Path | None = None) -> dict[str, str]:
    """The environment of Flower's processes; variables that the user has set stay as they are.

    Parameters
    ----------
    home
        Flower's folder, used if the user has set none.
    """
    beside = str(Path(sys.executable).parent)  # Flower's programs start each other by their bare names
    own = {"PATH": os.pathsep.join([beside, os.environ.get("PATH", "")])}
    if home is not None:
        own["FLWR_HOME"] = str(home)
    return {**DEFAULTS, **own, **{key: value for key, value in os.environ.items() if key != "PATH"}}


def program(name: str) -> str:
    """The path of one of Flower's programs."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ClustPSIError(f"Flower's program {name} is not there: pip install 'clustpsi[flower]'")
    return found


def check_file(path: Path, what: str, how: str) -> Path:
    """The path of a certificate or key; raises if the file does not exist."""
    if not path.is_file():
        raise ClustPSIError(f"there is no {what} {path}: {how} (see the documentation, Federation)")
    return path.resolve()


def check_port(port: int, host: str = LOOPBACK) -> int:
    """The port, if it is free; for port 0, any free port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ClustPSIError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose another with --port"
            ) from None
        chosen: int = probe.getsockname()[1]
        return chosen


class Processes:
    """Processes that end when this one ends.

    Flower's programs start other processes in new sessions, which may outlive them.  So all of them get a mark in their
    environment, and every process that they start inherits it.
    """

    def __init__(self, env: Mapping[str, str], logs: Path) -> None:
        self._mark = f"CLUSTPSI_STARTED_{uuid4().hex}"
        self._env, self._logs = {**env, self._mark: "1"}, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], **env: str) -> subprocess.Popen[bytes]:
        """Start a process; its output goes to a log with its name."""
        make_folder(self._logs)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env | env,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self._running[name] = process
        return process

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def said(self, name: str) -> str:
        """The last lines of a process's log."""
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in self.log(name).read_text(errors="replace").splitlines()]
            worth = [line for line in lines if line and not line.startswith(("File ", "Traceback", "^", "~"))]
            errors = [line for line in worth if line.startswith("error:")]
            return (errors or worth or [""])[-1]
        return ""

    def ended(self) -> dict[str, int]:
        """Processes that have ended, with their exit codes."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def stop(self, names: Sequence[str] | None = None) -> None:
        """Ask processes to end, then kill them; without names, all of them and every process that they started."""
        chosen = [name for name in (list(self._running) if names is None else names) if name in self._running]
        groups = {name: self._running[name] for name in chosen}
        for process in groups.values():
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for process in groups.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        for name, process in groups.items():
            _signal(process, signal.SIGKILL)  # what is left of its group
            process.wait()
            del self._running[name]
        end = time.monotonic() + STOP_SECONDS
        while not self._running and (left := self._marked()) and time.monotonic() < end:
            for number in left:  # repeated, because they may start others meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.02)

    def _marked(self) -> list[int]:
        """Processes with the mark; empty on systems that do not show it."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                if self._mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    @classmethod
    @contextlib.contextmanager
    def of(cls, env: Mapping[str, str], logs: Path) -> Iterator["Processes"]:
        """Processes that are stopped when the context ends."""
        processes = cls(env, logs)
        try:
            yield processes
        finally:
            processes.stop()


def wait_until(ready: Callable[[], bool], seconds: float, check: Callable[[], Any] = lambda: None) -> bool:
    """Wait until ``ready`` is true; gives whether it was in time.  ``check`` may raise in between."""
    end = time.monotonic() + seconds
    while not ready():
        check()
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def listens(port: int, host: str = LOOPBACK) -> bool:
    """Whether a process listens at a port."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False


def is_alive(number: int) -> bool:
    """Whether a process still runs; it need not be a child of this one.  True if the system does not tell.

    >>> is_alive(os.getpid())
    True
    """
    if not Path("/proc/self/stat").exists():
        return True
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"  # ended, even if its parent has not collected it yet


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, even if the parent is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
