"""LoRA checkpoints: of a real small model, laid over their base, compared, refused without it; of a run, on S3."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kb_ray import checkpoints
from kb_ray.errors import ConfigError
from kb_ray.model.completer import Request
from kb_ray.model.in_process import InProcessCompleter
from kb_ray.records import Message, Sampling
from kb_ray.traces.store import open_store
from tests.fixtures_run import Command, make_workload
from tests.fixtures_s3 import S3Server
from tests.run.test_evaluate import evaluate
from tests.run.test_train import train
from tests.unit.learn import tiny
from tests.unit.training.test_learning_pairs import HAND

QUESTION = (Message(role="user", content="Count from one to five."),)


@pytest.fixture(scope="module")
def adapters(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two adapters: `fresh` changes nothing, as each does before it is trained, `moved` does."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapters")
    base = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    network = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    network.save_pretrained(folder / "fresh")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.copy_(0.3 * torch.randn(weights.shape, generator=draw))
    network.save_pretrained(folder / "moved")
    return {name: folder / name for name in ("fresh", "moved")}


async def answer(folder: Path) -> str:
    model = InProcessCompleter(str(folder), local=True)
    await model.check()
    sampling = Sampling(temperature=0.0, max_tokens=8, seed=1)
    found = await model.complete(Request(messages=QUESTION, sampling=sampling, task_id="t"))
    await model.aclose()
    return found.text


async def test_an_adapter_is_laid_over_its_base(adapters: dict[str, Path], smollm2_folder: Path) -> None:
    plain = await answer(smollm2_folder)
    assert await answer(adapters["fresh"]) == plain
    assert await answer(adapters["moved"]) != plain


async def test_an_adapter_whose_base_is_gone_is_one_line(adapters: dict[str, Path], tmp_path: Path) -> None:
    for file in adapters["fresh"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    told = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(told | {"base_model_name_or_path": "/nowhere/base"}))
    with pytest.raises(ConfigError, match="was in the folder /nowhere/base, and is not there") as caught:
        await answer(tmp_path)
    assert "\n" not in str(caught.value)


def test_two_checkpoints_are_evaluated_and_compared(
    command: Command, tmp_path: Path, adapters: dict[str, Path]
) -> None:
    workload, prompt = make_workload(tmp_path, 2), tmp_path / "short.md"
    prompt.write_text("<!-- user -->\nRewrite with Triton: $reference\n")
    code, out = evaluate(
        command, "--compare", str(adapters["fresh"]), str(adapters["moved"]), "--tasks", f"folder:{workload.tasks}",
        "--prompt", str(prompt), "--max-tokens", "8", "--output", str(tmp_path / "out"), "--bench-workers", "1",
        "--results", str(tmp_path / "results"),
    )  # fmt: skip
    assert code == 0, out
    found = json.loads((tmp_path / "results" / "comparison.json").read_text())
    assert (found["tasks"], found["first"], found["second"]) == (
        2, str(tmp_path / "out" / "fresh"), str(tmp_path / "out" / "moved"),
    )  # fmt: skip
    assert found["differences"][0]["difference"]["value"] == 0.0


def test_the_command_that_training_ends_with_evaluates_what_it_left_on_s3(
    command: Command, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3_server.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    model, data, run = tiny.make_model(tmp_path / "model"), tmp_path / "rows.jsonl", f"s3://{s3_server.bucket}/lab/sft"
    data.write_text("".join(json.dumps(HAND) + "\n" for _ in range(4)))
    code, out = train(
        command, "sft", f"model_name={model}", f"data=file:{data}", f"output={run}", "batch_size=4", "--epochs", "2",
        "learning_rate=0.01", "--checkpoint-every", "1", "--no-tensorboard-enabled",
    )  # fmt: skip
    assert code == 0, out
    assert checkpoints.steps(open_store(run)) == [1, 2]
    given = re.search(r"python -m kb_ray\.evaluate (.+) judges the adapter", out.splitlines()[-1])
    assert given is not None, out
    workload, prompt = make_workload(tmp_path, 2), tmp_path / "short.md"
    prompt.write_text("<!-- user -->\nRewrite with Triton: $reference\n")
    tasks = f"folder:{workload.tasks}"
    asked = ["--tasks", tasks, "--prompt", str(prompt), "--max-tokens", "8", "--bench-workers", "1"]
    code, out = evaluate(command, *given[1].split(), *asked, "--output", str(tmp_path / "out"))
    assert code == 0, out
    found = json.loads((tmp_path / "out" / "evaluation" / "metrics.json").read_text())
    assert found["model"].startswith("sft-step000002@")
    assert found["summary"]["overall"]["judged"] == 2
    early = f"{run}/checkpoints/step000001"
    code, out = evaluate(
        command, "--compare", early, run, *asked, "--output", str(tmp_path / "both"), "--results", str(tmp_path / "r")
    )
    assert code == 0, out
    compared = json.loads((tmp_path / "r" / "comparison.json").read_text())
    assert [compared[side] for side in ("first", "second")] == [
        str(tmp_path / "both" / name) for name in ("step000001", "sft")
    ]
    assert compared["tasks"] == 2


def test_what_is_no_checkpoint_on_s3_is_one_line(command: Command, s3_server: S3Server) -> None:
    nowhere = Command({**command.env, **s3_server.env})
    code, out = evaluate(nowhere, "--model-path", f"s3://{s3_server.bucket}/nothing", "--tasks", "builtin:1")
    assert code == 2
    assert out.splitlines() == [
        f"error: there is no checkpoint at s3://{s3_server.bucket}/nothing: name a training run's output or one of its "
        "checkpoints, in a folder or on s3://BUCKET/PREFIX"
    ]
