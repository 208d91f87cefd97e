"""PSI clustering: the spec's oracle values, the search against scikit-learn's, and what an estimator must do."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.metrics import silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import clustpsi.clustering
import clustpsi.kmeans
from clustpsi.clustering import PSIClustering
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.methods import make_method
from clustpsi.methods.base import Setting
from clustpsi.orders import Model, drive
from clustpsi.skew import check_counts, psi, psi_terms, wpsi

Counts = NDArray[np.int64]


def sorted_chunks(class_sizes: list[int], clients: int) -> Counts:
    """Similarity S=0: samples sorted by label, cut into equal chunks."""
    share = sum(class_sizes) // clients
    bounds = np.cumsum([0, *class_sizes])
    starts = share * np.arange(clients)[:, None]
    return np.clip(np.minimum(bounds[1:], starts + share) - np.maximum(bounds[:-1], starts), 0, None)


def dirichlet(clients: int, alpha: float, seed: int, classes: int = 10) -> Counts:
    shares = np.random.default_rng(seed).dirichlet(np.full(clients, alpha), size=classes).T
    return (
        np.floor(shares * 60 * clients).astype(np.int64) + np.eye(classes, dtype=np.int64)[np.arange(clients) % classes]
    )


def same_partition(a: NDArray[np.intp], b: NDArray[np.intp]) -> bool:
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


@pytest.mark.parametrize(
    ("class_sizes", "clients", "sizes", "silhouette"),
    [
        ([1_050_300, 614_200], 10, [6, 3, 1], 0.90),
        ([1_050_300, 614_200], 50, [31, 18, 1], 0.98),
        ([1_050_300, 614_200], 100, [63, 36, 1], 0.99),
        ([6_000] * 10, 100, [10] * 10, 1.0),
        ([50_000] * 2, 100, [50, 50], 1.0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_sorted_labels_give_the_known_clusters(
    class_sizes: list[int], clients: int, sizes: list[int], silhouette: float, seed: int
) -> None:
    fitted = PSIClustering(random_state=seed).fit(sorted_chunks(class_sizes, clients))
    assert fitted.n_clusters_ == len(sizes)
    assert sorted(np.bincount(fitted.labels_), reverse=True) == sizes
    assert max(fitted.silhouette_scores_.values()) == pytest.approx(silhouette, abs=5e-5)
    assert list(fitted.silhouette_scores_) == list(range(2, clients))


@pytest.mark.parametrize(("alpha", "features"), [(0.05, "psi"), (5.0, "psi"), (0.3, "signed")])
def test_search_is_as_good_as_scikit_learn(alpha: float, features: str) -> None:
    counts = dirichlet(30, alpha, seed=3)
    fitted = PSIClustering(features=features, random_state=0).fit(counts)
    points = fitted.transform(counts)
    with threadpool_limits(1):
        labellings = [KMeans(j, n_init=10, random_state=0).fit_predict(points) for j in range(2, 30)]
    theirs = max(silhouette_score(points, labels) for labels in labellings)
    assert max(fitted.silhouette_scores_.values()) >= theirs - 0.005


@pytest.mark.parametrize("counts", [dirichlet(40, 0.2, seed=1), dirichlet(40, 0.2, seed=2, classes=2)])
@pytest.mark.parametrize("n_clusters", ["auto", 7])
def test_score_is_the_silhouette_of_the_labels(counts: Counts, n_clusters: int) -> None:
    counts = np.concatenate([counts, counts[:5], 3 * counts[:5]])
    fitted = PSIClustering(n_clusters, random_state=0).fit(counts)
    points = fitted.transform(counts)
    score = silhouette_score(cdist(points, points), fitted.labels_, metric="precomputed")
    assert fitted.silhouette_scores_[fitted.n_clusters_] == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("clients", range(4, 12))
def test_smallest_number_at_the_maximum_is_chosen(clients: int) -> None:
    """Clients that have a class each are all equally far apart: every number of clusters has the silhouette 0."""
    fitted = PSIClustering(random_state=0).fit(50 * np.eye(clients, dtype=np.int64))
    assert list(fitted.silhouette_scores_.values()) == pytest.approx([0] * (clients - 2), abs=1e-12)
    assert fitted.n_clusters_ == 2


@pytest.mark.parametrize("seed", range(30))
def test_clients_with_the_same_features_pull_a_centre_with_their_number(seed: int) -> None:
    """Against the best of all ways to split seven kinds of clients, some of which are forty, into two clusters."""
    rng = np.random.default_rng(seed)
    number = rng.choice([1, 1, 1, 40], 7)
    counts = np.repeat(rng.integers(1, 21, (7, 3)), number, axis=0)
    fitted = PSIClustering(2, random_state=0).fit(counts)
    points = fitted.transform(counts)

    def inertia(labels: NDArray[np.intp]) -> float:
        return sum(((points[labels == c] - points[labels == c].mean(axis=0)) ** 2).sum() for c in set(labels.tolist()))

    splits = (np.repeat([way >> kind & 1 for kind in range(7)], number) for way in range(1, 2**6))
    assert inertia(fitted.labels_) <= 1.05 * min(map(inertia, splits))


def test_features_are_the_papers() -> None:
    counts = dirichlet(20, 0.3, seed=0)
    terms = psi_terms(counts, "clip", 1e-3)
    raw = np.column_stack([terms.sum(axis=1), terms])
    fitted = PSIClustering(smoothing="clip", epsilon=1e-3, random_state=0).fit(counts)
    np.testing.assert_allclose(fitted.transform(counts), (raw - raw.mean(axis=0)) / raw.std(axis=0), atol=1e-12)
    np.testing.assert_allclose(fitted.psi_, psi(counts, "clip", 1e-3))
    assert fitted.wpsi_ == pytest.approx(wpsi(counts, "clip", 1e-3))


def test_signed_features_tell_too_much_of_a_class_from_too_little() -> None:
    counts = np.array([[700, 300]] * 5 + [[300, 700]] * 5)
    assert PSIClustering(random_state=0).fit(counts).psi_.std() < 1e-9
    signed = PSIClustering(features="signed", random_state=0).fit(counts)
    np.testing.assert_allclose(signed.transform(counts), np.repeat([[1.0, -1.0], [-1.0, 1.0]], 5, axis=0))
    assert signed.labels_.tolist() == [1] * 5 + [0] * 5


def test_signed_features_are_roots_of_the_terms_standardized() -> None:
    counts = np.array([[50, 30, 20], [10, 60, 30], [25, 25, 50], [70, 10, 20]])
    excess = counts / 100 - counts.sum(axis=0) / 400
    by_hand = np.sign(excess) * np.sqrt(psi_terms(counts))
    by_hand = (by_hand - by_hand.mean(axis=0)) / by_hand.std(axis=0)
    np.testing.assert_allclose(PSIClustering(features="signed", random_state=0).fit(counts).transform(counts), by_hand)


def test_a_constant_feature_becomes_zero() -> None:
    counts = np.column_stack([sorted_chunks([300, 300], 6), np.full(6, 50)])
    np.testing.assert_allclose(PSIClustering(2).fit(counts).transform(counts)[:, 3], 0, atol=1e-12)


@pytest.mark.parametrize("counts", [[[3, 4]], [[3, 4], [9, 1]], [[1, 2], [2, 4], [3, 6], [10, 20]]])
def test_nothing_to_choose_from_keeps_clients_together(counts: list[list[int]]) -> None:
    fitted = PSIClustering(random_state=0).fit(counts)
    assert fitted.n_clusters_ == 1
    assert fitted.labels_.tolist() == [0] * len(counts)
    assert fitted.silhouette_scores_ == {}
    assert fitted.predict([[5, 5]]).tolist() == [0]


def test_guard_keeps_similar_clients_together() -> None:
    similar, skewed = dirichlet(30, 500.0, seed=0), dirichlet(30, 0.1, seed=0)
    assert PSIClustering(random_state=0).fit(similar).n_clusters_ >= 2
    guarded = PSIClustering(min_wpsi=0.1, random_state=0)
    assert guarded.fit(similar).n_clusters_ == 1
    assert guarded.fit(skewed).n_clusters_ >= 2


def test_guard_knows_what_chance_makes_of_clients_with_few_labels() -> None:
    rng = np.random.default_rng(0)
    alike = rng.multinomial(20, [0.4, 0.3, 0.2, 0.1], 60)
    groups = np.vstack([rng.multinomial(20, mix, 30) for mix in ([0.8, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.8])])
    guarded = PSIClustering(smoothing="laplace", features="signed", min_wpsi=0.1, random_state=0)
    assert guarded.fit(alike).wpsi_ > 0.1  # which credit scoring would call a shift
    assert guarded.chance_wpsi_ == pytest.approx(guarded.wpsi_, rel=0.3) and guarded.n_clusters_ == 1
    assert guarded.fit(groups).n_clusters_ >= 2
    free = PSIClustering(smoothing="laplace", features="signed", random_state=0).fit(groups)
    assert free.chance_wpsi_ == 0 and (free.labels_ == guarded.labels_).all()


def test_clusters_that_cut_through_a_cloud_are_not_made() -> None:
    """Clients of a Dirichlet draw have no groups, however skewed; planted groups are kept, even with few labels."""
    cloud = dirichlet(60, 0.3, seed=0)
    rng = np.random.default_rng(1)
    mixes = rng.dirichlet(np.full(10, 0.5), 4)
    group = np.arange(60) % 4
    planted = {size: np.array([rng.multinomial(size, mixes[own]) for own in group]) for size in (20, 1000)}
    free = PSIClustering(features="signed", smoothing="laplace", random_state=0)
    clear = clone(free).set_params(min_clarity=0.75)

    assert free.fit(cloud).n_clusters_ > 1 and np.isnan(free.exact_silhouette_)
    assert clear.fit(cloud).n_clusters_ == 1 and not clear.labels_.any()
    best = max(clear.silhouette_scores_.values())
    assert 0 < best < 0.75 * clear.exact_silhouette_
    assert clear.silhouette_scores_ == free.silhouette_scores_  # what was tried is still there
    assert clear.predict(cloud[:3]).tolist() == [0, 0, 0]

    for size, counts in planted.items():
        clear.fit(counts)
        np.testing.assert_array_equal(clear.labels_, free.fit(counts).labels_)
        best = clear.silhouette_scores_[clear.n_clusters_]
        assert clear.exact_silhouette_ == pytest.approx(best, rel=0.1 if size == 1000 else 0.2)
    assert clear.n_clusters_ == 4 and best > 0.7
    # The sample of many clients decides as all of them would.
    many = clone(clear).set_params(sample_size=40)
    assert many.fit(planted[1000]).n_clusters_ == 4 and many.fit(cloud).n_clusters_ == 1
    # A number that is asked for is not judged.
    assert clone(clear).set_params(n_clusters=5).fit(cloud).n_clusters_ == 5


def test_fixed_number_is_the_searchs_solution_for_it() -> None:
    counts = dirichlet(40, 0.1, seed=5)
    searched = PSIClustering(random_state=2).fit(counts)
    fixed = PSIClustering(searched.n_clusters_, random_state=2).fit(counts)
    np.testing.assert_array_equal(fixed.labels_, searched.labels_)
    assert PSIClustering(1).fit(counts).n_clusters_ == 1
    assert PSIClustering(40).fit(counts).n_clusters_ == 40
    assert max(PSIClustering(max_clusters=6, random_state=2).fit(counts).silhouette_scores_) == 6


def test_no_more_clusters_than_distinct_clients_and_it_is_said() -> None:
    with pytest.warns(ClustPSIWarning, match="there are 4 clusters where 9 were asked for"):
        fitted = PSIClustering(9).fit(sorted_chunks([120] * 4, 12))
    assert fitted.n_clusters_ == len(fitted.cluster_centers_) == 4
    assert sorted(set(fitted.labels_)) == [0, 1, 2, 3]


@pytest.mark.parametrize("labels", [[1, 1, 0, 0], [0, 1, 1, 1], [5, 5, 2, 2]])
def test_clusters_are_settled_and_numbered_by_their_centres(labels: list[int]) -> None:
    points, weights = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([1, 3, 2, 2])
    found, centers = clustpsi.clustering._settle(points, weights, np.array(labels))
    assert found.tolist() == [0, 0, 1, 1] and centers.tolist() == [[0.75], [10.5]]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(4, 25), st.integers(2, 4), st.integers(1, 12), st.sampled_from(["psi", "signed"]), st.integers(0, 2**31)
)
def test_every_client_is_with_its_nearest_centre_in_any_order(
    clients: int, classes: int, largest: int, features: str, seed: int
) -> None:
    # Small counts, so that equal clients and equal distances are common.
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, largest + 1, (clients, classes)) + np.eye(classes, dtype=np.int64)[0]
    fitted = PSIClustering(features=features, n_init=2, random_state=seed).fit(counts)
    np.testing.assert_array_equal(fitted.predict(counts), fitted.labels_)
    np.testing.assert_array_equal(np.unique(fitted.labels_), np.arange(fitted.n_clusters_))
    order = rng.permutation(clients)
    shuffled = PSIClustering(features=features, n_init=2, random_state=seed).fit(counts[order])
    np.testing.assert_array_equal(shuffled.labels_, fitted.labels_[order])
    np.testing.assert_array_equal(shuffled.cluster_centers_, fitted.cluster_centers_)


def test_same_seed_same_bits() -> None:
    counts = dirichlet(60, 0.5, seed=9)
    one, other = (PSIClustering(random_state=4).fit(counts) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert one.silhouette_scores_ == other.silhouette_scores_


def test_large_federation_is_clustered_from_a_sample() -> None:
    clusters = np.repeat(np.arange(5), 400)
    counts = np.random.default_rng(0).poisson(np.eye(5)[clusters] * 400 + 20)
    fitted = PSIClustering(sample_size=150, random_state=0).fit(counts)
    assert same_partition(fitted.labels_, clusters)
    assert list(fitted.silhouette_scores_) == list(range(2, 101))
    np.testing.assert_array_equal(fitted.predict(counts[::7]), fitted.labels_[::7])
    again = PSIClustering(sample_size=150, random_state=0).fit(counts)
    np.testing.assert_array_equal(fitted.labels_, again.labels_)


@pytest.mark.parametrize("search", ["best", "plain"])
@pytest.mark.parametrize("features", ["psi", "signed"])
def test_finding_37_compiled_loops_find_what_numpy_finds(
    features: str, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Equal clients make points of weight 2 and more.
    for counts in (
        dirichlet(60, 0.1, seed=2),
        dirichlet(70, 5.0, seed=3, classes=3),
        sorted_chunks([900, 700, 500], 50),
    ):
        counts = np.concatenate([counts, counts[:5], counts[:2]])
        side_by_side = PSIClustering(features=features, search=search, random_state=1).fit(counts)
        with monkeypatch.context() as patch:
            patch.setattr(clustpsi.kmeans, "MAX_SIDE_BY_SIDE", 0)
            compiled = PSIClustering(features=features, search=search, random_state=1).fit(counts)
        np.testing.assert_array_equal(compiled.labels_, side_by_side.labels_)
        assert compiled.silhouette_scores_ == pytest.approx(side_by_side.silhouette_scores_, abs=1e-9)


def test_finding_37_every_number_of_clusters_of_many_clients_and_classes_in_seconds() -> None:
    counts = dirichlet(500, 0.3, seed=0, classes=500)
    PSIClustering(max_clusters=2).fit(dirichlet(201, 1.0, seed=0))  # first use compiles
    start = time.process_time()
    fitted = PSIClustering(random_state=0).fit(counts)
    assert time.process_time() - start < 4  # 0.2 s; with products of coordinates 17 s
    assert list(fitted.silhouette_scores_) == list(range(2, 500))
    points = fitted.transform(counts)
    score = silhouette_score(cdist(points, points), fitted.labels_, metric="precomputed")
    assert fitted.silhouette_scores_[fitted.n_clusters_] == pytest.approx(score, abs=1e-12)


def test_finding_26_a_sample_has_no_more_clusters_than_clients() -> None:
    counts = dirichlet(60, 0.3, seed=0)
    sentence = "the clusters of 60 clients are found on a sample of 40, which has no 50 clusters: ask for at most 40"
    with pytest.raises(ClustPSIError, match=sentence):
        PSIClustering(50, sample_size=40).fit(counts)
    assert PSIClustering(40, sample_size=40, random_state=0).fit(counts).n_clusters_ == 40
    assert PSIClustering(50, sample_size=60).fit(counts).n_clusters_ == 50


def inertia(fitted: PSIClustering, counts: Counts) -> float:
    return float(((fitted.transform(counts) - fitted.cluster_centers_[fitted.labels_]) ** 2).sum())


@pytest.mark.parametrize("n_init", [1, 10])
def test_finding_47_plain_search_is_scikit_learns_on_separated_clients(n_init: int) -> None:
    clusters = np.repeat(np.arange(4), 5)
    counts = np.random.default_rng(0).poisson(np.eye(4)[clusters] * 900 + 20)
    fitted = PSIClustering(features="signed", search="plain", n_init=n_init, random_state=0).fit(counts)
    points = fitted.transform(counts)
    with threadpool_limits(1):
        theirs = [KMeans(j, n_init=n_init, random_state=0).fit_predict(points) for j in range(2, 20)]
    assert fitted.n_clusters_ == 2 + np.argmax([silhouette_score(points, labels) for labels in theirs]) == 4
    assert same_partition(fitted.labels_, theirs[2])


def test_finding_47_plain_search_has_scikit_learns_inertia() -> None:
    counts = dirichlet(20, 1.0, seed=2, classes=3)
    for j in (2, 4, 15):
        ours = PSIClustering(j, search="plain", n_init=50, random_state=0).fit(counts)
        points = ours.transform(counts)
        with threadpool_limits(1):
            theirs = KMeans(j, n_init=50, tol=0, random_state=0).fit(points)
        assert inertia(ours, counts) == pytest.approx(theirs.inertia_, rel=1e-6)
        assert ours.silhouette_scores_[j] == pytest.approx(silhouette_score(points, theirs.labels_), abs=1e-9)


def test_finding_47_a_single_plain_start_is_as_good_as_scikit_learns_on_average() -> None:
    counts = np.random.default_rng(0).poisson(np.eye(12)[np.repeat(np.arange(12), 4)] * 100 + 20)
    ours = [
        PSIClustering(12, features="signed", search="plain", n_init=1, random_state=seed).fit(counts)
        for seed in range(40)
    ]
    points = ours[0].transform(counts)
    with threadpool_limits(1):
        theirs = [KMeans(12, n_init=1, random_state=seed).fit(points).inertia_ for seed in range(40)]
    # About 30 for both; 78 from random points.
    assert np.mean([inertia(fitted, counts) for fitted in ours]) == pytest.approx(np.mean(theirs), rel=0.1)


def test_finding_47_plain_search_keeps_the_lowest_inertia_and_best_the_better_silhouette() -> None:
    counts = dirichlet(40, 5.0, seed=3)
    best = PSIClustering(2, random_state=0).fit(counts)
    plain = PSIClustering(2, search="plain", n_init=200, random_state=0).fit(counts)
    assert inertia(plain, counts) < inertia(best, counts) < 1.02 * inertia(plain, counts)
    assert best.silhouette_scores_[2] > plain.silhouette_scores_[2] + 0.005


def test_new_clients_are_compared_with_the_fitted_federation() -> None:
    fitted = PSIClustering(random_state=0).fit(sorted_chunks([6_000] * 10, 100))
    # Alone, a client is its own federation and has no PSI at all.
    assert fitted.predict([[0, 0, 7, 0, 0, 0, 0, 0, 0, 0]])[0] == fitted.labels_[20]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be 'auto' or a whole number from 1 to 6, the number of clients, not 0"),
        ({"n_clusters": 7}, "from 1 to 6, the number of clients, not 7"),
        ({"n_clusters": 2.0}, "whole number"),
        ({"n_clusters": "atuo"}, "'auto' or a whole number"),
        ({"features": "sign"}, "unknown features 'sign': did you mean 'signed'"),
        ({"smoothing": "laplac"}, "unknown smoothing 'laplac': did you mean 'laplace'"),
        ({"search": "plane"}, "unknown search 'plane': did you mean 'plain'"),
        ({"n_init": 0}, "n_init must be a whole number of at least 1, not 0"),
        ({"max_clusters": 1}, "max_clusters must be a whole number of at least 2, not 1"),
        ({"n_clusters": True}, "whole number from 1 to 6, the number of clients, not True"),
        ({"n_init": True}, "n_init must be a whole number of at least 1, not True"),
        ({"min_wpsi": "a"}, "min_wpsi must be a number of at least 0 or None, not 'a'"),
        ({"min_clarity": -1}, "min_clarity must be a number of at least 0 or None, not -1"),
        ({"random_state": -1}, "random_state must be a whole number from 0 to 4,294,967,295, .* not -1"),
        ({"random_state": "a"}, "random_state must be .* not 'a'"),
        ({"sample_size": None}, "sample_size must be a whole number of at least 2, not None"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ClustPSIError, match=message):
        PSIClustering(**parameters).fit(sorted_chunks([60, 60], 6))  # type: ignore[arg-type]


def test_bad_counts_are_named() -> None:
    with pytest.raises(ClustPSIError, match="zero or more, but client 1"):
        PSIClustering().fit([[1, 2], [-1, 2]])
    with pytest.raises(ClustPSIError, match="client 1 has no samples"):
        PSIClustering().fit([[1, 2], [0, 0]])
    fitted = PSIClustering(random_state=0).fit(sorted_chunks([60, 60], 6))
    with pytest.raises(ClustPSIError, match="3 features, but PSIClustering is expecting 2"):
        fitted.predict([[1, 2, 3]])
    with pytest.raises(NotFittedError):
        PSIClustering().predict([[1, 2]])


def test_works_in_a_pipeline_and_clones() -> None:
    counts = sorted_chunks([60, 60], 6)
    pipeline = make_pipeline(FunctionTransformer(np.rint), PSIClustering(random_state=0))
    assert pipeline.fit_predict(counts).tolist() == pipeline.predict(counts).tolist()
    copy = clone(PSIClustering(3, features="signed", min_wpsi=0.1)).set_params(n_init=2)
    assert (copy.n_clusters, copy.features, copy.min_wpsi, copy.n_init) == (3, "signed", 0.1, 2)


REAL_NUMBERS = "feeds real numbers, which are no counts"
EXPECTED_FAILED_CHECKS = {
    "check_clustering": "feeds negative numbers, which are no counts",
    "check_positive_only_tag_during_fit": "wants scikit-learn's wording; ours names the client and the class",
    "check_fit2d_1feature": REAL_NUMBERS,
    "check_fit2d_1sample": REAL_NUMBERS,
    **dict.fromkeys(
        (
            "check_dict_unchanged",
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_estimators_dtypes",
            "check_estimators_fit_returns_self",
            "check_estimators_nan_inf",
            "check_estimators_overwrite_params",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_fit2d_predict1d",
            "check_fit_check_is_fitted",
            "check_fit_idempotent",
            "check_fit_score_takes_y",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_n_features_in",
            "check_n_features_in_after_fitting",
            "check_pipeline_consistency",
            "check_readonly_memmap_input",
            "check_transformer_data_not_an_array",
            "check_transformer_general",
            "check_transformer_preserve_dtypes",
        ),
        REAL_NUMBERS,
    ),
}


# One test for all: pytest reads the source of scikit-learn's checks, at length, for each that fails.
@pytest.mark.filterwarnings("ignore")
def test_finding_18_scikit_learns_checks() -> None:
    results = check_estimator(
        PSIClustering(n_init=1), expected_failed_checks=EXPECTED_FAILED_CHECKS, on_skip=None, on_fail=None
    )
    assert len(results) > 40
    assert [(each["check_name"], each["exception"]) for each in results if each["status"] == "failed"] == []
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(EXPECTED_FAILED_CHECKS)


# Some checks of scikit-learn fit twenty points fifty times; its warnings are about those data.
@pytest.mark.filterwarnings("ignore")
def test_is_a_scikit_learn_estimator_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(data: NDArray[np.float64]) -> Counts:
        """scikit-learn's checks feed real numbers: take hundredths for counts."""
        data = np.asarray(data, dtype=np.float64)
        return check_counts(np.where(data < 0, data, np.rint(100 * data) + 1))

    monkeypatch.setattr(clustpsi.clustering, "check_counts", rounded)
    failed = ("check_clustering", "check_positive_only_tag_during_fit")
    check_estimator(
        PSIClustering(n_init=1),
        expected_failed_checks={name: EXPECTED_FAILED_CHECKS[name] for name in failed},
        on_skip=None,
    )


@pytest.mark.parametrize(
    ("features", "columns"), [("psi", ["psi", "psi_cat", "psi_dog"]), ("signed", ["signed_cat", "signed_dog"])]
)
def test_finding_18_transform_gives_data_frames_where_asked(features: str, columns: list[str]) -> None:
    counts = pd.DataFrame([[9, 1], [8.0, 2], [1, 9], [0, 7]], columns=["cat", "dog"], index=list("abcd"))
    fitted = PSIClustering(2, features=features, random_state=0).fit(counts)
    plain = fitted.transform(counts)
    frame = fitted.set_output(transform="pandas").transform(counts)
    pd.testing.assert_frame_equal(frame, pd.DataFrame(plain, index=counts.index, columns=columns))
    np.testing.assert_array_equal(fitted.predict(counts), fitted.labels_)
    assert PSIClustering(2, features=features).fit(counts.to_numpy()).get_feature_names_out()[-1] == f"{features}_x1"


def test_finding_18_whole_numbered_floats_are_counts() -> None:
    counts = dirichlet(12, 0.3, seed=0)
    fitted = [PSIClustering(random_state=0).fit(counts.astype(kind)) for kind in (np.int32, np.float32, np.float64)]
    assert {tuple(each.labels_) for each in fitted} == {tuple(fitted[0].labels_)}


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        ("clust_psi_pfl", {}),
        ("clust_psi_pfl:psi_search=plain", {"search": "plain"}),
        ("clust_psi_pfl:psi_features=signed:psi_smoothing=clip", {"features": "signed", "smoothing": "clip"}),
        ("clust_psi_pfl:psi_epsilon=0.1:tau_clusters=5", {"epsilon": 0.1, "n_clusters": 5}),
    ],
)
def test_the_method_clusters_with_its_own_parameters_and_the_runs_seed(
    spec: str, parameters: dict[str, object]
) -> None:
    counts = dirichlet(40, 5.0, seed=3)
    setting = Setting(
        clients=np.arange(40),
        sizes=counts.sum(axis=1),
        num_classes=10,
        fraction=0.5,
        num_rounds=1,
        local_epochs=1,
        initial=lambda _: Model(np.zeros(1, np.float32), np.zeros(0, np.float32)),
        seed=8,
    )
    state = drive(make_method(spec).start(setting), lambda order: counts)
    expected = PSIClustering(**parameters, random_state=8).fit(counts)  # type: ignore[arg-type]
    np.testing.assert_array_equal(state.memory["cluster"], expected.labels_)
    assert state.memory["silhouette"].tolist() == list(expected.silhouette_scores_.values())
