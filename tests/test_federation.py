"""A federation: what it knows of its clients, and how it is built from a data set."""

import subprocess
import sys

import numpy as np
import pytest

from clustpsi.datasets.base import ClientIds, Dataset
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.features import ArrayRows, Features
from clustpsi.federation import Federation, build_federation


class Seen(Features):
    """Features that tell which rows were summarized: a set of them is the summary, and fitted."""

    def __init__(self, rows=()):
        self.rows = frozenset(rows)

    def summarize(self, rows):
        return Seen(rows.values.tolist())

    def summary_from_dict(self, values):
        raise NotImplementedError

    def fit(self, summary):
        return summary

    def transform(self, rows):
        return np.isin(rows.values, list(self.rows))


def toy(labels=None, **parts):
    """A data set whose features tell which rows they were prepared with."""
    labels = np.arange(400, dtype=np.int32) % 4 if labels is None else np.asarray(labels, dtype=np.int32)

    return Dataset("toy", labels, tuple("abcd"), ArrayRows(np.arange(len(labels))), Seen(), model="logistic", **parts)


def with_test_part():
    return toy(official_test=np.arange(300, 400))


def rows_of(federation):
    return np.sort(np.concatenate([*federation.train, *federation.test])).tolist()


def test_what_a_federation_knows():
    dataset = toy([0, 1, 3, 3, 0, 1])
    federation = Federation(
        dataset, (np.array([3, 0]), np.array([2])), (np.array([4]), np.array([], dtype=int)), ("x", "y")
    )
    assert federation.num_clients == 2
    assert federation.num_classes == 4
    assert federation.label_counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1]]
    assert federation.label_counts.dtype == np.int64
    assert federation.train_sizes.tolist() == [2, 1]
    assert federation.test_sizes.tolist() == [1, 0]
    assert federation.train_rows.tolist() == [0, 2, 3]
    assert federation.features.tolist() == [True, False, True, True, False, False]
    assert federation.features is federation.features
    assert federation.labels is dataset.labels


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        ([[0], [1]], [[2]], "xy", "got 2, 1 and 2"),
        ([], [], "", "got 0, 0 and 0"),
        ([[0], []], [[2], [1]], "xy", "client 'y' has no training rows"),
        ([[0], [400]], [[2], [1]], "xy", "from 0 to 399"),
        ([[0], [-1]], [[2], [1]], "xy", "from 0 to 399"),
        ([[0], [1]], [[2], [0]], "xy", "one client only"),
        ([[0], [1]], [[0], [2]], "xy", "one client only"),
    ],
)
def test_an_impossible_federation_is_refused(train, test, names, message):
    with pytest.raises(ClustPSIError, match=message):
        Federation(toy(), tuple(np.array(r, int) for r in train), tuple(np.array(r, int) for r in test), tuple(names))


@pytest.mark.parametrize(("partitioner", "parameter"), [("dirichlet", 1.0), ("similarity", 0.2), ("iid", None)])
def test_without_an_official_test_part_every_client_sets_a_fifth_aside(partitioner, parameter):
    federation = build_federation(toy(), partitioner, parameter, 5, 42)
    assert rows_of(federation) == list(range(400))
    assert federation.client_names == ("0", "1", "2", "3", "4")
    sizes = federation.train_sizes + federation.test_sizes
    assert federation.test_sizes.tolist() == np.ceil(sizes / 5).tolist()
    again = build_federation(toy(), partitioner, parameter, 5, 42, split="client_80_20")
    assert all(
        (a == b).all() for a, b in zip([*federation.train, *federation.test], [*again.train, *again.test], strict=True)
    )
    other = build_federation(toy(), partitioner, parameter, 5, 43)
    assert any(a.tolist() != b.tolist() for a, b in zip(federation.train, other.train, strict=True))


def test_an_official_test_part_is_dealt_out_by_label():
    federation = build_federation(with_test_part(), "similarity", 0.0, 4, 42)
    assert federation.train_rows.tolist() == list(range(300))
    assert np.sort(np.concatenate(federation.test)).tolist() == list(range(300, 400))
    assert federation.test_sizes.tolist() == [25] * 4
    for train, test in zip(federation.train, federation.test, strict=True):
        assert set(federation.labels[train]) == set(federation.labels[test])


def test_an_official_test_part_anywhere_in_the_data_is_not_trained_on():
    official = np.arange(0, 400, 7)
    federation = build_federation(toy(official_test=official), "iid", None, 6, 42)
    assert not np.isin(federation.train_rows, official).any()
    assert rows_of(federation) == list(range(400))


def test_an_official_test_part_can_be_left_out_or_merged():
    left_out = build_federation(with_test_part(), "iid", None, 5, 42, split="client_80_20")
    assert rows_of(left_out) == list(range(300))
    merged = build_federation(with_test_part(), "iid", None, 5, 42, split="merge_80_20")
    assert rows_of(merged) == list(range(400))
    assert merged.test_sizes.tolist() == [16] * 5
    assert (np.concatenate(merged.train) >= 300).any()


def test_natural_clients_keep_their_rows_and_names():
    ids = np.array(["rome", "oslo", "rome", "oslo", "oslo"] * 80)
    federation = build_federation(toy(client_ids=ClientIds.of(ids)), "natural", None, None, 42)
    assert federation.client_names == ("oslo", "rome")
    for name, train, test in zip(federation.client_names, federation.train, federation.test, strict=True):
        assert set(ids[train]) == set(ids[test]) == {name}
    assert rows_of(federation) == list(range(400))


def test_natural_clients_of_the_official_training_part():
    ids = np.where(np.arange(400) % 3 == 0, "oslo", "rome")
    federation = build_federation(
        toy(client_ids=ClientIds.of(ids), official_test=np.arange(100)), "natural", None, None, 42
    )
    assert federation.train_rows.tolist() == list(range(100, 400))
    assert all(set(ids[train]) == {name} for name, train in zip(federation.client_names, federation.train, strict=True))


def test_natural_clients_with_one_sample_are_left_out_with_a_warning():
    ids = np.array(["many"] * 398 + ["one", "single"])
    with pytest.warns(ClustPSIWarning, match="2 of 3 natural clients of toy have a single sample"):
        federation = build_federation(toy(client_ids=ClientIds.of(ids)), "natural", None, None, 42)
    assert federation.client_names == ("many",)
    assert rows_of(federation) == list(range(398))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dirichlett", 1.0, 5, 42), "did you mean 'dirichlet'"),
        (("iid", None, 5, 42, "clien_80_20"), "did you mean 'client_80_20'"),
        (("iid", None, 5, 42, "official_matched"), "toy has no official test part"),
        (("iid", None, 5, 42, "merge_80_20"), "toy has no official test part"),
        (("dirichlet", None, 5, 42), "takes alpha as its non-IID parameter, but got None"),
        (("similarity", None, 5, 42), "takes S as its non-IID parameter, but got None"),
        (("iid", 0.5, 5, 42), "takes no non-IID parameter, but got 0.5"),
        (("natural", 0.5, None, 42), "takes no non-IID parameter, but got 0.5"),
        (("natural", None, 5, 42), "5 clients cannot be asked for"),
        (("natural", None, None, 42), "toy has no natural clients"),
        (("iid", None, None, 42), "needs a number of clients"),
    ],
)
def test_what_cannot_be_built_is_named(arguments, message):
    with pytest.raises(ClustPSIError, match=message):
        build_federation(toy(), *arguments)


def test_natural_clients_that_all_have_one_sample_cannot_be_used():
    with pytest.raises(ClustPSIError, match="no natural client"):
        build_federation(toy(client_ids=ClientIds.of(map(str, range(400)))), "natural", None, None, 42)


def test_counting_needs_no_jax():
    program = "import sys, clustpsi.federation, clustpsi.skew; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_test_rows_all_rows_train():
    ids = ClientIds.of("x" * 5 + "y" + "z" * 4)
    dataset = toy([0, 1] * 5, client_ids=ids, official_test=np.array([1, 9]))
    federation = build_federation(dataset, "natural", None, None, 0, "none")
    assert [rows.tolist() for rows in federation.train] == [[0, 1, 2, 3, 4], [5], [6, 7, 8, 9]]
    assert federation.client_names == ("x", "y", "z")  # a single row is enough to train on
    assert federation.test_sizes.tolist() == [0, 0, 0]
    assert rows_of(build_federation(toy(), "iid", None, 4, 0, "none")) == list(range(400))
