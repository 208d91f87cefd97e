"""Nodes that fail: each is left out of that exchange, the log says which and why, and everybody else's work counts."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.flower.local_grid import LocalGrid
from clustpsi.flower.server import federate
from clustpsi.flower.settings import Settings
from clustpsi.flower.worker import Worker
from clustpsi.nodes.codec import Envelope
from clustpsi.nodes.data import from_file
from clustpsi.nodes.node import AnyNode, Node
from clustpsi.nodes.protocol import CODEC, Answer, Call, Describe, Prepare, Prepared, Serve, Served, Speaker
from clustpsi.nodes.server import Patience
from clustpsi.orders import Evaluate, Losses, Model, Train, Trained
from clustpsi.runs.config import Config
from clustpsi.runs.store import RunFolder, Store
from federations import FIRST, Fault, grid_of, parts_of

CONFIG = Config(num_clients=4, non_iid_param=0.5, agg_method="fedavg", comm_rounds=2, local_epochs=1, fraction=1.0)
QUICK = Patience(connect=1.0, deadline=0.5, min_answers=0.5)


def when(asked: Callable[[Any], bool], change: Callable[[Any], Any]) -> Fault:
    """A node that changes its answer to some calls."""

    def fault(envelope: Envelope, node: AnyNode) -> Envelope:
        body = CODEC.read(envelope, node.held).body if isinstance(CODEC.read(envelope, node.held), Call) else None
        reply = node.handle(envelope)
        answer = CODEC.read(reply)
        return CODEC.write(replace(answer, body=change(answer.body))) if asked(body) else reply

    return fault


def run_with(
    fault: Fault, output: Path, config: Config = CONFIG, nodes: int = 4, wanted: int = 4, **more: Any
) -> RunFolder:
    """A run in which node 1 is faulty."""
    made = parts_of(config, nodes)
    grid = grid_of({FIRST + k: node for k, node in enumerate(made)}, {FIRST + 1: fault})
    return federate(grid, Settings(config, nodes=wanted, output=str(output), patience=QUICK, **more))


def is_order(kind: type) -> Callable[[Any], bool]:
    return lambda body: isinstance(body, Serve) and isinstance(body.orders[0], kind)


def update(change: Callable[[Model], Any]) -> Callable[[Served], Served]:
    def changed(served: Served) -> Served:
        trained: Trained = served.replies[0]
        assert trained.models is not None and trained.models[0] is not None
        return replace(served, replies=(trained._replace(models=(change(trained.models[0]),)),))

    return changed


MALFORMED_UPDATES = {
    "its update is not finite": update(lambda model: Model(model.parameters * np.float32(np.nan), model.buffers)),
    "its update has parameters of shape (649,) and not (650,)": update(
        lambda model: Model(model.parameters[1:], model.buffers)
    ),
    "its update has parameters of shape (65, 10) and not (650,)": update(
        lambda model: Model(model.parameters.reshape(65, 10), model.buffers)
    ),
    "its update has parameters of type int64": update(
        lambda model: Model(model.parameters.astype(np.int64), model.buffers)
    ),
    "its update is no model": update(lambda model: model.parameters),
    "it trained on 0 examples": lambda served: replace(served, examples=0),
    "it trained on -5 examples": lambda served: replace(served, examples=-5),
    "its answer is malformed: it has no number of examples": lambda served: replace(served, examples=None),
    "its answer is malformed: it is not what the order asks for": lambda served: replace(served, replies=()),
}


@pytest.mark.parametrize("reason", MALFORMED_UPDATES)
def test_a_malformed_update_is_left_out(reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = run_with(when(is_order(Train), MALFORMED_UPDATES[reason]), tmp_path)
    assert f"round 1: node '1' is left out: {reason}" in caplog.messages
    rounds = folder.rounds()
    assert rounds["left_out"].tolist() == [0, 1, 1]
    assert rounds["participants"].tolist() == [0, 4, 4]
    # Everybody else's work counts: the same as a run in which that client weighs nothing.
    assert rounds["loss"].iloc[-1] < rounds["loss"].iloc[0]


def trained(**changes: Any) -> Callable[[Served], Served]:
    return lambda served: replace(served, replies=(served.replies[0]._replace(**changes),))


@pytest.mark.parametrize(
    "change, reason",
    [
        (update(lambda model: Model(model.parameters.astype(np.float64) + 1e300, model.buffers)), "is not finite"),
        (trained(models=5), "its answer is malformed ("),
        (trained(models={"one": 1}), "its answer is malformed ("),
        (trained(losses=((1.0, 2.0), (3.0,))), "its answer is malformed ("),
        (trained(losses=None), "its answer is malformed: it has no loss"),
        (lambda served: replace(served, replies=None), "its answer is malformed: it is not what the order asks for"),
        (lambda served: {"anything": "else"}, "its answer is malformed: it is not what the order asks for"),
    ],
)
def test_whatever_stands_in_the_place_of_an_update_is_left_out(
    change: Callable[[Any], Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run_with(when(is_order(Train), change), tmp_path, replace(CONFIG, comm_rounds=1))
    (said,) = [text for text in caplog.messages if text.startswith("round 1: node '1' is left out: ")]
    assert reason in said
    assert folder.rounds()["left_out"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "counts, reason",
    [
        (lambda counts: counts * 0 + 2**62, "its label counts are absurdly large"),  # whose sum overflows
        (lambda counts: ((1, 2), (3,)), "its answer is malformed ("),
        (lambda counts: -counts, "its label counts are negative"),
        (lambda counts: counts * np.nan, "its label counts are not finite"),
        (lambda counts: counts[:, 1:], "its label counts have shape (1, 9) and not (1, 10)"),
        (lambda counts: counts + 2**40, "its label counts are absurdly large"),
        (lambda counts: counts + 0.5, "its label counts are not whole numbers"),
        (lambda counts: counts * 0, "it has no training rows"),
        (lambda counts: counts.astype(str), "its label counts are not numbers"),
    ],
)
def test_a_node_with_malformed_counts_does_not_take_part(
    counts: Callable[[Any], Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def change(prepared: Prepared) -> Prepared:
        return replace(prepared, train=counts(prepared.train))

    fault = when(lambda body: isinstance(body, Prepare), change)
    folder = run_with(fault, tmp_path, wanted=3)
    assert any(text.startswith(f"node '1' is left out of the federation: {reason}") for text in caplog.messages)
    assert folder.clients()["client"].astype(str).tolist() == ["0", "2", "3"]


def test_too_few_nodes_with_usable_counts_is_a_sentence(tmp_path: Path) -> None:
    fault = when(lambda body: isinstance(body, Prepare), lambda prepared: replace(prepared, train=-prepared.train))
    with pytest.raises(ClustPSIError, match="3 nodes can take part, and the run needs 4"):
        run_with(fault, tmp_path)


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda values: values._replace(correct=-values.correct - 1), "its correct are negative"),
        (lambda values: values._replace(loss=values.loss * np.nan), "its loss are not finite"),
        (lambda values: values._replace(correct=values.actual + 1), "its test results contradict each other"),
        (lambda values: values._replace(predicted=values.predicted + 1), "its test results contradict each other"),
        (lambda values: values._replace(actual=values.actual[:, :9]), "its actual have shape (1, 9) and not (1, 10)"),
        (lambda values: values.actual, "its answer is malformed: it is not what the order asks for"),
    ],
)
def test_a_malformed_evaluation_is_left_out(
    change: Callable[[Any], Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = when(is_order(Evaluate), lambda served: replace(served, replies=(change(served.replies[0]),)))
    accuracy = run_with(fault, tmp_path).accuracy()
    assert f"round 2: node '1' is left out: {reason}" in caplog.messages
    of_last = accuracy[accuracy["round"] == 2].set_index("client")["accuracy"]
    assert of_last.isna().tolist() == [False, True, False, False]


def test_losses_that_are_not_finite_are_no_losses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fault = when(is_order(Losses), lambda served: replace(served, replies=(np.array([np.inf]),)))
    config = replace(CONFIG, agg_method="poc")
    folder = run_with(fault, tmp_path, config)
    assert "round 1: node '1' is left out: its losses are not finite" in caplog.messages
    assert folder.rounds()["left_out"].sum() == 0  # it is not chosen, so nothing of it is missed


def test_another_version_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fault(envelope: Envelope, node: AnyNode) -> Envelope:
        answer = CODEC.read(node.handle(envelope))
        return CODEC.write(Answer(Speaker("0.0.9"), answer.body))

    run_with(fault, tmp_path, wanted=3)
    (said,) = [text for text in caplog.messages if "0.0.9" in text]
    assert said.startswith("round 0: node '1' is left out: it runs clustpsi 0.0.9 and the server ")


def test_a_node_that_cannot_read_its_rows_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "oslo.csv").write_text("x,y\n1,a\n2,b\n")
    with closing(Worker(tmp_path / "socket", {"name": "oslo", "data": str(tmp_path / "oslo.csv")})) as worker:
        run_config = Settings(Config(dataset="nodes.csv", label="kind")).as_run_config()
        run_with(lambda envelope, _: worker.handle(run_config, envelope), tmp_path, wanted=3)
    assert any("node 'oslo' is left out: it says: " in said and "no column 'kind'" in said for said in caplog.messages)


@pytest.mark.parametrize("whose", [None, "clustpsi", {"version": 1}])
def test_an_answer_of_nobody_is_left_out(whose: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fault(envelope: Envelope, node: AnyNode) -> Envelope:
        return CODEC.write(Answer(whose, CODEC.read(node.handle(envelope)).body))

    run_with(fault, tmp_path, replace(CONFIG, comm_rounds=1), wanted=3)
    assert any("number 101 is left out: its answer is malformed: it is no answer" in said for said in caplog.messages)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 5},
        {"name": ""},
        {"kind": "video"},
        {"features": None},
        {"features": {"shape": (64,), "colour": "red"}},
        {"columns": 3},
        {"classes": ()},
        {"classes": ("0", "0")},
        {"classes": None},
        {"rows": -3},
        {"rows": 2**70},
        {"rows": 2**30},
        {"rows": "many"},
        {"model": None},
    ],
)
def test_a_malformed_description_is_left_out(
    changes: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = when(lambda body: isinstance(body, Describe), lambda described: replace(described, **changes))
    folder = run_with(fault, tmp_path, replace(CONFIG, comm_rounds=1), wanted=3)
    who = "the node with Flower's number 101" if "name" in changes else "node '1'"
    assert any(text.startswith(f"round 0: {who} is left out: its ") for text in caplog.messages)
    assert len(folder.clients()) == 3


NAN = {"known": 40, "gaps": 0, "counts": {"values": [float("nan")], "counts": [40], "exact": True}}
MALFORMED_SUMMARIES = {
    "its summary is of other columns": lambda summary: {**summary, "numbers": ()},
    "its answer is malformed (KeyError('numbers'))": lambda summary: {},
    "its summary's counts are negative": lambda summary: {
        **summary, "numbers": ({**summary["numbers"][0], "gaps": -1},)
    },
    "its summary has numbers that are not finite": lambda summary: {**summary, "numbers": (NAN,)},
    "its summary's counts are absurdly large": lambda summary: {
        **summary, "categories": ({"names": ("u",), "counts": (2**40,), "ranks": ()},)
    },
    "its summary has a name that is no text": lambda summary: {
        **summary, "categories": ({"names": (1,), "counts": (2,), "ranks": ()},)
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", MALFORMED_SUMMARIES)
def test_a_node_with_a_malformed_summary_does_not_take_part(
    reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def change(prepared: Prepared) -> Prepared:
        return replace(prepared, summary=MALFORMED_SUMMARIES[reason](prepared.summary))

    config = replace(CONFIG, dataset="site-{n}.csv", label="y", partitioner="natural", num_clients=None, comm_rounds=1)
    grid = grid_of(
        {FIRST + k: Node(from_file(site(tmp_path, k), label="y"), workers=1) for k in range(4)},
        {FIRST + 1: when(lambda body: isinstance(body, Prepare), change)},
    )
    folder = federate(grid, Settings(config, nodes=3, output=str(tmp_path / "runs"), patience=QUICK))
    assert f"node 'site-1' is left out of the federation: {reason}" in caplog.messages
    assert folder.clients()["client"].tolist() == ["site-0", "site-2", "site-3"]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"type": "Model"}', '{"array": "abc"}', '{"type": "os.system"}'])
def test_rubbish_is_left_out(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_with(lambda envelope, node: Envelope(text, {}), tmp_path, wanted=3)
    assert any("number 101 is left out: its answer is malformed" in said for said in caplog.messages)


def test_a_node_that_raises_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fault(envelope: Envelope, node: AnyNode) -> Envelope:
        if isinstance(CODEC.read(envelope, node.held).body, Serve):
            raise OSError("disk on fire")
        return node.handle(envelope)

    folder = run_with(fault, tmp_path)
    assert any("node '1' is left out: Flower reports error 2: disk on fire" in said for said in caplog.messages)
    assert folder.rounds()["left_out"].tolist() == [0, 1, 1]


class Flaky:
    """A grid whose nodes come, go and keep silent as a script says."""

    def __init__(self, grid: Any, gone: dict[int, tuple[int, int]], silent: set[int]) -> None:
        self.grid, self.gone, self.silent = grid, gone, silent
        self.exchanges = 0
        self.withheld: dict[str, Any] = {}

    def get_node_ids(self) -> list[int]:
        away = {node for node, (first, last) in self.gone.items() if first <= self.exchanges < last}
        return [node for node in self.grid.get_node_ids() if node not in away]

    def push_messages(self, messages: list[Any]) -> list[str]:
        self.group = messages[0].metadata.group_id
        return list(self.grid.push_messages(messages))

    def pull_messages(self, tickets: list[str]) -> list[Any]:
        self.exchanges += 1
        replies = self.grid.pull_messages(tickets)
        return [reply for reply in replies if reply.metadata.src_node_id not in self.silent]


def flaky_run(
    output: Path, nodes: int = 4, gone: dict[int, tuple[int, int]] | None = None, silent: set[int] | None = None,
    config: Config = CONFIG, wanted: int = 4, patience: Patience = QUICK, **more: Any
) -> tuple[RunFolder, Flaky]:  # fmt: skip
    grid = Flaky(
        grid_of({FIRST + k: node for k, node in enumerate(parts_of(config, nodes))}),
        {FIRST + node: span for node, span in (gone or {}).items()},
        set(),
    )
    settings = Settings(config, nodes=wanted, output=str(output), patience=patience, **more)

    def heard(event: str, **values: Any) -> None:
        if event == "model":  # from now on they say nothing
            grid.silent = {FIRST + node for node in silent or ()}

    return federate(grid, settings, heard), grid  # type: ignore[arg-type]


def test_a_node_that_never_answers_costs_one_deadline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import time

    before = time.monotonic()
    folder, _ = flaky_run(tmp_path, silent={2}, config=replace(CONFIG, comm_rounds=6))
    spent = time.monotonic() - before
    assert caplog.messages.count("round 1: node '2' is left out: it did not answer within 0.5 s") == 2
    assert folder.rounds()["left_out"].tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert folder.timing()["seconds"] < spent < 60
    # Thirteen exchanges with a deadline each would take 6.5 s of waiting.
    assert sum(folder.timing()["by_purpose"].values()) < 5


def test_too_few_answers_stop_the_run_which_can_go_on(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=r"0 of 4 nodes gave a usable answer|1 of 4 nodes gave a usable answer"):
        flaky_run(tmp_path, silent={1, 2, 3}, patience=replace(QUICK, min_answers=0.75))


def test_a_node_that_has_left_costs_no_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, _ = flaky_run(tmp_path, gone={3: (4, 10_000)}, patience=replace(QUICK, deadline=60.0))
    assert "round 2: node '3' is left out: it is not connected" in caplog.messages
    assert folder.rounds()["left_out"].tolist()[-1] == 1


def test_a_node_that_comes_back_takes_its_old_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node that is started again has another number at Flower, the same name, and has forgotten all."""
    config = replace(CONFIG, comm_rounds=4, agg_method="clust_psi_pfl")
    made, again = parts_of(config, 4), parts_of(config, 4)
    grid = grid_of({**{FIRST + k: node for k, node in enumerate(made)}, FIRST + 50: again[1]})
    script = Flaky(grid, {FIRST + 1: (5, 10_000), FIRST + 50: (0, 8)}, set())
    folder = federate(script, Settings(config, nodes=4, output=str(tmp_path), patience=QUICK))  # type: ignore[arg-type]
    assert any(text.endswith("node '1' has come back") for text in caplog.messages)
    left_out = folder.rounds()["left_out"].tolist()
    assert 1 in left_out and left_out[-1] == 0


def test_a_node_that_joins_is_placed_by_its_label_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = replace(CONFIG, comm_rounds=3, agg_method="clust_psi_pfl:tau_clusters=2")
    caplog.set_level(logging.INFO)
    made = parts_of(replace(config, num_clients=5), 5)
    grid = Flaky(grid_of({FIRST + k: node for k, node in enumerate(made)}), {FIRST + 4: (0, 5)}, set())
    folder = federate(grid, Settings(config, nodes=4, output=str(tmp_path), patience=QUICK))  # type: ignore[arg-type]
    assert any("node '4' has joined" in text for text in caplog.messages)
    newcomers = folder.newcomers()
    assert {row["client"] for row in newcomers} in ({4}, {"4"})
    assert newcomers[-1]["round"] == 3
    assert newcomers[-1]["model"] in (0, 1)
    assert 0 <= newcomers[-1]["accuracy"] <= 1
    assert len(folder.clients()) == 4  # it does not train


class Killed(BaseException):
    """The server's process ends here."""


@pytest.mark.parametrize("data", ["digits", "table"])
def test_a_killed_server_goes_on_from_its_last_finished_round(data: str, tmp_path: Path) -> None:
    """Started again with new nodes of the same names, it leaves the run that it would have left at once."""
    config = replace(CONFIG, agg_method="clust_psi_pfl:tau_clusters=2", comm_rounds=4, fraction=0.5)
    if data == "table":
        config = replace(config, dataset="site-{n}.csv", label="y", partitioner="natural", num_clients=None)

    def nodes() -> LocalGrid:
        if data == "digits":
            return grid_of({FIRST + k: node for k, node in enumerate(parts_of(config, 4))})
        return grid_of({FIRST + k: Node(from_file(site(tmp_path, k), label="y"), workers=1) for k in range(4)})

    rounds: list[int] = []

    def heard(event: str, **values: Any) -> None:
        if event == "progress":
            rounds.append(values["round"])
            if len(rounds) and rounds[-1] == 3 and not values["part"]:
                raise Killed

    settings = Settings(config, nodes=4, output=str(tmp_path / "killed"), patience=QUICK)
    with pytest.raises(Killed):
        federate(nodes(), settings, heard)
    rounds.clear()
    resumed = federate(
        nodes(), replace(settings, resume=True), lambda event, **values: rounds.append(values.get("round", 9))
    )
    assert min(rounds) == 2, "the third round had not been kept, and the first two had"
    assert len(list(Store(tmp_path / "killed"))) == 1
    whole = federate(nodes(), replace(settings, output=str(tmp_path / "whole")))
    assert resumed.accuracy().equals(whole.accuracy())


def site(folder: Path, k: int) -> Path:
    """A file of rows whose columns have scales to learn."""
    rng, path = np.random.default_rng(k), folder / f"site-{k}.csv"
    y = rng.choice(["a", "b"], 60, p=[0.2 + 0.2 * k, 0.8 - 0.2 * k])
    x = rng.normal(size=60) + (y == "a")
    path.write_text(
        "x,kind,y\n" + "".join(f"{a:.3f},{'uv'[i % 2]},{b}\n" for i, (a, b) in enumerate(zip(x, y, strict=True)))
    )
    return path
