"""Your own client in any framework: three plain functions become a ClientApp."""

from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from clustpsi.errors import ClustPSIError
from clustpsi.flower.client import app_for
from clustpsi.flower.records import keep_arrays, kept_arrays, secret_of
from clustpsi.flower.secret import KEY
from clustpsi.nodes.codec import Envelope
from clustpsi.nodes.own import OwnClient, OwnNode


def client_app(**functions: Any) -> ClientApp:
    """A ClientApp from three plain functions and a fourth that gives the initial model.

    Parameters
    ----------
    functions
        The attributes of :class:`~clustpsi.nodes.own.OwnClient`: ``label_counts``, ``train``, ``evaluate`` and
        ``initial``; optionally ``losses``, ``takes`` and ``model``.
    """
    client = OwnClient(**functions)

    def answer(envelope: Envelope, context: Context) -> Envelope:
        config = context.node_config
        name = config.get("name", config.get("partition-id"))
        if name is None:
            raise ClustPSIError("this node has no name: give it one in its --node-config (name=...)")
        seen = {key: value for key, value in config.items() if key != KEY}  # the functions need not know
        node = OwnNode(str(name), client, seen, secret_of(context))
        node.held.keep(kept_arrays(context.state))
        reply = node.handle(envelope)
        keep_arrays(context.state, node.held.arrays())
        return reply

    return app_for(answer)
