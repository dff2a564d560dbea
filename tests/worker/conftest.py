"""A worker for each test. Whatever the test did to it, nothing of it is left when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    work = Work(tmp_path)
    yield work
    work.close()
    assert work.remaining() == []


@pytest.fixture
def announcements(tmp_path: Path) -> Iterator[Announcements]:
    announcements = Announcements(tmp_path)
    yield announcements
    announcements.close()
