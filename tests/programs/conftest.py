"""What the tests of programs share: workers that start fast, and stores whose tables are copied."""

from __future__ import annotations

import pytest
from tests.support.store_files import create_stores_with_tables


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch, forked_children: None) -> None:
    """None of these tests is about how a process starts."""
    create_stores_with_tables(monkeypatch)
