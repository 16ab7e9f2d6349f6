"""What a run exports, scraped over HTTP from Ray while the command goes: names, values, labels, and no secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kb_ray import env_vars
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from kb_ray.watching import catalogue, meter
from kb_ray.watching.ray_meter import RayMeter
from tests import synthetic_traces
from tests.fixtures_run import Command, make_workload
from tests.scraping import RAY_LABELS, Sample, dashboard, metrics_in, queries, scrape

SECRETS = {name: f"nobody-may-see-{name}" for name in env_vars.SECRETS if name != env_vars.RAY_AUTH_TOKEN}
"""Ray's own token is in a file."""
OURS = "ray_kb_ray_"


@dataclass
class Watched:
    """A run that was scraped, and what it printed."""

    output: str
    code: int = 0
    printed: str = ""
    scrapes: list[list[Sample]] = field(default_factory=list)
    earlier: frozenset[str] = frozenset()
    """Processes that exported something before: Ray goes on showing what ended runs of the same cluster counted."""

    @property
    def names(self) -> set[str]:
        """Every name of ours that was seen."""
        return {sample.name for seen in self.scrapes for sample in seen}

    def last(self, metric: catalogue.Metric, **labels: str) -> float:
        """The value that was seen last."""
        name = metric.exported[0]
        wanted = [s.value for s in self.scrapes[-1] if s.name == name and labels.items() <= s.labels.items()]
        assert wanted, f"{name} {labels} is not exported"
        return sum(wanted)


def judge_of_the_run() -> int | None:
    """Process id of the youngest judge that an actor below this process started.

    Other sessions of this machine have theirs, and this one has a judge without Ray that other tests share.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and "kb_ray.bench.child.judge" in _text(folder / "cmdline"):
            above = _parent(int(folder.name))
            if above != os.getpid() and _is_below(above, os.getpid()):
                found.append((folder.stat().st_ctime, int(folder.name)))
    return max(found)[1] if found else None


def _is_below(process: int, other: int) -> bool:
    while process > 1 and process != other:
        process = _parent(process)
    return process == other


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    status = _text(Path(f"/proc/{pid}/status")).partition("PPid:")[2].split()
    return int(status[0]) if status else 0


@pytest.fixture(scope="module")
def watched(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A small run whose judge is killed once, so that a try is repeated."""
    folder = tmp_path_factory.mktemp("watched")
    workload = make_workload(folder, 6)
    found = Watched(str(folder / "out"), earlier=frozenset(s.labels.get("WorkerId", "") for s in scrape()))
    arguments = workload.arguments(found.output, "--save-interval", "2", "--log-format", "json", n_correctness=12)
    process = command.start(arguments, SECRETS)
    try:
        _scrape_until_done(process, found)
        found.printed, _ = process.communicate(timeout=120)
        found.code = process.returncode
    finally:
        process.kill()
        process.wait()
    return found


def _scrape_until_done(process: subprocess.Popen[str], found: Watched) -> None:
    killed = False
    end = time.monotonic() + 420
    scraped = 0.0
    while process.poll() is None:
        assert time.monotonic() < end, "the run does not end"
        time.sleep(0.1)
        # With the first episodes written there are verdicts, and others are under way.
        if not killed and any(Path(found.output).glob("parts/*")) and (judge := judge_of_the_run()):
            os.kill(judge, signal.SIGKILL)
            killed = True
        if time.monotonic() - scraped >= 3:
            _scrape(found)
            scraped = time.monotonic()
    _scrape(found)


def _scrape(found: Watched) -> None:
    ours = [sample for sample in scrape() if sample.name.startswith(OURS)]
    found.scrapes.append([sample for sample in ours if sample.labels.get("WorkerId") not in found.earlier])


def test_a_run_exports_every_metric_that_a_cpu_can_have(watched: Watched) -> None:
    assert watched.code == 0, watched.printed
    expected = {name for metric in catalogue.ALL if metric is not catalogue.SPEEDUP for name in metric.exported}
    assert expected - watched.names == set()
    assert watched.names - expected == set()


def test_what_is_exported_at_the_end_is_what_the_store_holds(watched: Watched) -> None:
    kept = list(episodes(open_store(watched.output)))
    assert len(kept) == 6
    assert watched.last(catalogue.EPISODES, stop_reason="success_untimed") == 6
    assert watched.last(catalogue.SOLVED) == 6
    statuses = Counter(str(turn.verdict.status) for episode in kept for turn in episode.turns)
    for status, count in statuses.items():
        assert watched.last(catalogue.VERDICTS, status=status) == count
    assert watched.last(catalogue.TURNS) == statuses.total()
    tokens = sum(turn.completion.usage.completion_tokens for episode in kept for turn in episode.turns)
    assert watched.last(catalogue.TOKENS, kind="completion") == tokens
    parts = list((Path(watched.output) / "parts").iterdir())
    assert watched.last(catalogue.PARTS) == len(parts)
    assert watched.last(catalogue.BYTES) == sum(part.stat().st_size for part in parts)
    assert watched.last(catalogue.INFRA_RETRIES) >= 1
    checking = sum(turn.verdict.seconds["check"] for episode in kept for turn in episode.turns)
    assert watched.last(catalogue.PHASE_SECONDS, phase="check") == pytest.approx(checking)


def test_labels_are_those_of_the_catalogue_and_rays_own(watched: Watched) -> None:
    by_name = {name: metric for metric in catalogue.ALL for name in metric.exported}
    for seen in watched.scrapes:
        for sample in seen:
            own = {name: value for name, value in sample.labels.items() if name not in RAY_LABELS}
            labels = by_name[sample.name].labels
            assert set(own) <= set(labels)
            assert all(value in labels[name] for name, value in own.items()), sample


def test_every_query_about_a_run_names_a_metric_that_is_exported(watched: Watched) -> None:
    # What only a GPU can give: a real timed verdict's place is taken by a drawn one, on the way that real ones go.
    timed = next(e for e in synthetic_traces.episodes(50) if any(turn.verdict.speedup for turn in e.turns))
    exporting = RayMeter()
    for turn in timed.turns:
        meter.judged(exporting, turn)
    asked = {name for query in queries(dashboard()) for name in metrics_in(query) if name.startswith(OURS)}
    assert len(asked) >= len(catalogue.ALL)
    end = time.monotonic() + 300
    while missing := asked - watched.names - {sample.name for sample in scrape()}:
        assert time.monotonic() < end, missing
        time.sleep(3)


def test_a_repeated_try_is_in_the_log_of_its_episode(watched: Watched) -> None:
    said = [json.loads(line) for line in watched.printed.splitlines() if line.startswith("{")]
    failed = [line for line in said if line["logger"] == "kb_ray.bench"]
    assert failed
    ids = {episode.episode_id for episode in episodes(open_store(watched.output))}
    assert {line["episode_id"] for line in failed} <= ids
    assert {line["run_id"] for line in said} == {episode.run_id for episode in episodes(open_store(watched.output))}


def test_no_secret_is_exported_logged_or_stored(watched: Watched) -> None:
    assert '"event": "summary"' in watched.printed
    kept = b"".join(path.read_bytes() for path in Path(watched.output).rglob("*") if path.is_file())
    assert b"run_id" in kept
    exported = str(watched.scrapes)
    logs = b"".join(path.read_bytes() for path in _ray_logs())
    assert b"BenchActor" in logs
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    for secret in (*SECRETS.values(), token.read_text().strip()):
        assert secret not in watched.printed
        assert secret not in exported
        assert secret.encode() not in kept
        assert secret.encode() not in logs


def _ray_logs() -> list[Path]:
    """Of the session's Ray."""
    from ray._private.worker import _global_node

    assert _global_node is not None
    return [path for path in Path(_global_node.get_logs_dir_path()).rglob("*") if path.is_file()]
