"""The tables of docs/results.md are what their commands print from the files in the repository; so are claims."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustpsi.recorded import recorded_runs

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "results"


def test_tables_are_what_their_commands_print() -> None:
    spec = importlib.util.spec_from_file_location("update", FOLDER / "update.py")
    assert spec is not None and spec.loader is not None
    update = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(update)
    page = update.PAGE.read_text()
    assert len(update.TABLE.findall(page)) == page.count("<!-- end -->") > 0
    assert update.updated(page) == page


@pytest.fixture(scope="module")
def acs_income() -> pd.DataFrame:
    runs = recorded_runs("acs_income")
    return runs[runs["num_clients"] == 100].set_index(["partitioner", "non_iid_param", "seed"]).sort_index()


def words(page: str) -> str:
    return re.sub(r"\s+", " ", (DOCS / page).read_text())


def test_finding_42_what_fedprox_gains_on_acs_income(acs_income: pd.DataFrame) -> None:
    accuracy = {name: runs["last_global_accuracy"] for name, runs in acs_income.groupby("agg_method")}
    gain = accuracy["fedprox"] - accuracy["fedavg"]
    cells = [("dirichlet", 0.3), ("dirichlet", 0.7), ("similarity", 0.0), ("similarity", 0.03)]
    assert all((gain[cell] > 0).all() and len(gain[cell]) == 5 for cell in cells)
    a, b, c, d = (f"{gain[cell].mean():.3f}" for cell in cells)
    claim = f"ahead of FedAvg by {a} at α = 0.3, {b} at α = 0.7, {c} at S = 0 and {d} at S = 0.03, for every seed"
    assert claim in words("methods.md")
    near_iid = [gain["dirichlet", 50.0], gain["similarity", 1.0]]
    assert np.abs(near_iid).max() < 0.001 and "Near IID, μ = 0.01 changes little." in words("methods.md")


def test_finding_43_fedcls_is_behind_fedavg_on_acs_income(acs_income: pd.DataFrame) -> None:
    means = acs_income.loc["dirichlet", 0.3].groupby("agg_method")["last_global_accuracy"].mean()
    claim = f"FedCLS reaches {means['fedcls']:.3f} there, FedAvg {means['fedavg']:.3f}, and the paper's FedCLS 0.72."
    assert claim in words("methods.md")


def test_finding_44_distances_from_the_papers(acs_income: pd.DataFrame) -> None:
    ours = acs_income[acs_income["agg_method"] == "clust_psi_pfl"]
    means = ours.groupby(["partitioner", "non_iid_param"])[["last_ad", "last_sdad"]].mean().round(3)
    ad, sdad = means["last_ad"], means["last_sdad"]
    assert (
        f"near IID AD is within 3 %, and SDAD at α = 50 is {sdad['dirichlet', 50]} (paper: 0.01). At S = 0 AD is "
        f"{ad['similarity', 0]} (paper: 0.01), at S = 0.03 SDAD is {sdad['similarity', 0.03]} (paper: 0.07). At "
        f"α = 0.3 AD is {ad['dirichlet', 0.3]} (paper: 0.17), at α = 0.7 it is {ad['dirichlet', 0.7]} (paper: 0.14)."
    ) in words("results.md")
    assert "move each weight by at most about 0.002 per round" in words("results.md")
