"""The common style of printed figures, the report and the explorer: colours, markers, lines, fonts.

Colours are Okabe and Ito's, which people with colour-vision deficiency can tell apart.  Methods never differ by colour
alone: they also differ in marker or line style.  On a dark page every colour has one lighter counterpart; nothing else
changes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from clustpsi.methods import short_spec
from clustpsi.paper import METHODS

Line = Literal["solid", "dashes", "dots", "dash-dots"]

BLACK, BLUE, GREY = "#000000", "#0072B2", "#7f7f7f"
PALETTE = (BLUE, "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", GREY)
MARKERS = "sD^vP*X<>pd"  # Matplotlib's names; distinct even at 4 points; circles are for our own methods
HOLLOW = "<>spd^v"
#: Baselines beyond the paper and their markers, the last two of them hollow.
LATER = {"fedlc": "<", "fedrs": ">", "ditto": "p", "fedrep": "d", "fedrod": "D", "ifca": "P"}
LATER_HOLLOW = ("fedrod", "ifca")
LINES: tuple[Line, ...] = ("solid", "dashes", "dots")

#: Fonts of web pages; nothing is downloaded.  Printed figures have a serif font, like the papers they go into.
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True)
class Look:
    """How the points and the line of one thing are drawn; ``strong`` is thicker and on top."""

    colour: str
    marker: str
    line: Line = "solid"
    hollow: bool = False
    strong: bool = False


def method_look(name: str, among: Iterable[str] = ()) -> Look:
    """How a method is drawn: the paper's own in black, this project's in blue, both thicker and with circles.

    The same method always looks the same.

    There are more methods than colours.  So half of the paper's methods are dashed with hollow markers, and later
    methods are dash-dotted.  A variant of a method has its colour.  Only variants and methods of other packages are
    dotted.  They may look alike: then, ``among`` the methods of a figure, all but the first by name have other markers.

    >>> method_look("clust_psi_pfl").colour, method_look("fedavg").marker
    ('#000000', 'D')
    >>> method_look("prior_pfl") == method_look("prior_pfl:average_over=movers")  # its default
    True
    """
    name = short_spec(name)
    names = sorted({name, *map(short_spec, among)})
    own = {each: _look_alone(each) for each in names}
    taken = set(own.values())
    for place, each in enumerate(names):
        if own[each] in [own[before] for before in names[:place]]:
            own[each] = next((look for look in _like(own[each]) if look not in taken), own[each])
            taken.add(own[each])
    return own[name]


def _like(look: Look) -> Iterator[Look]:
    """Looks with the same colour and line and other markers, the next ones first."""
    first = MARKERS.index(look.marker)
    for hollow in (False, True):
        for step in range(len(MARKERS)):
            yield replace(look, marker=MARKERS[(first + step) % len(MARKERS)], hollow=hollow)


def _look_alone(name: str) -> Look:
    """How a method is drawn where nothing else looks like it, by its short name."""
    if name == "clust_psi_pfl":
        return Look(BLACK, "o", strong=True)
    if name == "prior_pfl":
        return Look(BLUE, "o", "dashes", hollow=True, strong=True)
    known = [method for method in (*METHODS, "local") if method != "clust_psi_pfl"]
    if name in known:
        half, place = divmod(known.index(name), len(PALETTE))
        if half == 0:
            return Look(PALETTE[place], MARKERS[place])
        return Look(PALETTE[place], HOLLOW[place], "dashes", hollow=True)
    if name in LATER:
        return Look(PALETTE[list(LATER).index(name)], LATER[name], "dash-dots", hollow=name in LATER_HOLLOW)
    place, varied = sum(name.encode()), name.partition(":")[0]
    colour = PALETTE[place % len(PALETTE)] if varied == name else _look_alone(varied).colour
    return Look(colour, MARKERS[place % len(MARKERS)], "dots")


def series_look(place: int) -> Look:
    """How the n-th series of a figure is drawn: a level, a number of clients, a cluster."""
    colours = (BLACK, *PALETTE)
    return Look(colours[place % len(colours)], MARKERS[place % len(MARKERS)], LINES[place % len(LINES)])


#: Measures of skew: title and look.
MEASURE_LOOKS = {
    "wpsi": ("WPSI", Look(BLACK, "o")),
    "hellinger": ("HD", Look("#0072B2", "s", "dashes")),
    "jensen_shannon": ("JSD", Look("#E69F00", "^", "dashes")),
    "earth_mover": ("EMD", Look("#CC79A7", "D", "dots")),
    "label_earth_mover": ("label EMD", Look("#009E73", "v", "dashes")),
}

#: Kinds of features by which clients are clustered: title and look.
FEATURE_LOOKS = {
    "psi": ("the paper's features", Look(BLACK, "s")),
    "signed": ("signed features", Look("#0072B2", "D", "dashes")),
}


# ------------------------------------------------------------------------------------------------------------ web pages

_ON_DARK = {
    BLACK: "#f4f4f4",
    "#0072B2": "#3f9fe0",
    "#D55E00": "#f07f3c",
    "#009E73": "#2cc299",
    "#CC79A7": "#e39cc6",
    "#56B4E9": "#8fd2fb",
    "#E69F00": "#f0b73a",
    GREY: "#a3a3a3",
}


@dataclass(frozen=True)
class Theme:
    """The colours of a page; :meth:`of` gives those of methods, clusters and measures."""

    name: Literal["light", "dark"]
    page: str
    surface: str  # background of cards and charts
    ink: str
    muted: str  # text that is less important
    grid: str
    accent: str  # links and selected items
    good: str
    fair: str
    bad: str
    shares: tuple[str, ...]  # from none to all
    balance: tuple[str, ...]  # from too little over none to too much

    def of(self, colour: str) -> str:
        """A colour of the palette in this theme."""
        return _ON_DARK.get(colour, colour) if self.name == "dark" else colour

    def tint(self, colour: str, opacity: float) -> str:
        """A transparent colour of the palette.

        >>> LIGHT.tint("#0072B2", 0.2)
        '#0072B233'
        """
        return f"{self.of(colour)}{round(opacity * 255):02x}"


# Lightness changes steadily along each scale, so that it also works in grey; both ends of the balance are equally dark.
LIGHT = Theme(
    name="light",
    page="#f6f7f9",
    surface="#ffffff",
    ink="#1b1f24",
    muted="#59616b",
    grid="#e3e6ea",
    accent="#005a8f",
    good="#00704f",
    fair="#8a5a00",
    bad="#b03a00",
    shares=("#f7fafd", "#cfe1f0", "#94c1df", "#4a97c9", "#1a6aa6", "#08376b"),
    balance=("#7a3300", "#d45e00", "#f3bd93", "#f8f8f8", "#9cc9e4", "#0072b1", "#003a5d"),
)
DARK = Theme(
    name="dark",
    page="#111418",
    surface="#1a1f25",
    ink="#e8ebef",
    muted="#a6afba",
    grid="#343b44",
    accent="#6fbdf0",
    good="#3fcf9f",
    fair="#f0bb4d",
    bad="#ff9a63",
    shares=("#20262e", "#213d56", "#225b86", "#2f81b8", "#67b1e0", "#d2ebfb"),
    balance=("#ffc9a3", "#f07f3d", "#8a4a22", "#252a31", "#235b80", "#3f9fe1", "#bfe2fa"),
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def counterparts() -> dict[str, str]:
    """Every colour of the light theme in lower case, and its counterpart in the dark theme."""
    same = ["page", "surface", "ink", "muted", "grid", "accent", "good", "fair", "bad"]
    pairs = {getattr(LIGHT, name): getattr(DARK, name) for name in same} | _ON_DARK
    for scale in ("shares", "balance"):
        pairs |= dict(zip(getattr(LIGHT, scale), getattr(DARK, scale), strict=True))
    return {light.lower(): dark for light, dark in pairs.items()}
