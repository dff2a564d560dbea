"""Every test of a gap works in a folder with the shop, and with a home of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ..shop import make_shop


@pytest.fixture(scope="session")
def _first_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shop(tmp_path_factory.mktemp("shop") / "shop.db")


@pytest.fixture(autouse=True)
def shop(_first_shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database, which a test may change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MULLIGAN_STORE", raising=False)
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    # A planner that is a model. Nobody is there unless a test has started a stub.
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("NL2SQL_MODEL", "stub")
    return Path(shutil.copyfile(_first_shop, tmp_path / "shop.db"))
