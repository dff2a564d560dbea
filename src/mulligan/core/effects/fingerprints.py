"""What the result of a step is found by in later runs, and what of it they take over.

A *fingerprint* stands for all that goes into a step: what it is to do, the values that it gets, the contents of the
files that it reads. A step that completed is found by its fingerprint in the tables of its run. Secrets take part by
their names alone: nothing of their values is in a fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.effects.reuse import contents_of, digest_of
from mulligan.core.effects.snapshot import read_place
from mulligan.core.effects.tasks import Task
from mulligan.core.model.file_records import FileRecord
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError

# Part of every fingerprint: another number where it is made in another way, and no old result is found any more.
_VERSION = 1
FINGERPRINT_CHARS = 32


class Result(msgspec.Struct, frozen=True):
    """What a step of an earlier run came to. `run_id` is the run that did the work."""

    run_id: int
    output: Any
    files: tuple[FileRecord, ...]


def fingerprint(task: Task, contents: Mapping[str, str]) -> str:
    """What the result of the task may be found by, given what is in the files that it reads: a hash by name."""
    about = task.reuse
    assert about is not None, f"'{task.place}' is not to be found again"
    values = [task.params, task.env, task.cwd, task.late, task.bound, about.key]
    values += [(one.step, one.output) for one in task.told.heard] if task.told else []
    known_by = (_VERSION, task.workflow, task.step, task.home, task.kind, about.definition, about.after, contents)
    return digest_of((*known_by, contents_of(values)))[:FINGERPRINT_CHARS]


def result_of(run_id: int, status: str, key: str, data: bytes, task: Task) -> Result | None:
    """The result in a row of the tables; None where it may not be taken over.

    That of a step with an `undo` counts when its run has ended: until then it may be taken back. A row that cannot be
    read is the trouble of its own run, and not of this one.
    """
    about = task.reuse
    if run_id == task.run_id or (about is not None and about.has_undo and status not in RUN_ENDED):
        return None
    try:
        place = read_place(key, data)
    except CodecError:
        return None
    return Result(place.result_run_id or run_id, place.output, place.files)
