"""`mulligan mcp` as a client starts it, and what it says where it cannot work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from tests.mcp_server.conversation import agent_at
from tests.support.commands import SRC, mulligan
from tests.support.serving import READER, TOKEN, serving

FLOW = "name: tiny\nsteps:\n  - step: one\n    shell: 'echo done'\n"


def test_a_client_works_with_the_command(folder: Path) -> None:
    Path("flow.yaml").write_text(FLOW, encoding="utf-8")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mulligan", "mcp", "--agent", "robot"],
        cwd=folder,
        env={"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"], "HOME": str(folder)},
    )

    async def conversation() -> dict[str, Any]:
        async with Client(server) as client:
            found: dict[str, Any] = {"tools": {one.name for one in (await client.list_tools()).tools}}
            found["started"] = (await client.call_tool("start_run", {"file": "flow.yaml"})).structured_content
            found["wrong"] = await client.call_tool("get_run", {"run_id": "one"})
            found["unknown"] = await client.call_tool("get_run", {"run_id": 7})
            try:
                await client.call_tool("no_such_tool", {})
            except MCPError as error:
                found["no tool"] = error.data["code"]
            found["run"] = (await client.call_tool("get_run", {"run_id": 1})).structured_content
            found["prompts"] = [one.name for one in (await client.list_prompts()).prompts]
            return found

    found = asyncio.run(conversation())

    assert {"list_pending", "start_run", "docs"} <= found["tools"]
    assert found["started"]["run_id"] == 1
    assert (found["run"]["workflow"], found["run"]["started_by"]) == ("tiny", "agent:robot")
    assert [found[name].structured_content["error"]["code"] for name in ("wrong", "unknown")] == [
        "input.invalid",
        "run.unknown",
    ]
    assert found["no tool"] == "tool.unknown"
    assert "triage" in found["prompts"]
    assert mulligan("wait", "1", "--timeout", "60s").code == 0


def test_nothing_of_the_library_is_loaded_before_the_command_works() -> None:
    modules = "cli.main cli.operating.mcp service.service mcp_server.reference".split()
    loads = f"import sys, {', '.join(f'mulligan.{module}' for module in modules)}"
    shows = "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types', 'pydantic')])"

    said = subprocess.run(
        [sys.executable, "-c", f"{loads}\n{shows}"],
        env={"PYTHONPATH": str(SRC)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--home", "x", "--server", "http://127.0.0.1:1"), "--home and --server cannot be combined"),
        (("--server", "http://127.0.0.1:1/x"), "is not a URL like https://HOST:PORT"),
        (("--server", "folder"), "is not a URL"),
    ],
)
def test_a_wrong_place_is_refused_at_once(folder: Path, words: tuple[str, ...], message: str) -> None:
    said = mulligan("mcp", *words)

    assert said.code == 2
    assert message in said.err


def test_a_person_who_types_it_is_told_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    said = mulligan("mcp")

    assert said.code == 2
    assert "claude mcp add mulligan -- mulligan mcp" in said.err


def test_an_agent_works_with_the_runs_of_a_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("flow.yaml").write_text(FLOW, encoding="utf-8")
    mulligan("run", "flow.yaml")
    with serving(folder / ".mulligan") as url:
        monkeypatch.setenv("MULLIGAN_TOKEN", TOKEN)
        with agent_at(url) as agent:
            found = agent.call("get_run", run_id=1)
            log = agent.call("read_log", run_id=1, step="one")
            forked = agent.call("fork_run", run_id=1, from_step="one", text=FLOW)
            paused = agent.call("pause_run", run_id=forked["fork_run_id"], reason="not now")
        monkeypatch.setenv("MULLIGAN_TOKEN", READER)
        with agent_at(url) as reader:
            refused = reader.refused("cancel_run", run_id=forked["fork_run_id"])

    assert (found["status"], log["lines"]) == ("completed", [{"line": 1, "text": "done"}])
    assert forked["fork_run_id"] == 2
    # The agent is told what follows, as on its own machine.
    assert (paused["dry_run"], paused["follows"] != []) == (False, True)
    assert refused["code"] == "store.forbidden"
