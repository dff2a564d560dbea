"""What a person has approved is kept by nobody who may not approve, and not for other values: by no way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.api_client import AT, Client, Reply, open_client, token_record
from tests.support.commands import mulligan
from tests.support.nightly import POSTGRES

from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import Home

FLOW = """
name: release
inputs:
  target: {type: string, default: staging}
  note: {type: string, default: ""}
steps:
  - step: ask
    approve: {message: "deploy to ${inputs.target}?"}
  - step: prepare
    needs: [ask]
    shell: "true"
  - step: deploy
    needs: [prepare]
    shell: "echo ${inputs.target}; exit 3"
"""
PROTOCOL = {"mulligan-protocol": "1"}
AGENT, BOSS, SURE = "agent:night", "agent:boss", "agent:sure"
TOKENS = [
    token_record(SURE, ["run", "decide"], limits=TokenLimits(min_confidence=0.5)),
    token_record(AGENT, ["run", "decide", "write"], limits=TokenLimits(verdicts=("retry", "fail"))),
    token_record(BOSS, ["run", "decide", "write"], limits=TokenLimits(verdicts=("approve",), decisions_per_hour=2)),
]


@pytest.fixture(params=["sqlite", POSTGRES])
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A server with a run whose `ask` was approved for staging, and whose `deploy` has failed."""
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    monkeypatch.chdir(tmp_path)
    if url:
        monkeypatch.setenv("MULLIGAN_STORE", url)
    Path("flow.yaml").write_text(FLOW, encoding="utf-8")
    assert mulligan("run", "flow.yaml", "--wait", "0s").code != 2
    opened = open_client(Home(tmp_path / ".mulligan", url), tokens=TOKENS)
    assert opened.post("runs/1/steps/ask:approve", {"reason": "to staging", "approve": True}).status == 200
    mulligan("resume", 1)
    assert opened.get("runs/1").json["status"] == "failed"
    yield opened
    opened.close()


def kept_rows(client: Client) -> list[tuple[str, str]]:
    rows = reversed(client.get("audit", scope="admin", action="keep approval").json["audit"])
    return [(one["who"], one["target"].partition("?")[2]) for one in rows]


def last_event(client: Client, step: str) -> int:
    """The last event before the step has ended."""
    events = client.post("store/read/log", {"run_id": 1, "after": 0, "limit": None}, headers=PROTOCOL).json
    return max(
        one["seq"] for one in events if one["fact"].get("place") == step and one["fact"]["type"] == "attempt.started"
    )


def created(client: Client, scope: str, **changes: Any) -> Reply:
    """A fork that a client has made up, sent as the store over HTTP sends it."""
    loaded = client.post("store/read/load", {"run_id": 1}, headers=PROTOCOL, scope="read").json
    kept = [{"step": name, "status": "completed"} for name in ("ask", "prepare")]
    request = {"type": "RunRequested", "at": AT.isoformat(), "run_id": 0, "forked_from": 1, "kept": kept, **changes}
    run = {"workflow": loaded["workflow"], "version": loaded["record"]["version"], "name": "release"}
    # Not with `msgspec`, which writes no number of more than 64 bits.
    body = json.dumps({"runs": [{**run, "request": request}]}).encode()
    return client.post("store/write/create", body, headers=PROTOCOL, scope=scope)


def runs(client: Client) -> int:
    return len(client.get("runs").json["runs"])


def test_an_agent_that_may_not_approve_keeps_no_approval_by_any_way(client: Client) -> None:
    seq = last_event(client, "prepare")
    text = FLOW.replace("exit 3", "exit 0")
    retry = {"type": "RetryRequested", "at": AT.isoformat(), "by": "x"}
    inputs = {"target": "staging", "note": ""}

    for refused in (
        client.post("runs/1:fork", {"from_step": "deploy"}, scope=AGENT),
        client.post("runs/1:fork", {"from_step": "deploy", "dry_run": True}, scope=AGENT),
        client.post(f"runs/1/at/{seq}:fork", {}, scope=AGENT),
        client.post(f"runs/1/at/{seq}:fork", {"dry_run": True}, scope=AGENT),
        client.post("runs/1:retry", {}, scope=AGENT),
        client.post("runs/1:retry", {"dry_run": True}, scope=AGENT),
        client.post("runs/1:retry", {"from_step": "deploy", "text": text}, scope=AGENT),
        client.post("runs/1/steps/deploy:retry", {"reason": "x"}, scope=AGENT),
        client.post("runs/1/steps/deploy:retry", {"reason": "x", "dry_run": True}, scope=AGENT),
        client.post(
            "store/run/put_control", {"run_id": 1, "report": retry, "is_asking": False}, headers=PROTOCOL, scope=AGENT
        ),
        created(client, AGENT, inputs=inputs),
    ):
        assert (refused.status, refused.code) == (403, "token.verdict"), refused.body
    # As a new run that has nothing to do with the other one.
    assert created(client, AGENT, inputs=inputs, forked_from=None).code == "input.invalid"

    assert (runs(client), kept_rows(client), client.get("runs/1").json["round"]) == (1, [], 1)
    # It may begin where a person is asked again.
    assert client.post("runs/1:fork", {"from_step": "ask"}, scope=AGENT).status == 201
    assert client.post("runs/1:retry", {"from_step": "ask"}, scope=AGENT).status == 200


def test_a_step_of_an_ended_run_is_retried_within_the_guard_rails_as_a_parked_one(client: Client) -> None:
    path, body = "runs/1/steps/deploy:retry", {"reason": "x"}

    for dry_run in (True, False):
        # It may approve alone.
        assert client.post(path, {**body, "dry_run": dry_run}, scope=BOSS).code == "token.verdict"
        assert client.post(path, {**body, "dry_run": dry_run}, scope=SURE).code == "token.confidence"

    assert client.get("runs/1").json["round"] == 1


def test_without_the_scope_to_decide_no_fork_and_no_corrected_round_keeps_an_approval(client: Client) -> None:
    inputs = {"target": "staging", "note": ""}
    text = FLOW.replace("exit 3", "exit 0")

    for refused in (
        client.post("runs/1:fork", {"from_step": "deploy"}, scope="run"),
        client.post(f"runs/1/at/{last_event(client, 'prepare')}:fork", {}, scope="run"),
        created(client, "write", inputs=inputs),
        client.post("runs/1:retry", {"text": text}, scope="write"),
        client.post("runs/1:retry", {"text": text, "dry_run": True}, scope="write"),
    ):
        assert (refused.status, refused.code) == (403, "token.scope"), refused.body

    assert runs(client) == 1
    # The same round for which it was approved.
    assert client.post("runs/1:retry", {}, scope="run").json["approvals"] == ["ask"]


def test_a_kept_approval_is_a_decision_in_the_ledger_and_counts(client: Client) -> None:
    about = "run_id=1&step=ask&verdict=approve"

    assert client.post("runs/1:fork", {"from_step": "deploy"}, scope=BOSS).status == 201
    assert client.post("runs/1:fork", {"from_step": "deploy", "dry_run": True}, scope=BOSS).status == 200
    assert client.post("runs/1:retry", {}, scope=BOSS).status == 200
    assert kept_rows(client) == [(BOSS, about), (BOSS, about)]
    refused = client.post("runs/1:fork", {"from_step": "deploy"}, scope=BOSS)

    assert (refused.status, refused.code) == (429, "token.decisions")
    assert (runs(client), len(kept_rows(client))) == (2, 2)
    # Somebody without limits has a row too.
    client.post("runs/1:fork", {"from_step": "deploy"}, scope="admin")
    assert kept_rows(client)[-1] == ("admin", about)


def test_with_other_inputs_everybody_is_asked_again_and_the_plan_says_why(client: Client) -> None:
    asked = {"from_step": "deploy", "inputs": {"target": "production"}}

    plan = client.post("runs/1:fork", {**asked, "dry_run": True}).json
    fork = client.post("runs/1:fork", asked, scope=AGENT).json
    same = client.post("runs/1:fork", {"from_step": "deploy", "inputs": {"note": "x"}}).json

    reason = "a person is asked again: its question reads the input 'target', with another value"
    assert (plan["approvals"], plan["why"]["ask"]) == ([], reason)
    assert (fork["kept"], same["approvals"]) == ([], ["ask"])
    mulligan("resume", fork["fork_run_id"])
    assert client.get("pending").json["pending"][0]["message"] == "deploy to production?"


def test_a_fork_at_an_event_with_other_inputs_keeps_no_approval_for_them(client: Client) -> None:
    path, body = f"runs/1/at/{last_event(client, 'prepare')}:fork", {"inputs": {"target": "production"}}

    for dry_run in (True, False):
        assert client.post(path, {**body, "dry_run": dry_run}).code == "refused"
    assert client.post(path, {"inputs": {"note": "x"}}).status == 201


@pytest.mark.parametrize("history", [None, "eJwDAAAAAAE="])
@pytest.mark.parametrize("seq", [-(10**30), -1, 0, 10**6, 10**30])
def test_a_fork_begins_at_an_event_that_there_is(client: Client, history: str | None, seq: int) -> None:
    if history is None and seq == 0:
        return
    inputs = {"target": "staging", "note": ""}

    refused = created(client, "admin", inputs=inputs, forked_at=seq, history=history)

    assert refused.code == "input.invalid"
    assert runs(client) == 1


def test_a_fork_goes_on_where_the_run_was_at_rest_and_had_not_ended(client: Client) -> None:
    last = client.get("runs/1").json["seq"]

    for seq in (1, last):
        refused = created(client, "admin", inputs={}, forked_at=seq, history="eJwDAAAAAAE=")
        assert refused.code == "refused", seq
    assert runs(client) == 1


def test_what_a_client_makes_up_about_a_fork_is_not_believed(client: Client) -> None:
    production = {"target": "production", "note": ""}
    forged = [{"step": "ask", "status": "completed", "output": {"approved": True, "by": "the boss"}}]
    nothing = [{"step": "deploy", "status": "completed"}]

    assert created(client, "admin", inputs=production).code == "refused"
    assert created(client, "admin", inputs=production, kept=nothing).code == "refused"
    assert created(client, "admin", inputs=production, history="eJwDAAAAAAE=", forked_at=12, has_inputs=True).code
    assert runs(client) == 1
    kept = created(client, "admin", inputs={"target": "staging", "note": ""}, kept=forged)

    assert kept.status == 200, kept.body
    messages = client.post("store/read/inbox", {"run_ids": [2]}, headers=PROTOCOL).json
    assert messages[0]["report"]["kept"][0]["output"]["by"] != "the boss"
    assert msgspec.json.encode(messages).count(b"the boss") == 0


def test_the_command_line_of_a_server_keeps_and_asks_as_one_of_a_home(client: Client) -> None:
    plan = mulligan("fork", 1, "--from", "deploy", "-i", "target=production", "--dry-run")
    same = mulligan("fork", 1, "--from", "deploy", "--dry-run")

    assert "a person is asked again: its question reads the input 'target', with another value" in plan.err + plan.out
    assert "a person is asked again" not in same.err + same.out
