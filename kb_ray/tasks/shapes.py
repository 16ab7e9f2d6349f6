"""Reads `input_shapes` of a `function` task: {"x": {"shape": [..], "dtype": "float32"}}.

Knows the dtypes that inputs may have, and not how inputs are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kb_ray.errors import TaskError
from kb_ray.records import TensorSpec

DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
    | {"int8", "int16", "int32", "int64", "uint8", "bool"}
)


def read_shapes(raw: object) -> dict[str, TensorSpec]:
    """Inputs by parameter name from a mapping, or from its JSON text. TaskError says what is wrong with it.

    An input whose value is null is left out: columnar files give every row the names of all rows.
    """
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"input_shapes is not JSON: {error}") from error
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        raise TaskError('input_shapes must map names to {"shape": [..], "dtype": ..}')
    shapes = {name: _read_spec(name, spec) for name, spec in raw.items() if spec is not None}
    if not shapes:
        raise TaskError("input_shapes names no input")
    return shapes


def _read_spec(name: str, raw: object) -> TensorSpec:
    if not isinstance(raw, Mapping):
        raise TaskError(f'input_shapes[{name!r}] must be {{"shape": [..], "dtype": ..}}')
    shape, dtype = raw.get("shape"), raw.get("dtype", "float32")
    if not isinstance(shape, (list, tuple)) or not all(_is_size(size) for size in shape):
        raise TaskError(f"input_shapes[{name!r}]: shape must be a list of sizes, not {shape!r}")
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise TaskError(f"input_shapes[{name!r}]: unknown dtype {dtype!r}")
    return TensorSpec(shape=tuple(shape), dtype=dtype)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
