"""The paper's figures, each with the data behind it.

Skew, silhouettes, numbers of clusters and partitions need labels only; accuracies come from a store of runs, and
importances from the tables of ``clustpsi study metrics``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from clustpsi import skew
from clustpsi.clustering import PSIClustering
from clustpsi.datasets import Dataset, load_dataset
from clustpsi.errors import ClustPSIError, InfeasiblePartition, unknown_name
from clustpsi.experiments.study import LEVELS, MEASURES, draw_counts
from clustpsi.federation import build_federation
from clustpsi.report import style
from clustpsi.report.paper import DATASETS, SEEDS
from clustpsi.report.runs import read_runs, select
from clustpsi.report.tables import check_comparable, method_order, method_title
from clustpsi.results import Store, write_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SYMBOLS = {"dirichlet": r"$\alpha$", "similarity": r"$S$"}
TITLES = {"dirichlet": "Dirichlet", "similarity": "Similarity"}


@dataclass(frozen=True)
class Request:
    """What a figure is to show; None stands for the figure's own default."""

    dataset: str | None = None
    data_dir: Path | None = None
    label: str | None = None
    num_clients: tuple[int, ...] | None = None
    alphas: tuple[float, ...] | None = None
    similarities: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    runs: Path | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    study: Path | None = None

    def load(self) -> Dataset:
        return load_dataset(self.dataset or "digits", data_dir=self.data_dir, label=self.label)

    def levels(self, protocol: str, default: tuple[float, ...]) -> tuple[float, ...]:
        given = self.alphas if protocol == "dirichlet" else self.similarities
        return default if given is None else given


@dataclass
class Drawing:
    """A figure, the data it shows, and what should be said about it."""

    figure: "Figure"
    data: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> Path:
        """Write the figure, and its data beside it as CSV; gives the path of the data."""
        beside = path.with_suffix(".csv")
        with style.publication_style():
            style.save(self.figure, path)
        write_csv(beside, {str(key): self.data[key].tolist() for key in self.data})
        return beside


def draw(name: str, request: Request) -> Drawing:
    """A figure by its name, one of `FIGURES`."""
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    with style.publication_style():
        return FIGURES[name].draw(request)


# ---------------------------------------------------------------------------------------------------- from labels


def _skew(protocol: str) -> Callable[[Request], Drawing]:
    """WPSI and, on the right axis, the other measures over the level; a panel a number of clients."""

    def draw(request: Request) -> Drawing:
        dataset = request.load()
        sizes = np.bincount(dataset.labels, minlength=dataset.num_classes).tolist()
        levels = sorted(request.levels(protocol, LEVELS[protocol]))
        clients = request.num_clients or (100,)
        rows: list[dict[str, Any]] = []
        notes: list[str] = []
        for num_clients in clients:
            for level in levels:
                try:
                    for seed in request.seeds or SEEDS:
                        counts = draw_counts(dataset.name, sizes, protocol, num_clients, level, seed)
                        where = {"dataset": dataset.name, "partitioner": protocol, "num_clients": num_clients}
                        rows.append(where | {"level": level, "seed": seed} | skew.measures(counts))
                except InfeasiblePartition:
                    notes.append(_infeasible(protocol, level, num_clients))
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
    """The silhouette of every number of clusters, on the partitions that ``clustpsi run`` has for the same settings."""
    dataset = request.load()
    rows, notes = [], []
    for protocol, default in (("dirichlet", (0.3,)), ("similarity", (0.0,))):
        for level in request.levels(protocol, default):
            for num_clients in request.num_clients or default_clients:
                try:
                    for seed in request.seeds or SEEDS:
                        counts = build_federation(dataset, protocol, level, num_clients, seed).label_counts
                        clustering = PSIClustering(random_state=seed).fit(counts)
                        where = {"dataset": dataset.name, "partitioner": protocol, "level": level}
                        where |= {"num_clients": num_clients, "seed": seed, "wpsi": clustering.wpsi_}
                        chosen = clustering.n_clusters_
                        for tau, score in clustering.silhouette_scores_.items():
                            rows.append({**where, "tau": tau, "silhouette": score, "chosen": tau == chosen})
                except InfeasiblePartition:
                    notes.append(_infeasible(protocol, level, num_clients))
    return dataset, _table(rows, dataset), notes


def _silhouette(request: Request) -> Drawing:
    """Silhouette over the number of clusters, a line a number of clients; the chosen number is marked."""
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
            size = 4 + step * (len(clients) - 1 - i)  # what is drawn first shows around what comes on top
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
        axes.set_title(f"{_title(dataset.name)}, {TITLES[protocol]}, {SYMBOLS[protocol]} = {level:g}")
    panels[0].set_ylabel("silhouette")
    _legend(figure, panels)
    return Drawing(figure, data, notes)


def _tau(request: Request) -> Drawing:
    """The chosen number of clusters over the number of clients, a line a level; small points are single seeds."""
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
            shift = 0.12 * (i - (len(levels) - 1) / 2)  # so that points of different levels do not hide each other
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
    """Who has which labels: classes by clients, sizes of clients above; a panel a partition, of the first seed."""
    dataset = request.load()
    num_clients, seed = (request.num_clients or (20,))[0], (request.seeds or SEEDS)[0]
    rows, notes, shown = [], [], []
    for protocol, default in (("dirichlet", (0.3,)), ("similarity", (0.0,))):
        for level in request.levels(protocol, default):
            try:
                counts = build_federation(dataset, protocol, level, num_clients, seed).label_counts
            except InfeasiblePartition:
                notes.append(_infeasible(protocol, level, num_clients))
                continue
            shown.append((protocol, level, counts))
            where = {"dataset": dataset.name, "partitioner": protocol, "level": level, "seed": seed}
            for (client, label), samples in np.ndenumerate(counts):
                rows.append({**where, "client": client, "class": dataset.class_names[label], "samples": samples})
    data = _table(rows, dataset)
    figure, panels = _panels(len(shown), height=2 + 0.15 * min(max(dataset.num_classes, 6), 30), rows=2, ratios=(1, 3))
    for i, (protocol, level, counts) in enumerate(shown):
        sizes, axes = panels[i], panels[len(shown) + i]
        sizes.bar(range(num_clients), counts.sum(axis=1), width=0.8, color=style.GREY)
        sizes.set_xlim(-0.5, num_clients - 0.5)
        sizes.tick_params(labelbottom=False)
        sizes.set_title(f"{_title(dataset.name)}, {TITLES[protocol]}, {SYMBOLS[protocol]} = {level:g}")
        shares = (counts / counts.sum(axis=1, keepdims=True)).T
        picture = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("client")
        named = i == 0
        axes.set_yticks(range(dataset.num_classes), dataset.class_names if named else [""] * dataset.num_classes)
    panels[0].set_ylabel("samples")
    panels[len(shown)].set_ylabel("class")
    bar = figure.colorbar(picture, ax=panels[len(shown) :], fraction=0.03, pad=0.02)
    bar.set_label("share of client")
    return Drawing(figure, data, notes)


# ------------------------------------------------------------------------------------------------------ from runs


def _accuracy(protocol: str) -> Callable[[Request], Drawing]:
    """Global accuracy over the level, mean over seeds, a panel a number of clients; centralized learning as a line."""

    def draw(request: Request) -> Drawing:
        runs, notes = _runs(request)
        central = runs[runs["method"] == "centralized"]["global_accuracy"]
        runs = runs[(runs["partitioner"] == protocol) & (runs["method"] != "centralized")]
        if runs.empty:
            raise ClustPSIError(f"{request.runs} has no finished runs with the {protocol} partition")
        keys = ["dataset", "partitioner", "num_clients", "level", "agg_method"]
        scores = runs.groupby(keys, sort=False)["global_accuracy"]
        data = pd.DataFrame({"mean": scores.mean(), "std": scores.std(ddof=0), "seeds": scores.count()}).reset_index()
        levels = sorted(data["level"].unique())
        clients = sorted(data["num_clients"].unique())
        figure, panels = _panels(len(clients), height=3.2, width=style.TWO_COLUMNS, same_y=True)
        for num_clients, axes in zip(clients, panels, strict=True):
            part = data[data["num_clients"] == num_clients]
            methods = method_order(data["agg_method"].unique())
            for method, shift in zip(methods, np.linspace(-0.2, 0.2, len(methods)), strict=True):
                line = part[part["agg_method"] == method].sort_values("level")
                x = [levels.index(level) + shift for level in line["level"]]  # beside each other, not on top
                look = _method_look(method)
                axes.errorbar(x, line["mean"], yerr=line["std"], elinewidth=0.5, capsize=1.2, capthick=0.5, **look)
            if len(central):
                axes.axhline(central.mean(), color=style.GREY, linestyle=(0, (6, 2)), label="centralized", zorder=1)
            _name_levels(axes, protocol, levels)
            axes.set_title(f"{_title(data['dataset'][0])}, $K={num_clients}$")
        panels[0].set_ylabel("global accuracy")
        _legend(figure, panels)
        return Drawing(figure, data, notes)

    return draw


def _local_ecdf(request: Request) -> Drawing:
    """Share of clients with at most this accuracy, all seeds together; a panel a partition, at the largest K."""
    runs, notes = _runs(request)
    runs = runs[runs["method"] != "centralized"]
    num_clients = runs["num_clients"].max()
    if pd.notna(num_clients):
        runs = runs[runs["num_clients"] == num_clients]
    assert request.runs is not None
    keys = ["dataset", "partitioner", "level", "num_clients", "agg_method", "seed"]
    shown = {tuple(_none(value) for value in row) for row in runs[keys].astype(object).to_numpy()}
    tables = []
    for folder in Store(request.runs):
        config = folder.config()
        row = (
            config.dataset,
            config.partitioner,
            config.non_iid_param,
            config.num_clients,
            config.agg_method,
            config.seed,
        )
        if row in shown and not config.validation and folder.finished:
            accuracy = folder.accuracy()
            accuracy = accuracy[accuracy["round"] == accuracy["round"].max()].dropna(subset="accuracy")
            tables.append(accuracy[["client", "accuracy"]].assign(**dict(zip(keys, row, strict=True))))
    data = pd.concat(tables, ignore_index=True)
    ordered = data.sort_values(["partitioner", "level"], ascending=[True, False])
    kinds = list(dict.fromkeys(zip(ordered["partitioner"], ordered["level"], strict=True)))
    columns = min(3, len(kinds))
    lines = -(-len(kinds) // columns)
    width = style.TWO_COLUMNS
    figure, panels = _panels(columns, height=0.8 + 1.9 * lines, rows=lines, width=width, same_y=True, same_x=True)
    for kind, axes in zip(kinds, panels, strict=False):
        part = data[(data["partitioner"] == kind[0]) & (data["level"] == kind[1])]
        for i, method in enumerate(method_order(data["agg_method"].unique())):
            values = np.sort(part.loc[part["agg_method"] == method, "accuracy"].to_numpy())
            if not values.size:
                continue
            look = _method_look(method) | {
                "drawstyle": "steps-post",
                "markevery": (0.02 + 0.015 * i, 0.25),
                "markersize": 3.5,
            }
            share = np.arange(1, len(values) + 1) / len(values)
            axes.plot(np.append(values, 1.0), np.append(share, 1.0), **look)
        level = "" if np.isnan(kind[1]) else f", {SYMBOLS[kind[0]]} = {kind[1]:g}"
        axes.set_title(f"{TITLES.get(kind[0], kind[0])}{level}")
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xticks(np.linspace(0, 1, 6))
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    for i, axes in enumerate(panels[: len(kinds)]):
        axes.set_xlabel("local accuracy" if i + columns >= len(kinds) else "")
        axes.set_ylabel("share of clients" if i % columns == 0 else "")
        axes.tick_params(labelbottom=i + columns >= len(kinds))
    _legend(figure, panels[: len(kinds)])
    notes.append(f"{_title(data['dataset'][0])}, {num_clients:g} clients")
    return Drawing(figure, data, notes)


# ----------------------------------------------------------------------------------------------------- from the study


def _importances(request: Request) -> Drawing:
    """What each measure tells of the level, by model: importance among all measures, above; R2 alone, below."""
    folder = request.study or Path("study")
    try:
        importances, scores = (pd.read_csv(folder / f"{name}.csv") for name in ("importances", "scores"))
    except OSError:
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
    """A group of bars a model, a bar a measure; where there is a value to mark, a point."""
    titles = {"lightgbm": "LightGBM", "svm": "SVM", "mlp": "MLP", "tree": "Tree"}
    models, measures = data["model"].unique(), data["measure"].unique()
    width = 0.8 / len(measures)
    for i, measure in enumerate(measures):
        title, colour, _, _, hatch = style.MEASURES[measure]
        rows = data[data["measure"] == measure]
        x = np.arange(len(models)) + (i - (len(measures) - 1) / 2) * width
        face = colour if measure == "wpsi" else "white"
        look: dict[str, Any] = {"facecolor": face, "edgecolor": colour, "hatch": hatch, "linewidth": 0.8}
        axes.bar(x, rows[column].clip(lower=0), width * 0.9, label=title, **look)
        if mark is not None:
            label = "model's own" if measure == measures[-1] else None
            axes.plot(x, rows[mark], "o", color=style.GREY, markeredgecolor="white", markersize=5, label=label)
    axes.set_xticks(range(len(models)), [titles[model] for model in models])
    axes.grid(visible=False, axis="x")


# ------------------------------------------------------------------------------------------------------------- parts


def _runs(request: Request) -> tuple[pd.DataFrame, list[str]]:
    """The finished runs on one data set that were scored on test data, a row each, and what could not be read."""
    if request.runs is None:
        raise ClustPSIError("this figure is made from runs: say where they are with --runs")
    runs, problems = read_runs(request.runs)
    runs = select(runs, request.where)
    runs = runs[(runs["status"] == "finished") & ~runs["validation"].astype("boolean").fillna(False)]
    if runs.empty:
        raise ClustPSIError(f"{request.runs} has no finished run scored on test data: make some with clustpsi run")
    names = sorted(runs["dataset"].unique())
    if request.dataset is None and len(names) > 1:
        raise ClustPSIError(f"{request.runs} has runs on {', '.join(names)}: choose one with --dataset")
    dataset = request.dataset or names[0]
    if dataset not in names:
        raise unknown_name(f"dataset in {request.runs}", dataset, names)
    runs = runs[runs["dataset"] == dataset]
    method = runs["agg_method"].str.partition(":")[0]
    levels = {"dirichlet": request.alphas, "similarity": request.similarities}
    for name, wanted in levels.items():
        if wanted is not None:
            runs = runs[(runs["partitioner"] != name) | runs["non_iid_param"].isin(wanted)]
    for column, numbers in (("num_clients", request.num_clients), ("seed", request.seeds)):
        if numbers is not None:
            runs = runs[runs[column].isin(numbers) | (method.loc[runs.index] == "centralized")]
    if runs.empty:
        raise ClustPSIError(f"{request.runs} has no finished run on {dataset} with what was asked for")
    check_comparable(runs, f"the runs in {request.runs}")
    runs = runs.rename(columns={"non_iid_param": "level", "last_global_accuracy": "global_accuracy"})
    return runs.assign(method=method.loc[runs.index]).reset_index(drop=True), problems


def _method_look(spec: str) -> dict[str, Any]:
    return {"label": method_title(spec), **style.method_style(spec)}


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
    """A figure with panels: as wide as a column for a single one, else as two."""
    from matplotlib.figure import Figure

    inches = width or (style.ONE_COLUMN if columns == 1 else style.TWO_COLUMNS)
    figure = Figure(figsize=(inches, height), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=same_y, sharex=same_x, height_ratios=ratios, squeeze=False)
    return figure, list(panels.ravel())


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
    """Levels at equal distances, each with its name."""
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels], rotation=60 if len(levels) > 6 else 0)
    axes.set_xlim(-0.4, len(levels) - 0.6)
    axes.set_xlabel(SYMBOLS[protocol])


def _none(value: Any) -> Any:
    """A missing value as a run's configuration has it."""
    return None if pd.isna(value) else value


def _plain_ticks(axes: "Axes", ticks: Sequence[int], most: int) -> None:
    shown = [tick for tick in ticks if tick <= most]
    axes.set_xticks(shown, [str(tick) for tick in shown])
    axes.set_xticks([], minor=True)


def _title(dataset: str) -> str:
    return DATASETS.get(dataset, Path(dataset).stem)


def _infeasible(protocol: str, level: float, num_clients: int) -> str:
    return f"left out, because infeasible: {TITLES[protocol]} {level:g} with {num_clients} clients"


def _table(rows: list[dict[str, Any]], dataset: Dataset) -> pd.DataFrame:
    if not rows:
        raise InfeasiblePartition(f"no partition of {dataset.name} that was asked for is feasible: take fewer clients")
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Kind:
    """A figure that can be asked for."""

    draw: Callable[[Request], Drawing]
    needs: str
    shows: str


FIGURES = {
    "skew-dirichlet": Kind(_skew("dirichlet"), "labels", "WPSI with HD, JSD and EMD over alpha"),
    "skew-similarity": Kind(_skew("similarity"), "labels", "WPSI with HD, JSD and EMD over S"),
    "partition": Kind(_partition, "labels", "which client has how much of which class"),
    "silhouette": Kind(_silhouette, "labels", "silhouette over the number of clusters, for several K"),
    "tau": Kind(_tau, "labels", "the chosen number of clusters over K"),
    "accuracy-dirichlet": Kind(_accuracy("dirichlet"), "runs", "global accuracy over alpha and K, all methods"),
    "accuracy-similarity": Kind(_accuracy("similarity"), "runs", "global accuracy over S and K, all methods"),
    "local-ecdf": Kind(_local_ecdf, "runs", "distribution of the clients' local accuracy, all methods"),
    "importances": Kind(_importances, "study", "importance of the measures for predicting alpha and S"),
}
