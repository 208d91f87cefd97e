"""Advice: the rule that is given is the one that published runs teach, and it is judged on data it has not seen."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from clustpsi import recorded
from clustpsi.errors import ClustPSIError
from clustpsi.experiments.advice import MEASURES, Learned, Rule, find_cells, fit, known, learn, measure
from clustpsi.methods import make_method, method_spec
from clustpsi.recorded import COMPARISONS, recorded_runs
from clustpsi.report.advice import advise
from clustpsi.runs.config import Config
from clustpsi.runs.frame import SHARED
from helpers import clustpsi

PUBLISHED = Path(recorded.__file__).parent
METHODS = {"fedavg": "one model", "clust_psi_pfl": "clusters", "prior_pfl": "label counts", "local": "alone"}


def made_cells(best: NDArray[np.str_], wpsi: NDArray[np.float64]) -> pd.DataFrame:
    """Cells of three data sets, in each of which one kind of method is best."""
    rng = np.random.default_rng(0)
    cells = pd.DataFrame({"dataset": np.resize(["a", "b", "c"], len(best)), "wpsi": wpsi})
    cells["partitioner"], cells["non_iid_param"], cells["num_clients"], cells["seeds"] = "dirichlet", wpsi, 20.0, 3
    for name in MEASURES:
        if name not in cells:
            cells[name] = rng.uniform(size=len(best))
    for name in METHODS:
        cells[name] = np.where(best == name, 0.9, 0.5)
    return cells


def learned_from(cells: pd.DataFrame) -> Learned:
    return learn(cells, METHODS)


def rounded(value: Any) -> Any:
    """Without the last decimals of numbers: versions of pandas add them up in different orders."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return round(value, 11) if isinstance(value, float) else value


def test_the_advice_that_is_shipped_is_what_the_published_runs_teach() -> None:
    """After new runs: clustpsi study advice --output src/clustpsi/experiments/advice.json"""
    learned = learn(*find_cells(map(recorded_runs, COMPARISONS)))
    assert rounded(asdict(learned)) == rounded(asdict(known()))
    assert not learned.helps, "where a rule helps, docs/report.md must say so"
    assert advise([[9, 1], [1, 9]]).method == learned.best_constant == "prior_pfl"


def test_a_rule_is_found_where_there_is_one_and_helps_on_data_not_seen() -> None:
    wpsi = np.linspace(0.1, 9, 30)
    learned = learned_from(made_cells(np.where(wpsi < 4, "fedavg", "local"), wpsi))
    assert (learned.rule.measure, learned.rule.below, learned.rule.above) == ("wpsi", "fedavg", "local")
    assert 3.5 < learned.rule.limit < 4.5 and learned.helps
    assert learned.near("rule") >= 29 and learned.loss("rule") < learned.loss(learned.best_constant)
    told = advise([[9, 1], [1, 9]], learned)
    assert told.method == learned.rule.choose(measure([[9, 1], [1, 9]]))
    assert f"of {len(wpsi)} federations" in told.sentences[1]


def test_where_no_rule_helps_the_advice_says_so() -> None:
    wpsi = np.linspace(0.1, 9, 30)
    learned = learned_from(made_cells(np.full(30, "prior_pfl"), wpsi))
    assert learned.rule == Rule(None, 0.0, "prior_pfl", "prior_pfl") and not learned.helps
    told = advise([[9, 1], [1, 9]], learned)
    assert told.method == "prior_pfl" and "No rule that looks at label counts chose better" in told.sentences[0]
    assert "30 of 30 known federations" in told.sentences[0]


def test_a_rule_is_not_judged_on_what_it_was_learned_from() -> None:
    """Each data set has a limit of its own, so that what the others teach is wrong."""
    wpsi = np.tile([1.0, 2.0, 3.0], 8)
    cells = made_cells(np.full(24, "local"), wpsi)
    cells["dataset"] = np.repeat(["a", "b"], 12)
    cells["fedavg"] = np.where((cells["dataset"] == "a") == (wpsi < 2.5), 1.0, 0.2)
    learned = learned_from(cells)
    assert learned.loss("rule") > 0 and not learned.helps
    assert all(
        fit(cells[cells["dataset"] != name], list(METHODS)) == rule
        for name, rule in zip("ab", learned.rules, strict=True)
    )


def test_data_sets_count_the_same_however_many_cells_they_have() -> None:
    """Alone is best in the five cells of one data set, and clusters in the one of each of two others."""
    cells = made_cells(np.array(["local"] * 5 + ["clust_psi_pfl"] * 2), np.full(7, 0.5))
    cells["dataset"] = [*"aaaaa", "b", "c"]
    for name in MEASURES:
        cells[name] = 0.5  # which tells nothing
    assert fit(cells, tuple(METHODS)).below == "clust_psi_pfl"


def test_measures_of_counts_are_those_of_runs() -> None:
    values = measure([[9, 1], [2, 8]])
    assert set(values) == set(MEASURES)
    assert values["majority"] == 0.85 and values["num_clients"] == 2


def test_advice_names_the_runs_it_is_known_from_and_its_limits() -> None:
    skewed = advise(np.kron(np.eye(3, dtype=int), np.ones((10, 1), int)) * 50)
    assert len(skewed.rows) == 5 and "docs/results.md" in skewed.source
    assert not any("it is a guess" in sentence for sentence in skewed.sentences)
    assert any("this one has 2: it is a guess" in sentence for sentence in advise([[5, 4], [4, 5]]).sentences)


def test_the_study_prints_and_writes_what_it_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "advice.json"
    assert clustpsi("study", "advice", "--output", str(output)) == 0
    printed = capsys.readouterr().out
    learned = known()
    assert f"{learned.near('rule')} of {len(learned.cells)}" in printed and all(
        f"always {name}" in printed for name in learned.methods
    )
    assert json.loads(output.read_text())["rule"]["measure"] == learned.rule.measure
    assert clustpsi("study", "advice", str(PUBLISHED / "acs_income.csv")) == 2
    assert "two data sets at least" in capsys.readouterr().err


def runs_of(dataset: str, scores: dict[str, list[float]]) -> pd.DataFrame:
    """Runs of methods in one cell, an accuracy for each seed."""
    rows = [
        {"agg_method": method_spec(make_method(method)), "seed": seed, "last_global_accuracy": value}
        for method, values in scores.items()
        for seed, value in enumerate(values)
    ]
    cell = {"dataset": dataset, "partitioner": "dirichlet", "non_iid_param": 0.1, "num_clients": 20}
    skew = dict.fromkeys([f"skew_{name}" for name in MEASURES if name not in ("majority", "num_clients")], 0.5)
    shared = {name: getattr(Config(), name) for name in SHARED}
    return pd.DataFrame(rows).assign(status="finished", constant_client=0.7, **shared, **cell, **skew)


def test_the_present_prior_pfl_stands_for_its_kind_once_it_has_been_run_everywhere() -> None:
    others = {"fedavg": [0.5, 0.7], "clust_psi_pfl": [0.6, 0.6], "local": [0.7, 0.7], "prior_pfl:plain": [0.8, 0.8]}
    both = others | {"prior_pfl": [0.9]}
    _, methods = find_cells([runs_of("a", both), runs_of("b", both), runs_of("c", others)])
    assert list(methods) == ["fedavg", "clust_psi_pfl", "prior_pfl:plain", "local"]
    cells, methods = find_cells([runs_of("a", both), runs_of("b", both), runs_of("c", both)])
    assert list(methods) == ["fedavg", "clust_psi_pfl", "prior_pfl", "local"]
    assert cells["seeds"].tolist() == [1] * 3 and cells["fedavg"].tolist() == [0.5] * 3, "of the seeds that all have"


def test_cells_without_all_kinds_teach_nothing() -> None:
    with pytest.raises(ClustPSIError, match="a rule needs runs of fedavg"):
        find_cells(map(recorded_runs, ("cifar10", "sent140")))
    assert set(known().datasets) == {"acs_income", "amazon_reviews", "digits", "fmnist", "serengeti"}


def test_runs_on_validation_rows_do_not_count_and_others_must_be_comparable() -> None:
    four = {"fedavg": [0.5], "clust_psi_pfl": [0.6], "local": [0.7], "prior_pfl": [0.8]}
    good = [runs_of("a", four), runs_of("b", four)]
    tuned = runs_of("a", {name: [0.1] for name in four}).assign(validation=True)
    cells, _ = find_cells([pd.concat([good[0], tuned]), good[1]])
    assert cells["fedavg"].tolist() == [0.5, 0.5]
    longer = runs_of("a", {"local": [0.9]}).assign(comm_rounds=80)
    with pytest.raises(ClustPSIError, match="the runs on a differ in comm_rounds"):
        find_cells([pd.concat([good[0], longer]), good[1]])
