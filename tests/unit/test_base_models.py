"""A base model's configuration is the same one whoever wrote it, and another where it says that something else is
computed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.base_models import config_hashes, in_full
from kb_ray.checkpoints import Checkpoint, base_hash, differing_base

QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 1,
    "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 128,
    "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.44.0",
    "use_cache": True, "use_sliding_window": False, "vocab_size": 64,
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 128,
    "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "attention_dropout": 0.0, "rope_theta": 500000, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "transformers_version": "4.42.3", "use_cache": True, "vocab_size": 64,
}  # fmt: skip
"""As versions 4 of transformers wrote them."""


def folder(path: Path, config: dict[str, Any]) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config, indent=2))
    return str(path)


@pytest.mark.parametrize("config", [QWEN, LLAMA])
def test_a_model_that_another_version_of_transformers_saved_anew_is_the_same(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers")
    before = folder(tmp_path / "before", config)
    transformers.AutoConfig.from_pretrained(before).save_pretrained(tmp_path / "anew")
    assert (tmp_path / "anew/config.json").read_bytes() != (tmp_path / "before/config.json").read_bytes()
    assert base_hash(str(tmp_path / "anew")) == base_hash(before)


@pytest.mark.parametrize(
    "changes",
    [
        {"rms_norm_eps": 1e-5}, {"rope_theta": 10000.0}, {"num_hidden_layers": 3}, {"tie_word_embeddings": True},
        {"use_sliding_window": True}, {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"head_dim": 32},
        {"layer_types": ["full_attention", "sliding_attention"]},
    ],
)  # fmt: skip
def test_what_the_model_computes_tells_it_apart(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert base_hash(folder(tmp_path / "a", QWEN)) != base_hash(folder(tmp_path / "b", QWEN | changes))


@pytest.mark.parametrize(("text", "count"), [("{", 1), ("[]", 2), ("{}", 2)])
def test_whatever_is_in_the_file_can_be_compared(tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "config.json").write_text(text)
    assert len(config_hashes(str(tmp_path))) == count
    assert config_hashes(str(tmp_path / "nothing")) == config_hashes("org/model") == config_hashes("~nobody/m") == ()


def test_what_an_earlier_version_kept_is_accepted_where_the_file_is_unchanged(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", QWEN)
    raw = hashlib.sha256((tmp_path / "model/config.json").read_bytes()).hexdigest()
    kept = Checkpoint(step=1, base_model="elsewhere", base_hash=raw, fingerprint="f")
    assert differing_base(kept, model, {}) is None
    (tmp_path / "model/config.json").write_text(json.dumps(QWEN | {"rms_norm_eps": 0.5}))
    assert differing_base(kept, model, {}) == "config.json"


def test_a_folder_means_the_same_from_anywhere_and_a_name_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    assert {in_full(name) for name in ("m", "./m", "~/m", str(tmp_path / "m"))} == {str(tmp_path / "m")}
    assert [in_full(name) for name in ("org/model", "gpt2", "")] == ["org/model", "gpt2", ""]
