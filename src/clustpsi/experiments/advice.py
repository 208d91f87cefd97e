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
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi import skew
from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method, method_spec

#: One method for each kind, as people write it: those that runs of the most data sets have.
KINDS = {
    "fedavg": "one model for all clients",
    "clust_psi_pfl": "one model for each cluster of similar clients",
    "prior_pfl:plain": "one model for all that each client combines with its own label counts",
    "local": "every client trains alone",
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

    ``rules`` are those that were learned without each data set; ``judged`` has how the rule (``"rule"``) and each
    constant choice fared on the data sets left out, ``cells`` the runs themselves.
    """

    rule: Rule
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


def find_cells(stores: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The cells in which every kind of method was run, with measures and mean accuracies.

    ``stores`` are tables of runs from :func:`clustpsi.runs.frame.read_runs`.
    """
    frames = []
    names = {method_spec(make_method(kind)): kind for kind in KINDS}
    for runs in stores:
        runs = runs[(runs["status"] == "finished") & runs["agg_method"].isin(names)]
        runs = runs.assign(agg_method=runs["agg_method"].map(names))
        runs = runs.rename(columns={"constant_client": "skew_majority", "last_global_accuracy": "accuracy"})
        scores = runs.pivot_table("accuracy", CELL, "agg_method", dropna=False)
        if not set(KINDS) <= set(scores):
            continue
        columns = [f"skew_{name}" for name in MEASURES if name != "num_clients"]
        own = scores[list(KINDS)].join(runs.groupby(CELL)[columns].mean()).join(runs.groupby(CELL)["seed"].nunique())
        frames.append(own.dropna().reset_index().rename(columns=lambda name: str(name).removeprefix("skew_")))
    if not frames or len({name for frame in frames for name in frame["dataset"]}) < 2:
        raise ClustPSIError(
            f"a rule needs runs of {', '.join(KINDS)} in the same cells, on two data sets at least: one to judge it"
        )
    cells = pd.concat(frames, ignore_index=True)
    return cells.astype({"num_clients": float}).drop_duplicates(CELL).rename(columns={"seed": "seeds"})


def learn(cells: pd.DataFrame) -> Learned:
    """The rule with the least loss on these cells, and how rules learned without each data set fare on it."""
    datasets = tuple(str(name) for name in cells["dataset"].unique())
    parts = {name: cells[cells["dataset"] == name] for name in datasets}
    rules = tuple(fit(cells[cells["dataset"] != name]) for name in datasets)
    judged = {"rule": _judge(list(parts.values()), rules)}
    for kind in KINDS:
        judged[kind] = _judge(list(parts.values()), [Rule(None, 0.0, kind, kind)] * len(datasets))
    records = [{str(key): value for key, value in row.items()} for row in cells.to_dict("records")]
    return Learned(fit(cells), datasets, tuple(map(len, parts.values())), rules, judged, records)


def fit(cells: pd.DataFrame) -> Rule:
    """The rule that gives away the least accuracy, each data set counting the same; the simplest of equals."""
    losses, weights = _losses(cells), _weights(cells)
    kinds = list(KINDS)
    always = (weights @ losses).argmin()
    best, least = Rule(None, 0.0, kinds[always], kinds[always]), float((weights @ losses).min())
    for name in MEASURES:
        values = cells[name].to_numpy(np.float64)
        known = np.unique(values)
        for limit in (known[1:] + known[:-1]) / 2:
            is_below = values < limit
            below, above = weights[is_below] @ losses[is_below], weights[~is_below] @ losses[~is_below]
            if below.min() + above.min() < least - 1e-9:
                least = float(below.min() + above.min())
                best = Rule(name, float(limit), kinds[below.argmin()], kinds[above.argmin()])
    return best


def _losses(cells: pd.DataFrame) -> NDArray[np.float64]:
    """What each kind of method gives away in each cell."""
    accuracy = cells[list(KINDS)].to_numpy(np.float64)
    return np.asarray(accuracy.max(axis=1, keepdims=True) - accuracy)


def _weights(cells: pd.DataFrame) -> NDArray[np.float64]:
    sizes = cells.groupby("dataset")["dataset"].transform("size").to_numpy(np.float64)
    return np.asarray(1 / sizes / cells["dataset"].nunique())


def _judge(parts: Sequence[pd.DataFrame], rules: Sequence[Rule]) -> Judged:
    near, loss = [], []
    for cells, rule in zip(parts, rules, strict=True):
        chosen = [list(KINDS).index(rule.choose(row)) for row in cells.to_dict("records")]  # type: ignore[arg-type]
        lost = _losses(cells)[np.arange(len(cells)), chosen]
        near.append(int((lost <= NEAR).sum()))
        loss.append(float(lost.mean()))
    return Judged(tuple(near), tuple(loss))
