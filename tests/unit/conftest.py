"""For all unit tests: they may run side by side and in any order (`-n 2`)."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """What a test's code puts into the environment, as a `.env` file does, is not there for the next one."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Some tests print half of a surrogate pair, which cannot be sent between processes.
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
