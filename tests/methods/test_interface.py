"""From names and flags to methods: presets, bad input, methods of other packages."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from clustpsi import methods
from clustpsi.cli import main
from clustpsi.cli.options import chosen_methods, with_options
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.methods import MethodSpec, make_method, method_spec, method_types, parameters_of, recorded_method
from clustpsi.methods.clust_psi_pfl import ClustPSIPFL
from clustpsi.methods.prior_pfl import PriorPFL
from clustpsi.report.tables import method_title
from clustpsi.runs.config import Config

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method"


def test_all_methods_in_the_papers_order() -> None:
    assert list(method_types())[:15] == [
        *("centralized", "local", "fedavg", "fedprox", "fedavgm", "fedadagrad", "fedyogi", "fedadam"),
        *("poc", "haccs", "fedcls", "cfl", "fedsoft", "clust_psi_pfl", "prior_pfl"),
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fedprox", {"mu": 0.01}),
        ("fedavgm", {"momentum": 0.7, "server_lr": 1.0}),
        ("fedadagrad", {"eta": 0.3162, "tau_adaptivity": 0.1, "beta1": 0.0, "eta_l": 1.0, "v0": "zero"}),
        ("fedyogi", {"eta": 0.001, "tau_adaptivity": 0.01, "beta1": 0.9, "beta2": 0.99}),
        ("fedadam", {"eta": 0.001, "tau_adaptivity": 0.001, "beta1": 0.9, "beta2": 0.99, "bias_correction": "flower"}),
        ("poc", {"d_poc": 8, "poc_rule": "q_of_d"}),
        ("haccs", {"rho_haccs": 0.95, "haccs_loss": "participants", "dp_eps": None}),
        ("fedcls", {"tau_fedcls": 0.1}),
        ("cfl", {"cfl_preset": "paper", "gamma": 0.5, "linkage": "optimal"}),
        ("fedsoft", {"n_fedsoft": 5, "lambda_fedsoft": 0.1, "tau_est": 2, "sigma_fedsoft": 1e-4}),
        ("prior_pfl", {"prior_strength": None, "momentum": 0.7, "hold_out": 0.05, "average_over": "movers"}),
    ],
)
def test_defaults_are_the_papers_values(name: str, values: dict[str, Any]) -> None:
    method = make_method(name)
    assert {key: getattr(method, key) for key in values} == values


def test_a_parameters_name_means_one_thing() -> None:
    """Methods that share a parameter's name share its type and meaning, except for the default."""
    meaning: dict[str, tuple[type, str]] = {}
    for kind in method_types().values():
        for key, plain in parameters_of(kind).items():
            help = kind.__dataclass_fields__[key].metadata["help"]
            assert meaning.setdefault(key, (plain, help)) == (plain, help)


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("poc:d-poc=8:poc_rule=all_d", "poc:poc_rule=all_d"),
        ("cfl:cfl_preset=relative:eps1=0.3", "cfl:cfl_preset=relative:eps1=0.3"),
        ("fedadam:bias_correction=none", "fedadam:bias_correction=none"),
        ("clust_psi_pfl:inner=fedavgm:momentum=0.5", "clust_psi_pfl:inner=fedavgm:momentum=0.5"),
        ("clust_psi_pfl:inner=fedprox:mu=0.01", "clust_psi_pfl:inner=fedprox"),
        ("fedyogi:server-opt-on-buffers=TRUE", "fedyogi:server_opt_on_buffers=true"),
    ],
)
def test_specs_have_a_canonical_form(spec: str, canonical: str) -> None:
    assert method_spec(make_method(spec)) == canonical
    assert make_method(canonical) == make_method(spec)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("fedprox:mu=-1", "fedprox: mu must be a number at least 0, not -1.0"),
        ("fedprox:mu=nan", "fedprox: mu must be a number at least 0, not nan"),
        ("fedprox:mu=inf", "fedprox: mu must be a number at least 0, not inf"),
        ("fedprox:mu=much", "fedprox: mu must be a number, not 'much'"),
        ("fedavg:mu=0.1", "fedavg has no parameter 'mu'"),
        ("fedprox:rho=0.1", "fedprox has no parameter 'rho'; it has average_over, mu"),
        ("poc:d_poc=0", "poc: d_poc must be a number at least 1, not 0"),
        ("poc:d_poc=2.5", "poc: d_poc must be a whole number, not '2.5'"),
        ("poc:poc_rule=best", "poc: poc_rule must be one of q_of_d, scale_d, all_d, not 'best'"),
        ("haccs:rho_haccs=1.5", "haccs: rho_haccs must be a number at least 0 and at most 1, not 1.5"),
        ("haccs:dp_eps=0", "haccs: dp_eps must be a number above 0, not 0.0"),
        ("fedcls:tau_fedcls=-0.1", "fedcls: tau_fedcls must be a number at least 0 and at most 1, not -0.1"),
        ("fedadam:tau_adaptivity=0", "fedadam: tau_adaptivity must be a number above 0, not 0.0"),
        ("fedsoft:sigma_fedsoft=0", "fedsoft: sigma_fedsoft must be a number above 0 and at most 1, not 0.0"),
        ("fedadam:server_opt_on_buffers=1", "fedadam: server_opt_on_buffers must be true or false, not '1'"),
        ("clust_psi_pfl:inner=cfl", "unknown single-model method 'cfl'"),
        ("clust_psi_pfl:mu=0.1", "clust_psi_pfl with fedavg inside has no parameter 'mu'; it has tau_clusters, "),
        ("fedprocks", "unknown method 'fedprocks'"),
    ],
)
def test_bad_specs_are_one_clear_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(ClustPSIError) as error:
        make_method(spec)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "spec", ["cfl:gamma=1", "cfl:gamma=0", "fedcls:tau_fedcls=1", "fedsoft:sigma_fedsoft=1", "poc:d_poc=1"]
)
def test_bounds_themselves_are_allowed_unless_values_must_be_above(spec: str) -> None:
    assert method_spec(make_method(spec)).startswith(spec)


def test_flags_reach_the_methods_that_have_them() -> None:
    assert chosen_methods("fedprox,poc", {"mu": 0.1, "d_poc": 4}) == ["fedprox:mu=0.1", "poc:d_poc=4"]
    assert chosen_methods("clust_psi_pfl", {"inner": "fedprox", "mu": 0.1}) == ["clust_psi_pfl:inner=fedprox:mu=0.1"]
    assert len(chosen_methods("all", {})) == len(method_types())
    with pytest.raises(ClustPSIError, match="--mu is a parameter of fedprox, and no chosen method"):
        chosen_methods("fedavg,poc", {"mu": 0.1})


@pytest.mark.parametrize(
    ("method", "mu", "sentence"),
    [
        ("fedavg", "0.1", "--mu is a parameter of fedprox, and no chosen method (fedavg) has it"),
        ("fedprox", "-1", "fedprox: mu must be a number at least 0, not -1.0"),
    ],
)
def test_command_line_refuses_what_no_method_has_or_allows(
    method: str, mu: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["run", "--agg-method", method, f"--mu={mu}"])
    assert exit.value.code == 2
    assert capsys.readouterr() == ("", f"error: {sentence}\n")


def test_command_line_lists_every_method_with_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["methods", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["poc"]["parameters"] == {"average_over": "all", "d_poc": 8, "poc_rule": "q_of_d"}
    assert rows["clust_psi_pfl"]["parameters"]["inner"] == "fedavg"
    assert all(row["family"] and row["idea"] and row["paper"] for row in rows.values())


# -------------------------------------------------------------------------------------------- methods of other packages


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that holds the example as an installer would leave it."""
    shutil.copy(EXAMPLE / "fair_avg.py", tmp_path)
    metadata = tmp_path / "fair_avg-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fair-avg\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[clustpsi.methods]\nfair_avg = fair_avg:FairAvg\n")
    return tmp_path


def test_the_example_runs_from_the_command_line(installed: Path, tmp_path: Path) -> None:
    assert 'fair_avg = "fair_avg:FairAvg"' in (EXAMPLE / "pyproject.toml").read_text()
    command = [
        *(sys.executable, "-c", "from clustpsi.cli import main; main()", "run", "--json", "--fairness", "2"),
        *("--agg-method", "fair_avg,clust_psi_pfl:inner=fair_avg", "--seeds-list", "0", "--comm-rounds", "2"),
        *("--num-clients", "5", "--output", str(tmp_path / "runs")),
    ]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["methods"]
    assert [row["method"] for row in rows] == ["fair_avg:fairness=2.0", "clust_psi_pfl:inner=fair_avg:fairness=2.0"]


def test_docs_show_the_example_as_it_is() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "extending.md").read_text()
    for name in ("fair_avg.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text().strip() in page


def test_an_option_with_a_taken_name_gives_way() -> None:
    def command(workers: int = 1, **options: Any) -> None: ...

    def parameter(name: str, annotation: type) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)

    added = [parameter("lr", float), parameter("lr", str), parameter("workers", str), parameter("mu", float)]
    with_options(command, added)
    assert command.__annotations__ == {"lr": float, "mu": float, "workers": int}


class NoMethod:
    name = "odd"


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    method_types.cache_clear()
    yield
    method_types.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("odd", f"{__name__}:NoMethod", "must be a subclass of clustpsi.methods.Method"),
        ("odd", "no_such_module:Method", "No module named 'no_such_module'"),
        ("fedavg", "clustpsi.methods.fedprox:FedProx", "there is a method of that name already"),
        ("other", "clustpsi.methods.fedprox:FedProx", "calls itself 'fedprox'"),
        ("unfinished", "clustpsi.methods.fedopt:FedOpt", "with a start, a round and a deploy"),
    ],
)
def test_an_unusable_entry_point_is_left_out_with_a_warning(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch, fresh_registry: None
) -> None:
    entry = EntryPoint(name, value, "clustpsi.methods")
    monkeypatch.setattr(methods, "entry_points", lambda group: [entry])
    with pytest.warns(ClustPSIWarning, match=f"the method '{name}' of {value} is left out: .*{reason}"):
        found = method_types()
    assert len(found) == len(methods.BUILT_IN) and found["fedavg"] is methods.FedAvg


def test_a_preset_stands_for_its_values_and_what_is_said_besides_counts_more() -> None:
    assert make_method("prior_pfl:plain") == make_method(
        "prior_pfl:average_over=all:momentum=0:prior_strength=0.5:hold_out=0"
    )
    for spec in ("prior_pfl:plain:momentum=0.9", "prior_pfl:momentum=0.9:plain"):
        assert make_method(spec) == PriorPFL(average_over="all", momentum=0.9, prior_strength=0.5, hold_out=0.0)
    inside = make_method("clust_psi_pfl:inner=prior_pfl:plain")
    assert isinstance(inside, ClustPSIPFL) and inside.inner == make_method("prior_pfl:plain")
    with pytest.raises(ClustPSIError, match=r"'plane' should read parameter=value or name a preset \(plain\)"):
        make_method("prior_pfl:plane")
    with pytest.raises(ClustPSIError, match=r"'plain' should read parameter=value$"):
        make_method("fedavg:plain")


@pytest.mark.parametrize("name", method_types())
def test_a_record_of_a_method_gives_it_back_whatever_becomes_of_the_defaults(name: str) -> None:
    text = method_spec(make_method(name))
    assert recorded_method(text) == text and make_method(text) == make_method(name)
    assert set(method_types()[name].before) <= set(MethodSpec.parse(text).values)


def test_records_from_before_a_default_changed_mean_what_was_run() -> None:
    assert make_method(recorded_method("prior_pfl")) == make_method("prior_pfl:plain")
    assert make_method(recorded_method("prior_pfl:prior_strength=0.0")) == make_method(
        "prior_pfl:plain:prior_strength=0"
    )
    inside = make_method(recorded_method("clust_psi_pfl:psi_features=signed:inner=prior_pfl"))
    assert inside == make_method("clust_psi_pfl:psi_features=signed:inner=prior_pfl:plain")
    assert recorded_method("somebody_elses:x=1") == "somebody_elses:x=1"
    old = Config(agg_method="prior_pfl").checked().as_dict() | {"agg_method": "prior_pfl"}
    assert Config.from_dict(old).agg_method == method_spec(make_method("prior_pfl:plain"))
    assert Config.from_dict(old).folder_name != Config(agg_method="prior_pfl").checked().folder_name


def test_a_method_is_called_by_its_preset_and_by_what_is_not_the_default() -> None:
    titles = {
        "prior_pfl": "prior-PFL",
        "prior_pfl:plain": "prior-PFL (plain)",
        "prior_pfl:plain:prior_strength=0": "prior-PFL (plain, prior_strength=0.0)",
        "prior_pfl:momentum=0": "prior-PFL (momentum=0.0)",
        "clust_psi_pfl:inner=prior_pfl": "Clust-PSI-PFL (inner=prior_pfl)",
    }
    assert {spec: method_title(method_spec(make_method(spec))) for spec in titles} == titles
