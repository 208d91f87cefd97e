"""Flower's Grid as the transport of messages to nodes."""

from collections.abc import Iterable, Mapping

from flwr.app import Array, Message
from flwr.serverapp import Grid

from clustpsi.flower.records import as_envelope, as_records
from clustpsi.nodes.codec import Envelope, Undecodable


class GridTransport:
    """A :class:`~clustpsi.nodes.server.Transport` over a Grid.

    Parameters
    ----------
    grid
        Flower's way to its nodes.
    lifetime
        Seconds after which a message expires, because the server no longer waits for its answer.
    """

    def __init__(self, grid: Grid, lifetime: float) -> None:
        self._grid, self._lifetime = grid, lifetime
        self._node_of: dict[str, int] = {}

    def nodes(self) -> set[int]:
        return set(self._grid.get_node_ids())

    def send(self, messages: Mapping[int, Envelope], kind: str, group: str) -> dict[str, int]:
        """Send one message to each node: each in a push of its own, because Flower limits the size of a push."""
        tickets: dict[str, int] = {}
        made: dict[str, Array] = {}
        for node, envelope in messages.items():
            message = Message(
                as_records(envelope, made), dst_node_id=node, message_type=kind, group_id=group, ttl=self._lifetime
            )
            (ticket,) = self._grid.push_messages([message]) or (None,)
            # Flower gives no ticket for a message that it refuses: that node will not answer.
            tickets[ticket or f"refused-{node}"] = node
        return tickets

    def receive(self, tickets: Iterable[str]) -> dict[str, Envelope | str]:
        wanted = list(tickets)
        came: dict[str, Envelope | str] = {
            ticket: "Flower did not take the message for it" for ticket in wanted if ticket.startswith("refused-")
        }
        for message in self._grid.pull_messages([ticket for ticket in wanted if ticket not in came]):
            ticket = message.metadata.reply_to_message_id
            if message.has_error():
                came[ticket] = f"Flower reports error {message.error.code}: {message.error.reason}"
                continue
            try:
                came[ticket] = as_envelope(message.content)
            except Undecodable as error:
                came[ticket] = f"its answer is malformed: {error}"
        return came
