"""Matplotlib's settings for printed figures: a journal's column widths and the style of :mod:`.look`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustpsi.errors import ClustPSIError
from clustpsi.files import write_atomically
from clustpsi.printing import printable
from clustpsi.report import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".pdf", ".svg", ".png")
ONE_COLUMN, TWO_COLUMNS = 3.5, 7.16  # inches

DASHES: Any = (0, (4, 1.5))
DOTS: Any = (0, (1, 1.2))
LINES: dict[str, Any] = {"solid": "-", "dashes": DASHES, "dots": DOTS, "dash-dots": (0, (5, 1, 1, 1))}

#: Line style and hatch of measures of skew, besides their colour and marker.
MEASURE_LINES: dict[str, tuple[Any, str]] = {
    "wpsi": ("-", ""),
    "hellinger": (DASHES, "////"),
    "jensen_shannon": ((0, (5, 1, 1, 1)), "...."),
    "earth_mover": (DOTS, "xxxx"),
    "label_earth_mover": ((0, (2, 2)), "\\\\\\\\"),
}

_RC: dict[Any, Any] = {
    "font.family": "STIXGeneral",  # comes with Matplotlib, so figures look the same everywhere
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # fonts stay text: searchable, and accepted by publishers
    "svg.fonttype": "path",  # readers of an SVG may not have the font
    "svg.hashsalt": "clustpsi",  # always the same bytes
    "savefig.dpi": 300,
}


@contextmanager
def publication_style() -> Iterator[None]:
    """Figures that are drawn or saved in this context look like those of a paper."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # ignores the user's own settings
        for key, value in _RC.items():
            mpl.rcParams[key] = value
        yield


def method_style(name: str, among: Iterable[str] = ()) -> dict[str, Any]:
    """How a method is drawn among others, see :func:`.look.method_look`.

    >>> method_style("clust_psi_pfl")["color"], method_style("fedavg")["marker"]
    ('#000000', 'D')
    """
    own = look.method_look(name, among)
    drawn = {"color": own.colour, "marker": own.marker, "linestyle": LINES[own.line], "zorder": 2}
    if own.strong:
        drawn |= {"linewidth": 1.8, "zorder": 3}
    return drawn | ({"markerfacecolor": "white"} if own.hollow else {})


def series_style(place: int) -> dict[str, Any]:
    """How the n-th line of a figure is drawn, if lines are levels or numbers of clients."""
    own = look.series_look(place)
    return {"color": own.colour, "marker": own.marker, "linestyle": LINES[own.line]}


def measure_style(name: str) -> dict[str, Any]:
    title, own = look.MEASURE_LOOKS[name]
    return {"label": title, "color": own.colour, "marker": own.marker, "linestyle": MEASURE_LINES[name][0]}


def plain(text: str, most: int = 30) -> str:
    r"""A name for a figure: visible characters, no formulas, and cut if it is very long.

    >>> print(plain("under $50k"))
    under \$50k
    """
    shown = printable(text)
    return (shown if len(shown) <= most else f"{shown[: most - 1]}…").replace("$", r"\$")


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ClustPSIError(
            f"{path}: a figure is written as {', '.join(FORMATS)}; end the file's name with one of them"
        )


def save(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the file's name ends with; equal figures give equal bytes."""
    check_format(path)
    kind = path.suffix.lower()[1:]
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}[kind]
    write_atomically(path, lambda file: figure.savefig(file, format=kind, metadata=undated))
