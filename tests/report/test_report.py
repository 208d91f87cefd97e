"""The report: one file that opens anywhere, shows the runs' own numbers, and takes names for text."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from browser import chromium, opened
from clustpsi import skew
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import constant_answers
from clustpsi.methods import method_types
from clustpsi.report import answers, page
from clustpsi.report.cells import Cell, find_cells, find_runs
from clustpsi.runs.config import Config
from clustpsi.runs.store import RunFolder, Store, write_csv, write_json
from helpers import clustpsi

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = ["<b>north</b>", "</script><script>window.hacked=1</script>", "{{ 7*7 }}", '"><img src=x onerror="hacked=1">']
LABELS = ["<i>cat</i>", "</script><script>window.hacked=1</script>"]
METHODS = ("fedavg", "local", "clust_psi_pfl")
SCORES = ("global_accuracy", "balanced_accuracy", "macro_f1", "ad", "sdad", "worst10")


def write_run(
    store: Store,
    method: str,
    seed: int,
    accuracy: float,
    *,
    clients: int = 6,
    names: list[str] | None = None,
    **settings: Any,
) -> RunFolder:
    """A finished run as a store has it, without the training."""
    config = Config(**{"num_clients": clients, "agg_method": method, "seed": seed} | settings).checked()
    folder = store.folder(config)
    folder.create(config)
    rng = np.random.default_rng(seed)
    mixes, sizes = rng.dirichlet(np.full(3, 0.3), clients), rng.integers(20, 200, clients)
    train, test = (
        np.array([rng.multinomial(size // part, mix) for size, mix in zip(sizes, mixes, strict=True)])
        for part in (1, 4)
    )
    names = names or [f"site {i}" for i in range(clients)]
    folder.write_clients(names, ["a", "b", "c"], train, test)
    local = np.clip(rng.normal(accuracy, 0.1, clients), 0, 1)
    rows = {"round": np.repeat([0, 5], clients), "client": names * 2, "accuracy": np.concatenate([local / 9, local])}
    pd.DataFrame({**rows, "loss": 1.0}).to_parquet(folder / "accuracy.parquet")
    write_csv(folder / "rounds.csv", {"round": [0, 5], "global_accuracy": [0.1, accuracy], "participants": [0, 3]})
    last = dict.fromkeys(SCORES, accuracy) | {"round": 5, "loss": 1.0, "ad": 1 - accuracy}
    constant = {
        who: {key: getattr(scores, key) for key in SCORES} for who, scores in constant_answers(train, test).items()
    }
    totals = {"tau": None, "participants": 3, "left_out": 0, "bytes_up": 2_000_000, "bytes_down": 3_000_000}
    facts = {"model": "logistic", "num_parameters": 9, "notes": [], "constant": constant, **totals}
    write_json(folder / "timing.json", {"seconds": 1.5, "compilation": 0.0})
    write_json(folder / "summary.json", {"last": last, "best": last, "skew": skew.measures(train), **facts})
    return folder


def cells_of(root: Path) -> list[Cell]:
    return find_cells(find_runs([root])[0])


def plain(html: str) -> str:
    """The words of a page."""
    return re.sub(
        r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", html, flags=re.S)))
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three methods and two seeds on clients and classes with hostile names, and their report."""
    root = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=160), "z": rng.normal(size=160), "site": np.repeat(HOSTILE, 40)})
    odds = np.repeat([0.9, 0.7, 0.3, 0.1], 40)
    rows["kind"] = np.where(rng.uniform(size=160) < odds, *LABELS)
    rows.to_csv(root / "rows.csv", index=False)
    given = ["--dataset", str(root / "rows.csv"), "--label", "kind", "--client", "site", "--comm-rounds", "2"]
    given += ["--agg-method", ",".join(METHODS), "--seeds-list", "42,0,1", "--output", str(root / "runs"), "-q"]
    assert clustpsi("run", *given, "--report", str(root / "report.html")) == 0
    return root


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def wide(made: Path, browser: "Browser") -> "Iterator[Page]":
    with opened(browser, made / "report.html") as shown:
        yield shown


@pytest.fixture(scope="module")
def phone(made: Path, browser: "Browser") -> "Iterator[Page]":
    """On a small and dark screen."""
    with opened(browser, made / "report.html", width=390, dark=True) as shown:
        yield shown


# --------------------------------------------------------------------------------------------------------- in a browser


def chart_data(shown: "Page", title: str) -> Any:
    """The traces of a chart, with plain numbers."""
    box = shown.locator(f'.chart[aria-label^="{title}."]').first
    return box.evaluate(
        """(box) => box._fullData.map((trace) => ({
            name: trace.name, x: [...trace.x], y: [...trace.y],
            z: trace.z && [...trace.z].map((row) => [...row]),
            customdata: trace.customdata && [...trace.customdata].map((row) => row.length ? [...row] : row),
        }))"""
    )


def test_charts_and_tables_show_the_numbers_of_the_runs(made: Path, wide: "Page") -> None:
    runs = list(Store(made / "runs"))
    mean = {
        method: np.mean([run.summary()["last"]["global_accuracy"] for run in runs if run.config().agg_method == method])
        for method in METHODS
    }
    assert wide.locator(".chart .main-svg").count() >= wide.locator(".chart").count() == 14
    points = chart_data(wide, "Accuracy of every method")
    drawn = {trace["y"][0]: trace["x"][0] for trace in points if len(trace["x"]) == 1}
    assert drawn == pytest.approx(
        {"FedAvg": mean["fedavg"], "Local only": mean["local"], "Clust-PSI-PFL": mean["clust_psi_pfl"]}
    )
    lines = {trace["name"]: trace["y"] for trace in chart_data(wide, "Accuracy over the rounds")}
    assert lines["FedAvg"][-1] == pytest.approx(mean["fedavg"], abs=1e-6)
    clients = next(run for run in runs if run.config().seed == 42).clients()
    (heat,) = chart_data(wide, "Who has which labels")
    assert sorted(map(sum, zip(*heat["customdata"], strict=True))) == sorted(clients["train"])
    assert sorted(heat["customdata"][0]) == sorted(clients.filter(like="count_").iloc[:, 0])
    table = wide.locator("table", has_text="Scores of the last round")
    for title, method in (("FedAvg", "fedavg"), ("Local only", "local")):
        assert f"{mean[method]:.3f} ±" in table.locator("tr", has_text=title).inner_text()
    constants = {run.config().seed: run.summary()["constant"]["client"]["global_accuracy"] for run in runs}
    row = table.locator("tr", has_text="client's most frequent").inner_text()
    assert f"{np.mean(list(constants.values())):.3f}" in row


def test_the_skew_and_the_clusters_of_a_report_are_those_of_its_runs(made: Path, wide: "Page") -> None:
    (cell,) = cells_of(made / "runs")
    runs = {run.config().seed: run for run in Store(made / "runs") if run.config().agg_method == "clust_psi_pfl"}
    own = runs[cell.shown_seed]
    assert cell.diagnosis.psi == pytest.approx(own.clients()["psi"].to_numpy())
    assert (cell.diagnosis.clustering.labels_ == own.clusters()).all()
    psi = next(trace for trace in chart_data(wide, "PSI by client and class") if not trace["z"])
    assert psi["y"] == pytest.approx(sorted(runs[42].clients()["psi"], reverse=True), rel=1e-6)


def test_every_chart_has_its_numbers_as_a_table(wide: "Page") -> None:
    figure = wide.locator("figure", has=wide.locator('.chart[aria-label^="Who has which labels"]'))
    summary = figure.locator("summary")
    assert summary.inner_text().startswith("The numbers") and figure.locator("table").count() == 0
    summary.focus()
    wide.keyboard.press("Enter")
    figure.locator("table").wait_for()
    (heat,) = chart_data(wide, "Who has which labels")
    rows = figure.locator("tbody tr")
    assert rows.count() == len(HOSTILE) and "<i>cat</i>" in figure.locator("thead").inner_text()
    shares = [float(text) for text in rows.first.locator("td").all_inner_texts()]
    assert shares == pytest.approx([row[0] for row in heat["z"]], abs=1e-3)
    assert any(name in rows.first.locator("th").inner_text() for name in HOSTILE)
    assert wide.locator("figure .numbers").count() == wide.locator(".chart").count()
    summary.click()


def test_names_are_text_in_the_page_and_in_its_charts(wide: "Page") -> None:
    assert wide.evaluate("window.hacked") is None
    assert wide.locator("img[src=x]").count() == 0
    words = wide.locator("body").inner_text()
    for name in (*HOSTILE, *LABELS):
        assert name in words
    axis = wide.locator('.chart[aria-label^="Who has which labels"] .ytick text').all_text_contents()
    assert "<i>cat</i>" in axis


def test_words_explain_themselves_to_the_keyboard(wide: "Page") -> None:
    word = wide.locator(".term", has_text="WPSI").first
    tip = word.locator(".tip")
    assert not tip.is_visible()
    word.focus()
    assert tip.is_visible() and "averaged" in tip.inner_text()
    assert word.get_attribute("aria-describedby") == tip.get_attribute("id")
    wide.keyboard.press("Escape")
    assert not tip.is_visible()
    assert wide.locator(".chart:not([aria-label])").count() == 0
    headings = wide.locator("h1, h2, h3, h4").evaluate_all("all => all.map(each => Number(each.tagName[1]))")
    assert headings[0] == 1 and headings.count(1) == 1


def test_a_report_fits_a_phone_and_a_dark_page(phone: "Page") -> None:
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    colour = "(box) => getComputedStyle(box.querySelector('.ytick text')).fill"
    assert phone.locator('.chart[aria-label^="Accuracy over"]').evaluate(colour) == "rgb(232, 235, 239)"
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 24)"


def test_a_dark_page_prints_light_and_as_wide_as_paper(phone: "Page") -> None:
    phone.evaluate(
        "window.addEventListener('beforeprint', () => { window.printed = [...document.querySelectorAll('.chart')]"
        ".map((box) => [box.dataset.look, box._fullLayout.width]) })"
    )
    assert phone.pdf(format="A4")[:5] == b"%PDF-"
    assert {tuple(each) for each in phone.evaluate("window.printed")} == {("print", 680)}
    assert phone.locator(".chart").first.get_attribute("data-look") == "dark"
    phone.emulate_media(color_scheme="light")
    phone.wait_for_selector(".chart[data-look=light]")


def test_label_counts_get_a_report_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: "Browser") -> None:
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame([[90, 10], [88, 12], [10, 90], [12, 88]], columns=LABELS, index=HOSTILE)
    table.to_csv("counts.csv", index_label="client")
    assert clustpsi("diagnose", "--report", "counts.csv", "--psi-smoothing", "clip", "--quiet") == 0
    with opened(browser, tmp_path / "report.html") as shown:
        words = shown.locator("body").inner_text()
        assert "How much do the labels of these 4 clients differ?" in words
        assert "clustpsi diagnose counts.csv --psi-smoothing clip" in words and "Training" not in words
        assert shown.evaluate("window.hacked") is None and HOSTILE[0] in words


def test_classes_that_are_called_by_numbers_stand_beside_their_own_rows(tmp_path: Path, browser: "Browser") -> None:
    counts = pd.DataFrame([[5, 90, 1], [3, 1, 40], [80, 2, 9]], columns=["2", "0", "1"], index=["3", "1", "2"])
    counts.to_csv(tmp_path / "counts.csv", index_label="client")
    given = [str(tmp_path / "counts.csv"), "--client", "client", "--report", str(tmp_path / "report.html"), "--quiet"]
    assert clustpsi("diagnose", *given) == 0
    beside = """(box, axis) => [...box.querySelectorAll(`.${axis}tick text`)]
        .map((text) => [text.getBoundingClientRect(), text.textContent])
        .sort(([a], [b]) => axis === "x" ? a.x - b.x : a.y - b.y).map(([_, text]) => text)"""
    with opened(browser, tmp_path / "report.html") as shown:
        for title, trace, axis in (("Who has which", 0, "y"), ("PSI by client", 1, "y2"), ("Labels of the", 0, "x")):
            box = shown.locator(f'.chart[aria-label^="{title}"]').first
            drawn = box.evaluate(f"(box) => [...box._fullData[{trace}].{axis[0]}]")
            assert box.evaluate(beside, axis) == drawn and set(drawn) == {"0", "1", "2"}


# ------------------------------------------------------------------------------------------------------------- the file


def test_a_report_is_one_small_file_with_the_same_bytes_every_time(made: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.html"
    assert clustpsi("report", str(made / "runs"), "--output", str(again), "--where", "seed=42,0,1", "-q") == 0
    first = again.read_text()
    assert clustpsi("report", str(made / "runs"), "--output", str(again), "-q") == 0
    assert again.read_text() == first and len(first) < 3_000_000 < page.LARGEST
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", first), "nothing comes from elsewhere"
    assert "default-src 'none'" in first


def test_the_command_of_a_report_repeats_the_runs(made: Path) -> None:
    (cell,) = cells_of(made / "runs")
    words = cell.command().split()
    assert words[:4] == ["clustpsi", "run", "--dataset", "rows.csv"]
    assert words[-4:] == ["--agg-method", "fedavg,clust_psi_pfl,local", "--seeds-list", "0,1,42"]
    assert "--client" in words and "--comm-rounds" in words and "--lr" not in words


def test_a_finished_sweep_writes_its_report(made: Path, tmp_path: Path) -> None:
    given = ["--dataset", str(made / "rows.csv"), "--label", "kind", "--client", "site", "--comm-rounds", "2"]
    given += ["--agg-method", ",".join(METHODS)]
    given += ["--seeds-list", "42,0,1", "--output", str(made / "runs"), "-q", "--report", str(tmp_path / "sweep.html")]
    assert clustpsi("sweep", *given) == 0
    assert "Which method serves the 4 clients" in plain((tmp_path / "sweep.html").read_text())


# -------------------------------------------------------------------------------------------------------------- answers


def test_the_answer_says_what_is_ahead_and_what_may_be_chance(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed, noise in ((0, 0.0), (1, 0.004), (2, -0.003)):
        write_run(store, "local", seed, 0.95 + noise)
        write_run(store, "fedavg", seed, 0.55 - noise)
        write_run(store, "haccs", seed, 0.949 - noise)
    (cell,) = cells_of(tmp_path)
    first, second = answers.answer(cell)
    assert first.startswith("Local only is the most accurate of 3 methods: it is right for 95.0% of the test samples")
    assert (
        second == "Paired tests over seeds show it ahead of FedAvg; its lead over HACCS (at most 0.002) may be chance."
    )
    assert "though not surely" in answers.conclusion(cell)
    tests = cell.tests.set_index("method")
    assert tests.loc["fedavg", "verdict"] == "better" and tests.loc["haccs", "verdict"] == "not shown"


def test_no_method_is_praised_that_a_constant_answer_beats(tmp_path: Path) -> None:
    for method in ("fedavg", "local"):
        write_run(Store(tmp_path), method, 0, 0.3)
    (cell,) = cells_of(tmp_path)
    first, second = answers.answer(cell)
    assert cell.constants()["client"] > 0.3
    assert first.startswith("None beats a constant answer: naming each client's most frequent class is right for")
    assert "cannot be said with 1 seed" in second
    assert "speak for none of their methods" in answers.conclusion(cell)


def test_identical_methods_and_a_single_one_are_told_as_such(tmp_path: Path) -> None:
    for seed in range(3):
        for method in ("fedavg", "cfl"):
            write_run(Store(tmp_path), method, seed, 0.9 + seed / 100)
    (cell,) = cells_of(tmp_path)
    assert "gave exactly the same results" in answers.answer(cell)[1]
    (alone,) = find_cells(find_runs([tmp_path])[0].query("agg_method == 'cfl'"))
    assert "the only method here" in answers.answer(alone)[0] and "nothing to compare" in answers.answer(alone)[1]


def test_worst_clients_are_named_with_what_serves_them_better(tmp_path: Path) -> None:
    folders = {method: write_run(Store(tmp_path), method, 0, 0.8) for method in ("fedavg", "local")}
    for method, values in (("fedavg", [0.9, 0.2, 0.9, 0.9, 0.9, np.nan]), ("local", [0.1, 0.9, 0.9, 0.9, 0.9, np.nan])):
        table = folders[method].accuracy()
        table.loc[table["round"] == 5, "accuracy"] = values
        table.to_parquet(folders[method] / "accuracy.parquet")
    (cell,) = cells_of(tmp_path)
    worst = cell.worst_clients(2)
    own = cell.accuracy_of_clients()[cell.best]
    assert [each.accuracy for each in worst] == sorted(own[np.isfinite(own)])[:2]
    other = next(name for name in cell.methods if name != cell.best)
    assert worst[0].elsewhere == other and worst[0].accuracy_elsewhere == 0.9 and worst[1].elsewhere is None
    assert worst[0].train == cell.diagnosis.counts.sum(axis=1)[int(worst[0].name.split()[1])]


# -------------------------------------------------------------------------------------------------------- several cells


def test_cells_get_a_chapter_each_and_a_table_of_all(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for level, accuracy in ((0.1, 0.9), (0.3, 0.8)):
        for seed in (0, 1):
            write_run(store, "local", seed, accuracy, non_iid_param=level)
            write_run(store, "fedavg", seed, accuracy - 0.1, non_iid_param=level)
    write_run(store, "centralized", 0, 0.99, partitioner="iid", clients=3)
    cells = cells_of(tmp_path)
    assert [cell.title for cell in cells] == ["digits (Dirichlet, α=0.3)", "digits (Dirichlet, α=0.1)"]
    assert all(cell.all_methods == ["centralized", "fedavg", "local"] for cell in cells)
    html = page.run_report(cells)
    words = plain(html)
    assert "Methods compared on 2 federations" in words and html.count("<article") == 2
    table = next(each for each in re.findall(r"<table>.*?</table>", html, re.S) if "Accuracy, digits" in each)
    assert re.findall(r">(0\.\d+)", table) == ["0.990", "0.990", "0.700", "0.800", "0.800", "0.900"]
    assert "all data in one place" in words


def test_chapters_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in (0.1, 0.3, 0.5):
        for method in ("local", "fedavg"):
            write_run(Store(tmp_path), method, 0, 0.8, non_iid_param=level)
    monkeypatch.setattr(page, "ROOM_FOR_CHARTS", 9_000)
    html = page.run_report(cells_of(tmp_path))
    assert html.count("<article") == 1 and "too large: digits (Dirichlet, α=0.3); digits (Dirichlet, α=0.1)" in plain(
        html
    )


def test_runs_that_differ_in_more_than_a_report_compares_are_refused(tmp_path: Path) -> None:
    write_run(Store(tmp_path), "local", 0, 0.9, comm_rounds=10)
    write_run(Store(tmp_path), "fedavg", 0, 0.9, comm_rounds=20)
    with pytest.raises(ClustPSIError, match=r"differ in comm_rounds \(\d+, \d+\): choose .* --where comm_rounds"):
        cells_of(tmp_path)
    assert (
        clustpsi("report", str(tmp_path), "--where", "comm_rounds=10", "--output", str(tmp_path / "a.html"), "-q") == 0
    )


def test_very_many_clients_are_sampled_for_charts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_CLIENTS", 10)
    for method in ("local", "fedavg"):
        write_run(Store(tmp_path), method, 0, 0.8, clients=40)
    words = plain(page.run_report(cells_of(tmp_path)))
    assert "40 clients have" in words and "Charts show 10 of the clients" in words


@pytest.mark.slow
def test_a_thousand_clients_and_all_methods_stay_small_and_open(tmp_path: Path, browser: "Browser") -> None:
    for seed in range(3):
        for i, method in enumerate(method_types()):
            write_run(Store(tmp_path), method, seed, 0.5 + i / 50, clients=1_000)
    output = tmp_path / "report.html"
    assert clustpsi("report", str(tmp_path), "--output", str(output), "-q") == 0
    assert output.stat().st_size < page.LARGEST
    with opened(browser, output) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= 1100


# ------------------------------------------------------------------------------------------------------------ bad input


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert clustpsi("report", *map(str, arguments)) == 2
    return capsys.readouterr().err.strip()


def test_what_cannot_be_reported_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, output = Store(tmp_path / "runs"), tmp_path / "out.html"
    assert "there is no folder" in refused(capsys, tmp_path / "none")
    folder = write_run(store, "local", 0, 0.9)
    (tmp_path / "runs.csv").write_text("a\n1\n")
    assert "needs the folders of runs" in refused(capsys, tmp_path / "runs.csv", "--output", output)
    assert "end its name with .html" in refused(capsys, tmp_path / "runs", "--output", tmp_path / "out.pdf")
    (folder / "summary.json").unlink()
    for named in (folder.path, tmp_path / "runs"):
        assert "was stopped before its end" in refused(capsys, named, "--output", output)
        with folder.locked():
            assert "is still running" in refused(capsys, named, "--output", output)
    folder.write_failure("the disk is full")
    assert "failed: the disk is full" in refused(capsys, folder.path, "--output", output)
    assert not output.exists() and "Traceback" not in capsys.readouterr().err


def test_unfinished_and_damaged_runs_of_a_store_are_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, output = Store(tmp_path / "runs"), tmp_path / "out.html"
    write_run(store, "local", 0, 0.9)
    (write_run(store, "fedavg", 0, 0.9) / "summary.json").unlink()
    (write_run(store, "cfl", 0, 0.9) / "summary.json").write_text("{")
    assert clustpsi("report", str(tmp_path / "runs"), "--output", str(output)) == 0
    said = capsys.readouterr().err
    assert "was stopped before its end" in said and "left out" in said
    assert "was stopped before its end" in plain(output.read_text())


def test_centralized_and_validation_runs_alone_are_no_report(tmp_path: Path) -> None:
    write_run(Store(tmp_path / "central"), "centralized", 0, 0.9)
    with pytest.raises(ClustPSIError, match="no clients"):
        cells_of(tmp_path / "central")
    write_run(Store(tmp_path / "validation"), "fedavg", 0, 0.9, validation=True)
    with pytest.raises(ClustPSIError, match="validation scores"):
        cells_of(tmp_path / "validation")


def test_names_that_look_like_numbers_stay_names(tmp_path: Path) -> None:
    names = ["007", "NA", "1e3", "", "nan", "1.0"]
    write_run(Store(tmp_path), "fedavg", 0, 0.9, names=names)
    (cell,) = cells_of(tmp_path)
    assert list(cell.diagnosis.client_names) == names


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write_run(Store(tmp_path), "fedavg", 0, 0.9)
    (folder / "accuracy.parquet").write_bytes(b"no table")
    with pytest.raises(ClustPSIError, match=r"accuracy\.parquet cannot be read"):
        page.run_report(cells_of(tmp_path))


def test_runs_of_earlier_versions_have_no_constants(tmp_path: Path) -> None:
    folder = write_run(Store(tmp_path), "fedavg", 0, 0.9)
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("constant", "notes", "model"):
        del summary[key]
    write_json(folder / "summary.json", summary)
    assert "line to beat" not in plain(page.run_report(cells_of(tmp_path)))
