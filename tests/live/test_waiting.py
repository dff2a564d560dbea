"""When a run waits for a person, live: nothing else can move, and no timer is due within `--wait`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.runner import Live, wait_until

from mulligan.core.model import events as e

# Beside the question: work that is under way, and times that come by themselves.
ASKING = """
name: asking
steps:
  - {step: ask, approve: {message: go on?}, next: end}
  - {step: work, shell: sleep 0.2}
  - {step: soon, needs: [work], wait: TIME}
  - {step: behind, needs: [soon], shell: 'true'}
  - {step: late, shell: exit 1, retry: {max_retries: 1, delay: 1h}}
"""


@pytest.mark.parametrize(
    ("wait_seconds", "time", "soon", "behind"),
    [
        # Work is waited for in any case, a timer only as long as was asked.
        (0.0, "10m", "running", "waiting"),
        (60.0, "10m", "running", "waiting"),
        (60.0, "50ms", "completed", "completed"),
    ],
)
def test_a_run_is_left_when_only_a_person_or_a_later_timer_can_move_it(
    live: Live, wait_seconds: float, time: str, soon: str, behind: str
):
    ran = live.run(ASKING.replace("TIME", time), wait_seconds=wait_seconds)

    assert (ran.status, ran.exit_code) == ("running", 4)
    assert {name: step["status"] for name, step in ran.steps.items()} == {
        "ask": "running",
        "work": "completed",
        "soon": soon,
        "behind": behind,
        "late": "backing_off",
    }


def test_without_a_person_every_timer_is_waited_for(live: Live):
    ran = live.run("name: patient\nsteps: [{step: soon, wait: 50ms}, {step: behind, needs: [soon], shell: 'true'}]")

    assert (ran.status, ran.exit_code) == ("completed", 0)


# -- a wait is nobody's sleep ------------------------------------------------------------------------------------------


LATER = """
name: later
inputs: {until: string}
steps:
  - {step: for, wait: 1h}
  - {step: until, wait: {until: "${inputs.until}"}}
  - {step: gate, approve: go on?, next: end}
"""


def test_a_wait_survives_the_process_that_drove_it_and_does_not_begin_anew(live: Live):
    path = live.write("later.yaml", LATER)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with live.process("run", path, "-i", f"until={until}", "--wait", "2h") as first:
        wait_until(lambda: _begun(live) >= 3, "they never waited")
        first.kill()
        first.wait()
    before = live.look(1)

    ran = live.resume(1)

    assert (ran.status, ran.exit_code) == ("running", 4)
    assert [fact.due for fact in ran.facts(e.AttemptStarted)] == [fact.due for fact in before.facts(e.AttemptStarted)]
    assert ran.facts(e.AttemptStarted, place="until")[0].due == datetime.fromisoformat(until)
    assert (ran.steps["for"]["status"], ran.steps["until"]["status"]) == ("running", "running")


def test_a_wait_whose_process_was_killed_ends_when_it_was_due(live: Live):
    text = "name: patient\nsteps: [{step: for, wait: 2s}, {step: behind, needs: [for], shell: echo on}]"
    path = live.write("patient.yaml", text)
    with live.process("run", path) as first:
        wait_until(lambda: _begun(live) >= 1, "it never waited")
        first.kill()
        first.wait()

    ran = live.resume(1)

    (started,) = ran.facts(e.AttemptStarted, place="for")
    assert started.due is not None
    assert ran.entries(e.AttemptSucceeded, place="for")[0].at >= started.due
    assert ran.steps["behind"]["output"] == "on"


def _begun(live: Live) -> int:
    """How many attempts have begun in the first run, if there is one yet."""
    runs = [run for run in live.service.reader.store.runs() if run.run_id == 1]
    return sum(isinstance(entry.fact, e.AttemptStarted) for entry in live.service.reader.events(1)) if runs else 0


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        ("{until: '${inputs.x}'}", "wait: 'soon' is not a time such as 2030-01-31T09:00:00Z"),
        ("'${inputs.x}'", "wait: 'soon' is not a duration such as 30s"),
    ],
)
def test_a_wait_for_what_is_no_time_is_a_failure(live_file: Live, wait: str, message: str):
    ran = live_file.run(f"name: a\ninputs: {{x: string}}\nsteps: [{{step: a, wait: {wait}}}]", inputs={"x": "soon"})

    failure = ran.steps["a"]["failure"]
    assert (failure["code"], failure["message"], failure["retryable"]) == ("INPUT_INVALID", message, False)


def test_a_wait_until_what_is_over_is_over(live_file: Live):
    ran = live_file.run("name: a\nsteps: [{step: a, wait: {until: '2020-01-01T00:00:00Z'}}, {step: b, wait: '${-5}'}]")

    assert ran.status == "completed"


# -- an approval -------------------------------------------------------------------------------------------------------

GATE = """
name: gate
steps:
  - {step: gate, approve: {message: "ship ${run.workflow}?", SAID}}
  - {step: ship, needs: [gate], shell: echo shipped}
"""


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ("timeout: 50ms", "failed", "APPROVAL_EXPIRED"),
        ("timeout: 50ms, default: refuse", "failed", "APPROVAL_EXPIRED"),
        ("timeout: 50ms, default: approve", "completed", None),
    ],
)
def test_an_approval_that_nobody_gives_is_its_default(live: Live, said: str, status: str, code: str | None):
    ran = live.run(GATE.replace("SAID", said), wait_seconds=60.0)

    gate = ran.steps["gate"]
    assert (ran.status, (gate["failure"] or {}).get("code")) == (status, code)
    if code is None:
        assert gate["output"] == {"approved": True, "by": "timeout", "reason": "no answer before the timeout"}
    else:
        assert (gate["failure"]["message"], gate["failure"]["retryable"]) == ("no answer before the timeout", False)


def test_an_approval_waits_for_a_person_and_goes_on_with_what_was_said(live: Live):
    waiting = live.run(GATE.replace("SAID", "timeout: 1h"))
    live.service.changes.approve(1, "gate", is_approved=True, reason="all green")

    ran = live.resume(1)

    assert (waiting.status, waiting.exit_code) == ("running", 4)
    assert waiting.steps["gate"]["waiting_for"][0]["text"] == "an approval: ship gate?"
    assert ran.steps["gate"]["output"] == {"approved": True, "by": live.service.by, "reason": "all green"}
    assert ran.steps["ship"]["output"] == "shipped"
