"""`python`: code with a `main`, or a function of a module. Its output is what it returns."""

from __future__ import annotations

import sys
from typing import Any

from ...core.classify import Outcome
from ...core.reports import TaskEnded
from ...core.tasks import Task
from ...ports import Lease
from .. import outputs
from ..ended import Ended, not_entered, report
from ..environment import folder_of, of_task
from ..folders import Folders, Logs, Sides
from ..programs import Programs
from .shell import NotFound, missing, read_reports, write

_WELL = Outcome()


def interpreter_of(task: Task, programs: Programs) -> str:
    """The program that runs it: ours, unless the workflow names another."""
    named = task.params.get("interpreter")
    if named is None:
        return sys.executable
    found = programs.interpreter(named, {})
    if found is None:
        raise NotFound(named)
    return found


def message(lease: Lease, sides: Sides, folders: Folders) -> dict[str, Any]:
    """What the child is told. InputInvalid where a value does not fit."""
    task = lease.task
    told: dict[str, Any] = {
        "step": task.step,
        "args": task.params.get("args", {}),
        "env": of_task(lease, sides, folders.outputs(task.run_id)),
        "cwd": folder_of(task),
        "home": task.home or "/",
    }
    told.update((name, task.params[name]) for name in ("code", "call") if name in task.params)
    if task.context:
        write(sides.context, task.context)
    return told


def read_answer(lease: Lease, logs: Logs, sides: Sides, answer: dict[str, Any], ended: Ended) -> TaskEnded:
    """What became of a step whose child lives."""
    task = lease.task
    if "folder" in answer:
        return not_entered(task, folder_of(task), answer["folder"])
    return report(task, _outcome(task, logs, sides, answer), answer["output"], ended)


def _outcome(task: Task, logs: Logs, sides: Sides, answer: dict[str, Any]) -> Outcome:
    if "reported" in answer:
        return Outcome(reported=(answer["reported"],), trace=answer["trace"])
    if "exception" in answer:
        return Outcome(code="EXCEPTION", exit_code=None, message=answer["exception"], trace=answer["trace"])
    if answer.get("exit"):
        return Outcome(exit_code=answer["exit"], stderr_tail=outputs.tail(logs.err) if answer["err"] else "")
    reports, report_error = read_reports(sides)
    invalid = answer.get("invalid", "")
    gone = missing(task) if task.files else ()
    if not (reports or report_error or invalid or gone):
        return _WELL
    return Outcome(reported=reports, report_error=report_error, missing_outputs=gone, output_error=invalid)
