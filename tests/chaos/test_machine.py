"""Where another machine cannot be made up, the tests that need one are skipped and say why."""

from __future__ import annotations

import pytest

from tests.chaos.machine import own_processes


def test_without_unshare_a_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match="there is no unshare"):
        own_processes()
