"""Tables from runs: what is best, what is missing, what the paper says, and which differences are real."""

import io
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from clustpsi import paper
from clustpsi.cli import main
from clustpsi.errors import ClustPSIError
from clustpsi.report.clusters import cluster_table
from clustpsi.report.effort import effort_table
from clustpsi.report.sheet import Entry, Line, Sheet, render, show
from clustpsi.report.significance import difference_tables, holm, paired_t_test
from clustpsi.report.tables import score_table
from clustpsi.runs import infeasible
from clustpsi.runs.config import FORMAT, Config
from clustpsi.runs.frame import parse_filters, read_runs, select, write_runs
from clustpsi.runs.store import RunFolder, Store, write_csv, write_json

COUNTS = ([9, 2, 0, 6], [1, 4, 10, 8])  # of four clients: training samples of class no, and of class yes
TEST_COUNTS = ([2, 1, 1, 1], [1, 0, 3, 1])
SCORES = {"ad": 0.3, "sdad": 0.1, "worst10": 0.2, "loss": 1.0}


def leave_run(
    store: Store, accuracy: float, scores: dict[str, float] | None = None, left_out: int = 0, **settings: Any
) -> RunFolder:
    """A finished run with this accuracy in its last round."""
    config = Config(**({"num_clients": 100, "dataset": "acs_income", "non_iid_param": 0.3} | settings)).checked()
    folder = RunFolder(store.root / config.folder_name)
    folder.create(config)
    last = {"round": 40, "global_accuracy": accuracy, **SCORES, "ad": 1 - accuracy, **(scores or {})}
    if config.agg_method == "fedsoft":
        last |= {"server_accuracy": accuracy / 2, "server_ad": 1 - accuracy / 2, "server_sdad": 0.4}
    summary = {"last": last, "best": last, "skew": {"wpsi": 1.0}, "num_parameters": 650, "tau": None}
    summary |= {"participants": 10, "left_out": left_out, "bytes_up": 5, "bytes_down": 6, "model": "logistic"}
    counts = {"count_no": COUNTS[0], "count_yes": COUNTS[1], "test_no": TEST_COUNTS[0], "test_yes": TEST_COUNTS[1]}
    write_csv(folder / "clients.csv", {"client": range(4), "test": [3, 1, 4, 2], "psi": [1.0] * 4, **counts})
    if config.agg_method == "clust_psi_pfl":
        write_csv(folder / "clusters.csv", {"client": range(4), "cluster": [0, 0, 1, 2]})
        summary["tau"] = 3
    write_json(folder / "timing.json", {"seconds": 1.5})
    write_json(folder / "summary.json", summary)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ACSIncome at alpha 0.3 and S 0: FedAvg, Clust-PSI-PFL, FedSoft with three seeds, local with two, CL with one."""
    store = Store(tmp_path_factory.mktemp("finished"))
    for partitioner, level, gain in (("dirichlet", 0.3, 0.0), ("similarity", 0.0, 0.1)):
        shared: dict[str, Any] = {"partitioner": partitioner, "non_iid_param": level}
        for seed in (0, 1, 2):
            leave_run(store, 0.6 + seed / 100, agg_method="fedavg", seed=seed, **shared)
            leave_run(store, 0.8 + gain + seed * seed / 100, agg_method="clust_psi_pfl", seed=seed, **shared)
            leave_run(store, 0.7, agg_method="fedsoft", seed=seed, **shared)
            if seed:
                leave_run(store, 0.9, agg_method="local", seed=seed, **shared)
    leave_run(store, 0.77, agg_method="centralized", seed=0, partitioner="iid", non_iid_param=None)
    return store.root


@pytest.fixture
def store(tmp_path: Path, finished: Path) -> Store:
    """The finished runs, for a test to add to."""
    return Store(shutil.copytree(finished, tmp_path / "runs"))


LOCAL = {"score": "ad", "spread": "sdad"}


def table(store: Store, **options: Any) -> Sheet:
    return score_table(read_runs(store.root)[0], **options)


def cell(sheet: Sheet, method: str, heading: str) -> tuple[tuple[str, ...], bool]:
    (line,) = (line for _, lines in sheet.sections for line in lines if line.name == method)
    entry = line.entries[0 if line.spans else sheet.headings.index(heading)]
    return entry.lines, entry.bold


def test_cells_are_means_and_population_deviations_of_the_last_round_over_seeds(store: Store) -> None:
    sheet = table(store, digits=4)
    values = [0.8, 0.81, 0.84]
    assert cell(sheet, "Clust-PSI-PFL", "α=0.3")[0][0] == f"{np.mean(values):.4f} ± {np.std(values):.4f}"
    frame = sheet.frame.set_index(["method", "partitioner"])
    assert frame.loc[("clust_psi_pfl", "dirichlet"), "mean"].dropna().tolist() == [float(np.mean(values))]
    local = table(store, **LOCAL)
    assert cell(local, "FedAvg", "S=0")[0] == ("0.39 ± 0.10",)


def test_the_papers_columns_and_order_and_other_rows_below(store: Store) -> None:
    sheet = table(store)
    assert sheet.headings == ("α=50", "α=0.7", "α=0.3", "α=0.2", "α=0.09", "α=0.05", "S=1", "S=0.03", "S=0")
    ((name, lines),) = sheet.sections
    assert name == "ACSIncome"
    assert [line.name for line in lines] == [
        "CL",
        "FedAvg",
        "FedSoft",
        "Clust-PSI-PFL",
        "Local only",
        "FedSoft (server)",
    ]
    assert table(store, **LOCAL).sections[0][1][0].name == "FedAvg"  # there is no CL


def test_finding_39_only_cells_that_were_tried_are_infeasible(store: Store) -> None:
    sheet = table(store)
    assert cell(sheet, "FedAvg", "α=0.2") == cell(sheet, "FedAvg", "α=50") == (("",), False)
    assert "empty: not run" in sheet.notes and not any("---" in note for note in sheet.notes)
    against = table(store, against_paper=True)  # the paper says so of alpha 0.2
    assert cell(against, "FedAvg", "α=0.2")[0] == ("", "---") and cell(against, "Local only", "α=0.2")[0] == ("",)
    assert any("--- where it calls the partition infeasible" in note for note in against.notes)
    fmnist = Config(dataset="fmnist", num_clients=100, non_iid_param=0.05, seed=0).checked()
    leave_run(store, 0.5, dataset="fmnist", seed=0)
    infeasible.record(store, fmnist, "none found")
    lines = dict(table(store).sections)["FMNIST"]
    assert [entry.lines[0] for entry in lines[0].entries] == ["", "", "0.50 †", "", "", "---", "", "", ""]
    assert "--- tried, and there is no such partition" in table(store).notes


def test_the_best_at_the_printed_precision_are_bold_and_cl_never_is(store: Store) -> None:
    sheet = table(store)
    assert cell(sheet, "Local only", "α=0.3")[1] and not cell(sheet, "Clust-PSI-PFL", "α=0.3")[1]
    assert cell(sheet, "Clust-PSI-PFL", "S=0")[1] and not cell(sheet, "CL", "S=0")[1]
    assert (
        cell(table(store, digits=1), "Clust-PSI-PFL", "S=0")[1] and cell(table(store, digits=1), "Local only", "S=0")[1]
    )
    assert cell(table(store, **LOCAL), "Clust-PSI-PFL", "S=0")[1]  # where less is better


def test_cells_with_fewer_seeds_than_asked_are_marked(store: Store) -> None:
    sheet = table(store)
    assert cell(sheet, "Local only", "S=0")[0] == ("0.90 ± 0.00 †",)
    assert cell(sheet, "FedAvg", "S=0")[0] == ("0.61 ± 0.01",)
    assert "† fewer than 3 seeds" in sheet.notes
    assert cell(table(store, seeds=5), "FedAvg", "S=0")[0] == ("0.61 ± 0.01 †",)
    assert not any("fewer" in note for note in table(store, seeds=1).notes)


def test_the_papers_values_stand_beside_ours(store: Store) -> None:
    sheet = table(store, against_paper=True)
    assert cell(sheet, "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01", "0.64 -0.03")
    assert cell(sheet, "CL", "")[0] == ("0.77 †", "0.76 +0.01")
    assert cell(sheet, "FedSoft (server)", "S=0")[0] == ("0.35 ± 0.00", "0.74 -0.39")
    assert cell(sheet, "Local only", "S=0")[0] == ("0.90 ± 0.00 †",)
    local = table(store, **LOCAL, against_paper=True)
    assert cell(local, "FedAvg", "S=0")[0] == ("0.39 ± 0.10", "0.35 +0.04")


def test_the_papers_tables_are_complete() -> None:
    accuracy, distance = paper.global_accuracy(), paper.local_distance()
    assert len(accuracy) == 6 * (12 * 9 + 1) and len(distance) == 6 * 5 * 9
    assert tuple(accuracy["method"].unique()) == paper.METHODS
    assert tuple(accuracy["dataset"].unique()) == tuple(paper.DATASETS)
    assert set(zip(accuracy["partitioner"], accuracy["non_iid_param"], strict=True)) >= set(paper.LEVELS)
    assert len(paper.INFEASIBLE) == 7
    best = accuracy.query("dataset == 'acs_income' and method == 'clust_psi_pfl' and partitioner == 'similarity'")
    assert best["mean"].tolist() == [0.77, 0.97, 0.98]


def test_all_formats_say_the_same(store: Store) -> None:
    sheet = table(store, against_paper=True)
    markdown = render([sheet], "markdown")
    assert "|  | FedAvg |" in markdown and "0.61 ± 0.01<br>0.64 -0.03" in markdown and "**0.92 ± 0.02**" in markdown
    latex = render([sheet], "latex")
    assert r"\makecell{0.61 $\pm$ 0.01 \\ 0.64 -0.03}" in latex
    assert r"\multicolumn{9}{c}" in latex and r"\textbf{0.92 $\pm$ 0.02}" in latex and "±" not in latex
    assert latex.count("{") == latex.count("}")
    terminal = render([sheet], "terminal")
    assert "0.61 ± 0.01" in terminal and "\x1b" not in terminal
    text = io.StringIO()
    show([sheet], Console(file=text, force_terminal=True, color_system="standard", width=80))
    assert re.search("\x1b\\[1m *0.92", text.getvalue())
    assert render([sheet], "csv").startswith("dataset,method,partitioner,non_iid_param,mean,spread,seeds")
    with pytest.raises(ClustPSIError, match="unknown format 'html'"):
        render([sheet], "html")


def test_the_compact_form_gives_the_same_tables(store: Store, tmp_path: Path) -> None:
    infeasible.record(store, Config(dataset="acs_income", num_clients=100, non_iid_param=0.01).checked(), "none")
    path = tmp_path / "runs.csv"
    path.write_text(write_runs(read_runs(store.root)[0]))
    for options in ({}, LOCAL):
        sheets = [score_table(read_runs(source)[0], **options) for source in (store.root, path)]
        for format in ("terminal", "csv", "latex", "markdown"):
            assert render(sheets[:1], format) == render(sheets[1:], format)
    assert "α=0.01" in sheets[0].headings
    assert render([cluster_table(read_runs(store.root)[0])], "csv") == render(
        [cluster_table(read_runs(path)[0])], "csv"
    )
    assert write_runs(read_runs(path)[0]) == path.read_text()


def test_runs_that_cannot_be_compared_are_not_mixed(store: Store) -> None:
    leave_run(store, 0.1, agg_method="fedavg", seed=0, comm_rounds=2)
    with pytest.raises(ClustPSIError, match=r"differ in comm_rounds \(.*\): choose which to compare, with --where"):
        table(store)
    runs = read_runs(store.root)[0]
    assert cell(score_table(select(runs, {"comm_rounds": "40"})), "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01",)
    leave_run(store, 0.3, agg_method="fedavg", num_clients=10, seed=0)
    runs = select(read_runs(store.root)[0], {"comm_rounds": "40"})
    assert cell(score_table(runs, num_clients=10), "FedAvg", "α=0.3")[0] == ("0.30",)
    assert cell(score_table(runs), "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01",)
    with pytest.raises(ClustPSIError, match="no run has 7 clients: there are runs with 10, 100"):
        score_table(runs, num_clients=7)


def test_runs_with_and_without_word_vectors_are_not_mixed(store: Store, tmp_path: Path) -> None:
    leave_run(store, 0.1, agg_method="fedavg", seed=0, word_vectors="glove.txt")
    with pytest.raises(ClustPSIError, match=r"differ in word_vectors \((none, glove.txt|glove.txt, none)\)"):
        table(store)
    path = tmp_path / "runs.csv"
    path.write_text(write_runs(read_runs(store.root)[0]))
    for runs in (read_runs(store.root)[0], read_runs(path)[0]):
        chosen = score_table(select(runs, {"word_vectors": "none"}))
        assert cell(chosen, "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01",)
        assert set(select(runs, {"word_vectors": "glove.txt"})["last_global_accuracy"]) == {0.1}


def test_filters_name_settings_and_values(store: Store) -> None:
    runs = read_runs(store.root)[0]
    chosen = select(runs, parse_filters(["agg-method=fedavg,local", "non_iid_param=0.30"]))
    assert set(chosen["agg_method"]) == {"fedavg", "local"} and set(chosen["non_iid_param"]) == {0.3}
    with pytest.raises(ClustPSIError, match="no finished run has seed=9"):
        select(runs, {"seed": "9"})
    with pytest.raises(ClustPSIError, match="seed is asked for twice; several values go into one: seed=1,2"):
        parse_filters(["seed=1", "seed=2"])
    with pytest.raises(ClustPSIError, match="'sed=1' should read setting=value"):
        parse_filters(["sed=1"])


def test_damaged_folders_and_other_versions_are_left_out_with_a_sentence(store: Store, tmp_path: Path) -> None:
    whole = render([table(store)], "csv")
    damaged = leave_run(store, 0.1, agg_method="fedavg", seed=7)
    (damaged / "summary.json").write_text('{"last": {}}')
    strange = leave_run(store, 0.1, agg_method="fedavg", seed=10)
    write_json(strange / "summary.json", strange.summary() | {"tau": "many"})
    listed = leave_run(store, 0.1, agg_method="fedavg", seed=11)
    write_json(listed / "summary.json", listed.summary() | {"last": []})
    cut = leave_run(store, 0.1, agg_method="clust_psi_pfl", seed=12)
    write_csv(cut / "clusters.csv", {"client": [0], "cluster": [0]})
    unreadable = leave_run(store, 0.1, agg_method="fedavg", seed=8)
    (unreadable / "summary.json").write_text("{")
    without_clients = leave_run(store, 0.1, agg_method="fedavg", seed=6)
    (without_clients / "clients.csv").unlink()
    old = leave_run(store, 0.1, agg_method="fedavg", seed=9)
    write_json(old / "config.json", {**asdict(old.config()), "format": FORMAT + 1})
    runs, problems = read_runs(store.root)
    assert render([score_table(runs)], "csv") == whole
    assert len(problems) == 7 and all("left out" in problem for problem in problems)
    assert sum(f"written in format {FORMAT + 1}" in problem for problem in problems) == 1
    csv = tmp_path / "runs.csv"
    csv.write_text(write_runs(runs.assign(format=FORMAT + 1)))
    with pytest.raises(ClustPSIError, match="different version"):
        read_runs(csv)
    csv.write_text("a,b\n1,2\n")
    with pytest.raises(ClustPSIError, match="it has no column format"):
        read_runs(csv)
    with pytest.raises(ClustPSIError, match="there is no store"):
        read_runs(tmp_path / "nowhere")


def test_finding_40_constant_answers_are_scored_on_test_labels(store: Store) -> None:
    runs, _ = read_runs(store.root)
    (row,) = runs[
        (runs["agg_method"] == "clust_psi_pfl") & (runs["seed"] == 1) & (runs["non_iid_param"] == 0.3)
    ].to_dict("records")
    # Training, clusters {0, 1}: 11 no, 5 yes; {2}: 0, 10; {3}: 6, 8.  All: 17, 23.  Test: as TEST_COUNTS.
    assert (row["singletons"], row["majorities"]) == (2, "1 2")
    assert row["constant_federation"] == (1 + 0 + 3 + 1) / 10
    assert row["constant_cluster"] == ((2 + 1) + 3 + 1) / 10
    assert row["constant_client"] == (2 + 0 + 3 + 1) / 10
    sheet = cluster_table(runs)
    ((name, lines),) = sheet.sections
    assert name == "ACSIncome, Clust-PSI-PFL"
    assert [line.name for line in lines] == ["α=0.3", "S=0"]
    assert [entry.lines[0] for entry in lines[0].entries] == ["3", "2", "1 2", "0.500", "0.700", "0.600", "0.817"]
    with pytest.raises(ClustPSIError, match="none of these runs has clusters"):
        cluster_table(select(runs, {"agg_method": "fedavg"}))
    for folder in store:  # as earlier versions wrote them
        clients = folder.clients().drop(columns=["test_no", "test_yes"])
        clients.to_csv(folder / "clients.csv", index=False)
    before = cluster_table(read_runs(store.root)[0])
    texts = [entry.lines[0] for entry in before.sections[0][1][0].entries]
    assert texts == ["3", "2", "1 2", "-", "-", "-", "0.817"] and any("test labels" in note for note in before.notes)


def test_holms_correction_against_its_definition() -> None:
    p = np.array([0.001, np.nan, 0.02, 0.5, 0.013])
    assert holm(p) == pytest.approx([0.004, np.nan, 0.04, 0.5, 0.039], nan_ok=True)


def test_finding_38_a_test_needs_three_pairs_that_vary() -> None:
    x, y = np.array([0.8, 0.81, 0.84, 0.7]), np.array([0.6, 0.62, 0.61, 0.66])
    assert paired_t_test(x - y) == pytest.approx(stats.ttest_rel(x, y).pvalue)
    for nothing in ([0.1], [0.1, 0.1], [0.1, 0.2], [0.0, 0.0, 0.0], np.array([0.3, 0.6, 0.9]) - [0.2, 0.5, 0.8]):
        assert np.isnan(paired_t_test(nothing))
    assert paired_t_test([0.1, 0.1, 0.1 + 1e-6]) < 1e-9


def test_a_verdict_needs_a_difference_that_survives_correction(store: Store) -> None:
    by_cell, _ = difference_tables(read_runs(store.root)[0], "clust_psi_pfl")
    row = by_cell.frame.set_index(["method", "partitioner"]).loc[("fedavg", "dirichlet")]
    differences = np.array([0.2, 0.2, 0.22])
    assert row["difference"] == pytest.approx(differences.mean())
    assert row["p"] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert row["verdict"] == "better" and row["p"] < row["p_holm"] < 0.05
    assert cell(by_cell, "FedAvg", "α=0.3")[1]
    few = by_cell.frame.set_index(["method", "partitioner"]).loc[("local", "similarity")]
    assert few["verdict"] == "untested" and few["pairs"] == 2
    assert cell(by_cell, "Local only", "S=0")[0] == ("+0.025", "p -")
    worse = difference_tables(read_runs(store.root)[0], "fedavg", "ad")[0].frame.set_index(["method", "partitioner"])
    assert worse.loc[("clust_psi_pfl", "dirichlet"), "verdict"] == "worse"
    with pytest.raises(ClustPSIError, match=r"no run of haccs is here, .* another method with --reference \("):
        difference_tables(read_runs(store.root)[0], "haccs")
    with pytest.raises(ClustPSIError, match="unknown score 'adx'"):
        difference_tables(read_runs(store.root)[0], "fedavg", "adx")


def test_finding_45_a_seed_is_one_pair_whatever_the_number_of_cells(store: Store) -> None:
    overall = difference_tables(read_runs(store.root)[0], "clust_psi_pfl")[1]
    row = overall.frame.set_index("method").loc["fedavg"]
    of_seed = np.array([[0.2, 0.3], [0.2, 0.3], [0.22, 0.32]]).mean(axis=1)
    assert (row["pairs"], row["cells"]) == (3, 2)
    assert row["difference"] == pytest.approx(of_seed.mean())
    assert row["p"] == pytest.approx(stats.ttest_1samp(of_seed, 0).pvalue)
    assert (row["least"], row["most"]) == pytest.approx((0.2 + 0.02 / 3, 0.3 + 0.02 / 3))
    assert any("generalizes over" in note and "not over other data sets" in note for note in overall.notes)
    leave_run(store, 0.5, agg_method="clust_psi_pfl", seed=3)  # in one of the two cells only
    leave_run(store, 0.6, agg_method="fedavg", seed=3)
    overall = difference_tables(read_runs(store.root)[0], "clust_psi_pfl")[1]
    assert overall.frame.set_index("method").loc["fedavg", "pairs"] == 3
    assert "up to 1 seed without a run in every cell omitted" in overall.notes


def test_finding_45_identical_methods_are_one_comparison(store: Store) -> None:
    before = difference_tables(read_runs(store.root)[0], "clust_psi_pfl")
    for partitioner, level in (("dirichlet", 0.3), ("similarity", 0.0)):
        for seed in (0, 1, 2):
            same: dict[str, Any] = {"partitioner": partitioner, "non_iid_param": level, "seed": seed}
            leave_run(store, 0.6 + seed / 100, agg_method="cfl", **same)
            leave_run(store, 0.6 + seed / 100, {"loss": 1 + 1e-15}, agg_method="fedprox", **same)
    after = difference_tables(read_runs(store.root)[0], "clust_psi_pfl")
    for old, new, of_method in zip(before, after, (2, 1), strict=True):
        assert new.frame["p"].notna().sum() == old.frame["p"].notna().sum() + of_method  # FedProx alone
        assert set(new.frame.loc[new.frame["method"] == "cfl", "same_as"]) == {"fedavg"}
        assert set(new.frame.loc[new.frame["method"] == "fedprox", "verdict"]) == {"better"}
    assert cell(after[0], "CFL", "S=0") == (("= FedAvg",), False)
    (line,) = (line for line in after[1].sections[0][1] if line.name == "CFL")
    assert line.entries[-1].lines == ("identical to FedAvg",)


def test_other_scores_where_runs_have_them(store: Store) -> None:
    assert cell(table(store, score="worst10"), "FedAvg", "S=0")[0] == ("0.20 ± 0.00",)
    names = [line.name for line in table(store, score="loss").sections[0][1]]
    assert "CL" in names and "FedSoft (server)" not in names
    assert "CL" not in [line.name for line in table(store, score="worst10").sections[0][1]]
    with pytest.raises(ClustPSIError, match=r"none of these runs has macro_f1: they were made before .* worst10, loss"):
        table(store, score="macro_f1")
    leave_run(store, 0.5, {"macro_f1": 0.25}, agg_method="fedavg", seed=9)
    sheet = table(store, score="macro_f1")
    assert cell(sheet, "FedAvg", "α=0.3")[0] == ("0.25",) and "23 runs without macro_f1 omitted" in sheet.notes
    with pytest.raises(ClustPSIError, match="unknown score 'macro_f2': did you mean 'macro_f1'"):
        table(store, score="macro_f2")


def test_finding_41_effort(store: Store) -> None:
    runs = read_runs(store.root)[0]
    sheet = effort_table(runs)
    assert sheet.headings == ("α=0.3", "S=0") and "in 40 rounds" in sheet.title
    assert "in 40 rounds" in effort_table(runs.astype({"comm_rounds": float})).title  # as beside infeasible partitions
    assert cell(sheet, "FedAvg", "S=0")[0] == ("10", "1.1e-05 MB")
    assert "CL" not in [line.name for line in sheet.sections[0][1]]
    row = sheet.frame.set_index(["method", "partitioner"]).loc[("local", "dirichlet")]
    assert row[["seeds", "participants", "bytes_up", "bytes_down"]].tolist() == [2, 10, 5, 6]


def test_finding_27_clients_that_were_left_out_are_mentioned(store: Store) -> None:
    assert not any("left out" in note for note in table(store).notes)
    leave_run(store, 0.5, left_out=3, agg_method="fedadam", seed=0)
    leave_run(store, 0.5, left_out=1, agg_method="fedadam", seed=1)
    leave_run(store, 0.5, left_out=1, agg_method="fedsoft", seed=7)
    runs = read_runs(store.root)[0]
    expected = (
        "3 runs left out clients whose update was not finite: FedAdam at α=0.3 on ACSIncome (4 updates), "
        "FedSoft at α=0.3 on ACSIncome (1 update)"
    )
    for sheet in (score_table(runs), effort_table(runs), *difference_tables(runs, "clust_psi_pfl")):
        assert expected in sheet.notes


def test_finding_34_names_are_text_in_every_format() -> None:
    name = "a_b|*c* {\\x} ^~ <b> [r]r[/r] %$#& \x1b[2J\nend"
    sheet = Sheet(name, (name,), [(name, [Line(name, (Entry((name,), bold=True),))])], pd.DataFrame(), [name])
    terminal = render([sheet], "terminal")
    shown = "a_b|*c* {\\x} ^~ <b> [r]r[/r] %$#& \\x1b[2J\\nend"
    assert terminal.count(shown) == 6 and "\x1b" not in terminal
    markdown = render([sheet], "markdown")
    escaped = r"a_b\|\*c\* {\\x} ^\~ \<b> \[r\]r\[/r\] %\$#\& \\x1b\[2J\\nend"
    assert markdown.count(escaped) == 6 and len(markdown.splitlines()) == 7
    latex = render([sheet], "latex")
    backslash = r"\textbackslash{}"
    escaped = (
        r"a\_b$|$*c* \{" + backslash + r"x\} \textasciicircum{}\textasciitilde{} $<$b$>$ {[}r{]}r{[}/r{]} \%\$\#\& "
        f"{backslash}x1b{{[}}2J{backslash}nend"
    )
    assert latex.count(escaped) == 6


@given(name=st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\\|*_`<>[]{}~^$%&#\n\x1b"))))
@settings(max_examples=200, deadline=None)
def test_no_name_breaks_out_of_its_cell(name: str) -> None:
    sheet = Sheet("title", ("heading",), [(name, [Line(name, (Entry((name, name)),))])], pd.DataFrame())
    rows = render([sheet], "markdown").splitlines()
    assert len(rows) == 5 and len(re.findall(r"(?<!\\)(?:\\\\)*\|", rows[4])) == 4
    latex = render([sheet], "latex")
    (row,) = (line for line in latex.splitlines() if line.startswith(r"\multirow"))
    assert len(re.findall(r"(?<!\\)&", row)) == 2 and not re.search(r"(?<!\\)[%#]", row)
    braces = re.sub(r"\\[{}]", "", latex)
    assert braces.count("{") == braces.count("}")
    assert "\x1b" not in render([sheet], "terminal")


def test_the_runs_table_knows_the_folders(store: Store, tmp_path: Path) -> None:
    runs, _ = read_runs(store.root)
    for row in runs.to_dict("records"):
        assert RunFolder(Path(row["folder"])).config().agg_method == row["agg_method"]
    assert "folder" not in write_runs(runs).splitlines()[0]
    (tmp_path / "runs.csv").write_text(write_runs(runs))
    assert read_runs(tmp_path / "runs.csv")[0]["folder"].isna().all()


def test_the_commands_print_and_write(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["global", str(store.root), "--format", "csv", "--agg-method", "fedavg"], "acs_income,fedavg,dirichlet,0.3"),
        (["local", str(store.root), "--against", "paper"], "0.35 +0.04"),
        (["tests", str(store.root), "--score", "ad"], "seeds' means over cells"),
        (["global", str(store.root), "--score", "worst10"], "0.20 ± 0.00"),
        (["effort", str(store.root), "--format", "csv"], "acs_income,fedavg,dirichlet,0.3,3,10.0,5.0,6.0"),
        (["clusters", str(store.root), "--format", "csv"], "acs_income,clust_psi_pfl,similarity,0.0,3,3.0"),
        (["runs", str(store.root), "--where", "seed=2"], "acs_income"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["table", *arguments])
        assert caught.value.code == 0 and expected in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["table", "runs", str(store.root), "--output", str(tmp_path / "all.csv")])
    assert len(pd.read_csv(tmp_path / "all.csv")) == 2 * (3 * 3 + 2) + 1
    for wrong, message in (
        (["global", str(store.root), "--against", "papre"], "--against can be paper"),
        (["global", str(store.root), "--format", "html"], "unknown format 'html'"),
        (["global", "/nowhere", "--output", str(tmp_path / "no" / "x.tex")], "there is no folder"),
        (["runs", "/nowhere", "--output", str(tmp_path)], "it is a folder"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["table", *wrong])
        assert caught.value.code == 2 and message in capsys.readouterr().err
