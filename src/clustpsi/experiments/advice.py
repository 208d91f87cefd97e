"""Which kind of method suits a federation: a rule learned from runs, and whether it holds on data it has not seen.

The rule looks at one number that label counts give, such as WPSI, and names one kind of method below a limit and
another above it.  It is fitted on the runs of some data sets and judged on those of another, each in turn: only that
tells whether it helps with a new federation.  It is worth giving if it does better there than always naming the same
method.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi import skew
from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method, method_spec
from clustpsi.runs.frame import check_comparable

#: The kinds of methods, each with the methods that may stand for it, as people write them.  The first one does unless
#: runs of more data sets have another.
KINDS: Mapping[str, tuple[str, ...]] = {
    "one model for all clients": ("fedavg",),
    "one model for each cluster of similar clients": ("clust_psi_pfl",),
    "one model for all that each client combines with its own label counts": ("prior_pfl", "prior_pfl:plain"),
    "every client trains alone": ("local",),
}

#: What the rule may look at.
MEASURES = {
    "majority": "the share of samples that have their client's most frequent label",
    "wpsi": "WPSI",
    "hellinger": "the Hellinger distance",
    "jensen_shannon": "the Jensen-Shannon distance",
    "label_earth_mover": "the label earth mover's distance",
    "num_clients": "the number of clients",
}

NEAR = 0.005  # accuracy: a choice that loses no more than this is as good as the best
CELL = ["dataset", "partitioner", "non_iid_param", "num_clients"]
STORED = "advice.json"


@dataclass(frozen=True)
class Rule:
    """Name ``below`` where a measure is less than ``limit``, else ``above``; without a measure, always the same."""

    measure: str | None
    limit: float
    below: str
    above: str

    def choose(self, values: Mapping[str, float]) -> str:
        """
        >>> Rule("wpsi", 1.0, "fedavg", "local").choose({"wpsi": 0.2})
        'fedavg'
        """
        return self.below if self.measure is None or values[self.measure] < self.limit else self.above


@dataclass(frozen=True)
class Judged:
    """How choices fared on cells that they were not made from: data set by data set, in the order of ``datasets``.

    ``near`` counts the cells in which the choice was as good as the best, ``loss`` is the mean accuracy that it gave
    away.
    """

    near: tuple[int, ...]
    loss: tuple[float, ...]


@dataclass(frozen=True)
class Learned:
    """The rule from all runs, and what is known about it.

    ``methods`` are those that stand for the kinds, each with what it does; ``rules`` are those that were learned
    without each data set; ``judged`` has how the rule (``"rule"``) and each constant choice fared on the data sets left
    out, ``cells`` the runs themselves.
    """

    rule: Rule
    methods: dict[str, str]
    datasets: tuple[str, ...]
    sizes: tuple[int, ...]
    rules: tuple[Rule, ...]
    judged: dict[str, Judged]
    cells: list[dict[str, Any]]

    @property
    def best_constant(self) -> str:
        """The method that it would be best to always name."""
        return min((kind for kind in self.judged if kind != "rule"), key=lambda kind: float(np.mean(self.loss(kind))))

    def loss(self, who: str) -> float:
        """Mean accuracy given away on data sets not seen, each data set counting the same."""
        return float(np.mean(self.judged[who].loss))

    def near(self, who: str) -> int:
        return sum(self.judged[who].near)

    @property
    def helps(self) -> bool:
        """Whether the rule does better on data sets that it has not seen than always naming one method."""
        others = [kind for kind in self.judged if kind != "rule"]
        better_loss = all(self.loss("rule") < self.loss(kind) for kind in others)
        return better_loss and all(self.near("rule") > self.near(kind) for kind in others)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Learned":
        return cls(
            Rule(**values["rule"]),
            dict(values["methods"]),
            tuple(values["datasets"]),
            tuple(values["sizes"]),
            tuple(Rule(**each) for each in values["rules"]),
            {who: Judged(tuple(each["near"]), tuple(each["loss"])) for who, each in values["judged"].items()},
            list(values["cells"]),
        )


def measure(counts: ArrayLike) -> dict[str, float]:
    """The measures that a rule may look at, of label counts."""
    table = skew.check_counts(counts)
    return {
        "majority": float(table.max(axis=1).sum() / table.sum()),
        **{key: value for key, value in skew.measures(table).items() if key in MEASURES},
        "num_clients": float(len(table)),
    }


def known() -> Learned:
    """What the published runs say (:mod:`clustpsi.recorded`)."""
    return Learned.from_dict(json.loads(files("clustpsi.experiments").joinpath(STORED).read_text("utf-8")))


def find_cells(stores: Iterable[pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The cells in which every kind of method was run, with measures and mean accuracies over the seeds of all kinds.

    Also the methods that stand for the kinds, each with what it does.  ``stores`` are tables of runs from
    :func:`clustpsi.runs.frame.read_runs`.
    """
    known = [_known_runs(runs) for runs in stores]
    found: list[tuple[pd.DataFrame, dict[str, str]]] = []
    for choice in product(*KINDS.values()):
        cells = pd.concat([_complete(runs, choice) for runs in known], ignore_index=True).drop_duplicates(CELL)
        found.append((cells, dict(zip(choice, KINDS, strict=True))))
    cells, methods = max(found, key=lambda each: each[0]["dataset"].nunique())  # the first of equals
    if cells["dataset"].nunique() < 2:
        kinds = ", ".join(" or ".join(names) for names in KINDS.values())
        raise ClustPSIError(
            f"a rule needs runs of {kinds} in the same cells, on two data sets at least: one to judge it"
        )
    return cells, methods


def _known_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The finished runs of the methods that may stand for a kind, by the names that people write.

    Runs on validation rows do not count; of the others, those on one data set must be comparable.
    """
    names = {method_spec(make_method(name)): name for choices in KINDS.values() for name in choices}
    runs = runs[(runs["status"] == "finished") & runs["agg_method"].isin(names) & ~runs["validation"].eq(True)]
    for dataset, group in runs.groupby("dataset", sort=False):
        check_comparable(group, f"the runs on {dataset}")
    runs = runs.assign(agg_method=runs["agg_method"].map(names)).astype({"num_clients": float})
    return runs.rename(columns={"constant_client": "skew_majority", "last_global_accuracy": "accuracy"})


def _complete(runs: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """The cells in which all methods were run, with means over the seeds that all of them have."""
    scores = runs.pivot_table("accuracy", [*CELL, "seed"], "agg_method").reindex(columns=list(methods)).dropna()
    measures = runs.groupby([*CELL, "seed"])[[f"skew_{name}" for name in MEASURES if name != "num_clients"]].first()
    own = scores.join(measures.rename(columns=lambda name: str(name).removeprefix("skew_"))).groupby(CELL)
    return own.mean().join(own.size().rename("seeds").astype(float)).reset_index()


def learn(cells: pd.DataFrame, methods: Mapping[str, str]) -> Learned:
    """The rule with the least loss on these cells, and how rules learned without each data set fare on it."""
    names = list(methods)
    datasets = tuple(str(name) for name in cells["dataset"].unique())
    parts = {name: cells[cells["dataset"] == name] for name in datasets}
    rules = tuple(fit(cells[cells["dataset"] != name], names) for name in datasets)
    judged = {"rule": _judge(list(parts.values()), rules, names)}
    for name in names:
        judged[name] = _judge(list(parts.values()), [Rule(None, 0.0, name, name)] * len(datasets), names)
    records = [{str(key): value for key, value in row.items()} for row in cells.to_dict("records")]
    return Learned(fit(cells, names), dict(methods), datasets, tuple(map(len, parts.values())), rules, judged, records)


def fit(cells: pd.DataFrame, methods: Sequence[str]) -> Rule:
    """The rule that gives away the least accuracy, each data set counting the same; the simplest of equals."""
    losses, weights = _losses(cells, methods), _weights(cells)
    always = int((weights @ losses).argmin())
    best, least = Rule(None, 0.0, methods[always], methods[always]), float((weights @ losses).min())
    for name in MEASURES:
        values = cells[name].to_numpy(np.float64)
        known = np.unique(values)
        for limit in (known[1:] + known[:-1]) / 2:
            is_below = values < limit
            below, above = weights[is_below] @ losses[is_below], weights[~is_below] @ losses[~is_below]
            if below.min() + above.min() < least - 1e-9:
                least = float(below.min() + above.min())
                best = Rule(name, float(limit), methods[below.argmin()], methods[above.argmin()])
    return best


def _losses(cells: pd.DataFrame, methods: Sequence[str]) -> NDArray[np.float64]:
    """What each method gives away in each cell."""
    accuracy = cells[list(methods)].to_numpy(np.float64)
    return np.asarray(accuracy.max(axis=1, keepdims=True) - accuracy)


def _weights(cells: pd.DataFrame) -> NDArray[np.float64]:
    sizes = cells.groupby("dataset")["dataset"].transform("size").to_numpy(np.float64)
    return np.asarray(1 / sizes / cells["dataset"].nunique())


def _judge(parts: Sequence[pd.DataFrame], rules: Sequence[Rule], methods: Sequence[str]) -> Judged:
    near, loss = [], []
    for cells, rule in zip(parts, rules, strict=True):
        chosen = [methods.index(rule.choose(row)) for row in cells.to_dict("records")]  # type: ignore[arg-type]
        lost = _losses(cells, methods)[np.arange(len(cells)), chosen]
        near.append(int((lost <= NEAR).sum()))
        loss.append(float(lost.mean()))
    return Judged(tuple(near), tuple(loss))
