"""`python`: code with a `main`, or a function of a module. Its output is what it returns."""

from __future__ import annotations

import sys
from typing import Any

from ...core.classify import Outcome
from ...core.reports import TaskEnded
from ...ports import Lease
from .. import outputs
from ..ended import Ended, not_entered, report
from ..environment import folder_of, of_task
from ..folders import Attempt, Folders
from ..programs import find
from .shell import NotFound, missing, write

_WELL = Outcome()


def interpreter_of(lease: Lease, path: str) -> str:
    """The program that runs it: ours, unless the workflow names another."""
    named = lease.task.params.get("interpreter")
    if named is None:
        return sys.executable
    found = find(named, path)
    if found is None:
        raise NotFound(named)
    return found


def message(lease: Lease, files: Attempt, folders: Folders) -> dict[str, Any]:
    """What the child is told. InputInvalid where a value does not fit."""
    task = lease.task
    told: dict[str, Any] = {
        "step": task.step,
        "args": task.params.get("args", {}),
        "env": of_task(lease, files, folders),
        "cwd": folder_of(task),
        "home": task.home or "/",
    }
    told.update((name, task.params[name]) for name in ("code", "call") if name in task.params)
    if task.context:
        write(files.context(lease.token), task.context)
    return told


def read_answer(lease: Lease, files: Attempt, answer: dict[str, Any], ended: Ended) -> TaskEnded:
    """What became of a step whose child lives."""
    task = lease.task
    if task.context:
        outputs.remove(files.context(lease.token))
    if "folder" in answer:
        return not_entered(task, folder_of(task), answer["folder"])
    outcome = _outcome(lease, files, answer)
    if outcome is not _WELL:
        return report(task, outcome, None, ended)
    try:
        outputs.refuse_unkeepable(answer["output"], "the result")
    except outputs.NotUsable as problem:
        return report(task, Outcome(output_error=str(problem)), None, ended)
    return report(task, _WELL, answer["output"], ended)


def _outcome(lease: Lease, files: Attempt, answer: dict[str, Any]) -> Outcome:
    if "reported" in answer:
        return Outcome(reported=(answer["reported"],), trace=answer["trace"])
    if "exception" in answer:
        return Outcome(code="EXCEPTION", exit_code=None, message=answer["exception"], trace=answer["trace"])
    if "invalid" in answer:
        return Outcome(output_error=answer["invalid"])
    if answer.get("exit"):
        return Outcome(exit_code=answer["exit"], stderr_tail=outputs.tail(files.err) if answer["err"] else "")
    gone = missing(lease.task) if lease.task.files else ()
    return Outcome(missing_outputs=gone) if gone else _WELL
