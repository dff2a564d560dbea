"""The tools that start and change runs: what follows, dry runs, and that an error changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_server.conftest import ran
from tests.mcp_server.conversation import Agent, agent_at
from tests.support.commands import mulligan

from mulligan.mcp_server.local_access import LocalAccess
from mulligan.service.home import Home
from mulligan.service.runs.changes.workflow_sources import WorkflowSource
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.service import Service

FLOW = """
name: daily
inputs:
  day: {type: string, default: monday}
steps:
  - step: first
    shell: echo ${inputs.day}
  - step: load
    needs: [first]
    shell: exit 7
"""
FOLLOWS = "a process in the background continues it: no other drives it"
FIXED = FLOW.replace("exit 7", "'true'")


@pytest.fixture
def home(folder: Path) -> Home:
    return Home(folder / ".mulligan")


@pytest.fixture
def served(home: Home) -> Iterator[Agent]:
    """An agent of a server: its runs are left to workers, of which there is none here."""

    def service() -> Service:
        return Service(home).as_user("robot")

    access = LocalAccess(service, ("read", "run", "decide", "write"))
    yield Agent(access)
    access.close()


BEHIND = """
name: behind
steps:
  - {step: load, shell: exit 7}
  - {step: report, needs: [{step: load, on: always}], shell: 'true'}
  - {step: other, shell: 'true'}
"""


def events(home: Home) -> list[bytes]:
    """Everything that was ever recorded."""
    with Service(home) as service:
        runs = service.runs.page(RunQuery()).runs
        return [line for run in runs for line in service.logs.event_lines(run.run_id)]


def test_a_published_workflow_is_started_once_for_a_key(served: Agent, home: Home) -> None:
    with Service(home, "ann") as service:
        service.catalogue.publish("daily", FLOW)

    planned = served.call("start_run", workflow="daily", dry_run=True)
    first = served.call("start_run", workflow="daily", inputs={"day": "friday"}, key="fri", labels={"team": "ops"})
    again = served.call("start_run", workflow="daily", inputs={"day": "friday"}, key="fri", labels={"team": "ops"})
    other = served.refused("start_run", workflow="daily", inputs={"day": "sunday"}, key="fri")

    assert (planned["dry_run"], planned["steps"], planned["inputs"]) == (True, 2, {"day": "monday"})
    assert (first["run_id"], first["is_new"], again["run_id"], again["is_new"]) == (1, True, 1, False)
    assert (other["code"], other["data"]) == ("run.key_mismatch", {"run_id": 1, "inputs": ["day"]})
    assert served.call("list_runs", text="ops")["runs"][0]["started_by"] == "agent:robot"


def test_a_run_is_paused_resumed_and_cancelled_with_a_look_before(served: Agent, home: Home) -> None:
    served.call("start_run", text=FLOW)
    before = events(home)

    looked = served.call("cancel_run", run_id=1, dry_run=True)
    assert (looked["dry_run"], events(home)) == (True, before)
    paused = served.call("pause_run", run_id=1, reason="look at it")
    resumed = served.call("resume_run", run_id=1)
    cancelled = served.call("cancel_run", run_id=1, reason="not needed")

    assert [one["dry_run"] for one in (paused, resumed, cancelled)] == [False] * 3
    assert any("robot" in line and "look at it" in line for line in paused["follows"])


def test_a_failed_run_is_retried_with_a_corrected_text(served: Agent, home: Home) -> None:
    ran(FLOW)
    before = events(home)

    planned = served.call("retry_run", run_id=1, text=FIXED, dry_run=True)
    assert (planned["steps"], planned["correction"]["changed"]) == (["load"], {"load": ["shell"]})
    assert events(home) == before
    opened = served.call("retry_run", run_id=1, text=FIXED, reason="a typo")

    assert (opened["round"], opened["kept"]) == (2, ["first"])


def test_completed_steps_behind_one_that_runs_again_are_kept_if_asked(served: Agent, home: Home) -> None:
    ran(BEHIND)

    planned = served.call("retry_run", run_id=1, dry_run=True)
    kept = served.call("retry_run", run_id=1, keep_completed=True, dry_run=True)
    fork = served.call("fork_run", run_id=1, from_step="other", keep_completed=True, dry_run=True)

    assert (planned["steps"], planned["why"]["report"]) == (["load", "report"], "it comes after 'load'")
    assert (kept["steps"], fork["steps"]) == (["load"], ["load", "other"])


def test_a_child_run_is_retried_and_may_start_anew(served: Agent, home: Home) -> None:
    ran("name: outer\nsteps: [{step: call, group: {steps: [{step: load, shell: exit 3}]}}]\n")

    planned = served.call("retry_run", run_id=2, from_start=True, dry_run=True)
    opened = served.call("retry_run", run_id=2)

    assert (planned["root_run_id"], planned["from_start"]) == (1, True)
    assert (opened["run_id"], opened["root_run_id"], opened["round"]) == (2, 1, 2)


def test_a_run_is_forked_with_other_inputs_and_another_text(served: Agent, home: Home) -> None:
    ran(FLOW)

    planned = served.call("fork_run", run_id=1, from_step="load", text=FIXED, dry_run=True)
    forked = served.call("fork_run", run_id=1, from_step="first", inputs={"day": "sunday"}, text=FIXED)

    assert (planned["fork_run_id"], planned["dry_run"]) == (None, True)
    assert forked["fork_run_id"] == 2
    assert served.call("get_run", run_id=2)["inputs"] == {"day": "sunday"}


def test_a_run_is_looked_at_and_forked_at_an_event(served: Agent, home: Home) -> None:
    ran(FLOW)

    points = served.call("get_moment", run_id=1, step="load")["points"]
    at = next(one["event"]["seq"] for one in points if one["status"] == "running")
    moment = served.call("get_moment", run_id=1, at=at)
    planned = served.call("fork_run", run_id=1, at=at, dry_run=True)
    forked = served.call("fork_run", run_id=1, at=at, reason="again")

    assert (moment["seq"], moment["run"]["steps"]["load"]["status"]) == (at, "running")
    assert (planned["fork_run_id"], planned["kept"], planned["again"]) == (None, ["first"], ["load: attempt 2"])
    assert forked["fork_run_id"] == 2


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("start_run", {}, "input.invalid"),
    ("start_run", {"workflow": "nightly"}, "workflow.unknown"),
    ("start_run", {"workflow": "daily", "text": FLOW}, "input.invalid"),
    ("start_run", {"text": FLOW, "version": 1}, "input.invalid"),
    ("start_run", {"text": "steps: ["}, "language"),
    ("start_run", {"text": FLOW, "inputs": {"hour": 1}}, "input.invalid"),
    ("start_run", {"text": FLOW, "key": "\n"}, "input.invalid"),
    ("start_run", {"text": FLOW, "inputs": "day"}, "input.invalid"),
    ("retry_run", {"run_id": 9}, "run.unknown"),
    ("retry_run", {"run_id": 1, "from_step": "lod"}, "step.unknown"),
    ("retry_run", {"run_id": 1, "items": [0]}, "input.invalid"),
    ("retry_run", {"run_id": 1, "inputs": {"day": "x"}}, "input.invalid"),
    ("retry_run", {"run_id": 1, "text": "name: x"}, "language"),
    ("fork_run", {"run_id": 1}, "input.invalid"),
    ("fork_run", {"run_id": 1, "from_step": "load", "at": 4}, "input.invalid"),
    ("fork_run", {"run_id": 1, "at": 4, "keep_completed": True}, "input.invalid"),
    ("fork_run", {"run_id": 1, "at": 999}, "input.invalid"),
    ("fork_run", {"run_id": 1, "from_step": "lod"}, "step.unknown"),
    ("fork_run", {"run_id": 1, "from_step": "load", "inputs": {"hour": 1}}, "input.invalid"),
    ("cancel_run", {"run_id": 1}, "run.finished"),
    ("cancel_run", {"run_id": 9}, "run.unknown"),
    ("pause_run", {"run_id": 1}, "run.finished"),
    ("pause_run", {"run_id": 1, "step": "load"}, "run.finished"),
    ("resume_run", {"run_id": 1}, "run.finished"),
    ("resume_run", {"run_id": 1, "steps": 0}, "input.invalid"),
    ("send_event", {"run_id": 1, "name": "paid"}, "run.finished"),
    ("send_event", {"run_id": 1, "name": "a b"}, "input.invalid"),
    ("send_event", {"run_id": 1, "name": "paid", "key": "hook:shop: id msg_1"}, "input.invalid"),
]


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Home]]:
    """An agent of a folder with a run that has failed."""
    folder = tmp_path_factory.mktemp("refusing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ran(FLOW)
        with agent_at(folder / ".mulligan") as agent:
            yield agent, Home(folder / ".mulligan")


@pytest.mark.parametrize(("tool", "arguments", "code"), WRONG)
def test_an_error_changes_nothing(
    refusing: tuple[Agent, Home], tool: str, arguments: dict[str, Any], code: str
) -> None:
    agent, home = refusing
    before = events(home)

    found = agent.refused(tool, **arguments)

    assert found["code"] == code
    assert found["message"] and events(home) == before


def test_code_of_the_caller_needs_the_scope_for_it(folder: Path) -> None:
    ran(FLOW)
    with agent_at(folder / ".mulligan", scopes=("run",)) as agent:
        assert agent.refused("start_run", text=FLOW)["data"] == {"scope": "write"}
        assert agent.refused("start_run", file="flow.yaml")["code"] == "token.scope"
        assert agent.refused("fork_run", run_id=1, from_step="load", text=FIXED)["code"] == "token.scope"
    with agent_at(folder / ".mulligan", scopes=("read",)) as agent:
        assert agent.refused("cancel_run", run_id=1)["code"] == "token.scope"


def test_a_run_that_nobody_drives_would_go_on_in_the_background(agent: Agent, home: Home) -> None:
    with Service(home) as service:
        source = WorkflowSource(text=FIXED)
        service.changes.create(service.workflow_sources.prepare(source, {}, {}))

    planned = agent.call("resume_run", run_id=1, dry_run=True)

    assert (planned["dry_run"], planned["follows"]) == (True, [FOLLOWS])
    assert agent.call("get_run", run_id=1)["driver"] is None


def test_a_run_that_waited_for_a_decision_goes_on_after_it(agent: Agent) -> None:
    ran("name: nightly\nsteps:\n  - step: fetch\n    shell: test -e there\n    triage: true\n")
    Path("there").touch()
    decision = {"run_id": 1, "step": "fetch", "verdict": "retry", "reason": "it is there now"}

    trial = agent.call("classify", **decision)
    assert (trial["dry_run"], agent.call("list_pending")["total"]) == (True, 1)
    agent.call("classify", **decision, dry_run=False)

    assert mulligan("wait", "1", "--timeout", "60s").code == 0


def test_a_server_does_not_read_files_of_its_clients(served: Agent) -> None:
    Path("flow.yaml").write_text(FLOW, encoding="utf-8")

    assert served.refused("start_run", file="flow.yaml")["data"] == {"argument": "file"}
    assert served.refused("validate_workflow", file="flow.yaml")["code"] == "input.invalid"
