"""The explorer in a real browser: sliders, training, tables, two tabs, and who is let in."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from browser import chromium
from clustpsi.explorer.library import Library
from clustpsi.explorer.settings import Settings
from clustpsi.explorer.view import Views
from helpers import clustpsi

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

PATIENCE = 120_000  # milliseconds, on a very busy machine
SAME = ("config.json", "clients.csv", "rounds.csv", "summary.json")  # of two runs with the same settings


class Started:
    """A running ``clustpsi explore``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "clustpsi", "explore", "--port", "0", "--output", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("open ").strip()

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=240)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = Started(tmp_path_factory.mktemp("explorer"))
    yield started
    if started.process.poll() is None:
        started.end()


@pytest.fixture(scope="module")
def browser() -> "Iterator[BrowserContext]":
    """A browser whose tabs share what pages store."""
    with chromium() as started:
        yield started.new_context(viewport={"width": 1300, "height": 900})


def expect(locator: "Locator") -> Any:
    """What a locator is expected to become, sooner or later."""
    from playwright.sync_api import expect as expected

    expected.set_options(timeout=PATIENCE)
    return expected(locator)


class Tab:
    """The page, once it shows a federation."""

    def __init__(self, browser: "BrowserContext", explorer: Started, query: str) -> None:
        self.page = browser.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.goto(f"{explorer.address}&{query}")
        expect(fact(self.page, "wpsi")).to_have_text(re.compile(r"^[\d.,]+$"))

    def close(self) -> None:
        """Nothing may have gone wrong in the browser until now."""
        self.page.close()
        assert self.wrong == []


# Opening a page takes the browser most of its time: tests share two, and each brings its page to what it needs.


@pytest.fixture(scope="module")
def looking(browser: "BrowserContext", explorer: Started) -> Iterator[Tab]:
    """A tab in which somebody looks at federations."""
    tab = Tab(browser, explorer, "num_clients=10&non_iid_param=0.5")
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def training(browser: "BrowserContext", explorer: Started) -> Iterator[Tab]:
    """A tab in which somebody trains."""
    tab = Tab(browser, explorer, "partitioner=iid&num_clients=4&agg_method=fedavg&local_epochs=1")
    yield tab
    tab.close()


def start(page: "Page", rounds: int, seed: int) -> None:
    """Starts a training by hand."""
    for name, value in (("comm_rounds", rounds), ("seed", seed)):
        page.locator(f"#{name}").fill(str(value))
    expect(page.locator("#command")).to_contain_text(f"--comm-rounds {rounds}")
    expect(page.locator("#command")).to_contain_text(f"--seeds-list {seed}")
    page.get_by_role("button", name="Start training").click()


def fact(page: "Page", key: str) -> "Locator":
    """A number of the page, by the key of its explanation."""
    return page.locator(f"#fact-{key}")


def query(page: "Page") -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_slider_changes_the_numbers_and_the_address_brings_them_back(looking: Tab, tmp_path: Path) -> None:
    page = looking.page
    before = fact(page, "wpsi").inner_text()
    page.locator("#alpha-slide").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#alpha")).to_have_value("0.79")  # 10 ** (log10(0.5) + 4 * 0.05), two digits
    expect(fact(page, "wpsi")).not_to_have_text(before)
    after = fact(page, "wpsi").inner_text()
    settings = Settings(num_clients=10, non_iid_param=0.79)
    found = Views(Library(tmp_path)).view(settings)
    assert after == f"{found.diagnosis.measures['wpsi']:.3g}"
    expect(fact(page, "cluster")).to_have_text(str(found.diagnosis.clustering.n_clusters_))
    assert query(page)["non_iid_param"] == "0.79" and query(page)["preset"] == "robust"
    expect(page.locator("#command")).to_contain_text("--non-iid-param 0.79 --num-clients 10")

    page.reload()
    expect(fact(page, "wpsi")).to_have_text(after)
    expect(page.locator("#alpha")).to_have_value("0.79")
    with page.expect_download() as download:
        page.get_by_role("button", name="Label counts").click()
    assert download.value.path().read_text() == found.label_counts_csv()

    expect(page.locator("#made-with")).to_contain_text("preset robust: signed features, laplace smoothing")
    page.locator("#preset").get_by_text("paper").click()
    paper = Views(Library(tmp_path)).view(replace(settings, preset="paper")).diagnosis
    expect(fact(page, "wpsi")).to_have_text(f"{paper.measures['wpsi']:.3g}")
    expect(fact(page, "cluster")).to_have_text(str(paper.clustering.n_clusters_))
    expect(page.locator("#measure")).to_contain_text("--preset paper --seed")
    assert query(page)["preset"] == "paper" and "psi_features" not in query(page)


def test_a_message_goes_with_what_was_wrong(looking: Tab) -> None:
    page = looking.page
    alpha, said, results = page.locator("#alpha"), page.locator("#control-message"), page.locator("#results")
    before = alpha.input_value()
    alpha.fill("-1")
    expect(said).to_contain_text("must be above 0, not -1")
    expect(results).to_have_class("stale")
    expect(alpha).to_have_value("-1")  # the slider does not take it along
    alpha.fill("1000")  # more than the slider reaches
    expect(page.locator("#command")).to_contain_text("--non-iid-param 1000 ")
    alpha.fill(before)
    expect(said).to_be_empty()
    expect(results).not_to_have_class("stale")
    page.locator("#seed").fill("4294967296")
    expect(said).to_contain_text("seed must be at most 2,147,483,647, not 4294967296.")
    page.locator("#seed").fill("7")
    expect(said).to_be_empty()
    expect(results).not_to_have_class("stale")


def test_training_goes_on_beside_another_tab_stops_and_equals_the_command_line(
    looking: Tab, training: Tab, explorer: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, other = training.page, looking.page
    start(page, 100_000, seed=0)
    row = page.locator("#progress tbody tr")
    expect(row.locator("td").nth(0)).to_contain_text("of 100000")
    expect(page.locator("#chart-training .js-line")).not_to_have_count(0)
    reached, before = row.locator("td").nth(0).inner_text(), fact(page, "wpsi").inner_text()
    expect(other.get_by_role("button", name="Stop")).to_be_disabled()
    other.locator("#num_clients").fill("9")
    expect(fact(other, "client")).to_have_text("9")
    assert other.locator("#progress tr").count() == 0
    expect(row.locator("td").nth(0)).not_to_have_text(reached)  # it goes on
    assert fact(page, "wpsi").inner_text() == before and query(page)["num_clients"] == "4"
    page.get_by_role("button", name="Stop").click()
    expect(row).to_contain_text("stopped")
    start(page, 3, seed=0)
    expect(row).to_contain_text("finished")
    expect(row).to_contain_text("3 of 3")
    accuracy = row.locator("td").nth(1).inner_text()
    command = page.locator("#command").inner_text().split()

    runs = {path.name: path for path in (explorer.folder / "runs").iterdir() if (path / "summary.json").exists()}
    assert clustpsi(*command[1:], "--output", str(tmp_path / "runs"), "--quiet") == 0
    theirs = [path for path in (tmp_path / "runs").iterdir() if path.name in runs]
    assert len(theirs) == 1 == len(runs)
    for name in SAME:
        assert (theirs[0] / name).read_bytes() == (runs[theirs[0].name] / name).read_bytes()
    assert accuracy in capsys.readouterr().out


def test_tables_are_shown_refused_and_never_run(looking: Tab, explorer: Started, tmp_path: Path) -> None:
    evil = "<img src=x onerror=document.title='evil'>"
    good = tmp_path / f"{evil.replace('/', '')}.csv"
    good.write_text(f"client,{evil},<b>b</b>\n{evil},90,10\n<script>alert(1)</script>,10,90\nc,50,40\n")
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 this is no table")
    page = looking.page
    before = fact(page, "client").inner_text()
    upload = page.locator("#upload input[type=file]")
    upload.set_input_files(bad)
    expect(page.locator("#table-message")).to_contain_text("bad.parquet cannot be read as Parquet")
    assert str(explorer.folder) not in page.locator("#table-message").inner_text()
    expect(fact(page, "client")).to_have_text(before)  # what was there stays
    upload.set_input_files(good)
    expect(fact(page, "client")).to_have_text("3")
    expect(page.locator("#dataset")).to_contain_text(evil)
    expect(page.locator("#chart-partition")).to_contain_text("<script>alert(1)<…")
    expect(page.locator("#chart-mix .heatmaplayer image, #chart-mix .hm image").first).to_be_attached()
    assert page.title() == "clustpsi explorer" and page.locator("img[src=x]").count() == 0
    page.get_by_role("button", name="Start training").click()
    expect(page.locator("#train-message")).to_contain_text("label counts cannot be trained on")
    rows = tmp_path / "rows.csv"
    rows.write_text("site,kind,x\n" + "".join(f"s{i % 3},{'ab'[i % 5 < 2]},{i}\n" for i in range(60)))
    upload.set_input_files(rows)
    expect(page.locator("#message")).to_contain_text("choose the columns of the label and of the client")
    for name, column in (("label", "kind"), ("client", "site")):
        page.locator(f"#{name}").click()
        page.get_by_role("option", name=column).click()
        page.keyboard.press("Escape")
    expect(fact(page, "skew")).to_have_text("2")
    expect(page.locator("#message")).to_be_empty()
    expect(page.locator("#command")).to_contain_text("--dataset rows.csv --label kind --client site")


def test_an_address_that_cannot_be_shown_is_said_until_a_control_is_touched(
    browser: "BrowserContext", explorer: Started
) -> None:
    for wrong, sentence in (("num_clients=1", "from 2 to 2,000 clients"), ("page=paper&paper_dataset=foo", "'foo'")):
        tab = Tab(browser, explorer, wrong)
        said = tab.page.locator("#address-message")
        expect(said).to_contain_text("This address cannot be shown: ")
        expect(said).to_contain_text(sentence)
        time.sleep(1.5)  # the charts have come long ago
        expect(said).to_be_visible()
        tab.page.get_by_text("The paper, live").click()
        expect(said).to_be_empty()
        expect(tab.page.locator("#paper-table tbody tr").first).to_be_visible()
        tab.close()


def test_the_paper_live(looking: Tab) -> None:
    page = looking.page
    page.get_by_text("The paper, live").click()
    row = page.locator("#paper-table tbody tr").filter(has_text="FedAvg").first
    expect(row).to_contain_text("0.64 ± 0.01")  # what the paper reports for ACSIncome at alpha 0.3
    page.locator("#paper-dataset").click()
    page.get_by_role("option", name="Serengeti").click()
    expect(page.locator("#paper-table caption")).to_contain_text("Serengeti")
    assert query(page)["paper_dataset"] == "serengeti"


def test_ctrl_c_ends_the_explorer_and_what_it_trains(looking: Tab, training: Tab, explorer: Started) -> None:
    start(training.page, 100_000, seed=3)
    expect(training.page.locator("#progress")).not_to_contain_text("stopped")
    expect(training.page.locator("#progress")).to_contain_text("of 100000")
    for tab in (looking, training):
        tab.close()
    children = _children(explorer.process.pid)
    code, said = explorer.end()
    assert code == 130 and "stopped" in said and "Traceback" not in said
    assert children
    patience = time.monotonic() + PATIENCE / 1000  # the system's own helper of processes ends a moment later
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < patience
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    """Processes that a process has started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]
