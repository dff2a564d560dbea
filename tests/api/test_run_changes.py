"""Starting and changing runs over REST: what follows, dry runs, keys, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tests.support.api_client import Client, Reply, open_client, start_run, token_record
from tests.support.commands import mulligan

from mulligan.api.routes import ROUTES
from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import Home
from mulligan.service.service import Service

PARKED = """
name: nightly
steps:
  - step: fetch
    shell: exit 3
    triage: true
  - step: check
    shell: exit 4
    triage: true
  - step: load
    needs: [fetch]
    shell: 'true'
"""
FAILED = (
    "name: daily\nsteps:\n  - step: first\n    shell: 'true'\n  - step: load\n    needs: [first]\n    shell: exit 7\n"
)
APPROVAL = """
name: release
steps:
  - step: ask
    approve: {message: ship it?}
  - step: ship
    needs: [ask]
    shell: 'true'
"""
WAITING = "name: slow\nsteps:\n  - step: one\n    shell: 'true'\n  - step: two\n    needs: [one]\n    shell: 'true'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def home(folder: Path) -> Home:
    return Home(folder / ".mulligan")


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    limited = token_record("limited", ["run", "decide"], limits=TokenLimits(workflows=("weekly",)))
    opened = open_client(home, tokens=[limited])
    yield opened
    opened.close()


def ran(text: str) -> None:
    Path("flow.yaml").write_text(text, encoding="utf-8")
    said = mulligan("run", "flow.yaml", "--wait", "0s")
    assert said.code != 2, said.err


def fits(reply: Reply, path: str, status: int = 200) -> Any:
    """The JSON of an answer, which has the type that the table of routes says."""
    assert reply.status == status, reply.body[:500]
    (answer,) = (one.answer for one in ROUTES if one.method == "POST" and one.path == path)
    msgspec.convert(reply.json, answer)
    return reply.json


RUN = "runs/{run_id:int}"


BEGUN = {"run.started", "step.entered", "attempt.scheduled"}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with one run, which no worker has taken, and a published workflow."""
    home = Home(tmp_path_factory.mktemp("refusing") / "home")
    with Service(home) as service:
        start_run(service, WAITING)
        service.catalogue.publish("weekly", TEXT)
    opened = open_client(home)
    yield opened
    opened.close()


# -- starting --------------------------------------------------------------------------------------------------------

TEXT = "name: weekly\ninputs: {day: {type: string}}\nsteps:\n  - step: one\n    shell: pwd\n"


def start(client: Client, key: str = "", scope: str = "run", **body: Any) -> Reply:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("runs", {"inputs": {"day": "monday"}, **body}, scope=scope, headers=headers)


def test_a_key_is_for_one_request_with_its_labels_and_notices(client: Client, service: Service) -> None:
    service.catalogue.publish("weekly", TEXT)
    rule = {"on": ["failed"], "to": ["ops"]}
    asked = {"workflow": "weekly", "labels": {"team": "ops"}, "notify": [rule]}
    assert start(client, "mon-1", **asked).status == 201
    others = [{"labels": {"team": "dev"}}, {"labels": {}}, {"labels": {"team": "ops", "a": "b"}}, {"notify": []}]

    for published in (False, True):
        if published:
            service.catalogue.publish("weekly", TEXT.replace("'true'", "'false'") + "# another version\n")
        for other in others:
            refused = start(client, "mon-1", **{**asked, **other})
            assert (refused.status, refused.code) == (422, "run.key_mismatch"), other
        again = start(client, "mon-1", **asked)
        assert (again.status, again.json["run_id"]) == (200, 1)


def test_a_published_workflow_is_started_once_for_a_key(client: Client, service: Service) -> None:
    service.catalogue.publish("weekly", TEXT)

    first = start(client, "mon-1", workflow="weekly", labels={"team": "ops"})
    again = start(client, '"mon-1"', workflow="weekly", labels={"team": "ops"})
    other = start(client, "mon-1", workflow="weekly", inputs={"day": "sunday"})
    without = start(client, workflow="weekly")

    started = fits(first, "runs", 201)
    assert (started["run_id"], started["is_new"], started["status"]) == (1, True, "running")
    assert first.headers["location"] == "http://localhost/api/v1/runs/1"
    assert fits(again, "runs") == {**started, "is_new": False}
    assert (other.status, other.code) == (422, "run.key_mismatch")
    assert other.json["data"] == {"run_id": 1, "inputs": ["day"]}
    assert without.json["run_id"] == 2
    shown = client.get("runs/1").json
    assert (shown["started_by"], shown["inputs"]) == ("run", {"day": "monday"})
    assert shown["labels"] == {"team": "ops", "version": "1"}
    # Each worker has its own folder for it.
    assert [message.report.cwd for message in service.reader.store.inbox([1])] == ["."]  # type: ignore[attr-defined]
    rows = [row for row in client.get("audit", scope="admin").json["audit"] if row["action"] == "POST /api/v1/runs"]
    # The second asked again, and the third was refused.
    assert [(row["who"], row["status"]) for row in rows] == [("run", 202), ("run", 422), ("run", 202), ("run", 202)]


def test_asking_again_finds_the_run_also_if_another_version_was_published_meanwhile(
    client: Client, service: Service
) -> None:
    service.catalogue.publish("weekly", TEXT)
    first = start(client, "mon-1", workflow="weekly")
    service.catalogue.publish("weekly", TEXT.replace("{day:", "{hour: {default: '7'}, day:"))

    again = start(client, "mon-1", workflow="weekly")
    other = start(client, "mon-1", workflow="weekly", inputs={"day": "sunday"})
    named = start(client, "mon-1", workflow="weekly", version=2)

    assert fits(again, "runs") == {**first.json, "is_new": False}
    assert [(one.status, one.code) for one in (other, named)] == [(422, "run.key_mismatch")] * 2
    assert client.get("runs", counts="true").json["total"] == 1


def test_a_text_is_code_and_needs_the_scope_write(client: Client) -> None:
    assert start(client, text=TEXT).code == "token.scope"

    assert start(client, text=TEXT, scope="write").status == 201
    refused = start(client, text="steps: [", scope="write")
    assert (refused.status, refused.json["problems"] != []) == (422, True)
    assert client.get("runs", counts="true").json["total"] == 1


@pytest.mark.parametrize(
    ("body", "key", "status", "code"),
    [
        ({}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "text": TEXT}, "", 422, "input.invalid"),
        ({"workflow": "weakly"}, "", 404, "workflow.unknown"),
        ({"workflow": "weekly", "version": 9}, "", 404, "workflow.unknown"),
        ({"workflow": "weekly", "version": 0}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "version": "newest"}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "inputs": {"dya": "x"}}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "inputs": {}}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "labels": {"a": 1}}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "labels": {"a": "x\ny"}}, "", 422, "input.invalid"),
        ({"workflow": "weekly", "format": "torc"}, "", 422, "input.invalid"),
        ({"text": TEXT, "version": 1}, "", 422, "input.invalid"),
        ({"workflow": "weekly"}, " ", 422, "input.invalid"),
        ({"workflow": "weekly"}, "k" * 201, 422, "input.invalid"),
    ],
)
def test_a_start_that_is_refused_starts_nothing(
    refusing: Client, body: dict[str, Any], key: str, status: int, code: str
) -> None:
    got = start(refusing, key, scope="write", **body)

    assert (got.status, got.code) == (status, code), got.json
    assert [one["run_id"] for one in refusing.get("runs").json["runs"]] == [1]


# -- cancel, pause, resume -------------------------------------------------------------------------------------------


def test_a_run_is_paused_resumed_and_cancelled_and_a_dry_run_changes_nothing(client: Client, service: Service) -> None:
    run_id = start_run(service, WAITING)
    for verb, body, before, after in (
        ("pause", {"reason": "maintenance"}, "running", "paused"),
        ("resume", {}, "paused", "running"),
        ("cancel", {"reason": "not needed"}, "running", "cancelled"),
    ):
        preview = fits(client.post(f"runs/{run_id}:{verb}", {**body, "dry_run": True}), f"{RUN}:{verb}")
        assert client.get(f"runs/{run_id}").json["status"] == before
        done = fits(client.post(f"runs/{run_id}:{verb}", body), f"{RUN}:{verb}")

        assert (preview["dry_run"], done["dry_run"]) == (True, False)
        assert {**preview, "dry_run": False} == done
        assert done["status"] == client.get(f"runs/{run_id}").json["status"] == after
        assert done["follows"]
    said = client.get(f"runs/{run_id}/events", type=["run.paused", "run.resumed", "run.stopping"]).json["events"]
    assert [one["fact"]["by"] for one in said] == ["admin", "admin", "admin"]


def test_a_preview_says_what_starts_and_what_stops(client: Client, service: Service) -> None:
    run_id = start_run(service, WAITING)
    assert client.post(f"runs/{run_id}:pause").json["starts"] == []

    assert client.post(f"runs/{run_id}:resume", {"dry_run": True}).json["starts"] == ["one: attempt 1"]
    assert client.post(f"runs/{run_id}:cancel", {"dry_run": True}).json["stops"] == ["one: attempt 1"]


def test_a_step_is_paused_and_resumed(client: Client, service: Service) -> None:
    run_id = start_run(service, WAITING)

    assert client.post(f"runs/{run_id}:pause", {"step": "two"}).json["status"] == "running"
    assert client.get(f"runs/{run_id}/steps/two").json["paused"]["by"] == "admin"
    assert client.post(f"runs/{run_id}:resume", {"step": "two"}).status == 200
    assert client.get(f"runs/{run_id}/steps/two").json["paused"] is None
    assert client.post(f"runs/{run_id}:resume", {"steps": 1, "dry_run": True}).json["status"] == "running"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("runs/9:cancel", {}, 404, "run.unknown"),
        ("runs/1:resume", {}, 409, "refused"),
        ("runs/1:resume", {"step": "two", "steps": 1}, 422, "input.invalid"),
        ("runs/1:resume", {"steps": 0}, 422, "input.invalid"),
        ("runs/1:pause", {"step": "tow"}, 404, "step.unknown"),
        ("runs/1:pause", {"reason": 1}, 422, "input.invalid"),
        ("runs/1:cancel", {"nwo": True}, 422, "input.invalid"),
        ("runs/1:cancel", {"reason": "a\0b"}, 422, "input.invalid"),
        ("runs/1:retry", {}, 409, "run.not_finished"),
        ("runs/1:retry", {"items": [1]}, 422, "input.invalid"),
        ("runs/1:retry", {"budgets": ["lots"]}, 422, "input.invalid"),
        ("runs/1:retry", {"inputs": {"a": 1}}, 422, "input.invalid"),
        ("runs/1:fork", {}, 422, "input.invalid"),
        ("runs/1:fork", {"from_step": "one"}, 409, "run.not_finished"),
        ("runs/1/steps/one:approve", {"reason": "why"}, 409, "step.not_waiting"),
        ("runs/1/steps/one:approve", {}, 422, "input.invalid"),
        ("runs/1/steps/tow:approve", {"reason": "why"}, 404, "step.unknown"),
        ("runs/1/steps/one:retry", {"reason": "why"}, 409, "step.not_parked"),
        ("runs/1/steps/one:retry", {}, 422, "input.invalid"),
        ("breakers/none:reset", {}, 404, "breaker.unknown"),
        ("decisions", {"decisions": []}, 422, "input.invalid"),
        (
            "decisions",
            {"decisions": [{"run_id": 1, "step": "one", "verdict": "maybe", "reason": "x"}]},
            422,
            "input.invalid",
        ),
        ("runs/1:explode", {}, 404, "request.path"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    refusing: Client, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    for dry_run in (True, False):
        got = refusing.post(path, {**body, "dry_run": dry_run} if code != "request.path" else body)

        assert (got.status, got.code) == (status, code), got.json
    # Its first turn may have been taken to refuse the change.
    assert {one["fact"]["type"] for one in refusing.get("runs/1/events").json["events"]} <= BEGUN


@pytest.mark.parametrize(
    ("decision", "message", "hint"),
    [
        (
            {"run_id": 1, "step": "one", "verdict": "retry"},
            "the body lacks the field 'reason' in 'decisions[0]'",
            "needed: reason, run_id, step, verdict",
        ),
        (
            {"run_id": 1, "step": "one", "verdict": "retry", "reasn": "x"},
            "the body has an unknown field 'reasn' in 'decisions[0]'",
            "did you mean 'reason'?",
        ),
    ],
)
def test_what_is_wrong_inside_a_body_says_where_and_what_is_needed_there(
    refusing: Client, decision: dict[str, Any], message: str, hint: str
) -> None:
    got = refusing.post("decisions", {"decisions": [decision]}).json

    assert (got["detail"], got["hint"]) == (message, hint)


def test_a_run_that_no_worker_has_taken_yet_answers_everything(client: Client, service: Service) -> None:
    start_run(service, WAITING)

    for route in (one for one in ROUTES if one.method == "GET" and one.path.startswith("runs")):
        path = route.path
        named = {"{run_id:int}": "1", "{step}": "one", "{index:int}": "0", "{attempt:int}": "1", "{seq:int}": "1"}
        for name, value in named.items():
            path = path.replace(name, value)
        got = client.get(path.format(place="one", sha256="abc", name="x"))
        assert got.status in (200, 404, 409), (path, got.body[:300])
        if got.status == 200 and route.answer is not None:
            msgspec.convert(got.json, route.answer)
    assert client.get("runs/1").json["inputs"] == {}


def test_a_run_with_a_matrix_that_no_worker_has_taken_yet_is_shown(client: Client, service: Service) -> None:
    text = "name: slow\nsteps:\n  - step: sim\n    matrix: {size: [1, 2]}\n    shell: 'true'\n"
    run_id = start_run(service, text)

    found = client.get(f"runs/{run_id}/full").json
    step, output = client.get(f"runs/{run_id}/steps/sim"), client.get(f"runs/{run_id}/outputs/sim")

    assert (found["run_id"], found["steps"]) == (run_id, {})
    assert found["version"] == client.get(f"runs/{run_id}").json["version"] != ""
    assert found["matrices"]["sim"]["statuses"] == {"waiting": 2}
    assert (found["matrices"]["sim"]["attempts"], found["matrices"]["sim"]["usage"]) == (0, None)
    assert (step.status, step.code) == (409, "refused")
    assert (output.status, output.code) == (404, "step.unknown")


def test_a_large_run_is_shown_in_pages_only(client: Client, service: Service) -> None:
    numbers = ", ".join(map(str, range(2001)))
    run_id = start_run(
        service, f"name: large\nsteps:\n  - step: s\n    matrix: {{n: [{numbers}]}}\n    shell: 'true'\n"
    )

    assert client.get(f"runs/{run_id}/full").code == "input.invalid"
    assert len(client.get(f"runs/{run_id}").body) < 2_000
    assert client.get(f"runs/{run_id}/steps").json["total"] == 2001


# -- retry and fork --------------------------------------------------------------------------------------------------


def test_a_failed_run_is_retried_and_forked(client: Client) -> None:
    ran(FAILED)
    path = f"{RUN}:retry"

    plan = fits(client.post("runs/1:retry", {"dry_run": True}), path)
    assert plan == {**mulligan("retry", 1, "--dry-run", "--json").json, "dry_run": True, "status": "failed"}
    fork = fits(client.post("runs/1:fork", {"from_step": "load", "dry_run": True}), f"{RUN}:fork")
    assert fork == {
        **mulligan("fork", 1, "--from", "load", "--dry-run", "--json").json,
        "dry_run": True,
        "fork_run_id": None,
    }
    assert client.get("runs", counts="true").json["total"] == 1

    got = client.post("runs/1:fork", {"from_step": "load"})
    assert fits(got, f"{RUN}:fork", 201)["fork_run_id"] == 2
    assert got.headers["location"].endswith("/api/v1/runs/2")
    done = fits(client.post("runs/1:retry", {"reason": "again"}), path)
    assert done == {**plan, "dry_run": False, "status": "running"}
    assert client.get("runs/1").json["round"] == 2
    assert client.post("runs/1:retry").code == "run.not_finished"


BEHIND = """
name: behind
steps:
  - {step: load, shell: exit 7}
  - {step: report, needs: [{step: load, on: always}], shell: 'true'}
  - {step: other, shell: 'true'}
"""


def test_completed_steps_behind_one_that_runs_again_are_kept_if_asked(client: Client) -> None:
    ran(BEHIND)

    def planned(verb: str, **body: object) -> list[str]:
        return list(fits(client.post(f"runs/1:{verb}", {**body, "dry_run": True}), f"{RUN}:{verb}")["steps"])

    assert planned("retry") == ["load", "report"]
    assert planned("retry", keep_completed=True) == ["load"]
    assert planned("fork", from_step="other") == ["load", "report", "other"]
    assert planned("fork", from_step="other", keep_completed=True) == ["load", "other"]
    done = fits(client.post("runs/1:retry", {"keep_completed": True}), f"{RUN}:retry")
    assert (done["steps"], done["kept"]) == (["load"], ["report", "other"])


def test_a_child_run_and_a_step_of_it_are_retried_with_the_run_at_the_top(client: Client, folder: Path) -> None:
    (folder / "inner.yaml").write_text(FAILED)
    ran("name: outer\nsteps: [{step: call, workflow: inner.yaml}]\n")

    anew = fits(client.post("runs/2:retry", {"from_start": True, "dry_run": True}), f"{RUN}:retry")
    step = client.post("runs/2/steps/load:retry", {"reason": "again", "dry_run": True}).json
    done = fits(client.post("runs/2:retry", {"reason": "again"}), f"{RUN}:retry")

    assert (anew["root_run_id"], anew["from_start"], anew["steps"]) == (1, True, ["load", "first"])
    assert (step["round"]["root_run_id"], step["round"]["steps"]) == (1, ["load"])
    assert (done["run_id"], done["round"], done["kept"]) == (2, 2, ["first"])
    assert (client.get("runs/1").json["round"], client.get("runs/1").json["status"]) == (2, "running")


def test_a_failed_run_continues_with_a_corrected_version(client: Client, service: Service) -> None:
    ran(FAILED)
    service.catalogue.publish("daily", FAILED)
    service.catalogue.publish("daily", FAILED.replace("exit 7", "'true'"))

    assert client.post("runs/1:retry", {"version": 3}).code == "workflow.unknown"
    plan = fits(client.post("runs/1:retry", {"version": 2, "dry_run": True}), f"{RUN}:retry")
    assert "load" in str(plan["correction"])
    fork = fits(client.post("runs/1:fork", {"from_step": "load", "version": 2}), f"{RUN}:fork", 201)
    assert (fork["kept"], fork["steps"]) == (["first"], ["load"])
    assert client.post("runs/1:retry", {"version": 2}).json["status"] == "running"
    assert client.get("runs/1").json["revision"] is not None


def test_whoever_starts_a_run_cannot_say_which_version_or_schedule_it_is_of(client: Client) -> None:
    for name in ("version", "schedule", "schedule_instant"):
        refused = client.post("runs", {"text": WAITING, "labels": {name: "7"}})
        assert (refused.status, refused.code) == (422, "input.invalid")


def test_a_fork_that_keeps_an_approval_needs_the_scope_to_decide(client: Client) -> None:
    ran(APPROVAL)
    client.post("runs/1/steps/ask:approve", {"reason": "yes", "approve": True})
    mulligan("resume", 1)

    refused = client.post("runs/1:fork", {"from_step": "ship"}, scope="run")
    again = client.post("runs/1:fork", {"from_step": "ask"}, scope="run")

    assert (refused.status, refused.code) == (403, "token.scope")
    assert again.json["kept"] == []
    assert client.post("runs/1:fork", {"from_step": "ship"}).json["approvals"] == ["ask"]


def test_a_failed_run_continues_with_an_edited_text(client: Client) -> None:
    ran(FAILED)
    edited = FAILED.replace("exit 7", "'true'")

    wrong = client.post("runs/1:fork", {"from_step": "load", "text": edited.replace("shell", "shel")})
    both = client.post("runs/1:fork", {"from_step": "load", "text": edited, "version": 1})
    unneeded = client.post("runs/1:fork", {"from_step": "load", "format": "torc"})
    as_reader = client.post("runs/1:fork", {"from_step": "load", "text": edited}, scope="run")
    plan = fits(client.post("runs/1:retry", {"text": edited, "dry_run": True}), f"{RUN}:retry")
    fork = fits(client.post("runs/1:fork", {"from_step": "load", "text": edited}), f"{RUN}:fork", 201)

    assert wrong.code == "language"
    assert (both.code, unneeded.code, as_reader.code) == ("input.invalid", "input.invalid", "token.scope")
    assert plan["correction"]["changed"].keys() == {"load"}
    assert (fork["kept"], fork["steps"]) == (["first"], ["load"])
    assert client.post("runs/1:retry", {"text": edited}).json["status"] == "running"


def test_one_step_is_retried_with_its_checks(client: Client) -> None:
    ran(FAILED)
    path, body = "runs/1/steps/load:retry", {"reason": "the disk is back"}

    assert client.post("runs/1/steps/none:retry", body).code == "step.unknown"
    assert client.post(path, {**body, "round": 2}).code == "refused"
    assert client.post("runs/1/steps/first:retry", body).code == "step.not_parked"
    assert client.post(path, {**body, "max_attempts": 1}).code == "refused"
    assert client.post(path, body, scope="decide").code == "token.scope"
    plan = fits(
        client.post(path, {**body, "round": 1, "max_attempts": 2, "dry_run": True}), f"{RUN}/steps/{{step}}:retry"
    )
    assert plan["round"]["steps"] == ["load"]
    assert client.get("runs/1").json["status"] == "failed"
    assert client.post(path, {**body, "round": 1}).json["round"]["round"] == 2


# -- decisions -------------------------------------------------------------------------------------------------------


def decision(step: str, verdict: str = "retry", run_id: int = 1) -> dict[str, Any]:
    return {"run_id": run_id, "step": step, "verdict": verdict, "reason": "because"}


def test_decisions_count_each_by_itself(client: Client) -> None:
    ran(PARKED)
    many = [
        decision("fetch"),
        decision("load"),
        decision("check", "fail"),
        decision("fetch", run_id=9),
        decision("fetch"),
    ]

    assert len(client.get("runs/1/steps/fetch").json["tries"]) == 1
    preview = fits(client.post("decisions", {"decisions": many, "dry_run": True}), "decisions")
    assert client.get("pending").json["total"] == 2
    done = fits(client.post("decisions", {"decisions": many}), "decisions")

    codes = [one["error"] and one["error"]["code"] for one in done["decisions"]]
    assert codes == [None, "step.not_parked", None, "run.unknown", "step.not_parked"]
    assert [one["error"] and one["error"]["code"] for one in preview["decisions"]] == codes
    assert [one["is_recorded"] for one in done["decisions"]] == [True, False, True, False, False]
    assert not any(one["is_recorded"] for one in preview["decisions"])
    assert preview["decisions"][0]["starts"] == done["decisions"][0]["starts"] == ["fetch: attempt 2"]
    assert {one["by"] for one in done["decisions"]} == {"admin"}
    assert [one["status"] for one in client.get("runs/1/steps/fetch").json["tries"]] == ["failed", "queued"]
    assert client.get("pending").json["total"] == 0


def test_a_preview_is_what_the_command_line_shows(client: Client) -> None:
    ran(PARKED)
    (found,) = client.post("decisions", {"decisions": [decision("fetch")], "dry_run": True}).json["decisions"]
    shown = mulligan(
        "classify", 1, "fetch", "retry", "--reason", "because", "--dry-run", "--by", "admin", "--json"
    ).json

    assert {key: found[key] for key in shown} == shown


def test_an_approval_is_answered(client: Client) -> None:
    ran(APPROVAL)
    assert client.get("pending").json["pending"][0]["commands"][0] == "mulligan approve 1 ask --reason TEXT"

    preview = client.post("runs/1/steps/ask:approve", {"reason": "tested", "dry_run": True}).json
    assert preview["starts"] == ["ship: attempt 1"]
    assert client.get("pending").json["total"] == 1
    assert client.post("runs/1/steps/ask:approve", {"reason": "tested"}, scope="decide").status == 200
    assert client.get("pending").json["total"] == 0
    assert client.post("runs/1/steps/ask:approve", {"reason": "tested"}).code == "step.not_waiting"


def test_an_approval_of_an_item_is_answered_by_its_name(client: Client) -> None:
    ran("""
name: sites
steps:
  - step: check
    map: {over: [web, 'a/b'], as: site}
    do: [{shell: "echo checking ${site}"}, {approve: "Open ${site}?"}]
""")
    _, second = client.get("pending").json["pending"]
    assert (second["step"], second["name"]) == ("check[1].1", "check[a/b] command 2")
    assert second["commands"][0] == "mulligan approve 1 'check[a/b] command 2' --reason TEXT"
    assert client.get("runs/1/attempts/check%5Bweb%5D.0/1/log").body == b"checking web\n"

    for name in ("check[a/b] command 2", "check[web]"):
        path = f"runs/1/steps/{quote(name, safe='')}:approve"
        assert client.post(path, {"reason": "tested"}).status == 200
    assert client.get("pending").json["total"] == 0
    assert client.post("runs/1/steps/check%5Bftp%5D:approve", {"reason": "tested"}).code == "item.unknown"


def test_a_token_for_other_workflows_changes_nothing(client: Client) -> None:
    ran(PARKED)

    for path, body in (
        ("runs/1:cancel", {}),
        ("runs/1/steps/fetch:retry", {"reason": "x"}),
        ("decisions", {"decisions": [decision("fetch")]}),
        ("runs", {"workflow": "nightly"}),
    ):
        assert client.post(path, body, scope="limited").code == "token.scope", path
    assert client.get("pending").json["total"] == 2


# -- at an event -----------------------------------------------------------------------------------------------------


def test_a_run_is_shown_at_an_event_and_continued_from_there(client: Client) -> None:
    ran(PARKED_AT_EVENT)
    last = client.get("runs/1").json["seq"]

    moment = client.get(f"runs/1/at/{last}").json
    planned = fits(client.post(f"runs/1/at/{last}:fork", {"dry_run": True}), f"{RUN}/at/{{seq:int}}:fork")
    started = client.post(f"runs/1/at/{last}:fork", {"reason": "what if"})

    assert (moment["seq"], moment["run"]["steps"]["load"]["status"]) == (last, "pending_failed")
    assert (planned["kept"], planned["fork_run_id"]) == (["fetch"], None)
    assert (started.status, started.json["fork_run_id"]) == (201, 2)
    assert client.get(f"runs/1/at/{last + 1}").status == 422
    assert client.post(f"runs/1/at/{last}:fork", {"inputs": {"colour": "red"}}).status == 422
    assert client.post("runs/1/at/1:fork", {}).status == 409


PARKED_AT_EVENT = """
name: parked
steps:
  - {step: fetch, shell: 'true'}
  - {step: load, needs: [fetch], shell: exit 3, triage: {when: always}}
"""
