"""`resume --steps`, live: one step runs, then the run is paused, and a crash in between never starts a second one."""

from __future__ import annotations

from tests.support.runner import Live, wait_until

# The first attempt of 'slow' never ends: its process is killed with the one that drives the run.
DIES = """
name: dies
steps:
  - {step: slow, shell: 'touch up; test -e again || sleep 60; echo slow >> trace'}
  - {step: other, shell: echo other >> trace}
  - {step: after, needs: [slow, other], shell: echo after >> trace}
"""


def test_step_by_step_and_a_killed_process_starts_no_second_step(live_file: Live):
    with live_file.process("run", live_file.write("flow.yaml", DIES), "--parallel", "1") as child:
        wait_until((live_file.folder / "up").exists)
        child.kill()
    live_file.write("again")
    seen = []

    live_file.service.changes.resume(1, steps=1)
    for _ in range(3):
        ran = live_file.resume(1)
        seen.append((ran.status, live_file.lines("trace")))
        if ran.status == "paused":
            live_file.service.changes.resume(1, steps=1)

    assert [status for status, _ in seen] == ["paused", "paused", "completed"]
    assert [len(trace) for _, trace in seen] == [1, 2, 3]
    assert sorted(live_file.lines("trace")) == ["after", "other", "slow"]
