"""Draws the plots of docs/benchmarks.md from its tables, so that both always show the same figures.

    python benchmarks/plots.py [--check]

After a new measurement, put the printed tables into the page and run this.  --check only says whether a plot is older
than its table.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
IMAGES = PAGE.parent / "images"
CASES = ("logistic", "fmnist_cnn", "mlp", "lstm", "cifar_cnn")
STYLE = {"svg.hashsalt": "clustpsi", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True}  # fmt: skip

Table = list[dict[str, str]]
Tables = dict[str, list[Table]]


def tables(text: str) -> Tables:
    """The tables of a page, in order, by the heading of their section or the line that stands above them."""
    found: Tables = {}
    lines, above, section = text.splitlines(), "", ""
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            head, _, *body = rows
            table = [dict(zip(_unique(head), row, strict=True)) for row in body]
            for name in {section, above.strip("`")}:
                found.setdefault(name, []).append(table)
            rows = []
        if line.startswith("#"):
            section = line.lstrip("# ")
        above = line or above
    return found


def _unique(names: list[str]) -> Iterator[str]:
    """Names of columns; a name that comes again has its number behind it."""
    for at, name in enumerate(names):
        again = names[:at].count(name)
        yield f"{name} {again + 1}" if again else name


def number(text: str) -> float:
    """The first number of a cell."""
    found = re.search(r"\d[\d,]*\.?\d*", text)
    return float(found[0].replace(",", "")) if found else float("nan")


def column(table: Table, name: str) -> list[float]:
    return [number(row[name]) for row in table]


# ---------------------------------------------------------------------------------------------------------- plots


def peers(found: Tables, figure: Figure) -> None:
    """Times ours, for each case and framework."""
    for place, (case, axes) in enumerate(zip(CASES, figure.subplots(1, len(CASES)), strict=True)):
        rows = [row for row in found[case][0] if row[""] != "clustpsi"]
        values = column(rows, "times ours")
        axes.barh([row[""].partition(",")[0] for row in rows], values, color="C0")
        for at, value in enumerate(values):
            axes.annotate(f"{value:g}", (value, at), xytext=(2, 0), textcoords="offset points", va="center", fontsize=7)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_title(case, fontsize=8)
        axes.set_xlim(0, 1.3 * max(values))
        axes.invert_yaxis()
        axes.tick_params(labelleft=place == 0)
    figure.supxlabel("seconds per round, in multiples of clustpsi's (line: 1)", fontsize=8)


def limits(found: Tables, figure: Figure) -> None:
    """Shares of the matrix product's and the copy's speed."""
    rows, axes = found["Distance to the limit"][0], figure.subplots()
    names, at = [row["model"].strip("`") for row in rows], np.arange(len(rows))
    axes.bar(at - 0.2, column(rows, "of the product's"), 0.4, label="arithmetic: of a matrix product's speed")
    axes.bar(at + 0.2, column(rows, "of the copy's"), 0.4, label="optimizer's bytes: of a copy's speed")
    axes.set_xticks(at, names)
    axes.set_ylim(bottom=0, top=max(100, *column(rows, "of the product's")))
    axes.set_ylabel("percent of the limit")
    axes.legend(frameon=False)


def scale(found: Tables, figure: Figure) -> None:
    """What grows with the clients, and what does not."""
    growing, fixed = found["10 rows per client"][0], found["1,000,000 rows in all"][0]
    clusters = found["PSI and clusters"][0]
    left, middle, right = figure.subplots(1, 3)
    for rows, name in ((growing, "10 rows per client"), (fixed, "1,000,000 rows in all")):
        clients = column(rows, "clients")
        left.plot(clients, column(rows, "ms per round"), "o-", label=name, markersize=3)
        middle.plot(clients, column(rows, "peak MB"), "o-", label=name, markersize=3)
    clients = column(clusters, "clients")
    middle.plot(clients, column(clusters, "peak MB"), "o-", label="PSI and clusters", markersize=3, color="C2")
    for name, colour in (("PSI, s", "C4"), ("clustering, s", "C2")):
        right.plot(clients, np.maximum(column(clusters, name), 1e-3), "o-", label=name[:-3], markersize=3, color=colour)
    right.plot(column(growing, "clients"), column(growing, "set-up, s"), "o-", label="set-up of a run", markersize=3)
    for axes, title in ((left, "ms per round"), (middle, "peak memory, MB"), (right, "seconds")):
        _logarithmic(axes, title)
    left.set_ylim(1, 1000)


def _logarithmic(axes: Axes, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="clients")
    axes.set_title(title, fontsize=8)
    axes.legend(frameon=False, fontsize=7)


#: How each is drawn, from which tables, and its size in inches.
PLOTS: dict[str, tuple[Callable[[Tables, Figure], None], tuple[str, ...], tuple[float, float]]] = {
    "peers": (peers, CASES, (9, 2.2)),
    "limits": (limits, ("Distance to the limit",), (6, 2.4)),
    "scale": (scale, ("10 rows per client", "1,000,000 rows in all", "PSI and clusters"), (9, 2.6)),
}


def path_of(name: str) -> Path:
    return IMAGES / f"benchmark_{name}.svg"


def figures_of(name: str, found: Tables) -> str:
    """What a plot shows, as a hash that it carries."""
    _, used, _ = PLOTS[name]
    return hashlib.sha256(json.dumps([found[each][0] for each in used]).encode()).hexdigest()[:16]


def old_plots(found: Tables) -> list[str]:
    """Plots that do not show what the tables say."""
    return [
        name
        for name in PLOTS
        if not path_of(name).exists() or f"figures {figures_of(name, found)}" not in path_of(name).read_text()
    ]


def write(name: str, found: Tables) -> None:
    draw, _, size = PLOTS[name]
    with mpl.rc_context(STYLE):
        figure = Figure(size, layout="constrained")
        draw(found, figure)
        told = {"Date": None, "Description": f"figures {figures_of(name, found)}"}
        figure.savefig(path_of(name), format="svg", metadata=told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check, found = parser.parse_args().check, tables(PAGE.read_text())
    old = old_plots(found)
    if not check:
        for name in old:
            write(name, found)
    elif old:
        raise SystemExit(f"not what the tables say: {', '.join(old)}; run python benchmarks/plots.py")


if __name__ == "__main__":
    main()
