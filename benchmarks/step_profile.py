"""Where the time of a training step goes, by kind of work.

    python benchmarks/step_profile.py [model]

One core.  XLA's operations are timed by JAX's profiler and grouped by the layer that they come from.  On a busy machine
many are interrupted, so each operation counts as often as it ran with the 20th percentile of its times.
"""

import argparse
import gzip
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory()
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={FOLDER.name} --xla_dump_hlo_as_text"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"  # a program from the cache is not dumped
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores

import jax  # noqa: E402
import numpy as np  # noqa: E402

from steps import CLIENTS, INPUTS, round_of  # noqa: E402

STEPS, ROUNDS = 3, 3
UNDISTURBED = 20  # percentile of the times of an operation
PRODUCT = re.compile("ynn|dot")  # XLA's names of matrix products
GROUPS = [
    ("convolutions: products", re.compile("Conv_"), True),
    ("convolutions: patches, copies, compiled loops", re.compile("Conv_"), False),
    ("batch normalization", re.compile("BatchNorm_"), None),
    ("dropout", re.compile("Dropout_"), None),
    ("dense layers", re.compile("Dense_"), None),
    ("embedding: lookup and gradient", re.compile("Embed_"), None),
    ("recurrence", re.compile(r"LSTM\)"), None),
    ("ReLU and pooling", re.compile("reduce_max|reduce_sum|relu|max$|select_n"), None),
]
REST = "the rest: optimizer, copies of the loop"


def origins() -> dict[str, str]:
    """Of every operation of the training program, the part of the model that it comes from."""
    text = max(Path(FOLDER.name).glob("*train_lanes*after_optimizations.txt")).read_text()
    found = {}
    for line in text.splitlines():
        operation = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = ", line)
        if operation and not operation[1].startswith("while"):  # a loop's time is that of its operations
            origin = re.search(r'op_name="([^"]*)"', line)
            found[operation[1]] = origin[1] if origin else ""
    return found


def group(operation: str, origin: str) -> str:
    product = PRODUCT.search(operation) is not None
    return next((name for name, part, of in GROUPS if part.search(origin) and of in (None, product)), REST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = [name for name in INPUTS if name != "logistic"]  # which is no XLA program
    parser.add_argument("model", nargs="?", default="cifar_cnn", choices=models)
    model = parser.parse_args().model
    work = round_of(model, STEPS)
    work()
    with jax.profiler.trace(FOLDER.name):
        for _ in range(ROUNDS):
            work()
    (trace,) = Path(FOLDER.name).glob("**/*.trace.json.gz")
    origin, times = origins(), defaultdict[str, list[float]](list)
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        if event.get("ph") == "X" and event["name"] in origin:
            times[event["name"]].append(event["dur"])
    spent = Counter[str]()
    for operation, each in times.items():
        spent[group(operation, origin[operation])] += float(np.percentile(each, UNDISTURBED)) * len(each)
    total = spent.total()
    print(f"{model}: {total / (ROUNDS * CLIENTS * STEPS):,.0f} µs per step\n\n| | share |\n|---|---|")
    for name, time in spent.most_common():
        print(f"| {name} | {time / total:.0%} |")


if __name__ == "__main__":
    main()
