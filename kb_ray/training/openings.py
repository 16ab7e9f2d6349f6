"""The first messages of the tasks that are trained on, with examples from an index where settings ask for them.

Knows no model: the window of the one that answers is told once it is loaded.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from kb_ray.bench.site import site
from kb_ray.prompts.opening import PromptSetting
from kb_ray.raicl import ExampleSettings, check_together, examples_for, index_content, opening
from kb_ray.records import Message, Retrieved, Task
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings, RolloutSettings

_FLAGS = ("--prompt-option", "--rag-index-path")
Settings = TypeVar("Settings", bound=RolloutSettings)


class Openings:
    """What each task begins with. ConfigError where template and index do not go together, or it cannot be used."""

    def __init__(self, settings: BestOfNSettings | GrpoSettings, device: Literal["cuda", "cpu"]) -> None:
        here = site()
        gpu = here.gpu if device == "cuda" else None
        self._prompt = PromptSetting(
            template=settings.prompt_option, device=device, gpu=gpu, torch=here.torch, triton=here.triton
        )
        self._max_tokens = settings.max_tokens
        self._examples = examples_for(settings.prompt_option, _wanted(settings), None, *_FLAGS)

    def within(self, window: int | None) -> None:
        """From now on prompts with examples fit into this window beside an answer; None: it is not known."""
        if self._examples is not None and window is not None:
            self._examples.within(window - self._max_tokens)

    def __call__(self, task: Task) -> tuple[tuple[Message, ...], Retrieved | None]:
        """The first messages of a task, and which examples are in them."""
        return opening(self._examples, task, self._prompt)


def with_content(settings: Settings) -> Settings:
    """The settings, identified by what their index holds in place of where it lies.

    ConfigError where template and index do not go together, or there is no index.
    """
    check_together(settings.prompt_option, settings.rag_index_path is not None, *_FLAGS)
    return settings if settings.rag_index_path is None else settings.of_index(index_content(settings.rag_index_path))


def _wanted(settings: RolloutSettings) -> ExampleSettings | None:
    if settings.rag_index_path is None:
        return None
    return ExampleSettings(
        index=settings.rag_index_path, count=settings.raicl_k, tokens=settings.raicl_tokens,
        overlap=settings.raicl_overlap, cuda=settings.raicl_cuda, model=settings.rag_model,
    )  # fmt: skip
