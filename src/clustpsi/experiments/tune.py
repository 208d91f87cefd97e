"""Grid search: the paper's grids of hyper-parameters, scored on validation data.

Every combination is a run with ``validation``: it is scored on a fifth of the clients' training data, and their test
data are not used. The runs go to a store like all others, so a stopped search continues where it was.
"""

import hashlib
import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.experiments.grid import grid
from clustpsi.experiments.hyperparameters import OWN, TRAINING, TUNABLE
from clustpsi.methods import MethodSpec, as_text, make_method, method_spec
from clustpsi.printing import counted
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import Store, write_csv


def search_space(method: str, changes: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Values of every hyper-parameter that a search for this method tries, as texts.

    Parameters
    ----------
    method
        ``name`` or ``name:parameter=value:...``; a parameter that has a value there is not searched.
    changes
        Values, separated by commas, that replace the paper's or add hyper-parameters.

    Examples
    --------
    >>> search_space("fedprox", {"lr": "0.01", "batch_size": "32"})
    {'lr': ['0.01'], 'batch_size': ['32'], 'optimizer': ['adam', 'sgd'], 'mu': ['0.001', '0.01', '0.1']}
    """
    spec = MethodSpec.parse(method)
    spec.build()
    space = {key: [str(value) for value in values] for key, values in TRAINING.items()}
    space |= {key: [str(value) for value in values] for key, values in OWN.get(spec.name, {}).items()}
    space = {key: values for key, values in space.items() if key not in spec.values}
    for key, text in (changes or {}).items():
        if key in spec.values:
            raise ClustPSIError(f"{key} has a value in {method!r} and a list of them in the grid: give it once")
        if key not in spec.parameters and key not in TUNABLE:
            raise unknown_name("hyper-parameter", key, {*spec.parameters, *TUNABLE})
        space[key] = [value.strip() for value in text.split(",") if value.strip()]
        if not space[key] or len(set(space[key])) < len(space[key]):
            raise ClustPSIError(f"the grid's {key} must be one or more different values, not {text!r}")
    return space


@dataclass(frozen=True)
class Search:
    """A grid search: the hyper-parameters it varies and its runs.

    Attributes
    ----------
    space
        Values of each hyper-parameter.
    settings
        Settings that do not vary, named as in a grid.
    configs
        All runs: every combination with every seed.
    """

    method: str
    space: Mapping[str, Sequence[str]]
    settings: Mapping[str, Any]
    configs: tuple[Config, ...]

    @classmethod
    def of(
        cls, method: str, changes: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None
    ) -> "Search":
        """The search for a method, on the data set, partition and seeds of a grid's `settings`."""
        space = search_space(method, changes)
        given = dict(settings or {})
        training = {key: values for key, values in space.items() if key in TUNABLE}
        own = {key: values for key, values in space.items() if key not in TUNABLE}
        specs = [_spec(method, dict(zip(own, values, strict=True))) for values in itertools.product(*own.values())]
        configs = grid({**given, **training, "agg_method": specs, "validation": True})
        return cls(method, space, given, tuple(configs))

    def identified(self, data_dir: Path | None = None) -> "Search":
        """The same search, its runs with the content of their data."""
        known, unknown = Sources(data_dir).identify(self.configs)
        if unknown:
            raise ClustPSIError(next(iter(unknown.values())))
        return replace(self, configs=tuple(known))

    def ranking(self, store: Store) -> pd.DataFrame:
        """One row per combination whose runs are all finished, the best first.

        Columns: its hyper-parameters, ``accuracy`` (the last round's global accuracy on validation data, mean over the
        seeds), ``std``, ``seeds``, and ``agg_method``. Ties keep the order of the grid.
        """
        seeds = {config.seed for config in self.configs}
        found: dict[tuple[Any, ...], dict[int, float]] = {}
        for config in self.configs:
            folder = store.folder(config)
            if folder.finished:
                accuracy = folder.summary()["last"]["global_accuracy"]
                found.setdefault(self._combination(config), {})[config.seed] = accuracy
        rows = [
            {
                **dict(zip(self.space, combination, strict=True)),
                "accuracy": float(np.mean(list(scores.values()))),
                "std": float(np.std(list(scores.values()))),
                "seeds": len(scores),
            }
            for combination, scores in found.items()
            if set(scores) == seeds
        ]
        if not rows:
            raise ClustPSIError(f"no combination of the grid has all of {counted(len(seeds), 'seed')} finished")
        return pd.DataFrame(rows).sort_values("accuracy", ascending=False, kind="stable").reset_index(drop=True)

    def flags(self, best: Mapping[str, Any]) -> str:
        """The options with which ``clustpsi run`` trains with a combination."""
        own = {key: as_text(best[key]) for key in self.space if key not in TUNABLE}
        flags = ["--agg-method", _spec(self.method, own)]
        for key in self.space:
            if key in TUNABLE:
                flags += ["--" + key.replace("_", "-"), f"{best[key]}"]
        return shlex.join(flags)

    def write(self, store: Store, ranking: pd.DataFrame) -> str:
        """Write the ranking to the store as CSV; returns its name."""
        plain = replace(self.configs[0], agg_method=method_spec(make_method(self.method)))
        runs = hashlib.sha256("".join(config.digest for config in self.configs).encode()).hexdigest()[:8]
        name = f"tune-{plain.folder_name.partition('-seed')[0]}-{runs}.csv"
        write_csv(store.root / name, {str(key): ranking[key].tolist() for key in ranking})
        return name

    def _combination(self, config: Config) -> tuple[Any, ...]:
        method = make_method(config.agg_method)
        return tuple(_value(config if key in TUNABLE else method, key) for key in self.space)


def _spec(method: str, values: Mapping[str, str]) -> str:
    """A method with these parameters in addition to its own, in canonical form."""
    spec = MethodSpec.parse(method)
    return method_spec(MethodSpec(spec.name, {**spec.values, **values}).build())


def _value(owner: Any, key: str) -> Any:
    """A setting of a run, or a parameter of a method or of the method inside it."""
    if key == "inner":
        return owner.inner.name
    return getattr(owner if key in {each.name for each in fields(owner)} else owner.inner, key)
