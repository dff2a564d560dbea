"""Rung 5, live: every path leads to `end`, what it sees there, and what it may make of it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from tests.support.runner import Live, Ran, Terminal, wait_until

from mulligan.core.model import events as e

# What `end` is told, written down.
WITNESS = """
end:
  python: |
    import json
    def main(steps, failures, stopping):
        told = {"steps": {n: s["status"] for n, s in steps.items()}, "failures": failures, "stopping": stopping}
        with open("told.json", "a") as file:
            file.write(json.dumps(told) + "\\n")
  args: {steps: "${run.steps}", failures: "${run.failures}", stopping: "${run.stopping}"}
"""


def input_of_end(live: Live) -> dict[str, Any]:
    """What the one `end` of a run was told."""
    [line] = live.lines("told.json")
    return dict(json.loads(line))


def failures(live: Live) -> list[tuple[str, int, str, bool, bool]]:
    """The failures that `end` saw: step, visit, code, handled, recovered."""
    return [
        (found["step"], found["visit"], found["code"], found["handled"], found["recovered"])
        for found in input_of_end(live)["failures"]
    ]


def last(ran: Ran) -> Any:
    """The round's last event."""
    return ran.log[-1].fact


# -- every way to get there ------------------------------------------------------------------------------------------


def test_end_after_success(live_file: Live):
    ran = live_file.run("name: a\nsteps: [{step: a, shell: 'true'}, {step: b, shell: 'true', when: 1 == 2}]" + WITNESS)

    assert input_of_end(live_file) == {"steps": {"a": "completed", "b": "skipped"}, "failures": [], "stopping": None}
    assert (ran.status, ran.shown["degraded"], ran.shown["end"]["status"]) == ("completed", False, "completed")
    assert last(ran) == e.RunCompleted(total_steps=2, skipped_steps_count=1)


def test_end_after_a_failure_that_nobody_handled(live: Live):
    ran = live.run("name: a\nsteps: [{step: a, shell: exit 3}, {step: b, needs: [a], shell: 'true'}]" + WITNESS)

    assert failures(live) == [("a", 1, "EXIT_NONZERO", False, False)]
    assert input_of_end(live)["steps"] == {"a": "failed", "b": "skipped"}
    assert last(ran) == e.RunFailed(total_steps=2, failed_steps_count=1, skipped_steps_count=1)


def test_end_after_everything_that_helps(live_file: Live):
    """One failure per failed visit, in the order in which they happened, whatever became of them."""
    ran = live_file.run(
        """
        name: helped
        order: sequential
        steps:
          - {step: recovered, shell: exit 1, on_failure: echo rescued}
          - {step: allowed, shell: exit 2, continue_on_error: true}
          - step: again
            shell: test -e mended
            next: {to: mend, on: failure, then: rerun}
          - {step: mend, shell: touch mended}
          - {step: after, needs: [again], shell: 'true'}
        """
        + WITNESS.replace("\n", "\n        ")
    )

    assert failures(live_file) == [
        ("recovered", 1, "EXIT_NONZERO", False, True),
        ("allowed", 1, "EXIT_NONZERO", False, False),
        ("again", 1, "EXIT_NONZERO", True, False),
    ]
    assert (ran.status, ran.shown["degraded"]) == ("completed", True)
    assert last(ran) == e.RunCompleted(degraded=True, total_steps=5, handled_steps_count=1, recovered_steps_count=1)


def test_end_after_a_cancel(live: Live):
    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        there.service.changes.cancel(there.run_id, reason="wrong day")

    ran = live.run(
        "name: a\nsteps: [{step: a, shell: sleep 1000}, {step: b, needs: [a], shell: 'true'}]" + WITNESS,
        meanwhile=cancel,
    )

    assert input_of_end(live) == {
        "steps": {"a": "cancelled", "b": "cancelled"},
        "failures": [],
        "stopping": "cancelled",
    }
    assert (ran.status, ran.exit_code) == ("cancelled", 3)
    assert last(ran) == e.RunCancelled(total_steps=2, reason="wrong day")


def test_end_after_the_runs_own_time_was_up(live: Live):
    ran = live.run("name: a\ntimeout: 200ms\nsteps: [{step: a, shell: sleep 1000}]" + WITNESS)

    assert input_of_end(live)["steps"] == {"a": "cancelled"}
    assert input_of_end(live)["stopping"] == "timed_out"
    assert (ran.status, ran.shown["reason"]) == ("failed", "the run took longer than its timeout")
    assert last(ran).evaluated_by_end_step is True


def test_end_after_fail_fast(live_file: Live):
    text = """
name: a
fail_fast: always
steps:
  - {step: a, shell: touch up; sleep 1000}
  - {step: b, shell: until test -e up; do sleep 0.01; done; exit 1}
"""

    ran = live_file.run(text + WITNESS)

    assert failures(live_file) == [("b", 1, "EXIT_NONZERO", False, False)]
    assert input_of_end(live_file)["steps"] == {"a": "cancelled", "b": "failed"}
    assert (ran.status, input_of_end(live_file)["stopping"]) == ("failed", "failed_fast")


def test_end_after_a_worker_was_lost(live: Live):
    """Whoever takes the run up finds the attempt without its worker, and `end` runs there."""
    text = "name: a\nsteps: [{step: a, shell: touch up; sleep 1000, on_lost: fail}]" + WITNESS
    live.write("flow.yaml", text)
    with live.process("run", "flow.yaml") as child:
        wait_until((live.folder / "up").exists)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=60)

    ran = live.resume(1)

    assert failures(live) == [("a", 1, "WORKER_LOST", False, False)]
    assert (ran.status, last(ran).failed_steps_count) == ("failed", 1)


def test_end_after_a_sub_workflow_failed(live: Live):
    live.write("child.yaml", "name: child\nsteps: [{step: work, shell: exit 7}]\n")

    ran = live.run("name: a\nsteps: [{step: a, workflow: {file: child.yaml}}]" + WITNESS)

    [found] = input_of_end(live)["failures"]
    assert (found["code"], found["cause"][0]["step"], found["cause"][0]["exit_code"]) == ("CHILD_FAILED", "work", 7)
    assert ran.status == "failed"


def test_a_workflow_without_an_end_has_one_that_only_evaluates(live_file: Live):
    ran = live_file.run("name: a\nsteps: [{step: a, shell: exit 1}]")

    assert (ran.shown["end"]["status"], ran.shown["end"]["attempts"]) == ("completed", 0)
    assert last(ran) == e.RunFailed(total_steps=1, failed_steps_count=1)


def test_an_edge_to_end_changes_nothing_and_handles_nothing(live_file: Live):
    ran = live_file.run("""
        name: a
        steps:
          - {step: a, shell: exit 1, next: {to: end, on: failure}}
          - {step: b, shell: 'true', next: end}
    """)

    assert (ran.status, ran.steps["a"]["handled"]) == ("failed", False)


# -- what it makes of it ---------------------------------------------------------------------------------------------

VERDICT = """
name: verdict
steps:
  - {step: a, shell: exit CODE, undo: echo undone >> trace}
  - {step: b, shell: exit CODE2}
end: {shell: cat verdict.json, capture: json}
"""


@pytest.mark.parametrize(
    ("codes", "said", "status", "reason"),
    [
        ((0, 0), '{"status": "failed", "reason": "too few rows"}', "failed", "too few rows"),
        ((1, 0), '{"status": "completed", "reason": "only lint"}', "completed", "only lint"),
        # No status that a run can have: `end` has failed.
        ((0, 0), '{"status": "cancelled"}', "failed", "end failed: OUTPUT_INVALID"),
        ((1, 0), '{"status": true}', "failed", "end failed: OUTPUT_INVALID"),
        # No status at all: the run is what it was.
        ((1, 0), "[]", "failed", ""),
        # What was undone is undone.
        ((0, 1), '{"status": "completed", "reason": "never mind"}', "failed", "never mind"),
    ],
)
def test_end_may_turn_the_verdict(live_file: Live, codes: tuple[int, int], said: str, status: str, reason: str):
    live_file.write("verdict.json", said)

    ran = live_file.run(VERDICT.replace("CODE2", str(codes[1])).replace("CODE", str(codes[0])))

    assert (ran.status, ran.shown["reason"]) == (status, reason)


def test_end_cannot_turn_a_cancel(live: Live):
    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        there.service.changes.cancel(there.run_id)

    ran = live.run(
        """
        name: a
        steps: [{step: a, shell: sleep 1000}]
        end: {python: "def main(): return {'status': 'completed'}"}
        """,
        meanwhile=cancel,
    )

    assert ran.status == "cancelled"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("{shell: exit 4}", "EXIT_NONZERO"),
        ("{shell: sleep 1000, timeout: 100ms}", "TIMEOUT"),
        ("{shell: 'true', validate: output == 'x'}", "VALIDATION_FAILED"),
        ("{shell: 'echo ${run.steps.a.output.b.c}'}", "EXPRESSION_FAILED"),
    ],
)
def test_an_end_that_fails_fails_the_run(live_file: Live, end: str, code: str):
    ran = live_file.run(f"name: a\nsteps: [{{step: a, shell: echo 1}}]\nend: {end}")

    assert (ran.status, ran.exit_code, ran.shown["reason"]) == ("failed", 1, f"end failed: {code}")
    assert ran.shown["end"]["failure"]["code"] == code


def test_an_end_that_fails_is_retried_and_recovered_like_a_step(live_file: Live):
    ran = live_file.run("""
        name: a
        steps: [{step: a, shell: 'true'}]
        end:
          shell: echo "try $MULLIGAN_ATTEMPT" >> trace; exit 1
          retry: 1
          on_failure: echo rescued >> trace
    """)

    assert live_file.lines("trace") == ["try 1", "try 2", "rescued"]
    assert (ran.status, ran.shown["end"]["recovered"]) == ("completed", True)


def test_outputs_may_read_every_step_and_are_null_where_there_is_none(live_file: Live):
    ran = live_file.run("""
        name: a
        steps:
          - {step: a, shell: echo 3, capture: json}
          - {step: b, shell: exit 1, continue_on_error: true}
        outputs: {a: "${steps.a.output}", b: "${steps.b.output}", text: "a is ${steps.a.output}"}
    """)

    assert ran.shown["outputs"] == {"a": 3, "b": None, "text": "a is 3"}


def test_what_end_gave_can_be_an_output_of_the_run(live_file: Live):
    ran = live_file.run(
        """
        steps: [{step: one, shell: echo 2}]
        end: {python: "def main(one): return {'twice': int(one) * 2}", args: {one: "${steps.one.output}"}}
        outputs: {result: "${steps.end.output.twice}"}
        """
    )

    assert ran.shown["outputs"] == {"result": 4}
