"""Where Ray's logs are, as it is said after a failure, is where the installed Ray keeps them."""

from __future__ import annotations

import pytest
from ray._common.utils import get_default_system_temp_dir

from kb_ray.cluster import logs_folder


@pytest.mark.parametrize("given", [{}, {"TMPDIR": "/scratch/b"}, {"RAY_TMPDIR": "/scratch/a", "TMPDIR": "/scratch/b"}])
def test_the_folder_of_logs_is_below_rays_own(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in given.items():
        monkeypatch.setenv(name, folder)
    assert logs_folder() == f"{get_default_system_temp_dir()}/ray/session_latest/logs"
