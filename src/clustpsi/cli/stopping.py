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
AGAIN = 0.05  # seconds until a Stopped that was lost is raised again


class Stopped(BaseException):
    """Somebody asked this process to stop.

    It is not a KeyboardInterrupt, on which Typer would end the process without a message. A command that knows its
    progress says so in ``progress``.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress = ""

    @property
    def exit_code(self) -> int:
        """The exit code that shells report for a process ended by this signal."""
        return 128 + self.number

    def __str__(self) -> str:
        progress = f" ({self.progress})" if self.progress else ""
        return (
            f"stopped{progress}: what is finished is kept; start the same command again to go on "
            "(clustpsi run: with --resume)"
        )


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the signals into :class:`Stopped`; a signal that was ignored when the process started stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # which alone may choose what signals do
        yield
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}
    hook = sys.unraisablehook
    sys.unraisablehook = lambda lost: _again(lost.exc_value) if isinstance(lost.exc_value, Stopped) else hook(lost)
    _handle(_stop)
    stopped = False
    try:
        yield
    except Stopped:  # the process ends now, and one more signal should still end it at once
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
    _handle(_end)
    raise Stopped(number)


def _end(number: int, frame: FrameType | None) -> None:
    """End at once on a second signal, without waiting for threads: no file can be left half-written."""
    os._exit(128 + number)


def _again(stopped: Stopped) -> None:
    """Raise a Stopped again that was lost where Python cannot pass it on (JAX's callback of the garbage collector)."""
    _handle(_stop)
    timer = threading.Timer(AGAIN, _send, (stopped.number,))
    timer.daemon = True
    timer.start()


def _send(number: int) -> None:
    """Send the signal to the main thread, which may be waiting."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:  # Windows
        signal.raise_signal(number)
