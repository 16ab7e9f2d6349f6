"""What a run of training writes down: metrics.jsonl in its store, and the same for TensorBoard.

Names and numbers are the caller's. A run that goes on drops what it had written beyond its checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.traces.store import Store

NAME = "metrics.jsonl"


class Tracker:
    """One line of metrics.jsonl for each step, in order. `tensorboard`: a local folder, None for none."""

    def __init__(self, store: Store, tensorboard: Path | None, first: int) -> None:
        """`first`: the step that comes next; lines from it on are of a try that ended before its checkpoint."""
        self._store = store
        kept = (store.get(NAME) or b"").decode().splitlines()
        self._lines = [line for line in kept if _step_of(line) < first]
        self._board = _board(tensorboard, first)

    def log(self, step: int, values: Mapping[str, float], spreads: Mapping[str, Sequence[float]]) -> None:
        """Numbers of one step, and values whose distribution is shown; what is no number is left out.

        Where the store fails it may be called again, with the same.
        """
        if not self._lines or _step_of(self._lines[-1]) != step:
            self._lines.append(json.dumps({"step": step}))
        self.add(step, values, spreads)

    def add(self, step: int, values: Mapping[str, float], spreads: Mapping[str, Sequence[float]] | None = None) -> None:
        """Further numbers of the step that was logged last."""
        told = {name: value for name, value in values.items() if math.isfinite(value)}
        self._lines[-1] = json.dumps(json.loads(self._lines[-1]) | told)
        self._store.replace(NAME, "".join(f"{line}\n" for line in self._lines).encode())
        if self._board is not None:
            for name, value in told.items():
                self._board.add_scalar(name, value, step)
            for name, spread in (spreads or {}).items():
                self._board.add_histogram(name, spread, step)
            self._board.flush()

    def close(self) -> None:
        """Finish TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def board_folder(enabled: bool, output: str) -> Path | None:
    """Where a run writes for TensorBoard: within a local output, if it is to. ConfigError where it cannot."""
    if not enabled or output.startswith("s3://"):
        return None
    _writer()
    return Path(output) / "tensorboard"


def _writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            f"TensorBoard's files need a package ({error}): pip install 'kb-ray[tensorboard]', or add "
            "--no-tensorboard-enabled"
        ) from error
    return SummaryWriter


def _board(folder: Path | None, first: int) -> Any:
    # Steps from here on that an earlier try wrote are taken back by TensorBoard itself.
    return folder and _writer()(logdir=str(folder), write_to_disk=True, purge_step=first)


def _step_of(line: str) -> int:
    """The step of a line; a line cut short counts as one to drop."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 1 << 62
