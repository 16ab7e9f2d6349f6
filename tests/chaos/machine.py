"""What a command is put behind to run as if on another machine: with processes, or a clock, of its own.

Linux's namespaces do it, which only root may make: where that is refused the test is skipped.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kb_ray.bench.sweep import base_dir


def own_processes(*, stays: bool = False) -> list[str]:
    """It sees no process and no bench worker's folder of this machine, nor is taken for a process of it.

    When the process that is started here ends, all others of that machine do. `stays`: it is up until then, whatever
    becomes of the command, as a machine is; else it ends with the command, and as that did.
    """
    # Its first process is the shell, so that whatever loses its parent is reaped.
    base_dir().mkdir(mode=0o711, exist_ok=True)
    folders = shlex.quote(str(base_dir()))
    last = "while sleep 0.5; do :; done" if stays else "wait $!"
    script = f'mount -t tmpfs -o mode=711 tmpfs {folders} || exit 1; "$@" & {last}'
    return _unshare(script, "--pid", "--fork", "--kill-child", "--mount-proc")


def preloading(library: Path, folder: Path) -> list[str]:
    """It and all that it starts have `library` loaded, whatever environment they are given. `folder` is to be empty."""
    etc = shlex.quote(str(folder))
    script = (
        f"mount -t tmpfs -o mode=755 tmpfs {etc} && cp -a /etc/. {etc} && "
        f'echo {shlex.quote(str(library))} >> {etc}/ld.so.preload && mount --bind {etc} /etc && exec "$@"'
    )
    return _unshare(script, "--mount")


def _unshare(script: str, *flags: str) -> list[str]:
    if shutil.which("unshare") is None:
        pytest.skip("no namespaces here: there is no unshare (util-linux)")
    tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    return ["unshare", *flags, "sh", "-c", script, "sh"]
