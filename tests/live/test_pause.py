"""Pause, live: what runs ends, nothing starts, timers run on and their effects wait for `resume`."""

from __future__ import annotations

import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.errors import Refused

HELD = """
name: held
steps:
  - {step: hold, shell: 'touch up; until test -e go; do sleep 0.01; done; CODE', retry: 1, NEXT}
  - {step: after, needs: [hold], shell: echo after >> trace}
  - {step: fix, shell: echo fix >> trace}
end: {shell: echo end >> trace}
"""


def held(code: str = "echo held >> trace", edge: str = "next: {to: fix, on: failure}") -> str:
    return HELD.replace("CODE", code).replace("NEXT", edge)


def pause_when_up(there: Terminal) -> None:
    there.wait_until((there.folder / "up").exists)
    there.service.changes.pause(there.run_id, reason="maintenance")
    (there.folder / "go").touch()


def resume(live: Live, run_id: int) -> None:
    live.service.changes.resume(run_id)


@pytest.mark.postgres
def test_what_runs_ends_and_counts_and_nothing_starts_until_the_pause_is_lifted(live: Live):
    paused = live.run(held(), meanwhile=pause_when_up)
    trace = live.lines("trace")

    resume(live, paused.run_id)
    ran = live.resume(paused.run_id)

    assert (paused.status, paused.ending, paused.exit_code) == ("paused", "waiting", 4)
    assert (paused.shown["reason"], paused.steps["hold"]["status"]) == ("maintenance", "completed")
    assert trace == ["held"]
    assert (ran.status, live.lines("trace")) == ("completed", ["held", "after", "end"])


def test_a_failure_under_a_pause_climbs_when_it_is_lifted(live: Live):
    paused = live.run(held("echo tried >> trace; exit 1"), meanwhile=pause_when_up)
    trace = live.lines("trace")

    resume(live, paused.run_id)
    ran = live.resume(paused.run_id)

    assert (paused.status, trace) == ("paused", ["tried"])
    assert live.lines("trace") == ["tried", "tried", "fix", "end"]
    assert (ran.status, ran.steps["hold"]["handled"]) == ("completed", True)


def test_a_timer_that_fires_under_a_pause_is_held_until_it_is_lifted(live: Live):
    """A delay is over while the run is paused: the retry starts with `resume`, and not before."""

    def pause(there: Terminal) -> None:
        there.wait_until((there.folder / "up").exists)
        there.wait_for(e.RetryScheduled, place="flaky")
        there.service.changes.pause(there.run_id)
        there.wait_for(e.TimerHeld, place="flaky")
        (there.folder / "go").touch()

    flaky = "  - {step: flaky, shell: 'echo flaky >> trace; test -e go', retry: {max_retries: 1, delay: 2s}}\n"
    paused = live.run(held().replace("steps:\n", "steps:\n" + flaky), meanwhile=pause)
    trace = live.lines("trace")

    resume(live, paused.run_id)
    ran = live.resume(paused.run_id)

    assert trace == ["flaky", "held"]
    assert (ran.status, ran.steps["flaky"]["attempts"]) == ("completed", 2)


def test_a_paused_run_can_be_cancelled_and_still_cleans_up(live: Live):
    paused = live.run(held(), meanwhile=pause_when_up)

    live.service.changes.cancel(paused.run_id)
    ran = live.resume(paused.run_id)

    assert (ran.status, live.lines("trace")) == ("cancelled", ["held", "end"])
    assert ran.steps["after"]["status"] == "cancelled"


def test_paused_time_does_not_count_against_the_runs_timeout(live: Live):
    paused = live.run(held().replace("name: held", "name: held\ntimeout: 1h"), meanwhile=pause_when_up)
    resume(live, paused.run_id)
    ran = live.resume(paused.run_id)

    [started], [resumed] = ran.facts(e.RunStarted), ran.entries(e.RunResumed)
    [stopped] = ran.entries(e.RunPaused)
    assert isinstance(resumed.fact, e.RunResumed)
    assert started.due is not None
    assert resumed.fact.due == started.due + (resumed.at - stopped.at)


def test_a_stopping_run_is_not_paused(live: Live):
    def act(there: Terminal) -> None:
        there.wait_until((there.folder / "up").exists)
        there.service.changes.cancel(there.run_id)
        with pytest.raises(Refused) as refused:
            there.service.changes.pause(there.run_id)
        assert refused.value.message == f"run {there.run_id} is stopping and cannot be paused"
        (there.folder / "go").touch()

    ran = live.run(held().replace("name: held", "name: held\ncancel_grace: finish"), meanwhile=act)

    assert ran.status == "cancelled"
