"""``clustpsi federation``: mistakes are one sentence and exit code 2, before anything is started."""

import builtins
import re
import socket
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clustpsi.flower.processes import environment
from clustpsi.flower.settings import Settings
from clustpsi.runs.config import Config
from helpers import clustpsi

SECURE = ("--root-certificates", "ca.crt")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.crt", "node.key", "node.pub"):
        (tmp_path / name).write_text("-----")
    (tmp_path / "site-1.csv").write_text("x,label\n1,a\n2,b\n")
    return tmp_path


MISTAKES = {
    "--agg-method centralized": "which no federation can do",
    "--nodes 2 --agg-method nosuch": "unknown method 'nosuch'",
    "--resume --fresh": "give one of them",
    "--data site.csv --label label": "needs {n} where the node's number stands",
    "--data site-{n}.csv --label label --nodes 3": "there is no file site-2.csv for node 2",
    "--data site-{n}.csv": "needs the name of the label column",
    "--dataset site-1.csv": "give files of nodes with --data",
    "--client my.py": "--client needs files of the nodes",
    "--deadline 0": "--deadline must be a number of seconds above 0",
    "--min-answers 2": "--min-answers must be a number above 0 and at most 1",
    "--dp-epsilon 0": "--dp-epsilon must be a number above 0",
    "--min-count 1": "--min-count must be a number at least 2",
    "--classes a": "--classes must name at least two classes",
    "--dataset acs_income --partitioner natural --nodes 2 --data-dir nowhere": "acs_income",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_in_up_are_sentences(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("federation", "up", *arguments.split()) == 2
    said = capsys.readouterr().err
    assert MISTAKES[arguments] in said
    assert said.startswith("error: ") and said.count("\n") == 1


def test_a_port_in_use_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert clustpsi("federation", "up", "--quiet", "--port", port) == 2
        assert f"port {port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
        assert clustpsi("federation", "superlink", "--insecure", "--port", port) == 2
        assert f"port {port} of 127.0.0.1 cannot be used" in capsys.readouterr().err


OTHERS = {
    "superlink": "needs --certificate, --key and --ca",
    "superlink --certificate no.crt --key no.key --ca ca.crt": "there is no certificate no.crt",
    "superlink --certificate ca.crt --key no.key --ca ca.crt": "there is no key no.key",
    "superlink --insecure --host 0.0.0.0": "would listen to everybody on 0.0.0.0",
    "node --superlink 127.0.0.1:8000 --data site-1.csv": "give --root-certificates",
    "node --superlink 127.0.0.1:8000 --data site-1.csv --insecure --root-certificates ca.crt": "or --insecure",
    "node --superlink 127.0.0.1:8000 --insecure": "a node has either a file (--data) or a part",
    "node --superlink 127.0.0.1:8000 --insecure --data no.csv": "there is no file no.csv",
    "node --superlink 127.0.0.1:8000 --insecure --partition-id 1": "needs --num-partitions",
    "node --superlink nowhere --insecure --data site-1.csv": "--superlink must read host:port",
    "node --superlink h:1 --data site-1.csv --root-certificates no.crt": "there is no certificate no.crt",
    "node --superlink h:1 --data site-1.csv --root-certificates ca.crt --private-key no.key": "there is no key no.key",
    "node --superlink h:1 --data site-1.csv --insecure --private-key node.key": "a node's key needs TLS",
    "register no.pub --superlink h:1 --root-certificates ca.crt": "there is no public key no.pub",
    "submit --superlink h:1 --nodes 2": "give --root-certificates",
    "submit --superlink h:1 --nodes 2 --insecure --agg-method centralized": "which no federation can do",
    "app made --nodes 2 --client no.py": "no.py is no Python file",
    "app .": "is not empty: name a new folder",
}


@pytest.mark.parametrize("arguments", OTHERS)
def test_mistakes_in_other_commands_are_sentences(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("federation", *arguments.split()) == 2
    said = capsys.readouterr().err
    assert OTHERS[arguments] in said
    assert said.startswith("error: ")


@pytest.mark.parametrize(
    "arguments", ["up", "superlink --insecure", "app made", "register ca.crt --superlink h:1 --insecure"]
)
def test_without_flower_there_is_one_sentence(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == "flwr" or name.startswith("flwr."):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("clustpsi.flower.import_module", lambda name: without(name))
    assert clustpsi("federation", *arguments.split()) == 2
    assert (
        "a federation needs Flower, which is not installed: pip install 'clustpsi[flower]'" in capsys.readouterr().err
    )


def test_the_app_has_the_settings_as_its_run_configuration(tmp_path: Path) -> None:
    import tomllib

    given = ("--nodes", "3", "--label", "y", "--comm-rounds", "7", "--lr", "0.5", "--agg-method", "fedprox:mu=0.2")
    assert clustpsi("federation", "app", "made", *given) == 0
    app = tomllib.loads((tmp_path / "made" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["components"]["serverapp"] == "clustpsi.flower.server:app"
    settings = Settings.of(app["config"])
    assert (settings.nodes, settings.config.comm_rounds, settings.config.lr) == (3, 7, 0.5)
    assert settings.config.agg_method == "fedprox:mu=0.2" and settings.config.partitioner == "natural"
    assert all("_" not in key for key in app["config"])


def test_run_configurations_say_what_is_wrong() -> None:
    from clustpsi.errors import ClustPSIError

    for config, said in (
        ({"num-rounds": 3}, "unknown run-config key 'num-rounds'"),
        ({"comm-rounds": "many"}, "run-config key comm-rounds must be a whole number, not 'many'"),
        ({"resume": "perhaps"}, "run-config key resume must be true or false"),
    ):
        with pytest.raises(ClustPSIError, match=said):
            Settings.of(config)
    config = Config(num_clients=3, non_iid_param=0.25, dp_epsilon=1.5)
    assert Settings.of(Settings(config).as_run_config()).config == config


def test_flowers_variables_that_the_user_has_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment()["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment()["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_HOME", "/mine")
    assert environment(Path("/other"))["FLWR_TELEMETRY_ENABLED"] == "1"
    assert environment(Path("/other"))["FLWR_HOME"] == "/mine"


@pytest.mark.parametrize("more, are_kept", [((), False), (("--dp-epsilon", "2"), True)])
@pytest.mark.parametrize("own", [False, True])
def test_nodes_of_up_keep_their_secrets_beside_the_runs(
    more: tuple[str, ...], are_kept: bool, own: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a run with noise could not go on: all nodes are started again."""
    from clustpsi.errors import ClustPSIError
    from clustpsi.flower import deployment

    given: list[Any] = []

    class Nowhere:
        start_node = start_plain_node = lambda self, name, node: given.append(node)

        def run(self, *_: Any) -> Path:
            raise ClustPSIError("no further")

    monkeypatch.setattr(deployment.Federation, "up", lambda port: nullcontext(Nowhere()))
    (here / "site-2.csv").write_text("x,label\n1,a\n2,b\n")
    more = (*more, "--client", "my.py") if own else more
    data = ("--data", "site-{n}.csv", "--label", "label", "--output", "out", "--quiet")
    assert clustpsi("federation", "up", *data, *more) == 2
    secrets = [here / "out" / ".federations" / f"node-{n}.secret" for n in range(2)]
    for arguments, secret in zip(given, secrets, strict=True):
        found = arguments.get("secret") if own else dict(pairwise(arguments)).get("--secret")
        assert found == (str(secret) if are_kept else None)


@pytest.mark.parametrize("command", ["up", "submit", "app"])
def test_no_command_that_reads_no_file_offers_to(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert clustpsi("federation", command, "--help") == 0
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert "Named data set that nodes without files share" in told and "a file: a table" not in told
