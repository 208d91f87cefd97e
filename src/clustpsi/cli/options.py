"""Command-line options made from the dataclasses that define them, so that each is written down once."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from typing import Any, get_type_hints

import typer

from clustpsi.config import Config
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import as_text, make_method, method_types, parameters_of, settable
from clustpsi.methods.base import Method

METHOD_PANEL = "Parameters of methods"
PAPER = "paper"  # the preset that the defaults are


def with_options(command: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    """Give a command that takes ``**options`` these options besides its own.

    Of two options with one name the command's own counts, then the first: another package's method may have a parameter
    that is called like a setting of the run.
    """
    signature = inspect.signature(command)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    named: dict[str, inspect.Parameter] = {}
    for each in parameters:
        named.setdefault(each.name, each)
    added = [each for name, each in named.items() if name not in signature.parameters]
    command.__signature__ = signature.replace(parameters=[*added, *own])  # type: ignore[attr-defined]
    hints = get_type_hints(command, include_extras=True)
    command.__annotations__ = {each.name: each.annotation for each in added} | {
        each.name: hints[each.name] for each in own
    }
    return command


def config_options(*left_out: str, panel: str | None = None) -> list[inspect.Parameter]:
    """An option for every setting of a run."""
    hints = get_type_hints(Config)
    return [
        _option(each.name, hints[each.name], each.default, _help(each), panel)
        for each in fields(Config)
        if each.name not in left_out and each.metadata  # the content is found, not given
    ]


def method_options() -> list[inspect.Parameter]:
    """An option for every parameter of every method; its default is the method's own."""
    found: dict[str, tuple[type, list[tuple[type[Method], Any]]]] = {}
    for kind in method_types().values():
        for name, plain in parameters_of(kind).items():
            found.setdefault(name, (plain, []))[1].append((kind, kind.__dataclass_fields__[name]))
    options = [
        _option(
            "preset",
            str | None,
            None,
            "values of the methods' parameters: paper (the defaults), or robust (clust_psi_pfl with psi_epsilon 0.001 "
            "and min_wpsi 0.1)",
            METHOD_PANEL,
        ),
        _option(
            "inner",
            str | None,
            None,
            "clustering methods: single-model method that runs in each cluster (default: fedavg)",
            METHOD_PANEL,
        ),
    ]
    for name, (plain, owners) in found.items():
        of = ", ".join(f"{kind.name}{'' if each.default is None else f' {each.default}'}" for kind, each in owners)
        options.append(_option(name, plain | None, None, f"{of}: {_help(owners[0][1])}", METHOD_PANEL))
    return options


def _help(parameter: "Field[Any]") -> str:
    choices = parameter.metadata.get("choices")
    text: str = parameter.metadata["help"]
    return f"{text}: {', '.join(choices)}" if choices else text


def _option(name: str, annotation: Any, default: Any, help: str, panel: str | None) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    declared = typer.Option(default, flag, help=help, rich_help_panel=panel, show_default=default is not None)
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=declared, annotation=annotation)


def chosen_methods(names: str, parameters: dict[str, Any]) -> list[str]:
    """The methods of a comma-separated list, each with those of the given parameters that it has."""
    given = {key: as_text(value) for key, value in parameters.items() if value is not None}
    preset = given.pop("preset", PAPER)
    known = {PAPER, *(name for kind in method_types().values() for name in kind.presets)}
    if preset not in known:
        raise unknown_name("preset", preset, known)
    listed = list(method_types()) if names.strip() == "all" else names.split(",")
    specs = [each.strip() for each in listed if each.strip()]
    if not specs:
        raise ClustPSIError("--agg-method is empty: name at least one method, or all")
    used: set[str] = set()
    chosen = []
    for spec in specs:
        method = make_method(spec)
        has = settable(method, given.get("inner"))
        wanted = {key: as_text(value) for key, value in method.presets.get(preset, {}).items()} | given
        own = {key: value for key, value in wanted.items() if key in has and f":{key}=" not in spec}
        used |= has
        chosen.append(":".join([spec, *(f"{key}={value}" for key, value in own.items())]))
    for key in given:
        if key not in used:
            flag = "--" + key.replace("_", "-")
            owners = ", ".join(name for name, kind in method_types().items() if key in kind.__dataclass_fields__)
            raise ClustPSIError(f"{flag} is a parameter of {owners}, and no chosen method ({', '.join(specs)}) has it")
    return chosen
