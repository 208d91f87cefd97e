"""The report as one HTML file: it contains everything it needs and loads nothing.

Facts about runs come from :mod:`.cells`, facts about label counts from :mod:`clustpsi.diagnosis`, charts from
:mod:`.charts`.  All names are treated as text: Jinja2 escapes them in the page, and charts are compressed, so that no
name can end an element.
"""

import base64
import gzip
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from clustpsi.diagnosis import Diagnosis, band
from clustpsi.errors import ClustPSIError
from clustpsi.files import check_writable, write_atomically
from clustpsi.methods import make_method
from clustpsi.printing import counted, printable
from clustpsi.report import answers, charts, look
from clustpsi.report.advice import Advice, advise
from clustpsi.report.cells import Cell, shared_settings, two_dimensions
from clustpsi.report.charts import Chart, Silhouettes
from clustpsi.report.glossary import CONSTANT_LINES, CONSTANTS, TERMS
from clustpsi.report.look import FEATURE_LOOKS, Look, method_look
from clustpsi.report.sheet import Sheet
from clustpsi.report.tables import SERVER, dataset_title, level_title, method_idea, method_title, score_table

LARGEST = 6_000_000  # bytes of a report
ROOM_FOR_CHARTS = 3_500_000  # bytes of compressed charts; the rest is for Plotly (2 MB), tables and text
MOST_CLIENTS = 2_000  # in charts of single clients
MOST_ROWS = 10  # in tables of single clients and classes
SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class Heading:
    text: str
    key: str = ""  # the word's key in the glossary
    number: bool = True
    about: str = ""  # the explanation, if the glossary has none


@dataclass(frozen=True)
class Row:
    cells: tuple[str, ...]
    strong: bool = False
    faint: bool = False
    look: Look | None = None
    about: str | None = None  # explains the first cell
    best: frozenset[int] = frozenset()  # cells in bold


@dataclass(frozen=True)
class Table:
    title: str
    headings: tuple[Heading, ...]
    rows: list[Row]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    id: str
    title: str
    caption: str
    height: int


@dataclass
class Drawn:
    """The charts of a report by their identifiers."""

    charts: dict[str, Chart] = field(default_factory=dict)

    def add(self, title: str, caption: str, chart: Chart) -> Figure:
        name = f"chart{len(self.charts)}"
        self.charts[name] = chart
        return Figure(name, title, caption, chart["layout"]["height"])


def check_output(path: Path, made_from: Iterable[Path] = ()) -> None:
    """Raise, before any work, if the report cannot be written, replaces an input, or is not called an HTML file."""
    if path.suffix.lower() not in SUFFIXES:
        raise ClustPSIError(f"{path}: a report is an HTML file; end its name with .html")
    check_writable(path, made_from)


def write_report(path: Path, page: str) -> None:
    write_atomically(path, lambda file: file.write(page.encode()))


# -------------------------------------------------------------------------------------------------------------- reports


def run_report(cells: Sequence[Cell], notes: Sequence[str] = ()) -> str:
    """The report on runs: one chapter per cell and, if there are several cells, tables of all of them."""
    drawn, used = Drawn(), 0
    chapters: list[dict[str, Any]] = []
    left_out: list[str] = []
    for cell in cells:
        own = Drawn({f"chart{i}": {} for i in range(len(drawn.charts))})  # continues the numbering of charts
        chapter = _run_chapter(cell, f"chapter{len(chapters)}", own)
        new = {name: chart for name, chart in own.charts.items() if chart}
        used += len(_pack(json.dumps(new, allow_nan=False)))
        if chapters and used > ROOM_FOR_CHARTS:
            left_out.append(cell.title)
            continue
        drawn.charts |= new
        chapters.append(chapter)
    several = len(cells) > 1
    title = f"Methods compared on {counted(len(cells), 'federation')}" if several else chapters[0]["question"]
    about = shared_settings(cells)
    overview = _overview(cells) if several else []
    names = {name for cell in cells for name in cell.all_methods}
    ideas = {make_method(name).title: idea for name in names if (idea := method_idea(name))}
    return _render(title, about, chapters, drawn, notes, methods=ideas, overview=overview, left_out=left_out)


def skew_report(found: Diagnosis, other: Diagnosis, name: str, command: str) -> str:
    """The report on label counts; ``other`` is the diagnosis with the other kind of features."""
    drawn = Drawn()
    chapter = _skew_parts(found, other, "counts", drawn, {key: [value] for key, value in found.measures.items()})
    chapter |= {
        "title": name,
        "question": answers.skew_question(found),
        "answer": answers.skew_answer(found),
        "facts": _skew_facts(found),
        "advice": _advice(advise(found.counts)),
        "repeat": {"command": command, "notes": [_sentence(note) for note in found.notes]},
    }
    chapter["parts"] = [("advice", "What to do"), *SKEW_PARTS, ("repeat", "Repeat it")]
    about = f"{counted(len(found.client_names), 'client')}, {counted(len(found.class_names), 'class')}"
    return _render(str(chapter["question"]), about, [chapter], drawn, (), methods={})


SKEW_PARTS = [("federation", "The federation"), ("drivers", "Who drives the skew"), ("clusters", "The clusters")]


def _run_chapter(cell: Cell, name: str, drawn: Drawn) -> dict[str, Any]:
    found = cell.diagnosis
    chapter = _skew_parts(found, cell.signed, name, drawn, cell.measures())
    if len(cell.seeds) > 1:
        chapter["federation"]["text"] += (
            f" Charts of single clients show the partition of seed {cell.shown_seed}; the measures are those of all "
            f"{counted(len(cell.seeds), 'seed')}."
        )
    chapter |= {
        "title": cell.title,
        "question": answers.question(cell),
        "answer": answers.answer(cell),
        "facts": _run_facts(cell),
        "advice": _advice(advise(found.counts), answers.conclusion(cell)),
        "training": _training(cell, drawn),
        "fairness": _fairness(cell, drawn),
        "tests": _tests(cell),
        "cost": _cost(cell, drawn),
        "repeat": {"command": cell.command(), "notes": [_sentence(note) for note in _repeat_notes(cell)]},
    }
    parts = [("advice", "What to do"), *SKEW_PARTS, ("training", "Training"), ("fairness", "Fairness")]
    parts += [("tests", "Which differences are real")] if chapter["tests"] else []
    chapter["parts"] = [*parts, ("cost", "Cost"), ("repeat", "Repeat it")]
    return chapter


def _overview(cells: Sequence[Cell]) -> list[Table]:
    """Accuracy of every method in every cell, one table per data set and number of clients."""
    import pandas as pd

    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.num_clients), []).append(cell)
    tables = []
    for (dataset, clients), group in groups.items():
        runs = pd.concat([cell.runs for cell in group], ignore_index=True)
        sheet = score_table(runs.drop(columns=["method", "level"]), digits=3)
        there = {level_title(cell.level) for cell in group}
        title = f"Accuracy, {dataset_title(dataset)}, {counted(clients, 'client')}"
        methods = {method_title(method): method for cell in group for method in cell.all_methods}
        tables.append(_from_sheet(sheet, title, there, methods))
    return tables


def _from_sheet(sheet: Sheet, title: str, kept: set[str], methods: Mapping[str, str]) -> Table:
    """A table as ``clustpsi table`` prints it, with only the columns that have runs; ``methods`` by title."""
    columns = [i for i, heading in enumerate(sheet.headings) if heading in kept]
    headings = (Heading("method", number=False), *(Heading(sheet.headings[i]) for i in columns))
    rows = []
    for _, lines in sheet.sections:
        for line in lines:
            entries = [line.entries[0] if line.spans else line.entries[i] for i in columns]
            cells = (line.name, *(entry.lines[0] for entry in entries))
            best = frozenset(i for i, entry in enumerate(entries, 1) if entry.bold)
            rows.append(_method_row(methods.get(line.name), cells, methods.values(), best=best))
    notes = ["Mean ± standard deviation over seeds; the best of each column is bold.", *map(_sentence, sheet.notes)]
    return Table(title, headings, rows, notes)


def _method_row(method: str | None, cells: tuple[str, ...], among: Iterable[str], **more: Any) -> Row:
    """A row that begins with a method: its marker ``among`` others, name and idea."""
    known: dict[str, Any] = {} if method is None else {"look": method_look(method, among), "about": method_idea(method)}
    return Row(cells, **known, **more)


# ------------------------------------------------------------------------------------------------ skew and its clusters


def _skew_parts(
    found: Diagnosis, other: Diagnosis, name: str, drawn: Drawn, measures: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    clients, samples = len(found.client_names), int(found.counts.sum())
    shown = _shown_clients(found)
    few = _restricted(found, shown)
    text = f"{counted(clients, 'client')} have {counted(samples, 'training sample')} of {_classes(found)}."
    if len(shown) < clients:
        text += f" Charts show {len(shown):,} of the clients, taken evenly from all clusters; all numbers are of all."
    sizes = found.counts.sum(axis=1)
    federation = {
        "text": text,
        "heat_map": drawn.add(
            "Who has which labels",
            "One column per client, one row per class. The stronger the colour, the larger the share of the client's "
            "samples. Clients of one cluster stand together.",
            charts.label_heat_map(few.counts, few.names, found.class_names, few.clusters),
        ),
        "sizes": drawn.add(
            "How much data clients have",
            f"From {sizes.min():,} to {sizes.max():,} training samples.",
            charts.client_sizes(few.counts.sum(axis=1), few.names),
        ),
        "measures": drawn.add(
            "Measures of skew",
            "Above: WPSI on a logarithmic scale, with its bands. Below: the others, from 0 to 1."
            + (" One point per seed; the numbers are means." if len(measures["wpsi"]) > 1 else ""),
            charts.skew_measures(measures),
        ),
    }
    return {
        "id": name,
        "federation": federation,
        "drivers": _drivers(found, few, drawn),
        "clusters": _clusters([found, other], shown, drawn),
        "training": None,
        "fairness": None,
        "tests": None,
        "cost": None,
    }


@dataclass(frozen=True)
class _Few:
    """The clients that charts show."""

    names: list[str]
    counts: Any
    terms: Any
    clusters: Any


def _shown_clients(found: Diagnosis) -> Any:
    """Clients for charts: all or, if there are too many, an even choice from all clusters."""
    order = charts.cluster_order(found.counts, found.clustering.labels_)
    if len(order) <= MOST_CLIENTS:
        return np.arange(len(order))
    return np.sort(order[np.linspace(0, len(order) - 1, MOST_CLIENTS).round().astype(int)])


def _restricted(found: Diagnosis, shown: Any) -> _Few:
    names = [found.client_names[i] for i in shown]
    return _Few(names, found.counts[shown], found.terms[shown], found.clustering.labels_[shown])


def _drivers(found: Diagnosis, few: _Few, drawn: Drawn) -> dict[str, Any]:
    pooled = found.counts.sum(axis=0) / found.counts.sum()
    top = [int(c) for c in np.argsort(-found.class_shares, kind="stable")[:MOST_ROWS]]
    classes = [
        Row((found.class_names[c], f"{found.class_shares[c]:.1%}", f"{pooled[c]:.1%}"))
        for c in top
        if found.class_shares[c] > 0
    ]
    drivers = found.drivers()
    table: Any = found.clients().sort_values("psi", ascending=False, kind="stable").head(MOST_ROWS).itertuples()
    clients = [
        Row(
            (
                row.client,
                f"{row.psi:.2f}",
                f"{row.samples:,}",
                str(row.cluster),
                *(", ".join(name for name, much in drivers[row.Index] if much is wanted) for wanted in (True, False)),
            )
        )
        for row in table
    ]
    return {
        "terms": drawn.add(
            "PSI by client and class",
            "Above: the PSI of each client, highest first, with dotted lines at 0.1 and 0.25. Below: what each class "
            "adds to it. Blue: the client has more of the class than all clients together. Orange: less.",
            charts.psi_terms(few.terms, few.counts, few.names, found.class_names, reference=pooled),
        ),
        "classes": Table(
            "Classes that drive the skew",
            (Heading("class", number=False), Heading("share of WPSI", "wpsi"), Heading("share of all samples")),
            classes,
        ),
        "clients": Table(
            "Clients with the most unusual labels",
            (
                Heading("client", "client", number=False),
                Heading("PSI", "psi"),
                Heading("samples"),
                Heading("cluster", "cluster"),
                Heading("too much of", "driver", number=False),
                Heading("too little of", "driver", number=False),
            ),
            clients,
        ),
    }


def _clusters(kinds: Sequence[Diagnosis], shown: Any, drawn: Drawn) -> dict[str, Any]:
    silhouettes: dict[str, Silhouettes] = {
        found.clustering.features: Silhouettes(found.clustering.silhouette_scores_, found.clustering.n_clusters_)
        for found in kinds
    }
    parts = []
    for found in kinds:
        points, kept = two_dimensions(found)
        few = _restricted(found, shown)
        tau = found.clustering.n_clusters_
        title = FEATURE_LOOKS[found.clustering.features][0]
        parts.append(
            {
                "points": drawn.add(
                    f"Clients by {title}",
                    f"{counted(tau, 'cluster')}. Clients with similar labels are near each other. The two directions "
                    f"show {sum(kept):.0%} of the differences between clients. The larger a point, the more samples.",
                    charts.clients_in_two_dimensions(
                        points[shown], few.names, few.clusters, few.counts.sum(axis=1), kept=kept
                    ),
                ),
                "mix": drawn.add(
                    f"Labels of the clusters, by {title}",
                    "Each row is a cluster: the share of its samples that has each label, in percent.",
                    charts.label_mix(found.counts, found.clustering.labels_, found.class_names),
                ),
                "cautions": found.cautions(),
            }
        )
    curve = drawn.add(
        "How many clusters?",
        "The silhouette of every number of clusters that was tried. The marker is the number that was chosen: the "
        "smallest with the highest value.",
        charts.silhouette(silhouettes),
    )
    return {"silhouette": curve, "kinds": parts}


# ------------------------------------------------------------------------------------------------------------- training


def _training(cell: Cell, drawn: Drawn) -> dict[str, Any]:
    constants = {CONSTANT_LINES[kind]: value for kind, value in cell.constants().items()}
    return {
        "methods": drawn.add(
            "Accuracy of every method",
            f"The marker is the mean, each tick one seed. {_lines(constants)}",
            charts.accuracy_by_method(cell.scores(), constants),
        ),
        "scores": _scores(cell),
        "rounds": drawn.add(
            "Accuracy over the rounds",
            f"Lines: means over seeds. Bands: from the lowest to the highest seed. {_lines(constants)} A click on a "
            "method hides it.",
            charts.accuracy_by_round(cell.curves(), constants),
        ),
    }


def _lines(constants: Mapping[str, float]) -> str:
    """Explains the horizontal lines of a chart, if it has any."""
    if not constants:
        return ""
    return "Dashed: naming each client's most frequent class. Dotted: naming everybody's most frequent class."


COLUMNS = {
    "global_accuracy": Heading("accuracy", "accuracy"),
    "ad": Heading("AD", "ad"),
    "sdad": Heading("SDAD", "sdad"),
    "worst10": Heading("worst tenth", "worst10"),
    "balanced_accuracy": Heading("balanced accuracy", "balanced_accuracy"),
    "macro_f1": Heading("macro F1", "macro_f1"),
}


def _scores(cell: Cell) -> Table:
    of = {score: cell.scores(score) for score in COLUMNS}
    shown = [score for score in COLUMNS if of[score]]
    means = {method: float(np.mean(values)) for method, values in of["global_accuracy"].items()}
    rows = []
    for method in sorted(means, key=lambda name: -means[name]):
        cells = [_spread(of[score].get(method, [])) for score in shown]
        rows.append(_method_row(method, (method_title(method), *cells), cell.all_methods, strong=method == cell.best))
    for kind, title in CONSTANTS.items():
        values = {score: cell.constants(score).get(kind) for score in shown} if kind in cell.constants() else {}
        if values:
            cells = ["" if value is None else f"{value:.3f}" for value in values.values()]
            rows.append(Row((title, *cells), faint=True))
    over = f"mean ± standard deviation over {counted(len(cell.seeds), 'seed')}" if len(cell.seeds) > 1 else "one seed"
    headings = (Heading("method", number=False), *(COLUMNS[score] for score in shown))
    return Table(f"Scores of the last round ({over}), best first", headings, rows)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values):.3f}" if len(values) > 1 else "")


def _fairness(cell: Cell, drawn: Drawn) -> dict[str, Any]:
    accuracies = cell.accuracy_of_clients()
    shown = _shown_clients(cell.diagnosis)
    few = _restricted(cell.diagnosis, shown)
    worst = [
        Row(
            (
                each.name,
                f"{each.accuracy:.3f}",
                f"{each.test:,}",
                f"{each.train:,}",
                str(each.cluster),
                each.labels,
                "" if each.elsewhere is None else f"{method_title(each.elsewhere)}: {each.accuracy_elsewhere:.3f}",
            )
        )
        for each in cell.worst_clients(MOST_ROWS)
    ]
    seed = f" (seed {cell.shown_seed})" if len(cell.seeds) > 1 else ""
    return {
        "ecdf": drawn.add(
            "How many clients fare how well",
            "For each accuracy, the share of clients with at most that accuracy, over all seeds. The further a line is "
            "to the right, the better.",
            charts.local_accuracy_ecdf(cell.local_accuracy()),
        ),
        "worst": Table(
            f"The clients that fare worst under {method_title(cell.best)}{seed}",
            (
                Heading("client", "client", number=False),
                Heading("accuracy", "accuracy"),
                Heading("test samples"),
                Heading("training samples"),
                Heading("cluster", "cluster"),
                Heading("its labels", number=False),
                Heading("better served by", number=False),
            ),
            worst,
        ),
        "clients": drawn.add(
            f"Every client under every method{seed}",
            "One column per client, one row per method. The stronger the colour, the more accurate the method is for "
            "this client.",
            charts.accuracy_by_client(
                {method: values[shown] for method, values in accuracies.items()}, few.names, few.clusters
            ),
        ),
    }


def _tests(cell: Cell) -> Table | None:
    tests = cell.tests
    if tests.empty:
        return None
    best = method_title(cell.best)
    told = {"better": "yes", "worse": "yes", "not shown": "may be chance", "untested": "cannot be tested"}
    rows = []
    for row in tests.sort_values("difference", kind="stable").to_dict("records"):
        p = "" if np.isnan(row["p_holm"]) else f"{row['p_holm']:.2g}"
        verdict = f"no: identical to {method_title(row['same_as'])}" if row["same_as"] else told[row["verdict"]]
        cells = (method_title(row["method"]), f"{row['difference']:+.3f}", str(row["pairs"]), p, verdict)
        own = method_look(row["method"].removesuffix(SERVER), cell.all_methods)
        rows.append(Row(cells, strong=row["verdict"] == "better", look=own))
    server = []
    if tests["method"].str.endswith(SERVER).any():
        server = ["(server): scored as the literature does, with the server's models in place of the clients' own."]
    return Table(
        f"{best} minus each other method",
        (
            Heading("method", number=False),
            Heading("difference in accuracy", "accuracy"),
            Heading("seeds", "seed"),
            Heading("p", "p"),
            Heading("real?", number=False),
        ),
        rows,
        [
            f"{best} was chosen because it is the best of these very runs, which flatters it a little.",
            "Other seeds of this data set would draw other partitions and initial models: the tests are about those, "
            "not about other data.",
            *server,
        ],
    )


def _cost(cell: Cell, drawn: Drawn) -> dict[str, Any]:
    costs = cell.costs()
    rows = [
        Row(
            (
                method_title(method),
                f"{own['participants']:,.0f}",
                f"{own['bytes_up'] / 1e6:,.2f}",
                f"{own['bytes_down'] / 1e6:,.2f}",
                "" if np.isnan(own["seconds"]) else f"{own['seconds']:,.1f}",
            ),
            look=method_look(method, cell.all_methods),
        )
        for method, own in costs.items()
    ]
    headings = (
        Heading("method", number=False),
        Heading("clients trained", "client"),
        Heading("MB up", about="Megabytes that clients send to the server, in all rounds together."),
        Heading("MB down", about="Megabytes that the server sends to clients, in all rounds together."),
        Heading("seconds"),
    )
    notes = [
        "A client counts once each time it is asked to train, twice in a round of Ditto, FedRep or FedROD. Seconds are "
        "those of the simulation, without compiling: they depend on the machine and on what else it did."
    ]
    return {
        "chart": drawn.add(
            "What the methods cost",
            "Left: megabytes sent in all rounds together. Right: seconds of computing. Means over seeds.",
            charts.cost(costs),
        ),
        "table": Table("Cost of one run (means over seeds)", headings, rows, notes),
    }


def _repeat_notes(cell: Cell) -> list[str]:
    config, model = cell.config, cell.model
    parts = [f"model {model['model']} with {model['num_parameters']:,} parameters"] if model else []
    parts += [counted(config.comm_rounds, "round"), counted(config.local_epochs, "local epoch")]
    parts += [
        f"{config.fraction:.0%} of the clients in a round",
        f"{config.optimizer} with learning rate {config.lr:g}",
    ]
    parts += [f"batches of {config.batch_size}"] + ([f"data with content {config.content}"] if config.content else [])
    return [", ".join(parts), *cell.notes()]


# ---------------------------------------------------------------------------------------------------------------- facts


def _fact(key: str, name: str, value: str, more: str = "") -> dict[str, str]:
    return {"key": key, "name": name, "value": value, "more": more}


def _run_facts(cell: Cell) -> list[dict[str, str]]:
    scores = cell.scores()
    best = scores[cell.best]
    facts = [_fact("accuracy", "best accuracy", f"{np.mean(best):.3f}", method_title(cell.best))]
    constants = cell.constants()
    if "client" in constants:
        facts.append(
            _fact("constant", "line to beat", f"{constants['client']:.3f}", "each client's most frequent class")
        )
    pooled = [name for name in cell.all_methods if name not in cell.methods]
    if pooled:
        facts.append(_fact("", "all data in one place", f"{np.mean(scores[pooled[0]]):.3f}", "accuracy"))
    worst = cell.scores("worst10").get(cell.best)
    if worst:
        facts.append(_fact("worst10", "worst tenth", f"{np.mean(worst):.3f}", f"under {method_title(cell.best)}"))
    wpsi = float(np.mean(cell.measures()["wpsi"]))
    return [*facts, _fact("wpsi", "WPSI", f"{wpsi:.3g}", f"shift: {band(wpsi)}"), *_skew_facts(cell.diagnosis)[1:3]]


def _skew_facts(found: Diagnosis) -> list[dict[str, str]]:
    wpsi, tau = found.measures["wpsi"], found.clustering.n_clusters_
    score = found.clustering.silhouette_scores_.get(tau)
    sizes = found.counts.sum(axis=1)
    top = int(np.argmax(found.class_shares))
    return [
        _fact("wpsi", "WPSI", f"{wpsi:.3g}", f"shift: {band(wpsi)}"),
        _fact("client", "clients", f"{len(sizes):,}", f"{sizes.min():,} to {sizes.max():,} samples"),
        _fact("cluster", "clusters", str(tau), "" if score is None else f"silhouette {score:.2f}"),
        _fact("psi", "main driver", printable(found.class_names[top]), f"{found.class_shares[top]:.0%} of the skew"),
    ]


def _classes(found: Diagnosis) -> str:
    return counted(len(found.class_names), "class")


def _advice(advice: Advice, *before: str) -> dict[str, Any]:
    headings = tuple(Heading(text, number=i > 0, about=about) for i, (text, about) in enumerate(advice.headings))
    return {
        "sentences": [*before, *advice.sentences],
        "table": Table(advice.title, headings, [Row(row) for row in advice.rows]),
        "source": advice.source,
    }


def _sentence(note: str) -> str:
    """A note as a full sentence."""
    return f"{note[:1].upper()}{note[1:]}{'' if note.endswith('.') else '.'}"


# ----------------------------------------------------------------------------------------------------------------- HTML


def _render(
    title: str,
    about: str,
    chapters: Sequence[Mapping[str, Any]],
    drawn: Drawn,
    notes: Sequence[str],
    *,
    methods: Mapping[str, str],
    overview: Sequence[Table] = (),
    left_out: Sequence[str] = (),
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("clustpsi.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    program, notice = _plotly()
    themes = {theme.name: theme for theme in look.THEMES.values()}
    numbers = count()
    settings = json.dumps({"dark": look.counterparts(), "config": charts.CONFIG})
    return pages.get_template("report.html.j2").render(
        title=title,
        about=about,
        chapters=chapters,
        overview=overview,
        left_out=left_out,
        notes=[_sentence(note) for note in notes],
        terms=TERMS,
        methods=dict(sorted(methods.items())),
        marker=_mark,
        next_id=lambda: f"word{next(numbers)}",
        versions=[f"{name} {version(name)}" for name in ("clustpsi", "jax", "numpy", "scikit-learn")]
        + [f"Python {platform.python_version()}"],
        plotly_notice=notice,
        css=Markup(pages.get_template("report.css.j2").render(font=Markup(look.FONT), **themes)),
        script=Markup(files("clustpsi.report").joinpath("templates", "report.js").read_text("utf-8")),
        settings=Markup(settings),  # colours and Plotly's options, nothing from the user
        charts=_pack(json.dumps(drawn.charts, allow_nan=False)),
        plotly=program,
    )


def _pack(text: str) -> str:
    """Compressed text without characters that HTML treats specially; always the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def _plotly() -> tuple[str, str]:
    """Plotly's JavaScript, compressed; and its first lines, with its authors and licence."""
    program = files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")
    lines = [line.strip("/*! ") for line in program[:400].splitlines()]
    notice = ", ".join(line for line in lines if line.startswith(("plotly.js", "Copyright", "Licensed")))
    return _pack(program), notice


#: Markers as paths in a box of 12 x 12.
PATHS = {
    "o": "M6 1.2a4.8 4.8 0 1 0 .01 0z",
    "s": "M1.8 1.8h8.4v8.4h-8.4z",
    "D": "M6 .5 11.5 6 6 11.5.5 6z",
    "^": "M6 1 11.2 10.5H.8z",
    "v": "M6 11 11.2 1.5H.8z",
    "<": "M1 6 10.5.8v10.4z",
    ">": "M11 6 1.5.8v10.4z",
    "P": "M4.2.8h3.6v3.4h3.4v3.6H7.8v3.4H4.2V7.8H.8V4.2h3.4z",
    "X": "M2.6.6 6 4 9.4.6l2 2L8 6l3.4 3.4-2 2L6 8l-3.4 3.4-2-2L4 6 .6 2.6z",
    "*": "m6 .4 1.5 3.9 4.2.2-3.3 2.6 1.1 4L6 8.8l-3.5 2.3 1.1-4L.3 4.5l4.2-.2z",
    "p": "m6 .8 5.2 3.8-2 6.2H2.8l-2-6.2z",
    "d": "M6 .3 9.2 6 6 11.7 2.8 6z",
}


def _mark(own: Look) -> Markup:
    """The line and the marker of a method, as in the charts."""
    fill = "none" if own.hollow else "currentColor"
    dash = {"solid": "none", "dashes": "6 3", "dots": "1.5 2.5", "dash-dots": "6 2 1.5 2"}[own.line]
    width = "2.8" if own.strong else "1.8"
    return Markup(
        '<svg class="mark" viewBox="0 0 34 12" aria-hidden="true" style="--light:{light};--dark:{dark}">'
        '<path d="M0 6h34" stroke="currentColor" stroke-width="{width}" stroke-dasharray="{dash}"/>'
        '<path transform="translate(11 0)" d="{path}" fill="{fill}" stroke="currentColor" stroke-width="1.2"/></svg>'
    ).format(
        light=look.LIGHT.of(own.colour),
        dark=look.DARK.of(own.colour),
        width=width,
        dash=dash,
        path=PATHS[own.marker],
        fill=fill,
    )
