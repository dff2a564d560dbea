"""Actions: what runs before, between and after the jobs, and what is said of those that cannot."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.formats import examine

from .reading import jobs, ours, refusal, warned

JOBS = """
- {name: a, command: "true"}
- {name: b, command: "true", depends_on: [a]}
- {name: c, command: "true", depends_on: [a]}
- {name: d, command: "true", depends_on: [b, c]}
"""


def with_actions(*actions: str, rest: str = JOBS) -> dict[str, dict[str, Any]]:
    """The steps of a workflow with these actions."""
    return jobs(rest, "actions:\n" + "".join(f"  - {{action_type: run_commands, {action}}}\n" for action in actions))


def file(*actions: str, rest: str = JOBS) -> str:
    listed = "".join(f"  - {{action_type: run_commands, {action}}}\n" for action in actions)
    return f"name: w\njobs:\n{indent(dedent(rest).strip(), '  ')}\nactions:\n{listed}"


def rendered(text: str) -> list[str]:
    """The whole texts of all warnings."""
    return [warning.render() for warning in examine(Path("w.yaml"), text=text).warnings]


def test_an_action_is_a_step_in_the_output_folder_that_never_fails_the_run() -> None:
    found = with_actions("trigger_type: on_jobs_complete, jobs: [a], commands: [tar cf a.tar .]")

    assert found["on_jobs_complete"] == {
        "shell": 'mkdir -p "$TORC_OUTPUT_DIR" && cd "$TORC_OUTPUT_DIR" || exit\ntar cf a.tar .',
        "needs": [{"step": "a", "on": "always"}],
        "continue_on_error": True,
    }


def test_several_commands_run_one_after_the_other_up_to_the_first_that_fails() -> None:
    found = with_actions("trigger_type: on_jobs_complete, jobs: [a], commands: [one, two]")

    assert found["on_jobs_complete"]["shell"].endswith("|| exit\n(\none\n) && (\ntwo\n)")


@pytest.mark.parametrize("trigger", ["on_workflow_start", "on_workflow_complete"])
def test_what_looks_like_ours_in_quotes_stays_the_text_that_it_is_to_the_shell(trigger: str) -> None:
    found = ours(file(f"trigger_type: {trigger}, commands: [\"awk '{{print ${{run.id}}}}'\", echo]"))

    shell = (found.get("end") or found["steps"][-1])["shell"]
    assert "(\nawk '{print $${run.id}}'\n)" in shell


def test_what_runs_at_the_start_runs_before_all_jobs_workflow_before_worker() -> None:
    found = with_actions(
        "trigger_type: on_worker_start, commands: [one]",
        "trigger_type: on_workflow_start, commands: [two]",
        "trigger_type: on_workflow_start, commands: [three]",
    )

    assert found["on_workflow_start"].get("needs") is None
    assert found["on_workflow_start_2"]["needs"] == [{"step": "on_workflow_start", "on": "always"}]
    assert found["on_worker_start"]["needs"] == [{"step": "on_workflow_start_2", "on": "always"}]
    assert found["a"]["needs"] == [{"step": "on_worker_start", "on": "always"}]
    assert found["b"]["needs"] == ["a"]


def test_jobs_that_could_start_wait_for_the_action_that_runs_when_they_can() -> None:
    found = with_actions("trigger_type: on_jobs_ready, jobs: [b, c], commands: [x]")

    assert found["on_jobs_ready"]["needs"] == ["a"]
    assert found["b"]["needs"] == found["c"]["needs"] == [{"step": "on_jobs_ready", "on": "always"}, "a"]


def test_a_job_that_could_start_earlier_than_the_others_does_not_wait_for_them() -> None:
    found = with_actions("trigger_type: on_jobs_ready, jobs: [a, d], commands: [x]")

    assert found["on_jobs_ready"]["needs"] == ["b", "c"]
    assert found["a"].get("needs") is None
    assert found["d"]["needs"] == [{"step": "on_jobs_ready", "on": "always"}, "b", "c"]


def test_jobs_that_start_at_once_wait_for_theirs_and_that_for_what_runs_at_the_start() -> None:
    found = with_actions(
        "trigger_type: on_jobs_ready, jobs: [a], commands: [x]",
        "trigger_type: on_workflow_start, commands: [y]",
    )

    started = {"step": "on_workflow_start", "on": "always"}
    assert found["on_jobs_ready"]["needs"] == [started]
    assert found["a"]["needs"] == [started, {"step": "on_jobs_ready", "on": "always"}]


def test_jobs_of_a_chain_are_ready_when_the_last_one_is() -> None:
    found = with_actions(
        "trigger_type: on_jobs_ready, job_name_regexes: ['.*'], commands: [x]",
        rest="""
        - {name: a, command: a}
        - {name: b, command: b, depends_on: [a]}
        - {name: c, command: c, depends_on: [b]}
        """,
    )

    assert found["on_jobs_ready"]["needs"] == ["b"]
    assert found["c"]["needs"] == [{"step": "on_jobs_ready", "on": "always"}, "b"]


def test_a_job_that_runs_whatever_happens_before_it_is_ready_then_too() -> None:
    found = with_actions(
        "trigger_type: on_jobs_ready, jobs: [b], commands: [x]",
        rest="- {name: a, command: a}\n- {name: b, command: b, depends_on: [a], cancel_on_blocking_job_failure: false}",
    )

    assert found["on_jobs_ready"]["needs"] == [{"step": "a", "on": "always"}]


def test_many_jobs_are_waited_for_as_one_group_without_the_actions() -> None:
    found = with_actions(
        "trigger_type: on_jobs_complete, job_name_regexes: ['^on_'], commands: [x]",
        "trigger_type: on_jobs_complete, job_name_regexes: ['^on_'], commands: [y]",
        rest='- {name: "on_{i}", command: "true", parameters: {i: "1:20"}}',
    )

    for name in ("on_jobs_complete", "on_jobs_complete_2"):
        assert found[name]["needs"] == [{"match": "on_[0-9]+", "on": "always"}]


def test_expressions_of_jobs_do_not_match_actions() -> None:
    found = with_actions(
        "trigger_type: on_workflow_start, commands: [x]",
        rest='- {name: "on_{i}", command: "true", parameters: {i: "1:20"}}\n'
        "- {name: last, command: 'true', depends_on_regexes: ['^on_']}",
    )

    assert found["last"]["needs"] == [{"match": "on_[0-9]+"}]


def test_a_job_may_be_called_like_an_action() -> None:
    found = with_actions(
        "trigger_type: on_workflow_start, commands: [x]", rest="- {name: on_workflow_start, command: 'true'}"
    )

    assert found["on_workflow_start"]["needs"] == [{"step": "on_workflow_start_2", "on": "always"}]


def test_what_runs_when_all_is_over_is_the_end_worker_before_workflow() -> None:
    found = ours(
        file(
            "trigger_type: on_workflow_complete, commands: [one, two]",
            "trigger_type: on_worker_complete, commands: [three]",
        )
    )["end"]

    enter = 'mkdir -p "$TORC_OUTPUT_DIR" && cd "$TORC_OUTPUT_DIR"'
    assert found["shell"].splitlines() == [
        "failed=",
        f"( {enter} && (",
        "three",
        ') ) || failed="$failed on_worker_complete"',
        f"( {enter} && (",
        "one",
        ") && (",
        "two",
        ') ) || failed="$failed on_workflow_complete"',
        '[ -z "$failed" ] || printf \'{"code": "ACTION_FAILED", "severity": "warning", '
        '"message": "a command failed in%s"}\' "$failed" > "$MULLIGAN_ERROR"',
    ]
    assert found["timeout"] == "1h"


@pytest.mark.parametrize(
    ("keys", "profile"),
    [
        ("trigger_type: on_workflow_start", {"pilots": 1, "nodes": 2}),
        ("trigger_type: on_workflow_start, num_allocations: 3", {"pilots": 3, "nodes": 2}),
        ("trigger_type: on_workflow_start, num_allocations: 3, start_one_worker_per_node: true", {"pilots": 6}),
        ("trigger_type: on_workflow_start, num_allocations: 0", {"nodes": 2}),
        ("trigger_type: on_jobs_ready, jobs: [a], num_allocations: 3", {"nodes": 2}),
        ("trigger_type: on_jobs_ready, jobs: [a], start_one_worker_per_node: true", {}),
    ],
)
def test_nodes_that_are_scheduled_are_pilots_of_a_profile(keys: str, profile: dict[str, int]) -> None:
    action = f"{{{keys}, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}}"
    text = f"name: w\njobs: [{{name: a, command: 'true'}}]\nactions: [{action}]\n"
    text += "slurm_schedulers: [{name: s, account: x, nodes: 2}]\n"

    found = ours(text)

    assert found["slurm"]["s"] == {"account": "x", "walltime": "01:00:00", "labels": ["s"], **profile}
    assert (len(found["x-torc"]["actions"]), rendered(text)) == (1, [])


def test_allocations_of_several_actions_are_added_and_a_limit_of_jobs_is_not_used() -> None:
    nodes = "{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm"
    text = f"name: w\njobs: [{{name: a, command: 'true'}}]\nactions: [{nodes}}}, {nodes}, max_parallel_jobs: 4}}]\n"
    text += "slurm_schedulers: [{name: s, account: x}]\n"

    assert ours(text)["slurm"]["s"]["pilots"] == 2
    (said,) = rendered(text)
    assert "'max_parallel_jobs' is not used: a pilot takes as many jobs as its processors and memory allow" in said


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (
            "trigger_type: on_workflow_start, commands: [x], persistent: true",
            "'persistent' is for a cluster: on one machine the commands run once",
        ),
        (
            "trigger_type: on_workflow_start, commands: [x], max_parallel_jobs: 2, num_allocations: 3",
            "'num_allocations' and 'max_parallel_jobs' are for a cluster: on one machine the commands run once",
        ),
        (
            "trigger_type: on_workflow_start, commands: [x], jobs: [a]",
            "'jobs' has no effect with 'on_workflow_start'",
        ),
    ],
)
def test_what_makes_no_difference_here_is_said_by_name(action: str, said: str) -> None:
    assert warned(file(action)).partition(": w.yaml:")[2].partition(": ")[2].partition("\n")[0] == said


# What an action says beside its type, each line from the fifth of the file on.
REFUSALS = [
    (["trigger_type: on_start", "commands: [x]"], "choice", "5:19: 'trigger_type' is 'on_start'; one of "
     "'on_workflow_start', 'on_workflow_complete', 'on_jobs_ready', 'on_jobs_complete', 'on_worker_start' or "
     "'on_worker_complete' is expected", "                  ^^^^^^^^ did you mean 'on_worker_start'?"),
    (["trigger_type: on_workflow_start"], "missing_key", "4:5: the action has no 'commands'",
     "    ^ add 'commands: […]'"),
    (["trigger_type: on_workflow_start", "commands: []"], "missing_key", "4:5: the action has no 'commands'",
     "    ^ add 'commands: […]'"),
    (["trigger_type: on_workflow_start", "commands: x"], "type", "6:15: 'commands' is 'x', a list is expected",
     "              ^"),
    (["trigger_type: on_jobs_ready", "commands: [x]"], "missing_key",
     "4:5: an action with 'on_jobs_ready' must name jobs", "    ^ add 'jobs' or 'job_name_regexes'"),
    (["trigger_type: on_jobs_ready", "commands: [x]", "jobs: [aa]"], "unknown_job", "7:12: there is no job 'aa'",
     "           ^^ did you mean 'a'?"),
    (["trigger_type: on_jobs_ready", "commands: [x]", "job_name_regexes: ['^z']"], "unknown_job",
     "7:24: no job matches '^z'", "                       ^^^^"),
    (["trigger_type: on_jobs_ready", "commands: [x]", "job_name_regexes: ['(']"], "type",
     "7:24: the expression is '(', a regular expression is expected", "                       ^^^"),
    (["trigger_type: on_workflow_start", "comands: [x]"], "unknown_key", "6:5: 'comands' is not a key of an action",
     "    ^^^^^^^ did you mean 'commands'?"),
    (["commands: [x]"], "missing_key", "4:5: an action has no 'trigger_type'", "    ^ add 'trigger_type: …'"),
]  # fmt: skip


@pytest.mark.parametrize(("says", "code", "sentence", "caret"), REFUSALS)
def test_an_action_that_cannot_be_carried_out_is_refused(says: list[str], code: str, sentence: str, caret: str) -> None:
    action = ["  - action_type: run_commands", *(f"    {line}" for line in says)]
    lines = ["name: w", "jobs: [{name: a, command: 'true'}]", "actions:", *action]
    number = int(sentence.partition(":")[0])

    said = refusal("\n".join(lines))

    assert said == (f"error[language.{code}]: w.yaml:{sentence}\n  {number} | {lines[number - 1]}\n    | {caret}")


def test_nodes_are_scheduled_by_somebody() -> None:
    said = refusal(
        "name: w\njobs: [{name: a, command: 'true'}]\n"
        "actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes}]\n"
    )

    assert said == (
        "error[language.missing_key]: w.yaml:3:11: the action schedules nodes but has no 'scheduler'\n"
        "  3 | actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes}]\n"
        "    |           ^ add 'scheduler: …'"
    )


def test_nodes_are_scheduled_by_a_scheduler_that_there_is() -> None:
    said = refusal("""\
        name: w
        jobs: [{name: a, command: "true"}]
        slurm_schedulers: [{name: long, account: x}]
        actions:
          - trigger_type: on_workflow_start
            action_type: schedule_nodes
            scheduler: lung
            scheduler_type: slurm
        """)

    assert said == (
        "error[language.unknown_scheduler]: w.yaml:7:16: there is no scheduler 'lung'\n"
        "  7 |     scheduler: lung\n"
        "    |                ^^^^ did you mean 'long'?"
    )


# Live


AROUND = file(
    "trigger_type: on_workflow_start, commands: [echo start >> order]",
    "trigger_type: on_jobs_ready, jobs: [b], commands: [echo ready >> order, 'exit 1', echo never >> order]",
    "trigger_type: on_jobs_complete, jobs: [b, c], commands: [echo complete >> order]",
    "trigger_type: on_worker_complete, commands: ['exit 3']",
    "trigger_type: on_workflow_complete, commands: [echo over >> order]",
    rest="""
    - {name: a, command: echo a >> output/order}
    - {name: b, command: "echo b >> output/order; exit 1", depends_on: [a]}
    - {name: c, command: "true", depends_on: [b]}
    """,
)


def test_actions_run_around_the_jobs_and_change_nothing_about_how_the_run_ends(live: Live) -> None:
    ran = live.run(AROUND)

    assert live.lines("output/order") == ["start", "a", "ready", "b", "complete", "over"]
    assert ran.status == "failed"
    assert ran.steps["on_jobs_ready"]["status"] == "failed"
    assert ran.shown["end"]["status"] == "completed"


CANCELLED = file(
    "trigger_type: on_workflow_complete, commands: [echo over >> order]",
    rest="- {name: a, command: 'echo a >> started; sleep 60'}",
)


def test_what_runs_when_all_is_over_runs_when_the_run_was_cancelled(live: Live) -> None:
    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        there.service.changes.cancel(there.run_id)

    ran = live.run(CANCELLED, meanwhile=cancel)

    assert ran.status == "cancelled"
    assert live.lines("output/order") == ["over"]


def test_in_the_next_round_what_runs_after_jobs_that_run_again_and_when_all_is_over_runs_again(live_file: Live) -> None:
    ran = live_file.run(AROUND)
    first = live_file.lines("output/order")

    live_file.service.changes.retry(ran.run_id)
    live_file.resume(ran.run_id)

    assert live_file.lines("output/order")[len(first) :] == ["b", "complete", "over"]
