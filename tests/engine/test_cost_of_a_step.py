"""What an ordinary step costs the process that drives its run: calls of our Python functions, counted, not timed."""

from __future__ import annotations

import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.support.nightly import sample

import mulligan
from mulligan.core.model.actions import traits_of
from mulligan.core.model.step_plan import plan_of
from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.formats import load
from mulligan.language import load_text
from mulligan.service.driving.driver import Capacity
from mulligan.service.driving.run_progress import STEPS_ANNOUNCED_MAX
from mulligan.service.home import Home
from mulligan.service.rendering.console.display import Display
from mulligan.service.rendering.console.printer import Printer
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
OURS = str(Path(mulligan.__file__).parent)
# From the end of a task to the start of the next one.
CALLS_MAX = 190
# A run with more steps than this announces none of them.
STEPS = STEPS_ANNOUNCED_MAX + 30
# What is done after so much time, and so in most rounds of a slow machine: it is no part of a step.
NOW_AND_THEN = frozenset(
    (
        *("/engine/change_watch.py _has_changes", "/store/sqlite/sqlite.py has_changes"),
        *("/store/sqlite/sqlite_file.py version", "/store/sqlite/sqlite_file.py data_version"),
        *("/store/sqlite/sqlite_file.py fetch_all", "/store/clock.py stepped", "/store/clock.py _wall"),
        *("/engine/tasks_in_flight.py _gather", "/worker/task_reports.py _iso_second"),
    )
)
# What a Python step of a chain looks like in other files: they may cost a little more, but not what they once did.
FORMS = {
    "nothing": ('python: "def main(): return None"', CALLS_MAX),
    "an output": ("python: \"def main(): return {'rows': 3}\"", CALLS_MAX + 7),
    "a timeout and retries": ('python: "def main(): return None", timeout: 60s, retry: 2', CALLS_MAX + 12),
    "arguments": ("python: \"def main(number): return None\", args: {number: '${1 + 1}'}", CALLS_MAX + 35),
}


PROGRAM = """
from mulligan import program, step

{step}
def nothing() -> None:
    return None

@program
def calling(count: int) -> None:
    for _ in range(count):
        nothing()
"""


def chain(form: str, count: int) -> str:
    steps = "".join(f"  - {{step: s{number}, {form}}}\n" for number in range(count))
    return f"name: chain\norder: sequential\nsteps:\n{steps}"


class CountingDisplay(Display):
    """Counts the calls of each round of the loop, from one `tick` to the next: those of the display are among them."""

    def __init__(self) -> None:
        super().__init__(Printer(StringIO(), {}))
        self.rounds: list[Counter[str]] = []
        self.found = Counter[str]()
        self.has_written = False

    def committed(self, state: Any, entries: Any, is_ordinary: bool = False) -> None:
        super().committed(state, entries, is_ordinary)
        self.has_written = True

    def tick(self) -> None:
        sys.setprofile(None)
        if self.has_written:
            self.rounds.append(self.found.copy())
        self.found.clear()
        self.has_written = False
        sys.setprofile(self._count)
        super().tick()

    def close(self) -> None:
        sys.setprofile(None)
        super().close()

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            name = f"{frame.f_code.co_filename.removeprefix(OURS)} {frame.f_code.co_name}"
            self.found[name] += name not in NOW_AND_THEN


def calls_of_steps(folder: Path, form: str, count: int) -> list[Counter[str]]:
    """The calls of each round of the loop that has taken in the end of one step and started the next one.

    Everything that `mulligan run` does for it: the loop, the turn, the commit, the worker, the display.
    """
    return calls_of_run(folder, load_text(chain(form, count)), {})


def calls_of_run(folder: Path, workflow: Workflow, inputs: dict[str, Any]) -> list[Counter[str]]:
    display, service = CountingDisplay(), Service(Home(folder / ".mulligan"))
    prepared = prepare(workflow, inputs, folder)
    try:
        shown = service.driving.drive_shown(
            lambda driver: service.changes.create(prepared, driver)[0],
            display,
            capacity=Capacity(1.0, 1 << 30),
            wait_seconds=0.0,
        )
        assert shown.outcome.status == "completed"
    finally:
        sys.setprofile(None)
        service.close()
    # Without the start of the run, its first step, for which a child starts, and its last one.
    return display.rounds[3:-2]


@pytest.mark.parametrize(("step", "turns", "calls_max"), [("@step(inline=True)", 1, 170), ("@step", 2, 440)])
def test_a_call_of_a_program_costs_so_many_calls(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    taken_once: None,
    forked_children: None,
    step: str,
    turns: int,
    calls_max: int,
) -> None:
    file = tmp_path / "calling.py"
    file.write_text(PROGRAM.format(step=step))
    monkeypatch.chdir(tmp_path)

    rounds = calls_of_run(tmp_path, load(file), {"count": STEPS})

    # Of an ordinary call, the rounds in which the step has ended alternate with those in which the program waits.
    usual = sorted(rounds[-STEPS // 2 :], key=Counter.total)
    shares = [usual[len(usual) // (4 * turns) * (1 + 2 * turn)] for turn in range(turns)]
    assert len(rounds) >= turns * (STEPS - 5)
    assert sum(map(Counter.total, shares)) <= calls_max, shares


@pytest.mark.parametrize("form", sample(list(FORMS), 2))
def test_an_ordinary_step_costs_so_many_calls(
    tmp_path: Path, taken_once: None, forked_children: None, form: str
) -> None:
    text, calls_max = FORMS[form]

    rounds = calls_of_steps(tmp_path, text, STEPS)

    # The cheapest, since what is done now and then, on a busy machine in nine rounds of ten, is no part of a step.
    usual = sorted(rounds, key=Counter.total)[len(rounds) // 20]
    assert usual.total() <= calls_max, "\n".join(f"{calls:4} {name}" for name, calls in usual.most_common())


# -- how many steps take which way -------------------------------------------------------------------------------------


def ways_of_examples() -> Counter[str]:
    """The steps of all examples that run a task: agents, those that are ordinary at both ends, and the others."""
    found = Counter[str]()
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        try:
            workflow = load(path)
        except LanguageError:
            # Some are refused on purpose, some belong to a system that is not recognized by its content.
            continue
        is_open = workflow.max_parallel is None and workflow.workspace is None
        for step in workflow.steps:
            known = traits_of(step.action)
            if step.action is not None and known.runs_in != "engine" and step.map is None:
                is_ordinary = is_open and plan_of(step).is_ordinary
                found["agent" if known.is_agent else "ordinary" if is_ordinary else "other"] += 1
    return found


def test_nine_of_ten_steps_of_the_examples_that_no_agent_runs_take_the_short_way() -> None:
    found = ways_of_examples()

    assert found["ordinary"] >= 300
    assert found["ordinary"] / (found["ordinary"] + found["other"]) >= 0.9, found
