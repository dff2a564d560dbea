"""`mulligan resume`: on with a run that nobody drives, or that was paused."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.continue_run import go_on, mention_changed_file
from mulligan.cli.drive_run import conduct
from mulligan.cli.options import AsJson, By, HomeFolder, Reason, service_at
from mulligan.cli.parameters import Argument
from mulligan.cli.run import Parallel, Wait, checked_parallel
from mulligan.cli.terminal import complain
from mulligan.service import parse_duration


def resume(
    run: Annotated[str | None, Argument(metavar="RUN", help="The run: else the newest that nobody drives.")] = None,
    step: Annotated[
        str | None, Argument(metavar="STEP", help="A step that was paused, or the steps of a matrix that were.")
    ] = None,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    parallel: Parallel = None,
    wait: Wait = "10m",
    as_json: AsJson = False,
) -> int:
    """Resume a run that was interrupted or paused, or one of its steps.

    No step that has ended runs again. The exit codes are those of `mulligan run`.
    """
    wait_seconds = parse_duration(wait)
    with service_at(home, by) as service:
        if run is not None and step is not None:
            run_id = service.find_run(run)
            service.resume_step(run_id, step, reason)
            complain(f"step '{step}' of run {run_id} goes on")
            return go_on(service, run_id, is_wanted=True, as_json=as_json, home=home)
        run_id = service.resumable_run(None if run is None else service.find_run(run))
        mention_changed_file(service, run_id, home)
        if service.record(run_id).status == "paused":
            service.resume(run_id)
            if service.is_driven(run_id):
                complain(f"run {run_id} goes on in the process that drives it")
                return 0
        return conduct(
            service,
            lambda driver: run_id,
            parallel=checked_parallel(parallel),
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )
