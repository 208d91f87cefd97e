"""The first lines of a report: the question, and its answer in two sentences."""

from collections.abc import Sequence

import numpy as np

from clustpsi.diagnosis import WEAK, Diagnosis, band
from clustpsi.printing import counted
from clustpsi.report.cells import Cell
from clustpsi.report.significance import FEWEST_PAIRS
from clustpsi.report.tables import SERVER, method_title

SHIFT = {"none": "hardly differ", "moderate": "differ moderately", "major": "differ a great deal"}
MOST_NAMED = 5  # most methods in one sentence


def question(cell: Cell) -> str:
    return f"Which method serves the {counted(cell.num_clients, 'client')} of {cell.title} best?"


def answer(cell: Cell) -> tuple[str, str]:
    """Which method is best and whether it beats constant answers; how sure that is."""
    return _best(cell), _certainty(cell)


def conclusion(cell: Cell) -> str:
    """What to do if there are runs: they count more than any rule."""
    title = method_title(cell.best)
    constant = cell.constants().get("client")
    if constant is not None and float(np.mean(cell.scores()[cell.best])) <= constant:
        return (
            "These runs speak for none of their methods: train longer, or try others, before you use any of them. What "
            "follows is known from other federations."
        )
    if len(cell.methods) == 1:
        return "These runs have a single method, so they cannot choose. What follows is known from other federations."
    tests = cell.tests
    others = tests[~tests["method"].str.endswith(SERVER)] if len(tests) else tests
    sure = len(others) and others["verdict"].isin(["better", "identical"]).all()
    doubt = "" if sure else ", though not surely: more seeds would tell"
    return (
        f"These runs speak for {title}{doubt}. They are better evidence for this federation than what follows, which "
        "its label counts alone would have suggested."
    )


def skew_question(found: Diagnosis) -> str:
    return f"How much do the labels of these {counted(len(found.client_names), 'client')} differ?"


def skew_answer(found: Diagnosis) -> tuple[str, str]:
    """How skewed a federation is and what drives it; whether its clients form clusters."""
    wpsi = found.measures["wpsi"]
    top = int(np.argmax(found.class_shares))
    drives = ""
    if found.class_shares[top] > 0:
        drives = f", and the class {found.class_names[top]} causes {found.class_shares[top]:.0%} of that"
    first = f"They {SHIFT[band(wpsi)]}: WPSI is {wpsi:.3g}{drives}."
    tau = found.clustering.n_clusters_
    score = found.clustering.silhouette_scores_.get(tau)
    cautions = found.cautions()
    if tau == 1:
        why = f", because {cautions[0]}" if cautions else ": no way to split them into clusters was found"
        return first, f"The clients stay together{why}."
    told = "" if score is None or score < WEAK else f" with a silhouette of {score:.2f}"  # else a warning
    doubt = f", but {cautions[0]}" if cautions else ""
    return first, f"The clients form {counted(tau, 'cluster')}{told}{doubt}."


def _best(cell: Cell) -> str:
    scores = cell.scores()
    mean = float(np.mean(scores[cell.best]))
    over = "" if len(cell.seeds) == 1 else f" on average over {counted(len(cell.seeds), 'seed')}"
    constant = cell.constants().get("client")
    title = method_title(cell.best)
    if constant is not None and mean <= constant:
        who = title if len(cell.methods) == 1 else f"the best of {counted(len(cell.methods), 'method')}, {title},"
        none = "It does not beat" if len(cell.methods) == 1 else "None beats"
        return (
            f"{none} a constant answer: naming each client's most frequent class is right for {constant:.1%} of "
            f"the test samples{over}, and {who} for {mean:.1%}."
        )
    beats = "" if constant is None else f", against {constant:.1%} for naming each client's most frequent class"
    if len(cell.methods) == 1:
        return f"{title}, the only method here, is right for {mean:.1%} of the test samples{over}{beats}."
    return (
        f"{title} is the most accurate of {counted(len(cell.methods), 'method')}: it is right for {mean:.1%} of the "
        f"test samples{over}{beats}."
    )


def _certainty(cell: Cell) -> str:
    if len(cell.methods) == 1:
        return "There is nothing to compare it with: run other methods too, local training for a start."
    tests = cell.tests
    if tests.empty:
        return "No other method was run with the same seeds, so no difference can be tested."
    tests = tests[~tests["method"].str.endswith(SERVER)]
    of = {verdict: tests.loc[tests["verdict"] == verdict, "method"].tolist() for verdict in tests["verdict"].unique()}
    ahead, open_, same = of.get("better", []), of.get("not shown", []), of.get("identical", [])
    parts = []
    if ahead:
        parts.append(f"paired tests over seeds show it ahead of {_named(ahead)}")
    if open_:
        gaps = tests.loc[tests["verdict"] == "not shown", "difference"]
        parts.append(f"its lead over {_named(open_)} (at most {gaps.max():.3f}) may be chance")
    if same:
        parts.append(f"{_named(same)} gave exactly the same results")
    if not ahead and not open_:
        if len(cell.seeds) < FEWEST_PAIRS:
            return (
                f"How much of its lead is chance cannot be said with {counted(len(cell.seeds), 'seed')}: take at least "
                f"{FEWEST_PAIRS}, better five."
            )
        parts.append("no difference could be tested, because none varies over seeds")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _named(methods: Sequence[str]) -> str:
    titles = [method_title(method) for method in methods]
    if len(titles) > MOST_NAMED:
        return f"{', '.join(titles[: MOST_NAMED - 1])} and {len(titles) - MOST_NAMED + 1} more"
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
