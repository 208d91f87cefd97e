"""A method's work: a generator that yields orders and is sent their replies."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from clustpsi.orders.orders import Order, Together

T = TypeVar("T")
# The type of a reply follows from the type of its order.  A generator's type cannot express this, hence Any.
Work = Generator[Order, Any, T]


def drive(work: Work[T], serve: Callable[[Order], Any]) -> T:
    """Run a method's generator to its end, serving every order it yields.

    >>> from clustpsi.orders.orders import LabelCounts
    >>> def ask():
    ...     counts = yield LabelCounts([0])
    ...     return counts + 1
    >>> drive(ask(), lambda order: 41)
    42
    """
    try:
        order = next(work)
        while True:
            order = work.send(serve(order))
    except StopIteration as end:
        result: T = end.value
        return result


def together(works: Sequence[Work[T]]) -> Work[list[T]]:
    """Run several generators side by side: their current orders go out together, until all have ended."""
    results: dict[int, T] = {}
    pending: dict[int, Order] = {}

    def advance(i: int, reply: Any) -> None:
        try:
            pending[i] = next(works[i]) if reply is _FIRST else works[i].send(reply)
        except StopIteration as end:
            pending.pop(i, None)
            results[i] = end.value

    for i in range(len(works)):
        advance(i, _FIRST)
    while pending:
        asked = list(pending)
        replies = yield Together(tuple(pending[i] for i in asked))
        for i, reply in zip(asked, replies, strict=True):
            advance(i, reply)
    return [results[i] for i in range(len(works))]


_FIRST = object()
