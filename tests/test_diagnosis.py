"""Diagnosing a federation from counts or from a labelled table."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi import ClustPSIError, diagnose
from clustpsi.datasets.counts import CountTable, read_counts
from clustpsi.errors import ClustPSIWarning
from helpers import clustpsi

COUNTS = pd.DataFrame({"site": list("abcd"), "cat": [90, 88, 10, 12], "dog": [10, 12, 90, 88]})


def test_counts_and_the_samples_they_count_give_the_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    COUNTS.to_parquet(tmp_path / "counts.parquet")
    samples = [
        (row.site, name) for row in COUNTS.itertuples() for name in ("cat", "dog") for _ in range(getattr(row, name))
    ]
    pd.DataFrame(samples, columns=["place", "animal"]).sample(frac=1, random_state=0).to_csv(
        tmp_path / "samples.csv", index=False
    )
    reports = []
    for arguments in (["counts.csv"], ["counts.parquet"], ["samples.csv", "--label", "animal", "--client", "place"]):
        assert clustpsi("diagnose", str(tmp_path / arguments[0]), *arguments[1:], "--json", "--preset", "paper") == 0
        reports.append(json.loads(capsys.readouterr().out))
        assert reports[-1]["notes"] == []
    assert reports[0] == reports[1] == reports[2]
    report = reports[0]
    assert report["clusters"] == [["a", "b"], ["c", "d"]]
    assert report["measures"]["wpsi"] == pytest.approx(0.818, abs=0.001)
    assert [client["drivers"] for client in report["clients"]] == ["-dog +cat"] * 2 + ["-cat +dog"] * 2
    assert {client["shift"] for client in report["clients"]} == {"major"}
    assert sum(report["classes"].values()) == pytest.approx(1)


def test_the_printed_report_names_what_matters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    assert clustpsi("diagnose", str(tmp_path / "counts.csv")) == 0
    shown = capsys.readouterr().out
    for text in ("4 clients, 2 classes, 400 samples", "WPSI", "major", "jensen_shannon", "2 clusters"):
        assert text in shown


def test_identical_clients_have_no_skew() -> None:
    for preset, rounding in (("paper", 1e-12), ("robust", 1e-4)):  # a client's few samples are smoothed more than all
        report = diagnose(np.tile([50, 30, 20], (4, 1)), preset=preset)
        assert report.measures["wpsi"] == pytest.approx(0, abs=rounding)
        assert report.clients()["shift"].tolist() == ["none"] * 4
        assert report.clustering.n_clusters_ == 1
    assert diagnose(np.tile([50, 30, 20], (4, 1)), preset="paper").class_shares.tolist() == [0, 0, 0]


def test_the_robust_preset_is_the_default_says_so_and_gives_way_to_what_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    file = str(tmp_path / "counts.csv")
    assert clustpsi("diagnose", file) == 0
    assert (
        "preset robust: signed features, laplace smoothing, all clients together below a WPSI of 0.1 above"
        in capsys.readouterr().out
    )
    assert clustpsi("diagnose", file, "--preset", "paper") == 0
    assert "preset paper: psi features, additive smoothing (--preset robust for the other)" in capsys.readouterr().out
    assert clustpsi("diagnose", file, "--psi-features", "psi", "--psi-smoothing", "clip", "--json") == 0
    assert json.loads(capsys.readouterr().out)["preset"] == "robust"
    model = diagnose([[90, 10], [10, 90]], features="psi").clustering
    assert (model.features, model.smoothing, model.min_wpsi) == ("psi", "laplace", 0.1)
    with pytest.raises(ClustPSIError, match="unknown preset 'rubust': did you mean 'robust'"):
        diagnose([[90, 10], [10, 90]], preset="rubust")


def test_planted_label_mixes_are_found_by_the_robust_preset() -> None:
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(10, 0.5), 6)
    group = np.arange(120) % 6
    counts = np.array([rng.multinomial(200, mixes[own]) for own in group])
    found = diagnose(counts).clustering
    assert found.n_clusters_ == 6
    assert all(len(set(found.labels_[group == own])) == 1 for own in range(6))


BAD = [
    ("", "is empty"),
    ("a,b\n", "no rows"),
    ("a,b\n1,2\n", "at least two clients"),
    ("a,b\n1,0\n4,0\n", "one class"),
    ("a,b\n1,-2\n3,4\n", "must be zero or more, but client 0 has -2"),
    ("a,b\n1,2.5\n3,4\n", "whole"),
    ("a,b\n1,\n3,4\n", "no count for client '0'"),
    ("a,b\n1,inf\n3,4\n", "finite"),
    ("a,b\n0,0\n3,4\n", "no samples"),
    ("a,b\n1,x\n3,y\n", "column 'b' is not numeric"),
    ("site,a,b\nx,1,2\nx,3,4\n", "client 'x' has more than one row"),
    ("a,a\n1,2\n3,4\n", "a"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_bad_counts_are_named(text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counts.csv").write_text(text)
    assert clustpsi("diagnose", str(tmp_path / "counts.csv")) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and message.count("\n") == 1
    assert sentence in message


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=r"absent\.csv does not exist"):
        read_counts(tmp_path / "absent.csv")
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    with pytest.raises(ClustPSIError, match="has no column 'sites': did you mean 'site'"):
        read_counts(tmp_path / "counts.csv", client="sites")
    with pytest.raises(ClustPSIError, match="needs --client too"):
        read_counts(tmp_path / "counts.csv", label="cat")
    with pytest.raises(ClustPSIError, match="--min-class is for a table with one row per sample"):
        read_counts(tmp_path / "counts.csv", min_class=2)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ClustPSIError, match=r"broken\.parquet"):
        read_counts(tmp_path / "broken.parquet")
    with pytest.raises(ClustPSIError, match="for data frames and files, not for arrays"):
        diagnose([[1, 2], [3, 4]], label="x")


@pytest.fixture
def samples() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"ward": rng.integers(0, 23, 3_000), "kind": rng.choice(list("abcde"), 3_000)})


def check(read: CountTable, samples: pd.DataFrame) -> None:
    table = pd.crosstab(samples["ward"], samples["kind"])
    assert read.clients == tuple(map(str, table.index)) and read.classes == tuple(table.columns)
    np.testing.assert_array_equal(read.counts, table.to_numpy())


READ_AS_CLIENTS = r"column '.*' has a different whole number in every row and is read as the clients' names"


def test_finding_7_a_first_column_of_numbers_that_names_clients_is_noticed(
    tmp_path: Path, samples: pd.DataFrame
) -> None:
    table = pd.crosstab(samples["ward"], samples["kind"])
    table.to_csv(tmp_path / "table.csv")
    for given in (tmp_path / "table.csv", table.reset_index()):
        with pytest.warns(ClustPSIWarning, match=READ_AS_CLIENTS) as told:
            read = read_counts(given)
        assert read.notes == tuple(str(each.message) for each in told) and "put another column first" in read.notes[0]
        check(read, samples)
    check(read_counts(tmp_path / "table.csv", client="ward"), samples)


def counted(first: str, numbers: list[int], others: str = "ab") -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({first: numbers} | {name: rng.integers(1, 90, len(numbers)) for name in others})


@pytest.mark.parametrize(
    "table",
    [
        counted("client", [9, 4]),
        counted("Sites", [9, 4]),
        counted("hospital_id", [9, 4]),
        counted("x", [0, 1, 2]),
        counted("x", [3, 1, 2]),
        counted("x", [3, 7, 20, 21, 50]),
        counted("x", [30, 7, 20], others="01"),
    ],
    ids=lambda table: f"{table.columns[0]}-{table.iloc[:, 0].tolist()}",
)
def test_finding_7_numbers_that_name_clients(table: pd.DataFrame) -> None:
    with pytest.warns(ClustPSIWarning, match=READ_AS_CLIENTS):
        read = read_counts(table)
    assert read.clients == tuple(map(str, table.iloc[:, 0])) and read.counts.shape[1] == 2


@pytest.mark.parametrize(
    "table",
    [
        counted("x", [90, 88, 10, 12]),
        counted("x", [7, 7, 20, 21, 50]),
        counted("x", [30, 7, 20]),
        counted("0", [30, 7, 20], others="12"),
        counted("x", [9, 10]),
    ],
    ids=lambda table: f"{table.columns[0]}-{table.iloc[:, 0].tolist()}",
)
def test_counts_of_a_first_class_stay_counts(table: pd.DataFrame) -> None:
    read = read_counts(table)
    assert read.counts.shape[1] == 3 and read.clients == tuple(map(str, range(len(table)))) and not read.notes


def test_finding_7_what_may_be_either_is_told_with_the_way_out() -> None:
    table = counted("x", [7, 20, 30])
    with pytest.warns(ClustPSIWarning, match="read as the counts of a class; if it names the clients, give --client x"):
        assert read_counts(table).counts.shape == (3, 3)
    assert read_counts(table, client="x").clients == ("7", "20", "30")


def test_finding_7_totals_are_omitted_and_told(tmp_path: Path, samples: pd.DataFrame) -> None:
    table = pd.crosstab(samples["ward"], samples["kind"], margins=True)
    table.to_csv(tmp_path / "table.csv")
    for given in (table, tmp_path / "table.csv"):
        with pytest.warns(ClustPSIWarning) as told:
            read = read_counts(given)
        check(read, samples)
        notes = [str(each.message) for each in told]
        assert len(notes) == 2 and "column 'All' is omitted: it is the sum of the others" in notes[0]
        assert "row 'All' is omitted" in notes[1]
    plain = pd.crosstab(samples["ward"], samples["kind"])
    with pytest.warns(ClustPSIWarning, match="column 'whatever' is omitted"):
        check(read_counts(plain.assign(whatever=plain.sum(axis=1))), samples)


def test_finding_7_a_total_does_not_halve_the_skew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("diagnose", write(COUNTS, tmp_path / "plain.csv"), "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    total = write(COUNTS.assign(total=COUNTS["cat"] + COUNTS["dog"]), tmp_path / "total.csv")
    assert clustpsi("diagnose", total, "--json") == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    note = f"{total}: column 'total' is omitted: it is the sum of the others"
    assert report.pop("notes") == [note] and shown.err == f"note: {note}\n"
    assert plain.pop("notes") == [] and report == plain


def test_a_sum_that_may_be_chance_is_told_and_kept() -> None:
    table = pd.DataFrame({"site": list("xyz"), "a": [1, 5, 7], "b": [2, 3, 1], "c": [3, 8, 8]})
    with pytest.warns(ClustPSIWarning, match=r"column 'c' is the sum of the others; .* leave it out with --drop"):
        assert read_counts(table).classes == ("a", "b", "c")
    assert read_counts(table, drop="c").classes == ("a", "b")


def test_a_saved_index_before_the_clients_names_goes() -> None:
    with pytest.warns(ClustPSIWarning, match="column 'Unnamed: 0' is omitted"):
        read = read_counts(pd.concat([pd.DataFrame({"Unnamed: 0": range(4)}), COUNTS], axis=1))
    assert read.clients == tuple("abcd") and read.classes == ("cat", "dog")


def test_finding_16_a_data_frame_keeps_its_names(tmp_path: Path, samples: pd.DataFrame) -> None:
    table = pd.crosstab("ward " + samples["ward"].astype(str), samples["kind"])
    report = diagnose(table)
    assert report.client_names == tuple(table.index) and report.class_names == tuple("abcde")
    assert diagnose(samples, label="kind", client="ward").class_names == tuple("abcde")
    assert diagnose(COUNTS).client_names == tuple("abcd")
    table.to_parquet(tmp_path / "table.parquet")
    assert diagnose(tmp_path / "table.parquet").client_names == tuple(table.index)
    several = pd.crosstab([samples["ward"] % 3, samples["ward"] % 2], samples["kind"])
    assert diagnose(several).client_names[:2] == ("0 0", "0 1")


def test_finding_37_one_client_twice_among_many_is_found_at_once() -> None:
    names = [f"site {i}" for i in range(100_000)]
    table = pd.DataFrame({"site": [*names, names[-1]], "a": 1, "b": 2})
    start = time.monotonic()
    with pytest.raises(ClustPSIError, match="client 'site 99999' has more than one row of counts"):
        read_counts(table)
    assert time.monotonic() - start < 10


def test_rows_and_classes_of_samples_are_read_as_in_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"site": list("xxyyzz"), "kind": ["a", "b", "a", None, "c", "a"]})
    path = write(frame, tmp_path / "t.csv")
    options = ["--label", "kind", "--client", "site", "--drop-unlabelled", "--min-class", "2", "--json"]
    assert clustpsi("diagnose", path, *options) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["num_samples"] == 5 and list(report["classes"]) == ["a", "other"]
    assert shown.err.splitlines() == [f"note: {note}" for note in report["notes"]]
    assert "1 of 6 rows have no label" in report["notes"][0] and "merged into 'other' (b, c)" in report["notes"][1]


def write(frame: pd.DataFrame, path: Path) -> str:
    frame.to_csv(path, index=False)
    return str(path)


def test_finding_26_more_clusters_than_the_sample_has_clients_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = pd.DataFrame(np.random.default_rng(0).integers(1, 1000, (2_500, 3)), columns=["a", "b", "c"])
    counts.to_csv(tmp_path / "counts.csv", index=False)
    assert clustpsi("diagnose", str(tmp_path / "counts.csv"), "--tau-clusters", "2100") == 2
    assert "found on a sample of 2000, which has no 2100 clusters: ask for at most 2000" in capsys.readouterr().err


def test_finding_47_the_search_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    counts = np.floor(rng.dirichlet(np.full(40, 5.0), 10).T * 2400).astype(int)
    pd.DataFrame(counts, columns=list("abcdefghij")).to_csv(tmp_path / "counts.csv", index=False)
    scores = []
    for search in ("best", "plain"):
        assert clustpsi("diagnose", str(tmp_path / "counts.csv"), "--psi-search", search, "--json") == 0
        scores.append(json.loads(capsys.readouterr().out)["silhouette"]["2"])
    assert scores[0] > scores[1] + 0.005


def test_parameters_that_the_clustering_does_not_have_or_allow_are_named() -> None:
    for wrong, message in (
        ({"feature": "psi"}, "unknown parameter of the clustering 'feature': did you mean 'features'"),
        ({"random_state": -1}, "random_state must be a whole number from 0"),
        ({"n_clusters": True}, "n_clusters must be 'auto' or a whole number"),
    ):
        with pytest.raises(ClustPSIError, match=message):
            diagnose([[9, 1], [1, 9], [5, 5]], **wrong)
