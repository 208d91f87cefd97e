"""How much faster a run is with two workers than with one.

    python benchmarks/workers.py [model ...]

A round of local training of eight clients, in one process on one core with one worker, and in another on two cores with
two workers.  The two take turns, and wall-clock time counts: the ratio of a turn needs a machine with two idle cores.
"""

import argparse
import os
import subprocess
import sys
import time

MODELS = ["fmnist_cnn", "cifar_cnn"]
TURNS, ROUNDS = 7, 2  # rounds of four clients each


def answer(model: str, cores: int) -> None:
    """Time a round whenever a line comes in."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])  # before JAX counts the cores
    from steps import INPUTS, round_of

    work = round_of(model, INPUTS[model][-1])
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        before = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        print(time.perf_counter() - before, flush=True)


def ratios(model: str) -> tuple[list[float], list[list[float]]]:
    """One core's time over two cores', for every turn; and the times."""
    sides = [
        subprocess.Popen(
            [sys.executable, __file__, model, "--cores", str(cores)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        for cores in (1, 2)
    ]  # fmt: skip
    for side in sides:
        side.stdout.readline()
    times = []
    for _ in range(TURNS):
        turn = []
        for side in sides:
            side.stdin.write("go\n")
            turn.append(float(side.stdout.readline()))
        times.append(turn)
    for side in sides:
        side.communicate()
    return [one / two for one, two in times], times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cores:
        answer(arguments.models[0], arguments.cores)
        return
    print("| model | one worker, s | two workers, s | ratio: median | smallest | largest |\n|---|---|---|---|---|---|")
    for model in arguments.models:
        found, times = ratios(model)
        one, two = (sorted(side)[TURNS // 2] for side in zip(*times, strict=True))
        print(
            f"| `{model}` | {one:.2f} | {two:.2f} | {sorted(found)[TURNS // 2]:.2f} | {min(found):.2f} "
            f"| {max(found):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
