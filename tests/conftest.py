"""What all tests share: profiles, signals, fixtures."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from clustpsi.federation import Federation
from helpers import make_federation

# Continuous integration tries the same examples every time; a developer's runs look for new ones.  No example has a
# deadline, because how long one takes says more about the machine than about the code.
settings.register_profile("tests", derandomize=bool(os.environ.get("CI")), deadline=None)
settings.load_profile("tests")

# Most of the time would go into optimizing programs that run for a moment, and into dividing them among threads that
# the other tests keep busy: without it they compute the same, up to rounding.  `XLA_FLAGS= make test` runs them as
# users do.
FLAGS = ("backend_optimization_level=0", "cpu_use_fusion_emitters=false", "cpu_parallel_codegen_split_count=1")
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in FLAGS))

# What is measured on one machine may come out differently on another: tests measure nothing, and compute the same.
os.environ["CLUSTPSI_CONVOLUTIONS"] = "usual"

# Whoever starts the tests in the background may have Ctrl-C ignored, which all processes of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# All that is imported stays: looking for garbage among it, again and again, would take an eighth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """What one process compiles, all others read, also next time: workers, and the processes that tests start."""
    if (cache := getattr(config, "cache", None)) is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache.mkdir("xla"))
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"


@pytest.fixture(scope="session", autouse=True)
def _nobody_cuts_the_power() -> Iterator[None]:
    """What a process wrote is there for all others, on the disk or not, so that no test waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


# A worker has a whole file.  The longest come first, so that no worker is left with one of them at the end.  One that
# mostly waits for other processes stands beside those that compute.
LONGEST = (
    *("explorer/test_page.py", "engine/test_simulator.py", "models/test_models.py", "runs/test_kills.py"),
    *("test_clustering.py", "experiments/test_sweep.py", "report/test_figures.py", "report/test_report.py"),
    *("saved/test_exact.py", "report/test_tables.py", "test_packaging.py"),
)
FIRST = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.get(item.path, len(FIRST)))


@pytest.fixture
def federation() -> Federation:
    return make_federation([33, 64, 7, 50, 1, 90, 32])
