"""Label skew: oracle values worked out by hand, invariants, and the fast forms against the definitions pair by pair."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wasserstein_distance

from clustpsi import skew
from clustpsi.errors import ClustPSIError

quick = settings(max_examples=40, deadline=None)
tables = st.tuples(st.integers(2, 7), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 40)).map(
        lambda t: t + (t.sum(axis=1, keepdims=True) == 0)
    )
)
FEDERATION_MEASURES = [skew.wpsi, skew.hellinger, skew.jensen_shannon, skew.earth_mover, skew.label_earth_mover]


def single_class_clients(num_classes=10, per_class=10, samples=600):
    return np.repeat(np.eye(num_classes, dtype=int) * samples, per_class, axis=0)


def pmfs(counts):
    return counts / counts.sum(axis=1, keepdims=True)


def test_ten_balanced_classes_one_a_client():
    counts = single_class_clients()
    terms = skew.psi_terms(counts)
    assert terms[0, 0] == pytest.approx(0.9 * math.log(10), abs=1e-4)
    assert terms[0, 1:] == pytest.approx(np.full(9, 0.1 * math.log(1e5)), abs=1e-4)
    assert skew.psi(counts) == pytest.approx(np.full(100, 12.4340), abs=5e-5)
    assert skew.measures(counts) == pytest.approx(
        {
            "wpsi": 12.4340,
            "hellinger": math.sqrt(9000 * 2 / 19800),
            "jensen_shannon": math.sqrt(0.5),
            "earth_mover": 0.0,
            "label_earth_mover": 9000 / 9900,
        },
        abs=5e-5,
    )


def test_two_imbalanced_classes_one_a_client():
    counts = [[631, 0], [0, 369]]
    assert skew.psi_terms(counts) == pytest.approx(np.array([[0.1699, 4.7300], [8.4270, 0.6291]]), abs=5e-5)
    assert skew.psi(counts) == pytest.approx([4.900, 9.056], abs=5e-4)
    assert skew.wpsi(counts) == pytest.approx(0.631 * 4.900 + 0.369 * 9.056, abs=5e-4)


def test_psi_is_symmetric_in_its_two_distributions():
    expected = 0.2 * math.log(1.4) + 0.2 * math.log(5 / 3)
    assert skew.psi([[5, 5]], reference=[0.7, 0.3])[0] == pytest.approx(expected, abs=1e-5)
    assert skew.psi([[7, 3]], reference=[0.5, 0.5])[0] == pytest.approx(expected, abs=1e-5)


def test_smoothings_by_hand():
    counts = [[8, 0], [2, 10]]  # P = (.5, .5)
    half = math.log(2)
    clip = [[0.5 * half, (0.5 - 1e-4) * math.log(0.5 / 1e-4)]]
    assert skew.psi_terms(counts, "clip")[:1] == pytest.approx(np.array(clip))
    p = np.array([8.5, 0.5]) / 9
    assert skew.psi_terms(counts, "laplace")[0] == pytest.approx((0.5 - p) * np.log(0.5 / p))
    big, small = 0.5 + 1e-3, 1e-3
    assert skew.psi_terms(counts, "additive", 1e-3)[0, 1] == pytest.approx((big - small) * math.log(big / small))


def test_two_disjoint_clients_are_as_far_apart_as_can_be():
    counts = [[5, 0, 0], [0, 3, 4]]
    assert skew.hellinger(counts) == pytest.approx(1)
    assert skew.jensen_shannon(counts) == pytest.approx(1)
    assert skew.label_earth_mover(counts) == pytest.approx(1)


def test_binary_single_class_clients_reach_the_bound_of_jensen_shannon():
    assert skew.jensen_shannon(single_class_clients(2, 50)) == pytest.approx(math.sqrt(1 / math.log2(100)))


@pytest.mark.parametrize("smoothing", ["additive", "clip"])
def test_identical_clients_do_not_differ(smoothing):
    counts = np.outer(np.arange(1, 30), [3, 5, 0, 9999, 1])
    assert skew.psi_terms(counts, smoothing) == pytest.approx(np.zeros((29, 5)), abs=1e-15)
    assert skew.measures(counts, smoothing) == pytest.approx(dict.fromkeys(skew.measures(counts), 0.0), abs=1e-12)


def test_one_client_does_not_differ_from_itself():
    assert set(skew.measures([[3, 4]]).values()) == {0.0}


@pytest.mark.parametrize("smoothing", list(skew.SMOOTHINGS))
def test_a_class_that_nobody_has_changes_nothing(smoothing):
    counts = np.array([[3, 1], [2, 6], [0, 4]])
    wider = np.insert(counts, 1, 0, axis=1)
    terms = skew.psi_terms(wider, smoothing)
    assert (terms[:, 1] == 0).all()
    assert (terms[:, [0, 2]] == skew.psi_terms(counts, smoothing)).all()


def test_new_clients_are_compared_with_the_reference():
    counts = np.array([[3, 1], [2, 6], [0, 4]])
    reference = counts.sum(axis=0) / counts.sum()
    assert (skew.psi_terms(counts[1:2], reference=reference) == skew.psi_terms(counts)[1:2]).all()
    assert skew.wpsi(counts[1:2], reference=reference) == pytest.approx(skew.psi(counts)[1])


@quick
@given(tables, st.sampled_from(list(skew.SMOOTHINGS)))
def test_psi_is_never_negative_and_adds_up(counts, smoothing):
    terms = skew.psi_terms(counts, smoothing)
    assert terms.shape == counts.shape
    assert (terms >= 0).all()
    assert skew.psi(counts, smoothing) == pytest.approx(terms.sum(axis=1))
    weights = counts.sum(axis=1) / counts.sum()
    assert skew.wpsi(counts, smoothing) == pytest.approx(weights @ terms.sum(axis=1))


@quick
@given(tables, st.randoms(use_true_random=False))
def test_order_of_clients_and_classes_does_not_matter(counts, random):
    clients = random.sample(range(counts.shape[0]), counts.shape[0])
    classes = random.sample(range(counts.shape[1]), counts.shape[1])
    moved = counts[clients][:, classes]
    assert skew.psi_terms(moved) == pytest.approx(skew.psi_terms(counts)[clients][:, classes])
    assert skew.measures(moved) == pytest.approx(skew.measures(counts), abs=1e-7)


@quick
@given(tables)
def test_distances_are_within_their_range(counts):
    for distance in FEDERATION_MEASURES[1:]:
        assert 0 <= distance(counts) <= 1 + 1e-12


@quick
@given(tables)
def test_fast_forms_agree_with_the_definitions(counts):
    p = pmfs(counts)
    pairs = list(itertools.combinations(range(len(p)), 2))
    squared = [((np.sqrt(p[i]) - np.sqrt(p[j])) ** 2).sum() / 2 for i, j in pairs]
    assert skew.hellinger(counts) == pytest.approx(math.sqrt(np.mean(squared)), abs=1e-7)
    quirk = [wasserstein_distance(p[i], p[j]) for i, j in pairs]
    assert skew.earth_mover(counts) == pytest.approx(math.sqrt(np.mean(quirk)), abs=1e-7)
    ground = [abs(p[i] - p[j]).sum() / 2 for i, j in pairs]
    assert skew.label_earth_mover(counts) == pytest.approx(np.mean(ground))

    def entropy(q):
        return -sum(x * math.log2(x) for x in q if x > 0)

    divergence = entropy(p.mean(axis=0)) - np.mean([entropy(q) for q in p])
    divergence /= math.log2(len(p)) if len(p) > 2 else 1
    assert skew.jensen_shannon(counts) ** 2 == pytest.approx(divergence, abs=1e-12)


def test_thousands_of_clients_need_little_memory():
    # A table of pairs would hold 10^8 numbers; the answer is that of single-class clients.
    counts = single_class_clients(5, 2000, samples=10)
    assert skew.hellinger(counts) == pytest.approx(math.sqrt(8000 / 9999))
    assert skew.label_earth_mover(counts) == pytest.approx(8000 / 9999)


def test_check_counts_takes_what_holds_whole_numbers():
    expected = np.array([[1, 2], [3, 0]])
    for given_as in (expected.tolist(), expected.astype(float), expected.astype(np.uint8), pd.DataFrame(expected)):
        checked = skew.check_counts(given_as)
        assert checked.dtype == np.int64
        assert (checked == expected).all()


def test_finding_26_counts_are_exact_up_to_their_limit():
    half = 2**52
    assert skew.check_counts([[half, 0], [half - 1, 1]]).sum() == 2**53
    with pytest.raises(ClustPSIError, match="add up to"):
        skew.check_counts([[half, 0], [half, 2]])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2, 3], "two dimensions"),
        (np.zeros((0, 3)), "at least one client"),
        (np.zeros((3, 0)), "at least one client and one class"),
        ([[1, 2], [3]], "table of numbers"),
        ([["a", "b"]], "table of numbers"),
        ([[1, 2], [3, math.nan]], "finite, but client 1 has nan samples of class 1"),
        ([[1, math.inf]], "finite"),
        ([[1, 2], [-3, 4]], "zero or more, but client 1 has -3 samples of class 0"),
        ([[1, 2.5]], "whole numbers, but client 0 has 2.5 samples of class 1"),
        ([[1, 2], [0, 0], [0, 0]], "client 1 has no samples"),
        ([[4e18, 4e18], [4e18, 1]], "add up to 2.*53 .* not 1.2e.19"),
    ],
)
@pytest.mark.parametrize("function", [skew.check_counts, skew.psi, *FEDERATION_MEASURES])
def test_unusable_counts_are_named(function, counts, message):
    with pytest.raises(ClustPSIError, match=message):
        function(counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": "addative"}, "did you mean 'additive'"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"reference": [1.0]}, "one probability for each of 2 classes"),
        ({"reference": [0.7, 0.7]}, "probabilities"),
        ({"reference": [1.5, -0.5]}, "probabilities"),
    ],
)
def test_unusable_options_are_named(options, message):
    with pytest.raises(ClustPSIError, match=message):
        skew.wpsi([[1, 2], [3, 4]], **options)


@pytest.mark.parametrize("smoothing", skew.SMOOTHINGS)
def test_terms_are_the_same_in_parts(smoothing, monkeypatch):
    counts = np.random.default_rng(0).integers(0, 9, (50, 4)) * [1, 1, 0, 1] + [1, 0, 0, 0]
    whole = skew.psi_terms(counts, smoothing)
    monkeypatch.setattr(skew, "CLIENTS_AT_ONCE", 7)
    assert (skew.psi_terms(counts, smoothing) == whole).all()
