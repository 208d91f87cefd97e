"""Envelopes as Flower's records: whatever goes in comes out, and rubbish is refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from clustpsi.flower.records import as_envelope, as_records, keep_arrays, kept_arrays
from clustpsi.nodes.codec import Envelope, Undecodable

ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=5),
    arrays_of.arrays(
        st.sampled_from(["<f4", "<f8", ">f4", "<i8", "|b1", "<U3"]), arrays_of.array_shapes(min_dims=0, min_side=0)
    ),
    max_size=3,
)


def assert_same(one: dict[str, NDArray[np.generic]], other: dict[str, NDArray[np.generic]]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
        assert array.tobytes() == other[name].tobytes()


@given(st.text(), ARRAYS)
def test_envelopes_come_out_as_they_went_in(text: str, arrays: dict[str, NDArray[np.generic]]) -> None:
    came = as_envelope(as_records(Envelope(text, arrays)))
    assert came.text == text
    assert_same(dict(came.arrays), arrays)
    state = RecordDict()
    keep_arrays(state, arrays)
    assert_same(kept_arrays(state), arrays)


def test_the_order_of_an_array_in_memory_does_not_matter() -> None:
    whole = np.arange(12.0).reshape(3, 4)
    came = as_envelope(as_records(Envelope("", {"turned": whole.T, "every second": whole[:, ::2]})))
    assert came.arrays["turned"].tolist() == whole.T.tolist()
    assert came.arrays["every second"].tolist() == whole[:, ::2].tolist()


def test_an_array_for_many_is_written_once() -> None:
    made: dict[str, Array] = {}
    first, second = (as_records(Envelope(text, {"model": np.ones(3)}), made) for text in "ab")
    assert first["clustpsi-arrays"]["model"] is second["clustpsi-arrays"]["model"] is made["model"]


@pytest.mark.parametrize(
    "array",
    [
        Array(np.ones(2)),  # as Flower writes it
        Array("<f8", (3,), "clustpsi.bytes", bytes(16)),
        Array("<f8", (2,), "clustpsi.bytes", bytes(15)),
        Array("|O", (1,), "clustpsi.bytes", bytes(8)),
        Array("no type", (1,), "clustpsi.bytes", bytes(8)),
    ],
)
def test_an_array_that_is_none_of_ours_is_refused(array: Array) -> None:
    records = RecordDict({"clustpsi": ConfigRecord({"text": "{}"}), "clustpsi-arrays": ArrayRecord({"x": array})})
    with pytest.raises(Undecodable, match=r"none of clustpsi's"):
        as_envelope(records)


def test_records_of_another_app_are_refused() -> None:
    with pytest.raises(Undecodable, match=r"none of clustpsi's"):
        as_envelope(RecordDict({"config": ConfigRecord({"lr": 0.1})}))
