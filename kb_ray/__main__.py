"""List the commands of kb_ray.

Reads the first sentence of each command's docstring from its source, so that nothing heavy is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).parent
_USAGE = re.compile(r"^`[^`]*`: ")
"""Some docstrings begin with how the command is called; the list says that already."""


def commands() -> Iterator[tuple[str, str]]:
    """(module to run with `python -m`, what it does), sorted by name."""
    found = {}
    for path in _ROOT.rglob("*.py"):
        if path == Path(__file__) or not _is_command(path):
            continue
        module = path.parent if path.name == "__main__.py" else path.with_suffix("")
        name = ".".join(("kb_ray", *module.relative_to(_ROOT).parts))
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        purpose = _USAGE.sub("", " ".join(text.partition("\n\n")[0].split()))
        found[name] = purpose[:1].upper() + purpose[1:]
    yield from sorted(found.items())


def _is_command(path: Path) -> bool:
    return path.name == "__main__.py" or '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line for each command; returns the exit code."""
    given = [one for one in (sys.argv[1:] if argv is None else argv) if one not in ("-h", "--help")]
    if given:
        print(
            f"error: {given[0]}: commands are modules: python -m kb_ray.COMMAND; without it they are listed",
            file=sys.stderr,
        )
        return 2
    listed = list(commands())
    width = max(len(name) for name, _ in listed)
    print("usage: python -m COMMAND [--help]\n")
    for name, purpose in listed:
        print(f"  {name:{width}}  {purpose}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
