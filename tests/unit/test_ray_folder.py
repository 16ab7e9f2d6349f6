"""A cluster and its logs are looked for where the installed Ray keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray._common.utils import get_default_system_temp_dir

from kb_ray.cluster import known_address, logs_folder

PLACES = [{}, {"TMPDIR": "b"}, {"RAY_TMPDIR": "a", "TMPDIR": "b"}]


@pytest.fixture(params=PLACES, ids=lambda given: "+".join(given) or "neither")
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ray's, by the environment."""
    for name in ("RAY_TMPDIR", "TMPDIR", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, below in request.param.items():
        monkeypatch.setenv(name, str(tmp_path / below))
    return Path(get_default_system_temp_dir()) / "ray"


def test_the_folder_of_logs_is_below_rays_own(folder: Path) -> None:
    assert logs_folder() == f"{folder}/session_latest/logs"


# Not in the machine's own folder, where one may be.
@pytest.mark.parametrize("folder", PLACES[1:], indirect=True, ids="+".join)
def test_a_cluster_that_was_started_here_is_found(folder: Path) -> None:
    assert known_address(None) is None
    folder.mkdir(parents=True)
    (folder / "ray_current_cluster").write_text("10.0.0.1:6379")
    assert known_address(None) == ("10.0.0.1:6379", str(folder / "ray_current_cluster"))
