"""The apps that Flower loads."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.flower.deployment import Connection, submit
from clustpsi.flower.processes import Processes, environment, is_alive
from clustpsi.flower.settings import Settings
from clustpsi.runs.config import Config

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")


def test_the_client_app_loads_little_because_every_message_starts_a_process() -> None:
    heavy = ("jax", "pandas", "scipy", "sklearn", "pyarrow", "matplotlib", "clustpsi.runs", "clustpsi.engine")
    code = f"import sys, clustpsi.flower.client; print([each for each in {heavy} if each in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"


@needs_proc
def test_a_process_that_has_ended_is_not_alive_though_nobody_has_asked_about_it() -> None:
    """As a killed ServerApp, whose SuperExec never does."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(process.pid)
    process.kill()
    while is_alive(process.pid):
        time.sleep(0.01)
    assert Path(f"/proc/{process.pid}").exists()
    process.communicate()
    assert not is_alive(process.pid)


@needs_proc
def test_what_processes_start_in_sessions_of_their_own_ends_with_them(tmp_path: Path) -> None:
    """As Flower's SuperLink does; here it outlives the one that started it and heeds no kind word."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = f"""
import subprocess, sys
started = subprocess.Popen([sys.executable, "-c", {stubborn!r}], start_new_session=True)
print(started.pid, flush=True)
"""
    with Processes.of(environment(), tmp_path) as processes:
        processes.start("parent", [sys.executable, "-c", code]).wait(60)
        number = int(processes.said("parent"))
        assert is_alive(number)
    assert not is_alive(number)


def test_an_app_that_flower_does_not_take_is_a_sentence(tmp_path: Path) -> None:
    """Flower's command ends with 0 then; nobody may wait for such a run."""
    (tmp_path / "mine.py").write_text("something = 1\n")
    config = Config(dataset="nodes.csv", label="y", partitioner="natural")
    with pytest.raises(ClustPSIError, match=r"Flower does not take the run: .*attribute app in module mine"):
        submit(Connection("127.0.0.1:9", None), Settings(config), tmp_path / "work", client=tmp_path / "mine.py")
