"""The command: bad stores are one line; the page is one file; plots are files; the live page follows its store."""

from __future__ import annotations

import http.client
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kb_ray import report
from kb_ray.errors import ConfigError
from kb_ray.reporting import page as pages
from kb_ray.reporting import writing
from kb_ray.reporting.drawing import draw_all
from kb_ray.reporting.figure import Figure, Series
from kb_ray.reporting.live import LivePage, live_server
from kb_ray.reporting.packing import pack, unpack
from kb_ray.reporting.viewing import shown
from kb_ray.score.metrics import summarise
from kb_ray.traces.columns import SCHEMA, SCHEMA_VERSION, VERSION_KEY
from kb_ray.traces.layout import RUN_KEY, part_key
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import Store, open_store
from kb_ray.traces.views import episodes
from tests.synthetic_traces import HOSTILE, open_folder
from tests.unit.traces.examples import make_episode

VENDOR = Path(pages.__file__).parent / "page" / "vendor"


def put(store: Store, *names: str) -> str:
    """A part with one episode for each task; its key."""
    data = table_bytes([make_episode(name) for name in names])
    key = part_key(data)
    store.put_if_absent(key, data)
    return key


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    before = sorted(Path.cwd().rglob("*"))
    assert report.main(argv) == 2
    assert sorted(Path.cwd().rglob("*")) == before, "something was written"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("error: ")
    return shown.err


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_stores_that_hold_nothing_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no such folder" in refused(capsys, "missing")
    open_store("begun").put_if_absent(RUN_KEY, b"{}")
    assert "finished no episode yet" in refused(capsys, "begun")
    assert "--nothing" in refused(capsys, "begun", "--nothing")


def test_a_store_of_a_newer_schema_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("newer/parts").mkdir(parents=True)
    newer = SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION + 1).encode()})
    pq.write_table(pa.Table.from_pylist([], schema=newer), "newer/parts/part-1.parquet")
    assert "upgrade kb_ray" in refused(capsys, "newer", "--skip-corrupt")


def test_a_damaged_part_is_named_and_left_out_only_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store("store")
    put(store, "good")
    damaged = Path("store") / put(store, "lost")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    Path("store/parts/.tmp-half-written").write_bytes(b"PAR1")
    assert damaged.name in refused(capsys, "store")
    assert report.main(["store", "--skip-corrupt"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(f"skipped parts/{damaged.name}: ")
    assert "1 episodes, 1 of them to read" in shown.out
    told = content_of(Path("store/report.html").read_text())
    assert [file["key"] for file in told["damaged"]] == [f"parts/{damaged.name}"]


def content_of(text: str) -> dict[str, object]:
    found = re.search(r'<script type="text/plain" id="content">([^<]*)</script>', text)
    assert found is not None
    return unpack(found[1])  # type: ignore[no-any-return]


def test_a_page_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    put(open_store("store"), "good")
    Path("a_file").write_text("")
    assert "a_file" in refused(capsys, "store", "--output", "a_file/report.html")


def test_the_page_is_one_file_that_names_no_other_and_holds_no_text_of_a_model() -> None:
    made = report.write_report(open_folder(Path("store"), 12), "out/page.html", episodes=5)
    text = Path("out/page.html").read_text()
    assert (made.episodes, made.shown, len(list(Path("out").iterdir()))) == (12, 5, 1)
    assert re.findall(r"<(?:img|iframe|object|base)\b", text.partition("<script")[0]) == []
    assert set(re.findall(r'href="([^"]*)"', text.partition("<script")[0])) == {
        "#main", "#headline-section", "#plots-section", "#tasks-section", "#episodes-section", "data:,",
    }  # fmt: skip
    assert re.findall(r"<script[^>]*\bsrc", text) == []
    assert HOSTILE not in text
    assert "window.hacked" not in text
    assert len(re.findall(r'id="chunk-\d+"', text)) == 5
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1]
    assert "connect-src 'none'" in policy[1]


def test_texts_that_do_not_fit_are_left_out_and_the_rest_stays_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_folder(Path("store"), 30, hostile=False)
    whole = report.write_report(store, "a.html", episodes=20).content["index"]
    monkeypatch.setattr(writing, "_TEXT_BYTES", 12_000)
    cut = report.write_report(store, "b.html", episodes=20).content["index"]
    assert 0 < len(cut) < len(whole) == 20
    assert cut == whole[: len(cut)]


def test_a_page_is_small_whatever_one_episode_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_episode("long")
    draw = random.Random(1)
    turns = []
    for turn in plain.turns:
        code = draw.randbytes(1_000_000).hex()
        evidence = turn.verdict.evidence.model_copy(update={"kernels": (code, *("k" * 100,) * 20_000)})
        verdict = turn.verdict.model_copy(update={"evidence": evidence})
        turns.append(turn.model_copy(update={"triton_code": f"x = '{code}'", "verdict": verdict}))
    long = plain.model_copy(update={"turns": tuple(turns)})
    data = table_bytes([long, make_episode("short")])
    store = open_store("store")
    store.put_if_absent(part_key(data), data)
    told = shown(long)
    assert len(pack(told)) < 500_000
    assert told["turns"][0]["verdict"]["evidence"]["kernels"][-1] == "[10001 more are in the trace store]"
    assert report.write_report(store, "page.html").shown == 2
    # one that is still too long keeps no other from being shown, and is not shown either
    monkeypatch.setattr(writing, "_TEXT_BYTES", 100_000)
    cut = report.write_report(store, "page.html")
    assert (cut.episodes, [row["task"] for row in cut.content["index"]]) == (2, ["builtin/1/short"])


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--live", "--plots", "p"], "--live and --plots exclude each other"),
        (["--live", "--output", "o", "--plots", "p"], "--live and --output and --plots exclude each other"),
        (["--port", "9000"], "--port: only a page of --live is served"),
        (["--port", str(report._PORT)], "--port: only a page of --live is served"),
        (["--output", "s3://b/report.html"], "--output: s3:/b/report.html is no local path"),
        (["--plots", "s3://b/plots"], "--plots: s3:/b/plots is no local path"),
    ],
)
def test_settings_that_would_do_nothing_are_one_line(
    argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refused(capsys, "store", *argv)


def test_metrics_that_are_at_hand_are_not_made_again() -> None:
    store = open_folder(Path("store"), 12, hostile=False)
    made = report.write_report(store, "a.html").content
    at_hand = summarise(episodes(store))
    again = report.write_report(store, "b.html", summary=at_hand).content
    assert again["scopes"] == made["scopes"]
    other = at_hand.model_copy(update={"overall": at_hand.overall.model_copy(update={"judged": 7})})
    assert report.write_report(store, "c.html", summary=other).content["scopes"][0]["metrics"]["judged"] == 7


def test_a_title_is_escaped_and_what_is_put_in_is_not_read_again() -> None:
    text = pages.page("</title>{{data}}", {"x": 1}, [pack({"y": 2})])
    assert "<title>&lt;/title&gt;{{data}}</title>" in text
    assert text.count('id="content"') == 1


def test_every_library_in_the_page_has_its_licence_beside_it() -> None:
    scripts = sorted(VENDOR.glob("*.js"))
    assert len(scripts) == 3
    for script in scripts:
        licence = (VENDOR / f"{script.name.partition('.')[0]}.LICENSE.txt").read_text()
        assert "Copyright" in licence
        assert re.search(r"v\d+\.\d+\.\d+", script.read_text()[:200]), "its version is not told"
        assert "</script" not in script.read_text()


def test_each_plot_becomes_a_png_and_an_svg_that_are_the_same_each_time() -> None:
    store = open_folder(Path("store"), 60)
    assert report.main(["store", "--plots", "plots", "--output", "r.html"]) == 0
    names = sorted(path.name for path in Path("plots").iterdir())
    assert len(names) == 16
    assert "fast_p.svg" in names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("plots").glob("*.png"))
    first = Path("plots/success_by_turn.svg").read_text()
    assert "Success by turn" in first
    report.write_report(store, "r.html", plots=Path("again"))
    assert Path("again/success_by_turn.svg").read_text() == first


def test_a_tilde_is_somebodys_home_and_no_folder_of_that_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(open_store("store"), "a")
    monkeypatch.setenv("HOME", str(Path("home").absolute()))
    assert report.main(["store", "--output=~/r.html"]) == 0
    assert Path("home/r.html").is_file()
    assert not Path("~").exists()
    capsys.readouterr()
    said = refused(capsys, "store", "--output=~nobody-of-this-name/r.html")
    assert said.startswith("error: ~nobody-of-this-name/r.html: there is no home folder")


def test_a_plot_of_nothing_says_why() -> None:
    empty = Figure(name="none", title="t", kind="curve", note="", x_label="", y_label="", empty="Nothing was timed.")
    series = Series(label="a", colour="#000000", y=(0.5, None), low=(0.4, None), high=(0.6, None))
    gap = empty.model_copy(
        update={"name": "gap", "kind": "points", "empty": None, "categories": ("1", "2"), "series": (series,)}
    )
    draw_all([empty, gap], Path("plots"))
    assert "Nothing was timed." in Path("plots/none.svg").read_text()
    assert Path("plots/gap.png").stat().st_size > 1000


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Store]]:
    """A live page of a store that holds nothing yet, on a free port."""
    monkeypatch.setattr("kb_ray.reporting.live._MARK_AGE_S", 0.0)
    store = open_store("store")
    server = live_server(
        LivePage(store, lambda mark: report.live_page(store, mark, report.ReportOptions(store="store"))), 0
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, store
    server.shutdown()
    thread.join()
    server.server_close()


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"localhost:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_live_page_waits_and_then_follows_the_store(served: tuple[int, Store]) -> None:
    port, store = served
    status, text = ask(port, "/")
    assert status == 200
    assert "no episodes here" in text
    assert 'http-equiv="refresh"' in text
    put(store, "one")
    _, first = ask(port, "/")
    told = content_of(first)
    assert told["episodes"] == 1
    assert (200, told["live"]) == ask(port, "/mark")
    assert "connect-src 'self'" in first
    assert ask(port, "/")[1] == first, "made once"
    put(store, "two")
    assert ask(port, "/mark")[1] != told["live"]
    assert content_of(ask(port, "/")[1])["episodes"] == 2


def test_the_live_page_answers_only_loopback_names_and_two_paths(served: tuple[int, Store]) -> None:
    port, _ = served
    assert ask(port, "/", f"evil.example:{port}")[0] == 403
    assert ask(port, "/mark", f"127.0.0.1:{port}")[0] == 200
    assert ask(port, "/run.json")[0] == 404


def test_a_taken_port_is_one_line(served: tuple[int, Store]) -> None:
    port, store = served
    with pytest.raises(ConfigError, match=f"--port: {port}"):
        live_server(LivePage(store, lambda mark: ""), port)
