"""Append runs to a CSV of recorded runs; a run that was made again takes its old place.

    python docs/results/append.py src/clustpsi/recorded/acs_income.csv runs/acs_income

Runs that were made before run folders named their data (format 1) have no content.  They get that of the runs that are
appended: do this only after a run of the old settings has given the old scores again on the same data.
"""

import sys
from pathlib import Path

import pandas as pd

from clustpsi.runs.frame import read_runs, write_runs

KEY = ["dataset", "partitioner", "non_iid_param", "num_clients", "agg_method", "comm_rounds", "seed"]

if __name__ == "__main__":
    target = Path(sys.argv[1])
    new, problems = read_runs(Path(sys.argv[2]))
    assert not problems, problems
    tables = [new]
    if target.exists():
        old, _ = read_runs(target)
        contents = new.drop_duplicates("dataset").set_index("dataset")["content"]
        finished = old["status"] == "finished"
        old.loc[finished & old["content"].isna(), "content"] = old["dataset"].map(contents)
        tables = [old, new]
    runs = pd.concat(tables, ignore_index=True)
    latest = runs.drop_duplicates(KEY, keep="last").set_index(KEY)
    places = pd.MultiIndex.from_frame(runs[KEY].drop_duplicates())
    target.write_text(write_runs(latest.loc[places].reset_index()[runs.columns]))
