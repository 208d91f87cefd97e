"""The paper's figures and others, each with its data.

Figures of skew, silhouettes, numbers of clusters and partitions need only labels.  Accuracies and learning curves come
from a store of runs, importances from the tables of ``clustpsi study metrics``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from clustpsi import skew
from clustpsi.clustering import PSIClustering
from clustpsi.datasets import Dataset, load_dataset
from clustpsi.datasets.files import user_path
from clustpsi.errors import ClustPSIError, InfeasiblePartition, unknown_name
from clustpsi.exact import read_exact_csv
from clustpsi.experiments.study_axes import MEASURES, STUDY_LEVELS
from clustpsi.experiments.study_partitions import draw_counts
from clustpsi.federation import build_federation
from clustpsi.files import check_writable
from clustpsi.paper import DATASETS, SEEDS
from clustpsi.report import style
from clustpsi.report.look import GREY, MEASURE_LOOKS
from clustpsi.report.tables import SCORES, Level, having, level_order, method_order, method_title
from clustpsi.runs.config import Config
from clustpsi.runs.frame import SETTINGS, check_comparable, dataset_name, read_runs, select
from clustpsi.runs.store import RunFolder, inputs_beside, write_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SYMBOLS = {"dirichlet": r"$\alpha$", "similarity": r"$S$"}
TITLES = {"dirichlet": "Dirichlet", "similarity": "Similarity", "iid": "IID", "natural": "natural clients"}
CENTRALIZED: dict[str, Any] = {"color": GREY, "linestyle": (0, (6, 2)), "zorder": 1}
MOST_NAMES = 30  # classes named beside a panel


@dataclass(frozen=True)
class Request:
    """What a figure should show; None means the figure's own default.

    ``reading`` says how to read a file of the user, as in :attr:`clustpsi.Config.reading`.
    """

    dataset: str | None = None
    data_dir: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    num_clients: tuple[int, ...] | None = None
    alphas: tuple[float, ...] | None = None
    similarities: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    runs: Path | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    score: str | None = None
    study: Path | None = None

    def load(self) -> Dataset:
        return load_dataset(self.dataset or "digits", data_dir=self.data_dir, **self.reading)

    def given(self) -> set[str]:
        """What the user asked for, by the names of the command-line options."""
        names = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "reading"}
        return {key for key, value in {**names, **self.reading}.items() if value not in (None, False, (), {})}

    @property
    def natural(self) -> bool:
        """Whether the user asked for the data's own clients."""
        return self.reading.get("client") is not None

    @property
    def store(self) -> Path:
        return self.runs or Path("runs")

    def study_table(self, name: str) -> Path:
        return (self.study or Path("study")) / f"{name}.csv"

    def levels(self, protocol: str, default: tuple[float, ...]) -> tuple[float, ...]:
        given = self.alphas if protocol == "dirichlet" else self.similarities
        return default if given is None else given


@dataclass
class Drawing:
    """A figure, its data, and notes for the reader."""

    figure: "Figure"
    data: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> Path:
        """Write the figure, and a CSV with its data beside it; gives the path of the CSV.

        A CSV with other columns is hardly an earlier one of this figure: a note says that it is replaced.
        """
        beside = path.with_suffix(".csv")
        if beside.is_file():
            with beside.open(errors="replace") as before:
                if before.readline().rstrip() != ",".join(map(str, self.data)):
                    self.notes.append(f"{beside} was there with other columns, and was replaced by this figure's data")
        with style.publication_style():
            style.save(self.figure, path)
        write_csv(beside, {str(key): self.data[key].tolist() for key in self.data})
        return beside


def draw(name: str, request: Request) -> Drawing:
    """A figure by its name, one of `FIGURES`."""
    check_request(name, request)
    with style.publication_style():
        return FIGURES[name].draw(request)


def check_request(name: str, request: Request, output: Path | None = None) -> None:
    """Raise, before any work, if the figure has no use for an option or the output cannot be written."""
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    kind = FIGURES[name]
    for option in sorted(request.given() - {*kind.takes, "data_dir"}):
        takes = ", ".join(map(_flag, kind.takes))
        raise ClustPSIError(
            f"the figure {name} is made from {kind.needs} and has no use for {_flag(option)}: it takes {takes}"
        )
    if request.natural:
        for option in sorted(request.given() & {"num_clients", "alphas", "similarities"}):
            raise ClustPSIError(
                f"--client shows the data's own clients, and {_flag(option)} is about others: give one of them"
            )
    if output is not None:
        style.check_format(output)
        for path in (output, output.with_suffix(".csv")):
            check_writable(path, _inputs(kind, request, path))


def _inputs(kind: "Kind", request: Request, output: Path) -> list[Path]:
    """The files from which a figure is made and that the output could replace."""
    if "study" in kind.takes:
        return [request.study_table(name) for name in ("importances", "scores")]
    files = [] if request.dataset is None else [user_path(request.dataset)]
    return files + (inputs_beside(request.store, output) if "runs" in kind.takes else [])


def _flag(option: str) -> str:
    """An option as on the command line."""
    return {"seeds": "--seeds-list"}.get(option, f"--{option.replace('_', '-')}")


# ---------------------------------------------------------------------------------------------------- from labels


def _skew(protocol: str) -> Callable[[Request], Drawing]:
    """WPSI and, on the right axis, the other measures over the level; one panel per number of clients."""

    def draw(request: Request) -> Drawing:
        dataset = request.load()
        sizes = np.bincount(dataset.labels, minlength=dataset.num_classes).tolist()
        levels = sorted(request.levels(protocol, STUDY_LEVELS[protocol]))
        clients = request.num_clients or (100,)
        rows: list[dict[str, Any]] = []
        notes: list[str] = []
        for num_clients in clients:
            for level in levels:
                where = {"dataset": dataset.name, "partitioner": protocol, "num_clients": num_clients, "level": level}
                of_level: list[dict[str, Any]] = []
                try:
                    for seed in request.seeds or SEEDS:
                        counts = draw_counts(dataset.name, sizes, protocol, num_clients, level, seed)
                        of_level.append(where | {"seed": seed} | skew.measures(counts))
                except InfeasiblePartition:
                    notes.append(_infeasible(protocol, level, num_clients))
                else:
                    rows += of_level
        data = _table(rows, dataset)
        figure, panels = _panels(len(clients), height=2.6)
        for i, (num_clients, axes) in enumerate(zip(clients, panels, strict=True)):
            right = _draw_skew(axes, data[data["num_clients"] == num_clients], levels)
            axes.set_title(f"{_title(dataset.name)}, $K={num_clients}$")
            _name_levels(axes, protocol, levels)
            axes.set_ylabel("WPSI" if i == 0 else "")
            right.set_ylabel("HD, JSD, EMD" if i == len(clients) - 1 else "")
        _legend(figure, [panels[0], right])
        return Drawing(figure, data, notes)

    return draw


def _draw_skew(axes: "Axes", data: pd.DataFrame, levels: Sequence[float]) -> "Axes":
    right = axes.twinx()
    right.grid(visible=False)
    right.spines.right.set_visible(True)
    for measure in MEASURES:
        where = axes if measure == "wpsi" else right
        of_level = data.groupby("level")[measure]
        mean, std = of_level.mean(), of_level.std(ddof=0)
        x = np.array([levels.index(level) for level in mean.index])
        shown = style.measure_style(measure)
        where.plot(x, mean, **shown)
        where.fill_between(x, mean - std, mean + std, color=shown["color"], alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)
    right.set_ylim(0, 1)
    return right


def _clusterings(request: Request, default_clients: tuple[int, ...]) -> tuple[Dataset, pd.DataFrame, list[str]]:
    """The silhouette of every number of clusters, on the partitions that ``clustpsi run`` makes for these settings."""
    dataset = request.load()
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for protocol, default in (("dirichlet", (0.3,)), ("similarity", (0.0,))):
        for level in request.levels(protocol, default):
            for num_clients in request.num_clients or default_clients:
                of_level: list[dict[str, Any]] = []
                try:
                    for seed in request.seeds or SEEDS:
                        counts = build_federation(dataset, protocol, level, num_clients, seed).label_counts
                        clustering = PSIClustering(random_state=seed).fit(counts)
                        where = {"dataset": dataset.name, "partitioner": protocol, "level": level}
                        where |= {"num_clients": num_clients, "seed": seed, "wpsi": clustering.wpsi_}
                        chosen = clustering.n_clusters_
                        for tau, score in clustering.silhouette_scores_.items():
                            of_level.append({**where, "tau": tau, "silhouette": score, "chosen": tau == chosen})
                except InfeasiblePartition:
                    notes.append(_infeasible(protocol, level, num_clients))
                else:
                    rows += of_level
    return dataset, _table(rows, dataset), notes


def _silhouette(request: Request) -> Drawing:
    """Silhouette over the number of clusters, one line per number of clients; the chosen number is marked."""
    dataset, data, notes = _clusterings(request, (10, 50, 100))
    kinds = list(dict.fromkeys(zip(data["partitioner"], data["level"], strict=True)))
    clients = sorted(data["num_clients"].unique())
    figure, panels = _panels(len(kinds), height=2.6, same_y=True)
    for (protocol, level), axes in zip(kinds, panels, strict=True):
        of_kind = data[(data["partitioner"] == protocol) & (data["level"] == level)]
        for i, num_clients in enumerate(clients):
            part = of_kind[of_kind["num_clients"] == num_clients]
            if part.empty:
                continue
            curve = part.groupby("tau")["silhouette"]
            mean, low, high = curve.mean(), curve.min(), curve.max()
            look = style.series_style(i)
            axes.plot(mean.index, mean, **look | {"marker": ""})
            axes.fill_between(mean.index, low, high, color=look["color"], alpha=0.12, linewidth=0)
            chosen = part[part["chosen"]]
            step = min(1.2, 5 / len(clients))
            size = 4 + step * (len(clients) - 1 - i)  # larger markers first, so that later ones do not hide them
            axes.plot(
                chosen["tau"],
                chosen["silhouette"],
                look["marker"],
                color=look["color"],
                mec="white",
                mew=0.5,
                ms=size,
            )
            axes.plot([], [], label=f"$K={num_clients}$", **look)
        axes.set_xscale("log")
        _plain_ticks(axes, (2, 3, 5, 10, 20, 50, 100), of_kind["tau"].max())
        axes.set_xlabel(r"number of clusters $\tau$")
        axes.set_title(f"{_title(dataset.name)}, {_level_title((protocol, level))}")
    panels[0].set_ylabel("silhouette")
    _legend(figure, panels)
    return Drawing(figure, data, notes)


def _tau(request: Request) -> Drawing:
    """The chosen number of clusters over the number of clients, one line per level; points are single seeds."""
    from matplotlib.ticker import MaxNLocator

    dataset, tried, notes = _clusterings(request, (10, 50, 100))
    data = tried[tried["chosen"]].drop(columns="chosen").reset_index(drop=True)
    figure, panels = _panels(data["partitioner"].nunique(), height=2.6)
    clients = sorted(data["num_clients"].unique())
    for protocol, axes in zip(data["partitioner"].unique(), panels, strict=True):
        part = data[data["partitioner"] == protocol]
        levels = part["level"].unique()
        for i, level in enumerate(levels):
            of_level = part[part["level"] == level]
            shift = 0.12 * (i - (len(levels) - 1) / 2)  # keeps points of different levels apart
            median = of_level.groupby("num_clients")["tau"].median()
            look = style.series_style(i)
            x = np.array([clients.index(k) for k in median.index]) + shift
            axes.plot(x, median, label=f"{SYMBOLS[protocol]} = {level:g}", **look)
            x = np.array([clients.index(k) for k in of_level["num_clients"]]) + shift
            axes.plot(x, of_level["tau"], ".", color=look["color"], alpha=0.45, markersize=3)
        axes.set_xticks(range(len(clients)), [str(k) for k in clients])
        axes.set_xlim(-0.4, len(clients) - 0.6)
        axes.set_ylim(0, max(part["tau"].max() * 1.08, 5))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("number of clients $K$")
        axes.set_title(f"{_title(dataset.name)}, {TITLES[protocol]}")
        axes.legend(loc="best")
    panels[0].set_ylabel(r"number of clusters $\tau$")
    notes.append("lines: median over seeds; points: single seeds")
    return Drawing(figure, data, notes)


def _partition(request: Request) -> Drawing:
    """Labels of the clients: classes by clients, with the clients' sizes above; one panel per partition, first seed.

    If a column of the data names its clients, they are the only panel.
    """
    from matplotlib.ticker import MaxNLocator

    dataset = request.load()
    num_clients, seed = (request.num_clients or (20,))[0], (request.seeds or SEEDS)[0]
    levels: list[Level] = [("natural", None)]
    if not request.natural:
        levels = [
            (how, each)
            for how, one in (("dirichlet", 0.3), ("similarity", 0.0))
            for each in request.levels(how, (one,))
        ]
    rows, notes, shown = [], [], []
    for protocol, level in levels:
        try:
            federation = build_federation(dataset, protocol, level, None if request.natural else num_clients, seed)
        except InfeasiblePartition:
            assert level is not None
            notes.append(_infeasible(protocol, level, num_clients))
            continue
        shown.append((protocol, level, federation))
        where = {"dataset": dataset.name, "partitioner": protocol, "level": level, "seed": seed}
        for (client, label), samples in np.ndenumerate(federation.label_counts):
            of = {"client": federation.client_names[client], "class": dataset.class_names[label]}
            rows.append({**where, **of, "samples": samples})
    data = _table(rows, dataset)
    classes = [style.plain(name) for name in dataset.class_names]
    names, are_upright = ([], False) if not request.natural else _client_names(shown[0][2].client_names)
    height = 2 + 0.15 * min(max(len(classes), 6), MOST_NAMES) + (0.06 * max(map(len, names)) if are_upright else 0)
    figure, panels = _panels(len(shown), height=height, rows=2, ratios=(1, 3))
    for i, (protocol, level, federation) in enumerate(shown):
        sizes, axes = panels[i], panels[len(shown) + i]
        counts = federation.label_counts
        sizes.bar(range(len(counts)), counts.sum(axis=1), width=0.8, color=GREY)
        sizes.set_xlim(-0.5, len(counts) - 0.5)
        sizes.set_title(f"{_title(dataset.name)}, {_level_title((protocol, level))}")
        shares = (counts / counts.sum(axis=1, keepdims=True)).T
        picture = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("client")
        for axis in (sizes.xaxis, sizes.yaxis, axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))  # there is no client 2.5
        sizes.tick_params(labelbottom=False)
        if len(classes) <= MOST_NAMES:
            axes.set_yticks(range(len(classes)), classes)
        if names:
            axes.set_xticks(range(len(names)), names, rotation=90 if are_upright else 0)
        axes.tick_params(labelleft=i == 0)
    panels[0].set_ylabel("samples")
    panels[len(shown)].set_ylabel("class")
    bar = figure.colorbar(picture, ax=panels[len(shown) :], fraction=0.03, pad=0.02)
    bar.set_label("share of client")
    return Drawing(figure, data, notes)


def _client_names(names: Sequence[str]) -> tuple[list[str], bool]:
    """Clients' names below a panel of one column's width, empty if they do not fit; and whether they are upright."""
    shown = [style.plain(name) for name in names]
    points = 0.7 * style.ONE_COLUMN * 72 / len(shown)  # per client
    are_upright = max(map(len, shown)) * 4.5 + 4 > points
    return ([], False) if are_upright and points < 9 else (shown, are_upright)


# ------------------------------------------------------------------------------------------------------ from runs


def _accuracy(protocol: str) -> Callable[[Request], Drawing]:
    """A score over the level, mean over seeds; one panel per number of clients; centralized learning as a line."""

    def draw(request: Request) -> Drawing:
        runs, notes = _runs(request)
        score = request.score or "global_accuracy"
        runs, lacking = having(runs, score)
        runs = runs.rename(columns={f"last_{score}": "score"})
        central = runs[runs["method"] == "centralized"]["score"]
        runs = runs[(runs["partitioner"] == protocol) & (runs["method"] != "centralized")]
        if runs.empty:
            raise ClustPSIError(f"{request.store} has no finished runs with the {protocol} partition")
        keys = ["dataset", "partitioner", "num_clients", "level", "agg_method"]
        scores = runs.groupby(keys, sort=False)["score"]
        data = pd.DataFrame({"mean": scores.mean(), "std": scores.std(ddof=0), "seeds": scores.count()}).reset_index()
        levels = sorted(data["level"].unique())
        clients = sorted(data["num_clients"].unique())
        figure, panels = _panels(len(clients), height=3.2, width=style.TWO_COLUMNS, same_y=True)
        for num_clients, axes in zip(clients, panels, strict=True):
            part = data[data["num_clients"] == num_clients]
            methods = method_order(data["agg_method"].unique())
            for method, shift in zip(methods, np.linspace(-0.2, 0.2, len(methods)), strict=True):
                line = part[part["agg_method"] == method].sort_values("level")
                x = [levels.index(level) + shift for level in line["level"]]  # side by side
                look = _method_look(method, methods)
                axes.errorbar(x, line["mean"], yerr=line["std"], elinewidth=0.5, capsize=1.2, capthick=0.5, **look)
            if len(central) and not SCORES[score].of_clients:
                axes.axhline(central.mean(), label="centralized", **CENTRALIZED)
            _name_levels(axes, protocol, levels)
            axes.set_title(f"{_title(data['dataset'][0])}, $K={num_clients}$")
        panels[0].set_ylabel(_score_title(score))
        _legend(figure, panels)
        return Drawing(figure, data, notes + lacking)

    return draw


def _local_ecdf(request: Request) -> Drawing:
    """Share of clients with at most this accuracy, all seeds together; one panel per partition, largest K."""
    runs, notes = _runs(request)
    runs = _of_largest(runs[runs["method"] != "centralized"])

    def last(folder: RunFolder) -> pd.DataFrame:
        accuracy = folder.accuracy()
        in_last: pd.DataFrame = accuracy[accuracy["round"] == accuracy["round"].max()]
        return in_last[["client", "accuracy"]].dropna()

    data = _from_folders(runs, request, last, notes)
    kinds, methods = level_order(data["kind"]), method_order(data["agg_method"].unique())
    figure, panels, columns = _grid(len(kinds))
    for kind, axes in zip(kinds, panels, strict=False):
        part = data[_is(data["kind"], kind)]
        for i, method in enumerate(methods):
            values = np.sort(part.loc[part["agg_method"] == method, "accuracy"].to_numpy())
            if not values.size:
                continue
            look = _method_look(method, methods) | {
                "drawstyle": "steps-post",
                "markevery": (0.02 + 0.015 * i, 0.25),
                "markersize": 3.5,
            }
            share = np.arange(1, len(values) + 1) / len(values)
            axes.plot(np.append(values, 1.0), np.append(share, 1.0), **look)
        axes.set_title(_level_title(kind))
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xticks(np.linspace(0, 1, 6))
    _label_grid(panels[: len(kinds)], columns, "local accuracy", "share of clients")
    _legend(figure, panels[: len(kinds)])
    notes.append(_shown(data))
    return Drawing(figure, data.drop(columns="kind"), notes)


def _rounds(request: Request) -> Drawing:
    """Learning curves: a score over rounds, mean and standard deviation over seeds; one panel per partition."""
    from matplotlib.ticker import MaxNLocator

    runs, notes = _runs(request)
    score = request.score or "global_accuracy"
    columns_found: set[str] = set()

    def curve(folder: RunFolder) -> pd.DataFrame:
        rounds = folder.rounds()
        columns_found.update(map(str, rounds))
        return rounds.reindex(columns=["round", score]).dropna()  # evaluated rounds

    central = runs["method"] == "centralized"
    of_clients = score in SCORES and SCORES[score].of_clients
    pooled = runs[central & (runs["num_clients"] == runs.loc[central, "num_clients"].max()) & (not of_clients)]
    values = _from_folders(pd.concat([_of_largest(runs[~central]), pooled]), request, curve, notes)
    if score not in columns_found - {"round"}:
        raise unknown_name("score of rounds", score, columns_found - {"round"})
    keys = ["dataset", "kind", "partitioner", "level", "num_clients", "agg_method", "round"]
    scores = values.groupby(keys, sort=False, dropna=False)[score]
    data = pd.DataFrame({"mean": scores.mean(), "std": scores.std(ddof=0), "seeds": scores.count()}).reset_index()
    complete = data.groupby(["kind", "agg_method"])["seeds"].transform("max")
    data = data[data["seeds"] == complete].reset_index(drop=True)  # rounds in which every seed was evaluated
    curves = data[data["agg_method"] != "centralized"]
    if curves.empty:
        raise ClustPSIError(f"no run of {request.store} that was asked for has {score} in its rounds")
    methods = method_order(curves["agg_method"].unique())
    silent = set(runs.loc[~central, "agg_method"]) - set(methods)
    if silent:
        notes.append(f"without {score}, and omitted: {', '.join(map(method_title, method_order(silent)))}")
    kinds = level_order(curves["kind"])
    figure, panels, columns = _grid(len(kinds))
    for kind, axes in zip(kinds, panels, strict=False):
        for i, method in enumerate(methods):
            line = curves[_is(curves["kind"], kind) & (curves["agg_method"] == method)].sort_values("round")
            if line.empty:
                continue
            look = _method_look(method, methods) | {"markevery": (0.02 + 0.015 * i, 0.25), "markersize": 3.5}
            axes.plot(line["round"], line["mean"], **look)
            low, high = line["mean"] - line["std"], line["mean"] + line["std"]
            axes.fill_between(line["round"], low, high, color=look["color"], alpha=0.12, linewidth=0)
        line = data[data["agg_method"] == "centralized"].sort_values("round")
        if len(line):
            axes.plot(line["round"], line["mean"], label="centralized", **CENTRALIZED)
        axes.set_title(_level_title(kind))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _label_grid(panels[: len(kinds)], columns, "round", _score_title(score))
    _legend(figure, panels[: len(kinds)])
    notes.append(f"{_shown(curves)}; lines: means over seeds; bands: standard deviations")
    return Drawing(figure, data.drop(columns="kind"), notes)


def _from_folders(
    runs: pd.DataFrame, request: Request, read: Callable[[RunFolder], pd.DataFrame], notes: list[str]
) -> pd.DataFrame:
    """Data read from the folders of these runs, with their settings; adds a note for each damaged folder."""
    if runs.empty:
        raise ClustPSIError(f"{request.store} has no run of a federated method that was asked for")
    if runs["folder"].isna().any():
        raise ClustPSIError(
            f"{request.store} has one row for each run, and this figure needs their folders: name a store"
        )
    keys = ["dataset", "partitioner", "level", "num_clients", "agg_method", "seed", "kind"]
    tables = []
    for row in runs.to_dict("records"):
        try:
            table = read(RunFolder(Path(row["folder"])))
        except (OSError, ValueError, KeyError) as error:  # from pandas or clustpsi
            notes.append(f"left out {row['folder']}, which is damaged: {error}")
            continue
        tables.append(table.assign(**{key: [row[key]] * len(table) for key in keys}))
    if not tables:
        raise ClustPSIError(f"no run that was asked for can be read ({notes[-1]})")
    return pd.concat(tables, ignore_index=True)


def _of_largest(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the most clients, and those on natural clients."""
    largest: pd.DataFrame = runs[runs["num_clients"].isna() | (runs["num_clients"] == runs["num_clients"].max())]
    return largest


def _is(kinds: "pd.Series[Any]", kind: Level) -> "pd.Series[bool]":
    """Where a column of levels has this level (pandas would take the tuple for several values)."""
    return kinds.map(lambda each: each == kind).astype(bool)


def _shown(data: pd.DataFrame) -> str:
    """What all panels have in common, in words."""
    clients = data["num_clients"].dropna()
    return f"{data['dataset'].iloc[0]}, {f'{clients.iloc[0]:.0f} clients' if len(clients) else 'natural clients'}"


# ----------------------------------------------------------------------------------------------------- from the study


def _importances(request: Request) -> Drawing:
    """What each measure tells about the level, by model: its importance among all (above) and its R2 alone (below)."""
    try:
        importances, scores = (read_exact_csv(request.study_table(name)) for name in ("importances", "scores"))
    except OSError:
        folder = request.study_table("importances").parent
        raise ClustPSIError(
            f"{folder} holds no study: make one with clustpsi study metrics --output {folder}"
        ) from None
    alone = scores[scores["features"] == "alone"].drop(columns=["features", "mae"])
    data = importances.merge(alone, on=["protocol", "target", "model", "measure"])
    kinds = [kind for kind in (("dirichlet", "log_alpha"), ("similarity", "s")) if kind[0] in set(data["protocol"])]
    figure, panels = _panels(len(kinds), height=4, rows=2, same_y=True, same_x=True)
    for i, (protocol, target) in enumerate(kinds):
        part = data[(data["protocol"] == protocol) & (data["target"] == target)]
        above, below = panels[i], panels[len(kinds) + i]
        _bars(above, part, "permutation", mark="own")
        _bars(below, part, "r2")
        predicted = r"$\log\alpha$" if target == "log_alpha" else "$S$"
        above.set_title(f"{TITLES[protocol]}: predict {predicted}")
        below.set_ylim(0, 1)
    panels[0].set_ylabel("importance")
    panels[len(kinds)].set_ylabel("$R^2$ alone")
    _legend(figure, panels)
    return Drawing(figure, data, ["bars: permutation importance on held-out partitions; points: the model's own"])


def _bars(axes: "Axes", data: pd.DataFrame, column: str, mark: str | None = None) -> None:
    """One group of bars per model, one bar per measure; a point marks another value, if there is one."""
    titles = {"lightgbm": "LightGBM", "svm": "SVM", "mlp": "MLP", "tree": "Tree"}
    models, measures = data["model"].unique(), data["measure"].unique()
    width = 0.8 / len(measures)
    for i, measure in enumerate(measures):
        title, own = MEASURE_LOOKS[measure]
        colour, hatch = own.colour, style.MEASURE_LINES[measure][1]
        rows = data[data["measure"] == measure]
        x = np.arange(len(models)) + (i - (len(measures) - 1) / 2) * width
        face = colour if measure == "wpsi" else "white"
        look: dict[str, Any] = {"facecolor": face, "edgecolor": colour, "hatch": hatch, "linewidth": 0.8}
        axes.bar(x, rows[column].clip(lower=0), width * 0.9, label=title, **look)
        if mark is not None:
            label = "model's own" if measure == measures[-1] else None
            axes.plot(x, rows[mark], "o", color=GREY, markeredgecolor="white", markersize=5, label=label)
    axes.set_xticks(range(len(models)), [titles[model] for model in models])
    axes.grid(visible=False, axis="x")


# ------------------------------------------------------------------------------------------------------------- parts


def _runs(request: Request) -> tuple[pd.DataFrame, list[str]]:
    """The finished runs on one data set that were scored on test data, one row each; and notes on damaged ones."""
    runs, problems = read_runs(request.store)
    runs = select(runs, request.where)
    runs = runs[(runs["status"] == "finished") & ~runs["validation"].astype("boolean").fillna(False)]
    if runs.empty:
        raise ClustPSIError(f"{request.store} has no finished run scored on test data: make some with clustpsi run")
    names = sorted(runs["dataset"].unique())
    if request.dataset is None and len(names) > 1:
        raise ClustPSIError(f"{request.store} has runs on {', '.join(names)}: choose one with --dataset")
    dataset = names[0] if request.dataset is None else dataset_name(request.dataset)
    if dataset not in names:
        raise unknown_name(f"dataset in {request.store}", dataset, names)
    runs = runs[runs["dataset"] == dataset]
    runs = runs.sort_values("eval_every", kind="stable")  # of otherwise equal runs, the one with the most evaluations
    runs = runs.drop_duplicates([key for key in SETTINGS if key != "eval_every"]).sort_index()
    method = runs["agg_method"].str.partition(":")[0]
    levels = {"dirichlet": request.alphas, "similarity": request.similarities}
    for name, wanted in levels.items():
        if wanted is not None:
            runs = runs[(runs["partitioner"] != name) | runs["non_iid_param"].isin(wanted)]
    for column, numbers in (("num_clients", request.num_clients), ("seed", request.seeds)):
        if numbers is not None:
            runs = runs[runs[column].isin(numbers) | (method.loc[runs.index] == "centralized")]
    if runs.empty:
        raise ClustPSIError(f"{request.store} has no finished run on {dataset} with what was asked for")
    check_comparable(runs, f"the runs in {request.store}")
    kinds = [
        (how, None if pd.isna(level) else level)
        for how, level in zip(runs["partitioner"], runs["non_iid_param"], strict=True)
    ]
    runs = runs.rename(columns={"non_iid_param": "level"})
    kind = pd.Series(kinds, index=runs.index, dtype=object)
    return runs.assign(method=method.loc[runs.index], kind=kind).reset_index(drop=True), problems


def _method_look(spec: str, among: Iterable[str]) -> dict[str, Any]:
    return {"label": style.plain(method_title(spec), most=60), **style.method_style(spec, among)}


def _panels(
    columns: int,
    *,
    height: float,
    width: float | None = None,
    rows: int = 1,
    ratios: Sequence[float] | None = None,
    same_y: bool = False,
    same_x: bool = False,
) -> tuple["Figure", list["Axes"]]:
    """A figure with panels: one column wide for a single panel, else two columns wide."""
    from matplotlib.figure import Figure

    inches = width or (style.ONE_COLUMN if columns == 1 else style.TWO_COLUMNS)
    figure = Figure(figsize=(inches, height), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=same_y, sharex=same_x, height_ratios=ratios, squeeze=False)
    return figure, list(panels.ravel())


def _grid(number: int) -> tuple["Figure", list["Axes"], int]:
    """A figure with this many panels that share their axes, up to three side by side; and its number of columns."""
    columns = min(3, number)
    lines = -(-number // columns)
    height, width = 0.8 + 1.9 * lines, style.TWO_COLUMNS
    figure, panels = _panels(columns, height=height, rows=lines, width=width, same_y=True, same_x=True)
    for axes in panels[number:]:
        axes.set_visible(False)
    return figure, panels, columns


def _label_grid(panels: Sequence["Axes"], columns: int, x: str, y: str) -> None:
    """Name the axes only at the left and at the bottom."""
    for i, axes in enumerate(panels):
        is_lowest = i + columns >= len(panels)
        axes.set_xlabel(x if is_lowest else "")
        axes.set_ylabel(y if i % columns == 0 else "")
        axes.tick_params(labelbottom=is_lowest)


def _legend(figure: "Figure", panels: Sequence["Axes"], most_columns: int = 6) -> None:
    """One legend for all panels, below them, with as many columns as fit."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, getattr(handle, "lines", [handle])[0])  # without error bars
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for most in range(most_columns, 0, -1):
        lines = -(-len(entries) // most)
        columns = -(-len(entries) // lines)  # lines of about the same length
        options: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "handlelength": 2.8}
        legend = figure.legend(entries.values(), entries.keys(), **options)
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return
        legend.remove()


def _name_levels(axes: "Axes", protocol: str, levels: Sequence[float]) -> None:
    """Label the levels, at equal distances."""
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels], rotation=60 if len(levels) > 6 else 0)
    axes.set_xlim(-0.4, len(levels) - 0.6)
    axes.set_xlabel(SYMBOLS[protocol])


def _plain_ticks(axes: "Axes", ticks: Sequence[int], most: int) -> None:
    shown = [tick for tick in ticks if tick <= most]
    axes.set_xticks(shown, [str(tick) for tick in shown])
    axes.set_xticks([], minor=True)


def _title(dataset: str) -> str:
    return style.plain(DATASETS.get(dataset, Path(dataset).stem))


def _level_title(level: Level) -> str:
    protocol, value = level
    title = TITLES.get(protocol, protocol)
    return title if value is None else f"{title}, {SYMBOLS[protocol]} = {value:g}"


def _score_title(score: str) -> str:
    named = {
        "ad": "AD",
        "sdad": "SDAD",
        "worst10": "accuracy of the worst tenth",
        "macro_f1": "macro F1",
        "tau": r"$\tau$",
    }
    return named.get(score, style.plain(score.replace("_", " ")))


def _infeasible(protocol: str, level: float, num_clients: int) -> str:
    return f"left out, because infeasible: {TITLES[protocol]} {level:g} with {num_clients} clients"


def _table(rows: list[dict[str, Any]], dataset: Dataset) -> pd.DataFrame:
    if not rows:
        raise InfeasiblePartition(f"no partition of {dataset.name} that was asked for is feasible: take fewer clients")
    return pd.DataFrame(rows)


READING = tuple(Config().reading)
DATA = ("dataset", *(option for option in READING if option != "client"), "num_clients", "seeds")
RUNS = ("runs", "where", "dataset", "num_clients", "seeds")


@dataclass(frozen=True)
class Kind:
    """A kind of figure: how and from what it is drawn, what it shows, which fields of a request it uses."""

    draw: Callable[[Request], Drawing]
    needs: str
    shows: str
    takes: tuple[str, ...]


LEVELS_OF_BOTH = ("alphas", "similarities")
FIGURES = {
    "skew-dirichlet": Kind(_skew("dirichlet"), "labels", "WPSI with HD, JSD and EMD over alpha", (*DATA, "alphas")),
    "skew-similarity": Kind(_skew("similarity"), "labels", "WPSI with HD, JSD and EMD over S", (*DATA, "similarities")),
    "partition": Kind(
        _partition, "labels", "which client has how much of which class", (*DATA, *LEVELS_OF_BOTH, "client")
    ),
    "silhouette": Kind(
        _silhouette, "labels", "silhouette over the number of clusters, for several K", (*DATA, *LEVELS_OF_BOTH)
    ),
    "tau": Kind(_tau, "labels", "the chosen number of clusters over K", (*DATA, *LEVELS_OF_BOTH)),
    "accuracy-dirichlet": Kind(
        _accuracy("dirichlet"), "runs", "global accuracy over alpha and K, all methods", (*RUNS, "alphas", "score")
    ),
    "accuracy-similarity": Kind(
        _accuracy("similarity"), "runs", "global accuracy over S and K, all methods", (*RUNS, "similarities", "score")
    ),
    "rounds": Kind(
        _rounds, "runs", "learning curves: a score over rounds, all methods", (*RUNS, *LEVELS_OF_BOTH, "score")
    ),
    "local-ecdf": Kind(
        _local_ecdf, "runs", "distribution of the clients' local accuracy, all methods", (*RUNS, *LEVELS_OF_BOTH)
    ),
    "importances": Kind(_importances, "a study", "importance of the measures for predicting alpha and S", ("study",)),
}
