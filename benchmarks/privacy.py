"""What noise on label counts and summaries costs: WPSI, clusters, accuracy and AD of Clust-PSI-PFL over epsilon.

    python benchmarks/privacy.py --data-dir DATA

Prints a table in Markdown for digits and for ACSIncome, whose scales are learned from summaries.  Three seeds each.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import Store

EPSILONS = (None, 10.0, 3.0, 1.0, 0.3, 0.1)
MIN_COUNTS = (3, 10)
SEEDS = (0, 1, 2)
DATASETS = {
    "digits": Config(dataset="digits", num_clients=20, non_iid_param=0.3, comm_rounds=20, lr=0.01),
    "acs_income": Config(
        dataset="acs_income", num_clients=50, non_iid_param=0.3, comm_rounds=10, local_epochs=1, batch_size=256
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--dataset", choices=DATASETS, action="append")
    arguments = parser.parse_args()
    for name in arguments.dataset or DATASETS:
        config = replace(DATASETS[name], agg_method="clust_psi_pfl")
        dataset = Sources(arguments.data_dir).load(config)
        print(
            f"\n{name}: {config.num_clients} clients, Dirichlet {config.non_iid_param:g}, {config.comm_rounds} rounds\n"
        )
        print("| told | WPSI | tau | accuracy | AD |\n|---|---|---|---|---|", flush=True)
        rows = [("everything", {})]
        rows += [(f"epsilon {epsilon:g}", {"dp_epsilon": epsilon}) for epsilon in EPSILONS if epsilon is not None]
        rows += [(f"counts from {least} on", {"min_count": least}) for least in MIN_COUNTS]
        for title, private in rows:
            summaries = []
            for seed in SEEDS:
                own = replace(config, seed=seed, **private)
                with tempfile.TemporaryDirectory() as folder:
                    cell = open_cell(own, dataset=dataset)
                    summaries.append(run(own, Store(Path(folder)), cell=cell).summary())
                    cell.server.close()
            wpsi = np.mean([each["skew"]["wpsi"] for each in summaries])
            tau = ", ".join(str(each["tau"]) for each in summaries)
            scores = [f"{np.mean([each['last'][key] for each in summaries]):.3f}" for key in ("global_accuracy", "ad")]
            print(f"| {title} | {wpsi:.3f} | {tau} | {' | '.join(scores)} |", flush=True)


if __name__ == "__main__":
    main()
