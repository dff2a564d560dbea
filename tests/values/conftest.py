from __future__ import annotations

from pathlib import Path

import pytest

from .sinks import FolderSink


@pytest.fixture
def sink(tmp_path: Path) -> FolderSink:
    return FolderSink(tmp_path)
