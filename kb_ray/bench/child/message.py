"""Named fields as the payload of a frame: the one shape of every command and answer.

Fields are value trees (`wire`); who must have which is known to the two sides, not here.
"""

from __future__ import annotations

from typing import Any

from kb_ray.bench.child import wire


def pack(**fields: Any) -> bytes:
    """The payload that carries `fields`; WireError for a value that cannot travel."""
    tree: dict[str | int, wire.Tree] = {}
    tree.update(fields)
    return wire.encode(tree)


def unpack(payload: bytes) -> dict[str, Any]:
    """The fields of a payload; WireError where it holds anything but text keys with values."""
    tree = wire.decode(payload)
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise wire.WireError("the payload does not hold named fields")
    return {str(key): value for key, value in tree.items()}
