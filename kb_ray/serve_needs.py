"""What a deployment file needs of a cluster, and what usually lies behind a model that does not come up.

Pure: reads the file's data, resources and log text. Does not know how anything is deployed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kb_ray.records import Record

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"no available memory for the cache blocks|kv cache.*larger than|max seq len .* larger than the maximum number",
     "the KV cache does not fit beside the weights: lower max_model_len, or raise gpu_memory_utilization"),
    (r"free memory on device .* is less than desired",
     "somebody else holds GPU memory: free it, or lower gpu_memory_utilization"),
    (r"out of memory|OutOfMemoryError",
     "the GPU ran out of memory: lower gpu_memory_utilization, max_model_len or max_num_seqs, or give it more GPUs"),
    (r"not divisible by weight quantization block|output_size .* is not divisible",
     "the weights cannot be cut that way: set enable_expert_parallel, or another tensor_parallel_size"),
    (r"401 Client Error|GatedRepoError|gated repo",
     "the model's repository wants a token: set HF_TOKEN where the replicas run"),
    (r"RepositoryNotFoundError|is not a local folder and is not a valid model",
     "there is no such model: check `source`"),
    (r"evaluation over HTTP on \S+ needs a token",
     "evaluation over HTTP needs a token there: set KB_BENCH_TOKEN or KB_BENCH_TOKEN_FILE where Ray runs, or listen on "
     "127.0.0.1"),
    (r"NotHere: no model of",
     "the machine that builds the application has no such folder: put the model there too, or name its place on S3 or "
     "on the hub"),
    (r"expected target modules in .* but received",
     "the adapter changes layers for which vLLM takes none: merge it into its base, and serve that"),
    (r"SafetensorError|Error while deserializing header",
     "a file of its weights is damaged: copy or download it again"),
    (r"No space left on device", "the disk is full where the weights are kept: free it, or set HF_HOME elsewhere"),
    (r"(reasoning|tool) parser '.*' not found|(reasoning|tool)_parser_name=.* has not been registered",
     "a parser under `engine` is none of this vLLM's: `python -m kb_ray.serve FILE --check`, where vLLM is installed, "
     "says which is meant"),
    (r"error downloading or loading vocab file|invalid tiktoken vocab file",
     "vLLM reads gpt-oss's answers with a vocabulary that is not there: name a folder with o200k_base.tiktoken in "
     "TIKTOKEN_ENCODINGS_BASE where Ray runs"),
    (r"unrecognized arguments|unexpected keyword argument '(\w+)'",
     "an argument under `engine` is none of this vLLM's"),
)  # fmt: skip

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Need(Record):
    """What the smallest number of replicas of one model takes."""

    model: str
    replicas: int
    gpus: int
    """Of one replica, all on one node."""
    accelerator: str | None = None


def needs(config: Mapping[str, Any]) -> list[Need]:
    """What each GPU model of a Serve config file needs to start."""
    models = [m for app in config.get("applications", ()) for m in (app.get("args") or {}).get("models", ())]
    return [_need(model) for model in models if isinstance(model, Mapping) and model.get("device", "gpu") == "gpu"]


def _need(model: Mapping[str, Any]) -> Need:
    engine = model.get("engine") or {}
    gpus = int(engine.get("tensor_parallel_size", 1)) * int(engine.get("pipeline_parallel_size", 1))
    scaling = (model.get("deployment") or {}).get("autoscaling_config") or {}
    replicas = int(scaling.get("min_replicas", model.get("replicas", 1)))
    return Need(model=str(model.get("model_id")), replicas=replicas, gpus=gpus, accelerator=model.get("accelerator"))


def missing(wanted: list[Need], nodes: list[Mapping[str, float]]) -> str | None:
    """One line on the first model for which the cluster's nodes have too few GPUs; None where all find a place.

    `nodes`: resources of each node that is alive. What is in use is not looked at.
    """
    left = [dict(node) for node in nodes]
    for need in sorted(wanted, key=lambda need: -need.gpus):
        for number in range(need.replicas):
            place = next((node for node in left if _fits(need, node)), None)
            if place is None:
                kind = f"{need.accelerator} " if need.accelerator else ""
                counts = [int(node.get("GPU", 0)) for node in nodes]
                return (
                    f"{need.model} needs {need.gpus} {kind}GPUs on one node for replica {number + 1} of "
                    f"{need.replicas}; the largest node here has {max(counts, default=0)}, {sum(counts)} in all"
                )
            place["GPU"] -= need.gpus
    return None


def _fits(need: Need, node: Mapping[str, float]) -> bool:
    kind = need.accelerator is None or f"accelerator_type:{need.accelerator}" in node
    return kind and node.get("GPU", 0) >= need.gpus


def grows(nodes: list[Mapping[str, float]]) -> bool:
    """Whether more nodes are meant to come: a head without CPUs has no other sense."""
    return any(not node.get("CPU") for node in nodes)


def explain(log: str) -> str | None:
    """What to do about a failure that its log tells; None where it is none of the usual ones."""
    for pattern, advice in _ADVICE:
        if re.search(pattern, log, re.IGNORECASE):
            return advice
    return None


def telling(log: str, most: int = 12) -> list[str]:
    """Lines of a log that tell why something failed: those of the usual failures, else the last that name an error."""
    lines = [_COLOUR.sub("", line).strip() for line in log.splitlines()]
    usual = [line for line in lines if any(re.search(pattern, line, re.IGNORECASE) for pattern, _ in _ADVICE)]
    # Of a validation that fails the cause stands on the lines after the error's own.
    errors = [line for line in lines if re.search(r"\b\w*(Error|Exception)\b:|^Value error, |\[type=\w+, input", line)]
    return [line[:300] for line in dict.fromkeys(usual or errors)][-most:]
