"""Properties of the configuration: one line for each mistake, one source for flags, YAML and identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kb_ray import env_vars
from kb_ray.config import RunConfig, identity
from kb_ray.config_sources import build_parser, parse_command
from kb_ray.doctor import DoctorConfig
from kb_ray.errors import ConfigError
from kb_ray.tasks.rows import FIELDS
from kb_ray.traces.run import fingerprint, request_seed

COMMAND_ONLY = {"config", "set", "help"}


@pytest.fixture(autouse=True)
def _outside_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the machine that runs the tests must not reach them."""
    monkeypatch.chdir(tmp_path)
    for name in RunConfig.model_fields:
        monkeypatch.delenv(env_vars.SETTING_PREFIX + name.upper(), raising=False)
    for name in env_vars.ALIASES.values():
        monkeypatch.delenv(name, raising=False)


def parse(*argv: str) -> RunConfig:
    return parse_command(RunConfig, argv, prog="generate")


def refused(*argv: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", [RunConfig, DoctorConfig])
def test_help_of_every_flag_says_default_range_and_unit(model: type[Any]) -> None:
    actions = [
        action for action in build_parser(model, "prog")._actions if action.dest not in COMMAND_ONLY - {"config"}
    ]
    assert {action.dest for action in actions} >= set(model.model_fields)
    for action in actions:
        assert action.help is not None
        explained, _, details = action.help.removesuffix("]").rpartition(" [default: ")
        parts = dict(part.split(": ", 1) for part in f"default: {details}".split("; "))
        assert set(parts) == {"default", "range", "unit"}, action.dest
        assert all(value.strip() and value.strip() != "to" for value in parts.values()), action.dest
        assert len(explained.split()) >= 3, f"{action.dest} is not explained"


def test_help_of_column_names_every_field_that_may_be_mapped() -> None:
    (column,) = (action for action in build_parser(RunConfig, "prog")._actions if action.dest == "column")
    named = (column.help or "").rpartition("Fields: ")[2].partition(".")[0]
    assert [field.strip() for field in named.split(",")] == list(FIELDS)


def test_the_defaults_are_those_of_a_run_that_asks_for_nothing() -> None:
    config = parse()
    assert config.sample_counts() == (1500, 1000)
    assert (config.turns, config.batch_size, config.save_interval) == (1, 10, 10)
    assert config.vllm_url == "http://localhost:8000/v1"
    assert config.output == "reasoning_traces"


def test_naming_tasks_or_one_count_switches_the_default_counts_off() -> None:
    assert parse("--tasks", "builtin").sample_counts() == (None, None)
    assert parse("--kernelbook-samples", "3").sample_counts() == (3, None)


def test_turns_count_only_with_multi_turn() -> None:
    assert parse("--max-turns", "7").turns == 1
    assert parse("--max-turns", "7", "--multi-turn").turns == 7


def test_a_task_source_keeps_its_commas_and_spaces() -> None:
    config = parse("--tasks", "builtin:1,2", "--tasks", "folder:/some where/a,b")
    assert config.tasks == ("builtin:1,2", "folder:/some where/a,b")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--max-turns", "0"], "--max-turns: must be >= 1 (got 0)"),
        (["--max-turns", "three"], "--max-turns: must be a whole number (got three)"),
        (["--temperature", "2.5"], "--temperature: must be <= 2.0 (got 2.5)"),
        (["--top-p", "0"], "--top-p: must be > 0.0 (got 0)"),
        (["--timeout", "x"], "--timeout: must be a number (got x)"),
        (["--device", "tpu"], "--device: must be one of 'auto', 'cuda' or 'cpu' (got tpu)"),
        (["--vllm-url", "localhost"], "--vllm-url: must start with http:// or https:// (got localhost)"),
        (["--output", "gs://b/x"], "--output: must be a local folder or s3://BUCKET/PREFIX (got gs://b/x)"),
        (["--kernelbook-samples", "-1"], "--kernelbook-samples: must be >= 0 (got -1)"),
        (["n_trials=1"], "n_trials: must be >= 3 (got 1)"),
        (["--set", "n_trials=1"], "n_trials: must be >= 3 (got 1)"),
        (["--set", "n_trials"], "--set: expected key=value, got 'n_trials'"),
        (["--max-turns"], "--max-turns: expected one argument; see generate --help"),
        (["tasks=[builtin"], "tasks: '[builtin' is no list; write [a, b] or separate with spaces"),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line_naming_it(argv: list[str], line: str) -> None:
    assert refused(*argv) == line


def test_several_mistakes_are_named_together() -> None:
    line = refused("--max-turns", "0", "--n-trials", "2")
    assert "--max-turns: must be >= 1" in line
    assert "--n-trials: must be >= 3" in line


@pytest.mark.parametrize(
    ("argv", "nearest"),
    [
        (["--max-turn", "3"], "did you mean --max-turns?"),
        (["--bench-worker=3"], "did you mean --bench-workers?"),
        (["batchsize=3"], "did you mean batch_size?"),
        (["--set", "modle=x"], "did you mean model?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(argv: list[str], nearest: str) -> None:
    assert nearest in refused(*argv)


def test_nothing_is_suggested_where_no_name_is_near() -> None:
    assert refused("foo=1") == "--set: unknown setting 'foo'; settings are named like the flags in --help"


def test_a_stray_word_is_refused() -> None:
    assert "unexpected argument 'builtin'" in refused("builtin")


def test_an_unknown_yaml_key_names_the_file_and_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("max-trun: 3\n")
    line = refused("--config", str(file))
    assert str(file) in line
    assert "did you mean max_turns?" in line


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: [1\n", "\tx: 1\n"])
def test_a_config_file_that_is_no_mapping_is_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    assert str(file) in refused("--config", str(file))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("max_turns: yes", "max_turns: must be a whole number (got true)"),
        ("timeout: on", "timeout: must be a number (got true)"),
        ("tasks: 3", "tasks: must be a list (got 3)"),
        ("model: 3", "model: must be text (got 3)"),
    ],
)
def test_a_yaml_value_of_another_kind_is_refused(content: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    assert refused("--config", str(file)) == f"{file}: {line}"


def test_a_missing_config_file_is_one_line() -> None:
    assert "cannot read nowhere.yaml" in refused("--config", "nowhere.yaml")


def test_flags_win_over_yaml_over_environment_over_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("KB_RAY_N_TRIALS=11\nKB_RAY_BATCH_SIZE=11\nKB_RAY_SEED=11\nKB_RAY_SAMPLES=11\n")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"batch-size": 13, "max_turns": 13, "multi_turn": True}))
    for name in ("N_TRIALS", "BATCH_SIZE", "SAMPLES"):
        monkeypatch.delenv(f"KB_RAY_{name}", raising=False)
    monkeypatch.setenv("KB_RAY_SEED", "12")
    config = parse("--config", "run.yaml", "--set", "max_turns=14", "--set", "n_correctness=14", "n_correctness=15")
    assert config.samples == config.n_trials == 11
    assert config.seed == 12
    assert config.batch_size == 13
    assert config.max_turns == 14
    assert config.n_correctness == 15
    assert parse("--config", "run.yaml", "max_turns=14", "--max-turns", "16").max_turns == 16
    assert parse("--config", "run.yaml", "--no-multi-turn").turns == 1


def test_a_value_from_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_RAY_MAX_TURNS", "0")
    assert refused() == "KB_RAY_MAX_TURNS: must be >= 1 (got 0)"


def test_the_api_key_is_read_from_its_own_variable_and_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    config = parse()
    assert config.api_key is not None
    assert config.api_key.get_secret_value() == "hush"
    assert "hush" not in repr(config) + str(config.public())


def test_a_config_round_trips_through_yaml(tmp_path: Path) -> None:
    config = parse("--tasks", "builtin:1,2", "--multi-turn", "--max-hours", "1.5", "--model", "scripted:x.jsonl")
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(config.public()))
    assert parse("--config", "again.yaml") == config


def test_a_scripted_model_may_name_its_file() -> None:
    assert (parse("--model", "scripted").scripted, parse("--model", "scripted").script) == (True, None)
    assert parse("--model", "scripted:a:b.jsonl").script == "a:b.jsonl"
    assert not parse("--model", "scripted-7b").scripted


CHANGES_CONTENT: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.5, "max_tokens": 99, "context": 4096, "seed": 7, "multi_turn": True,
    "target_speedup": 2.0, "n_correctness": 7, "n_trials": 77, "timeout": 7.0, "torch_ops": "forbid",
    "generalise": "require",
    "baseline": "compile", "measure_performance": False, "tf32": True,
}  # fmt: skip
CHANGES_NOTHING: dict[str, Any] = {
    "prompt": "terse",  # its text counts, by hash
    # With an index these count too, and so does what it holds: raicl.Examples.identity.
    "rag_index": "x", "rag_model": "x", "raicl_k": 5, "raicl_tokens": 500, "raicl_overlap": 0.5, "raicl_cuda": True,
    "tasks": ("builtin",), "kernelbook_samples": 1, "kernelbench_samples": 1, "kernelbench_root": "x",
    "column": ("code=x",), "exclude_flagged": True, "samples": 3, "model": "named-or-found-on-the-server",
    "vllm_url": "http://elsewhere/v1", "api_key": "k", "batch_size": 3, "answer_timeout": 5, "max_turns": 9,
    "retry_failed": True, "output": "elsewhere", "save_interval": 3, "device": "cpu",
    "bench_workers": 3, "bench_concurrency": 3, "bench_idle": 5.0, "bench_cpus": 2.0, "bench_nodes": "labelled",
    "max_hours": 1.0, "max_tokens_total": 5, "max_gpu_hours": 1.0, "ray_address": "a:1", "dry_run": True,
    "log_format": "json", "shard": "2/3",
}  # fmt: skip


def identity_of(config: RunConfig, **changes: Any) -> str:
    known: dict[str, Any] = {"model": "m", "script_sha": None, "prompt_sha": "p", "device": "cpu"}
    return fingerprint(identity(config, **(known | changes)))


def test_every_setting_is_known_to_change_the_content_or_not() -> None:
    assert set(CHANGES_CONTENT) | set(CHANGES_NOTHING) == set(RunConfig.model_fields)


@pytest.mark.parametrize("name", CHANGES_CONTENT)
def test_what_changes_the_content_changes_the_fingerprint(name: str) -> None:
    assert identity_of(RunConfig(**{name: CHANGES_CONTENT[name]})) != identity_of(RunConfig())


@pytest.mark.parametrize("name", CHANGES_NOTHING)
def test_where_how_fast_and_how_much_do_not_change_the_fingerprint(name: str) -> None:
    assert identity_of(RunConfig(**{name: CHANGES_NOTHING[name]})) == identity_of(RunConfig())


@pytest.mark.parametrize("change", [{"model": "n"}, {"script_sha": "s"}, {"prompt_sha": "q"}, {"device": "cuda"}])
def test_what_is_found_out_at_the_start_changes_the_fingerprint(change: dict[str, str]) -> None:
    assert identity_of(RunConfig(), **change) != identity_of(RunConfig())


@given(st.integers(0, 2**31 - 1), st.text(), st.integers(0, 9), st.integers(1, 3), st.integers(0, 9))
def test_request_seeds_are_31_bit_and_repeatable(seed: int, task_id: str, sample: int, attempt: int, turn: int) -> None:
    found = request_seed(seed, task_id, sample, attempt, turn)
    assert 0 <= found < 2**31
    assert found == request_seed(seed, task_id, sample, attempt, turn)


def test_request_seeds_differ_between_turns_samples_attempts_and_tasks() -> None:
    seeds = {
        request_seed(0, task, sample, attempt, turn)
        for task in ("a", "b")
        for sample in range(10)
        for attempt in (1, 2)
        for turn in range(4)
    }
    assert len(seeds) == 2 * 10 * 2 * 4


def test_env_example_lists_every_variable_that_is_described() -> None:
    text = (Path(__file__).parents[2] / ".env.example").read_text()
    for name in [*env_vars.DESCRIBED, env_vars.SETTING_PREFIX]:
        assert name in text


@pytest.mark.parametrize("name", ["smoke", "generate"])
def test_the_run_configs_of_jobs_are_valid(name: str) -> None:
    assert parse("--config", str(Path(__file__).parents[2] / "jobs" / f"{name}.yaml")) != RunConfig()


def test_the_runtime_env_leaves_time_to_flush_and_keeps_secrets_at_home() -> None:
    runtime_env = yaml.safe_load((Path(__file__).parents[2] / "jobs" / "runtime_env.yaml").read_text())
    assert int(runtime_env["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) > 10
    assert ".env" in runtime_env["excludes"]
