"""What the tests of the Python face share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.forked_process import spawn
from tests.support.store_files import create_stores_with_tables


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to work in, with no home but the one below it."""
    for name in ("MULLIGAN_HOME", "MULLIGAN_STORE", "MULLIGAN_DEBUG", "MULLIGAN_BY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "posix_spawn", spawn)
    create_stores_with_tables(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path
