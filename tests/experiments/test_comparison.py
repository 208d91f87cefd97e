"""Compare methods from Python."""

from typing import Any

import numpy as np
import pytest

from clustpsi import compare, from_arrays
from clustpsi.errors import ClustPSIError
from helpers import clustpsi

ROWS = from_arrays(np.arange(80.0).reshape(40, 2) % 7, np.arange(40) % 2, np.arange(40) % 4)
QUICK: dict[str, Any] = {"comm_rounds": 1, "local_epochs": 1, "model": "logistic"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seeds": 0}, r"^seeds must be a list of one or more different whole numbers, .* not 0$"),
        ({"seeds": []}, "^seeds must be a list of one or more"),
        ({"seeds": "0,1"}, "^seeds must be a list of one or more"),
        ({"seeds": [0, 0]}, r"^seeds must be a list .* different .* not \[0, 0\]$"),
        ({"seeds": [1.5]}, "^every one of seeds must be a whole number, not 1.5$"),
        ({"seeds": [-1]}, "^seeds must be a number at least 0"),
        ({"methods": ["fedavg", "fedavg"]}, "^methods names fedavg more than once"),
        ({"methods": ["fedprox", "fedprox:mu=0.01"]}, "^methods names fedprox more than once"),
        ({"methods": "fedavg,fedavg"}, "^methods names fedavg more than once"),
        ({"methods": 3}, "^methods must be a list of texts, or one text with commas, not 3"),
        ({"methods": [3]}, "^methods must be a list of texts"),
        ({"methods": []}, "^methods is empty"),
        ({"foo": 2}, "^unknown setting 'foo'"),
        ({"agg_method": "fedavg"}, "^unknown setting 'agg_method': did you mean 'methods'?"),
        ({"seed": 3}, "^unknown setting 'seed': did you mean 'seeds'?"),
        ({"comm_rounds": 2.5}, "^comm_rounds must be a whole number, not 2.5"),
        ({"comm_rounds": "3"}, "^comm_rounds must be a whole number, not '3'"),
        ({"num_clients": 3.5}, "^num_clients must be a whole number"),
        ({"batch_size": "32"}, "^batch_size must be a whole number"),
        ({"lr": -1.0}, "^lr must be a number above 0"),
        ({"partitioner": "iid", "non_iid_param": 7}, "^non_iid_param 7 contradicts partitioner iid"),
    ],
)
def test_wrong_arguments_are_named_as_python_names_them(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=sentence):
        compare(ROWS, **{"methods": ["fedavg"], "seeds": [0], **QUICK, **given})


def test_a_text_names_methods_as_on_the_command_line() -> None:
    table = compare(ROWS, "fedavg, fedprox:mu=0.1", seeds=np.array([0]), **QUICK)
    assert table["agg_method"].tolist() == ["fedavg", "fedprox:mu=0.1"]
    with pytest.raises(ClustPSIError, match="unknown method 'fedavgg'"):
        compare(ROWS, "fedavgg", **QUICK)


def test_a_hyper_parameter_has_one_list_of_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("tune", "--grid", "batch-size=8", "--grid", "batch_size=16", "--dry-run") == 2
    assert "--grid gives batch_size twice: give all its values at once" in capsys.readouterr().err
