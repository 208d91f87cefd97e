"""A Grid inside this process: runs the same ServerApp and ClientApps as a SuperLink, without processes or a network.

Use it in tests, or to try an app before you deploy it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity  # no public way to make messages outside Flower's processes

RUN = 1
SERVER = 1


class LocalGrid(Grid):
    """Calls ClientApps directly, one node after the other.

    Parameters
    ----------
    apps
        The ClientApp of every node, by the node's number.
    node_config
        Configuration of every node, by the node's number.
    run_config
        Configuration of the run.
    """

    def __init__(
        self,
        apps: Mapping[int, ClientApp],
        node_config: Mapping[int, Mapping[str, Any]] | None = None,
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        self._apps = dict(apps)
        self._contexts = {
            node: Context(RUN, node, dict((node_config or {}).get(node, {})), RecordDict(), dict(run_config or {}))
            for node in apps
        }
        self._replies: dict[str, Message] = {}
        self._sent = 0
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, 0

    def set_run(self, run: Any) -> None:
        raise NotImplementedError("a grid inside this process has one run")

    @property
    def run(self) -> Any:
        raise NotImplementedError("a grid inside this process has one run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        tickets = []
        for message in messages:
            self._sent += 1
            ticket = f"message-{self._sent}"
            message.metadata.__dict__["_message_id"] = ticket
            self._replies[ticket] = self._reply(message)
            tickets.append(ticket)
        return tickets

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            TaskIdentity.node_id = node
            return self._apps[node](message, self._contexts[node])
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)
        finally:
            TaskIdentity.node_id = SERVER

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(ticket) for ticket in message_ids if ticket in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
