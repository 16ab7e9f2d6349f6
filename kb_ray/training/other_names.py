"""Names under which the second and the third document know settings of training, and what they may only be set to.

A setting of theirs that has no choice here is accepted with the value that it has, and refused with any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from kb_ray.config import Fixed

GROUPS = ("dataset_builder", "model_config", "lora_config", "extensions")
"""Under which they group settings, in YAML or before a dot: what counts is the name in it."""
NAMES: Mapping[str, str] = {
    # As a run of traces has them.
    "prompt": "prompt_option",
    "rag_index": "rag_index_path",
    # The third document.
    "log_path": "output",
    # The second.
    "r": "lora_rank",
    "target_modules": "lora_targets",
    "multi_input_num_tests": "n_correctness",
    "timing_num_trials": "n_trials",
    "timing_num_warmup": "n_warmup",
    "enable_adaptive_curriculum": "curriculum",
}
_ALWAYS = "kernels are always judged so"
FIXED: Mapping[str, Fixed] = {
    "enable_multi_input": Fixed((True,), _ALWAYS),
    "multi_input_shape_variations": Fixed((True,), "correct kernels are tried at another shape too, as evidence"),
    "multi_input_value_variations": Fixed((True,), _ALWAYS),
    "enable_staged_eval": Fixed((True,), _ALWAYS),
    "staged_skip_timing_on_failure": Fixed((True,), _ALWAYS),
    "staged_tiny_batch_first": Fixed((True,), _ALWAYS),
    "enable_calibrated_timing": Fixed((True,), _ALWAYS),
    "timing_use_events": Fixed((True,), _ALWAYS),
    "device_map": Fixed(("auto",), "the learner places the model"),
    "torch_dtype": Fixed(("bfloat16",), "the base model is in bfloat16 on a GPU"),
}
