"""`shell`: a text for bash. Its output is what it prints, or what it writes to $MULLIGAN_OUTPUT."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.language.expressions import as_text
from mulligan.language.shell import strict_options
from mulligan.ports import Lease
from mulligan.worker import outputs
from mulligan.worker.ended import Ended, NotFound, report, with_problem
from mulligan.worker.environment import folder_of, of_task
from mulligan.worker.fetching import is_large
from mulligan.worker.folders import Folders, Logs, Sides, write_side
from mulligan.worker.loop_bounds import LOOP_BYTES_MAX, LOOP_BYTES_MAX_VEILED
from mulligan.worker.preparation import Preparation
from mulligan.worker.programs import Programs, located
from mulligan.worker.timing import is_past_deadline, seconds_left

INTERPRETER = "bash"
# Of what a command printed, where it failed and wrote nothing to stderr.
STDOUT_TAIL_CHARS = 500
_WELL = Outcome()
_STOPPED = Outcome(is_stopped=True)


def order(lease: Lease, sides: Sides, folders: Folders, programs: Programs) -> tuple[tuple[Any, ...], bool]:
    """What the supervisor is to start, and whether that is not the shell itself.

    InputInvalid where a value does not fit; NotFound without an interpreter.
    """
    task = lease.task
    environment = of_task(lease, sides, folders.outputs(task.run_id))
    folder = folder_of(task)
    program, argv, is_direct = _program(task, environment, folder, programs)
    stdin = os.devnull
    if "stdin" in task.params:
        # A file, so that nobody has to feed it: a task that does not read blocks no one.
        stdin = sides.stdin
        if not is_large(task):
            write_side(stdin, as_text(task.params["stdin"]))
    left = seconds_left(task)
    return (program, argv, environment, folder, stdin, sides.out, sides.err, left, task.memory), is_direct


def preparation(task: Task, sides: Sides, new_path: Callable[[], str]) -> Preparation:
    """How its input is written where that is large."""
    path = new_path()
    call = "mulligan.worker.actions.shell:write_stdin"
    return Preparation(call, {"path": path, "value": task.params["stdin"]}, {path: sides.stdin})


def write_stdin(path: str, value: Any) -> None:
    """Called in a child."""
    write_side(path, as_text(value))


def _program(task: Task, environment: dict[str, str], folder: str, programs: Programs) -> tuple[str, list[str], bool]:
    """What to start: the shell with the text, or the one program that it would become."""
    text = task.params["text"]
    interpreter = located(task.params.get("interpreter", INTERPRETER), task.home)
    direct = programs.direct(text, task.env, folder) if interpreter == INTERPRETER else None
    if direct is not None:
        program, argv, added = direct
        environment.update(added)
        return program, argv, True
    found = programs.interpreter(interpreter, environment)
    if found is None:
        raise NotFound(interpreter)
    options = strict_options(interpreter) if task.params.get("strict") else ()
    return found, [interpreter, *options, "-c", text], False


def captured(task: Task, logs: Logs | Sides, sides: Sides) -> Any:
    """What a command gave; NotUsable and NoOutput as `outputs.captured`. Where there is much of it: `Large`."""
    bytes_max = LOOP_BYTES_MAX_VEILED if task.secrets else LOOP_BYTES_MAX
    large = outputs.large(logs.out, sides.output, task.capture, bytes_max)
    return large or outputs.captured(logs.out, sides.output, task.capture)


def read_end(
    lease: Lease,
    logs: Logs | Sides,
    sides: Sides,
    ended: Ended,
    is_out_of_memory: bool,
    programs: Programs,
    give: Callable[[Task, Logs | Sides, Sides], Any] = captured,
) -> TaskEnded:
    """What became of it: the outcome, and the output if it ended well, which is for `give` to say."""
    task, given = lease.task, partial(give, lease.task, logs, sides)
    reports, report_error = outputs.reports(sides.error)
    # One that was asked to end may end well in its grace: whether that counts is not for us to say.
    is_stopped = ended.why == "stopped"
    is_well = ended.status == 0 and (is_stopped or not ended.why)
    gone = outputs.missing(task) if is_well and task.files else ()
    if is_well and not (reports or report_error or gone):
        return _with_output(task, given, ended, _STOPPED if is_stopped else _WELL)
    is_timed_out = ended.why == "timeout"
    stderr = outputs.tail(logs.err)
    outcome = Outcome(
        exit_code=ended.exit_code,
        signal=ended.signal,
        is_timed_out=is_timed_out,
        is_out_of_memory=is_out_of_memory,
        stderr_tail=stderr,
        stdout_tail="" if is_well or stderr.strip() else outputs.tail(logs.out)[-STDOUT_TAIL_CHARS:],
        reported=reports,
        report_error=report_error,
        missing_outputs=gone,
        is_stopped=is_stopped,
        is_past_deadline=is_timed_out and is_past_deadline(task, ended.started),
    )
    # An error that it reports fails it, a warning does not: then what it gave counts.
    return _with_output(task, given, ended, outcome) if is_well else report(task, outcome, None, ended)


def _with_output(task: Task, given: Callable[[], Any], ended: Ended, seen: Outcome) -> TaskEnded:
    try:
        output = given()
    except outputs.NoOutput as reason:
        return report(task, msgspec.structs.replace(seen, output_warning=str(reason)), None, ended)
    except outputs.NotUsable as problem:
        return report(task, with_problem(seen, str(problem)), None, ended)
    return report(task, seen, output, ended)
