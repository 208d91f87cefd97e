"""The informativeness study: partitions on counts are those of rows, work is kept, and a planted answer is found."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustpsi import partition, skew
from clustpsi.errors import ClustPSIError, InfeasiblePartition
from clustpsi.experiments import study, study_axes, study_partitions
from helpers import clustpsi

SIZES = (700, 500, 300)
LABELS = np.repeat(np.arange(3), SIZES)
SMALL = study_partitions.StudySettings(
    {"a": SIZES, "b": (400, 400)}, num_clients=(5, 8), alphas=(10, 0.5), similarities=(1, 0), seeds=4
)


def assert_same_distribution(on_counts: list[np.ndarray], on_rows: list[np.ndarray]) -> None:
    """Means of several statistics differ by no more than chance allows (four standard errors)."""
    for statistic in (skew.wpsi, skew.hellinger, skew.earth_mover, lambda counts: counts.sum(axis=1).std()):
        first, second = (np.array([statistic(counts) for counts in draws]) for draws in (on_counts, on_rows))
        error = np.sqrt(first.var() / len(first) + second.var() / len(second))
        assert abs(first.mean() - second.mean()) <= 4 * error + 1e-9


@pytest.mark.parametrize("alpha", [0.15, 0.5, 20.0])
def test_dirichlet_on_counts_is_distributed_as_on_rows(alpha: float) -> None:
    on_counts = [study_partitions.dirichlet_counts(SIZES, 8, alpha, np.random.default_rng(i)) for i in range(300)]
    rows = [partition.dirichlet(LABELS, 8, alpha, seed) for seed in range(150)]
    assert_same_distribution(on_counts, [partition.label_counts(clients, LABELS, 3) for clients in rows])


@pytest.mark.parametrize("s", [0.05, 0.4, 1.0])
def test_similarity_on_counts_is_distributed_as_on_rows(s: float) -> None:
    on_counts = [study_partitions.similarity_counts(SIZES, 8, s, np.random.default_rng(i)) for i in range(300)]
    rows = [partition.similarity(LABELS, 8, s, seed) for seed in range(300)]
    assert_same_distribution(on_counts, [partition.label_counts(clients, LABELS, 3) for clients in rows])


@given(
    sizes=st.lists(st.integers(5, 60), min_size=1, max_size=5),
    num_clients=st.integers(2, 6),
    s=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_counts_have_the_sizes_of_a_partition_of_rows(sizes: list[int], num_clients: int, s: float) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    assume(len(labels) >= num_clients)
    try:
        clients = partition.similarity(labels, num_clients, s, seed=1)
    except InfeasiblePartition:
        with pytest.raises(InfeasiblePartition, match="too few"):
            study_partitions.similarity_counts(sizes, num_clients, s, np.random.default_rng(1))
        return
    counts = study_partitions.similarity_counts(sizes, num_clients, s, np.random.default_rng(1))
    assert (counts >= 0).all() and (counts.sum(axis=0) <= sizes).all()
    assert counts.sum(axis=1).tolist() == [len(rows) for rows in clients]
    if s == 0:
        assert counts.tolist() == partition.label_counts(clients, labels, len(sizes)).tolist()
    spread = study_partitions.dirichlet_counts(sizes, num_clients, 5.0, np.random.default_rng(1), min_samples=1)
    assert spread.sum(axis=0).tolist() == sizes and spread.sum(axis=1).min() >= 1


def test_partitions_that_cannot_be_are_refused() -> None:
    with pytest.raises(InfeasiblePartition, match="in 50 passes"):
        study_partitions.dirichlet_counts([1000, 1000], 90, 0.01, np.random.default_rng(0), max_passes=50)
    with pytest.raises(InfeasiblePartition, match="10 samples in 0 passes"):
        study_partitions.dirichlet_counts([10, 10], 5, 1.0, np.random.default_rng(0))
    with pytest.raises(InfeasiblePartition, match="too few"):
        study_partitions.similarity_counts([2, 1], 9, 0.5, np.random.default_rng(0))


def test_an_infeasible_cell_is_left_out_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = study_partitions.draw_counts

    def sometimes(dataset: str, *where: object) -> np.ndarray:
        if (dataset, *where[1:]) == ("a", "dirichlet", 8, 0.5, 2):
            raise InfeasiblePartition("not this one")
        return draw(dataset, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(study_partitions, "draw_counts", sometimes)
    found = study_partitions.draw_partitions(SMALL, tmp_path)
    assert len(found) == 2 * 2 * 4 * 4 - 4
    cells = found.groupby(["dataset", "protocol", "num_clients", "level"])["seed"].count()
    assert (cells == 4).all() and ("a", "dirichlet", 8, 0.5) not in cells.index


def test_what_is_drawn_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = study_partitions.draw_counts
    drawn: list[str] = []

    def until_b(dataset: str, *where: object) -> np.ndarray:
        if dataset == "b":
            raise KeyboardInterrupt
        return draw(dataset, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(study_partitions, "draw_counts", until_b)
    with pytest.raises(KeyboardInterrupt):
        study_partitions.draw_partitions(SMALL, tmp_path)
    monkeypatch.setattr(study_partitions, "draw_counts", lambda *where: drawn.append(where[0]) or draw(*where))
    resumed = study_partitions.draw_partitions(SMALL, tmp_path)
    assert set(drawn) == {"b"}
    pd.testing.assert_frame_equal(
        resumed, study_partitions.draw_partitions(SMALL, tmp_path / "other"), check_exact=True
    )
    drawn.clear()
    study_partitions.draw_partitions(SMALL, tmp_path)
    assert not drawn
    other = study_partitions.StudySettings({"a": SIZES}, num_clients=(5,), alphas=(1, 2), seeds=4)
    with pytest.raises(ClustPSIError, match="other settings"):
        study_partitions.draw_partitions(other, tmp_path)
    study_partitions.draw_partitions(other, tmp_path, fresh=True)
    assert set(drawn) == {"a"}


def planted() -> pd.DataFrame:
    """Partitions whose WPSI is the level itself, whose HD is a noisy copy, and whose other measures say nothing."""
    rng = np.random.default_rng(0)
    rows = []
    for protocol, levels in (("dirichlet", (0.1, 1.0, 10.0)), ("similarity", (0.0, 0.5, 1.0))):
        for dataset in ("a", "b", "c"):
            for level in levels:
                for seed in range(24):
                    where = {"dataset": dataset, "protocol": protocol, "num_clients": 5, "level": level, "seed": seed}
                    known = np.log10(level) if protocol == "dirichlet" else level
                    noise = rng.normal(size=3)
                    measures = {"wpsi": -known, "hellinger": -known + 0.5 * noise[0]}
                    rows.append(where | measures | {"jensen_shannon": noise[1], "earth_mover": noise[2]})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("held_out", ["seed", "dataset"])
def test_the_study_finds_a_planted_answer(held_out: str) -> None:
    found = study.analyse(planted(), models=("tree", "svm"), held_out=held_out)
    sums = found.importances.groupby(["protocol", "target", "model"])["permutation"].sum()
    np.testing.assert_allclose(sums, 1)
    for _, rows in found.ranking().groupby("target"):
        rows = rows.set_index("measure")
        assert rows.index[0] == "wpsi"
        assert rows.loc["wpsi", "permutation"] > 0.7
        assert rows.loc["wpsi", "alone"] > 0.98 > rows.loc["hellinger", "alone"] > 0.25
        assert rows.loc["earth_mover", "alone"] < 0.2
        assert rows.loc["wpsi", "loss_without"] > 0.05 > rows.loc["earth_mover", "loss_without"]
        assert rows.loc["wpsi", "spearman"] == pytest.approx(-1)
    own = found.importances.groupby("model")["own"]
    assert own.sum()["tree"] == pytest.approx(3) and own.count()["svm"] == 0


def test_models_are_judged_on_what_they_have_not_seen() -> None:
    part = planted()
    (train, test), *more = study._splits(part, "seed")
    assert not more and (train ^ test).all()
    assert set(part["seed"][test]) == set(range(18, 24))
    folds = list(study._splits(part, "dataset"))
    assert [set(part["dataset"][test]) for _, test in folds] == [{"a"}, {"b"}, {"c"}]
    assert all((train ^ test).all() for train, test in folds)
    with pytest.raises(ClustPSIError, match="way of holding out"):
        study.analyse(part, models=("tree",), held_out="nothing")


def test_without_lightgbm_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "find_spec", lambda name: None)
    folder = tmp_path / "study"
    small = ["--dataset", "digits", "--num-clients", "5", "--alphas", "10,0.5", "--similarities", "1,0", "--seeds", "8"]
    assert clustpsi("study", "metrics", *small, "--output", str(folder)) == 2
    assert "pip install 'clustpsi[study]'" in capsys.readouterr().err
    assert not folder.exists()
    assert clustpsi("study", "metrics", *small, "--output", str(folder), "--models", "tree", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["partitions"] == 32 and {row["model"] for row in report["scores"]} == {"tree"}
    tables = {path.name for path in folder.iterdir()}
    assert tables == {"settings.json", "partitions.csv", "scores.csv", "importances.csv", "associations.csv"}
    assert clustpsi("study", "metrics", *small, "--output", str(folder), "--models", "tree") == 0
    assert "wpsi" in capsys.readouterr().out


def test_lightgbm_takes_part() -> None:
    pytest.importorskip("lightgbm")
    found = study.analyse(planted(), models=("lightgbm",))
    assert (found.ranking().groupby("target")["measure"].first() == "wpsi").all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "3"], "at least 4 seeds"),
        (["--alphas", "1,0"], "above 0"),
        (["--alphas", "1"], "two or more"),
        (["--similarities", "0,2"], "from 0 to 1"),
        (["--num-clients", "ten"], "whole numbers"),
        (["--num-clients", "1"], "at least 2"),
        (["--models", "forest"], "unknown model 'forest'"),
        (["--dataset", "digit", "--models", "tree"], "did you mean 'digits'"),
        (["--measures", "wpsi,x"], "unknown measure 'x'"),
        (["--measures", "wpsi"], "at least two different measures"),
        (["--held-out", "x"], "unknown way of holding out 'x'"),
        (["--held-out", "dataset"], "needs at least two of them"),
    ],
)
def test_finding_35_bad_input_is_one_sentence_before_any_work(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(study_partitions, "draw_counts", lambda *_: pytest.fail("a partition was drawn"))
    given = ["--dataset", "digits", "--models", "tree", *options, "--output", str(tmp_path / "study")]
    assert clustpsi("study", "metrics", *given) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "study").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    given = ["--dataset", "digits", "--models", "tree", "--output", str(tmp_path / "file")]
    assert clustpsi("study", "metrics", *given) == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_papers_levels_are_among_the_eleven() -> None:
    assert {50, 0.7, 0.3, 0.2, 0.09, 0.05} < set(study_axes.STUDY_LEVELS["dirichlet"])
    assert {1, 0.03, 0} < set(study_axes.STUDY_LEVELS["similarity"])
    assert all(len(levels) == 11 for levels in study_axes.STUDY_LEVELS.values())
    assert sum(study_axes.CLASS_COUNTS["amazon_reviews"]) == 50_000
