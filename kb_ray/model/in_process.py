"""A model that answers within this process: a folder of weights, a LoRA adapter, a run's checkpoint, a name on the hub.

For checkpoints that nobody serves. What is asked for at the same time is answered together, through transformers; a
server is faster by far. Knows nothing of episodes, nor how weights are read or tokens drawn.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kb_ray import checkpoints, local_checkpoints
from kb_ray.base_models import is_folder
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError, ContextError
from kb_ray.extract import split_reasoning
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.model.weights import base_of, load
from kb_ray.records import Completion, Message, Usage

_WEIGHTS = (".safetensors", ".bin", ".json")
_READ_WHOLE, _STRETCH = 1 << 30, 1 << 20
"""Bytes: files of weights up to the first are read whole, of others so much at a time."""
_GATHERED_S, _GATHERINGS = 0.02, 50
"""Seconds without another request after which a batch is begun; so many such waits at most."""


_PATHS = ("/", "./", "../", "~")
"""Beginnings of what can only be a folder."""


class _Asked(NamedTuple):
    """A request that waits for its answer."""

    wanted: Any
    """drawing.Wanted."""
    tokens: int
    """Of prompt and answer at most."""
    answer: asyncio.Future[tuple[int, ...]]


class InProcessCompleter:
    """A Completer. `source` is a folder, a run or checkpoint on s3://, or a name on the hub; `check` loads it."""

    window: int | None = None

    def __init__(self, source: str, *, local: bool) -> None:
        """`local`: `source` is no name on the hub. ConfigError where it holds no model, StoreError where S3 fails."""
        folder = local_checkpoints.here(source)
        if local and not local_checkpoints.is_checkpoint(str(folder)):
            raise ConfigError(
                f"--model-path: {source} is no checkpoint: it needs config.json, or adapter_config.json of LoRA"
            )
        self._source = str(folder) if folder.is_dir() else source
        self.model = f"{local_checkpoints.name_of(folder.resolve())}@{_digest(folder)}" if folder.is_dir() else source
        self._network: Any = None
        self._tokenizer: Any = None
        self._waiting: list[_Asked] = []
        self._drawing: asyncio.Task[None] | None = None
        self._unseeded = itertools.count()

    async def check(self) -> ModelInfo:
        """Loads the model; a large one takes minutes. ConfigError where it cannot be loaded, or not whole."""
        await asyncio.to_thread(self._load)
        return ModelInfo(model=self.model, max_model_len=self.window, in_process=True)

    async def complete(self, request: Request) -> Completion:
        """The answer. ContextError where prompt and answer do not fit the window together."""
        started = time.monotonic()
        prompt, sampling = await asyncio.to_thread(self._prompt, request.messages), request.sampling
        if self.window is not None and len(prompt) + sampling.max_tokens > self.window:
            raise ContextError(f"{len(prompt)} tokens and {sampling.max_tokens} of an answer exceed {self.window}")
        new = await self._drawn(prompt, request)
        ended = bool(new) and new[-1] in self._end_tokens()
        answer, thought = split_reasoning(self._tokenizer.decode(new, skip_special_tokens=True), cut=not ended)
        return Completion(
            text=answer,
            reasoning=thought,
            finish_reason="stop" if ended else "length",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(new)),
            latency_s=time.monotonic() - started,
            model=self.model,
            sampling=sampling,
        )

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Tokens of the prompt as the chat template writes it."""
        return len(await asyncio.to_thread(self._prompt, messages))

    async def aclose(self) -> None:
        """Lets go of the weights. Nobody may wait for an answer any more."""
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
        self._network = None

    def _load(self) -> None:
        if self._network is not None:
            return
        folder = Path(self._source)
        base, checkpoint = base_of(folder), local_checkpoints.check(folder, None)
        if base is not None:
            _refuse_gone(folder, base, checkpoint)
        self._network, self._tokenizer = _loaded(self._source, base, checkpoint)
        self.window = getattr(self._network.config, "max_position_embeddings", None)

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        text = "\n\n".join(message.content for message in messages) + "\n\n"
        return list(self._tokenizer(text)["input_ids"])

    async def _drawn(self, prompt: list[int], request: Request) -> tuple[int, ...]:
        from kb_ray.model.drawing import Wanted

        sampling = request.sampling
        seed = next(self._unseeded) if sampling.seed is None else sampling.seed
        wanted = Wanted(tuple(prompt), sampling.max_tokens, sampling.temperature, sampling.top_p, seed)
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(wanted, len(prompt) + sampling.max_tokens, answer))
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw_all())
        return await answer

    async def _draw_all(self) -> None:
        """Answers what waits, batch by batch, until nothing does."""
        from kb_ray.model.drawing import draw, room

        await self._gather()
        while wanted := [asked for asked in self._waiting if not asked.answer.done()]:
            count = _fitting(wanted, room(self._network))
            batch, self._waiting = wanted[:count], wanted[count:]
            try:
                answers = await asyncio.to_thread(
                    draw, self._network, [asked.wanted for asked in batch], self._end_tokens(), self._pad()
                )
            except Exception as error:
                answers = []
                for asked in batch:
                    if not asked.answer.done():
                        asked.answer.set_exception(error)
            for asked, answer in zip(batch, answers, strict=False):
                if not asked.answer.done():
                    asked.answer.set_result(answer)

    async def _gather(self) -> None:
        """Who asks at the same time as the first is to be in its batch."""
        for _ in range(_GATHERINGS):
            before = len(self._waiting)
            await asyncio.sleep(_GATHERED_S)
            if len(self._waiting) == before:
                return

    def _pad(self) -> int:
        return int(self._tokenizer.pad_token_id or self._tokenizer.eos_token_id or 0)

    def _end_tokens(self) -> set[int]:
        ends = self._network.generation_config.eos_token_id
        return set(ends) if isinstance(ends, list) else {ends}


def _refuse_gone(adapter: Path, base: str, checkpoint: Checkpoint | None) -> None:
    """ConfigError where an adapter's base model was a folder that is not here: by its name a model of the hub would be
    judged in its place, or none be found."""
    was_folder = base.startswith(_PATHS) or (checkpoint is not None and checkpoint.base_hash is not None)
    if was_folder and not is_folder(base):
        started = "" if base.startswith(("/", "~")) else ", start from the folder where the training was started"
        raise ConfigError(
            f"the base model of {adapter} was in the folder {base}, and is not there: put it, or a link to it, there"
            f"{started}, or serve the checkpoint with `python -m kb_ray.serve CHECKPOINT --base FOLDER` and evaluate "
            "with --vllm-url"
        )


def _loaded(source: str, base: str | None, checkpoint: Checkpoint | None) -> tuple[Any, Any]:
    """(network, tokenizer). ConfigError where they cannot be loaded whole, or the base model is not the one that the
    checkpoint was trained on: by its weights, or by its config.json where those are not known."""
    if base is None or checkpoint is None:
        return load(source)
    if not checkpoint.base_weights:
        _refuse_other(checkpoint, base, {})
        return load(source)
    try:
        network, tokenizer = load(source)
    except ConfigError:
        # What does not fit may be another model, and that is the better word then.
        _refuse_other(checkpoint, base, {})
        raise
    from kb_ray.learn.network import base_weights

    _refuse_other(checkpoint, base, base_weights(network))
    return network, tokenizer


def _refuse_other(checkpoint: Checkpoint, base: str, weights: Mapping[str, str]) -> None:
    """By its name alone a model is not refused: a folder may have moved, and the hub has copies."""
    if checkpoints.differing_base(checkpoint, base, weights) != "name":
        checkpoints.refuse_other_base(checkpoint, base, weights)


def _fitting(waiting: Sequence[_Asked], room: int) -> int:
    """How many of the longest waiting fit into `room` tokens when all are as long as the longest; at least one."""
    longest = 0
    for count, asked in enumerate(waiting):
        longest = max(longest, asked.tokens)
        if count and longest * (count + 1) > room:
            return count
    return len(waiting)


def _digest(folder: Path) -> str:
    """8 hexadecimal digits over names, sizes and content of the weights: other weights are another model.

    Of a file that would take long to read, 64 stretches from its beginning to its end: training changes every layer.
    """
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHTS and path.is_file():
            size = path.stat().st_size
            found.update(f"{path.name}:{size}:".encode())
            last = max(0, size - _STRETCH)
            places = range(0, size, _STRETCH) if size <= _READ_WHOLE else [last * n // 63 for n in range(64)]
            with path.open("rb") as file:
                for place in places:
                    file.seek(place)
                    found.update(file.read(_STRETCH))
    return found.hexdigest()[:8]
