"""`/mcp/` on a server, asked by the client of the library `mcp`: who is let in, in whose name, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client as McpClient
from tests.mcp_server.http_conversation import HttpAgent
from tests.support.api_client import Client as ApiClient
from tests.support.api_client import open_client, token_record
from tests.support.commands import mulligan

from mulligan.mcp_server import http_route
from mulligan.mcp_server.http_route import BODY_BYTES_MAX, ROUTES
from mulligan.mcp_server.tool_table import BY_NAME
from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import Home
from mulligan.service.server.tokens.decision_ledger import TOOL_DECISIONS

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
# One for each test that decides.
STEPS = ("first", "second", "third", "fourth", "left")
FLOW = "name: nightly\nsteps:\n" + "".join(
    f"  - step: {step}\n    shell: 'echo no route to host >&2; exit 3'\n    triage: true\n" for step in STEPS
)


def decision(step: str = "left", **more: Any) -> dict[str, Any]:
    return {"run_id": 1, "step": step, "verdict": "retry", "reason": "x", "dry_run": False, **more}


# What each tool that changes something could do with the run.
CHANGES: dict[str, dict[str, Any]] = {
    "classify": decision(),
    "classify_and_resolve_failures": {
        "workflow_id": 1,
        "classifications": [{"job_id": "left", "action": "retry", "reason": "x"}],
        "dry_run": False,
    },
    "approve": {"run_id": 1, "step": "left", "reason": "x", "dry_run": False},
    "propose_workflow": {"name": "nightly", "text": FLOW},
    "start_run": {"workflow": "nightly"},
    "retry_run": {"run_id": 1},
    "fork_run": {"run_id": 1, "from_step": "left"},
    "cancel_run": {"run_id": 1},
    "pause_run": {"run_id": 1},
    "send_event": {"run_id": 1, "name": "paid"},
    "resume_run": {"run_id": 1},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    """A server with a run of which all steps are parked."""
    folder = tmp_path_factory.mktemp("http")
    (folder / "flow.yaml").write_text(FLOW, encoding="utf-8")
    home = folder / "home"
    said = mulligan("run", str(folder / "flow.yaml"), "--home", str(home), "--wait", "0s")
    assert said.code != 2, said.err
    tokens = [
        token_record("agent:night", ["decide"], limits=TokenLimits(verdicts=("retry",), decisions_per_hour=3)),
        token_record("agent:few", ["decide"], limits=TokenLimits(verdicts=("retry",), decisions_per_hour=1)),
        token_record("theirs", ["admin"], project="theirs"),
        token_record("weekly", ["decide", "write"], limits=TokenLimits(workflows=("weekly",))),
    ]
    opened = open_client(Home(home), tokens=tokens, others=ROUTES)
    yield opened
    opened.close()


def agent(server: ApiClient, user: str, **options: Any) -> HttpAgent:
    return HttpAgent(server.api, server.secrets[user], **options)


def audited(server: ApiClient) -> list[tuple[str, str, int]]:
    """Who did what, and its status; oldest first."""
    rows = server.get("audit").json["audit"]
    return [(row["who"], row["action"], row["status"]) for row in reversed(rows)]


def contents(server: ApiClient) -> Any:
    """What an agent could have changed."""
    return [server.get(path).json for path in ("runs/1/events", "workflows", "drafts", "tokens")]


@pytest.mark.parametrize(("mode", "url"), [("auto", "http://localhost/mcp/"), ("legacy", "http://localhost/mcp")])
def test_both_generations_of_the_protocol_are_answered_under_both_paths(server: ApiClient, mode: str, url: str) -> None:
    night, step = agent(server, "agent:night", mode=mode, url=url), {"auto": "first", "legacy": "second"}[mode]

    decided = night.call("classify", **decision(step))

    assert set(night.tools()) == {name for name, tool in BY_NAME.items() if tool.scope in ("read", "decide")}
    assert (decided["is_recorded"], decided["by"]) == (True, "agent:night")
    assert step not in {one["step"] for one in night.call("list_pending")["pending"]}
    row = server.get("audit").json["audit"][0]
    assert (row["who"], row["action"], row["status"]) == ("agent:night", "MCP classify", 202)
    assert (row["target"], row["why"]) == (f"/mcp/?run_id=1&step={step}&verdict=retry", "x")
    assert (row["token_id"], row["source"]) == ("t-agent:night", "127.0.0.1")


def test_an_agent_with_the_token_of_a_person_is_recorded_as_an_agent(server: ApiClient) -> None:
    assert agent(server, "decide").call("classify", **decision("third"))["by"] == "agent:decide"
    assert audited(server)[-1] == ("agent:decide", "MCP classify", 202)


def test_a_decision_is_a_trial_unless_it_is_said(server: ApiClient) -> None:
    before, rows = contents(server), audited(server)
    for name in ("classify", "classify_and_resolve_failures"):
        arguments = {key: value for key, value in CHANGES[name].items() if key != "dry_run"}
        assert agent(server, "agent:night").call(name, **arguments)["dry_run"] is True

    assert contents(server) == before
    assert audited(server) == rows


def test_without_its_scope_no_tool_changes_anything_and_each_refusal_is_in_the_audit(server: ApiClient) -> None:
    before, rows = contents(server), audited(server)
    changing = {name: tool for name, tool in BY_NAME.items() if tool.changes}
    assert set(changing) <= set(CHANGES)

    async def ask_all(client: McpClient) -> list[Any]:
        return [await client.call_tool(name, CHANGES[name]) for name in changing]

    for found, tool in zip(agent(server, "read").talk(ask_all), changing.values(), strict=True):
        refused = found.structured_content["error"]
        assert (refused["code"], refused["data"]) == ("token.scope", {"scope": tool.scope}), tool.name

    assert contents(server) == before
    assert audited(server)[len(rows) :] == [("agent:read", f"MCP {name}", 403) for name in changing]


def test_wrong_arguments_are_typed_errors_of_every_tool(server: ApiClient) -> None:
    before = contents(server)
    wrong = ({"no_such_argument": 1}, {"run_id": -1, "step": [], "name": 7, "classifications": []})

    async def ask_all(client: McpClient) -> list[Any]:
        return [await client.call_tool(name, arguments) for name in BY_NAME for arguments in wrong]

    for found in agent(server, "admin").talk(ask_all):
        assert (found.is_error, found.structured_content["error"]["code"]) == (True, "input.invalid"), found

    assert contents(server) == before


def test_what_an_agent_decides_over_one_way_counts_on_the_other(server: ApiClient) -> None:
    few, rows = agent(server, "agent:few"), audited(server)
    order = {"run_id": 1, "step": "fourth", "verdict": "retry", "reason": "over HTTP"}

    forbidden = few.refused("classify", **decision(verdict="fail"))
    trial = few.refused("classify", **decision(verdict="fail", dry_run=True))
    made = server.post("decisions", {"decisions": [order]}, scope="agent:few").json["decisions"][0]
    spent = few.refused("classify", **decision("left"))

    assert (forbidden["code"], trial["code"]) == ("token.verdict", "token.verdict")
    assert made["is_recorded"]
    assert (spent["code"], spent["data"]["decisions_per_hour"]) == ("token.decisions", 1)
    assert [status for *_, status in audited(server)[len(rows) :]] == [403, 403, 202, 429]
    assert "left" in {one["step"] for one in few.call("list_pending")["pending"]}


def test_a_token_of_another_project_sees_and_changes_nothing(server: ApiClient) -> None:
    before = contents(server)
    theirs = agent(server, "theirs")

    assert theirs.call("list_pending") == {"pending": [], "next": None, "total": 0}
    assert theirs.refused("get_run", run_id=1)["code"] == "run.unknown"
    assert theirs.refused("classify", **CHANGES["classify"])["code"] == "run.unknown"
    assert theirs.call("propose_workflow", name="theirs", text=FLOW)["revision"] == 1

    assert contents(server) == before
    assert [one["name"] for one in server.get("drafts", scope="theirs").json["drafts"]] == ["theirs"]


def test_a_token_for_other_workflows_decides_and_proposes_nothing_here(server: ApiClient) -> None:
    weekly = agent(server, "weekly")

    assert weekly.refused("classify", **CHANGES["classify"])["code"] == "token.scope"
    assert weekly.refused("propose_workflow", **CHANGES["propose_workflow"])["code"] == "token.scope"


@pytest.mark.parametrize(
    ("user", "headers", "status", "code"),
    [
        (None, {}, 401, "token.refused"),
        ("expired", {}, 401, "token.refused"),
        ("revoked", {}, 401, "token.refused"),
        ("worker", {}, 403, "token.scope"),
        ("admin", {"host": "evil.example.org"}, 421, "request.host"),
        ("admin", {"origin": "https://evil.example.org"}, 403, "request.origin"),
        ("admin", {"origin": "null"}, 403, "request.origin"),
        ("admin", {"accept": "text/html"}, 406, "request.not_acceptable"),
    ],
)
def test_strangers_foreign_hosts_and_foreign_origins_are_refused(
    server: ApiClient, user: str | None, headers: dict[str, str], status: int, code: str
) -> None:
    before = contents(server)
    body = {**LIST, "method": "tools/call", "params": {"name": "classify", "arguments": CHANGES["classify"]}}
    reply = server.request("POST", "/mcp/", body=body, scope=user, headers=headers)

    assert (reply.status, reply.code) == (status, code)
    assert contents(server) == before


def test_a_browser_session_does_not_count(server: ApiClient) -> None:
    link = server.post("logins", scope="admin").json["url"].partition("?")[2]
    cookie = server.request("GET", "/login", query=link, scope=None).headers["set-cookie"].partition(";")[0]

    reply = server.request("POST", "/mcp/", body=LIST, scope=None, headers={"cookie": cookie})

    assert (reply.status, reply.code) == (401, "token.refused")


def test_the_origin_of_the_server_itself_counts(server: ApiClient) -> None:
    reply = agent(server, "read").post(LIST, {"Origin": "http://localhost"})

    assert reply.status_code == 200
    assert {tool["name"] for tool in reply.json()["result"]["tools"]} >= {"list_pending"}


def test_a_message_that_is_too_large_or_no_message_is_refused(server: ApiClient) -> None:
    large = server.request("POST", "/mcp/", body=b"x" * (BODY_BYTES_MAX + 1))
    accept = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    garbled = server.request("POST", "/mcp/", body=b"{", headers=accept)

    assert (large.status, large.code) == (413, "request.too_large")
    assert garbled.status == 400
    assert garbled.json["error"]["code"] == -32700


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_there_are_no_sessions_to_listen_to_or_to_end(server: ApiClient, method: str) -> None:
    reply = server.request(method, "/mcp/")

    assert (reply.status, reply.headers["allow"]) == (405, "OPTIONS, POST")


def test_a_server_without_the_library_says_how_to_install_it(
    server: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_route, "find_spec", lambda _: None)

    reply = server.request("POST", "/mcp/", body=LIST)

    assert (reply.status, reply.json["hint"]) == (404, "whoever runs it installs it: pip install 'mulligan[mcp]'")


def test_all_tools_that_decide_are_counted() -> None:
    deciding = {f"MCP {name}" for name, tool in BY_NAME.items() if tool.scope == "decide"}

    assert deciding == set(TOOL_DECISIONS)
