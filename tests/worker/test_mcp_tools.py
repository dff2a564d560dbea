"""Tools of MCP servers: listed and called over standard input and output, by the SDK's own client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mulligan import StepError
from mulligan.worker.actions.mcp_tools import run

# A server without any library: it lists two pages of tools, and says which variable it got.
SERVER = """
import json, os, sys

def answer(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/list":
        tool = {"name": "b" if params.get("cursor") else "a", "description": "d", "inputSchema": {"type": "object"}}
        return {"tools": [tool], **({} if params.get("cursor") else {"nextCursor": "2"})}
    if params["name"] == "fails":
        return {"content": [{"type": "text", "text": "no route"}], "isError": True}
    said = f"{params['arguments']['word']} {os.environ['PLACE']}"
    return {"content": [{"type": "text", "text": said}, {"type": "image", "data": "", "mimeType": "image/png"}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = asked["method"] in ("initialize", "tools/list", "tools/call")
    params = asked.get("params") or {}
    said = {"result": answer(asked["method"], params)} if known else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return [sys.executable, str(file)]


def test_a_server_is_started_for_each_question_and_all_pages_of_its_tools_are_listed(command: list[str]) -> None:
    listed = run(command=command)
    called = run(command=command, env={"PLACE": "fjord"}, tool="say", arguments={"word": "deep"})

    schema = {"type": "object"}
    assert listed["tools"] == [{"name": name, "description": "d", "schema": schema} for name in ("a", "b")]
    assert called == "deep fjord\n[image]"


def test_what_goes_wrong_with_a_server_is_a_failure_with_a_code(command: list[str], tmp_path: Path) -> None:
    asked = {
        "TOOL_FAILED": {"command": command, "tool": "fails", "arguments": {}},
        "INPUT_INVALID": {"command": [str(tmp_path / "nothing")]},
        "CONNECTION": {"command": [sys.executable, "-c", "pass"]},
    }

    for code, keys in asked.items():
        with pytest.raises(StepError) as failed:
            run(**keys)

        assert failed.value.code == code
