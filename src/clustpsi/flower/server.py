"""The ServerApp: carries out a run over Flower's Grid, from its settings to the folder with its results."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from clustpsi.errors import ClustPSIError
from clustpsi.flower.settings import Settings, of_nodes
from clustpsi.flower.transport import GridTransport
from clustpsi.runs.course import Progress
from clustpsi.runs.remote import open_nodes
from clustpsi.runs.run import run
from clustpsi.runs.store import RunFolder, Store

app = ServerApp()
log = logging.getLogger("clustpsi.federation")


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = Settings.of(context.run_config)
    with _told(settings.events) as tell:
        try:
            folder = federate(grid, settings, tell)
        except ClustPSIError as error:
            tell("failed", reason=str(error))
            log.error("%s", error)
            raise
        tell("finished", folder=str(folder.path))


def federate(grid: Grid, settings: Settings, tell: Any = lambda event, **values: None) -> RunFolder:
    """Carry out a run over a Grid.

    Parameters
    ----------
    grid
        Flower's way to the nodes.
    settings
        The run.
    tell
        Called for each event, with its name and values.
    """
    config, store = of_nodes(settings.config).checked(), Store(Path(settings.output))
    transport = GridTransport(grid, lifetime=10 * settings.patience.deadline)
    memory = store.root / ".federations" / f"{config.digest}.npz"
    cell = open_nodes(
        config,
        transport,
        settings.nodes,
        patience=settings.patience,
        classes=settings.classes,
        memory=memory,
        resume=settings.resume and not settings.fresh,
    )
    tell("model", model=cell.model, parameters=cell.num_parameters, reason=cell.model_reason)

    def watch(now: Progress) -> None:
        tell("progress", **asdict(now))
        if not now.part:
            log.info("round %d of %d: accuracy %.3f", now.round, now.num_rounds, now.global_accuracy)

    try:
        return run(
            config,
            store,
            cell=cell,
            resume=settings.resume,
            fresh=settings.fresh,
            save_models=settings.save_models,
            save_rounds=True,  # a round takes the work of many machines
            watch=watch,
        )
    finally:
        cell.server.close()
        folder = store.folder(cell.identified(config))
        if folder.finished or not folder.exists:  # nothing is left to resume
            memory.unlink(missing_ok=True)


@contextmanager
def _told(path: str) -> Iterator[Any]:
    """Gives a function that writes events to a file, if one is named; the log goes there too."""
    if not path:
        yield lambda event, **values: None
        return
    with Path(path).open("a", encoding="utf-8") as file:

        def tell(event: str, **values: Any) -> None:
            file.write(json.dumps({"event": event, **values}) + "\n")
            file.flush()

        class Notes(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                tell("note", text=record.getMessage(), level=record.levelname)

        handler = Notes(logging.WARNING)
        log.addHandler(handler)
        tell("started", process=os.getpid())
        try:
            yield tell
        finally:
            log.removeHandler(handler)
