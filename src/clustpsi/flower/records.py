"""Envelopes as Flower's records, and the arrays that apps keep in their state between messages."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from numpy.typing import NDArray

from clustpsi.flower.secret import new_secret, secret_in
from clustpsi.nodes.codec import Envelope, Undecodable

_KEY, _TEXT, _ARRAYS, _MEMORY = "clustpsi", "text", "clustpsi-arrays", "clustpsi-node"
# How an array is written: its bytes as they are.  Flower's own way, a NumPy file for each, takes ten times as long.
_BYTES = "clustpsi.bytes"


def as_records(envelope: Envelope, made: dict[str, Array] | None = None) -> RecordDict:
    """An envelope as records; an array is made for Flower once for all envelopes with the same ``made``."""
    made = {} if made is None else made
    arrays = ArrayRecord()
    for name, each in envelope.arrays.items():
        if name not in made:
            made[name] = _array(each)
        arrays[name] = made[name]
    return RecordDict({_KEY: ConfigRecord({_TEXT: envelope.text}), _ARRAYS: arrays})


def _array(array: NDArray[Any]) -> Array:
    return Array(array.dtype.str, array.shape, _BYTES, array.tobytes())


def _numbers(array: Array) -> NDArray[Any]:
    if array.stype != _BYTES:
        raise TypeError(f"an array is {array.stype!r} and not {_BYTES!r}")
    return np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape)


def as_envelope(records: RecordDict) -> Envelope:
    """The envelope that records hold."""
    try:
        text: Any = records[_KEY][_TEXT]
        arrays: Any = records.get(_ARRAYS, {})
        return Envelope(str(text), {name: _numbers(each) for name, each in arrays.items()})
    except Exception as error:  # another app may have sent anything
        raise Undecodable(f"the message is none of clustpsi's ({error!r})") from None


def keep_arrays(state: RecordDict, arrays: dict[str, Any]) -> None:
    """Keep arrays in an app's state."""
    state[_ARRAYS] = as_records(Envelope("", arrays))[_ARRAYS]


def kept_arrays(state: RecordDict) -> dict[str, Any]:
    """The arrays that an app's state keeps."""
    kept: Iterable[Any] = state.array_records.get(_ARRAYS, {}).items()
    return {name: _numbers(each) for name, each in kept}


def secret_of(context: Context) -> str:
    """The secret from which a node makes its noise: that in its file or, without one, one drawn for each run."""
    if (kept := secret_in(context.node_config)) is not None:
        return kept
    if _MEMORY not in context.state.config_records:
        context.state[_MEMORY] = ConfigRecord({"secret": new_secret()})
    return str(context.state.config_records[_MEMORY]["secret"])
