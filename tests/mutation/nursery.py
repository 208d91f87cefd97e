"""Run pytest again and again without the seconds that imports take.

A process imports everything that the tests need, forgets the modules that are tested, and forks for each run: the child
imports these modules as they are then, and finds the rest already there.

Each line of standard input has a run as JSON: the seconds of CPU that it may take, and its arguments.  Two lines answer
it: the number of the process, and later its exit code.
"""

import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import resource
import sys

import hypothesis.extra.numpy  # noqa: F401 (which pytest would compile anew for every run)
import pytest


def import_the_rest() -> None:
    """Import pytest's plugins and what the package under test imports, but keep nothing of the package itself."""
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    package = importlib.import_module("clustpsi")
    for module in pkgutil.walk_packages(package.__path__, "clustpsi."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "clustpsi"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # pytest collects garbage at its end, and should not look through all this


def run(seconds: int, arguments: list[str]) -> int:
    """Run pytest in a child of its own; its exit code, which is negative if it took too long."""
    child = os.fork()
    if child == 0:
        os.setsid()  # so that it can be ended together with all that it starts
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        importlib.invalidate_caches()
        os._exit(int(pytest.main(arguments)))
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    import_the_rest()
    for line in sys.stdin:
        print(run(*json.loads(line)), flush=True)
