"""Write files so that nothing is destroyed or lost: a file is written completely or not at all.

A regular file is replaced by one rename and keeps its permissions.  A symbolic link is followed.  A device or a pipe is
written to, never replaced.
"""

import contextlib
import contextvars
import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from clustpsi.errors import ClustPSIError

# Ends the name of a file that is being written.  What a killed process leaves behind has it and can go.
UNFINISHED = ".tmp"

# Names of files that a process has open already.  (Files in /dev/shm, say, are like any others.)
_OPEN_FILES = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")

# Whether files are for now: whoever writes them removes them again.
_FOR_NOW = contextvars.ContextVar("for now", default=False)


@contextlib.contextmanager
def for_now() -> Iterator[None]:
    """Files that are written within need not survive a power cut, so nothing waits until they are on the disk."""
    before = _FOR_NOW.set(True)
    try:
        yield
    finally:
        _FOR_NOW.reset(before)


# Folders whose new names wait until a group of files is complete; None outside of a group.
_WAITING = contextvars.ContextVar[set[Path] | None]("waiting", default=None)


@contextlib.contextmanager
def kept_together() -> Iterator[None]:
    """Files that are written within are one group: a power cut may lose any of their names until all are there.

    The disk is asked once for all names instead of once for each.
    """
    folders = set[Path]()
    before = _WAITING.set(folders)
    try:
        yield
    finally:
        _WAITING.reset(before)
        for folder in folders:
            with writing(folder):
                _keep_names(folder)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with writing ``path`` into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ClustPSIError(f"no space left to write {path}: free some, then go on with --resume") from error
        raise ClustPSIError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file completely or not at all, even if the process is killed meanwhile."""
    with writing(path):
        mode = _mode(path)
        if _is_open_end(path, mode):
            _write_through(path, write)
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        unfinished = target.with_name(f".{os.getpid()}-{os.urandom(4).hex()}{UNFINISHED}")
        try:
            with unfinished.open("xb") as file:
                if mode is not None:
                    unfinished.chmod(stat.S_IMODE(mode))
                write(file)
                file.flush()
                if not _FOR_NOW.get():
                    os.fsync(file.fileno())
            os.replace(unfinished, target)  # noqa: PTH105 (the call that the tests stop at)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _keep_names(target.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def check_writable(path: Path, made_from: Iterable[Path] = ()) -> None:
    """Raise, before any work, where :func:`write_atomically` could not write or would destroy an input."""
    check_no_input(path, made_from)
    with writing(path):
        mode = _mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise ClustPSIError(f"cannot write {path}: it is a folder, and a file is needed")
        if _is_open_end(path, mode):
            writable = os.access(path, os.W_OK)
        else:
            target = Path(os.path.realpath(path))
            if not target.parent.is_dir():
                raise ClustPSIError(f"cannot write {path}: there is no folder {target.parent}")
            writable = os.access(target.parent, os.W_OK | os.X_OK)
        if not writable:
            raise ClustPSIError(f"cannot write {path}: permission denied")


def check_no_input(path: Path, made_from: Iterable[Path]) -> None:
    """Raise if a file to be written is, by whatever name, one of the files that it is made from."""
    for source in made_from:
        same = False
        with contextlib.suppress(OSError):  # such as a name that is too long, which whoever opens it will say
            same = path.is_file() and source.is_file() and path.samefile(source)
        if same:
            raise ClustPSIError(f"this would replace {path}, which it is made from: choose another name for the output")


def is_unfinished(path: Path) -> bool:
    """Whether a file was left behind by a :func:`write_atomically` that was killed before its rename."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _is_open_end(path: Path, mode: int | None) -> bool:
    """Whether a path leads to a device, a pipe or an open file such as /dev/stdout."""
    return mode is not None and (not stat.S_ISREG(mode) or str(path.absolute()).startswith(_OPEN_FILES))


def _write_through(target: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write to a target that cannot be replaced: the complete content, at once."""
    content = io.BytesIO()  # some writers need to seek, which a pipe cannot
    write(content)
    with target.open("ab" if target.is_file() else "wb") as file:
        file.write(content.getvalue())


def _keep_names(folder: Path) -> None:
    """Make a folder's new names survive a power cut, where the system supports it."""
    if os.name != "posix" or _FOR_NOW.get():
        return
    if (waiting := _WAITING.get()) is not None:
        waiting.add(folder)
    else:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync folders
                raise
        finally:
            os.close(descriptor)
