"""Which text and which code a run's traces follow from: one hash over the files that decide them.

Two runs with the same one would say the same of the same verdict, find the same code in the same answer, and read the
same program alike. Does not know what is said or found.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent
_DECIDING = (
    "categories.py", "extract.py", "extraction", "prompts", "refine.py",
    "tasks/entry_point.py", "tasks/program.py", "tasks/shapes.py", "tasks/signature.py",
)  # fmt: skip
_KINDS = frozenset({".py", ".md", ".toml"})


@cache
def wording() -> str:
    """16 hexadecimal digits; the same wherever this code is installed."""
    digest = hashlib.sha256()
    for path in sorted(file for name in _DECIDING for file in ((_ROOT / name), *(_ROOT / name).rglob("*"))):
        if path.suffix in _KINDS and path.is_file():
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
