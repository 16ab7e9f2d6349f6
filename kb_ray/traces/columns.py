"""The columns of a trace file, spelled out: names, types, order and version. Only declarations.

Never inferred from data, so that any two files can be read together. Open-ended dicts are lists of pairs,
because readers such as `datasets` know no map type. Every field is nullable; none has the null type.

A later version may only add fields, and bumps SCHEMA_VERSION; `schema.conform` then reads older files.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 5
VERSION_KEY = b"kb_ray.schema_version"
"""Key of the version in a file's schema metadata."""

_TEXT, _INT, _REAL, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TEXTS, _INTS, _REALS = pa.list_(_TEXT), pa.list_(_INT), pa.list_(_REAL)

_TIMING = pa.struct({"median_ms": _REAL, "trimmed_mean_ms": _REAL, "std_ms": _REAL, "n": _INT, "samples_ms": _REALS})
_ERROR = pa.struct(
    {
        "category": _TEXT,
        "message": _TEXT,
        "detail": _TEXT,
        "line": _INT,
        "output": _TEXT,
        "position": _INTS,
        "expected": _TEXT,
        "got": _TEXT,
        "max_abs_error": _REAL,
        "max_rel_error": _REAL,
        "wrong_elements": _INT,
        "total_elements": _INT,
        "pattern": _TEXT,
    }
)
_EVIDENCE = pa.struct(
    {
        "kernel_launches": _INT,
        "kernels": _TEXTS,
        "torch_ops": pa.list_(pa.struct({"name": _TEXT, "count": _INT})),
        "kernel_time_share": _REAL,
        "generalises": pa.list_(pa.struct({"name": _TEXT, "status": _TEXT})),
        "input_bytes": _INT,
        "sandbox_level": _TEXT,
        "flags": _TEXTS,
    }
)
_ENVIRONMENT = pa.struct(
    {
        "device": _TEXT,
        "gpu": _TEXT,
        "driver": _TEXT,
        "torch": _TEXT,
        "triton": _TEXT,
        "python": _TEXT,
        "host": _TEXT,
        "sm_clock_mhz": _REAL,
        "memory_clock_mhz": _REAL,
        "power_w": _REAL,
        "throttle": _TEXTS,
    }
)
OUTCOME = {
    "status": _TEXT,
    "stage": _TEXT,
    "valid": _BOOL,
    "compiled": _BOOL,
    "correct": _BOOL,
    "trusted": _BOOL,
    "timed": _BOOL,
    "tests_passed": _INT,
    "tests_total": _INT,
    "speedup": _REAL,
    "fast_0": _BOOL,
    "fast_1": _BOOL,
    "fast_2": _BOOL,
}
_VERDICT = pa.struct(
    {
        **OUTCOME,
        "speedup_low": _REAL,
        "speedup_high": _REAL,
        "kernel_time": _TIMING,
        "reference_time": _TIMING,
        "compiled_time": _TIMING,
        "speedup_compiled": _REAL,
        "error": _ERROR,
        "evidence": _EVIDENCE,
        "env": _ENVIRONMENT,
        "verifier_version": _TEXT,
        "judged": _TEXT,
        "seconds": pa.list_(pa.struct({"phase": _TEXT, "seconds": _REAL})),
    }
)
_FINAL = pa.struct(
    {**OUTCOME, "kernel_ms": _REAL, "reference_ms": _REAL, "error_category": _TEXT, "error_message": _TEXT}
)
_TURN = pa.struct(
    {
        "turn": _INT,
        "prompt_hash": _TEXT,
        "reasoning": _TEXT,
        "completion": _TEXT,
        "finish_reason": _TEXT,
        "model": _TEXT,
        "sampling": pa.struct({"temperature": _REAL, "top_p": _REAL, "max_tokens": _INT, "seed": _INT}),
        "usage": pa.struct({"prompt_tokens": _INT, "completion_tokens": _INT}),
        "latency_s": _REAL,
        "token_ids": _INTS,
        "logprobs": _REALS,
        "triton_code": _TEXT,
        "extraction_rule": _TEXT,
        "feedback_given": _TEXT,
        "verdict": _VERDICT,
        "times": pa.struct({"model_queue_s": _REAL, "model_s": _REAL, "bench_s": _REAL}),
        "policy_version": _TEXT,
    }
)
_RETRIEVED = pa.struct(
    {
        "index": _TEXT,
        "wanted": _INT,
        "examples": pa.list_(pa.struct({"example_id": _TEXT, "language": _TEXT, "score": _REAL, "overlap": _REAL})),
        "leak_overlap": _REAL,
        "leak_similarity": _REAL,
        "leaks": _INT,
        "note": _TEXT,
    }
)
_MESSAGE = pa.struct({"role": _TEXT, "content": _TEXT, "reasoning": _TEXT})

SCHEMA = pa.schema(
    {
        "episode_id": _TEXT,
        "run_id": _TEXT,
        "task_id": _TEXT,
        "source": _TEXT,
        "level": _INT,
        "name": _TEXT,
        "problem_id": _INT,
        "reference_code": _TEXT,
        "style": _TEXT,
        "entry_point": _TEXT,
        "init_convention": _TEXT,
        "input_shapes": _TEXT,  # JSON: the names of inputs are not fields
        "uuid": _TEXT,
        "flags": _TEXTS,
        "sample": _INT,
        "attempt": _INT,
        "num_turns": _INT,
        "stop_reason": _TEXT,
        "correct": _BOOL,
        "best_turn": _INT,
        "final_triton_code": _TEXT,
        "final_result": _FINAL,
        "turns": pa.list_(_TURN),
        "messages": pa.list_(_MESSAGE),
        "error": _TEXT,
        "created_at": _TEXT,
        "retrieved": _RETRIEVED,  # null where the prompt shows no examples
        "license": _TEXT,
    },
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)
