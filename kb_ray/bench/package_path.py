"""Where the bench's own processes look for packages: as this one does, but not in the working folder.

`python -m` looks there first, and torch would take a file by the name of an optional package (`cuda.py`) for it. Knows
no process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])


def package_path() -> list[str]:
    """Folders for `sys.path`. The working folder is one of them where PYTHONPATH names it or kb_ray lies in it."""
    named = {os.path.realpath(path) for path in (_ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)) if path}
    here = os.path.realpath(os.getcwd())
    found = [path for path in sys.path if path and os.path.isdir(path)] + [_ROOT]
    return [path for path in found if here in named or os.path.realpath(path) != here]
