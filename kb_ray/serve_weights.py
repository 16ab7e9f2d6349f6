"""Whether a folder holds a model that can be read, told by its small files and by the heads of its large ones.

A download that broke off, a copy cut short or a Git LFS pointer in place of a file would be found by vLLM after minutes
only, in the log of a replica that starts again and again. Reads no weights, and does not know what the model is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_CONSOLIDATED, _CONSOLIDATED_INDEX = "consolidated*.safetensors", "consolidated.safetensors.index.json"
"""Mistral's layout. Where such a file lies there vLLM reads no others."""
_JSON = (CONFIG, "generation_config.json", "tokenizer_config.json", "tokenizer.json")
"""Read where they are there; only the first must be."""
_OTHERS = ("*.gguf", "*.bin", "*.pt", "*.pth")
"""Weights of which is told only whether they are there."""
_POINTER = b"version https://git-lfs"
_LONGEST_HEADER = 100_000_000
"""Bytes; safetensors itself reads no longer one."""
_AGAIN = "copy or download it again"


class NotHere(ConfigError):
    """A folder that is not on this machine; on another one it may be."""


def faults(folder: Path, *, weights: bool = True, consolidated: bool = True) -> Iterator[str]:
    """One line for each file that is missing or cannot be read. `weights`: whether they are to be there;
    `consolidated`: whether Mistral's layout goes before the usual one, as it does where no format is asked for.
    """
    for name in _JSON:
        if (folder / name).is_file():
            yield from _told(folder / name, _mapping)
    if weights:
        yield from _weights_faults(folder, _named_so(folder, _CONSOLIDATED) if consolidated else [])


def _weights_faults(folder: Path, consolidated: list[Path]) -> Iterator[str]:
    tensors = consolidated or _named_so(folder, "*.safetensors")
    others = [file for kind in _OTHERS for file in _named_so(folder, kind)]
    index = folder / (_CONSOLIDATED_INDEX if consolidated else INDEX)
    if index.is_file() and (tensors or not others):
        yield from _told(index, _named_files)
        # What lies beside them, such as the same weights in another layout, vLLM does not read.
        tensors, others = _named_by(index), []
    elif not tensors and not others:
        yield f"{folder} holds no weights, neither .safetensors nor .bin, .pt or .gguf: {_AGAIN}"
    for file in tensors or others:
        if not file.is_file():
            yield f"{file} is missing, and {index.name} names it: {_AGAIN}"
        else:
            yield from _told(file, _header if file.suffix == ".safetensors" else _start)


def _named_so(folder: Path, pattern: str) -> list[Path]:
    """Without those that a Mac puts beside its own, `._NAME`."""
    return sorted(file for file in folder.glob(pattern) if not file.name.startswith("."))


def _named_by(index: Path) -> list[Path]:
    """The files that an index names; none where it cannot be read."""
    try:
        return sorted(index.parent / name for name in _named_files(index))
    except (OSError, ValueError):
        return []


def _told(file: Path, read: Callable[[Path], object]) -> Iterator[str]:
    """One line where `file` is a pointer, or `read` raises OSError or ValueError, whose text says what it is not."""
    try:
        if _start(file).startswith(_POINTER):
            yield f"{file} is a Git LFS pointer and not the file itself: run `git lfs pull` where it was cloned"
        else:
            read(file)
    except OSError as error:
        yield f"{file} cannot be read: {error.strerror}"
    except ValueError as error:
        yield f"{file} {error}: {_AGAIN}"


def _start(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(len(_POINTER))


def _mapping(file: Path) -> dict[str, Any]:
    """ValueError where it is none."""
    return _object(file.read_bytes(), "is cut off or damaged")


def _object(text: bytes, otherwise: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    # Deeper than any that a program writes.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{otherwise} ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{otherwise} (it is no JSON object)")
    return found


def _named_files(index: Path) -> set[str]:
    """ValueError where it is no index."""
    names = _mapping(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise ValueError("is no index of weights (it has no weight_map)")
    return set(names.values())


def _header(file: Path) -> None:
    """ValueError where a file of safetensors is shorter or longer than its header says, or has none."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise ValueError(f"is cut off or damaged ({size} bytes, which end within its header)")
        header = _object(opened.read(length), "has a damaged header")
    try:
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        said = 8 + length + max(ends, default=0)
    except (TypeError, LookupError):
        raise ValueError("has a damaged header (a tensor in it has no place)") from None
    if size != said:
        raise ValueError(f"is {size} bytes long, and its header says {said}")
