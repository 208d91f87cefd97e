"""Being stopped: Ctrl-C and SIGTERM end every command with one sentence, wherever it is."""

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

    It is no KeyboardInterrupt, at which Typer would end the process without a word. A command that knows how far it
    has come says so in ``progress``.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress = ""

    @property
    def exit_code(self) -> int:
        """What shells report for a process that this signal has ended."""
        return 128 + self.number

    def __str__(self) -> str:
        progress = f" ({self.progress})" if self.progress else ""
        return (
            f"stopped{progress}: what is finished is kept; start the same command again to go on "
            "(clustpsi run: with --resume)"
        )


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the signals into :class:`Stopped`; one that whoever started the process wants ignored stays ignored."""
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
    """Whoever asks twice does not want to wait for threads; every file is written as a whole or not at all."""
    os._exit(128 + number)


def _again(stopped: Stopped) -> None:
    """Raised where Python cannot pass it on (JAX has a callback in the garbage collector), it is raised once more."""
    _handle(_stop)
    timer = threading.Timer(AGAIN, _send, (stopped.number,))
    timer.daemon = True
    timer.start()


def _send(number: int) -> None:
    """To the main thread, which may be waiting for something."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:  # Windows
        signal.raise_signal(number)
