"""Envelopes as Flower's records, and the arrays that apps keep in their state between messages."""

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from clustpsi.nodes.codec import Envelope, Undecodable

_KEY, _TEXT, _ARRAYS, _MEMORY = "clustpsi", "text", "clustpsi-arrays", "clustpsi-node"


def as_records(envelope: Envelope) -> RecordDict:
    """An envelope as records."""
    arrays = ArrayRecord({name: Array(np.ascontiguousarray(each)) for name, each in envelope.arrays.items()})
    return RecordDict({_KEY: ConfigRecord({_TEXT: envelope.text}), _ARRAYS: arrays})


def as_envelope(records: RecordDict) -> Envelope:
    """The envelope that records hold."""
    try:
        text: Any = records.config_records[_KEY][_TEXT]
        arrays: Any = records.array_records.get(_ARRAYS, {})
        return Envelope(str(text), {name: each.numpy() for name, each in arrays.items()})
    except Exception as error:  # another app may have sent anything
        raise Undecodable(f"the message is none of clustpsi's ({error!r})") from None


def keep_arrays(state: RecordDict, arrays: dict[str, Any]) -> None:
    """Keep arrays in an app's state."""
    state[_ARRAYS] = as_records(Envelope("", arrays))[_ARRAYS]


def kept_arrays(state: RecordDict) -> dict[str, Any]:
    """The arrays that an app's state keeps."""
    kept: Iterable[Any] = state.array_records.get(_ARRAYS, {}).items()
    return {name: each.numpy() for name, each in kept}


def secret_of(context: Context) -> str:
    """The secret from which a node makes its noise: drawn once per run, and never sent."""
    if _MEMORY not in context.state.config_records:
        context.state[_MEMORY] = ConfigRecord({"secret": secrets.token_hex(16)})
    return str(context.state.config_records[_MEMORY]["secret"])
