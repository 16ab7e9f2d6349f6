"""`kb_ray.serve --check`: all that is wrong with a file, told, and what could not be looked at here. Starts nothing."""

from __future__ import annotations

import sys
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.serve_engine import NotAsked
from kb_ray.serve_file import engine_faults, faults, weights_faults
from kb_ray.serve_weights import NotHere


def told(config: dict[str, Any]) -> int:
    """Says all that is wrong with a file; the exit code. Imports Ray, and vLLM where it is installed."""
    found, rest = list(faults(config)), "it"
    try:
        found += engine_faults(config)
    except NotAsked as absent:
        # A file for a cluster may be looked at anywhere.
        print(f"note: {absent}", flush=True)
        rest = "the rest"
    for fault in [] if found else weights_faults(config):
        if isinstance(fault, NotHere):
            print(f"note: {fault}, if it is to be served on this machine", flush=True)
        else:
            found.append(str(fault))
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    print(f"nothing is wrong with {rest}" if not found else f"{len(found)} to mend", flush=True)
    return 2 if found else 0


def check_engine(config: dict[str, Any]) -> None:
    """ConfigError for the first name under an `engine` that the vLLM here does not know, if there is one to ask."""
    try:
        for fault in engine_faults(config):
            raise ConfigError(fault)
    except NotAsked:
        return
