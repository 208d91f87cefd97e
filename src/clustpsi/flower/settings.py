"""A run's settings as Flower's run configuration: keys in kebab-case, an empty text for a setting that is not given."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from clustpsi.datasets.files import is_file_name
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.nodes.server import Patience
from clustpsi.runs.config import Config, column_names

Plain = bool | int | float | str


@dataclass(frozen=True)
class Settings:
    """All settings of a federated run.

    Attributes
    ----------
    config
        The run.
    nodes
        How many nodes the run needs.
    patience
        How long to wait for nodes.
    classes
        All classes; empty: those that the nodes have.
    output
        Folder of runs, on the server's machine.
    resume, fresh, save_models
        As in ``clustpsi run``.
    events
        File for events, one line of JSON per event; empty for no file.
    """

    config: Config
    nodes: int = 2
    patience: Patience = field(default_factory=Patience)
    classes: tuple[str, ...] = ()
    output: str = "runs"
    resume: bool = False
    fresh: bool = False
    save_models: bool = False
    events: str = ""

    def as_run_config(self) -> dict[str, Plain]:
        """The settings for Flower, which only knows bool, int, float and text."""
        own = {
            **{name: getattr(self.config, name) for name in _config_types()},
            **{name: getattr(self.patience, name) for name in _PATIENCE},
            **{name: getattr(self, name) for name in _OTHERS},
            "classes": ",".join(self.classes),
        }
        return {_kebab(name): "" if value is None else value for name, value in own.items()}

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> "Settings":
        """The settings from Flower's run configuration; an unknown key is an error."""
        values = {key.replace("-", "_"): value for key, value in run_config.items()}
        types = _config_types() | _PATIENCE | _OTHERS | {"classes": str}
        for key in values:
            if key not in types:
                raise unknown_name("run-config key", key.replace("_", "-"), map(_kebab, types))
        given = {key: _parsed(key, value, types[key]) for key, value in values.items() if value != ""}
        classes = given.pop("classes", "")
        return cls(
            config=of_nodes(Config(**{key: value for key, value in given.items() if key in _config_types()})),
            patience=Patience(**{key: value for key, value in given.items() if key in _PATIENCE}),
            classes=column_names(classes) if classes else (),
            **{key: value for key, value in given.items() if key in _OTHERS},
        )


_PATIENCE: dict[str, type] = {each.name: float for each in fields(Patience)}
_OTHERS: dict[str, type] = {
    "nodes": int, "output": str, "resume": bool, "fresh": bool, "save_models": bool, "events": str
}  # fmt: skip


def of_nodes(config: Config) -> Config:
    """A run whose clients are nodes with files of their own."""
    if not is_file_name(config.dataset):
        return config
    return replace(config, partitioner="natural", num_clients=None, non_iid_param=None)


def app_files(settings: Settings, client: str) -> dict[str, str]:
    """The files of the Flower app that carries out a run, by name; ``client`` names the ClientApp (module:object)."""
    config = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.as_run_config().items())
    return {
        "pyproject.toml": f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "clustpsi-federation"
version = "1.0.0"
description = "A federated run of clustpsi."
license = "MIT"
dependencies = ["clustpsi[flower]"]

[tool.flwr.app]
publisher = "clustpsi"

[tool.flwr.app.components]
serverapp = "clustpsi.flower.server:app"
clientapp = "{client}"

[tool.flwr.app.config]
{config}
""",
        "README.md": "# clustpsi-federation\n\nA federated run of clustpsi: see its documentation, Federation.\n",
    }


def write_app(folder: Path, settings: Settings, client: Path | None = None) -> None:
    """Write the Flower app of a run; ``client`` is a Python file whose ``app`` replaces clustpsi's ClientApp."""
    where = "clustpsi.flower.client:app"
    folder.mkdir(parents=True, exist_ok=True)
    if client is not None:
        if client.suffix != ".py" or not client.is_file() or not client.stem.isidentifier():
            raise ClustPSIError(f"{client} is no Python file: --client names one whose `app` is a ClientApp")
        shutil.copy(client, folder / client.name)
        where = f"{client.stem}:app"
    for name, text in app_files(settings, where).items():
        (folder / name).write_text(text)


@cache
def _config_types() -> dict[str, type]:
    hints = get_type_hints(Config)
    return {each.name: _plain(hints[each.name]) for each in fields(Config) if each.metadata}


def _plain(hint: Any) -> type:
    plain: type = (
        next(each for each in get_args(hint) if each is not type(None)) if isinstance(hint, UnionType) else hint
    )
    return plain


def _parsed(key: str, value: Any, wanted: type) -> Any:
    """A value in the setting's type; a number may be written as text, and a float without a point."""
    try:
        if wanted is bool:
            if value not in (True, False, "true", "false"):
                raise ValueError
            return value in (True, "true")
        if wanted is int and (isinstance(value, bool) or float(value) != int(value)):
            raise ValueError
        return wanted(value)
    except (TypeError, ValueError):
        what = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[wanted]
        raise ClustPSIError(f"run-config key {_kebab(key)} must be {what}, not {value!r}") from None


def _kebab(name: str) -> str:
    return name.replace("_", "-")
