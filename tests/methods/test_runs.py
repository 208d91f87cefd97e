"""Methods on real federations: what must be equal is equal to the last bit, planted groups are found, costs add up."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from clustpsi.datasets.base import Dataset
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import constant_answers
from clustpsi.features import ArrayRows, as_they_are
from clustpsi.federation import Federation
from clustpsi.methods import make_method, method_types
from clustpsi.methods.base import Setting, State
from clustpsi.methods.fedavg import SingleModel
from clustpsi.methods.prior_pfl import PriorPFL
from clustpsi.orders import Deployment, Evaluate, Model, Train, Work, drive
from clustpsi.runs.cell import Cell, open_cell, open_federation
from clustpsi.runs.config import Config
from clustpsi.runs.store import pack_state, unpack_state
from clustpsi.streams import Stream, generator

CONFIG = Config(comm_rounds=4, local_epochs=3, lr=0.05, seed=5)
SINGLE_MODEL = [name for name, kind in method_types().items() if issubclass(kind, SingleModel)]


def federate(x: np.ndarray, labels: list[np.ndarray], test: int = 10) -> Federation:
    """Clients with these labels, their rows of x one after the other; the last rows of each are for testing.

    All federations have 4 classes and 1,000 rows of 5 features, some unused: one compiled program serves all tests.
    """
    ends = np.cumsum([len(own) for own in labels])
    rows = [np.arange(end - len(own), end) for end, own in zip(ends, labels, strict=True)]
    features, every_label = np.zeros((1000, 5), np.float32), np.zeros(1000, np.int32)
    features[: ends[-1], : x.shape[1]] = x
    every_label[: ends[-1]] = np.concatenate(labels)
    dataset = Dataset("made", every_label, tuple("abcd"), *as_they_are(features), model="logistic")
    cut = [len(own) - test for own in labels]
    train, held_out = zip(*((own[:at], own[at:]) for own, at in zip(rows, cut, strict=True)), strict=True)
    return Federation(dataset, train, held_out, tuple(map(str, range(len(labels)))))


def skewed(poisoned: int | None = None) -> Federation:
    """Overlapping classes, different label mixes; one client's features may be worthless."""
    rng = np.random.default_rng(3)
    labels = [rng.choice(4, rng.integers(60, 100), p=rng.dirichlet(np.full(4, 0.4))) for _ in range(8)]
    owner = np.repeat(np.arange(8), [len(own) for own in labels])
    x = 0.6 * rng.normal(size=(4, 5))[np.concatenate(labels)] + rng.normal(size=(len(owner), 5))
    if poisoned is not None:
        x[owner == poisoned] = np.nan
    return federate(x, labels, 25)


@pytest.fixture(scope="module")
def cell() -> Cell:
    return open_federation(skewed(), CONFIG, workers=2)


def play(spec: str, cell: Cell, config: Config = CONFIG, rounds: int = 4, restore: bool = False) -> State:
    """The state after some rounds; ``restore`` takes every round's from a checkpoint."""
    method, setting = make_method(spec), cell.setting(config)
    state = drive(method.start(setting), lambda order: cell.server.serve(order, 0))
    for t in range(1, rounds + 1):
        work = method.round(setting, state, t, generator(config.seed, Stream.SAMPLING, t))
        state = drive(work, lambda order, t=t: cell.server.serve(order, t))
        state = unpack_state(pack_state(state)) if restore else state
    return state


def models_of(spec: str, cell: Cell, state: State) -> np.ndarray:
    """The parameters that each client uses."""
    deployed = make_method(spec).deploy(cell.setting(CONFIG), state)
    return np.stack([deployed.models[i].parameters for i in deployed.of_client])


def accuracies(spec: str, cell: Cell, state: State, config: Config = CONFIG) -> np.ndarray:
    setting = cell.setting(config)
    evaluated = cell.server.serve(Evaluate(setting.clients, make_method(spec).deploy(setting, state)), 0)
    return evaluated.correct.sum(axis=1) / evaluated.actual.sum(axis=1)


# ----------------------------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize(
    "spec",
    [
        "fedprox:mu=0",
        "fedavgm:momentum=0",
        "cfl",
        "clust_psi_pfl:tau_clusters=1",
        "clust_psi_pfl:tau_clusters=1:inner=fedprox:mu=0",
        "clust_psi_pfl:min_wpsi=1e9",
    ],
)
def test_special_cases_are_fedavg_to_the_last_bit(spec: str, cell: Cell) -> None:
    fedavg = play("fedavg", cell)
    np.testing.assert_array_equal(models_of(spec, cell, play(spec, cell)), models_of("fedavg", cell, fedavg))


def test_parameters_change_the_result(cell: Cell) -> None:
    fedavg = models_of("fedavg", cell, play("fedavg", cell))
    for spec in (
        "fedprox:mu=0.5",
        "fedavgm",
        "fedadam",
        "poc",
        "haccs",
        "fedcls",
        "cfl:cfl_preset=relative:warmup=1:eps1=9",
    ):
        assert not np.array_equal(models_of(spec, cell, play(spec, cell)), fedavg), spec


def test_a_cluster_is_a_federation_of_its_own(cell: Cell) -> None:
    """Two clusters of Clust-PSI-PFL end where FedAvg among the members ends."""
    spec = "clust_psi_pfl:tau_clusters=2"
    state = play(spec, cell, rounds=1)
    cluster = state.memory["cluster"]
    setting, rng = cell.setting(CONFIG), generator(CONFIG.seed, Stream.SAMPLING, 1)
    for c in range(2):
        own = replace(setting, clients=np.flatnonzero(cluster == c))
        fedavg = make_method("fedavg")
        start = drive(fedavg.start(own), lambda order: cell.server.serve(order, 0))
        alone = drive(fedavg.round(own, start, 1, rng), lambda order: cell.server.serve(order, 1))
        np.testing.assert_array_equal(alone.models[0].parameters, state.parts[c].models[0].parameters)


@pytest.mark.parametrize("name", list(method_types()))
def test_state_survives_a_checkpoint(name: str, cell: Cell) -> None:
    kept, restored = play(name, cell, rounds=3), play(name, cell, rounds=3, restore=True)
    np.testing.assert_array_equal(models_of(name, cell, kept), models_of(name, cell, restored))


# ------------------------------------------------------------------------------------------------------- planted groups


def contrary(groups: np.ndarray, seed: int = 0) -> Federation:
    """The label is the quadrant; clients of group 1 call it by the opposite's name, so that no model can serve both."""
    x = np.random.default_rng(seed).normal(size=(80 * len(groups), 2))
    quadrant = (np.arctan2(x[:, 1], x[:, 0]) // (np.pi / 2)).astype(int) + 2
    return federate(x, list((quadrant.reshape(len(groups), 80) + 2 * groups[:, None]) % 4), 20)


GROUPS = np.array([0, 1, 0, 0, 1, 0, 1, 1, 0, 1])


@pytest.mark.parametrize("linkage", ["optimal", "complete"])
def test_cfl_finds_planted_groups(linkage: str) -> None:
    config = replace(CONFIG, comm_rounds=8)
    cell = open_federation(contrary(GROUPS), config)
    spec = f"cfl:cfl_preset=relative:linkage={linkage}"
    state = play(spec, cell, config, rounds=8)
    assert state.memory["cluster"].tolist() == GROUPS.tolist()
    norms = state.memory["norms"]
    assert norms[norms[:, 4] == 1, 0].tolist() == [2]  # one split, in round T / 4
    assert accuracies(spec, cell, state, config).mean() > 0.85
    assert accuracies("fedavg", cell, play("fedavg", cell, config, rounds=8), config).mean() < 0.6


@pytest.mark.parametrize("seed", [0, 1])
def test_fedsoft_finds_planted_groups(seed: int) -> None:
    config = replace(CONFIG, comm_rounds=10, seed=seed)
    cell = open_federation(contrary(GROUPS), config)
    spec = "fedsoft:n_fedsoft=2"
    state = play(spec, cell, config, rounds=10)
    importance = state.memory["importance"]
    assert importance.max(axis=1).min() > 0.9
    found = importance.argmax(axis=1)
    assert len(set(zip(found, GROUPS, strict=True))) == 2
    assert accuracies(spec, cell, state, config).mean() > 0.7


def test_fedsoft_importance_of_a_known_mixture() -> None:
    """Client k has a share k / 4 of its samples from the second model's source, the rest from the first's."""
    x = np.random.default_rng(2).choice([-1.0, 1.0], size=(5, 50, 1))
    contrary_rows = np.arange(40) < np.arange(5)[:, None] * 10
    labels = (x[:, :, 0] > 0).astype(int)
    labels[:, :40] ^= contrary_rows
    cell = open_federation(federate(x.reshape(-1, 1), list(labels)), CONFIG)
    method, setting = make_method("fedsoft:n_fedsoft=2"), cell.setting(CONFIG)
    state = drive(method.start(setting), lambda order: cell.server.serve(order, 0))
    sources = np.zeros((2, 24), np.float32)  # four biases, then five features times four classes
    sources[:, 2:4] = -99
    sources[:, 4:6] = [[-9, 9], [9, -9]]
    known = tuple(Model(source, np.zeros(0, np.float32)) for source in sources)
    state = replace(state, models=known + state.models[2:])
    state = drive(method.round(setting, state, 1, np.random.default_rng(0)), lambda order: cell.server.serve(order, 1))
    share = np.arange(5) / 4
    expected = np.maximum(np.stack([1 - share, share], axis=1), 1e-4)
    np.testing.assert_allclose(state.memory["importance"], expected)


# ------------------------------------------------------------------------------------------------------------ prior_pfl


def test_prior_pfl_serves_single_class_clients_without_training() -> None:
    labels = [np.full(30, c) for c in (0, 1, 2, 0, 1, 2)]
    cell = open_federation(federate(np.random.default_rng(0).normal(size=(180, 3)), labels), CONFIG)
    for spec in ("prior_pfl", "clust_psi_pfl:inner=prior_pfl"):
        cell.server.take_ledger()
        state = play(spec, cell, rounds=2)
        assert (accuracies(spec, cell, state) == 1).all()
        assert cell.server.take_ledger().trained == 0


def test_prior_pfl_beats_fedavg_under_label_skew_alone_and_inside_clusters(cell: Cell) -> None:
    fedavg, prior, inside = (
        accuracies(spec, cell, play(spec, cell, rounds=8)).mean()
        for spec in ("fedavg", "prior_pfl", "clust_psi_pfl:inner=prior_pfl")
    )
    assert prior > fedavg + 0.05
    assert inside > fedavg + 0.05


def test_prior_pfl_ends_in_local_training_where_clients_have_nothing_in_common() -> None:
    """Every other client sees the opposite of what the others see, so no shared model can serve both."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 3, 80) for _ in range(12)]
    x = np.eye(3)[np.concatenate(labels)] * 2 + rng.normal(size=(960, 3))
    x[np.arange(960) // 80 % 2 == 1] *= -1
    config = replace(CONFIG, comm_rounds=8)
    cell = open_federation(federate(x, labels, test=30), config)
    local, shared, prior = (
        accuracies(spec, cell, play(spec, cell, config, rounds=8), config).mean()
        for spec in ("local", "prior_pfl:personal=false:hold_out=0.2", "prior_pfl:hold_out=0.2")
    )
    assert shared < local - 0.2
    assert prior > local - 0.03


@dataclass(frozen=True)
class PlainPrior(SingleModel):
    """prior_pfl as it was before it held rows out, written down once more."""

    name: ClassVar[str] = "plain"
    title = family = idea = paper = "plain"  # type: ignore[misc]

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        counts = yield from self.label_counts(setting)
        return State((model,), {"counts": counts})

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[np.ndarray]:
        chosen = yield from super().select(setting, state, rng)
        return chosen[(state.memory["counts"][chosen] > 0).sum(axis=1) > 1]

    def local(self, setting: Setting, state: State, chosen: np.ndarray) -> Train:
        counts = state.memory["counts"][chosen]
        share = counts / counts.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return Train(
                chosen,
                state.models[0],
                weights=counts.sum(axis=1) * (1 - (share**2).sum(axis=1)),
                log_prior=np.log(share),
            )

    def deploy(self, setting: Setting, state: State) -> Deployment:
        counts = state.memory["counts"]
        mixed = counts + 0.5 * (counts.sum(axis=0) / counts.sum())
        with np.errstate(divide="ignore"):
            log_prior = np.log(mixed / mixed.sum(axis=1, keepdims=True))
        return Deployment(state.models, np.zeros(len(counts), np.int64), log_prior)


def test_prior_pfl_with_all_parts_off_is_what_it_was_to_the_last_bit(cell: Cell) -> None:
    now, was = make_method("prior_pfl:average_over=all:momentum=0:prior_strength=0.5:hold_out=0"), PlainPrior()
    assert all(getattr(now, key) == value for key, value in PriorPFL.before.items())
    setting = cell.setting(CONFIG)
    states = [drive(method.start(setting), lambda order: cell.server.serve(order, 0)) for method in (now, was)]
    for t in range(1, 5):
        for i, method in enumerate((now, was)):
            work = method.round(setting, states[i], t, generator(CONFIG.seed, Stream.SAMPLING, t))
            states[i] = drive(work, lambda order: cell.server.serve(order, t))  # noqa: B023
        deployed = [method.deploy(setting, state) for method, state in zip((now, was), states, strict=True)]
        np.testing.assert_array_equal(deployed[0].models[0].parameters, deployed[1].models[0].parameters)
        np.testing.assert_array_equal(deployed[0].log_prior, deployed[1].log_prior)  # type: ignore[arg-type]
        assert deployed[0].scale is None


def test_prior_pfl_copes_with_clients_of_one_row() -> None:
    """They have nothing to hold out and nothing to tell apart: alone they say what they have seen."""
    rng = np.random.default_rng(1)
    alone = [np.full(11, c % 3) for c in range(6)]
    for labels in (alone, [*alone, rng.integers(0, 3, 50)]):
        cell = open_federation(federate(rng.normal(size=(sum(map(len, labels)), 3)), labels), CONFIG)
        for spec in ("prior_pfl", "clust_psi_pfl:inner=prior_pfl"):
            accuracy = accuracies(spec, cell, play(spec, cell, rounds=4))
            assert np.isfinite(accuracy).all() and (len(labels) > 6 or (accuracy == 1).all())


def test_prior_pfl_leaves_a_model_that_has_diverged_out_of_account() -> None:
    """Logits that overflow lose the most there is, under every reading but the prior alone."""
    cell = open_federation(skewed(), replace(CONFIG, lr=1e37, optimizer="sgd"))
    state = play("prior_pfl:momentum=0", cell, rounds=4)
    assert state.memory["reading"][0] == 0
    evaluated = accuracies("prior_pfl", cell, state)
    majority = constant_answers(cell.server.clients.train_counts, cell.server.clients.test_counts)["client"]
    np.testing.assert_array_equal(evaluated, majority.local_accuracy)


def test_methods_without_what_makes_them_different_are_fedavg_to_the_last_bit(cell: Cell) -> None:
    expected = play("fedavg", cell).models[0].parameters
    for spec in ("fedlc:tau_fedlc=0", "ditto", "fedrs:alpha_fedrs=1"):
        np.testing.assert_array_equal(play(spec, cell).models[0].parameters, expected)


def test_clusters_of_single_class_clients_do_as_well_as_their_majority_class() -> None:
    config = Config(partitioner="similarity", non_iid_param=0.0, num_clients=10, comm_rounds=8, lr=0.01)
    cell = open_cell(config)
    state = play("clust_psi_pfl", cell, config, rounds=8)
    cluster, train, test = state.memory["cluster"], cell.server.federation.label_counts, cell.server.federation.test
    right = 0
    for c in range(cluster.max() + 1):
        majority = train[cluster == c].sum(axis=0).argmax()
        right += sum((cell.server.federation.labels[test[k]] == majority).sum() for k in np.flatnonzero(cluster == c))
    sizes = cell.server.federation.test_sizes
    accuracy = (accuracies("clust_psi_pfl", cell, state, config) * sizes).sum() / sizes.sum()
    assert accuracy >= right / sizes.sum() - 0.02
    assert accuracy > 0.7


@pytest.mark.parametrize("inner", SINGLE_MODEL)
def test_any_single_model_method_runs_inside_clusters(inner: str, cell: Cell) -> None:
    spec = f"clust_psi_pfl:tau_clusters=3:inner={inner}"
    state = play(spec, cell, rounds=2)
    assert len(state.parts) == 3
    assert np.isfinite(models_of(spec, cell, state)).all()
    # PSI clusters may have a single member: every method must cope with it.
    alone = play(f"clust_psi_pfl:tau_clusters=8:inner={inner}", cell, rounds=2)
    assert len(alone.parts) == 8


# ------------------------------------------------------------------------------------------------ broken clients, costs


@pytest.mark.parametrize("name", [name for name in method_types() if name != "centralized"])
def test_a_client_whose_update_is_not_finite_is_left_out(name: str) -> None:
    cell = open_federation(skewed(poisoned=2), CONFIG)
    config = replace(CONFIG, fraction=1.0)
    spec = {"cfl": "cfl:cfl_preset=relative:warmup=1:eps1=9", "fedsoft": "fedsoft:n_fedsoft=1"}.get(name, name)
    state = play(spec, cell, config, rounds=3)
    assert np.isfinite(models_of(spec, cell, state)).all()
    # A client that cannot even tell its loss is no candidate of PoC.
    assert set(cell.server.take_ledger().left_out) == (set() if name == "poc" else {2})


def test_nobody_left_keeps_the_model() -> None:
    federation = skewed()
    broken = replace(federation.dataset, rows=ArrayRows(np.full((1000, 5), np.nan, np.float32)))
    cell = open_federation(replace(federation, dataset=broken), CONFIG)
    for name in ("fedavg", "fedavgm", "fedadam", "cfl", "fedsoft"):
        first, last = play(name, cell, rounds=0), play(name, cell, rounds=2)
        for before, after in zip(first.models, last.models, strict=True):
            np.testing.assert_array_equal(before.parameters, after.parameters)


@pytest.mark.parametrize(
    ("spec", "once", "down", "up"),
    [  # K = 8 clients, m = 4, C = 4, in models and bytes: (models, bytes)
        ("fedavg", 0, 4, (4, 0)),
        ("fedadam", 0, 4, (4, 0)),
        ("poc:d_poc=6", 0, 6, (4, 4 * 6)),
        ("haccs", 8 * 4 * 4 + 8 * 4, 4, (4, 0)),
        ("fedcls", 8, 4, (4, 0)),
        ("cfl", 0, 4, (4, 0)),
        ("fedsoft:n_fedsoft=4", 0, None, (None, None)),
        ("clust_psi_pfl:tau_clusters=1", 8 * 4 * 4, 4, (4, 0)),
        ("prior_pfl:hold_out=0", 8 * 4 * 4, 4, (4, 0)),
        ("prior_pfl", 2 * 8 * 4 * 4, 4, (4, 0)),
        ("local", 0, 0, (0, 0)),
        ("fedlc", 8 * 4 * 4, 4, (4, 0)),
        ("ditto", 0, 4, (4, 0)),
        ("fedrs", 8, 4, (4, 0)),
        ("fedrep", 0, 4, (4, 0)),
        ("fedrod", 8 * 4 * 4, 4, (4, 0)),
    ],
)
def test_bytes_of_a_round(
    spec: str, once: int, down: int | None, up: tuple[int | None, int | None], cell: Cell
) -> None:
    size = 4 * cell.num_parameters
    cell.server.take_ledger()
    play(spec, cell, rounds=0)
    start = cell.server.take_ledger()
    assert start.bytes_up == once
    assert start.bytes_down == (8 * size if spec == "haccs" else 0)
    play(spec, cell, rounds=1)
    ledger = cell.server.take_ledger()
    if spec.startswith("fedsoft"):
        # All clients download all four cluster models to estimate; those who train download them again and upload one.
        assert ledger.bytes_down == (8 + ledger.trained) * 4 * size
        assert ledger.bytes_up == 8 * 4 * 4 + ledger.trained * size
        assert 1 <= ledger.trained <= 4
        return
    assert down is not None and up[0] is not None and up[1] is not None
    assert ledger.bytes_down - start.bytes_down == down * size
    assert ledger.bytes_up - start.bytes_up == up[0] * size + up[1]


def test_more_clusters_than_clients(cell: Cell) -> None:
    for spec in ("clust_psi_pfl:tau_clusters=9", "fedsoft:n_fedsoft=9"):
        with pytest.raises(ClustPSIError, match="is 9, but there are only 8 clients"):
            play(spec, cell, rounds=0)
