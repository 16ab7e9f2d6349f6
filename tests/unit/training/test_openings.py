"""Openings of training: the same rules as a run of traces has, within the window, identified by the index's content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from kb_ray.errors import ConfigError
from kb_ray.prompts.budget import estimated_tokens
from kb_ray.tasks.folder import builtin_entries
from kb_ray.train import main
from kb_ray.training.openings import Openings, with_content
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from tests.unit.retrieve.material import lexical_index

TASK = builtin_entries(None)[0].make()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("openings")
    lexical_index(folder)
    return str(folder / "index")


def settings(index: str | None, **more: object) -> GrpoSettings:
    return GrpoSettings.model_validate({"prompt_option": "raicl", "rag_index_path": index, "max_tokens": 1000} | more)


def test_the_prompt_shows_what_the_record_says(index: str) -> None:
    for count in (1, 4):
        messages, retrieved = Openings(settings(index, raicl_k=count), "cpu")(TASK)
        assert retrieved is not None
        assert len(retrieved.examples) == messages[-1].content.count("### Example ") == count


def test_template_and_index_must_go_together(index: str, tmp_path: Path) -> None:
    own = tmp_path / "own.md"
    own.write_text("<!-- user -->\n$reference\n$examples\n")
    with pytest.raises(ConfigError, match=r"--rag-index-path: the template default has no \$examples"):
        Openings(settings(index, prompt_option="default"), "cpu")
    for template in ("raicl", str(own)):
        with pytest.raises(ConfigError, match="it shows examples: give the index with --rag-index-path"):
            Openings(settings(None, prompt_option=template), "cpu")
    messages, retrieved = Openings(settings(None, prompt_option="default"), "cpu")(TASK)
    assert (retrieved, "Example 1" in messages[-1].content) == (None, False)


def test_prompts_fit_the_window_of_the_model_that_answers(index: str) -> None:
    opening = Openings(settings(index, raicl_k=16), "cpu")
    before = estimated_tokens(opening(TASK)[0])
    opening.within(6000)
    messages, retrieved = opening(TASK)
    assert retrieved is not None
    assert 0 < len(retrieved.examples) < 16
    assert estimated_tokens(messages) <= 5000 < before


def test_a_run_is_identified_by_what_its_index_holds(index: str, tmp_path: Path) -> None:
    shutil.copytree(index, tmp_path / "moved")
    first = with_content(settings(index))
    moved = with_content(settings(str(tmp_path / "moved")))
    assert moved.fingerprint() == first.fingerprint()
    shutil.rmtree(tmp_path / "moved")
    lexical_index(tmp_path / "other", seed=9)
    shutil.copytree(tmp_path / "other" / "index", tmp_path / "moved")
    assert with_content(settings(str(tmp_path / "moved"))).fingerprint() != first.fingerprint()
    others = [{"raicl_k": 2}, {"raicl_tokens": 999}, {"raicl_overlap": 0.5}, {"raicl_cuda": True}]
    assert len({with_content(settings(index, **more)).fingerprint() for more in others} | {first.fingerprint()}) == 5
    assert with_content(settings(index, rag_model="/elsewhere")).fingerprint() == first.fingerprint()
    with pytest.raises(ConfigError, match=r"no index\.json there"):
        with_content(settings(str(tmp_path)))
    with pytest.raises(ConfigError, match=r"has no \$examples"):
        with_content(settings(index, prompt_option="default"))
    assert with_content(settings(None, prompt_option="default")).identity()["rag_index_path"] is None


@pytest.mark.parametrize("count", [0, 17, 100])
def test_as_many_examples_may_be_asked_for_as_in_a_run(count: int) -> None:
    with pytest.raises(ValidationError, match="raicl_k"):
        BestOfNSettings(raicl_k=count)


@pytest.mark.parametrize("command", ["grpo", "best-of-n"])
def test_the_flags_of_a_run_are_understood(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Both ask for the same: refused before anything starts, for the template that goes with no index."""
    for flags in (["--prompt", "default", "--rag-index", index], ["prompt=default", f"rag_index={index}"]):
        code = main([command, *flags, "--output", str(tmp_path / "run"), "--tasks", "builtin", "--allow-untimed"])
        assert code == 2
        assert "has no $examples" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
