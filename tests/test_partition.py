"""Partitions and splits: FedArtML's indices, who gets how much, and what is refused."""

import hashlib
import math
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustpsi import partition, skew
from clustpsi.dirichlet_loops import _pairwise_sum, first_good_pass
from clustpsi.errors import ClustPSIError, ClustPSIWarning, InfeasiblePartition

quick = settings(max_examples=25, deadline=None)

LABELS = {
    "balanced": np.arange(6000) % 10,
    "fmnist": np.arange(60_000) % 10,  # as many rows and classes as its training part
    "binary": np.random.RandomState(7).choice(2, 5000, p=[0.631, 0.369]),
    "imbalanced": np.random.RandomState(7).choice(6, 4000, p=[0.05, 0.07, 0.1, 0.2, 0.25, 0.33]),
}

# Made with FedArtML 0.1.33 itself under NumPy 2.4: SplitAsFederatedData.dirichlet_method(labels, clients, alpha, seed),
# then the passes it took, the sizes of the smallest and the largest client, the start of the SHA-256 of all clients'
# indices as little-endian int64, client after client, and its distances (Jensen-Shannon, Hellinger, earth mover's).
FEDARTML = [
    (
        "balanced",
        10,
        0.3,
        42,
        1,
        216,
        1049,
        "53c9b1d2e54b2695e680c9a201a420c2",
        (0.5845633251, 0.6901785683, 0.2076162171),
    ),
    (
        "balanced",
        10,
        0.09,
        42,
        1,
        130,
        1045,
        "9844c0669103d1ac707d76f7f86dd1ba",
        (0.7699913169, 0.8705246007, 0.2401943851),
    ),
    (
        "balanced",
        50,
        0.3,
        0,
        1,
        17,
        273,
        "4133a1b3c63e93d267affa6fc55a356d",
        (0.5381022911, 0.7660573708, 0.2258081389),
    ),
    (
        "balanced",
        100,
        0.7,
        1,
        1,
        21,
        155,
        "e2a908012bcc759dd6ff2d58dcca3cbb",
        (0.3877149576, 0.6347741776, 0.2027736727),
    ),
    (
        "fmnist",
        100,
        0.05,
        1,
        807,
        16,
        2846,
        "a629ea9da3e72cd4c85cc0e9639531d1",
        (0.6248848027, 0.8956685949, 0.2021465056),
    ),
    (
        "binary",
        10,
        0.3,
        42,
        1,
        198,
        1220,
        "4c04dae8edc21319291e078d71774ee0",
        (0.4808949423, 0.6278973247, 0.2686769399),
    ),
    ("binary", 50, 0.7, 3, 1, 14, 338, "4194f8169d310cf6480396e24a578e2c", (0.2561600821, 0.4119026578, 0.4272742076)),
    (
        "binary",
        30,
        0.3,
        42,
        72,
        10,
        489,
        "dbb71e5b246a363d282b008da9c35fb1",
        (0.3568667552, 0.5579477728, 0.4279407591),
    ),
    (
        "imbalanced",
        10,
        0.09,
        2,
        3,
        31,
        1320,
        "2f79f5848b635b76dc57e50bfa515a1a",
        (0.738034198, 0.8445659613, 0.299790073),
    ),
    (
        "imbalanced",
        20,
        0.2,
        42,
        4,
        21,
        426,
        "d910f8154924a3e0e79e0a3a28658dc4",
        (0.5691697664, 0.7483066796, 0.2953919049),
    ),
    (
        "imbalanced",
        50,
        50.0,
        0,
        1,
        69,
        92,
        "0d49ea5e6a9231aa68b6178ebad79da4",
        (0.0425190154, 0.060149374, 0.1401884615),
    ),
]


def sha256_start(clients):
    return hashlib.sha256(b"".join(rows.astype("<i8").tobytes() for rows in clients)).hexdigest()[:32]


def all_rows(clients):
    return np.sort(np.concatenate(clients)).tolist()


@pytest.mark.parametrize(
    ("name", "clients", "alpha", "seed", "passes", "smallest", "largest", "digest", "distances"), FEDARTML
)
def test_dirichlet_is_fedartml_index_for_index(
    name, clients, alpha, seed, passes, smallest, largest, digest, distances
):
    labels = LABELS[name]
    parts = partition.dirichlet(labels, clients, alpha, seed, max_passes=passes)
    sizes = [len(rows) for rows in parts]
    assert (min(sizes), max(sizes)) == (smallest, largest)
    assert sha256_start(parts) == digest
    assert all_rows(parts) == list(range(len(labels)))
    counts = partition.label_counts(parts, labels, labels.max() + 1)
    measured = skew.jensen_shannon(counts), skew.hellinger(counts), skew.earth_mover(counts)
    assert measured == pytest.approx(distances, abs=1e-9)
    if passes > 1:
        with pytest.raises(InfeasiblePartition, match=f"in {passes - 1} passes"):
            partition.dirichlet(labels, clients, alpha, seed, max_passes=passes - 1)


def test_dirichlet_leaves_the_global_random_state_alone():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.RandomState(5).random_sample()
    partition.dirichlet(LABELS["binary"], 5, 0.5, 42)
    assert np.random.random_sample() == expected  # noqa: NPY002


def test_infeasible_dirichlet_says_why_and_what_would_work():
    with pytest.raises(InfeasiblePartition) as error:
        partition.dirichlet(LABELS["binary"], 50, 0.01, 42, max_passes=3)
    assert str(error.value) == (
        "no Dirichlet partition of 5000 samples of 2 classes over 50 clients with alpha=0.01 and seed 42 gave "
        "every client 10 samples in 3 passes (the smallest client never had more than 0): "
        "alpha=0.5 with 50 clients or alpha=0.01 with 4 clients work for seed 42"
    )
    for clients, alpha in ((50, 0.5), (4, 0.01)):
        partition.dirichlet(LABELS["binary"], clients, alpha, 42)


def test_too_many_clients_for_the_minimum_are_refused_at_once():
    with pytest.raises(
        InfeasiblePartition, match="cannot give every client 10 samples: alpha=1 with 115 clients works"
    ):
        partition.dirichlet(LABELS["binary"], 501, 1.0, 42)
    with pytest.raises(InfeasiblePartition, match="no other alpha or number of clients that was tried works either"):
        partition.dirichlet(np.arange(15) % 2, 2, 1.0, 42)


@quick
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=6),
    st.sampled_from([2, 3, 7, 8, 20, 150, 300]),
    st.sampled_from([1e-300, 0.02, 0.1, 0.3, 1.0, 1.5, 50.0]),
    st.integers(0, 2**31 - 1),
    st.integers(1, 4),
)
@example([8] * 5, 5, 0.1, 0, 4)  # clients that hold exactly their fair share, and get nothing more
@example([20] * 3, 4, 1.0, 77, 10)  # a row that rounding would lose
@example([9, 5, 4], 2, 1e-3, 2, 1)  # a pass in which the last class finds no client with room
def test_finding_12_compiled_passes_are_numpys(sizes, clients, alpha, seed, minimum):
    sizes = tuple(sizes)
    smallest = [int(partition._dirichlet_pass(sizes, clients, alpha, seed, i).sum(axis=0).min()) for i in range(12)]
    good = next((i for i in range(12) if smallest[i] >= minimum), -1)
    most = max(smallest if good < 0 else smallest[: good + 1])
    assert first_good_pass(np.array(sizes), clients, alpha, seed, 0, 12, minimum) == (good, most)


@pytest.mark.parametrize("length", [1, 7, 8, 100, 128, 129, 300, 1000, 5000])
def test_compiled_sums_are_numpys_to_the_last_bit(length):
    rng = np.random.default_rng(length)
    for values in (rng.random(length), rng.standard_gamma(0.1, length), rng.standard_normal(length)):
        assert _pairwise_sum(values) == values.sum()


SMALL = {
    "churn": (2278, 388),
    "cancer": (357, 212),
    "4000 rows of two classes": (2000, 2000),
    "iris": (50, 50, 50),
    "wine": (59, 71, 48),
    "25 rows": (15, 10),
}


@pytest.mark.parametrize("name", SMALL)
def test_finding_12_small_data_get_settings_that_work_with_a_note(name):
    labels = np.repeat(np.arange(len(SMALL[name])), SMALL[name])
    seeds = [42, 0, 1]
    first_good_pass(np.array([40, 40]), 2, 1.0, 0, 0, 1, 1)  # first use compiles
    partition._good_pass.cache_clear()
    start = time.process_time()
    with pytest.warns(
        ClustPSIWarning, match=r"of \d+ samples of \d classes over 20 clients with alpha=0.1 was found at once, so"
    ):
        alpha, clients = partition.workable(labels, "dirichlet", seeds)
    assert time.process_time() - start < 1
    assert (alpha, clients) != (0.1, 20) and 0.1 <= alpha <= 1
    for seed in seeds:
        assert min(map(len, partition.dirichlet(labels, clients, alpha, seed))) >= 10
    with pytest.warns(ClustPSIWarning):
        assert partition.workable(labels, "dirichlet", seeds[::-1]) == (alpha, clients)


def test_finding_12_defaults_stay_where_they_work():
    digits = np.arange(1797) % 10
    for seeds in ([42, 0, 1], range(20)):
        assert partition.workable(digits, "dirichlet", seeds) == (0.1, 20)
    assert partition.workable(digits, "similarity", [42]) == (0.03, 20)
    assert partition.workable(digits, "iid", [42]) == (None, 20)
    assert partition.workable(digits, "natural", [42]) == (None, None)


def test_finding_12_what_is_given_stays():
    churn = np.repeat([0, 1], SMALL["churn"])
    with pytest.warns(ClustPSIWarning, match="so there are 10 clients with alpha=0.1"):
        assert partition.workable(churn, "dirichlet", [42, 0, 1], non_iid_param=0.1) == (0.1, 10)
    with pytest.warns(ClustPSIWarning, match="so there are 50 clients with alpha=0.7"):
        assert partition.workable(churn, "dirichlet", [42, 0, 1], num_clients=50) == (0.7, 50)
    assert partition.workable(churn, "dirichlet", [42], 0.5, 20) == (0.5, 20)
    assert partition.workable(churn, "similarity", [42], num_clients=7) == (0.03, 7)
    with pytest.warns(ClustPSIWarning, match="30 samples are too few for 20 clients, so there are 14"):
        assert partition.workable(np.arange(30) % 3, "similarity", [42]) == (0.03, 14)
    with pytest.warns(ClustPSIWarning, match="so there are 15"):
        assert partition.workable(np.arange(30) % 3, "iid", [42]) == (None, 15)


def test_finding_12_impossible_settings_are_refused_with_some_that_work_for_all_seeds():
    churn = np.repeat([0, 1], SMALL["churn"])
    start = time.process_time()
    with pytest.raises(InfeasiblePartition) as error:
        partition.workable(churn, "dirichlet", [42, 0, 1], 0.1, 50)
    assert time.process_time() - start < 6  # 1.5 s for 100,000 passes; in NumPy 16 s
    assert "alpha=0.7 with 50 clients or alpha=0.1 with 12 clients work for these seeds" in str(error.value)
    for alpha, clients in ((0.7, 50), (0.1, 12)):
        assert partition.workable(churn, "dirichlet", [42, 0, 1], alpha, clients) == (alpha, clients)
    with pytest.raises(InfeasiblePartition) as error:
        partition.workable(np.repeat([0, 1, 2], 50), "dirichlet", [42, 0, 1], 0.1, 20)
    assert "cannot give every client 10 samples: alpha=0.1 with 7 clients works for these seeds" in str(error.value)
    with pytest.raises(InfeasiblePartition, match="works either"):
        partition.workable(np.arange(10) % 2, "dirichlet", [42])


def test_passes_over_many_rows_are_bounded_by_the_rows_shuffled(monkeypatch):
    monkeypatch.setattr(partition, "MAX_SHUFFLED_ROWS", 5 * len(LABELS["binary"]))
    with pytest.raises(InfeasiblePartition, match="in 5 passes"):
        partition.dirichlet(LABELS["binary"], 50, 0.01, 42)


def test_a_pass_in_which_no_client_draws_anything_has_failed():
    # At this alpha every gamma variate underflows to 0 and the proportions are 0/0.
    with pytest.raises(InfeasiblePartition, match="never had more than 0"):
        partition.dirichlet(LABELS["binary"], 5, 1e-300, 42, max_passes=3)


@quick
@given(st.integers(2, 12), st.floats(0.3, 50), st.integers(0, 2**31 - 1), st.integers(1, 5))
def test_dirichlet_gives_every_row_one_owner_and_every_client_its_minimum(clients, alpha, seed, minimum):
    labels = LABELS["imbalanced"][:600]
    parts = partition.dirichlet(labels, clients, alpha, seed, min_samples=minimum)
    assert all_rows(parts) == list(range(600))
    assert min(map(len, parts)) >= minimum


def test_smaller_alpha_means_more_skew():
    labels = LABELS["balanced"]
    found = [
        skew.wpsi(partition.label_counts(partition.dirichlet(labels, 20, a, 42), labels, 10)) for a in (50, 0.7, 0.1)
    ]
    assert found == sorted(found)
    assert found[0] < 0.2 < 2 < found[2]


@quick
@given(st.integers(2, 30), st.floats(0, 1), st.integers(0, 2**31 - 1))
def test_similarity_gives_all_clients_the_same_number_of_different_rows(clients, s, seed):
    labels = LABELS["imbalanced"][:997]
    parts = partition.similarity(labels, clients, s, seed)
    mixed = round(s * 997)
    assert {len(rows) for rows in parts} == {mixed // clients + (997 - mixed) // clients}
    rows = all_rows(parts)
    assert len(set(rows)) == len(rows) > 997 - 2 * clients


@pytest.mark.parametrize(("clients", "per_class"), [(10, 1), (50, 5), (100, 10)])
def test_balanced_classes_sorted_by_label_give_single_class_clients(clients, per_class):
    labels = np.random.RandomState(0).permutation(LABELS["balanced"])
    counts = partition.label_counts(partition.similarity(labels, clients, 0.0, 42), labels, 10)
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert ((counts > 0).sum(axis=0) == per_class).all()
    assert skew.wpsi(counts) == pytest.approx(12.434, abs=5e-4)


@pytest.mark.parametrize(("clients", "groups"), [(10, (6, 1, 3)), (50, (31, 1, 18)), (100, (63, 1, 36))])
def test_two_imbalanced_classes_have_one_client_at_the_border(clients, groups):
    labels = np.repeat([0, 1], [10503, 6142])  # ACSIncome as the paper counts it, a hundredth of the rows
    counts = partition.label_counts(partition.similarity(labels, clients, 0.0, 42), labels, 2)
    pure_0, pure_1 = counts[:, 1] == 0, counts[:, 0] == 0
    assert (pure_0.sum(), (~pure_0 & ~pure_1).sum(), pure_1.sum()) == groups


def test_similarity_one_is_nearly_iid_and_a_little_similarity_reaches_every_client():
    labels = np.repeat(np.arange(2), 20_000)
    counts = partition.label_counts(partition.similarity(labels, 20, 1.0, 42), labels, 2)
    assert skew.wpsi(counts) < 0.01
    counts = partition.label_counts(partition.similarity(labels, 20, 0.1, 42), labels, 2)
    assert counts.min() > 0
    majority = np.delete(counts.max(axis=1) / counts.sum(axis=1), [9, 10])  # one of these two sits at the class border
    assert majority == pytest.approx(np.full(18, 0.95), abs=0.015)


def test_similarity_with_too_few_samples_is_infeasible():
    with pytest.raises(InfeasiblePartition, match="5 samples are too few for 4 clients"):
        partition.similarity(np.zeros(5, dtype=int), 4, 0.5, 42)


def test_row_lists_are_a_sequence_of_arrays_over_one():
    own = [np.array([5, 3]), np.array([], np.int64), np.array([9]), np.array([1, 2, 0])]
    lists = partition.RowLists.of(own)
    assert len(lists) == 4 and partition.RowLists.of(lists) is lists
    assert [rows.tolist() for rows in lists] == [rows.tolist() for rows in own]
    assert [lists[-1].tolist(), lists[np.int64(2)].tolist()] == [[1, 2, 0], [9]]
    assert [rows.tolist() for rows in lists[1:3]] == [[], [9]]
    assert lists.owners.tolist() == [0, 0, 2, 3, 3, 3]
    with pytest.raises(IndexError):
        lists[4]
    some = lists.chosen(np.array([3, 1, 0]))
    assert [rows.tolist() for rows in some] == [[1, 2, 0], [], [5, 3]]
    assert len(partition.RowLists.of([])) == 0


def test_iid_deals_all_rows_out_evenly_and_at_random():
    parts = partition.iid(np.zeros(103, dtype=int), 10, 42)
    assert all_rows(parts) == list(range(103))
    assert {len(rows) for rows in parts} == {10, 11}
    assert np.concatenate(parts).tolist() != list(range(103))


def test_natural_groups_rows_by_name():
    parts, names = partition.natural(np.array(["b", "a", "c", "a", "b", "a"]))
    assert names == ("a", "b", "c")
    assert [rows.tolist() for rows in parts] == [[1, 3, 5], [0, 4], [2]]


def test_natural_keeps_track_of_very_many_clients():
    ids = np.random.RandomState(0).permutation(np.repeat(np.arange(70_000), 2)).astype(str)
    parts, names = partition.natural(ids)
    assert len(names) == 70_000
    assert all((ids[rows] == name).all() and len(rows) == 2 for rows, name in zip(parts, names, strict=True))


@pytest.mark.parametrize("make", [partition.iid, lambda y, k, s: partition.similarity(y, k, 0.2, s)])
def test_same_seed_same_partition(make):
    labels = LABELS["balanced"]
    assert sha256_start(make(labels, 7, 3)) == sha256_start(make(labels, 7, 3)) != sha256_start(make(labels, 7, 4))


@pytest.mark.parametrize(
    "make",
    [
        lambda labels, clients=2, seed=42: partition.dirichlet(labels, clients, 1.0, seed),
        lambda labels, clients=2, seed=42: partition.similarity(labels, clients, 0.5, seed),
        lambda labels, clients=2, seed=42: partition.iid(labels, clients, seed),
    ],
)
def test_unusable_labels_clients_and_seeds_are_named(make):
    good = np.zeros(30, dtype=int)
    with pytest.raises(ClustPSIError, match="non-empty"):
        make(np.array([], dtype=int))
    with pytest.raises(ClustPSIError, match="one class per row"):
        make(np.zeros((3, 2), dtype=int))
    with pytest.raises(ClustPSIError, match="labels must be integers from 0"):
        make(np.array([0, -1] * 20))
    with pytest.raises(ClustPSIError, match="labels must be integers from 0"):
        make(np.array(["cat", "dog"] * 20))
    for clients in (1, 31):
        with pytest.raises(ClustPSIError, match=f"from 2 to the 30 samples, not {clients}"):
            make(good, clients)
    for seed in (-1, 2**31):
        with pytest.raises(ClustPSIError, match="the seed must be"):
            make(good, seed=seed)
        with pytest.raises(ClustPSIError, match="the seed must be"):
            partition.workable(good, "dirichlet", [0, seed])


@pytest.mark.parametrize("alpha", [0, -1.0, math.nan, math.inf])
def test_unusable_alpha_is_named(alpha):
    with pytest.raises(ClustPSIError, match="alpha must be a finite number above 0"):
        partition.dirichlet(LABELS["binary"], 5, alpha, 42)
    with pytest.raises(ClustPSIError, match="alpha must be a finite number above 0"):
        partition.workable(LABELS["binary"], "dirichlet", [42], alpha)


@pytest.mark.parametrize("s", [-0.1, 1.1, math.nan])
def test_unusable_similarity_is_named(s):
    with pytest.raises(ClustPSIError, match="S must be from 0"):
        partition.similarity(LABELS["binary"], 5, s, 42)
    with pytest.raises(ClustPSIError, match="S must be from 0"):
        partition.workable(LABELS["binary"], "similarity", [42], s)


def test_natural_needs_ids():
    with pytest.raises(ClustPSIError, match="non-empty"):
        partition.natural([])


@quick
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_client_80_20_sets_a_fifth_of_every_client_aside(sizes, seed):
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    train, test = partition.client_80_20(clients, seed)
    for rows, kept, held_out in zip(clients, train, test, strict=True):
        assert len(held_out) == math.ceil(len(rows) / 5)
        assert np.sort(np.concatenate([kept, held_out])).tolist() == rows.tolist()


def test_client_80_20_draws_at_random_and_not_as_the_partition_did():
    (_,), (first,) = partition.client_80_20([np.arange(100)], 42)
    (_,), (second,) = partition.client_80_20([np.arange(100)], 43)
    assert set(first) != set(second)
    assert first.tolist() != np.random.default_rng(42).permutation(100)[:20].tolist()


def test_client_80_20_needs_two_samples():
    with pytest.raises(ClustPSIError, match="at least 2 samples"):
        partition.client_80_20([np.arange(4), np.array([4])], 42)


@quick
@given(st.integers(2, 20), st.integers(0, 1000))
def test_official_matched_follows_the_training_labels(clients, seed):
    labels = np.concatenate([LABELS["imbalanced"][:2000], LABELS["imbalanced"][3000:3300]])
    train = partition.dirichlet(labels[:2000], clients, 1.0, seed, min_samples=1)
    test = partition.official_matched(train, labels, np.arange(2000, 2300), seed)
    assert all_rows(test) == list(range(2000, 2300))
    had, got = (partition.label_counts(parts, labels, 6) for parts in (train, test))
    exact = had / had.sum(axis=0) * got.sum(axis=0)
    assert (abs(got - exact) < 1).all()
    assert (got[had == 0] == 0).all()


def test_official_matched_gives_single_class_clients_their_class_alone():
    labels = np.concatenate([np.repeat(np.arange(10), 60), np.arange(100) % 10])
    train = partition.similarity(labels[:600], 20, 0.0, 42)
    test = partition.official_matched(train, labels, np.arange(600, 700), 42)
    for trained, tested in zip(train, test, strict=True):
        assert len(tested) == 5
        assert set(labels[tested]) == set(labels[trained])


def test_official_matched_breaks_ties_at_random():
    labels = np.zeros(21, dtype=int)
    train = list(np.arange(20).reshape(10, 2))
    lucky = {
        next(k for k, rows in enumerate(partition.official_matched(train, labels, np.array([20]), s)) if len(rows))
        for s in range(40)
    }
    assert len(lucky) > 5


def test_official_matched_deals_an_untrained_class_out_by_size():
    labels = np.array([0] * 8 + [1] * 4)
    test = partition.official_matched([np.arange(6), np.arange(6, 8)], labels, np.arange(8, 12), 42)
    assert [len(rows) for rows in test] == [3, 1]
