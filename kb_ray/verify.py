"""`python -m kb_ray.verify STORE`: whether a trace store is sound: every invariant of its files, rows and episodes.

Exit code 0 where it is, finished or not; 1 where there are faults, each told in a line; 2 where it cannot be checked.
Reads only, and asks neither Ray nor the model server.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from kb_ray.command_options import parse_options
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import KbRayError
from kb_ray.exiting import end
from kb_ray.traces.store import open_to_read
from kb_ray.verifying.checking import check
from kb_ray.verifying.findings import Soundness


class VerifyOptions(BaseSettings):
    """Check every invariant of a trace store: files, schema, turns, messages, hashes, and what is missing."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.verify",
        use_attribute_docstrings=True,
        frozen=True,
        cli_implicit_flags=True,
        cli_kebab_case=True,
        cli_hide_none_type=True,
    )

    store: CliPositionalArg[str]
    """Folder or s3://bucket/prefix: the --output of a run."""
    json_: bool = Field(False, alias="json")
    """One JSON object instead of text."""
    processes: int = Field(1, ge=1, le=256)
    """Processes that look through files side by side."""
    list_missing: int = Field(20, ge=0)
    """Missing episodes to name at most; --json names all."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    load_dotenv()
    try:
        options = parse_options(VerifyOptions, sys.argv[1:] if argv is None else argv)
        found = check(open_to_read(options.store), options.processes)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(found.model_dump_json(indent=2) if options.json_ else text_of(found, options.list_missing))
    return 0 if found.sound else 1


def text_of(found: Soundness, list_missing: int) -> str:
    """The same for people: a few lines, then one for each fault."""
    planned = "" if found.planned is None else f" of {found.planned} planned"
    rows = {
        "run": found.run_id or "unknown: the store lacks run.json",
        "store": f"{found.store} ({found.files} files, {found.rows} rows)",
        "episodes": f"{found.episodes}{planned}, each counted once",
    }
    if found.superseded:
        rows["earlier"] = f"{found.superseded} rows of earlier attempts: readers take the highest attempt"
    if found.repeated:
        rows["repeated"] = f"{found.repeated} rows: of two rows of one attempt readers take the first"
    if found.to_redo:
        rows["to redo"] = f"{found.to_redo} episodes failed and are run again by the next start"
    if found.missing:
        rows["missing"] = f"{len(found.missing)} planned episodes are not finished yet"
    lines = [f"{name + ':':11}{value}" for name, value in rows.items()]
    lines += [f"  {name}" for name in found.missing[:list_missing]]
    if len(found.missing) > list_missing > 0:
        lines.append(f"  and {len(found.missing) - list_missing} more")
    lines += [f"note:      {line}" for line in found.notes]
    lines += [f"fault:     {fault}" for fault in found.faults]
    state = {"complete": "all planned episodes are here", "unfinished": "unfinished", "unknown": "plan unknown"}
    verdict = "sound" if found.sound else f"{len(found.faults)} faults"
    return "\n".join([*lines, f"{verdict}; {state[found.state]}"])


if __name__ == "__main__":
    end(main)
