"""The live page in a real browser, served by the real command: it follows the run and keeps what was chosen."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kb_ray.traces.store import open_store
from tests.browser.conftest import Watched
from tests.synthetic_traces import episodes, write_parts


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kb_ray.report", str(tmp_path / "store"), "--live", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
        finally:
            # Leaving Popen waits for it, however long it stays.
            process.kill()


def test_the_page_waits_for_a_run_follows_it_and_keeps_what_was_chosen(tmp_path: Path, url: str, tab: Watched) -> None:
    page = tab.page
    page.goto(url)
    expect(page.locator("p")).to_contain_text("no episodes here")
    store = open_store(str(tmp_path / "store"))
    write_parts(store, episodes(8))
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    expect(page.locator("#about")).to_contain_text("8 episodes")
    page.select_option("#scope", "level:2")
    page.select_option("#theme", "dark")
    write_parts(store, (episode for at, episode in enumerate(episodes(12)) if at >= 8))
    expect(page.locator("#about")).to_contain_text("12 episodes", timeout=60_000)
    page.wait_for_selector("html[data-ready]")
    assert (page.input_value("#scope"), page.input_value("#theme")) == ("level:2", "dark")
