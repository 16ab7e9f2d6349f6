"""A sound store for each test, copied from one that was made once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kb_ray.traces.store import Store, open_store
from tests.unit.verifying.sound_stores import sound_store


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    return Path(asyncio.run(sound_store(folder)).uri)


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    return open_store(str(shutil.copytree(template, tmp_path / "out")))
