"""The benchmark's records as tables, and against a baseline."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

OURS = "ours"
TITLES = {
    OURS: "clustpsi",
    "loop": "PyTorch loop",
    "flower": "Flower + Ray",
    "fedlab_serial": "FedLab, serial",
    "pfl_research": "pfl-research",
    "pfllib": "PFLlib",
}
# Two federations that differ in nothing but their random numbers differ by less after a few rounds.
SAME_ACCURACY = 0.05
# A ratio this much below its baseline is no noise.
SLOWER = 1.3

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ratios(records: list[Record], case: str, peer: str, of: str = "seconds") -> list[float]:
    """Seconds (or "cpu" seconds) of a peer's rounds, each over those of our round in the same turn."""
    own = {r["turn"]: r[of] for r in _rounds(records, case, OURS)}
    return [r[of] / own[r["turn"]] for r in _rounds(records, case, peer) if r["turn"] in own]


def _rounds(records: list[Record], case: str, peer: str) -> list[Record]:
    return [r for r in records if r.get("case") == case and r.get("peer") == peer and r.get("turn", 0) > 0]


def tables(records: list[Record]) -> str:
    """One table per case, in Markdown."""
    lines = []
    for machine in (r for r in records if "machine" in r):
        lines += [machine["machine"], ""]
    cases: dict[str, dict[str, None]] = defaultdict(dict)
    for record in records:
        if "peer" in record:
            cases[record["case"]][record["peer"]] = None
        elif "failed" in record:
            lines += [f"`{record['case']}`: {record['failed']}", ""]
    for case, peers in cases.items():
        lines += [
            f"`{case}`",
            "",
            "| | s per round | times ours | CPU s | times ours | peak MB | start to first round, s | accuracy |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [_row(records, case, peer) for peer in peers] + [""]
    return "\n".join(lines)


def _row(records: list[Record], case: str, peer: str) -> str:
    own = [r for r in records if r.get("case") == case and r.get("peer") == peer]
    rounds, title = _rounds(records, case, peer), TITLES[peer]
    failed = [r["failed"] for r in own if "failed" in r]
    if not rounds:
        return f"| {title} | {failed[0] if failed else 'not measured'} | | | | | | |"
    times = ratios(records, case, peer)
    spread = "1" if peer == OURS else f"{median(times):.1f} ({min(times):.1f} to {max(times):.1f})"
    first = next(r for r in own if r["turn"] == 0)
    accuracy = f"{rounds[-1]['accuracy']:.3f}"
    reference = {r["turn"]: r["accuracy"] for r in _rounds(records, case, OURS)}.get(rounds[-1]["turn"])
    if reference is not None and abs(rounds[-1]["accuracy"] - reference) > SAME_ACCURACY:
        accuracy += " (differs)"
    cells = [
        title + (f", failed: {failed[0]}" if failed else ""),
        f"{median(r['seconds'] for r in rounds):.3g}",
        spread,
        f"{median(r['cpu'] for r in rounds):.3g}",
        "1" if peer == OURS else f"{median(ratios(records, case, peer, 'cpu')):.1f}",
        f"{max(r['bytes'] for r in rounds) / 2**20:,.0f}",
        f"{first['seconds']:.1f}",
        accuracy,
    ]
    return f"| {' | '.join(cells)} |"


def medians(records: list[Record], peer: str) -> dict[str, float]:
    """The ratio of every case that was measured, of CPU seconds: a busy machine disturbs these least."""
    found = {case: ratios(records, case, peer, "cpu") for case in {r["case"] for r in records if "case" in r}}
    return {case: round(median(times), 2) for case, times in sorted(found.items()) if times}


def slower(now: dict[str, float], baseline: dict[str, float]) -> list[str]:
    """A sentence for every case that has lost against the PyTorch loop."""
    return [
        f"{case} got slower: {now[case]:.2f} times as fast as the PyTorch loop, {before:.2f} in the baseline"
        for case, before in baseline.items()
        if case in now and now[case] * SLOWER < before
    ]
