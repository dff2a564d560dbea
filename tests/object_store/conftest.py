"""A bucket for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runner import Live, opened
from tests.support.s3_server import S3, s3_server


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name in [name for name in os.environ if name.startswith(("MULLIGAN_", "AWS_")) and "_TEST_" not in name]:
        monkeypatch.delenv(name)
    with s3_server(monkeypatch) as found:
        yield found


@pytest.fixture
def live(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_children: None) -> Iterator[Live]:
    """The runner, with its artifacts in the bucket."""
    monkeypatch.setenv("MULLIGAN_OBJECT_STORE", "s3://bucket/team")
    with opened(tmp_path, "") as found:
        yield found
