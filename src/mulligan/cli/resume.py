"""`mulligan resume`: continue a run that no process drives, or that is paused."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.capacity import Gpus, Memory, Parallel, asked_capacity
from mulligan.cli.continue_run import continue_run, mention_changed_file
from mulligan.cli.drive_run import drive_run
from mulligan.cli.options import AsJson, By, HomeFolder, Reason, service_at
from mulligan.cli.parameters import Argument
from mulligan.cli.run import Wait
from mulligan.cli.terminal import complain
from mulligan.service import parse_duration


def resume(
    run: Annotated[
        str | None, Argument(metavar="RUN", help="The number of a run (default: the newest that no process drives).")
    ] = None,
    step: Annotated[str | None, Argument(metavar="STEP", help="A paused step, or a matrix with paused steps.")] = None,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    parallel: Parallel = None,
    memory: Memory = None,
    gpus: Gpus = None,
    wait: Wait = "10m",
    as_json: AsJson = False,
) -> int:
    """Resume a run that was interrupted or paused, or one of its steps.

    Steps that have ended do not run again. The run has the --parallel, --memory and --gpus that it was started with,
    unless others are given. The exit codes are those of `mulligan run`.
    """
    wait_seconds = parse_duration(wait)
    asked = asked_capacity(parallel, memory, gpus)
    with service_at(home, by) as service:
        if run is not None and step is not None:
            run_id = service.find_run(run)
            service.resume_step(run_id, step, reason)
            complain(f"step '{step}' of run {run_id} continues")
            return continue_run(service, run_id, is_wanted=True, as_json=as_json, home=home, asked=asked)
        run_id = service.resumable_run(None if run is None else service.find_run(run))
        mention_changed_file(service, run_id, home)
        if service.record(run_id).status == "paused":
            service.resume(run_id)
            if service.is_driven(run_id):
                complain(f"run {run_id} continues in the process that drives it")
                return 0
        return drive_run(
            service,
            lambda driver: run_id,
            capacity=service.capacity_of(run_id, asked),
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )
