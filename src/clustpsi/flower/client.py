"""The ClientApp of nodes that train clustpsi's models: it passes every message to the node and returns its answer.

Flower starts a process for each message.  So ``clustpsi federation node`` keeps the node's rows and compiled programs
in a separate process, which this app asks.  Without that process the app reads the rows for each message.
"""

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from clustpsi.flower.records import as_envelope, as_records, keep_arrays, kept_arrays, secret_of
from clustpsi.nodes.codec import Envelope


def app_for(answer: Callable[[Envelope, Context], Envelope]) -> ClientApp:
    """A ClientApp that answers every message with a function."""
    made = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        return Message(as_records(answer(as_envelope(message.content), context)), reply_to=message)

    for category in (made.query, made.train, made.evaluate):
        category()(handle)
    return made


def _answer(envelope: Envelope, context: Context) -> Envelope:
    socket = context.node_config.get("socket")
    if socket:
        from clustpsi.flower.worker import ask

        return ask(str(socket), dict(context.run_config), envelope)
    from clustpsi.flower.sources import node_for  # imported here: it loads what reading tables needs

    node = node_for(context.node_config, context.run_config, secret_of(context))
    node.held.keep(kept_arrays(context.state))
    answer = node.handle(envelope)
    keep_arrays(context.state, node.held.arrays())
    return answer


app = app_for(_answer)
