"""Advice on a federation, in words: what the rule of :mod:`clustpsi.experiments.advice` says, and how sure it is."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from clustpsi.experiments.advice import MEASURES, NEAR, Learned, known, measure
from clustpsi.printing import counted
from clustpsi.report.glossary import TERMS
from clustpsi.report.tables import dataset_title, level_title, method_title

NEAREST = 5  # known federations that are shown


@dataclass(frozen=True)
class Advice:
    """Advice on a federation, and the runs on the federations that are most like it."""

    method: str
    sentences: tuple[str, ...]
    title: str
    headings: tuple[tuple[str, str], ...]  # each with its explanation
    rows: list[tuple[str, ...]]
    source: str


def advise(counts: ArrayLike, learned: Learned | None = None) -> Advice:
    """Advice on a federation with these label counts; by default ``learned`` comes from the published runs."""
    learned = learned or _known()
    values = measure(counts)
    sentences = [*(_ruled(values, learned) if learned.helps else _plain(learned)), *_limits(values, learned)]
    return Advice(
        learned.rule.choose(values) if learned.helps else learned.best_constant,
        tuple(sentences),
        f"Accuracy in the {NEAREST} known federations that are most like this one",
        (
            ("federation", "Data set and partition"),
            ("clients", TERMS["client"][1]),
            TERMS["majority"],
            TERMS["wpsi"],
            *((method_title(method), f"{what[:1].upper()}{what[1:]}.") for method, what in learned.methods.items()),
        ),
        _nearest(values, learned),
        _source(learned),
    )


def _source(learned: Learned) -> str:
    """The runs from which the advice was learned."""
    runs = sum(int(cell["seeds"]) for cell in learned.cells) * len(learned.methods)
    parts = [f"{dataset_title(name)} ({size})" for name, size in zip(learned.datasets, learned.sizes, strict=True)]
    methods = [method_title(method) for method in learned.methods]
    return (
        f"Known from {counted(runs, 'run')} of {', '.join(methods[:-1])} and {methods[-1]} on "
        f"{counted(len(learned.cells), 'federation')} made from {', '.join(parts)}: docs/results.md of clustpsi."
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
        f"From label counts alone: start with {method_title(chosen)}: {learned.methods[chosen]}. Why: {why}.",
        f"How sure is that? On data sets that this rule had not seen, its choice was as good as the best method "
        f"(within {NEAR} of accuracy) in {learned.near('rule')} of {total} federations. Always taking "
        f"{method_title(other)} would have been in {learned.near(other)}. The rule gave away "
        f"{learned.loss('rule'):.4f} of accuracy on average, the constant choice {learned.loss(other):.4f}.",
        f"This is evidence from {counted(len(learned.datasets), 'data set')} only: compare with local training on your "
        f"own data.",
    ]


def _plain(learned: Learned) -> list[str]:
    chosen = learned.best_constant
    second = min((kind for kind in learned.methods if kind != chosen), key=learned.loss)
    return [
        f"From label counts alone: start with {method_title(chosen)}: {learned.methods[chosen]}. Why: it was as good "
        f"as the best of {len(learned.methods)} methods (within {NEAR} of accuracy) in {learned.near(chosen)} of "
        f"{counted(sum(learned.sizes), 'known federation')}, {method_title(second)} in {learned.near(second)}. No rule "
        f"that looks at label counts chose better on data it had not seen.",
        f"How sure is that? This is evidence from {counted(len(learned.datasets), 'data set')} whose clients differ in "
        f"their labels only. If a class looks different at different clients, it may not hold: compare with local "
        f"training on your own data.",
    ]


def _limits(values: dict[str, float], learned: Learned) -> list[str]:
    """Warnings where this federation is unlike all known ones."""
    clients = [cell["num_clients"] for cell in learned.cells]
    if min(clients) <= values["num_clients"] <= max(clients):
        return []
    return [
        f"The known federations have {min(clients):,.0f} to {max(clients):,.0f} clients, this one has "
        f"{values['num_clients']:,.0f}: it is a guess that the same holds here."
    ]


def _nearest(values: dict[str, float], learned: Learned) -> list[tuple[str, ...]]:
    """The known federations that are nearest in the rule's measure and in WPSI, in units of their spread."""
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
                f"{cell['wpsi']:.2f}",
                *(f"{cell[method]:.3f}" for method in learned.methods),
            )
        )
    return rows
