"""The settings of a run: what they say together, and which runs are the same."""

import pytest

from clustpsi.errors import ClustPSIError
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
