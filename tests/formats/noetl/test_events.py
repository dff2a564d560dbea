"""`mulligan events --as noetl`: a log under the names of NoETL's, of any run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .playbooks import mulligan, older, written

FAILING = older("""
    workflow:
      - {step: start, tool: {kind: noop}, next: [{step: bad}, {step: good}]}
      - {step: bad, tool: {kind: python, code: "raise ValueError('no luck')"}}
      - {step: good, tool: {kind: noop}}
    """)


def events(text: str) -> list[dict[str, Any]]:
    mulligan("run", written(text))
    said = mulligan("events", 1, "--as", "noetl")
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def names(found: list[dict[str, Any]], node: str) -> list[tuple[str, str | None, str]]:
    return [(one["event"], one["event_type"], one["status"]) for one in found if one["node_name"] == node]


def test_a_step_that_fails_is_routed_to_end_and_the_last_two_events_are_ends():
    found = events(FAILING)

    (failed,) = [one for one in found if one["event"] == "step_failed"]
    assert (failed["node_name"], failed["event_type"], failed["status"]) == ("bad", "step.exit", "FAILED")
    assert failed["error"] == "ValueError: no luck"
    assert {key: failed["meta"][key] for key in ("routed_to_end", "original_failed_step", "failure_reason")} == {
        "routed_to_end": True,
        "original_failed_step": "bad",
        "failure_reason": "EXCEPTION",
    }
    workflow, playbook = found[-2:]
    assert (workflow["event"], workflow["event_type"], workflow["error"]) == (
        "workflow_failed",
        "workflow.failed",
        "Workflow failed at steps: bad",
    )
    assert (playbook["event"], playbook["error"]) == ("playbook_failed", "Playbook failed: bad")
    assert playbook["parent_event_id"] == workflow["event_id"]
    assert workflow["meta"] == {
        "evaluated_by_end_step": True,
        "total_steps": 3,
        "failed_steps_count": 1,
        "handled_steps_count": 0,
        "recovered_steps_count": 0,
        "skipped_steps_count": 0,
    }


def test_a_step_is_entered_called_and_left():
    found = events(FAILING)

    assert names(found, "good") == [
        ("step_started", "step.enter", "RUNNING"),
        ("action_issued", "command.issued", "PENDING"),
        ("action_started", "command.started", "RUNNING"),
        ("action_completed", "call.done", "COMPLETED"),
        ("step_completed", "step.exit", "COMPLETED"),
    ]
    assert [one["event"] for one in found[:2]] == ["playbook_initialized", "workflow_initialized"]


def test_every_line_has_an_id_of_its_own_and_a_parent_that_came_before():
    found = events(FAILING)

    ids = [one["event_id"] for one in found]
    assert len(set(ids)) == len(ids)
    assert all(one["parent_event_id"] in (None, *ids[:at]) for at, one in enumerate(found))


def test_a_loop_tells_of_its_items_and_a_run_of_ours_is_told_the_same_way():
    found = events("name: ours\nsteps: [{step: each, map: {over: [1, 2], max_parallel: 1}, do: [{shell: 'true'}]}]")

    told = [one["event"] for one in found if "iterat" in one["event"]]
    assert told == [
        "iterator_started",
        *("iteration_started", "iteration_completed", "iteration_started", "iteration_completed"),
        "iterator_completed",
    ]
    assert [one["event"] for one in found[-2:]] == ["workflow_completed", "playbook_completed"]
    assert "error" not in found[-1]


@pytest.mark.parametrize("system", ["torc", "NoETL", ""])
def test_names_of_other_systems_are_refused(system: str):
    written(FAILING)

    said = mulligan("events", 1, "--as", system)

    assert said.plain == (2, "", f"error[usage]: '{system}' has no names for events\n  systems that have: noetl\n")
