"""What the explorer shows: the numbers of runs and of the other commands, whatever is in the names."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from clustpsi.diagnosis import diagnose
from clustpsi.errors import ClustPSIError
from clustpsi.exact import read_exact_csv
from clustpsi.explorer import results
from clustpsi.explorer.app import Explorer
from clustpsi.explorer.library import LARGEST_TABLE, Library
from clustpsi.explorer.settings import Settings
from clustpsi.explorer.training import Training
from clustpsi.explorer.view import Views
from clustpsi.paper import global_accuracy
from clustpsi.recorded import GRIDS, recorded_runs
from clustpsi.report.look import DARK, LIGHT
from clustpsi.runs.store import Store
from helpers import clustpsi

SMALL = Settings(num_clients=6, non_iid_param=0.5, comm_rounds=1, local_epochs=1, agg_method="clust_psi_pfl")


@pytest.mark.parametrize(
    "change",
    [{}, {"psi_features": "psi"}, {"preset": "paper"}, {"preset": "paper", "tau_clusters": 2, "psi_smoothing": "clip"}],
)
def test_the_screen_shows_what_a_run_computes(change: dict[str, str], tmp_path: Path) -> None:
    settings = Settings.of({**vars(SMALL), **change})
    explorer = Explorer(tmp_path / "explorer")
    command = explorer.commands(settings)[1].split()
    assert clustpsi(*command[1:], "--output", str(tmp_path / "runs"), "--quiet") == 0
    [run] = Store(tmp_path / "runs")
    view = explorer.views.view(settings)
    counts = run.clients().filter(regex="^count_").to_numpy()
    assert (counts == view.diagnosis.counts).all()
    paper = Settings.of({**vars(SMALL), "preset": "paper"})  # runs write the paper's PSI
    np.testing.assert_allclose(run.clients()["psi"], explorer.views.view(paper).diagnosis.psi)
    assert (run.clusters() == view.diagnosis.clustering.labels_).all()
    constant = run.summary()["constant"]["client"]["global_accuracy"]
    assert constant in view.constants.values()
    tried = read_exact_csv(run / "silhouette.csv")
    assert dict(zip(tried["tau"], tried["silhouette"], strict=True)).items() <= _silhouettes(view).items()


def test_the_explorer_and_diagnose_have_the_same_default(tmp_path: Path) -> None:
    view = Views(Library(tmp_path)).view(SMALL)
    found = diagnose(view.diagnosis.counts, random_state=SMALL.seed)
    assert view.diagnosis.settings == found.settings and "preset robust" in found.settings
    assert (view.diagnosis.clustering.labels_ == found.clustering.labels_).all()


def _silhouettes(view: object) -> dict[int, float]:
    return dict(view.silhouettes) | view.diagnosis.clustering.silhouette_scores_  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change", [{}, {"preset": "paper"}, {"preset": "paper", "psi_features": "signed", "tau_clusters": 3}]
)
def test_the_command_that_measures_repeats_the_screen(
    change: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explorer = Explorer(tmp_path)
    settings = Settings.of({"num_clients": 7, "seed": 5, **change})
    view = explorer.views.view(settings)
    (tmp_path / "label_counts.csv").write_text(view.label_counts_csv())
    words = explorer.commands(settings)[0].split()
    words[words.index("label_counts.csv")] = str(tmp_path / "label_counts.csv")
    assert clustpsi(*words[1:], "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measures"] == view.diagnosis.measures and report["preset"] == settings.preset
    members = [row["cluster"] for row in csv.DictReader(view.clusters_csv().splitlines())]
    assert [row["cluster"] for row in report["clients"]] == list(map(int, members))


def test_charts_are_drawn_for_both_pages_and_fixed_clusters_keep_the_curve(tmp_path: Path) -> None:
    views = Views(Library(tmp_path))
    view = views.view(Settings(num_clients=12, tau_clusters=4))
    for theme in (LIGHT, DARK):
        charts = view.charts(theme)
        line, chosen = charts["silhouette"]["data"]
        assert line["x"] == list(range(2, 12)) and chosen["x"] == [4]
        assert len(charts) == 7
    assert {name: value for _, name, value, _ in view.facts}["clusters"] == "4"
    assert views.view(Settings(num_clients=12, tau_clusters=4, comm_rounds=9)).diagnosis is view.diagnosis


# --------------------------------------------------------------------------------------------------------------- tables


def test_tables_are_kept_by_content_and_named_by_it_alone(tmp_path: Path) -> None:
    library = Library(tmp_path / "tables")
    table = library.keep("../../somewhere\\a b.csv", b"site,x,y\nrome,3,4\noslo,5,1\n")
    assert library.path(table).name == "a b.csv" and library.path(table).parent.parent == tmp_path / "tables"
    assert library.keep("a b.csv", b"site,x,y\nrome,3,4\noslo,5,1\n") == table
    assert library.columns(table) == ["site", "x", "y"]
    clients = library.clients(Settings.of({"dataset": table}))
    assert clients.names == ("rome", "oslo") and clients.counts.tolist() == [[3, 4], [5, 1]]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


@pytest.mark.filterwarnings("ignore::clustpsi.errors.ClustPSIWarning")
@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read as Parquet"),
        ("a.csv", b"\xff\xfe\x00", "a.csv"),
        ("a.npz", b"PK", "file of arrays"),
        ("..", b"x,y\n1,2\n", "cannot be kept"),
        ("a\0.csv", b"x,y\n1,2\n", "cannot be kept"),
        ("x" * 300, b"x,y\n1,2\n", "cannot be kept"),
        ("large.csv", b"0" * (LARGEST_TABLE + 1), "larger than 50 MB"),
    ],
)
def test_what_is_no_table_is_refused_and_not_kept(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    library = Library(tmp_path / "tables")
    with pytest.raises(ClustPSIError) as error:
        library.keep(name, content)
    assert sentence in library.told(error.value) and str(tmp_path) not in library.told(error.value)
    assert not list(tmp_path.rglob("*.*"))


def test_a_table_that_is_gone_and_too_many_clients(tmp_path: Path) -> None:
    library = Library(tmp_path)
    with pytest.raises(ClustPSIError, match="drop it on the page again"):
        library.clients(Settings.of({"dataset": "table:" + "a" * 16}))
    many = "c,x,y\n" + "".join(f"k{i},{i + 1},2\n" for i in range(2001))
    with pytest.raises(ClustPSIError, match="2,001 clients"):
        library.clients(Settings.of({"dataset": library.keep("many.csv", many.encode())}))


def test_only_what_can_be_trained_is_started(tmp_path: Path) -> None:
    library = Library(tmp_path / "tables")
    training = Training(library, Store(tmp_path / "runs"))
    counts = library.keep("counts.csv", b"site,x,y\nrome,3,4\noslo,5,1\n")
    with pytest.raises(ClustPSIError, match="label counts cannot be trained on"):
        training.start(Settings.of({"dataset": counts}))
    with pytest.raises(ClustPSIError, match="at least one method"):
        training.start(Settings(agg_method=""))
    job = training.job(training.start(Settings(num_clients=2, dataset="digits", agg_method="poc:d_poc=1")))
    assert job is not None and training.job("guessed") is None
    training.close()
    assert not job.under_way and [each.state for each in job.methods] in (["stopped"], ["failed"])


# ------------------------------------------------------------------------------------------------------ the paper, live


def test_recorded_runs_are_all_there() -> None:
    for grid in GRIDS:
        assert len(recorded_runs(grid))
    with pytest.raises(ClustPSIError, match="unknown grid"):
        recorded_runs("../paper/global_accuracy")


def test_ours_the_papers_and_the_seeds() -> None:
    assert results.client_numbers("acs_income")[0] == 100
    found = {line.method: line for line in results.lines("acs_income", 100, "S=0.03", "global_accuracy")}
    own = recorded_runs("acs_income")
    own = own[(own["agg_method"] == "fedavg") & (own["non_iid_param"] == 0.03) & (own["num_clients"] == 100)]
    line = found["fedavg"]
    assert line.seeds == dict(zip(own["seed"], own["last_global_accuracy"], strict=True)) and len(line.seeds) == 5
    assert line.mean == pytest.approx(np.mean(list(line.seeds.values())))
    paper = global_accuracy().query("dataset == 'acs_income' and method == 'fedavg' and non_iid_param == 0.03")
    assert line.paper_mean == paper["mean"].item() and line.difference == line.mean - line.paper_mean
    assert np.isnan(found["local"].paper_mean) and "centralized" in found
    chart = results.chart(list(found.values()), "global_accuracy", LIGHT)
    assert chart["data"][-1]["x"].count(line.paper_mean)
    some = results.lines("acs_income", 100, "S=0.03", "ad", ["fedavg", "local"])
    assert [line.method for line in some] == ["fedavg", "local"]
    fewer = results.lines("acs_income", 50, "S=0.03", "global_accuracy", ["fedavg"])
    assert np.isnan(fewer[0].paper_mean) and "100 clients only" in results.notes("acs_income", 50, "ad")[-1]
    with pytest.raises(ClustPSIError, match="no runs at"):
        results.lines("acs_income", 100, "S=7", "ad")


# ----------------------------------------------------------------------------------------------------------- the report


def test_the_report_is_of_the_skew_until_runs_have_finished(tmp_path: Path) -> None:
    explorer = Explorer(tmp_path)
    text, name = explorer.report(SMALL, None)
    assert name == "report.html" and "How much do the labels of these 6 clients differ?" in text
    words = explorer.commands(SMALL)[1].split()
    assert clustpsi(*words[1:], "--output", str(tmp_path / "runs"), "--quiet") == 0
    job_name = explorer.training.start(SMALL)  # finds the finished run
    job = explorer.training.job(job_name)
    assert job is not None
    job.wait()
    assert [each.state for each in job.methods] == ["finished"] and list(job.curves()) == list(SMALL.methods)
    text, _ = explorer.report(SMALL, job_name)
    assert "Which method serves the 6 clients" in text
    assert "How much do the labels" in explorer.report(Settings(num_clients=5), job_name)[0]
