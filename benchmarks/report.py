"""How large the report of a large store is, how long making it takes, and how soon Chromium shows it.

`python -m benchmarks.report --episodes 100000` makes a synthetic store by repeating 2000 episodes under other
names, so that making it does not take longer than what is measured. Knows nothing of what is on the page.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kb_ray.report import write_report
from kb_ray.traces.layout import part_key
from kb_ray.traces.schema import encode, table_of
from kb_ray.traces.store import open_store
from tests.synthetic_traces import episodes

BASE = 2000
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def make_store(folder: Path, count: int) -> None:
    """`count` episodes in parts of 2000, each repetition with tasks and ids of its own."""
    store, base = open_store(str(folder)), table_of(list(episodes(BASE)))
    for copy in range(-(-count // BASE)):
        table = base.slice(0, min(BASE, count - copy * BASE))
        for name in ("episode_id", "task_id"):
            at = table.schema.get_field_index(name)
            renamed = pc.binary_join_element_wise(table.column(name), pa.scalar(f"~{copy}"), "")
            table = table.set_column(at, table.schema.field(at), renamed)
        data = encode(table)
        store.put_if_absent(part_key(data), data)


def load_seconds(page: Path) -> dict[str, float]:
    """Seconds until the page has drawn everything, in headless Chromium from a file; the median of three."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        return {}
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(3):
            tab = browser.new_page()
            began = time.monotonic()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]")
            taken.append(time.monotonic() - began)
            tab.close()
        browser.close()
    return {"load_s": sorted(taken)[1]}


def main() -> None:
    """Prints the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="a store that is there, in place of a synthetic one")
    parser.add_argument("--output", type=Path, help="keep the page here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = options.store or Path(scratch) / "store"
        if options.store is None:
            make_store(store, options.episodes)
        page = (options.output or Path(scratch) / "report.html").resolve()
        began = time.monotonic()
        report = write_report(str(store), page)
        figures = {
            "episodes": report.episodes,
            "shown": report.shown,
            "page_mb": round(page.stat().st_size / 1e6, 2),
            "made_s": round(time.monotonic() - began, 1),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(figures | {name: round(value, 2) for name, value in load_seconds(page).items()}))


if __name__ == "__main__":
    main()
