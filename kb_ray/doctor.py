"""Say what this machine or cluster has and lacks for kb_ray, each with what to do.

Looks without changing anything: starts no cluster, writes no file. Versions are read from package metadata,
so that a broken torch does not break the report. Exit code 0 when the demo can run here, else 1.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, SecretStr

from kb_ray import cluster
from kb_ray.config import Shown
from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.exiting import end
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.preflight import installed_version
from kb_ray.traces.store import open_store

RAY_VERSION = "2.60.0"
"""Version that drivers and clusters must share."""
_MIN_FREE_BYTES = 2 * 1024**3
_SLOW_S = 60.0


class DoctorConfig(BaseModel):
    """Show what this machine or cluster has and lacks, and what to do about it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    vllm_url: Annotated[str, Shown("URL", None, "http:// or https://")] = "http://localhost:8000/v1"
    """Endpoint of the model server to look for."""
    model: Annotated[str | None, Shown("name", "any", "a model served there")] = None
    """Model that the server should have."""
    api_key: Annotated[SecretStr | None, Shown("secret", "none is sent", "any text")] = None
    """Key of the model server. Better set as VLLM_API_KEY than typed."""
    output: Annotated[str, Shown("folder or URL", None, "local folder or s3://BUCKET/PREFIX")] = "reasoning_traces"
    """Where traces would go."""
    ray_address: Annotated[
        str | None, Shown("host:port", "RAY_ADDRESS, else a cluster started here", "a running cluster")
    ] = None
    """Ray cluster to look for."""


@dataclass(frozen=True)
class Finding:
    """One row of the report."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do where something is missing or weaker than it could be."""
    needed: bool = True
    """Whether the demo needs it."""


class _Lacking(Exception):
    """Something is not there: (what was found, what to do)."""


def examine(config: DoctorConfig) -> Iterator[Finding]:
    """All findings, each as soon as it is known."""
    for name, look, needed in (
        ("python", _python, True),
        ("ray", _ray, True),
        ("ray cluster", lambda: _cluster(config), True),
        ("ray token", _token, False),
        ("torch", lambda: _package("torch", "pip install 'kb-ray[bench]'"), True),
        ("triton", lambda: _package("triton", "pip install 'kb-ray[bench]'; Linux only"), True),
        ("GPU", _gpu, False),
        ("sandbox", _sandbox, True),
        ("model server", lambda: _model(config), False),
        ("trace store", lambda: _store(config), True),
        ("disk space", lambda: _disk(config), True),
    ):
        yield _finding(name, look, needed)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    try:
        config = parse_command(DoctorConfig, sys.argv[1:] if argv is None else argv, prog="python -m kb_ray.doctor")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    fit = True
    for finding in examine(config):
        state = "ok" if finding.ok else "missing" if finding.needed else "absent"
        print(f"{state:8} {finding.name:13} {finding.found}", flush=True)
        if finding.advice:
            print(f"{'':22} -> {finding.advice}")
        fit = fit and (finding.ok or not finding.needed)
    print(
        "\nThe demo can run here: `make demo`." if fit else "\nThe demo cannot run here until what is missing is there."
    )
    return 0 if fit else 1


def _finding(name: str, look: Callable[[], tuple[str, str]], needed: bool) -> Finding:
    try:
        found, advice = look()
    except _Lacking as lack:
        found, advice = lack.args
        return Finding(name, False, found, advice, needed)
    except ConfigError as error:
        found, _, advice = str(error).partition(": ")
        return Finding(name, False, found, advice, needed)
    return Finding(name, True, found, advice, needed)


def _python() -> tuple[str, str]:
    version = platform.python_version()
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        raise _Lacking(version, "use Python 3.11 or 3.12")
    return f"{version} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs", ""


def _ray() -> tuple[str, str]:
    version = installed_version("ray")
    if version is None:
        raise _Lacking("not installed", f"pip install 'ray[default,serve]=={RAY_VERSION}'")
    if version != RAY_VERSION:
        return version, f"kb_ray is built for {RAY_VERSION}; every node and driver must have the same"
    return version, ""


def _cluster(config: DoctorConfig) -> tuple[str, str]:
    known = cluster.known_address(config.ray_address)
    if known is None:
        return "none running here: each run starts a local one", ""
    cluster.probe(*known)
    return f"{known[0]} answers (from {known[1]})", ""


def _token() -> tuple[str, str]:
    if cluster.token() is None:
        raise _Lacking("none", "`ray get-auth-token --generate` before `ray start`; a local cluster makes its own")
    return "found", ""


def _package(name: str, advice: str) -> tuple[str, str]:
    version = installed_version(name)
    if version is None:
        raise _Lacking("not installed", advice)
    return version, ""


def _gpus() -> str:
    """A line for each, empty without."""
    return _run(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])


def _gpu() -> tuple[str, str]:
    answer = _gpus()
    if not answer:
        raise _Lacking("none", "kernels are checked in Triton's interpreter on the CPU and not timed")
    return "; ".join(answer.splitlines()), ""


def _sandbox() -> tuple[str, str]:
    # Asked in a process of its own: entering a sandbox cannot be undone.
    probe = f"from kb_ray.bench.level import level; print(level({bool(_gpus())}))"
    level = _run([sys.executable, "-c", probe], cwd=Path(__file__).parent.parent)
    if not level:
        raise _Lacking("cannot be entered", "pip install 'kb-ray[bench]' and libseccomp2, on Linux 5.13 or later")
    if missing := " and ".join(part for part in ("landlock", "seccomp") if part not in level):
        return level, f"candidates are less confined here than they could be, without {missing}: see docs/security.md"
    return level, ""


def _model(config: DoctorConfig) -> tuple[str, str]:
    async def ask() -> str:
        key = config.api_key.get_secret_value() if config.api_key else None
        completer = OpenAICompleter(config.vllm_url, config.model or "", key)
        try:
            info = await completer.check()
        finally:
            await completer.aclose()
        window = f", window {info.max_model_len} tokens" if info.max_model_len else ""
        return f"{info.model} at {config.vllm_url}{window}"

    return asyncio.run(ask()), ""


def _store(config: DoctorConfig) -> tuple[str, str]:
    store = open_store(config.output)
    store.check_writable()
    return f"{store.uri} can be written", ""


def _disk(config: DoctorConfig) -> tuple[str, str]:
    folder = Path.cwd() if "://" in config.output else Path(config.output).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free < _MIN_FREE_BYTES:
        raise _Lacking(text, "free some: Ray and kernel caches need about 2 GiB")
    return text, ""


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What the command prints; nothing where it is missing, fails or takes over a minute."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SLOW_S, cwd=cwd, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    end(main)
