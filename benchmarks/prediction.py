"""Using a saved model: a million rows of ACSIncome in memory, and files of any size in flat memory.

    CLUSTPSI_DATA=... python benchmarks/prediction.py                     # a million rows, on one core
    CLUSTPSI_DATA=... python benchmarks/prediction.py --files 1 10        # files of so many million rows

Clust-PSI-PFL by state, one round: how good the models are makes no difference here.  Every figure comes from a process
of its own.  "Start" is what Python takes to import JAX, Flax and Numba; pandas has read the rows before.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pandas as pd

ROWS = 1_000_000


def train(folder: Path) -> Path:
    """A saved model."""
    settings = (
        "--partitioner",
        "natural",
        "--agg-method",
        "clust_psi_pfl",
        "--comm-rounds",
        "1",
        "--local-epochs",
        "1",
    )
    command = ("run", "--dataset", "acs_income", *settings, "--seeds-list", "0", "--save-models", "--quiet")
    subprocess.run([sys.executable, "-m", "clustpsi", *command, "--output", folder], check=True, capture_output=True)
    (model,) = folder.glob("*/model.safetensors")
    return model


def rows() -> pd.DataFrame:
    (path,) = Path(os.environ["CLUSTPSI_DATA"]).glob("acs_income/acs_income*.parquet")
    frame = pd.read_parquet(path)
    return frame.sample(ROWS, random_state=0, ignore_index=True)


def in_memory(model: Path) -> None:
    """Load and predict on one core; print the seconds of both, of the clock and of the processor."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    frame = rows()
    laps = [(time.perf_counter(), time.process_time())]
    from clustpsi.saved.file import load_model

    laps.append((time.perf_counter(), time.process_time()))
    saved = load_model(model)
    laps.append((time.perf_counter(), time.process_time()))
    for _ in range(2):
        assert len(saved.predict(frame, "STATE")) == ROWS
        laps.append((time.perf_counter(), time.process_time()))
    print(*(f"{b - a:.2f}" for one, other in pairwise(laps) for a, b in zip(one, other, strict=True)))


def in_a_file(model: Path, path: Path) -> None:
    """Predict a file; print seconds and the peak of memory."""
    command = [sys.executable, "-m", "clustpsi", "predict", model, path, "--client", "STATE"]
    started = time.perf_counter()
    subprocess.run([*command, "--output", path.with_name("predictions.parquet")], check=True, capture_output=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{time.perf_counter() - started:.1f} {peak}")


def own_process(*arguments: object) -> list[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def write(path: Path, millions: int) -> None:
    """So many times a million rows."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.Table.from_pandas(rows(), preserve_index=False)
    with (csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter)(path, table.schema) as writer:
        for _ in range(millions):
            writer.write_table(table)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="*", default=[], help="millions of rows of files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory is not None:
        in_memory(given.memory)
    elif given.file is not None:
        in_a_file(*given.file)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(train(Path(folder)), Path(folder), given.files, given.repeats)


def measure(model: Path, folder: Path, files: list[int], repeats: int) -> None:
    if not files:
        print("".join(f"{what + ': s':>12} {'CPU s':>6}" for what in ("start", "load", "predict", "again")))
        for _ in range(repeats):
            laps = own_process("--memory", model)
            print("".join(f"{s:>12} {cpu:>6}" for s, cpu in zip(laps[::2], laps[1::2], strict=True)), flush=True)
        return
    print("file      rows      MB       s  peak MB")
    for suffix in (".parquet", ".csv"):
        for millions in files:
            path = folder / f"rows{suffix}"
            path.unlink(missing_ok=True)
            write(path, millions)
            seconds, peak = own_process("--file", model, path)
            size = path.stat().st_size / 1e6
            print(f"{suffix[1:]:7} {millions:3} mio. {size:6,.0f} {seconds:>7} {peak:>8}", flush=True)


if __name__ == "__main__":
    main()
