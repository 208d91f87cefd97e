"""The layout of the page, with its texts and accessible labels."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from clustpsi.explorer.library import LARGEST_TABLE
from clustpsi.explorer.results import SCORES, Line
from clustpsi.explorer.settings import Settings
from clustpsi.explorer.training import Method
from clustpsi.explorer.view import View
from clustpsi.methods import method_types
from clustpsi.paper import DATASETS as PAPER
from clustpsi.presets import CLUSTERING as PRESETS
from clustpsi.printing import printable
from clustpsi.report.charts import CONFIG, Chart
from clustpsi.report.glossary import TERMS
from clustpsi.report.look import THEMES
from clustpsi.report.tables import dataset_title, method_idea, method_title
from clustpsi.skew import SMOOTHINGS

#: Charts of a federation: title, and how to read the chart.
CHARTS = {
    "partition": (
        "Who has which labels",
        "Each column is a client, each row a class; the stronger the colour, the larger the share of the client's "
        "samples. Clients stand by cluster.",
    ),
    "measures": ("How skewed is it?", "WPSI with the usual bands above, the other measures of skew below."),
    "silhouette": (
        "How many clusters?",
        "The silhouette of every number of clusters; the large marker is the number that is used.",
    ),
    "map": (
        "Clients in two dimensions",
        "Clients with similar label mixes lie near each other. Colour and marker are the cluster, the size is the "
        "number of samples.",
    ),
    "mix": ("What is in the clusters", "The share of each class in the samples of a cluster."),
    "psi": (
        "Who drives the skew",
        "Above, the PSI of each client with the limits 0.1 and 0.25; below, what each class adds to it: blue is too "
        "much of a class, orange too little.",
    ),
    "sizes": ("Samples per client", "From the largest client to the smallest."),
}
WIDE = ("partition", "psi", "sizes")
AS_PRESET = "preset"  # value of a control that follows the preset

_ids = count()


def term(key: str, text: str | None = None) -> Component:
    """A word of the glossary that shows its explanation on hover or focus."""
    word, explanation = TERMS[key]
    return explained(text or word, explanation)


def explained(text: str, explanation: str) -> Component:
    """A text that shows an explanation on hover or focus."""
    name = f"word{next(_ids)}"
    tip = html.Span(explanation, className="tip", role="tooltip", id=name)
    return html.Span([text, tip], className="term", tabIndex=0, **{"aria-describedby": name})


def index(title: str) -> str:
    """The HTML around the page, with the colours of the charts."""
    colours = "".join(
        f"{selector} {{{''.join(f'--{name}: {getattr(theme, name)}; ' for name in _COLOURS)}}} "
        for selector, theme in ((":root", THEMES["light"]), (":root[data-theme=dark]", THEMES["dark"]))
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
{{%metas%}}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{colours}</style>
{{%css%}}
</head>
<body>
<a class="skip" href="#main">Go to the charts</a>
{{%app_entry%}}
<footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer>
</body>
</html>"""


_COLOURS = ("page", "surface", "ink", "muted", "grid", "accent", "good", "fair", "bad")


def page(settings: Settings, datasets: Sequence[dict[str, str]]) -> Component:
    """The whole page; the controls have these settings until the address is read."""
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            dcc.Store(id="theme"),
            dcc.Store(id="settings"),
            dcc.Store(id="shown"),
            dcc.Store(id="written"),
            dcc.Store(id="job", storage_type="session"),
            dcc.Interval(id="tick", interval=500, disabled=True),
            dcc.Download(id="download"),
            html.Header(
                [
                    html.P("clustpsi explorer", className="brand"),
                    html.Nav(
                        dcc.RadioItems(
                            id="page",
                            options=[
                                {"label": "Explore", "value": "explore"},
                                {"label": "The paper, live", "value": "paper"},
                            ],
                            value="explore",
                            className="pages",
                        ),
                        **{"aria-label": "Pages"},
                    ),
                    html.Button("Dark colours", id="theme-button", className="quiet"),
                ]
            ),
            html.Main([_alert("address-message"), _explore(settings, datasets), _paper()], id="main"),
        ]
    )


# -------------------------------------------------------------------------------------------------------------- explore


def _explore(settings: Settings, datasets: Sequence[dict[str, str]]) -> Component:
    return html.Div(
        [
            html.Form(
                [*_data(settings, datasets), *_partition(settings), *_clustering(settings)], className="controls card"
            ),
            html.Div(
                [
                    _alert("control-message"),
                    _alert("message"),
                    dcc.Loading(
                        html.Div(
                            [
                                html.Section(
                                    [
                                        html.Dl(id="facts", className="facts", **{"aria-live": "polite"}),
                                        html.Div(id="advice"),
                                    ],
                                    className="card",
                                ),
                                *map(_chart, CHARTS),
                            ],
                            id="results",
                        ),
                        delay_show=400,
                        overlay_style={"visibility": "visible", "opacity": 0.5},
                    ),
                    _training(settings),
                    _take_away(),
                ],
                className="results",
            ),
        ],
        id="explore",
        className="columns",
    )


def _alert(name: str) -> Component:
    """Where one callback, and no other, says what is wrong: nobody else takes its sentence away."""
    return html.P(id=name, className="message", role="alert")


def room(chart: Chart) -> dict[str, str]:
    """The space for a chart: as wide as the page, and as high as the chart says."""
    return {"height": f"{chart['layout']['height']}px"}


def _chart(name: str) -> Component:
    title, caption = CHARTS[name]
    graph = dcc.Graph(id=f"chart-{name}", config=CONFIG, responsive=True, figure={"data": [], "layout": _EMPTY})
    return html.Figure(
        [
            html.H2(title),
            html.Div(graph, role="img", **{"aria-label": f"{title}. {caption}"}),
            html.Figcaption(caption),
        ],
        className=f"card chart-card {'wide' if name in WIDE else ''}",
    )


_EMPTY: dict[str, Any] = {
    "height": 300,
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}


def _data(settings: Settings, datasets: Sequence[dict[str, str]]) -> list[Component]:
    size = f"{LARGEST_TABLE / 1e6:.0f} MB"
    return [
        html.H2("Data"),
        _labelled(
            "dataset",
            "Data set",
            dcc.Dropdown(id="dataset", options=list(datasets), value=settings.dataset, clearable=False),
        ),
        dcc.Upload(
            id="upload",
            children=html.Button("Drop your own table here, or choose a file", type="button", className="drop"),
            max_size=LARGEST_TABLE,
            className="upload",
        ),
        html.P(
            [
                "Label counts (one row per ",
                term("client"),
                f"), or one row per sample; CSV, Parquet, ..., up to {size}. It stays on this machine.",
            ],
            className="note",
        ),
        _alert("table-message"),
        html.Div(
            [
                _labelled(
                    "label",
                    "Column of the label",
                    dcc.Dropdown(id="label", placeholder="none: these are label counts"),
                ),
                _labelled("client", "Column of the client", dcc.Dropdown(id="client", placeholder="none")),
            ],
            id="columns",
            hidden=True,
        ),
    ]


def _partition(settings: Settings) -> list[Component]:
    return [
        html.Fieldset(
            [
                html.Legend("Who gets which data"),
                _choice(
                    "partitioner",
                    html.Span("Partition"),
                    {
                        "dirichlet": term("dirichlet"),
                        "similarity": term("similarity"),
                        "iid": term("iid"),
                        "natural": term("natural"),
                    },
                    settings.partitioner,
                ),
                html.Div(
                    _number("alpha", term("alpha", "α of the Dirichlet partition"), 0.1, "any", slide=(-2, 2, 0.05)),
                    id="alpha-box",
                ),
                html.Div(
                    _number("similar", term("s", "S of the Similarity partition"), 0.03, "any", slide=(0, 1, 0.01)),
                    id="similar-box",
                    hidden=True,
                ),
                html.Div(
                    _number("num_clients", term("client", "Number of clients, K"), 20, 1, slide=(0.30103, 3, 0.01)),
                    id="num_clients-box",
                ),
                _number("seed", term("seed", "Seed"), 42, 1),
            ],
            id="partition-box",
        )
    ]


def _clustering(settings: Settings) -> list[Component]:
    return [
        html.Fieldset(
            [
                html.Legend("How clients are clustered"),
                _choice("preset", term("preset", "Preset"), {name: name for name in PRESETS}, settings.preset),
                _choice(
                    "psi_features",
                    term("signed", "Features of a client"),
                    {AS_PRESET: "the preset's", "psi": "the paper's", "signed": "signed"},
                    settings.psi_features or AS_PRESET,
                ),
                _choice(
                    "psi_smoothing",
                    term("smoothing", "Smoothing of zero shares"),
                    {AS_PRESET: "the preset's", **{each: each for each in SMOOTHINGS}},
                    settings.psi_smoothing or AS_PRESET,
                ),
                _number(
                    "tau_clusters",
                    ["Number of ", term("cluster", "clusters"), " (empty: the best ", term("silhouette"), ")"],
                    None,
                    1,
                ),
            ]
        )
    ]


def _labelled(name: str, text: Any, control: Component) -> Component:
    return html.Div([html.Label(text, htmlFor=name), control], className="control")


def _choice(name: str, text: Component, options: Mapping[str, Any], value: str) -> Component:
    """A choice of one among a few options, all of which are visible."""
    title = f"{name}-name"
    radio = dcc.RadioItems(
        id=name, options=[{"label": label, "value": key} for key, label in options.items()], value=value, inline=True
    )
    return html.Div(
        [html.Div(text, className="label", id=title), radio],
        className="control",
        role="radiogroup",
        **{"aria-labelledby": title},
    )


def _number(
    name: str, text: Any, value: float | None, step: Any, slide: tuple[float, float, float] | None = None
) -> Component:
    """A field for a number and, with ``slide`` (least, most, step), a slider for it."""
    typed = dcc.Input(id=name, type="number", value=value, step=step, debounce=0.3)
    parts: list[Any] = [html.Label(text, htmlFor=name), typed]
    if slide is not None:
        least, most, by = slide
        slider = dcc.Input(id=f"{name}-slide", type="range", min=least, max=most, step=by)
        parts.append(html.Label([html.Span("the same with a slider", className="hidden"), slider], className="slide"))
    return html.Div(parts, className="control number-control")


# ------------------------------------------------------------------------------------------------------------- training


def _training(settings: Settings) -> Component:
    options = [{"label": method_title(name), "value": name} for name in method_types()]
    return html.Section(
        [
            html.H2("Train and compare"),
            html.P(
                [
                    "Methods are trained on this federation in a process of their own. Dashed lines are ",
                    term("constant", "answers that need no training"),
                    ".",
                ]
            ),
            html.Div(
                [
                    _labelled(
                        "agg_method",
                        "Methods",
                        dcc.Dropdown(
                            id="agg_method", options=options, value=settings.agg_method.split(","), multi=True
                        ),
                    ),
                    _number("comm_rounds", term("round", "Rounds"), settings.comm_rounds, 1),
                    _number("local_epochs", term("epoch", "Epochs per round"), settings.local_epochs, 1),
                ],
                className="training-controls",
            ),
            html.Div(
                [
                    html.Button("Start training", id="start", className="main-button", type="button"),
                    html.Button("Stop", id="stop", type="button", disabled=True),
                ],
                className="buttons",
            ),
            _alert("train-message"),
            html.Div(id="progress", role="status", **{"aria-live": "polite"}),
            html.Div(
                dcc.Graph(
                    id="chart-training",
                    config=CONFIG,
                    responsive=True,
                    figure={"data": [], "layout": _EMPTY},
                    style={"height": "460px"},
                ),
                role="img",
                id="training-box",
                hidden=True,
                **{"aria-label": "Accuracy by round of each method, with the answers that need no training as lines."},
            ),
        ],
        className="card wide",
    )


def progress(methods: Sequence[Method], notes: Sequence[str]) -> list[Component]:
    """The progress of the methods, as a table."""
    rows = []
    for each in methods:
        last = max(each.rounds, default=None)
        told = "" if last is None else f"{last} of {each.config.comm_rounds}"
        accuracy = "" if last is None else f"{each.rounds[last]:.3f}"
        state = f"{each.state}: {printable(each.reason)}" if each.reason else each.state
        if each.state == "running" and last is None:
            state = "preparing: data is loaded and programs are compiled"
        name = each.config.agg_method
        rows.append([_method(name, method_title(name)), told, accuracy, state])
    table = _table("", [_heading("method"), term("round", "round"), term("accuracy"), _heading("state")], rows, {1, 2})
    return [table, *(html.P(printable(note), className="note") for note in dict.fromkeys(notes))]


def _take_away() -> Component:
    return html.Section(
        [
            html.H2("Take it with you"),
            html.Div(
                [
                    html.Button("Label counts (CSV)", id="get-counts", type="button"),
                    html.Button("Clusters (CSV)", id="get-clusters", type="button"),
                    html.Button("Report (HTML)", id="get-report", type="button"),
                ],
                className="buttons",
            ),
            html.P(
                "The address of this page has all settings: send it to somebody who runs clustpsi explore, or keep it."
            ),
            html.H3("The same on the command line"),
            *_command("measure", "Measure and cluster:"),
            *_command("command", "Train:"),
        ],
        className="card wide",
    )


def _command(name: str, text: str) -> list[Component]:
    return [
        html.P(text, className="label", id=f"{name}-title"),
        html.Div(
            [html.Pre(id=name), dcc.Clipboard(target_id=name, title="copy", className="copy")],
            id=f"{name}-box",
            className="command",
        ),
    ]


# ------------------------------------------------------------------------------------------------------- what it shows


def facts(view: View) -> list[Component]:
    """The numbers that the page shows first."""
    return [
        html.Div([html.Dt(term(key, name)), html.Dd(value, id=f"fact-{key}"), html.Dd(more, className="muted")])
        for key, name, value, more in view.facts
    ]


def told(view: View) -> list[Component]:
    """The answer, the advice, and cautions."""
    first, second = view.answer
    advice = view.advice
    headings = [explained(text, about) for text, about in advice.headings]
    table = _table(advice.title, headings, [list(row) for row in advice.rows], set(range(1, len(headings))))
    return [
        html.H2(view.question),
        html.P([printable(first), " ", printable(second)]),
        *(html.P(printable(f"Note: {note}."), className="note") for note in view.notes),
        html.P(["Made with ", f"{view.diagnosis.settings}."], className="note", id="made-with"),
        html.H3("What to do"),
        *(html.P(sentence) for sentence in advice.sentences),
        html.Details([html.Summary("From which runs is this known?"), table, html.P(advice.source, className="note")]),
    ]


def _heading(text: str) -> Component:
    return html.Span(text)


def _method(method: str, text: str) -> Component:
    """A method's name, explained by its idea."""
    idea = method_idea(method)
    return html.Span(text) if idea is None else explained(text, idea)


def _table(title: str, headings: Sequence[Component], rows: Sequence[Sequence[Any]], numbers: set[int]) -> Component:
    """A table; ``numbers`` are the columns that hold numbers."""

    def kind(column: int) -> str:
        return "number" if column in numbers else ""

    head = html.Tr([html.Th(text, scope="col", className=kind(i)) for i, text in enumerate(headings)])
    body = [
        html.Tr(
            [html.Th(row[0], scope="row"), *(html.Td(cell, className=kind(i)) for i, cell in enumerate(row[1:], 1))]
        )
        for row in rows
    ]
    caption = [html.Caption(title)] if title else []
    return html.Div(
        html.Table([*caption, html.Thead(head), html.Tbody(body)]),
        className="scroll",
        tabIndex=0,
        role="region",
        **{"aria-label": title or "table"},
    )


# ------------------------------------------------------------------------------------------------------ the paper, live


def _paper() -> Component:
    return html.Div(
        [
            html.Section(
                [
                    html.H2("Our runs next to the paper's figures"),
                    html.P(
                        "These are the runs behind the results in clustpsi's documentation; nothing is computed "
                        "here. Pick a data set, a partition and methods."
                    ),
                    html.Div(
                        [
                            _labelled(
                                "paper-dataset",
                                "Data set",
                                dcc.Dropdown(
                                    id="paper-dataset",
                                    options=[{"label": title, "value": name} for name, title in PAPER.items()],
                                    value="acs_income",
                                    clearable=False,
                                ),
                            ),
                            _labelled("paper-clients", "Clients", dcc.Dropdown(id="paper-clients", clearable=False)),
                            _labelled(
                                "paper-level",
                                ["Partition: ", term("alpha"), " or ", term("s")],
                                dcc.Dropdown(id="paper-level", clearable=False),
                            ),
                            _labelled(
                                "paper-score",
                                ["Table: ", term("accuracy"), ", or ", term("ad"), " and ", term("sdad")],
                                dcc.Dropdown(
                                    id="paper-score",
                                    options=[{"label": title, "value": name} for name, (title, _) in SCORES.items()],
                                    value="global_accuracy",
                                    clearable=False,
                                ),
                            ),
                            _labelled(
                                "paper-methods",
                                "Methods",
                                dcc.Dropdown(id="paper-methods", multi=True, placeholder="all"),
                            ),
                        ],
                        className="training-controls",
                    ),
                    html.P(id="paper-message", className="message", role="alert"),
                    html.Div(id="paper-table", **{"aria-live": "polite"}),
                ],
                className="card",
            ),
            html.Figure(
                [
                    html.H2("Seeds and means"),
                    html.Div(
                        dcc.Graph(id="chart-paper", config=CONFIG, responsive=True),
                        role="img",
                        **{"aria-label": "Our score of every method, a tick for each seed, and the paper's value."},
                    ),
                    html.Figcaption(
                        "The marker of a method is our mean, each tick is one seed, the grey ring with a dot is the "
                        "paper's value."
                    ),
                ],
                className="card",
            ),
        ],
        id="paper",
        hidden=True,
    )


def paper_table(found: Sequence[Line], dataset: str, level: str, score: str, notes: Sequence[str]) -> list[Component]:
    """Our value, the paper's, their difference and the seeds, for each method."""
    seeds = sorted({seed for line in found for seed in line.seeds}, key=lambda seed: (seed != 42, seed))
    rows = []
    for line in found:
        difference = "" if np.isnan(line.difference) else f"{line.difference:+.3f}"
        own = [f"{line.seeds[seed]:.3f}" if seed in line.seeds else "" for seed in seeds]
        name = f"{method_title(line.method)}{' *' if line.best else ''}"
        ours, theirs = _spread(line.mean, line.spread, 3), _spread(line.paper_mean, line.paper_spread, 2)
        rows.append([_method(line.method, name), ours, theirs, difference, *own])
    headings = [_heading(each) for each in ("method", "ours", "the paper", "difference")]
    headings += [term("seed", f"seed {seed}") for seed in seeds]
    title = f"{dataset_title(dataset)}, {level}: {SCORES[score][0]}"
    more = [*notes, "* the best of all methods under this partition, at two digits"]
    table = _table(title, headings, rows, set(range(1, 4 + len(seeds))))
    return [table, *(html.P(printable(note), className="note") for note in more)]


def _spread(mean: float, spread: float, digits: int) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if np.isnan(spread) else f" ± {spread:.{digits}f}")
