"""The check of a store: an opening is what the run's template makes of its task, whatever hashes say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from kb_ray.prompts.opening import PromptSetting, opening_messages, prompt_hash, template_text
from kb_ray.records import Episode, Message, Task, TensorSpec
from kb_ray.traces.layout import RUN_KEY
from kb_ray.traces.store import Store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from kb_ray.verifying.opening import opening_faults
from kb_ray.verifying.rules import Rules
from tests.unit.verifying.sound_stores import RUN, change_episode


def of_template(name: str) -> str:
    """What run.json says of it."""
    return hashlib.sha256(template_text(name).encode()).hexdigest()[:16]


@pytest.fixture
def asked(store: Store) -> Store:
    """A sound store but for the fingerprint, which other tests are about: its run names its template and device."""
    identity = RUN.identity | {"prompt": of_template("default"), "device": "cpu"}
    store.replace(RUN_KEY, RUN.model_copy(update={"identity": identity}).model_dump_json().encode())
    return store


def found(store: Store) -> list[tuple[str, str]]:
    return [(str(fault.kind), fault.part) for fault in check(store).faults if fault.part != RUN_KEY]


def reopened(episode: Episode, *opening: Message) -> Episode:
    """The episode with another opening, and hashes that go with it."""
    messages = (*opening, *episode.messages[2:])
    turns = tuple(
        turn.model_copy(update={"prompt_hash": prompt_hash(messages[: len(opening) + 2 * turn.index])})
        for turn in episode.turns
    )
    return episode.model_copy(update={"messages": messages, "turns": turns})


def said(place: int, old: str, new: str) -> Callable[[Episode], Episode]:
    """Other words in the system's message (0) or the user's (1)."""

    def changed(episode: Episode) -> Episode:
        opening = list(episode.messages[:2])
        assert old in opening[place].content
        opening[place] = opening[place].model_copy(update={"content": opening[place].content.replace(old, new)})
        return reopened(episode, *opening)

    return changed


OTHERS: dict[str, Callable[[Episode], Episode]] = {
    "the system's message": said(0, "GPU programming", "poetry"),
    "the user's message": said(1, "Rewrite the", "Do not rewrite the"),
    "more at its end": said(1, "then give the file.\n", "then give the file.\nAnswer nothing.\n"),
    "another device": said(1, "Kernels run in Triton's interpreter on a CPU.", "Kernels run on an NVIDIA GPU."),
    "no machine": said(1, "Kernels run in Triton's interpreter on a CPU.", ""),
    "no system's message": lambda episode: reopened(episode, episode.messages[1]),
    "a system's message that reasons": lambda episode: reopened(
        episode, episode.messages[0].model_copy(update={"reasoning": "hm"}), episode.messages[1]
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_opening_that_the_template_does_not_make_is_a_fault_though_hashes_fit(asked: Store, name: str) -> None:
    assert found(asked) == []
    key = change_episode(asked, OTHERS[name])
    assert found(asked) == [("prompt", key)]


@pytest.mark.parametrize("change", [{"input_shapes": {"x": TensorSpec(shape=(3,))}}, {"style": "module"}])
def test_a_task_that_would_have_been_asked_otherwise_is_a_fault(asked: Store, change: dict[str, Any]) -> None:
    key = change_episode(asked, lambda one: one.model_copy(update={"task": one.task.model_copy(update=change)}))
    assert found(asked) == [("prompt", key)]


def test_what_a_later_start_said_of_its_machine_is_no_fault(asked: Store) -> None:
    where = PromptSetting(device="cpu", torch="2.9.0+cpu", triton="3.5.1")
    change_episode(asked, lambda one: reopened(one, *opening_messages(one.task, where)))
    assert found(asked) == []


@pytest.mark.parametrize(
    "identity", [{"prompt": "0" * 16, "device": "cpu"}, {"prompt": of_template("terse"), "device": "cpu"}]
)
def test_of_a_template_of_the_users_own_openings_are_not_made_again(store: Store, identity: dict[str, str]) -> None:
    run = RUN.model_copy(update={"identity": RUN.identity | identity})
    store.replace(RUN_KEY, run.model_dump_json().encode())
    own = identity["prompt"] == "0" * 16
    assert bool(found(store)) is not own
    assert any("template of the user's own" in note for note in check(store).notes) is own


SETTINGS = (
    PromptSetting(device="cpu"),
    PromptSetting(device="cpu", triton="3.5.1"),
    PromptSetting(device="cuda"),
    PromptSetting(device="cuda", torch="2.9.0"),
    PromptSetting(device="cuda", gpu="NVIDIA H100 80GB HBM3", torch="2.9.0+cu128", triton="3.5.1"),
    PromptSetting(device="cuda", gpu="A (B) with C", torch="2.9.0", triton="3.5.1"),
)


@pytest.mark.parametrize("name", ["default", "kernelbench", "terse", "raicl"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_template_is_known_again_with_any_machine_and_any_examples(
    store: Store, name: str, setting: PromptSetting
) -> None:
    first = next(episodes(store))
    task: Task = first.task.model_copy(update={"input_shapes": {"x": TensorSpec(shape=(2, 3))}})
    setting = setting.model_copy(update={"template": name})
    opening = opening_messages(task, setting, "### Example 1\n$1 {braces} \\g<0>")
    one = reopened(first.model_copy(update={"task": task}), *opening)
    wrong = said(len(opening) - 1, "$" if name == "raicl" else "Triton", "triton")(one)
    changed = said(1, "rite", "ipe")(one)
    for prompt in (name, of_template(name)):
        for device in (setting.device, None):
            rules = Rules(prompt=prompt, asked_for=device, same_wording=True)
            assert list(opening_faults(one, rules)) == []
            assert [kind for kind, _ in opening_faults(changed, rules)] == ["prompt"]
            # What an index gave cannot be made again.
            assert bool(list(opening_faults(wrong, rules))) is (name != "raicl")
    other = "cuda" if setting.device == "cpu" else "cpu"
    assert list(opening_faults(one, Rules(prompt=name, asked_for=other, same_wording=True)))
    assert list(opening_faults(changed, Rules(prompt=name, asked_for=setting.device))) == [], "of another wording"
