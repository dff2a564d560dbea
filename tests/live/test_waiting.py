"""When a run waits for a person, live: nothing else can move, and no timer is due within `--wait`."""

from __future__ import annotations

import pytest

from .runner import Live

# Beside the question: work that is under way, and times that come by themselves.
ASKING = """
name: asking
steps:
  - {step: ask, approve: {message: go on?}}
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
