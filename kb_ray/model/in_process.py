"""A model that answers within this process: a folder of weights, a LoRA adapter, or a name on the hub.

For checkpoints that nobody serves. One answer at a time, through transformers, which is imported only when a model
is loaded; a server is faster by far. Knows nothing of episodes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb_ray.checkpoints import ADAPTER, adapter_folder
from kb_ray.errors import ConfigError, ContextError
from kb_ray.extract import split_reasoning
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.records import Completion, Message, Usage

_INSTALL = "pip install 'kb-ray[train]'"
_WEIGHTS = (".safetensors", ".bin", ".json")
_EDGE_BYTES = 2**20


class InProcessCompleter:
    """A Completer. `source` is a folder or a name on the hub; it is loaded by `check`."""

    window: int | None = None

    def __init__(self, source: str, *, local: bool) -> None:
        """`local`: `source` must be a folder. ConfigError where it is none, or holds no model."""
        folder = adapter_folder(source)
        if local and not is_checkpoint(folder):
            raise ConfigError(
                f"--model-path: {source} is no checkpoint: it needs config.json, or adapter_config.json of LoRA"
            )
        self._source = str(folder) if folder.is_dir() else source
        self.model = f"{_name_of(folder.resolve())}@{_digest(folder)}" if folder.is_dir() else source
        self._lock = threading.Lock()
        self._network: Any = None
        self._tokenizer: Any = None

    async def check(self) -> ModelInfo:
        """Loads the model; a large one takes minutes. ConfigError where it cannot be loaded."""
        await asyncio.to_thread(self._load)
        return ModelInfo(model=self.model, max_model_len=self.window, in_process=True)

    async def complete(self, request: Request) -> Completion:
        """The answer. ContextError where prompt and answer do not fit the window together."""
        return await asyncio.to_thread(self._answer, request)

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Tokens of the prompt as the chat template writes it."""
        return len(await asyncio.to_thread(self._prompt, messages))

    async def aclose(self) -> None:
        """Lets go of the weights."""
        self._network = None

    def _load(self) -> None:
        if self._network is not None:
            return
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer

            base = _base_of(Path(self._source))
            device = "cuda" if torch.cuda.is_available() else "cpu"
            dtype = "auto" if device == "cuda" else torch.float32
            network = AutoModelForCausalLM.from_pretrained(base or self._source, dtype=dtype)
            if base is not None:
                from peft import PeftModel

                network = PeftModel.from_pretrained(network, self._source)
            self._tokenizer = AutoTokenizer.from_pretrained(self._tokenizer_source(base))
        except ImportError as error:
            raise ConfigError(f"a model in this process needs more packages ({error}): {_INSTALL}") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"model {self._source} cannot be loaded: {_first_line(error)}") from error
        self._network = network.to(device).eval()
        self.window = getattr(network.config, "max_position_embeddings", None)

    def _tokenizer_source(self, base: str | None) -> str:
        own = Path(self._source) / "tokenizer_config.json"
        return self._source if base is None or own.is_file() else base

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        text = "\n\n".join(message.content for message in messages) + "\n\n"
        return list(self._tokenizer(text)["input_ids"])

    def _answer(self, request: Request) -> Completion:
        started = time.monotonic()
        prompt, sampling = self._prompt(request.messages), request.sampling
        if self.window is not None and len(prompt) + sampling.max_tokens > self.window:
            raise ContextError(f"{len(prompt)} tokens and {sampling.max_tokens} of an answer exceed {self.window}")
        # Seeds are torch's global ones, so that only one answer may be drawn at a time.
        with self._lock:
            new = self._generate(prompt, request)
        ended = bool(new) and new[-1] in self._end_tokens()
        text = self._tokenizer.decode(new, skip_special_tokens=True)
        answer, thought = split_reasoning(text)
        return Completion(
            text=answer,
            reasoning=thought,
            finish_reason="stop" if ended else "length",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(new)),
            latency_s=time.monotonic() - started,
            model=self.model,
            sampling=sampling,
        )

    def _generate(self, prompt: list[int], request: Request) -> list[int]:
        import torch

        sampling = request.sampling
        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        given = torch.tensor([prompt], device=self._network.device)
        drawn = sampling.temperature > 0
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0} if drawn else {}
        with torch.inference_mode():
            output = self._network.generate(
                input_ids=given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=sampling.max_tokens,
                do_sample=drawn,
                pad_token_id=self._tokenizer.pad_token_id or self._tokenizer.eos_token_id or 0,
                **chosen,
            )
        return [int(token) for token in output[0, len(prompt) :]]

    def _end_tokens(self) -> set[int]:
        ends = self._network.generation_config.eos_token_id
        return set(ends) if isinstance(ends, list) else {ends}


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model, a LoRA adapter of one, or a training run with a checkpoint."""
    folder = adapter_folder(path)
    return (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file()


def _base_of(folder: Path) -> str | None:
    """What an adapter folder was trained on; None for a folder of whole weights or a name."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return None
    try:
        return str(json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{adapter} names no base model: {_first_line(error)}") from error


def _name_of(folder: Path) -> str:
    """The folder's name; of a checkpoint its run and step."""
    if folder.name != ADAPTER:
        return folder.name
    return f"{folder.parents[2].name}-{folder.parent.name}"


def _digest(folder: Path) -> str:
    """8 hexadecimal digits over names, sizes and both ends of the weights: other weights are another model."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHTS and path.is_file():
            size = path.stat().st_size
            found.update(f"{path.name}:{size}:".encode())
            with path.open("rb") as file:
                found.update(file.read(_EDGE_BYTES))
                file.seek(max(0, size - _EDGE_BYTES))
                found.update(file.read())
    return found.hexdigest()[:8]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
