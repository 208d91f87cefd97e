"""Finding 12: small data gets a partition that exists, and an impossible wish the nearest that would work."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from clustpsi import compare, from_arrays
from clustpsi.errors import ClustPSIWarning
from clustpsi.runs.store import Store
from helpers import clustpsi

QUICK = ["--comm-rounds", "1", "--local-epochs", "1", "--seeds-list", "42,0", "--agg-method", "fedavg"]


@pytest.fixture
def churn(tmp_path: Path) -> Path:
    """Two classes, one of them rare: no partition at alpha 0.1 gives each of 20 clients ten samples."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 80, 569), "calls": rng.random(569), "churn": rng.random(569) < 0.15})
    frame.to_csv(tmp_path / "churn.csv", index=False)
    return tmp_path / "churn.csv"


def test_finding_12_defaults_work_on_small_data_and_all_seeds_share_them(
    churn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clustpsi("run", "--dataset", str(churn), "--label", "churn", *QUICK, "--output", str(tmp_path / "r")) == 0
    said = capsys.readouterr().err
    assert "note: no Dirichlet partition of 569 samples of 2 classes over 20 clients with alpha=0.1" in said
    configs = [folder.config() for folder in Store(tmp_path / "r")]
    assert len(configs) == 2 and len({(each.non_iid_param, each.num_clients) for each in configs}) == 1
    assert configs[0].non_iid_param > 0.1


def test_finding_12_what_is_impossible_names_what_would_work(
    churn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--non-iid-param", "0.1", "--num-clients", "20", "--output", str(tmp_path / "r")]
    assert clustpsi("run", "--dataset", str(churn), "--label", "churn", *QUICK, *given) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "with 20 clients or alpha=0.1 with" in error and error.endswith("work for seed 42")


def test_finding_12_python_finds_a_partition_of_iris() -> None:
    features, labels = load_iris(return_X_y=True)
    with pytest.warns(ClustPSIWarning, match="so there are"):
        table = compare(from_arrays(features, labels), ["fedavg"], seeds=[0], comm_rounds=1, local_epochs=1)
    assert table["num_clients"].item() < 20
