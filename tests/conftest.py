"""What all tests share: profiles, signals, fixtures."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from clustpsi.federation import Federation
from helpers import make_federation

# Continuous integration tries the same examples every time; a developer's runs look for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# What is measured on one machine may come out differently on another: tests measure nothing, and compute the same.
os.environ["CLUSTPSI_CONVOLUTIONS"] = "usual"

# Whoever starts the tests in the background may have Ctrl-C ignored, which all processes of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# One worker has a file.  These come first: they mostly wait for other processes, while the other workers compute.
WAITING = ("flower/test_deployed.py", "explorer/test_page.py", "experiments/test_sweep.py", "runs/test_kills.py")
# Then those that compute for long, so that no worker is left with one of them at the end.
LONG = ("engine/test_simulator.py", "models/test_models.py", "report/test_figures.py", "saved/test_exact.py")
FIRST = {Path(__file__).parent / name: place for place, name in enumerate((*WAITING, *LONG))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.get(item.path, len(FIRST)))


@pytest.fixture
def federation() -> Federation:
    return make_federation([33, 64, 7, 50, 1, 90, 32])
