"""`shell`: a text for bash. Its output is what it prints, or what it writes to $MULLIGAN_OUTPUT."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.language.expressions import as_text
from mulligan.language.shell.shell import strict_options
from mulligan.ports import Lease
from mulligan.worker.environment import task_environment, working_folder_of
from mulligan.worker.folders import Folders, ScratchFiles, write_private_file
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.artifact_inputs import InputPreparation, has_large_input
from mulligan.worker.programs import Programs, resolve_interpreter
from mulligan.worker.slots.deadlines import is_past_deadline, seconds_left
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.task_reports import ExitedTask, ProgramNotFound, make_report, with_output_error, without_output

INTERPRETER = "bash"
# How much of standard output is shown for a command that failed without writing to stderr.
STDOUT_TAIL_CHARS = 500
_SUCCESS = Outcome()
_STOPPED = Outcome(is_stopped=True)


def build_command(
    lease: Lease, scratch: ScratchFiles, folders: Folders, programs: Programs
) -> tuple[tuple[Any, ...], bool]:
    """Return what the supervisor has to start, and whether that runs without a shell.

    Raises InputInvalid if a value does not fit, and ProgramNotFound without an interpreter.
    """
    task = lease.task
    environment = task_environment(lease, scratch, folders.outputs(task.run_id))
    folder = working_folder_of(task)
    program, argv, is_direct = _program(task, environment, folder, programs)
    stdin = os.devnull
    if "stdin" in task.params:
        # A file, so that a task which does not read its input blocks nothing.
        stdin = scratch.stdin
        if not has_large_input(task):
            write_private_file(stdin, as_text(task.params["stdin"]))
    left = seconds_left(task)
    return (program, argv, environment, folder, stdin, scratch.out, scratch.err, left, task.memory), is_direct


def prepare_input(task: Task, scratch: ScratchFiles, new_path: Callable[[], str]) -> InputPreparation:
    """Return how to write its standard input if that is large."""
    path = new_path()
    call = "mulligan.worker.actions.shell:write_stdin"
    return InputPreparation(call, {"path": path, "value": task.params["stdin"]}, {path: scratch.stdin})


def write_stdin(path: str, value: Any) -> None:
    """Write standard input. Called in a child."""
    write_private_file(path, as_text(value))


def _program(task: Task, environment: dict[str, str], folder: str, programs: Programs) -> tuple[str, list[str], bool]:
    """Return what to start: the shell with the text, or the one program that it would run."""
    text = task.params["text"]
    interpreter = resolve_interpreter(task.params.get("interpreter", INTERPRETER), task.started_in)
    direct = programs.direct_command(text, task.env, folder) if interpreter == INTERPRETER else None
    if direct is not None:
        program, argv, added = direct
        environment.update(added)
        return program, argv, True
    path = programs.find_interpreter(interpreter, environment)
    if path is None:
        raise ProgramNotFound(interpreter)
    options = strict_options(interpreter) if task.params.get("strict") else ()
    return path, [interpreter, *options, "-c", text], False


def read_output(exited: ExitedTask) -> Any:
    """Return the output of a command, or `LargeOutput`; raise OutputInvalid or OutputNotKept."""
    task, out, output_file = exited.task, exited.logs.out, exited.scratch.output
    bytes_max = LOOP_BYTES_MAX_REDACTED if task.secrets else LOOP_BYTES_MAX
    large = outputs.find_large_output(out, output_file, task.capture, bytes_max)
    return large or outputs.read_output(out, output_file, task.capture)


def read_exit(exited: ExitedTask, read: Callable[[ExitedTask], Any] = read_output) -> TaskEnded:
    """Return the report: the outcome and, if it succeeded, the output that `read` returns."""
    task, logs, process_exit = exited.task, exited.logs, exited.process_exit
    reports, report_error = outputs.read_reported_errors(exited.scratch.error)
    # A stopped task may succeed in its grace period: the core decides whether that counts.
    is_stopped = process_exit.stop_reason == "stopped"
    has_succeeded = process_exit.status == 0 and (is_stopped or not process_exit.stop_reason)
    missing = outputs.missing_files(task) if has_succeeded and task.files else ()
    if has_succeeded and not (reports or report_error or missing):
        return _with_output(exited, read, _STOPPED if is_stopped else _SUCCESS)
    is_timed_out = process_exit.stop_reason == "timeout"
    stderr = outputs.read_ends(logs.err)
    outcome = Outcome(
        exit_code=process_exit.exit_code,
        signal=process_exit.signal,
        is_timed_out=is_timed_out,
        is_out_of_memory=exited.is_out_of_memory,
        stderr_tail=stderr.tail,
        stderr_head=stderr.head,
        stderr_left_out=stderr.left_out,
        stdout_tail="" if has_succeeded or stderr.tail.strip() else outputs.read_tail(logs.out)[-STDOUT_TAIL_CHARS:],
        reported=reports,
        report_error=report_error,
        missing_outputs=missing,
        is_stopped=is_stopped,
        is_past_deadline=is_timed_out and is_past_deadline(task, process_exit.started + process_exit.import_seconds),
    )
    # A reported error fails it; after a reported warning its output counts.
    if has_succeeded:
        return _with_output(exited, read, outcome)
    return make_report(task, outcome, None, process_exit)


def _with_output(exited: ExitedTask, read: Callable[[ExitedTask], Any], outcome: Outcome) -> TaskEnded:
    output = None
    try:
        output = read(exited)
    except outputs.OutputNotKept as reason:
        outcome = without_output(outcome, reason)
    except outputs.OutputInvalid as problem:
        outcome = with_output_error(outcome, str(problem))
    return make_report(exited.task, outcome, output, exited.process_exit)
