"""Whatever is typed, the command line answers: a result, or one sentence that says what is wrong.

The options come from the commands themselves, so that a new one is tried without a change here.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import threading
import traceback
import urllib.error
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from clustpsi.cli import main
from clustpsi.cli.app import program
from clustpsi.methods import method_types
from clustpsi.report.figures import FIGURES
from clustpsi.runs.config import Config
from clustpsi.runs.store import Store

SECONDS = 60  # for one command; the slowest compile a program, on a machine that may be busy
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# What makes a command small, before anything else is said; of an option given twice the last counts.
TRAINING = "--dataset {table} --label species --num-clients 3 --comm-rounds 1 --local-epochs 1 --partitioner iid"
BASE = {
    "export": "--output {out}",
    "predict": "--output {out}.csv",
    "report": "--output {out}.html",
    "run": f"{TRAINING} --agg-method fedavg --seeds-list 0 --workers 1 --output {{out}}",
    "sweep": f"{TRAINING} --agg-method fedavg --seeds-list 0 --workers 1 --output {{out}}",
    "tune": f"{TRAINING} --seeds-list 0 --workers 1 --output {{out}} --grid lr=0.1 --grid batch-size=8 "
    "--grid optimizer=sgd",
    "study metrics": "--dataset digits --num-clients 3 --alphas 1,10 --similarities 0,1 --seeds 4 --models tree "
    "--measures wpsi,hellinger --output {out}",
    "figure": "--runs {store} --output {out}.svg --num-clients 3 --seeds-list 0 --alphas 1 --similarities 1",
    "data": "--data-dir {out}",
    "data get": "--data-dir {out}",
    "data check": "--data-dir {out}",
}
# Values of options and arguments that mean something, beside those that the options offer to the shell.
MEANT = {
    "dataset": ["{table}", "digits", "{counts}"],
    "label": ["species", "site", "wing", "[/b]"],
    "client": ["site", "species"],
    "text": ["[/b]", "[/b],site"],
    "file": ["{counts}", "{counts}", "{table}", "{grid}"],
    "source": ["{store}", "{csv}"],
    "sources": ["{store}", "{csv}"],
    "model": ["{store}", "{table}", "{broken}"],
    "rows": ["{table}", "{counts}"],
    "runs": ["{store}", "{csv}"],
    "name": [*FIGURES, "fmnist", "digits"],
    "names": ["digits", "fmnist"],
    "grid": ["lr=0.1,0.2", "mu=1", "local-epochs=1,2", "lr=", "=", "model=logistic"],
    "where": ["agg_method=fedavg", "seed=0", "=", "non_iid_param=none"],
    "format": ["terminal", "markdown", "latex", "csv"],
    "agg_method": [
        "poc:d-poc=2",
        "all",
        "clust_psi_pfl:inner=fedprox:mu=1",
        ":",
        "fedavg,fedavg",
        "poc:d_poc=1:d-poc=2",
    ],
    "seeds_list": ["0", "1,2", "0,0", "2147483647", "2147483648"],
    "num_clients": ["2", "3,4", "0", "60"],
    "alphas": ["0.1,1", "0"],
    "similarities": ["0,1", "2"],
    "scores": ["macro_f1", "balanced-accuracy,macro_f1"],
    "measures": ["wpsi,hellinger", "wpsi"],
    "models": ["tree,svm", "tree"],
    "held_out": ["dataset"],
    "mirror": ["file://{out}", "http://localhost:9", "nothing"],
    "states": ["CA", "XX"],
    "preset": ["robust"],
    "against": ["paper"],
}
WHOLE = [
    -(2**63),
    -1,
    0,
    1,
    2,
    3,
    5,
    60,
    2**31 - 1,
    2**31,
    2**32,
    2**62,
    2**63,
    2**64,
    10**30,
    "1_000",
    "0x10",
    "9" * 5000,
]
REAL = ["-1", "0", "1e-308", "0.001", "0.5", "1", "3", "1e6", "1e308", "inf", "-inf", "nan", "1e400", "1,5"]
PATHS = ["{table}", "{folder}", "{store}", "{out}", "{missing}.csv", "{null}", "{broken}", "{table}/x", ""]
PLACES_TO_WRITE = ["{out}", "{out}/deep/er", "{taken}", "{taken}/x", "{full}", "{null}", ""]
ODD = [
    "",
    " ",
    "[/b]",
    "[bold]x",
    "[link=x]",
    "\x1b[31mred",
    "a\nb",
    "\x00",
    "\u202eabc",
    "\udcff",
    "é",
    "名",
    "🦆",
    ",",
    ":=",
    "-",
]
ODD += [
    "x" * 300,
    "../up",
    "~nobody/x",
    "%s%n",
    "{0}",
    "$(x)",
    "'\"",
    "none",
    "null",
    "nan",
    "*",
    "a=b",
    "--help",
    "\\",
]


@dataclass(frozen=True)
class Parameter:
    """An option or an argument of a command."""

    name: str
    flag: str | None  # None: an argument
    kind: str  # flag, int, float, path or text
    offered: tuple[str, ...]


def collect() -> dict[str, list[Parameter]]:
    """Every command with everything that can be given to it."""
    found: dict[str, list[Parameter]] = {}

    def visit(command: Any, path: tuple[str, ...]) -> None:
        if not getattr(command, "commands", {}) or getattr(command, "invoke_without_command", False):
            found[" ".join(path)] = [parameter for each in command.params if (parameter := describe(each)) is not None]
        for name, inner in getattr(command, "commands", {}).items():
            visit(inner, (*path, name))

    visit(program(), ())
    return found


def describe(parameter: Any) -> Parameter | None:
    if parameter.name in ("help", "ray"):  # a cluster is another test's
        return None
    # Typer's parameters were Click's once, whose type says what newer ones have in a descriptor.
    descriptor = getattr(parameter, "type_descriptor", None)
    told = repr(parameter.type if descriptor is None else descriptor.annotation).lower()
    kinds = [kind for kind in ("int", "float", "path") if kind in told]
    kind = "flag" if getattr(parameter, "is_flag", False) else kinds[0] if kinds else "text"
    flag = None if parameter.param_type_name == "argument" else parameter.opts[0]
    offered = [item.value for item in parameter.shell_complete(None, "")] if kind == "text" else []
    return Parameter(parameter.name, flag, kind, tuple(offered))


# What serves until it is stopped, or talks to those who do, has tests of its mistakes with its own.
SERVING = ("explore", "federation")
COMMANDS = {path: given for path, given in collect().items() if not path.startswith(SERVING)}
OFTEN = ("run", "run", "run", "sweep", "tune", "diagnose", "diagnose")  # besides once


def values(parameter: Parameter) -> st.SearchStrategy[str]:
    """Valid, boundary, huge, negative, empty, and odd values; for every kind of them, as often valid ones as others."""
    whole, real = st.sampled_from([*map(str, WHOLE)]), st.sampled_from(REAL)
    odd = st.one_of(st.sampled_from(ODD), st.text(max_size=20))
    known = [*MEANT.get(parameter.name, []), *parameter.offered]
    if parameter.kind == "int":
        return st.one_of(st.sampled_from(["1", "2", "3"]), st.one_of(whole, st.integers().map(str), odd))
    if parameter.kind == "float":
        return st.one_of(st.sampled_from(["0.1", "1"]), st.one_of(real, st.floats().map(str), odd))
    paths = st.sampled_from(PLACES_TO_WRITE if parameter.name == "output" else PATHS)
    others = st.one_of(odd, paths) if parameter.kind == "path" else st.one_of(odd, whole, real)
    if parameter.name in ("dataset", "word_vectors"):
        others = st.one_of(others, paths)
    return st.booleans().flatmap(lambda valid: st.sampled_from(known) if valid and known else others)


# The methods that have a parameter.
OWNERS = {
    key: [name for name, kind in method_types().items() if key in kind.__dataclass_fields__]
    for kind in method_types().values()
    for key in kind.__dataclass_fields__
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command with up to three options, and its arguments."""
    command = draw(st.sampled_from([*sorted(COMMANDS), *OFTEN]))
    arguments = BASE.get(command, "").split()
    options = [each for each in COMMANDS[command] if each.flag is not None]
    for option in draw(st.lists(st.sampled_from(options), max_size=3)) if options else []:
        if option.name in OWNERS:
            arguments += ["--agg-method", draw(st.sampled_from(OWNERS[option.name]))]
        arguments.append(str(option.flag))
        if option.kind != "flag":
            arguments.append(draw(values(option)))
    for argument in (each for each in COMMANDS[command] if each.flag is None):
        known = st.sampled_from(MEANT[argument.name])
        arguments += draw(st.one_of(known, known, values(argument)).map(lambda value: [value]) | st.just([]))
    return command, arguments


# ------------------------------------------------------------------------------------------------------- the stage


class TooLong(BaseException):
    """Not an Exception, so that nothing takes it for a problem of the input."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Files of every kind, a store of runs, and small limits."""
    root = tmp_path_factory.mktemp("fuzz")
    rng = np.random.default_rng(0)
    species = np.repeat(["[/b]", "b\x1b[1m", "c"], 20)
    table = pd.DataFrame({"wing": rng.normal(size=60), "[/b]": rng.normal(size=60), "species": species})
    table["site"] = rng.choice(["x[bold]", "y", "z"], 60)
    table.to_csv(root / "table.csv", index=False)
    pd.crosstab(table["site"], table["species"]).to_csv(root / "counts.csv")
    (root / "grid.toml").write_text('dataset = "digits"\nagg_method = 5\n')
    (root / "broken.csv").write_bytes(b"\xff\xfe\x00,\n\x00")
    (root / "folder").mkdir()
    (root / "null").symlink_to("/dev/null")
    places = {name: str(root / name) for name in ("folder", "null", "store", "missing")}
    places |= {"table": str(root / "table.csv"), "counts": str(root / "counts.csv"), "grid": str(root / "grid.toml")}
    places |= {"broken": str(root / "broken.csv"), "csv": str(root / "runs.csv"), "root": str(root)}
    before, here = {}, Path.cwd()
    for each in fields(Config):
        if each.name in ("comm_rounds", "local_epochs"):
            before[each.name] = each.metadata
            each.metadata = MappingProxyType({**each.metadata, "most": each.default})
    with pytest.MonkeyPatch.context() as patch:
        _patch(patch)
        made = [part.format(**places, out=places["store"]) for part in BASE["run"].split()]
        assert call(["run", *made, "--agg-method", "fedavg,clust_psi_pfl"])[0] == 0
        assert call(["table", "runs", places["store"], "--output", places["csv"]])[0] == 0
        yield places
    os.chdir(here)
    for name, metadata in before.items():
        Config.__dataclass_fields__[name].metadata = metadata


def _patch(patch: pytest.MonkeyPatch) -> None:
    """No other processes, no network, no waiting, and little memory: a run that asks for more must be refused."""
    from clustpsi import limits
    from clustpsi.datasets import download
    from clustpsi.experiments import workers

    def unreachable(*_: Any, **__: Any) -> Any:
        raise urllib.error.URLError("no network")

    patch.setattr(workers, "Processes", lambda size, store, data_dir: workers.ThisProcess(store, data_dir))
    patch.setattr(download.urllib.request, "urlopen", unreachable)
    patch.setattr(download, "PAUSE", 0)
    patch.setattr(limits, "memory", lambda: 10_000_000)
    patch.setenv("COLUMNS", "100")
    for name in ("CLUSTPSI_DATA", "CLUSTPSI_MIRROR"):
        patch.delenv(name, raising=False)


def call(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), limited(arguments):
        try:
            main(arguments)
            code: Any = 0
        except SystemExit as stopped:
            code = stopped.code or 0
        except BaseException:
            code = traceback.format_exc()
    shown = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]
    assert isinstance(code, int), f"{arguments}\n{code}"
    return code, shown[0], shown[1]


@contextlib.contextmanager
def limited(arguments: list[str]) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooLong(f"more than {SECONDS} seconds: {arguments}")

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(command: str, given: list[str], stage: dict[str, str]) -> None:
    own = Path(stage["root"]) / uuid.uuid4().hex
    own.mkdir()
    os.chdir(own)
    (own / "full").mkdir()
    for name in ("taken.csv", "full/other.txt"):
        (own / name).write_text("mine\n")
    places = stage | {"out": str(own / "out"), "taken": str(own / "taken.csv"), "full": str(own / "full")}
    given = [re.sub(r"\{(\w+)\}", lambda found: places.get(found[1], found[0]), part) for part in given]
    arguments = [*command.split(), *given]
    code, out, err = call(arguments)
    event(f"{command}: {code}")
    told = f"{arguments}\n{code}\n{out}\n{err}"
    assert code in ((0, 1, 2) if command == "sweep" else (0, 2)), told
    assert "Traceback" not in err and not CONTROL.search(out + err), told
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if code == 2:
        assert len(errors) == (0 if "Usage: " in err or "Usage: " in out else 1), told
        assert not out or "Usage: " in out or command == "data check", told
    else:
        assert not errors, told
    if "--json" in given and code < 2 and out and "Usage: " not in out:
        json.loads(out)
    assert not [path for path in own.rglob("*") if path.name.endswith(".tmp")], told
    for folder in own.rglob("config.json"):
        run = next(each for each in Store(folder.parents[1]) if each.path == folder.parent)
        assert run.finished or (run / "checkpoint.npz").exists(), told
    os.chdir(stage["root"])
    shutil.rmtree(own)


# Without shrinking: a command that hangs would be tried again for minutes, and a call is short as it is.
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
}


@settings(max_examples=100, **SETTINGS)
@given(calls())
def test_every_command_answers_whatever_is_typed(stage: dict[str, str], made: tuple[str, list[str]]) -> None:
    check(*made, stage)


@pytest.mark.slow
@settings(max_examples=2_000, **SETTINGS)
@given(calls())
def test_every_command_answers_whatever_is_typed_for_long(stage: dict[str, str], made: tuple[str, list[str]]) -> None:
    check(*made, stage)


def test_all_commands_and_options_are_tried() -> None:
    assert {"run", "diagnose", "sweep", "tune", "methods", "figure", "study metrics", "data", "data get"} <= set(
        COMMANDS
    )
    assert {"dataset", "batch_size", "d_poc", "seeds_list", "as_json"} <= {each.name for each in COMMANDS["run"]}
    assert {each.kind for each in COMMANDS["run"]} == {"flag", "int", "float", "path", "text"}
