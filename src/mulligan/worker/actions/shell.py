"""`shell`: a text for bash. Its output is what it prints, or what it writes to $MULLIGAN_OUTPUT."""

from __future__ import annotations

import os
from typing import Any

from ...core.classify import Outcome
from ...core.reports import TaskEnded
from ...core.tasks import Task
from ...language.expressions import as_text
from ...ports import Lease
from .. import outputs
from ..ended import Ended, report
from ..environment import folder_of, of_task
from ..folders import Attempt, Folders
from ..programs import find
from ..timing import seconds_left

NOT_FOUND = 127
_WELL = Outcome()


class NotFound(Exception):
    """The program that is to read the text is nowhere on the path."""


def order(lease: Lease, files: Attempt, folders: Folders, path: str) -> tuple[Any, ...]:
    """What the supervisor is to start. InputInvalid where a value does not fit; NotFound without an interpreter."""
    task = lease.task
    environment = of_task(lease, files, folders)
    interpreter = task.params.get("interpreter", "bash")
    program = find(interpreter, environment.get("PATH", path))
    if program is None:
        raise NotFound(interpreter)
    argv = (program, "-c", task.params["text"])
    stdin = _stdin(lease, files)
    if task.context:
        write(files.context(lease.token), task.context)
    return argv, environment, folder_of(task), stdin, files.out, files.err, seconds_left(task), task.memory


def _stdin(lease: Lease, files: Attempt) -> str:
    """A file, so that nobody has to feed it: a task that does not read blocks no one."""
    given = lease.task.params.get("stdin")
    if given is None:
        return os.devnull
    write(files.stdin(lease.token), as_text(given))
    return files.stdin(lease.token)


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def read_end(lease: Lease, files: Attempt, ended: Ended, is_out_of_memory: bool) -> TaskEnded:
    """What became of it: the outcome, and the output if it ended well."""
    task = lease.task
    reports, report_error = _reported(files.error(lease.token))
    is_well = ended.status == 0 and not ended.why
    _clean(lease, files)
    if is_well and not reports and not report_error and not task.files:
        return _read_output(lease, files, ended)
    outcome = Outcome(
        exit_code=ended.exit_code,
        signal=ended.signal,
        is_timed_out=ended.why == "timeout",
        is_out_of_memory=is_out_of_memory,
        stderr_tail=outputs.tail(files.err),
        reported=reports,
        report_error=report_error,
        missing_outputs=missing(task) if is_well else (),
    )
    if is_well and not outcome.missing_outputs:
        return _read_output(lease, files, ended, outcome)
    return report(task, outcome, None, ended)


def _read_output(lease: Lease, files: Attempt, ended: Ended, seen: Outcome = _WELL) -> TaskEnded:
    try:
        output = outputs.captured(files.out, files.output(lease.token), lease.task.capture)
    except outputs.NotUsable as problem:
        return report(lease.task, _with_problem(seen, str(problem)), None, ended)
    return report(lease.task, seen, output, ended)


def _with_problem(seen: Outcome, problem: str) -> Outcome:
    return Outcome(
        stderr_tail=seen.stderr_tail, reported=seen.reported, report_error=seen.report_error, output_error=problem
    )


def _reported(path: str) -> tuple[tuple[Any, ...], str]:
    try:
        return outputs.reported(path), ""
    except outputs.NotUsable as problem:
        return (), str(problem).removeprefix("it ")


def missing(task: Task) -> tuple[str, ...]:
    """The declared files that are not there. They are relative to where `run` was called."""
    home = task.home or "/"
    return tuple(name for name, path in task.files.items() if not os.path.exists(os.path.join(home, path)))


def _clean(lease: Lease, files: Attempt) -> None:
    """What was only fed to it."""
    if lease.task.context:
        outputs.remove(files.context(lease.token))
    if "stdin" in lease.task.params:
        outputs.remove(files.stdin(lease.token))
