"""Steps that have a terminal: breakpoints, failures, and what is recorded of them."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.failure import Failure
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.step_context.debugger import Debugger
from mulligan.worker.child.warm_child import Debugging
from mulligan.worker.slots.deadlines import without_limits
from mulligan.worker.slots.resource_pool import ResourcePool

PROMPT = b"(Pdb) "


class Person:
    """Sits before a terminal."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.terminal = os.ttyname(self._theirs)
        self.seen = b""

    def answers(self, work: Work, lease: Lease, *commands: str) -> TaskEnded:
        """Type a command at each prompt; return what was reported."""
        work.start(lease)
        left, reports = list(commands), []
        while not reports:
            reports = work.executor.collect(0.02)
            if not select.select([self._ours], [], [], 0)[0]:
                continue
            self.seen += os.read(self._ours, 65536)
            if left and self.seen.endswith(PROMPT):
                os.write(self._ours, f"{left.pop(0)}\n".encode())
                self.seen += b"\n"
        assert isinstance(reports[0][1], TaskEnded)
        return reports[0][1]

    @property
    def text(self) -> str:
        return self.seen.decode().replace("\r", "")

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def person() -> Iterator[Person]:
    person = Person()
    yield person
    person.close()


@pytest.fixture
def debugged(tmp_path: Path, person: Person) -> Iterator[Work]:
    work = Work(tmp_path, debugging=Debugging(terminal=person.terminal))
    yield work
    work.close()
    assert work.remaining() == []


def failure_of(report: TaskEnded) -> Failure:
    failure, _ = classify(report.outcome)
    assert failure is not None
    return failure


def test_a_breakpoint_opens_on_the_terminal_and_the_step_goes_on(debugged: Work, person: Person) -> None:
    lease = debugged.python("def main():\n  rows = 3\n  print('loading')\n  breakpoint()\n  return rows", timeout=0.001)

    report = person.answers(debugged, lease, "rows = 40 + rows", "p rows", "c")

    assert report.output == 43
    assert "loading\n" in person.text
    assert "-> return rows" in person.text
    assert "\n43\n" in person.text
    # What the step prints is logged, the dialogue is not.
    assert debugged.log(lease).read_text() == "loading\n"


@pytest.mark.parametrize("caught", ["", "  except Exception: return 7\n"])
def test_who_quits_ends_the_attempt_whatever_the_step_makes_of_it(debugged: Work, person: Person, caught: str) -> None:
    handler = caught or "  finally: pass\n"

    report = person.answers(debugged, debugged.python(f"def main():\n  try:\n    breakpoint()\n    1\n{handler}"), "q")

    failure = failure_of(report)
    assert (failure.code, failure.retryable) == ("DEBUGGER_QUIT", False)
    assert failure.message.startswith("the debugger was quit at <step>:")
    assert "BdbQuit" not in person.text


def test_a_failure_opens_where_it_was_raised_and_is_recorded_as_it_is(debugged: Work, person: Person) -> None:
    code = "async def main():\n  found = {'a': 5}\n  return found['b']"

    report = person.answers(debugged, debugged.python(code), "p found['a'] * 2", "q")

    assert failure_of(report).message == "KeyError: 'b'"
    assert "failed with KeyError: 'b'" in person.text
    assert "\n10\n" in person.text


@pytest.mark.parametrize("end", ["raise StepError('EMPTY', 'no rows')", "raise SystemExit(3)"])
def test_what_a_step_says_on_purpose_opens_nothing(debugged: Work, person: Person, end: str) -> None:
    report = person.answers(debugged, debugged.python(f"from mulligan import StepError\ndef main():\n  {end}"))

    assert failure_of(report).code in ("EMPTY", "EXIT_NONZERO")
    assert PROMPT not in person.seen


def test_a_debugger_of_ones_own_has_the_terminal_too(debugged: Work, person: Person) -> None:
    code = "import pdb\ndef main():\n  pdb.set_trace()\n  return input('name? ')"

    work_report = person.answers(debugged, debugged.python(code), "c\nada")

    assert work_report.output == "ada"


def test_an_attempt_stops_at_the_first_line_of_its_function(tmp_path: Path, person: Person) -> None:
    work = Work(tmp_path, debugging=Debugging(terminal=person.terminal, stops=True))
    code = "def main(rows):\n  rows += 1\n  return rows"

    report = person.answers(work, work.python(code, {"rows": 1}), "rows = 5", "c")
    work.close()

    assert report.output == 6
    assert "-> rows += 1" in person.text


def test_a_step_in_python_has_no_limit_of_time_while_it_is_debugged(work: Work) -> None:
    python, shell = (lease(text, timeout=1.0) for lease, text in ((work.python, "def main(): 1"), (work.shell, "true")))

    assert without_limits(python).task.timeout is None
    assert without_limits(shell).task.timeout == 1.0


def test_a_worker_for_one_takes_one_task_whatever_it_asks_for(work: Work) -> None:
    pool = ResourcePool(4.0, 1 << 30, 0, (), is_for_one=True)
    large, small = (work.shell("true", cpus=cpus).task for cpus in (4.0, 0.1))

    assert pool.fits(large)
    assert pool.offer("here").tasks_max == 1
    pool.reserve(small)
    assert not pool.fits(small)
    assert pool.offer("here").tasks_max == 0
    pool.release(small)
    assert pool.fits(large)


def test_an_editor_connects_to_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    fake = SimpleNamespace(
        listen=lambda address: asked.append(address),
        wait_for_client=lambda: asked.append("waits"),
    )
    monkeypatch.setitem(sys.modules, "debugpy", fake)
    debugger = Debugger(port=5678, stops=True)

    def step() -> int:
        return 5

    for _ in range(2):
        debugger.begin()
        assert debugger.call(step, step) == 5
        debugger.end()

    assert asked == [("127.0.0.1", 5678), "waits"]
