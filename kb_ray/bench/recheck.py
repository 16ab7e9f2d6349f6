"""Verifies the kernels of a trace store again, with this version of the verifier.

Reads the old store and never writes to it. What is new goes to a JSONL file, one line a kernel, or to another
store, whose episodes are the old ones with new verdicts; both can be continued. Says what changed. Does not
know how a verdict is reached, nor asks any model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, BenchSettings
from kb_ray.errors import ConfigError
from kb_ray.records import Episode, Status, Turn, Verdict
from kb_ray.refine import best_turn
from kb_ray.traces.resume import finished
from kb_ray.traces.run import RunInfo, episode_id, fingerprint, open_run, read_run
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import Store, open_store, open_to_read
from kb_ray.traces.views import episodes

Evaluate = Callable[[BenchRequest], Verdict]


@dataclass
class Changes:
    """What became of the kernels: how many, by old and new status, and of which we could not say."""

    statuses: Counter[tuple[Status, Status]] = field(default_factory=Counter)
    infra: int = 0

    def add(self, old: Verdict, new: Verdict) -> None:
        if new.status is Status.INFRA_ERROR:
            self.infra += 1
        else:
            self.statuses[old.status, new.status] += 1

    def table(self) -> str:
        """`old -> new  count`, the most frequent first, what stayed the same included."""
        lines = [f"{old.value} -> {new.value}  {count}" for (old, new), count in self.statuses.most_common()]
        lines += [f"not verified, our side failed  {self.infra}"] if self.infra else []
        return "\n".join(lines) or "nothing to verify again"


@dataclass(frozen=True)
class Recheck:
    """Where from, how, and where to. `concurrency`: kernels at once. `say` gets a line for each change."""

    store: Store
    settings: BenchSettings
    evaluate: Evaluate
    concurrency: int
    say: Callable[[str], None]
    jsonl: Path | None = None
    output: Store | None = None

    def run(self) -> Changes:
        """Verify what neither output has yet. ConfigError, StoreError where a store cannot be used."""
        stored = _run_of(self.store)
        done = rows_done(self.jsonl, self.settings) if self.jsonl is not None else set()
        changes = Changes()
        run, sink = self._output(stored)
        kept = finished(self.output) if self.output is not None else {}
        with ThreadPoolExecutor(self.concurrency) as threads:
            for episode, verdicts in self._verified(threads, done, kept):
                for index, verdict in verdicts.items():
                    self._tell(episode, index, verdict, changes)
                complete = all(verdict.status is not Status.INFRA_ERROR for verdict in verdicts.values())
                if sink is not None and run is not None and complete:
                    sink.add(renewed(episode, verdicts, run))
        if sink is not None:
            sink.close()
        return changes

    def _verified(
        self, threads: ThreadPoolExecutor, done: set[tuple[str, int]], kept: Any
    ) -> Iterator[tuple[Episode, dict[int, Verdict]]]:
        """Each episode with the new verdicts of its turns by index, in order; a bounded number is under way."""
        waiting: list[tuple[Episode, dict[int, Future[Verdict]]]] = []
        for episode in episodes(self.store):
            if (episode.task.task_id, episode.sample) in kept:
                continue
            work = {
                index: threads.submit(self.evaluate, self._request(episode, turn))
                for index, turn in enumerate(episode.turns)
                if turn.triton_code is not None and (episode.episode_id, index) not in done
            }
            waiting.append((episode, work))
            while len(waiting) > 2 * self.concurrency:
                yield _collected(*waiting.pop(0))
        for item in waiting:
            yield _collected(*item)

    def _request(self, episode: Episode, turn: Turn) -> BenchRequest:
        assert turn.triton_code is not None
        identity = f"recheck-{episode.episode_id}-{turn.index}"
        return BenchRequest(
            request_id=identity, task=episode.task, kernel_code=turn.triton_code, settings=self.settings
        )

    def _tell(self, episode: Episode, index: int, new: Verdict, changes: Changes) -> None:
        old = episode.turns[index].verdict
        changes.add(old, new)
        if new.status is not old.status:
            self.say(f"{episode.task.task_id} sample {episode.sample} turn {index}: {old.status} -> {new.status}")
        if self.jsonl is not None and new.status is not Status.INFRA_ERROR:
            row = {
                "episode_id": episode.episode_id, "task_id": episode.task.task_id, "sample": episode.sample,
                "attempt": episode.attempt, "turn": index, "old_status": old.status, "old_speedup": old.speedup,
                "old_verifier_version": old.verifier_version, "settings": self.settings.model_dump(),
                "verdict": new.model_dump(mode="json"),
            }  # fmt: skip
            with self.jsonl.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _output(self, stored: RunInfo) -> tuple[RunInfo | None, TraceSink | None]:
        if self.output is None:
            return None, None
        if self.output.uri == self.store.uri:
            raise ConfigError(f"--output {self.output.uri} is the store that is verified again: name another one")
        self.output.check_writable()
        info = open_run(self.output, renewed_run(stored, self.settings, self.store.uri))
        return info, TraceSink(self.output)


def _run_of(store: Store) -> RunInfo:
    stored = read_run(store)
    if stored is None:
        raise ConfigError(f"{store.uri} holds no traces: name the --output of a run")
    return stored


def settings_of(uri: str) -> dict[str, Any]:
    """How a store's kernels were verified, as fields of BenchSettings, but for the device; what it does not say is left
    out. ConfigError where it holds no traces."""
    told = {name.replace("-", "_"): value for name, value in _run_of(open_to_read(uri)).identity.items()}
    told["timeout_s"] = told.get("timeout")
    return {name: told[name] for name in BenchSettings.model_fields if name != "device" and told.get(name) is not None}


def renewed_run(stored: RunInfo, settings: BenchSettings, source: str) -> RunInfo:
    """The run that the new store holds: the old one's, with these settings and this verifier."""
    changed = {
        "n-correctness": settings.n_correctness, "n-trials": settings.n_trials, "n-warmup": settings.n_warmup,
        "timeout": settings.timeout_s, "device": settings.device, "torch-ops": settings.torch_ops,
        "generalise": settings.generalise, "baseline": settings.baseline,
        "measure-performance": settings.measure_performance, "tf32": settings.tf32,
        "verifier version": VERIFIER_VERSION, "verified again from": source,
    }  # fmt: skip
    identity = stored.identity | changed
    return stored.model_copy(
        update={
            "run_id": f"{stored.run_id}-v{VERIFIER_VERSION}", "identity": identity,
            "fingerprint": fingerprint(identity),
        }
    )  # fmt: skip


def renewed(episode: Episode, verdicts: dict[int, Verdict], run: RunInfo) -> Episode:
    """The episode with new verdicts. How it ended and what the model was told then stay as they were."""
    turns = tuple(
        turn.model_copy(update={"verdict": verdicts[index]}) if index in verdicts else turn
        for index, turn in enumerate(episode.turns)
    )
    return episode.model_copy(
        update={
            "turns": turns,
            "best_turn": best_turn(turns),
            "run_id": run.run_id,
            "episode_id": episode_id(episode.task.task_id, episode.sample, episode.attempt, run.fingerprint),
        }
    )


def rows_done(path: Path, settings: BenchSettings) -> set[tuple[str, int]]:
    """(episode_id, turn) of the rows that this verifier has written with these settings.

    A last line that was cut off is taken away, so that the next one begins on a line of its own.
    """
    if not path.exists():
        return set()
    done, whole = set(), 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                row = json.loads(line)
                same = row["settings"] == settings.model_dump()
                if same and row["verdict"]["verifier_version"] == VERIFIER_VERSION:
                    done.add((str(row["episode_id"]), int(row["turn"])))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path} holds other lines than those of --jsonl-out: name another file") from error
    with path.open("rb+") as file:
        file.truncate(whole)
    return done


def recheck(
    uri: str, settings: BenchSettings, evaluate: Evaluate, concurrency: int, say: Callable[[str], None],
    jsonl: Path | None, output: str | None,
) -> Changes:  # fmt: skip
    """Verify a store again; see Recheck. `uri`, `output`: folders or s3://BUCKET/PREFIX."""
    target = None if output is None else open_store(output)
    return Recheck(open_to_read(uri), settings, evaluate, concurrency, say, jsonl, target).run()


def _collected(episode: Episode, work: dict[int, Future[Verdict]]) -> tuple[Episode, dict[int, Verdict]]:
    return episode, {index: future.result() for index, future in work.items()}
