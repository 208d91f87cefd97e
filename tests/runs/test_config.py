"""The settings of a run: what they say together, and which runs are the same."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.grid import grid, read_grids
from clustpsi.runs.config import Config
from helpers import clustpsi

NATURAL = {"dataset": "birds.csv", "label": "species", "client": "site"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"partitioner": "iid"}, "--client site .* and --partitioner iid makes others: give one of them"),
        ({"partitioner": "iid", "num_clients": 7}, "--partitioner iid makes others"),
        ({"partitioner": "dirichlet"}, "--partitioner dirichlet makes others"),
        ({"num_clients": 7}, "--num-clients 7 contradicts natural clients"),
        ({"num_clients": 20}, "--num-clients 20 contradicts natural clients"),
        ({"non_iid_param": 0.3}, "--non-iid-param 0.3 contradicts natural clients"),
        ({"partitioner": "natural", "num_clients": 7}, "--num-clients 7 contradicts natural clients"),
    ],
)
def test_finding_6_what_contradicts_natural_clients_is_refused(
    settings: dict[str, object], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        Config(**NATURAL, **settings).checked()  # type: ignore[arg-type]
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in (NATURAL | settings).items()]
    assert clustpsi("run", *flags) == 2
    assert "contradicts natural" in (said := capsys.readouterr().err) or "makes others" in said


def test_a_partition_that_nobody_chose_is_the_default() -> None:
    plain, natural = Config().checked(), Config(**NATURAL).checked()  # type: ignore[arg-type]
    assert (plain.partitioner, plain.num_clients, plain.non_iid_param) == ("dirichlet", 20, 0.1)
    assert plain == Config(partitioner="dirichlet", num_clients=20, non_iid_param=0.1).checked() == plain.checked()
    assert (natural.partitioner, natural.num_clients, natural.non_iid_param) == ("natural", None, None)
    assert natural == Config(**NATURAL, partitioner="natural").checked() == natural.checked()  # type: ignore[arg-type]


def test_settings_of_reading_that_are_not_used_leave_a_run_as_it_was() -> None:
    plain = Config(dataset="acs_income", partitioner="dirichlet", non_iid_param=0.3, num_clients=100).checked()
    kept = {"format", "dataset", "label", "client", "text", "partitioner", "non_iid_param", "num_clients", "split"}
    kept |= {"validation", "model", "agg_method", "comm_rounds", "local_epochs", "fraction", "optimizer", "lr"}
    assert set(plain.as_dict()) == kept | {"batch_size", "eval_every", "seed"}
    used = [{"drop": "a"}, {"drop_unlabelled": True}, {"min_class": 5}, {"sep": ";"}, {"no_header": True}]
    runs = [plain, *(Config(**settings).checked() for settings in used)]  # type: ignore[arg-type]
    assert len({run.folder_name for run in runs}) == len(runs)
    assert all(Config.from_dict(run.as_dict()).as_dict() == run.as_dict() for run in runs)


def test_equal_readings_are_equal_runs() -> None:
    assert Config(drop="b, a", sep="tab").checked() == Config(drop="a,b,b", sep="\t").checked()
    with pytest.raises(ClustPSIError, match="--min-class must be a number at least 2"):
        Config(min_class=1)


def test_a_method_in_other_words_is_not_another_run() -> None:
    for words, same in (
        ("fedprox:mu=0.01", "fedprox"),
        ("clust_psi_pfl:min_wpsi=0.10:psi_features=signed", "clust_psi_pfl:psi_features=signed:min_wpsi=0.1"),
    ):
        assert Config(agg_method=words).checked() == Config(agg_method=same).checked()


def test_finding_33_folders_of_files_with_long_names_have_names_that_fit() -> None:
    run = Config(dataset="x" * 251 + ".csv", label="y", agg_method="fedavg").checked()
    assert len(run.folder_name) < 200
    assert run.folder_name != Config(dataset="x" * 250 + "y.csv", label="y", agg_method="fedavg").checked().folder_name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"comm_rounds": 2.5}, "--comm-rounds must be a whole number, not 2.5"),
        ({"comm_rounds": "3"}, "--comm-rounds must be a whole number, not '3'"),
        ({"comm_rounds": True}, "--comm-rounds must be a whole number, not True"),
        ({"comm_rounds": None}, "--comm-rounds must be a whole number, not None"),
        ({"local_epochs": 1.5}, "--local-epochs must be a whole number"),
        ({"batch_size": 16.5}, "--batch-size must be a whole number"),
        ({"num_clients": float("nan")}, "--num-clients must be a whole number, not nan"),
        ({"seed": [1]}, "--seed must be a whole number"),
        ({"eval_every": 1 + 1j}, "--eval-every must be a whole number"),
        ({"fraction": "a"}, "--fraction must be a number, not 'a'"),
        ({"lr": 10**400}, "--lr must be a number, not 1000"),
        ({"lr": True}, "--lr must be a number, not True"),
        ({"dp_epsilon": np.bool_(True)}, "--dp-epsilon must be a number"),
        ({"validation": 1}, "--validation must be true or false, not 1"),
        ({"agg_method": 3}, "--agg-method must be a text, not 3"),
        ({"text": ["a", "b"]}, "--text must be a text, not"),
    ],
)
def test_a_setting_of_another_type_is_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=f"^{re.escape(sentence)}"):
        Config(**settings)  # type: ignore[arg-type]


def test_numbers_of_any_type_are_the_same_numbers() -> None:
    numbers = {"comm_rounds": np.int64(3), "local_epochs": np.uint8(2), "batch_size": 16.0, "lr": np.float32(0.5)}
    config = Config(**numbers, fraction=1, dataset=Path("birds.csv"), label="species")  # type: ignore[arg-type]
    assert config == Config(
        comm_rounds=3, local_epochs=2, batch_size=16, lr=0.5, fraction=1.0, dataset="birds.csv", label="species"
    )
    assert [type(getattr(config, name)) for name in (*numbers, "fraction")] == [int, int, int, float, float]
    assert Config.from_dict(json.loads(json.dumps(config.checked().as_dict()))).digest == config.checked().digest


def test_a_level_that_iid_clients_do_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClustPSIError, match="--non-iid-param 7 contradicts --partitioner iid"):
        Config(partitioner="iid", non_iid_param=7).checked()
    assert clustpsi("run", "--partitioner", "iid", "--non-iid-param", "7") == 2
    assert "contradicts --partitioner iid" in capsys.readouterr().err
    with pytest.raises(ClustPSIError, match="contradicts --partitioner iid"):
        grid({"partitioner": "iid", "non_iid_param": 7})
    both = grid({"partitioner": "iid,dirichlet", "non_iid_param": "0.3", "agg_method": "fedavg,centralized"})
    assert {(run.agg_method, run.partitioner, run.non_iid_param) for run in both} == {
        ("fedavg", "iid", None),
        ("fedavg", "dirichlet", 0.3),
        ("centralized", "iid", None),
    }


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.toml")), ids=str)
def test_the_published_grids_are_grids(path: Path) -> None:
    assert all(run.checked() == run for values in read_grids(path) for run in grid(values))
