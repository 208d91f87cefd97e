"""Charts for web pages: they hold the data they are given, show names as text, and look alike on any page."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from clustpsi import diagnose
from clustpsi.diagnosis import Diagnosis
from clustpsi.methods import method_types
from clustpsi.report import charts, look, style
from clustpsi.report.charts import Curve, Silhouettes

NAMES = ["<b>bold</b>", "</script><script>alert(1)</script>", "%{x}", "a&b", "a&amp;b", "12"]
CLASSES = ["<i>cat</i>", "dog", "2020-01-01"]
COUNTS = np.array([[9, 1, 0], [8, 1, 2], [0, 7, 1], [1, 9, 0], [0, 1, 300], [1, 0, 70_000]])
METHODS = list(method_types())


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(COUNTS, NAMES, CLASSES, preset="paper")


def all_charts(found: Diagnosis, theme: look.Theme) -> dict[str, charts.Chart]:
    clusters, clustering = found.clustering.labels_, found.clustering
    accuracies = {method: np.linspace(0.1 * i / 15, 1, 6) for i, method in enumerate(METHODS)}
    scores = np.array([[0.1, 0.5, 0.7], [0.1, 0.4, 0.9]])
    constants = {"constant <b>": 0.4, "other": 0.2}
    return {
        "heat map": charts.label_heat_map(COUNTS, NAMES, CLASSES, clusters, theme),
        "sizes": charts.client_sizes(COUNTS.sum(axis=1), NAMES, theme),
        "measures": charts.skew_measures(found.measures, theme),
        "psi": charts.psi_terms(found.terms, COUNTS, NAMES, CLASSES, theme),
        "silhouette": charts.silhouette({"psi": Silhouettes(clustering.silhouette_scores_, 3)}, theme),
        "points": charts.clients_in_two_dimensions(
            np.arange(12).reshape(6, 2), NAMES, clusters, COUNTS.sum(axis=1), theme, kept=(0.6, 0.3)
        ),
        "mix": charts.label_mix(COUNTS, clusters, CLASSES, theme),
        "rounds": charts.accuracy_by_round({each: Curve([0, 5, 10], scores) for each in METHODS}, constants, theme),
        "methods": charts.accuracy_by_method(dict.fromkeys(METHODS, scores[:, -1]), constants, theme),
        "ecdf": charts.local_accuracy_ecdf(accuracies, theme),
        "clients": charts.accuracy_by_client(accuracies, NAMES, clusters, theme),
        "cost": charts.cost(
            {each: {"bytes_up": 1e6, "bytes_down": 3e6, "seconds": float("nan")} for each in METHODS}, theme
        ),
    }


def unpacked(chart: charts.Chart, trace: int, key: str) -> Any:
    """Numbers as the page reads them."""
    packed = chart["data"][trace][key]
    values = np.frombuffer(base64.b64decode(packed["bdata"]), f"<{packed['dtype']}")
    return values.reshape([int(size) for size in packed["shape"].split(",")]) if "shape" in packed else values


def colours(value: Any, key: str = "") -> Iterator[str]:
    """All colours that a figure names."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from colours(each, name if "color" not in key else key)
    elif isinstance(value, list):
        for each in value:
            yield from colours(each, key)
    elif isinstance(value, str) and "color" in key:
        yield value


@pytest.mark.parametrize("theme", look.THEMES.values(), ids=look.THEMES)
def test_plotly_takes_every_chart(found: Diagnosis, theme: look.Theme) -> None:
    for chart in all_charts(found, theme).values():
        go.Figure(chart)  # raises where it does not know a key or a value
        json.dumps(chart, allow_nan=False)


def test_charts_hold_the_data_they_are_given(found: Diagnosis) -> None:
    made = all_charts(found, look.LIGHT)
    heat = made["heat map"]
    place = heat["data"][0]["x"].index(f"12 (cluster {found.clustering.labels_[5]})")
    assert unpacked(heat, 0, "z")[:, place] == pytest.approx(COUNTS[5] / COUNTS[5].sum()), "the columns are clients"
    counts = unpacked(heat, 0, "customdata")
    assert counts[:, place].tolist() == COUNTS[5].tolist(), "counts that do not fit two bytes are whole too"
    assert unpacked(made["psi"], 0, "y").tolist() == pytest.approx(np.sort(found.psi)[::-1])
    terms, heat = unpacked(made["psi"], 1, "z"), made["psi"]["data"][1]
    assert np.abs(terms).sum(axis=0).tolist() == pytest.approx(np.sort(found.psi)[::-1])
    too_much = dict(zip(heat["y"], terms[:, heat["x"].index("12")], strict=True))
    assert too_much["2020-01-01"] > 0 > too_much["dog"]
    assert unpacked(made["mix"], 0, "z")[0] == pytest.approx(COUNTS.sum(axis=0) / COUNTS.sum())
    lines = [i for i, each in enumerate(made["rounds"]["data"]) if each["mode"] == "lines+markers"]
    assert len(lines) == len(METHODS)
    assert [unpacked(made["rounds"], i, "y").tolist() for i in lines] == [pytest.approx([0.1, 0.45, 0.8])] * len(lines)
    assert made["silhouette"]["data"][1]["x"] == [3]
    assert made["cost"]["data"][1]["x"] == [3.0] * len(METHODS)


@pytest.mark.parametrize("most", [0, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53])
def test_counts_stay_whole(most: int) -> None:
    chart = charts.client_sizes([most, 0], ["a", "b"])
    assert unpacked(chart, 0, "y").tolist() == [most, 0]


def test_clients_under_each_method_stand_in_their_columns() -> None:
    accuracies = {"fedavg": [0.5, 0.4, np.nan, 0.2, 0.1, 0.0], "local": [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]}
    chart = charts.accuracy_by_client(accuracies, ["a", "b", "c", "d", "e", "f"])
    shown = dict(zip(chart["data"][0]["x"], unpacked(chart, 0, "z").T.tolist(), strict=True))
    assert next(iter(shown)) == "f", "the client that fares worst is the first"
    assert shown["b"] == pytest.approx([0.4, 0.9]) and np.isnan(shown["c"][0]) and shown["c"][1] == pytest.approx(0.8)


def test_an_ecdf_is_a_share_of_clients() -> None:
    chart = charts.local_accuracy_ecdf({"fedavg": [0.5, 0.5, np.nan, 1.0, 0.25]})
    shares = dict(zip(unpacked(chart, 0, "x").tolist(), unpacked(chart, 0, "y").tolist(), strict=True))
    assert shares == {0.0: 0.0, 0.25: 0.25, 0.5: 0.75, 1.0: 1.0}


def test_names_are_text_and_every_client_has_a_place(found: Diagnosis) -> None:
    for name, chart in all_charts(found, look.LIGHT).items():
        assert not re.search(r"<(?!br>|b>\d|/b>|extra>|/extra>)", json.dumps(chart)), name
    heat = charts.label_heat_map(COUNTS, NAMES, CLASSES)["data"][0]
    assert len(set(heat["x"])) == len(NAMES), "of two clients with one name each has its column"


def test_a_dark_page_changes_colours_and_nothing_else(found: Diagnosis) -> None:
    """The report relies on it: it holds the light charts, and swaps their colours where a reader has a dark page."""
    swap = look.counterparts()

    def darkened(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: darkened(each, name if "color" not in key else key) for name, each in value.items()}
        if isinstance(value, list):
            return [darkened(each, key) for each in value]
        if isinstance(value, str) and "color" in key and value.startswith("#"):
            return swap[value[:7].lower()] + value[7:]
        return value

    light, dark = all_charts(found, look.LIGHT), all_charts(found, look.DARK)
    for name in light:
        assert darkened(light[name]) == dark[name], name
        assert set(colours(light[name])) - {"rgba(0,0,0,0)"}, name


def test_a_method_looks_the_same_on_paper_and_on_a_page() -> None:
    for method in (*METHODS, "clust_psi_pfl:psi_features=signed"):
        line = charts.accuracy_by_round({method: Curve([0, 1], [0.1, 0.2])})["data"][0]
        paper = style.method_style(method)
        assert line["line"]["color"] == paper["color"]
        assert line["marker"]["symbol"].removesuffix("-open") == charts.SYMBOLS[paper["marker"]]
        assert line["marker"]["symbol"].endswith("-open") == ("markerfacecolor" in paper)
        assert (line["line"]["dash"] == "solid") == (paper["linestyle"] == "-")


ALIKE = ("prior_pfl:plain", "prior_pfl:earlier=false", "prior_pfl:evidence=0.0")


def test_variants_in_one_figure_can_be_told_apart() -> None:
    many = [*METHODS, *ALIKE, *(f"fedprox:mu={i / 100:g}" for i in range(2, 20)), "another_packages"]
    looks = {method: look.method_look(method, many) for method in many}
    assert len(set(looks.values())) == len(many)
    assert looks == {method: look.method_look(method, many[::-1]) for method in many}
    assert len({each.colour for method, each in looks.items() if method.startswith("fedprox")}) == 1
    assert all(looks[method] == look.method_look(method) for method in METHODS)
    curves = {method: Curve([0, 1], [0.1, 0.2]) for method in ALIKE}
    found = {str((line["marker"]["symbol"], line["line"])) for line in charts.accuracy_by_round(curves)["data"]}
    assert len(found) == len(ALIKE)
    drawn = [style.method_style(method, ALIKE) for method in ALIKE]
    assert len({(each["marker"], each.get("markerfacecolor")) for each in drawn}) == len(ALIKE)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", look.THEMES.values(), ids=look.THEMES)
def test_text_and_lines_can_be_seen(theme: look.Theme) -> None:
    for text in (theme.ink, theme.muted, theme.accent, theme.good, theme.fair, theme.bad):
        for behind in (theme.page, theme.surface):
            assert contrast(text, behind) >= 4.5
    assert contrast(theme.of(look.BLACK), theme.surface) >= 4.5
    for colour in look.PALETTE:
        assert contrast(theme.of(colour), theme.surface) >= 2, "each has a marker and a line style besides"
