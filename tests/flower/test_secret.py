"""Secrets of nodes: kept in a file, they make a node that is started again the same one to the server."""

import logging
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from clustpsi.cli.federation import _secret_file
from clustpsi.errors import ClustPSIError
from clustpsi.flower.client import app_for
from clustpsi.flower.local_grid import LocalGrid
from clustpsi.flower.records import secret_of
from clustpsi.flower.secret import kept_secret
from clustpsi.flower.server import federate
from clustpsi.flower.settings import Settings
from clustpsi.flower.worker import Worker
from clustpsi.nodes.data import from_file
from clustpsi.nodes.node import Node
from clustpsi.nodes.protocol import Terms
from clustpsi.nodes.server import Patience
from clustpsi.runs.config import Config
from clustpsi.runs.course import Course
from clustpsi.runs.store import RunFolder, Store
from federations import FIRST

SITES = ("bonn", "oslo", "rome")
CONFIG = Config(dataset="nodes.csv", label="kind", partitioner="natural", agg_method="fedavg", comm_rounds=3,
                local_epochs=1, fraction=1.0, dp_epsilon=5.0)  # fmt: skip


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for site in SITES:
        kind = rng.choice(list("ab"), 60)
        frame = pd.DataFrame({"x": rng.normal(size=60) + (kind == "b"), "place": rng.choice(["sea", "wood"], 60)})
        frame.assign(kind=kind).to_csv(tmp_path / f"{site}.csv", index=False)
    return tmp_path


@contextmanager
def started(sites: Path, secrets: str | None) -> Iterator[LocalGrid]:
    """Nodes as ``clustpsi federation node`` starts them; each start draws new secrets unless they are in files."""
    with ExitStack() as stack:
        workers = []
        for site in SITES:
            kept = {} if secrets is None else {"secret": str(sites / f"{secrets}-{site}")}
            made = Worker(sites / f"{site}.socket", {"name": site, "data": str(sites / f"{site}.csv"), **kept})
            workers.append(stack.enter_context(closing(made)))
        run_config = Settings(CONFIG).as_run_config()

        def app(worker: Worker) -> Any:
            return app_for(lambda envelope, _: worker.handle(run_config, envelope))

        yield LocalGrid({FIRST + k: app(worker) for k, worker in enumerate(workers)})


def carried_out(sites: Path, secrets: str | None, output: str = "runs", **more: Any) -> RunFolder:
    settings = Settings(CONFIG, nodes=3, output=str(sites / output), patience=Patience(1.0, 30.0), **more)
    with started(sites, secrets) as grid:
        return federate(grid, settings)


def stop_in_round(number: int, patch: pytest.MonkeyPatch) -> None:
    before = Course.round

    def round_or_stop(course: Course) -> None:
        if course.done == number - 1:
            raise KeyboardInterrupt
        before(course)

    patch.setattr(Course, "round", round_or_stop)


def stopped(sites: Path, secrets: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in_round(2, patch)
        carried_out(sites, secrets)


def test_a_run_with_noise_goes_on_with_the_same_training_rows_though_every_node_is_started_again(
    sites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(sites, "kept", monkeypatch)
    gone_on, never_stopped = carried_out(sites, "kept", resume=True), carried_out(sites, "kept", "whole")
    assert gone_on.path.name == never_stopped.path.name
    assert gone_on.accuracy().equals(never_stopped.accuracy())
    assert gone_on.rounds().equals(never_stopped.rounds())


def test_nodes_that_would_split_their_rows_anew_cannot_go_on(
    sites: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(sites, None, monkeypatch)
    caplog.set_level(logging.WARNING)
    with pytest.raises(ClustPSIError, match=r"0 of 3 nodes gave a usable answer.*its secret or its rows are not those"):
        carried_out(sites, None, resume=True)
    assert sum("test on rows that it has trained on" in said and "left out" in said for said in caplog.messages) >= 3


def test_a_run_with_noise_is_refused_or_reported_like_any_other(sites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(sites, "kept", monkeypatch)
    with pytest.raises(ClustPSIError, match="holds an unfinished run: go on with --resume"):
        carried_out(sites, "kept")
    folder = carried_out(sites, "kept", resume=True)
    before = (folder / "timing.json").read_bytes()
    for more in ({}, {"resume": True}):
        assert carried_out(sites, "kept", **more).path == folder.path
    assert (folder / "timing.json").read_bytes() == before, "it is not computed again"
    assert carried_out(sites, "kept", fresh=True).path == folder.path
    assert len(list(Store(sites / "runs"))) == 1


def test_other_rows_have_other_noise(sites: Path) -> None:
    """Otherwise two answers of the same secret, before and after a row came, would show that row."""
    path, secret = sites / "bonn.csv", "s" * 32
    before = Node(from_file(path, label="kind"), secret=secret)
    features = before.describe(private=True).features
    terms = Terms(0, ("a", "b"), features, None, 0, 0.5)
    first = before.prepare(terms)
    with path.open("a") as file:
        file.write("0.5,sea,a\n")
    after = Node(from_file(path, label="kind"), secret=secret)
    assert before.describe(private=True).seal != after.describe(private=True).seal
    assert before.describe(private=False).seal == ""
    second, again = after.prepare(terms), Node(from_file(path, label="kind"), secret=secret).prepare(terms)
    assert np.abs(second.train - first.train).sum() > 1 and second.train.tolist() == again.train.tolist()


def test_a_secret_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.secret"
    secret = kept_secret(path)
    assert len(secret) == 32 and kept_secret(path) == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_secret(tmp_path / "other") != secret
    assert [each.name for each in path.parent.iterdir()] == ["node.secret"]
    path.chmod(0o644)
    with pytest.raises(ClustPSIError, match="others can read the secret"):
        kept_secret(path)
    (tmp_path / "text").write_text("birds\n")
    with pytest.raises(ClustPSIError, match="holds no secret of a node"):
        kept_secret(tmp_path / "text")


def test_apps_without_a_process_of_their_own_read_the_secret_too(tmp_path: Path) -> None:
    def context(**node_config: str) -> Context:
        return Context(1, 2, dict(node_config), RecordDict(), {})

    path = _secret_file(tmp_path, "node-0")
    kept = [secret_of(context(secret=str(path))) for _ in range(2)]
    drawn = [secret_of(context()) for _ in range(2)]
    assert kept[0] == kept[1] == kept_secret(path) and len({*kept, *drawn}) == 3
