"""How figures look: for print at a journal's column widths, and readable without colour vision.

Colours are Okabe and Ito's. No two methods differ by colour alone: each has a marker and a line style of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustpsi.errors import ClustPSIError
from clustpsi.files import write_atomically
from clustpsi.paper import METHODS
from clustpsi.printing import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".pdf", ".svg", ".png")
ONE_COLUMN, TWO_COLUMNS = 3.5, 7.16  # inches

BLACK, GREY = "#000000", "#7f7f7f"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7f7f7f")
MARKERS = "sD^vP*X<>pd"  # told apart at four points; Clust-PSI-PFL and WPSI have the circle
HOLLOW = "<>spd^v"
DASHES: Any = (0, (4, 1.5))
DOTS: Any = (0, (1, 1.2))

#: Measures of skew: title, colour, marker, line style, hatch.
MEASURES = {
    "wpsi": ("WPSI", BLACK, "o", "-", ""),
    "hellinger": ("HD", "#0072B2", "s", DASHES, "////"),
    "jensen_shannon": ("JSD", "#E69F00", "^", (0, (5, 1, 1, 1)), "...."),
    "earth_mover": ("EMD", "#CC79A7", "D", DOTS, "xxxx"),
    "label_earth_mover": ("label EMD", "#009E73", "v", (0, (2, 2)), "\\\\\\\\"),
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
    "svg.hashsalt": "clustpsi",  # the same bytes every time
    "savefig.dpi": 300,
}


@contextmanager
def publication_style() -> Iterator[None]:
    """Everything that is drawn or saved inside looks like a figure of a paper."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        for key, value in _RC.items():
            mpl.rcParams[key] = value
        yield


def method_style(name: str) -> dict[str, Any]:
    """How a method is drawn; the paper's own in black and thicker, the same method always alike.

    As there are more methods than colours, half of them are dashed with hollow markers. A variant of a method has its
    colour; variants, and methods from elsewhere, are dotted, which no other is.

    >>> method_style("clust_psi_pfl")["color"], method_style("fedavg")["marker"]
    ('#000000', 'D')
    """
    if name == "clust_psi_pfl":
        return {"color": BLACK, "marker": "o", "linestyle": "-", "linewidth": 1.8, "zorder": 3}
    known = [method for method in (*METHODS, "local", "prior_pfl") if method != "clust_psi_pfl"]
    if name in known:
        half, place = divmod(known.index(name), len(PALETTE))
        look = {"color": PALETTE[place], "zorder": 2}
        if half == 0:
            return look | {"marker": MARKERS[place], "linestyle": "-"}
        return look | {"marker": HOLLOW[place], "markerfacecolor": "white", "linestyle": DASHES}
    place, varied = sum(name.encode()), name.partition(":")[0]
    colour = PALETTE[place % len(PALETTE)] if varied == name else method_style(varied)["color"]
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)], "linestyle": DOTS, "zorder": 2}


def series_style(place: int) -> dict[str, Any]:
    """How the line at a place among those of one figure is drawn, where lines are levels or numbers of clients."""
    colours, lines = (BLACK, *PALETTE), ("-", DASHES, DOTS)
    return {
        "color": colours[place % len(colours)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": lines[place % len(lines)],
    }


def measure_style(name: str) -> dict[str, Any]:
    title, colour, marker, line, _ = MEASURES[name]
    return {"label": title, "color": colour, "marker": marker, "linestyle": line}


def plain(text: str, most: int = 30) -> str:
    r"""A name for a figure: visible characters, no formulas, and an end if it is very long.

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
    """Write a figure in the format that the file's name says; equal figures give equal bytes."""
    check_format(path)
    kind = path.suffix.lower()[1:]
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}[kind]
    write_atomically(path, lambda file: figure.savefig(file, format=kind, metadata=undated))
