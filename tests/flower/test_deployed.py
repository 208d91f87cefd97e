"""SuperLink and SuperNodes as real processes: the same results as in the simulator, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from clustpsi.flower.processes import check_port
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import RunFolder, Store

EXAMPLES = Path(__file__).parents[2] / "examples" / "federation"
METHOD = "clust_psi_pfl:tau_clusters=2"
CONFIG = Config(num_clients=3, non_iid_param=0.5, agg_method=METHOD, comm_rounds=1, local_epochs=1, fraction=1.0)
DEADLINE = "120"  # seconds; a node compiles its programs in the first round, on a machine that may be busy
MARK = "CLUSTPSI_TEST_MARK"

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")


class Up:
    """``clustpsi federation up`` as a process, and all processes that come of it."""

    def __init__(self, output: Path, *more: str, nodes: int = 3, rounds: int = 1) -> None:
        self.mark = uuid4().hex
        self.log = output.with_name(f"{self.mark}.log")  # of this command alone
        self.env = {**os.environ, MARK: self.mark}
        self.command = [
            *(sys.executable, "-m", "clustpsi", "federation", "up", "--nodes", str(nodes), "--dataset", "digits"),
            *("--agg-method", METHOD, "--non-iid-param", "0.5", "--comm-rounds", str(rounds), "--local-epochs", "1"),
            *("--fraction", "1", "--output", str(output), "--connect", "300", *more),
        ]
        self.process = self.start(self.command)

    def start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start a command whose processes count as this one's."""
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.env, start_new_session=True)

    def start_node(self, port: int, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "clustpsi", "federation", "node", "--insecure"]
        return self.start([*command, "--superlink", f"127.0.0.1:{port}", "--num-partitions", "3", *arguments])

    def kill_node(self, number: int) -> None:
        """Kill a node and all that it has started, at once."""
        (node,) = self.processes(f"--partition-id {number}")
        family = [node]
        for process in self.processes():  # in the order in which they were started
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            family += [process] if parent in family else []
        assert len(family) > 1
        for process in family:
            os.kill(process, signal.SIGKILL)

    def processes(self, word: str = "") -> list[int]:
        """Processes that this command, or anything it started, has started."""
        found = []
        for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    if word in said and said.strip() and state != "Z":
                        found.append(int(folder.name))
            except OSError:  # it is gone, or somebody else's
                continue
        return found

    def wait_for(self, what: Callable[[], bool], seconds: float = 400) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end and self.process.poll() is None, self.log.read_text()
            time.sleep(0.2)

    def wait_to_say(self, text: str) -> None:
        self.wait_for(lambda: text in self.log.read_text())

    def end(self, seconds: float = 900) -> int:
        return self.process.wait(seconds)

    def check_gone(self) -> None:
        """Nothing of it is left."""
        end = time.monotonic() + 60
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.5)
        assert not left


def only_run(output: Path) -> RunFolder:
    (folder,) = Store(output)
    return folder


def check_same(output: Path, simulated: RunFolder) -> None:
    ours, theirs = only_run(output), simulated
    assert np.abs(ours.accuracy()["accuracy"] - theirs.accuracy()["accuracy"]).max() < 1e-5
    assert np.abs(ours.accuracy()["loss"] - theirs.accuracy()["loss"]).max() < 1e-4
    assert ours.clusters().tolist() == theirs.clusters().tolist()
    assert ours.clients().equals(theirs.clients())


@pytest.mark.cluster
def test_a_deployed_run_gives_what_the_simulator_gives(tmp_path: Path) -> None:
    up = Up(tmp_path / "runs", "--save-models")
    assert up.end() == 0, up.log.read_text()
    up.check_gone()
    assert "Clust-PSI-PFL" in up.log.read_text()
    check_same(tmp_path / "runs", run(CONFIG, Store(tmp_path / "simulated")))
    assert (only_run(tmp_path / "runs") / "model.safetensors").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind_and_the_run_goes_on(tmp_path: Path) -> None:
    up = Up(tmp_path / "runs", rounds=8)
    # Not every round is a line: quick ones share it.
    up.wait_for(lambda: re.search("round [1-6]/", up.log.read_text()) is not None)
    time.sleep(3)  # of the next one
    up.process.send_signal(signal.SIGINT)
    assert up.end(60) == 130
    up.check_gone()
    assert "stopped" in up.log.read_text()
    again = Up(tmp_path / "runs", "--resume", rounds=8)
    assert again.end() == 0, again.log.read_text()
    assert "round 0/8" not in again.log.read_text()
    check_same(tmp_path / "runs", run(replace(CONFIG, comm_rounds=8), Store(tmp_path / "simulated")))


@pytest.mark.slow
def test_a_run_with_noise_is_refused_continued_and_not_computed_again_as_any_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for site in range(2):
        rows = [f"{x:.3f},{'ab'[int(x + rng.normal() > 0)]}\n" for x in rng.normal(size=80)]
        (tmp_path / f"site-{site}.csv").write_text("x,kind\n" + "".join(rows))
    data = ("--data", str(tmp_path / "site-{n}.csv"), "--label", "kind", "--dp-epsilon", "5")
    up = Up(tmp_path / "runs", *data, nodes=2, rounds=8)
    up.wait_for(lambda: re.search("round [1-6]/", up.log.read_text()) is not None)
    up.process.send_signal(signal.SIGINT)
    assert up.end(60) == 130
    assert "start the same command again with --resume" in up.log.read_text()
    refused = Up(tmp_path / "runs", *data, nodes=2, rounds=8)
    assert refused.end() == 2 and "holds an unfinished run" in refused.log.read_text()
    again = Up(tmp_path / "runs", *data, "--resume", nodes=2, rounds=8)
    assert again.end() == 0, again.log.read_text()
    assert "round 0/8" not in again.log.read_text()
    tested = only_run(tmp_path / "runs")
    before = (tested / "timing.json").read_bytes()
    finished = Up(tmp_path / "runs", *data, "--resume", nodes=2, rounds=8)
    assert finished.end() == 0, finished.log.read_text()
    assert (only_run(tmp_path / "runs") / "timing.json").read_bytes() == before
    for each in (up, refused, again, finished):
        each.check_gone()


@pytest.mark.slow
def test_a_killed_command_takes_its_processes_with_it(tmp_path: Path) -> None:
    up = Up(tmp_path / "runs")
    up.wait_for(lambda: len(up.processes("clustpsi.flower.supernode")) == 3)
    up.process.kill()
    up.end()
    up.check_gone()


@pytest.mark.slow
def test_a_node_that_dies_in_a_round_is_left_out(tmp_path: Path) -> None:
    up = Up(tmp_path / "runs", "--deadline", DEADLINE, rounds=3)
    up.wait_to_say("round 0/")
    up.kill_node(1)
    assert up.end() == 0, up.log.read_text()
    up.check_gone()
    assert "node '1' is left out" in up.log.read_text()
    rounds = only_run(tmp_path / "runs").rounds()
    assert rounds["left_out"].tolist()[-1] == 1
    assert rounds["global_accuracy"].iloc[-1] > rounds["global_accuracy"].iloc[0]


@pytest.mark.slow
def test_nodes_fall_silent_come_back_join_and_leave(tmp_path: Path) -> None:
    port = check_port(0)
    up = Up(tmp_path / "runs", "--deadline", DEADLINE, "--port", str(port), rounds=100)
    started = []
    try:
        up.wait_to_say("round 0/")
        (silent,) = up.processes("--partition-id 1")
        os.kill(silent, signal.SIGSTOP)
        up.wait_to_say(f"node '1' is left out: it did not answer within {DEADLINE} s")
        up.kill_node(1)
        started.append(up.start_node(port, "--partition-id", "1"))
        up.wait_to_say("node '1' has come back")
        started.append(up.start_node(port, "--partition-id", "0", "--name", "new"))
        up.wait_to_say("node 'new' has joined: it is placed by its label counts")
        up.wait_for(lambda: any((tmp_path / "runs").glob("*/newcomers.csv")))  # at the end of the round
        (leaving,) = up.processes("--partition-id 2")
        os.kill(leaving, signal.SIGTERM)
        up.wait_to_say("node '2' is left out: it is not connected")
        up.process.send_signal(signal.SIGINT)
        assert up.end(60) == 130
    finally:
        for process in [up.process, *started]:
            process.terminate()
            process.wait()
    up.check_gone()
    left_out = only_run(tmp_path / "runs").rounds()["left_out"]
    assert left_out.max() == 1, "everybody else's work counts"
    assert set(only_run(tmp_path / "runs").newcomers()[0]) >= {"round", "client", "model", "accuracy"}


@pytest.mark.slow
def test_a_killed_server_goes_on_from_its_last_finished_round(tmp_path: Path) -> None:
    up = Up(tmp_path / "runs", rounds=3)
    up.wait_to_say("round 1/")
    for process in up.processes("flwr-serverapp"):
        os.kill(process, signal.SIGKILL)
    assert up.end(120) == 2
    up.check_gone()
    assert "the server of the run ended" in up.log.read_text()
    again = Up(tmp_path / "runs", "--resume", rounds=3)
    assert again.end() == 0, again.log.read_text()
    assert "round 0/3" not in again.log.read_text()
    check_same(tmp_path / "runs", run(replace(CONFIG, comm_rounds=3), Store(tmp_path / "simulated")))


@pytest.mark.slow
def test_a_client_of_ones_own_is_deployed_with_one_command(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "make_sites.py", tmp_path], check=True)
    command = [
        *(sys.executable, "-m", "clustpsi", "federation", "up", "--client", str(EXAMPLES / "sklearn_client.py")),
        *("--data", str(tmp_path / "site-{n}.csv"), "--label", "species", "--agg-method", METHOD),
        *("--comm-rounds", "2", "--output", str(tmp_path / "runs"), "--connect", "300"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert only_run(tmp_path / "runs").summary()["num_parameters"] == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "first, second, more, said",
    [
        ("x,y,label", "x,z,label", (), "node 'site-2' has no column 'y', which node 'site-1' has"),
        ("x,y,label", "x,y,label", ("--classes", "a,c"), "node 'site-1' has the class 'b', which is not among those"),
        ("x,y,label", "x,y,label", ("--tau-clusters", "3"), "3, but there are only 2 clients to cluster"),
    ],
)
def test_nodes_that_do_not_fit_are_one_sentence(
    first: str, second: str, more: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    for number, header in ((1, first), (2, second)):
        rows = "".join(f"{i}.5,{i % 7},{'ab'[i % 2]}\n" for i in range(40))
        (tmp_path / f"site-{number}.csv").write_text(f"{header}\n{rows}")
    command = [
        *(sys.executable, "-m", "clustpsi", "federation", "up", "--data", str(tmp_path / "site-{n}.csv")),
        *("--label", "label", "--comm-rounds", "1", "--output", str(tmp_path / "runs"), "--connect", "300", *more),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in sentence and "Traceback" not in done.stderr
    assert {path.suffix for path in (tmp_path / "runs").rglob("*") if path.is_file()} <= {".lock"}
