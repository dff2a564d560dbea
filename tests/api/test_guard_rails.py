"""The guard rails of a token over HTTP: verdicts, confidence and decisions per hour, whichever route is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_client import AT, Client, Reply, open_client, token_record
from tests.support.commands import mulligan

from mulligan.api.routes import ROUTES
from mulligan.errors import InputInvalid
from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import Home
from mulligan.service.server.tokens.tokens import TokenForm, TokenView
from mulligan.service.service import Service

NIGHT = TokenLimits(decisions_per_hour=2, verdicts=("retry",), min_confidence=0.8)
PROTOCOL = {"mulligan-protocol": "1"}


def parked(number: int) -> str:
    steps = "".join(f"  - step: s{at}\n    shell: exit 3\n    triage: true\n" for at in range(number))
    return f"name: nightly\nsteps:\n{steps}  - step: ask\n    approve: {{message: ship it?}}\n    next: end\n"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(parked(5), encoding="utf-8")
    said = mulligan("run", "flow.yaml", "--wait", "0s")
    assert said.code != 2, said.err
    night = token_record("agent:night", ["decide"], limits=NIGHT)
    opened = open_client(Home(tmp_path / ".mulligan"), tokens=[night])
    opened.scope = "agent:night"
    yield opened
    opened.close()


def decision(step: str, verdict: str = "retry", **more: Any) -> dict[str, Any]:
    return {"run_id": 1, "step": step, "verdict": verdict, "reason": f"why {step}", "confidence": 0.9, **more}


def codes(reply: Reply) -> list[str | None]:
    return [one["error"] and one["error"]["code"] for one in reply.json["decisions"]]


def audited(client: Client) -> list[tuple[str, str, int, str]]:
    """Who, what, the status and why; oldest first."""
    rows = reversed(client.get("audit", scope="admin").json["audit"])
    return [(one["who"], one["target"].partition("?")[2], one["status"], one["why"]) for one in rows]


def test_of_many_decisions_those_within_the_guard_rails_are_made_and_every_one_is_in_the_audit(client: Client) -> None:
    many = [
        decision("s0"),
        decision("s1", "fail"),
        decision("s2", confidence=0.5),
        decision("s2", confidence=None),
        decision("s2", budgets=["cost=5"]),
        decision("s3"),
        decision("s4"),
    ]
    wanted = [None, "token.verdict", "token.confidence", "token.confidence", "token.verdict", None, "token.decisions"]

    preview = client.post("decisions", {"decisions": many, "dry_run": True})
    assert audited(client) == []
    done = client.post("decisions", {"decisions": many})

    # A trial makes no decision, so none is too many.
    assert codes(preview) == [*wanted[:-1], None]
    assert codes(done) == wanted
    assert {one["by"] for one in done.json["decisions"]} == {"agent:night"}
    about = "run_id=1&step={}&verdict={}"
    assert audited(client) == [
        ("agent:night", about.format("s0", "retry"), 202, "why s0"),
        ("agent:night", about.format("s1", "fail"), 403, "token.verdict: why s1"),
        ("agent:night", about.format("s2", "retry"), 403, "token.confidence: why s2"),
        ("agent:night", about.format("s2", "retry"), 403, "token.confidence: why s2"),
        ("agent:night", about.format("s2", "retry"), 403, "token.verdict: why s2"),
        ("agent:night", about.format("s3", "retry"), 202, "why s3"),
        ("agent:night", about.format("s4", "retry"), 429, "token.decisions: why s4"),
    ]
    left = {one["step"] for one in client.get("pending").json["pending"]}
    assert left == {"s1", "s2", "s4", "ask"}


def test_no_other_route_goes_around_them(client: Client) -> None:
    sure = {"type": "Classified", "at": AT.isoformat(), "by": "me", "reason": "x", "step": "s0", "verdict": "retry"}
    for is_asking in (True, False):
        for report in (sure, {**sure, "confidence": 1, "verdict": "fail"}):
            body = {"run_id": 1, "report": report, "is_asking": is_asking}
            refused = client.post("store/decide/put_decision", body, headers=PROTOCOL)
            assert refused.code in ("token.confidence", "token.verdict")
    assert client.post("runs/1/steps/s0:retry", {"reason": "x"}).code == "token.confidence"
    assert client.post("runs/1/steps/ask:approve", {"reason": "x"}).code == "token.verdict"
    assert client.post("runs/1/steps/ask:approve", {"reason": "x", "approve": False}).code == "token.verdict"
    assert client.post("runs/1/steps/ask:approve", {"reason": "x", "dry_run": True}).code == "token.verdict"

    assert client.get("pending").json["total"] == 6
    assert [status for *_, status, _ in audited(client) if status < 400] == []


def test_a_restart_does_not_reset_what_was_decided_this_hour(client: Client) -> None:
    assert codes(client.post("decisions", {"decisions": [decision("s0"), decision("s1")]})) == [None, None]

    again = open_client(client.home, tokens=[token_record("agent:night", ["decide"], limits=NIGHT)])
    try:
        body = {"run_id": 1, "report": report("s2"), "is_asking": True}
        refused = again.post("store/decide/put_decision", body, headers=PROTOCOL, scope="agent:night")
    finally:
        again.close()

    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "token.decisions", "3600")
    assert audited(client)[-1][2:] == (429, "token.decisions")
    assert client.get("pending").json["total"] == 4


def report(step: str) -> dict[str, Any]:
    about = {"type": "Classified", "at": AT.isoformat(), "by": "me", "reason": "x", "step": step}
    return {**about, "verdict": "retry", "confidence": 1}


def test_all_routes_with_the_scope_decide_write_their_own_rows() -> None:
    """Whoever adds one sees that its decisions reach the run through `Store.put`, where they are counted."""
    assert {one.path for one in ROUTES if one.scope == "decide" and one.changes} == {
        "decisions",
        "runs/{run_id:int}/steps/{step}:approve",
        "runs/{run_id:int}/steps/{step}:retry",
        "store/decide/{call}",
    }


# -- tokens of agents ------------------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "a tester") as opened:
        yield opened


def made(service: Service, **fields: Any) -> TokenView:
    return service.tokens.create(TokenForm(**fields)).token


def test_the_token_of_an_agent_has_guard_rails_unless_others_are_given(service: Service) -> None:
    plain = made(service, agent="night")
    wide = made(
        service,
        agent="day",
        scopes=("run", "decide"),
        verdicts=("approve", "fail"),
        decisions_per_hour=0,
        min_confidence=1,
    )
    person = made(service, user="ada", scopes=("decide",))

    assert (plain.user, plain.scopes) == ("agent:night", ("decide",))
    assert (plain.verdicts, plain.decisions_per_hour, plain.min_confidence) == (("retry", "fail"), 20, None)
    assert (wide.user, wide.scopes) == ("agent:day", ("run", "decide"))
    assert (wide.verdicts, wide.decisions_per_hour, wide.min_confidence) == (("fail", "approve"), 0, 1)
    assert (person.verdicts, person.decisions_per_hour) == ((), None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"user": "agent:night", "scopes": ("decide",)}, "'agent:night' is the name of an agent"),
        ({"user": "ada", "agent": "night"}, "a token is for a user or for an agent"),
        ({"agent": "night", "scopes": ("admin",)}, "an agent cannot have the scope 'admin'"),
        ({"agent": "night", "scopes": ("worker",)}, "a token of a worker has no limits"),
        ({"agent": "a\nb"}, "the name of an agent must be one line"),
        ({"agent": "night", "verdicts": ("retri",)}, "unknown verdict 'retri' of a token"),
        ({"agent": "night", "min_confidence": 80}, "the confidence that decisions need is a number from 0 to 1"),
        ({"agent": "night", "min_confidence": float("nan")}, "the confidence that decisions need is a number"),
    ],
)
def test_a_token_of_an_agent_that_cannot_be_is_refused(service: Service, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputInvalid) as refused:
        made(service, **fields)

    assert refused.value.message.startswith(said)
