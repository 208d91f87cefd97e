"""Command-line options, made from the dataclasses that define them: each option is defined only once."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from clustpsi.datasets.catalogue import DATASETS
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import MethodSpec, as_text, method_types, parameters_of
from clustpsi.methods.base import Method, bounds
from clustpsi.runs.config import Config, listed_methods

METHOD_PANEL = "Parameters of methods"
PAPER = "paper"  # the preset with the default values
MOST_WORKERS = 1024


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Completions of a name, or of the last name in a comma-separated list.

    >>> completing(["fedavg", "fedprox", "local"])("local,fed")
    ['local,fedavg', 'local,fedprox']
    """
    known = list(names)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(last)]

    return complete


complete_datasets = completing(DATASETS)
complete_methods = completing(method_types())

Methods = Annotated[
    str,
    typer.Option(
        help="Methods, comma-separated, each as name or name:parameter=value:...; or all. A value here overrides the "
        "option for the same parameter.",
        autocompletion=complete_methods,
    ),
]


def is_given(context: typer.Context, option: str) -> bool:
    """Whether an option is on the command line: neither its default nor an environment variable counts."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def with_options(command: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    """Add these options to a command that takes ``**options``.

    If two options have the same name, the command's own wins, then the first one.  That happens if a method of another
    package has a parameter with the name of a setting.
    """
    signature = inspect.signature(command)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    named: dict[str, inspect.Parameter] = {}
    for each in parameters:
        named.setdefault(each.name, each)
    added = [each for name, each in named.items() if name not in signature.parameters]
    needed = [each for each in own if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    others = [each for each in own if each not in needed]
    command.__signature__ = signature.replace(parameters=[*needed, *added, *others])  # type: ignore[attr-defined]
    hints = get_type_hints(command, include_extras=True)
    command.__annotations__ = {each.name: each.annotation for each in added} | {
        each.name: hints[each.name] for each in own
    }
    return command


def config_options(*left_out: str, panel: str | None = None) -> list[inspect.Parameter]:
    """An option for every setting of a run."""
    hints = get_type_hints(Config)
    names: dict[str, Iterable[str]] = {"dataset": DATASETS}
    return [
        _option(
            each.name,
            hints[each.name],
            each.default,
            _help(each),
            panel,
            names.get(each.name, each.metadata["choices"]),
        )
        for each in fields(Config)
        if each.name not in left_out and each.metadata  # the content is computed, not given
    ]


def method_options() -> list[inspect.Parameter]:
    """An option for every parameter of every method; without it the method's own default holds."""
    found: dict[str, tuple[type, list[tuple[type[Method], Any]]]] = {}
    outer = []
    for kind in method_types().values():
        if kind.inner_default is not None:
            outer.append(f"{kind.name} {kind.inner_default.name}")
        for name, plain in parameters_of(kind).items():
            found.setdefault(name, (plain, []))[1].append((kind, kind.__dataclass_fields__[name]))
    presets = _presets()
    told = ", ".join(f"{name} ({what})" for name, what in presets.items())
    inner = f"{', '.join(outer)}: single-model method that runs in each cluster"
    options = [
        _option("preset", str | None, None, f"values of the methods' parameters: {told}", METHOD_PANEL, presets),
        _option("inner", str | None, None, inner, METHOD_PANEL, method_types()),
    ]
    for name, (plain, owners) in found.items():
        of = ", ".join(
            f"{kind.name}{'' if each.default is None else f' {as_text(each.default)}'}" for kind, each in owners
        )
        parameter = owners[0][1]
        help = f"{of}: {_help(parameter)}"
        options.append(_option(name, plain | None, None, help, METHOD_PANEL, parameter.metadata["choices"]))
    return options


def _presets() -> dict[str, str]:
    """The presets and the values that each sets."""
    sets: dict[str, list[str]] = {PAPER: ["the defaults"]}
    for kind in method_types().values():
        for name, values in kind.presets.items():
            said = " and ".join(f"{key} {as_text(value)}" for key, value in values.items())
            sets.setdefault(name, []).append(f"{kind.name} with {said}")
    return {name: "; ".join(said) for name, said in sets.items()}


def _help(parameter: "Field[Any]") -> str:
    """The help of an option: its meaning and the values it may have."""
    choices, allowed = parameter.metadata["choices"], bounds(parameter.metadata)
    text: str = parameter.metadata["help"]
    return f"{text}: {', '.join(choices)}" if choices else f"{text}; {allowed}" if allowed else text


def _option(
    name: str, annotation: Any, default: Any, help: str, panel: str | None, offered: Iterable[str]
) -> inspect.Parameter:
    flag = name.replace("_", "-")
    declared = typer.Option(
        default,
        # None is neither on nor off: a parameter that is on unless somebody says otherwise needs both.
        f"--{flag}/--no-{flag}" if annotation == bool | None else f"--{flag}",
        help=help,
        rich_help_panel=panel,
        show_default=default is not None,
        autocompletion=completing(offered),
    )
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=declared, annotation=annotation)


def chosen_methods(asked: str | Sequence[str], parameters: dict[str, Any]) -> list[str]:
    """The methods in a comma-separated text or a list, each with the given parameters that it has.

    A value in a method's own specification overrides a preset or a parameter.
    """
    given = {key: as_text(value) for key, value in parameters.items() if value is not None}
    preset = given.pop("preset", PAPER)
    if preset not in _presets():
        raise unknown_name("preset", preset, _presets())
    if "inner" in given:  # it may have parameters of its own
        inner = MethodSpec.parse(given["inner"])
        inner.build()
        given |= {"inner": inner.name, **inner.values}
    specs = listed_methods(asked)
    used: set[str] = set()
    chosen = []
    for spec in specs:
        values = {key: as_text(value) for key, value in spec.kind.presets.get(preset, {}).items()}
        full = spec.with_defaults(values | given)
        used.update(full.parameters)
        chosen.append(str(full))
    for key in given:
        if key not in used:
            flag = "--" + key.replace("_", "-")
            owners = ", ".join(name for name, kind in method_types().items() if key in kind.__dataclass_fields__)
            names = ", ".join(map(str, specs))
            raise ClustPSIError(f"{flag} is a parameter of {owners}, and no chosen method ({names}) has it")
    return chosen
