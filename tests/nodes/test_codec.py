"""Messages: whatever goes in comes out; what the receiver holds does not travel again; rubbish is refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from clustpsi.nodes.codec import LEAST_KEPT, MOST_KEPT, Envelope, Held, Missing, Undecodable, pack, unpack, without
from clustpsi.nodes.node import Node
from clustpsi.nodes.protocol import CODEC, Agreement, Call, Describe, Lacking, Serve, Terms, Training, speaker
from clustpsi.orders import Deployment, Evaluate, Model, Train, part
from clustpsi.runs.config import Config
from federations import federate_here, parts_of

PLAIN = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8) | st.floats(allow_nan=False)
ARRAYS = arrays_of.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]), arrays_of.array_shapes(min_dims=0, min_side=0)
)
LARGE = st.integers(-2, 2).map(lambda shift: np.arange(LEAST_KEPT // 8 + shift, dtype=np.float64))
TURNED = st.just(np.arange(LEAST_KEPT, dtype=np.int64).reshape(2, -1).T)
VALUES = st.recursive(
    PLAIN | ARRAYS | LARGE | TURNED,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        is_same = isinstance(other, np.ndarray) and one.dtype == other.dtype and one.shape == other.shape
        return is_same and one.tobytes() == other.tobytes()  # type: ignore[union-attr]
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@given(VALUES)
def test_values_come_out_as_they_went_in(value: object) -> None:
    assert same(CODEC.read(CODEC.write(value)), value)
    assert same(CODEC.read(unpack(pack(CODEC.write(value)))), value)


def test_a_message_in_a_message_comes_out_as_it_went_in() -> None:
    inner, other = CODEC.write((model(1), "é", 3)), model(2).parameters
    outer = CODEC.write((inner, other))
    assert len(outer.arrays) == 2
    came, beside = CODEC.read(unpack(pack(outer)))
    assert came.text == inner.text and same(beside, other)
    assert same(CODEC.read(came), CODEC.read(inner))
    held = Held()
    held.keep(outer.arrays)
    assert same(CODEC.read(CODEC.read(Envelope(outer.text, {}), held)[0]), CODEC.read(inner))
    with pytest.raises(Missing) as missing:
        CODEC.read(Envelope(outer.text, {}))
    assert missing.value.hashes == sorted(outer.arrays)


def model(value: float, size: int = 2000) -> Model:
    return Model(np.full(size, value, np.float32), np.zeros(0, np.float32))


def test_an_order_for_one_client_has_what_that_client_needs_and_no_more() -> None:
    models = [model(1), model(2), model(3)]
    order = Train(np.array([4, 7]), models[0], weights=np.array([1.0, 2.0]), mixed_of=models, anchors=models[1:])
    own = CODEC.read(CODEC.write(part(order, 1)))
    assert own.clients.tolist() == [7] and own.weights is None and own.mixed_of == ()
    assert own.anchors[0].parameters[0] == 3 and len(own.anchors) == 1
    deployed = Deployment(tuple(models), np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0]]))
    one = part(Evaluate(np.array([4, 7]), deployed), 0)
    assert len(one.deployment.models) == 1 and one.deployment.models[0].parameters[0] == 3
    assert one.deployment.of_client.tolist() == [0] and one.deployment.log_prior.tolist() == [[0.0, 1.0]]


def test_a_model_that_the_receiver_holds_does_not_travel_again() -> None:
    held, believed = Held(), Held()
    first = CODEC.write((model(1), model(2)))
    held.keep(first.arrays)
    believed.note(first.arrays)
    second = without(CODEC.write((model(2), model(3))), believed)
    assert [array[0] for array in second.arrays.values()] == [3]
    assert [each.parameters[0] for each in CODEC.read(second, held)] == [2, 3]


def test_both_sides_forget_alike() -> None:
    held, believed = Held(), Held()
    for value in range(3 * MOST_KEPT):
        envelope = CODEC.write(model(value))
        held.keep(envelope.arrays)
        believed.note(envelope.arrays)
    assert held.keys() == believed.keys() and len(held.keys()) == MOST_KEPT


def test_a_node_that_has_forgotten_says_so(tmp_path: Path) -> None:
    (node,) = parts_of(Config(num_clients=2, non_iid_param=1.0), 2)[:1]
    terms = Terms(0, tuple("0123456789"), {"shape": (64,), "dtype": "float32", "divisor": 16.0}, None, 0)
    training = Training({}, "logistic", None, {})
    agreed = CODEC.write(Agreement(terms, training))
    orders = (Evaluate(np.arange(1), Deployment((model(1),), np.arange(1))),)
    call = CODEC.write(Call(speaker(), Serve(agreed, orders, 1)))
    answer = CODEC.read(node.handle(Envelope(call.text, {})))
    assert isinstance(answer.body, Lacking)
    assert set(answer.body.hashes) == set(call.arrays)


def test_what_a_client_holds_is_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of FedAvg's models each travels to a node once: to be scored, and is there when it is trained."""
    travelled: list[str] = []
    handle = Node.handle

    def listening(self: Node, envelope: Envelope) -> Envelope:
        if self is nodes[0]:
            travelled.extend(envelope.arrays)
        return handle(self, envelope)

    monkeypatch.setattr(Node, "handle", listening)
    config = Config(num_clients=3, non_iid_param=1.0, agg_method="fedavg", comm_rounds=3, local_epochs=1, fraction=1.0)
    nodes = [*parts_of(config, 3)]
    federate_here(config, tmp_path, nodes)
    assert len(travelled) == len(set(travelled)) == 4  # the initial model and one of each round


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        '{"": 1}',
        '{"type": "Popen"}',
        '{"type": "Train"}',
        '{"array": 3}',
        '{"array": {"type": "dict"}}',
        '{"array": []}',
        '{"message": "text"}',
        '{"message": ["{}", [[]]]}',
        '{"array": ["<f8", [1], "AAAA"]}',
        '{"array": ["<f8", [2], "AAAAAAAAAAA="]}',
        '{"array": ["|O", [1], "AAAAAAAAAAA="]}',
        '{"array": ["<f8", [1], 3]}',
        '{"array": ["no type", [1], "AAAAAAAAAAA="]}',
        "[" * 5000,
    ],
)
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises((Undecodable, Missing)):
        value = CODEC.read(Envelope(text, {}))
        assert isinstance(value, Call), "it is no call"
        raise Undecodable


def test_objects_do_not_travel() -> None:
    for number in (1, LEAST_KEPT):
        with pytest.raises(TypeError, match="Python objects"):
            CODEC.write(np.full(number, None, object))


def test_bytes_that_are_no_message_are_refused() -> None:
    whole = pack(CODEC.write(Call(speaker(), Describe())))
    for damaged in (b"", b"PK", whole[:-20], whole[::-1]):
        with pytest.raises(Undecodable):
            unpack(damaged)
