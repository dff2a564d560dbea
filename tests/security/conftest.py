"""What the tests of security share: a folder of one's own, with nothing of the terminal's in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .outside import Outside


@pytest.fixture(autouse=True)
def _no_home_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal of the tests is set to is nothing to them."""
    for name in [name for name in os.environ if name.startswith("MULLIGAN_") and name != "MULLIGAN_TEST_POSTGRES"]:
        monkeypatch.delenv(name)


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    """The program, as somebody at a terminal has it."""
    return Outside(tmp_path)
