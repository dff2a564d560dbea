"""`python`: code with a `main`, or a function of a module. Its output is what it returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.on_dask import SCHEDULER, wants_client
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.plugins import MOVED_CALLS
from mulligan.ports import Lease
from mulligan.worker.child.warm_child import CallRequest, CallResult
from mulligan.worker.environment import task_environment, working_folder_of
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.artifact_inputs import unavailable_value
from mulligan.worker.programs import Programs, resolve_interpreter
from mulligan.worker.task_reports import ProcessExit, ProgramNotFound, make_report, report_folder_error, report_refusal

_SUCCESS = Outcome()


def interpreter_of(task: Task, programs: Programs) -> str:
    """Return the program that runs it: ours, unless the workflow names another."""
    name = task.params.get("interpreter")
    if name is None:
        return sys.executable
    path = programs.find_interpreter(resolve_interpreter(name, task.started_in), {})
    if path is None:
        raise ProgramNotFound(name)
    return path


def child_group_of(task: Task) -> str:
    """Return the workflow's version: workflows do not share imported modules."""
    return task.version


def build_call(lease: Lease, scratch: ScratchFiles, folders: Folders) -> CallRequest:
    """Return what the child has to call. InputInvalid if a value does not fit."""
    params = lease.task.params
    args, call = params.get("args", {}), params.get("call", "")
    # A converted file or a stored run may name a function of ours that has moved.
    request = make_call(lease, scratch, folders, args, code=params.get("code", ""), call=MOVED_CALLS.get(call, call))
    if "on" in params and wants_client(params):
        request = msgspec.structs.replace(request, dask=_scheduler_of(params))
    if "source" not in params and "import_from" not in params:
        return request
    # `imports_from`, which would be one more call for each step.
    home = lease.task.source or lease.task.started_in
    file = os.path.join(home, params["file"]) if "file" in params else ""
    folder = os.path.join(home, params["import_from"]) if "import_from" in params else os.path.dirname(file)
    return msgspec.structs.replace(request, source=params.get("source", ""), file=file, import_from=folder)


def _scheduler_of(params: Mapping[str, Any]) -> str:
    if SCHEDULER not in params:
        raise InputInvalid(
            "it says 'on: {dask: true}', and this worker has no Dask cluster",
            hint="start the run, or the worker, with --on dask://HOST:PORT",
        )
    return str(params[SCHEDULER])


def make_call(
    lease: Lease,
    scratch: ScratchFiles,
    folders: Folders,
    args: dict[str, Any],
    *,
    code: str = "",
    call: str = "",
    is_ours: bool = False,
) -> CallRequest:
    """Return a request for code with a `main`, or for a function, with its arguments.

    Our own functions import nothing from the run's folder: a file `ssl.py` there would get their secrets.
    """
    task = lease.task
    env = task_environment(lease, scratch, folders.outputs(task.run_id))
    home = "" if is_ours else task.source or task.started_in or "/"
    return CallRequest(step=task.step, args=args, env=env, cwd=working_folder_of(task), home=home, code=code, call=call)


def report_result(
    lease: Lease,
    folders: Folders,
    scratch: ScratchFiles,
    result: CallResult,
    process_exit: ProcessExit,
    *,
    has_files: bool = True,
) -> TaskEnded:
    """Return the report of a step whose child is alive. `has_files`: it may have written some beside its logs."""
    task = lease.task
    if result.folder:
        return report_folder_error(task, working_folder_of(task), result.folder)
    if result.unreadable:
        return report_refusal(task, unavailable_value(result.unreadable))
    if result.refused:
        return report_refusal(task, result.refused)
    return make_report(
        task, _outcome(task, folders, scratch if has_files else None, result), result.output, process_exit
    )


def _outcome(task: Task, folders: Folders, scratch: ScratchFiles | None, result: CallResult) -> Outcome:
    if result.reported is not None:
        return Outcome(
            exit_code=None,
            reported=(result.reported,),
            trace=result.trace,
            exceptions=result.exceptions,
            traceback=result.traceback,
        )
    if result.exception:
        return Outcome(
            code="EXCEPTION",
            exit_code=None,
            message=result.exception,
            trace=result.trace,
            exceptions=result.exceptions,
            traceback=result.traceback,
        )
    if result.exit:
        err = folders.logs(task.run_id, task.place, task.attempt).err
        ends = outputs.read_ends(err) if result.err else outputs.LogEnds("", "")
        return Outcome(
            exit_code=result.exit, stderr_tail=ends.tail, stderr_head=ends.head, stderr_left_out=ends.left_out
        )
    reports, report_error = outputs.read_reported_errors(scratch.error) if scratch is not None else ((), "")
    gone = outputs.missing_files(task) if task.files else ()
    if not (reports or report_error or result.invalid or gone):
        return _SUCCESS
    return Outcome(reported=reports, report_error=report_error, missing_outputs=gone, output_error=result.invalid)
