"""Makes report.png, the picture of a report in the README: runs five methods on digits and photographs their report.

It needs Chromium and Playwright: python docs/images/make.py
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
METHODS = "fedavg,fedsoft,clust_psi_pfl,local,prior_pfl"
PARTS = (".answer", "[id$=-federation] figure:first-of-type", "[id$=-training] figure:last-of-type")
WIDTH, MARGIN = 1000, 12
PATIENCE = 240_000  # milliseconds


def photograph(report: Path) -> Image.Image:
    """The report's answer, its heat map and its learning curves, below each other."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=PATIENCE)
        pictures = [Image.open(io.BytesIO(page.locator(part).first.screenshot())) for part in PARTS]
        browser.close()
    height = sum(picture.height + MARGIN for picture in pictures) + MARGIN
    whole = Image.new("RGB", (WIDTH, height), "white")
    top = MARGIN
    for picture in pictures:
        whole.paste(picture, ((WIDTH - picture.width) // 2, top))
        top += picture.height + MARGIN
    return whole


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        command = [sys.executable, "-m", "clustpsi", "run", "--agg-method", METHODS, "--output", f"{folder}/runs"]
        subprocess.run([*command, "--report", str(report)], check=True)
        picture = photograph(report)
    picture.save(FOLDER / "report.png", optimize=True)


if __name__ == "__main__":
    main()
