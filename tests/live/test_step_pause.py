"""A single step that somebody holds, live: what is queued does not start, what runs ends, the rest goes on."""

from __future__ import annotations

from tests.support.runner import Live, Terminal, wait_until

from mulligan.service.driving.driver import Capacity
from mulligan.service.rendering.json_output import to_json

ONE_CPU = Capacity(cpus=1.0, memory=1 << 30)
# The first is at work until it is told to end; the others are queued behind it, since there is room for one.
QUEUED = """
name: queued
steps:
  - {step: first, shell: 'touch up; until test -e go; do sleep 0.01; done; echo first >> trace'}
  - {step: held, shell: echo held >> trace}
  - {step: other, shell: echo other >> trace}
  - {step: after, needs: [held], shell: echo after >> trace}
end: {shell: echo end >> trace}
"""


def hold_when_up(there: Terminal) -> None:
    there.wait_until((there.folder / "up").exists)
    there.service.changes.pause(there.run_id, step="held", reason="the warehouse is full")
    (there.folder / "go").touch()


def test_a_queued_step_does_not_start_and_the_run_waits_for_a_person_when_all_else_is_done(live: Live):
    paused = live.run(QUEUED, room=ONE_CPU, meanwhile=hold_when_up)
    trace = sorted(live.lines("trace"))
    asked = to_json(live.service.decisions.list_pending())

    live.service.changes.resume(paused.run_id, step="held")
    ran = live.resume(paused.run_id, room=ONE_CPU)

    assert (paused.status, paused.ending, paused.exit_code) == ("running", "waiting", 4)
    assert (trace, paused.steps["held"]["status"]) == (["first", "other"], "ready")
    assert [(one["step"], one["kind"], one["message"]) for one in asked] == [
        ("held", "paused", "the warehouse is full")
    ]
    assert (ran.status, live.lines("trace")[2:]) == ("completed", ["held", "after", "end"])
    assert ran.steps["held"]["attempts"] == 1 and to_json(live.service.decisions.list_pending()) == []


def test_a_step_that_is_held_and_let_go_while_it_is_queued_runs_once(live: Live):
    def hold_and_let_go(there: Terminal) -> None:
        there.wait_until((there.folder / "up").exists)
        for _ in range(3):
            there.service.changes.pause(there.run_id, step="held")
            there.service.changes.resume(there.run_id, step="held")
        (there.folder / "go").touch()

    ran = live.run(QUEUED, room=ONE_CPU, meanwhile=hold_and_let_go)

    assert (ran.status, sorted(live.lines("trace"))) == ("completed", ["after", "end", "first", "held", "other"])


DIES = """
name: dies
steps:
  - {step: slow, shell: 'touch up; test -e again || sleep 60'}
  - {step: held, needs: [slow], shell: echo held >> trace}
"""


def test_a_held_step_stays_held_when_the_process_that_drives_the_run_is_killed(live: Live):
    with live.process("run", live.write("flow.yaml", DIES)) as child:
        wait_until((live.folder / "up").exists)
        live.service.changes.pause(1, step="held")
        child.kill()
    live.write("again")

    waiting = live.resume(1)
    is_started = (live.folder / "trace").exists()
    live.service.changes.resume(1, step="held")
    ran = live.resume(1)

    assert (waiting.ending, waiting.steps["slow"]["status"], is_started) == ("waiting", "completed", False)
    assert (ran.status, live.lines("trace")) == ("completed", ["held"])


def test_a_run_with_a_held_step_can_be_cancelled(live_file: Live):
    paused = live_file.run(QUEUED, room=ONE_CPU, meanwhile=hold_when_up)

    live_file.service.changes.cancel(paused.run_id)
    ran = live_file.resume(paused.run_id)

    assert (ran.status, ran.steps["held"]["status"], ran.steps["after"]["status"]) == ("cancelled",) * 3
    assert live_file.lines("trace")[-1] == "end"
