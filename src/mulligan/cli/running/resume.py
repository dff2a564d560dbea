"""`mulligan resume`: continue a run that nothing is running, or that is paused."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain
from mulligan.cli.running.continue_run import (
    Continuation,
    Detach,
    continue_run,
    detach_run,
    mention_changed_file,
    show_detached,
)
from mulligan.cli.running.drive_run import CommandContext, drive_run
from mulligan.cli.running.run import Wait
from mulligan.cli.words.capacity import Gpus, Memory, On, ParallelOrNone, asked_capacity
from mulligan.cli.words.options import AsJson, By, HomeFolder, Reason, service_at
from mulligan.cli.words.parameters import Argument, Option
from mulligan.service.authoring.values import parse_duration


def resume(
    run: Annotated[
        str | None, Argument("RUN", "The number of a run (default: the newest that nothing is running).")
    ] = None,
    step: Annotated[str | None, Argument("STEP", "A paused step, or a matrix with paused steps.")] = None,
    steps: Annotated[int | None, Option("N", "Run N steps, then pause the run (default: run all of them).")] = None,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    parallel: ParallelOrNone = None,
    memory: Memory = None,
    gpus: Gpus = None,
    on: On = None,
    wait: Wait = "10m",
    detach: Detach = False,
    as_json: AsJson = False,
) -> int:
    """Resume a run that was interrupted or paused, or one of its steps.

    Steps that have ended do not run again. The run has the --parallel, --memory and --gpus that it was started with,
    unless others are given. The exit codes are those of `mulligan run`.

    With --steps N the next N steps run, in the order of the file if several are ready, and the run is paused again. A
    step counts with its retries, handlers and items; a group or a called workflow counts as one.
    """
    _check_steps(steps, step)
    wait_seconds = parse_duration(wait)
    asked = asked_capacity(parallel, memory, gpus, on, may_be_none=True)
    with service_at(home, by) as service:
        context = CommandContext(service, home, as_json)
        if run is not None and step is not None:
            run_id = service.runs.find(run)
            service.changes.resume(run_id, step=step, reason=reason)
            complain(f"step '{step}' of run {run_id} continues")
            chosen = Continuation(None if detach or service.runs.is_driven(run_id) else True, detach)
            return continue_run(context, run_id, chosen, asked=asked)
        run_id = service.changes.newest_idle_run() if run is None else service.runs.find(run)
        # Otherwise a worker may have taken it up since, whose progress is shown.
        is_lifted = steps is not None or service.runs.record(run_id).status == "paused"
        service.changes.resume(run_id, steps=steps or 0, reason=reason)
        mention_changed_file(context, run_id)
        if is_lifted and service.runs.is_driven(run_id):
            complain(f"run {run_id} continues in the process that drives it")
            return 0
        if detach:
            return show_detached(context, detach_run(service, run_id, asked, wait))
        capacity = service.starts.capacity_of(run_id, asked)
        return drive_run(context, lambda _: run_id, capacity=capacity, wait_seconds=wait_seconds)


def _check_steps(steps: int | None, step: str | None) -> None:
    if steps is not None and steps < 1:
        raise UsageRefused(f"--steps must be at least 1, not {steps}")
    if steps is not None and step is not None:
        raise UsageRefused("--steps is for the whole run, and a paused step was named", hint="leave one of them out")
