import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.site import Site, Visit

PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or name it in CHROMIUM")
    with sync_playwright() as playwright:
        # Containers and root have no sandbox of Chromium's own; the pages are ours.
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = playwright.chromium.launch(executable_path=path, args=flags)
        yield started
        started.close()


@pytest.fixture
def site() -> Iterator[Site]:
    """Serves the page with whatever view a test gives it."""
    standing = Site()
    yield standing
    standing.stop()


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """Opens the page; whatever the browser complains about there fails the test."""
    complaints: list[str] = []
    contexts = []

    def to_page(**options: object) -> Page:
        options = {"reduced_motion": "reduce", "viewport": {"width": 1200, "height": 900}} | options
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: _note(told.type, told.text, complaints))
        page.goto(site.url)
        return page

    yield to_page
    for context in contexts:
        with suppress(Exception):
            context.close()
    # What could not be loaded the browser reports itself; a server that is away is a test's doing.
    assert [each for each in complaints if "Failed to load resource" not in each] == []


def _note(kind: str, text: str, complaints: list[str]) -> None:
    if kind in ("error", "warning"):
        complaints.append(f"{kind} at {time.monotonic():.1f}: {text}")
