"""Orders and what drives them: means of models, and generators side by side."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.orders import (
    Deployment,
    HeldOutLosses,
    HoldOut,
    LabelCounts,
    LabelPresence,
    Losses,
    Model,
    MoversMean,
    NearestModel,
    Order,
    Together,
    Train,
    WeightedMean,
    Work,
    drive,
    joined,
    mean_model,
    together,
    traffic,
)


def model(parameters: list[float], buffers: list[float] | None = None) -> Model:
    return Model(np.array(parameters, np.float32), np.array(buffers or [], np.float32))


def test_a_mean_is_weighted_in_parameters_and_buffers() -> None:
    mean = mean_model([model([1, 2], [10]), model([5, -2], [30])], [3, 1])
    assert mean.parameters.tolist() == [2, 1] and mean.buffers.tolist() == [15]
    assert mean.parameters.dtype == mean.buffers.dtype == np.float32
    assert mean_model([model([1]), model([3])], np.array([5, 5])).parameters.tolist() == [2]


def test_a_mean_of_many_models_keeps_the_digits_of_the_small_ones() -> None:
    many = [model([2.0**24]), *[model([1.0])] * 4095]
    exact = np.float32((2.0**24 + 4095) / 4096)
    assert mean_model(many, np.ones(4096)).parameters[0] == exact
    assert exact != np.float32(2.0**24 / 4096)  # to which a sum in single precision would come


def test_a_mean_of_models_without_weight_is_none_and_such_models_leave_others_as_they_are() -> None:
    mean = WeightedMean()
    assert mean.result() is None
    mean.add(model([1], [2]), 0.0)
    assert mean.result() is None
    mean.add(model([np.inf], [np.nan]), 0.0)
    mean.add(model([3], [4]), 2.0)
    result = mean.result()
    assert result is not None and result.parameters.tolist() == [3] and result.buffers.tolist() == [4]


def test_a_parameter_is_averaged_over_those_who_moved_it() -> None:
    start = model([1, 1, 1, 1, 1, 1, 1, 1, 1], [0])
    first, last = model([3, 1, 1, 1, 1, 1, 1, 1, 1], [2]), model([1, 1, 1, 1, 1, 1, 1, 1, 9], [4])
    mean = MoversMean(start)
    assert mean.result() is None
    mean.add(first, 2.0)  # by index, because it moved little
    mean.add(last, 2.0)
    mean.add(model([9, 2, 3, 4, 5, 6, 7, 1, 1], [8]), 1.0)  # which moved neither of the last two
    mean.add(model([np.inf] * 9, [np.nan]), 0.0)
    result = mean.result()
    assert result is not None
    assert result.parameters.tolist() == [5, 2, 3, 4, 5, 6, 7, 1, 9] and result.buffers.tolist() == [4]
    assert result.parameters.dtype == np.float32


def test_movers_who_all_moved_everything_have_the_plain_mean() -> None:
    rng = np.random.default_rng(0)
    start, *moved = (Model(values, values[:3]) for values in rng.normal(size=(5, 40)).astype(np.float32))
    mean = MoversMean(start)
    for each, weight in zip(moved, (1, 2, 3, 4), strict=True):
        mean.add(each, weight)
    plain, result = mean_model(moved, [1, 2, 3, 4]), mean.result()
    assert result is not None
    np.testing.assert_allclose(result.parameters, plain.parameters, atol=1e-7)
    np.testing.assert_array_equal(result.buffers, plain.buffers)


def test_movers_need_one_start_for_all() -> None:
    with pytest.raises(ClustPSIError, match="start from one model"):
        Train(TWO, [START, START], average_over="movers").running_mean()


def test_held_out_rows_are_the_share_on_average_and_leave_one_to_train_on() -> None:
    numbers = [int(HoldOut(0.05, 100).chosen(7, np.random.default_rng(i)).sum()) for i in range(2000)]
    assert set(numbers) == {0, 1} and abs(np.mean(numbers) - 0.35) < 0.04
    rng = np.random.default_rng(0)
    assert [int(HoldOut(0.5, 100).chosen(n, rng).sum()) for n in (0, 1, 2, 1000)] == [0, 0, 1, 100]


def test_joined_deployments_keep_each_parts_models_priors_and_scales() -> None:
    one, two, three = model([1]), model([2]), model([3])
    prior = np.array([[0.1, 0.2], [0.3, 0.4]])
    first, second = Deployment((one,), np.zeros(2, np.int64)), Deployment((two, three), np.array([1, 0]))
    plain = joined([first, second], np.array([1, 0, 0, 1]))
    assert [plain.models[i].parameters[0] for i in plain.of_client] == [3, 1, 1, 2]
    assert plain.log_prior is None and plain.scale is None
    scaled = Deployment((two, three), np.array([1, 0]), prior, np.array([0.5, 0.25]))
    both = joined([first, scaled], np.array([1, 0, 0, 1]))
    assert both.log_prior is not None and both.scale is not None
    assert both.log_prior.tolist() == [[0.1, 0.2], [0, 0], [0, 0], [0.3, 0.4]]
    assert both.scale.tolist() == [0.5, 1, 1, 0.25]


def test_bytes_of_a_model_include_its_buffers() -> None:
    assert model([1, 2, 3], [4, 5]).num_bytes == 20


START, OTHER = model([1, 2, 3], [4]), model([1, 2, 3], [5])  # 16 bytes each
TWO = np.array([0, 4])
READ = HeldOutLosses(TWO, START, HoldOut(0.1, 5), np.zeros((2, 9)), np.ones(3), np.zeros((3, 9)))


@pytest.mark.parametrize(
    ("order", "up", "down"),
    [
        (LabelCounts(TWO), 2 * 9 * 4, 0),
        (LabelPresence(TWO), 2 * 2, 0),  # nine bits are two bytes
        (Losses(TWO, START), 2 * 4, 2 * 16),
        (READ, 2 * 3 * 4, 2 * (16 + 4 * (9 + 3 * 10))),  # a prior and three readings of nine classes go with the model
        (replace(READ, model=[START, OTHER], holds_model=True), 2 * 3 * 4, 2 * 4 * (9 + 3 * 10)),
        (replace(READ, clients=TWO[:0], model=[]), 0, 0),
        (NearestModel(TWO, [START, model([1], [])]), 2 * 2 * 4, 2 * (16 + 4)),
        (Train(TWO, START), 2 * 16, 2 * 16),
        (Train(TWO, [START, OTHER]), 2 * 16, 2 * 16),
        (Train(TWO, START, holds_start=True), 2 * 16, 0),
        (Train(TWO, START, keeps_model=True), 0, 2 * 16),
        (Train(TWO, START, anchors=[START, OTHER]), 2 * 16, 2 * (16 + 16)),
        (Train(TWO, START, anchors=[START, OTHER], mixed_of=[START, OTHER, START]), 2 * 16, 2 * (16 + 3 * 16)),
        (Train(TWO, START, anchors=[START, OTHER], mixed_of=[START], holds_start=True), 2 * 16, 2 * 16),
        (Train(TWO[:0], []), 0, 0),
        (Together((LabelPresence(TWO), Train(TWO, START), LabelCounts(TWO))), 4 + 32 + 72, 32),
    ],
)
def test_bytes_of_an_order(order: Order, up: int, down: int) -> None:
    assert traffic(order, num_classes=9) == (up, down)


def ask(name: int, times: int) -> Work[list[Any]]:
    """A generator that asks for something so many times and gives back the replies."""
    replies = []
    for time in range(times):
        replies.append((yield LabelCounts(np.array([name, time]))))
    return replies


def serve(order: Order) -> Any:
    """Every order is answered with what it asked for."""
    if isinstance(order, Together):
        return tuple(map(serve, order.orders))
    assert isinstance(order, LabelCounts)
    return tuple(order.clients.tolist())


@pytest.mark.parametrize("lengths", [(1, 1), (3, 1, 2), (0, 2, 1), (2, 0, 0), (1, 3, 2, 0)])
def test_every_generator_gets_the_replies_to_its_own_orders(lengths: tuple[int, ...]) -> None:
    results = drive(together([ask(name, times) for name, times in enumerate(lengths)]), serve)
    assert results == [[(name, time) for time in range(times)] for name, times in enumerate(lengths)]


def test_orders_go_out_together_as_long_as_there_are_several() -> None:
    sent = list[int]()

    def counting(order: Order) -> Any:
        assert isinstance(order, Together)
        sent.append(len(order.orders))
        return serve(order)

    drive(together([ask(0, 3), ask(1, 1), ask(2, 2)]), counting)
    assert sent == [3, 2, 1]
