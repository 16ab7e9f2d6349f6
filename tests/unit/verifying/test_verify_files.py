"""The check of a store: faults of files and between them, each planted and found; and the command's exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kb_ray import verify
from kb_ray.compact import compact
from kb_ray.records import Episode
from kb_ray.traces.layout import MANIFEST_KEY, RUN_KEY, list_finals, list_parts
from kb_ray.traces.part_index import write_index
from kb_ray.traces.store import Store
from kb_ray.verifying.checking import check
from tests.unit.verifying.sound_stores import RUN, add, first_table, renamed, write_raw


def cut_in_half(store: Store) -> None:
    key = list_parts(store)[0]
    data = store.get(key)
    assert data is not None
    store.replace(key, data[: len(data) // 2])


def one_byte(store: Store) -> None:
    key = list_parts(store)[0]
    data = bytearray(store.get(key) or b"")
    data[len(data) // 2] ^= 1
    store.replace(key, bytes(data))


def without_hash(store: Store) -> None:
    store.put_if_absent("parts/part-x.parquet", b"PAR1 and no more")


def another_type(store: Store) -> None:
    table = first_table(store)
    write_raw(
        store, table.set_column(table.schema.get_field_index("sample"), "sample", table["sample"].cast(pa.int32()))
    )


def drop_column(store: Store) -> None:
    write_raw(store, first_table(store).drop_columns(["uuid"]))


def same_attempt(store: Store) -> None:
    add(store, lambda episode: episode.model_copy(update={"created_at": "2026-09-09T00:00:00+00:00"}))


def needless_attempt(store: Store) -> None:
    add(store, lambda episode: renamed(episode, attempt=2))


def another_program(store: Store) -> None:
    def changed(episode: Episode) -> Episode:
        task = episode.task.model_copy(update={"reference_code": "def reference_impl(x):\n    return 2 * x\n"})
        return renamed(episode, task=task, sample=1)

    add(store, changed)


def broken_manifest(store: Store) -> None:
    compact(store)
    store.replace(MANIFEST_KEY, b"{")


def lost_final(store: Store) -> None:
    compact(store, rows_per_file=3)
    store.delete(list_finals(store)[0])


def wrong_count(store: Store) -> None:
    compact(store)
    told = json.loads(store.get(MANIFEST_KEY) or b"")
    store.replace(MANIFEST_KEY, json.dumps(told | {"rows": 7}).encode())


def part_not_taken(store: Store) -> None:
    """A compaction that says it took a part which it never saw."""
    compact(store)
    key = add(store, lambda episode: renamed(episode, sample=5))
    told = json.loads(store.get(MANIFEST_KEY) or b"")
    store.replace(MANIFEST_KEY, json.dumps(told | {"parts": [*told["parts"], key]}).encode())


def lying_index(store: Store) -> None:
    key = list_parts(store)[0]
    write_index(store, [(key, first_table(store).slice(0, 1))])


def broken_plan(store: Store) -> None:
    store.put_if_absent("plans/plan-x.json", b"[]")


BETWEEN: dict[str, Callable[[Store], None]] = {
    "file half": cut_in_half,
    "file byte": one_byte,
    "file foreign": without_hash,
    "schema type": another_type,
    "schema column": drop_column,
    "repeated": same_attempt,
    "attempt": needless_attempt,
    "task": another_program,
    "manifest": broken_manifest,
    "compaction gone": lost_final,
    "compaction count": wrong_count,
    "compaction part": part_not_taken,
    "plan": broken_plan,
    "index": lying_index,
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_fault_between_files_is_found(store: Store, name: str) -> None:
    BETWEEN[name](store)
    assert name.split()[0] in {str(fault.kind) for fault in check(store).faults}


@pytest.mark.parametrize(("plant", "code"), [(None, 0), (cut_in_half, 1)])
def test_the_command_says_in_its_exit_code_what_it_found(
    store: Store, plant: Callable[[Store], None] | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if plant:
        plant(store)
    assert verify.main([store.uri]) == code
    out = capsys.readouterr().out
    assert out.endswith(f"{'sound; all planned episodes are here' if not code else '3 faults; unfinished'}\n")
    assert out.count("fault: ") == (3 if code else 0)
    assert verify.main([store.uri, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["sound"] is (code == 0)


def test_input_that_cannot_be_checked_is_one_line_and_exit_code_2(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.replace(RUN_KEY, b"{")
    for uri in (str(tmp_path / "nothing"), store.uri, "gs://bucket/x"):
        assert verify.main([uri]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
    store.replace(RUN_KEY, RUN.model_dump_json().encode())
    assert verify.main([store.uri]) == 0
