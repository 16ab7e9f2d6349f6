"""Opening messages: what they always say, and what is said of a template that cannot be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.prompts.opening import PromptSetting, opening_messages, prompt_hash, template_names
from kb_ray.records import Message, Task, TensorSpec

FUNCTION = Task(
    task_id="folder/scale",
    source="folder",
    name="scale",
    reference_code='def reference_impl(x, y):\n    """${x} $1 {braces} ``` $$"""\n\n\n\n    return 2 * x + y\n',
    style="function",
    entry_point="reference_impl",
    input_shapes={"x": TensorSpec(shape=(4, 8)), "y": TensorSpec(shape=(8,), dtype="float16")},
)
MODULE = FUNCTION.model_copy(update={"style": "module", "entry_point": "Net", "input_shapes": None})
GPU = PromptSetting(device="cuda", gpu="NVIDIA H100 80GB HBM3", torch="2.13.0", triton="3.7.1")


def user_text(task: Task = FUNCTION, setting: PromptSetting = GPU) -> str:
    return opening_messages(task, setting)[-1].content


@pytest.mark.parametrize("name", template_names())
@pytest.mark.parametrize("task", [FUNCTION, MODULE])
def test_every_template_states_task_contract_and_machine(name: str, task: Task) -> None:
    messages = opening_messages(task, GPU.model_copy(update={"template": name}))
    assert [message.role for message in messages] == ["system", "user"]
    text = messages[-1].content
    assert task.reference_code.strip("\n") in text
    for said in ("<triton>", "triton_kernel_wrapper", "ModelNew", "tl.constexpr", "NVIDIA H100", "2.13.0", "3.7.1"):
        assert said in text
    assert not re.search(r"\$(reference|environment|inputs|entry_advice|device_rule)", text)


def test_default_and_terse_explain_how_wrapper_parameters_are_filled() -> None:
    for name in ("default", "terse"):
        text = user_text(MODULE, GPU.model_copy(update={"template": name}))
        assert "`conv.weight` is `conv_weight`" in text


def test_input_shapes_of_a_function_task_are_listed() -> None:
    assert "- `x`: float32, shape [4, 8]\n- `y`: float16, shape [8]\n" in user_text()
    assert "called with these inputs" not in user_text(MODULE)


def test_the_entry_point_that_fits_the_style_is_named() -> None:
    assert "with the parameters of `reference_impl`, fits best" in user_text()
    assert "`ModelNew`, built like `Net`" in user_text(MODULE)


def test_the_device_decides_what_is_said_of_tensors() -> None:
    on_cpu = user_text(setting=PromptSetting(device="cpu"))
    assert "interpreter on a CPU" in on_cpu
    assert "CPU tensors" in on_cpu
    assert "on the GPU already" in user_text()


def test_what_is_not_known_of_the_machine_is_not_made_up() -> None:
    text = user_text(setting=PromptSetting(device="cuda"))
    assert "\n\nKernels run on an NVIDIA GPU.\n\n" in text


def test_reference_code_with_backticks_stays_in_its_fence() -> None:
    fence = re.search(r"^(`{3,})python\ndef reference_impl.*?^\1$", user_text(), re.MULTILINE | re.DOTALL)
    assert fence
    assert FUNCTION.reference_code.strip("\n") in fence[0]


def test_terse_is_much_shorter() -> None:
    terse = user_text(setting=GPU.model_copy(update={"template": "terse"}))
    assert len(terse) < len(user_text()) / 2


def test_a_template_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text("<!-- user -->\nDo it for $$5:\n$reference\n", "utf-8")
    (message,) = opening_messages(MODULE, GPU.model_copy(update={"template": str(path)}))
    assert message.content.startswith("Do it for $5:\n````python\ndef reference_impl")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read; name one of default, kernelbench, raicl, terse"),
        ("$reference", "user"),
        ("<!-- user -->\nNothing\n", "reference"),
        ("<!-- user -->\n$reference $model\n", "model"),
        ("<!-- user -->\n$reference costs $ 5\n", "Invalid placeholder"),
        ("<!-- user -->\n$reference\n<!-- system -->\nx\n", "user"),
    ],
)
def test_an_unusable_template_is_named_with_what_to_do(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "mine.md"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        opening_messages(MODULE, GPU.model_copy(update={"template": str(path)}))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_hash_depends_on_roles_and_contents_only() -> None:
    said = (Message(role="user", content="a"), Message(role="assistant", content="b"))
    assert prompt_hash(said) == prompt_hash([said[0], said[1].model_copy(update={"reasoning": "r"})])
    assert re.fullmatch(r"[0-9a-f]{16}", prompt_hash(said))
    others = [said[:1], said[::-1], (said[0], Message(role="user", content="b"))]
    assert len({prompt_hash(one) for one in [said, *others]}) == 4
