"""Three steps, of which the second can be held up: what it has done by then is not known to the store yet."""

from __future__ import annotations

import subprocess

from proof.stage import Stage, answered, wait_until

# The second waits for somebody to say "go".
THREE = """
name: three
steps:
  - {step: one, shell: 'sh $ACT one'}
  - {step: two, needs: [one], shell: 'sh $ACT two; until test -e go; do sleep 0.01; done'}
  - {step: three, needs: [two], shell: 'sh $ACT three'}
outputs: {two: '${steps.two.status}'}
"""


def begun(stage: Stage) -> subprocess.Popen[str]:
    """`mulligan run`, with the second step under way."""
    process = stage.start("run", stage.workflow(THREE), "--json")
    wait_until(lambda: stage.has_begun("two"), lambda: f"it did not begin: {process.poll()}")
    return process


def expect_done_once(stage: Stage, process: subprocess.Popen[str], said_before: str = "") -> None:
    """It comes to its end as if nothing had happened, with each step done once."""
    code, shown, said = answered(process)

    assert code == 0, said_before + said
    assert (shown["status"], shown["outputs"]) == ("completed", {"two": "completed"})
    assert [line.name for line in stage.lines() if line.verb == "start"] == ["one", "two", "three"]
    with stage.service() as service:
        stage.expect_promises(service, shown["run_id"])
    stage.expect_nothing_left()
