"""The harness that compares frameworks: what it makes of its records, and of peers that fail."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def record(peer: str, turn: int, seconds: float, accuracy: float = 0.8) -> dict[str, object]:
    measured = {"seconds": seconds, "cpu": seconds, "bytes": 2**30, "accuracy": accuracy, "load": 1.0}
    return {"case": "mlp", "peer": peer, "turn": turn, **measured}


def test_ratios_compare_rounds_of_the_same_turn_and_leave_the_first_out() -> None:
    from peers import report

    ours = [record("ours", 0, 9.0), record("ours", 1, 1.0), record("ours", 2, 2.0)]
    theirs = [record("loop", 0, 1.0), record("loop", 1, 4.0), record("loop", 2, 6.0), record("loop", 3, 1.0)]
    assert report.ratios(ours + theirs, "mlp", "loop") == [4.0, 3.0]
    assert report.medians(ours + theirs, "loop") == {"mlp": 3.5}


def test_a_table_says_who_failed_and_whose_accuracy_differs() -> None:
    from peers import report

    records = [
        *[record("ours", turn, 1.0) for turn in range(3)],
        *[record("loop", turn, 3.0, accuracy=0.7) for turn in range(3)],
        {"case": "mlp", "peer": "flower", "turn": 0, "failed": "No module named 'flwr'"},
        {"case": "lstm", "failed": "sent140 is not here"},
    ]
    lines = report.tables(records).splitlines()
    assert "| clustpsi | 1 | 1 | 1 | 1 | 1,024 | 1.0 | 0.800 |" in lines
    assert "| PyTorch loop | 3 | 3.0 (3.0 to 3.0) | 3 | 3.0 | 1,024 | 3.0 | 0.700 (differs) |" in lines
    assert "| Flower + Ray | No module named 'flwr' | | | | | | |" in lines
    assert "`lstm`: sent140 is not here" in lines


def test_what_got_slower_is_named() -> None:
    from peers import report

    baseline = {"mlp": 2.6, "lstm": 6.0, "logistic": 100.0}
    assert report.slower({"mlp": 2.1, "lstm": 4.5}, baseline) == [
        "lstm got slower: 4.50 times as fast as the PyTorch loop, 6.00 in the baseline"
    ]


def test_a_peer_that_cannot_start_fails_with_its_last_words(tmp_path: Path) -> None:
    from peers.processes import Peer, PeerFailed

    peer = Peer("nobody", tmp_path / "case.npz", tmp_path / "log", patience=60)
    with pytest.raises(PeerFailed, match=r"No module named peers\.nobody"):
        peer.first_round()
    peer.stop()


def test_a_peer_is_measured_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import processes

    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "__init__.py").touch()
    (tmp_path / "peers" / "protocol.py").write_text((BENCHMARKS / "peers" / "protocol.py").read_text())
    (tmp_path / "peers" / "busy.py").write_text(
        "import subprocess, sys\n"
        "from peers.protocol import Gate\n"
        "gate = Gate()\n"
        "print('what a framework prints')\n"
        "while gate.wait():\n"
        "    subprocess.run([sys.executable, '-c', 'sum(range(10**7))'], check=True)\n"
        "    gate.trained(lambda: 0.5)\n"
    )
    monkeypatch.setattr(processes, "BENCHMARKS", tmp_path)
    peer = processes.Peer("busy", tmp_path / "case.npz", tmp_path / "log", patience=60)
    try:
        first, second = peer.first_round(), peer.round()
    finally:
        peer.stop()
    assert first["seconds"] > 0
    assert second["cpu"] > 0.05  # its child's
    assert second["bytes"] > 10**6
    assert second["accuracy"] == 0.5
