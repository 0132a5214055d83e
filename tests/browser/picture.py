"""Takes docs/dashboard.png from a dashboard that runs: `python -m tests.browser.picture URL FILE`.

`aliquot demo --keep` prints the URL of one with pods on simulated GPUs.
"""

import os
import shutil
import sys

from playwright.sync_api import sync_playwright


def take(url: str, path: str) -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 700}, color_scheme="light")
        page.goto(url)
        page.locator(".slice").first.wait_for(timeout=60_000)
        page.locator("#history figure").first.wait_for(timeout=60_000)
        for button in page.locator(".gpu button.more:enabled").all():
            button.click()
        page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
        page.screenshot(path=path, full_page=True)
        browser.close()


if __name__ == "__main__":
    take(*sys.argv[1:3])
