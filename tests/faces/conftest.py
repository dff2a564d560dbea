"""What the tests of the faces share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.store_files import create_stores_with_tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_children: None) -> Path:
    """A folder of one's own to work in, with no home but the one below it."""
    for name in (
        "MULLIGAN_HOME",
        "MULLIGAN_STORE",
        "MULLIGAN_SERVER",
        "MULLIGAN_TOKEN",
        "MULLIGAN_DEBUG",
        "MULLIGAN_BY",
    ):
        monkeypatch.delenv(name, raising=False)
    create_stores_with_tables(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path
