"""Diagnosing a federation from counts or from a labelled table."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi import ClustPSIError, diagnose, from_table
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
    ("a,b\n1,-2\n3,4\n", "counts.csv: label counts must be zero or more, but client '0' has -2 samples of class 'b'"),
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


# ----------------------------------------------------------------------------------- what counts and names look like


def counts_of(text: str, tmp_path: Path, **options: str) -> CountTable:
    (tmp_path / "c.csv").write_text(text)
    return read_counts(tmp_path / "c.csv", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "names", "is_told"),
    [
        (["1.0", "2.0", "3.0"], ("1", "2", "3"), True),
        (["7", "9", "4"], ("7", "9", "4"), True),
        (["007", "7", "012"], ("007", "7", "012"), False),
        (["NA", "None", "n/a"], ("NA", "None", "n/a"), False),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", ["site", "Client_ID"])
def test_clients_are_named_by_floats_and_codes_too(
    column: list[str], names: tuple[str, ...], is_told: bool, is_first: bool, name: str, tmp_path: Path
) -> None:
    others = ["a,b", "10,20", "30,5", "9,7"]
    pairs = zip([name, *column], others, strict=True)
    text = "\n".join(f"{own},{other}" if is_first else f"{other},{own}" for own, other in pairs)
    if is_told:
        with pytest.warns(ClustPSIWarning, match=f"column '{name}' has a different .*give it another name"):
            read = counts_of(text, tmp_path)
    else:
        read = counts_of(text, tmp_path)
    assert read.clients == names and read.classes == ("a", "b") and read.counts.tolist() == [[10, 20], [30, 5], [9, 7]]


def test_beside_named_clients_a_class_called_no_is_a_class_and_a_saved_index_goes(tmp_path: Path) -> None:
    with pytest.warns(ClustPSIWarning, match="column 'site' has a different"):
        assert counts_of("no,yes,site\n5,6,9\n4,7,3\n8,2,1\n", tmp_path).classes == ("no", "yes")
    with pytest.warns(ClustPSIWarning, match="column 'Unnamed: 0' is omitted"):
        assert counts_of(",a,b,site\n4,6,9,n\n7,7,3,s\n", tmp_path).classes == ("a", "b")


@pytest.mark.parametrize("names", [["2020-01-01", "2020-02-01"], ["1-2", "1-3"], ["10.0.0.1", "10.0.0.2"]])
def test_names_may_look_a_little_like_numbers(names: list[str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": names, "a": [1, 3], "b": [1, 2]})
    for read in (frame, write(frame, tmp_path / "c.csv")):
        assert read_counts(read).clients == tuple(names)
    if names[0] == "2020-01-01":
        assert read_counts(frame.assign(x=pd.to_datetime(frame["x"]))).counts.shape == (2, 2)


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x"])
def test_lists_and_objects_are_no_counts_and_no_names(value: object) -> None:
    with pytest.raises(ClustPSIError, match="column 'a' is not numeric"):
        read_counts(pd.DataFrame({"site": ["x", "y"], "a": [value, value], "b": [1, 2]}))
    with pytest.raises(ClustPSIError, match=r"column 'x' holds|client .* has more than one row"):
        read_counts(pd.DataFrame({"x": [value, value], "a": [3, 4], "b": [1, 2]}))


def test_true_and_false_name_clients(tmp_path: Path) -> None:
    assert counts_of("urban,a,b\ntrue,1,2\nfalse,4,3\n", tmp_path).clients == ("True", "False")


@pytest.mark.parametrize("text", ["site,a,b\nA,1,2\n,4,3\n", "site,a,b\n1,1,2\n,4,3\n"])
def test_a_client_without_a_name_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="column 'site' is empty in row 2: every row needs one"):
        counts_of(text, tmp_path)


def test_the_index_of_a_filtered_frame_is_no_name_beside_a_column_of_clients() -> None:
    frame = pd.DataFrame({"site": [11, 12, 13, 14], "x": [1, 2, 3, 4], "y": [5, 6, 4, 3]}).query("x != 2")
    with pytest.warns(ClustPSIWarning, match=READ_AS_CLIENTS):
        report = diagnose(frame)
    assert report.client_names == ("11", "13", "14") and report.class_names == ("x", "y")
    assert diagnose(frame.drop(columns="site")).client_names == ("0", "2", "3")
    assert diagnose(frame.set_index("site")).client_names == ("11", "13", "14")
    assert diagnose(frame.assign(site=["n", "s", "e"])).client_names == ("n", "s", "e")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("site,a,b\nA,50%,50%\nB,30%,70%\n", "column 'a' has '50%' for client 'A', but counts are numbers of samples"),
        ("site,a,b\nA,5,5\nB,7,$70\n", r"column 'b' has '\$70' for client 'B', but counts are numbers of samples"),
        ("site,a,b\nA,5,1\nB,3.5,2\n", r"c\.csv: .* whole numbers, but client 'B' has 3.5 samples of class 'a'"),
        ("site,a,b\nA,5,1\nB,0,0\n", r"c\.csv: client 'B' has no samples"),
        ("site,a,b\nA,NA,1\nB,0,3\n", "column 'a' has no count for client 'A'; write 0 for none"),
    ],
)
def test_what_is_no_count_is_named_by_client_and_class(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        counts_of(text, tmp_path)


def test_names_of_arrays_are_in_messages_too() -> None:
    with pytest.raises(ClustPSIError, match=r"but client 'oslo' has 0\.5 samples of class 'cat'"):
        diagnose([[1, 2], [0.5, 2]], ["rome", "oslo"], ["cat", "dog"])


def test_counts_with_points_before_thousands(tmp_path: Path) -> None:
    with pytest.warns(ClustPSIWarning, match="column 'a': '1.234' is read as 1234, because counts are whole numbers"):
        read = counts_of("site;a;b\nA;1.234;5\nB;12;4\n", tmp_path)
    assert read.counts.tolist() == [[1234, 5], [12, 4]] and read.clients == ("A", "B")
    quoted = counts_of('site,a,b\nA,"1,234",05\nB,12,4\n', tmp_path)
    np.testing.assert_array_equal(quoted.counts, read.counts)


@pytest.mark.parametrize("name", ["n", "total"])
def test_of_two_classes_none_is_a_total(name: str, tmp_path: Path) -> None:
    read = counts_of(f"site,{name},y\nA,5,5\nB,7,7\n", tmp_path)
    assert read.classes == (name, "y") and not read.notes


@pytest.mark.parametrize("name", ["Summe", "grand_total", "TOTAL:", "insgesamt"])
def test_totals_have_many_names(name: str, tmp_path: Path) -> None:
    with pytest.warns(ClustPSIWarning) as told:
        read = counts_of(f"site,a,b,{name}\nA,5,1,6\nB,7,2,9\n{name},12,3,15\n", tmp_path)
    assert read.classes == ("a", "b") and read.clients == ("A", "B") and len(told) == 2


def test_a_total_may_have_a_column_beside_it(tmp_path: Path) -> None:
    with pytest.warns(ClustPSIWarning, match="column 'total' is omitted: it is the sum of the columns before it"):
        assert counts_of("site,a,b,total,area\nA,5,1,6,90\nB,7,2,9,8\n", tmp_path).classes == ("a", "b", "area")
    assert counts_of("site,a,b,total,area\nA,5,1,6,90\nB,7,2,8,8\n", tmp_path).classes[2] == "total"


def test_classes_that_were_floats_have_no_decimals(tmp_path: Path) -> None:
    table = pd.crosstab(pd.Series(list("xxyy"), name="site"), pd.Series([0.0, 1.0, 1.0, 0.0]))
    assert diagnose(table).class_names == ("0", "1")
    table.to_csv(tmp_path / "c.csv")
    assert read_counts(tmp_path / "c.csv").classes == ("0", "1")


def test_measured_numbers_are_no_labels_in_diagnose_as_in_run(tmp_path: Path) -> None:
    rows = 900
    frame = pd.DataFrame({"site": np.arange(rows) % 3, "x": np.arange(rows) % 7, "y": np.arange(rows) / 7})
    said = []
    for read in (read_counts, from_table):
        for size in (rows, 60):
            with pytest.raises(ClustPSIError) as caught:
                read(frame[:size], label="y", client="site")  # type: ignore[operator]
            said.append(str(caught.value))
    assert said[:2] == said[2:] and "has 900 different values in 900 rows: a label has classes" in said[0]
    many = pd.DataFrame({"site": np.arange(6_000) % 3, "y": np.arange(6_000) // 4})
    with pytest.raises(ClustPSIError, match="has 1,500 different values: a label has at most 1,000 classes"):
        read_counts(many, "y", "site")
    alone = pd.DataFrame({"site": list("aabb"), "y": ["u", "v", "u", "w"]})
    assert read_counts(alone, "y", "site").classes == ("u", "v", "w")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"client_names": ["a"]}, "client_names has 1 name, and the counts have 2 rows"),
        ({"class_names": ["a", "b", "c"]}, "class_names has 3 names, and the counts have 2 columns"),
        ({"client_names": ["a", "a"]}, "client_names has 'a' more than once"),
    ],
)
def test_names_fit_the_counts(names: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        diagnose([[1, 2], [3, 4]], **names)  # type: ignore[arg-type]


def test_parameters_that_the_clustering_does_not_have_or_allow_are_named() -> None:
    for wrong, message in (
        ({"feature": "psi"}, "unknown parameter of the clustering 'feature': did you mean 'features'"),
        ({"random_state": -1}, "random_state must be a whole number from 0"),
        ({"n_clusters": True}, "n_clusters must be 'auto' or a whole number"),
    ):
        with pytest.raises(ClustPSIError, match=message):
            diagnose([[9, 1], [1, 9], [5, 5]], **wrong)
