"""An adapter in a deployment: what ray.serve.llm is told for it, and what vLLM could not serve, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployments import app
from kb_ray.errors import ConfigError
from tests.unit.deployments.adapter_folders import make_base, make_run


def args(source: str, adapter: str, **fields: Any) -> dict[str, Any]:
    return {"models": [{"model_id": "m", "source": source, "adapter": adapter, **fields}]}


def config(source: str, adapter: str, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = app.serving_args(app.parse(args(source, adapter, **fields)))["llm_configs"][0]
    return found


def test_an_adapter_is_the_only_model_of_a_server_of_its_own_class(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "run", base)
    found = config(base, run, engine={"max_model_len": 512, "max_loras": 9})
    (place,) = map(str, Path(run).glob("served/*/run/checkpoints/step000210/adapter"))
    assert found["model_loading_config"] == {"model_id": "m", "model_source": base}
    assert found["engine_kwargs"] == {"max_model_len": 512, "enable_lora": True, "max_loras": 1, "max_lora_rank": 16}
    assert (found["server_cls"], found["experimental_configs"]) == (
        "deployments.adapter_server:AdapterServer", {"adapter": place},
    )  # fmt: skip
    assert "server_cls" not in app.serving_args(app.parse({"models": [{"model_id": "m", "source": base}]}))


def test_a_run_is_settled_on_the_checkpoint_that_it_has_at_the_start(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    given = args(base, make_run(tmp_path / "run", base, step=1))
    settled = app.settled(given)
    make_run(tmp_path / "run", base, step=2)
    first, second = (f"{tmp_path}/run/checkpoints/step00000{step}/adapter" for step in (1, 2))
    assert [one["models"][0]["adapter"] for one in (settled, app.settled(given), app.settled(settled))] == [
        first, second, first,
    ]  # fmt: skip


@pytest.mark.parametrize(("rank", "most"), [(1, 1), (2, 8), (16, 16), (65, 128), (257, 320), (512, 512)])
def test_the_least_rank_of_vllms_that_holds_it_is_asked_for(tmp_path: Path, rank: int, most: int) -> None:
    base = make_base(tmp_path / "base")
    assert config(base, make_run(tmp_path / "run", base, r=rank))["engine_kwargs"]["max_lora_rank"] == most


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"r": 513}, r"run.* has rank 513, and vLLM serves ranks from 1 to 512: merge it"),
        ({"r": 0}, "has rank 0"),
        ({"use_dora": True, "bias": "all"}, "has use_dora, bias, which vLLM does not serve: merge it"),
        ({"alpha_pattern": {"q_proj": 1}}, "has alpha_pattern, which"),
        ({"modules_to_save": ["lm_head"]}, "has modules_to_save, which"),
        ({"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights, which"),
        ({"peft_type": "IA3"}, "is none of LoRA"),
        ({"r": None}, "is none of LoRA"),
    ],
)
def test_what_vllm_does_not_serve_is_one_line(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    base = make_base(tmp_path / "base")
    refused(base, make_run(tmp_path / "run", base, **settings), said)


def test_what_is_no_adapter_or_not_what_the_run_wrote_is_one_line(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "run", base)
    refused(base, str(tmp_path), f"there is no adapter in {tmp_path}: name a training run's output")
    adapter = tmp_path / "run" / "checkpoints" / "step000210" / "adapter"
    (adapter / "adapter_model.safetensors").write_bytes(b"other")
    refused(base, run, r"adapter_model\.safetensors is not what the run wrote")
    (adapter / "adapter_config.json").write_text("{")
    refused(base, run, r"adapter_config\.json is damaged")


def test_another_base_model_is_refused_by_content_or_by_name(tmp_path: Path) -> None:
    base, other = make_base(tmp_path / "base"), make_base(tmp_path / "other", hidden_size=7)
    run = make_run(tmp_path / "run", base)
    refused(other, run, "the checkpoint of step 210 was trained on .*base, not on .*other")
    assert config(make_base(tmp_path / "moved"), run)["engine_kwargs"]["enable_lora"]
    named = make_run(tmp_path / "named", "Org/Coder")
    refused("Org/Instruct", named, "was trained on Org/Coder, not on Org/Instruct")
    for same in ("org/coder", "mirror/Coder", "s3://bucket/models/Coder", base):
        assert config(same, named)["engine_kwargs"]["enable_lora"]


def test_one_adapter_in_its_place_and_many_beside_it_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"models\.0: adapter and lora exclude each other"):
        app.parse(args("s", "a", lora={"dynamic_lora_loading_path": "s3://b/p"}))


def refused(source: str, adapter: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        config(source, adapter)
    assert "\n" not in str(caught.value)
