"""Partitions and skew at the edges of what they take."""

import re

import numpy as np
import pytest

from clustpsi import partition, skew
from clustpsi.errors import ClustPSIError, InfeasiblePartition


def test_an_infeasible_partition_reports_the_best_pass_and_not_the_last() -> None:
    labels = np.random.RandomState(7).choice(2, 5000, p=[0.631, 0.369])
    reported = []
    for passes in range(1, 13):
        with pytest.raises(InfeasiblePartition) as error:
            partition.dirichlet(labels, 30, 0.3, 42, max_passes=passes)
        (most,) = re.findall(r"never had more than (\d+)", str(error.value))
        reported.append(int(most))
    assert reported == sorted(reported)
    assert 0 < reported[0] < reported[-1] < 10


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [(77, [14, 21, 15, 10]), (426, [15, 15, 15, 15]), (1261, [16, 13, 16, 15]), (2282, [11, 17, 17, 15])],
)
def test_a_row_that_rounding_would_lose_counts_as_the_last_clients(seed: int, sizes: list[int]) -> None:
    """Shares of a class add up to a hair less than 1: its last row decides who has enough, and who has room."""
    labels = np.arange(60) % 3
    parts = partition.dirichlet(labels, 4, 1.0, seed, min_samples=10, max_passes=1)
    assert [len(rows) for rows in parts] == sizes


def test_a_pass_in_which_a_class_finds_no_client_with_room_has_failed() -> None:
    """At this alpha one client draws a whole class: who has class 0 is full and can take neither of the others."""
    labels, found = np.repeat([0, 1, 2], [6, 2, 2]), []
    for seed in range(40):
        try:
            parts = partition.dirichlet(labels, 2, 1e-3, seed, min_samples=1, max_passes=1)
        except InfeasiblePartition:
            continue
        found.append(seed)
        assert sorted(sorted(set(labels[rows].tolist())) for rows in parts) == [[0], [1, 2]]
    assert found == [0, 6, 11, 23, 37]


@pytest.mark.parametrize("clients", [2**16, 2**16 + 1])
def test_as_many_natural_clients_as_a_16_bit_number_can_count_and_one_more(clients: int) -> None:
    ids = np.tile(np.arange(clients), 2)
    parts, names = partition.natural(ids)
    assert len(names) == clients
    first, last = names.index("0"), names.index(str(clients - 1))
    assert parts[first].tolist() == [0, clients] and parts[last].tolist() == [clients - 1, 2 * clients - 1]


def test_a_reference_may_lack_a_class_and_miss_one_by_rounding_only() -> None:
    counts = [[3, 1, 2], [2, 6, 0]]
    terms = skew.psi_terms(counts, reference=[0.5, 0.5, 0.0])
    assert (terms[:, 2] == 0).all() and (terms[:, :2] > 0).any()
    skew.psi(counts, reference=[0.5, 0.25, 0.25 + 1e-7])
    for wrong in ([0.5, 0.25, 0.25 + 1e-5], [0.5, 0.25, 0.25 - 1e-5], [0.5, 0.6, -0.1], [0.5, np.nan, 0.5]):
        with pytest.raises(ClustPSIError, match="reference must hold probabilities"):
            skew.psi(counts, reference=wrong)
