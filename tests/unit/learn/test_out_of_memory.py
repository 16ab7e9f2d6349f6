"""Where memory runs out, also while a model is loaded, one line says what may be changed; other failures stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings
from kb_ray.out_of_memory import ran_out
from tests.unit.learn import tiny

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.90 GiB"
HOST = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: Cannot allocate memory"
IN_8_BITS = "\nSome modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quant"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def failing(error: Exception) -> Any:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError(CUDA), True),
        (RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (OSError(12, "Cannot allocate memory"), True),
        (MemoryError(), True),
        (ValueError(IN_8_BITS), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("no file named model.safetensors"), False),
    ],
)
def test_what_runs_out_of_memory_is_told_from_other_failures(error: Exception, expected: bool) -> None:
    assert ran_out(error) is expected


@pytest.mark.parametrize("where", ["peft.PeftModel.to", "transformers.AutoModelForCausalLM.from_pretrained"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError(CUDA), RuntimeError("CUDA error: out of memory\nSee")])
def test_a_model_that_does_not_fit_is_one_line_with_the_settings_that_help(
    model: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    monkeypatch.setattr(where, failing(error))
    with pytest.raises(
        ConfigError, match=r"do not fit into the GPU's memory.*; or give --load-in-8bit .*; or begin anew"
    ) as caught:
        Learner(LearnerSettings(model=str(model)), device="cuda")
    assert "\n" not in str(caught.value)
    assert str(model) in str(caught.value)


def test_in_8_bits_already_it_is_not_told_to_be(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", failing(ValueError(IN_8_BITS)))
    smaller = "; or begin anew with a smaller --model-name under another --output"
    with pytest.raises(ConfigError, match=rf"do not fit into the GPU's memory.* goes on there{smaller}$") as caught:
        Learner(LearnerSettings(model=str(model), load_in_8bit=True), device="cuda")
    assert "--load-in-8bit" not in str(caught.value)


@pytest.mark.parametrize(
    ("device", "error"), [("cpu", RuntimeError(HOST)), ("cuda", OSError(12, "Cannot allocate memory"))]
)
def test_memory_of_the_machine_is_told_from_that_of_its_gpu(
    model: Path, monkeypatch: pytest.MonkeyPatch, device: str, error: Exception
) -> None:
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", failing(error))
    with pytest.raises(ConfigError, match="do not fit into the machine's memory: train where there is more") as caught:
        Learner(LearnerSettings(model=str(model)), device=device)
    assert "--load-in-8bit" not in str(caught.value)


def test_how_large_the_gpu_is_and_what_others_have_of_it_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peft.PeftModel.to", failing(torch.OutOfMemoryError(CUDA)))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 12 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 3 << 30)
    with pytest.raises(ConfigError, match=r"memory \(12.0 GiB, of which other processes have 8.0\): "):
        Learner(LearnerSettings(model=str(model)), device="cuda")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 11 << 30)
    with pytest.raises(ConfigError, match=r"memory \(12.0 GiB\): "):
        Learner(LearnerSettings(model=str(model)), device="cuda")


def test_what_is_taken_up_again_may_not_fit_either(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = tiny.learner(model)
    state, weights = learner.state(), learner.adapter()["adapter_model.safetensors"]
    with monkeypatch.context() as patched:
        patched.setattr(learner.optimizer, "load_state_dict", failing(torch.OutOfMemoryError(CUDA)))
        with pytest.raises(ConfigError, match="do not fit into"):
            learner.restore(state, weights)
        patched.setattr("kb_ray.learn.learner.load_adapter", failing(torch.OutOfMemoryError(CUDA)))
        with pytest.raises(ConfigError, match="do not fit into"):
            learner.begin_with(weights)
    learner.restore(state, weights)


def test_another_failure_is_not_taken_for_one_of_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peft.PeftModel.to", failing(RuntimeError("device-side assert triggered")))
    with pytest.raises(RuntimeError, match="device-side assert"):
        Learner(LearnerSettings(model=str(model)), device="cuda")
