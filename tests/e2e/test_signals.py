"""Ctrl-C, SIGTERM and kill -9, sent to `mulligan run` in the middle of a step."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.service.home import DATABASE
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.worker.supervisor.processes import descendants, snapshot
from proof.stage import Stage, answered, heard, wait_until

# The first time it takes for ever; when it is asked to end it says so.
PATIENT = """
name: patient
steps:
  - {step: before, shell: 'sh $ACT before'}
  - step: long
    needs: [before]
    retry: 0
    shell: |
      trap 'touch interrupted' INT
      trap 'touch asked; exit 3' TERM
      sh $ACT long
      test -e asked || { sleep 1000 & wait; }
      echo done
"""
# It does not hear when it is asked to end.
DEAF = """
name: deaf
steps:
  - step: long
    shell: |
      trap '' TERM
      sh $ACT long
      test -e again || while :; do sleep 1; done
"""
# The first time it leaves processes in sessions of their own, and waits.
HIDING = """
name: hiding
steps:
  - {step: before, shell: 'sh $ACT before'}
  - step: long
    needs: [before]
    shell: |
      if test -e again; then sh $ACT long; exit; fi
      setsid sh -c 'sleep 1000 & sleep 1000' &
      (setsid setsid sh -c 'trap "" TERM HUP; sleep 1000; sleep 1000' &)
      sh $ACT long 1000
"""

# A worker that never looks at its signals again once it was interrupted.
HANGING = """
import sys
from mulligan.engine.observers import NullObserver
from mulligan.service.driving.driver import machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.service import open_service

class Hanging(NullObserver):
    def trouble(self, text):
        if "press Ctrl-C again" in text:
            print("it hangs", file=sys.stderr, flush=True)
            while True:
                pass

with open_service() as service, open_driver(service.reader, machine(1), Hanging(), serves=True) as driver:
    driver.kill_seconds = 0.05
    driver.serve()
"""


def begun(stage: Stage, text: str) -> subprocess.Popen[str]:
    """`mulligan run`, in a process group of its own as a shell would start it, with its long step under way."""
    process = stage.start("run", stage.workflow(text), "--json", start_new_session=True)
    wait_until(lambda: stage.has_begun("long"), lambda: f"it did not begin: {process.poll()}")
    return process


def working(stage: Stage, *words: str) -> subprocess.Popen[str]:
    """A worker with its long step under way, which does not hear that it should end."""
    with stage.service() as service:
        service.changes.create(prepare(load_text(DEAF), {}, stage.folder))
    process = stage.start_program(*words, start_new_session=True)
    wait_until(lambda: stage.has_begun("long"), lambda: f"it did not begin: {process.poll()}")
    return process


def facts(stage: Stage, kind: type[e.Fact]) -> list[e.Fact]:
    with stage.service() as service:
        (run,) = service.reader.runs()
        return [entry.fact for entry in service.reader.events(run.run_id) if isinstance(entry.fact, kind)]


def expect_resumed(stage: Stage) -> None:
    """It goes on where it stopped, comes to its end, and what was done before is not done again."""
    (stage.folder / "again").touch()
    code, shown, said = answered(stage.start("resume", "--json"))

    assert code == 0, said
    assert (shown["status"], shown["failures"]) == ("completed", [])
    assert [line.name for line in stage.lines() if line.verb == "start"].count("before") <= 1
    with stage.service() as service:
        stage.expect_promises(service, shown["run_id"])
    stage.expect_no_overlap()
    stage.expect_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_asks_its_steps_to_end_and_can_be_resumed_without_loss(
    stage: Stage, number: signal.Signals
) -> None:
    process = begun(stage, PATIENT)

    # To the whole group, as a terminal does it.
    os.killpg(process.pid, number)
    code, shown, said = answered(process)

    assert code == 130, said
    assert (shown["status"], shown["failures"]) == ("running", [])
    assert (stage.folder / "asked").exists() and not (stage.folder / "interrupted").exists()
    assert facts(stage, e.AttemptInterrupted) == [e.AttemptInterrupted("long", 1)]
    stage.expect_nothing_left()
    expect_resumed(stage)
    assert facts(stage, e.AttemptFailed) == facts(stage, e.RetryScheduled) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_does_not_want_to_end(file_stage: Stage, number: signal.Signals) -> None:
    process = begun(file_stage, DEAF)

    process.send_signal(number)
    said_first = heard(process, "press Ctrl-C again to kill them")
    process.send_signal(number)
    code, shown, said = answered(process)

    assert code == 130, said_first + said
    assert shown["status"] == "running"
    assert facts(file_stage, e.AttemptInterrupted) == [e.AttemptInterrupted("long", 1)]
    file_stage.expect_nothing_left()
    expect_resumed(file_stage)


def test_a_second_signal_ends_a_worker_and_kills_what_it_runs(file_stage: Stage) -> None:
    process = working(file_stage, "-m", "mulligan", "worker")

    process.send_signal(signal.SIGTERM)
    said_first = heard(process, "press Ctrl-C again to kill them")
    process.send_signal(signal.SIGTERM)
    code, _, said = answered(process)

    assert code == 0, said_first + said
    assert said.endswith("has ended\n")
    assert facts(file_stage, e.AttemptInterrupted) == [e.AttemptInterrupted("long", 1)]
    file_stage.expect_nothing_left()
    expect_resumed(file_stage)


def test_a_second_signal_ends_a_worker_whose_loop_never_comes_to_look_and_the_run_is_resumed(file_stage: Stage) -> None:
    (file_stage.folder / "hanging.py").write_text(HANGING)
    process = working(file_stage, "hanging.py")

    process.send_signal(signal.SIGTERM)
    said_first = heard(process, "it hangs")
    process.send_signal(signal.SIGTERM)
    code, _, said = answered(process)

    # The kernel ends it, and its supervisor ends what it ran.
    assert code == -signal.SIGALRM, said_first + said
    file_stage.expect_nothing_left()
    expect_resumed(file_stage)


def test_nothing_outlives_a_process_that_was_killed_and_the_run_is_resumed(stage: Stage) -> None:
    process = begun(stage, HIDING)

    process.kill()
    process.communicate()

    stage.expect_nothing_left()
    expect_resumed(stage)
    assert facts(stage, e.AttemptLost) == [e.AttemptLost("long", 1, worker_of(stage))]


def test_what_was_left_by_a_process_and_its_supervisor_ends_before_the_step_runs_again(stage: Stage) -> None:
    process = begun(stage, HIDING)
    supervisor = supervisor_of(process)

    process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    process.kill()
    process.communicate()
    left = stage.leftovers()

    assert len(left) >= 4
    expect_resumed(stage)


def test_a_run_is_resumed_also_while_its_supervisor_still_ends_what_it_ran(file_stage: Stage) -> None:
    process = begun(file_stage, HIDING)
    supervisor = supervisor_of(process)
    (file_stage.folder / "again").touch()

    os.kill(supervisor, signal.SIGSTOP)
    process.kill()
    process.wait()
    resumed = file_stage.start("resume", "--json")
    wait_until(lambda: has_open(resumed.pid, file_stage.home.folder / DATABASE), "it does not look")
    os.kill(supervisor, signal.SIGCONT)
    code, shown, said = answered(resumed)

    assert code == 0, said
    assert shown["status"] == "completed"
    process.communicate()


def supervisor_of(process: subprocess.Popen[str]) -> int:
    """The only child of its process."""
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


def has_open(pid: int, path: Path) -> bool:
    try:
        return any(os.readlink(link) == str(path) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def worker_of(stage: Stage) -> str:
    """Who began the long step first."""
    started = facts(stage, e.AttemptStarted)
    return next(fact.worker for fact in started if fact.place == "long")  # type: ignore[attr-defined]


# Eight steps at once: half of them die of SIGTERM, the others exit with a code of their own.
EIGHT = """
name: eight
max_parallel: 8
steps:
  - step: "wait_{n}"
    matrix: {n: 1..4}
    retry: 0
    resources: {cpus: 0.1}
    shell: sh $ACT long; test -e again || sleep 1000
  - step: "trap_{n}"
    matrix: {n: 1..4}
    retry: 0
    resources: {cpus: 0.1}
    shell: |
      trap 'exit 3' TERM
      sh $ACT long
      until test -e again; do sleep 1000 & wait $!; done
"""


def test_a_signal_to_every_process_of_a_job_interrupts_all_steps_and_fails_none(file_stage: Stage) -> None:
    """As a scheduler does that knows the processes of a job and no control group: the steps first, then the worker."""
    stage = file_stage
    process = stage.start("run", stage.workflow(EIGHT), "--json", start_new_session=True)
    wait_until(
        lambda: [line.name for line in stage.lines() if line.verb == "start"].count("long") == 8,
        lambda: f"they did not begin: {process.poll()}",
    )

    # The worker looks at nothing until everybody has the signal: a step that exits with a code of its own, long before
    # its worker is signalled, has failed.
    os.kill(process.pid, signal.SIGSTOP)
    for one in reversed(descendants(snapshot(), [process.pid])):
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    code, shown, said = answered(process)

    assert (code, shown["failures"]) == (130, []), said
    assert len(facts(stage, e.AttemptInterrupted)) == 8
    assert facts(stage, e.AttemptFailed) == facts(stage, e.RetryScheduled) == []
    stage.expect_nothing_left()
