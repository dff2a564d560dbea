"""A folder with runs, and an agent that works with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mcp_server.conversation import Agent, agent_at
from tests.support.commands import mulligan

PARKED = """
name: nightly
steps:
  - step: fetch
    shell: 'echo no route to host >&2; exit 3'
    triage: true
  - step: load
    needs: [fetch]
    shell: 'true'
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(text: str, file: str = "flow.yaml") -> None:
    """Run a workflow in this process until it ends or waits for a person."""
    Path(file).write_text(text, encoding="utf-8")
    said = mulligan("run", file, "--wait", "0s")
    assert said.code != 2, said.err


@pytest.fixture
def agent(folder: Path) -> Iterator[Agent]:
    with agent_at(folder / ".mulligan") as agent:
        yield agent
