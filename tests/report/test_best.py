"""A method against the best other one of each cell."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method, method_spec
from clustpsi.report.best import best_table
from clustpsi.runs.config import Config
from clustpsi.runs.frame import SETTINGS

LEVELS = (0.3, 50.0)
OURS = method_spec(make_method("prior_pfl"))


def runs(scores: dict[str, dict[float, list[float]]]) -> pd.DataFrame:
    """Runs by method and level, one for each seed from 0 on; NaN is one that was not made."""
    rows: list[dict[str, Any]] = []
    for method, by_level in scores.items():
        for level, values in by_level.items():
            for seed, value in enumerate(values):
                config = Config(agg_method=method, non_iid_param=level, num_clients=20, seed=seed).checked()
                row = {key: getattr(config, key) for key in SETTINGS} | {"status": "finished", "format": 2}
                if not np.isnan(value):
                    rows.append(row | {"last_global_accuracy": value, "last_ad": 1 - value})
    return pd.DataFrame(rows)


def test_the_best_other_method_is_found_in_each_cell_and_tested_over_seeds() -> None:
    ours, fedavg = [0.90, 0.92, 0.93, 0.95], [0.80, 0.83, 0.82, 0.85]
    table = best_table(
        runs(
            {
                "prior_pfl": {0.3: ours, 50.0: [0.5, 0.5, 0.6, 0.6]},
                "fedavg": {0.3: fedavg, 50.0: [0.52, 0.51, 0.63, 0.64]},
                "local": {0.3: [0.1] * 4, 50.0: [0.9, np.nan, np.nan, np.nan]},  # one seed is not enough
                "centralized": {0.3: [0.99]},
            }
        ),
        "prior_pfl",
    )
    frame = table.frame.set_index("non_iid_param")
    assert frame["best_other"].tolist() == ["fedavg", "fedavg"]
    assert frame["seeds"].tolist() == [4, 4]
    expected = np.mean(np.subtract(ours, fedavg))
    assert frame.loc[0.3, "difference"] == pytest.approx(expected)
    p = [stats.ttest_rel(ours, fedavg).pvalue, stats.ttest_rel([0.5, 0.5, 0.6, 0.6], [0.52, 0.51, 0.63, 0.64]).pvalue]
    assert frame.loc[[0.3, 50.0], "p"].tolist() == pytest.approx(p)
    assert frame.loc[0.3, "p_holm"] == pytest.approx(2 * p[0])
    assert frame.loc[0.3, "verdict"] == "better" and frame.loc[50.0, "verdict"] in ("worse", "not shown")
    ((_, (line,)),) = table.sections
    assert table.headings == ("α=50", "α=0.3")
    assert line.entries[1].lines == ("0.9250", f"{expected:+.4f}, p {2 * p[0]:.2g}", "FedAvg") and line.entries[1].bold
    assert "better than the named method, but with fewer seeds: Local only (digits, α=50, 1 seed)" in table.notes


def test_only_tested_cells_count_for_the_correction_and_methods_need_not_share_seeds() -> None:
    no, three = [np.nan] * 3, [0.7, 0.72, 0.71]
    table = best_table(
        runs(
            {
                "prior_pfl": {0.3: [0.9, 0.91, 0.93, 0.9, 0.92, 0.9], 50.0: [0.5]},
                "fedavg": {0.3: [*three, *no], 50.0: [0.4]},
                "local": {0.3: [*no, 0.8, 0.84, 0.83]},
            }
        ),
        "prior_pfl",
    )
    frame = table.frame.set_index("non_iid_param")
    assert frame.loc[0.3, "best_other"] == "local" and frame.loc[0.3, "seeds"] == 3
    assert frame.loc[0.3, "difference"] == pytest.approx(np.mean([0.9, 0.92, 0.9]) - np.mean([0.8, 0.84, 0.83]))
    assert frame.loc[0.3, "p_holm"] == frame.loc[0.3, "p"], "the other cell has too few seeds for a test"
    assert any("Holm's correction for 1 cell" in note for note in table.notes)


def test_less_is_better_where_it_is() -> None:
    table = best_table(
        runs({"prior_pfl": {0.3: [0.9, 0.8]}, "fedavg": {0.3: [0.7, 0.7]}, "local": {0.3: [0.8, 0.9]}}), OURS, "ad"
    )
    assert table.frame["best_other"].tolist() == ["local"]
    assert table.frame["difference"].tolist() == pytest.approx([0.0]) and table.frame["verdict"].tolist() == [
        "untested"
    ]


def test_a_method_without_runs_or_without_others_is_refused() -> None:
    alone = runs({"fedavg": {0.3: [0.5]}})
    with pytest.raises(ClustPSIError, match=r"no run of local is here, .* another method with --reference \("):
        best_table(alone, "local")
    with pytest.raises(ClustPSIError, match="no other method has runs with the same partitions and seeds as fedavg"):
        best_table(alone, "fedavg")
