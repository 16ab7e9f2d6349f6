"""The report in a real browser: it draws, filters, shows episodes, fits a phone, and runs nothing a model wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kb_ray.report import write_report
from tests.browser.conftest import EPISODES, PRICE, SHOWN, Watched
from tests.synthetic_traces import HOSTILE, open_folder

PLOTS = ("fast_p", "statuses_by_turn", "success_by_turn", "speedups", "tokens", "model_seconds", "where_time_went",
         "stop_reasons")  # fmt: skip
CONTRAST = """(elements) => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return elements.filter((node) => node.textContent.trim() && node.children.length === 0).map((node) => {
    const pair = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), `${node.tagName}.${node.className}: ${node.textContent.slice(0, 30)}`];
  });
}"""


def shown_with(page: Page, status: str) -> None:
    """Open the first episode whose best turn has this status."""
    page.select_option("#episode-status", status)
    page.locator("#episode-list button").first.click()
    expect(page.locator("#episode-list button").first).to_have_attribute("aria-current", "true")


def test_every_plot_is_drawn_and_nothing_is_asked_of_a_network(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    for name in PLOTS:
        drawn = page.locator(f"#plot-{name} svg").last
        assert drawn.locator("path, rect, circle").count() >= 3, name
        box = drawn.bounding_box()
        assert box is not None, name
        assert box["height"] > 150, name
    assert [url for url in tab.requests if not url.startswith(("file:", "blob:"))] == []
    assert page.locator("#headline .card").count() >= 15
    expect(page.locator("#sampled")).to_contain_text(f"{SHOWN} of {EPISODES:,} episodes")


def test_a_set_of_tasks_changes_numbers_plots_and_tasks(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    before = page.locator("#headline").inner_text()
    page.select_option("#scope", "level:1")
    assert page.locator("#headline").inner_text() != before
    levels = page.locator("#task-table tbody tr td:nth-child(3)").all_inner_texts()
    assert set(levels) == {"1"}
    page.select_option("#scope", "flagged")
    assert page.locator("#task-table .badge").count() == page.locator("#task-table tbody tr").count() > 0
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.input_value("#scope") == "flagged", "the address keeps what is chosen"


def test_gpu_hours_cost_what_was_said(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    page.locator("#metrics summary").first.click()
    names = page.locator("#metrics details").first.locator("thead th").all_inner_texts()
    row = page.locator("#metrics details").first.locator("tbody tr").first.locator("th, td").all_inner_texts()
    told = dict(zip(names, row, strict=True))
    hours, cost = (float(told[name].replace(",", "")) for name in ("GPU hours", f"cost at {PRICE} an hour"))
    assert hours > 0
    assert cost == pytest.approx(PRICE * hours, abs=0.02 * cost + 0.02)


def test_tasks_are_searched_filtered_sorted_and_paged(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    page.fill("#task-search", "softmax kernelbench")
    expect(page.locator("#task-count")).to_contain_text(re.compile(r"^\d\d of \d+ tasks"))
    assert all("softmax" in name for name in page.locator("#task-table tbody td:first-child").all_inner_texts())
    page.fill("#task-search", "")
    expect(page.locator("#task-count")).to_have_text(re.compile(r"^(\d+) of \1 tasks"))
    page.select_option("#task-status", "wrong_structure")
    assert page.locator("#task-table tbody td:nth-child(4)").all_inner_texts() == ["wrong_structure"]
    page.select_option("#task-status", "")
    page.click("#task-table th[data-name=speedup] button")
    speedups = [float(text.rstrip("×")) for text in page.locator("#task-table tbody td:nth-child(8)").all_inner_texts()]
    assert speedups == sorted(speedups, reverse=True)
    assert len(speedups) == 50
    expect(page.locator("#task-table th[data-name=speedup]")).to_have_attribute("aria-sort", "descending")
    page.click("#task-pages button:has-text('Next')")
    expect(page.locator("#task-pages")).to_contain_text("Page 2 of")


def test_an_episode_is_read_turn_by_turn(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    shown_with(page, "ok")
    turns = page.locator("#episode .turn")
    assert turns.count() >= 1
    assert turns.last.locator(".hljs-keyword").count() > 3
    expect(turns.last.locator(".verdict")).to_contain_text("speedup")
    shown_with(page, "compile_error")
    expect(page.locator("#episode .turn").first.locator(".verdict")).to_contain_text("reached stage")
    assert page.locator("#episode .diff .added, #episode .changes p").count() >= 1
    expect(page.locator("#episode")).to_contain_text("Told to the model")


@pytest.mark.parametrize(
    ("pattern", "places"),
    [("every element", 1), ("from flat index 917,504 on", 1), ("every 4-th element", 60), ("were not kept", 1)],
)
def test_a_mismatch_is_drawn_where_the_output_was_wrong(report: Path, tab: Watched, pattern: str, places: int) -> None:
    page = tab.open(report.as_uri())
    page.select_option("#episode-status", "mismatch")
    for button in page.locator("#episode-list button").all():
        button.click()
        expect(button).to_have_attribute("aria-current", "true")
        found = page.locator("#episode .mismatch").filter(has_text=pattern).first
        if found.count():
            assert found.locator("rect").count() == places
            return
    pytest.fail(f"no shown episode has the pattern {pattern}")


def test_what_a_model_wrote_is_shown_and_never_run(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    scripts = page.locator("script").count()
    page.fill("#task-search", "folder")
    expect(page.locator("#task-table tbody tr")).to_have_count(1)
    assert HOSTILE in page.locator("#task-table tbody").inner_text()
    page.click("#task-table tbody button")
    expect(page.locator("#episode .turn")).to_have_count(2)
    for block in page.locator("#episode details").all():
        block.evaluate("node => { node.open = true; }")
    shown = page.locator("#episode").inner_text()
    assert shown.count(HOSTILE) >= 12
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == scripts


def test_the_policy_stops_a_script_that_would_get_in(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        " document.body.append(s);"
        " document.body.insertAdjacentHTML('beforeend', '<b onclick=\"window.hacked = 1\">x</b>');"
        " document.querySelector('b:last-child').click(); }"
    )
    assert page.evaluate("window.hacked") is None
    assert len(tab.complaints) == 2
    tab.complaints.clear()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(report: Path, phone: Watched) -> None:
    page = phone.open(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in PLOTS:
        box = page.locator(f"#plot-{name} svg").last.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    shown_with(page, "mismatch")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("#episode .verdict").first).to_be_visible()
    page.select_option("#episode-status", "")
    page.locator("#episode-list button", has_text="_relu_relu").first.click()
    expect(page.locator("#episode h3").first).to_contain_text("_relu_relu")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_is_usable_by_keyboard(report: Path, tab: Watched) -> None:
    page = tab.open(report.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#task-table th[data-name=tokens] button")
    page.keyboard.press("Enter")
    expect(page.locator("#task-table th[data-name=tokens]")).to_have_attribute("aria-sort", "descending")
    assert page.evaluate("document.activeElement.closest('th').dataset.name") == "tokens"
    page.focus("#episode-list button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#episode-list button").nth(1)).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_readable_contrast(report: Path, tab: Watched, theme: str) -> None:
    page = tab.open(report.as_uri())
    page.select_option("#theme", theme)
    shown_with(page, "ok")
    found = page.evaluate(
        f"({CONTRAST})([...document.querySelectorAll('main *:not(option, svg, svg *), header *:not(option)')])"
    )
    assert len(found) > 200
    assert [(round(ratio, 2), what) for ratio, what in found if ratio < 4.5] == []


@pytest.mark.parametrize("kind", ["SVG", "PNG"])
def test_a_plot_is_saved_from_the_page(report: Path, tab: Watched, kind: str) -> None:
    page = tab.open(report.as_uri())
    with page.expect_download() as waited:
        page.click(f"#plot-speedups .save button:has-text('{kind}')")
    data = Path(waited.value.path()).read_bytes()
    assert waited.value.suggested_filename == f"speedups.{kind.lower()}"
    assert data.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    assert len(data) > 2000


def test_a_store_without_a_gpu_says_that_nothing_was_timed(tmp_path: Path, tab: Watched) -> None:
    path = tmp_path / "report.html"
    write_report(open_folder(tmp_path / "store", 40, hostile=False, device="cpu"), path)
    page = tab.open(path.as_uri())
    expect(page.locator("#plot-fast_p .empty")).to_contain_text("Nothing was timed")
    expect(page.locator("#notices")).to_contain_text("without a GPU")
    expect(page.locator("#sampled")).to_have_text("All episodes can be read here.")
