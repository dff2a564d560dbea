"""`mulligan …`, timed or counted from outside: `staged_run.py HOW OUT ARGUMENTS`, where HOW is `times` or `calls`.

Writes what it found to OUT as JSON: the seconds and calls of each stage, or the number of calls of Python functions.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mulligan.cli.main import RaisedInterrupts
from mulligan.cli.words.dispatch import exit_code
from staging.clock import StageClock, instrument, replace, seconds_per_call
from staging.stages import AROUND, CREATING, DRIVING, ENDING, FIRST_TASK, PER_STEP


def timed(run: Callable[[], Any]) -> dict[str, Any]:
    clock = StageClock(kept=frozenset(stage.name for stage in AROUND))
    clock.begin_phase(CREATING)
    instrument(clock, (*AROUND, *_of_this_store()))

    def first_task(start: Callable[..., Any]) -> Callable[..., Any]:
        def started(*args: Any) -> Any:
            if clock.phase == CREATING:
                clock.begin_phase("")
            return start(*args)

        return started

    def driving(drive: Callable[..., Any]) -> Callable[..., Any]:
        def driven(*args: Any) -> Any:
            try:
                return drive(*args)
            finally:
                clock.begin_phase(ENDING)

        return driven

    replace(FIRST_TASK, first_task)
    replace(DRIVING, driving)
    run()
    clock.begin_phase("")
    return {"wall": clock.wall, "cpu": clock.cpu, "calls": clock.calls, "overhead": seconds_per_call()}


def _of_this_store() -> Any:
    """Not the functions of the other store: its client may not be installed, and takes time to import."""
    other = "mulligan.store.sqlite.sqlite" if "MULLIGAN_STORE" in os.environ else "mulligan.store.postgres.postgres"
    return tuple(stage for stage in PER_STEP if not any(name.startswith(other) for name in stage.functions))


def counted(run: Callable[[], Any]) -> dict[str, Any]:
    profile = cProfile.Profile()
    profile.runcall(run)
    # A text in place of code: a function that is not written in Python.
    found = {"python": 0, "builtin": 0}
    for entry in profile.getstats():
        found["builtin" if isinstance(entry.code, str) else "python"] += entry.callcount
    return found


if __name__ == "__main__":
    how, out, *arguments = sys.argv[1:]
    # As the program does: loading creates no garbage.
    gc.disable()
    found = {"times": timed, "calls": counted}[how](lambda: exit_code(arguments, RaisedInterrupts))
    Path(out).write_text(json.dumps(found))
