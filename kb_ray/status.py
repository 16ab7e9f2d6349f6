"""Show how a run stands, from its store alone: while it runs, when it is done and after a crash.

`python -m kb_ray.status STORE`: exit code 0 where the store could be shown, 2 where it is no folder, holds no run or
one of a newer kb_ray, 1 where the store fails. Reads only, and asks neither Ray nor the model server.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from kb_ray.command_options import parse_options
from kb_ray.config import RunConfig
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, KbRayError, StoreError
from kb_ray.evaluation.options import EvaluateConfig
from kb_ray.exiting import end
from kb_ray.traces.run import RunInfo, read_run
from kb_ray.traces.skim import Skimmer
from kb_ray.traces.starts import read_starts, seen_from_here
from kb_ray.traces.store import Store, open_to_read
from kb_ray.watching.standing import Standing, standing
from kb_ray.watching.standing_text import standing_text

_CLEAR = "\x1b[H\x1b[2J"


class StatusOptions(BaseSettings):
    """Show how a run stands, from its store alone: while it runs, when it is done and after a crash."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.status",
        use_attribute_docstrings=True,
        frozen=True,
        cli_implicit_flags=True,
        cli_kebab_case=True,
        cli_hide_none_type=True,
    )

    store: CliPositionalArg[str]
    """Folder or s3://bucket/prefix: the --output of a run."""
    json_: bool = Field(False, alias="json")
    """One JSON object instead of text; with --watch one a line."""
    watch: float | None = Field(None, ge=1, le=86_400)
    """Show it again every so many seconds, until the run is finished or Ctrl-C."""


def look(skimmer: Skimmer, store: Store) -> Standing:
    """How the run stands now. ConfigError where there is none, or a newer kb_ray wrote it; StoreError."""
    run = read_run(store)
    starts, skim = [seen_from_here(start) for start in read_starts(store)], skimmer.look()
    if run is None and not skim.files and not skim.damaged:
        raise ConfigError(f"trace store {store.uri}: no run here, name the --output of a run")
    return standing(store.uri, run, starts, skim, datetime.now(UTC), command_of(run, store.uri) if run else None)


def command_of(run: RunInfo, uri: str) -> str:
    """The command that goes on with a run, from the settings of its first start; secrets are not among them."""
    evaluated = "samples_dir" in run.config
    module, model = ("evaluate", EvaluateConfig) if evaluated else ("generate", RunConfig)
    given = ["python", "-m", f"kb_ray.{module}"]
    for name, field in model.model_fields.items():
        value = uri if name == "output" else run.config.get(name)
        default = field.get_default(call_default_factory=True)
        if name in run.config and value not in (default, list(default) if isinstance(default, tuple) else default):
            given += _flags("--" + name.replace("_", "-"), value)
    return shlex.join(given)


def _flags(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield flag if value else flag.replace("--", "--no-", 1)
    elif isinstance(value, list):
        for item in value:
            yield from (flag, str(item))
    else:
        yield from (flag, str(value))


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    load_dotenv()
    try:
        options = parse_options(StatusOptions, sys.argv[1:] if argv is None else argv)
        store = open_to_read(options.store)
        skimmer = Skimmer(store)
        found = look(skimmer, store)
        _show(found, options)
        while options.watch is not None and found.state != "finished":
            time.sleep(options.watch)
            try:
                found = look(skimmer, store)
            except StoreError as error:
                # A store that is away for a moment ends nothing.
                print(f"error: {error}", file=sys.stderr)
                continue
            _show(found, options)
    except KeyboardInterrupt:
        return 0
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _show(found: Standing, options: StatusOptions) -> None:
    if options.json_:
        print(found.model_dump_json(indent=None if options.watch else 2), flush=True)
    else:
        again = options.watch is not None
        print((_CLEAR if again and sys.stdout.isatty() else "") + standing_text(found), flush=True)
        if again and not sys.stdout.isatty():
            print(flush=True)


if __name__ == "__main__":
    end(main)
