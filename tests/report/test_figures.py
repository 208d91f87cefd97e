"""Figures: every one can be drawn, shows what its data says, reads well, and comes out the same every time."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from clustpsi.errors import ClustPSIError, InfeasiblePartition
from clustpsi.experiments import study, study_partitions
from clustpsi.methods import method_types, short_spec
from clustpsi.report import figures, look, style
from clustpsi.report.figures import FIGURES, Request, draw
from clustpsi.runs.config import Config
from clustpsi.runs.frame import read_runs, write_runs
from clustpsi.runs.store import Store, write_csv, write_json
from helpers import clustpsi

VARIANTS = ("clust_psi_pfl:psi_features=signed", "cfl:cfl_preset=relative")  # with long names
FEW = 4  # methods that also ran with few clients


def write_run(store: Store, accuracy: float, local: list[float], **settings: object) -> None:
    """A finished run as a store has it, without the training."""
    clients = {} if "client" in settings else {"num_clients": len(local)}
    config = Config(**clients | settings).checked()  # type: ignore[arg-type]
    folder = store.folder(config)
    folder.create(config)
    rounds = {"round": np.repeat([0, 40], len(local)), "client": [str(i) for i in range(len(local))] * 2}
    scores = {"accuracy": [0.0] * len(local) + local, "loss": 1.0}
    pd.DataFrame({**rounds, **scores}).to_parquet(folder / "accuracy.parquet")
    curve = {"round": [0, 20, 40], "global_accuracy": [0.1, 0.3, accuracy], "ad": [0.9, 0.7, 1 - accuracy]}
    write_csv(folder / "rounds.csv", {**curve, "participants": [0, 4, 4]})
    write_csv(folder / "clients.csv", {"client": rounds["client"][: len(local)], "count_a": [1] * len(local)})
    last = {"round": 40, "global_accuracy": accuracy, "ad": 1 - accuracy, "sdad": 0.1, "worst10": 0.1, "loss": 1.0}
    totals = dict.fromkeys(("num_parameters", "tau", "participants", "left_out", "bytes_up", "bytes_down"), 1)
    write_json(folder / "summary.json", {"last": last, "best": last, "skew": {"wpsi": 1.0}, **totals})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several levels, numbers of clients and seeds; with most clients, all methods."""
    root = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    cells = [("dirichlet", 0.3), ("similarity", 1.0), ("similarity", 0.03)]
    for i, method in enumerate([*method_types(), *VARIANTS]):
        for seed, clients in itertools.product((42, 0), (4, 8) if i < FEW else (8,)):
            for partitioner, level in [("iid", None)] if method == "centralized" else cells:
                local = rng.uniform(size=clients).tolist()
                where = {"partitioner": partitioner, "non_iid_param": level, "seed": seed, "agg_method": method}
                write_run(Store(root), 0.5 + 0.01 * i + 0.1 * (seed == 0), local, **where)
    return root


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    sizes = {"a": (700, 500, 300), "b": (400, 400)}
    small = study_partitions.StudySettings(sizes, num_clients=(5,), alphas=(10, 0.5), similarities=(1, 0), seeds=8)
    study.analyse(study_partitions.draw_partitions(small, folder), models=("svm", "tree")).write(folder)
    return folder


@pytest.fixture
def request_() -> Request:
    return Request(num_clients=(4, 8), seeds=(42, 0))


@pytest.fixture
def requests(request_: Request, runs: Path, studied: Path) -> dict[str, Request]:
    """What to ask of each figure, by what it is made from."""
    return {"labels": request_, "runs": replace(request_, runs=runs), "a study": Request(study=studied)}


def texts(figure: Figure) -> list[tuple[str, str, Bbox]]:
    """Everything written in a figure: what kind of text it is, the text, and the rectangle it takes."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    found: list[tuple[str, Text]] = []
    for i, axes in enumerate(panel for panel in figure.axes if panel.get_visible()):
        found.append((f"title {i}", axes.title))
        for axis in (axes.xaxis, axes.yaxis):
            found.append((f"label {i}", axis.label))
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high:
                    found += [(f"{axis.axis_name} ticks {i}", label) for label in (tick.label1, tick.label2)]
        if axes.get_legend() is not None:
            found += [(f"legend {i}", text) for text in axes.get_legend().get_texts()]
    found += [("text", text) for text in figure.texts]
    shown = [(kind, text) for kind, text in found if text.get_visible() and text.get_text().strip()]
    boxes = [(kind, text.get_text(), text.get_window_extent(renderer)) for kind, text in shown]
    return boxes + [("legend", "legend", legend.get_window_extent(renderer)) for legend in figure.legends]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_and_readable(name: str, requests: dict[str, Request], tmp_path: Path) -> None:
    request = requests[FIGURES[name].needs]
    if FIGURES[name].needs == "labels" and "alphas" in FIGURES[name].takes:
        request = replace(request, alphas=(0.3, 50.0))
    drawing = draw(name, request)
    page = drawing.figure.bbox
    with style.publication_style():
        seen = texts(drawing.figure)
    assert len(seen) > 12
    for _, text, box in seen:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        assert inside, f"{text!r} leaves the page"
    for (kind, one, a), (other_kind, other, b) in itertools.combinations(seen, 2):
        if kind == other_kind and kind.startswith("x ticks"):
            continue  # they may be turned, and then their rectangles say little
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(wide, high) < 1, f"{one!r} and {other!r} overlap"
    beside = drawing.write(tmp_path / f"{name}.png")
    assert len(pd.read_csv(beside)) == len(drawing.data) > 0


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_figure_is_the_same_file(suffix: str, start: bytes, request_: Request, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{i}.{suffix}" for i in range(2))
    for path in (first, second):
        draw("skew-similarity", replace(request_, similarities=(0.0, 1.0))).write(path)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(start)
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()


def test_fonts_are_embedded_as_text(request_: Request, tmp_path: Path) -> None:
    draw("skew-similarity", request_).write(tmp_path / "figure.pdf")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in content and b"/Type3" not in content


def test_users_settings_of_matplotlib_do_not_matter(request_: Request, tmp_path: Path) -> None:
    few = replace(request_, similarities=(0.0, 1.0))
    draw("skew-similarity", few).write(tmp_path / "usual.svg")
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.grid": False}):
        draw("skew-similarity", few).write(tmp_path / "unusual.svg")
        assert mpl.rcParams["font.size"] == 20
    assert (tmp_path / "usual.svg").read_bytes() == (tmp_path / "unusual.svg").read_bytes()


def test_a_figure_may_have_more_lines_than_there_are_markers() -> None:
    many = tuple(range(3, 3 + len(look.MARKERS) + 1))
    request = Request(num_clients=many, alphas=(50.0,), similarities=(1.0,), seeds=(0,))
    assert set(draw("silhouette", request).data["num_clients"]) == set(many)
    looks = [style.series_style(place) for place in range(24)]
    assert len({(each["color"], each["linestyle"]) for each in looks}) == len(looks)


def test_methods_and_measures_differ_by_more_than_colour() -> None:
    looks = [style.method_style(name) for name in (*method_types(), *VARIANTS)]
    assert len({(each["marker"], str(each["linestyle"])) for each in looks}) == len(looks) >= 15
    own = [style.method_style(name) for name in method_types()]
    assert len({(each["marker"], each.get("markerfacecolor", "filled")) for each in own}) == len(own)
    assert not {"h", "H", "8"} & {each["marker"] for each in looks}, "too much like a pentagon or each other when small"
    assert len({own.marker for _, own in look.MEASURE_LOOKS.values()}) == len(look.MEASURE_LOOKS)
    assert len({hatch for _, hatch in style.MEASURE_LINES.values()}) == len(look.MEASURE_LOOKS)


def test_skew_falls_with_similarity() -> None:
    data = draw("skew-similarity", Request(num_clients=(10,), seeds=(1, 2))).data
    by_level = data.groupby("level")[["wpsi", "hellinger", "jensen_shannon", "earth_mover"]].mean()
    assert (by_level[["wpsi", "hellinger", "jensen_shannon"]].diff().dropna() < 0).all(axis=None)
    assert by_level["earth_mover"].idxmax() not in (0, 1)  # blind to which class it is: low at both ends


def test_silhouette_and_tau_of_a_balanced_binary_data_set(tmp_path: Path) -> None:
    """Sorted by label, clients have one class each: two clusters, silhouette 1 (the specification's oracle)."""
    table = tmp_path / "balanced.csv"
    pd.DataFrame({"x": np.arange(400) / 8, "y": np.repeat(["no", "yes"], 200)}).to_csv(table, index=False)
    request = Request(dataset=str(table), reading={"label": "y"}, num_clients=(10, 20), alphas=(5.0,), seeds=(0, 1))
    data = draw("tau", request).data
    sorted_ = data[data["partitioner"] == "similarity"]
    assert sorted_["tau"].tolist() == [2] * 4
    np.testing.assert_allclose(sorted_["silhouette"], 1)
    tried = draw("silhouette", request).data
    one = tried[(tried["partitioner"] == "dirichlet") & (tried["num_clients"] == 20) & (tried["seed"] == 0)]
    assert one["tau"].min() == 2 and one["chosen"].sum() == 1
    assert one["silhouette"].max() == one.loc[one["chosen"], "silhouette"].item()


def test_partition_shows_every_training_sample_once() -> None:
    data = draw("partition", Request(num_clients=(6,), seeds=(3,))).data
    totals = data.groupby(["partitioner", "client"])["samples"].sum()
    assert totals["dirichlet"].sum() == pytest.approx(1797 * 0.8, abs=6)
    assert totals["similarity"].nunique() == 1


def test_accuracy_is_the_mean_over_seeds(requests: dict[str, Request]) -> None:
    data = draw("accuracy-similarity", requests["runs"]).data
    place = list(method_types()).index("fedprox")
    row = data[(data["agg_method"] == "fedprox") & (data["num_clients"] == 8) & (data["level"] == 0.03)].iloc[0]
    assert (row["mean"], row["std"], row["seeds"]) == pytest.approx((0.5 + 0.01 * place + 0.05, 0.05, 2))
    assert set(map(short_spec, data["agg_method"])) == {*method_types(), *VARIANTS} - {"centralized"}
    distances = draw("accuracy-similarity", replace(requests["runs"], score="ad"))
    np.testing.assert_allclose(distances.data["mean"], 1 - data["mean"])
    assert "centralized" not in distances.figure.axes[0].get_legend_handles_labels()[1]
    with pytest.raises(ClustPSIError, match="none of these runs has macro_f1"):
        draw("accuracy-similarity", replace(requests["runs"], score="macro_f1"))


def test_local_accuracy_is_of_the_last_round_and_the_most_clients(requests: dict[str, Request]) -> None:
    data = draw("local-ecdf", requests["runs"]).data
    cells = data.groupby(["partitioner", "level", "agg_method", "seed"])["accuracy"]
    assert (cells.count() == 8).all() and (cells.min() > 0).all()
    assert len(cells) == 3 * (len(method_types()) + len(VARIANTS) - 1) * 2


def test_finding_2_only_the_chosen_runs_are_shown(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_run(store, 0.5, [0.5, 0.5])
    write_run(store, 0.9, [0.9, 0.9], lr=0.1)
    write_run(store, 0.7, [0.7, 0.7], lr=0.1, comm_rounds=9)
    request = Request(runs=tmp_path, where={"lr": "0.1", "comm_rounds": "40"})
    assert draw("local-ecdf", request).data["accuracy"].tolist() == [0.9, 0.9]
    assert draw("rounds", request).data["mean"].tolist() == [0.1, 0.3, 0.9]
    write_run(store, 0.9, [0.9, 0.9], lr=0.1, eval_every=20)  # the same run, looked at less often
    assert draw("local-ecdf", request).data["accuracy"].tolist() == [0.9, 0.9]
    assert draw("rounds", request).data["seeds"].tolist() == [1, 1, 1]


def test_runs_on_natural_and_iid_clients_have_panels_too(tmp_path: Path) -> None:
    for settings in ({"partitioner": "iid"}, {"client": "who", "dataset": "a.csv", "label": "y"}):
        store = Store(tmp_path / settings.get("partitioner", "natural"))
        write_run(store, 0.6, [0.5, 0.7], **settings)
        for name in ("local-ecdf", "rounds"):
            drawing = draw(name, Request(runs=store.root))
            assert len(drawing.figure.axes) == 1 and len(drawing.figure.axes[0].lines) == 1
    assert "a.csv, natural clients" in drawing.notes[0]


def test_learning_curves_are_means_over_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    for seed, accuracy in enumerate((0.6, 0.8)):
        write_run(store, accuracy, [0.5] * 4, seed=seed, agg_method="fedavg", num_clients=4)
        write_run(store, 0.9, [0.5] * 4, seed=seed, agg_method="local", num_clients=4)
        write_run(store, 0.2, [0.5] * 2, seed=seed, agg_method="fedavg", num_clients=2)
        write_run(store, 0.99, [0.5] * 4, seed=seed, agg_method="centralized", partitioner="iid", num_clients=4)
    drawing = draw("rounds", Request(runs=store.root))
    data = drawing.data.set_index(["agg_method", "round"])
    assert data.loc[("fedavg", 40), ["mean", "std", "seeds", "num_clients"]].tolist() == pytest.approx([0.7, 0.1, 2, 4])
    (axes,) = drawing.figure.axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["FedAvg"], [0.1, 0.3, 0.7])
    np.testing.assert_allclose(lines["centralized"], [0.1, 0.3, 0.99])
    assert len(axes.collections) == 2  # bands
    assert set(draw("rounds", Request(runs=store.root, score="ad")).data["agg_method"]) == {"fedavg", "local"}
    trained = draw("rounds", Request(runs=store.root, score="participants", num_clients=(2,))).data
    assert trained.query("agg_method == 'fedavg'")["mean"].tolist() == [0, 4, 4]
    with pytest.raises(ClustPSIError, match="unknown score of rounds 'as': choose one of ad, global_accuracy"):
        draw("rounds", Request(runs=store.root, score="as"))
    with pytest.raises(ClustPSIError, match="unknown score of rounds 'round'"):
        draw("rounds", Request(runs=store.root, score="round"))
    csv = tmp_path / "runs.csv"
    csv.write_text(write_runs(read_runs(store.root)[0]))
    for name in ("rounds", "local-ecdf"):
        with pytest.raises(ClustPSIError, match="needs their folders: name a store"):
            draw(name, Request(runs=csv))
    damaged = next(folder for folder in store if folder.config().agg_method == "local")
    for name, file in (("rounds", "rounds.csv"), ("local-ecdf", "accuracy.parquet")):
        (damaged / file).write_bytes(b"")
        drawing = draw(name, Request(runs=store.root, where={"num_clients": "4"}))
        assert f"left out {damaged.path}, which is damaged" in drawing.notes[0]


def test_rounds_that_only_some_seeds_evaluated_are_not_averaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_run(store, 0.6, [0.5, 0.5], seed=0)
    write_run(store, 0.8, [0.5, 0.5], seed=1, eval_every=40)
    for folder in store:
        if folder.config().seed == 1:
            table = folder.rounds()
            table.loc[table["round"] == 20, "global_accuracy"] = np.nan
            table.to_csv(folder / "rounds.csv", index=False)
    data = draw("rounds", Request(runs=tmp_path)).data
    assert data["round"].tolist() == [0, 40] and data["seeds"].tolist() == [2, 2]


def test_natural_clients_of_a_file(tmp_path: Path) -> None:
    table = tmp_path / "a$b.csv"
    who = np.repeat(["Zürich $1 {x} $2", "Genève", "[b]ern"], (100, 60, 40))
    pd.DataFrame({"x": np.arange(200) / 8, "y": np.tile(["<$5", "$5^$"], 100), "who": who}).to_csv(table, index=False)
    request = Request(dataset=str(table), reading={"label": "y", "client": "who"}, seeds=(0,))
    drawing = draw("partition", request)
    assert drawing.data.groupby("client")["samples"].sum().to_dict() == {who[0]: 80, who[100]: 48, who[199]: 32}
    with style.publication_style():
        seen = [text for _, text, _ in texts(drawing.figure)]
    assert {r"Zürich \$1 {x} \$2", "Genève", "[b]ern", r"<\$5"} <= set(seen)
    drawing.write(tmp_path / "figure.pdf")
    many = tmp_path / "many.csv"
    pd.DataFrame({"x": np.arange(900) / 8, "y": [0, 1] * 450, "who": np.arange(900) // 5}).to_csv(many, index=False)
    drawing = draw("partition", Request(dataset=str(many), reading={"label": "y", "client": "who"}))
    shown = [text for kind, text, _ in texts(drawing.figure) if kind.startswith("x ticks")]
    assert "179" not in shown and len(shown) < 12  # numbers, where names do not fit
    with pytest.raises(ClustPSIError, match="--client shows the data's own clients, and --alphas"):
        draw("partition", replace(request, alphas=(0.5,)))
    with pytest.raises(ClustPSIError, match="the figure tau is made from labels and has no use for --client"):
        draw("tau", request)


@pytest.mark.parametrize("num_clients", [2, 4, 6, 20])
def test_finding_17_ticks_are_whole_clients(num_clients: int) -> None:
    drawing = draw("partition", Request(num_clients=(num_clients,), seeds=(3,), alphas=(5.0,)))
    ticks = [text for kind, text, _ in texts(drawing.figure) if kind.startswith("x ticks")]
    assert ticks and all(tick.isdigit() and int(tick) < num_clients for tick in ticks)


def test_options_that_a_figure_does_not_take_are_refused(runs: Path) -> None:
    with pytest.raises(ClustPSIError, match="is made from labels and has no use for --runs: it takes --dataset"):
        draw("tau", Request(runs=runs))
    with pytest.raises(ClustPSIError, match="no use for --seeds-list: it takes --study"):
        draw("importances", Request(seeds=(1,)))
    with pytest.raises(ClustPSIError, match="no use for --drop-unlabelled"):
        draw("rounds", Request(runs=runs, reading={"drop_unlabelled": True}))


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="no store of runs"):
        draw("local-ecdf", Request(runs=tmp_path / "nowhere"))
    store = Store(tmp_path)
    write_run(store, 0.5, [0.5, 0.5], seed=1)
    write_run(store, 0.9, [0.5, 0.5], seed=1, validation=True)
    assert draw("accuracy-dirichlet", Request(runs=tmp_path)).data["mean"].tolist() == [0.5]
    with pytest.raises(ClustPSIError, match="similarity partition"):
        draw("accuracy-similarity", Request(runs=tmp_path))
    write_run(store, 0.7, [0.5, 0.5], seed=1, lr=0.1)
    with pytest.raises(ClustPSIError, match=r"differ in lr .*--where lr="):
        draw("accuracy-dirichlet", Request(runs=tmp_path))
    assert draw("accuracy-dirichlet", Request(runs=tmp_path, where={"lr": "0.1"})).data["mean"].tolist() == [0.7]
    write_run(store, 0.7, [0.5, 0.5], seed=1, dataset="fmnist")
    with pytest.raises(ClustPSIError, match="digits, fmnist: choose one"):
        draw("accuracy-dirichlet", Request(runs=tmp_path))
    assert len(draw("accuracy-dirichlet", Request(runs=tmp_path, dataset="fmnist")).data) == 1


def test_infeasible_levels_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_partitions, "dirichlet_counts", partial(study_partitions.dirichlet_counts, max_passes=10))
    drawing = draw("skew-dirichlet", Request(num_clients=(60,), alphas=(0.01, 50.0), seeds=(1,)))
    assert drawing.data["level"].tolist() == [50.0]
    assert drawing.notes == ["left out, because infeasible: Dirichlet 0.01 with 60 clients"]
    with pytest.raises(ClustPSIError, match="take fewer clients"):
        draw("skew-dirichlet", Request(num_clients=(1000,), seeds=(1,)))


def test_finding_3_an_infeasible_level_shows_none_of_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def sometimes(make: Callable[..., Any], *given: Any) -> Any:
        if 7.0 in given and given[-1] == 1:  # the level's second seed
            raise InfeasiblePartition("none")
        return make(*given)

    monkeypatch.setattr(figures, "draw_counts", partial(sometimes, figures.draw_counts))
    monkeypatch.setattr(figures, "build_federation", partial(sometimes, figures.build_federation))
    for name in ("skew-dirichlet", "tau", "silhouette"):
        drawing = draw(name, Request(num_clients=(6,), alphas=(50.0, 7.0), seeds=(0, 1)))
        of_dirichlet = drawing.data[drawing.data["partitioner"] == "dirichlet"]
        assert set(of_dirichlet["level"]) == {50.0}
        assert "left out, because infeasible: Dirichlet 7 with 6 clients" in drawing.notes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    assert clustpsi("figure") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in FIGURES)
    out = tmp_path / "skew.svg"
    own = tmp_path / "own.csv"
    own.write_text("the user's")
    few = ["--num-clients", "5", "--similarities", "0,1", "--seeds-list", "1"]
    assert clustpsi("figure", "skew-similarity", *few, "--output", str(out)) == 0
    assert capsys.readouterr().out.split() == [str(out), str(out.with_suffix(".csv"))]
    assert out.exists() and len(pd.read_csv(out.with_suffix(".csv"))) == 2
    birds = tmp_path / "birds.csv"
    birds.write_text("size;kind;where\n" + "".join(f"{i / 8};{'ab'[i % 2]};{'xyz'[i % 3]}\n" for i in range(60)))
    natural = ["--dataset", str(birds), "--label", "kind", "--client", "where", "--sep", ";"]
    assert clustpsi("figure", "partition", *natural, "--output", str(tmp_path / "sites.png")) == 0
    assert set(pd.read_csv(tmp_path / "sites.csv")["client"]) == {"x", "y", "z"}
    capsys.readouterr()
    for wrong, message in (
        (["partition", *natural, "--num-clients", "5"], "--client shows the data's own clients"),
        (["skew-dirichet"], "did you mean 'skew-dirichlet'"),
        (["tau", "--output", str(tmp_path / "tau.jpg")], "written as .pdf, .svg, .png"),
        (["importances", "--study", str(tmp_path)], "clustpsi study metrics"),
        (["tau", "--num-clients", "x"], "whole numbers"),
        (["tau", "--dataset", "nosuch.csv", "--output", "/nosuch/x.pdf"], "there is no folder /nosuch"),
        (["accuracy-dirichlet", "--runs", str(own), "--output", str(own.with_suffix(".pdf"))], "would replace"),
        (["partition", "--dataset", str(own), "--output", str(own.with_suffix(".svg"))], "would replace"),
        (["local-ecdf", "--runs", str(runs), "--dataset", "digit"], "did you mean 'digits'"),
        (["local-ecdf", "--runs", str(runs), "--where", "lr"], "setting=value"),
    ):
        assert clustpsi("figure", *wrong) == 2
        assert message in capsys.readouterr().err
    assert own.read_text() == "the user's"
