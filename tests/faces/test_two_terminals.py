"""Verbs on a run that another process drives: it answers them; and on one whose process was killed: we take over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from tests.support.commands import mulligan, process, steady, workflow

pytestmark = pytest.mark.usefixtures("folder")

# The first step says that it runs, and then waits to be told to end.
HELD = """\
name: held
steps:
  - step: hold
    shell: |
      echo holding
      echo up > up
      read -r word < down
      echo released
    on_failure: {shell: echo cleaned >> trace, strategy: cleanup}
  - {step: after, needs: [hold], shell: echo after >> trace}
end: {shell: echo over >> trace}
"""
ASKING = """\
name: asking
steps:
  - {step: gate, approve: {message: 'deploy?', timeout: 5m}}
  - {step: go, needs: [gate], shell: echo gone}
"""


@contextmanager
def driven(text: str, *words: str) -> Iterator[Popen[bytes]]:
    """A process that drives run 1, ended with the test."""
    child = process("run", workflow(text), *words)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@contextmanager
def holding(end: str = "") -> Iterator[Popen[bytes]]:
    """A process that drives run 1, whose first step runs and waits for `down`; `end` is what its end does first."""
    os.mkfifo("up")
    os.mkfifo("down")
    with driven(HELD.replace("echo over", f"{end} echo over")) as child:
        # Opening waits for the step to open its side.
        assert Path("up").read_text() == "up\n"
        yield child


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def trace() -> list[str]:
    return Path("trace").read_text().splitlines()


def test_a_run_is_cancelled_from_another_terminal_and_its_own_process_ends_it():
    os.mkfifo("told")
    with holding(end="read -r word < told;") as child:
        said = mulligan("cancel", 1, "--reason", "wrong branch")
        Path("told").write_text("you may\n")
        child.communicate(timeout=60)

    assert said.plain == (0, "", "run 1 is stopping: process N on HOST drives it\n")
    assert child.returncode == 3
    assert trace() == ["cleaned", "over"]


def test_a_run_whose_process_was_killed_is_cancelled_by_us_cleanup_and_end_included():
    with holding() as child:
        child.kill()
        child.wait(timeout=60)

        said = mulligan("cancel", 1)

    assert said.code == 0
    assert said.err.startswith("run 1 is stopping and nothing is running it: its cleanup and its end run here\n")
    assert mulligan("show", 1, "--json").json["status"] == "cancelled"
    assert trace()[-1] == "over"


def test_a_run_is_paused_from_another_terminal_and_its_process_ends_when_what_runs_has():
    with holding() as child:
        said = mulligan("pause", 1)
        Path("down").write_text("go\n")
        child.communicate(timeout=60)

    assert said == (0, "", "run 1 is paused; 1 command still runs and may end; to continue it: mulligan resume 1\n")
    assert child.returncode == 4
    assert mulligan("show", 1, "--json").json["steps"]["hold"]["status"] == "completed"
    assert not Path("trace").exists()


def test_the_process_of_a_paused_run_does_not_wait_for_timers():
    waiting = HELD.replace("end:", "  - {step: later, wait: 5m}\nend:")
    os.mkfifo("up")
    os.mkfifo("down")
    with driven(waiting) as child:
        Path("up").read_text()
        mulligan("pause", 1)
        Path("down").write_text("go\n")
        child.communicate(timeout=60)

    assert child.returncode == 4
    assert mulligan("show", 1, "--json").json["steps"]["later"]["status"] == "running"


def test_the_logs_of_a_running_attempt_can_be_read_while_it_runs():
    with holding():
        # A short attempt's logs get their names when it ends, a longer one's after a moment.
        wait_for(lambda: mulligan("logs", 1, "hold").out)
        said = mulligan("logs", 1, "hold")

    assert said == (0, "holding\n", "-- run 1, 'hold', attempt 1\n")


def test_the_list_and_the_run_say_who_drives_it():
    with holding() as child:
        listed, shown = mulligan("list"), mulligan("show", 1)
        [run] = mulligan("list", "--json").json

    assert run["driver"]["pid"] == child.pid
    assert steady(listed.out).splitlines()[1] == "1  running  Ns  Ns  held  'hold' runs; driven by process N on HOST"
    assert steady(shown.err) == "driven by process N on HOST\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("retry", 1),
            "error[run.not_finished]: run 1 is running; it can be retried after it has ended\n"
            "  if nothing is running it: mulligan resume 1; to stop it: mulligan cancel 1\n",
        ),
        (
            ("classify", 1, "hold", "retry", "--reason", "x"),
            "error[step.not_parked]: step 'hold' is running, so there is nothing to classify\n",
        ),
        (
            ("approve", 1, "hold", "--reason", "x"),
            "error[step.not_waiting]: 'hold' does not wait for an approval\n",
        ),
        (
            ("fork", 1, "--from", "after"),
            "error[refused]: run 1 is running and cannot be forked while it is driven\n"
            "  pause it first: mulligan pause 1\n",
        ),
    ],
    ids=["retry", "classify", "approve", "fork"],
)
def test_what_makes_no_sense_is_refused_by_the_process_that_drives_the_run(words: tuple[object, ...], said: str):
    with holding() as child:
        refused = mulligan(*words)
        is_alive = child.poll() is None

    assert (refused, is_alive) == ((2, "", said), True)


def test_an_approval_from_another_terminal_is_taken_by_the_process_that_waits_for_it():
    with driven(ASKING, "--wait", "10m") as child:
        wait_for(lambda: mulligan("pending", "--json").json)
        said = mulligan("approve", 1, "gate", "--reason", "all green", "--follow")
        child.communicate(timeout=60)

    # What comes next is that the other process goes on with it, or that it is done already.
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("run 1: 'gate' is approved\n")
    assert child.returncode == 0
