"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; tests are skipped where there is none.

Its headless shell, which has the engine and no windows, takes half of the time and is preferred.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
WHY_NOT = "there is no Chromium to open pages with: apt-get install chromium-headless-shell"


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser; skips the test that asks for one where none is installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright, which drives the browser, is not here")
    if CHROMIUM is None:
        pytest.skip(WHY_NOT)
    with playwright.sync_playwright() as driver:
        # Tests may run as root in a container, where Chromium's sandbox cannot be set up.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@contextmanager
def opened(browser: "Browser", path: Path, *, width: int = 1100, dark: bool = False) -> "Iterator[Page]":
    """A report in the browser with all charts drawn; fails where it logs an error or asks for anything elsewhere."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(f"a dialog: {dialog.message}"))
    page.on("request", lambda request: trouble.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
    yield page
    context.close()
    assert not trouble
