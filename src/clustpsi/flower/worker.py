"""A process that keeps a node's rows and compiled programs between messages.

The ClientApp asks it over a local socket, in a folder that only this user can enter.
"""

import json
import threading
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.flower.secret import new_secret, secret_in
from clustpsi.nodes.codec import Envelope, Undecodable, pack, unpack


class Worker:
    """Answers for one node.

    Parameters
    ----------
    socket
        Where it listens.
    node_config
        Which rows the node has, and which file its secret is in, if any.
    """

    def __init__(self, socket: Path, node_config: Mapping[str, Any]) -> None:
        self._node_config = dict(node_config)
        self._secret = secret_in(node_config) or new_secret()
        self._nodes: dict[str, Any] = {}
        self._listener = Listener(str(socket), family="AF_UNIX")
        self._is_closed = False
        self._thread = threading.Thread(target=self._listen, daemon=True, name="node")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        self._listener.close()

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                with self._listener.accept() as connection:
                    self._answer(connection)
            except (OSError, EOFError, ValueError, Undecodable):  # the caller is gone or sent garbage, or close()
                continue

    def _answer(self, connection: "Connection[Any, Any]") -> None:
        run_config, envelope = json.loads(connection.recv_bytes()), unpack(connection.recv_bytes())
        connection.send_bytes(pack(self.handle(run_config, envelope)))

    def handle(self, run_config: Mapping[str, Any], envelope: Envelope) -> Envelope:
        """The node's answer to a message of a run."""
        from clustpsi.flower.sources import node_for
        from clustpsi.nodes.node import refusal

        key = json.dumps({name: value for name, value in run_config.items() if name not in _ELSEWHERE}, sort_keys=True)
        if key not in self._nodes:
            for node in self._nodes.values():
                node.close()
            try:
                self._nodes = {key: node_for(self._node_config, run_config, self._secret)}
            except Exception as error:  # the server gets an answer, whatever is wrong with the rows
                reason = str(error) if isinstance(error, ClustPSIError) else repr(error)
                return refusal(reason, str(self._node_config.get("name", self._node_config.get("partition-id", ""))))
        answer: Envelope = self._nodes[key].handle(envelope)
        return answer


_ELSEWHERE = ("resume", "fresh", "events", "output", "comm-rounds", "deadline", "connect", "min-answers")


def ask(socket: str, run_config: Mapping[str, Any], envelope: Envelope) -> Envelope:
    """The answer of the node behind a socket."""
    try:
        with Client(socket, family="AF_UNIX") as connection:
            connection.send_bytes(json.dumps(dict(run_config)).encode())
            connection.send_bytes(pack(envelope))
            return unpack(connection.recv_bytes())
    except (OSError, EOFError, Undecodable) as error:
        raise ClustPSIError(f"the node's process does not answer ({error!r}): start the node again") from None
