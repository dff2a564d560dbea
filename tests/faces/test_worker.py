"""`mulligan worker`: it says what it does, a line each, and ends in order."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from threading import Timer

import pytest
from tests.support.commands import mulligan, process, ran
from tests.support.runner import wait_until

from mulligan.service.driving.worker_loop import gives_up

pytestmark = pytest.mark.usefixtures("folder")

FULL = Path("/dev/full")


def test_a_worker_says_that_it_is_up_and_ends_in_order_when_it_is_told_to():
    child = process("worker", "--parallel", "3", "--memory", "1GiB", "--gpus", "1", "--labels", "big,fast")
    assert child.stderr is not None
    up = child.stderr.readline().decode()

    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)

    name = re.escape(up.split()[1])
    assert re.fullmatch(
        rf"worker {name} is up: 3 at once, 1\.0GiB, 1 gpu, label 'big', label 'fast'\n"
        r"interrupted: waiting for running tasks to end \(press Ctrl-C again to kill them\)\n"
        rf"worker {name} has ended\n",
        up + err.decode(),
    )
    assert (child.returncode, out) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
def test_a_worker_whose_log_has_no_room_works_on():
    ran(ASKING)
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")

    with FULL.open("wb") as full, process("worker", stderr=full) as child:
        wait_until(lambda: child.poll() is not None or mulligan("show", 1, "--json").json["status"] == "completed")
        child.send_signal(signal.SIGTERM)

    assert child.returncode == 0
    assert mulligan("show", 1, "--json").json["status"] == "completed"


def test_more_gpus_than_the_worker_may_see_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")

    said = mulligan("worker", "--gpus", "3")

    assert (said.code, said.err) == (
        2,
        "error[usage]: --gpus says 3, and CUDA_VISIBLE_DEVICES names 2\n  leave one of them out\n",
    )


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        ("soon", "MULLIGAN_LEASE: 'soon' is not a duration\n  write it like 30s or 1m\n"),
        # A heartbeat six times as often would cost more than it gives.
        ("500ms", "MULLIGAN_LEASE: '500ms' is too short\n  at least 1s\n"),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, lease: str, said: str):
    monkeypatch.setenv("MULLIGAN_LEASE", lease)

    answer = mulligan("worker")

    assert (answer.code, answer.err) == (2, f"error[input.invalid]: {said}")


ASKING = """\
name: asking
steps:
  - {step: gate, approve: {message: 'go?'}}
  - {step: then, needs: [gate], shell: 'true'}
"""


def test_a_worker_takes_up_a_run_that_nobody_drives():
    ran(ASKING)
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")
    child = process("worker")
    assert child.stderr is not None

    lines: list[str] = []
    # A worker that does nothing is ended, and its silence is what the test shows.
    impatience = Timer(60, child.kill)
    impatience.start()
    for line in child.stderr:
        lines.append(line.decode())
        if "the run" in lines[-1]:
            child.send_signal(signal.SIGTERM)
    impatience.cancel()

    told = [re.sub(r"^\d\d:\d\d:\d\d | on \S+$", "", line.rstrip()) for line in lines[1:-2]]
    assert child.communicate()[0] == b"" and child.returncode == 0
    assert told == [
        "run 1 then: attempt 1 started",
        "run 1 then: completed",
        "run 1 end: the run completed (2 steps)",
    ]


REFUSED = {
    ("--parallel", "0"): "error[usage]: --parallel must be at least 1, not 0\n",
    ("--memory", "lots"): "error[input.invalid]: 'lots' is not a size\n  write it like 512MiB or 4GB\n",
    ("--labels", "a,,b"): "error[usage]: 'a,,b' contains an empty label\n  write them like --labels a,b\n",
}


@pytest.mark.parametrize(("words", "told"), REFUSED.items(), ids=[" ".join(words) for words in REFUSED])
def test_a_worker_that_makes_no_sense_is_refused(words: tuple[str, ...], told: str):
    assert tuple(mulligan("worker", *words)) == (2, "", told)


# -- workers that end by themselves ----------------------------------------------------------------------------------

TWO = """\
name: two
steps:
  - {step: gate, approve: Go?}
  - {step: a, needs: [gate], shell: 'true'}
  - {step: b, needs: [a], shell: 'true'}
"""


def approved() -> None:
    """A run that nobody drives, with a step that is ready."""
    ran(TWO)
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")


def test_a_worker_ends_after_so_many_tasks():
    approved()

    said = mulligan("worker", "--tasks", 1)

    assert said.code == 0
    assert said.err.endswith(" has ended: it has run as many tasks as it may\n")
    steps = mulligan("show", 1, "--json").json["steps"]
    assert (steps["a"]["status"], steps["b"]["status"]) == ("completed", "ready")


def test_a_worker_that_is_asked_to_finish_ends_after_the_tasks_that_it_has():
    # The first step asks the worker, which runs in this process.
    ran(TWO.replace("shell: 'true'", f"shell: 'kill -USR1 {os.getpid()}'", 1))
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")

    said = mulligan("worker", "--idle-exit", "30s")

    assert said.err.endswith(" has ended: it was asked to finish\n")
    steps = mulligan("show", 1, "--json").json["steps"]
    assert (steps["a"]["status"], steps["b"]["status"]) == ("completed", "ready")


@pytest.mark.parametrize(
    ("idle", "waited", "is_over"), [(None, 1e9, False), (90.0, 89.0, False), (90.0, 91.0, True), (5.0, 30.0, False)]
)
def test_only_a_worker_with_an_idle_end_gives_up_waiting_for_its_store(
    idle: float | None, waited: float, is_over: bool
):
    assert gives_up(idle, waited) is is_over


def test_a_worker_that_is_idle_ends_when_its_work_is_done():
    approved()

    said = mulligan("worker", "--idle-exit", "200ms")

    assert said.code == 0
    assert said.err.endswith(" has ended: it had nothing to run for 0.2s\n")
    assert mulligan("show", 1, "--json").json["status"] == "completed"


def test_a_worker_ends_in_time_and_takes_no_task_that_may_last_longer():
    ran(TWO.replace("shell: 'true'", "timeout: 1h, shell: 'true'"))
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")

    # Ten seconds of it are for tasks that have to be stopped.
    said = mulligan("worker", "--until", "10500ms")

    assert said.code == 0
    assert said.err.endswith(" has ended: its time is over\n")
    assert mulligan("show", 1, "--json").json["steps"]["a"]["status"] == "ready"


@pytest.mark.parametrize(
    "words",
    [("--tasks", "0"), ("--until", "soon"), ("--until", "2020-01-01T00:00"), ("--idle-exit", "x"), ("--nodes", "1")],
)
def test_an_end_that_makes_no_sense_is_refused(words: tuple[str, ...]):
    assert mulligan("worker", *words).code == 2
