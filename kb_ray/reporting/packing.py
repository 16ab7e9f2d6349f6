"""JSON as text that can stand in a page: gzip, then base64, which has no character that HTML would read.

Does not know what it packs.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import Any

from pydantic import BaseModel


def pack(value: Any) -> str:
    """`value` (JSON values and records) packed; the page's `unpack` is the inverse."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")


def unpack(packed: str) -> Any:
    """What `pack` was given, as JSON values."""
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def plain(value: Any) -> Any:
    """`value` as JSON values. A browser's JSON knows no NaN and no infinity: they become their names."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
