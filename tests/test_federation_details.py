"""Federations: whose seed the split follows, and whose name a client has."""

import numpy as np
import pytest

from clustpsi.datasets.base import ClientIds, Dataset
from clustpsi.errors import ClustPSIWarning
from clustpsi.features import as_they_are
from clustpsi.federation import Federation, build_federation

LABELS = np.arange(120, dtype=np.int32) % 4
IDS = np.array(["c", "a", "d", "b"] * 30)


def birds(client_ids: np.ndarray = IDS, official_test: np.ndarray | None = None) -> Dataset:
    features = np.zeros((len(client_ids), 1), np.float32)
    labels = LABELS[: len(client_ids)]
    return Dataset("birds", labels, tuple("wxyz"), *as_they_are(features), "-", official_test, ClientIds.of(client_ids))


def held_out(dataset: Dataset, seed: int, split: str = "auto") -> list[list[int]]:
    return [sorted(rows.tolist()) for rows in build_federation(dataset, "natural", None, None, seed, split).test]


def test_a_split_follows_the_seed_where_the_partition_does_not() -> None:
    assert held_out(birds(), 1) == held_out(birds(), 1) != held_out(birds(), 2)
    mixed = np.array(["c", "a", "d", "b", "a"] * 24)  # so that clients share classes, and dealing out needs chance
    official = birds(mixed, np.arange(90, 120))
    assert held_out(official, 1) == held_out(official, 1) != held_out(official, 2)


def test_a_validation_split_follows_its_seed_and_leaves_single_rows_to_train_on() -> None:
    rows = np.arange(121)
    dataset = Dataset("toy", np.zeros(121, np.int32), ("w", "x"), *as_they_are(rows[:, None]), "-")
    federation = Federation(dataset, (rows[:100], rows[100:101]), (rows[101:120], rows[120:]), ("many", "one"))
    first, again, second = (federation.for_validation(seed) for seed in (1, 1, 2))
    assert first.test[0].tolist() == again.test[0].tolist() != second.test[0].tolist()
    assert len(first.test[0]) == 20 and set(first.test[0]) | set(first.train[0]) == set(range(100))
    assert first.train[1].tolist() == [100] and first.test[1].tolist() == []


def test_clients_keep_their_names_where_others_are_left_out() -> None:
    ids = np.array(["b", "d", "d", "a", "b", "d", "c", "b"])
    with pytest.warns(ClustPSIWarning, match="2 of 4 natural clients"):
        federation = build_federation(birds(ids), "natural", None, None, 3)
    assert federation.client_names == ("b", "d")
    for name, train, test in zip(federation.client_names, federation.train, federation.test, strict=True):
        assert set(ids[np.concatenate([train, test])]) == {name}
