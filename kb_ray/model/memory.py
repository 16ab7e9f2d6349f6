"""What serving a model takes of each GPU: weights and cache, worked out from its config.json.

Pure arithmetic over published fields of decoder-only transformers, dense and mixture-of-experts, with the
sharding that vLLM does: attention and dense layers by tensor parallelism, experts cut or handed out whole.
An estimate to be told by before anything is downloaded; does not know what else a GPU holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kb_ray.records import Record

BITS = {"fp8": 8.0, "mxfp4": 4.25, "gpt_oss_mxfp4": 4.25}
"""Bits of a quantised weight, scales included, by quant_method. What is not quantised has 16."""
ACTIVATIONS_BYTES = 4 << 30
"""What vLLM needs beside weights and cache: activations of a full batch, CUDA graphs, NCCL."""


class Fit(Record):
    """What one GPU holds, in bytes; `sequences`: of full length that its cache has room for."""

    weights: int
    cache_per_token: int
    cache: int
    sequences: float
    problems: tuple[str, ...] = ()
    """Why it cannot be served so, one line each."""


def parameters(config: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of weights by part: `attention`, `dense`, `experts`, `embedding`."""
    hidden, layers, vocabulary = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    head = _head(config)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    experts, expert_width = _experts(config), config.get("moe_intermediate_size") or config["intermediate_size"]
    dense_layers = config.get("first_k_dense_replace", 0) if experts else layers
    shared = config.get("n_shared_experts", 0) or 0
    sparse_layers = layers - dense_layers
    return {
        "attention": layers * hidden * head * 2 * (heads + kv),
        "dense": 3 * hidden * (dense_layers * config["intermediate_size"] + sparse_layers * shared * expert_width),
        "experts": sparse_layers * experts * 3 * hidden * expert_width,
        "embedding": vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2),
    }


def fit(config: Mapping[str, Any], engine: Mapping[str, Any], gpu_bytes: int) -> Fit:
    """Whether a model fits GPUs of `gpu_bytes` with these engine arguments of vLLM."""
    gpus = int(engine.get("tensor_parallel_size", 1))
    count, method = parameters(config), (config.get("quantization_config") or {}).get("quant_method")
    bits = BITS.get(method, 16.0) if method else 16.0
    # Only whole-model quantisation reaches attention; MXFP4 checkpoints keep it in 16 bits.
    other = bits if method == "fp8" else 16.0
    weights = count["experts"] * bits / 8 + (count["attention"] + count["dense"]) * other / 8 + count["embedding"] * 2
    per_gpu = int(weights / gpus)
    kv = max(1, config["num_key_value_heads"] // gpus)
    per_token = 2 * config["num_hidden_layers"] * kv * _head(config) * 2
    cache = int(gpu_bytes * float(engine.get("gpu_memory_utilization", 0.9))) - per_gpu - ACTIVATIONS_BYTES
    length = int(engine.get("max_model_len") or config["max_position_embeddings"])
    sequences = max(0, cache) / (per_token * length)
    problems = [*_shapes(config, engine, gpus)]
    if sequences < 1:
        problems.append(
            f"the weights take {per_gpu / 2**30:.0f} GiB of each GPU, which leaves no room for one sequence of "
            f"{length} tokens: more GPUs, or a smaller max_model_len"
        )
    return Fit(
        weights=per_gpu, cache_per_token=per_token, cache=max(0, cache), sequences=sequences, problems=tuple(problems)
    )  # fmt: skip


def _shapes(config: Mapping[str, Any], engine: Mapping[str, Any], gpus: int) -> list[str]:
    found = []
    if config["num_attention_heads"] % gpus:
        found.append(f"{config['num_attention_heads']} attention heads do not divide by tensor_parallel_size {gpus}")
    if not _experts(config):
        return found
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    if engine.get("enable_expert_parallel"):
        if _experts(config) % gpus:
            found.append(f"{_experts(config)} experts do not divide by tensor_parallel_size {gpus}")
    elif block and (width // gpus) % block[0]:
        found.append(
            f"an expert's {width} columns cut into {gpus} do not divide by the FP8 block of {block[0]}: "
            "set enable_expert_parallel"
        )
    return found


def _experts(config: Mapping[str, Any]) -> int:
    return int(config.get("n_routed_experts") or config.get("num_experts") or config.get("num_local_experts") or 0)


def _head(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
