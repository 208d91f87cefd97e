"""Settings of the explorer: from controls and addresses and back; nothing but known data is ever named."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustpsi.errors import ClustPSIError
from clustpsi.explorer import results
from clustpsi.explorer.settings import Settings
from clustpsi.report.tables import method_title

LEVELS = {
    "dirichlet": st.floats(0.01, 100).map(lambda alpha: float(f"{alpha:.3g}")),
    "similarity": st.floats(0, 1).map(lambda s: float(f"{s:.3g}")),
    "iid": st.none(),
}


@st.composite
def some_settings(draw: st.DrawFn) -> Settings:
    how = draw(st.sampled_from(list(LEVELS)))
    return Settings(
        dataset=draw(st.sampled_from(["digits", "fmnist"])),
        partitioner=how,
        non_iid_param=draw(LEVELS[how]),
        num_clients=draw(st.integers(2, 2000)),
        seed=draw(st.integers(0, 2**31 - 1)),
        preset=draw(st.sampled_from(["robust", "paper"])),
        psi_smoothing=draw(st.sampled_from([None, "additive", "clip", "laplace"])),
        psi_features=draw(st.sampled_from([None, "psi", "signed"])),
        tau_clusters=draw(st.none() | st.integers(1, 50)),
        agg_method=draw(st.sampled_from(["", "fedavg", "fedavg,clust_psi_pfl", "poc:d_poc=3,local"])),
        comm_rounds=draw(st.integers(1, 1000)),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first one loads the methods
@given(some_settings())
def test_an_address_brings_the_same_settings_back(chosen: Settings) -> None:
    again = Settings.from_address(f"?{chosen.as_address()}&page=paper")
    assert again == chosen or (chosen.agg_method == "" and again == chosen.plain("agg_method"))


def test_a_table_has_its_own_clients() -> None:
    table = "table:" + "0" * 16
    counts = Settings.of({"dataset": table, "num_clients": 10, "non_iid_param": 0.5})
    assert counts.is_counts and counts.partitioner == "natural"
    assert counts.num_clients is counts.non_iid_param is None
    rows = Settings.of({"dataset": table, "label": "y", "client": "site", "partitioner": "dirichlet"})
    assert rows.partitioner == "natural" and not rows.is_counts
    spread = Settings.of({"dataset": table, "label": "y", "num_clients": 10})
    assert (spread.partitioner, spread.num_clients, spread.non_iid_param) == ("dirichlet", 10, 0.1)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("dataset=/etc/passwd", "unknown dataset"),
        ("dataset=../birds.csv", "unknown dataset"),
        ("dataset=table:..%2F..%2Fetc", "unknown dataset"),
        ("label=y", "columns of a table"),
        ("num_clients=1", "from 2 to 2,000 clients"),
        ("num_clients=5000000", "from 2 to 2,000 clients"),
        ("num_clients=4.5", "whole number"),
        ("num_clients=nan", "whole number"),
        ("seed=-1", "--seed"),
        ("partitioner=odd", "--partitioner"),
        ("non_iid_param=0", "alpha"),
        ("partitioner=similarity&non_iid_param=2", "from 0 to 1"),
        ("agg_method=fedavgg", "unknown method"),
        ("psi_features=odd", "psi_features"),
        ("preset=odd", "unknown preset"),
        ("tau_clusters=0", "tau_clusters"),
        ("comm_rounds=9999999999999999999999", "comm rounds must be at most 2,147,483,647"),
        ("seed=4294967296", "seed must be at most 2,147,483,647, not '4294967296'"),
        ("seed=-1e300", "seed must be at least 0"),
        ("seed=inf", "whole number"),
        ("x=" + "y" * 5000, "longer than"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(query: str, sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        Settings.from_address(query)


def test_the_clusters_on_the_screen_are_those_that_are_trained() -> None:
    settings = Settings(agg_method="local,clust_psi_pfl", preset="paper", psi_features="signed", tau_clusters=3)
    assert settings.methods == ("local", "clust_psi_pfl:tau_clusters=3:psi_features=signed")
    own = Settings(agg_method="clust_psi_pfl:psi_features=signed", preset="paper", psi_smoothing="clip")
    assert own.methods == ("clust_psi_pfl:psi_features=signed:psi_smoothing=clip",)
    robust = Settings(agg_method="fedavg,clust_psi_pfl")
    assert robust.preset == "robust" and list(map(method_title, robust.methods)) == ["FedAvg", "Clust-PSI-PFL (robust)"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("foo", None, None, None, None), "the paper has no data set 'foo'"),
        ((None, None, None, "zz", None), "there is no table of 'zz': choose global_accuracy or ad"),
        (("acs_income", "7", None, None, None), "there are no runs with 7 clients"),
        (("acs_income", "100", "α=9", None, None), "there are no runs at α=9: choose one of"),
        (("acs_income", None, None, None, ["magic"]), "there are no runs of magic"),
    ],
)
def test_what_the_paper_does_not_have_is_one_sentence(asked: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        results.check(*asked)


def test_what_the_paper_has_is_no_error() -> None:
    results.check(None, None, None, None, None)
    (most, *_) = results.client_numbers("serengeti")
    level = next(iter(results.levels("serengeti", most)))
    results.check("serengeti", str(most), level, "ad", ["fedavg", "magic"])
