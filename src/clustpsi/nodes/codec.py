"""Orders and answers as messages: plain data with arrays beside it.

The codec walks over dataclasses, records, arrays and plain values.  So a new order needs nothing here but its name in
the list.  Small arrays are part of the text.  A larger one is named by a hash of its content.  So an array that occurs
twice travels once, and one that the receiver already holds does not travel at all.
"""

import hashlib
import io
import json
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from clustpsi.orders import Deployment, Evaluated, HoldOut, Model, Order, Trained

Array = NDArray[Any]

# In bytes.  Smaller arrays are part of the text: keeping them would cost more than it saves.
LEAST_KEPT = 1024
# How many of the latest arrays both sides keep: enough for what two rounds in a row share.
MOST_KEPT = 64

_TYPE, _ARRAY, _LIST, _TEXT, _INNER = "type", "array", "list", "text", "message"
_PLAIN = (str, bool, int, float)


class Undecodable(Exception):
    """A message that this module did not write, and why it cannot be read."""


class Missing(Undecodable):
    """A message without some arrays, because the sender believed that the receiver holds them."""

    def __init__(self, hashes: Iterable[str]) -> None:
        super().__init__("arrays that it names are missing")
        self.hashes = sorted(hashes)


class Envelope(NamedTuple):
    """A message: JSON, and large arrays by their hashes.

    It may be part of another one, so that whoever knows its text need not read it again.
    """

    text: str
    arrays: Mapping[str, Array]


class Codec:
    """Writes and reads values of some types.

    Parameters
    ----------
    types
        Dataclasses and records that values may contain, besides those of orders.
    """

    def __init__(self, *types: type) -> None:
        known = (*get_args(Order), Deployment, Evaluated, HoldOut, Model, Trained, *types)
        self._types = {each.__name__: each for each in known}
        self._keys = {each: {name: f"={name}" for name in _names(each)} for each in known}

    def write(self, value: Any) -> Envelope:
        """A value as a message with all of its large arrays."""
        arrays: dict[str, Array] = {}
        return Envelope(json.dumps(self._plain(value, arrays)), arrays)

    def read(self, envelope: Envelope, held: "Held | None" = None) -> Any:
        """The value of a message; arrays that it lacks must be among those held."""
        kept = {} if held is None else held.arrays()
        absent: set[str] = set()  # from the message

        def array(name: str) -> Any:
            if name in envelope.arrays:
                return envelope.arrays[name]
            absent.add(name)
            return kept.get(name)

        def value(plain: dict[str, Any]) -> Any:
            """What an object of JSON stands for, whose entries are values already."""
            if _ARRAY in plain:
                given = plain[_ARRAY]
                return _small(*given) if isinstance(given, list) else array(given)
            if _LIST in plain:
                return tuple(plain[_LIST])
            if _INNER in plain:
                text, names = plain[_INNER]
                return Envelope(text, {name: array(name) for name in names})
            entries = {key[1:]: each for key, each in plain.items() if key[0] == "="}
            return entries if plain[_TYPE] == "dict" else self._types[plain[_TYPE]](**entries)

        try:
            whole = json.loads(envelope.text, object_hook=value)
            if held is not None:
                held.take(absent & kept.keys())
            if lacking := absent - kept.keys():
                raise Missing(lacking)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise Undecodable(f"the message cannot be read ({error})") from None
        return whole

    def _plain(self, value: Any, arrays: dict[str, Array]) -> Any:
        if value is None or isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError("an array of Python objects cannot travel")
            if value.nbytes < LEAST_KEPT:
                return {_ARRAY: [value.dtype.str, value.shape, b2a_base64(value.tobytes(), newline=False).decode()]}
            name = content_hash(value)
            arrays[name] = value
            return {_ARRAY: name}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Envelope):
            arrays.update(value.arrays)
            return {_INNER: [value.text, list(value.arrays)]}
        keys = self._keys.get(type(value))
        if keys is not None:
            entries = {key: self._plain(getattr(value, name), arrays) for name, key in keys.items()}
            return {_TYPE: type(value).__name__, **entries}
        if isinstance(value, Mapping):
            return {_TYPE: "dict", **{f"={key}": self._plain(each, arrays) for key, each in value.items()}}
        if hasattr(value, "_fields") or is_dataclass(value):
            raise TypeError(f"{type(value).__name__} is not known to this codec")
        return {_LIST: [self._plain(each, arrays) for each in value]}


class Held:
    """The latest arrays that one side keeps, or that it believes the other side keeps."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[str, Array | None] = OrderedDict()

    def keys(self) -> set[str]:
        return set(self._arrays)

    def take(self, names: Iterable[str]) -> dict[str, Array]:
        """Arrays by their hashes; taking them makes them the latest."""
        return {name: self._touched(name) for name in sorted(names)}

    def keep(self, arrays: Mapping[str, Array]) -> None:
        for name, array in sorted(arrays.items()):
            self._arrays[name] = array
            self._arrays.move_to_end(name)
        while len(self._arrays) > MOST_KEPT:
            self._arrays.popitem(last=False)

    def note(self, arrays: Mapping[str, Array]) -> None:
        """Like :meth:`keep`, but for what the other side holds: only the hashes are kept."""
        self.keep(arrays)
        for name in arrays.keys() & self._arrays.keys():
            self._arrays[name] = None

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._arrays.pop(name, None)

    def arrays(self) -> dict[str, Array]:
        return {name: array for name, array in self._arrays.items() if array is not None}

    def _touched(self, name: str) -> Any:
        self._arrays.move_to_end(name)
        return self._arrays[name]


def content_hash(array: Array) -> str:
    """A name for an array's type, shape and values."""
    digest = hashlib.blake2b(f"{array.dtype.str} {array.shape} ".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _small(dtype: str, shape: list[int], content: str) -> Array:
    """An array that is part of the text."""
    return np.frombuffer(a2b_base64(content), dtype).reshape(shape)


def pack(envelope: Envelope) -> bytes:
    """A message as bytes."""
    packed = io.BytesIO()
    text: Any = np.frombuffer(envelope.text.encode(), np.uint8)
    np.savez(packed, **{_TEXT: text, **envelope.arrays})
    return packed.getvalue()


def unpack(packed: bytes) -> Envelope:
    """The message that :func:`pack` made the bytes of."""
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            arrays = dict(archive)
        return Envelope(arrays.pop(_TEXT).tobytes().decode(), arrays)
    except Exception as error:  # damaged bytes make the parsers of ZIP and NPY raise all kinds of errors
        raise Undecodable(f"the message cannot be read ({error!r})") from None


def without(envelope: Envelope, held: Held) -> Envelope:
    """The message without the arrays that the receiver holds."""
    known = held.keys()
    held.take(envelope.arrays.keys() & known)
    return envelope._replace(arrays={name: array for name, array in envelope.arrays.items() if name not in known})


def _names(record: Any) -> Iterable[str]:
    """Of the fields of a dataclass or a record."""
    return record._fields if hasattr(record, "_fields") else (each.name for each in fields(record))
