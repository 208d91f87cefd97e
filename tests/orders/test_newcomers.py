"""Clients that were not there, placed from their label counts."""

from dataclasses import replace

import numpy as np
import pytest

from clustpsi.clustering import PSIClustering
from clustpsi.methods import make_method
from clustpsi.methods.base import Method, Setting, State
from clustpsi.orders import Deployment, LabelCounts, Model, Newcomers, Order, Trained, drive, near_users

COUNTS = np.array([[90, 10, 0], [80, 20, 0], [0, 10, 90], [0, 5, 60]])
SETTING = Setting(
    clients=np.arange(4),
    sizes=COUNTS.sum(axis=1),
    num_classes=3,
    fraction=1.0,
    num_rounds=1,
    local_epochs=1,
    initial=lambda index: model(float(index)),
    seed=0,
)


def model(value: float) -> Model:
    return Model(np.full(2, value, np.float32), np.zeros(0, np.float32))


def answer(order: Order) -> object:
    """What a federation sends whose clients move every model by their number."""
    match order:
        case LabelCounts(clients):
            return COUNTS[clients]
    return tuple(map(_trained, order.orders)) if hasattr(order, "orders") else _trained(order)


def _trained(order: Order) -> object:
    if isinstance(order, LabelCounts):
        return COUNTS[order.clients]
    clients = order.clients  # type: ignore[union-attr]
    models = [model(float(client)) for client in clients]
    return Trained(models[0], np.zeros(len(clients)), np.ones(len(clients), bool), models)


def started(method: Method) -> State:
    return drive(method.start(SETTING), answer)


def after_a_round(method: Method) -> Newcomers:
    state = drive(method.round(SETTING, started(method), 1, np.random.default_rng(0)), answer)
    return method.newcomers(SETTING, state, COUNTS)


def test_a_single_model_serves_everybody() -> None:
    newcomers = after_a_round(make_method("fedavg"))
    placed = newcomers.place(np.array([[1, 0, 0], [0, 0, 0]]))
    assert not newcomers.uses_counts and placed.log_prior is None
    assert placed.of_client.tolist() == [0, 0] and len(placed.models) == 1


def test_newcomers_of_clusters_are_where_psi_clustering_puts_them() -> None:
    method = make_method("clust_psi_pfl:psi_features=signed:psi_epsilon=0.01")
    newcomers = method.newcomers(SETTING, started(method), COUNTS)
    fitted = PSIClustering(features="signed", epsilon=0.01, min_wpsi=0, random_state=0).fit(COUNTS)
    others = np.random.default_rng(0).integers(0, 40, (50, 3)) + np.eye(3, dtype=np.int64)[0]
    assert newcomers.place(others).of_client.tolist() == fitted.predict(others).tolist()
    assert len(set(fitted.predict(others))) == 2
    everybody = COUNTS.sum(axis=0, keepdims=True)
    assert newcomers.place(np.zeros((1, 3), np.int64)).of_client[0] == fitted.predict(everybody)[0]


def test_a_newcomers_prior_is_its_counts_and_some_of_the_federations() -> None:
    method = make_method("prior_pfl:prior_strength=2:hold_out=0")
    newcomers = method.newcomers(SETTING, started(method), COUNTS)
    mix = COUNTS.sum(axis=0) / COUNTS.sum()
    placed = newcomers.place(np.array([[6, 0, 0], [0, 0, 0]]))
    assert placed.log_prior is not None
    np.testing.assert_allclose(np.exp(placed.log_prior[0]), (np.array([6, 0, 0]) + 2 * mix) / 8)
    np.testing.assert_allclose(np.exp(placed.log_prior[1]), mix)


def test_a_method_in_clusters_gives_the_prior_of_the_newcomers_cluster() -> None:
    method = make_method("clust_psi_pfl:inner=prior_pfl:psi_features=signed:tau_clusters=2:prior_strength=5")
    newcomers = method.newcomers(SETTING, started(method), COUNTS)
    placed = newcomers.place(np.array([[9, 1, 0], [0, 1, 9]]))
    assert placed.log_prior is not None and placed.of_client[0] != placed.of_client[1]
    for own, members, prior in zip(((9, 1, 0), (0, 1, 9)), (COUNTS[:2], COUNTS[2:]), placed.log_prior, strict=True):
        mix = members.sum(axis=0) / members.sum()
        np.testing.assert_allclose(np.exp(prior), (np.array(own) + 5 * mix) / 15)


def test_without_a_rule_of_its_own_a_method_serves_newcomers_like_those_of_the_nearest_mix() -> None:
    deployment = Deployment((model(0), model(1), model(2)), np.array([0, 0, 1, 1]))  # nobody uses the last one
    newcomers = near_users(deployment, COUNTS)
    assert newcomers.place(np.array([[9, 1, 0], [1, 0, 3], [0, 0, 1]])).of_client.tolist() == [0, 1, 1]
    assert newcomers.place(np.zeros((1, 3), np.int64)).of_client.tolist() == [0]  # the federation has more of class 0


def test_alone_trained_models_serve_whoever_is_like_their_client() -> None:
    newcomers = after_a_round(make_method("local"))
    assert newcomers.place(COUNTS[::-1]).of_client.tolist() == [3, 2, 1, 0]


def test_fedsoft_serves_newcomers_with_the_mixture_of_an_average_sample() -> None:
    method = make_method("fedsoft:n_fedsoft=2")
    state = State((model(1), model(4), *(model(9),) * 4), {"importance": np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])})
    newcomers = method.newcomers(SETTING, state, COUNTS)
    share = COUNTS.sum(axis=1)[2:].sum() / COUNTS.sum()
    np.testing.assert_allclose(newcomers.models[0].parameters, 1 + 3 * share, rtol=1e-6)
    assert len(newcomers.models) == 1 and not newcomers.uses_counts


def test_a_run_of_an_earlier_version_cannot_place_newcomers() -> None:
    method = make_method("clust_psi_pfl")
    state = started(method)
    old = replace(state, memory={key: value for key, value in state.memory.items() if key != "centres"})
    with pytest.raises(ValueError, match=r"earlier version of clustpsi.*--fresh"):
        method.newcomers(SETTING, old, COUNTS)
