"""What was measured of a process that ended, and the reports made of it."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import ExpressionFailed, InputInvalid
from mulligan.worker.folders import Logs, ScratchFiles
from mulligan.worker.outputs.outputs import OutputNotKept
from mulligan.worker.programs import Programs
from mulligan.worker.secrets.secrets import SecretMissing
from mulligan.worker.slots.machine_trouble import trouble_of

# The exit codes of a shell for a missing program and for one that cannot be executed.
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


# Why a child's result is missing if the step interfered with its connection.
_MISSING_RESULT_REASONS = {
    "protocol error": "it wrote to the connection that returns its result, so the result is lost",
    "disconnected": "it closed the connection that returns its result, so the result is lost",
}


class ProgramNotFound(Exception):
    """The program that has to run a task is not on the path."""


class FolderMissing(Exception):
    """The run of a task works in a folder that this host, its argument, does not have. Another worker may have it."""


# A shorter import is not recorded.
IMPORT_NOTED_SECONDS = 0.1


class ProcessExit(msgspec.Struct, frozen=True):
    """What was measured of a process, or of a step in a warm child. Times are wall-clock times."""

    # As returned by `wait`.
    status: int
    started: float
    ended: float
    cpu_seconds: float
    peak_memory: int
    # Why it was ended: "timeout", "memory", "log limit", "expired", "stopped", "interrupted"; "" if it ended by itself.
    stop_reason: str = ""
    # How long its module was imported before the call, whose time limit begins then; and what was still imported when
    # it ended: a module, "" for the code of a step.
    import_seconds: float = 0.0
    importing: str | None = None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def usage(self) -> dict[str, Any]:
        found = {
            "started": _iso(self.started),
            "ended": _iso(self.ended),
            "wall_seconds": round(self.ended - self.started, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "peak_memory": self.peak_memory,
        }
        # An import that takes no time worth saying is part of nearly every first step.
        is_long = self.import_seconds >= IMPORT_NOTED_SECONDS
        return {**found, "import_seconds": round(self.import_seconds, 3)} if is_long else found


class ExitedTask(msgspec.Struct, frozen=True):
    """A task whose process has ended, and where what it has written is."""

    task: Task
    logs: Logs | ScratchFiles
    scratch: ScratchFiles
    process_exit: ProcessExit
    is_out_of_memory: bool
    programs: Programs


def make_report(task: Task, outcome: Outcome, output: Any = None, process_exit: ProcessExit | None = None) -> TaskEnded:
    """Make a report. It goes to the engine after `TaskBoundary.sanitize`."""
    return TaskEnded(
        datetime.now(UTC),
        task.place,
        task.attempt,
        outcome=outcome,
        output=output,
        usage=process_exit.usage if process_exit is not None else {},
    )


def with_log_warning(report: TaskEnded, warning: str) -> TaskEnded:
    """Return the report with a warning about its logs."""
    return msgspec.structs.replace(report, outcome=msgspec.structs.replace(report.outcome, log_warning=warning))


def without_output(outcome: Outcome, reason: OutputNotKept) -> Outcome:
    """Return the outcome of a task that succeeded with an output that is too large to be kept."""
    return msgspec.structs.replace(outcome, output_warning=str(reason), output_bytes=reason.size)


def with_output_error(outcome: Outcome, problem: str) -> Outcome:
    """Return the outcome of a task that succeeded with an output that is not valid."""
    return Outcome(
        stderr_tail=outcome.stderr_tail,
        reported=outcome.reported,
        report_error=outcome.report_error,
        missing_outputs=outcome.missing_outputs,
        output_error=problem,
    )


def report_output_error(report: TaskEnded, problem: str) -> TaskEnded:
    """Return the report of a task whose output is not valid."""
    return msgspec.structs.replace(report, outcome=with_output_error(report.outcome, problem), output=None)


def missing_result_reason(process_exit: ProcessExit, returns: str) -> str:
    """Return why the result of `returns` is missing, whose process ended; "" if the exit itself explains it."""
    if process_exit.exit_code == 0 and not process_exit.stop_reason:
        return f"its process exited before {returns} returned"
    return _MISSING_RESULT_REASONS.get(process_exit.stop_reason, "")


def report_refusal(task: Task, message: str, code: str = "INPUT_INVALID", machine: str = "") -> TaskEnded:
    """Report a task that could not be started. `machine`: what is wrong with the machine, if that is why."""
    return make_report(
        task, Outcome(exit_code=None, code=code, message=message, machine=machine, is_machine_broken=bool(machine))
    )


# The errors that keep a task from being started.
START_ERRORS = (InputInvalid, ExpressionFailed, SecretMissing, ProgramNotFound, FolderMissing, UnicodeError, OSError)


def report_start_error(task: Task, error: Exception) -> TaskEnded:
    """Report a task that could not be started because of one of START_ERRORS."""
    if isinstance(error, SecretMissing):
        return report_refusal(task, str(error), error.code)
    if isinstance(error, InputInvalid | ExpressionFailed):
        code = "INPUT_INVALID" if isinstance(error, InputInvalid) else error.failure_code
        return report_refusal(task, "; ".join(filter(None, (error.message, error.hint))), code)
    if isinstance(error, ProgramNotFound):
        return report_program_missing(task, str(error))
    if isinstance(error, FolderMissing):
        message = f"the folder '{task.home}' of its run is not on host '{error}'"
        return make_report(task, Outcome(exit_code=None, code="INPUT_INVALID", message=message, lacks_folder=task.home))
    if isinstance(error, OSError):
        trouble = trouble_of(error.errno)
        return report_refusal(task, f"its files cannot be written: {error_reason(error)}", "EXCEPTION", trouble)
    return report_refusal(task, "a value contains a lone surrogate, which no process can be given")


def report_program_missing(task: Task, program: str) -> TaskEnded:
    """Report it as a shell does."""
    return make_report(task, Outcome(exit_code=_NOT_FOUND, stderr_tail=f"{program}: command not found"))


def report_folder_error(task: Task, folder: str, reason: str) -> TaskEnded:
    return report_refusal(task, f"the folder '{folder}' cannot be entered: {reason.lower()}")


def report_spawn_error(task: Task, folder: str, error_number: int, reason: str) -> TaskEnded:
    """Report the system's error from starting the process or, if `folder` is set, from changing to that folder."""
    if folder:
        return report_folder_error(task, folder, reason)
    if error_number == errno.E2BIG:
        return report_refusal(task, "its text and its values together are too large to start a process with")
    action = traits(task.kind, task.params)
    is_ours = bool(action.script or action.runs_python) and not task.params.get("interpreter")
    broken = f"the program that runs {task.kind} steps is broken" if error_number and is_ours else ""
    if trouble := trouble_of(error_number) or broken:
        message = f"{_program_of(task)} cannot be started: {reason.lower()}"
        return report_refusal(task, message, "EXCEPTION", trouble)
    if error_number in (errno.EACCES, errno.ENOEXEC):
        message = f"{_program_of(task)} cannot be executed: {reason.lower()}"
        return make_report(task, Outcome(exit_code=_NOT_EXECUTABLE, stderr_tail=message))
    # Without a number no system call failed: its text or a value cannot be passed to a process.
    message = f"{_program_of(task)} cannot be started: {reason.lower()}"
    return report_refusal(task, message, "EXCEPTION" if error_number else "INPUT_INVALID")


def _program_of(task: Task) -> str:
    """Return the interpreter that the workflow names, quoted; otherwise "it"."""
    named = task.params.get("interpreter")
    return f"'{named}'" if named else "it"


def _iso(seconds: float) -> str:
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_iso_second(whole)}.{micros:06}+00:00"


@lru_cache(maxsize=8)
def _iso_second(seconds: int) -> str:
    """Format up to the second: many tasks start and end in the same one."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
