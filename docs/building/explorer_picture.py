"""Draw docs/images/explorer.png: the explorer as a browser shows it.

    python docs/building/explorer_picture.py [--data-dir FOLDER]

It needs Chromium and Playwright. The picture shows Fashion-MNIST, spread over 100 clients.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "images" / "explorer.png"
SHOWN = "dataset=fmnist&num_clients=100&non_iid_param=0.3"
PATIENCE = 240_000  # milliseconds

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        command = [sys.executable, "-m", "clustpsi", "explore", "--port", "0", "--output", folder, *sys.argv[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as explorer:
            assert explorer.stdout is not None
            address = explorer.stdout.readline().removeprefix("open ").strip()
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"),
                args=["--no-sandbox"],
            )
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(f"{address}&{SHOWN}")
            page.locator("#chart-sizes .bars path").first.wait_for(state="attached", timeout=PATIENCE)
            page.wait_for_timeout(2_000)
            page.screenshot(path=PICTURE)
            browser.close()
            explorer.terminate()
