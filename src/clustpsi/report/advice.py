"""What to do with a federation, in words: what the rule of :mod:`clustpsi.experiments.advice` says, and how surely."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from clustpsi.experiments.advice import KINDS, MEASURES, NEAR, Learned, known, measure
from clustpsi.printing import counted
from clustpsi.report.tables import dataset_title, level_title, method_title

NEAREST = 5  # known federations that are shown


@dataclass(frozen=True)
class Advice:
    """Advice on a federation, and the runs that it is known from: those on the federations that are most like it."""

    method: str | None  # None if nothing is known to be better
    sentences: tuple[str, ...]
    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    source: str


def advise(counts: ArrayLike, learned: Learned | None = None) -> Advice:
    """Advice on a federation with these label counts; ``learned`` is by default what the published runs say."""
    learned = learned or _known()
    values = measure(counts)
    sentences = [*(_ruled(values, learned) if learned.helps else _plain(values, learned)), *_limits(values, learned)]
    return Advice(
        learned.rule.choose(values) if learned.helps else None,
        tuple(sentences),
        f"Accuracy in the {NEAREST} known federations that are most like this one",
        ("federation", "clients", "majority labels", "WPSI", *map(method_title, KINDS)),
        _nearest(values, learned),
        f"Known from {counted(len(learned.cells), 'federation')} on {', '.join(map(dataset_title, learned.datasets))} "
        "(docs/results.md of clustpsi). Majority labels: the share of samples with their client's most frequent label.",
    )


@cache
def _known() -> Learned:
    return known()


def _ruled(values: dict[str, float], learned: Learned) -> list[str]:
    rule, total = learned.rule, sum(learned.sizes)
    chosen, other = rule.choose(values), learned.best_constant
    if rule.measure is None:
        why = "it was best in most of the runs, whatever the skew"
    else:
        side = "below" if values[rule.measure] < rule.limit else "above"
        shown = f"{values[rule.measure]:.3g}"
        why = f"{MEASURES[rule.measure]} is {shown} here, {side} {rule.limit:.3g}"
    return [
        f"From label counts alone: start with {method_title(chosen)} ({KINDS[chosen]}), because {why}.",
        f"How sure is that? On data sets that this rule had not seen, its choice was as good as the best (within "
        f"{NEAR}) in {learned.near('rule')} of {total} federations, always taking {method_title(other)} in "
        f"{learned.near(other)}; on average it gave away {learned.loss('rule'):.4f} of accuracy, that "
        f"{learned.loss(other):.4f}. That is little evidence, of {counted(len(learned.datasets), 'data set')}: compare "
        f"it with local training on your own data.",
    ]


def _plain(values: dict[str, float], learned: Learned) -> list[str]:
    other = learned.best_constant
    return [
        "No rule is known that chooses better on data it has not seen than always taking the same method, so these "
        "are the plain facts.",
        f"{method_title(other)} ({KINDS[other]}) was as good as the best (within {NEAR}) in {learned.near(other)} of "
        f"{counted(sum(learned.sizes), 'federation')}. Compare it with local training on your own data.",
    ]


def _limits(values: dict[str, float], learned: Learned) -> list[str]:
    """What the runs cannot speak for."""
    clients = [cell["num_clients"] for cell in learned.cells]
    if min(clients) <= values["num_clients"] <= max(clients):
        return []
    return [
        f"The known federations have {min(clients):,.0f} to {max(clients):,.0f} clients, this one has "
        f"{values['num_clients']:,.0f}: it is a guess that the same holds here."
    ]


def _nearest(values: dict[str, float], learned: Learned) -> list[tuple[str, ...]]:
    """The known federations that are most alike in what the rule looks at and in WPSI, each by its rank."""
    keys = [learned.rule.measure or "majority", "wpsi"]
    table = np.array([[cell[key] for key in keys] for cell in learned.cells])
    spread = table.std(axis=0)
    distance = (np.abs(table - [values[key] for key in keys]) / np.where(spread > 0, spread, 1)).sum(axis=1)
    rows = []
    for i in np.argsort(distance, kind="stable")[:NEAREST]:
        cell = learned.cells[i]
        rows.append(
            (
                f"{dataset_title(cell['dataset'])}, {level_title((cell['partitioner'], cell['non_iid_param']))}",
                f"{cell['num_clients']:.0f}",
                f"{cell['majority']:.0%}",
                f"{cell['wpsi']:.3g}",
                *(f"{cell[kind]:.3f}" for kind in KINDS),
            )
        )
    return rows
