"""What all tests share: profiles, signals, fixtures."""

import os
import signal

import pytest
from hypothesis import settings

from clustpsi.federation import Federation
from helpers import make_federation

# Continuous integration tries the same examples every time; a developer's runs look for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Whoever starts the tests in the background may have Ctrl-C ignored, which all processes of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def federation() -> Federation:
    return make_federation([33, 64, 7, 50, 1, 90, 32])
