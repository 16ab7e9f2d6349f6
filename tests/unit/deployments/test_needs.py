"""What deployment files need of a cluster, and what failures of a model are told with."""

from __future__ import annotations

import pytest
import yaml

from kb_ray.errors import ConfigError
from kb_ray.serve import _check_vllm
from kb_ray.serve_file import FOLDER, find, read
from kb_ray.serve_needs import Need, explain, missing, needs, telling

NODE = {"GPU": 8.0, "accelerator_type:H100": 1.0}


@pytest.mark.parametrize(
    ("name", "gpus"), [("glm45_air", 4), ("gpt_oss_120b", 2), ("qwen3_235b", 8), ("qwen25_coder_7b", 1)]
)
def test_needs_are_those_of_one_replica_on_one_node(name: str, gpus: int) -> None:
    (need,) = needs(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
    assert (need.gpus, need.replicas, need.accelerator) == (gpus, 1, "H100")
    assert missing([need], [NODE]) is None
    line = missing([need], [{"CPU": 4.0}])
    assert line is not None
    assert f"needs {gpus} H100 GPUs on one node" in line


def test_a_model_on_a_cpu_needs_no_gpu() -> None:
    assert needs(yaml.safe_load((FOLDER / "smollm2_cpu.yaml").read_text())) == []


def test_gpus_of_two_nodes_do_not_add_up_for_one_replica() -> None:
    half = {"GPU": 4.0, "accelerator_type:H100": 1.0}
    assert missing([Need(model="m", replicas=2, gpus=4)], [half, half]) is None
    assert missing([Need(model="m", replicas=1, gpus=8)], [half, half]) == (
        "m needs 8 GPUs on one node for replica 1 of 1; the largest node here has 4, 8 in all"
    )
    assert missing([Need(model="m", replicas=1, gpus=1, accelerator="A100")], [half]) is not None


@pytest.mark.parametrize(
    ("log", "word"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "max_model_len"),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "KV cache"),
        ("ValueError: Free memory on device cuda:0 (9/79 GiB) on startup is less than desired", "somebody else"),
        ("output_size of gate's weight = 192 is not divisible by weight quantization block", "enable_expert_parallel"),
        ("huggingface_hub.errors.GatedRepoError: 403", "HF_TOKEN"),
        ("evaluation over HTTP on 0.0.0.0 needs a token: set KB_BENCH_TOKEN", "KB_BENCH_TOKEN"),
        ("ValueError: While loading /a, expected target modules in {'q_proj'} but received ['conv1'].", "merge it"),
        ("kb_ray.serve_weights.NotHere: no model of m in /models/m: put it there", "builds the application"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("SafetensorError: Error while deserializing header: incomplete metadata", "download it again"),
        ("KeyError: \"Reasoning parser 'glm45x' not found. Available parsers: deepseek_r1\"", "--check"),
        ("KeyError: \"Tool parser 'x' not found.\"", "--check"),
        ("TypeError: reasoning_parser_name='glm45x' has not been registered", "--check"),
        (
            "HarmonyError: error downloading or loading vocab file: failed to download or load vocab file",
            "TIKTOKEN_ENCODINGS_BASE",
        ),
        ("openai_harmony.HarmonyError: invalid tiktoken vocab file: No such file", "TIKTOKEN_ENCODINGS_BASE"),
        ("EngineArgs.__init__() got an unexpected keyword argument 'max_modellen'", "none of this vLLM"),
    ],
)
def test_usual_failures_are_explained(log: str, word: str) -> None:
    assert word in (explain(log) or "")
    assert telling(f"so it begins\n{log}") == [log]
    assert explain("something else") is None


def test_a_model_without_vllm_here_is_one_line_and_verdicts_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    with pytest.raises(ConfigError, match="needs vLLM in this Python: `make demo-llm`"):
        _check_vllm(read(find("smollm2_cpu")))
    _check_vllm(read(find("bench")))
