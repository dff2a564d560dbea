"""What the systems that we come from promise about their files: the forms that their documents show run as meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.runner import Live

from mulligan.formats import examine
from mulligan.formats.noetl.log import noetl_events

AGENT = 'cat > prompt.txt; echo "$MULLIGAN_STEP" >> asked.txt; touch fixed; echo done'


@pytest.fixture(autouse=True)
def _agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that stands in for an agent: it keeps what it was told, and mends what is broken."""
    monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", AGENT)
    monkeypatch.setenv("MULLIGAN_AGENT_CODEX", AGENT)


def statuses(ran: Any) -> dict[str, str]:
    return {name: step["status"] for name, step in ran.steps.items()}


# NoETL

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly}
workflow:
  - step: start
    tool: {kind: python, code: "result = 1"}
    next: [{step: load}]
  - step: load
    tool: {kind: python, code: "raise ValueError('no table')"}
  - step: END
    tool: {kind: python, code: "result = 'aggregated'"}
"""


def test_an_end_is_the_end_whatever_its_case(live_file: Live) -> None:
    """N6: a step `END` is no step of its own."""
    ran = live_file.run(PLAYBOOK.replace("END", "End"))

    assert statuses(ran) == {"start": "completed", "load": "failed"}
    assert ran.shown["end"]["status"] == "completed"


def test_a_playbook_without_routes_to_end_converges_there_all_the_same(live_file: Live) -> None:
    """N26: playbooks work without changes, and their event names stay."""
    ran = live_file.run(PLAYBOOK)

    assert (ran.status, ran.shown["end"]["status"]) == ("failed", "completed")
    names = [line["event"] for line in noetl_events(live_file.service.reader.events(ran.run_id))]
    assert [name for name in names if not name.startswith("action_")] == [
        *("playbook_initialized", "workflow_initialized", "step_started", "step_completed"),
        *("step_started", "step_failed", "step_started", "step_completed", "workflow_failed", "playbook_failed"),
    ]


# Alphred


def node(key: str, index: int, **more: Any) -> dict[str, Any]:
    prompt = {"content": f"Do {key}.", "contentType": "text"}
    named = {"nodeKey": key, "displayName": key, "nodeType": "agent", "provider": "codex", "model": "m"}
    return {**named, "sequenceIndex": index, "promptTemplate": prompt, **more}


def edge(source: str, target: str, route: str = "success", priority: int = 1, **more: Any) -> dict[str, Any]:
    ways = {"sourceNodeKey": source, "targetNodeKey": target, "routeOn": route, "priority": priority}
    return {**ways, "auto": True, **more}


def test_a_draft_goes_on_by_its_guards_and_its_failure_edges(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A28: the first edge by priority whose guard holds; after a failure the first failure edge."""
    monkeypatch.setenv("MULLIGAN_AGENT_CRITIC", "cat > /dev/null; echo decision: changes_requested")
    monkeypatch.setenv("MULLIGAN_AGENT_BROKEN", "echo 'no answer' >&2; exit 3")
    guard = {"auto": False, "guardExpression": {"field": "decision", "operator": "==", "value": "approved"}}
    draft = {
        "treeKey": "design",
        "name": "Design",
        "nodes": [
            node("review", 1, provider="critic"),
            node("publish", 2),
            node("rework", 3, provider="broken"),
            node("remedy", 4),
            node("last-resort", 5),
        ],
        "edges": [
            edge("review", "publish", priority=1, **guard),
            edge("review", "rework", priority=2),
            edge("rework", "last-resort", "failure", priority=9),
            edge("rework", "remedy", "failure", priority=2),
        ],
    }

    ran = live_file.run(json.dumps(draft))

    assert statuses(ran) == {
        "review": "completed",
        "publish": "skipped",
        "rework": "failed",
        "remedy": "completed",
        "last-resort": "skipped",
    }
    assert (ran.status, ran.steps["rework"]["handled"]) == ("completed", True)


# Torc

JOBS = """\
name: sweep
failure_handlers:
  - name: again
    rules: [{exit_codes: [7], max_retries: 2}]
jobs:
  - name: work
    command: "echo out $TORC_ATTEMPT_ID; echo err >&2; test $TORC_ATTEMPT_ID = 2 || exit 7"
    failure_handler: again
"""


def test_an_attempt_has_its_logs_under_torcs_names_too(live_file: Live) -> None:
    """T18: one pair of files for each attempt."""
    ran = live_file.run(JOBS)

    names = [f"output/job_stdio/job_wf{ran.run_id}_j1_r1_a{attempt}" for attempt in (1, 2)]
    assert [live_file.read(f"{name}.o") for name in names] == ["out 1\n", "out 2\n"]
    assert [live_file.read(f"{name}.e") for name in names] == ["err\n", "err\n"]


def test_an_allocation_becomes_pilots_of_a_profile_and_one_machine_needs_none(live_file: Live) -> None:
    """T21: `slurm submit` makes the allocation; on one machine the steps run without it."""
    action = "trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: short, scheduler_type: slurm"
    slurm = f"slurm_schedulers: [{{name: short, account: x}}]\nactions: [{{{action}, num_allocations: 1}}]\n"
    path = live_file.write("sweep.yaml", JOBS + slurm)

    profile = examine(path).workflow.slurm["short"]

    assert (profile.account, profile.pilots) == ("x", 1)
    assert statuses(live_file.run(path)) == {"work": "completed"}


# Prodigy

TASKS = """\
tasks:
  - name: "Build project"
    shell: "test -e cleaned"
    on_failure:
      - shell: "touch cleaned"
      - shell: "test -e cleaned"

  - name: "Type checking"
    shell: "test -e fixed"
    on_failure:
      strategy: recovery
      commands:
        - claude: "/fix-typescript-errors"
        - shell: "test -e fixed"

  - name: "Deploy"
    shell: "exit 3"
    on_failure:
      strategy: fallback
      commands:
        - shell: "echo staged > deployed.txt"
"""
MAPPED = """\
name: types
mode: mapreduce
map:
  input: "printf 'a.py\\nb.py\\n'"
  max_parallel: 1
  agent_template:
    commands:
      - claude: "/add-type-hints ${item}"
      - shell: "test -e fixed-${item}"
      - on_failure:
          shell: "touch fixed-${item}"
      - claude: "/optimize ${item}"
      - validate: "test -e fast-${item}"
      - on_failure:
          shell: "touch fast-${item}"
"""


def test_the_tasks_of_the_documents_run_with_their_handlers(live_file: Live) -> None:
    """P26: `tasks:`, a list of mappings as a handler, strategies, an agent in a handler."""
    ran = live_file.run(TASKS)

    assert ran.status == "completed", ran.story
    assert set(statuses(ran).values()) == {"completed"}
    assert live_file.lines("deployed.txt") == ["staged"]
    assert "/fix-typescript-errors" in live_file.read("prompt.txt")


def test_handlers_and_checks_that_are_items_of_the_list_belong_to_the_step_before_them(live_file: Live) -> None:
    """P26: `- on_failure:` and `- validate:` in an `agent_template`."""
    ran = live_file.run(MAPPED)

    assert ran.status == "completed", ran.story
    assert sorted(path.name for path in live_file.folder.glob("f*-*")) == [
        "fast-a.py",
        "fast-b.py",
        "fixed-a.py",
        "fixed-b.py",
    ]
