"""`mulligan demo`: a workflow that fails on every rung of the ladder, run by the real engine."""

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

from mulligan.cli.words.options import service_at
from mulligan.cli.words.parameters import Flag
from mulligan.service.authoring.area import Workflows
from mulligan.service.driving.driver import machine
from mulligan.service.driving.outcome import Outcome
from mulligan.service.rendering.console.display import Display
from mulligan.service.rendering.console.printer import Printer
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

# Longer than any timer of the demo.
WAIT_SECONDS = 60.0
# In the order in which they are asked.
_RUNGS = ("retry", "handle", "triage", "route", "converge")
_COUNTED = {
    "total_steps": "steps",
    "recovered_steps_count": "recovered",
    "handled_steps_count": "handled",
    "failed_steps_count": "open",
}


def main(
    keep: Annotated[bool, Flag("Keep the run, to look around in it.")] = False,
) -> int:
    """Watch a run fail on every rung of the ladder, and recover.

    It is a durable run like any other, on SQLite, in a temporary folder that is removed in the end.
    """
    printer = Printer(sys.stdout, os.environ)
    folder = tempfile.mkdtemp(prefix="mulligan-demo-")
    try:
        found = _run(printer, Path(folder))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        printer.say(f"\nThe run was kept:\n  mulligan explain {found.run_id} --home {folder}/home\n  rm -r {folder}")
    else:
        printer.say("\nThe run was removed. To keep one and look around in it: mulligan demo --keep")
    return found.exit_code


def _run(printer: Printer, folder: Path) -> Outcome:
    workflow = Workflows.load_workflow(str(files("mulligan.cli.authoring") / "demo.yaml"))
    printer.say(f"{printer.tinted(workflow.name, 'bold')}: {workflow.description}\n")
    # Its steps write their files next to the home, not into the current folder.
    work = folder / "work"
    work.mkdir()
    with service_at(str(folder / "home")) as service:
        found = _drive(service, prepare(workflow, {}, work), Display(printer))
        *_, last = service.logs.event_lines(found.run_id)
        printer.say("\n".join(_summary(printer, found, json.loads(last)["fact"])))
    return found


def _drive(service: Service, prepared: Any, display: Display) -> Outcome:
    begun_at = time.monotonic()
    try:
        with service.driving.driver(machine(), display) as driver:
            [run_id] = service.changes.create(prepared, driver)
            ending = driver.drive(run_id, WAIT_SECONDS)
            return service.driving.outcome(driver, run_id, ending, display.progress, time.monotonic() - begun_at)
    finally:
        display.close()


def _summary(printer: Printer, found: Outcome, last: dict[str, Any]) -> Iterator[str]:
    """Each failure with the rung that handled it; and the counts in the last event of the run."""
    yield f"\n{printer.tinted('What failed, and which rung of the ladder handled it', 'bold')}\n"
    wide = max((len(one.name) for one in found.failures), default=0)
    for one in sorted(found.failures, key=lambda one: _RUNGS.index(one.rung)):
        rung = f"{_RUNGS.index(one.rung) + 1} {one.rung:<8}"
        answer = printer.tinted(one.answer, "bad" if one.is_unhandled else "good")
        yield f"{rung}  {one.name:<{wide}}  {printer.tinted(one.what, 'bad')}\n{'':<{wide + 14}}{answer}"
    ending = found.status if found.ending == "ended" else found.ending
    degraded = " (degraded)" if found.degraded else ""
    counts = ", ".join(f"{last.get(key, 0)} {word}" for key, word in _COUNTED.items())
    yield f"\n{counts}: the run {ending}{degraded}."
