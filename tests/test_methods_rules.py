"""Every method's rule against hand-worked values, with a server that answers orders from known arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.cluster import OPTICS

from clustpsi.errors import ClustPSIError
from clustpsi.methods import cfl, fedcls, haccs, make_method
from clustpsi.methods.base import Method, Setting, State, num_chosen
from clustpsi.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from clustpsi.methods.fedprox import FedProx
from clustpsi.methods.fedsoft import FedSoft, mixtures
from clustpsi.methods.orders import (
    LabelCounts,
    LabelPresence,
    Losses,
    Model,
    NearestModel,
    Order,
    Together,
    Train,
    Trained,
    drive,
    mean_model,
)
from clustpsi.methods.poc import PoC
from clustpsi.methods.prior_pfl import PriorPFL


def vector(*values: float) -> Model:
    return Model(np.array(values, np.float32), np.zeros(0, np.float32))


def make_setting(sizes: list[int], *, fraction: float = 0.5, num_classes: int = 2, num_rounds: int = 40) -> Setting:
    return Setting(
        clients=np.arange(len(sizes)),
        sizes=np.array(sizes),
        num_classes=num_classes,
        fraction=fraction,
        num_rounds=num_rounds,
        local_epochs=1,
        initial=lambda index: Model(np.full(2, float(index), np.float32), np.full(1, float(index), np.float32)),
        seed=7,
    )


class Server:
    """Answers orders from known arrays and remembers the last training order.

    Client k's model after training is its start plus ``moves[k]``.
    """

    def __init__(
        self,
        moves: Callable[[int], Any] = lambda client: 1.0,
        *,
        counts: Any = None,
        losses: Any = None,
        nearest: Any = None,
        sizes: Any = None,
    ) -> None:
        self.moves, self.counts, self.losses, self.nearest = moves, counts, losses, nearest
        self.sizes, self.trained = sizes, list[Train]()

    def __call__(self, order: Order) -> Any:
        match order:
            case LabelCounts(clients):
                return None if self.counts is None else np.asarray(self.counts)[clients]
            case LabelPresence(clients):
                return None if self.counts is None else np.asarray(self.counts)[clients] > 0
            case Losses(clients, _):
                return np.asarray(self.losses, np.float64)[clients]
            case NearestModel(clients, _):
                return np.asarray(self.nearest)[clients]
            case Together(orders):
                return tuple(map(self, orders))
            case Train():
                return self.train(order)
        raise AssertionError(order)

    def train(self, order: Train) -> Trained:
        self.trained.append(order)
        starts = [order.start] * len(order.clients) if isinstance(order.start, Model) else order.start
        models = [
            Model(*((part + np.asarray(self.moves(int(client)), np.float32)).astype(np.float32) for part in start))
            for client, start in zip(order.clients, starts, strict=True)
        ]
        weights = np.ones(len(models)) if order.weights is None else order.weights
        kept = np.ones(len(models), bool)
        mean = mean_model(models, weights) if np.sum(weights) > 0 else None
        return Trained(mean, np.arange(len(models)) + 0.5, kept, [*models])


def play(method: Method, setting: Setting, server: Server, rounds: int) -> list[State]:
    """States after the start and after each round."""
    states = [drive(method.start(setting), server)]
    for t in range(1, rounds + 1):
        rng = np.random.default_rng(t)
        states.append(drive(method.round(setting, states[-1], t, rng), server))
    return states


def steps(spec: str, rounds: int = 3) -> list[float]:
    """How far the server's first parameter moves each round if the clients' mean is always one ahead of it."""
    states = play(make_method(spec), make_setting([1, 1, 1, 1]), Server(), rounds)
    return np.diff([state.models[0].parameters[0] for state in states]).tolist()


# ---------------------------------------------------------------------------------------------------- server optimizers


def test_server_optimizers_make_the_steps_worked_out_by_hand() -> None:
    assert steps("fedavgm") == pytest.approx([1, 1.7, 2.19], rel=1e-5)
    assert steps("fedavgm:momentum=0:server_lr=0.5") == pytest.approx([0.5, 0.5, 0.5])
    assert steps("fedadagrad", 2) == pytest.approx([0.28745, 0.20882], rel=1e-4)
    assert steps("fedyogi", 1) == pytest.approx([9.091e-4], rel=1e-3)
    assert steps("fedadam:bias_correction=none", 1) == pytest.approx([9.901e-4], rel=1e-3)
    assert steps("fedadam", 1) == pytest.approx([7.351e-4], rel=1e-3)
    assert steps("fedadam:bias_correction=none:v0=tau2", 1) == pytest.approx(
        [0.001 * 0.1 / (np.sqrt(0.99e-6 + 0.01) + 0.001)], rel=1e-3
    )


@pytest.mark.parametrize("method", [FedAdagrad(), FedYogi(), FedAdam(), FedAdam(bias_correction="none", eta_l=0.5)])
def test_adaptive_optimizers_follow_their_equations(method: FedAdagrad | FedYogi | FedAdam) -> None:
    rng = np.random.default_rng(3)
    theta, m, v = rng.normal(size=50), np.zeros(50), np.zeros(50)
    model = Model(theta.astype(np.float32), np.zeros(0, np.float32))
    state = State(models=(model,), memory=method.memory(model.parameters))
    for t in range(1, 8):
        mean = theta + rng.normal(size=50) * rng.choice([0.0, 1.0, 3.0], 50)
        state = method.update(state, Model(mean.astype(np.float32), np.zeros(0, np.float32)), t)
        delta = method.eta_l * (mean - theta)
        m = method.beta1 * m + (1 - method.beta1) * delta
        if isinstance(method, FedAdagrad):
            v = v + delta**2
        elif isinstance(method, FedYogi):
            v = v - 0.01 * delta**2 * np.sign(v - delta**2)
        else:
            v = 0.99 * v + 0.01 * delta**2
        flower = isinstance(method, FedAdam) and method.bias_correction == "flower"
        eta = method.eta * (np.sqrt(1 - 0.99 ** (t + 1)) / (1 - 0.9 ** (t + 1)) if flower else 1)
        theta = theta + eta * m / (np.sqrt(v) + method.tau_adaptivity)
        np.testing.assert_allclose(state.models[0].parameters, theta, rtol=1e-4, atol=1e-5)
        assert state.models[0].parameters.dtype == state.memory["m"].dtype == np.float32


def test_buffers_are_averaged_unless_asked_otherwise() -> None:
    setting, server = make_setting([1, 1, 1, 1]), Server()
    averaged = play(make_method("fedadam"), setting, server, 1)[-1].models[0]
    assert averaged.buffers.tolist() == [1.0]
    optimized = play(make_method("fedadam:server_opt_on_buffers=true"), setting, server, 1)[-1].models[0]
    assert optimized.buffers[0] == optimized.parameters[0] == pytest.approx(7.351e-4, rel=1e-3)


# ------------------------------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    ("rule", "clients", "numbers"),
    [
        ("q_of_d", 10, (8, 5)),
        ("q_of_d", 100, (8, 4)),
        ("scale_d", 100, (80, 50)),
        ("scale_d", 10, (8, 5)),
        ("all_d", 100, (8, 8)),
        ("all_d", 10, (8, 5)),
        ("q_of_d", 3, (3, 2)),
        ("scale_d", 1, (1, 1)),
    ],
)
def test_poc_numbers_of_candidates_and_participants(rule: str, clients: int, numbers: tuple[int, int]) -> None:
    assert PoC(poc_rule=rule).numbers(make_setting([1] * clients)) == numbers


def test_poc_trains_the_candidates_with_the_largest_loss_and_weighs_them_equally() -> None:
    asked = list[np.ndarray]()
    losses = np.random.default_rng(0).permutation(10) / 3

    class Watched(Server):
        def __call__(self, order: Order) -> Any:
            if isinstance(order, Losses):
                asked.append(order.clients)
            return super().__call__(order)

    server = Watched(losses=losses)
    play(PoC(), make_setting([5] * 10), server, 20)
    for candidates, order in zip(asked, server.trained, strict=True):
        assert len(set(candidates)) == 8
        assert set(order.clients) == set(candidates[np.argsort(-losses[candidates])[:5]])
        assert order.weights is not None and set(order.weights) == {1.0}
        assert order.downloads == 0  # they hold the model already, from the loss
    assert len({tuple(sorted(each)) for each in asked}) > 5


def frequencies(method: Method, setting: Setting, server: Server, rounds: int) -> np.ndarray:
    """How often each client trains."""
    play(method, setting, server, rounds)
    return np.bincount(np.concatenate([order.clients for order in server.trained]), minlength=len(setting.clients))


def test_poc_draws_candidates_by_size_and_breaks_ties_at_random() -> None:
    sizes = [10, 20, 30, 40]
    one = frequencies(PoC(d_poc=1), make_setting(sizes), Server(losses=np.zeros(4)), 2000)
    assert chisquare(one, np.array(sizes) * 20).pvalue > 1e-3
    tied = frequencies(PoC(d_poc=4), make_setting([1] * 4, fraction=0.25), Server(losses=np.zeros(4)), 1000)
    assert chisquare(tied, np.full(4, tied.sum() / 4)).pvalue > 1e-3


def test_haccs_weighs_groups_by_latency_and_loss() -> None:
    group, latency, loss = np.array([0, 0, 1, 2]), np.array([1.0, 3.0, 8.0, 4.0]), np.array([1.0, 3.0, 4.0, 2.0])
    theta = haccs.group_weights(group, latency, loss, 0.95)
    expected = 0.95 * np.array([0.75, 0, 0.5]) + 0.05 * np.array([2, 4, 2]) / 8
    np.testing.assert_allclose(theta, expected / expected.sum())
    np.testing.assert_allclose(haccs.group_weights(group, latency, loss, 0.0), [0.25, 0.5, 0.25])
    # A loss that is not a number counts nowhere; a single group is chosen whatever its weight.
    np.testing.assert_allclose(
        haccs.group_weights(group, latency, np.array([1.0, np.nan, 2.0, 1.0]), 0.0), [0.25, 0.5, 0.25]
    )
    assert haccs.group_weights(np.zeros(3, np.int64), latency[:3], np.zeros(3), 1.0).tolist() == [1.0]


def test_haccs_gives_whole_shares_first_and_draws_the_rest() -> None:
    theta, size = np.array([0.5, 0.3, 0.2]), np.array([9, 9, 9])
    drawn = np.array([haccs.allocate(np.random.default_rng(i), theta, size, 5) for i in range(2000)])
    assert (drawn.sum(axis=1) == 5).all()
    assert (drawn >= [2, 1, 1]).all()  # floor(theta m)
    assert chisquare((drawn - [2, 1, 1]).sum(axis=0), theta * 2000).pvalue > 1e-3
    assert haccs.allocate(np.random.default_rng(0), theta, np.array([1, 1, 3]), 5).tolist() == [1, 1, 3]


def test_haccs_takes_the_fastest_clients_of_its_groups() -> None:
    counts = np.array([[9, 0]] * 6 + [[0, 9]] * 6)
    setting, server = make_setting([9] * 12), Server(counts=counts, losses=np.ones(12))
    states = play(make_method("haccs"), setting, server, 5)
    latency, group = states[0].memory["latency"], states[0].memory["group"]
    assert group.tolist() == [0] * 6 + [1] * 6
    for order in server.trained:
        assert len(order.clients) == 6
        for g in (0, 1):
            own = order.clients[group[order.clients] == g]
            members = np.flatnonzero(group == g)
            assert set(own) == set(members[np.argsort(latency[members])[: len(own)]])
    # Participants' losses become known; the others keep those of the initial model.
    trained = server.trained[-1].clients
    np.testing.assert_allclose(states[-1].memory["loss"][trained], np.arange(6) + 0.5)
    never = np.setdiff1d(np.arange(12), np.concatenate([order.clients for order in server.trained]))
    assert (states[-1].memory["loss"][never] == 1).all() and len(never)


def test_haccs_alike_clients_always_means_the_same_fastest_ones() -> None:
    server = Server(counts=np.full((10, 2), 5), losses=np.ones(10))
    chosen = frequencies(make_method("haccs"), make_setting([10] * 10), server, 4)
    assert sorted(chosen) == [0] * 5 + [4] * 5


def test_haccs_options_on_losses_and_weights() -> None:
    setting, server = make_setting([9] * 4), Server(counts=np.full((4, 2), 5), losses=np.ones(4))
    play(make_method("haccs:haccs_loss=all:haccs_weights=uniform"), setting, server, 1)
    assert server.trained[0].downloads == 0
    assert server.trained[0].weights is not None and server.trained[0].weights.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_haccs_groups_are_those_of_optics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(60, rng.dirichlet(np.full(4, 0.4), 12).repeat(3, axis=0)[:30]) + (
        rng.random((30, 1)) < 0.1
    )
    root = np.sqrt(counts / counts.sum(axis=1, keepdims=True))
    distance = np.linalg.norm(root[:, None] - root, axis=2) / np.sqrt(2)
    labels = OPTICS(min_samples=2, metric="precomputed", cluster_method="dbscan", eps=0.25).fit_predict(distance)
    alone = labels == -1
    labels[alone] = labels.max() + 1 + np.arange(alone.sum())
    ours = haccs.group_by_labels(counts)
    assert len(set(zip(labels, ours, strict=True))) == len(set(labels)) == len(set(ours))
    assert 1 < len(set(ours)) < 30


def test_haccs_noise_hides_counts() -> None:
    counts = np.array([[9, 0]] * 10 + [[0, 9]] * 10)
    server = Server(counts=counts, losses=np.ones(20))
    private = play(make_method("haccs:dp_eps=0.1"), make_setting([9] * 20), server, 0)[0].memory["group"]
    assert private.max() > 1


def test_latencies_have_the_reference_range_and_classes() -> None:
    latency = haccs.draw_latencies(np.random.default_rng(0), 20000)
    assert latency.min() > 0.8 and latency.max() < 20 + 0.2 + 80
    share, low, high = np.array([0.6, 0.2, 0.14, 0.06]), np.array([75, 50, 25, 1]), np.array([100, 75, 50, 25])
    transfer = (share * 80 * np.log(high / low) / (high - low)).sum()
    computation = (share * [2.5, 7.5, 12.5, 17.5]).sum()
    assert latency.mean() == pytest.approx(0.11 + transfer + computation, rel=0.02)


def test_fedcls_groups_have_founders_that_differ_in_few_labels() -> None:
    base = np.zeros((4, 10), bool)
    base[:, :5] = True
    base[1, 5] = True  # differs from the founder in one label of ten
    base[2, 5:7] = True  # in two
    groups = fedcls.leader_groups(base, np.arange(4), 0.1)
    assert groups.tolist() == [0, 0, 1, 0]
    assert fedcls.leader_groups(base, np.array([1, 0, 2, 3]), 0.1).tolist() == [0, 0, 0, 0]


def test_fedcls_covers_all_labels_equally_often() -> None:
    present = np.eye(10, dtype=bool).repeat(5, axis=0)
    group = np.arange(10).repeat(5)
    for seed in range(5):
        chosen = fedcls.cover_labels(np.random.default_rng(seed), present, group, 20)
        assert len(set(chosen)) == 20
        assert np.bincount(group[chosen]).tolist() == [2] * 10
    few = [fedcls.cover_labels(np.random.default_rng(seed), present, group, 5) for seed in range(400)]
    assert all(len(set(group[chosen])) == 5 for chosen in few)
    assert chisquare(np.bincount(np.concatenate(few), minlength=50)).pvalue > 1e-3


def test_fedcls_prefers_groups_that_add_most_labels_and_exhausts_everybody() -> None:
    present = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]], bool)
    chosen = fedcls.cover_labels(np.random.default_rng(0), present, np.arange(4), 4)
    assert chosen[0] == 0  # three labels
    assert chosen[1] == 2  # {3} and {2, 3} add one each; {3} is farther from the covered {0, 1, 2}
    assert sorted(chosen) == [0, 1, 2, 3]


def test_fedcls_with_one_group_is_uniform() -> None:
    server = Server(counts=np.full((8, 3), 4))
    chosen = frequencies(make_method("fedcls"), make_setting([12] * 8, num_classes=3), server, 600)
    assert chosen.sum() == 600 * 4
    assert chisquare(chosen).pvalue > 1e-3


@dataclass(frozen=True)
class PoCProx(PoC, FedProx):
    name = "poc_prox"


def test_methods_that_differ_in_different_steps_combine() -> None:
    server = Server(losses=np.arange(10))
    play(PoCProx(mu=0.3, d_poc=10), make_setting([5] * 10), server, 1)
    order = server.trained[0]
    assert order.clients.tolist() == [5, 6, 7, 8, 9]
    assert order.proximal == 0.3 and order.downloads == 0


# ------------------------------------------------------------------------------------------------------------------ CFL


def test_cfl_splits_the_worked_example() -> None:
    similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
    second = cfl.bipartition(similarity, "optimal")
    assert second.tolist() == [False, False, True]
    assert cfl.distance_across(similarity, second) == pytest.approx(np.sqrt(0.4))
    similarity[1, 2] = similarity[2, 1] = 0.5
    assert not cfl.distance_across(similarity, second) > 0.5  # exactly at the bound: reject


@given(st.integers(3, 7), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_cfl_bipartition_is_optimal(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    similarity = cfl.cosines(rng.normal(size=(number, 3)).astype(np.float32))
    second = cfl.bipartition(similarity, "optimal")
    across = [
        similarity[np.ix_(half, np.setdiff1d(np.arange(number), half))].max()
        for size in range(1, number)
        for half in map(list, combinations(range(number), size))
    ]
    assert not second[0] and second.any()
    assert similarity[np.ix_(~second, second)].max() == min(across)


def test_cfl_complete_linkage_balances_where_the_optimal_split_peels_off_one() -> None:
    angles = np.radians([0, 20, 40, 60, 80, 105])
    similarity = cfl.cosines(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    assert cfl.bipartition(similarity, "optimal").tolist() == [False] * 5 + [True]
    assert 2 <= cfl.bipartition(similarity, "complete").sum() <= 4


def test_cosines_of_zero_updates_are_zero() -> None:
    similarity = cfl.cosines(np.array([[3, 4], [0, 0], [-6, -8]], np.float32))
    np.testing.assert_allclose(similarity, [[1, 0, -1], [0, 0, 0], [-1, 0, 1]], atol=1e-6)


def opposite(client: int) -> float:
    return 1.0 if client < 3 else -1.0


def test_cfl_splits_by_direction_and_children_average_their_own() -> None:
    setting, server = make_setting([10] * 6, num_rounds=4), Server(opposite)
    states = play(make_method("cfl:cfl_preset=relative:warmup=2"), setting, server, 3)
    assert len(states[1].models) == 1  # before the warm-up is over
    assert states[2].memory["cluster"].tolist() == [0, 0, 0, 1, 1, 1]
    before = states[1].models[0].parameters
    np.testing.assert_allclose([model.parameters - before for model in states[2].models], [[1, 1], [-1, -1]], atol=1e-6)
    full = [order for order in server.trained if order.purpose == "split"]
    assert len(full) == 1 and len(full[0].clients) == 3  # only those who had not trained in that round
    assert len(states[3].models) == 2  # a half's clients agree: no further split
    table = make_method("cfl").tables(setting, states[3])["cfl"]
    assert table["split"].tolist() == [0, 1, 0, 0] and table["round"].tolist() == [1, 2, 3, 3]
    assert table["max_norm"].max() == pytest.approx(np.sqrt(2))


def test_cfl_keeps_together_what_is_not_far_enough_apart() -> None:
    moves = {0: [1, 0.3], 1: [1, 0.3], 2: [1, -0.3], 3: [1, -0.3]}

    class Pair(Server):
        def train(self, order: Train) -> Trained:
            trained = super().train(order)
            assert isinstance(order.start, Model)
            models = [
                Model(order.start.parameters + np.array(moves[int(k)], np.float32), order.start.buffers)
                for k in order.clients
            ]
            return trained._replace(mean=mean_model(models, np.ones(len(models))), models=[*models])

    spec = "cfl:cfl_preset=relative:warmup=1:eps1=2"
    assert len(play(make_method(spec), make_setting([5] * 4), Pair(), 1)[-1].models) == 1
    assert len(play(make_method(spec + ":gamma=0.1"), make_setting([5] * 4), Pair(), 1)[-1].models) == 2


def test_cfl_never_splits_one_or_two_clients_nor_with_the_papers_thresholds() -> None:
    pair = play(
        make_method("cfl:cfl_preset=relative:warmup=0"), make_setting([5] * 2), Server(lambda k: 2.0 * k - 1), 2
    )
    assert len(pair[-1].models) == 1
    paper = play(make_method("cfl"), make_setting([5] * 6), Server(lambda k: opposite(k) + 1e-3), 3)
    assert len(paper[-1].models) == 1


def test_cfl_puts_clients_without_a_finite_update_into_the_larger_half() -> None:
    class Failing(Server):
        broken: tuple[int, ...] = (0, 5)

        def train(self, order: Train) -> Trained:
            kept = ~np.isin(order.clients, self.broken)
            trained = super().train(order)
            assert trained.models is not None
            models = [model if fine else None for model, fine in zip(trained.models, kept, strict=True)]
            finite = [model for model in models if model is not None]
            mean = mean_model(finite, np.ones(len(finite))) if finite else None
            return trained._replace(mean=mean, kept=kept, models=models)

    setting, spec = make_setting([10] * 7, fraction=1.0), "cfl:cfl_preset=relative:warmup=1:eps1=9"
    state = play(make_method(spec), setting, Failing(lambda k: 1.0 if k < 5 else -1.0), 1)[-1]
    assert state.memory["cluster"].tolist() == [0, 0, 0, 0, 0, 0, 1]
    server = Failing(opposite)
    server.broken = (0, 1, 2, 3, 4, 5)  # nothing to compare the last one with
    assert len(play(make_method(spec), setting, server, 1)[-1].models) == 1


# -------------------------------------------------------------------------------------------------------------- FedSoft


def test_fedsoft_importance_selection_and_objective() -> None:
    setting = make_setting([10, 20, 30, 40])
    nearest = np.array([[10, 0], [5, 15], [15, 15], [0, 40]])
    server = Server(nearest=nearest)
    method = FedSoft(n_fedsoft=2, lambda_fedsoft=0.1)
    start, state = play(method, setting, server, 1)
    u = np.array([[1, 1e-4], [0.25, 0.75], [0.5, 0.5], [1e-4, 1]])
    np.testing.assert_allclose(state.memory["importance"], u)
    order = server.trained[0]
    assert order.downloads == 2 and order.uploads == 1
    # The pull of one anchor is that of all cluster models: lambda sum_s u_ks (theta - c_s).
    theta, centres = np.array([0.3, -2.0]), np.stack([model.parameters for model in start.models[:2]])
    assert order.anchors is not None
    for k, strength, anchor in zip(order.clients, order.proximal, order.anchors, strict=True):  # type: ignore[arg-type]
        several = 0.1 * (u[k][:, None] * (theta - centres)).sum(axis=0)
        np.testing.assert_allclose(strength * (theta - anchor.parameters), several, rtol=1e-5)


def test_fedsoft_draws_clients_by_importance_times_size() -> None:
    setting, method = make_setting([10, 20, 30, 40]), FedSoft(n_fedsoft=2)
    weight = np.array([[10, 0.001], [5, 15], [15, 15], [0.004, 40]])
    rng = np.random.default_rng(0)
    drawn = np.array([method.select(setting, weight, rng) for _ in range(3000)])
    assert drawn.shape == (3000, 2, 1)  # q K / S = 1 client for each cluster
    for s in range(2):
        seen = np.bincount(drawn[:, s, 0], minlength=4)
        likely = weight[:, s] > 1
        assert chisquare(seen[likely], weight[likely, s] / weight[likely, s].sum() * seen[likely].sum()).pvalue > 1e-3
        assert seen[~likely].sum() < 10


def test_fedsoft_cluster_models_are_plain_means_and_estimates_are_kept_between_estimations() -> None:
    estimations = list[int]()

    class Counting(Server):
        def __call__(self, order: Order) -> Any:
            estimations.append(isinstance(order, NearestModel))
            return super().__call__(order)

    setting = make_setting([10] * 8)
    server = Counting(lambda client: float(client), nearest=np.full((8, 2), 5))
    states = play(FedSoft(n_fedsoft=2, tau_est=3), setting, server, 4)
    assert sum(estimations) == 2  # rounds 1 and 4
    state = states[1]
    centres, personal = state.models[:2], state.models[2:]
    trained = np.flatnonzero(state.memory["trained"])
    assert set(trained) == set(server.trained[0].clients)
    values = np.array([model.parameters[0] for model in personal])
    for centre in centres:  # two clients each
        assert any(centre.parameters[0] == pytest.approx(values[[a, b]].mean()) for a, b in combinations(trained, 2))


def test_fedsoft_untrained_clients_use_their_mixture() -> None:
    method = FedSoft(n_fedsoft=2)
    setting = make_setting([10] * 4)
    state = drive(method.start(setting), Server())
    deployed = method.deploy(setting, state)
    assert [model.parameters[0] for model in deployed.models] == [1.5] * 4  # of initial models 1 and 2
    assert len(method.server_deployments(setting, state)) == 2
    mixed = mixtures([vector(0), vector(10)], np.array([[1, 3], [2, 0]]))
    assert [model.parameters[0] for model in mixed] == [7.5, 0]


# ------------------------------------------------------------------------------------------------------------ prior_pfl


def test_prior_pfl_trains_only_clients_with_several_classes_by_size_and_impurity() -> None:
    counts = np.array([[10, 0, 0], [5, 5, 0], [0, 30, 10], [0, 0, 4]])
    setting = make_setting([10, 10, 40, 4], fraction=1.0, num_classes=3)
    server = Server(counts=counts)
    play(PriorPFL(), setting, server, 1)
    order = server.trained[0]
    assert order.clients.tolist() == [1, 2]
    np.testing.assert_allclose(order.weights, [10 * 0.5, 40 * (1 - 0.75**2 - 0.25**2)])  # type: ignore[arg-type]
    assert order.log_prior is not None
    np.testing.assert_allclose(np.exp(order.log_prior), [[0.5, 0.5, 0], [0, 0.75, 0.25]])


def test_prior_pfl_uses_smoothed_training_counts() -> None:
    counts = np.array([[10, 0], [5, 15]])
    setting = make_setting([10, 20])
    state = drive(PriorPFL().start(setting), Server(counts=counts))
    expected = (counts + 0.5 * np.array([0.5, 0.5])) / (counts.sum(axis=1, keepdims=True) + 0.5)
    deployed = PriorPFL().deploy(setting, state)
    assert deployed.log_prior is not None
    np.testing.assert_allclose(np.exp(deployed.log_prior), expected)


def test_prior_pfl_without_anything_to_learn_keeps_its_model() -> None:
    server = Server(counts=np.array([[10, 0], [0, 10]]))
    first, last = play(PriorPFL(), make_setting([10, 10]), server, 1)
    assert last == first and not server.trained


# --------------------------------------------------------------------------------------------------------- label counts


@pytest.mark.parametrize("name", ["haccs", "fedcls", "clust_psi_pfl", "prior_pfl"])
def test_methods_that_need_labels_say_so_where_there_are_none(name: str) -> None:
    with pytest.raises(ClustPSIError, match=f"{name} needs to know the clients' label"):
        drive(make_method(name).start(make_setting([5] * 4)), Server(losses=np.ones(4)))


def test_number_of_participants() -> None:
    assert [num_chosen(k, 0.5) for k in (10, 50, 100)] == [5, 25, 50]
    assert num_chosen(100, 0.29) == 29
