"""Ctrl-C and SIGTERM end every command with one sentence, at any moment."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ALARM = getattr(signal, "SIGALRM", None)  # Windows has none
# What is true once a command has been stopped, by the command or its first word.  The others have nothing to go on
# with: they only read, or write their file at the end.
KEPT = "what is finished is kept; start the same command again"
TO_GO_ON = {
    "run": f"{KEPT} with --resume to go on",
    "federation up": f"{KEPT} with --resume to go on",
    "federation submit": "the log ends here, and a run that the SuperLink has taken goes on there",
    "federation node": "the node has left the federation; start the same command again to come back",
    "sweep": f"{KEPT} to go on",
    "tune": f"{KEPT} to go on",
    "study": f"{KEPT} to go on",
    "data": f"{KEPT} to go on",
    "explore": "finished runs are kept; to go on with a training, start the explorer and then the same training again",
}
AGAIN = 0.05  # seconds until a Stopped that was lost is raised again


class Stopped(BaseException):
    """A signal asked this process to stop.

    It is not a KeyboardInterrupt, because on that Typer ends the process without a message.  A command that knows its
    progress writes it to ``progress``.

    Parameters
    ----------
    number
        The signal.
    command
        The words of the command that it stops, without ``clustpsi``; empty if none has begun.
    """

    def __init__(self, number: int, command: str = "") -> None:
        self.number, self.command = number, command
        self.progress = ""

    @property
    def exit_code(self) -> int:
        """The exit code that shells report for a process ended by this signal."""
        return 128 + self.number

    def __str__(self) -> str:
        progress = f" ({self.progress})" if self.progress else ""
        to_go_on = TO_GO_ON.get(self.command) or TO_GO_ON.get(self.command.partition(" ")[0])
        return f"stopped{progress}" + (f": {to_go_on}" if to_go_on else "")


_raised = threading.Event()  # set once the Stopped has reached the main thread


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the signals into :class:`Stopped`; a signal that was ignored when the process started stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    changed = SIGNALS if ALARM is None else (*SIGNALS, ALARM)
    before = {each: signal.getsignal(each) for each in changed}
    hook = sys.unraisablehook
    sys.unraisablehook = lambda lost: _again(lost.exc_value) if isinstance(lost.exc_value, Stopped) else hook(lost)
    _handle(_stop)
    stopped = False
    try:
        yield
    except Stopped:  # the process is ending; one more signal should still end it at once
        stopped = True
        raise
    finally:
        sys.unraisablehook = hook
        if not stopped:
            for each, handler in before.items():
                signal.signal(each, handler)


def _handle(handler: Any) -> None:
    for each in SIGNALS:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    _raised.set()
    _handle(_end)
    raise Stopped(number, _command())


def _command() -> str:
    """The words of the command that is carried out, without ``clustpsi``; empty if there is none (yet)."""
    click = sys.modules.get("click")  # which may be loading just now
    context = getattr(click, "get_current_context", lambda **_: None)(silent=True)
    return "" if context is None else str(context.command_path).partition(" ")[2]


def _end(number: int, frame: FrameType | None) -> None:
    """End at once on a second signal, without waiting for threads: files are written atomically, so none is damaged."""
    os._exit(128 + number)


def _again(stopped: Stopped) -> None:
    """Raise a Stopped again that got lost where Python cannot pass it on (JAX's callback of the garbage collector).

    A signal that comes just before the main thread starts to wait does not end the waiting.  So the signal is repeated
    until it arrives.  It is repeated as SIGALRM: a late one is ignored, but a second SIGINT would end the process.
    """
    _handle(_stop)
    _raised.clear()

    def remind() -> None:
        while not _raised.wait(AGAIN):
            if ALARM is not None:
                signal.pthread_kill(threading.main_thread().ident or 0, ALARM)
            else:
                signal.raise_signal(stopped.number)
                return

    if ALARM is not None:
        signal.signal(ALARM, lambda _, frame: None if _raised.is_set() else _stop(stopped.number, frame))
    threading.Thread(target=remind, daemon=True).start()
