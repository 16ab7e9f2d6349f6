"""A real headless Chromium, and the report of a synthetic store of 2,000 episodes with hostile texts in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from kb_ray.report import write_report
from tests.synthetic_traces import open_folder

EPISODES = 2000
PRICE = 2.5
"""Of a GPU hour."""
SHOWN = 300
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing but the page itself may be asked for, by the browser's own housekeeping neither.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@dataclass
class Watched:
    """A tab, what it complained about, and what it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Go to `url` and wait until the report is drawn."""
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.page


def find_chromium(playwright: Playwright) -> str:
    """Path of a Chromium of this machine, or of Playwright's own; the tests are skipped where there is neither."""
    own = playwright.chromium.executable_path
    found = next(filter(None, map(shutil.which, _NAMES)), own if Path(own).exists() else None)
    if found is None:
        pytest.skip("no Chromium: install the system's, or run `python -m playwright install chromium`")
    return found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for the tests of this folder, no longer: its event loop runs in this thread until it is closed,
    and no asynchronous test of another folder could run beside it."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=find_chromium(playwright), args=_FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def report(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    """The page as a file, in a folder without anything beside it."""
    folder = tmp_path_factory.mktemp("report")
    path = folder / "page" / "report.html"
    write_report(open_folder(folder / "store", EPISODES), path, episodes=SHOWN, gpu_hour_price=PRICE)
    return path


def watched(browser: Browser, width: int, height: int) -> Watched:
    """A new tab that notes errors and requests."""
    page = browser.new_page(viewport={"width": width, "height": height})
    tab = Watched(page)
    page.on("console", lambda said: tab.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    page.on("request", lambda request: tab.requests.append(request.url))
    return tab


@pytest.fixture
def tab(browser: Browser) -> Iterator[Watched]:
    """A tab of a desk; after the test it must have had nothing to complain about."""
    opened = watched(browser, 1280, 900)
    yield opened
    opened.page.close()
    assert opened.complaints == []


@pytest.fixture
def phone(browser: Browser) -> Iterator[Watched]:
    """A tab as wide as a phone."""
    opened = watched(browser, 390, 844)
    yield opened
    opened.page.close()
    assert opened.complaints == []
