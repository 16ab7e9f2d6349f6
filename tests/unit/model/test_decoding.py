"""A network asked token by token says what it says when it reads the whole at once, however keys are kept."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kb_ray.model import decoding
from kb_ray.model.decoding import Fixed, Growing, _cache_name, _recordable, decode
from kb_ray.model.drawing import padded
from kb_ray.model.recording import RecordingFailed
from tests.unit.learn import tiny

PROMPTS = [(1, 3, 7, 8), (1, 3, 9), (1, 3, 10, 11, 12, 13, 14), (1, 3)]
SAID = [(9, 4, 4), (7, 20, 21), (5, 6, 7), (30, 2, 11)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny.learner(tiny.make_model(tmp_path_factory.mktemp("model"))).network.eval()


def small(kind: str, **settings: Any) -> Any:
    """A network of that kind with weights of its own, on the CPU."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tiny.WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8, initializer_range=0.4, **settings,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def dynamic() -> Any:
    """A network that decides by the numbers of a tensor which positions it rotates by."""
    return small("Llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})


def check(network: Any, steps: Growing | Fixed) -> None:
    """That `steps`, which has read PROMPTS, says at every token of SAID what the whole sequence says."""
    device = steps.scores().device
    for count in range(len(SAID[0]) + 1):
        for row, (prompt, said) in enumerate(zip(PROMPTS, SAID, strict=True)):
            whole = network(torch.tensor([prompt + said[:count]], device=device)).logits[0, -1]
            torch.testing.assert_close(steps.scores()[row], whole, atol=1e-3, rtol=1e-3)
        if count < len(SAID[0]):
            steps.take(torch.tensor([said[count] for said in SAID], device=device))


class Played:
    """In place of a recording: what is recorded is done at each replay."""

    def __init__(self, step: Callable[[], Tensor], device: torch.device) -> None:
        self.replay = step
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("keeping", [Growing, Fixed])
def test_scores_are_those_of_the_whole_sequence(network: Any, keeping: type[Growing] | type[Fixed]) -> None:
    with torch.no_grad():
        check(network, keeping(network, *padded(PROMPTS, 2), most=8))


def test_only_a_cache_that_is_all_on_the_gpu_is_recorded() -> None:
    cuda = torch.device("cuda")
    assert _recordable(small("Llama"), cuda)
    assert _recordable(small("Mistral", sliding_window=None), cuda)
    assert not _recordable(small("Mistral", sliding_window=4), cuda)
    assert not _recordable(small("Llama"), torch.device("cpu"))


def test_a_window_shorter_than_a_prompt_is_seen_as_by_the_whole_sequence() -> None:
    network = small("Mistral", sliding_window=4)
    with torch.no_grad():
        check(network, Growing(network, *padded(PROMPTS, 2), most=8))


def test_the_recorded_step_is_the_second_and_its_memory_is_given_back(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "Recording", Played)
    with torch.no_grad():
        steps = Fixed(network, *padded(PROMPTS, 2), most=8)
        steps._may_record = True
        check(network, steps)
    played: Any = steps._recording
    assert isinstance(played, Played)
    steps.close()
    assert played.closed


def test_a_step_that_looks_at_numbers_is_never_recorded_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decoding, "Recording", lambda *args: pytest.fail("recorded"))
    network = dynamic()
    assert _recordable(network, torch.device("cuda"))
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for _ in range(2):
            steps = Fixed(network, *padded(PROMPTS[:2], 2), most=8)
            steps._may_record = True
            for _ in range(3):
                steps.take(torch.tensor([5, 6]))
    assert [record.message.partition(",")[0] for record in caplog.records] == ["LlamaForCausalLM cannot be recorded"]
    assert not _recordable(network, torch.device("cuda"))


@pytest.mark.parametrize(("cause", "again"), [(torch.OutOfMemoryError("full"), True), (RuntimeError("no"), False)])
def test_where_recording_fails_the_answers_go_on_unrecorded(
    cause: Exception, again: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(step: Callable[[], Tensor], device: torch.device) -> None:
        raise RecordingFailed(str(cause)) from cause

    monkeypatch.setattr(decoding, "Recording", fail)
    network = small("Llama")
    with caplog.at_level(logging.WARNING), torch.no_grad():
        steps = Fixed(network, *padded(PROMPTS, 2), most=8)
        steps._may_record = True
        check(network, steps)
    assert len(caplog.records) == 1
    assert _recordable(network, torch.device("cuda")) == again


def test_keys_are_given_by_a_name_that_the_network_knows(network: Any) -> None:
    class Older:
        def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...

    class Newer:
        def forward(self, input_ids: Any, cache: Any = None) -> None: ...

    assert (_cache_name(Older.forward), _cache_name(Newer.forward)) == ("past_key_values", "cache")
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        Growing(network, *padded(PROMPTS, 2), most=8)
    assert not [one for one in caught if "past_key_values" in str(one.message)]


@pytest.mark.parametrize("fixed", [True, False])
def test_all_room_may_be_used_and_what_follows_an_end_is_padding(
    network: Any, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_recordable", lambda network, device: fixed)
    script = torch.tensor([[5, 2, 6, 7], [2, 5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 2]])
    places = iter(range(4))

    def choose(scores: Tensor) -> Tensor:
        return script[:, next(places)]

    answers = decode(network, *padded(PROMPTS, 2), choose, 4, {2}, pad=0)
    assert answers.tolist() == [[5, 2, 0, 0], [2, 0, 0, 0], [5, 6, 7, 8], [5, 6, 7, 2]]


def test_nothing_is_computed_once_all_have_ended(network: Any) -> None:
    asked = []

    def choose(scores: Tensor) -> Tensor:
        asked.append(scores.shape)
        return torch.full((len(PROMPTS),), 2)

    decode(network, *padded(PROMPTS, 2), choose, 1000, {2}, pad=0)
    assert len(asked) <= 16
