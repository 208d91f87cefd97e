"""The methods, by name, and how a name with parameters becomes a method."""

import warnings
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from types import UnionType
from typing import Any, get_args, get_type_hints

from clustpsi.errors import ClustPSIError, ClustPSIWarning, unknown_name
from clustpsi.methods.base import Method
from clustpsi.methods.centralized import Centralized
from clustpsi.methods.cfl import CFL
from clustpsi.methods.clust_psi_pfl import ClustPSIPFL
from clustpsi.methods.fedavg import FedAvg, SingleModel
from clustpsi.methods.fedavgm import FedAvgM
from clustpsi.methods.fedcls import FedCLS
from clustpsi.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from clustpsi.methods.fedprox import FedProx
from clustpsi.methods.fedsoft import FedSoft
from clustpsi.methods.haccs import HACCS
from clustpsi.methods.local import Local
from clustpsi.methods.poc import PoC
from clustpsi.methods.prior_pfl import PriorPFL

__all__ = ["Method", "as_text", "make_method", "method_spec", "method_types", "parameters_of", "settable"]

BUILT_IN: tuple[type[Method], ...] = (
    Centralized,
    Local,
    FedAvg,
    FedProx,
    FedAvgM,
    FedAdagrad,
    FedYogi,
    FedAdam,
    PoC,
    HACCS,
    FedCLS,
    CFL,
    FedSoft,
    ClustPSIPFL,
    PriorPFL,
)


@cache
def method_types() -> dict[str, type[Method]]:
    """All methods: the built-in ones and what installed packages offer as entry points ``clustpsi.methods``.

    An entry point that cannot be used is left out with a warning: it must not stop the others.
    """
    known: dict[str, type[Method]] = {kind.name: kind for kind in BUILT_IN}
    for entry in entry_points(group="clustpsi.methods"):
        try:
            known[entry.name] = _offered(entry, known)
        except Exception as problem:
            warnings.warn(f"the method {entry.name!r} of {entry.value} is left out: {problem}", ClustPSIWarning, 2)
    return known


def _offered(entry: EntryPoint, known: Mapping[str, type[Method]]) -> type[Method]:
    if entry.name in known:
        raise ClustPSIError("there is a method of that name already")
    kind = entry.load()
    if not (isinstance(kind, type) and issubclass(kind, Method)) or isabstract(kind):
        raise ClustPSIError("it must be a subclass of clustpsi.methods.Method with a start, a round and a deploy")
    if kind.name != entry.name:
        raise ClustPSIError(f"the class calls itself {kind.name!r}, and the entry point must have the same name")
    return kind


def parameters_of(kind: type[Method]) -> dict[str, type]:
    """A method's parameters and their types (None left out), except the method inside it."""
    hints = get_type_hints(kind)
    return {f.name: _plain(hints[f.name]) for f in fields(kind) if f.name != "inner"}


def settable(method: Method, inner: str | None = None) -> set[str]:
    """What can be set for a method: its own parameters and those of the method inside it, or of ``inner`` there."""
    own = set(parameters_of(type(method)))
    inside: Method | None = getattr(method, "inner", None)
    if inside is None:
        return own
    kind = method_types().get(inner or inside.name, type(inside))
    return own | {"inner"} | set(parameters_of(kind))


def _plain(hint: Any) -> type:
    if isinstance(hint, UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    plain: type = hint
    return plain


def make_method(spec: str) -> Method:
    """A method from ``name:parameter=value:...``; what a clustering method does not know goes to the method inside it.

    >>> make_method("clust_psi_pfl:psi_features=signed").psi_features
    'signed'
    """
    name, *assignments = (part.strip() for part in spec.split(":"))
    values: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ClustPSIError(f"{spec!r}: {assignment!r} should read parameter=value")
        values[key.strip().replace("-", "_")] = value.strip()
    kinds = method_types()
    if name not in kinds:
        raise unknown_name("method", name, kinds)
    return _build(kinds[name], values)


def _build(kind: type[Method], values: dict[str, str]) -> Method:
    own, name = parameters_of(kind), kind.name
    known, inside = list(own), None
    if "inner" in kind.__dataclass_fields__:
        inside = _single_model(values.get("inner", FedAvg.name))
        known, name = [*own, "inner", *parameters_of(inside)], f"{name} with {inside.name} inside"
    for key in values:
        if key not in known:
            raise ClustPSIError(f"{name} has no parameter {key!r}" + (f"; it has {', '.join(known)}" if known else ""))
    arguments = {key: _parse(kind, key, own[key], value) for key, value in values.items() if key in own}
    if inside is not None:
        rest = {key: value for key, value in values.items() if key not in own and key != "inner"}
        arguments["inner"] = _build(inside, rest)
    return kind(**arguments)


def _single_model(name: str) -> type[SingleModel]:
    singles = {key: kind for key, kind in method_types().items() if issubclass(kind, SingleModel)}
    if name not in singles:
        raise unknown_name("single-model method", name, singles)
    return singles[name]


def _parse(kind: type[Method], key: str, plain: type, value: str) -> Any:
    if plain is bool:
        if value.lower() not in ("true", "false"):
            raise ClustPSIError(f"{kind.name}: {key} must be true or false, not {value!r}")
        return value.lower() == "true"
    try:
        return plain(value)
    except ValueError:
        article = {int: "a whole number", float: "a number"}.get(plain, f"a {plain.__name__}")
        raise ClustPSIError(f"{kind.name}: {key} must be {article}, not {value!r}") from None


def method_spec(method: Method) -> str:
    """The shortest text from which :func:`make_method` gives this method back: only what differs from the defaults.

    >>> method_spec(make_method("clust_psi_pfl:psi-features=signed:min_wpsi=0"))
    'clust_psi_pfl:psi_features=signed'
    """
    changed = []
    for parameter in fields(method):
        value = getattr(method, parameter.name)
        if isinstance(value, Method):
            inner = method_spec(value)
            changed += [f"inner={inner}"] if inner != FedAvg.name else []
        elif parameter.default is MISSING or value != parameter.default:
            changed.append(f"{parameter.name}={as_text(value)}")
    return ":".join([method.name, *changed])


def as_text(value: Any) -> str:
    """A parameter's value as it is written after the equals sign."""
    return str(value).lower() if isinstance(value, bool) else str(value)
