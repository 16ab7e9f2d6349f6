"""Prompts and feedback, whole, as they are sent: one kept text for every template and every status."""

from __future__ import annotations

import pytest
from golden_cases import FOLDER, TOLD, golden

from kb_ray.prompts.feedback import MAX_CHARS
from kb_ray.records import Status

FILES = golden()


@pytest.mark.parametrize("name", FILES)
def test_what_is_sent_is_what_was_agreed(name: str) -> None:
    assert FILES[name] == (FOLDER / name).read_text(encoding="utf-8")


def test_every_status_and_every_golden_file_is_covered() -> None:
    assert {verdict.status for verdict in TOLD.values()} == set(Status) - {Status.INFRA_ERROR}
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.md")} == set(FILES)


def test_usual_feedback_is_short() -> None:
    assert max(len(text) for name, text in FILES.items() if name.startswith("feedback/")) < MAX_CHARS / 2
