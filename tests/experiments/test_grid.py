"""Grids: which runs they stand for."""

from pathlib import Path

import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.grid import grid, replaced, unique

SHORT = {"dataset": "digits", "comm_rounds": 2, "local_epochs": 1, "seeds_list": 1}
TINY = SHORT | {"num_clients": 4}


@pytest.mark.parametrize("natural", [{"client": "site"}, {"partitioner": "natural"}])
def test_centralized_learning_on_natural_clients_is_run_on_them(natural: dict[str, str], tmp_path: Path) -> None:
    """Who holds which rows decides which of them are test rows: there is no other partition of natural clients."""
    path = tmp_path / "birds.csv"
    path.write_text("wing,site,species\n1,a,gull\n2,b,owl\n")
    runs = grid(SHORT | {"dataset": str(path), "label": "species", "agg_method": "fedavg,centralized"} | natural)
    assert [(run.agg_method, run.partitioner, run.num_clients, run.non_iid_param) for run in runs] == [
        ("fedavg", "natural", None, None),
        ("centralized", "natural", None, None),
    ]
    assert runs[0].cell == runs[1].cell


def test_natural_clients_take_no_numbers_from_the_other_partitions_of_a_grid() -> None:
    runs = grid(TINY | {"dataset": "acs_income", "partitioner": "natural,dirichlet", "non_iid_param": 0.3})
    assert [(run.partitioner, run.num_clients, run.non_iid_param) for run in runs] == [
        ("natural", None, None),
        ("dirichlet", 4, 0.3),
    ]
    with pytest.raises(ClustPSIError, match="--num-clients 4 contradicts natural clients"):
        grid(TINY | {"dataset": "birds.csv", "label": "species", "client": "site"})


def test_centralized_learning_with_parameters_runs_once_too() -> None:
    runs = grid(TINY | {"dirichlet": [50, 0.3], "agg_method": "centralized:cl_epochs=3,fedavg"})
    assert [run.partitioner for run in runs if run.agg_method == "centralized:cl_epochs=3"] == ["iid"]
    assert [run.non_iid_param for run in runs if run.agg_method == "fedavg"] == [50, 0.3]


def test_centralized_learning_has_the_largest_number_of_clients() -> None:
    runs = grid(TINY | {"num_clients": [4, 9, 6], "agg_method": "centralized"})
    assert [run.num_clients for run in runs] == [9]


def test_data_sets_and_seeds_vary_slowest_and_methods_fastest() -> None:
    runs = grid(
        TINY
        | {
            "seeds_list": "1,2",
            "dirichlet": "50,1",
            "num_clients": "4,5",
            "lr": "0.1,0.2",
            "agg_method": "fedavg,local",
        }
    )
    order = [(run.seed, -(run.non_iid_param or 0), run.num_clients, run.lr, run.agg_method) for run in runs]
    assert order == sorted(order) and len(order) == 32


def test_values_are_numbers_of_the_settings_kind() -> None:
    (run,) = grid(TINY | {"num_clients": "5", "lr": "1", "validation": True, "fraction": 1})
    assert (run.num_clients, run.lr, run.validation, run.fraction) == (5, 1.0, True, 1.0)
    assert type(run.lr) is type(run.fraction) is float and type(run.num_clients) is int


def test_commas_separate_values_except_in_names_of_columns_and_as_a_separator() -> None:
    runs = grid(TINY | {"dataset": "a.csv, b.csv", "label": "y", "text": "title,body", "drop": "u,v", "sep": ","})
    assert [Path(run.dataset).name for run in runs] == ["a.csv", "b.csv"]
    assert {(run.text, run.drop, run.sep) for run in runs} == {("title,body", "u,v", ",")}


def test_partitions_are_replaced_as_a_whole_and_other_settings_one_by_one() -> None:
    old = {"dirichlet": [50], "similarity": 0, "lr": 1, "num-clients": 3}
    assert replaced(old, {"partitioner": "iid"}) == {"lr": 1, "num_clients": 3, "partitioner": "iid"}
    assert replaced(old, {"lr": 2}) == {"dirichlet": [50], "similarity": 0, "lr": 2, "num_clients": 3}


def test_a_run_of_two_grids_is_one_run() -> None:
    first, second = grid(TINY | {"dirichlet": "50,1"}), grid(TINY | {"dirichlet": "1,0.3"})
    assert [run.non_iid_param for run in unique([*first, *second])] == [50, 1, 0.3]
