"""Charts for web pages: Plotly figures as plain data, in the style of :mod:`.look`, for a light or a dark page.

All functions take names unescaped: a name is always treated as text.  The last argument is the theme of the page.
Methods are given by their specifications, as runs record them.  A chart has a fixed height; it is as wide as the page.

A chart is a dictionary of ``data`` and ``layout`` that can be written as JSON, as Plotly's JavaScript and Dash need it.
Plotly's own Python classes would check every value, which takes a hundred times as long; the tests do that instead.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.diagnosis import BANDS
from clustpsi.printing import counted, printable
from clustpsi.report.look import (
    FEATURE_LOOKS,
    FONT,
    GREY,
    LIGHT,
    MEASURE_LOOKS,
    PALETTE,
    Look,
    Theme,
    method_look,
    series_look,
)
from clustpsi.report.tables import method_order, method_title

Chart = dict[str, Any]

#: Plotly's own controls, the same for every chart.
CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}

MOST_NAMES = 60  # clients or classes named beside an axis
MOST_LARGE = 150  # points of full size
MOST_STEPS = 400  # steps of a cumulative line
MOST_SHOWN = 18  # letters of a name beside an axis; hovering shows the full name
MOST_WRITTEN = 10  # classes whose shares are written as numbers
MOST_CLUSTERS = 24  # clusters whose borders and label mix are shown

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "P": "cross",
    "*": "star",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "d": "diamond-tall",
}
DASHES = {"solid": "solid", "dashes": "6px,3px", "dots": "1.5px,2.5px", "dash-dots": "6px,2px,1.5px,2px"}


@dataclass(frozen=True)
class Curve:
    """A score over rounds: one row of ``scores`` per seed."""

    rounds: ArrayLike
    scores: ArrayLike


@dataclass(frozen=True)
class Silhouettes:
    """Silhouettes of the numbers of clusters that were tried, and the number that was chosen."""

    scores: Mapping[int, float]
    chosen: int


def as_text(name: str, most: int | None = None) -> str:
    """A name for Plotly: without mark-up and control characters, and cut if it is long.

    >>> as_text("<b>a</b>"), as_text("a very long name", 6)
    ('&lt;b&gt;a&lt;/b&gt;', 'a ver…')
    """
    shown = printable(name)
    if most is not None and len(shown) > most:
        shown = f"{shown[: most - 1]}…"
    return escape(shown, quote=False)


def cluster_order(counts: ArrayLike, clusters: ArrayLike | None = None) -> NDArray[np.intp]:
    """Clients sorted by cluster; within a cluster, clients with the same most frequent class are neighbours.

    >>> cluster_order([[9, 1], [0, 5], [4, 1], [1, 9]], [1, 0, 1, 0]).tolist()
    [1, 3, 0, 2]
    """
    table = np.asarray(counts, np.float64)
    groups = np.zeros(len(table), int) if clusters is None else np.asarray(clusters)
    shares = table / table.sum(axis=1, keepdims=True)
    return np.lexsort((-shares.max(axis=1), shares.argmax(axis=1), groups))


# ------------------------------------------------------------------------------------------------------- the federation


def label_heat_map(
    counts: ArrayLike,
    client_names: Sequence[str],
    class_names: Sequence[str],
    clusters: ArrayLike | None = None,
    theme: Theme = LIGHT,
) -> Chart:
    """The share of each label (rows) in each client's samples (columns); clients are sorted by cluster."""
    table = np.asarray(counts)
    order = cluster_order(table, clusters)
    groups = None if clusters is None else np.asarray(clusters)[order]
    table = table[order]
    named = [client_names[i] for i in order]
    places, rows = _places(named, groups), _places(class_names)
    heat = {
        "type": "heatmap",
        "z": _packed(table.T / table.sum(axis=1)),
        "x": places,
        "y": rows,
        "customdata": _packed(table.T),
        "hovertemplate": "%{x}<br>%{y}: %{z:.1%} (%{customdata:,} samples)<extra></extra>",
        **_colours(theme.shares, 0, 1, ("0%", "50%", "100%")),
    }
    by = "" if groups is None else ", by cluster (above)"
    layout = {
        "height": min(220 + _row_height(len(class_names)) * len(class_names), 620),
        "xaxis": _columns(named, places, f"{counted(len(named), 'client')}{by}"),
        "yaxis": _rows(class_names, rows, "class"),
        **_group_marks(groups, theme),
    }
    return _chart([heat], layout, theme)


def client_sizes(
    sizes: ArrayLike, client_names: Sequence[str], theme: Theme = LIGHT, *, what: str = "training samples"
) -> Chart:
    """How many samples each client has, from the largest to the smallest."""
    values = np.asarray(sizes)
    order = np.argsort(-values, kind="stable")
    named = [client_names[i] for i in order]
    places = _places(named)
    bars = {
        "type": "bar",
        "x": places,
        "y": _packed(values[order]),
        "marker": {"color": theme.of(PALETTE[0]), "line": {"width": 0}},
        "hovertemplate": f"%{{x}}: %{{y:,}} {what}<extra></extra>",
    }
    median = float(np.median(values))
    layout = {
        "height": 280,
        "bargap": 0.15,
        "xaxis": _columns(named, places, f"{counted(len(named), 'client')}, by size"),
        "yaxis": _axis(what),
        "shapes": [_line_across(median, {"color": theme.ink, "width": 1, "dash": DASHES["dashes"]})],
        "annotations": [_note(f"median {median:,.0f}", x=1, xref="paper", y=median, xanchor="right", yanchor="bottom")],
    }
    return _chart([bars], layout, theme)


def skew_measures(measures: Mapping[str, ArrayLike], theme: Theme = LIGHT) -> Chart:
    """The measures of skew, with one value each or one per seed: WPSI within its bands, the others from 0 to 1."""
    values = {key: np.atleast_1d(np.asarray(measures[key], np.float64)) for key in MEASURE_LOOKS if key in measures}
    wpsi = values["wpsi"]
    low, high = max(1e-4, min(0.01, wpsi.min() / 2)), max(1.0, wpsi.max() * 2)
    borders = [low, *(limit for limit, _ in BANDS if np.isfinite(limit)), high]
    shapes, notes, points = [], [], []
    colours = (PALETTE[2], PALETTE[5], PALETTE[1])
    for (_, name), (left, right), colour in zip(BANDS, pairwise(borders), colours, strict=True):
        shapes.append(
            {
                "type": "rect",
                "x0": left,
                "x1": right,
                "y0": 0,
                "y1": 1,
                "yref": "y domain",
                "fillcolor": theme.tint(colour, 0.22),
                "line": {"width": 0},
                "layer": "below",
            }
        )
        middle = float(np.log10(left * right) / 2)
        notes.append(_note(name, x=middle, xref="x", y=1, yref="y domain", yanchor="bottom"))
    for key, own in values.items():
        title, look = MEASURE_LOOKS[key]
        is_wpsi = key == "wpsi"
        axes = {"xaxis": "x", "yaxis": "y"} if is_wpsi else {"xaxis": "x2", "yaxis": "y2"}
        points.append(
            {
                "type": "scatter",
                "x": np.maximum(own, low).tolist() if is_wpsi else own.tolist(),
                "y": [title] * len(own),
                "customdata": own.tolist(),
                "mode": "markers",
                "marker": _marker(look, theme, 12),
                "hovertemplate": f"{title} %{{customdata:.4f}}<extra></extra>",
                **axes,
            }
        )
        mean = float(own.mean())
        at = float(np.log10(max(mean, low))) if is_wpsi else mean
        told = f"{mean:.3g}" if is_wpsi else f"{mean:.2f}"
        notes.append(_note(f"<b>{told}</b>", x=at, xref=axes["xaxis"], y=title, yref=axes["yaxis"], yshift=15))
    layout = {
        "height": 330,
        "xaxis": _axis(type="log", range=[float(np.log10(low)), float(np.log10(high))], dtick=1, anchor="y"),
        "yaxis": _axis(type="category", domain=[0.76, 1]),
        "xaxis2": _axis("0: alike, 1: most different", range=[0, 1.03], anchor="y2"),
        "yaxis2": _axis(type="category", domain=[0, 0.5], autorange="reversed", anchor="x2"),
        "shapes": shapes,
        "annotations": notes,
    }
    return _chart(points, layout, theme)


def psi_terms(
    terms: ArrayLike,
    counts: ArrayLike,
    client_names: Sequence[str],
    class_names: Sequence[str],
    theme: Theme = LIGHT,
    *,
    reference: ArrayLike | None = None,
) -> Chart:
    """What drives the skew: above, the PSI of each client; below, what each class adds to it by excess or lack.

    Clients are sorted by their PSI, classes by what they add to the skew of the federation.  ``reference`` is the label
    distribution that clients are compared with; by default that of all ``counts``.
    """
    parts, table = np.asarray(terms, np.float64), np.asarray(counts)
    psi = parts.sum(axis=1)
    order = np.argsort(-psi, kind="stable")
    classes = np.argsort(-(table.sum(axis=1) @ parts), kind="stable")
    shares = table / table.sum(axis=1, keepdims=True)
    excess = shares - (table.sum(axis=0) / table.sum() if reference is None else np.asarray(reference))
    signed = (np.sign(excess) * parts)[np.ix_(order, classes)].T
    named, labels = [client_names[i] for i in order], [class_names[c] for c in classes]
    most = float(np.quantile(parts, 0.995)) or float(parts.max()) or 1.0
    places, rows = _places(named), _places(labels)
    bars = {
        "type": "bar",
        "x": places,
        "y": _packed(psi[order]),
        "marker": {"color": theme.of(GREY), "line": {"width": 0}},
        "hovertemplate": "%{x}: PSI %{y:.3f}<extra></extra>",
        "xaxis": "x",
        "yaxis": "y",
    }
    heat = {
        "type": "heatmap",
        "z": _packed(signed),
        "x": places,
        "y": rows,
        "customdata": _packed(shares[np.ix_(order, classes)].T),
        "hovertemplate": "%{x}<br>%{y}: %{customdata:.1%} of its samples, PSI term %{z:+.3f}<extra></extra>",
        "xaxis": "x",
        "yaxis": "y2",
        **_colours(theme.balance, -most, most, ("too little", "as all", "too much")),
    }
    limit = {"color": theme.of(PALETTE[1]), "width": 1, "dash": DASHES["dots"]}
    layout = {
        "height": min(340 + _row_height(len(labels)) * len(labels), 720),
        "bargap": 0.15,
        "xaxis": _columns(named, places, f"{counted(len(named), 'client')}, by PSI") | {"anchor": "y2"},
        "yaxis": _axis("PSI", domain=[0.7, 1]),
        "yaxis2": _rows(labels, rows, "class") | {"domain": [0, 0.66]},
        "shapes": [_line_across(value, limit) for value, _ in BANDS[:-1]],
    }
    return _chart([bars, heat], layout, theme)


# --------------------------------------------------------------------------------------------------------- the clusters


def silhouette(kinds: Mapping[str, Silhouettes], theme: Theme = LIGHT) -> Chart:
    """The silhouette over the number of clusters, and the chosen number; one line per kind of features."""
    traces = []
    widest = 2
    for kind, found in kinds.items():
        title, look = FEATURE_LOOKS[kind]
        numbers = sorted(found.scores)
        widest = max([widest, *numbers])
        traces.append(
            {
                "type": "scatter",
                "x": numbers,
                "y": [found.scores[j] for j in numbers],
                "name": title,
                "mode": "lines" if len(numbers) > 1 else "markers",
                "line": _line(look, theme),
                "marker": _marker(look, theme, 7),
                "hovertemplate": "%{x} clusters: silhouette %{y:.3f}<extra>%{fullData.name}</extra>",
            }
        )
        if found.chosen in found.scores:
            traces.append(
                {
                    "type": "scatter",
                    "x": [found.chosen],
                    "y": [found.scores[found.chosen]],
                    "name": f"{found.chosen} chosen",
                    "mode": "markers",
                    "marker": _marker(look, theme, 13) | {"line": {"color": theme.surface, "width": 1.5}},
                    "hovertemplate": "chosen: %{x} clusters, silhouette %{y:.3f}<extra>%{fullData.name}</extra>",
                }
            )
    x = _axis("number of clusters")
    if widest > 30:
        ticks = [tick for tick in (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if tick <= widest]
        x |= {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}
    return _chart(traces, {"height": 330, "xaxis": x, "yaxis": _axis("silhouette"), "showlegend": True}, theme)


def clients_in_two_dimensions(
    points: ArrayLike,
    client_names: Sequence[str],
    clusters: ArrayLike,
    sizes: ArrayLike,
    theme: Theme = LIGHT,
    *,
    kept: Sequence[float] | None = None,
) -> Chart:
    """Clients as points in the style of their cluster; clients with similar labels are near each other.

    ``kept`` is the share of the variance between clients that each of the two dimensions shows.
    """
    xy, groups, samples = np.asarray(points, np.float64), np.asarray(clusters), np.asarray(sizes)
    numbers = np.unique(groups)
    smaller = min(1.0, (MOST_LARGE / len(samples)) ** 0.5)  # many points would hide each other
    diameters = (smaller * (7 + 9 * np.sqrt(samples / samples.max()))).clip(4).round(1)
    few = len(numbers) <= MOST_CLUSTERS
    traces = []
    for members in [np.flatnonzero(groups == group) for group in numbers] if few else [np.arange(len(groups))]:
        looks = [_marker(series_look(int(groups[i])), theme, diameters[i]) for i in members]
        marker = {key: [look[key] for look in looks] for key in ("symbol", "color", "size")}
        own = {"symbol": marker["symbol"][0], "color": marker["color"][0]} if few else {}  # for the legend
        traces.append(
            {
                "type": "scatter",
                "x": _packed(xy[members, 0]),
                "y": _packed(xy[members, 1]),
                "text": [f"{as_text(client_names[i])}: cluster {groups[i]}" for i in members.tolist()],
                "customdata": _packed(samples[members]),
                "name": str(groups[members[0]]),
                "mode": "markers",
                "marker": marker | own | {"opacity": 0.85, "line": {"width": 0}},
                "hovertemplate": "%{text}, %{customdata:,} samples<extra></extra>",
            }
        )
    told = ["", ""] if kept is None else [f" ({share:.0%})" for share in kept]
    layout = {
        "height": 420,
        "xaxis": _axis(f"first direction{told[0]}", zeroline=False),
        "yaxis": _axis(f"second direction{told[1]}", zeroline=False),
        "showlegend": few,
        "legend": {"title": {"text": "cluster", "side": "left"}, "itemsizing": "constant"},
    }
    return _chart(traces, layout, theme)


def label_mix(counts: ArrayLike, clusters: ArrayLike, class_names: Sequence[str], theme: Theme = LIGHT) -> Chart:
    """The share of each label in each cluster's samples; the first row is all clients, then the largest clusters."""
    table, groups = np.asarray(counts), np.asarray(clusters)
    numbers, members = np.unique(groups, return_counts=True)
    largest = np.sort(np.argsort(-members, kind="stable")[:MOST_CLUSTERS])
    left_out = len(numbers) - len(largest)
    numbers, members = numbers[largest], members[largest]
    totals = np.stack([table.sum(axis=0), *(table[groups == group].sum(axis=0) for group in numbers)])
    rows = ["everybody", *(f"cluster {c} ({counted(int(n), 'client')})" for c, n in zip(numbers, members, strict=True))]
    places = _places(class_names)
    heat = {
        "type": "heatmap",
        "z": _packed(totals / totals.sum(axis=1, keepdims=True)),
        "x": places,
        "y": rows,
        "customdata": _packed(totals),
        **_percentages(totals / totals.sum(axis=1, keepdims=True)),
        "hovertemplate": "%{y}<br>%{x}: %{z:.1%} (%{customdata:,} samples)<extra></extra>",
        "xgap": 1,
        "ygap": 1,
        **_colours(theme.shares, 0, 1, ("0%", "50%", "100%")),
    }
    without = f", without {counted(left_out, 'smaller cluster')}" if left_out else ""
    layout = {
        "height": 190 + 26 * len(rows),
        "xaxis": _columns(class_names, places, f"class{without}"),
        "yaxis": _rows(rows, rows, most=None),
    }
    return _chart([heat], layout, theme)


def _percentages(shares: NDArray[np.float64]) -> dict[str, Any]:
    """Shares as numbers in the cells of a heat map, if the cells are large enough even on a phone."""
    if shares.shape[1] > MOST_WRITTEN:
        return {}
    texts = [[f"{100 * share:.0f}" if share >= 0.005 else "" for share in row] for row in shares]
    return {"text": texts, "texttemplate": "%{text}", "textfont": {"size": 11}}


# ------------------------------------------------------------------------------------------------------------- training


def accuracy_by_round(
    curves: Mapping[str, Curve],
    constants: Mapping[str, float] | None = None,
    theme: Theme = LIGHT,
    *,
    score: str = "accuracy",
) -> Chart:
    """A score over rounds: one line per method for the mean over seeds, and a band from the lowest to the highest seed.

    ``constants`` are answers that need no training, by title: horizontal lines.
    """
    bands, lines = [], []
    for method in method_order(curves):
        look, curve = method_look(method, curves), curves[method]
        rounds, scores = np.asarray(curve.rounds), np.atleast_2d(np.asarray(curve.scores, np.float64))
        lines.append(
            {
                "type": "scatter",
                "x": _packed(rounds),
                "y": _packed(scores.mean(axis=0)),
                "name": as_text(method_title(method)),
                "legendgroup": method,
                "mode": "lines+markers",
                "line": _line(look, theme),
                "marker": _marker(look, theme, 8) | {"maxdisplayed": 6},
                "hovertemplate": f"round %{{x}}: {score} %{{y:.3f}}<extra>%{{fullData.name}}</extra>",
            }
        )
        if len(scores) > 1:
            bands.append(
                {
                    "type": "scatter",
                    "x": _packed(np.concatenate([rounds, rounds[::-1]])),
                    "y": _packed(np.concatenate([scores.max(axis=0), scores.min(axis=0)[::-1]])),
                    "fill": "toself",
                    "fillcolor": theme.tint(look.colour, 0.13),
                    "line": {"width": 0},
                    "mode": "lines",
                    "legendgroup": method,
                    "showlegend": False,
                    "hoverinfo": "skip",
                }
            )
    layout = {"height": 460, "xaxis": _axis("round"), "yaxis": _axis(score), "showlegend": True}
    shapes, notes = [], []
    for title, value, line in _constant_lines(constants, theme):
        shapes.append(_line_across(value, line))
        notes.append(_small_note(title, theme, x=1, xref="paper", y=value, xanchor="right", yanchor="bottom"))
    return _chart([*bands, *lines], layout | {"shapes": shapes, "annotations": notes}, theme)


def accuracy_by_method(
    scores: Mapping[str, ArrayLike],
    constants: Mapping[str, float] | None = None,
    theme: Theme = LIGHT,
    *,
    score: str = "accuracy",
    paper: Mapping[str, float] | None = None,
) -> Chart:
    """The last score of every method: a marker for the mean, one tick per seed; the best method is at the top.

    ``paper`` are the paper's values, each beside the method's own.
    """
    values = {method: np.atleast_1d(np.asarray(scores[method], np.float64)) for method in method_order(scores)}
    best_last = sorted(values, key=lambda method: float(values[method].mean()))
    traces = []
    for method in best_last:
        look, row = method_look(method, scores), _method_name(method)
        tick = {"symbol": "line-ns", "size": 13, "line": {"width": 1.5, "color": theme.tint(look.colour, 0.7)}}
        for x, marker, told in (
            (values[method].tolist(), tick, "one seed"),
            ([float(values[method].mean())], _marker(look, theme, 12), "mean"),
        ):
            traces.append(
                {
                    "type": "scatter",
                    "x": x,
                    "y": [row] * len(x),
                    "mode": "markers",
                    "marker": marker,
                    "hovertemplate": f"%{{y}}, {told}: {score} %{{x:.3f}}<extra></extra>",
                }
            )
    if paper:
        rows = [method for method in best_last if method in paper]
        traces.append(
            {
                "type": "scatter",
                "x": [paper[method] for method in rows],
                "y": [_method_name(method) for method in rows],
                "mode": "markers",
                "marker": {"symbol": "circle-open-dot", "color": theme.muted, "size": 13, "line": {"width": 1.5}},
                "hovertemplate": f"%{{y}}, the paper: {score} %{{x:.3f}}<extra></extra>",
            }
        )
    shapes, notes = [], []
    for place, (title, value, line) in enumerate(_constant_lines(constants, theme)):
        shapes.append({"type": "line", "x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        side = "left" if value < 0.5 else "right"
        notes.append(
            _small_note(title, theme, x=value, y=1, yref="paper", xanchor=side, yanchor="bottom", yshift=14 * place)
        )
    layout = {
        "height": 120 + (30 if best_last == [method.partition(":")[0] for method in best_last] else 36) * len(values),
        "xaxis": _axis(score),
        "yaxis": _axis(type="category"),
        "shapes": shapes,
        "annotations": notes,
    }
    chart = _chart(traces, layout, theme)
    chart["layout"]["margin"]["t"] += 14 * max(0, len(notes) - 1)
    return chart


# ---------------------------------------------------------------------------------------------------------- each client


def local_accuracy_ecdf(accuracies: Mapping[str, ArrayLike], theme: Theme = LIGHT) -> Chart:
    """The share of clients with at most a given accuracy, one line per method."""
    lines = []
    for method in method_order(accuracies):
        look = method_look(method, accuracies)
        values = np.asarray(accuracies[method], np.float64)
        steps, clients = np.unique(values[np.isfinite(values)], return_counts=True)
        share = np.cumsum(clients) / max(1, clients.sum())
        if len(steps) > MOST_STEPS:  # more would not be visible
            kept = np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)
            steps, share = steps[kept], share[kept]
        lines.append(
            {
                "type": "scatter",
                "x": _packed(np.concatenate([[0.0], steps, [1.0]])),
                "y": _packed(np.concatenate([[0.0], share, [1.0]])),
                "name": as_text(method_title(method)),
                "mode": "lines+markers",
                "line": _line(look, theme) | {"shape": "hv"},
                "marker": _marker(look, theme, 8) | {"maxdisplayed": 5},
                "hovertemplate": "%{y:.0%} of the clients have at most %{x:.3f}<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 440,
        "xaxis": _axis("accuracy of a client", range=[-0.01, 1.01]),
        "yaxis": _axis("share of clients", range=[0, 1.02], tickformat=".0%"),
        "showlegend": True,
    }
    return _chart(lines, layout, theme)


def accuracy_by_client(
    accuracies: Mapping[str, ArrayLike],
    client_names: Sequence[str],
    clusters: ArrayLike | None = None,
    theme: Theme = LIGHT,
) -> Chart:
    """The accuracy of each client (columns) under each method (rows); clients sorted by cluster, then by accuracy."""
    methods = method_order(accuracies)
    values = np.array([np.asarray(accuracies[method], np.float64) for method in methods])
    known = np.isfinite(values)
    mean = np.where(known, values, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    groups = None if clusters is None else np.asarray(clusters)
    order = np.argsort(mean, kind="stable") if groups is None else np.lexsort((mean, groups))
    groups = None if groups is None else groups[order]
    named = [client_names[i] for i in order]
    titles = [method_title(method) for method in methods]
    places, rows = _places(named, groups), _places(titles)
    heat = {
        "type": "heatmap",
        "z": _packed(values[:, order]),
        "x": places,
        "y": rows,
        "hovertemplate": "%{x}<br>%{y}: accuracy %{z:.3f}<extra></extra>",
        "hoverongaps": False,
        "ygap": 1,
        **_colours(theme.shares, 0, 1, ("0", "accuracy", "1")),
    }
    by = "by accuracy" if groups is None else "by cluster (above)"
    layout = {
        "height": 200 + 26 * len(methods),
        "xaxis": _columns(named, places, f"{counted(len(named), 'client')}, {by}"),
        "yaxis": _rows(titles, rows, most=None),
        **_group_marks(groups, theme),
    }
    return _chart([heat], layout, theme)


def cost(costs: Mapping[str, Mapping[str, float]], theme: Theme = LIGHT) -> Chart:
    """What each method costs: megabytes sent up and down, and seconds of computing.

    ``costs`` has ``bytes_up``, ``bytes_down`` and ``seconds`` (NaN if unknown) for each method.
    """
    methods = method_order(costs)[::-1]
    rows = [_method_name(method) for method in methods]
    hatched = {"shape": "/", "fillmode": "overlay", "fgcolor": theme.surface, "solidity": 0.25}
    traces = []
    for key, name, colour, unit in (
        ("bytes_up", "clients to server", PALETTE[0], "MB"),
        ("bytes_down", "server to clients", PALETTE[5], "MB"),
        ("seconds", "seconds", GREY, "s"),
    ):
        values = np.array([costs[method][key] for method in methods], np.float64) / (1e6 if unit == "MB" else 1)
        traces.append(
            {
                "type": "bar",
                "x": [float(value) if np.isfinite(value) else None for value in values],
                "y": rows,
                "orientation": "h",
                "name": name,
                "showlegend": unit == "MB",
                "marker": {"color": theme.of(colour), "pattern": hatched if key == "bytes_down" else {}},
                "hovertemplate": f"%{{y}}: %{{x:,.3g}} {unit}<extra>%{{fullData.name}}</extra>",
                "xaxis": "x" if unit == "MB" else "x2",
            }
        )
    layout = {
        "height": 150 + 26 * len(methods),
        "barmode": "stack",
        "xaxis": _axis("MB sent", domain=[0, 0.48], nticks=4, tickangle=0),
        "xaxis2": _axis("seconds", domain=[0.54, 1], anchor="y", nticks=4, tickangle=0),
        "yaxis": _axis(type="category"),
        "showlegend": True,
    }
    return _chart(traces, layout, theme)


# ---------------------------------------------------------------------------------------------------------------- parts


def _chart(data: list[Chart], layout: dict[str, Any], theme: Theme) -> Chart:
    """A chart with the theme's colours and fonts."""
    lines = {"gridcolor": theme.grid, "linecolor": theme.grid, "zerolinecolor": theme.grid, "tickcolor": theme.grid}
    axes = {key: axis | lines for key, axis in layout.items() if key[1:5] == "axis"}
    shared = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": theme.ink},
        "margin": {"l": 8, "r": 8, "t": 26, "b": 8},
        "hoverlabel": {
            "bgcolor": theme.surface,
            "bordercolor": theme.muted,
            "font": {"family": FONT, "color": theme.ink},
            "namelength": -1,
        },
        "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": theme.muted, "activecolor": theme.accent},
    }
    legend = {"orientation": "h", "traceorder": "normal", "yref": "container", "y": 0, "yanchor": "bottom"}
    return {"data": data, "layout": shared | layout | axes | {"legend": legend | layout.get("legend", {})}}


def _packed(values: NDArray[Any]) -> dict[str, Any]:
    """Numbers in Plotly's compact form, to keep pages small."""
    kind = "f4"
    if np.issubdtype(values.dtype, np.integer):
        most = int(values.max(initial=0))
        kind = next((f"u{size}" for size in (1, 2, 4) if most < 256**size), "f8")
    packed = np.ascontiguousarray(values, f"<{kind}")
    shape = {"shape": ", ".join(map(str, values.shape))} if values.ndim > 1 else {}
    return {"dtype": kind, "bdata": b64encode(packed.tobytes()).decode(), **shape}


def _axis(title: str = "", **more: Any) -> dict[str, Any]:
    return {"automargin": True, "title": {"text": title, "standoff": 8, "font": {"size": 13}}, **more}


def _columns(names: Sequence[str], places: Sequence[str], title: str) -> dict[str, Any]:
    """An axis with short names below columns: as many as there is room for, or none if there are too many."""
    axis = _axis(title, type="category", showgrid=False)
    if len(names) > MOST_NAMES:
        return axis | {"showticklabels": False}
    axis["labelalias"] = {place: as_text(name, MOST_SHOWN) for place, name in zip(places, names, strict=True)}
    return axis | ({"tickangle": -45} if sum(len(name) + 3 for name in names) > 80 else {})


def _rows(
    names: Sequence[str], places: Sequence[str], title: str = "", most: int | None = MOST_SHOWN
) -> dict[str, Any]:
    """An axis with short names beside rows, from the top down.

    A row is identified by its place and not by its number, because Plotly takes the number 3 for a class called 3.
    """
    axis = _axis(title, type="category", showgrid=False, autorange="reversed")
    if len(names) > MOST_NAMES:
        return axis | {"showticklabels": False}
    texts = [as_text(name, most) for name in names]
    return axis | {"tickmode": "array", "tickvals": list(places), "ticktext": texts}


def _places(names: Sequence[str], clusters: NDArray[Any] | None = None) -> list[str]:
    """Names as unique places on an axis; hovering shows them."""
    seen: dict[str, int] = {}
    places = []
    for i, name in enumerate(names):
        shown = as_text(name) if clusters is None else f"{as_text(name)} (cluster {clusters[i]})"
        again = seen[shown] = seen.get(shown, 0) + 1
        places.append(shown if again == 1 else f"{shown} [{again}]")
    return places


def _group_marks(groups: NDArray[Any] | None, theme: Theme) -> dict[str, Any]:
    """Borders between the clusters on a sorted axis, and the clusters' numbers if there is room."""
    if groups is None:
        return {}
    borders = (np.flatnonzero(groups[1:] != groups[:-1]) + 0.5).tolist()
    if len(borders) >= MOST_CLUSTERS:
        return {}
    line = {"color": theme.of(PALETTE[1]), "width": 1.5}
    place = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": line}
    font = {"color": theme.bad, "size": 12}
    notes = []
    for left, right in pairwise([-0.5, *borders, len(groups) - 0.5]):
        if (right - left) / len(groups) >= 0.05:  # on a phone this leaves room for two digits
            number = str(groups[int(left + 0.5)])
            notes.append(_note(number, x=(left + right) / 2, y=1, yref="paper", yanchor="bottom", font=font))
    return {"shapes": [place | {"x0": at, "x1": at} for at in borders], "annotations": notes}


def _constant_lines(constants: Mapping[str, float] | None, theme: Theme) -> list[tuple[str, float, dict[str, Any]]]:
    """Title, value and line of each answer that needs no training."""
    dashes = (DASHES["dashes"], DASHES["dots"])
    return [
        (as_text(title), value, {"color": theme.muted, "width": 1.5, "dash": dashes[place % 2]})
        for place, (title, value) in enumerate((constants or {}).items())
    ]


def _line_across(value: float, line: dict[str, Any]) -> dict[str, Any]:
    return {"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": value, "y1": value, "line": line}


def _method_name(method: str) -> str:
    """A method's name beside an axis, with its parameters below it, so that the chart has room on a phone."""
    name, _, parameters = method_title(method).partition(" (")
    return as_text(name) + (f"<br><sub>({as_text(parameters)}</sub>" if parameters else "")


def _note(text: str, **place: Any) -> dict[str, Any]:
    return {"text": text, "showarrow": False, **place}


def _small_note(text: str, theme: Theme, **place: Any) -> dict[str, Any]:
    look = {"font": {"color": theme.muted, "size": 11}, "bgcolor": theme.tint(theme.surface, 0.75)}
    return _note(text, **look, **place)


def _marker(look: Look, theme: Theme, size: float) -> dict[str, Any]:
    symbol = SYMBOLS[look.marker]
    return {"symbol": f"{symbol}-open" if look.hollow else symbol, "color": theme.of(look.colour), "size": size}


def _line(look: Look, theme: Theme) -> dict[str, Any]:
    return {"color": theme.of(look.colour), "dash": DASHES[look.line], "width": 2.8 if look.strong else 1.8}


def _colours(colours: Sequence[str], least: float, most: float, texts: Sequence[str]) -> dict[str, Any]:
    """Colours of a heat map; ``texts`` label the ends and the middle of its key, which is below the chart."""
    key = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "xref": "container", "x": 0}
    key |= {"xanchor": "left", "lenmode": "pixels", "len": 190, "xpad": 28, "thickness": 10, "outlinewidth": 0}
    key |= {
        "tickangle": 0,
        "ticklabeloverflow": "allow",
        "tickvals": [least, (least + most) / 2, most],
        "ticktext": list(texts),
    }
    scale = [[place / (len(colours) - 1), colour] for place, colour in enumerate(colours)]
    return {"zmin": least, "zmax": most, "colorscale": scale, "colorbar": key}


def _row_height(rows: int) -> int:
    return 22 if rows <= MOST_NAMES else 6
