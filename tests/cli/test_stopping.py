"""Ctrl-C and SIGTERM: one sentence, whenever they come."""

import gc
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clustpsi.cli.stopping import ALARM, SIGNALS, Stopped, stoppable
from helpers import clustpsi

MESSAGE = "stopped: what is finished is kept; start the same command again with --resume to go on\n"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """As before, whatever a test does."""
    before = {each: signal.getsignal(each) for each in (*SIGNALS, *([ALARM] if ALARM else []))}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_finding_32_a_run_says_how_it_goes_on(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from clustpsi.runs.course import Course

    def stop(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    quick = ["run", "--quiet", "--num-clients", "4", "--comm-rounds", "3", "--local-epochs", "1", "--seeds-list", "0"]
    quick += ["--agg-method", "fedavg", "--output", str(tmp_path), "--workers", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(Course, "_round", stop)
        assert clustpsi(*quick) == code
    assert capsys.readouterr() == ("", MESSAGE)
    assert clustpsi(*quick) == 2
    assert "go on with --resume" in capsys.readouterr().err
    assert clustpsi(*quick, "--resume") == 0


def test_finding_32_a_search_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from clustpsi.experiments.workers import Worker

    monkeypatch.setattr(Worker, "execute", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    assert clustpsi("tune", "--workers", "1", "--output", str(tmp_path), "--grid", "lr=0.1", "--quiet") == 143
    assert capsys.readouterr().err == (
        "stopped (0 of 6 runs): what is finished is kept; start the same command again to go on\n"
    )


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("federation up --nodes 2", "same command again with --resume"),  # without it such a run is refused
        ("federation submit --superlink h:1 --nodes 2 --insecure", "goes on there"),
        ("federation node --superlink h:1 --data rows.csv --insecure", "to come back"),
        ("explore --port 0", "start the explorer and then the same training again"),
        ("diagnose rows.csv", None),
    ],
)
def test_every_command_says_what_is_true_for_it(
    arguments: str,
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    for where in ("explore.find_spec", "diagnose.notes", "federation.notes"):
        monkeypatch.setattr(f"clustpsi.cli.{where}", stop)
    monkeypatch.setattr("clustpsi.flower.check_installed", stop)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    assert clustpsi(*arguments.split()) == 130
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and (told == "stopped\n" if said is None else said in told)
    assert "clustpsi run" not in told


@pytest.mark.parametrize("module", ["typer", "numpy", "pandas", "jax"])
def test_finding_32_no_traceback_while_modules_load(module: str, tmp_path: Path) -> None:
    program = f"""
        import signal, sys

        class Loading:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Loading())
        from clustpsi.cli import main
        main(["run", "--output", {str(tmp_path / "runs")!r}])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    said = "stopped\n" if module in ("typer", "numpy") else MESSAGE  # the first two before the command is known
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("work", [0, 20_000_000])
def test_a_signal_that_a_callback_swallows_comes_again(work: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Python cannot pass on what a callback of its collector raises; JAX has one.

    While the main thread computes in C, no other thread runs.  A signal that was sent once would then come between the
    work and the wait, where it ends neither.
    """
    pressed = []

    def callback(*_: Any) -> None:
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    started = time.monotonic()
    try:
        with pytest.raises(Stopped), stoppable():
            gc.callbacks.append(callback)
            gc.collect()
            sum(range(work))
            time.sleep(20)
    finally:
        gc.callbacks.remove(callback)
    assert pressed and capsys.readouterr().err == ""
    assert time.monotonic() - started < 15


def test_whoever_asks_twice_does_not_wait() -> None:
    program = """
        import signal
        from clustpsi.cli.stopping import Stopped, stoppable

        try:
            with stoppable():
                signal.raise_signal(signal.SIGTERM)
        except Stopped:
            signal.raise_signal(signal.SIGINT)
            print("still here")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_signals_are_as_before_afterwards() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(each) for each in SIGNALS] == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a command in the background of a shell
    with stoppable():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
