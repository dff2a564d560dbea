"""`mulligan demo`: a workflow that breaks on every rung of the ladder, live, on the real engine."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.console_style import Paper
from mulligan.cli.display import Display
from mulligan.cli.options import service_at
from mulligan.cli.parameters import Option
from mulligan.service import Outcome, Service, machine

# A demo waits for its own timers, whatever their length.
WAIT_SECONDS = 60.0
# From the first that is asked; what went wrong is classified before.
_RUNGS = ("retry", "handle", "triage", "route", "converge")
_COUNTED = {
    "total_steps": "steps",
    "recovered_steps_count": "recovered",
    "handled_steps_count": "handled",
    "failed_steps_count": "open",
}


def main(
    keep: Annotated[bool, Option("--keep", help="Leave the run where it is, to look around in it.")] = False,
) -> int:
    """Watch a run fail on every rung of the ladder, and recover.

    It is a durable run like any other, on SQLite, in a folder of its own that is removed in the end.
    """
    paper = Paper(sys.stdout, os.environ)
    folder = tempfile.mkdtemp(prefix="mulligan-demo-")
    try:
        found = _ran(paper, Path(folder))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        paper.say(f"\nIt is still there:\n  mulligan explain {found.run_id} --home {folder}/home\n  rm -r {folder}")
    else:
        paper.say("\nNothing of it is left. To look around in one: mulligan demo --keep")
    return found.exit_code


def _ran(paper: Paper, folder: Path) -> Outcome:
    workflow = Service.load_workflow(str(files("mulligan.cli") / "demo.yaml"))
    paper.say(f"{paper.tinted(workflow.name, 'bold')}: {workflow.description}\n")
    # Its steps write their files beside the home, not into the folder of whoever looks on.
    work = folder / "work"
    work.mkdir()
    with service_at(str(folder / "home")) as service:
        found = _driven(service, service.prepare(workflow, {}, work), Display(paper))
        *_, last = service.event_lines(found.run_id)
        paper.say("\n".join(_summary(paper, found, json.loads(last)["fact"])))
    return found


def _driven(service: Service, prepared: Any, display: Display) -> Outcome:
    begun_at = time.monotonic()
    try:
        with service.driver(machine(), display) as driver:
            [run_id] = service.start(prepared, driver)
            ending = driver.drive(run_id, WAIT_SECONDS)
            return service.outcome(driver, run_id, ending, display.following, time.monotonic() - begun_at)
    finally:
        display.close()


def _summary(paper: Paper, found: Outcome, last: dict[str, Any]) -> Iterator[str]:
    """Each failure, with the rung that dealt with it; and the numbers that the run's last event has."""
    yield f"\n{paper.tinted('What broke, and which rung of the ladder dealt with it', 'bold')}\n"
    wide = max((len(one.place) for one in found.answers), default=0)
    for one in sorted(found.answers, key=lambda one: _RUNGS.index(one.rung)):
        rung = f"{_RUNGS.index(one.rung) + 1} {one.rung:<8}"
        answer = paper.tinted(one.answer, "bad" if one.is_open else "good")
        yield f"{rung}  {one.place:<{wide}}  {paper.tinted(one.what, 'bad')}\n{'':<{wide + 14}}{answer}"
    ending = found.status if found.ending == "ended" else found.ending
    degraded = ", degraded: it needed help" if found.degraded else ""
    told = ", ".join(f"{last.get(key, 0)} {word}" for key, word in _COUNTED.items())
    yield f"\n{told}: the run {ending}{degraded}."
