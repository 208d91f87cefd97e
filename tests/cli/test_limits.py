"""Values that no run could use: one sentence, before any work, and nothing is left behind."""

import os
from pathlib import Path

import numpy as np
import pytest

from clustpsi import limits
from clustpsi.cli.options import chosen_methods
from clustpsi.errors import ClustPSIError
from clustpsi.limits import check_visits
from clustpsi.methods import MethodSpec, make_method, method_spec
from clustpsi.runs.config import LONGEST_NAME, Config
from helpers import clustpsi

QUICK = ["--num-clients", "5", "--comm-rounds", "1", "--local-epochs", "1", "--seeds-list", "0", "--workers", "1"]
QUICK += ["--agg-method", "fedavg"]

HUGE = str(2**64)
TOO_LARGE = [
    ["--batch-size", HUGE],
    ["--local-epochs", "1000000000"],
    ["--local-epochs", HUGE],
    ["--comm-rounds", HUGE],
    ["--num-clients", HUGE],
    ["--eval-every", HUGE],
    ["--seeds-list", HUGE],
    ["--seeds-list", str(2**31)],
    ["--agg-method", f"poc:d_poc={HUGE}"],
    ["--agg-method", "poc", "--d-poc", HUGE],
    ["--agg-method", "centralized:cl_epochs=2147483647"],
    ["--agg-method", "fedsoft", "--n-fedsoft", HUGE],
    ["--lr", "1e400"],
    ["--non-iid-param", "1e300"],
    ["--workers", str(2**62)],
    ["--dataset", "x" * 300 + ".csv", "--label", "y"],
    ["--output", "x" * 300],
    ["--client", ""],
    ["--label", ""],
    ["--dataset", ""],
    ["--word-vectors", ""],
    ["--dataset", "a\0b.csv"],
    ["--data-dir", "~nobody-at-all/x"],
    ["--dataset", "~nobody-at-all/x.csv", "--label", "y"],
]


@pytest.mark.parametrize("arguments", TOO_LARGE, ids=lambda arguments: " ".join(arguments)[:40].replace("\0", "NUL"))
def test_finding_33_what_no_run_could_use_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert clustpsi("run", *QUICK, "--quiet", *arguments) == 2
    shown = capsys.readouterr()
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert shown.out == "" and (len(errors) == 1 or "Invalid value for '--workers'" in shown.err)
    assert not [path for path in tmp_path.rglob("*") if path.name != "runs" and ".locks" not in path.parts]


@pytest.mark.parametrize("arguments", [["--seed", str(2**32)], ["--seed", HUGE], ["--tau-clusters", HUGE]])
def test_finding_33_diagnose_refuses_too(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counts.csv").write_text("a,b\n9,1\n1,9\n")
    assert clustpsi("diagnose", str(tmp_path / "counts.csv"), *arguments) == 2
    assert f"Invalid value for '{arguments[0]}'" in capsys.readouterr().err


GRIDS = [
    ("agg_method = 5", "agg_method must be a text or a list of texts, not 5"),
    ("agg_method = [1, 2]", "agg_method must be a text or a list of texts"),
    ("seeds_list = [18446744073709551616]", "--seed must be a number"),
    ("dataset = 3", "dataset must be texts, not 3"),
    ("num_clients = 99999999999999999999", "--num-clients must be a number"),
    ("num_clients = [[1]]", "num_clients must be whole numbers"),
    ("local_epochs = 1979-05-27", "local_epochs must be whole numbers"),
    ("grid = 1", "grid must be one or more [[grid]] tables"),
    ('dataset = "a\\u0000b.csv"', "a\\x00b.csv"),
    ("x" * 1_000_001, "more than 1,000,000 characters"),
]


@pytest.mark.parametrize(("text", "sentence"), GRIDS, ids=[sentence[:30] for _, sentence in GRIDS])
def test_finding_33_a_grid_of_the_wrong_kind_is_refused(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grid.toml").write_text(text)
    output = ["--output", str(tmp_path / "runs"), "--workers", "1"]
    assert clustpsi("sweep", "--grid", str(tmp_path / "grid.toml"), *output, "--dry-run") in (0, 2)
    shown = capsys.readouterr()
    assert sentence in shown.err + shown.out and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (PermissionError(13, "Permission denied", "runs/[/b]"), "cannot use runs/[/b]: Permission denied"),
        (MemoryError(), "there is not enough memory for this: take fewer clients, epochs or workers"),
    ],
)
def test_finding_33_what_the_system_refuses_is_a_sentence(
    problem: Exception,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise problem

    monkeypatch.setattr("clustpsi.runs.store.Store.folder", refuse)
    assert clustpsi("run", *QUICK, "--output", str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith(f"error: {sentence}")


def test_a_batch_never_takes_more_memory_than_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("run", *QUICK, "--batch-size", "1000000000", "--output", str(tmp_path), "--json") == 0
    assert '"batch_size": 1000000000' in capsys.readouterr().out


def test_finding_33_epochs_that_do_not_fit_leave_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 100_000_000)
    assert clustpsi("run", *QUICK, "--local-epochs", "1000000", "--output", str(tmp_path)) == 2
    assert "1,000,000 epochs over the" in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.glob("digits*"))


def test_orders_of_visits_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 8_000_000)
    check_visits(1_000, 1_000, "the largest client")
    with pytest.raises(ClustPSIError, match="1,001 epochs over the 1,000 training rows of the largest client"):
        check_visits(1_000, 1_001, "the largest client")
    with pytest.raises(ClustPSIError, match=r"\(0 GB\)"):
        check_visits(1_000, 501, "the largest client", at_once=2)
    monkeypatch.setattr(limits, "memory", lambda: None)
    check_visits(2**31 - 1, 1, "all clients together")
    with pytest.raises(ClustPSIError, match="of all clients together"):
        check_visits(2**30, 2, "all clients together")


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="only Linux says what is to spare")
def test_memory_that_others_use_is_not_to_spare() -> None:
    to_spare = limits.memory()
    assert to_spare is not None and 0 < to_spare < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_finding_33_names_of_folders_stay_short() -> None:
    long = Config(dataset="y" * 240 + ".csv", agg_method="clust_psi_pfl:" + ":".join(f"a{i}=1" for i in range(60)))
    assert len(long.folder_name.encode()) == LONGEST_NAME == 200
    assert long.folder_name != Config(dataset="y" * 241 + ".csv", agg_method=long.agg_method).folder_name
    usual = Config(seed=3, agg_method="clust_psi_pfl:inner=fedprox:mu=0.1").checked().folder_name
    assert usual.startswith("digits-dirichlet0.1-k20-clust_psi_pfl_inner=fedprox_mu=0.1-seed3-")


# ------------------------------------------------------------------------------------------ methods as they are written


@pytest.mark.parametrize("spec", ["poc:d-poc=4", "poc:d_poc=4", " poc : d-poc = 4 "])
@pytest.mark.parametrize("flags", [{"d_poc": 6}, {}])
def test_finding_5_what_a_method_says_itself_counts(spec: str, flags: dict[str, int]) -> None:
    (chosen,) = chosen_methods(spec, flags)
    assert make_method(chosen).d_poc == 4  # type: ignore[attr-defined]


def test_finding_5_flags_fill_what_a_method_does_not_say() -> None:
    assert chosen_methods("poc:poc-rule=all_d,poc", {"d_poc": 6, "poc_rule": "scale_d"}) == [
        "poc:poc_rule=all_d:d_poc=6",
        "poc:d_poc=6:poc_rule=scale_d",
    ]
    inner = {"inner": "fedprox", "mu": 0.5}
    assert chosen_methods("clust_psi_pfl:inner=fedavgm:momentum=0.9,clust_psi_pfl", inner) == [
        "clust_psi_pfl:inner=fedavgm:momentum=0.9",
        "clust_psi_pfl:inner=fedprox:mu=0.5",
    ]
    assert chosen_methods("clust_psi_pfl", {"inner": "fedprox:mu=0.25"}) == ["clust_psi_pfl:inner=fedprox:mu=0.25"]
    with pytest.raises(ClustPSIError, match="fedprox has no parameter 'nu'; it has average_over, mu"):
        chosen_methods("clust_psi_pfl", {"inner": "fedprox:nu=1"})
    with pytest.raises(ClustPSIError, match=r"'poc:d_poc=4:d-poc=5' gives d_poc twice"):
        chosen_methods("poc:d_poc=4:d-poc=5", {})


def test_a_specification_is_what_it_says() -> None:
    spec = MethodSpec.parse("clust_psi_pfl: inner = fedprox :mu=0.1")
    assert (spec.name, spec.values) == ("clust_psi_pfl", {"inner": "fedprox", "mu": "0.1"})
    assert str(spec) == method_spec(spec.build()) == "clust_psi_pfl:inner=fedprox:mu=0.1"
    assert MethodSpec.of(spec.build()) == spec
    assert "mu" in spec.parameters and "mu" not in MethodSpec("clust_psi_pfl").parameters
    assert np.isclose(spec.build().inner.mu, 0.1)  # type: ignore[attr-defined]
