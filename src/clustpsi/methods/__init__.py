"""The methods, by name, and how a name with parameters becomes a method."""

import warnings
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
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
from clustpsi.methods.ditto import Ditto
from clustpsi.methods.fedavg import FedAvg, SingleModel
from clustpsi.methods.fedavgm import FedAvgM
from clustpsi.methods.fedcls import FedCLS
from clustpsi.methods.fedlc import FedLC
from clustpsi.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from clustpsi.methods.fedprox import FedProx
from clustpsi.methods.fedrep import FedRep
from clustpsi.methods.fedrod import FedROD
from clustpsi.methods.fedrs import FedRS
from clustpsi.methods.fedsoft import FedSoft
from clustpsi.methods.haccs import HACCS
from clustpsi.methods.ifca import IFCA
from clustpsi.methods.local import Local
from clustpsi.methods.poc import PoC
from clustpsi.methods.prior_pfl import PriorPFL

__all__ = [
    "Method",
    "MethodSpec",
    "as_text",
    "make_method",
    "method_spec",
    "method_types",
    "parameters_of",
    "recorded_method",
    "short_spec",
]

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
    FedLC,
    FedRS,
    Ditto,
    FedRep,
    FedROD,
    IFCA,
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
    for key, plain in parameters_of(kind).items():
        if "help" not in kind.__dataclass_fields__[key].metadata:
            raise ClustPSIError(f"its parameter {key!r} must be made with clustpsi.methods.base.option")
        if plain not in (int, float, str, bool):
            raise ClustPSIError(f"its parameter {key!r} must be an int, float, str or bool, not {plain!r}")
    return kind


@cache
def parameters_of(kind: type[Method]) -> Mapping[str, type]:
    """A method's parameters and their types (without None), except the inner method."""
    hints = get_type_hints(kind)
    return {f.name: _plain(hints[f.name]) for f in fields(kind) if f.name != "inner"}


def _plain(hint: Any) -> type:
    if isinstance(hint, UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    plain: type = hint
    return plain


@dataclass(frozen=True)
class MethodSpec:
    """A method as people write it, ``name:parameter=value:...``: its name and the given values.

    The name of a preset stands for its values: ``prior_pfl:plain``.

    >>> spec = MethodSpec.parse("poc:d-poc=4")
    >>> spec.values, str(spec.with_defaults({"d_poc": "6", "poc_rule": "all_d", "mu": "0.1"}))
    ({'d_poc': '4'}, 'poc:d_poc=4:poc_rule=all_d')
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "MethodSpec":
        name, *assignments = (part.strip() for part in text.split(":"))
        values: dict[str, str] = {}
        presets: list[str] = []
        for assignment in assignments:
            key, equals, value = assignment.partition("=")
            key = key.strip().replace("-", "_")
            if not equals:
                presets.append(assignment)
                continue
            if key in values:
                raise ClustPSIError(f"{text!r} gives {key} twice: give it once")
            values[key] = value.strip()
        spec = cls(name, values)
        for preset in presets:  # what is said besides counts more
            spec = replace(spec, values={**spec._preset(preset, text), **spec.values})
        return spec

    def _preset(self, name: str, text: str) -> dict[str, str]:
        """What a preset sets: the method's own, or that of the method inside it."""
        kinds = [self.kind, *([] if self.inner is None else [self.inner])]
        known = {key: values for kind in reversed(kinds) for key, values in kind.presets.items()}
        if name not in known:
            has = f" or name a preset ({', '.join(known)})" if known else ""
            raise ClustPSIError(f"{text!r}: {name!r} should read parameter=value{has}")
        return {key: as_text(value) for key, value in known[name].items()}

    @classmethod
    def of(cls, method: Method) -> "MethodSpec":
        """The shortest specification that is good for a record: what differs from the defaults, or they once were."""
        changed: dict[str, str] = {}
        for parameter in fields(method):
            value = getattr(method, parameter.name)
            if isinstance(value, Method):
                inner = cls.of(value)
                if type(value) is not method.inner_default:
                    changed[parameter.name] = inner.name
                changed.update(inner.values)
            elif parameter.default is MISSING or value != parameter.default or parameter.name in method.before:
                changed[parameter.name] = as_text(value)
        return cls(method.name, changed)

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.values.items())])

    @property
    def kind(self) -> type[Method]:
        kinds = method_types()
        if self.name not in kinds:
            raise unknown_name("method", self.name, kinds)
        return kinds[self.name]

    @property
    def inner(self) -> type[Method] | None:
        """The kind of the inner method, for methods that have one."""
        default = self.kind.inner_default
        return default if default is None else _single_model(self.values.get("inner", default.name))

    @property
    def parameters(self) -> tuple[str, ...]:
        """All parameters that can be given: the method's own, then those of its inner method."""
        own = tuple(parameters_of(self.kind))
        return own if self.inner is None else (*own, "inner", *parameters_of(self.inner))

    def with_defaults(self, values: Mapping[str, str]) -> "MethodSpec":
        """The same specification, plus those of the values that the method has and that are not given yet."""
        says = dict(self.values)
        if self.inner is not None and "inner" in values:
            says.setdefault("inner", values["inner"])
        known = MethodSpec(self.name, says).parameters
        more = {key: value for key, value in values.items() if key in known and key not in says}
        return MethodSpec(self.name, says | more)

    def build(self) -> Method:
        """Make the method; an unknown parameter or a value that is not allowed raises :class:`ClustPSIError`."""
        called = self.name if self.inner is None else f"{self.name} with {self.inner.name} inside"
        for key in self.values:
            if key not in self.parameters:
                has = f"; it has {', '.join(self.parameters)}" if self.parameters else ""
                raise ClustPSIError(f"{called} has no parameter {key!r}{has}")
        own = parameters_of(self.kind)
        arguments = {key: _parse(self.kind, key, own[key], value) for key, value in self.values.items() if key in own}
        if self.inner is not None:
            rest = {key: value for key, value in self.values.items() if key not in own and key != "inner"}
            arguments["inner"] = MethodSpec(self.inner.name, rest).build()
        return self.kind(**arguments)


def make_method(spec: str) -> Method:
    """Make a method from ``name:parameter=value:...``; parameters that are not its own go to its inner method.

    >>> make_method("clust_psi_pfl:psi_features=signed").psi_features
    'signed'
    """
    return MethodSpec.parse(spec).build()


def method_spec(method: Method) -> str:
    """The shortest text from which :func:`make_method` makes this method.

    >>> method_spec(make_method("clust_psi_pfl:psi-features=signed:min_wpsi=0"))
    'clust_psi_pfl:psi_features=signed'
    """
    return str(MethodSpec.of(method))


def recorded_method(text: str) -> str:
    """The method that a run's record names; what the record does not say was the default at the time.

    >>> recorded_method("prior_pfl:prior_strength=0.0"), recorded_method("fedavg")
    ('prior_pfl:average_over=all:momentum=0.0:prior_strength=0.0:hold_out=0.0', 'fedavg')
    """
    spec = MethodSpec.parse(text)
    if spec.name not in method_types():  # another package's, which is not installed here
        return text
    before = {**spec.kind.before, **({} if spec.inner is None else spec.inner.before)}
    missing = {key: as_text(value) for key, value in before.items() if key not in spec.values}
    return method_spec(replace(spec, values={**spec.values, **missing}).build()) if missing else text


def short_spec(text: str) -> str:
    """A method's specification for people: without what is the default now, and with the name of a preset it has.

    >>> short_spec(recorded_method("prior_pfl")), short_spec(method_spec(make_method("prior_pfl:personal=false")))
    ('prior_pfl:plain', 'prior_pfl:personal=false')
    """
    spec = MethodSpec.parse(text)
    if spec.name not in method_types():
        return text
    says, kinds = dict(spec.values), [spec.kind, *([] if spec.inner is None else [spec.inner])]
    names = []
    for kind in kinds:
        for name, values in kind.presets.items():
            written = {key: as_text(value) for key, value in values.items()}
            rest = {key: value for key, value in says.items() if written.get(key) != value}
            if written.keys() <= says.keys() and len(rest) < len(says) - 1:
                names.append(name)
                says = rest
        for key, value in list(says.items()):
            if key in kind.before and value == as_text(kind.__dataclass_fields__[key].default):
                del says[key]
    return ":".join([spec.name, *names, *(f"{key}={value}" for key, value in says.items())])


def _single_model(name: str) -> type[SingleModel]:
    singles = {key: kind for key, kind in method_types().items() if issubclass(kind, SingleModel)}
    if name not in singles:
        raise unknown_name("single-model method", name, singles)
    return singles[name]


def _parse(kind: type[Method], key: str, plain: type, value: str) -> Any:
    if value.lower() == "none" and kind.__dataclass_fields__[key].default is None:
        return None
    if plain is bool:
        if value.lower() not in ("true", "false"):
            raise ClustPSIError(f"{kind.name}: {key} must be true or false, not {value!r}")
        return value.lower() == "true"
    try:
        return plain(value)
    except ValueError:
        article = {int: "a whole number", float: "a number"}.get(plain, f"a {plain.__name__}")
        raise ClustPSIError(f"{kind.name}: {key} must be {article}, not {value!r}") from None


def as_text(value: Any) -> str:
    """A parameter's value as it is written after the equals sign."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
