"""Programs that are interrupted, killed, or run twice: the run goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mulligan
from mulligan import Workflow

SRC = Path(__file__).parent.parent.parent / "src"


def signalling(name: str) -> Workflow:
    """Its second step sends the program a signal the first time, and then waits to be stopped."""
    flow = Workflow("w").input("pid", "integer")
    flow.step("first", shell="echo one >> log")
    second = f"test -e sent || {{ touch sent; kill -{name} ${{inputs.pid}}; exec sleep 60; }}; echo two >> log"
    return flow.step("second", needs=["first"], shell=second)


def test_ctrl_c_leaves_the_run_in_order_and_says_how_to_continue_it():
    with pytest.raises(KeyboardInterrupt) as interrupted:
        mulligan.run(signalling("INT"), pid=os.getpid())

    run = mulligan.open().get(1)
    assert (run.status, run.is_driven, run.steps["first"].status) == ("running", False, "completed")
    assert interrupted.value.__notes__ == [
        "run 1 is kept in '.mulligan'; to continue it: mulligan.open().get(1).resume(), "
        "or on the command line: mulligan resume 1"
    ]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run.resume().status == "completed"
    assert Path("log").read_text() == "one\ntwo\n"


def test_the_note_names_the_home_that_was_given():
    with pytest.raises(KeyboardInterrupt) as interrupted:
        mulligan.run(signalling("INT"), pid=os.getpid(), home="runs")

    assert interrupted.value.__notes__ == [
        "run 1 is kept in 'runs'; to continue it: mulligan.open('runs').get(1).resume(), "
        "or on the command line: mulligan resume 1 --home runs"
    ]


def test_a_signal_that_the_program_handles_reaches_it_after_the_run_was_left_in_order():
    received: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append(mulligan.open().get(1).status))
    try:
        run = mulligan.run(signalling("TERM"), pid=os.getpid())
    finally:
        signal.signal(signal.SIGTERM, before)

    assert (received, run.status, run.is_driven) == (["running"], "running", False)


def test_ctrl_c_cancels_the_task_of_a_coroutine_as_it_does_without_us():
    reached: list[str] = []

    async def program() -> None:
        run = mulligan.run(signalling("INT"), pid=os.getpid())
        reached.append(run.status)
        await asyncio.sleep(0)
        reached.append("not this")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(program())

    assert reached == ["running"]


# -- several programs ------------------------------------------------------------------------------------------------


def start_program(text: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.Popen([sys.executable, "-c", text], env=environ, stdout=subprocess.PIPE, text=True)


def test_a_program_that_was_killed_is_continued_by_another():
    Path("flow.py").write_text(
        """
import os
from mulligan import Workflow

flow = Workflow("w").input("pid", "integer")
flow.step("first", shell="echo one >> log")
second = "test -e sent || { touch sent; kill -KILL ${inputs.pid}; sleep 60; }; echo 2 >> log"
flow.step("second", needs=["first"], shell=second)
flow.step("third", needs=["second"], shell="echo three >> log")
"""
    )
    text = "import os, mulligan; from flow import flow; mulligan.run(flow, pid=os.getpid())"
    with start_program(text) as program:
        program.communicate()
    assert program.returncode == -signal.SIGKILL

    with mulligan.open() as home:
        run = home.get("latest").resume()

    assert (run.status, Path("log").read_text()) == ("completed", "one\n2\nthree\n")
    assert [attempt.status for attempt in run.steps["second"].attempts] == ["lost", "succeeded"]


def test_two_programs_with_the_same_key_get_the_same_run():
    text = """
import mulligan
flow = mulligan.Workflow("w").step("s", shell="echo once >> log").outputs(said="${steps.s.status}")
run = mulligan.run(flow, key="today")
print(run.id, run.status)
"""
    programs = [start_program(text) for _ in range(2)]
    said = [program.communicate()[0] for program in programs]

    assert said == ["1 completed\n"] * 2
    assert Path("log").read_text() == "once\n"
