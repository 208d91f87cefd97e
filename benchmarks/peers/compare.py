"""Federated averaging here and in other frameworks: same data, model and work, in turns.

    python benchmarks/peers/compare.py [case ...] [--peers NAME ...] [--cores NUMBER] [--output FILE]
    python benchmarks/peers/compare.py --quick [--write-baseline]
    python benchmarks/peers/compare.py --report FILE

Every peer is a process, pinned to the same cores.  All are started and train one round; then they take turns.  Each
measurement is a line of the output file, written at once, so a benchmark that is stopped keeps what it has measured.
A peer that is not installed or fails is reported, and the others go on.  --quick compares with the PyTorch loop only,
and its ratios with those of baseline.json.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers import cases, report
from peers.processes import Peer, PeerFailed

BASELINE = Path(__file__).parent / "baseline.json"
LOOP = "loop"
QUICK_TURNS = 3


class Records:
    """What is measured, line by line on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self.all: list[report.Record] = []

    def add(self, **record: object) -> None:
        self.all.append(record)
        print(json.dumps(record), file=self._file, flush=True)


def machine(cores: int) -> str:
    """What the figures hold for."""
    model = next(
        (line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),  # noqa: SIM115, PTH123
        platform.processor(),
    )
    packages = []
    for name in ("jax", "torch", "flwr", "ray", "fedlab", "pfl"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"{model}, {cores} of {os.cpu_count()} cores; Python {platform.python_version()}, {', '.join(packages)}"


def measure(case: str, peers: list[str], turns: int, patience: float, data_dir: Path | None, records: Records) -> None:
    """Start all peers on a case, then let them take turns."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "case.npz"
        try:
            cases.write(case, data, data_dir)
        except (Exception, SystemExit) as error:  # whatever it is, the other cases go on
            records.add(case=case, failed=str(error))
            return
        running: dict[str, Peer] = {}
        try:
            for turn in range(turns + 1):
                for name in peers if turn == 0 else list(running):
                    try:
                        if turn == 0:
                            running[name] = Peer(name, data, Path(folder) / f"{name}.log", patience)
                        measured = running[name].first_round() if turn == 0 else running[name].round()
                    except PeerFailed as failure:
                        running.pop(name).stop()
                        records.add(case=case, peer=name, turn=turn, failed=str(failure))
                        print(f"{case}: {report.TITLES[name]} failed: {failure}", file=sys.stderr)
                        continue
                    load = os.getloadavg()[0]
                    records.add(case=case, peer=name, turn=turn, load=load, **measured)
                    print(f"{case}, turn {turn}: {report.TITLES[name]} {measured['seconds']:.2f} s", file=sys.stderr)
        finally:
            for peer in running.values():
                peer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(cases.CASES))
    parser.add_argument(
        "--peers", nargs="+", choices=report.TITLES, default=list(report.TITLES), help="beside ours (default: all)"
    )
    parser.add_argument("--cores", type=int, default=1, help="to which all are pinned (default: 1)")
    parser.add_argument("--turns", type=int, help="rounds of each peer after the first (default: the case's own)")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for a round (default: 300)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/peers.jsonl"), help="where records go")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets (default: as clustpsi's)")
    parser.add_argument("--quick", action="store_true", help="PyTorch loop only, against the baseline")
    parser.add_argument("--write-baseline", action="store_true", help="with --quick: this is the new baseline")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the tables of earlier records")
    options = parser.parse_args()
    if options.report is not None:
        print(report.tables(report.read(options.report)))
        return
    for name in options.cases:
        if name not in cases.CASES:
            parser.error(f"there is no case {name}: choose from {', '.join(cases.CASES)}")
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[-options.cores :])  # what is started from here inherits it
    others = [LOOP] if options.quick else [name for name in options.peers if name != report.OURS]
    peers = [report.OURS, *others]  # ours is what all are compared with
    records = Records(options.output)
    records.add(machine=machine(options.cores))
    try:
        for name in options.cases or cases.CASES:
            turns = options.turns or (QUICK_TURNS if options.quick else cases.CASES[name].rounds)
            measure(name, peers, turns, options.patience, options.data_dir, records)
    except KeyboardInterrupt:
        print(f"stopped: what was measured is in {options.output}", file=sys.stderr)
    print(report.tables(records.all))
    if options.quick:
        against_baseline(report.medians(records.all, LOOP), options.write_baseline)


def against_baseline(now: dict[str, float], write: bool) -> None:
    if write:
        before = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
        BASELINE.write_text(json.dumps(before | now, indent=2, sort_keys=True) + "\n")
        return
    baseline = json.loads(BASELINE.read_text())
    complaints = report.slower(now, baseline)
    print("\n".join(complaints) or "nothing got slower")
    unknown = [case for case in now if case not in baseline]
    if unknown:
        print(f"no baseline for {', '.join(unknown)}: --write-baseline")
    if complaints:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
