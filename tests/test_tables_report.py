"""Tables from runs: what is best, what is missing, what the paper says, and which differences are real."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clustpsi.cli import main
from clustpsi.config import FORMAT, Config
from clustpsi.errors import ClustPSIError
from clustpsi.experiments import infeasible
from clustpsi.report import paper
from clustpsi.report.clusters import cluster_table
from clustpsi.report.runs import parse_filters, read_runs, select, write_runs
from clustpsi.report.sheet import Sheet, render
from clustpsi.report.significance import difference_tables, holm, paired_t_test, signed_rank_test
from clustpsi.report.tables import score_table
from clustpsi.results import RunFolder, Store, write_csv, write_json

COUNTS = ([9, 2, 0, 6], [1, 4, 10, 8])  # of four clients: samples of class no, and of class yes
TESTS = ([2, 2, 0, 1], [1, 0, 2, 2])  # the same of their test data
SCORES = {"ad": 0.3, "sdad": 0.1, "worst10": 0.2, "loss": 1.0}


def leave_run(store: Store, accuracy: float, **settings: Any) -> RunFolder:
    """A finished run with this accuracy in its last round."""
    config = Config(**({"num_clients": 100, "dataset": "acs_income", "non_iid_param": 0.3} | settings)).checked()
    folder = RunFolder(store.root / config.folder_name)
    folder.create(config)
    last = {"round": 40, "global_accuracy": accuracy, **SCORES, "ad": 1 - accuracy}
    if config.agg_method == "fedsoft":
        last |= {"server_accuracy": accuracy / 2, "server_ad": 1 - accuracy / 2, "server_sdad": 0.4}
    summary = {"last": last, "best": last, "skew": {"wpsi": 1.0}, "num_parameters": 650, "tau": None}
    summary |= {"participants": 10, "left_out": 0, "bytes_up": 5, "bytes_down": 6, "model": "logistic"}
    train, test = ({f"{kind}_no": no, f"{kind}_yes": yes} for kind, (no, yes) in (("count", COUNTS), ("test", TESTS)))
    write_csv(folder / "clients.csv", {"client": range(4), "psi": [1.0] * 4, **train, **test})
    if config.agg_method == "clust_psi_pfl":
        write_csv(folder / "clusters.csv", {"client": range(4), "cluster": [0, 0, 1, 2]})
        summary["tau"] = 3
    write_json(folder / "timing.json", {"seconds": 1.5})
    write_json(folder / "summary.json", summary)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """ACSIncome at alpha 0.3 and S 0: FedAvg, Clust-PSI-PFL, FedSoft with three seeds, local with two, CL with one."""
    store = Store(tmp_path / "runs")
    for partitioner, level, gain in (("dirichlet", 0.3, 0.0), ("similarity", 0.0, 0.1)):
        shared: dict[str, Any] = {"partitioner": partitioner, "non_iid_param": level}
        for seed in (0, 1, 2):
            leave_run(store, 0.6 + seed / 100, agg_method="fedavg", seed=seed, **shared)
            leave_run(store, 0.8 + gain + seed * seed / 100, agg_method="clust_psi_pfl", seed=seed, **shared)
            leave_run(store, 0.7, agg_method="fedsoft", seed=seed, **shared)
            if seed:
                leave_run(store, 0.9, agg_method="local", seed=seed, **shared)
    leave_run(store, 0.77, agg_method="centralized", seed=0, partitioner="iid")
    return store


def table(store: Store, kind: str = "global", **options: Any) -> Sheet:
    return score_table(read_runs(store.root)[0], kind, **options)


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
    local = table(store, "local")
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
    assert table(store, "local").sections[0][1][0].name == "FedAvg"  # there is no CL


def test_infeasible_cells_are_dashes_and_cells_that_were_not_run_are_empty(store: Store) -> None:
    sheet = table(store)
    assert cell(sheet, "FedAvg", "α=0.2") == (("---",), False)
    assert cell(sheet, "FedAvg", "α=50") == (("",), False)
    fmnist = Config(dataset="fmnist", num_clients=100, non_iid_param=0.05, seed=0).checked()
    leave_run(store, 0.5, dataset="fmnist", seed=0)
    infeasible.record(store, fmnist, "none found")
    lines = dict(table(store).sections)["FMNIST"]
    assert [entry.lines[0] for entry in lines[0].entries] == ["", "", "0.50 †", "", "", "---", "", "", ""]


def test_the_best_at_the_printed_precision_are_bold_and_cl_never_is(store: Store) -> None:
    sheet = table(store)
    assert cell(sheet, "Local only", "α=0.3")[1] and not cell(sheet, "Clust-PSI-PFL", "α=0.3")[1]
    assert cell(sheet, "Clust-PSI-PFL", "S=0")[1] and not cell(sheet, "CL", "S=0")[1]
    assert (
        cell(table(store, digits=1), "Clust-PSI-PFL", "S=0")[1] and cell(table(store, digits=1), "Local only", "S=0")[1]
    )
    assert cell(table(store, "local"), "Clust-PSI-PFL", "S=0")[1]  # where less is better


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
    local = table(store, "local", against_paper=True)
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
    assert re.search("\x1b\\[1m *0.92", render([sheet], "terminal", color=True))
    assert render([sheet], "csv").startswith("dataset,method,partitioner,non_iid_param,mean,spread,seeds")
    with pytest.raises(ClustPSIError, match="unknown format 'html'"):
        render([sheet], "html")


def test_the_compact_form_gives_the_same_tables(store: Store, tmp_path: Path) -> None:
    infeasible.record(store, Config(dataset="acs_income", num_clients=100, non_iid_param=0.01).checked(), "none")
    path = tmp_path / "runs.csv"
    path.write_text(write_runs(read_runs(store.root)[0]))
    for kind in ("global", "local"):
        sheets = [score_table(read_runs(source)[0], kind) for source in (store.root, path)]
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
    assert cell(score_table(select(runs, {"comm_rounds": "40"}), "global"), "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01",)
    leave_run(store, 0.3, agg_method="fedavg", num_clients=10, seed=0)
    runs = select(read_runs(store.root)[0], {"comm_rounds": "40"})
    assert cell(score_table(runs, "global", num_clients=10), "FedAvg", "α=0.3")[0] == ("0.30",)
    assert cell(score_table(runs, "global"), "FedAvg", "α=0.3")[0] == ("0.61 ± 0.01",)
    with pytest.raises(ClustPSIError, match="no run has 7 clients: there are runs with 10, 100"):
        score_table(runs, "global", num_clients=7)


def test_runs_with_and_without_word_vectors_are_not_mixed(store: Store, tmp_path: Path) -> None:
    leave_run(store, 0.1, agg_method="fedavg", seed=0, word_vectors="glove.txt")
    with pytest.raises(ClustPSIError, match=r"differ in word_vectors \((none, glove.txt|glove.txt, none)\)"):
        table(store)
    path = tmp_path / "runs.csv"
    path.write_text(write_runs(read_runs(store.root)[0]))
    for runs in (read_runs(store.root)[0], read_runs(path)[0]):
        chosen = score_table(select(runs, {"word_vectors": "none"}), "global")
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
    unreadable = leave_run(store, 0.1, agg_method="fedavg", seed=8)
    (unreadable / "summary.json").write_text("{")
    without_clients = leave_run(store, 0.1, agg_method="fedavg", seed=6)
    (without_clients / "clients.csv").unlink()
    old = leave_run(store, 0.1, agg_method="fedavg", seed=9)
    write_json(old / "config.json", {**asdict(old.config()), "format": FORMAT + 1})
    runs, problems = read_runs(store.root)
    assert render([score_table(runs, "global")], "csv") == whole
    assert len(problems) == 4 and all("left out" in problem for problem in problems)
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


def test_finding_40_clusters_and_constant_answers_on_test_data(store: Store) -> None:
    runs, _ = read_runs(store.root)
    (row,) = runs[
        (runs["agg_method"] == "clust_psi_pfl") & (runs["seed"] == 1) & (runs["non_iid_param"] == 0.3)
    ].to_dict("records")
    # Clusters {0, 1}: 11 no, 5 yes; {2}: 0, 10; {3}: 6, 8.  All: 17, 23.
    assert (row["singletons"], row["majorities"]) == (2, "1 2")
    assert row["constant_federation"] == 5 / 10  # on test data
    assert row["constant_cluster"] == (4 + 2 + 2) / 10
    assert row["constant_client"] == (2 + 0 + 2 + 2) / 10
    sheet = cluster_table(runs)
    ((name, lines),) = sheet.sections
    assert name == "ACSIncome, Clust-PSI-PFL"
    assert [line.name for line in lines] == ["α=0.3", "S=0"]
    assert [entry.lines[0] for entry in lines[0].entries] == ["3", "2", "1 2", "0.500", "0.800", "0.600", "0.817"]
    with pytest.raises(ClustPSIError, match="none of these runs has clusters"):
        cluster_table(select(runs, {"agg_method": "fedavg"}))


def test_holms_correction_against_its_definition() -> None:
    p = np.array([0.001, np.nan, 0.02, 0.5, 0.013])
    assert holm(p) == pytest.approx([0.004, np.nan, 0.04, 0.5, 0.039], nan_ok=True)


def test_difference_tables_pairs() -> None:
    x, y = np.array([0.8, 0.81, 0.84, 0.7]), np.array([0.6, 0.62, 0.61, 0.66])
    assert paired_t_test(x - y) == pytest.approx(stats.ttest_rel(x, y).pvalue)
    assert signed_rank_test(x - y) == pytest.approx(stats.wilcoxon(x, y).pvalue)
    assert (paired_t_test([0.1, 0.1]), signed_rank_test([0.0, 0.0])) == (0.0, 1.0)
    assert np.isnan(paired_t_test([0.1]))


def test_a_verdict_needs_a_difference_that_survives_correction(store: Store) -> None:
    by_cell, overall = difference_tables(read_runs(store.root)[0], "global", "clust_psi_pfl")
    row = by_cell.frame.set_index(["method", "partitioner"]).loc[("fedavg", "dirichlet")]
    differences = np.array([0.2, 0.2, 0.22])
    assert row["difference"] == pytest.approx(differences.mean())
    assert row["p"] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert row["verdict"] == "better" and row["p"] < row["p_holm"] < 0.05
    assert cell(by_cell, "FedAvg", "α=0.3")[1]
    close = by_cell.frame.set_index(["method", "partitioner"]).loc[("local", "similarity")]
    assert close["verdict"] == "not shown" and close["pairs"] == 2
    assert overall.frame.set_index("method").loc["fedavg", "pairs"] == 6
    worse = difference_tables(read_runs(store.root)[0], "local", "fedavg")[0].frame.set_index(["method", "partitioner"])
    assert worse.loc[("clust_psi_pfl", "dirichlet"), "verdict"] == "worse"
    with pytest.raises(ClustPSIError, match="unknown method among the runs 'haccs'"):
        difference_tables(read_runs(store.root)[0], "global", "haccs")


def test_the_commands_print_and_write(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["global", str(store.root), "--format", "csv", "--agg-method", "fedavg"], "acs_income,fedavg,dirichlet,0.3"),
        (["local", str(store.root), "--against", "paper"], "0.35 +0.04"),
        (["tests", str(store.root), "--measure", "local"], "Wilcoxon"),
        (["clusters", str(store.root), "--format", "csv"], "acs_income,clust_psi_pfl,similarity,0.0,3,3.0"),
        (["runs", str(store.root), "--where", "seed=2"], "acs_income"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["table", *arguments])
        assert caught.value.code == 0 and expected in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["table", "runs", str(store.root), "--output", str(tmp_path / "all.csv")])
    assert len(pd.read_csv(tmp_path / "all.csv")) == 2 * (3 * 3 + 2) + 1
    with pytest.raises(SystemExit) as caught:
        main(["table", "global", str(store.root), "--against", "papre"])
    assert caught.value.code == 2 and "--against can be paper" in capsys.readouterr().err
