"""An order as one of its clients sees it: only what must travel to that client."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Role:
    """What one client gets of a field: its own entry, nothing, or the entry that another field chooses for it."""

    name: str
    index: str = ""


#: A field with one entry per client; a number, None or a single model means the same entry for all.
PerClient = Annotated[T, Role("per client")]
#: A field that clients need not know: they get its default.
ForServer = Annotated[T, Role("server")]


def part(order: T, position: int) -> T:
    """The order for only the client at one position: the same kind of order, with one client.

    >>> from clustpsi.orders import Train, Model
    >>> models = [Model(np.full(2, value, np.float32), np.empty(0, np.float32)) for value in (1, 2)]
    >>> one = part(Train(np.array([4, 7]), models, proximal=np.array([0.1, 0.2])), 1)
    >>> one.clients.tolist(), one.start[0].parameters.tolist(), one.proximal.tolist()
    ([7], [2.0, 2.0], [0.2])
    """
    changes: dict[str, Any] = {}
    roles = _roles(type(order))  # type: ignore[arg-type]  # types are hashable
    for each in fields(order):  # type: ignore[arg-type]  # orders are dataclasses
        value, role = getattr(order, each.name), roles.get(each.name, Role("all"))
        if role.name == "server":
            changes[each.name] = each.default
        elif role.name == "per client":
            changes.setdefault(each.name, _entry(value, position))
        elif role.name == "chosen":
            changes[each.name] = (value[getattr(order, role.index)[position]],)
            changes[role.index] = np.zeros(1, np.int64)
        elif is_dataclass(value):
            changes[each.name] = part(value, position)
    return replace(order, **changes)  # type: ignore[type-var]


@cache
def _roles(kind: type) -> dict[str, Role]:
    hints = get_type_hints(kind, include_extras=True)
    said = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: role for name, extras in said.items() for role in extras if isinstance(role, Role)}


def _entry(values: Any, position: int) -> Any:
    if isinstance(values, np.ndarray):
        return values[position : position + 1] if values.ndim else values
    is_record = hasattr(values, "_fields")  # a single model
    return (values[position],) if isinstance(values, Sequence) and not is_record else values
