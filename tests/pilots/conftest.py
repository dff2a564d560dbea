"""What the tests of pilots share."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fake_slurm import FakeSlurm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_children: None) -> Path:
    """A folder of one's own to work in."""
    for name in ("MULLIGAN_HOME", "MULLIGAN_STORE", "MULLIGAN_SERVER", "MULLIGAN_SLURM_PROFILES", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A fake Slurm on the PATH."""
    found = FakeSlurm(folder / "fake")
    monkeypatch.setenv("PATH", found.path)
    return found
