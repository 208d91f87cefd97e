"""Put one small fault after the other into a copy of the source and see whether the tests notice.

    make mutants                                     all faults; those with a known result are not run again
    python tests/mutation/mutants.py --only NAME     faults whose name contains NAME, run again

A fault that no test notices is one that a developer could make without being told.  Faults are listed in `faults.py`;
results are kept in `.mutants/`, by the hash of everything that they depend on.
"""

import argparse
import ast
import hashlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".mutants" / "results.json"
COPIED = ("src", "tests", "examples", "docs", "README.md", "pyproject.toml")
# What loops of other files have in them when they are compiled.
CONTAINED = ("engine/registers.py", "models/vectors.py", "xla_calls.py")
LEAST_SHARE = 0.92
TIME_LIMIT = 300  # seconds of CPU, which a busy machine does not change
PATIENCE = 10  # times that on the clock, for a fault that makes the tests wait for ever


@dataclass(frozen=True)
class Verdict:
    """How the tests took a fault (or, without one, the source as it is)."""

    status: str  # passed, failed or timeout
    seconds: float


class Workspace:
    """A copy of the tree in which one fault at a time is put."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        copy_tree(source, root)
        # Compiled files that are valid by content: a fault may leave a file's size and second of change as they were.
        quiet = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src", "tests"]
        subprocess.run(quiet, cwd=root, check=True)
        self.environment = os.environ | {
            "PYTHONPATH": str(root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "1",  # Hypothesis tries the same examples for every fault
            # Most programs are the same with and without a fault.
            "JAX_COMPILATION_CACHE_DIR": str(RESULTS.with_name("xla")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
        }
        command = [sys.executable, "-c", "import clustpsi; print(clustpsi.__file__)"]
        found = subprocess.run(command, cwd=root, env=self.environment, capture_output=True, text=True, check=True)
        if not Path(found.stdout.strip()).is_relative_to(root):
            raise SystemExit(f"tests would import {found.stdout.strip()} instead of the copy in {root}")

        # Without a buffer: a line that waits in one is a line that `select` does not see.
        nursery = [sys.executable, str(Path(__file__).with_name("nursery.py"))]
        self._nursery = subprocess.Popen(
            nursery, cwd=root, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def close(self) -> None:
        self._nursery.kill()
        self._nursery.wait()

    def test(self, tests: Sequence[str], limit: int) -> Verdict:
        """Run tests until the first failure."""
        assert self._nursery.stdin is not None
        start = time.monotonic()
        arguments = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
        self._nursery.stdin.write(json.dumps([limit, arguments]).encode() + b"\n")
        process = self._answer()
        try:
            if not select.select([self._nursery.stdout], [], [], PATIENCE * limit)[0]:
                return Verdict("timeout", time.monotonic() - start)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # the tests and the processes they started
            code = self._answer()
        return Verdict("failed" if code else "passed", time.monotonic() - start)

    def _answer(self) -> int:
        assert self._nursery.stdout is not None
        return int(self._nursery.stdout.readline())

    @contextmanager
    def containing(self, fault: Fault) -> Iterator[None]:
        path = self.root / "src" / "clustpsi" / fault.file
        healthy, times = path.read_bytes(), path.stat()
        try:
            path.write_text(fault.put_into(healthy.decode()))
            self._forget_loops_with(fault.file)
            yield
        finally:
            path.write_bytes(healthy)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # Numba's compiled loops go by it
            self._forget_loops_with(fault.file)

    def _forget_loops_with(self, file: str) -> None:
        """Have loops compiled again that contain those of another file, whose times Numba does not look at."""
        if file in CONTAINED:
            for index in (self.root / "src").rglob("*.nbi"):
                index.unlink()


def copy_tree(source: Path, root: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    root.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, root / name, ignore=ignored)
        else:
            shutil.copy2(source / name, root / name)


class Known:
    """Verdicts of earlier runs, on disk after each of them; ``root`` has the source and tests that they are about."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root, self._lock = path, root, threading.Lock()
        self._verdicts: dict[str, list[object]] = json.loads(path.read_text()) if path.exists() else {}
        self._source = digest(instructions(path) for path in sorted((root / "src").rglob("*.py")))

    def key(self, tests: Sequence[str], fault: Fault | None) -> str:
        contents = [path.read_bytes() for path in [*files_of(tests, self.root), self.root / "tests" / "conftest.py"]]
        fault_text = "" if fault is None else repr((fault.file, fault.old, fault.new))
        return digest([self._source.encode(), repr(tests).encode(), fault_text.encode(), *contents])

    def __getitem__(self, key: str) -> Verdict | None:
        status, seconds = self._verdicts.get(key, (None, 0.0))
        return None if status is None else Verdict(str(status), float(str(seconds)))

    def __setitem__(self, key: str, verdict: Verdict) -> None:
        with self._lock:
            self._verdicts[key] = [verdict.status, round(verdict.seconds, 1)]
            self.path.parent.mkdir(exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._verdicts, indent=0, sort_keys=True))
            temporary.replace(self.path)


def digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()[:20]


def instructions(path: Path) -> bytes:
    """A module without layout, comments and docstrings: rewording them makes no verdict out of date."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree).encode()


@contextmanager
def workers(number: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end with the work under way, and not with all that is waiting, if something stops them."""
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def examine(faults: Sequence[Fault], jobs: int, limit: int, again: bool) -> dict[Fault, Verdict]:
    """Verdicts on faults; first of all the tests they are left to must pass without a fault."""
    selections = list(dict.fromkeys(fault.tests for fault in faults))
    verdicts: dict[Fault, Verdict] = {}
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ExitStack() as workspaces,
        workers(jobs) as pool,
    ):
        source = Path(folder) / "source"  # as it is now: the tree may be worked on meanwhile
        copy_tree(ROOT, source)
        known = Known(RESULTS, source)
        idle: queue.Queue[Workspace | int] = queue.Queue()
        for number in range(jobs):
            idle.put(number)

        def judge(tests: tuple[str, ...], fault: Fault | None) -> Verdict:
            key = known.key(tests, fault)
            if (verdict := known[key]) is not None and not (again and fault is not None):
                return verdict
            free = idle.get()
            try:
                if isinstance(free, int):  # a copy is made when it is needed
                    free = workspaces.enter_context(closing(Workspace(source, Path(folder) / str(free))))
                if fault is None:
                    verdict = free.test(tests, limit)
                else:
                    with free.containing(fault):
                        verdict = free.test(tests, limit)
            finally:
                idle.put(free)
            if verdict.status != "timeout":  # which may be the fault of a busy machine
                known[key] = verdict
            return verdict

        healthy = {pool.submit(judge, tests, None): tests for tests in selections}
        for number, future in enumerate(as_completed(healthy), 1):
            verdict, tests = future.result(), " ".join(healthy[future])
            print(
                f"[{number:3}/{len(selections)}] no fault: {verdict.status} {verdict.seconds:5.1f} s  {tests}",
                flush=True,
            )
            if verdict.status != "passed":
                raise SystemExit("these tests must pass before faults can be put in")
        pending = {pool.submit(judge, fault.tests, fault): fault for fault in faults}
        for number, future in enumerate(as_completed(pending), 1):
            fault = pending[future]
            verdict = verdicts[fault] = future.result()
            said = outcome(fault, verdict)
            print(f"[{number:3}/{len(faults)}] {said:10} {verdict.seconds:5.1f} s  {fault.name}", flush=True)
    return verdicts


def outcome(fault: Fault, verdict: Verdict) -> str:
    if verdict.status == "passed":
        return "equivalent" if fault.equivalent else "SURVIVED"
    return "NOT EQUAL" if fault.equivalent else "caught"


def report(verdicts: dict[Fault, Verdict]) -> int:
    """A table by file, the survivors, and the exit code."""
    outcomes = {fault: outcome(fault, verdict) for fault, verdict in verdicts.items()}
    print(f"\n{'file':34} faults  caught  survived  equivalent")
    for file in dict.fromkeys(fault.file for fault in sorted(outcomes, key=lambda fault: fault.file)):
        own = [each for fault, each in outcomes.items() if fault.file == file]
        print(
            f"{file:34} {len(own):6}  {own.count('caught'):6}  {own.count('SURVIVED'):8}  {own.count('equivalent'):10}"
        )
    for kind, heading in (
        ("SURVIVED", "Survived: no test notices"),
        ("NOT EQUAL", "Listed as equivalent, but a test notices: take the note away"),
        ("equivalent", "Equivalent"),
    ):
        found = [fault for fault, each in outcomes.items() if each == kind]
        if found:
            print(f"\n{heading}")
        for fault in found:
            print(f"  {fault.name} ({fault.file}): {fault.equivalent or f'{fault.old!r} -> {fault.new!r}'}")
    late = [fault.name for fault, verdict in verdicts.items() if verdict.status == "timeout"]
    if late:
        print(f"\nCaught by the time limit: {', '.join(late)}")
    counted = [each for each in outcomes.values() if each in ("caught", "SURVIVED")]
    caught = counted.count("caught")
    share = caught / len(counted) if counted else 1.0
    print(f"\n{caught} of {len(counted)} faults caught ({share:.1%}; at least {LEAST_SHARE:.0%} must be)")
    return int(share < LEAST_SHARE or "NOT EQUAL" in outcomes.values())


def check(faults: Sequence[Fault]) -> list[str]:
    """What is wrong with the list, by name: texts that are not in the source once or not Python, missing tests."""
    wrong = []
    for fault in faults:
        try:
            fault.put_into((ROOT / "src" / "clustpsi" / fault.file).read_text())
        except (OSError, ValueError, SyntaxError) as problem:
            wrong.append(f"{fault.name}: {problem}")
        wrong += [f"{fault.name}: there is no {file}" for file in files_of(fault.tests) if not file.is_file()]
    return wrong


def files_of(tests: Sequence[str], root: Path = ROOT) -> list[Path]:
    """The files that tests are taken from."""
    return [root / test.partition("::")[0] for test in tests if test.startswith("tests/")]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put faults into a copy of the source and see whether tests notice.")
    parser.add_argument("--only", metavar="NAME", help="only faults whose name contains this, run again")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="faults at a time (default: cores)"
    )
    parser.add_argument("--limit", type=int, default=TIME_LIMIT, help="seconds of CPU for the tests of one fault")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only is None or arguments.only in fault.name]
    if not faults:
        parser.error(f"no fault has {arguments.only!r} in its name")
    if wrong := check(faults):
        print("The list of faults does not fit the source:", *wrong, sep="\n  ")
        return 2
    return report(examine(faults, arguments.jobs, arguments.limit, again=arguments.only is not None))


if __name__ == "__main__":
    sys.exit(main())
