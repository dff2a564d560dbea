"""`python`: code with a `main`, or a function of a module. Its output is what it returns."""

from __future__ import annotations

import sys
from typing import Any

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.worker import outputs
from mulligan.worker.children import Answer, Order
from mulligan.worker.ended import Ended, NotFound, not_entered, refused, report
from mulligan.worker.environment import folder_of, of_task
from mulligan.worker.fetching import not_had
from mulligan.worker.folders import Folders, Sides
from mulligan.worker.programs import Programs, located

_WELL = Outcome()


def interpreter_of(task: Task, programs: Programs) -> str:
    """The program that runs it: ours, unless the workflow names another."""
    named = task.params.get("interpreter")
    if named is None:
        return sys.executable
    found = programs.interpreter(located(named, task.home), {})
    if found is None:
        raise NotFound(named)
    return found


def kept_apart_by(task: Task) -> str:
    """What one workflow has imported is nothing to another."""
    return task.version


def order(lease: Lease, sides: Sides, folders: Folders) -> Order:
    """What the child is to do. InputInvalid where a value does not fit."""
    params = lease.task.params
    args = params.get("args", {})
    return ordered(lease, sides, folders, args, code=params.get("code", ""), call=params.get("call", ""))


def ordered(
    lease: Lease,
    sides: Sides,
    folders: Folders,
    args: dict[str, Any],
    *,
    code: str = "",
    call: str = "",
    is_ours: bool = False,
) -> Order:
    """An order to a child: code with a `main`, or a function, and what it is called with.

    What is ours imports nothing from where the run was called: a file `ssl.py` there would be handed its secrets.
    """
    task = lease.task
    env = of_task(lease, sides, folders.outputs(task.run_id))
    return Order(task.step, args, env, folder_of(task), "" if is_ours else task.home or "/", code, call)


def read_answer(lease: Lease, folders: Folders, sides: Sides, answer: Answer, ended: Ended) -> TaskEnded:
    """What became of a step whose child lives."""
    task = lease.task
    if answer.folder:
        return not_entered(task, folder_of(task), answer.folder)
    if answer.unreadable:
        return refused(task, not_had(answer.unreadable))
    return report(task, _outcome(task, folders, sides, answer), answer.output, ended)


def _outcome(task: Task, folders: Folders, sides: Sides, answer: Answer) -> Outcome:
    if answer.reported is not None:
        return Outcome(exit_code=None, reported=(answer.reported,), trace=answer.trace)
    if answer.exception:
        return Outcome(code="EXCEPTION", exit_code=None, message=answer.exception, trace=answer.trace)
    if answer.exit:
        err = folders.logs(task.run_id, task.place, task.attempt).err
        return Outcome(exit_code=answer.exit, stderr_tail=outputs.tail(err) if answer.err else "")
    reports, report_error = outputs.reports(sides.error)
    gone = outputs.missing(task) if task.files else ()
    if not (reports or report_error or answer.invalid or gone):
        return _WELL
    return Outcome(reported=reports, report_error=report_error, missing_outputs=gone, output_error=answer.invalid)
