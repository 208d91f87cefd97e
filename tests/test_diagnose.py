"""Diagnosing a federation from counts or from a labelled table."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi import ClustPSIError, diagnose
from clustpsi.diagnosis import read_counts
from test_cli import clustpsi

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
        assert clustpsi("diagnose", str(tmp_path / arguments[0]), *arguments[1:], "--json") == 0
        reports.append(json.loads(capsys.readouterr().out))
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
    report = diagnose(np.tile([50, 30, 20], (4, 1)))
    assert report.measures["wpsi"] == pytest.approx(0)
    assert report.clients()["shift"].tolist() == ["none"] * 4
    assert report.clustering.n_clusters_ == 1
    assert report.class_shares.tolist() == [0, 0, 0]


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
    with pytest.raises(ClustPSIError, match="there is no file"):
        read_counts(tmp_path / "absent.csv")
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    with pytest.raises(ClustPSIError, match=r"unknown column of .* 'sites': did you mean 'site'"):
        read_counts(tmp_path / "counts.csv", client="sites")
    with pytest.raises(ClustPSIError, match="needs --client too"):
        read_counts(tmp_path / "counts.csv", label="cat")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ClustPSIError, match=r"broken\.parquet"):
        read_counts(tmp_path / "broken.parquet")


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
