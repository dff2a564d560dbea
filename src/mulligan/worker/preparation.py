"""The files of a process that hold more than the loop may read and write: a child writes them before it is started."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.worker.children import Answer
from mulligan.worker.ended import refused
from mulligan.worker.fetching import not_had


class Preparation(msgspec.Struct, frozen=True):
    """A function of ours that writes files, and which side files these are to become. See `invalid` for its result."""

    call: str
    args: dict[str, Any]
    moves: dict[str, str]


def invalid(reason: str) -> dict[str, str]:
    """What such a function returns where a value cannot be used. Where all is well it returns nothing."""
    return {"invalid": reason}


def refusal(task: Task, answer: Answer | None) -> TaskEnded | None:
    """The end of a task whose files could not be written; None where they are."""
    if answer is None:
        return refused(task, "its input cannot be prepared: the process that was to do so has ended", "EXCEPTION")
    if answer.unreadable:
        return refused(task, not_had(answer.unreadable))
    if answer.exception:
        return refused(task, f"its files cannot be written: {answer.exception}", "EXCEPTION")
    return None if answer.output is None else refused(task, answer.output["invalid"])
