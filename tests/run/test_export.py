"""The command: from a store to files that `datasets` and a chat template read, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kb_ray.export import main
from kb_ray.traces.schema import encode, table_of
from tests.run.hub_server import TOKEN, hub
from tests.unit.exporting.stories import store_of, story, task

ROOT = Path(__file__).resolve().parents[2]
TOLD = [
    story("wrong", "broken", "slow", "fast", of=task("19_ReLU", source="kernelbench", number=19)),
    story("broken", "fast", of=task("19_ReLU", source="kernelbench", number=19), sample=1),
    story("wrong", "cpu", of=task("gelu", level=2)),
    story("blank", "hack", of=task("softmax", source="folder", level=None)),
]
LOAD = """
import datasets, json, sys
rows = {line}
print(json.dumps([rows.num_rows, sorted(rows.column_names)]))
"""
# In a repository that is pushed to, beside what exports left there.
OWNERS = (
    "notes.md", "figures/levels.png", "data/mine.csv", "data/test-00000-of-00001.parquet", "data/train-old.parquet",
    "level_notes_kernel.py", "level1/level_1_problem_2_sample_best_kernel.py",
)  # fmt: skip
# Transformers and TRL take long to import: one process does all of it.
TRAIN = """
import datasets, glob, json, sys
from transformers import AutoTokenizer
from trl.data_utils import apply_chat_template, is_conversational
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
told = []
for folder in sys.argv[2:]:
    rows = datasets.load_dataset("parquet", data_files=folder + "/data/train-*.parquet", split="train")
    for row in rows:
        example = {key: row[key] for key in ("messages", "prompt", "chosen", "rejected") if key in row}
        assert is_conversational(example)
        made = apply_chat_template(dict(example), tokenizer)
        if "messages" in example:
            assert made["text"] == tokenizer.apply_chat_template(example["messages"], tokenize=False)
        told.append([example, made])
print(json.dumps(told))
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return store_of(tmp_path / "store", *TOLD).uri


def python(code: str, home: Path, *arguments: str) -> str:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("view", "rows"), [("sft", 3), ("rl", 10), ("preference", 5), ("raw", 4), ("seed1", 4)])
def test_the_printed_line_loads_each_view(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], view: str, rows: int
) -> None:
    out = tmp_path / "out"
    assert main([store, "--view", view, "--output", str(out)]) == 0
    said, line = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{rows} rows of 4 episodes in {out}; ")
    count, columns = json.loads(python(LOAD.format(line=line), tmp_path))
    assert count == rows
    assert "source" in columns
    assert ("license" in columns) == (view != "seed1")
    assert f"python -m kb_ray.export {store} --view {view}" in (out / "README.md").read_text()


def test_sft_and_preference_go_through_a_chat_template_unchanged(
    store: str, tmp_path: Path, smollm2_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl.data_utils", reason="TRL is not installed")
    for name, *more in (
        ["sft", "--keep", "all"],
        ["sft", "--reasoning", "field", "--conversation", "last"],
        ["preference"],
    ):
        out = tmp_path / f"{name}{len(more)}"
        assert main([store, "--view", name, *more, "--output", str(out)]) == 0
    folders = [str(tmp_path / name) for name in ("sft2", "sft4", "preference0")]
    made = json.loads(python(TRAIN, tmp_path, str(smollm2_folder), *folders))
    texts = [text["text"] for _, text in made if "text" in text]
    assert len(texts) == 4 + 3
    assert sum(text.count("<|im_start|>assistant\n") for text in texts[:4]) == 10
    for example, text in made:
        for message in example.get("messages", []):
            assert f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>" in text["text"]
    pairs = [text for _, text in made if "chosen" in text]
    assert len(pairs) == 5
    assert all(text["chosen"] != text["rejected"] and text["prompt"].endswith("assistant\n") for text in pairs)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--view", "nope"], "invalid choice"),
        (["--view", "sft", "--near-duplicates", "1.5"], "--near-duplicates 1.5"),
        (["--view", "sft", "--license", "kernelbook"], "SOURCE=IDENTIFIER"),
        (["--view", "sft", "--status", "great"], "--status"),
        (["--view", "preference", "--margin", "0.5"], "--margin"),
        (["--view", "preference", "--margin", "nan"], "--margin nan"),
        (["--view", "preference", "--margin", "inf"], "--margin inf"),
        (["--view", "sft", "--near-duplicates", "nan"], "--near-duplicates nan"),
        (["--view", "sft", "--keep", "fast", "--target-speedup", "nan"], "--target-speedup nan"),
        (["--view", "sft", "--min-speedup", "nan"], "--min-speedup nan"),
        (["--view", "sft", "--max-speedup", "inf"], "--max-speedup inf"),
        (["--view", "rl", "--keep", "correct"], "--keep is for sft, --view is rl"),
        (["--view", "raw", "--conversation", "whole"], "--conversation is for sft"),
        (["--view", "rl", "--reasoning", "drop"], "--reasoning is for sft and preference"),
        (["--view", "sft", "--margin", "1.2"], "--margin is for preference"),
        (["--view", "sft", "--pairs-per-task", "4"], "--pairs-per-task is for preference"),
        (["--view", "sft", "--same-prompt"], "--same-prompt is for preference"),
        (["--view", "preference", "--allow-untimed"], "--allow-untimed is for rl"),
        (["--view", "sft", "--target-speedup", "2"], "--keep fast"),
        (["--view", "kernelbench", "--license", "folder=mit"], "--license"),
        (["--view", "sft", "--public"], "--push-to-hub"),
        (["--view", "preference", "--pairs-per-task", "0"], "--pairs-per-task"),
        (["--view", "sft", "--source", "kernelbook"], "--source kernelbook removed 4 episodes"),
        (["--view", "sft", "--keep", "fast", "--target-speedup", "9"], "--keep fast removed 4 answers"),
        (["--view", "sft", "--push-to-hub", "me/kernels"], "set HF_TOKEN"),
        ([], "--view"),
    ],
)
def test_unusable_input_is_one_line_exit_2_and_nothing_written(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    argv: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert main([store, *argv, "--output", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert said in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_damaged_part_is_named_and_skipped_only_when_told(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sorted((Path(store) / "parts").iterdir())[0]
    first.write_bytes(first.read_bytes()[:-30])
    argv = [store, "--view", "raw", "--output", str(tmp_path / "out")]
    assert main(argv) == 2
    assert first.name in capsys.readouterr().err
    assert main([*argv, "--skip-corrupt"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(f"skipped parts/{first.name}: ")
    assert told.out.startswith("2 rows of 2 episodes")


def test_a_newer_or_empty_store_is_refused(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = table_of([TOLD[0]]).replace_schema_metadata({b"kb_ray.schema_version": b"99"})
    (Path(store) / "parts" / "part-newer.parquet").write_bytes(encode(newer))
    argv = ["--view", "raw", "--output", str(tmp_path / "out"), "--skip-corrupt"]
    assert main([store, *argv]) == 2
    assert "upgrade kb_ray" in capsys.readouterr().err
    assert main([str(tmp_path / "none"), *argv]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_what_is_there_is_replaced_only_when_told(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [store, "--view", "sft", "--output", str(tmp_path / "out")]
    assert main(argv) == 0
    assert main(argv) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*argv, "--overwrite"]) == 0


@pytest.mark.parametrize("output", ["store", ".", "store/exports/sft"])
def test_the_store_is_never_overwritten(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main([store, "--view", "sft", "--overwrite", "--output", str(tmp_path / output)]) == 2
    said = capsys.readouterr().err
    assert "name a folder apart" in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    store = store_of(tmp_path / "store", *(story("wrong", "fast", sample=s) for s in range(3000)), part_rows=1000)
    argv = [store.uri, "--view", "rl", "--output", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-m", "kb_ray.export", *argv], cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob(".out-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + number, said
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def run_with_hub(store: str, out: Path, url: str, token: str, *more: str) -> tuple[int, str]:
    """The command in a process of its own: huggingface_hub reads its settings when it is imported."""
    argv = [store, "--view", "sft", "--output", str(out), "--push-to-hub", "me/kernels", *more]
    env = {**os.environ, "HF_ENDPOINT": url, "HF_TOKEN": token, "HF_HOME": str(out.parent / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.export", *argv], env=env, capture_output=True, text=True, cwd=ROOT
    )
    return done.returncode, done.stdout + done.stderr


def test_a_push_sends_card_and_rows_in_one_commit_and_clears_old_shards(store: str, tmp_path: Path) -> None:
    of_other_views = [
        "level1/level_1_problem_2_sample_0_kernel.py", "level_1_problem_3_sample_0_kernel.py",
        "reasoning_traces.json", "reasoning_traces_multiturn.json",
    ]  # fmt: skip
    with hub() as server:
        server.held += ["README.md", *of_other_views, *OWNERS]
        code, said = run_with_hub(store, tmp_path / "out", server.url, TOKEN)
        assert code == 0, said
    assert said.splitlines()[-1] == f"pushed to {server.url}/datasets/me/kernels"
    assert server.made[0]["visibility"] == "private" or server.made[0].get("private") is True
    names = {"README.md", "data/train-00000-of-00001.parquet"}
    assert set(server.files) == names
    assert all(server.files[name] == (tmp_path / "out" / name).read_bytes() for name in names)
    assert sorted(server.deleted) == sorted(["data/train-00001-of-00002.parquet", *of_other_views])
    assert TOKEN not in (tmp_path / "out" / "README.md").read_text() + said


def test_a_hub_that_refuses_or_is_away_is_one_line_and_the_export_stays(store: str, tmp_path: Path) -> None:
    with hub() as server:
        code, said = run_with_hub(store, tmp_path / "out", server.url, "hf_wrong")
    assert code == 2
    assert "the hub refused" in said.splitlines()[-1]
    assert "hf_wrong" not in said
    code, said = run_with_hub(store, tmp_path / "out", server.url, TOKEN, "--overwrite")
    assert code == 1
    assert "the hub does not answer" in said.splitlines()[-1]
    assert (tmp_path / "out" / "README.md").is_file()
