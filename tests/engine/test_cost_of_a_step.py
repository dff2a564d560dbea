"""What an ordinary step costs the process that drives its run: calls of our Python functions, counted, not timed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.support.work import Work

import mulligan
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.step_plan import plan_of
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.errors import LanguageError
from mulligan.formats import load
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import NewRun, WorkerRecord
from mulligan.store.clock import PROCESS_CLOCK, ProcessClock
from mulligan.store.sqlite.sqlite import SqliteStore

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
OURS = str(Path(mulligan.__file__).parent)
# From the end of a task to the start of the next one: the loop, the turn, the commit, the worker.
CALLS_MAX = 200
# What a Python step of a chain looks like in other files: they may cost a little more, but not what they once did.
FORMS = {
    "nothing": ('python: "def main(): return None"', CALLS_MAX),
    "an output": ("python: \"def main(): return {'rows': 3}\"", CALLS_MAX + 10),
    "a timeout and retries": ('python: "def main(): return None", timeout: 60s, retry: 2', CALLS_MAX + 10),
    "arguments": ("python: \"def main(number): return None\", args: {number: '${1 + 1}'}", CALLS_MAX + 30),
}


def still_clock() -> ProcessClock:
    """For the loop no time passes: what it asks now and then is not asked more often on a busy machine."""
    clock = ProcessClock()
    clock.monotonic = lambda: 1000.0
    return clock


def chain(form: str, count: int) -> str:
    steps = "".join(f"  - {{step: s{number}, {form}}}\n" for number in range(count))
    return f"name: chain\norder: sequential\nsteps:\n{steps}"


def calls_of_steps(folder: Path, form: str, count: int) -> list[Counter[str]]:
    """The calls of each round of the loop that has taken in the end of one step and started the next one."""
    store = SqliteStore(f"/{folder.name}-{os.getpid()}", clock=PROCESS_CLOCK, vfs="memdb")
    work = Work(folder, cpus=1, clock=PROCESS_CLOCK)
    store.register(WorkerRecord(work.name, "here", os.getpid()))
    engine = Engine(store, still_clock(), Cel({}), work.name, work.executor)
    workflow = load_text(chain(form, count))
    data = encode(workflow)
    request = r.RunRequested(PROCESS_CLOCK.now(), 0, {}, version(data), cwd=str(work.folder))
    turns = store.create([new := NewRun(data, request.version, workflow.name, request)], work.name)
    engine.begin(turns, [new])
    found, rounds = Counter[str](), list[Counter[str]]()

    def count_call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found[f"{frame.f_code.co_filename.removeprefix(OURS)} {frame.f_code.co_name}"] += 1

    try:
        while engine.drivers:
            found.clear()
            sys.setprofile(count_call)
            has_written = engine.tick(1.0)
            sys.setprofile(None)
            if has_written:
                rounds.append(found.copy())
        assert store.run(turns[0].run_id).status == "completed"
    finally:
        sys.setprofile(None)
        work.close()
        store.close()
    # Without the start of the run, its first step, for which a child starts, and its last one.
    return rounds[2:-1]


@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_step_costs_so_many_calls(
    tmp_path: Path, taken_once: None, forked_children: None, form: str
) -> None:
    text, calls_max = FORMS[form]

    rounds = calls_of_steps(tmp_path, text, 15)

    # Half of them, since what is done now and then, on a slow machine more often, is no part of a step.
    usual = sorted(rounds, key=Counter.total)[len(rounds) // 2]
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
